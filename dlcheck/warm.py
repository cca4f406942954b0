"""What a process that checks again and again keeps between its runs, and how it stops one that is out of date."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from dlcheck import files
from dlcheck.searching import Skims

if TYPE_CHECKING:
    from dlcheck.facts import Unreadable
    from dlcheck.facts.forms import ModuleFacts
    from dlcheck.facts.pieces import Pieces
    from dlcheck.model.scopes import Module
    from dlcheck.source import Source

_Stamp = tuple[int, int, int]


class Interrupted(BaseException):
    """The run was asked to stop; no ``except Exception`` on its way may hold it up."""


class Warm:
    """Bytes of files as long as these do not change, the facts of texts, and listings of folders until told otherwise.

    ``stop`` is asked now and then by a run whether it is still wanted.
    """

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        self.stop = stop
        self.listed: dict[str, tuple[files.Named, ...]] = {}
        self.skims = Skims()
        self._bytes: dict[str, tuple[_Stamp, bytes]] = {}
        self._facts: dict[str, tuple[str, ModuleFacts | Unreadable]] = {}
        self._pieces: dict[str, Pieces] = {}
        self._modules: dict[tuple[str, bool], Module] = {}
        self.typed: set[str] = set()  # files that are open: they will change again

    def tick(self) -> None:
        """Raise Interrupted where the run is not wanted any more."""
        if self.stop():
            raise Interrupted

    def read(self, file: str) -> bytes:
        """The bytes of a file; raises UnusableError as ``files.read`` does."""
        try:
            stat = os.stat(file)
        except (OSError, ValueError):
            self._bytes.pop(file, None)
            return files.read(file)
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        known = self._bytes.get(file)
        if known is None or known[0] != stamp:
            known = self._bytes[file] = (stamp, files.read(file))
        return known[1]

    def closed(self, file: str) -> None:
        """A file is not being typed into any more."""
        self.typed.discard(file)
        self._pieces.pop(file, None)

    def extract(self, source: Source) -> ModuleFacts:
        """The facts of a text; raises Unreadable as ``facts.extract`` does."""
        from dlcheck.facts import Unreadable

        known = self._facts.get(source.file)
        if known is None or known[0] != source.text:
            self.tick()
            try:
                facts: ModuleFacts | Unreadable = self._extract(source)
            except Unreadable as error:
                facts = error
            known = self._facts[source.file] = (source.text, facts)
        if isinstance(known[1], Unreadable):
            raise known[1].with_traceback(None)
        return known[1]

    def link(self, name: str, source: Source, facts: ModuleFacts, named: bool, is_package: bool) -> Module:
        """The module of facts: the same as in the run before where all of it is the same."""
        from dlcheck.model.scopes import Module

        key = (source.file, named)
        known = self._modules.get(key)
        if known is None or known.facts is not facts or (known.name, known.source) != (name, source):
            known = self._modules[key] = Module(name, source, facts, named, is_package)
        return known

    def _extract(self, source: Source) -> ModuleFacts:
        from dlcheck.facts import sketch
        from dlcheck.facts.pieces import Pieces

        if source.file not in self.typed:
            return sketch(source)
        last = self._pieces.get(source.file)
        pieces = last.after(source.text) if last is not None else None
        pieces = self._pieces[source.file] = pieces or Pieces.of(source.text)
        return pieces.facts
