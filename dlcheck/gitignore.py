"""Patterns as git reads them in .gitignore; ``exclude`` and ``per-file-ignores`` are written the same way."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "digit": "0-9", "lower": "a-z", "upper": "A-Z",
    "space": "\\s", "xdigit": "0-9a-fA-F", "punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"), "word": "\\w",
}  # fmt: skip
_PLAIN = re.compile(r"[\w.@+-]+")
_BRACKET = re.compile(r"\[([!^]?)(\]?(?:\[:\w+:\]|\\.|[^\]\\])*)\]", re.DOTALL)
_BRACKET_ITEM = re.compile(r"\[:(\w+):\]|\\(.)|(.)", re.DOTALL)


class Rule(NamedTuple):
    regex: re.Pattern[str]
    ignores: bool  # false for a pattern that starts with "!"
    only_folders: bool
    anchored: bool  # matched against the path from the base, not against the last component


class Patterns:
    """The patterns of one file, relative to the folder ``base`` that it lies in."""

    def __init__(self, base: str, lines: Iterable[str]) -> None:
        self.base = base.rstrip("/")
        # Runs of plain names, which most patterns are, are looked up at once.
        self._steps: list[Rule | set[str]] = []
        for line in lines:
            if _PLAIN.fullmatch(line):
                last = self._steps[-1] if self._steps else None
                if isinstance(last, set):
                    last.add(line)
                else:
                    self._steps.append({line})
            elif (rule := parse(line)) is not None:
                self._steps.append(rule)

    def match(self, path: str, is_folder: bool) -> bool | None:
        """Whether the last pattern that names ``path`` ignores it; None when none names it."""
        relative = path[len(self.base) + 1 :]
        name = path[path.rfind("/") + 1 :]
        for step in reversed(self._steps):
            if isinstance(step, set):
                if name in step:
                    return True
            elif (is_folder or not step.only_folders) and step.regex.fullmatch(relative if step.anchored else name):
                return step.ignores
        return None


def parse(line: str) -> Rule | None:
    """One line of a .gitignore; None for blanks, comments and patterns that can match nothing."""
    line = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if not line or line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    if not ignores:
        line = line[1:]
    only_folders = line.endswith("/")
    if only_folders:
        line = line[:-1]
    anchored = "/" in line
    regex = translate(line.removeprefix("/"))
    return None if regex is None or not line else Rule(regex, ignores, only_folders, anchored)


def translate(pattern: str) -> re.Pattern[str] | None:
    """The regular expression of a git wildcard pattern; None where git never matches it."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            stars = len(pattern) - at - len(pattern[at:].lstrip("*"))
            bounded = stars == 2 and (at == 0 or pattern[at - 1] == "/")
            after = pattern[at + stars : at + stars + 1]
            if bounded and after == "/":
                out.append("(?:.*/)?")
                stars += 1
            elif bounded and not after:
                out.append(".+" if at else ".*")
            else:
                out.append("[^/]*")
            at += stars
        elif char == "?":
            out.append("[^/]")
            at += 1
        elif char == "[":
            found = _BRACKET.match(pattern, at)
            if found is None or (inside := _bracket(found[1], found[2])) is None:
                return None
            out.append(inside)
            at = found.end()
        elif char == "\\":
            if at + 1 == len(pattern):
                return None
            out.append(re.escape(pattern[at + 1]))
            at += 2
        else:
            out.append(re.escape(char))
            at += 1
    try:
        return re.compile("".join(out), re.DOTALL)
    except re.error:  # a reversed range, as in [z-a]
        return None


def _bracket(negation: str, inside: str) -> str | None:
    items: list[str] = []
    for position, item in enumerate(_BRACKET_ITEM.finditer(inside)):
        name, escaped, plain = item.groups()
        if name is not None:
            if name not in _CLASSES:
                return None
            items.append(_CLASSES[name])
        elif plain == "-" and position > 0 and item.end() < len(inside):
            items.append("-")
        else:
            items.append(re.escape(escaped or plain))
    return f"(?!/)[{'^' if negation else ''}{''.join(items)}]"


def escape(path: str) -> str:
    """A pattern that matches exactly ``path``."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", path)


def anchored(pattern: str, base: str) -> str:
    """A pattern that is relative to ``base``, made absolute; one without a slash names files anywhere."""
    negation = "!" if pattern.startswith("!") else ""
    pattern = pattern.removeprefix("!").removeprefix("./")
    if "/" not in pattern.rstrip("/"):
        return negation + pattern
    if pattern.startswith(base.rstrip("/") + "/"):
        return negation + pattern
    return f"{negation}{escape(base.rstrip('/'))}/{pattern.removeprefix('/')}"
