"""Settings that are tried on processes that fail in every way, and what the proof makes of rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dlcheck.advise.tuning.bounds import PASSED
from dlcheck.advise.tuning.proving import ONE_THREAD, STEP, Pair, compare, judged
from dlcheck.advise.tuning.result import Row
from dlcheck.advise.tuning.setting import Setting, made
from dlcheck.advise.tuning.trying import Bench, Gone, Objective
from dlcheck.measure.children import Failed
from dlcheck.measure.record import Guard, Verdict
from dlcheck.measure.runner import Outcome

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]


def block(t: float = 0.1) -> dict[str, Any]:
    held = {"pss": 1, "workers": 1, "parent": 1, "shm": 1}
    return {"t": t, "wait": t / 2, "first": 0.2, "once": 0.3, "memory": held, "wall": 0.5, "spec": ["x"]}


class Host:
    ready: Mapping[str, Any] = {"setup_s": 0.1}

    def __init__(self, answer: Answer) -> None:
        self.answer, self.closed = answer, False

    def ask(self, request: Mapping[str, Any], limit_s: float = 1.0) -> dict[str, Any]:
        return self.answer(request["config"])

    def close(self) -> None:
        self.closed = True


class Opener:
    evidence: Any = "factory"

    def __init__(self, answer: Answer = lambda config: block(), starts: int = 100, one_process: bool = False) -> None:
        self.answer, self.starts, self.one_process = answer, starts, one_process
        self.hosts: list[Host] = []

    def open(self, port: int = 0) -> Host:
        if len(self.hosts) == self.starts:
            raise Failed("source", "OSError", "no such file")
        self.hosts.append(Host(self.answer))
        return self.hosts[-1]

    def step(self, limit_s: float, port: int = 0) -> float:
        return 0.0


def bench(opener: Opener, objective: Objective | None = None) -> Bench:
    return Bench(opener, {"kind": "none"}, objective or Objective())


def raising(error: Failed, when: Callable[[Mapping[str, Any]], bool] = lambda config: True) -> Answer:
    def answer(config: Mapping[str, Any]) -> dict[str, Any]:
        if when(config):
            raise error
        return block()

    return answer


def test_what_ran_is_a_row() -> None:
    tried = bench(Opener())
    assert tried.try_(Setting(0)) == 0.1
    row = tried.rows[Setting(0)]
    assert (row.blocks, row.waiting, row.ran) == ([0.1], 0.5, True)


def test_an_epoch_pays_for_its_start_where_workers_do_not_stay() -> None:
    assert bench(Opener(), Objective(11)).try_(Setting(0)) == pytest.approx((0.2 + 10 * 0.1) / 11)


@pytest.mark.parametrize(
    ("error", "lives"),
    [
        (Failed("block", "RuntimeError", "worker is killed"), True),
        (Failed("build", "AttributeError", "Can't pickle"), True),
        (Failed("process", "", "the process ended by SIGKILL"), False),
        (Failed("block", "Timeout", "no answer for 60 s"), False),
        (Failed(PASSED, "", "stopped: it took 3 GB"), False),
    ],
)
def test_what_fails_is_a_row_and_the_next_has_a_process(error: Failed, lives: bool) -> None:
    opener = Opener(raising(error, lambda config: config["loader"]["num_workers"] == 2))
    tried = bench(opener)
    assert math.isinf(tried.try_(made(2, 2, False, method="fork")))
    assert tried.rows[made(2, 2, False, method="fork")].failure == str(error)
    assert opener.hosts[0].closed is not lives
    assert tried.try_(Setting(0)) == 0.1
    assert len(opener.hosts) == (1 if lives else 2)


def test_a_process_that_does_not_come_back_ends_it() -> None:
    tried = bench(Opener(raising(Failed("process", "", "gone")), starts=1))
    assert math.isinf(tried.try_(Setting(0)))
    with pytest.raises(Gone, match="no such file"):
        tried.try_(made(1, 2, False))


def test_what_takes_more_than_what_took_too_much_is_left_out() -> None:
    opener = Opener(
        raising(Failed(PASSED, "", "stopped: it took 3 GB"), lambda config: config["loader"]["num_workers"] > 1)
    )
    tried = bench(opener)
    tried.try_(made(2, 4, False, method="fork"))
    for one, left_out in ((made(4, 2, False, method="fork"), True), (made(2, 2, False, method="fork"), False)):
        tried.try_(one)
        assert tried.rows[one].failure.startswith("left out") is left_out


def test_what_fails_twice_alike_is_not_tried_a_third_time() -> None:
    broken = raising(
        Failed("build", "AttributeError", "Can't pickle"), lambda config: config["loader"]["num_workers"] > 0
    )
    tried = bench(Opener(broken))
    for number in (1, 2, 3):
        tried.try_(made(number, 2, False, method="spawn"))
    assert [row.failure.startswith("left out") for row in tried.rows.values()] == [False, False, True]
    tried.try_(made(3, 2, False, method="fork"))  # another method is another matter
    assert not tried.rows[made(3, 2, False, method="fork")].failure.startswith("left out")


def test_a_start_is_asked_once_and_may_fail() -> None:
    answers = iter([block(0.3)])
    tried = bench(Opener(lambda config: next(answers)))
    one = made(1, 2, False, method="fork")
    assert tried.start(one).seconds == tried.start(one).seconds == 0.3
    failing = bench(Opener(raising(Failed("block", "OSError", "no"))))
    assert failing.start(one).failure == "OSError: no"


# The proof

TWO = made(2, 2, False, False, "fork")


def pair(now: Setting = Setting(0), chosen: Setting = TWO, row: Row | None = None) -> Pair:  # noqa: B008 -- frozen
    return Pair(chosen, now, row, None, {}, 0.1)


def proven(
    now_s: float, chosen_s: float, guards: tuple[Guard, ...] = (), thread_s: float | None = None, left: float = 1e6
) -> tuple[Verdict, str]:
    dice = iter(range(1000))

    def answer(config: Mapping[str, Any]) -> dict[str, Any]:
        noise = 1 + 0.002 * (next(dice) % 5)
        if config.get("threads"):
            return block((thread_s or now_s) * noise)
        return block((chosen_s if config["loader"]["num_workers"] else now_s) * noise)

    outcome = compare(pair(), Opener(answer), {"kind": "none"}, lambda: left, lambda progress: None, 0)
    found = judged(outcome, pair(), guards)
    return found.verdict, found.reason


def test_a_gain_is_confirmed() -> None:
    assert proven(0.1, 0.06)[0] == "confirmed"
    assert proven(0.06, 0.1)[0] == "refuted-harmful"
    assert proven(0.1, 0.1)[0] == "refuted-no-effect"


def test_threads_are_not_sold_as_workers() -> None:
    judged_, reason = proven(0.1, 0.06, thread_s=0.062)
    assert judged_ == "inconclusive"
    assert f"{ONE_THREAD} alone gives" in reason


def test_a_guard_that_fails_caps_the_verdict() -> None:
    judged_, reason = proven(0.1, 0.06, (Guard("capacity-before", "fail", "1.00 of 2 cores were free before"),))
    assert judged_ == "inconclusive"
    assert reason.startswith("1.00 of 2 cores were free before")


def test_without_time_nothing_is_compared() -> None:
    assert proven(0.1, 0.06, left=0.5) == ("inconclusive", "no time (--budget) was left to compare them")


def test_rounds_that_are_missing_leave_it_open() -> None:
    outcome = Outcome(configs={"A": {}, "B": {}}, rounds=[{"A": [0.1], "B": [0.05]}])
    assert judged(outcome, pair(), ()).reason == "the time was over before two rounds were done"
    outcome.rounds.append({"A": [0.1], "B": [0.0501]})
    found = judged(outcome, pair(), ())
    assert found.verdict == "inconclusive"
    assert found.reason.startswith("only 2 rounds fitted into the time")
    assert found.metric == STEP


def test_what_fails_in_the_proof_is_said() -> None:
    outcome = Outcome(configs={"A": {}, "B": {}}, failures={"B": Failed("block", "OSError", "no")})
    assert judged(outcome, pair(), ()).reason == "what is chosen could not be run again: OSError: no"


def test_where_nothing_differs_or_nothing_ran_there_is_nothing_to_compare() -> None:
    same = pair(TWO, TWO).without
    assert same is not None
    assert same.verdict == "refuted-no-effect"
    broken = pair(row=Row(Setting(0), failure="OSError: no", stage="block")).without
    assert broken is not None
    assert broken.verdict == "not-measurable-here"
    assert pair().without is None
