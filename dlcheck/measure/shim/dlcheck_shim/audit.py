"""What the program does to the world outside: listed, kept from harm, or refused.

A seat belt, not a sandbox: what C code opens by itself, and what other programs do, is not seen here.

``log`` lets everything happen, and has a `Keeper` lay aside what is about to change, so that the parent can put it back
afterwards: a run that is measured may not cost anybody a checkpoint.
``deny`` refuses whatever leads out of the private folder, as an error that the program may catch or end with.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .keeping import Keeper

if TYPE_CHECKING:
    from .session import Session

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
LISTED = 200

WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
# The events that change files: where among their arguments the paths are, and the folders that those start from.
CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.truncate": ((0, None),),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "shutil.rmtree": ((0, 1),),
    "sqlite3.connect": ((0, None),),
}
# These reach through a symbolic link; all others are about the name itself.
FOLLOWING = {"os.truncate", "os.chmod", "os.chown", "os.utime", "sqlite3.connect"}
# What sqlite writes beside a database.
SQLITE = ("", "-journal", "-wal", "-shm")
PROCESSES = {"subprocess.Popen": 1, "os.system": 0, "os.exec": 1, "os.posix_spawn": 1}
# What multiprocessing, torch and the import system need wherever the program runs.
SYSTEM = ("/dev/", "/proc/", "/sys/")


class Guard:
    def __init__(self, session: Session) -> None:
        self.writes = 0
        self.denied = 0
        self.keeper = Keeper(session)
        self._session = session
        self._policy = session.spec.audit
        self._private = tuple(folder + os.sep for folder in session.spec.private)
        self._listed: set[tuple[str, str]] = set()
        self.on = False
        self.came_by = False  # the file of the flagged loader has been run
        site = session.spec.site
        self._file = site.file if site is not None else ""

    def watch(self) -> None:
        if self._policy != "off" and not self.on:
            self.on = True
            sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        # Called for every import and every opened file of the program: what does not matter must leave quickly.
        if event == "open":
            if isinstance(arguments[2], int) and arguments[2] & WRITING:
                self.opens(arguments[0], arguments[2])
        elif event == "exec":
            self._executed(arguments[0])
        elif event in CHANGES:
            self._changed(event, [_placed(arguments, *where) for where in CHANGES[event]])
        elif event == "socket.connect":
            self._connected(arguments[1])
        elif event in PROCESSES:
            self._started(event, arguments)
        elif event == "sys.excepthook" and not self._session.muted:
            self._session.raised(arguments[2])

    def _executed(self, code: Any) -> None:
        """The program itself, and each module that it imports."""
        name = getattr(code, "co_filename", "")
        if self._file and not self.came_by and os.path.basename(name) == os.path.basename(self._file):
            self.came_by = os.path.realpath(os.path.join(self._session.folder, name)) == self._file

    # -- files

    def opens(self, path: Any, flags: int) -> None:
        """A file is about to be opened for writing."""
        file = self._outside(path, follow=True) if not isinstance(path, int) else None
        if file is not None:
            self._refuse("open", file)
            self.writes += 1
            with self._session.muting():
                self.keeper.opens(file, flags)

    def _changed(self, event: str, paths: list[Any]) -> None:
        if event == "sqlite3.connect":
            paths = [_database(path) for path in paths]
        files = [self._outside(path, follow=event in FOLLOWING) for path in paths]
        named = [file for file in files if file is not None]
        if not named:
            return
        if event in ("os.mkdir", "os.rmdir") and os.path.isdir(named[-1]) == (event == "os.mkdir"):
            return  # it exists already, or not any more: the call will fail, or do nothing
        own = self._session.spec.journal
        if own and any((file + os.sep).startswith(own + os.sep) for file in named):
            raise PermissionError(f"dlcheck measure: {own} is needed to put files back, and stays until then")
        self._refuse(event, named[-1])
        self.writes += 1
        with self._session.muting():
            self._keep(event, files, named[-1])

    def _keep(self, event: str, files: list[str | None], named: str) -> None:
        keeper = self.keeper
        if event == "os.rename":
            source, target = files
            if source is not None and target is not None:
                keeper.renames(source, target)
            elif source is not None:  # into the private folder, which will be gone
                keeper.removes_tree(source)
            else:
                keeper.replaces(named)
        elif event in ("os.remove", "os.rmdir"):
            keeper.removes(named)
        elif event == "shutil.rmtree":
            keeper.removes_tree(named)
        elif event == "os.truncate":
            keeper.truncates(named)
        elif event in ("os.chmod", "os.chown", "os.utime"):
            keeper.attributes(named)
        elif event == "sqlite3.connect":
            for suffix in SQLITE:
                keeper.opens(named + suffix, os.O_RDWR)
        else:
            keeper.makes(named)

    def _outside(self, path: Any, *, follow: bool) -> str | None:
        """The absolute path where it is one that the program may not have for itself."""
        if path is None or self._session.muted:
            return None
        try:
            file = _real(_of_descriptor(path) if isinstance(path, int) else os.fsdecode(path), follow=follow)
        except (OSError, TypeError, ValueError):
            return None
        if file.startswith(SYSTEM) or f"{os.sep}__pycache__{os.sep}" in file or file.endswith("__pycache__"):
            return None
        if any((file + os.sep).startswith(folder) for folder in self._private):
            return None
        return None if file in ("nul", "NUL", ":memory:") else file

    def holds(self, path: Any, more_than: int) -> bool:
        """Whether a file of the user's is to be mapped without being written to: one that is too large to be copied."""
        file = self._outside(path, follow=True) if self._policy != "off" else None
        with self._session.muting():
            if file is None or not self.keeper.is_larger(file, more_than):
                return False
            self.keeper.tell("numpy.memmap", file, private=True)
            return True

    # -- the rest of the world

    def _connected(self, address: Any) -> None:
        if self._session.muted or not isinstance(address, tuple) or tuple(address[:2]) == self._session.spec.address:
            return
        host = str(address[0])
        # Windows makes pairs of sockets by connecting to itself.
        if not (os.name == "nt" and host in ("127.0.0.1", "::1")):
            self._refuse("socket.connect", f"{host}:{address[1]}")
        self._list("socket.connect", f"{host}:{address[1]}")

    def _started(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._session.muted:
            return
        words = arguments[PROCESSES[event]]
        if event == "subprocess.Popen" and not words:
            words = arguments[0]
        shown = os.fsdecode(words) if isinstance(words, (str, bytes)) else " ".join(map(_text, words))
        python = os.path.basename(shown.split(" ")[0]).startswith("python")
        if not python:  # a Python refuses by itself: it takes up the shim
            self._refuse(event, shown)
        self._list(event, shown[:300])

    # -- what comes of it

    def _refuse(self, event: str, what: str) -> None:
        if self._policy != "deny":
            return
        self.denied += 1
        self._list(event, what, denied=True)
        raise PermissionError(f"dlcheck measure: {event} {what} is refused (--audit deny)")

    def _list(self, event: str, path: str, **details: Any) -> None:
        """Once, and not without end."""
        if (event, path) in self._listed or len(self._listed) >= LISTED:
            return
        self._listed.add((event, path))
        with self._session.muting():
            self.keeper.tell(event, path, **details)


def _placed(arguments: tuple[Any, ...], at: int, folder: int | None) -> Any:
    """A path argument; one that starts from an open folder, as those of `shutil.rmtree` do, is put behind its path."""
    path = arguments[at]
    start = arguments[folder] if folder is not None and folder < len(arguments) else None
    if not isinstance(start, int) or start < 0 or not isinstance(path, (str, bytes)):
        return path
    try:
        return os.path.join(_of_descriptor(start), os.fsdecode(path))
    except OSError:
        return None


def _text(word: Any) -> str:
    return os.fsdecode(word) if isinstance(word, (str, bytes, os.PathLike)) else str(word)


def _of_descriptor(number: int) -> str:
    """The file or folder that is open under a number; OSError where it is neither, and on all but Linux."""
    path = os.readlink(f"/proc/self/fd/{number}")
    os.stat(path)  # a pipe, or a file without a name, is shown as one that is not there
    return path


def _database(path: Any) -> Any:
    """The file of a name that sqlite takes, which may be an URI."""
    if isinstance(path, str) and path.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        return unquote(urlsplit(path).path)
    return path


def _real(path: str, *, follow: bool) -> str:
    """An absolute path without symbolic links, but for the last part where it is the name that is meant."""
    if follow:
        return os.path.realpath(path)
    folder, name = os.path.split(path.rstrip(os.sep) or path)
    return os.path.join(os.path.realpath(folder), name) if name not in ("", ".", "..") else os.path.realpath(path)
