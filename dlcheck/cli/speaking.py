"""What is said: on standard output what was asked for, on standard error all else."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import click


class Fault(click.ClickException):
    """Something that stops a run: one line, exit 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        complain(f"error: {self.message}")


def say(text: str, *, end: str = "\n") -> None:
    sys.stdout.write(text + end)


def tell(text: str) -> None:
    """A line for people, in which a name or a setting may hold anything."""
    from dlcheck.harmless import harmless

    say(harmless(text))


def complain(text: str) -> None:
    """A line on standard error; a name in it may hold anything, which must not reach a terminal."""
    from dlcheck.harmless import harmless

    tell_now(f"dlcheck: {harmless(text)}")


def tell_now(text: str, *, end: str = "\n") -> None:
    """Text on standard error, at once; where that takes none, the exit status still says what happened."""
    try:
        sys.stderr.write(text + end)
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)  # nor may the interpreter's own flush at exit change the status


def discard(stream: TextIO) -> None:
    """Let what a standard stream is given, and has not written yet, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def put(text: str, target: str | None) -> None:
    """Write a report to a file, or to standard output."""
    if target is None:
        say(text, end="")
        return
    from dlcheck import writing

    try:
        writing.to_target(target, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise Fault(f"{target}: {error.strerror or error}") from None


def wants_color(choice: str) -> bool:
    """Whether to colour standard output; click honours neither NO_COLOR nor FORCE_COLOR."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def as_json(document: Mapping[str, Any]) -> str:
    import json

    return json.dumps(document, indent=2) + "\n"
