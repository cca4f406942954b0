"""What `dlcheck measure` does with the findings of a run: measures them, project by project, and keeps the records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dlcheck import files, writing
from dlcheck.findings import Finding
from dlcheck.harmless import printable
from dlcheck.measure import page, program, store, undoing, words
from dlcheck.measure.everywhere import RANKS
from dlcheck.measure.lockstep import Lockstep
from dlcheck.measure.record import Evidence, Record
from dlcheck.measure.recording import Settings
from dlcheck.measure.session import Session, Step

Tell = Callable[[str], None]


@dataclass
class Listener:
    """Where progress goes: ``step`` while something is measured, ``line`` for what stays."""

    step: Callable[[Step], None]
    done: Callable[[Record], None]


@dataclass
class Measurements:
    """What came of it; ``problems`` are lines about what went another way, or could not be kept."""

    records: list[Record] = field(default_factory=list)
    together: Record | None = None  # the suggestions about one loader, followed at once
    problems: list[str] = field(default_factory=list)
    effects: dict[str, Any] = field(default_factory=dict)  # what the program did outside, and what became of it
    interrupted: bool = False


def measure(
    findings: Sequence[Finding],
    settings: Settings,
    listener: Listener,
    *,
    keep: bool,
    lockstep: Lockstep | None = None,
) -> Measurements:
    """Measure findings; each record is kept as soon as it is there, so that an interruption loses none.

    Raises Unusable where nothing can be run at all, and Lost where one of the ranks has gone that we were started as.
    """
    found = Measurements()
    start = time.monotonic()
    for root, group in _by_root(findings, settings.root).items():
        left = settings.total_s - (time.monotonic() - start)
        by_key = {store.key(finding, root): finding for finding in group}
        session = Session(replace(settings, root=root, total_s=max(0.0, left)), listener.step, lockstep)
        for record in _until_interrupted(session.measure(group), session):
            found.records.append(record)
            listener.done(record)
            found.effects = undoing.merged(found.effects, record.side_effects)
            if keep and record.fingerprint in by_key:
                _keep(record, by_key[record.fingerprint], root, found)
        program.close_all()
        found.effects = undoing.merged(found.effects, *session.effects)
        found.problems += session.notes
        if session.together is not None:
            listener.done(session.together)
        found.together = found.together or session.together
        if session.interrupted:
            found.interrupted = True
            break
    found.problems += _failures(found.records)
    found.problems += _on_one(found.records) if lockstep is not None else ()
    return found


def measured_nothing(found: Measurements) -> bool:
    """Whether all that was tried failed."""
    verdicts = {record.verdict for record in found.records}
    return "error" in verdicts and verdicts <= {"error", "not-measurable-here"}


def _failures(records: Sequence[Record]) -> Iterator[str]:
    """What went wrong, for reports that say nothing of measurements."""
    failed = [one.reason for one in records if one.verdict == "error"]
    for reason in dict.fromkeys(failed):
        number = failed.count(reason)
        yield f"measuring failed for {number} finding{'' if number == 1 else 's'}: {printable(reason)}"


def _on_one(records: Sequence[Record]) -> Iterator[str]:
    """What was run, and not on all ranks."""
    codes = sorted({one.code for one in records if one.evidence != "none" and RANKS not in one.workload})
    if codes:
        why = "all ranks take part in what times a factory's loader or a stand-in's"
        yield f"{', '.join(codes)}: run by rank 0 alone; {why}"


def _until_interrupted(records: Iterator[Record], session: Session) -> Iterator[Record]:
    try:
        yield from records
    except KeyboardInterrupt:
        session.interrupted = True


def _by_root(findings: Sequence[Finding], top: str) -> dict[str, list[Finding]]:
    roots: dict[str, list[Finding]] = {}
    for finding in findings:
        folder = os.path.dirname(os.path.abspath(finding.place.path))
        roots.setdefault(files.root_of(folder) or top, []).append(finding)
    return roots


# From the weakest on: what a stand-in shows does not replace what the program showed.
_STRENGTH: tuple[Evidence, ...] = ("none", "analytic", "synthetic", "factory", "extract", "in-vivo")


def _keep(record: Record, finding: Finding, root: str, found: Measurements) -> None:
    """Write a record, unless it says nothing or less than this machine's earlier one."""
    if record.effect is None and record.counts is None and record.verdict != "suggestion-breaks":
        return
    known = store.load(root).for_finding(finding)
    current = known is not None and known.here and not known.outdated
    if current and known is not None and _strength(known.record) > _strength(record):
        at = f"{record.location.path}:{record.location.line} {record.code}"
        found.problems.append(f"{at}: the earlier record is kept: {words.WORKLOADS[known.record.evidence]}")
        return
    try:
        store.save(root, record)
    except OSError as error:
        where = os.path.join(root, files.RECORDS)
        line = f"{files.shown(where)}: the measurement is not kept: {error.strerror or error}"
        if line not in found.problems:
            found.problems.append(line)


def _strength(record: Record) -> int:
    return _STRENGTH.index(record.evidence)


def forget(findings: Sequence[Finding], checked: Collection[str], codes: Collection[str], found: Measurements) -> None:
    """Delete the records that no finding of this run matches any more.

    ``findings`` are all that the run found, ``checked`` the files (absolute) and ``codes`` the rules that it looked at.
    """
    for root in {files.root_of(os.path.dirname(file)) for file in checked} - {None}:
        assert root is not None
        if os.path.isdir(os.path.join(root, files.RECORDS)):
            records = store.load(root)
            records.prune(findings, checked, codes)


def attached(findings: Sequence[Finding], found: Measurements) -> list[Finding]:
    """The findings with what was just measured of them, whether it was kept or not."""
    by_key = {record.fingerprint: record for record in found.records}

    def with_record(finding: Finding) -> Finding:
        folder = os.path.dirname(os.path.abspath(finding.place.path))
        record = by_key.get(store.key(finding, files.root_of(folder) or os.getcwd()))
        if record is None:
            return finding
        return replace(finding, measurement=store.Stored(record, "", here=True, outdated=False).measurement)

    return [with_record(finding) for finding in findings]


def write_page(file: str, found: Measurements) -> None:
    """The page of a run's records; raises OSError."""
    text = page.render(found.records, end_to_end=found.together)
    writing.to_target(file, text.encode("utf-8", "backslashreplace"))
