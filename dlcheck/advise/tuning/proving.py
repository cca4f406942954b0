"""How the chosen workers are started and kept, and the proof: a fresh comparison with what there is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlcheck.advise.tuning.bounds import PASSED
from dlcheck.advise.tuning.choice import MARGIN
from dlcheck.advise.tuning.hosts import Opener
from dlcheck.advise.tuning.result import Proof, Row, Start
from dlcheck.advise.tuning.setting import Setting, made
from dlcheck.advise.tuning.trying import starting, stretch
from dlcheck.measure import verdict
from dlcheck.measure.children import Host
from dlcheck.measure.lockstep import Left
from dlcheck.measure.record import Effect, Guard, Metric
from dlcheck.measure.runner import SLOW_S, Comparison, Group, Listener, Outcome, Runner, guards
from dlcheck.measure.statistics import LOOKS
from dlcheck.measure.words import quantity
from dlcheck.measure.workload import side_by_side

BLOCK_S = 0.5
BLOCKS = 3  # timed blocks of each arm in a round, after one that is not
STEP = Metric("step", "s/step", "ratio")
START = Metric("start of an epoch", "s/epoch", "additive")
ONE_THREAD = "one thread"
WORTH = 0.5  # of the gain: what one thread alone gives more of is not the workers'


def as_now(chosen: Setting, now: Setting, method: str) -> Setting:
    """What is chosen, with workers started and kept as they are now; ``method`` where there are none now."""
    return made(chosen.workers, chosen.prefetch, chosen.pin, now.persistent, now.method or method)


def ways(own: Setting, methods: Sequence[str], persistent: str) -> list[Setting]:
    """The ways to start and keep workers that are worth timing; that of now first."""
    kinds = {"on": (True,), "off": (False,)}.get(persistent, (False, True))
    found = [replace(own, method=method, persistent=kind) for method in methods for kind in kinds]
    return sorted(found, key=lambda one: (one.method != own.method, one != own))


def settled(starts: Sequence[Start], step_s: float, batches: int | None) -> bool:
    """Whether no start of workers could make an epoch cheaper by more than nobody minds, not even one for nothing."""
    known = [one.seconds for one in starts if one.seconds is not None]
    return bool(known) and batches is not None and min(known) <= MARGIN * (batches - 1) * step_s


def kept(own: Setting, starts: Sequence[Start], step_s: float, batches: int | None) -> tuple[Setting, str]:
    """How the chosen workers are to be started and kept, and why: as now, unless an epoch is clearly cheaper otherwise.

    An epoch costs its start, and for each batch but the first a step.  Where nobody knows how many batches it has,
    nothing is changed, and what a start costs is said.
    """
    known = {one.setting: one.seconds for one in starts if one.seconds is not None}
    if not known:
        return own, ""
    if batches is None:
        taken = own if own in known else min(known, key=lambda one: (one.method != own.method, known[one]))
        return taken, "how many batches an epoch has is not known: weigh what a start costs by yourself"
    cost = {one: start + (batches - 1) * step_s for one, start in known.items()}
    least = min(cost.values())

    def order(one: Setting) -> tuple[bool, bool, float]:
        return one != own, one.method != own.method, cost[one]

    taken = min((one for one in cost if cost[one] <= least * (1 + MARGIN)), key=order)
    if taken == own:
        return own, f"no other way to start workers makes an epoch of {batches} batches {100 * MARGIN:.0f} % cheaper"
    gain = f", {quantity(cost[own] - cost[taken], 's')} less in each epoch" if own in cost else ""
    return taken, f"with {_how(taken)} the start of an epoch takes {quantity(known[taken], 's')}{gain}"


def _how(one: Setting) -> str:
    return f"{one.method} and workers that {'stay' if one.persistent else 'do not stay'}"


# The proof


@dataclass(frozen=True)
class Pair:
    """What is chosen, and what the loader has now.

    ``row`` and ``chosen_row`` are what was tried of both, ``starts`` what was timed of epochs' starts; ``setup_s`` is
    what it takes to start the processes.
    """

    chosen: Setting
    now: Setting
    row: Row | None
    chosen_row: Row | None
    starts: Mapping[Setting, Start]
    setup_s: float

    @property
    def metric(self) -> Metric:
        """A step, unless only the start of an epoch differs."""
        return STEP if self.chosen.short != self.now.short else START

    @property
    def block_s(self) -> float:
        """Seconds that a block of the slower of them takes, with all that is not timed in it."""
        if self.metric is STEP:
            rows = [row for row in (self.row, self.chosen_row) if row is not None]
            return max((row.wall_s for row in rows), default=0.0) + BLOCK_S
        known = [one for one in (self.starts.get(self.now), self.starts.get(self.chosen)) if one is not None]
        return BLOCK_S + max(((one.once or 0.0) + (one.seconds or 0.0) for one in known), default=0.0)

    def round_s(self, arms: int) -> float:
        """Seconds that a round takes: processes start side by side, blocks come one after the other."""
        return self.setup_s * arms / 2 + arms * (BLOCKS + 1) * self.block_s

    @property
    def without(self) -> Proof | None:
        """What is to be said where there is nothing to compare."""
        if self.chosen == self.now:
            return Proof("refuted-no-effect", "it is what the loader has now: nothing is to be changed")
        if self.row is not None and self.row.failure:
            return Proof("not-measurable-here", f"what the loader has now does not run: {self.row.failure}")
        return None


def compare(
    pair: Pair, opener: Opener, step: Mapping[str, Any], left: Left, listen: Listener, seed: int
) -> Outcome | None:
    """Both, in rounds of fresh processes, as long as there is time; None where there is none for a single round."""
    steps = pair.metric is STEP
    arms = {
        name: stretch(one, step, BLOCK_S) if steps else starting(one, step)
        for name, one in (("A", pair.now), ("B", pair.chosen))
    }
    # Workers have one thread each: what that alone is worth must not be booked to them.
    wanted = steps and not pair.now.workers and pair.chosen.workers and not opener.one_process
    if wanted and LOOKS[0] * pair.round_s(len(arms) + 1) < left():
        arms[ONE_THREAD] = {**arms["A"], "threads": 1}
    spare = left() - pair.round_s(len(arms))  # a round that has begun is finished
    if spare <= 0:
        return None

    def hosts(names: Sequence[str]) -> Mapping[str, Host]:
        return _opened(names, opener)

    comparisons = {"choice": _compared(pair.metric)}
    group = Group(arms, comparisons, hosts, blocks=BLOCKS, one_process=opener.one_process)
    return Runner(seed, _looks(pair, opener, left())).run(group, spare, listen)


def _compared(metric: Metric, other: str = "B") -> Comparison:
    return Comparison("A", other, metric.kind)


def _opened(names: Sequence[str], opener: Opener) -> Mapping[str, Host]:
    if opener.one_process:
        return dict.fromkeys(names, opener.open())
    return side_by_side(names, opener.open)


def _looks(pair: Pair, opener: Opener, left_s: float) -> tuple[int, ...]:
    """When it may be decided; blocks of one process come in one go, no more of them than there is time for."""
    if not opener.one_process or pair.setup_s <= SLOW_S:
        return LOOKS
    fit = int((left_s - pair.setup_s) / (2 * pair.block_s)) - 1
    return (max(2, min(LOOKS[-1], fit)),)


def judged(outcome: Outcome | None, pair: Pair, around: Sequence[Guard]) -> Proof:
    """The verdict on what the rounds have shown, capped by its guards."""
    metric = pair.metric
    if outcome is None:
        return Proof("inconclusive", "no time (--budget) was left to compare them", metric)
    found = outcome.effect_of(_compared(metric))
    checks = [*around, *guards(Group(outcome.configs, {}), outcome, _compared(metric), None)]
    if found is None:
        failure = next((outcome.failures[arm] for arm in ("B", "A") if arm in outcome.failures), None)
        if failure is not None and failure.kind != "Timeout" and failure.stage != PASSED:
            arm = "what is chosen" if "B" in outcome.failures else "what the loader has now"
            return Proof("error", f"{arm} could not be run again: {failure}", metric, guards=checks)
        return Proof("inconclusive", "the time was over before two rounds were done", metric, guards=checks)
    plain = verdict.judge(found, metric.kind, None)
    reason = verdict.reason(plain, found, metric.kind, None, metric.name)
    controls = _controls(outcome, metric)
    failed = next((guard for guard in checks if guard.status == "fail"), None)
    if found.n_units < LOOKS[0]:
        plain, reason = "inconclusive", f"only {found.n_units} {found.units} fitted into the time; {_figures(reason)}"
    elif failed is not None:
        plain, reason = verdict.capped(plain, checks), f"{failed.detail}; {_figures(reason)}"
    elif plain == "confirmed":
        for name, effect in controls.items():
            share = verdict.explained_by(effect, found)
            if share > WORTH:
                told = f"{name} alone gives {share:.0%} of it (B/A {effect.ratio:.2f})"
                plain, reason = "inconclusive", f"{told}: it is the program's threads, not its workers; {reason}"
    return Proof(plain, reason, metric, found, controls, checks)


def _figures(reason: str) -> str:
    return reason.rpartition("; ")[2]


def _controls(outcome: Outcome, metric: Metric) -> dict[str, Effect]:
    known = outcome.effect_of(_compared(metric, ONE_THREAD)) if ONE_THREAD in outcome.configs else None
    return {ONE_THREAD: known} if known is not None else {}
