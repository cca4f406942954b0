"""What one file says by itself: its tree, reduced to small, typed, plain data."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dlcheck.facts.forms import ModuleFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlcheck.facts.forms import Block
    from dlcheck.source import Source

Found = TypeVar("Found")

__all__ = ["Differs", "ModuleFacts", "Unreadable", "extract", "sketch"]


class Unreadable(Exception):
    """Text that is no Python, or that no parser here can take; ``line`` and ``column`` count from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"{line}:{column}: {message}")
        self.line = line
        self.column = column
        self.message = message


class Differs(BaseException):
    """libcst reads a file otherwise than CPython's parser does, or cannot read it: ``extract`` has the last word.

    No ``except Exception`` on its way may hold it up.
    """

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.file = file


def sketch(source: Source) -> ModuleFacts:
    """The facts of a module's text, by CPython's parser; libcst reads it when the first place is asked for.

    Most of the files that are read hold nothing to report, and libcst takes more than ten times as long.
    Raises Unreadable where the text does not parse; asking for a place may raise Differs.
    """
    from dlcheck.facts.gate import parsed, refuse_hazards
    from dlcheck.facts.quick import Unknown, forms_of
    from dlcheck.facts.tables import without_tables

    tree = refuse_hazards(source.text)
    if tree is None:
        return extract(source)
    cut = without_tables(source.text, tree)
    try:
        body = forms_of(tree if cut == source.text else parsed(cut))
    except (Unknown, SyntaxError):
        return extract(source)
    return ModuleFacts(body, partial(_judged_spans, source, body))


def _judged_spans(source: Source, body: Block) -> tuple[int, ...]:
    """The places of forms, where libcst reads the same ones; raises Differs."""
    try:
        judged = extract(source)
    except Unreadable:
        raise Differs(source.file) from None
    if not _are_same(judged.body, body):
        raise Differs(source.file)
    return judged.spans


def _are_same(one: Any, other: Any) -> bool:
    """Whether forms are equal, and of the same kinds: named tuples are equal to any that hold the same."""
    todo = [(one, other)]
    while todo:
        a, b = todo.pop()
        if a.__class__ is not b.__class__:
            return False
        if isinstance(a, tuple):
            if len(a) != len(b):
                return False
            todo.extend(zip(a, b, strict=True))
        elif a != b:
            return False
    return True


def extract(source: Source) -> ModuleFacts:
    """The facts of a module's text, by libcst.

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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of escapes such as "\\d" when a string is read
        try:
            return walk(cut)
        except Unreadable:
            if cut == text:
                raise
            return walk(text)  # what is wrong is said of what is written
