"""The search: which setting is tried next, and when enough is known.  It knows nothing of loaders and clocks.

Small grids are tried whole, and then the best of them again and again: at thirteen settings nothing is won by trying
fewer.  In large ones the number of workers is what matters most: it is searched first, coarsely, then about the best
of it, and what remains (prefetch, pinned memory) only where that led.  In the end both hold a race: each pass keeps
what may still win, and stops on a plateau.  What the choice costs against the best is then looked at more closely.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

from dlcheck.advise.tuning.choice import NEAR, choose, middle, usable
from dlcheck.advise.tuning.setting import Setting

SMALL = 30  # settings that are all tried
PASSES = 4  # blocks of a setting that comes to the end of the race
MOST = 10  # blocks of the choice and of the best, where fewer leave open what the choice costs
KEPT = (0.30, 0.15, 0.10)  # after each pass what is slower than the best by less than this stays
FINALISTS = 6  # of a large grid: no more are raced
HOPELESS = 1.0  # and what is slower by more than this goes, even of the better half
TURNS = 6  # of the walk through a large grid: it ends where it finds nothing new, long before

Evaluate = Callable[[Setting], float]  # seconds of a block of it; inf where it cannot be run
Left = Callable[[], float]  # seconds that the search may still take


class Race:
    """Settings, and the blocks of each that were timed.  What an interruption leaves in ``trials`` is whole."""

    def __init__(
        self,
        settings: Sequence[Setting],
        evaluate: Evaluate,
        left: Left,
        dice: random.Random,
        first: Setting | None = None,
        between: Callable[[], None] = lambda: None,
        hint: int | None = None,
    ) -> None:
        self.settings = sorted(settings, key=lambda one: one.cost)
        self.trials: dict[Setting, list[float]] = {}
        self.stopped = ""  # why it ended before enough was known
        self.narrowed = False  # everything that should be has been tried: what remains is to try the best again
        self._evaluate = evaluate
        self._left = left
        self._dice = dice
        self._first = first
        self._between = between  # told after each pass
        self._hint = hint  # a number of workers that is likely to be enough
        self._longest = 0.0

    def run(self) -> None:
        """Search until the choice is clear, or the time is up."""
        if len(self.settings) <= SMALL:
            self._all(self._in_order())
        else:
            self._walk()
        self.narrowed = not self.stopped
        self._finish()
        self._decide()

    def sweep(self) -> None:
        """Everything, as often as a finalist of the search: nothing is left out, nothing is guessed."""
        self._all(self._in_order())
        self.narrowed = not self.stopped
        for _ in range(PASSES - 1):
            self._between()
            self._all(self._shuffled(usable(self.trials)))

    # -- trying

    def _look(self, one: Setting) -> None:
        """Time a block, if there is time for one more as long as the longest."""
        left = self._left()
        if left <= self._longest:
            self.stopped = "budget"
            return
        seconds = self._evaluate(one)
        self._longest = max(self._longest * 0.9, left - self._left())
        self.trials.setdefault(one, []).append(seconds)

    def _all(self, settings: Sequence[Setting]) -> None:
        for one in settings:
            if self.stopped:
                return
            self._look(one)

    def _new(self, settings: Sequence[Setting]) -> bool:
        """Try what has not been tried; whether there was anything."""
        fresh = [one for one in settings if one not in self.trials]
        self._all(fresh)
        return bool(fresh)

    def _in_order(self) -> list[Setting]:
        """What all is compared with first, then each number of workers once: time may not suffice for all."""
        plain = {one for number in {one.workers for one in self.settings} for one in self._plain(number)}
        return sorted(self.settings, key=lambda one: (one != self._first, one not in plain, one.cost))

    def _shuffled(self, settings: Sequence[Setting] | dict[Setting, float]) -> list[Setting]:
        # By cost first: the same seed gives the same order, whatever was found.
        found = sorted(settings, key=lambda one: one.cost)
        self._dice.shuffle(found)
        return found

    # -- a large grid

    def _walk(self) -> None:
        numbers = sorted({one.workers for one in self.settings})
        self._new([one for one in self.settings if one == self._first])
        # Pinned and not: where pinning holds all workers up, more of them seem to be worth nothing.
        self._new([one for number in self._coarse(numbers) for one in self._plain(number)])
        for _ in range(TURNS):
            if self.stopped:
                return
            known = usable(self.trials)
            if not known:
                self._new(self.settings)  # nothing of all that runs: perhaps something else does
                return
            found = choose(self.trials)
            assert found is not None
            # Also about the best that has workers: where none are best so far, a longer store may still make them so.
            working = choose({one: self.trials[one] for one in known if one.workers})
            about = {found.best, found.setting, *([working.best] if working else [])}
            fresh = [self._new(self._beside(one, numbers) + self._like(one)) for one in sorted(about, key=_cost)]
            if not any(fresh):
                return

    def _coarse(self, numbers: Sequence[int]) -> list[int]:
        """The number that is likely, and every second, with both ends: none, and the most."""
        rest = sorted({*numbers[::2], numbers[-1]} - {self._hint})
        return [number for number in numbers if number == self._hint] + rest

    def _plain(self, workers: int) -> list[Setting]:
        """The settings that stand for a number of workers, pinned and not: with the least prefetch that is enough."""
        of = [one for one in self.settings if one.workers == workers]
        by_pin = ([one for one in of if one.pin == pin] for pin in (False, True))
        return [min(each, key=lambda one: ((one.prefetch or 2) < 2, one.cost)) for each in by_pin if each]

    def _beside(self, one: Setting, numbers: Sequence[int]) -> list[Setting]:
        """The nearest to it with the next fewer and the next more workers."""
        at = numbers.index(one.workers)
        near = [numbers[place] for place in (at - 1, at + 1) if 0 <= place < len(numbers)]
        return [
            min(
                (other for other in self.settings if other.workers == number),
                key=lambda other: (other.prefetch != one.prefetch, other.pin != one.pin, other.cost),
            )
            for number in near
        ]

    def _like(self, one: Setting) -> list[Setting]:
        """The same with as many workers, and another prefetch or pinned memory."""
        return [
            other
            for other in self.settings
            if other.workers == one.workers and (other.pin == one.pin or other.prefetch == one.prefetch)
        ]

    # -- the race

    def _finish(self) -> None:
        for number in range(1, PASSES):
            alive = self._alive(KEPT[number - 1])
            if self.stopped or len(alive) < 2 or number > 1 and self._plateau(alive):
                return
            self._between()
            self._all(self._shuffled(alive))

    def _decide(self) -> None:
        """More blocks of the choice and of the best, while the choice may cost more than the margin."""
        while not self.stopped:
            found = choose(self.trials)
            if found is None or found.clear:
                return
            both = [found.setting, found.best]
            if max(len(self.trials[one]) for one in both) >= MOST:
                return
            self._between()
            self._all(self._shuffled(both))

    def _alive(self, kept: float) -> list[Setting]:
        """The better half of what ran and all that is near the best, but nothing that is hopeless."""
        known = usable(self.trials)
        best = min(known.values(), default=math.inf)
        most = max((len(self.trials[one]) for one in known), default=0)
        still = sorted((one for one in known if len(self.trials[one]) == most), key=lambda one: known[one])
        half = set(still[: (len(still) + 1) // 2]) if most == 1 and len(self.settings) <= SMALL else set()
        alive = [
            one
            for one in still
            if known[one] <= best * (1 + kept) or one in half and known[one] <= best * (1 + HOPELESS)
        ]
        return alive if len(self.settings) <= SMALL else self._finalists(alive, known)

    def _finalists(self, alive: Sequence[Setting], known: Mapping[Setting, float]) -> list[Setting]:
        """Of a plateau not all: what takes more than another and is no faster will not be chosen."""

        def beaten(one: Setting) -> bool:
            return any(other.cost < one.cost and known[other] <= known[one] * (1 + NEAR) for other in alive)

        return sorted(alive, key=lambda one: (beaten(one), known[one], one.cost))[:FINALISTS]

    def _plateau(self, alive: Sequence[Setting]) -> bool:
        """Whether all that may still win are as good as each other: then the cheapest of them is known."""
        seconds = [middle(self.trials[one]) for one in alive]
        return max(seconds) <= min(seconds) * (1 + NEAR)


def _cost(one: Setting) -> tuple[int, int, bool, bool, str]:
    return one.cost
