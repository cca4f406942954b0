"""What the bytes of a file say before it is parsed: the words that it imports, and those that it gives a meaning.

Patterns find more than Python would (in strings, in comments), which costs a little time; they must not find less.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_IMPORT = re.compile(rb"(?:^|[;:])[ \t\f]*(?:from|import)\b[^\n(;\\]*(?:\([^)]*\)?|(?:\\\r?\n[^\n]*)*)", re.MULTILINE)
_BREAK = re.compile(rb"[\s.,()*;:\\#]+")
_BY_NAME = (b"import_module", b"__import__", b"importlib")
_MEANING = (
    re.compile(rb"\b(?:def|class)[ \t\\]+([^\W\d][^\s(:\[]*)"),
    re.compile(rb"\.[ \t]*(\w+)[ \t]*(?:[,:)\]]|[^\w\s(]{0,3}=)"),  # self.x = ..., self.x: T, (a.x, b.x) = ...
    re.compile(rb"^[ \t]*(\w+)[ \t]*[,:=]", re.MULTILINE),  # of a class
    re.compile(rb"\bas[ \t\\]+(\w+)"),
    re.compile(rb"[\"'](\w+)[\"'][ \t]*[,:]"),  # setattr(x, "name", ...), namedtuple("T", ["name", ...])
)


class Skim(NamedTuple):
    """Of one file.  ``anything``: it imports names that it does not tell."""

    imported: frozenset[bytes]
    given: frozenset[bytes]
    anything: bool

    def may_import(self, *words: bytes) -> bool:
        return self.anything or not self.imported.isdisjoint(words)


def skim(data: bytes) -> Skim:
    """What a file says; ``data`` in any encoding in which Python's own words are ASCII."""
    statements = [found.group() for found in _IMPORT.finditer(data)]
    words = frozenset(word for statement in statements for word in _BREAK.split(statement))
    starred = any(b"*" in statement for statement in statements)
    given = frozenset(word for pattern in _MEANING for word in pattern.findall(data))
    return Skim(words, given, starred or any(word in data for word in _BY_NAME))
