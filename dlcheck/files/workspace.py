"""The files of one project, each read once: what a run looks at, and what it looks for."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from dlcheck.files import UnusableError, read, root_of, to_source
from dlcheck.files.finder import Finder
from dlcheck.source import Source

if TYPE_CHECKING:
    from dlcheck.searching import Skims

# A search through a project stops here: a home folder under version control must not become an endless read.
SEARCH_FILES = 20_000
SEARCH_FOLDERS = 20_000
CACHED_BYTES = 64 << 20


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
