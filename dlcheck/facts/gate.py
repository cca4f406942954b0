"""Refuse, in milliseconds, what would crash or hang libcst.

libcst's parser overflows its stack (a crash that Python cannot catch) on deep nesting and takes
minutes on long chains of operators.  CPython's own parser rejects most of that, with a better
position; the rest is caught by measuring the depth of its tree.
"""

from __future__ import annotations

import ast
import io
import symtable
import tokenize
import warnings
from collections.abc import Iterable
from itertools import accumulate

from dlcheck.facts import Unreadable

MAX_EXPRESSION_DEPTH = 150
MAX_STATEMENT_DEPTH = 400  # a chain of elif nests, too
MAX_CHAIN = 300
MAX_BRACKETS = 100
MAX_OPERANDS = (
    2000  # of one ``and`` or ``or``, names of one dotted name: flat in CPython's tree, but nested in libcst's
)
MAX_PATTERN_WEIGHT = 18  # libcst's time for a pattern doubles with each bracket, and more so with a brace


def refuse_unless_python(text: str) -> None:
    """Raise Unreadable for text that is not Python, or that is nested too deeply to tell.

    For text that nobody reads any further: a table of its names takes CPython half as long as a tree, and no depth of
    the tree has to be measured.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable.symtable(text, "<source>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # A table is refused for more than a tree, such as two parameters of one name: the tree counts.
        refuse_hazards(text)


def refuse_hazards(text: str) -> ast.Module | None:
    """Raise Unreadable for text that is not Python or that libcst must not see.

    CPython's tree of the text, where the running Python knows its syntax.
    """
    null = text.find("\0")
    if null >= 0:  # which CPython places nowhere
        before = text[:null]
        column = null - max(before.rfind("\n"), before.rfind("\r"))
        line = before.count("\n") + before.count("\r") - before.count("\r\n") + 1
        raise Unreadable(line, column, "source code cannot contain null bytes")
    try:
        tree = parsed(text)
    except SyntaxError as error:
        _refuse_unless_newer_syntax(text, error)
    except (ValueError, UnicodeError) as error:
        raise Unreadable(1, 1, str(error)) from None
    except (RecursionError, MemoryError):
        raise Unreadable(1, 1, "nested too deeply to be parsed") from None
    else:
        if _refuse_deep_tree(tree):
            _refuse_deep_patterns(text)
        return tree
    return None


def parsed(text: str) -> ast.Module:
    """CPython's tree of a text; raises what ``compile`` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = compile(text, "<source>", "exec", ast.PyCF_ONLY_AST)
    assert isinstance(tree, ast.Module)
    return tree


def _operands(node: ast.AST) -> int:
    """How many operands or names libcst nests where CPython's tree is flat."""
    if isinstance(node, ast.BoolOp):
        return len(node.values)
    if isinstance(node, ast.alias):
        return node.name.count(".")
    return (node.module or "").count(".") if isinstance(node, ast.ImportFrom) else 0


def _refuse_deep_tree(tree: ast.AST) -> bool:
    """Whether there are patterns in a tree that is not too deep."""
    statement, expression = ast.stmt, ast.expr
    patterns = False
    todo: list[tuple[ast.AST, int, int]] = [(tree, 0, 0)]
    while todo:
        node, statements, expressions = todo.pop()
        kind = node.__class__
        patterns = patterns or kind is ast.Match
        too_long = _operands(node) > MAX_OPERANDS
        if too_long or expressions > MAX_EXPRESSION_DEPTH or statements > MAX_STATEMENT_DEPTH:
            line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
            raise Unreadable(line, column, "nested too deeply to be parsed safely")
        for name in node._fields:
            value = getattr(node, name, None)
            children = value if value.__class__ is list else (value,)
            for child in children:
                if isinstance(child, expression):
                    if not _is_short(child, MAX_EXPRESSION_DEPTH - expressions):
                        todo.append((child, statements, expressions + 1))
                elif isinstance(child, statement):
                    todo.append((child, statements + 1, 0))
                elif isinstance(child, ast.AST) and child._fields:
                    todo.append((child, statements, expressions))
    return patterns


def _is_short(node: ast.expr, most: int) -> bool:
    """Whether an expression has fewer characters than levels are allowed, and each level takes one at least."""
    return node.lineno == node.end_lineno and (node.end_col_offset or 0) - node.col_offset < most


def _refuse_deep_patterns(text: str) -> None:
    try:
        deep = _deep_pattern(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return  # CPython's parser has read it; only its tokenizer for programs does not
    if deep is not None:
        raise Unreadable(deep.start[0], deep.start[1] + 1, "a pattern nested too deeply to be parsed safely")


def _deep_pattern(tokens: Iterable[tokenize.TokenInfo]) -> tokenize.TokenInfo | None:
    """The first bracket that is too deep in what follows ``case`` at the start of a statement."""
    weights: list[int] = []
    start, inside = True, False
    for token in tokens:
        if token.type in _BETWEEN:
            start, inside = True, False
            weights.clear()
        elif start and token.type not in (tokenize.COMMENT, tokenize.NL):
            start, inside = False, token.string == "case"
        elif inside and token.type == tokenize.OP:
            if token.string in "([{":
                weights.append(3 if token.string == "{" else 1)
                if sum(weights) > MAX_PATTERN_WEIGHT:
                    return token
            elif token.string in ")]}" and weights:
                weights.pop()
            elif token.string == ":" and not weights:
                inside = False
    return None


_BETWEEN = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def _refuse_unless_newer_syntax(text: str, error: SyntaxError) -> None:
    """A syntax error may only mean that the running Python is older than the file.

    libcst decides then, unless the tokens themselves look dangerous or do not even scan.
    """
    refused = Unreadable(error.lineno or 1, max(error.offset or 1, 1), error.msg)
    if error.msg.startswith(("(unicode error)", "(value error)")):  # a string that no Python can read
        raise refused from None
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError, ValueError):
        raise refused from None
    if _has_hazardous_tokens(tokens) or _deep_pattern(tokens) is not None:
        raise refused from None
    _probe(text, refused)


# Words that nest what follows them as operators do.
_NESTING = frozenset({"and", "await", "else", "for", "if", "in", "is", "not", "or"})


def _has_hazardous_tokens(tokens: list[tokenize.TokenInfo]) -> bool:
    chains = [0]
    elifs = lambdas = 0
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            chains[-1] = lambdas = 0
        elif token.type == tokenize.STRING and _braces(token.string) > MAX_BRACKETS:
            return True
        elif token.type == tokenize.NAME:
            elifs += token.string == "elif"
            lambdas += token.string == "lambda"  # their own commas and colons end no chain
            chains[-1] += token.string in _NESTING
        elif token.type == tokenize.OP:
            if token.string in "([{":
                chains[-1] += 1
                chains.append(0)
            elif token.string in ")]}":
                if len(chains) > 1:
                    chains.pop()
            elif token.string in ",:":
                chains[-1] = 0
            else:
                chains[-1] += 1
        if len(chains) > MAX_BRACKETS or max(chains[-1], lambdas) > MAX_CHAIN or elifs > MAX_STATEMENT_DEPTH:
            return True
    return False


def _braces(string: str) -> int:
    """How deep braces nest in an f-string that is one token, as before Python 3.12."""
    if "f" not in string[: string.find(string[-1])].lower():
        return 0
    depths = accumulate((character == "{") - (character == "}") for character in string)
    return max(depths, default=0)


def _probe(text: str, refused: Unreadable) -> None:
    import libcst

    try:
        libcst.parse_module(text)
    except Exception:  # noqa: BLE001 -- whatever libcst says, CPython's message and place are the better ones
        raise refused from None
