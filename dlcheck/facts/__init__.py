"""What one file says by itself: libcst's tree, reduced to small, typed, plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcheck.facts.forms import ModuleFacts

if TYPE_CHECKING:
    from dlcheck.source import Source

__all__ = ["ModuleFacts", "Unreadable", "extract"]


class Unreadable(Exception):
    """Text that is no Python, or that no parser here can take; ``line`` and ``column`` count from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.line = line
        self.column = column
        self.message = message


def extract(source: Source) -> ModuleFacts:
    """The facts of a module's text.

    Raises Unreadable where the text does not parse.
    """
    # libcst is most of the start-up time: not before there is something to parse.
    from dlcheck.facts.gate import refuse_hazards
    from dlcheck.facts.tables import without_tables
    from dlcheck.facts.walk import walk

    tree = refuse_hazards(source.text)
    text = source.text if tree is None else without_tables(source.text, tree)
    try:
        return walk(text)
    except Unreadable:
        if text == source.text:
            raise
        return walk(source.text)  # what is wrong is said of what is written
