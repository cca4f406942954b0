"""An error in a few words: its type, its message, and the line of the user's code that it came through last."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

STANDARD = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))) + os.sep
# Of what a worker process raised, torch hands on the whole traceback as text.
_ORIGINAL = "Original Traceback"
_LINE = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)


def told(error: BaseException) -> dict[str, Any]:
    """``{"type", "message"}``, and ``file`` and ``line`` where some code of the user's had to do with it."""
    text = str(error).strip()
    kind = type(error).__name__
    original = text.partition(_ORIGINAL)[2]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = (lines[-1] if original else lines[0]) if lines else ""
    said = "" if said == kind else said.removeprefix(f"{kind}: ")
    place = place_of(error, original)
    return {"type": kind, "message": said[:500], **({"file": place[0], "line": place[1]} if place else {})}


def place_of(error: BaseException, original: str = "") -> tuple[str, int] | None:
    """The innermost line that is neither a library's nor ours."""
    frames = [*_frames(error), *((match[1], int(match[2])) for match in _LINE.finditer(original))]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno or 0))
    return next(((file, line) for file, line in reversed(frames) if is_users(file)), None)


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def frames(error: BaseException, limit: int = 50) -> list[dict[str, Any]]:
    """All lines that an error came through, the innermost last, but for those of ours."""
    return [{"file": file, "line": line} for file, line in _frames(error) if not _is_ours(file)][-limit:]


def is_users(file: str) -> bool:
    if file.startswith("<") or "site-packages" in file or "dist-packages" in file or _is_ours(file):
        return False
    return not os.path.realpath(file).startswith(STANDARD)


def _is_ours(file: str) -> bool:
    return os.path.realpath(file).startswith(OURS)
