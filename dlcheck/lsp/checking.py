"""Checking what is open: one file at a time, as its buffer is now, in a project that is open or on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dlcheck import config, engine, files, pages
from dlcheck.edits import common
from dlcheck.findings import Finding, Place
from dlcheck.fixing import Fixed, fix
from dlcheck.lsp.documents import Document
from dlcheck.source import Source, split_lines
from dlcheck.warm import Warm


@dataclass(frozen=True)
class Checked:
    """What was found in a version of a document; ``sources`` are the texts that places count in, by their paths.

    ``read`` are the files, absolute, that were read for it.  ``findings`` of a text that does not parse are those of
    the last text that did, where they still apply; ``whole`` says that it parsed.
    """

    version: int
    source: Source | None = None
    findings: tuple[Finding, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    whole: bool = True
    problems: tuple[str, ...] = ()
    read: frozenset[str] = frozenset()


class Checker:
    """Checks documents, and remembers what it found in each; used by one thread at a time."""

    def __init__(self) -> None:
        self.warm = Warm()
        self.overrides: dict[str, Any] = {}
        self.trusted = True  # else no code of the workspace's own is run
        self._good: dict[str, Checked] = {}

    def check(self, document: Document, overlays: Mapping[str, bytes], stop: Callable[[], bool]) -> Checked:
        """What there is to say of a document; raises Interrupted when ``stop`` says that nobody wants to know."""
        self.warm.stop = stop
        self.warm.typed.add(document.file)
        try:
            unknown = self._settings(document.file).unknown_rules(pages.load)
            report = self._report(document.file, overlays)
        except config.ConfigError as error:
            return Checked(document.version, problems=(str(error),))
        path = files.shown(document.file)
        found = tuple(finding for finding in report.findings if finding.place.path == path)
        source = report.sources.get(path) or _source(document)
        problems = tuple(f"{error.path}:{error.line}: {error.message}" for error in report.errors)
        checked = Checked(
            document.version, source, found, report.sources, problems=(*unknown, *problems), read=report.read
        )
        if any(finding.code == engine.UNREADABLE for finding in found):
            return self._with_last_good(document.file, checked)
        self._good[document.file] = checked
        return checked

    def fixed(self, document: Document, overlays: Mapping[str, bytes], stop: Callable[[], bool]) -> Fixed:
        """A document after all its safe fixes."""
        self.warm.stop = stop
        return fix(lambda after: self._report(document.file, {**overlays, **after}), unsafe=False)

    def forget(self, file: str) -> None:
        """A document was closed."""
        self._good.pop(file, None)
        self.warm.closed(file)

    def _report(self, file: str, overlays: Mapping[str, bytes]) -> engine.Report:
        return engine.check([file], self._settings(file), overlays=overlays, warm=self.warm)

    def _settings(self, file: str) -> config.Config:
        return config.load(os.path.dirname(file), self.overrides, trusted=self.trusted)

    def _with_last_good(self, file: str, checked: Checked) -> Checked:
        last = self._good.get(file)
        if last is None or last.source is None or checked.source is None:
            return replace(checked, whole=False)
        known = {(finding.code, finding.place) for finding in checked.findings}  # of a notebook's other cells
        carried_on = carried(last.findings, last.source, checked.source)
        kept = [finding for finding in carried_on if (finding.code, finding.place) not in known]
        return replace(checked, findings=(*checked.findings, *kept), whole=False)


def _source(document: Document) -> Source | None:
    try:
        return files.to_source(document.file, document.data)
    except files.UnusableError:
        return None


def carried(findings: tuple[Finding, ...], old: Source, new: Source) -> list[Finding]:
    """The findings in a text that still apply to another one: those whose lines stand there unchanged.

    Only what is above the first line that differs, and below the last, is taken for the same.  Their fixes are
    left behind: nothing in a text that does not parse says that they still fit.
    """
    if old.cells or new.cells:
        return [_bare(finding) for finding in findings if _cell_text(old, finding) == _cell_text(new, finding)]
    before, after = split_lines(old.text), split_lines(new.text)
    above = common(before, after)
    below = common(before[above:][::-1], after[above:][::-1])
    kept = []
    for finding in findings:
        lines = (finding.place.line, finding.place.end_line, *finding.statement_lines)
        first, last = min(line for line in lines if line), max(lines)
        if last <= above:
            kept.append(_bare(finding))
        elif first > len(before) - below:
            kept.append(_bare(finding, len(after) - len(before)))
    return kept


def _bare(finding: Finding, by: int = 0) -> Finding:
    """A finding some lines further down, without what points elsewhere."""
    first, last = finding.statement_lines
    lines = (first + by, last + by) if first else (0, 0)
    return replace(finding, place=_moved(finding.place, by), statement_lines=lines, fix=None, related=())


def _moved(place: Place, by: int) -> Place:
    return replace(place, line=place.line + by, end_line=place.end_line + by)


def _cell_text(source: Source, finding: Finding) -> str | None:
    number = finding.place.cell
    return source.cell_texts[number - 1] if number is not None and number <= len(source.cells) else None
