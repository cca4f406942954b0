"""The statistics of a measurement: against known values, and by simulation of the machines that they are for."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import median

import pytest

from dlcheck.measure import verdict
from dlcheck.measure.record import VERDICTS, Effect, Guard, Noise, Verdict
from dlcheck.measure.statistics import BLOCKS, LEVEL, LOOK_LEVEL, LOOKS, Round, interval, order, quantile

# scipy.stats.t.ppf(1 - (1 - level) / 2, df), rounded to six digits.
STUDENT = {
    (0.95, 1): 12.7062,
    (0.95, 3): 3.18245,
    (0.95, 6): 2.44691,
    (0.95, 11): 2.20099,
    (0.95, 30): 2.04227,
    (0.9779, 3): 4.37482,
    (0.9779, 6): 3.06436,
    (0.9779, 11): 2.66219,
    (0.99, 4): 4.60409,
    (0.5, 7): 0.711142,
}


@pytest.mark.parametrize(("level", "degrees"), STUDENT)
def test_quantiles_are_students(level: float, degrees: int) -> None:
    assert quantile(level, degrees) == pytest.approx(STUDENT[level, degrees], rel=2e-5)


def test_an_interval_by_hand() -> None:
    mean, low, high = interval([1.0, 2.0, 3.0, 4.0], 0.95)
    half = 3.18245 * math.sqrt(5 / 3) / 2
    assert (mean, low, high) == pytest.approx((2.5, 2.5 - half, 2.5 + half), rel=1e-5)


def test_one_round_says_nothing() -> None:
    with pytest.raises(ValueError, match="two values"):
        interval([1.0], 0.95)


@pytest.mark.parametrize("arms", [["A", "B"], ["A", "B", "C"]])
def test_each_arm_is_first_equally_often(arms: list[str]) -> None:
    turns = order(arms, 12, random.Random(0))
    for place in range(len(arms)):
        assert {arm: [turn[place] for turn in turns].count(arm) for arm in arms} == dict.fromkeys(arms, 12 // len(arms))


# Simulated machines: blocks differ within a process by `within`, processes by `between`.

Machine = Callable[[random.Random], Callable[[], float]]


def machine(within: float, between: float, spiky: bool = False) -> Machine:
    """How long blocks take: a process draws its own speed, its blocks vary around it, neighbours add bursts."""

    def process(dice: random.Random) -> Callable[[], float]:
        speed = math.exp(dice.gauss(0, between))

        def block() -> float:
            burst = 1 + dice.uniform(0.2, 1.5) if spiky and dice.random() < 0.15 else 1.0
            return speed * math.exp(dice.gauss(0, within)) * burst

        return block

    return process


QUIET = machine(0.03, 0.02)
NOISY = machine(0.10, 0.05)
SPIKY = machine(0.10, 0.05, spiky=True)


def rounds(make: Machine, ratio: float, number: int, dice: random.Random) -> list[Round]:
    """Rounds of two arms, the second of which takes ``ratio`` times as long."""
    found = []
    for _ in range(number):
        a, b = make(dice), make(dice)
        found.append(Round([a() for _ in range(BLOCKS)], [ratio * b() for _ in range(BLOCKS)]))
    return found


def outcome(
    make: Machine, ratio: float, dice: random.Random, looks: Sequence[int] = LOOKS, level: float = LOOK_LEVEL
) -> Verdict:
    """The verdict of a run that stops as soon as it has one."""
    known = rounds(make, ratio, looks[-1], dice)
    found: Verdict = "inconclusive"
    for number, look in enumerate(looks, 1):
        found = verdict.judge(verdict.effect(known[:look], number, level), "ratio", None)
        if verdict.is_final(found, look, looks):
            return found
    return found


def share(of: Verdict, make: Machine, ratio: float, runs: int, seed: int = 1, **how: object) -> float:
    dice = random.Random(seed)
    return sum(outcome(make, ratio, dice, **how) == of for _ in range(runs)) / runs  # type: ignore[arg-type]


def covered(make: Machine, runs: int, values: Callable[[list[Round]], Sequence[float]]) -> float:
    dice = random.Random(2)
    inside = 0
    for _ in range(runs):
        _, low, high = interval(values(rounds(make, 1.0, 4, dice)), LEVEL)
        inside += low <= 0 <= high
    return inside / runs


def by_round(known: list[Round]) -> list[float]:
    return [one.log_ratio for one in known]


def pooled(known: list[Round]) -> list[float]:
    return [math.log(b / a) for one in known for a, b in zip(one.a, one.b, strict=True)]


@pytest.mark.parametrize("make", [QUIET, NOISY, SPIKY], ids=["quiet", "noisy", "spiky"])
def test_intervals_over_rounds_hold_their_level(make: Machine) -> None:
    assert covered(make, 2000, by_round) >= 0.93


def test_pooled_blocks_would_not() -> None:
    """What most benchmarks do: it takes the blocks of one process for so many independent observations."""
    assert covered(machine(0.05, 0.05), 2000, pooled) < 0.90


@pytest.mark.parametrize("make", [QUIET, NOISY, SPIKY], ids=["quiet", "noisy", "spiky"])
def test_a_gain_of_just_the_margin_is_not_confirmed(make: Machine) -> None:
    # Nominal 2.5 %; 3.5 % is three standard errors more.
    assert share("confirmed", make, 1 / 1.05, 2000) <= 0.035


def test_looking_after_every_round_would_confirm_it_too_often() -> None:
    every = tuple(range(3, 13))
    assert share("confirmed", QUIET, 1 / 1.05, 2000, looks=every, level=LEVEL) > 0.05


@pytest.mark.parametrize("make", [QUIET, NOISY, SPIKY], ids=["quiet", "noisy", "spiky"])
def test_nothing_is_not_confirmed(make: Machine) -> None:
    assert share("confirmed", make, 1.0, 2000) <= 0.006
    assert share("refuted-harmful", make, 1.0, 2000, seed=3) <= 0.006


def test_what_power_there_is() -> None:
    assert share("confirmed", QUIET, 1 / 1.10, 400) >= 0.90
    assert share("confirmed", NOISY, 1 / 1.25, 400) >= 0.97
    assert share("confirmed", SPIKY, 1 / 2, 400) >= 0.99
    assert share("refuted-no-effect", QUIET, 1.0, 400) >= 0.88


def test_a_noisy_machine_shows_no_absence() -> None:
    assert share("inconclusive", NOISY, 1.0, 1000) >= 0.95
    assert share("refuted-no-effect", NOISY, 1 / 1.10, 2000) <= 0.005


def test_an_equivalence_margin_that_grew_with_the_noise_would_hide_a_gain() -> None:
    """Why 5 % is fixed: with the half width of the A/A in its place a true gain of a tenth is called nothing."""
    dice = random.Random(4)
    hidden = 0
    for _ in range(500):
        floor = verdict.noise_of(verdict.effect(rounds(NOISY, 1.0, 4, dice), 1, LEVEL)).floor
        low, high = verdict.effect(rounds(NOISY, 1 / 1.10, 12, dice), 3).ci
        wide = max(floor, verdict.EQUIVALENCE)
        hidden += low > 1 / (1 + wide) and high < 1 + wide
    assert hidden / 500 > 0.10


# Verdicts


def effect_between(low: float, high: float) -> Effect:
    middle = math.sqrt(low * high)
    return Effect(1.0, middle, middle, (low, high), 1 - middle, (1 - high, 1 - low), 0.95, "rounds", 4, 1)


@pytest.mark.parametrize(
    ("low", "high", "floor", "expected"),
    [
        (0.80, 0.90, 0.0, "confirmed"),
        (0.80, 0.94, 0.10, "inconclusive"),  # the A/A of today reached 10 %
        (0.80, 0.96, 0.0, "inconclusive"),
        (0.96, 1.04, 0.0, "refuted-no-effect"),
        (0.96, 1.04, 0.30, "refuted-no-effect"),
        (0.94, 1.06, 0.30, "inconclusive"),  # no noise widens what counts as nothing
        (1.06, 1.20, 0.0, "refuted-harmful"),
        (1.06, 1.20, 0.10, "inconclusive"),
        (0.50, 1.50, 0.0, "inconclusive"),
    ],
)
def test_verdicts(low: float, high: float, floor: float, expected: Verdict) -> None:
    noise = Noise(1.0, (1 - floor, 1 + floor), floor)
    assert verdict.judge(effect_between(low, high), "ratio", noise) == expected


def test_memory_must_be_worth_mentioning() -> None:
    few = Effect(8e6, 4e6, 0.5, (0.4, 0.6), 4e6, (3e6, 5e6), 0.95, "rounds", 4, 1)
    assert verdict.judge(few, "memory", None) == "inconclusive"
    assert verdict.judge(few, "ratio", None) == "confirmed"


@pytest.mark.parametrize("plain", ["confirmed", "refuted-no-effect", "refuted-harmful"])
def test_a_guard_that_fails_leaves_no_verdict(plain: Verdict) -> None:
    good, bad = Guard("a", "pass"), Guard("b", "fail")
    assert verdict.capped(plain, [good]) == plain
    assert verdict.capped(plain, [good, bad]) == "inconclusive"
    assert verdict.capped("error", [bad]) == "error"


@pytest.mark.parametrize(
    ("low", "high", "status", "no_effect"),
    [
        (0.98, 1.03, "pass", "refuted-no-effect"),
        (0.984, 0.996, "warn", "inconclusive"),  # certainly less than 5 %: nothing beyond 5 % is doubtful for that
        (1.02, 1.06, "fail", "inconclusive"),
    ],
)
def test_what_differs_from_itself(low: float, high: float, status: str, no_effect: Verdict) -> None:
    noise = Noise((low + high) / 2, (low, high), (high - low) / 2)
    guard = verdict.guard_of(noise)
    assert guard.status == status
    assert verdict.capped("refuted-no-effect", [guard]) == no_effect
    assert verdict.capped("confirmed", [guard]) == ("inconclusive" if status == "fail" else "confirmed")


def test_blocks_of_one_process_count_for_less() -> None:
    known = rounds(QUIET, 0.9, 4, random.Random(5))
    plain, blocks = verdict.effect(known, 1, LEVEL), verdict.effect_of_blocks(known)
    assert math.log(blocks.ci[1] / blocks.ci[0]) == pytest.approx(
        1.3229 * math.log(plain.ci[1] / plain.ci[0]), rel=1e-3
    )
    assert verdict.margin(None, "blocks") == 2 * verdict.margin(None)


def test_effects_are_of_medians() -> None:
    """A burst in one block of four moves nothing."""
    steady = [Round([1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 9.0]), Round([1.0, 1.0, 7.0, 1.0], [0.5, 0.5, 0.5, 0.5])]
    found = verdict.effect(steady, 1)
    assert (found.ratio, found.a, found.b, found.diff) == pytest.approx((0.5, 1.0, 0.5, 0.5))
    assert median(steady[1].a) == 1.0


@pytest.mark.parametrize("plain", VERDICTS[:4])
def test_reasons_name_the_deciding_number(plain: Verdict) -> None:
    found = effect_between(0.80, 0.90)
    said = verdict.reason(plain, found, "ratio", None, "epoch")
    assert "B/A 0.849 [0.800, 0.900] over 4 rounds" in said
