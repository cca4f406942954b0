"""Whole lines that fixes add, move or wrap: out of a loop, to the top of a body, into a function.

Statements move with the comments right above and behind them.  What shares a line with others stays where it is.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlcheck.checks.mending import indentation, line_end, line_start, next_line, parsed, stands_alone
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.facts.forms import ModuleFacts
from dlcheck.findings import Edit
from dlcheck.model.scopes import Link, Module, Scope, dotted
from dlcheck.source import Source, split_lines

# What may stand between the end of a head, as the facts have it, and its colon.
_COLON = re.compile(r"[ \t\r\n)]*:")

CROWDED = Refused("several statements stand on one line")


class Lines(NamedTuple):
    """A range of whole lines: where the first begins, and where the one behind the last begins."""

    start: int
    end: int


def lines_of(source: Source, facts: ModuleFacts, link: Link) -> Lines | Refused:
    """The lines of a statement, with its decorators, its blocks and the comments right above it."""
    text = source.text
    start, end = facts.span(link.stmt.at)
    if isinstance(link.stmt, (forms.Function, forms.Class)):
        start = min([start, *(facts.span(decorator.at)[0] for decorator in link.stmt.decorators)])
        first = line_start(text, start)
        alone = text[first:start].strip() in ("", "@")
    elif link.blocks:
        first = line_start(text, start)
        alone = not text[first:start].strip()
    else:
        first, alone = line_start(text, start), stands_alone(source, (start, end))
    # An ``if`` behind an ``else``: it is one statement with that.
    if not alone or text[:first].endswith(("\\\n", "\\\r\n", "\\\r")):
        return CROWDED
    stop = end if text[end - 1 : end] in ("\n", "\r") else next_line(text, end)
    return Lines(_with_comments(text, first), stop)


def _with_comments(text: str, start: int) -> int:
    """Where the comments begin that stand right above a line, as deep as it."""
    indent = indentation(text, start)
    while start:
        above = line_start(text, start - (2 if text[start - 2 : start] == "\r\n" else 1))
        if not text[above:start].startswith(f"{indent}#") or text[above:start].startswith("#!"):
            break
        start = above
    return start


def reindented(text: str, old: str, new: str) -> str | Refused:
    """Whole lines that stand at the depth ``old``, moved to the depth ``new``.

    Refused where that would change more than blanks: a string over several lines.
    """
    lines = split_lines(text)
    moved = "".join(new + line[len(old) :] if line.startswith(old) and line.strip() else line for line in lines)
    if len(lines) > 1 and _tokens(old, text) != _tokens(new, moved):
        return Refused("a string over several lines would change")
    return moved


def _tokens(indent: str, text: str) -> list[str] | None:
    """What a text of whole lines at a depth says; None where it cannot be read."""
    ignored = (tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.NEWLINE)
    whole = f"if 1:\n{text}" if indent else text
    try:
        return [
            token.string for token in tokenize.generate_tokens(io.StringIO(whole).readline) if token.type not in ignored
        ][3 if indent else 0 :]
    except (tokenize.TokenError, SyntaxError):
        return None


# -- added


def insert_first(source: Source, facts: ModuleFacts, link: Link, lines: Sequence[str]) -> Edit | Refused:
    """Lines at the top of the body of a compound statement."""
    text, body = source.text, link.blocks["body"]
    start, _ = facts.span(body[0].stmt.at)
    if isinstance(body[0].stmt, (forms.Function, forms.Class)):
        whole = lines_of(source, facts, body[0])
        if isinstance(whole, Refused):
            return whole
        start = whole.start
    head = facts.span(link.head)[1]
    if text[line_start(text, start) : start].strip():
        return CROWDED
    colon = _COLON.match(text, head)
    if colon is None:
        return Refused("the head of the block goes on over several lines")
    head = colon.end()
    at, indent = line_end(text, head), indentation(text, start)
    return Edit(source.place(at, at), "".join(f"\n{indent}{line}" for line in lines))


def insert_above(source: Source, facts: ModuleFacts, link: Link, lines: Sequence[str]) -> Edit | Refused:
    """Lines above a statement and the comments that belong to it, at its depth."""
    whole = lines_of(source, facts, link)
    if isinstance(whole, Refused):
        return whole
    indent = indentation(source.text, facts.span(link.stmt.at)[0])
    return Edit(source.place(whole.start, whole.start), "".join(f"{indent}{line}\n" for line in lines))


def insert_below(source: Source, facts: ModuleFacts, link: Link, lines: Sequence[str]) -> Edit | Refused:
    """Lines below a statement and all its blocks, at its depth."""
    text = source.text
    whole = lines_of(source, facts, link)
    if isinstance(whole, Refused):
        return whole
    indent = indentation(text, facts.span(link.stmt.at)[0])
    at = line_end(text, len(text[: whole.end].rstrip()))
    return Edit(source.place(at, at), "".join(f"\n{indent}{line}" for line in lines))


def add_decorator(source: Source, facts: ModuleFacts, scope: Scope, decorator: str) -> Edit | Refused:
    """A decorator right above the ``def``: what is decorated first."""
    assert scope.link is not None
    text, (start, _) = source.text, facts.span(scope.link.stmt.at)
    first = line_start(text, start)
    if text[first:start].strip():
        return CROWDED
    return Edit(source.place(first, first), f"{text[first:start]}@{decorator}\n")


def add_function(module: Module, name: str, lines: Sequence[str], use: Link, after: str = "") -> list[Edit | Refused]:
    """A function of the module, in front of its first definition and of what uses it; nothing where it has it.

    It stands behind the function ``after`` where that is in front of the use, too.
    """
    top = use
    while top.parent is not None or top.scope.link is not None:
        top = top.parent or top.scope.link  # type: ignore[assignment]
    if has_function(module, name, lines):
        existing = module.scope.functions[name].link
        assert existing is not None
        if existing.index < top.index or use.scope.kind == "function":
            return []
        return [Refused(f"`{name}` is defined below")]
    if name in module.scope.names or _is_local(module, name):
        return [Refused(f"`{name}` is something else here")]
    other = module.scope.functions[after].link if after in module.scope.functions else None
    if other is not None and other.parent is None and other.index < top.index:
        place = lines_of(module.source, module.facts, other)
        if not isinstance(place, Refused):
            at = line_end(module.source.text, len(module.source.text[: place.end].rstrip()))
            return [Edit(module.source.place(at, at), "\n\n\n" + "\n".join(lines))]
    definitions = [link for link in module.scope.body if isinstance(link.stmt, (forms.Function, forms.Class))]
    if definitions and definitions[0].index < top.index:
        top = definitions[0]
    whole = lines_of(module.source, module.facts, top)
    if isinstance(whole, Refused):
        return [whole]
    text = module.source.text
    blank = text[_cell_start(module.source, whole.start) : whole.start]
    above = "" if not blank.strip() else "\n" * max(0, 2 - _blank_lines(blank))
    return [Edit(module.source.place(whole.start, whole.start), above + "\n".join(lines) + "\n\n\n")]


def has_function(module: Module, name: str, lines: Sequence[str]) -> bool:
    """Whether a module's own function of a name is the one that these lines define, whatever their layout."""
    existing = module.scope.functions.get(name)
    if existing is None or existing.link is None or existing.link.parent is not None or existing.decorators():
        return False
    if sum(name in link.changes for link in module.scope.body) != 1:
        return False
    start, end = module.facts.span(existing.link.stmt.at)
    try:
        return ast.dump(parsed(module.source.text[start:end])) == ast.dump(parsed("\n".join(lines)))
    except (SyntaxError, ValueError):
        return False


def _is_local(module: Module, name: str) -> bool:
    return any(name in scope.names or any(param.name == name for param in scope.function.params)
               for scope in module.functions)  # fmt: skip


def _cell_start(source: Source, at: int) -> int:
    """Where the notebook cell of an offset begins, or the file."""
    cell = source.cell_of(source.position(at)[0])
    return source.starts[cell.first_line] if cell is not None else 0


def _blank_lines(text: str) -> int:
    """How many empty lines a text of whole lines ends with."""
    lines = split_lines(text)
    return next((n for n, line in enumerate(reversed(lines)) if line.strip()), len(lines))


# -- moved


def hoist(source: Source, facts: ModuleFacts, links: Iterable[Link], above: Link) -> list[Edit | Refused]:
    """Statements of the blocks inside ``above`` moved in front of it, in their order."""
    links = list(links)
    target = lines_of(source, facts, above)
    if isinstance(target, Refused):
        return [target]
    text = source.text
    indent = indentation(text, facts.span(above.stmt.at)[0])
    out: list[Edit | Refused] = []
    pieces: list[str] = []
    for link in links:
        own = lines_of(source, facts, link)
        if isinstance(own, Refused):
            return [own]
        if all(other in links for other in link.block):
            return [Refused("the loop does nothing else")]
        piece = reindented(text[own.start : own.end], indentation(text, facts.span(link.stmt.at)[0]), indent)
        if isinstance(piece, Refused):
            return [piece]
        pieces.append(piece if piece.endswith("\n") else f"{piece}\n")
        out.append(removed(source, own, link))
    return [*out, Edit(source.place(target.start, target.start), "".join(pieces))]


def removed(source: Source, own: Lines, link: Link) -> Edit:
    """The lines of a statement go; of a first statement, with the empty lines that set it off from the rest."""
    text, end = source.text, own.end
    if source.cells and link.parent is None and link.scope.kind == "module":
        return Edit(source.place(own.start, end), "")  # what follows may be another cell
    if link.index == 0:
        while end < len(text) and not text[end : line_end(text, end)].strip():
            end = next_line(text, end)
    elif own.end >= len(text) or link.index == len(link.block) - 1:
        # The last of a block: the empty lines above it would now stand at the end of that block.
        start = own.start
        while start and not text[line_start(text, start - 1) : start].strip():
            start = line_start(text, start - 1)
        return Edit(source.place(start, end), "")
    return Edit(source.place(own.start, end), "")


def wrap_tail(module: Module, first: Link, name: str) -> list[Edit | Refused]:
    """The statements of a module from one to the last, put into a function that the main script calls."""
    source, facts, text = module.source, module.facts, module.source.text
    start = lines_of(source, facts, first)
    end = lines_of(source, facts, module.scope.body[-1])
    if isinstance(start, Refused) or isinstance(end, Refused):
        return [CROWDED]
    body = text[start.start : len(text)].rstrip()
    moved = reindented(f"{body}\n", "", unit(module))
    if isinstance(moved, Refused):
        return [moved]
    blank = text[: start.start]
    above = "" if not blank.strip() else "\n" * max(0, 2 - _blank_lines(blank))
    guard = f'\n\nif __name__ == "__main__":\n{unit(module)}{name}()\n'
    whole = f"{above}def {name}():\n{moved}{guard}"
    return [Edit(source.place(start.start, len(text)), whole)]


def unit(module: Module) -> str:
    """By how much a module indents its blocks."""
    source, facts = module.source, module.facts
    for scope in (*module.functions, *module.classes):
        if scope.body and scope.link is not None and scope.link.scope is module.scope:
            found = indentation(source.text, facts.span(scope.body[0].stmt.at)[0])
            if found and scope.link.parent is None:
                return found
    for link in module.scope.body:
        for block in link.blocks.values():
            found = indentation(source.text, facts.span(block[0].stmt.at)[0]) if block else ""
            if found:
                return found
    return "    "


def put_into(source: Source, facts: ModuleFacts, link: Link, head: str, step: str) -> Edit | Refused:
    """A statement under a compound one, such as ``with torch.no_grad():``; comments above it stay above both."""
    whole = lines_of(source, facts, link)
    if isinstance(whole, Refused):
        return whole
    text, start = source.text, line_start(source.text, facts.span(link.stmt.at)[0])
    indent = indentation(text, start)
    moved = reindented(text[start : whole.end], indent, indent + step)
    if isinstance(moved, Refused):
        return moved
    return Edit(source.place(start, whole.end), f"{indent}{head}\n{moved}")


# -- imports


def unused_import(module: Module, used: forms.Expr) -> list[Edit | Refused]:
    """The import of a function or module goes, where this is its only use, with its line."""
    name = (dotted(used) or "").partition(".")[0]
    # Annotations, texts and comments may mention it, too, or the magics of a notebook: then it stays.
    text = module.source.document or module.source.text
    if len(re.findall(rf"(?:\b|(?<=\\n)){re.escape(name)}\b", text)) != 2:
        return []
    for stmt, link in module.imports:
        if not isinstance(stmt, (forms.Import, forms.ImportFrom)) or link.scope is not module.scope:
            continue
        if isinstance(stmt, forms.Import) and name not in sys.stdlib_module_names:
            continue
        if len(stmt.aliases) == 1 and stmt.aliases[0].bound == name and len(link.block) > 1:
            whole = lines_of(module.source, module.facts, link)
            if isinstance(whole, Refused) or module.source.text[whole.start : whole.end].lstrip().startswith("#"):
                return []
            return [removed(module.source, whole, link)]
    return []
