"""One file's text and the way between offsets in it and places that people read."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from dlcheck.findings import Place

# Python ends a line at these only; a form feed or U+2028 is an ordinary character of a line.
_NEWLINE = re.compile(r"\r\n|\r|\n")


def line_starts(text: str) -> list[int]:
    """Offsets at which the lines of ``text`` begin."""
    return [0, *(match.end() for match in _NEWLINE.finditer(text))]


def split_lines(text: str) -> list[str]:
    """The lines of ``text`` with their ends."""
    starts = line_starts(text)
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True) if start < end]


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell of a notebook: its number (from 1) and where its text begins in ``Source.text``."""

    number: int
    first_line: int  # index into the lines of Source.text, from 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A cell that is no Python: its number, and where and how that shows, line and column from 1."""

    number: int
    line: int
    column: int
    message: str


@dataclass(frozen=True)
class Source:
    """The text of a module, decoded; of a notebook, its code cells one below the other.

    ``path`` is what reports print; ``file`` is where the file lies.  ``encoding``, ``bom``, the cells and
    ``document``, the JSON of a notebook, are what it takes to write the text back as it was.  ``cell_texts``
    are the cells as people see them, with magics, and each line with its end; in ``text`` other code stands
    for what is no Python, and for the cells that are ``left_out``.
    """

    path: str
    file: str
    text: str
    encoding: str = "utf-8"
    bom: bool = False
    cells: tuple[Cell, ...] = ()
    document: str = ""
    cell_texts: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return self.encoded(self.document or self.text)

    def encoded(self, text: str) -> bytes:
        """Another text of this file as bytes; raises ValueError where its encoding lacks a character."""
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode("utf-8" if self.bom else self.encoding)

    @cached_property
    def starts(self) -> list[int]:
        return line_starts(self.text)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of a character offset in ``text``."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """The reverse of ``position``."""
        return self.starts[line - 1] + column - 1

    def line(self, number: int) -> str:
        """The text of a line (from 1), without its end."""
        starts = self.starts
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def cell_of(self, line: int) -> Cell | None:
        """The notebook cell that holds a line (from 1) of ``text``."""
        at = bisect_right([cell.first_line for cell in self.cells], line - 1)
        return self.cells[at - 1] if at else None

    def written(self, number: int) -> str:
        """A line (from 1) as people see it, without its end: a magic is one, whatever it was read as."""
        cell = self.cell_of(number)
        if cell is None or not self.cell_texts:
            return self.line(number)
        lines = split_lines(self.cell_texts[cell.number - 1])
        at = number - 1 - cell.first_line
        return lines[at].rstrip("\r\n") if at < len(lines) else ""

    def place(self, start: int, end: int, message: str = "") -> Place:
        """The place of a range of ``text``, in the coordinates that people see."""
        line, column = self.position(start)
        end_line, end_column = self.position(end)
        cell = self.cell_of(line)
        above = cell.first_line if cell else 0
        return Place(
            self.path, line - above, column, end_line - above, end_column, cell.number if cell else None, message
        )

    def span(self, place: Place) -> tuple[int, int]:
        """The range of ``text`` that a place of this file names."""
        above = next((cell.first_line for cell in self.cells if cell.number == place.cell), 0)
        return (
            self.offset(place.line + above, place.column),
            self.offset(place.end_line + above, place.end_column),
        )
