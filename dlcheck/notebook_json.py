"""Changing the code of cells within the JSON of a notebook, and nothing around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dlcheck.source import split_lines

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)
_SCALAR = re.compile(r"[^ \t\n\r,\]}]+")


class Node(NamedTuple):
    """A value of a JSON text and where it stands; what is neither text, list nor object has the value None."""

    start: int
    end: int
    value: Any  # dict[str, Node] | list[Node] | str | None


def parse(text: str, at: int = 0) -> Node:
    """The value that begins at an offset of a text that is known to be JSON."""
    start = _space(text, at)
    first = text[start]
    if first == '"':
        value, end = _DECODER.raw_decode(text, start)
        return Node(start, end, value)
    if first == "[":
        return _list(text, start)
    if first == "{":
        return _object(text, start)
    found = _SCALAR.match(text, start)
    assert found is not None
    return Node(start, found.end(), None)


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _list(text: str, start: int) -> Node:
    items: list[Node] = []
    at = _space(text, start + 1)
    while text[at] != "]":
        items.append(parse(text, at))
        at = _space(text, items[-1].end)
        if text[at] == ",":
            at = _space(text, at + 1)
    return Node(start, at + 1, items)


def _object(text: str, start: int) -> Node:
    entries: dict[str, Node] = {}
    at = _space(text, start + 1)
    while text[at] != "}":
        key = parse(text, at)
        value = parse(text, _space(text, key.end) + 1)
        entries[key.value] = value
        at = _space(text, value.end)
        if text[at] == ",":
            at = _space(text, at + 1)
    return Node(start, at + 1, entries)


def with_codes(text: str, codes: Mapping[int, str]) -> str:
    """The text with other code in some of its code cells, by their number from 0."""
    out: list[str] = []
    done = 0
    sources = list(_sources(parse(text)))
    for number, code in sorted(codes.items()):
        node = sources[number]
        out += text[done : node.start], _written(text, node, code)
        done = node.end
    return "".join((*out, text[done:]))


def _sources(document: Node) -> Iterator[Node]:
    """Where each code cell keeps its code, also in the worksheets of old notebooks."""
    cells = document.value.get("cells")
    groups = [cells] if cells is not None and isinstance(cells.value, list) else []
    sheets = document.value.get("worksheets")
    if not groups and sheets is not None:
        groups = [sheet.value["cells"] for sheet in sheets.value if isinstance(sheet.value, dict)]
    for group in groups:
        for cell in group.value:
            kind = cell.value.get("cell_type") if isinstance(cell.value, dict) else None
            if kind is not None and kind.value == "code":
                yield cell.value.get("source") or cell.value["input"]


def _written(text: str, node: Node, code: str) -> str:
    """Code in the form in which a node has it: one text, or a list of lines, of which unchanged ones are kept."""
    as_ascii = text.isascii()
    if isinstance(node.value, str):
        return json.dumps(code, ensure_ascii=as_ascii)
    pieces = [item for item in node.value if isinstance(item.value, str)]
    first, last = _kept(pieces, code)
    start = sum(len(item.value) for item in pieces[:first])
    end = len(code) - sum(len(item.value) for item in pieces[last:])
    lines = [text[item.start : item.end] for item in pieces[:first]]
    lines += [json.dumps(line, ensure_ascii=as_ascii) for line in split_lines(code[start:end])]
    lines += [text[item.start : item.end] for item in pieces[last:]]
    if not pieces:
        return "[" + ", ".join(lines) + "]"
    gap = text[pieces[0].end : pieces[1].start] if len(pieces) > 1 else "," + text[node.start + 1 : pieces[0].start]
    return text[node.start : pieces[0].start] + gap.join(lines) + text[pieces[-1].end : node.end]


def _kept(pieces: list[Node], code: str) -> tuple[int, int]:
    """How many pieces at the start, and from which on those at the end, are lines of the new code as well."""
    first, at = 0, 0
    while first < len(pieces) and _is_line(pieces[first].value) and code.startswith(pieces[first].value, at):
        at += len(pieces[first].value)
        first += 1
    last, end = len(pieces), len(code)
    while last > first:
        piece = pieces[last - 1].value
        begins = end - len(piece)
        if begins < at or not code.startswith(piece, begins) or not _is_line(code[:begins] or "\n"):
            break
        last, end = last - 1, begins
    return first, last


def _is_line(text: str) -> bool:
    return text.endswith("\n")
