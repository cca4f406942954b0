"""Facts of a text that is being typed: of what has not changed, they are kept.

Most of the time that facts take is libcst's, and a keystroke changes one statement.  A module is cut into the lines
of its body, and of its classes' bodies; only those that an edit touches are parsed again, by themselves.  Whoever
would need a look at the whole (an edit that opens a bracket, changes an indentation, outgrows the numbers that were
left free) gets it: then ``after`` has no answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from dlcheck.facts import Unreadable, forms, guarded
from dlcheck.facts.forms import Block, ModuleFacts
from dlcheck.facts.walk import CLASS, Piece, shifted, walk_in_class, walk_in_pieces


@dataclass(frozen=True)
class Pieces:
    """A text, its facts, and where each piece begins: there ends the one before it."""

    text: str
    facts: ModuleFacts
    pieces: tuple[Piece, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Pieces:
        """All of a text; raises Unreadable."""
        facts, pieces = guarded(text, walk_in_pieces)
        return cls(text, facts, tuple(pieces), _starts(text, pieces, facts.spans, 0))

    def after(self, text: str) -> Pieces | None:
        """The pieces of a text that differs in few places; None where the whole must be read again."""
        if not self.pieces:
            return None
        same = _common(self.text, text)
        rest = _common_end(self.text, text, same)
        region = self._touched(same, len(self.text) - rest)
        try:
            return self._with(text, *region)
        except Unreadable:
            return None

    def _touched(self, start: int, end: int) -> tuple[int, int]:
        """The pieces that a change between two offsets touches, first and last; those of one class, or whole ones."""
        first = max(0, bisect_right(self.starts, start - 1) - 1)
        last = max(first, bisect_right(self.starts, end) - 1)
        if all(piece.inside for piece in self.pieces[first : last + 1]):
            return first, last
        while self.pieces[first].inside:
            first -= 1
        while last + 1 < len(self.pieces) and self.pieces[last + 1].inside:
            last += 1
        return first, last

    def _with(self, text: str, first: int, last: int) -> Pieces | None:
        start, end = self.starts[first], self._end(last)
        by = len(text) - len(self.text)
        new = text[start : end + by]
        low, high = self.pieces[first].low, self.pieces[last].high
        inside = self.pieces[first].inside
        if inside and _indentation(new) != _indentation(self.text[start:end]):
            return None
        if end < len(self.text) and (not new.endswith(("\n", "\r")) or new.rstrip().endswith("\\")):
            return None  # it would run into what follows
        found = _in_class(new, low) if inside else _in_module(new, low)
        if found is None:
            return None
        facts, pieces, class_end = found
        if not pieces or pieces[-1].high > high:
            return None
        pieces[-1] = pieces[-1]._replace(high=high)
        spans = self._spans(facts.spans, low, high, start, by)
        if inside:
            self._move_class_end(spans, first, last, start + class_end, by)
        body = self._body(facts.body, first, last)
        starts = _starts(new, pieces, facts.spans, low)
        return Pieces(
            text,
            ModuleFacts(body, tuple(spans)),
            (*self.pieces[:first], *pieces, *self.pieces[last + 1 :]),
            (*self.starts[:first], *(start + one for one in starts), *(one + by for one in self.starts[last + 1 :])),
        )

    def _end(self, number: int) -> int:
        return self.starts[number + 1] if number + 1 < len(self.starts) else len(self.text)

    def _spans(self, own: Sequence[int], low: int, high: int, start: int, by: int) -> list[int]:
        spans = list(self.facts.spans[: 2 * low])
        spans += shifted(own, start)
        spans += [0] * (2 * high - len(spans))
        # Nothing here begins a text: 0 is the span of no place.
        spans += [offset and offset + by for offset in self.facts.spans[2 * high :]]
        return spans

    def _move_class_end(self, spans: list[int], first: int, last: int, end: int, by: int) -> None:
        """A class ends where its last line does."""
        at = self._classes(first)[0].at
        is_last = last + 1 == len(self.pieces) or not self.pieces[last + 1].inside
        spans[2 * at + 1] = end if is_last else spans[2 * at + 1] + by

    def _classes(self, number: int) -> tuple[forms.Class, int, int]:
        """The class that a piece is a line of, its place in the module, and its head's place among the pieces."""
        head = max(place for place in range(number) if self.pieces[place].opens)
        place = _forms_before(self.pieces, head)
        cls = self.facts.body[place]
        assert isinstance(cls, forms.Class)
        return cls, place, head

    def _body(self, block: Block, first: int, last: int) -> Block:
        body = self.facts.body
        if not self.pieces[first].inside:
            return body[: _forms_before(self.pieces, first)] + block + body[_forms_before(self.pieces, last + 1) :]
        cls, place, head = self._classes(first)
        counts = [0, *accumulate(piece.statements for piece in self.pieces[head + 1 :])]
        lines = cls.body[: counts[first - head - 1]] + block + cls.body[counts[last - head] :]
        return (*body[:place], _with_body(cls, lines), *body[place + 1 :])


def _with_body(cls: forms.Class, body: Block) -> forms.Class:
    return forms.Class(cls.name, cls.bases, body, cls.decorators, cls.at, cls.head, cls.name_at)


def _forms_before(pieces: Sequence[Piece], number: int) -> int:
    """How many of a module's statements come before a piece."""
    return sum(piece.statements for piece in pieces[:number] if not piece.inside)


def _in_module(text: str, low: int) -> tuple[ModuleFacts, list[Piece], int] | None:
    return (*guarded(text, partial(walk_in_pieces, base=low)), 0)


def _in_class(text: str, low: int) -> tuple[ModuleFacts, list[Piece], int] | None:
    return guarded(CLASS + text, partial(walk_in_class, base=low))


def _starts(text: str, pieces: Sequence[Piece], spans: Sequence[int], low: int) -> tuple[int, ...]:
    """Where the physical line of each piece begins; the first has all that stands above it."""
    begins = [spans[2 * (piece.first - low)] for piece in pieces]
    starts = [max(text.rfind("\n", 0, one), text.rfind("\r", 0, one)) + 1 for one in begins]
    return (0, *starts[1:]) if starts else ()


def _indentation(text: str) -> str:
    """What stands before the first statement of some lines; comments may stand anywhere."""
    for line in text.splitlines():
        bare = line.lstrip(" \t\f")
        if bare and not bare.startswith("#"):
            return line[: len(line) - len(bare)]
    return ""


def _common(a: str, b: str) -> int:
    """How many characters two texts begin with alike."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def _common_end(a: str, b: str, same: int) -> int:
    """How many characters two texts end with alike, beyond those that they begin with."""
    low, high = 0, min(len(a), len(b)) - same
    while low < high:
        middle = (low + high + 1) // 2
        alike = a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]
        low, high = (middle, high) if alike else (low, middle - 1)
    return low
