"""Fixes as text edits: arguments of calls and entries of dict literals, whatever their layout.

An edit is refused, with the reason, where it could break the program: a name that ``*args`` or
``**kwargs`` may already hold, a duplicate, a comment that would be lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from dlcheck.facts import forms
from dlcheck.facts.forms import ModuleFacts
from dlcheck.findings import Edit
from dlcheck.source import Source

# Positional parameters of torch.utils.data.DataLoader.__init__ (what follows them is keyword-only).
LOADER_ORDER = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
    "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
)  # fmt: skip


class Refused(NamedTuple):
    """Why there is no edit, in words that follow "not fixed: "."""

    reason: str


_LAYOUT = Refused("the brackets are laid out in a way that cannot be changed with certainty")
_COMMENT = Refused("a comment stands in the way")


def add_argument(
    source: Source,
    facts: ModuleFacts,
    call: forms.Call,
    name: str,
    value: str,
    *,
    order: Sequence[str] | None = None,
    absent: bool = False,
) -> Edit | Refused:
    """Add ``name=value`` behind the other arguments of a call.

    ``order`` names the positional parameters of what is called; without it, those of torch's
    DataLoader, and for ``non_blocking`` those of the method.  Refused where the call has the argument
    already or may have it; ``absent`` says that no ``*args`` or ``**kwargs`` of the call holds it.
    """
    index = _index(source, facts, call, name, order, absent)
    if isinstance(index, Refused):
        return index
    if index != _ABSENT:
        return Refused(f"`{name}` is given already")
    inside = _arguments(source.text, facts, call)
    if inside is None:
        return _LAYOUT
    return _edit(source, _append(source.text, inside, f"{name}={value}", _is_generator(call)))


def set_argument(
    source: Source, facts: ModuleFacts, call: forms.Call, name: str, value: str, *, order: Sequence[str] | None = None
) -> Edit | Refused:
    """Give an argument another value where it stands, by name or by position; add it where it is absent.

    Refused where it has that value already, and where ``add_argument`` refuses.
    """
    index = _index(source, facts, call, name, order)
    if isinstance(index, Refused):
        return index
    if index == _ABSENT:
        return add_argument(source, facts, call, name, value, order=order)
    inside = _arguments(source.text, facts, call)
    if inside is None:
        return _LAYOUT
    item, start = inside.items[index], inside.items[index].start
    if call.args[index].name is not None:
        start = _behind(source.text, item.start, item.end, "=")
    return _change(source, start, item.end, value)


def remove_argument(
    source: Source, facts: ModuleFacts, call: forms.Call, name: str, *, order: Sequence[str] | None = None
) -> Edit | Refused:
    """Remove an argument; refused where it is absent, or positional with others behind it."""
    index = _given(source, facts, call, name, order)
    if isinstance(index, Refused):
        return index
    if call.args[index].name is None and any(arg.name is None and arg.star != "**" for arg in call.args[index + 1 :]):
        return Refused(f"`{name}` is given by its place, and others follow it")
    inside = _arguments(source.text, facts, call)
    if inside is None:
        return _LAYOUT
    span = _remove(source.text, inside, index)
    return _edit(source, (*span, "")) if span else _COMMENT


def rename_argument(
    source: Source, facts: ModuleFacts, call: forms.Call, name: str, other: str, *, order: Sequence[str] | None = None
) -> Edit | Refused:
    """Give an argument's value to another parameter; refused where it is absent, or given by its place."""
    index = _given(source, facts, call, name, order)
    if isinstance(index, Refused):
        return index
    if call.args[index].name is None:
        return Refused(f"`{name}` is given by its place")
    inside = _arguments(source.text, facts, call)
    if inside is None:
        return _LAYOUT
    start = inside.items[index].start
    return _change(source, start, start + len(name), other)


def set_entry(source: Source, facts: ModuleFacts, dict_: forms.Dict, key: str, value: str) -> Edit | Refused:
    """Give a key of a dict literal another value, or add it at the end.

    Refused where an entry that cannot be read (``**other``, a computed key) may hold the key.
    """
    for entry in dict_.entries:
        if not _has_constant_key(entry) and _may_hold(entry, key):
            start, end = facts.span(entry.at)
            return Refused(f"`{_short(source.text[start:end])}` may already hold `{key}`")
    inside = _entries(source.text, facts, dict_)
    if inside is None:
        return _LAYOUT
    same = [n for n, entry in enumerate(dict_.entries) if _has_constant_key(entry) and _may_hold(entry, key)]
    if not same:
        quote = "'" if source.text[inside.opening + 1 :].lstrip().startswith("'") else '"'
        return _edit(source, _append(source.text, inside, f"{quote}{key}{quote}: {value}"))
    if len(same) > 1:
        return Refused(f"`{key}` stands twice in this dict")
    named = dict_.entries[same[0]].key
    assert named is not None
    end = inside.items[same[0]].end
    return _change(source, _behind(source.text, facts.span(named.at)[1], end, ":"), end, value)


def remove_entry(source: Source, facts: ModuleFacts, dict_: forms.Dict, key: str) -> Edit | Refused:
    """Remove a key of a dict literal; refused where it is absent or stands twice."""
    same = [n for n, entry in enumerate(dict_.entries) if _has_constant_key(entry) and _may_hold(entry, key)]
    if len(same) != 1:
        return Refused(f"`{key}` stands twice in this dict" if same else f"`{key}` is not a key of this dict")
    inside = _entries(source.text, facts, dict_)
    if inside is None:
        return _LAYOUT
    span = _remove(source.text, inside, same[0])
    return _edit(source, (*span, "")) if span else _COMMENT


# One of the functions above, given all but the source, the facts and the call or dict literal.
Step: TypeAlias = "Callable[[Source, ModuleFacts, Any], Edit | Refused]"


def in_turn(source: Source, facts: ModuleFacts, form: forms.Call | forms.Dict, steps: Sequence[Step]) -> Edit | Refused:
    """Several changes of one call or dict literal as one edit: each is made in what those before it have left."""
    if len(steps) == 1:
        return steps[0](source, facts, form)
    from dlcheck.facts import extract

    start, end = facts.span(form.at)
    text = old = source.text[start:end]
    for step in steps:
        part = Source(source.path, source.file, text)
        inner = extract(part)
        (stmt,) = inner.body
        assert isinstance(stmt, forms.Do)
        edit = step(part, inner, stmt.value)
        if isinstance(edit, Refused):
            return edit
        text = apply(part, [edit])
    same = common(old, text)
    left = common(old[same:][::-1], text[same:][::-1])
    return _edit(source, (start + same, end - left, text[same : len(text) - left]))


def common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many characters of two texts, or lines of two lists, are the same at their beginnings."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def replace(source: Source, facts: ModuleFacts, at: int, text: str) -> Edit:
    """Replace a node by other text."""
    return _edit(source, (*facts.span(at), text))


def apply(source: Source, edits: Iterable[Edit]) -> str:
    """The text of a file after the edits that are its own; those of other files are ignored.

    The same edit twice counts once.  Insertions of several arguments at one point follow one
    another in the order given.  Raises ValueError where edits overlap.
    """
    own = dict.fromkeys(edit for edit in edits if edit.place.path == source.path)
    spans = sorted(((*source.span(edit.place), edit.replacement) for edit in own), key=lambda span: span[:2])
    out: list[str] = []
    done, last = 0, (-1, -1, "")
    for span in spans:
        start, end, replacement = span
        if start < done or (start == last[0] and not _compatible(last, span)):
            raise ValueError(f"{source.path}: edits overlap at {':'.join(map(str, source.position(start)))}")
        out += source.text[done:start], replacement
        done, last = end, span
    return "".join((*out, source.text[done:]))


# -- which argument

_ABSENT = -1


def _given(
    source: Source, facts: ModuleFacts, call: forms.Call, name: str, order: Sequence[str] | None
) -> int | Refused:
    """Which argument of a call it is; refused where it has none of that name."""
    index = _index(source, facts, call, name, order)
    return Refused(f"`{name}` is not an argument of this call") if index == _ABSENT else index


def _index(
    source: Source,
    facts: ModuleFacts,
    call: forms.Call,
    name: str,
    order: Sequence[str] | None,
    absent: bool = False,
) -> int | Refused:
    """The number of the argument that a name stands for, or _ABSENT; refused where that is not certain."""
    named = [n for n, arg in enumerate(call.args) if arg.name == name]
    if named:
        return named[0] if len(named) == 1 else Refused(f"`{name}` is given twice")
    slots = _order(call, name) if order is None else order
    if slots is None:
        return Refused(f"the second argument of `.to()` may be a type or `{name}`")
    position = 0
    for n, arg in enumerate(call.args):
        if absent and arg.star:
            continue
        if (arg.star == "*" and name in slots[position:]) or (arg.star == "**" and _unpacks(arg.value, name)):
            start, end = facts.span(arg.value.at)
            return Refused(f"`{arg.star}{_short(source.text[start:end])}` may already set `{name}`")
        if arg.name is None and not arg.star:
            if position < len(slots) and slots[position] == name:
                return n
            position += 1
    return _ABSENT


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:37]}..."


def _order(call: forms.Call, name: str) -> Sequence[str] | None:
    """The positional parameters of a call, or None where its overloads leave open which they are."""
    if name != "non_blocking":
        return LOADER_ORDER
    method = call.func.name if isinstance(call.func, forms.Attr) else ""
    given = [arg.value for arg in call.args if arg.name is None and not arg.star]
    if method != "to" or len(given) < 2:
        return ("first", "non_blocking")
    # Tensor.to is (device, dtype, non_blocking, copy), (dtype, non_blocking, copy) or (other, non_blocking, copy).
    second = given[1]
    if isinstance(second, forms.Const) and isinstance(second.value, bool):
        return ("first", "non_blocking")
    return ("device", "dtype", "non_blocking") if len(given) > 2 or _is_dtype(second) else None


def _is_dtype(value: forms.Expr) -> bool:
    if isinstance(value, forms.Const):
        return value.value is None
    if isinstance(value, forms.Attr):
        return "dtype" in value.name or (isinstance(value.value, forms.Name) and value.value.id == "torch")
    return isinstance(value, forms.Name) and "dtype" in value.id


def _unpacks(value: forms.Expr, name: str) -> bool:
    """May ``**value`` hold the name?"""
    return not isinstance(value, forms.Dict) or any(_may_hold(entry, name) for entry in value.entries)


def _has_constant_key(entry: forms.Entry) -> bool:
    return isinstance(entry.key, forms.Const)


def _may_hold(entry: forms.Entry, key: str) -> bool:
    if entry.key is None:
        return _unpacks(entry.value, key)
    return not isinstance(entry.key, forms.Const) or entry.key.value == key


# -- how the arguments are laid out


class _Item(NamedTuple):
    """The range of an argument or entry, parentheses and stars included, and the comma behind it."""

    start: int
    end: int
    comma: int | None


class _Inside(NamedTuple):
    """What stands between two brackets."""

    opening: int
    closing: int
    items: tuple[_Item, ...]


# Between items stand blanks, comments, commas, and the parentheses and stars of an item.
_TRIVIA = re.compile(r"(?:[ \t\f\r\n]|\\\r?\n|\\\r|#[^\r\n]*)*")


def _arguments(text: str, facts: ModuleFacts, call: forms.Call) -> _Inside | None:
    closing = facts.span(call.at)[1] - 1
    opening = next((n for n, char in _significant(text, facts.span(call.func.at)[1], closing) if char == "("), None)
    if opening is None or text[closing] != ")":
        return None
    return _inside(text, opening, closing, [facts.span(arg.at) for arg in call.args])


def _entries(text: str, facts: ModuleFacts, dict_: forms.Dict) -> _Inside | None:
    start, end = facts.span(dict_.at)
    if text[start] != "{" or text[end - 1] != "}":
        return None
    return _inside(text, start, end - 1, [facts.span(entry.at) for entry in dict_.entries])


def _inside(text: str, opening: int, closing: int, spans: list[tuple[int, int]]) -> _Inside | None:
    items: list[_Item] = []
    begin = end = opening + 1
    for number, (start, stop) in enumerate([*spans, (closing, closing)]):
        before, comma, behind = _gap(text, end, start)
        if number:
            items.append(_Item(begin, before or end, comma))
        elif comma is not None:
            return None
        if number and number < len(spans) and comma is None:
            return None
        begin = behind if behind is not None else start
        end = stop
    return _Inside(opening, closing, tuple(items))


def _gap(text: str, start: int, end: int) -> tuple[int | None, int | None, int | None]:
    """Of a gap between items: where the item before it ends, its comma, where the item behind it begins."""
    before = comma = behind = None
    for at, char in _significant(text, start, end):
        if char == ",":
            comma = at
        elif char == ")" and comma is None:
            before = at + 1
        elif behind is None:
            behind = at
    return before, comma, behind


def _significant(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """The characters of a range that are neither blank nor comment."""
    at = start
    while True:
        at = _skip(text, at)
        if at >= end:
            return
        yield at, text[at]
        at += 1


def _skip(text: str, at: int) -> int:
    match = _TRIVIA.match(text, at)
    assert match is not None
    return match.end()


def _behind(text: str, start: int, end: int, mark: str) -> int:
    """Where the value begins behind the ``=`` of an argument or the ``:`` of an entry."""
    return next((_skip(text, at + 1) for at, char in _significant(text, start, end) if char == mark), end)


def _is_generator(call: forms.Call) -> bool:
    """Is the only argument a generator?  Then its parentheses may be those of the call."""
    value = call.args[0].value if len(call.args) == 1 else None
    return isinstance(value, forms.Comp) and value.kind == "generator"


# -- edits

_Span = tuple[int, int, str]


def _edit(source: Source, span: _Span) -> Edit:
    start, end, replacement = span
    return Edit(source.place(start, end), replacement)


def _change(source: Source, start: int, end: int, value: str) -> Edit | Refused:
    old = source.text[start:end]
    if not old:
        return _LAYOUT
    if old == value:
        return Refused(f"it is `{value}` already")
    # A number sign in a string is taken for a comment: such an edit is refused, never wrong.
    return _COMMENT if "#" in old else _edit(source, (start, end, value))


def _append(text: str, inside: _Inside, new: str, is_generator: bool = False) -> _Span:
    if not inside.items:
        return _fill(text, inside, new)
    last = inside.items[-1]
    start, end, replacement = (_append_line if _is_stacked(text, inside) else _append_inline)(text, inside, new)
    if is_generator and not _is_parenthesised(text, last):
        kept = text[last.start : last.end]
        return last.start, end, f"({kept}){text[last.end : start]}{replacement}"
    return start, end, replacement


def _is_parenthesised(text: str, item: _Item) -> bool:
    """Does one pair of parentheses enclose the whole item?"""
    if text[item.start] != "(":
        return False
    import ast
    import warnings

    try:
        # Without parentheses of its own a generator cannot have a second argument beside it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(f"f({text[item.start : item.end]}, a=1)")
    except SyntaxError:
        return False
    return True


def _append_inline(text: str, inside: _Inside, new: str) -> _Span:
    last = inside.items[-1]
    if last.comma is None:
        return last.end, last.end, f", {new}"
    return last.comma + 1, last.comma + 1, f" {new},"


def _append_line(text: str, inside: _Inside, new: str) -> _Span:
    last = inside.items[-1]
    anchor = last.end if last.comma is None else last.comma + 1
    line = _newline(text) + _indent(text, last.start) + new
    end = _line_end(text, anchor)
    rest = text[anchor : min(end, inside.closing)]
    if last.comma is not None:
        at = end if end < inside.closing else anchor
        return at, at, f"{line},"
    if end < inside.closing and rest.strip():
        return anchor, end, f",{rest}{line}"
    return anchor, anchor, f",{line}"


def _fill(text: str, inside: _Inside, new: str) -> _Span:
    """Put a first item between brackets that hold nothing, or a comment."""
    start, end = inside.opening + 1, inside.closing
    if not text[start:end].strip():
        return start, end, new
    indent = _indent(text, inside.opening)
    unit = "\t" if indent.endswith("\t") else "    "
    at = _line_start(text, end)
    return at, at, f"{indent}{unit}{new},{_newline(text)}"


def _remove(text: str, inside: _Inside, index: int) -> tuple[int, int] | None:
    items, item = inside.items, inside.items[index]
    end = item.end if item.comma is None else item.comma + 1
    before = items[index - 1] if index else None
    behind = items[index + 1] if index + 1 < len(items) else None
    limit = behind.start if behind else inside.closing
    if text[item.end : end].strip() not in ("", ",") or "#" in text[item.start : item.end]:
        return None
    if len(items) == 1:
        return _empty(text, inside, item.start, end)
    if behind is None and before and before.comma is not None and "#" not in text[before.comma : item.start]:
        return before.comma, item.end
    line_start, line_end = _line_start(text, item.start), _line_end(text, end)
    if not text[line_start : item.start].strip() and line_end < limit and not text[end:line_end].strip():
        return line_start, _next_line(text, line_end)
    if behind and "#" not in text[end:limit]:
        return item.start, behind.start
    # A comment stays where it is.
    while text[end] in " \t":
        end += 1
    return item.start, end


def _empty(text: str, inside: _Inside, start: int, end: int) -> tuple[int, int]:
    if "#" in text[inside.opening + 1 : start] or "#" in text[end : inside.closing]:
        return start, end
    return inside.opening + 1, inside.closing


def _is_stacked(text: str, inside: _Inside) -> bool:
    """Does each item have a line of its own?  The first may stand behind the opening bracket.

    Where the bracket closes on a line of its own, it is enough that the last two items do.
    """
    alone = [not text[_line_start(text, item.start) : item.start].strip() for item in inside.items]
    if all(alone[1:]) and (len(alone) > 1 or alone[0]):
        return True
    closes = not text[_line_start(text, inside.closing) : inside.closing].strip()
    return closes and len(alone) > 2 and all(alone[-2:])


def _line_start(text: str, at: int) -> int:
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def _line_end(text: str, at: int) -> int:
    match = _NEWLINE.search(text, at)
    return match.start() if match else len(text)


def _next_line(text: str, line_end: int) -> int:
    match = _NEWLINE.match(text, line_end)
    return match.end() if match else line_end


_NEWLINE = re.compile(r"\r\n|\r|\n")
_BLANKS = re.compile(r"[ \t\f]*")


def _newline(text: str) -> str:
    match = _NEWLINE.search(text)
    return match[0] if match else "\n"


def _indent(text: str, at: int) -> str:
    match = _BLANKS.match(text, _line_start(text, at))
    return match[0] if match else ""


# ``, name=value`` or ``"key": value,``: an insertion that others may follow.
_INSERTION = re.compile(r"""\s*(,?)\s*["']?(\w+)["']?\s*[=:].*?(,?)\s*\Z""", re.S)


def _compatible(one: _Span, other: _Span) -> bool:
    """May two edits at one point follow one another?  Insertions of differently named arguments may."""
    if one[0] != one[1] or other[0] != other[1]:
        # An insertion in front of a replaced range touches it and does not overlap.
        return one[0] == one[1]
    first, second = _INSERTION.match(one[2]), _INSERTION.match(other[2])
    if not first or not second or first[2] == second[2]:
        return False
    return bool(first[1] and second[1]) or bool(first[3] and second[3] and not first[1] and not second[1])
