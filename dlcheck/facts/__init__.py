"""What one file says by itself: libcst's tree, reduced to small, typed, plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dlcheck.facts.forms import ModuleFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlcheck.source import Source

Found = TypeVar("Found")

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
    from dlcheck.facts.walk import walk

    return guarded(source.text, walk)


def guarded(text: str, walk: Callable[[str], Found]) -> Found:
    """What ``walk`` finds in a text that is fit for libcst, or in one as long without what takes it too much time."""
    from dlcheck.facts.gate import refuse_hazards
    from dlcheck.facts.tables import without_tables

    tree = refuse_hazards(text)
    cut = text if tree is None else without_tables(text, tree)
    try:
        return walk(cut)
    except Unreadable:
        if cut == text:
            raise
        return walk(text)  # what is wrong is said of what is written
