"""Whether the files of a dataset are in the page cache: what is read first from a disk is slower than what follows."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
from typing import Any

FILES = 64  # looked at, at most
LONGEST = 1 << 30  # bytes of a file that are looked at


class Watch:
    """The files under no system folder that are opened meanwhile, and how much of each was in memory just before.

    C libraries that open files by themselves are not seen: HDF5, LMDB, OpenCV's ``imread``.
    """

    def __init__(self) -> None:
        self.resident: dict[str, float] = {}
        self.on = False

    def opened(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or event != "open" or len(self.resident) >= FILES:
            return
        if not isinstance(arguments[0], (str, os.PathLike)):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if _of_the_system(path):
            return
        self.on = False  # looking opens the file as well
        try:
            if path not in self.resident and (share := resident(path)) is not None:
                self.resident[path] = share
        finally:
            self.on = True


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """A watch that looks for as long as the block lasts; an audit hook itself cannot be taken away again."""
    watch = Watch()
    if sys.platform == "linux":
        sys.addaudithook(watch.opened)
    watch.on = True
    try:
        yield watch
    finally:
        watch.on = False


def _of_the_system(path: str) -> bool:
    return path.startswith(("/proc/", "/sys/", "/dev/", sys.prefix, sys.base_prefix)) or path.endswith((".py", ".pyc"))


def resident(path: str) -> float | None:
    """The share of a file's pages that are in memory; None where that cannot be told.  Reads none of them."""
    try:
        with open(path, "rb") as stream:
            length = min(os.fstat(stream.fileno()).st_size, LONGEST)
            if not length:
                return None
            with mmap.mmap(stream.fileno(), length, flags=mmap.MAP_PRIVATE) as pages:  # private: its address can be had
                return _resident(pages, length)
    except (OSError, ValueError, AttributeError):
        return None


def _resident(pages: mmap.mmap, length: int) -> float | None:
    number = -(-length // mmap.PAGESIZE)
    states = (ctypes.c_ubyte * number)()
    first = ctypes.c_char.from_buffer(pages)
    try:
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(length), states
        )
    finally:
        del first  # the mapping cannot be closed while something points into it
    return None if failed else sum(state & 1 for state in states) / number
