"""The files of the project as they were before a program ran: what it changed is put back, what it made is removed.

Every process of the program wrote down what it was about to do, and laid aside what was there (``shim/dlcheck_shim/
keeping.py``).  Here this is undone from the last step to the first, and what is done is noted: whoever finds a journal
that was undone by half goes on with the step that was broken off.

Removed is only what the journal names, only below the project's top or the folder that the program ran in, and only
where nobody has touched it since the program ended.  Caches stay, and so does what is large: downloads and prepared
data, which every further start would have to make again.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

DEAR = 16 << 20  # bytes of a new file or folder from which on it stays
LISTED = 200

CACHES = frozenset({".cache", ".dlcheck", ".dlcheck_cache", ".git", ".venv", "__pycache__", "site-packages", "venv"})
CACHE_VARIABLES = (
    "HF_DATASETS_CACHE", "HF_HOME", "HF_HUB_CACHE", "KERAS_HOME", "NLTK_DATA", "TORCHINDUCTOR_CACHE_DIR", "TORCH_HOME",
    "TRITON_CACHE_DIR", "XDG_CACHE_HOME",
)  # fmt: skip

KINDS = ("written", "gone", "attributes", "new")  # of steps: the key says what was done, its value where

Step = Mapping[str, Any]
Identity = tuple[int, int]


@dataclass(frozen=True)
class Scope:
    """Where new files are removed: below ``trees``, but not below ``caches``; nowhere without trees."""

    trees: Sequence[str] = ()
    caches: Sequence[str] = ()

    def holds(self, path: str) -> bool:
        below = [tree for tree in self.trees if _is_below(path, tree)]
        if not below or any(path == cache or _is_below(path, cache) for cache in self.caches):
            return False
        return CACHES.isdisjoint(os.path.relpath(path, min(below, key=len)).split(os.sep))


def trees(*folders: str) -> list[str]:
    """Folders below which what is new is removed: not where the user's home is, in which all programs leave things."""
    home = os.path.realpath(os.path.expanduser("~"))
    real = dict.fromkeys(map(os.path.realpath, folders))
    return [folder for folder in real if folder != home and not _is_below(home, folder)]


def caches(environment: Mapping[str, str]) -> list[str]:
    """Folders that libraries keep for later, wherever they lie."""
    named = (os.path.realpath(environment[name]) for name in CACHE_VARIABLES if environment.get(name))
    return [*named, os.path.realpath(os.path.expanduser("~/.cache"))]


def steps(folder: Path) -> list[Step]:
    """What the processes of a program have written down, in the order in which it happened."""
    found: list[Step] = []
    for journal in sorted(folder.glob("journal-*.jsonl")):
        with contextlib.suppress(OSError):
            for line in journal.read_bytes().splitlines():
                with contextlib.suppress(ValueError):  # the last line of one that was killed
                    found.append(json.loads(line))
    return sorted(found, key=lambda step: int(step["at"]))


@dataclass
class Undoing:
    """``ended_ns`` is when the program did, by the clock of the files: what has changed since is somebody else's."""

    folder: Path  # in which the journals lie
    scope: Scope
    ended_ns: int
    gone: str | None = None  # a folder that copies were laid into, and that is not there any more
    restored: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)  # and still there
    lost: list[dict[str, Any]] = field(default_factory=list)
    _ours: set[Identity] = field(default_factory=set)  # what this, or the attempt before it, has touched
    _staying: frozenset[str] = frozenset()
    _own_moves: frozenset[int] = frozenset()  # of what the program had made itself, by their moments
    _changed_since: frozenset[Identity] = frozenset()  # folders into which others have put something
    _log: TextIO = field(init=False, repr=False)

    def run(self) -> dict[str, Any]:
        """Undo all; what came of it, as it stands in a record."""
        taken = steps(self.folder)
        done = self._earlier()
        self._own_moves = frozenset(_own_moves(taken))
        self._staying = frozenset(self._those_that_stay(taken))
        self._changed_since = frozenset(() if done or self._ours else self._those_changed_since(taken))
        with open(self.folder / "undone.jsonl", "a", encoding="ascii", buffering=1) as self._log:
            for number, step in reversed(list(enumerate(taken))):
                if number not in done:
                    self._try(step)
                    self._log.write(f"{number}\n")
        return self._told(taken)

    def _earlier(self) -> set[int]:
        """The steps that somebody before us has undone; what he has touched is known as ours."""
        done: set[int] = set()
        with contextlib.suppress(OSError, ValueError):
            for line in (self.folder / "undone.jsonl").read_text(encoding="ascii").splitlines():
                said = json.loads(line)
                if isinstance(said, int):
                    done.add(said)
                else:
                    self._ours.add((said[0], said[1]))
        return done

    def _try(self, step: Step) -> None:
        copy = step.get("copy")
        if copy and self.gone is not None and _is_below(copy, self.gone):
            # Whatever may lie there now is somebody else's.
            self._lose(next(step[kind] for kind in KINDS if kind in step), None, f"its copy in {self.gone} is gone")
            return
        try:
            self._undo(step)
        except OSError as error:
            path = next((step[kind] for kind in KINDS if kind in step), "")
            self._lose(path or step["moved"][0], step.get("copy"), error.strerror or str(error))

    def _undo(self, step: Step) -> None:
        if "new" in step:
            self._remove(step["new"])
        elif "written" in step:
            self._rewrite(step["written"], step)
        elif "gone" in step:
            self._bring_back(step["gone"], step)
        elif "moved" in step:
            source, target = step["moved"]
            self._move_back(source, target, (step["identity"][0], step["identity"][1]), self._is_own(step))
        elif "attributes" in step:
            self._reset(step["attributes"], step)
        elif "entered" in step:
            self._leave(step["entered"], step)

    # -- what is new

    def _those_that_stay(self, taken: Sequence[Step]) -> Iterator[str]:
        """New things outside of the scope, and those that are large: whole, or not at all."""
        new = {step["new"] for step in taken if "new" in step}
        changed = {path for step in taken for path in _had_something(step)}
        sizes: dict[str, int] = {}
        members: dict[str, list[str]] = {}
        for path in new:
            top = _top(path, new)
            members.setdefault(top, []).append(path)
            sizes[top] = sizes.get(top, 0) + _size(path)
        taken_names = {one["moved"][0] for one in taken if "moved" in one and not self._is_own(one)}
        for top, paths in members.items():
            dear = sizes[top] >= DEAR and not any(one == top or _is_below(one, top) for one in changed)
            if dear or not self.scope.holds(top):
                # The names of what was moved away are the user's.
                yield from (path for path in paths if taken_names.isdisjoint(_with_parents(path)))

    def _those_changed_since(self, taken: Iterable[Step]) -> Iterator[Identity]:
        for folder in {step["entered"] for step in taken if "entered" in step}:
            found = _status(folder)
            if found is not None and found.st_mtime_ns > self.ended_ns:
                yield _identity(found)

    def _remove(self, path: str) -> None:
        found = _status(path)
        if found is None:
            return
        if stat.S_ISDIR(found.st_mode):
            self._remove_folder(path)
        elif path in self._staying:
            if found.st_size or not stat.S_ISREG(found.st_mode) or self._since(found):
                self.created.append(path)
            else:  # opened, and never written
                os.remove(path)
        elif self._since(found) and found.st_nlink == 1:
            self.created.append(path)
        else:
            os.remove(path)
            self._removed(path)

    def _remove_folder(self, path: str) -> None:
        try:
            os.rmdir(path)  # only where nothing is in it
        except OSError:
            self.created.append(path)
        else:
            if path not in self._staying:
                self._removed(path)

    # -- what was there

    def _rewrite(self, path: str, step: Step) -> None:
        """Give a file its content again, in its place: it may have other names, and others may have it open."""
        found = _status(path)
        if found is not None and self._since(found):
            self._lose(path, step.get("copy"), "changed since")
            return
        copy, size = step.get("copy"), step.get("size")
        if found is None:
            if copy is None and size:
                raise FileNotFoundError(2, "it was appended to, and is gone", path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).touch()
            found = os.lstat(path)
        self._touch(found)
        if self._fill(path, found.st_size, copy, size):
            self._restored(path)
        _describe(path, step)

    def _fill(self, path: str, length: int, copy: str | None, size: int | None) -> bool:
        if copy is None:
            assert size is not None
            if length > size:
                os.truncate(path, size)
            return length > size
        if filecmp.cmp(copy, path, shallow=False):
            return False
        with _writable(path), open(copy, "rb") as source, open(path, "r+b") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.truncate()
        return True

    def _bring_back(self, path: str, step: Step) -> None:
        """Put back what had this name, in place of what has it now."""
        found = _status(path)
        if found is not None and self._is_it(path, found, step):
            return
        if found is not None and self._since(found):
            self._lose(path, step.get("copy"), "something else has its name since")
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if "folder" in step:
            if found is not None:
                os.remove(path)
            os.mkdir(path)
            _describe(path, step)
        elif "target" in step:
            self._place(path, found, lambda beside: os.symlink(step["target"], beside))
            _describe_link(path, step)
        else:
            self._place(path, found, lambda beside: _link_or_copy(step["copy"], beside))
            _describe(path, step)
        self._restored(path)

    def _is_it(self, path: str, found: os.stat_result, step: Step) -> bool:
        if "folder" in step:
            return stat.S_ISDIR(found.st_mode)
        if "target" in step:
            return stat.S_ISLNK(found.st_mode) and os.readlink(path) == step["target"]
        kept = os.lstat(step["copy"])
        return _identity(kept) == _identity(found) or (
            stat.S_ISREG(found.st_mode)
            and os.path.basename(step["copy"]).startswith("copy-")
            and filecmp.cmp(step["copy"], path, shallow=False)
        )

    def _place(self, path: str, found: os.stat_result | None, make: Any) -> None:
        """Make something beside its place and move it there: there is no moment in which neither is."""
        beside = f"{path}.dlcheck"
        with contextlib.suppress(FileNotFoundError):
            os.remove(beside)
        if found is not None and stat.S_ISDIR(found.st_mode):
            os.rmdir(path)
        make(beside)
        self._touch(os.lstat(beside))
        os.replace(beside, path)

    def _is_own(self, step: Step) -> bool:
        return int(step["at"]) in self._own_moves

    def _move_back(self, source: str, target: str, identity: Identity, own: bool) -> None:
        moved, there = _status(target), _status(source)
        if moved is None and there is None and not own:
            self._lose(source, None, f"it is not in {target} any more")
        if moved is None or _identity(moved) != identity and there is not None:
            return  # it was not moved at all, or is back already
        if there is not None and own:
            self.created.append(target)  # what has its name now is to stay as well
            return
        if there is not None:
            self._lose(source, target, "something else has its name since")
            return
        os.makedirs(os.path.dirname(source), exist_ok=True)
        self._touch(moved)
        os.rename(target, source)
        self._restored(source)

    def _reset(self, path: str, step: Step) -> None:
        found = _status(path)
        if found is None or self._since(found):
            return
        changed = stat.S_IMODE(found.st_mode) != step["mode"]
        self._touch(found)
        _describe(path, step)
        if changed:
            self._restored(path)

    def _leave(self, folder: str, step: Step) -> None:
        """All that came into it or went out of it since is undone: by its times nothing has happened."""
        found = _status(folder)
        if found is None or not stat.S_ISDIR(found.st_mode) or _identity(found) in self._changed_since:
            return
        with contextlib.suppress(OSError):  # only its owner may
            os.utime(folder, ns=(step["times"][0], step["times"][1]))

    # -- what is told

    def _since(self, found: os.stat_result) -> bool:
        """Whether somebody has changed it after the program had ended."""
        if stat.S_ISDIR(found.st_mode):  # what happens inside of it has steps of its own
            return False
        changed = found.st_mtime_ns if os.name == "nt" else found.st_ctime_ns
        return changed > self.ended_ns and _identity(found) not in self._ours

    def _touch(self, found: os.stat_result) -> None:
        """Known as ours, also to who goes on after us, before it is changed."""
        identity = _identity(found)
        if identity not in self._ours:
            self._ours.add(identity)
            self._log.write(json.dumps(identity) + "\n")

    # What was done last holds: a name may have been the program's for a while.

    def _restored(self, path: str) -> None:
        self.removed.pop(path, None)
        self.restored[path] = None

    def _removed(self, path: str) -> None:
        self.restored.pop(path, None)
        self.removed[path] = None

    def _lose(self, path: str, copy: str | None, why: str) -> None:
        self.lost.append({"path": path, "copy": copy, "why": why})

    def _told(self, taken: Sequence[Step]) -> dict[str, Any]:
        events = [step for step in taken if "event" in step]
        told: dict[str, list[Any]] = {
            "removed": _tops(self.removed),
            "created": _tops(path for path in self.created if os.path.lexists(path)),
            "restored": _tops(self.restored),
            "not_restored": self.lost,
            "changed": _named(events, "changed"),
            "private": [step["path"] for step in events if step.get("private")],
            "denied": [step["path"] for step in events if step.get("denied")],
            "other": [
                {"event": step["event"], "path": step["path"]}
                for step in events
                if step["event"] != "changed" and not step.keys() & {"denied", "private"}
            ],
        }
        return {name: _once(value)[:LISTED] for name, value in told.items() if value}


def merged(*told: Mapping[str, Any] | None) -> dict[str, Any]:
    """What several runs of a program did, as what one of them did."""
    whole: dict[str, Any] = {}
    for one in told:
        for name, value in (one or {}).items():
            known = whole.get(name)
            if isinstance(value, list):
                whole[name] = _once([*(known or ()), *value])[:LISTED]
            else:
                whole[name] = max(known or 0, value)
    return whole


def _named(events: Iterable[Step], event: str) -> list[str]:
    return [step["path"] for step in events if step["event"] == event]


def _once(values: Sequence[Any]) -> list[Any]:
    return list({json.dumps(value): value for value in values}.values())


def _had_something(step: Step) -> Iterator[str]:
    """The names under which there was something before this step."""
    yield from (step[kind] for kind in KINDS if kind != "new" and kind in step)
    yield from step.get("moved", ())


def _own_moves(taken: Iterable[Step]) -> Iterator[int]:
    """The moments in which the program moved what it had made, under whatever name it had then."""
    made: set[str] = set()
    for step in taken:
        if "new" in step:
            made.add(step["new"])
        elif "moved" in step:
            source, target = step["moved"]
            if not made.isdisjoint(_with_parents(source)):
                yield int(step["at"])
                below = {path for path in made if path == source or _is_below(path, source)}
                made = made - below | {target, *(target + path[len(source) :] for path in below)}


def _with_parents(path: str) -> Iterator[str]:
    yield path
    while (folder := os.path.dirname(path)) != path:
        path = folder
        yield path


def _top(path: str, new: Collection[str]) -> str:
    """The highest new folder that something new lies in; itself, where there is none."""
    top = path
    while (path := os.path.dirname(path)) != os.path.dirname(path):
        if path in new:
            top = path
    return top


def _tops(paths: Iterable[str]) -> list[str]:
    known = dict.fromkeys(paths)
    return [path for path in known if _top(path, known) == path]


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _size(path: str) -> int:
    found = _status(path)
    return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else 0


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _identity(found: os.stat_result) -> Identity:
    return (found.st_dev, found.st_ino)


def _link_or_copy(kept: str, target: str) -> None:
    try:
        if os.path.basename(kept).startswith("copy-"):
            raise OSError
        os.link(kept, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(kept, target)


@contextlib.contextmanager
def _writable(path: str) -> Iterator[None]:
    """A file that the program has made read-only is written all the same."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & stat.S_IWUSR:
        yield
        return
    os.chmod(path, mode | stat.S_IWUSR)
    try:
        yield
    finally:
        os.chmod(path, mode)


def _describe_link(path: str, step: Step) -> None:
    """Owner and times of a link itself, where the system has such."""
    if hasattr(os, "lchown"):
        with contextlib.suppress(OSError):
            os.lchown(path, *step["owner"])
    if os.utime in os.supports_follow_symlinks:
        os.utime(path, ns=(step["times"][0], step["times"][1]), follow_symlinks=False)


def _describe(path: str, step: Step) -> None:
    """Mode, owner and times as they were."""
    found = os.stat(path)
    if hasattr(os, "chown") and [found.st_uid, found.st_gid] != step["owner"]:
        with contextlib.suppress(OSError):  # only root may
            os.chown(path, *step["owner"])
    if stat.S_IMODE(os.stat(path).st_mode) != step["mode"]:
        os.chmod(path, step["mode"])
    if found.st_mtime_ns != step["times"][1]:
        os.utime(path, ns=(step["times"][0], step["times"][1]))
