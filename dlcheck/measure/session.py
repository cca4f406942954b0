"""A measuring run: findings -> plans -> groups that share their rounds -> records, the severest and cheapest first."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dlcheck.findings import SEVERITIES, Finding
from dlcheck.measure import everywhere, machine, meeting, ranks, reproducing, workload
from dlcheck.measure.children import START_LIMIT_S, Child, Failed, Host, interpreter, is_python, reaching
from dlcheck.measure.everywhere import RANKS, OnAllRanks
from dlcheck.measure.lockstep import Lockstep
from dlcheck.measure.plan import NO_CUDA, NO_DEVICE, Plan, combined, missing, plan, together, too_large
from dlcheck.measure.program import SET_UP_S
from dlcheck.measure.questions import QUESTIONS
from dlcheck.measure.record import Evidence, Fact, Guard, Noise, Record, Verdict
from dlcheck.measure.recording import USED_UP, Context, Measured, Settings
from dlcheck.measure.runner import AGAIN, REPLAY, Comparison, Group, Progress, Runner
from dlcheck.measure.statistics import BLOCKS
from dlcheck.measure.template import Subject, Template

__all__ = ["Session", "Settings", "Step", "Unusable"]

_COST = {"oracle": 0, "epoch": 1, "startup": 2, "steady": 3, "memory": 4}
EMPTY = "run like this the dataset is empty: there is nothing to load"
ANSWER_S = 30.0  # that any answer may take, whatever the budget
RANKS_S = 60.0  # until all ranks are at their loader, besides what one process needs: they may wait for each other
# Of samples, where the data are the user's.
_MEASURED = ("size", "cpu_s", "wait_s", "variation", "sample_bytes", "page_cache")
_NOT_ABOUT_LOADING = frozenset({"DLC001", "DLC002"})
_NEEDS_DATA = "it is asked of your own data: give --run COMMAND or --factory MODULE:FUNCTION"


@dataclass(frozen=True)
class Step:
    """Something to show: the finding that is measured, its number among all, and how far it is."""

    finding: Finding
    number: int
    of: int
    progress: Progress | None = None


class Unusable(Exception):
    """Why nothing can be measured at all; one line for people."""


def unusable(python: str, error: Failed) -> Unusable:
    """Why an interpreter cannot be used, from how a process of it has failed."""
    if error.stage == "import":
        return Unusable(f"{python} has no torch: install it there, or name another interpreter with --python")
    if error.stage == "process" and not is_python(python):
        return Unusable(f"{python} is no Python: name that of your project with --python")
    return Unusable(f"{python}: {error}")


@dataclass(frozen=True)
class Unsettled:
    """A question that one process could not answer: what it said, and how many of its like were with it."""

    finding: Finding
    answer: Mapping[str, Any] = field(default_factory=dict)
    world: int = 1
    set_up_s: float = 0.0

    @property
    def alone(self) -> Mapping[str, Any] | None:
        """What one process is given that has no others."""
        return self.answer.get("share") if self.world == 1 else None

    def and_also(self, why: str) -> str:
        said = f"as {max(self.world, ranks.WORLD)} ranks: {why}"
        return f"{self.answer['inapplicable']}; {said}" if "inapplicable" in self.answer else said


@dataclass
class Session:
    """Measures findings; ``show`` hears where it is, ``lockstep`` are the ranks that we were started as."""

    settings: Settings
    show: Callable[[Step], None] = lambda step: None
    lockstep: Lockstep | None = None
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)  # lines about what went another way than was asked for
    together: Record | None = None  # of the loader for which several suggestions were confirmed
    effects: list[Mapping[str, Any]] = field(default_factory=list)  # what each start of the program did outside
    _noises: dict[tuple[str, str], Noise] = field(default_factory=dict)  # by evidence and kind of block
    _done: int = 0
    _all: int = 0

    def __post_init__(self) -> None:
        self._start = time.perf_counter()
        self.system = machine.System()
        self.facts = machine.facts(self.system)
        self.runner = Runner(self.settings.seed, self.settings.looks)
        self._known = interpreter(self.settings.python, self.settings.root)
        self.python = self._known or sys.executable

    def measure(self, findings: Sequence[Finding]) -> Iterator[Record]:
        """A record for each finding, as soon as it is there.  Raises Unusable where there is no torch to run."""
        # A program that is run brings its own interpreter.
        ready = {} if self.settings.run else self._probe()
        self.context = Context(self.settings, self.facts, ready)
        findings = [one for one in findings if one.code not in _NOT_ABOUT_LOADING]
        self._all = len(findings)
        planned: list[Plan] = []
        confirmed: list[Plan] = []
        for site in _by_site(findings):
            if (self.settings.run or self.settings.factory) and self._left() <= 0:
                yield from (self._without(one, USED_UP, "inconclusive") for one in site)
                continue
            crashing = [one for one in site if one.code in reproducing.METHODS]
            others = [one for one in site if one.code not in reproducing.METHODS]
            for found in itertools.chain(map(self._reproduced, crashing), self._at(others) if others else ()):
                if isinstance(found, Record):
                    self._done += 1
                    yield found
                else:
                    planned.append(found)
        for group in _grouped(planned):
            why = "interrupted" if self.interrupted else USED_UP
            if self.interrupted or self._left() <= 0:
                yield from (self._without(one.finding, why, "inconclusive") for one in group)
            else:
                for one, record in zip(group, self._run(group), strict=True):
                    yield record
                    if record.verdict == "confirmed":
                        confirmed.append(one)
            self._done += len(group)
        self._measure_together(confirmed)

    def _measure_together(self, confirmed: Sequence[Plan]) -> None:
        """All that was confirmed of one loader, in one arm: singly they may win the same time twice."""
        sites: dict[str, list[Plan]] = {}
        for one in confirmed:
            if one.template.experiment in ("epoch", "steady") and one.template.extract:
                sites.setdefault(json.dumps(one.finding.measure.get("loader")), []).append(one)
        several = max(map(together, sites.values()), key=len, default=[])
        if len(several) > 1 and not self.interrupted and self._left() > 0:
            self._all += 1
            self.together = next(self._run([combined(several)]), None)

    def _probe(self) -> Mapping[str, Any]:
        """What the project's interpreter says of itself."""
        try:
            child = Child(self.python, {"dataset": {"kind": "shaped", "size": 1}}, self.runner.dice)
            ready = child.ready
        except Failed as error:
            raise unusable(self.python, error) from None
        child.close()
        return ready

    def _environment(self) -> dict[str, str]:
        """In which `python` is the interpreter that was named, or that of the project, be it ours as well."""
        return {**reaching(self._known), **self._alone()}

    def _alone(self) -> Mapping[str, str]:
        """What tells a process that it has no others, whatever it has from a launcher of ours."""
        return {} if self.lockstep is None else meeting.alone()

    def _left(self) -> float:
        return self.settings.total_s - (time.perf_counter() - self._start)

    def _limit(self) -> float:
        """Seconds that an answer may take: a dataset can hang, too."""
        return min(self.settings.budget_s + ANSWER_S, max(ANSWER_S, self._left()))

    def _without(self, finding: Finding, why: str, judged: Verdict = "not-measurable-here") -> Record:
        experiment = "oracle" if finding.code in QUESTIONS else "steady"
        return self.context.plain(finding, judged, why, "none", experiment)  # type: ignore[arg-type]

    # One loader: what it is like, and what can be asked of it at once

    def _at(self, findings: Sequence[Finding]) -> Iterator[Record | Plan]:
        """Records of the findings about one loader that are answered by asking, plans for the others."""
        of_loader = [one for one in findings if not _asked_of_device(one)]
        if of_loader:
            yield from self._at_its_loader(of_loader)
        yield from map(self._of_device, filter(_asked_of_device, findings))

    def _at_its_loader(self, findings: Sequence[Finding]) -> Iterator[Record | Plan]:
        """What is right or wrong is asked of one process, how long it takes of all ranks."""
        parts = [list(findings)]
        if self.lockstep is not None and self.settings.factory:
            parts = [[one for one in findings if (one.code in QUESTIONS) == asked] for asked in (True, False)]
        for part in filter(None, parts):
            yield from self._at_one(part)

    def _at_one(self, findings: Sequence[Finding]) -> Iterator[Record | Plan]:
        asked = [one for one in findings if one.code in QUESTIONS]
        timed = [one for one in findings if one.code not in QUESTIONS]
        try:
            host = self._stopped_at(findings[0])
        except Failed as error:
            # A program that cannot be started alone may be one that expects to be one of several.
            several = [Unsettled(one) for one in asked if QUESTIONS[one.code].ranks]
            known = [one.finding for one in several]
            yield from (self._without(one, str(error), "error") for one in findings if one not in known)
            yield from self._of_ranks(several, judged="error")
            return
        if host is None:
            yield from (self._without(one, _NEEDS_DATA) for one in asked)
            yield from (self._planned(one, {}) for one in timed)
            return
        self._know(host.ready)
        unsettled = []
        try:
            for finding in asked:
                found = self._asked(finding, host)
                if isinstance(found, Unsettled):
                    unsettled.append(found)
                else:
                    yield found
            live = host.ask({"cmd": "facts"}, self._limit()) if timed else {}
            yield from (self._planned(one, live) for one in timed)
        except Failed as error:
            yield from (self._without(one, str(error), "error") for one in timed)
        finally:
            host.close()
        yield from self._of_ranks(unsettled)

    def _know(self, ready: Mapping[str, Any]) -> None:
        if not self.context.ready:
            self.python = ready["executable"]
            self.context = replace(self.context, ready=ready)

    def _stopped_at(self, finding: Finding) -> Host | None:
        """The user's loader, where there is something to run that has it."""
        own = self._own_workload(finding, seed=None)  # what the program leaves to chance is left to it
        if own is not None and finding.code not in QUESTIONS:
            own = self._everywhere(own)
        return next(iter(own.hosts(["A"]).values())) if own is not None else None

    def _own_workload(self, finding: Finding, seed: int | None) -> workload.Workload | None:
        settings = self.settings
        if settings.run:
            return workload.AtItsLoader(self._command(finding), min(SET_UP_S, max(ANSWER_S, self._left())))
        if settings.factory:
            dice = self.runner.dice
            start_s = min(START_LIMIT_S, self._limit())  # a factory can hang, too
            own = workload.factory(self.python, settings.factory, settings.root, dice, seed, start_s)
            return replace(own, ranks=self._alone)
        return None

    def _everywhere(self, own: workload.Workload) -> workload.Workload:
        """The same on all ranks that we were started as; not a program, whose files only one may put back."""
        if self.lockstep is None or not isinstance(own, workload.InChildren):
            return own
        return OnAllRanks(own, self.lockstep)

    def _reproduced(self, finding: Finding) -> Record:
        settings = self.settings
        if not settings.run:
            return self._without(finding, "it is made to happen in your own program: give --run COMMAND")
        if finding.code in reproducing.NEED_CUDA and not self._has_cuda():
            return self._without(finding, NO_CUDA)
        self.show(Step(finding, self._done + 1, self._all))
        limit = min(reproducing.LIMIT_S, max(1.0, self._left()))
        found = reproducing.reproduce(finding, settings.run, self._environment(), settings.audit, limit)
        record = self.context.plain(finding, found.verdict, found.reason, "in-vivo", "repro")
        return replace(record, counts=found.counts, side_effects=found.side_effects, cost={"wall_s": found.seconds})

    def _command(self, finding: Finding) -> workload.Command:
        settings, loader = self.settings, finding.measure.get("loader")
        at = finding.place
        place = {"file": os.path.abspath(at.path), "line": at.line, "end_line": at.end_line}
        environment, heard = self._environment(), self.effects.append
        return workload.Command(settings.run or "", loader, place, settings.audit, environment, heard)

    def _asked(self, finding: Finding, host: Host) -> Record | Unsettled:
        question = QUESTIONS[finding.code]
        self.show(Step(finding, self._done + 1, self._all))
        try:
            answer = host.ask(_request(finding), self._limit())
        except Failed as error:
            return self._without(finding, str(error), "error")
        if question.ranks == "compared" or question.ranks and "inapplicable" in answer:
            return Unsettled(finding, answer, getattr(host, "reached", {}).get("world", 1), host.ready["setup_s"])
        if question.two_runs and "inapplicable" not in answer:
            return self._compared(finding, host, answer)
        return self._answered(finding, answer, host.ready["evidence"])

    def _answered(self, finding: Finding, answer: Mapping[str, Any], evidence: Evidence) -> Record:
        if "inapplicable" in answer:
            return self._without(finding, answer["inapplicable"])
        absent: Verdict = "refuted-no-effect" if QUESTIONS[finding.code].refutes else "inconclusive"
        judged: Verdict = "confirmed" if answer["violated"] else absent
        record = self.context.plain(finding, judged, answer["said"], evidence, "oracle")
        return replace(record, counts=answer["counts"])

    def _compared(self, finding: Finding, host: Host, first: Mapping[str, Any]) -> Record:
        """The record of a question whose answers two runs must agree on."""
        try:
            other = self._stopped_at(finding)
            assert other is not None
            try:
                second = other.ask(_request(finding), self._limit())
            finally:
                other.close()
        except Failed as error:
            return self._without(finding, str(error), "error")
        differ = first["counts"] != second.get("counts")
        reason = f"two runs {'differ' if differ else 'agree'}: {first['said']}"
        judged: Verdict = "confirmed" if differ else "refuted-no-effect"
        record = self.context.plain(finding, judged, reason, host.ready["evidence"], "oracle")
        return replace(record, counts={"first": first["counts"], "second": second.get("counts")})

    def _of_ranks(self, unsettled: Sequence[Unsettled], judged: Verdict = "not-measurable-here") -> Iterator[Record]:
        """Ask several processes of the program what one alone cannot answer."""
        if not unsettled:
            return
        self.show(Step(unsettled[0].finding, self._done + 1, self._all))
        try:
            together = self._started_as_ranks(unsettled[0])
        except Failed as error:
            yield from (self._without(one.finding, one.and_also(str(error)), judged) for one in unsettled)
            return
        self._know(together.ready)
        try:
            yield from (self._of_all(one, together) for one in unsettled)
        finally:
            together.close()

    def _started_as_ranks(self, first: Unsettled) -> ranks.Ranks:
        settings = self.settings
        limit = min(SET_UP_S, RANKS_S + 3 * first.set_up_s, max(ANSWER_S, self._left()))
        if settings.run:
            return ranks.of_program(self._command(first.finding), first.world, limit)
        own = workload.factory(self.python, settings.factory or "", settings.root, self.runner.dice, seed=None)
        return ranks.Children(own.python, own.request, own.dice, limit)

    def _of_all(self, one: Unsettled, together: ranks.Ranks) -> Record:
        finding, evidence = one.finding, together.ready["evidence"]
        try:
            answers = together.ask(_request(finding), self._limit())
        except Failed as error:
            return self._without(finding, str(error), "error")
        if QUESTIONS[finding.code].ranks == "instead" or any("inapplicable" in answer for answer in answers):
            return self._answered(finding, answers[0], evidence)
        found = ranks.compared([answer["share"] for answer in answers], one.alone)
        record = self.context.plain(finding, found.verdict, found.reason, evidence, "oracle")
        return replace(record, counts=found.counts)

    def _of_device(self, finding: Finding) -> Record:
        """Ask a device what it does; the program is not needed for that."""
        device = QUESTIONS[finding.code].device
        if self.context.ready and not self.context.ready.get(device):
            return self._without(finding, NO_DEVICE[device])
        self.show(Step(finding, self._done + 1, self._all))
        try:
            host = Child(self.python, {"dataset": {"kind": "shaped", "size": 1}}, self.runner.dice)
            try:
                self._know(host.ready)
                if not host.ready.get(device):
                    return self._without(finding, NO_DEVICE[device])
                return self._answered(finding, host.ask(_request(finding), self._limit()), "synthetic")
            finally:
                host.close()
        except Failed as error:
            return self._without(finding, str(error), "error")

    def _has_cuda(self) -> bool:
        return bool(self.context.ready.get("cuda"))

    def _planned(self, finding: Finding, live: Mapping[str, Any]) -> Record | Plan:
        if live.get("size") == 0:
            return self._without(finding, EMPTY)
        subject = self._subject(finding, live)
        found = plan(subject)
        if isinstance(found, str):
            return self._without(finding, found)
        if live and not found.template.extract:
            found = plan(self._subject(finding, {}))
            assert isinstance(found, Plan)
        fed = self.settings.run and not self.settings.extract and found.template.in_vivo
        work = self._workload(found)
        evidence: Evidence = "in-vivo" if fed else work.evidence
        number = work.ranks.place.size if isinstance(work, OnAllRanks) else 1
        why = missing(found.template, evidence, subject, has_cuda=self._has_cuda())
        why = why or too_large(found, self.facts, number)
        return self._without(finding, why) if why else found

    def _subject(self, finding: Finding, live: Mapping[str, Any]) -> Subject:
        cores = self._cores()
        method = self.context.ready.get("start_method", "")
        measured = {name: live[name] for name in _MEASURED if live.get(name) is not None}
        return Subject(finding, finding.measure, live.get("options", {}), cores, method, measured)

    def _cores(self) -> float:
        """Of one rank."""
        usable = float(self.facts["usable_cores"])
        if self.lockstep is None:
            return usable / max(1, int(self.facts["world"]))
        leader = self.lockstep.leader
        return meeting.cores(usable, self.system.affinity(), leader.cpus, leader.place.size)

    # A group

    def _workload(self, one: Plan) -> workload.Workload:
        own = self._own_workload(one.finding, self.settings.seed) if one.template.extract else None
        if own is None:
            own = workload.stand_in(self.python, one.template.dataset, self.runner.dice, self.settings.seed)
        return self._everywhere(own) if everywhere.suits(one.template) else own

    def _run(self, plans: Sequence[Plan]) -> Iterator[Record]:
        """Measure a group: in the program's own loop where that can be fed, else at its loader, or with a stand-in."""
        first = plans[0]
        if self.settings.run and not self.settings.extract and first.template.in_vivo:
            looped = workload.InItsLoop(self._command(first.finding), first.template.gauge)
            records = list(self._measure(plans, looped.evidence, {"feed": looped.feed}))
            if self.interrupted or first.template.only_in_its_loop or any(one.verdict != "error" for one in records):
                yield from records
                return
            # A loop that cannot be fed, or ends too soon, still has a loader; and a step can be stood in for.
            note = Guard("in-vivo", "skipped", records[0].reason)
            where = "at its loader" if first.template.extract else "by a stand-in"
            self.notes.append(f"{first.finding.code} is measured {where}, not in the loop: {records[0].reason}")
            for record in self._measure_by(self._workload(first), plans):
                yield replace(record, guards=[note, *record.guards])
            return
        work = self._on_device(plans) if first.template.device else self._workload(first)
        why = self._why_stand_in(first.template) if work.evidence == "synthetic" else ""
        if why:
            codes = dict.fromkeys(one.finding.code for one in plans)
            self.notes += [f"{code} is measured by a stand-in: {why}" for code in codes]
        for record in self._measure_by(work, plans):
            yield replace(record, guards=[Guard("stand-in", "skipped", why), *record.guards]) if why else record

    def _measure_by(self, work: workload.Workload, plans: Sequence[Plan]) -> Iterator[Record]:
        how = {"hosts": work.hosts, "one_process": work.one_process}
        if not isinstance(work, OnAllRanks):
            yield from self._measure(plans, work.evidence, how)
            return
        place = work.ranks.place
        shared = [replace(one, workload={**one.workload, RANKS: Fact(place.size, "user")}) for one in plans]
        for record in self._measure(shared, work.evidence, how):
            yield replace(record, rerun=f"{place.launch} {record.rerun}")

    def _why_stand_in(self, template: Template) -> str:
        """Why what the user named is not what is measured; empty where nothing was named."""
        if not (self.settings.run or self.settings.factory):
            return ""
        if template.in_vivo:
            of = (
                "--extract stops the program before its loop" if self.settings.run else "a factory has no training loop"
            )
            return f"it is about the loop, and {of}"
        if template.device:
            return "it is about a device, which is timed by itself"
        return "its advice needs other code, and dlcheck does not rewrite yours"

    def _on_device(self, plans: Sequence[Plan]) -> workload.Workload:
        first = plans[0]
        arms = _group(plans, {}, with_noise=True).arms
        return workload.on_device(self.python, first.template.device, arms, self.runner.dice, self.settings.seed)

    def _measure(self, plans: Sequence[Plan], evidence: Evidence, how: Mapping[str, Any]) -> Iterator[Record]:
        first = plans[0]
        kind = (evidence, first.template.device or first.template.block)
        group = _group(plans, how, with_noise=kind not in self._noises)
        seconds = min(self.settings.budget_s * (len(plans) + (AGAIN in group.arms)), self._left())

        def listen(progress: Progress) -> None:
            for number, one in enumerate(plans, self._done + 1):
                self.show(Step(one.finding, number, self._all, progress))

        self.show(Step(first.finding, self._done + 1, self._all))
        around = [machine.settle(self.system), *self._capacity(first, "before"), *machine.cache_guard(first.workload)]
        throttled = self.system.throttled()
        outcome = self.runner.run(group, seconds, listen, self._noises.get(kind))
        self.interrupted = outcome.stopped == "interrupted"
        if AGAIN in group.arms and (own := outcome.noise("A")) is not None:
            self._noises[kind] = own
        if not self.interrupted:
            around += self._capacity(first, "after")
        if (stops := self.system.throttled() - throttled) > 0:
            around.append(Guard("cpu-limit", "warn", f"the control group was stopped {stops} times for its quota"))
        measured = Measured(group, outcome, around, self._noises.get(kind), evidence, seconds)
        yield from (measured.record(one, self.context) for one in plans)

    def _capacity(self, one: Plan, when: str) -> list[Guard]:
        if not one.template.parallel:
            return []
        usable = max(1, int(self.facts["usable_cores"]))
        return [machine.capacity_guard(machine.free_capacity(usable), usable, when)]


def _asked_of_device(finding: Finding) -> bool:
    question = QUESTIONS.get(finding.code)
    return question is not None and bool(question.device)


def _request(finding: Finding) -> dict[str, Any]:
    return {"cmd": "oracle", "name": QUESTIONS[finding.code].oracle, "config": finding.measure.get("about", {})}


def _group(plans: Sequence[Plan], how: Mapping[str, Any], *, with_noise: bool) -> Group:
    """All arms of plans that share what is written; with the A/A where that is not known yet."""
    first = plans[0]
    arms: dict[str, Mapping[str, Any]] = {"A": first.written}
    if with_noise:
        arms[AGAIN] = first.written
    comparisons: dict[str, Comparison] = {}
    for number, one in enumerate(plans):
        name = "B" if len(plans) == 1 else f"B{number + 1}"
        arms[name] = one.suggested
        comparisons[one.finding.fingerprint] = Comparison("A", name, one.template.metric.kind)
        for control, extra in one.template.controls.items():
            arms[control] = one.config({**one.template.written, **extra})
    if "feed" in how and not first.template.gauge:
        arms[REPLAY] = {}
    blocks = first.template.blocks or BLOCKS
    template = first.template
    return Group(arms, comparisons, sized=template.sized, blocks=blocks, warm_ups=template.warm_ups, **how)


def _by_site(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings by the loader that they are about, the severest first."""
    sites: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda one: (SEVERITIES.index(one.severity), one.sort_key)):
        sites.setdefault(json.dumps(finding.measure.get("loader")), []).append(finding)
    return list(sites.values())


def _grouped(plans: Sequence[Plan]) -> list[list[Plan]]:
    """Plans whose written side is the same, measured in the same rounds; the cheap ones first."""
    groups: dict[str, list[Plan]] = {}
    for one in plans:
        site = one.finding.measure.get("loader") if one.template.extract else None
        key = [site, one.template.device, one.template.block, dict(one.template.dataset), one.written]
        groups.setdefault(json.dumps(key, sort_keys=True, default=str), []).append(one)
    return sorted(groups.values(), key=lambda group: _COST.get(group[0].template.experiment, 9))
