"""Files are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress


def replace(file: str, data: bytes) -> None:
    """Put bytes in the place of a file, or of a link: who reads it meanwhile sees the old ones or the new ones.

    They are written beside it first, under a name that nobody knows before: one that could be guessed might be a link
    that somebody has laid there.  Raises OSError; then all is as it was.
    """
    beside = os.path.join(os.path.dirname(file), f".dlcheck-{secrets.token_hex(8)}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        with suppress(OSError):  # there is none yet
            os.chmod(beside, stat.S_IMODE(os.stat(file).st_mode))
        os.replace(beside, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


def to_target(file: str, data: bytes) -> None:
    """Write what a user has named: a file as a whole, its other names and links kept; pipes and devices as they come.

    A file in a folder that takes no new one is written in place, as one of several names is.  Raises OSError.
    """
    real = os.path.realpath(file)
    if (os.path.isfile(file) or not os.path.exists(file)) and _takes_another(real):
        replace(real, data)
        return
    with open(file, "wb") as stream:
        stream.write(data)


def _takes_another(real: str) -> bool:
    """Whether another file can take the place of what is there."""
    try:
        status = os.stat(real)
    except OSError:
        return True  # there is none; or the attempt will tell
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or os.path.ismount(real):
        return False
    return os.access(os.path.dirname(real), os.W_OK) and os.access(real, os.W_OK)
