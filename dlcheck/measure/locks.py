"""One run at a time: a lock that the system lets go of when its owner dies, however that happens."""

from __future__ import annotations

import contextlib
import os
import sys
from types import TracebackType

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

AT = 1 << 20  # the byte that is locked, far behind what is read: Windows refuses to read what is locked
# A process does not wait for itself: whoever takes it anew, and lets go of it, would let go of it for all.
_held: set[str] = set()


class Lock:
    """As a context: whether it was free, and is held now.  Where nothing can be written or locked, it always is."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._descriptor: int | None = None

    def __enter__(self) -> bool:
        if self.file in _held:
            return True
        while True:
            try:
                os.makedirs(os.path.dirname(self.file), exist_ok=True)
                descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:  # the folder was taken away just now
                continue
            except OSError:
                return True
            try:
                if not _locked(descriptor):
                    os.close(descriptor)
                    return False
                if os.path.samestat(os.fstat(descriptor), os.stat(self.file)):
                    break
            except FileNotFoundError:  # its owner has just let go of it, and taken it away
                pass
            except OSError:  # a file system without locks
                break
            os.close(descriptor)
        self._descriptor = descriptor
        _held.add(self.file)
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, b"%d\n" % os.getpid())
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is None:
            return
        if os.name == "nt":  # where an open file cannot be taken away
            os.close(self._descriptor)
        with contextlib.suppress(OSError):
            os.remove(self.file)
        if os.name != "nt":
            os.close(self._descriptor)
        self._descriptor = None
        _held.discard(self.file)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(self.file))  # only where nothing else is in it

    def owner(self) -> str:
        """The process that holds it, as it has written itself down."""
        with contextlib.suppress(OSError, UnicodeError), open(self.file, encoding="ascii") as stream:
            return stream.readline().strip()
        return ""


def _locked(descriptor: int) -> bool:
    """Take the lock, without waiting; False where another process has it.  Raises OSError where there are no locks."""
    if sys.platform == "win32":
        os.lseek(descriptor, AT, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
    try:
        # Not flock: a forked child would go on holding that.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, AT)
    except (BlockingIOError, PermissionError):
        return False
    return True
