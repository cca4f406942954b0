"""What fixes are put together from: statements, methods and imports, added, replaced or removed as text.

Lines are given without their indentation; they take that of their place.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import sys
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence

from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.facts.forms import ModuleFacts
from dlcheck.findings import Edit, Place
from dlcheck.model import library
from dlcheck.model.scopes import Link, Module, Scope
from dlcheck.source import Source, split_lines

# Bases that give no attributes to what derives from them.
PLAIN_BASES = frozenset(
    {library.DATASET, library.ITERABLE_DATASET, "typing.Generic", "abc.ABC", "builtins.object", "typing.Protocol"}
)

_CLOSING = (")", "]", "}")
_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_BLANKS = re.compile(r"[ \t\f]*")
_REST = re.compile(r"[ \t\f]*(?:#[^\r\n]*)?(?=\r\n|\r|\n|\Z)")
_NEWLINE = re.compile(r"\r\n|\r|\n")


# -- lines


def indentation(text: str, at: int) -> str:
    """The blanks at the beginning of a line."""
    match = _BLANKS.match(text, line_start(text, at))
    return match[0] if match else ""


def line_start(text: str, at: int) -> int:
    """Where the line of an offset begins."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def line_end(text: str, at: int) -> int:
    """Where the line of an offset ends, before what ends it."""
    match = _NEWLINE.search(text, at)
    return match.start() if match else len(text)


def next_line(text: str, at: int) -> int:
    """Where the line after that of an offset begins."""
    match = _NEWLINE.search(text, at)
    return match.end() if match else len(text)


def stands_alone(source: Source, span: tuple[int, int]) -> bool:
    """Whether a range has its lines for itself, but for a comment behind it."""
    text, (start, end) = source.text, span
    return not text[line_start(text, start) : start].strip() and _REST.match(text, end) is not None


def substituted(text: str, start: int, end: int, pieces: Iterable[tuple[int, int, str]]) -> str:
    """A range of a text with other text in the place of some of its parts: first, last, and the new text."""
    out: list[str] = []
    done = start
    for first, last, piece in sorted(pieces):
        out += text[done:first], piece
        done = last
    return "".join((*out, text[done:end]))


def parsed(text: str, mode: str = "exec") -> ast.AST:
    """What Python reads in a text, without its warnings about strange escapes; raises as ``ast.parse`` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text, "fix", mode, ast.PyCF_ONLY_AST, dont_inherit=True)


def one_line(text: str) -> str | None:
    """An expression on one line, with all that its texts hold; None where it cannot be: a comment, a long text."""
    for commas in (True, False):
        line = _joined(text, commas)
        if line is None or "\n" in line or "\r" in line:
            return None
        if line == text:
            return line
        try:
            if ast.dump(parsed(f"({line})", "eval")) == ast.dump(parsed(f"({text}\n)", "eval")):
                return line
        except (SyntaxError, ValueError):
            return None
    return None


def _joined(text: str, without_commas: bool) -> str | None:
    """The lines of an expression joined where blanks mean nothing, without commas behind the last of several."""
    starts = [0]
    for line in split_lines(text):
        starts.append(starts[-1] + len(line))
    if len(starts) == 2:
        return text
    pieces: list[tuple[int, int, str]] = []
    last: tokenize.TokenInfo | None = None
    try:
        for token in tokenize.generate_tokens(io.StringIO(f"({text}\n)", newline="").readline):
            if token.type == tokenize.COMMENT:
                return None
            if token.type in _LAYOUT:
                continue
            if last is not None and token.start[0] > last.end[0]:
                rows = [(row, column - (row == 1)) for row, column in (last.end, token.start)]
                start, end = (min(starts[row - 1] + column, len(text)) for row, column in rows)
                close, opened = token.string in (*_CLOSING, ",", "."), last.string in ("(", "[", "{", ".")
                called = token.string in ("(", "[") and (last.string in _CLOSING or _is_name(last))
                if without_commas and last.string == "," and token.string in _CLOSING:
                    start -= 1
                pieces.append((start, end, "" if close or opened or called else " "))
            last = token
    except (tokenize.TokenError, SyntaxError):
        return None
    return substituted(text, 0, len(text), pieces)


def _is_name(token: tokenize.TokenInfo) -> bool:
    return token.type == tokenize.NAME and not keyword.iskeyword(token.string)


# -- statements

_CROWDED = Refused("several statements stand on one line")


def replace_statement(source: Source, facts: ModuleFacts, link: Link, lines: Sequence[str]) -> Edit | Refused:
    """Other lines in the place of a simple statement; a comment behind it stays behind the first of them."""
    if not lines:
        return remove_statement(source, facts, link)
    text, (start, end) = source.text, facts.span(link.stmt.at)
    if not stands_alone(source, (start, end)):
        return _CROWDED
    if len(lines) == 1:
        return Edit(source.place(start, end), lines[0])
    stop = line_end(text, end)
    first, *others = lines
    indent = indentation(text, start)
    return Edit(source.place(start, stop), "\n".join((first + text[end:stop], *(indent + line for line in others))))


def remove_statement(source: Source, facts: ModuleFacts, link: Link) -> Edit | Refused:
    """A simple statement goes, with its line and the comment behind it; the only one of a block becomes ``pass``."""
    text, (start, end) = source.text, facts.span(link.stmt.at)
    if not stands_alone(source, (start, end)):
        return _CROWDED
    if len(link.block) == 1:
        return Edit(source.place(start, end), "pass")
    begin, stop = line_start(text, start), line_end(text, end)
    if not begin:
        return Edit(source.place(begin, next_line(text, end)), "")
    # The end of the line before goes, not that of its own: what is added below still has its place.
    begin -= 2 if text[begin - 2 : begin] == "\r\n" else 1
    above, below = line_start(text, begin), next_line(text, stop)
    if not text[above:begin].strip() and not text[below : line_end(text, below)].strip() and above:
        begin = above - (2 if text[above - 2 : above] == "\r\n" else 1)  # one empty line is enough
    return Edit(source.place(begin, stop), "")


def insert_before(source: Source, facts: ModuleFacts, link: Link, lines: Sequence[str]) -> Edit | Refused:
    """Lines above a statement, at its depth."""
    text, (start, _) = source.text, facts.span(link.stmt.at)
    at = line_start(text, start)
    if text[at:start].strip():
        return _CROWDED
    return Edit(source.place(at, at), "".join(f"{text[at:start]}{line}\n" for line in lines))


def insert_after(source: Source, facts: ModuleFacts, link: Link, lines: Sequence[str]) -> Edit | Refused:
    """Lines below a statement, at its depth."""
    text, (start, end) = source.text, facts.span(link.stmt.at)
    if text[line_start(text, start) : start].strip() or _REST.match(text, end) is None and text[end - 1 : end] != "\n":
        return _CROWDED
    indent = indentation(text, start)
    stop = line_end(text, end)
    return Edit(source.place(stop, stop), "".join(f"\n{indent}{line}" for line in lines))


# -- expressions


def add_call(source: Source, facts: ModuleFacts, expr: forms.Expr, call: str) -> Edit:
    """A call of a method behind an expression: ``.clone()``."""
    start, end = facts.span(expr.at)
    text = source.text[start:end]
    simple = isinstance(expr, (forms.Name, forms.Attr, forms.Sub, forms.Call))
    if simple:
        return Edit(source.place(end, end), call)
    return Edit(source.place(start, end), f"({text}){call}")


def add_operator(source: Source, facts: ModuleFacts, expr: forms.Expr, operation: str) -> Edit:
    """An operator that binds as strongly as ``*``, and its right side, behind an expression."""
    start, end = facts.span(expr.at)
    text = source.text[start:end]
    if isinstance(expr, (forms.Name, forms.Attr, forms.Sub, forms.Call, forms.Const)):
        return Edit(source.place(end, end), operation)
    return Edit(source.place(start, end), f"({text}){operation}")


def wrap(source: Source, facts: ModuleFacts, expr: forms.Expr, before: str, after: str = ")") -> Edit:
    """An expression as the argument of a call: ``before`` ends with the opening bracket."""
    start, end = facts.span(expr.at)
    text = source.text[start:end]
    return Edit(source.place(start, end), f"{before}{text}{after}")


def without_method(module: Module, call: forms.Call) -> Edit | Refused:
    """The object of a method's call alone: the dot, the name and the arguments go."""
    assert isinstance(call.func, forms.Attr)
    text, source = module.source.text, module.source
    start, end = text.rindex(".", 0, module.facts.span(call.func.name_at)[0]), module.facts.span(call.at)[1]
    if text[end - 1] != ")":
        return Refused("the brackets are laid out in a way that cannot be changed with certainty")
    above = text[:start].rstrip()
    while above.endswith("\\"):  # the line went on
        above = above[:-1].rstrip()
    before = len(above)
    begin = start if "#" in text[text.rfind("\n", 0, before) + 1 : before] else before
    if "#" in text[start:end]:
        return Refused("a comment stands in the way")
    return Edit(source.place(begin, end), "")


# -- methods


def add_methods(source: Source, facts: ModuleFacts, after: Scope, methods: Iterable[Iterable[str]]) -> Edit | Refused:
    """Methods of a class below one that it has, an empty line above each."""
    assert after.link is not None
    text, (start, end) = source.text, facts.span(after.link.stmt.at)
    while text[end - 1] in " \t\r\n":
        end -= 1
    if _REST.match(text, end) is None or text[line_start(text, start) : start].strip():
        return _CROWDED
    indent = indentation(text, start)
    stop = line_end(text, end)
    added = [
        "".join(f"\n{indent}{_unit(line, indent)}" for lines in method for line in lines.split("\n"))
        for method in methods
    ]
    return Edit(source.place(stop, stop), "".join(f"\n{method}" for method in added))


def _unit(line: str, indent: str) -> str:
    """A line that is indented by four blanks a level, indented as the file does it."""
    bare = line.lstrip(" ")
    levels, rest = divmod(len(line) - len(bare), 4)
    return (indent if indent.strip(" ") or len(indent) < 4 else "    ") * levels + " " * rest + bare


# -- imports


def import_edits(module: Module, name: str, bound: str = "", use: Link | None = None) -> Iterator[Edit | Refused]:
    """``import name`` (``as bound``) at the top of a module, where it has not certainly run before ``use``."""
    wanted = bound or name
    reason = _other_meaning(module, name, wanted, use)
    if reason:
        yield Refused(reason)
    elif not any(_binds(stmt, name, wanted) and runs_before(module, link, use) for stmt, link in module.imports):
        yield _import(module, f"import {name} as {bound}" if bound else f"import {name}", name)


def alias_of(module: Module, name: str, default: str, use: Link | None = None) -> tuple[str, list[Edit | Refused]]:
    """The name under which a module knows a library at ``use``, and the import that it takes for that."""
    for stmt, link in module.imports:
        if isinstance(stmt, forms.Import) and runs_before(module, link, use):
            for alias in stmt.aliases:
                if _gives(alias, name, alias.bound) and not _other_meaning(module, name, alias.bound, use):
                    return alias.bound, []
    return default, list(import_edits(module, name, "" if default == name else default, use))


def runs_before(module: Module, link: Link, use: Link | None = None) -> bool:
    """Whether an import of a module has certainly run before the statement that is to use it.

    One under ``if`` or ``try`` may not run; one that stands further down, or in a later cell of a notebook, not yet.
    Without a ``use`` it must stand above all that could be one.
    """
    if link.scope is not module.scope or link.parent is not None:
        return False
    if use is not None:
        return link.index < _outermost(use).index
    return not any(above.blocks or isinstance(above.stmt, (forms.Function, forms.Class))
                   for above in module.scope.body[: link.index])  # fmt: skip


def _outermost(link: Link) -> Link:
    """The statement of the module that holds a statement."""
    while link.parent is not None or link.scope.link is not None:
        link = link.parent or link.scope.link  # type: ignore[assignment]
    return link


def _other_meaning(module: Module, name: str, bound: str, use: Link | None) -> str:
    """Why a name cannot be had for a library: the module, or a function around ``use``, gives it another meaning."""
    taken = f"`{bound}` is something else here"
    scopes = [module.scope]
    scope = use.scope if use is not None else None
    while scope is not None and scope is not module.scope:
        if scope.kind == "function" or use is not None and scope is use.scope:
            scopes.append(scope)
        scope = scope.parent
    for scope in scopes:
        if any(param.name == bound for param in scope.function.params):
            return taken
        if bound in scope.names and bound not in scope.not_local:
            for link in (link for top in scope.body for link in (top, *_within(top)) if _binds_itself(link, bound)):
                if not _is_import_of(link.stmt, name, bound):
                    return taken
                if scope is not module.scope:
                    return f"`{bound}` is imported inside the function"
                if any(isinstance(outer.stmt, forms.Try) for outer in link.outer()):
                    return f"`{bound}` may be missing here"
    if any(bound in scope.not_local for scope in module.functions):
        return taken
    return ""


def _within(link: Link) -> Iterator[Link]:
    for block in link.blocks.values():
        for inner in block:
            yield inner
            yield from _within(inner)


def _binds_itself(link: Link, name: str) -> bool:
    """Whether a statement, not one of its blocks, binds a name."""
    return name in link.changes and not any(name in inner.changes for block in link.blocks.values() for inner in block)


def _is_import_of(stmt: forms.Stmt, name: str, bound: str) -> bool:
    return isinstance(stmt, forms.Import) and all(
        _gives(alias, name, bound) for alias in stmt.aliases if alias.bound == bound
    )


def _gives(alias: forms.Alias, name: str, bound: str) -> bool:
    """``import torch``, and ``import torch.nn``, which binds ``torch`` as well."""
    return alias.bound == bound and (alias.name == name or bound == name and alias.name.startswith(f"{name}."))


def imported_names(
    module: Module, package: str, names: Sequence[str], others: Sequence[str] = (), use: Link | None = None
) -> tuple[list[str], list[Edit | Refused]]:
    """How a module calls ``names`` of a package, or of ``others`` that have them too, and the imports that it takes."""
    above = [
        stmt
        for stmt, link in module.imports
        if isinstance(stmt, forms.ImportFrom) and not stmt.level and runs_before(module, link, use)
    ]
    known = {alias.name: alias.bound for stmt in above if stmt.module in (package, *others) for alias in stmt.aliases}
    missing = sorted(name for name in names if name not in known)
    called = [known.get(name, name) for name in names]
    for name in missing:
        if name in module.scope.names or any(name in scope.names for scope in module.functions):
            return called, [Refused(f"`{name}` is something else here")]
    if not missing:
        return called, []
    for stmt in above:
        if stmt.module == package and stmt.aliases:
            return called, [*_with_aliases(module, stmt, missing)]
    return called, [_import(module, f"from {package} import {', '.join(missing)}", package, True)]


def _with_aliases(module: Module, stmt: forms.ImportFrom, names: Iterable[str]) -> Iterator[Edit]:
    """More names in ``from package import a, b``: one edit for all that come at one place."""
    added: dict[Place, str] = {}
    for edit in (_with_alias(module, stmt, name) for name in names):
        added[edit.place] = added.get(edit.place, "") + edit.replacement
    yield from (Edit(place, text) for place, text in added.items())


def _with_alias(module: Module, stmt: forms.ImportFrom, name: str) -> Edit:
    """One name more in ``from package import a, b``: behind the last that sorts before it."""
    source, facts, text = module.source, module.facts, module.source.text
    earlier = [alias for alias in stmt.aliases if alias.name < name]
    alias = earlier[-1] if earlier else stmt.aliases[0]
    start, end = facts.span(alias.at)
    alone = len(stmt.aliases) > 1 and not text[line_start(text, start) : start].strip()
    gap = f"\n{indentation(text, start)}" if alone else " "
    if earlier:
        return Edit(source.place(end, end), f",{gap}{name}")
    return Edit(source.place(start, start), f"{name},{gap}")


def below_imports(module: Module, line: str, needs: str = "") -> Edit | Refused:
    """A statement of its own below the imports at the top of a module, one of which binds the name that it needs."""
    top = _top_imports(module)
    if not top:
        return Refused("the imports are not at the top of the file")
    if needs and not any(needs in link.changes for _, link in top):
        return Refused(f"`{needs}` is not imported at the top of the file")
    return _below(module.source, module.facts, top[-1][1], f"\n\n{line}")


def _binds(stmt: forms.Stmt, name: str, bound: str) -> bool:
    return isinstance(stmt, forms.Import) and any(_gives(alias, name, bound) for alias in stmt.aliases)


def _import(module: Module, line: str, name: str, is_from: bool = False) -> Edit:
    source, facts, text = module.source, module.facts, module.source.text
    top = _top_imports(module)
    wanted = _key(is_from, name)
    same = [(key, link) for key, link in top if key[0] == wanted[0]]
    before = [link for key, link in same if key <= wanted]
    if before:
        return _below(source, facts, before[-1], f"\n{line}")
    if same:
        return _above(source, facts, same[0][1], f"{line}\n")
    earlier = [link for key, link in top if key[0] < wanted[0]]
    if earlier:
        return _below(source, facts, earlier[-1], f"\n\n{line}")
    if top:
        return _above(source, facts, top[0][1], f"{line}\n\n")
    first = next((link for link in module.scope.body if not _is_head(link)), None)
    if first is not None:
        return _above(source, facts, first, f"{line}\n\n")
    return Edit(source.place(len(text), len(text)), f"{line}\n")


def _above(source: Source, facts: ModuleFacts, link: Link, added: str) -> Edit:
    at = line_start(source.text, facts.span(link.head)[0])
    return Edit(source.place(at, at), added)


def _below(source: Source, facts: ModuleFacts, link: Link, added: str) -> Edit:
    at = line_end(source.text, facts.span(link.head)[1])
    return Edit(source.place(at, at), added)


def _top_imports(module: Module) -> list[tuple[tuple[int, bool, str], Link]]:
    """The imports at the top of a module, each with what sorts it."""
    found = []
    for link in module.scope.body:
        stmt = link.stmt
        if isinstance(stmt, forms.Import):
            found.append((_key(False, stmt.aliases[0].name), link))
        elif isinstance(stmt, forms.ImportFrom):
            found.append((_key(True, "." * stmt.level + stmt.module), link))
        elif found or not _is_head(link):
            break
    return found


def _is_head(link: Link) -> bool:
    """Whether a statement comes before all imports: the docstring."""
    return isinstance(link.stmt, forms.Do) and isinstance(link.stmt.value, forms.Const)


def _key(is_from: bool, name: str) -> tuple[int, bool, str]:
    root = name.partition(".")[0]
    section = 0 if root == "__future__" else 1 if root in sys.stdlib_module_names else 2 if root else 3
    return section, is_from, name
