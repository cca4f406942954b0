"""Ctrl-C, and other ways to be told to end: once, and never while somebody's files are put back."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
AGAIN_S = 5.0  # in which a further signal is an impatient one, of somebody who has been heard
PATIENCE = b"dlcheck: the program's files are put back first\n"


@contextlib.contextmanager
def heeded(busy: Callable[[], bool]) -> Iterator[None]:
    """The first signal is a KeyboardInterrupt; further ones are none while there is something to put back.

    Whoever presses Ctrl-C twice would break off what the first has begun, and leave a project by half.
    """
    heard: float | None = None
    said = False

    def hear(_number: int, _frame: FrameType | None) -> None:
        nonlocal heard, said
        if heard is None or not busy() and time.monotonic() - heard > AGAIN_S:
            heard = time.monotonic()
            raise KeyboardInterrupt
        if busy() and not said:
            said = True
            _tell()

    with _handled(hear):
        yield


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Signals are noted, and come when this is over."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if not noted:
            _tell()
        noted.append(number)

    note.puts_off = True  # type: ignore[attr-defined]
    if any(getattr(signal.getsignal(number), "puts_off", False) for number in SIGNALS):
        yield
        return
    try:
        with _handled(note):
            yield
    finally:
        for number in dict.fromkeys(noted):
            signal.raise_signal(number)


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Signals go to a handler: those that are not ignored, as under nohup, and only where Python can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}
    try:
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


def _tell() -> None:
    with contextlib.suppress(OSError):
        os.write(2, PATIENCE)  # a handler may have come into the middle of a write to sys.stderr
