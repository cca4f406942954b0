"""Refuse, in milliseconds, what would crash or hang libcst.

libcst's parser overflows its stack (a crash that Python cannot catch) on deep nesting and takes
minutes on long chains of operators.  CPython's own parser rejects most of that, with a better
position; the rest is caught by measuring the depth of its tree.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings

from dlcheck.facts import Unreadable

MAX_EXPRESSION_DEPTH = 150
MAX_STATEMENT_DEPTH = 400  # a chain of elif nests, too
MAX_CHAIN = 300
MAX_BRACKETS = 100


def refuse_hazards(text: str) -> None:
    """Raise Unreadable for text that is not Python or that libcst must not see."""
    try:
        tree = _parse(text)
    except SyntaxError as error:
        _refuse_unless_newer_syntax(text, error)
    except (ValueError, UnicodeError) as error:
        line = text.count("\n", 0, max(text.find("\0"), 0)) + 1
        raise Unreadable(line, 1, str(error)) from None
    except (RecursionError, MemoryError):
        raise Unreadable(1, 1, "nested too deeply to be parsed") from None
    else:
        _refuse_deep_tree(tree)


def _parse(text: str) -> ast.AST:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text, "<source>", "exec", ast.PyCF_ONLY_AST)


def _refuse_deep_tree(tree: ast.AST) -> None:
    statement, expression = ast.stmt, ast.expr
    todo: list[tuple[ast.AST, int, int]] = [(tree, 0, 0)]
    while todo:
        node, statements, expressions = todo.pop()
        if expressions > MAX_EXPRESSION_DEPTH or statements > MAX_STATEMENT_DEPTH:
            line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
            raise Unreadable(line, column, "nested too deeply to be parsed safely")
        for name in node._fields:
            value = getattr(node, name, None)
            children = value if value.__class__ is list else (value,)
            for child in children:
                if isinstance(child, expression):
                    todo.append((child, statements, expressions + 1))
                elif isinstance(child, statement):
                    todo.append((child, statements + 1, 0))
                elif isinstance(child, ast.AST) and child._fields:
                    todo.append((child, statements, expressions))


def _refuse_unless_newer_syntax(text: str, error: SyntaxError) -> None:
    """A syntax error may only mean that the running Python is older than the file.

    libcst decides then, unless the tokens themselves look dangerous or do not even scan.
    """
    refused = Unreadable(error.lineno or 1, max(error.offset or 1, 1), error.msg)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError, ValueError):
        raise refused from None
    if _has_hazardous_tokens(tokens):
        raise refused from None
    _probe(text, refused)


def _has_hazardous_tokens(tokens: list[tokenize.TokenInfo]) -> bool:
    chains = [0]
    elifs = 0
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            chains[-1] = 0
        elif token.type == tokenize.NAME and token.string == "elif":
            elifs += 1
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
        if len(chains) > MAX_BRACKETS or chains[-1] > MAX_CHAIN or elifs > MAX_STATEMENT_DEPTH:
            return True
    return False


def _probe(text: str, refused: Unreadable) -> None:
    import libcst

    try:
        libcst.parse_module(text)
    except Exception:  # noqa: BLE001 -- whatever libcst says, CPython's message and place are the better ones
        raise refused from None
