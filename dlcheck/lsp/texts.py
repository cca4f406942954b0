"""Places in a text as the protocol counts them: lines from 0, columns in code units of the client's encoding."""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

from lsprotocol.types import Position, Range

from dlcheck.source import line_starts

Encoding = Literal["utf-8", "utf-16", "utf-32"]


def units(text: str, encoding: Encoding) -> int:
    """How many code units a text takes."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-16":
        return len(text) + sum(character > "\uffff" for character in text)
    return len(text.encode("utf-8", "surrogatepass"))


def position(text: str, offset: int, encoding: Encoding, starts: list[int] | None = None) -> Position:
    """The position of a character offset."""
    known = line_starts(text) if starts is None else starts
    line = bisect_right(known, offset) - 1
    return Position(line, units(text[known[line] : offset], encoding))


def offset(text: str, at: Position, encoding: Encoding, starts: list[int] | None = None) -> int:
    """The character offset of a position; one behind the end of its line, or of the text, is that end."""
    known = line_starts(text) if starts is None else starts
    if at.line >= len(known):
        return len(text)
    start = known[at.line]
    end = known[at.line + 1] if at.line + 1 < len(known) else len(text)
    line = text[start:end].rstrip("\r\n")
    if encoding == "utf-32" or line.isascii():
        return start + min(at.character, len(line))
    taken = 0
    for number, character in enumerate(line):
        if taken >= at.character:
            return start + number
        taken += units(character, encoding)
    return start + len(line)


def span(text: str, start: int, end: int, encoding: Encoding, starts: list[int] | None = None) -> Range:
    """The range of two character offsets."""
    known = line_starts(text) if starts is None else starts
    return Range(position(text, start, encoding, known), position(text, end, encoding, known))


def overlap(one: Range, other: Range) -> bool:
    """Whether two ranges have a point in common, be it at their ends."""
    return _key(one.start) <= _key(other.end) and _key(other.start) <= _key(one.end)


def _key(at: Position) -> tuple[int, int]:
    return at.line, at.character
