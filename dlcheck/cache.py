"""What an earlier run found in a project, for as long as nothing that it rests on has changed.

Any file of a project may call into any other: what was found holds for all of them as they were, or not at all.
An entry therefore names every file that was read and the content it had, and the names that were looked for.
A file whose times and size are the same is not read again, unless it changed while that run went on, or so shortly
before that its times cannot tell.  (What is written into memory that a file is mapped to changes no times until the
system gets to it: until then such an edit is not seen.)  Entries are JSON: nothing that lies in a project is ever
executed.  Whatever is wrong with an entry, or with writing one, only means that the work is done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from dlcheck import __version__
from dlcheck.findings import CONFIDENCES, SEVERITIES, Edit, Finding, Fix, Place

if TYPE_CHECKING:
    from dlcheck.files.workspace import Workspace

FOLDER = ".dlcheck_cache"
TAG = b"Signature: 8a477f597d28d172789f06886806bc55"
MOST_ENTRIES = 40
MOST_BYTES = 64 << 20  # of all entries

_FORM = 1
_RACY_NS = 2_000_000_000  # file systems exist that count in steps of two seconds
_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Member:
    """A file that was asked for: whether silence about it means anything, and whether comments in it may silence.

    ``path`` is what reports print, ``file`` where it lies; ``partly``: some cells of a notebook were left out.
    """

    path: str
    file: str
    checked: bool
    partly: bool
    comments: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found in a project; ``sources`` are the files of the paths that findings name."""

    findings: tuple[Finding, ...]
    members: tuple[Member, ...]
    sources: Mapping[str, str]


class Cache:
    """The entry of one project for one way of asking, which ``asked`` describes in plain data."""

    def __init__(self, root: str, asked: Sequence[object]) -> None:
        self._begun = time.time_ns()  # what changes from now on may have been read before it did
        self.folder = os.path.join(root, FOLDER)
        name = hashlib.blake2b(repr((_program(), os.getcwd(), root, asked)).encode("utf-8", "surrogatepass"))
        self.file = os.path.join(self.folder, f"{name.hexdigest()[:40]}.json")

    def load(self, workspace: Workspace) -> Outcome | None:
        """What was found, if it still holds."""
        try:
            if not is_ours(self.folder) or not os.path.isfile(self.file):
                return None
            with open(self.file, encoding="ascii") as stream:
                entry = json.load(stream)
            if entry["form"] != _FORM or not _holds(entry, workspace):
                return None
            return _outcome(entry)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def store(self, workspace: Workspace, outcome: Outcome) -> None:
        """Keep what was found; without a word where that cannot be."""
        if not workspace.keeps_all():
            return  # what is read again may be another text
        with suppress(OSError, ValueError, TypeError, RecursionError):
            entry = {
                "form": _FORM,
                "begun": self._begun,
                "files": {file: _seen(workspace, file) for file in sorted(workspace.looked_at())},
                "listed": list(workspace.files()),
                "names": {folder: list(map(sorted, names)) for folder, names in workspace.looked_for().items()},
                "findings": [_plain(finding) for finding in outcome.findings],
                "members": [[getattr(member, each.name) for each in fields(Member)] for member in outcome.members],
                "sources": dict(outcome.sources),
            }
            self._write(json.dumps(entry, separators=(",", ":")))

    def _write(self, text: str) -> None:
        _make(self.folder)
        _make_room(self.folder, len(text))
        beside = f"{self.file}.{os.getpid()}.{time.monotonic_ns()}.tmp"
        try:
            with open(beside, "x", encoding="ascii") as stream:
                stream.write(text)
            os.replace(beside, self.file)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise


def is_ours(folder: str) -> bool:
    """Whether a folder carries our tag: one of that name may be somebody else's, or lead to somebody else's."""
    file = os.path.join(folder, "CACHEDIR.TAG")
    if os.path.islink(folder) or not os.path.isfile(file):
        return False
    try:
        with open(file, "rb") as tag:
            return tag.read(len(TAG)) == TAG
    except OSError:
        return False


def _make(folder: str) -> None:
    if is_ours(folder):
        return
    if not os.path.isdir(folder):
        os.mkdir(folder)
    elif os.path.islink(folder) or set(os.listdir(folder)) - {".gitignore"}:
        raise OSError("somebody else's folder")
    # The tag comes last: it says that all is there.  What lies there may be a link: nothing is written over.
    for name, text in ((".gitignore", b"*\n"), ("CACHEDIR.TAG", TAG + b"\n")):
        with suppress(FileExistsError), open(os.path.join(folder, name), "xb") as stream:
            stream.write(text)


_NAME = re.compile(r"[0-9a-f]{40}\.json(\.\d+\.\d+\.tmp)?")


def _make_room(folder: str, wanted: int) -> None:
    """Delete the oldest entries, and what a killed run left behind."""
    with os.scandir(folder) as found:
        entries = sorted(
            (entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in found if _NAME.fullmatch(entry.name)
        )
    total = wanted + sum(size for _, size, _ in entries)
    number = len(entries)
    for made, size, path in entries:
        abandoned = path.endswith(".tmp") and time.time() - made > 3600
        if number >= MOST_ENTRIES or total > MOST_BYTES or abandoned:
            os.unlink(path)
            number, total = number - 1, total - size


def _program() -> tuple[object, ...]:
    """What finds: our own version and those of libcst and Python; of a checkout, when its files changed last."""
    here = os.path.dirname(os.path.abspath(__file__))
    installed = {"site-packages", "dist-packages"}.intersection(here.split(os.sep))
    folders = () if installed else (here, os.path.join(os.path.dirname(here), "rules"))
    return __version__, sys.version, *map(_newest, folders), _libcst()


def _newest(folder: str) -> tuple[int, int]:
    """The number of files below a folder, and when one of them changed last."""
    number = newest = 0
    todo = [folder]
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        todo.append(entry.path)
                elif entry.name.endswith((".py", ".md", ".json")):
                    with suppress(OSError):  # an editor's lock, a file that vanishes
                        number, newest = number + 1, max(newest, entry.stat().st_mtime_ns)
    return number, newest


def _libcst() -> list[str]:
    """Its versions, by the names of what installers leave beside it: asking it would take longer than all else."""
    from importlib.util import find_spec

    spec = find_spec("libcst")
    folder = os.path.dirname(os.path.dirname((spec.origin if spec is not None else None) or ""))
    with suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name.startswith("libcst-"))
    return []


# -- what an entry rests on


def _stamp(file: str) -> _Stamp | None:
    try:
        stat = os.stat(file)
    except (OSError, ValueError):
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _seen(workspace: Workspace, file: str) -> list[object]:
    data = workspace.read(file)
    if data is None:
        raise OSError("why it cannot be read may change without a trace")
    return [_stamp(file), _digest(data)]


def _holds(entry: Mapping[str, Any], workspace: Workspace) -> bool:
    if entry["listed"] != list(workspace.files()):
        return False
    for folder, (there, lacking) in entry["names"].items():
        names = workspace.listing(folder)
        if not (names.issuperset(there) and names.isdisjoint(lacking)):
            return False
    return all(_is_same(file, seen, entry["begun"], workspace) for file, seen in entry["files"].items())


def _is_same(file: str, seen: Sequence[Any], begun: int, workspace: Workspace) -> bool:
    stamp, digest = seen
    now = _stamp(file)
    if now is None:
        return False
    if list(now) == stamp and max(now[:2]) < begun - _RACY_NS:
        return True
    data = workspace.read(file)
    return data is not None and _digest(data) == digest


# -- findings as plain data


def _plain(finding: Finding) -> dict[str, Any]:
    return {each.name: _value(getattr(finding, each.name)) for each in fields(Finding)}


def _value(value: Any) -> Any:
    """Plain data in which tuples and our own kinds keep what they are."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, tuple):
        return {"()": [_value(item) for item in value]}
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"{}": {key: _value(item) for key, item in value.items()}}
    for kind in _KINDS:
        if isinstance(value, kind):
            return {kind.__name__: [_value(getattr(value, each.name)) for each in fields(kind)]}
    raise TypeError(f"no plain data: {type(value).__name__}")


_KINDS: tuple[type[Any], ...] = (Place, Edit, Fix)
_BY_NAME = {kind.__name__: kind for kind in _KINDS}
_NONE = type(None)

# What the fields of each kind may be; of a tuple, its items.
_TYPES: dict[type[Any], tuple[Any, ...]] = {
    Place: (str, int, int, int, int, (int, _NONE), str),
    Edit: (Place, str),
    Fix: (str, str, [Edit], bool),
    Member: (str, str, bool, bool, bool),
    Finding: (str, str, str, str, Place, str, str, [Place], (Fix, _NONE), str, [int], dict, str, _NONE, str),
}


def _back(value: Any) -> Any:
    if isinstance(value, list):
        return [_back(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "{}":
        return {key: _back(item) for key, item in inner.items()}
    items = tuple(map(_back, inner))
    return items if kind == "()" else _made(_BY_NAME[kind], items)


def _made(kind: type[Any], values: Sequence[Any]) -> Any:
    """An object of the kind; raises TypeError where an entry has other values than such an object can have."""
    for value, wanted in zip(values, _TYPES[kind], strict=True):
        fits = isinstance(value, tuple) if isinstance(wanted, list) else isinstance(value, wanted)
        if not fits or isinstance(wanted, list) and not all(isinstance(item, wanted[0]) for item in value):
            raise TypeError(f"no {kind.__name__}")
    made = kind(*values)
    for path in [getattr(made, name) for name in ("path", "file") if hasattr(made, name)]:
        os.fsencode(path)  # raises ValueError for what no path can hold
    if kind is Finding and not (made.severity in SEVERITIES and made.confidence in CONFIDENCES):
        raise ValueError("no finding")
    return made


def _outcome(entry: Mapping[str, Any]) -> Outcome:
    names = [each.name for each in fields(Finding)]
    findings = (_made(Finding, [_back(one[name]) for name in names]) for one in entry["findings"])
    members = (_made(Member, one) for one in entry["members"])
    sources = dict(entry["sources"])
    if not all(isinstance(word, str) for pair in sources.items() for word in pair):
        raise TypeError("no paths")
    return Outcome(tuple(findings), tuple(members), sources)
