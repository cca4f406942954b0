"""Work of a known length for the device and for the host, and a sum that shows which bytes it read."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch

now = time.perf_counter
STABLE = 0.02  # three figures in a row within this of each other: the clocks have settled
SETTLE_S = 3.0
SIZES = (2048, 3072, 4096)  # of the matrices: the smaller, the finer can the length of the work be chosen
LONGER = 3


def spin(seconds: float) -> None:
    """Keep the host busy, as Python code and a loader's ``next`` do; sleeping would give the processor away."""
    end = now() + seconds
    while now() < end:
        pass


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection while a block is timed."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Compute:
    """A chain of multiplications as long as one wants, and the sum of what was read from batches.

    ``read`` takes the first and the last element of a batch on the device, in the order of its stream: a
    copy that is not finished, or memory that is used again too early, makes ``total`` another number.
    """

    def __init__(self, backend: Any, size: int | None = None) -> None:
        self.backend = backend
        self.total = torch.zeros((), dtype=torch.float64, device=backend.device)
        on_gpu = backend.name == "cuda"
        for each in [size] if size else SIZES if on_gpu else [96]:
            self._prepare(each, SETTLE_S if on_gpu else 0.02)
            if self.per_s > LONGER * self.launch_s:
                break  # else the host could not keep the device busy, and the work would last as long as its launches

    def _prepare(self, size: int, settle_s: float) -> None:
        backend = self.backend
        dtype = torch.bfloat16 if backend.name == "cuda" else torch.float32
        dice = torch.Generator().manual_seed(0)
        factors = torch.randn(2, size, size, generator=dice) / math.sqrt(size)
        self._left, self._right = factors.to(dtype).to(backend.device).unbind(0)
        self._product = torch.empty(size, size, dtype=dtype, device=backend.device)
        self.size = size
        # Nobody decides anything by the host's times: it may be quicker.
        self._sample_s = 0.02 if backend.name == "cuda" else 0.003
        self.settled = self._settle(settle_s)
        self.per_s = median(self._per_run(self._count(self._sample_s)) for _ in range(3))
        self.launch_s = median(self._launch(min(100, self._count(self._sample_s))) for _ in range(5))

    def _settle(self, limit_s: float) -> bool:
        """Multiply until the same work takes the same time: an idle GPU begins at a fraction of its clock."""
        end = now() + limit_s
        self.run(3)
        self.backend.sync()
        self.per_s = self._per_run(10)
        seen: list[float] = []
        while now() < end:
            seen.append(self._per_run(self._count(self._sample_s)))
            self.per_s = seen[-1]
            if len(seen) >= 3 and max(seen[-3:]) <= min(seen[-3:]) * (1 + STABLE):
                return True
        return False

    def _per_run(self, repetitions: int) -> float:
        begin, end = self.backend.event(), self.backend.event()
        begin.record()
        self.run(repetitions)
        end.record()
        self.backend.sync()
        return float(begin.elapsed_time(end)) / 1e3 / repetitions

    def _launch(self, repetitions: int) -> float:
        """Seconds of host for each launch, while the queue has room."""
        self.backend.sync()
        start = now()
        self.run(repetitions)
        seconds = now() - start
        self.backend.sync()
        return seconds / repetitions

    def _count(self, seconds: float) -> int:
        return max(1, round(seconds / self.per_s))

    def repetitions(self, seconds: float) -> int:
        """How many multiplications take so long; none for less than half of one."""
        return round(seconds / self.per_s)

    def run(self, repetitions: int) -> None:
        # Each overwrites the same product: a stream keeps its order anyway, and no factor grows or fades.
        for _ in range(repetitions):
            torch.mm(self._left, self._right, out=self._product)

    def warm(self, seconds: float = 0.05) -> None:
        """Keep the device busy right before a block, lest an idle gap lowers its clock; returns when it is done."""
        self.run(self._count(seconds))
        self.backend.sync()

    def clear(self) -> None:
        self.total.zero_()

    def read(self, batch: torch.Tensor) -> None:
        flat = batch.view(-1)
        self.total.add_(flat[0])
        self.total.add_(flat[-1])

    def seen(self) -> float:
        """The sum so far; waits for the device, so for after a block only."""
        return float(self.total.item())

    def device_seconds(self, work: Callable[[], None], count: int) -> float:
        """Seconds of device time for each of ``count`` times ``work``, however slowly the host launches it.

        The device is kept busy until all of it is in the queue; otherwise the gaps between launches would count.
        """
        begin, end = self.backend.event(), self.backend.event()
        self.run(self._count(0.005))
        begin.record()
        for _ in range(count):
            work()
        end.record()
        self.backend.sync()
        return float(begin.elapsed_time(end)) / 1e3 / count


def agrees(seen: float, expected: float) -> bool:
    """Whether a sum is the one of its closed form; never where it is no number."""
    return abs(seen - expected) <= 1e-9 * max(1.0, abs(expected))
