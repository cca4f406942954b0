"""How much memory a search may take: watched while a setting runs, and the setting ended before the machine is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from dlcheck.measure.machine import System

EVERY_S = 0.25
SHARE = 0.8  # of the memory that is free in the beginning, for all ranks together
SPARE = 0.03  # of all memory, and of all of /dev/shm: what must stay free whoever takes the rest
LEAST_SPARE = 64 << 20
PASSED = "bound"  # the stage of a failure that is none of the loader's: it was ended for what it took


@dataclass(frozen=True)
class Bounds:
    """Bytes: ``memory`` that a process and its workers may take, ``spare`` and ``shm`` that must stay free.

    None where the system does not tell how much there is.
    """

    memory: int | None = None
    spare: int | None = None
    shm: int | None = None


def bounds(system: System, ranks: int, most: int | None = None) -> Bounds:
    """What a rank may take of this machine; ``most`` is what the user allows it."""
    free, shared = system.available_memory(), system.shared_memory()
    own = int(SHARE * free / ranks) if free is not None else None
    total = psutil.virtual_memory().total
    return Bounds(
        memory=min((one for one in (own, most) if one is not None), default=None),
        spare=min(int(SPARE * total), (free or total) // 4),
        # Where little is free from the start it is not the search that has taken it.
        shm=min(max(LEAST_SPARE, int(SPARE * shared[0])), shared[1] // 4) if shared else None,
    )


@dataclass(frozen=True)
class Taken:
    """Bytes: of a process and its workers together, free in the machine, and free in /dev/shm."""

    memory: int
    free: int | None = None
    shm: int | None = None


def passed(limits: Bounds, taken: Taken) -> str:
    """Which bound is passed, in a sentence; empty where none is."""
    if limits.memory is not None and taken.memory > limits.memory:
        return f"stopped: it took {_gb(taken.memory)} of memory, and {_gb(limits.memory)} are allowed"
    if limits.spare is not None and taken.free is not None and taken.free < limits.spare:
        return f"stopped: only {_gb(taken.free)} of the machine's memory were left free"
    if limits.shm is not None and taken.shm is not None and taken.shm < limits.shm:
        return f"stopped: only {_gb(taken.shm)} of /dev/shm were left free"
    return ""


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it, as far as they are still there."""
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    return []


def taken(pid: int, system: System, enough: int | None) -> Taken:
    """What a process and its workers take; pages that they share are counted once only where that may matter."""
    members = family(pid)
    size = _sum(members, lambda one: one.memory_info().rss)
    if enough is not None and size > enough:
        # Slow to read, and what it reads stands still meanwhile: not while all is well.
        size = min(size, _sum(members, _proportional))
    shared = system.shared_memory()
    return Taken(size, system.available_memory(), shared[1] if shared else None)


def _proportional(one: psutil.Process) -> int:
    found = one.memory_full_info()
    size: int = getattr(found, "pss", 0) or found.uss
    return size


def _sum(members: list[psutil.Process], size: Callable[[psutil.Process], int]) -> int:
    total = 0
    for one in members:
        with contextlib.suppress(psutil.Error, OSError):
            total += size(one)
    return total


class Watch:
    """As a context: looks at a process again and again, and ends it with all below it when a bound is passed."""

    def __init__(self, pid: int, limits: Bounds, system: System | None = None) -> None:
        self.passed = ""
        self._pid = pid
        self._limits = limits
        self._system = system or System()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(EVERY_S):
            self.passed = passed(self._limits, taken(self._pid, self._system, self._limits.memory))
            if self.passed:
                for one in reversed(family(self._pid)):
                    with contextlib.suppress(psutil.Error):
                        one.kill()
                return


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
