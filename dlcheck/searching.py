"""Which files have a word, import it or give it a meaning: asked of all files at once.

For each word there is one number whose bits are the files that have it, so that a question about some words is an
operation on some numbers.  A file is read for a kind of words only when such a question is asked of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dlcheck.skim import Skim

_STALE = 1_000  # texts that nobody has any more; beyond that all is read anew


class Skims:
    """What many files say.  A text that changes is a new entry, and nobody asks for the old one any more."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._numbers: dict[str, int] = {}
        self._entries: list[tuple[str, Skim]] = []
        self._bits: dict[str, dict[bytes, int]] = {}  # of a kind of words: for each word the entries that have it
        self._read: dict[str, int] = {}  # of a kind: the entries that have been read for it

    def tidy(self) -> None:
        """Let go of what nobody asks for; entries that were given out before are no longer valid."""
        if len(self._entries) > 2 * len(self._numbers) + _STALE:
            self._begin()

    def entry(self, file: str, data: bytes) -> int:
        """The bit of a file with these bytes."""
        number = self._numbers.get(file)
        if number is None or not _is_same(self._entries[number][1].data, data):
            number = self._numbers[file] = len(self._entries)
            self._entries.append((file, Skim(data)))
        return 1 << number

    def having(self, kind: str, words: Collection[bytes], among: int) -> int:
        """The entries, among some, whose words of a kind (a property of Skim) have any of the words."""
        self._index(kind, among)
        bits = self._bits[kind]
        found = 0
        for word in words:
            found |= bits.get(word, 0)
        return found & among

    def _index(self, kind: str, entries: int) -> None:
        bits = self._bits.setdefault(kind, {})
        read = self._read.get(kind, 0)
        for number in _numbers(entries & ~read):
            bit = 1 << number
            for word in getattr(self._entries[number][1], kind):
                bits[word] = bits.get(word, 0) | bit
        self._read[kind] = read | entries

    def said(self, entries: int) -> list[tuple[str, Skim]]:
        """The files of entries, sorted by name, with what they say."""
        return sorted((self._entries[number] for number in _numbers(entries)), key=lambda entry: entry[0])


def _is_same(one: bytes, other: bytes) -> bool:
    return one is other or one == other


def _numbers(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
