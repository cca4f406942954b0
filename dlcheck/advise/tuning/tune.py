"""`dlcheck tune`, from what was asked to what was found: the loader is opened, tried, chosen for and proven."""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from dlcheck import __version__
from dlcheck.advise.recommend import DatasetFacts, MachineFacts, recommend
from dlcheck.advise.tuning import choice, grid, meeting, proving
from dlcheck.advise.tuning.asking import Listener, Settings, Shown, asked, rerun
from dlcheck.advise.tuning.bounds import Bounds, bounds
from dlcheck.advise.tuning.grid import Data, Grid, Machine
from dlcheck.advise.tuning.hosts import OfFactory, OfProgram, OnAllRanks, Opener, follow
from dlcheck.advise.tuning.result import Result, Row
from dlcheck.advise.tuning.search import PASSES, SMALL, Race
from dlcheck.advise.tuning.setting import METHODS, Setting, present
from dlcheck.advise.tuning.trying import ANSWER_S, BLOCK_S, Bench, Gone, Objective
from dlcheck.measure import machine, program, undoing
from dlcheck.measure.children import Failed, interpreter, reaching
from dlcheck.measure.record import Guard
from dlcheck.measure.recording import software
from dlcheck.measure.runner import Progress
from dlcheck.measure.session import Unusable, unusable
from dlcheck.measure.workload import Command

SEARCH = 0.5  # of the budget, at most; what is left of it goes to the proof
STARTS = 0.62  # by then all starts have been timed
LEAST_START_S = 1.0
STEP = 0.25  # of the budget, at most: to learn how long a step of the program takes
FACTS_S = 2.0
LEAST_PATIENCE_S = 20.0
NO_STEP: Mapping[str, Any] = {"kind": "none", "s": 0.0, "source": "none"}


class Tuning:
    """One search; ``result`` is whole at any time, whatever ends it."""

    _bench: Bench

    def __init__(self, settings: Settings, listener: Listener, place: meeting.Place | None = None) -> None:
        self.settings = settings
        self.listener = listener
        self.place = place
        self.result = Result(asked(settings), version=__version__)
        self._start = time.monotonic()
        self._system = machine.System()
        self._facts = machine.facts(self._system)
        self._dice = random.Random(settings.seed)
        self._known = interpreter(settings.python, settings.root)
        self._python = self._known or sys.executable
        self._ranks = place.size if place is not None else 1
        self._cores = float(self._facts["usable_cores"])  # of one rank
        self._limits = bounds(self._system, self._ranks, settings.most_memory)
        self._effects: list[Mapping[str, Any]] = []
        self._method = ""  # that workers are started with where nobody says
        self._race: Race | None = None

    # -- time

    def left(self, share: float = 1.0) -> float:
        """Seconds until a share of the budget is used up."""
        return share * self.settings.budget_s - (time.monotonic() - self._start)

    def _opener(self) -> Opener:
        settings = self.settings
        limits: Bounds = self._limits
        if settings.factory:
            args = (settings.factory, os.getcwd(), settings.seed, self._dice, limits, self.left, self.place)
            return OfFactory(self._python, *args)
        site = None
        if settings.loader is not None:
            file, line = settings.loader
            site = {"file": os.path.abspath(file), "line": line, "end_line": line}
        heard = self._effects.append
        command = Command(settings.run or "", site, {}, settings.audit, reaching(self._known), heard)
        return OfProgram(command, limits, self.left, self.place)

    # -- the whole

    def run(self) -> Result:
        """Search, choose and prove; raises Unusable where nothing could be tried, and Lost where a rank is missing."""
        if self.place is None:
            return self._run(self._opener())
        with meeting.Leader(self.place, min(meeting.COME_S, self.left())) as leader:
            own = self._system.affinity()
            self._cores = meeting.cores(self._cores, own, leader.cpus, self._ranks)
            return self._run(OnAllRanks(self._opener(), leader, self.left))

    def follow(self) -> None:
        """Do what the first rank of this node says; raises Lost where it says nothing any more."""
        assert self.place is not None
        line = meeting.join(self.place, min(meeting.COME_S, self.left()), self._system.affinity())
        try:
            follow(line, self._opener(), self.settings.budget_s)
        finally:
            line.close()
            program.close_all()

    def _run(self, opener: Opener) -> Result:
        result, settings = self.result, self.settings
        result.date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        result.machine, result.ranks, result.evidence = self._facts, self._ranks, opener.evidence
        result.limits = {"memory": self._limits.memory, "spare": self._limits.spare, "shm": self._limits.shm}
        result.rerun = rerun(settings)
        # One that hangs must not take the time of all others.
        patience = min(ANSWER_S, max(LEAST_PATIENCE_S, settings.budget_s / 5))
        bench = Bench(opener, NO_STEP, Objective(), self._heard, patience)
        self._bench = bench
        try:
            self._learn(bench, opener)
            self._search(bench)
            self._choose(bench, opener)
        except KeyboardInterrupt:
            result.status = "interrupted"
        except Gone as error:
            if not bench.rows:
                raise self._unusable(error.failure) from None
            self._stopped(str(error))
        except meeting.Lost as error:
            if not any(row.ran for row in bench.rows.values()):
                raise
            self._stopped(str(error))
        finally:
            self._end(bench)
        if result.choice is None:
            self._settle(bench)
        return result

    def _stopped(self, why: str) -> None:
        self.result.status = "stopped"
        self.result.notes.append(why)

    def _end(self, bench: Bench) -> None:
        result = self.result
        try:
            bench.close()
        except meeting.Lost as error:
            if result.status != "interrupted":  # who presses Ctrl-C ends all ranks
                result.notes.append(str(error))
        program.close_all()
        self._collect(bench)
        result.effects = undoing.merged({}, *self._effects)
        result.cost.update(budget_s=self.settings.budget_s, wall_s=time.monotonic() - self._start)

    def _collect(self, bench: Bench) -> None:
        self.result.rows = sorted(bench.rows.values(), key=lambda row: row.setting.cost)
        self.result.starts = list(bench.starts.values())

    def _unusable(self, error: Failed) -> Unusable:
        if self.settings.run:
            return Unusable(str(error))
        if error.stage in ("import", "process", "start"):
            return unusable(self._python, error)
        return Unusable(f"no loader comes of {self.settings.what}: {error}")

    # -- what is known beforehand

    def _learn(self, bench: Bench, opener: Opener) -> None:
        """What the loader is like, what it has now, and how long a step takes."""
        result = self.result
        host = bench.host()
        ready = host.ready
        self._method = str(ready["start_method"])
        try:
            facts = host.ask({"cmd": "facts", "seconds": min(FACTS_S, 0.05 * self.settings.budget_s)})
        except Failed as error:
            raise Unusable(f"the loader of {self.settings.what} cannot be read: {error}") from None
        if facts.get("size") == 0:
            raise Unusable(f"the dataset of {self.settings.what} is empty: there is nothing to load")
        options = facts["options"]
        result.software = software(ready)
        result.present = present(options, self._method)
        result.workload = {
            **{name: options.get(name) for name in ("dataset", "sampler", "batch_size", "batches", "drop_last")},
            **{name: facts[name] for name in ("size", "cpu_s", "wait_s", "variation", "sample_bytes") if name in facts},
        }
        copy_s = self._batch(bench)
        result.step = bench.step = self._step(bool(facts.get("step")), bool(ready.get("cuda")), copy_s, bench, opener)

    def _batch(self, bench: Bench) -> float:
        """Load one, since nobody knows what collating makes of samples; the seconds that its way to a device takes."""
        assert self.result.present is not None
        size, copy_s = None, 0.0
        try:
            answer = bench.host().ask({"cmd": "block", "arm": "look", "config": _look(self.result.present.pin)})
            size, copy_s = int(answer["batch_bytes"]), float(answer["copy"])
        except Failed as error:
            self.result.notes.append(f"what a batch takes is not known: {error}")
            bench.close()
        self.result.workload = {**self.result.workload, "batch_bytes": size}
        return copy_s

    def _step(self, has_step: bool, cuda: bool, copy_s: float, bench: Bench, opener: Opener) -> Mapping[str, Any]:
        """What stands for a training step between two batches, without the copy to a device, which each setting has."""
        settings = self.settings
        if settings.step_s is not None:
            return {"kind": "idle-wait", "s": settings.step_s, "source": "user"}
        if settings.factory:
            return {"kind": "real", "s": 0.0, "source": "factory"} if has_step else NO_STEP
        if settings.extract:
            return NO_STEP
        bench.close()  # one start of the program at a time
        self._show("times a step of the program", 0, 1)
        try:
            seconds = opener.step(max(1.0, min(self.left(), STEP * settings.budget_s)))
        except Failed as error:
            self.result.notes.append(f"how long a step takes is not known, the loader is timed by itself: {error}")
            return NO_STEP
        # A step on a device leaves the CPU to the workers, one without takes it from them.
        return {"kind": "idle-wait" if cuda else "cpu-spin", "s": max(0.0, seconds - copy_s), "source": "program"}

    # -- the search

    def _search(self, bench: Bench) -> None:
        result, settings = self.result, self.settings
        known = result.workload
        advised = self._advised()
        result.workload = {**known, "advised_workers": advised}
        data = Data(known["batch_bytes"], known.get("batches"), known.get("cpu_s"), known.get("wait_s"), advised)
        assert result.present is not None
        available = tuple(one for one in METHODS if one in _methods_here())
        now = result.present.method or self._method
        try:
            methods = grid.methods(settings.wanted, available, now)
        except ValueError as error:
            raise Unusable(str(error)) from None
        if settings.wanted.persistent == "off" and not settings.full:
            bench.objective = Objective(data.batches)
        device = bool(result.software.get("cuda"))
        shm = self._facts["shm_free"]
        here = Machine(self._cores, self._facts["available_memory"], shm, self._ranks, device)
        wanted = replace(settings.wanted, methods=tuple(methods))
        for number, method in enumerate(methods):
            found = grid.grid(wanted, here, data, result.present, method, full=settings.full)
            if number == 0:
                self._announce(found, settings)
            self._tried(bench, found, method, full=settings.full)
            with_workers = [row for row in bench.rows.values() if row.setting.workers]
            # Where no worker could be started in one way, another may do.
            if settings.full or not with_workers or any(row.ran for row in with_workers):
                return
            if number + 1 < len(methods):
                result.notes.append(f"no workers can be started with {method}: {with_workers[0].failure}")

    def _advised(self) -> int | None:
        """The number of workers that a formula asks for, from what was measured of samples and of a step."""
        known, step, facts = self.result.workload, self.result.step, self._facts
        dataset = DatasetFacts(
            batch_size=known.get("batch_size"),
            sample_bytes=known.get("sample_bytes"),
            cpu_s=known.get("cpu_s"),
            wait_s=known.get("wait_s"),
            variation=known.get("variation"),
            samples=known.get("size"),
            step_s=step["s"] if step.get("kind") in ("idle-wait", "cpu-spin") else None,
            start_method=self._method,
        )
        here = MachineFacts(self._cores, self._ranks, facts["available_memory"], facts["shm_free"], facts["shm_total"])
        number = recommend(dataset, here).num_workers
        return number.value if number.basis == "measured" and isinstance(number.value, int) else None

    def _announce(self, found: Grid, settings: Settings) -> None:
        result = self.result
        result.grid, result.removed = len(found), found.removed
        for line in found.removed:
            self.listener.line(line)
        looks = len(found) if settings.full or len(found) <= SMALL else 0
        how = f"all of them{f', {PASSES} times' if settings.full else ''}" if looks else "what matters most first"
        now = result.present.words if result.present else ""
        self.listener.line(f"{len(found)} settings to choose from ({how}); now it has {now}")

    def _tried(self, bench: Bench, found: Grid, method: str, *, full: bool) -> None:
        result = self.result
        assert result.present is not None
        first = result.present if full else grid.steady(result.present, method)
        evaluate = self._whole(bench) if full else bench.try_
        share = 1 - SEARCH / 4 if full else SEARCH
        hint = result.workload.get("advised_workers")
        race = Race(found.settings, evaluate, lambda: self.left(share), self._dice, first, bench.renew, hint)
        self._race = race
        try:
            race.sweep() if full else race.run()
        finally:
            result.cost["search_s"] = time.monotonic() - self._start
            if race.stopped and race.narrowed:
                result.notes.append("there was no time to try the best of them as often as would be good")
            elif race.stopped:
                result.status = "budget"
                number = f"{len(race.trials)} of {len(found)} settings had been tried"
                result.notes.append(f"the time for the search was over when {number}")

    def _whole(self, bench: Bench) -> Callable[[Setting], float]:
        """Of a full sweep: a step, and what an epoch costs with it, both as the setting has it."""

        def seconds(one: Setting) -> float:
            step = bench.try_(one)
            batches = self.result.workload.get("batches")
            if not math.isfinite(step) or batches is None:
                return step
            start = bench.start(one).seconds
            return step if start is None else Objective(batches).of(step, start)

        return seconds

    # -- the choice

    def _settle(self, bench: Bench) -> None:
        """Choose from what is known by now."""
        result = self.result
        found = choice.choose(self._race.trials) if self._race is not None else None
        if found is None or result.present is None:
            return
        result.choice = found
        setting = found.setting
        result.chosen = setting if self.settings.full else proving.as_now(setting, result.present, self._base(setting))

    def _base(self, setting: Setting) -> str:
        return setting.method or self._method

    def _choose(self, bench: Bench, opener: Opener) -> None:
        result, settings = self.result, self.settings
        self._settle(bench)
        if result.choice is None or result.chosen is None or result.present is None:
            return
        own, row = result.chosen, bench.rows[result.choice.setting]
        if own.workers and not settings.full:
            if own.method != row.setting.method:  # as it is now, no worker could be started
                own = replace(own, method=row.setting.method)
            result.chosen = self._started(bench, own, row.step_s or 0.0)
        bench.close()
        self._prove(bench, opener, result.chosen)

    def _started(self, bench: Bench, own: Setting, step_s: float) -> Setting:
        """The choice with the way to start and keep its workers that is worth having; ``own`` is the way of now."""
        result, wanted = self.result, self.settings.wanted
        batches = result.workload.get("batches")
        every = proving.ways(own, grid.methods(wanted, _methods_here(), own.method or self._method), wanted.persistent)
        for number, one in enumerate(every):
            timed = list(bench.starts.values())
            if wanted.methods is None and one.method != own.method and proving.settled(timed, step_s, batches):
                result.notes.append("other start methods are not timed: none could make an epoch 5 % cheaper")
                break
            if self.left(STARTS) < LEAST_START_S:
                result.notes.append("the time for it was over before all ways to start workers had been timed")
                break
            self._show(f"starts workers: {one.method}", number, len(every))
            bench.start(one, self.left(STARTS))  # what comes after it is the proof, which needs its time
        chosen, why = proving.kept(own, list(bench.starts.values()), step_s, batches)
        result.notes += [why] if why else []
        return chosen

    def _prove(self, bench: Bench, opener: Opener, chosen: Setting) -> None:
        result = self.result
        assert result.present is not None
        self._collect(bench)
        pair = proving.Pair(chosen, result.present, result.now, result.best, bench.starts, bench.setup_s)
        if (without := pair.without) is not None:
            result.proof = without
            return

        def listen(progress: Progress) -> None:
            self._show("compares it with what there is now", progress.round, progress.of)

        self._show("compares it with what there is now", 0, 4)
        around = self._capacity("before")
        outcome = proving.compare(pair, opener, result.step, self.left, listen, self.settings.seed)
        interrupted = outcome is not None and outcome.stopped == "interrupted"
        if outcome is not None and not interrupted:
            around += self._capacity("after")
        result.proof = proving.judged(outcome, pair, around)
        if interrupted:
            raise KeyboardInterrupt

    def _capacity(self, when: str) -> list[Guard]:
        """How much of the cores is really free; of several ranks nobody can tell by himself."""
        if self._ranks > 1 or self.left() < 2:
            return []
        usable = max(1, int(self._facts["usable_cores"]))
        return [machine.capacity_guard(machine.free_capacity(usable), usable, when)]

    # -- what is shown

    def _heard(self, row: Row) -> None:
        self._show(row.setting.short, len(self._bench.rows), max(self.result.grid, len(self._bench.rows)))

    def _show(self, doing: str, done: int, of: int) -> None:
        ran = [row for row in self._bench.rows.values() if row.ran]
        best = min(ran, key=lambda row: row.step_s or 0.0, default=None)
        self.listener.shown(Shown(doing, done, of, best, max(0.0, self.left())))


def _look(pin: bool) -> dict[str, Any]:
    return {"block": "stretch", "seconds": BLOCK_S / 4, "loader": Setting(0, pin=pin).options, "step": {"kind": "none"}}


def _methods_here() -> Sequence[str]:
    import multiprocessing

    return multiprocessing.get_all_start_methods()
