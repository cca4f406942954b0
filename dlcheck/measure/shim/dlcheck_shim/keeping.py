"""How things were: laid aside and written down before the program changes them, so that the parent can put them back.

Each process has a journal in a private folder, a line of JSON for each step that has to be undone.  The parent
undoes the steps of all of them from the last to the first, and so can anybody after it, were it killed meanwhile.
What the program makes and changes again is written down once.

Contents are laid aside as a hard link where only a name goes, which costs nothing, and as a copy where the file itself
is about to change.  Copies have a limit: beyond it the program is stopped before it does what could not be undone.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session

# Taken before anything is patched: what the program believes to have saved is none of our business here.
_copy_data, _copy_times, _link, _stat = shutil.copyfile, shutil.copystat, os.link, os.stat

SMALL = 1 << 20  # bytes: of a larger file that is appended to only the length is kept
FREE = 256 << 20  # that must be left on the disk of the copies


class Keeper:
    """One for each process; a forked child goes on with what its parent knew."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._folder = session.spec.keep
        self._settled: set[str] = set()  # names under which there is nothing of the user's (any more)
        self._copies: dict[tuple[int, int], str] = {}  # files whose content is safe, and where
        self._lengths: set[tuple[int, int]] = set()  # files that were appended to
        self._known: set[tuple[int, int]] = set()  # things whose mode, owner and times are safe
        self._entered: set[tuple[int, int]] = set()  # folders whose times are safe
        self._number = 0

    # -- what the program is about to do; all paths are absolute

    def opens(self, file: str, flags: int) -> None:
        """A file is opened for writing."""
        found = _status(file, follow=True)
        if found is None:
            self._new(file)
        elif stat.S_ISREG(found.st_mode) and not (flags & os.O_EXCL and flags & os.O_CREAT):
            self._changes(file, found, append=bool(flags & os.O_APPEND) and not flags & os.O_TRUNC)

    def truncates(self, file: str) -> None:
        found = _status(file, follow=True)
        if found is not None and stat.S_ISREG(found.st_mode):
            self._changes(file, found, append=False)

    def makes(self, path: str) -> None:
        """A folder or a link is made, where there is nothing yet."""
        if _status(path) is None:
            self._new(path)

    def removes(self, path: str) -> None:
        found = _status(path)
        if found is not None:
            self._gone(path, found)

    def removes_tree(self, top: str) -> None:
        """All of it is laid aside before the first file goes: what stands in the way is found then, and not midway."""
        if not os.path.isdir(top) or os.path.islink(top):
            self.removes(top)
            return
        own = self._session.spec.journal + os.sep
        for folder, folders, files in os.walk(top, topdown=False):
            if (folder + os.sep).startswith(own):
                continue
            for name in files:
                self.removes(os.path.join(folder, name))
            for name in filter(lambda one: os.path.islink(os.path.join(folder, one)), folders):
                self.removes(os.path.join(folder, name))
            self.removes(folder)

    def renames(self, source: str, target: str) -> None:
        moved, there = _status(source), _status(target)
        if moved is None or not _goes(source, moved, target, there):
            return  # it fails, or does nothing
        self._enters(os.path.dirname(source))
        self._enters(os.path.dirname(target))
        if there is not None:
            self._gone(target, there)
        if source in self._settled and not stat.S_ISDIR(moved.st_mode):
            self._new(target)
            return
        self._note(moved=[source, target], identity=_identity(moved))
        self._rename_settled(source, target)

    def replaces(self, target: str) -> None:
        """A name is given to something from the private folder."""
        found = _status(target)
        if found is not None:
            self._gone(target, found)
        self._new(target)

    def attributes(self, path: str) -> None:
        """Mode, owner or times are changed."""
        found = _status(path, follow=True)
        if found is None or self._own(path, found) or _identity(found) in self._known:
            return
        self._note(attributes=path, **_described(found))
        self._known.add(_identity(found))

    def tell(self, event: str, path: str, **details: Any) -> None:
        """Something that is listed, and not undone."""
        self._note(event=event, path=path, **details)

    def ends(self) -> None:
        """The process ends with what it does now."""
        self._note(ends=os.getpid())

    def is_larger(self, file: str, limit: int) -> bool:
        """Whether this is a file of the user's of more than so many bytes."""
        found = _status(file, follow=True)
        return found is not None and found.st_size > limit and not self._own(os.path.realpath(file), found)

    # -- how it is kept

    def _own(self, path: str, found: os.stat_result) -> bool:
        # A second name may be the user's.
        return path in self._settled and found.st_nlink == 1

    def _enters(self, folder: str) -> None:
        """Something comes into a folder or goes out of it, which changes its times."""
        found = _status(folder)
        if found is None or folder in self._settled or _identity(found) in self._entered:
            return
        self._note(entered=folder, **_described(found))
        self._entered.add(_identity(found))

    def _new(self, path: str) -> None:
        if path not in self._settled:
            self._enters(os.path.dirname(path))
            self._note(new=path)
            self._settled.add(path)

    def _changes(self, file: str, found: os.stat_result, append: bool) -> None:
        """The content of a file is about to change in its place."""
        identity = _identity(found)
        if self._own(file, found) or identity in self._copies:
            return
        if append and found.st_size > SMALL:
            if identity not in self._lengths:
                self._note(written=file, size=found.st_size, **_described(found))
                self._lengths.add(identity)
            return
        copy = self._copy(file, found) if found.st_size else None
        if copy is not None:
            self._note(written=file, copy=copy, **_described(found))
            self._copies[identity] = copy
        elif not found.st_size:
            self._note(written=file, size=0, **_described(found))

    def _gone(self, path: str, found: os.stat_result) -> None:
        """A name is about to go, or to be given to something else."""
        if path in self._settled:
            return
        self._enters(os.path.dirname(path))
        mode = found.st_mode
        if stat.S_ISLNK(mode):
            self._note(gone=path, target=os.readlink(path), **_described(found))
        elif stat.S_ISDIR(mode):
            self._note(gone=path, folder=True, **_described(found))
        else:
            kept = self._linked(path) or self._copies.get(_identity(found))
            if kept is None and stat.S_ISREG(mode):
                kept = self._copy(path, found)
            if kept is not None:
                self._note(gone=path, copy=kept, **_described(found))
            else:
                self.tell("changed", path)
        self._settled.add(path)

    def _rename_settled(self, source: str, target: str) -> None:
        """What is known of names goes with them; those that are free now may become something else."""
        below = source + os.sep
        moved = {path for path in self._settled if path == source or path.startswith(below)}
        self._settled -= moved
        self._settled.discard(target)
        self._settled |= {target + path[len(source) :] for path in moved}

    def _linked(self, path: str) -> str | None:
        """A second name for a file in one of our folders, where one of them lies on the same disk."""
        name = self._named("link")
        for folder in (self._session.spec.beside, self._folder):
            if folder is None:
                continue
            try:
                kept = os.path.join(folder, name)
                _link(path, kept, follow_symlinks=False)
            except (OSError, NotImplementedError):
                continue
            return kept
        return None

    def _copy(self, file: str, found: os.stat_result) -> str | None:
        if self._folder is None:
            return None
        taken = sum(entry.stat().st_size for entry in os.scandir(self._folder) if entry.name.startswith("copy-"))
        limit = self._session.spec.limit
        if taken + found.st_size > limit:
            self._refuse(file, found, f"more than {limit >> 20} MB would have to be copied to put it back afterwards")
        if shutil.disk_usage(self._folder).free < found.st_size + FREE:
            self._refuse(file, found, f"no room for a copy in {os.path.dirname(self._folder)}")
        copy = os.path.join(self._folder, self._named("copy"))
        try:
            _copy_data(file, copy)
            _copy_times(file, copy)
        except OSError as error:
            self._refuse(file, found, f"it cannot be copied ({error.strerror or error})")
        return copy

    def _named(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{os.getpid()}-{self._number}"

    def _refuse(self, file: str, found: os.stat_result, why: str) -> None:
        size = f"{found.st_size / 1e6:.0f} MB" if found.st_size >= 5e5 else f"{found.st_size} bytes"
        self.tell("keep", file, denied=True)
        self._session.refuse(f"the program was stopped before it changes {file} ({size}): {why}")

    def _note(self, **step: Any) -> None:
        if self._folder is None:
            return
        # Opened each time: a descriptor that the program closes, as daemons close all, may become a file of its own.
        name = os.path.join(self._session.spec.journal, f"journal-{os.getpid()}.jsonl")
        journal = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(journal, json.dumps({"at": time.time_ns(), **step}).encode() + b"\n")
        finally:
            os.close(journal)


def _status(path: str, *, follow: bool = False) -> os.stat_result | None:
    try:
        return _stat(path, follow_symlinks=follow)
    except (OSError, ValueError):
        return None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return (found.st_dev, found.st_ino)


def _goes(source: str, moved: os.stat_result, target: str, there: os.stat_result | None) -> bool:
    """Whether a rename will do something: what is known of names must not go where they did not."""
    folders = os.path.dirname(source), os.path.dirname(target)
    status = _status(folders[1], follow=True)
    if status is None or status.st_dev != moved.st_dev or not all(os.access(folder, os.W_OK) for folder in folders):
        return False
    if there is None:
        return True
    if _identity(moved) == _identity(there):
        return False
    if stat.S_ISDIR(there.st_mode):
        return stat.S_ISDIR(moved.st_mode) and not os.listdir(target)
    return not stat.S_ISDIR(moved.st_mode)


def _described(found: os.stat_result) -> dict[str, Any]:
    return {
        "mode": stat.S_IMODE(found.st_mode),
        "owner": [getattr(found, "st_uid", 0), getattr(found, "st_gid", 0)],
        "times": [found.st_atime_ns, found.st_mtime_ns],
    }
