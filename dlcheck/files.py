"""Which files a run reads, and what is in them."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dlcheck.source import Source

if TYPE_CHECKING:
    from dlcheck.gitignore import Patterns
    from dlcheck.searching import Skims

SUFFIXES = (".py", ".pyw", ".ipynb")

# A file that names none of the first has nothing to do with torch; one that names none of the second neither builds a
# loader or a dataset, nor trains or has a trainer do it.  What only handles batches is read when the loop that calls
# it is followed; where it is named by itself, nothing leads to it, and the wider list decides.
LIBRARIES = (b"torch", b"lightning", b"monai", b"dgl", b"transformers", b"accelerate", b"trl")
TRIGGERS = (
    b"oader", b"Dataset", b"pin_memory", b"non_blocking", b"backward", b"Trainer", b"TrainingArguments", b"Compose",
    b"Subset", b"WeightedRandomSampler", b"random_split", b"set_sharing_strategy",
)  # fmt: skip
# Arrays are reversed, and become tensors: transforms in a file of their own.
REVERSING = (b"::-1", b"rot90", b"flip")
HANDLING = (*TRIGGERS, b"batch", b".cuda", b".to(")
COMMENT = b"dlcheck:"

# Never descended into, unless named: tool caches, environments, build output.
DEFAULT_EXCLUDE = (
    ".bzr", ".direnv", ".dlcheck_cache", ".eggs", ".git", ".git-rewrite", ".hg", ".ipynb_checkpoints", ".mypy_cache",
    ".nox", ".pants.d", ".pyenv", ".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".venv", ".vscode",
    "__pycache__", "__pypackages__", "_build", "buck-out", "build", "dist", "node_modules", "site-packages", "venv",
)  # fmt: skip

# Below the top of a project: what was measured of it.
RECORDS = os.path.join(".dlcheck", "measurements")

ROOT_MARKS = ("pyproject.toml", "setup.py", ".git")

# A search through a project stops here: a home folder under version control must not become an endless read.
SEARCH_FILES = 20_000
SEARCH_FOLDERS = 20_000
CACHED_BYTES = 64 << 20
MOST_BYTES = 256 << 20  # of one file: a notebook with pictures has some tens of millions


class UnusableError(Exception):
    """A file or folder that cannot be read as text; ``line`` counts from 1."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Named:
    """A file that the user asked for, by itself or through a folder, or what is wrong with it."""

    file: str
    explicit: bool
    problem: str = ""


def names_library(data: bytes) -> bool:
    """Whether a file with these bytes has to do with torch."""
    return any(word in data for word in LIBRARIES)


def may_matter(data: bytes, explicit: bool = True) -> bool:
    """Whether a rule can have anything to say of a file with these bytes, named by itself or through a folder."""
    if not names_library(data):
        return False
    if any(word in data for word in (HANDLING if explicit else TRIGGERS)):
        return True
    return b"from_numpy" in data and any(word in data for word in REVERSING)


def shown(file: str) -> str:
    """A path as reports print it: relative to the current folder where possible, with ``/``."""
    try:
        path = os.path.relpath(file)
    except ValueError:  # another drive
        path = file
    return path.replace(os.sep, "/")


MISSING = "no such file or folder"


def is_missing(path: str) -> bool:
    """Whether nothing stands at a path; what cannot be looked at, and a link that leads nowhere, does stand there."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        pass
    return False


# Reading


def read(file: str) -> bytes:
    """The bytes of a regular file; raises UnusableError, with words for people, where that fails."""
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UnusableError(f"{_kind(status.st_mode)}, not a file")
        if status.st_size <= MOST_BYTES:
            with open(file, "rb", opener=_without_waiting) as stream:
                data = stream.read(MOST_BYTES + 1)  # files of the kernel say that they are empty, and may never end
            if data is None:
                raise UnusableError("nothing to read, and no end of the file")
            if len(data) <= MOST_BYTES:
                return data
        raise UnusableError(f"larger than {MOST_BYTES >> 20} MiB, and not read")
    except OSError as error:
        raise UnusableError(error.strerror or str(error)) from None
    except ValueError as error:  # a NUL in the name
        raise UnusableError(str(error)) from None


def _without_waiting(file: str, flags: int) -> int:
    # What was a file a moment ago may be a pipe now, and some files of the kernel wait for what comes.
    return os.open(file, flags | getattr(os, "O_NONBLOCK", 0))


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for test, name in kinds if test(mode)), "a special file")


_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"^[ \t\f]*(?:#[^\r\n]*)?$")
_FOREIGN_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def decode(data: bytes) -> tuple[str, str, bool]:
    """Text, encoding and whether a byte-order mark stood in front, by the rules of PEP 263."""
    for mark, name in _FOREIGN_MARKS:
        if data.startswith(mark):
            raise UnusableError(f"encoded in {name}, which Python does not read")
    nul = data.find(b"\0")
    if nul >= 0:
        raise UnusableError("contains a NUL byte", data.count(b"\n", 0, nul) + 1)
    bom = data.startswith(codecs.BOM_UTF8)
    body = data[3:] if bom else data
    encoding, line = declared_encoding(body)
    try:
        if not getattr(codecs.lookup(encoding), "_is_text_encoding", True):
            raise LookupError
    except (LookupError, ValueError):
        raise UnusableError(f"declares the encoding `{encoding}`, which is unknown", line) from None
    name = codecs.lookup(encoding).name
    name = "utf-8" if name == "utf-8-sig" else name  # which would be written with a mark, whether there was one or not
    if bom and name != "utf-8":
        raise UnusableError(f"declares the encoding `{encoding}` behind a UTF-8 byte-order mark", line)
    try:
        return body.decode(name), name, bom
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise UnusableError(f"not {name}: {error.reason}", line) from None
    except (UnicodeError, ValueError) as error:
        raise UnusableError(f"not {name}: {error}") from None


def declared_encoding(data: bytes) -> tuple[str, int]:
    for number, line in enumerate(re.split(rb"\r\n|\r|\n", data[:4096], maxsplit=2)[:2], 1):
        if found := _COOKIE.match(line):
            return found[1].decode("ascii", "replace"), number
        if not _BLANK.match(line):
            break
    return "utf-8", 1


def to_source(file: str, data: bytes, path: str | None = None) -> Source:
    """The Source of a file's bytes; raises UnusableError where they are no text or no notebook."""
    path = shown(file) if path is None else path
    if not file.endswith(".ipynb"):
        text, encoding, bom = decode(data)
        return Source(path, file, text, encoding, bom)
    from dlcheck.notebook import NotebookError, to_module

    text, encoding, bom = decode(data)
    try:
        module = to_module(text)
    except NotebookError as error:
        raise UnusableError(error.message, error.line) from None
    texts, left_out = module.cell_texts, module.left_out
    return Source(path, file, module.text, encoding, bom, module.cells, text, texts, left_out)


# Finding


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
            for folder, above in folders:
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
                ignores = (own, *above) if own is not None else above
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


def above(folder: str) -> Iterator[str]:
    """A folder and all that it lies in, the nearest first."""
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def root_of(folder: str) -> str | None:
    """The nearest folder that is the top of a project."""
    return next(
        (place for place in above(folder) if any(os.path.exists(os.path.join(place, mark)) for mark in ROOT_MARKS)),
        None,
    )


def within(folder: str, path: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _files_in(folder: str) -> frozenset[str]:
    """The names of the files in a folder; of one that cannot be looked into, none."""
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if _is_file(entry))
    except (OSError, ValueError):
        return frozenset()


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


class Workspace:
    """One project: files on disk, under what overlays put over them (standard input, an editor's buffers).

    Paths are absolute.  Bytes and sources are kept, so that a file is one and the same throughout a run.
    """

    def __init__(
        self,
        root: str,
        finder: Finder,
        overlays: Mapping[str, tuple[str, bytes]] | None = None,
        reader: Callable[[str], bytes] = read,
        skims: Skims | None = None,
    ) -> None:
        self.root = root
        self._read = reader
        self._finder = finder
        self._overlays = dict(overlays or {})  # file -> the path to show, the bytes
        self._bytes: dict[str, bytes] = {}
        self._kept = 0
        self._sources: dict[str, Source | None] = {}
        self._listed: dict[str, frozenset[str]] = {}
        self._exists: dict[str, bool] = {}
        self._looked: set[str] = set()
        self._given_skims = skims
        self._files: tuple[str, ...] | None = None

    def files(self) -> Sequence[str]:
        """The Python files of the project, sorted; only the nearest ones of a very large one."""
        if self._files is None:
            marked = root_of(self.root) == self.root
            listed = self._finder.below(self.root, SEARCH_FOLDERS if marked else SEARCH_FOLDERS // 10)
            files = {named.file for named in listed if not named.problem and named.file.endswith(".py")}
            files.update(file for file in self._overlays if file.endswith(".py"))
            if len(files) > SEARCH_FILES:
                files = set(sorted(files, key=lambda file: (file.count(os.sep), file))[:SEARCH_FILES])
            self._files = tuple(sorted(files))
        return self._files

    def bytes_of(self, file: str) -> bytes:
        """The bytes of a file; raises UnusableError, with the reason, where there are none."""
        if file in self._overlays:
            return self._overlays[file][1]
        data = self._bytes.get(file)
        if data is None:
            self._looked.add(file)
            data = self._read(file)
            if self._kept + len(data) <= CACHED_BYTES:
                self._bytes[file] = data
                self._kept += len(data)
        return data

    def read(self, file: str) -> bytes | None:
        """The bytes of a file; None where it cannot be read."""
        try:
            return self.bytes_of(file)
        except UnusableError:
            return None

    def load(self, file: str) -> Source:
        """The Source of a file; raises UnusableError, with the reason, where there is none."""
        known = self._sources.get(file)
        if known is None:
            self._sources[file] = None
            path = self._overlays[file][0] if file in self._overlays else None
            known = self._sources[file] = to_source(file, self.bytes_of(file), path)
        return known

    def source(self, file: str) -> Source | None:
        """The text of a file; None where it cannot be read or decoded.  A notebook becomes its code cells."""
        if file not in self._sources:
            try:
                return self.load(file)
            except UnusableError:
                return None
        return self._sources[file]

    def sources(self) -> Iterator[Source]:
        """All that was read as text so far."""
        return (source for source in self._sources.values() if source is not None)

    @cached_property
    def _skims(self) -> Skims:
        from dlcheck.searching import Skims  # most runs ask nothing of the rest of the project

        skims = Skims() if self._given_skims is None else self._given_skims
        skims.tidy()
        return skims

    @cached_property
    def _entries(self) -> int:
        """The project's files that can be read, as the skims have them."""
        entries = 0
        for file in self.files():
            data = self.read(file)
            if data is not None:
                entries |= self._skims.entry(file, data)
        return entries

    def mentions(self, words: Collection[bytes]) -> list[str]:
        """The files of the project whose bytes contain any of the words."""
        found = []
        for file in self.files():
            data = self.read(file)
            if data is not None and any(word in data for word in words):
                found.append(file)
        return found

    def naming(self, *words: bytes, within: str = "") -> list[str]:
        """The files of the project in which all of these names stand, whole, and the text ``within`` as well."""
        found = self._entries
        for word in words:
            found = self._skims.having("words", [word], found)
        text = within.encode()
        return [file for file, said in self._skims.said(found) if text in said.data]

    def reaching(
        self, stem: bytes, name: bytes, packages: Collection[bytes], *, with_loaders: bool = False
    ) -> list[str]:
        """The files that name what a module defines and can get at it; first, or only, those that may name a loader.

        ``stem`` is the module's last name, ``packages`` are all.  Many files have their own ``main``.
        """
        from dlcheck.skim import ANY

        having = self._skims.having

        untold = having("anything", [ANY], self._entries)
        told = having("imported", [stem, name], self._entries)
        found = untold | told | having("bound", packages, self._entries)
        found = having("words", [name], having("words", [stem], found))
        if with_loaders:
            found = having("loaders", [ANY], found)
        sure = {file for file, _ in self._skims.said(found & (untold | told))}
        loaders = {file for file, _ in self._skims.said(having("loaders", [ANY], found))}
        files = [file for file, said in self._skims.said(found) if file in sure or stem + b"." + name in said.data]
        return sorted(files, key=lambda file: file not in loaders)

    def declaring(self, options: Collection[bytes]) -> list[str]:
        """The files of the project in which an option of a command line stands: ``--name``, without the dashes."""
        return [file for file, _ in self._skims.said(self._skims.having("options", options, self._entries))]

    def gives_meaning(self, word: str) -> bool:
        """Whether any file of the project may define, assign or rename something that is called so."""
        wanted = word.encode(errors="surrogatepass")
        return bool(self._skims.having("given", [wanted], self._entries)) or not word.isascii()

    def exists(self, file: str) -> bool:
        """Whether there is such a file."""
        known = self._exists.get(file)
        if known is None:
            folder, name = os.path.split(file)
            known = self._exists[file] = file in self._overlays or name in self.listing(folder)
        return known

    def keeps_all(self) -> bool:
        """Whether all bytes that were read are kept, so that nothing is read twice."""
        return self._looked <= self._bytes.keys()

    def looked_at(self) -> frozenset[str]:
        """The files whose bytes were asked for."""
        return frozenset(self._looked)

    def looked_for(self) -> dict[str, tuple[set[str], set[str]]]:
        """For each folder the names of files that were looked for: those that are there, and those that are not."""
        found: dict[str, tuple[set[str], set[str]]] = {}
        for file, is_there in self._exists.items():
            folder, name = os.path.split(file)
            found.setdefault(folder, (set(), set()))[not is_there].add(name)
        return found

    def listing(self, folder: str) -> frozenset[str]:
        """The names of the files in a folder."""
        known = self._listed.get(folder)
        if known is None:
            known = self._listed[folder] = _files_in(folder)
        return known
