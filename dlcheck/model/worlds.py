"""Worlds: which assumptions hold together.

A value is rarely known for all runs of a program: it depends on who calls, which branch is taken,
what the user passes.  Each such choice has a key, and a world says what was chosen.  Two values
belong together only if their worlds agree; no rule ever sees a mixture.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeAlias

Key: TypeAlias = Hashable


class World:
    """An immutable set of choices, ``key -> choice``."""

    __slots__ = ("_hash", "choices")

    def __init__(self, choices: dict[Key, Hashable]) -> None:
        self.choices = choices
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            # Keys are long, and their hashes known to the dict that holds them: pairs of them are not made again.
            self._hash = hash((frozenset(self.choices), frozenset(self.choices.values())))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, World) and self.choices == other.choices

    def __repr__(self) -> str:
        return f"World({self.choices})"

    def get(self, key: Key) -> Hashable | None:
        return self.choices.get(key)

    def assume(self, key: Key, choice: Hashable) -> World | None:
        """This world with one choice more, or None where it contradicts."""
        known = self.choices.get(key, self)
        if known is self:
            return World({**self.choices, key: choice})
        return self if known == choice else None

    def merge(self, other: World) -> World | None:
        """Both worlds at once, or None where they contradict each other."""
        if not other.choices or self is other:
            return self
        if not self.choices:
            return other
        small, large = self.choices, other.choices
        if len(small) > len(large):
            small, large = large, small
        is_part = True
        for key, choice in small.items():
            known = large.get(key, self)  # no choice is a world
            if known is self:
                is_part = False
            elif known != choice:
                return None
        if is_part:
            return self if large is self.choices else other
        return World({**large, **small})


ANY = World({})


def product(firsts: Iterable[World], seconds: Iterable[World]) -> Iterator[World]:
    """Every consistent pairing of two lists of worlds."""
    others = list(seconds)
    for first in firsts:
        for second in others:
            both = first.merge(second)
            if both is not None:
                yield both
