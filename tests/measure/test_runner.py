"""Rounds, looks, budgets and failures, with hosts whose blocks take what a test says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from dlcheck.measure.children import Failed
from dlcheck.measure.runner import AGAIN, MAX_EPOCHS, SLOW_S, Comparison, Group, Outcome, Runner, guards

Times = Callable[[str, int], float]  # seconds of an arm's block, by its number


class Clock:
    """Time that passes only when a block is run or a host is started."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeHost:
    """Answers like a worker; ``fails`` maps arms to what they fail with."""

    ready: Mapping[str, Any] = {"torch": "2"}

    def __init__(self, clock: Clock, times: Times, fails: Mapping[str, Failed], specs: Mapping[str, Any]) -> None:
        self.clock = clock
        self.times = times
        self.fails = fails
        self.specs = specs
        self.asked: list[str] = []
        self.configs: list[Mapping[str, Any]] = []
        self.closed = False

    def ask(self, request: Mapping[str, Any], limit_s: float = 0) -> dict[str, Any]:
        arm = request["arm"]
        if arm in self.fails:
            raise self.fails[arm]
        seconds = self.times(arm, self.asked.count(arm))
        self.asked.append(arm)
        self.configs.append(request["config"])
        self.clock.now += seconds
        return {"t": seconds, "wall": seconds, "spec": self.specs.get(arm, ["float32", 4])}

    def close(self) -> None:
        self.closed = True


class Machine:
    """Starts hosts, and remembers them."""

    def __init__(
        self,
        times: Times,
        *,
        fails: Mapping[str, Failed] | None = None,
        specs: Mapping[str, Any] | None = None,
        start_s: float = 1.0,
        shared: bool = False,
    ) -> None:
        self.clock = Clock()
        self.times = times
        self.fails = fails or {}
        self.specs = specs or {}
        self.start_s = start_s
        self.shared = shared
        self.hosts: list[FakeHost] = []

    def start(self, arms: Sequence[str]) -> Mapping[str, FakeHost]:
        self.clock.now += self.start_s
        new = [FakeHost(self.clock, self.times, self.fails, self.specs) for _ in ([1] if self.shared else arms)]
        self.hosts += new
        return dict(zip(arms, itertools.cycle(new), strict=False))

    def run(self, arms: Sequence[str] = ("A", "B"), budget_s: float = 1e6, **group: Any) -> Outcome:
        pairs = {"x": Comparison("A", "B", "ratio")}
        configs: dict[str, Mapping[str, Any]] = {arm: {"block": "epoch"} for arm in arms}
        return Runner(clock=self.clock).run(Group(configs, pairs, self.start, **group), budget_s)


def steady(a: float, b: float) -> Times:
    """Blocks that vary by a percent."""
    return lambda arm, number: (b if arm == "B" else a) * (1 + 0.01 * ((number * 7) % 3 - 1))


def test_a_clear_effect_needs_one_look() -> None:
    found = Machine(steady(1.0, 0.5)).run()
    assert (len(found.rounds), found.looks, found.stopped) == (4, 1, "")
    effect = found.effect_of(Comparison("A", "B", "ratio"))
    assert effect is not None
    assert effect.ratio == pytest.approx(0.5, rel=0.02)


def test_each_round_has_fresh_processes() -> None:
    machine = Machine(steady(1.0, 0.5))
    machine.run()
    assert len(machine.hosts) == 8
    assert all(host.closed for host in machine.hosts)
    # A warm-up and four blocks each.
    assert [len(host.asked) for host in machine.hosts] == [5] * 8


def test_the_warm_up_is_kept_but_not_counted() -> None:
    machine = Machine(lambda arm, number: 1.4 if number == 0 else 1.0)
    found = machine.run()
    assert found.rounds[0] == {"A": [1.0] * 4, "B": [1.0] * 4}
    assert [block.t for block in found.blocks if block.position < 0][:2] == [1.4, 1.4]


def test_a_group_may_do_without_warm_ups() -> None:
    machine = Machine(steady(1.0, 0.5))
    found = machine.run(warm_ups=0, blocks=1)
    assert [len(host.asked) for host in machine.hosts] == [1] * 8
    assert all(block.position >= 0 for block in found.blocks)


def test_of_slow_blocks_a_round_has_fewer() -> None:
    found = Machine(steady(3.0, 2.0)).run()
    assert [len(each["A"]) for each in found.rounds] == [2] * 4


def test_an_unclear_effect_is_looked_at_three_times() -> None:
    dice = itertools.count()
    found = Machine(lambda arm, number: 1.0 + 0.4 * ((next(dice) * 7919) % 13) / 13).run()
    assert (len(found.rounds), found.looks) == (12, 3)


def test_the_order_is_balanced() -> None:
    machine = Machine(steady(1.0, 0.5), shared=True)
    machine.run()
    for host in machine.hosts:
        timed = host.asked[2:]
        firsts = [timed[place] for place in range(0, len(timed), 2)]
        assert sorted(firsts) == ["A", "A", "B", "B"]


def test_the_time_runs_out() -> None:
    found = Machine(steady(10.0, 5.0)).run(budget_s=100.0)
    assert found.stopped == "budget"
    assert 1 < len(found.rounds) < 4


def test_no_look_is_begun_that_does_not_fit() -> None:
    dice = itertools.count()
    found = Machine(lambda arm, number: 1.0 + 0.4 * ((next(dice) * 7919) % 13) / 13).run(budget_s=70.0)
    assert (len(found.rounds), found.stopped) == (4, "budget")


def test_an_interruption_keeps_what_there_is() -> None:
    def times(arm: str, number: int) -> float:
        if len(machine.hosts) > 5:
            raise KeyboardInterrupt
        return 1.0

    machine = Machine(times)
    found = machine.run()
    assert (len(found.rounds), found.stopped) == (2, "interrupted")
    assert all(host.closed for host in machine.hosts)


@pytest.mark.parametrize("arm", ["A", "B"])
def test_an_arm_that_fails_ends_the_comparison(arm: str) -> None:
    broken = Failed("build", "AttributeError", "Can't pickle local object")
    found = Machine(steady(1.0, 0.5), fails={arm: broken}).run()
    assert found.failures == {arm: broken}
    assert found.effect_of(Comparison("A", "B", "ratio")) is None
    assert len(found.rounds) == 1


def test_arms_that_all_fail_are_told() -> None:
    broken = Failed("block", "OSError", "no such file")
    found = Machine(steady(1.0, 0.5), fails={"A": broken, "B": broken}).run()
    assert found.failures == {"A": broken, "B": broken}
    assert found.effect_of(Comparison("A", "B", "ratio")) is None


@pytest.mark.parametrize("rounds", [0, 2])
def test_a_program_that_starts_no_more_is_told(rounds: int) -> None:
    machine = Machine(steady(1.0, 0.5))

    def start(arms: Sequence[str]) -> Mapping[str, FakeHost]:
        if len(machine.hosts) >= 2 * rounds:
            raise Failed("program", "", "FileExistsError: run1")
        return machine.start(arms)

    pairs = {"x": Comparison("A", "B", "ratio")}
    group = Group({"A": {"block": "epoch"}, "B": {"block": "epoch"}}, pairs, start)
    found = Runner(clock=machine.clock).run(group, 1e6)
    assert "run1" in str(found.failures["A"])
    assert len(found.rounds) == rounds


def test_a_control_that_fails_ends_nothing() -> None:
    found = Machine(steady(1.0, 0.5), fails={"one thread": Failed("build", "", "no")}).run(["A", "B", "one thread"])
    assert len(found.rounds) == 4
    assert found.effect_of(Comparison("A", "B", "ratio")) is not None


def test_the_noise_is_that_of_a_against_itself() -> None:
    found = Machine(steady(1.0, 0.5)).run(["A", AGAIN, "B"])
    noise = found.noise("A")
    assert noise is not None
    assert noise.ratio == pytest.approx(1.0, abs=0.02)
    assert noise.ci[0] <= 1 <= noise.ci[1]


def test_blocks_grow_until_the_clock_sees_them() -> None:
    machine = Machine(lambda arm, number: 0.01)
    found = machine.run(sized="epochs")
    assert found.configs["A"]["epochs"] == MAX_EPOCHS
    assert machine.hosts[-1].configs[-1]["epochs"] == MAX_EPOCHS


def test_but_not_for_an_arm_that_is_far_faster() -> None:
    found = Machine(steady(0.5, 0.001)).run(sized="epochs")
    assert found.configs["A"]["epochs"] == 2


def test_long_blocks_stay_as_they_are() -> None:
    assert Machine(steady(2.0, 1.0)).run(sized="epochs").configs["A"] == {"block": "epoch"}


def test_a_program_that_takes_long_to_start_is_started_once() -> None:
    machine = Machine(steady(1.0, 0.5), start_s=SLOW_S + 1, shared=True)
    found = machine.run(one_process=True)
    assert (found.units, len(machine.hosts), len(found.rounds)) == ("blocks", 1, 1)
    effect = found.effect_of(Comparison("A", "B", "ratio"))
    assert effect is not None
    assert (effect.units, effect.n_units) == ("blocks", 12)
    (start,) = [one for one in guards(Group({}, {}), found, Comparison("A", "B", "ratio"), None) if one.name == "start"]
    assert (start.status, "blocks of one process are counted" in start.detail) == ("warn", True)


def test_other_batches_fail() -> None:
    machine = Machine(steady(1.0, 0.5), specs={"B": ["float32", 8]})
    found = machine.run()
    group = Group({}, {}, machine.start)
    statuses = {one.name: one.status for one in guards(group, found, Comparison("A", "B", "ratio"), None)}
    assert statuses["same-batches"] == "fail"


def test_first_blocks_that_stand_out_are_told() -> None:
    late = Outcome(rounds=[{"A": [5.0, 1.0, 1.01, 1.02], "B": [1.0, 1.0, 1.0, 1.0]}] * 4)
    told = {one.name: one for one in guards(Group({}, {}), late, Comparison("A", "B", "ratio"), None)}
    assert told["warm-up"].status == "warn"
    assert "A" in told["warm-up"].detail


def test_a_loader_that_is_slow_twice_is_warmed_up_twice() -> None:
    """The first round shows it; the later ones do not count what it is about."""
    machine = Machine(lambda arm, number: 5.0 if number == 1 and arm == "A" else 1.0 + 0.01 * number)
    found = machine.run()
    assert 5.0 in found.rounds[0]["A"]
    assert all(5.0 not in each["A"] for each in found.rounds[1:])
    told = {one.name: one for one in guards(Group({}, {}, machine.start), found, Comparison("A", "B", "ratio"), None)}
    assert told["warm-up"].status == "pass"


def test_the_same_seed_gives_the_same_order() -> None:
    def orders(seed: int) -> list[list[str]]:
        machine = Machine(steady(1.0, 0.5), shared=True)
        pairs = {"x": Comparison("A", "B", "ratio")}
        group = Group({"A": {"block": "epoch"}, "B": {"block": "epoch"}}, pairs, machine.start)
        Runner(seed, clock=machine.clock).run(group, 1e6)
        return [host.asked for host in machine.hosts]

    assert orders(1) == orders(1)
    assert any(orders(1) != orders(seed) for seed in range(2, 6))
