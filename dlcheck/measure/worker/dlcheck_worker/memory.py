"""How much memory a process and its workers take, each shared page counted once."""

from __future__ import annotations

import ctypes
import os
from typing import Any

PROBE = 8 << 20  # bytes that must be seen when a tensor takes them


def pss_of_tree(pid: int | None = None) -> int | None:
    """Bytes of proportional set size of a process and all below it; None where the system does not tell.

    The resident size would count a shared page once for each worker: two to six times too much.
    """
    total = 0
    for one in tree(pid or os.getpid()):
        size = _pss(one)
        if size is None and one == (pid or os.getpid()):
            return None
        total += size or 0
    return total


def tree(pid: int) -> list[int]:
    """A process and its descendants; forkserver's workers hang below its server."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += _children(one)
    return found


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [child for task in tasks for child in _children_of_thread(pid, task)]


def _children_of_thread(pid: int, task: str) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{task}/children") as stream:
            return [int(word) for word in stream.read().split()]
    except OSError:  # the thread has ended, or the kernel was built without this file
        return []


def _pss(pid: int) -> int | None:
    return _summed(pid, ("Pss",))


def own(pid: int) -> int | None:
    """Bytes that a process shares with nobody: what would be free without it."""
    return _summed(pid, ("Private_Clean", "Private_Dirty"))


def _summed(pid: int, names: tuple[str, ...]) -> int | None:
    """Some of what the system tells of a process's memory, in bytes; None where it does not."""
    found = []
    try:
        with open(f"/proc/{pid}/smaps_rollup") as stream:
            for line in stream:
                name, _, rest = line.partition(":")
                if name in names:
                    found.append(int(rest.split()[0]) << 10)
    except (OSError, ValueError):
        return None
    return sum(found) if found else None


def resident(pid: int) -> int | None:
    """Bytes of a process that are in memory, shared or not."""
    try:
        with open(f"/proc/{pid}/statm") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def shared_memory_used() -> int:
    """Bytes taken of /dev/shm, in which workers hand batches over; raises OSError where there is none."""
    found = os.statvfs("/dev/shm")
    return (found.f_blocks - found.f_bfree) * found.f_frsize


class Usage(ctypes.Structure):
    """As ``mallinfo2`` of the C library fills it in."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


class Allocated:
    """Bytes that this process has asked for and not given back; raises OSError where nobody counts them.

    What the system counts would not do: a process keeps what it has freed, and later steps would seem to need nothing.
    """

    def __init__(self, torch: Any) -> None:
        try:
            self._ask: Any = ctypes.CDLL(None).mallinfo2
        except (AttributeError, OSError, TypeError):
            raise OSError("the C library does not tell how much memory is in use") from None
        self._ask.restype = Usage
        before = self.read()
        held = torch.empty(PROBE, dtype=torch.uint8, device="cpu")
        if self.read() - before < held.numel():
            raise OSError("memory is not taken from the C library here: nobody tells how much is in use")

    def read(self) -> int:
        usage = self._ask()
        return int(usage.uordblks + usage.hblkhd)
