"""Which of the settings that were tried to take: the cheapest that cannot be told from the best, or hardly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dlcheck.advise.tuning.setting import Setting
from dlcheck.measure.statistics import INFLATION, LEVEL, quantile

Trials = Mapping[Setting, Sequence[float]]  # seconds of each block; inf where it failed

NEAR = 0.03  # slower than the best by less than this: the same, however well it is known
MARGIN = 0.05  # by less than this: the same, where the blocks cannot tell them apart


@dataclass(frozen=True)
class Choice:
    """``ratio`` is the seconds of what is chosen to those of the best; ``clear``: it costs no more than the margin, as
    far as the blocks can tell.
    """

    setting: Setting
    best: Setting
    ratio: float
    reason: str
    clear: bool


def middle(blocks: Sequence[float]) -> float:
    """What is taken for a setting's seconds; inf for one that has failed."""
    return median(blocks) if blocks and all(map(math.isfinite, blocks)) else math.inf


def usable(trials: Trials) -> dict[Setting, float]:
    """The settings that ran, and their seconds."""
    found = {one: middle(blocks) for one, blocks in trials.items()}
    return {one: seconds for one, seconds in found.items() if math.isfinite(seconds)}


def choose(trials: Trials) -> Choice | None:
    """The cheapest setting near the best; None where none ran."""
    known = usable(trials)
    if not known:
        return None
    best = min(known, key=lambda one: (known[one], one.cost))
    spread = spread_of(trials)
    for one in sorted(known, key=lambda setting: setting.cost):
        ratio = known[one] / known[best]
        noise = _noise(trials, one, best, spread)
        if ratio <= 1 + NEAR or ratio <= 1 + MARGIN and math.log(ratio) <= noise:
            clear = one == best or math.log(ratio) + noise <= math.log(1 + MARGIN)
            return Choice(one, best, ratio, _reason(one, best, ratio), clear)
    raise AssertionError("the best is near itself")


def spread_of(trials: Trials) -> tuple[float, int]:
    """The standard deviation of the log of a block, pooled over all settings, and its degrees of freedom."""
    squares, degrees = 0.0, 0
    for blocks in trials.values():
        if len(blocks) < 2 or not math.isfinite(middle(blocks)):
            continue
        logs = [math.log(block) for block in blocks]
        mean = math.fsum(logs) / len(logs)
        squares += math.fsum((one - mean) ** 2 for one in logs)
        degrees += len(logs) - 1
    return (math.sqrt(squares / degrees), degrees) if degrees else (0.0, 0)


def interval(blocks: Sequence[float], spread: tuple[float, int]) -> tuple[float, float] | None:
    """Where a setting's seconds are likely to lie; None where no setting has been tried twice.

    The spread is that of all settings, since each has few blocks; and wider than theirs, since blocks of one process
    resemble each other.
    """
    deviation, degrees = spread
    if not degrees or not math.isfinite(middle(blocks)):
        return None
    half = quantile(LEVEL, degrees) * deviation / math.sqrt(len(blocks)) * INFLATION
    return middle(blocks) * math.exp(-half), middle(blocks) * math.exp(half)


def _noise(trials: Trials, one: Setting, other: Setting, spread: tuple[float, int]) -> float:
    """The log ratio up to which two settings cannot be told apart."""
    deviation, degrees = spread
    if not degrees:
        return 0.0
    return quantile(LEVEL, degrees) * deviation * math.sqrt(1 / len(trials[one]) + 1 / len(trials[other])) * INFLATION


def _named(one: Setting) -> str:
    return one.words if one.persistent else one.short


def _reason(one: Setting, best: Setting, ratio: float) -> str:
    if one == best:
        return f"{_named(one)}: the fastest of those tried, and no cheaper setting comes near it"
    return f"{_named(best)}: only {ratio:.2f} x as fast as {_named(one)}; that is within noise, so the cheaper setting"
