"""From timed blocks to an interval: rounds, looks, and Student's t on the log ratio.

A round is one fresh pair of processes: processes differ from each other by more than their blocks
do, so rounds are what is counted, and blocks only make a round's figure steadier.  Within a round
the median takes the bursts of a shared machine away.  Looking at the data as often as it grows
would find an effect in nothing; three looks at a stricter level keep the whole at 95 %.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

LOOKS = (4, 7, 12)  # rounds after which a verdict may be given
LOOK_LEVEL = 1 - 0.0221  # of each of three looks (Pocock), so that all together are right in 95 of 100 runs
LEVEL = 0.95  # of one look alone
BLOCKS = 4  # timed blocks of each arm in a round
INFLATION = math.sqrt(1 + (BLOCKS - 1) * 0.25)  # for blocks of one process, which resemble each other


@dataclass(frozen=True, slots=True)
class Round:
    """The blocks of both arms from one pair of processes."""

    a: Sequence[float]
    b: Sequence[float]

    @property
    def log_ratio(self) -> float:
        """ln(B/A) of the medians; below zero where B takes less."""
        return math.log(median(self.b) / median(self.a))

    @property
    def difference(self) -> float:
        """A - B of the medians, in the unit of the blocks."""
        return median(self.a) - median(self.b)


def interval(values: Sequence[float], level: float) -> tuple[float, float, float]:
    """Mean and the ends of its Student interval; two values at least.

    Raises ValueError for fewer: one round says nothing about the next.
    """
    number = len(values)
    if number < 2:
        raise ValueError("an interval needs two values")
    mean = math.fsum(values) / number
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (number - 1))
    half = quantile(level, number - 1) * deviation / math.sqrt(number)
    return mean, mean - half, mean + half


@cache
def quantile(level: float, degrees: int) -> float:
    """The half width of Student's t that holds ``level`` of it: 12.71 for 0.95 and one degree."""
    low, high = 0.0, 1.0
    while within(high, degrees) < level:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if within(middle, degrees) < level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def within(t: float, degrees: int) -> float:
    """P(|T| <= t) for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine2 = math.sin(angle), math.cos(angle) ** 2
    odd = degrees % 2 == 1
    term = math.cos(angle) if odd else 1.0
    total = term if not odd or degrees > 1 else 0.0
    for k in range(3 if odd else 2, degrees, 2):
        term *= cosine2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def order(arms: Sequence[str], number: int, dice: random.Random) -> list[list[str]]:
    """The order of the arms in each of ``number`` turns: each arm is first, second, ... equally often."""
    start = list(arms)
    dice.shuffle(start)
    return [start[turn % len(start) :] + start[: turn % len(start)] for turn in range(number)]
