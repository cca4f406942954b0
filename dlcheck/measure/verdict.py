"""From an effect and its guards to a verdict, and the sentence that says which number decided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean, median

from dlcheck.measure.record import Effect, Guard, Kind, Noise, Verdict
from dlcheck.measure.statistics import INFLATION, LEVEL, LOOK_LEVEL, LOOKS, Round, interval

EQUIVALENCE = 0.05  # less than this nobody changes a line for; noise never widens it
AGAINST_ITSELF = "a-against-a"  # the guard's name
MEMORY_FLOOR = 16 << 20  # bytes: what the allocator and the interpreter do by themselves


def effect(rounds: Sequence[Round], looks: int, level: float = LOOK_LEVEL) -> Effect:
    """What the rounds so far say of A against B; two rounds at least."""
    mean, low, high = interval([one.log_ratio for one in rounds], level)
    less, least, most = interval([one.difference for one in rounds], level)
    return Effect(
        # On the same scale as the ratio, so that it is one by the other.
        a=geometric_mean(median(one.a) for one in rounds),
        b=geometric_mean(median(one.b) for one in rounds),
        ratio=math.exp(mean),
        ci=(math.exp(low), math.exp(high)),
        diff=less,
        diff_ci=(least, most),
        level=level,
        units="rounds",
        n_units=len(rounds),
        looks=looks,
    )


def effect_of_blocks(pairs: Sequence[Round], level: float = LEVEL) -> Effect:
    """The same from pairs of blocks of one process, which is all there is where a fresh one costs too much.

    Blocks of a process resemble each other: the interval is widened by what that was seen to be worth.
    """
    plain = effect(pairs, 1, level)
    middle = math.log(plain.ratio)
    half = (math.log(plain.ci[1]) - middle) * INFLATION
    wide = (plain.diff_ci[1] - plain.diff) * INFLATION
    return Effect(
        plain.a,
        plain.b,
        plain.ratio,
        (math.exp(middle - half), math.exp(middle + half)),
        plain.diff,
        (plain.diff - wide, plain.diff + wide),
        level,
        "blocks",
        len(pairs),
        1,
    )


def margin(noise: Noise | None, units: str = "rounds") -> float:
    """By how much an effect must differ from nothing: 5 %, or what an A/A of today reached by itself."""
    floor = max(EQUIVALENCE, noise.floor if noise is not None else 0.0)
    return floor if units == "rounds" else 2 * floor


def judge(found: Effect, kind: Kind, noise: Noise | None) -> Verdict:
    """The verdict of the interval alone.

    ``confirmed``: all of it better than the margin; ``refuted-harmful``: all of it worse;
    ``refuted-no-effect``: all of it within 5 % of 1, which no noise widens.
    """
    limit = margin(noise, found.units)
    low, high = found.ci
    least, most = found.diff_ci
    floor = _floor(kind)
    if high < 1 / (1 + limit) and least > floor:
        return "confirmed"
    if low > 1 + limit and -most > floor:
        return "refuted-harmful"
    return "refuted-no-effect" if _no_effect(low, high) else "inconclusive"


def _no_effect(low: float, high: float) -> bool:
    return low > 1 / (1 + EQUIVALENCE) and high < 1 + EQUIVALENCE


def _floor(kind: Kind) -> float:
    """What a difference must exceed, in the metric's unit; a ratio is judged by itself."""
    return {"memory": float(MEMORY_FLOOR), "additive": 0.0}.get(kind, -math.inf)


def is_final(verdict: Verdict, rounds: int, looks: Sequence[int] = LOOKS) -> bool:
    return verdict != "inconclusive" or rounds >= looks[-1]


def capped(verdict: Verdict, guards: Sequence[Guard]) -> Verdict:
    """No guard that failed leaves room for a verdict about speed; nor a differing A/A for "no effect"."""
    decided = verdict in ("confirmed", "refuted-no-effect", "refuted-harmful")
    failed = any(guard.status == "fail" for guard in guards)
    biased = any(guard.name == AGAINST_ITSELF and guard.status == "warn" for guard in guards)
    return "inconclusive" if decided and (failed or biased and verdict == "refuted-no-effect") else verdict


def noise_of(found: Effect) -> Noise:
    """What an A/A says of the machine: its interval, and half its width on the scale of ratios."""
    low, high = found.ci
    return Noise(found.ratio, found.ci, math.exp((math.log(high) - math.log(low)) / 2) - 1)


def contains_one(noise: Noise) -> bool:
    return noise.ci[0] <= 1 <= noise.ci[1]


def guard_of(noise: Noise) -> Guard:
    """Whether what is written differs from itself: then the order of the arms, or the machine, is what is measured.

    Memory is so steady that half a per cent shows.  A difference that is certainly below 5 % is told, and no more:
    nothing is confirmed, or called harmful, that is not beyond 5 %.
    """
    low, high = noise.ci
    detail = f"what is written, against itself: {noise.ratio:.3f} [{low:.3f}, {high:.3f}]"
    if contains_one(noise):
        return Guard(AGAINST_ITSELF, "pass", detail)
    return Guard(AGAINST_ITSELF, "warn" if _no_effect(low, high) else "fail", detail)


def explained_by(control: Effect, whole: Effect) -> float:
    """The share of an effect that a control arm reaches by itself: 0.9 where one thread gains what workers gained."""
    total = math.log(whole.ratio)
    return math.log(control.ratio) / total if total else 0.0


def reason(verdict: Verdict, found: Effect, kind: Kind, noise: Noise | None, name: str) -> str:
    """One sentence that names the number that decided."""
    limit = margin(noise, found.units)
    low, high = found.ci
    where = f"{name}: B/A {found.ratio:.3f} [{low:.3f}, {high:.3f}] over {found.n_units} {found.units}"
    source = "the A/A of today" if limit > EQUIVALENCE else f"{EQUIVALENCE:.0%}"
    if verdict == "confirmed":
        return f"{where}, all of it below {1 / (1 + limit):.3f} (margin: {source})"
    if verdict == "refuted-harmful":
        return f"{where}, all of it above {1 + limit:.3f} (margin: {source})"
    if verdict == "refuted-no-effect":
        return f"{where}, all of it within {EQUIVALENCE:.0%} of 1"
    if high < 1 / (1 + limit) or low > 1 + limit:  # the ratio is clear, the difference is not
        least, most = found.diff_ci
        return f"the difference, [{least:.3g}, {most:.3g}], is not clear of {_floor(kind):.3g}; {where}"
    within = f"nor all within {EQUIVALENCE:.0%} of 1"
    return f"the interval is neither outside the margin of {limit:.1%} ({source}) {within}; {where}"
