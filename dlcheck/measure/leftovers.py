"""What a measurement that was killed has left: a note in the project says where its files are laid aside.

The note is written before the program starts, and deleted when its files are as they were.  One that lies there
although nobody works on it belongs to a run that could not come to its end: the next one does that for it.

Whoever hands somebody a project can put a note into it, and a journal that would overwrite any file.  So a note names
what no archive can bring along: number and time of change of a file, as the file system of this machine has given them.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from dlcheck import files
from dlcheck.measure import processes, undoing
from dlcheck.measure.locks import Lock

FOLDER = ".dlcheck"
NOTE = "running-"
KEPT = "kept-"
STAMP = "stamp"
PRIVATE = "dlcheck-"
SLACK_NS = 2_000_000_000  # between the clock of a machine and that of its files
SHOWN = 5
A_DAY = 86_400


@dataclass(frozen=True)
class Note:
    """A file that says who measures here, and where he keeps what."""

    file: Path

    @property
    def root(self) -> Path:
        return self.file.parent.parent

    @property
    def kept(self) -> Path:
        """A folder on the project's own disk: journals, and files that are laid aside by a second name."""
        return self.file.parent / f"{KEPT}{self.file.stem.removeprefix(NOTE)}"

    def open(self) -> bool:
        """Make the folder beside the note; False where the project cannot be written."""
        try:
            self.file.parent.mkdir(exist_ok=True)
            self.kept.mkdir(mode=0o700)
            return True
        except OSError:
            return False

    def write(self, **facts: Any) -> int:
        """The moment of writing, by the clock of the project's files."""
        beside = self.file.with_suffix(".new")  # one that is written by half would be none
        with contextlib.suppress(OSError):
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
                json.dump(facts, stream)
            os.replace(beside, self.file)
            return self.file.stat().st_mtime_ns
        return time.time_ns()  # nothing can be written here; nor is there anything to put back, mostly

    def remove(self, *, but: Sequence[str] = ()) -> None:
        """Its files are as they were, all but what these copies are of."""
        discard(self.kept, but)
        with contextlib.suppress(OSError):
            self.file.unlink()
        with contextlib.suppress(OSError):
            self.file.parent.rmdir()  # only where nothing else is in it


def note(root: str, folder: Path) -> Note:
    return Note(Path(root) / FOLDER / f"{NOTE}{folder.name.removeprefix(PRIVATE)}.json")


def root_of(folder: str) -> str:
    """The top of the project that a folder lies in, else the folder."""
    return os.path.realpath(files.root_of(os.path.abspath(folder)) or folder)


def roots(folders: Iterable[str]) -> list[str]:
    """The projects that some folders lie in."""
    return sorted(set(map(root_of, folders)))


def lock(root: str) -> Lock:
    """Held by whoever runs a program in a project, or puts its files back."""
    return Lock(os.path.join(root, FOLDER, "lock"))


def discard(folder: Path, but: Sequence[str] = ()) -> None:
    """Delete a folder, all but some files in it."""
    if not but:
        shutil.rmtree(folder, ignore_errors=True)
        return
    dear = set(but)
    for where, folders, names in os.walk(folder, topdown=False):
        for name in names:
            if (path := os.path.join(where, name)) not in dear:
                with contextlib.suppress(OSError):
                    os.remove(path)
        for name in folders:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(where, name))
    with contextlib.suppress(OSError):
        folder.rmdir()


def copies(told: Mapping[str, Any]) -> list[str]:
    """Those of what could not be put back: they stay."""
    return [one["copy"] for one in told.get("not_restored", ()) if one["copy"]]


def stamp(folder: Path) -> list[int]:
    """What the file system says of a file that is made once in a folder, and never touched."""
    with contextlib.suppress(FileExistsError):
        (folder / STAMP).touch(0o600, exist_ok=False)
    return _stamped(folder)


def _stamped(folder: Path) -> list[int]:
    found = os.lstat(folder / STAMP)
    return [found.st_ino, found.st_ctime_ns]


def put_back(folders: Iterable[str]) -> list[str]:
    """Finish what was left in the projects of these folders; a line for each run that had been killed."""
    _sweep()
    lines: list[str] = []
    for root in roots(folders):
        notes = sorted(Path(root, FOLDER).glob(f"{NOTE}*.json"))
        alone = lock(root)
        if not notes and not os.path.exists(alone.file):
            continue
        with alone as held:  # the file of a dead owner goes with it
            for file in notes if held else ():  # else somebody is at work here
                lines += _finished(Note(file))
    return lines


def _finished(found: Note) -> Iterator[str]:
    try:
        facts = _read(found)
        began = f"the measurement of {datetime.fromtimestamp(facts['started']):%d %b, %H:%M}"
        pid, host, folder = int(facts["pid"]), str(facts["host"]), Path(facts["folder"])
    except FileNotFoundError:
        return  # somebody has just finished it
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = str(error) if isinstance(error, _NotOurs) else "it cannot be read"
        yield f"{files.shown(str(found.file))} is left as it is, and nothing is put back by it: {why}"
        return
    if host != platform.node():
        yield (
            f"{began} was begun on {host} and has not ended: `dlcheck measure` on {host} puts its files back, "
            f"by {files.shown(str(found.kept))} and {folder}"
        )
        return
    if _alive(pid, facts["started"]):
        return
    gone = None if _is_ours(folder, facts["copies"]) else str(folder)
    ended = _ended(folder, found.kept, facts)
    told = undoing.Undoing(found.kept, undoing.Scope(**facts["scope"]), ended, gone).run()
    if gone is None:
        discard(folder, copies(told))
    found.remove(but=copies(told))  # said once
    said = "; ".join(said_of(told))
    if said:
        yield f"{began} was killed: {said}"


class _NotOurs(ValueError):
    pass


def _read(found: Note) -> dict[str, Any]:
    """What a note says, if a run of this user has written it on this machine."""
    status = os.lstat(found.file)
    if not stat.S_ISREG(status.st_mode) or not _private(status):
        raise _NotOurs("it was not written by a measurement of yours; delete it if you do not know it")
    facts: dict[str, Any] = json.loads(found.file.read_text(encoding="utf-8"))
    if not _is_ours(found.kept, facts["stamp"]):
        kept = files.shown(str(found.kept))
        raise _NotOurs(f"{kept} is gone, or not what a measurement here has made; delete both if you do not know them")
    return facts


def said_of(told: Mapping[str, Any]) -> Iterator[str]:
    """What became of the files of a program, in words."""
    if told.get("restored"):
        yield f"put back {listed(told['restored'])}"
    if told.get("removed"):
        yield f"removed what was new: {listed(told['removed'])}"
    if told.get("created"):
        yield f"new, and left: {listed(told['created'])}"
    for one in told.get("not_restored", ()):
        where = f"; as it was: {one['copy']}" if one["copy"] else ""
        yield f"not put back: {files.shown(one['path'])} ({one['why']}{where})"


def listed(paths: Sequence[str]) -> str:
    shown = ", ".join(map(files.shown, paths[:SHOWN]))
    return f"{shown} and {len(paths) - SHOWN} more" if len(paths) > SHOWN else shown


def _alive(pid: int, started: float) -> bool:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 2 and process.status() != psutil.STATUS_ZOMBIE
    return False


def _ended(folder: Path, journals: Path, facts: dict[str, Any]) -> int:
    """When the last process of the program was alive: by itself, or until now."""
    if facts.get("ended"):
        return int(facts["ended"])
    if processes.end_all(str(folder / "spec.json")):
        return time.time_ns() + SLACK_NS
    return max((int(step["at"]) for step in undoing.steps(journals)), default=0) + SLACK_NS


def _is_ours(folder: Path, stamped: object) -> bool:
    """Whether a folder is what a run of this user has made here, and no trap in a project that came from elsewhere."""
    try:
        found = os.lstat(folder)
        return stat.S_ISDIR(found.st_mode) and _private(found) and _stamped(folder) == stamped
    except OSError:
        return False


def _private(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o077)


def _sweep() -> None:
    """Delete what workers of ours have had in the folder for passing files, where whoever started them is dead."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PRIVATE}worker-*"):
        pid = folder.name.split("-")[2]
        with contextlib.suppress(OSError):
            found = os.lstat(folder)
            # Another container may share the folder, and not the numbers of processes.
            old = time.time() - found.st_mtime > A_DAY
            if old and pid.isdigit() and not psutil.pid_exists(int(pid)) and _private(found):
                shutil.rmtree(folder, ignore_errors=True)
