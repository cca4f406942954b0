"""What the bytes of a file say before it is parsed: words that it imports, gives a meaning, or has for options.

Patterns find more than Python would (in strings, in comments), which costs a little time; they must not find less.
Bytes may be of any encoding in which Python's own words are ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

_IMPORT = re.compile(rb"(?:^|[;:])[ \t\f]*(?:from|import)\b[^\n(;\\]*(?:\([^)]*\)?|(?:\\\r?\n[^\n]*)*)", re.MULTILINE)
_BREAK = re.compile(rb"[\s.,()*;:\\#]+")
_OPTION = re.compile(rb"--([\w\x80-\xff][\w\x80-\xff-]*)")
_WORD = re.compile(rb"[A-Za-z_\x80-\xff][\w\x80-\xff]*")
ANY = b"*"
_ANYTHING = frozenset({ANY})
_BY_NAME = (b"import_module", b"__import__", b"importlib")
_MEANING = (
    re.compile(rb"\b(?:def|class)[ \t\\]+([^\W\d][^\s(:\[]*)"),
    re.compile(rb"\.[ \t]*(\w+)[ \t]*(?:[,:)\]]|[^\w\s(]{0,3}=)"),  # self.x = ..., self.x: T, (a.x, b.x) = ...
    re.compile(rb"^[ \t]*(\w+)[ \t]*[,:=]", re.MULTILINE),  # of a class
    re.compile(rb"\bas[ \t\\]+(\w+)"),
    re.compile(rb"[\"'](\w+)[\"'][ \t]*[,:]"),  # setattr(x, "name", ...), namedtuple("T", ["name", ...])
)


# Projects use the same words again and again: each is kept once.
_KNOWN: dict[bytes, bytes] = {}


def _words(groups: Iterable[Iterable[bytes]]) -> frozenset[bytes]:
    return frozenset(_KNOWN.setdefault(word, word) for words in groups for word in words)


class Skim:
    """Of one file, by kinds of words, which are found when they are asked for and not kept.

    ``imported`` are all words of its imports, ``bound`` those that may be a name afterwards: not ``a`` of
    ``from a import b``.  ``options`` are those of command lines, ``words`` all that may be a name.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def imported(self) -> frozenset[bytes]:
        return _words(_BREAK.split(statement) for statement in self._imports)

    @property
    def bound(self) -> frozenset[bytes]:
        return _words(_BREAK.split(statement.partition(b"import")[2]) for statement in self._imports)

    @cached_property
    def _imports(self) -> list[bytes]:
        return _IMPORT.findall(self.data)

    @property
    def anything(self) -> frozenset[bytes]:
        """Something, where it imports names that it does not tell."""
        by_name = any(word in self.data for word in _BY_NAME)
        return _ANYTHING if by_name or any(b"*" in statement for statement in self._imports) else frozenset()

    @property
    def given(self) -> frozenset[bytes]:
        return _words(pattern.findall(self.data) for pattern in _MEANING)

    @property
    def options(self) -> frozenset[bytes]:
        return _words([_OPTION.findall(self.data)])

    @property
    def words(self) -> frozenset[bytes]:
        return _words([_WORD.findall(self.data)])

    @property
    def loaders(self) -> frozenset[bytes]:
        """Something, where it may name a loader."""
        return _ANYTHING if b"oader" in self.data else frozenset()

    def may_import(self, *words: bytes) -> bool:
        return bool(self.anything) or not self.imported.isdisjoint(words)
