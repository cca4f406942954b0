"""What a measurement that was killed has left: a note in the project says where its files are laid aside.

The note is written before the program starts, and deleted when its files are as they were.  One that lies there
although nobody works on it belongs to a run that could not come to its end: the next one does that for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
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

FOLDER = ".dlcheck"
NOTE = "running-"
KEPT = "kept-"
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
        """A folder on the project's own disk, where files can be laid aside by a second name."""
        return self.file.parent / f"{KEPT}{self.file.stem.removeprefix(NOTE)}"

    def write(self, **facts: Any) -> int:
        """The moment of writing, by the clock of the project's files."""
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(exist_ok=True)
            self.file.write_text(json.dumps(facts), encoding="utf-8")
            return self.file.stat().st_mtime_ns
        return time.time_ns()  # nothing can be written here; nor is there anything to put back, mostly

    def remove(self) -> None:
        shutil.rmtree(self.kept, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.file.unlink()
        with contextlib.suppress(OSError):
            self.file.parent.rmdir()  # only where nothing else is in it


def note(root: str, folder: Path) -> Note:
    return Note(Path(root) / FOLDER / f"{NOTE}{folder.name.removeprefix(PRIVATE)}.json")


def root_of(folder: str) -> str:
    """The top of the project that a folder lies in, else the folder."""
    return os.path.realpath(files.root_of(os.path.abspath(folder)) or folder)


def put_back(folders: Iterable[str]) -> list[str]:
    """Finish what was left in the projects of these folders; a line for each run that had been killed."""
    _sweep()
    lines: list[str] = []
    for root in dict.fromkeys(map(root_of, folders)):
        for file in sorted(Path(root, FOLDER).glob(f"{NOTE}*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                lines += _finished(Note(file))
    return lines


def _finished(found: Note) -> Iterator[str]:
    facts = json.loads(found.file.read_text(encoding="utf-8"))
    if facts["host"] != platform.node() or _alive(facts["pid"], facts["started"]):
        return
    folder = Path(facts["folder"])
    if not _is_ours(folder, found.root):
        found.remove()
        return
    ended = _ended(folder, facts)
    spec = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    told = undoing.Undoing(folder, undoing.Scope(**spec["scope"]), ended).run()
    if not told.get("not_restored"):
        shutil.rmtree(folder, ignore_errors=True)
        found.remove()
    else:
        found.file.unlink()  # said once; the copies stay
    said = "; ".join(said_of(told))
    if said:
        yield f"the measurement of {datetime.fromtimestamp(facts['started']):%d %b, %H:%M} was killed: {said}"


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


def _ended(folder: Path, facts: dict[str, Any]) -> int:
    """When the last process of the program was alive: by itself, or until now."""
    if facts.get("ended"):
        return int(facts["ended"])
    if processes.end_all(str(folder / "spec.json")):
        return time.time_ns() + SLACK_NS
    return max((int(step["at"]) for step in undoing.steps(folder)), default=0) + SLACK_NS


def _is_ours(folder: Path, root: Path) -> bool:
    """Whether a folder is what a run of this user has made, and no trap in a project that came from elsewhere."""
    homes = {os.path.realpath(home) for home in (tempfile.gettempdir(), "/tmp", "/var/tmp")}
    real = Path(os.path.realpath(folder))
    if str(real.parent) not in homes or not real.name.startswith(PRIVATE) or real in (root, *root.parents):
        return False
    try:
        found = os.lstat(real)
    except OSError:
        return False
    return not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o077)


def _sweep() -> None:
    """Delete what workers of ours have had in the folder for passing files, where whoever started them is dead."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PRIVATE}worker-*"):
        pid = folder.name.split("-")[2]
        with contextlib.suppress(OSError):
            # Another container may share the folder, and not the numbers of processes.
            old = time.time() - folder.stat().st_mtime > A_DAY
            if old and pid.isdigit() and not psutil.pid_exists(int(pid)) and _is_ours(folder, Path()):
                shutil.rmtree(folder, ignore_errors=True)
