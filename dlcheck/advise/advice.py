"""Advice about the loaders of a program: what the code tells, what was measured, and what the machine allows."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dlcheck import files
from dlcheck.advise.costs import FULL, PREFETCH, shm_remedy
from dlcheck.advise.known import DatasetFacts, MachineFacts, Recommendation, with_measured
from dlcheck.advise.recommend import recommend
from dlcheck.advise.survey import Setting, Surveyed
from dlcheck.advise.tuned import Tuned, latest
from dlcheck.advise.units import count, size
from dlcheck.findings import Finding

if TYPE_CHECKING:
    from dlcheck.measure.record import Record
    from dlcheck.measure.store import Records

SMALL_SHM = 64 << 20


@dataclass(frozen=True, slots=True)
class Advice:
    """What to set in a loader.

    ``unfit`` are the settings as written that cannot work here, ``notes`` what else there is to know of them;
    ``record`` names the measurement that some facts of the dataset come from, ``tuned`` the search that chose options
    for it; ``commands`` find out what is open; ``rules`` are the codes of what checking finds about it.
    """

    loader: Surveyed
    dataset: DatasetFacts
    recommendation: Recommendation
    unfit: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    record: str | None = None
    tuned: Tuned | None = None
    commands: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


def advice(
    loaders: Iterable[Surveyed], machine: MachineFacts, findings: Sequence[Finding], root: str | None
) -> list[Advice]:
    """Advice for each loader; those that differ only in who calls for them share one.

    ``findings`` of a run that describes their subjects lead to the records of measurements below their projects or
    ``root``; none are read where that is None.
    """
    records = _records(findings, root) if root is not None else []
    given = [_advice(loader, machine, records, _search(loader, root)) for loader in _merged(loaders)]
    return [
        replace(one, rules=tuple(sorted({found.code for found in findings if is_about(found, one.loader)})))
        for one in given
    ]


def is_about(finding: Finding, loader: Surveyed) -> bool:
    """Whether a finding is about a loader: the same call, whoever called for it."""
    about = finding.measure.get("loader") or {}
    return about.get("file") == loader.file and (about.get("line"), about.get("end_line")) == loader.lines


def _merged(loaders: Iterable[Surveyed]) -> list[Surveyed]:
    """One for all callers for whom everything else is the same."""
    found: dict[str, Surveyed] = {}
    for loader in loaders:
        key = repr(replace(loader, callers=()))
        known = found.get(key)
        if known is None:
            found[key] = loader
        else:
            found[key] = replace(known, callers=tuple(dict.fromkeys((*known.callers, *loader.callers))))
    return sorted(found.values(), key=lambda one: (one.at.path, one.at.cell or 0, one.at.line))


def _search(loader: Surveyed, root: str | None) -> Tuned | None:
    if root is None:
        return None
    return latest(files.root_of(os.path.dirname(loader.file)) or root, loader.file, loader.lines)


def _advice(
    loader: Surveyed, machine: MachineFacts, records: Sequence[tuple[Finding, Record]], tuned: Tuned | None
) -> Advice:
    record = _record_of(loader, records)
    dataset = with_measured(loader.facts, _measured(record)) if record is not None else loader.facts
    dataset = tuned.applied(dataset) if tuned is not None else dataset
    found = recommend(dataset, machine)
    return Advice(
        loader,
        dataset,
        found,
        unfit=tuple(unfit(loader, dataset, machine)),
        notes=tuple(_notes(loader, dataset, machine)),
        record=record.id if record is not None else None,
        tuned=tuned,
        commands=tuple(_commands(loader, found)),
    )


# What was measured


def _records(findings: Sequence[Finding], top: str) -> list[tuple[Finding, Record]]:
    """The findings of which this machine has a record that tells what a sample costs."""
    stores: dict[str, Records | None] = {}
    found = []
    for finding in findings:
        root = files.root_of(os.path.dirname(os.path.abspath(finding.place.path))) or top
        if root not in stores:
            stores[root] = _load(root)
        known = stores[root]
        stored = known.for_finding(finding) if known is not None else None
        if stored is not None and stored.here and not stored.outdated:
            cost = stored.record.workload.get("cpu_s")
            if cost is not None and cost.source == "measured":
                found.append((finding, stored.record))
    return found


def _load(root: str) -> Records | None:
    if not os.path.isdir(os.path.join(root, files.RECORDS)):
        return None
    from dlcheck.measure.store import load

    return load(root)


def _record_of(loader: Surveyed, records: Sequence[tuple[Finding, Record]]) -> Record | None:
    """The latest record of a finding about a loader."""
    fitting = [record for finding, record in records if is_about(finding, loader)]
    return max(fitting, key=lambda record: record.date, default=None)


def _measured(record: Record) -> dict[str, Any]:
    return {name: fact.value for name, fact in record.workload.items() if fact.source == "measured"}


# As it is written


def unfit(loader: Surveyed, dataset: DatasetFacts, machine: MachineFacts) -> Iterator[str]:
    """What is written and cannot fit into the memory that there is: of several settings the largest."""
    known = [one for one in loader.settings if one.batch_size is not None and dataset.sample_bytes is not None]
    largest = max(known, key=lambda one: one.workers * one.prefetch * (one.batch_size or 0), default=None)
    if largest is None:
        return
    batch = (largest.batch_size or 0) * (dataset.sample_bytes or 0)
    ready = largest.workers * largest.prefetch * batch * machine.ranks
    each = f" in each of {machine.ranks} ranks" if machine.ranks > 1 else ""
    told = f"{largest.workers} x {largest.prefetch} batches of {size(batch)}{each} are {size(ready)}"
    if machine.shm_total is not None and ready > machine.shm_total:
        yield f"{told}, and /dev/shm has {size(machine.shm_total)}: {FULL}; {shm_remedy(ready, machine.container)}"
    elif machine.shm is not None and ready > machine.shm:
        yield f"{told}, and {size(machine.shm)} of /dev/shm are free"
    if machine.memory is not None and ready > machine.memory:
        yield f"{told}, and {size(machine.memory)} of memory are free"


def _notes(loader: Surveyed, dataset: DatasetFacts, machine: MachineFacts) -> Iterator[str]:
    yield from _crowded(loader, dataset, machine)
    total = machine.shm_total
    if total is not None and total <= SMALL_SHM and dataset.batch_bytes is None and not dataset.looks_up:
        known = max(loader.settings, key=lambda one: one.workers * one.prefetch, default=Setting(1, PREFETCH, None))
        most = total / (known.workers * known.prefetch)
        with_them = f"with {count(known.workers, 'worker')} no batch may be larger than {size(most)}"
        yield f"/dev/shm has {size(total)}: {with_them}: {FULL}"
    if loader.several_ranks and machine.ranks == 1 and machine.gpus != 1:
        example = f"--ranks {machine.gpus} for one on each GPU" if machine.gpus else "--ranks N for N on a machine"
        yield f"the program trains in several processes, which share cores and memory: {example}"


def _crowded(loader: Surveyed, dataset: DatasetFacts, machine: MachineFacts) -> Iterator[str]:
    """Workers that take turns, where they have work to do."""
    workers = max((one.workers for one in loader.settings), default=0)
    if machine.cores is None or not dataset.decodes or machine.storage == "network":
        return
    if workers > max(1, machine.cores):
        yield f"{count(workers, 'worker')} as written on {count(machine.cores, 'usable core')}: they take turns"


# What would tell more


def _commands(loader: Surveyed, found: Recommendation) -> Iterator[str]:
    if found.num_workers.basis not in ("estimate", "open") and not found.would_change:
        return
    if loader.at.cell is not None:  # a function of a module that returns what the cell builds
        yield "dlcheck tune --factory MODULE:FUNCTION"
        return
    command = f"python {shlex.quote(loader.script) if loader.script else 'SCRIPT.py'}"
    yield f"dlcheck tune --run {shlex.quote(command)} --loader {shlex.quote(str(loader.at))}"
