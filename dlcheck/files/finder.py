"""Which files lie below a folder: as git lists them, or as its patterns would have it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from dlcheck.files import SUFFIXES, Named, UnusableError, above, read, root_of, within

if TYPE_CHECKING:
    from dlcheck.gitignore import Patterns


class Finder:
    """Lists files below folders; ``exclude`` gives the patterns that hold in a folder, ``listed`` what is known."""

    def __init__(self, exclude: Callable[[str], Patterns], listed: dict[str, tuple[Named, ...]] | None = None) -> None:
        self._exclude = exclude
        self._listed = {} if listed is None else listed

    def named(self, paths: Iterable[str], *, force_exclude: Callable[[str], bool] = lambda _file: False) -> list[Named]:
        """The files that the user's ``paths`` stand for, each once, in the order of their names."""
        found: dict[str, Named] = {}
        for path in paths:
            file = os.path.abspath(path)
            if force_exclude(file):
                continue
            # A folder named by mistake is a folder still; whatever else stands there is read, or reported.
            listed = self.below(file) if os.path.isdir(file) else (Named(file, True),)
            for named in listed:
                if named.file not in found or named.explicit:
                    found[named.file] = named
        return [found[file] for file in sorted(found)]

    def below(self, folder: str, limit: int | None = None) -> tuple[Named, ...]:
        """The Python files and notebooks below a folder; folders that cannot be listed come with a problem."""
        known = self._listed.get(folder)
        if known is None:
            known = self._listed[folder] = tuple(self._below(folder, limit))
        return known

    def _below(self, folder: str, limit: int | None) -> Iterator[Named]:
        listed = git_files(folder)
        if listed:
            yield from self._from_git(folder, listed)
        else:
            yield from self._walk(folder, limit)

    def _from_git(self, top: str, listed: list[str]) -> Iterator[Named]:
        folders: dict[str, bool] = {top: False}  # whether a folder is excluded

        def out(folder: str) -> bool:
            if folder not in folders:
                parent = os.path.dirname(folder)
                folders[folder] = out(parent) or bool(self._exclude(parent).match(folder, True))
            return folders[folder]

        for file in sorted(set(listed)):
            parent = os.path.dirname(file)
            if file.endswith(os.sep):  # a repository inside of this one, which git does not look into
                inner = file.rstrip(os.sep)
                if not out(inner) and os.path.isdir(inner):
                    yield from self.below(inner)
            elif not out(parent) and not self._exclude(parent).match(file, False) and os.path.isfile(file):
                yield Named(file, False)

    def _walk(self, top: str, limit: int | None) -> Iterator[Named]:
        seen = 0
        folders = [(top, _ignores_above(top))]
        while folders:
            nearest: list[tuple[str, tuple[Patterns, ...]]] = []
            for folder, over in folders:
                seen += 1
                if limit is not None and seen > limit:
                    return
                try:
                    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
                except OSError as error:
                    yield Named(folder, False, error.strerror or str(error))
                    continue
                names = {entry.name for entry in entries}
                own = _ignore_file(folder, os.path.join(folder, ".gitignore")) if ".gitignore" in names else None
                ignores = (own, *over) if own is not None else over
                exclude = self._exclude(folder)
                for entry in entries:
                    is_folder = _is_folder(entry)
                    if not is_folder and not entry.name.endswith(SUFFIXES):
                        continue
                    if exclude.match(entry.path, is_folder) or _ignored(entry.path, is_folder, ignores):
                        continue
                    if is_folder:
                        nearest.append((entry.path, ignores))
                    elif os.path.isfile(entry.path):
                        yield Named(entry.path, False)
            folders = nearest


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # Links to folders are not followed: they may lead round in circles, and what they lead to has its own name.
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _ignored(path: str, is_folder: bool, ignores: tuple[Patterns, ...]) -> bool:
    for patterns in ignores:
        told = patterns.match(path, is_folder)
        if told is not None:
            return told
    return False


def _ignore_file(base: str, file: str) -> Patterns | None:
    from dlcheck.gitignore import Patterns

    try:
        text = read(file).decode("utf-8-sig", "surrogateescape")
    except UnusableError:
        return None
    return Patterns(base, text.split("\n"))


def _ignores_above(top: str) -> tuple[Patterns, ...]:
    """The .gitignore files that hold in a folder because of where it lies, the nearest first."""
    repository = next((folder for folder in above(top) if os.path.exists(os.path.join(folder, ".git"))), None)
    root = repository or root_of(top)
    if root is None:
        return ()
    files = [(place, os.path.join(place, ".gitignore")) for place in above(os.path.dirname(top)) if within(root, place)]
    if repository is not None:
        settings = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
        files.append((root, os.path.join(root, ".git", "info", "exclude")))
        files.append((root, os.path.join(settings, "git", "ignore")))
    found = (_ignore_file(base, file) for base, file in files if os.path.isfile(file))
    return tuple(patterns for patterns in found if patterns is not None)


def git_files(folder: str) -> list[str] | None:
    """What git tracks below a folder and what it would not ignore; None where git cannot say.

    Repositories inside of this one end with a separator.
    """
    if not any(os.path.exists(os.path.join(parent, ".git")) for parent in above(folder)):
        return None
    import subprocess

    # A repository can name programs for git to run; listing files must run none of them.
    command = ["git", "-c", "core.fsmonitor=false", "ls-files", "-co", "--exclude-standard", "-z"]
    # Inside a hook these name the repository of the commit, which need not be this one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    # What a repository lacks, git would ask of another one, by a program that this one names.
    environment |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    try:
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    if run.returncode:
        return None
    # An index that came from elsewhere may name any file.
    names = [name for name in map(os.fsdecode, run.stdout.split(b"\0")) if name and _stays_below(name)]
    modules = _submodules(folder)
    kept = (name for name in names if name.endswith((*SUFFIXES, "/")) or os.path.join(folder, name) in modules)
    files = (os.path.join(folder, name.replace("/", os.sep)) for name in kept)
    return [file + os.sep if file in modules else file for file in files]


def _stays_below(name: str) -> bool:
    return not os.path.isabs(name) and os.pardir not in name.split("/")


def _submodules(folder: str) -> frozenset[str]:
    root = next((parent for parent in above(folder) if os.path.exists(os.path.join(parent, ".git"))), folder)
    try:
        text = read(os.path.join(root, ".gitmodules")).decode("utf-8", "surrogateescape")
    except UnusableError:
        return frozenset()
    paths = re.findall(r"^\s*path\s*=\s*(.+?)\s*$", text, re.MULTILINE)
    return frozenset(os.path.normpath(os.path.join(root, path)) for path in paths)
