"""Text that others wrote, made harmless before a terminal, a log or GitHub's runner gets it."""

from __future__ import annotations

import re

# Control characters, marks that change the direction of text, and surrogates: in a terminal or a
# log they could hide what the code says, or break the line.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """The text on one line, with a visible sign for each character that must not reach a terminal."""
    return _HIDDEN.sub(_sign, text)


def harmless(text: str) -> str:
    """The text without what a terminal or GitHub's runner would obey; further lines of it are set in."""
    return "\n  ".join(map(no_command, map(printable, text.split("\n"))))


def no_command(line: str) -> str:
    """A line that GitHub's runner does not take for a command, whoever wrote it: ``::`` in front, ``##[`` anywhere."""
    line = line.replace("##[", "## [")
    return f"./{line.lstrip()}" if line.lstrip().startswith("::") else line


def _sign(match: re.Match[str]) -> str:
    char = match[0]
    if char in "\t\n\r\u2028\u2029":
        return " "
    return chr(0x2400 + ord(char)) if char < " " else "\u2421" if char == "\x7f" else "\ufffd"
