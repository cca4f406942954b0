"""Rounds of fresh processes: arms taken in turn, looked at three times, stopped when a verdict is reached.

All comparisons of a group share their rounds: what is written is timed once for several suggestions,
and once more beside itself, which tells how much of any difference is this machine's noise.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dlcheck.measure import verdict
from dlcheck.measure.children import Failed, Host
from dlcheck.measure.machine import Pressure
from dlcheck.measure.record import Block, Effect, Guard, Kind, MemoryPoint, Noise
from dlcheck.measure.statistics import BLOCKS, LEVEL, LOOK_LEVEL, LOOKS, Round, order

SLOW_BLOCK_S = 1.5  # of blocks that take longer a round has fewer: rounds are what is counted
FEW_BLOCKS = 2  # one of memory, which hardly differs from block to block
SLOW_S = 10.0  # a start that takes longer is made but once: then blocks are the units
AGAIN = "A again"  # the arm that is A once more
REPLAY = "replay"  # the arm of an ideal loader: a few real batches again and again
BLOCK_S = 0.25  # a block takes this long at least: less is the clock's and the scheduler's
LONG_BLOCK_S = 1.0  # and not much longer than this for the sake of an arm that is far faster
MAX_EPOCHS = 16
HANG_S = 60.0  # beyond the budget: then a block hangs
MAX_BATCHES = 2_000
MAX_WARM_UPS = 3

Config = Mapping[str, Any]


@dataclass
class Fed:
    """What one run of a program gave whose loop was fed from the arms in turn."""

    blocks: list[Block] = field(default_factory=list)
    specs: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, Failed] = field(default_factory=dict)
    ready: Mapping[str, Any] = field(default_factory=dict)
    side_effects: Mapping[str, Any] = field(default_factory=dict)
    setup_s: float = 0.0


Feed = Callable[[Mapping[str, Config], int, int, float], Fed]  # arms, blocks of each, number of the round, seconds
Hosts = Callable[[Sequence[str]], Mapping[str, Host]]  # one for each arm; the same for several where they share it


@dataclass(frozen=True)
class Comparison:
    """Two arms of a group, and on what scale they are compared."""

    a: str
    b: str
    kind: Kind


@dataclass(frozen=True)
class Group:
    """Arms that are measured together.

    ``comparisons`` by name; ``sized`` is what may grow until a block is long enough: ``epochs`` or
    ``batches``, or nothing.  ``hosts`` starts what runs the arms: anew for each round, unless starting it
    takes long and they are in ``one_process``.  ``warm_ups`` is how many blocks of each arm a round
    begins with that do not count.  ``feed`` is there instead where the program's own loop is timed.
    """

    arms: Mapping[str, Config]
    comparisons: Mapping[str, Comparison]
    hosts: Hosts | None = None
    feed: Feed | None = None
    sized: str = ""
    blocks: int = BLOCKS
    warm_ups: int = 1
    one_process: bool = False

    @property
    def names(self) -> list[str]:
        return list(self.arms)


@dataclass
class Outcome:
    """What the rounds of a group gave."""

    rounds: list[dict[str, list[float]]] = field(default_factory=list)  # by arm
    blocks: list[Block] = field(default_factory=list)
    memory: list[MemoryPoint] = field(default_factory=list)
    specs: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, Failed] = field(default_factory=dict)  # arms that could not be built or run
    ready: Mapping[str, Any] = field(default_factory=dict)
    facts: list[Mapping[str, Any]] = field(default_factory=list)  # what an experiment calibrated, by round
    configs: dict[str, Config] = field(default_factory=dict)  # as sized
    looks: int = 0
    turns: int = 0  # blocks of each arm in a round, where these are fewer than the group says
    warm_ups: int = 1  # blocks of each arm at the start of a round that do not count
    units: Literal["rounds", "blocks"] = "rounds"
    side_effects: Mapping[str, Any] | None = None
    setup_s: float = 0.0
    wall_s: float = 0.0
    psi: float | None = None
    stopped: str = ""  # why there are fewer rounds than were needed: budget, interrupted

    def effect_of(self, one: Comparison, level: float | None = None) -> Effect | None:
        """What is known of a comparison; None before two rounds."""
        pairs = [Round(each[one.a], each[one.b]) for each in self.rounds if each.get(one.a) and each.get(one.b)]
        if self.units == "blocks":
            pairs = [Round([a], [b]) for pair in pairs for a, b in zip(pair.a, pair.b, strict=False)]
            return verdict.effect_of_blocks(pairs) if len(pairs) >= 2 else None
        if len(pairs) < 2:
            return None
        return verdict.effect(pairs, self.looks, LOOK_LEVEL if level is None else level)

    def noise(self, a: str) -> Noise | None:
        """Of A against itself."""
        found = self.effect_of(Comparison(a, AGAIN, "ratio"), LEVEL)
        return verdict.noise_of(found) if found is not None else None


@dataclass(frozen=True)
class Progress:
    """Where a measurement is: rounds done and needed at most, the effects so far, seconds left by now."""

    round: int
    of: int
    effects: Mapping[str, Effect]
    left_s: float | None


Listener = Callable[[Progress], None]


class Runner:
    """Runs groups; keeps the dice, so that a seed gives the same orders again."""

    def __init__(self, seed: int = 0, looks: Sequence[int] = LOOKS, clock: Callable[[], float] = time.perf_counter):
        self.dice = random.Random(seed)
        self.looks = tuple(looks)
        self.clock = clock
        self._deadline = 0.0
        self._walls: dict[str, float] = {}  # seconds that the latest warm-up of each arm took

    def run(
        self, group: Group, budget_s: float, listen: Listener = lambda progress: None, noise: Noise | None = None
    ) -> Outcome:
        """Measure a group until every comparison has its verdict, or the time is up.

        ``noise`` is that of an earlier A/A of the same kind of block, where this group has none of its own.
        """
        outcome = Outcome(configs=dict(group.arms), warm_ups=group.warm_ups)
        self._walls.clear()
        start = self.clock()
        self._deadline = start + budget_s
        watch = Pressure()
        try:
            self._rounds(group, outcome, start, budget_s, listen, noise)
        except KeyboardInterrupt:
            outcome.stopped = "interrupted"
        outcome.wall_s = self.clock() - start
        outcome.psi = watch.share()
        return outcome

    def _rounds(
        self,
        group: Group,
        outcome: Outcome,
        start: float,
        budget_s: float,
        listen: Listener,
        noise: Noise | None,
    ) -> None:
        for look in self.looks:
            needed = look - len(outcome.rounds)
            if outcome.rounds:
                each = (self.clock() - start) / len(outcome.rounds)
                if self.clock() - start + needed * each > budget_s:
                    outcome.stopped = "budget"
                    return
            for _ in range(needed):
                if outcome.rounds and self.clock() - start > budget_s:
                    outcome.stopped = "budget"
                    return
                if group.feed is None:
                    self._round(group, outcome)
                else:
                    self._fed_round(group, group.feed, outcome, budget_s - (self.clock() - start))
                if outcome.units == "blocks" and (group.feed is None or len(outcome.rounds) > 1):
                    outcome.looks = 1
                    return
                if not self._pairs_left(group, outcome):
                    return
                listen(self._progress(group, outcome, start, look))
            outcome.looks += 1
            if self._all_final(group, outcome, noise):
                return

    def _pairs_left(self, group: Group, outcome: Outcome) -> bool:
        gone = outcome.failures
        return any(one.a not in gone and one.b not in gone for one in group.comparisons.values())

    def _all_final(self, group: Group, outcome: Outcome, noise: Noise | None) -> bool:
        for one in group.comparisons.values():
            found = outcome.effect_of(one)
            if found is None:
                continue
            own = (outcome.noise(one.a) if AGAIN in group.arms else None) or noise
            if not verdict.is_final(verdict.judge(found, one.kind, own), len(outcome.rounds), self.looks):
                return False
        return True

    def _progress(self, group: Group, outcome: Outcome, start: float, look: int) -> Progress:
        known = {name: outcome.effect_of(one) for name, one in group.comparisons.items()}
        number = len(outcome.rounds)
        left = (self.clock() - start) / number * (look - number)
        return Progress(number, look, {name: found for name, found in known.items() if found is not None}, left)

    # One round

    def _fed_round(self, group: Group, feed: Feed, outcome: Outcome, left_s: float) -> None:
        """One run of the program; where it takes long to start, the second run gives all that is still wanted."""
        number = len(outcome.rounds)
        arms = {arm: config for arm, config in outcome.configs.items() if arm not in outcome.failures}
        turns = group.blocks if outcome.units == "rounds" else max(1, self.looks[-1] - group.blocks)
        fed = feed(arms, turns, number, left_s)
        outcome.setup_s += fed.setup_s
        if number == 0 and fed.setup_s > SLOW_S:
            outcome.units = "blocks"
        outcome.blocks += fed.blocks
        outcome.failures.update(fed.failures)
        outcome.specs = outcome.specs or fed.specs
        outcome.ready = outcome.ready or fed.ready
        outcome.side_effects = outcome.side_effects or fed.side_effects
        times = {arm: [block.t for block in fed.blocks if block.arm == arm] for arm in arms}
        outcome.rounds.append({arm: each for arm, each in times.items() if each and arm not in outcome.failures})

    def _round(self, group: Group, outcome: Outcome) -> None:
        try:
            self._asked_round(group, outcome)
        except Failed as error:  # what holds the arms could not be started, this time or at all
            outcome.failures.setdefault(group.names[0], error)

    def _asked_round(self, group: Group, outcome: Outcome) -> None:
        number = len(outcome.rounds)
        arms = [arm for arm in group.names if arm not in outcome.failures]
        with self._hosts(group, arms, outcome) as hosts:
            for _ in range(outcome.warm_ups):
                for arm in arms:
                    if arm not in outcome.failures:
                        self._try(arm, hosts, outcome, number, -1)
            if number == 0:
                self._size(group, outcome, hosts)
                if max(self._walls.values(), default=0.0) > SLOW_BLOCK_S:
                    steady = all(one.kind == "memory" for one in group.comparisons.values())
                    outcome.turns = min(group.blocks, 1 if steady else FEW_BLOCKS)
            alive = [arm for arm in arms if arm not in outcome.failures]
            if not alive:
                outcome.rounds.append({})
                return
            times: dict[str, list[float]] = {arm: [] for arm in alive}
            turns = outcome.turns or group.blocks
            if number == 0 and group.one_process and outcome.setup_s > SLOW_S:
                outcome.units = "blocks"
                turns = self.looks[-1]
            for position, turn in enumerate(order(alive, turns, self.dice)):
                for arm in turn:
                    if arm not in outcome.failures:
                        times[arm] += self._try(arm, hosts, outcome, number, position)
        if any(_first_stands_out([each]) for each in times.values()):
            outcome.warm_ups = min(MAX_WARM_UPS, outcome.warm_ups + 1)
        outcome.rounds.append({arm: each for arm, each in times.items() if arm not in outcome.failures})

    @contextlib.contextmanager
    def _hosts(self, group: Group, arms: Sequence[str], outcome: Outcome) -> Iterator[dict[str, Host]]:
        started = self.clock()
        launched = list(arms)
        self.dice.shuffle(launched)
        assert group.hosts is not None
        hosts = dict(group.hosts(launched))
        outcome.setup_s += self.clock() - started
        ready = next(iter(hosts.values())).ready
        outcome.ready = outcome.ready or ready
        outcome.facts += [ready["facts"]] if "facts" in ready else []
        try:
            yield hosts
        finally:
            for host in {id(host): host for host in hosts.values()}.values():
                host.close()
                outcome.side_effects = getattr(host, "side_effects", None) or outcome.side_effects

    def _size(self, group: Group, outcome: Outcome, hosts: dict[str, Host]) -> None:
        """Let every block be as long as the fastest arm needs it to be; then warm up once more."""
        if not group.sized or not self._walls:
            return
        shortest, longest = min(self._walls.values()), max(self._walls.values())
        factor = min(BLOCK_S / max(shortest, 1e-6), LONG_BLOCK_S / max(longest, 1e-6))
        if factor <= 1:
            return
        for arm, config in list(outcome.configs.items()):
            outcome.configs[arm] = _grown(config, group.sized, factor)
        for arm in list(hosts):
            if arm not in outcome.failures:
                self._try(arm, hosts, outcome, 0, -1)

    def _try(self, arm: str, hosts: dict[str, Host], outcome: Outcome, number: int, position: int) -> list[float]:
        """One block of an arm; an arm that fails is out. Position -1 is a warm-up, which is kept but not counted."""
        watch = Pressure()
        try:
            limit = max(0.0, self._deadline - self.clock()) + HANG_S
            answer = hosts[arm].ask({"cmd": "block", "arm": arm, "config": dict(outcome.configs[arm])}, limit)
        except Failed as error:
            outcome.failures[arm] = error
            return []
        if not answer.get("ok", True):
            sums = f"the sum is {answer.get('sum')}, and not {answer.get('expected')}"
            outcome.failures[arm] = Failed("block", "", f"the device did not read the bytes that it was sent: {sums}")
            return []
        outcome.specs.setdefault(arm, answer.get("spec"))
        seconds = float(answer["t"])
        if position < 0:
            self._walls[arm] = float(answer.get("wall", seconds))
        known = {name: answer.get(name) for name in ("wait", "first", "copy", "compute", "cpu")}
        outcome.blocks.append(Block(number, arm, position, seconds, psi=watch.share(), **known))
        outcome.memory += [MemoryPoint(arm, number, *point) for point in answer.get("points", ())]
        return [seconds]


def _grown(config: Config, what: str, factor: float) -> Config:
    if what == "epochs":
        return {**config, "epochs": min(MAX_EPOCHS, max(1, round(factor)))}
    return {**config, "batches": min(MAX_BATCHES, max(1, round(config.get("batches", 16) * factor)))}


def guards(group: Group, outcome: Outcome, one: Comparison, noise: Noise | None) -> list[Guard]:
    """What else must hold for a comparison to mean what it seems to mean."""
    return [_same_batches(outcome, one), _warm(outcome, one), _aa(noise), *_started_once(outcome)]


def _same_batches(outcome: Outcome, one: Comparison) -> Guard:
    a, b = outcome.specs.get(one.a), outcome.specs.get(one.b)
    if a is None or b is None:
        return Guard("same-batches", "skipped", "an arm gave no batch")
    same = a == b
    return Guard("same-batches", "pass" if same else "fail", "" if same else f"A's first batch is {a}, B's {b}")


def _started_once(outcome: Outcome) -> list[Guard]:
    if outcome.units == "rounds":
        return []
    why = f"a start takes more than {SLOW_S:.0f} s: blocks of one process are counted, and the margin is doubled"
    return [Guard("start", "warn", why)]


def _warm(outcome: Outcome, one: Comparison) -> Guard:
    """Whether the first timed blocks stand out from the rest: then one warm-up was not enough."""
    late = [arm for arm in (one.a, one.b) if _first_stands_out([each.get(arm, []) for each in outcome.rounds])]
    return Guard("warm-up", "warn" if late else "pass", f"first blocks of {', '.join(late)} stand out" if late else "")


def _first_stands_out(rounds: Sequence[Sequence[float]]) -> bool:
    outliers = 0
    for each in rounds:
        rest = sorted(each[1:])
        if len(rest) >= 3:
            low, high = rest[0], rest[-1]
            outliers += each[0] > max(high + 1.5 * (high - low), high * (1 + verdict.EQUIVALENCE))
    return outliers * 2 > len(rounds)


def _aa(noise: Noise | None) -> Guard:
    if noise is None:
        return Guard(verdict.AGAINST_ITSELF, "skipped", "not measured")
    return verdict.guard_of(noise)
