"""What the program does to the world outside: listed, kept from harm, or refused.

A seat belt, not a sandbox: what C code opens by itself, and what other programs do, is not seen here.

``log`` lets everything happen and lists it.  Of a file that is about to be emptied, replaced or deleted a copy is
made first, which the parent puts back afterwards: a run that is measured may not cost anybody a checkpoint.
``deny`` refuses whatever leads out of the private folder, as an error that the program may catch or end with.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
LISTED = 200
KEPT_FILE = 1 << 30  # bytes: larger files are not copied, and therefore not touched
KEPT_UPDATE = 64 << 20  # a file that is opened to be changed in place is mostly data, and mostly not changed
KEPT_TOTAL = 4 << 30

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
    "shutil.rmtree": ((0, None),),
    "shutil.move": ((0, None), (1, None)),
    "sqlite3.connect": ((0, None),),
}
EMPTIED = {"os.remove", "os.rename", "os.truncate"}
PROCESSES = {"subprocess.Popen": 1, "os.system": 0, "os.exec": 1, "os.posix_spawn": 1}
# What multiprocessing, torch and the import system need wherever the program runs.
SYSTEM = ("/dev/", "/proc/", "/sys/")


FRAMES = 50  # of an error that are told


class Guard:
    def __init__(self, session: Session) -> None:
        self.writes = 0
        self.denied = 0
        self._session = session
        self._policy = session.spec.audit
        self._private = tuple(folder + os.sep for folder in session.spec.private)
        self._listed: set[tuple[str, str]] = set()
        self._kept: set[str] = set()
        self._kept_bytes = 0
        self._on = False

    def watch(self) -> None:
        if self._policy != "off" and not self._on:
            self._on = True
            sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        # Called for every import and every opened file of the program: what does not matter must leave quickly.
        if event == "open":
            if isinstance(arguments[2], int) and arguments[2] & WRITING:
                self._opened(arguments[0], arguments[2])
        elif event in CHANGES:
            self._changed(event, [_placed(arguments, *where) for where in CHANGES[event]])
        elif event == "socket.connect":
            self._connected(arguments[1])
        elif event in PROCESSES:
            self._started(event, arguments)
        elif event == "sys.excepthook" and not self._session.muted:
            error = arguments[2]
            self._session.tell(raised={"type": type(error).__name__, "message": _said(error), **_where(error)})

    # -- files

    def _opened(self, path: Any, flags: int) -> None:
        file = self._outside(path)
        if file is None:
            return
        self._refuse("open", file)
        kept: dict[str, Any] = {}
        if self._reports:
            kept = self._keep(file, whole=bool(flags & os.O_TRUNC), append=bool(flags & os.O_APPEND))
        self._list("open", file, kept)

    def _changed(self, event: str, paths: list[Any]) -> None:
        files = [self._outside(path) for path in paths]
        if not any(files):
            return
        shown = files[-1] or files[0]
        assert shown is not None
        if event in ("os.mkdir", "os.rmdir") and os.path.isdir(shown) == (event == "os.mkdir"):
            return  # it exists already, or not any more: the call will fail, or do nothing
        self._refuse(event, shown)
        for file in filter(None, files):
            if event == "os.chmod" and file in self._kept:
                continue
            kept = {}
            if self._reports and (event in EMPTIED or event == "sqlite3.connect"):
                kept = self._keep(file, whole=event in EMPTIED, append=False)
            elif event == "os.mkdir":
                kept = {"new": True}
            self._list(event, file, kept)

    def _outside(self, path: Any) -> str | None:
        """The absolute path where it is one that the program may not have for itself."""
        if isinstance(path, int) or path is None or self._session.muted:
            return None
        try:
            file = os.path.realpath(os.fsdecode(path))
        except (TypeError, ValueError):
            return None
        if file.startswith(SYSTEM) or f"{os.sep}__pycache__{os.sep}" in file or file.endswith("__pycache__"):
            return None
        if any((file + os.sep).startswith(folder) for folder in self._private):
            return None
        return None if file in ("nul", "NUL", ":memory:") else file

    def _keep(self, file: str, whole: bool, append: bool) -> dict[str, Any]:
        """Lay a copy aside of what is about to change; refuse the change where it is too much to copy."""
        try:
            found = os.stat(file)
        except OSError:
            self._kept.add(file)  # the program's own, whatever it does with it next
            return {"new": True}
        if not stat.S_ISREG(found.st_mode) or not self._session.spec.keep:
            return {}
        if file in self._kept:
            return {"kept": True}
        if append and not whole:
            self._kept.add(file)
            return {"size": found.st_size}
        if not found.st_size:
            self._kept.add(file)
            return {"size": 0}
        limit = KEPT_FILE if whole else KEPT_UPDATE
        if found.st_size > limit or self._kept_bytes + found.st_size > KEPT_TOTAL:
            if whole:
                self.denied += 1
                self._list("keep", file, {"denied": True})
                raise PermissionError(f"dlcheck measure: {file} is too large to be kept, and is not overwritten")
            return {"changed": True}
        copy = os.path.join(self._session.spec.keep, f"{os.getpid()}-{len(self._kept)}")
        with self._session.muting():
            try:
                shutil.copy2(file, copy)
            except OSError:
                return {"changed": True}
        self._kept.add(file)
        self._kept_bytes += found.st_size
        return {"kept": copy}

    # -- the rest of the world

    def _connected(self, address: Any) -> None:
        if self._session.muted or not isinstance(address, tuple) or tuple(address[:2]) == self._session.spec.address:
            return
        host = str(address[0])
        # Windows makes pairs of sockets by connecting to itself.
        if not (os.name == "nt" and host in ("127.0.0.1", "::1")):
            self._refuse("socket.connect", f"{host}:{address[1]}")
        self._list("socket.connect", f"{host}:{address[1]}", {})

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
        self._list(event, shown[:300], {})

    # -- what comes of it

    @property
    def _reports(self) -> bool:
        return self._session.link.ours

    def _refuse(self, event: str, what: str) -> None:
        if self._policy != "deny":
            return
        self.denied += 1
        self._list(event, what, {"denied": True})
        raise PermissionError(f"dlcheck measure: {event} {what} is refused (--audit deny)")

    def _list(self, event: str, path: str, details: dict[str, Any]) -> None:
        if not self._reports:
            return
        self.writes += 1
        # What is needed to undo it is always said; the rest once, and not without end.
        if "kept" not in details and "size" not in details:
            if (event, path) in self._listed or len(self._listed) >= LISTED:
                return
        elif details.get("kept") is True:
            return
        self._listed.add((event, path))
        self._session.tell(write={"event": event, "path": path, **details})


def _placed(arguments: tuple[Any, ...], at: int, folder: int | None) -> Any:
    """A path argument; one that starts from an open folder, as those of `shutil.rmtree` do, is put behind its path."""
    path = arguments[at]
    start = arguments[folder] if folder is not None and folder < len(arguments) else None
    if not isinstance(start, int) or start < 0 or not isinstance(path, (str, bytes)):
        return path
    try:
        return os.path.join(os.readlink(f"/proc/self/fd/{start}"), os.fsdecode(path))
    except OSError:
        return None  # only Linux tells


def _text(word: Any) -> str:
    return os.fsdecode(word) if isinstance(word, (str, bytes, os.PathLike)) else str(word)


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Of what a worker raised, torch hands on the whole traceback: the last line says it.
    return lines[-1 if len(lines) > 1 and "Original Traceback" in str(error) else 0][:500] if lines else ""


def _where(error: BaseException) -> dict[str, Any]:
    """The lines that an error came through, and the innermost, other than those of ours that refused something."""
    trace, frames = error.__traceback__, []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(HERE):
            frames.append({"file": file, "line": trace.tb_lineno})
        trace = trace.tb_next
    return {**frames[-1], "frames": frames[-FRAMES:]} if frames else {}
