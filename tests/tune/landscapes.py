"""Seconds of a step as a loader's options decide them: workers, a step, and a main process that unpacks."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import strategies as st

from dlcheck.advise.tuning.setting import Setting, made


@dataclass(frozen=True)
class Landscape:
    """A batch takes ``cpu`` and ``wait`` seconds to make, ``hand`` to hand over, and the step ``step``.

    On ``cores`` cores; ``copy`` is what a batch that is not pinned costs more, ``pin`` what pinning it costs a thread,
    ``jitter`` how much of a batch's time may be lost for want of batches in store.
    """

    cpu: float
    wait: float
    hand: float
    step: float
    cores: int
    copy: float = 0.0
    pin: float = 0.0
    jitter: float = 0.0

    def seconds(self, one: Setting) -> float:
        copy = 0.0 if one.pin else self.copy
        if not one.workers:
            return self.cpu + self.wait + self.step + copy
        busy = max((self.cpu + self.wait) / one.workers, self.cpu / self.cores)
        crowd = 1 + 0.02 * max(0, one.workers - self.cores)
        made_in = busy * crowd * (1 + self.jitter / (one.workers * (one.prefetch or 1)))
        return max(made_in, self.step + copy, self.pin if one.pin else 0.0) + self.hand


seconds = st.floats(1e-4, 0.3)
landscapes = st.builds(
    Landscape,
    cpu=seconds,
    wait=st.one_of(st.just(0.0), seconds),
    hand=st.floats(1e-5, 0.02),
    step=st.one_of(st.just(0.0), seconds),
    cores=st.sampled_from([1, 2, 4, 8, 16, 48]),
    copy=st.one_of(st.just(0.0), st.floats(0.0, 0.1)),
    pin=st.floats(0.0, 0.05),
    jitter=st.floats(0.0, 1.0),
)

NUMBERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


def product(workers: tuple[int, ...], prefetch: tuple[int, ...], pins: tuple[bool, ...]) -> list[Setting]:
    every = {made(number, ahead, pin, method="fork") for number in workers for ahead in prefetch for pin in pins}
    return sorted(every, key=lambda one: one.cost)


small = st.builds(product, st.sampled_from([NUMBERS[:n] for n in (1, 3, 5)]), st.just((2, 4)), st.just((False, True)))
large = st.builds(
    product,
    st.sampled_from([NUMBERS, NUMBERS[:10], tuple(range(17))]),
    st.sampled_from([(2, 4, 8), (1, 2, 4, 8)]),
    st.just((False, True)),
)


class Trial:
    """A landscape that takes time: blocks of ``block_s``, after the start of each worker."""

    def __init__(
        self, landscape: Landscape, *, block_s: float = 0.4, start_s: float = 0.02, noise: float = 0.0, seed: int = 0
    ) -> None:
        self.landscape = landscape
        self.now = 0.0
        self.longest = 0.0
        self.looks = 0
        self._block_s, self._start_s, self._noise = block_s, start_s, noise
        self._dice = random.Random(seed)

    def __call__(self, one: Setting) -> float:
        took = self._block_s + self._start_s * one.workers + self.landscape.seconds(one) * (1 + 2 * one.ahead)
        self.now += took
        self.longest = max(self.longest, took)
        self.looks += 1
        return self.landscape.seconds(one) * self._dice.lognormvariate(0.0, self._noise)
