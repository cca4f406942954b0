"""A piece of code with marks below a range, as rows that are ready to be coloured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from unicodedata import category, east_asian_width

from dlcheck.findings import Place
from dlcheck.harmless import printable
from dlcheck.source import Source

TAB = " " * 4
# A longer line is cut, so that its marks stay near what they mark.
MAX_WIDTH = 140
LEAD = 40
# Of a longer range only the first and the last lines are shown.
MAX_LINES, FIRST_LINES, LAST_LINES = 8, 4, 2
ELLIPSIS = "…"


class Row(NamedTuple):
    """A line of a frame: of code, with its number, or of marks.

    ``bar`` is the edge of a range of several lines, ``text`` is code, and ``mark`` what points at it.
    """

    number: int | None
    text: str = ""
    mark: str = ""
    bar: str = ""
    elided: bool = False


@dataclass(frozen=True)
class Frame:
    """Rows of a frame; none where there is no code to show."""

    rows: tuple[Row, ...] = ()

    @property
    def number_width(self) -> int:
        return max((len(str(row.number)) for row in self.rows if row.number is not None), default=1)


def frame(source: Source | None, place: Place, *, context: int, mark: str) -> Frame:
    """The code at a place with ``context`` lines around it, marked, and captioned with its message."""
    text = _Text.around(source, place)
    if text is None:
        return Frame()
    end = text.end(place)
    label = f" {printable(place.message)}" if place.message else ""
    several = end[0] > place.line
    indent = "  " if several else ""
    marked = (_several if several else _one)(text, place, end, mark, label)
    above = _context(text, range(place.line - context, place.line), indent)
    below = _context(text, range(end[0] + 1, end[0] + 1 + context), indent)
    return Frame((*above, *marked, *below))


class _Text(NamedTuple):
    """The lines of a module, or of the cell that a place is in, by numbers from 1."""

    source: Source
    first: int
    last: int

    @classmethod
    def around(cls, source: Source | None, place: Place) -> _Text | None:
        if source is None:
            return None
        first, last = 0, len(source.starts)
        if place.cell is not None:
            starts = {cell.number: cell.first_line for cell in source.cells}
            if place.cell not in starts:
                return None
            first = starts[place.cell]
            last = min((start for start in starts.values() if start > first), default=last)
        text = cls(source, first, last)
        return text if text.has(place.line) else None

    def has(self, number: int) -> bool:
        return 1 <= number <= self.last - self.first

    def line(self, number: int) -> str:
        return self.source.written(self.first + number)

    def end(self, place: Place) -> tuple[int, int]:
        """The end of a place, brought back to where the text has one."""
        line, column = place.end_line, place.end_column
        if not self.has(line):
            line = max(place.line, min(line, self.last - self.first))
            column = len(self.line(line)) + 1
        elif column == 1 and line > place.line:
            line -= 1
            column = len(self.line(line)) + 1
        return line, column


def _context(text: _Text, numbers: range, indent: str) -> Iterator[Row]:
    for number in numbers:
        if text.has(number) and text.line(number).strip():
            yield Row(number, _cut(shown(text.line(number))), bar=indent)


def _one(text: _Text, place: Place, until: tuple[int, int], mark: str, label: str) -> Iterator[Row]:
    line = text.line(place.line)
    start = min(place.column - 1, len(line))
    end = max(start, min(until[1] - 1, len(line)))
    before, within, behind = shown(line[:start]), shown(line[start:end]), shown(line[end:])
    if width(before) + width(within) > MAX_WIDTH:
        before, within = _tail(before, LEAD), _cut(within)
    count = max(1, width(within))
    yield Row(place.line, _cut(before + within + behind))
    yield Row(None, " " * width(before), mark * count + label)


def _several(text: _Text, place: Place, until: tuple[int, int], mark: str, label: str) -> Iterator[Row]:
    end_line, end_column = until
    first = text.line(place.line)
    before = shown(first[: place.column - 1])
    if before.strip():
        yield Row(place.line, _cut(shown(first)), bar="  ")
        yield Row(None, "", " " + "_" * (1 + width(before)) + mark)
    else:
        yield Row(place.line, _cut(shown(first)), bar="/ ")
    for number in range(place.line + 1, end_line + 1):
        if end_line - place.line >= MAX_LINES and place.line + FIRST_LINES <= number <= end_line - LAST_LINES:
            if number == place.line + FIRST_LINES:
                yield Row(None, bar="| ", elided=True)
            continue
        yield Row(number, _cut(shown(text.line(number))), bar="| ")
    inside = shown(text.line(end_line)[: max(end_column - 2, 0)])
    yield Row(None, "", "|" + "_" * (1 + min(width(inside), MAX_WIDTH)) + mark + label)


# -- how wide text is in a terminal


def shown(text: str) -> str:
    """A line of code as it is printed: tabs as blanks, a visible sign for what a terminal must not get."""
    return printable(text.replace("\t", TAB))


def width(text: str) -> int:
    """Columns that a terminal gives to a text."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def _cut(text: str) -> str:
    """The text up to the greatest width."""
    if width(text) <= MAX_WIDTH:
        return text
    columns = 0
    for number, char in enumerate(text):
        columns += _columns(char)
        if columns >= MAX_WIDTH:
            return text[:number] + ELLIPSIS
    return text


def _tail(text: str, columns: int) -> str:
    """The end of a text, about as wide as asked for."""
    if width(text) <= columns:
        return text
    number = len(text)
    while number and columns > 1:
        number -= 1
        columns -= _columns(text[number])
    return ELLIPSIS + text[number:]
