"""Timed blocks: what is measured of an arm, each block from a loader at rest to a loader at rest.

No block leaves its loader early: workers that still hold batches would run into the other arm's
block, and the next iterator of persistent ones would first have to drain them.
"""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import memory, training, tuning
from .facts import bytes_of

now = time.perf_counter
GROWTH = 0.02  # of the size: less from one quarter of an epoch to the next, and it has stopped growing
QUARTERS = 8
LONG_QUARTER = 256  # batches: of an epoch that is longer, a part must do
KEPT_ENOUGH = 256 << 20  # bytes of kept batches: what they grow by is plain then
IN_FLIGHT_S = 20.0  # workers that have not filled their queues by then are slower than any trainer


class Limited:
    """The first ``number`` of what a sampler yields, from the start again where it has fewer and may begin anew."""

    def __init__(self, inner: Any, number: int, again: bool) -> None:
        self.inner = inner
        self.number = number
        self.again = again
        self.batch_size = getattr(inner, "batch_size", None)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._endless() if self.again else iter(self.inner), self.number)

    def _endless(self) -> Iterator[Any]:
        while True:
            empty = True
            for one in self.inner:
                empty = False
                yield one
            if empty:
                return

    def __len__(self) -> int:
        return self.number


def limited(loader: Any, number: int, again: bool = False) -> Any:
    """Let a loader yield ``number`` batches; ``again`` starts its sampler anew where an epoch has fewer."""
    name = "batch_sampler" if loader.batch_sampler is not None else "sampler"
    streams = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    # DataLoader refuses to have these set; the check is not made for those who go around it.
    object.__setattr__(loader, name, Limited(getattr(loader, name), number, again and not streams))
    return loader


def ahead(loader: Any) -> int:
    """The batches that workers have in hand before they are asked for them."""
    return int(loader.num_workers * (loader.prefetch_factor or 2)) if loader.num_workers else 0


def make_step(spec: dict[str, Any] | None, real: Any = None) -> Callable[[Any], Any]:
    """The user's step, or one that waits or works for some seconds, or none."""
    spec = spec or {"kind": "none"}
    seconds = spec.get("s", 0.0)
    if spec["kind"] == "real":
        return real if real is not None else (lambda batch: None)
    if spec["kind"] == "idle-wait":
        return lambda batch: time.sleep(seconds)
    if spec["kind"] == "cpu-spin":
        return lambda batch: _spin(seconds)
    return lambda batch: None


def _spin(seconds: float) -> None:
    end = now() + seconds
    while now() < end:
        pass


class Cv2Threads:
    """A ``worker_init_fn`` that limits OpenCV's threads, after the user's own."""

    def __init__(self, number: int, inner: Any) -> None:
        self.number = number
        self.inner = inner

    def __call__(self, worker: int) -> None:
        import cv2

        if self.inner is not None:
            self.inner(worker)
        cv2.setNumThreads(self.number)


class Arm:
    """One side of a comparison: how its loaders are made, and the block that is timed."""

    def __init__(self, source: Any, config: dict[str, Any]) -> None:
        self.source = source
        self.config = config
        self.options = dict(config.get("loader", {}))
        self.dataset = config.get("dataset")
        self.batches = config.get("batches")
        self.rebuild = bool(config.get("rebuild"))
        self.epochs = int(config.get("epochs", 1))
        self.keep = bool(config.get("keep"))
        self.step = make_step(config.get("step"), getattr(source, "step", None))
        self.kind = config["block"]
        self._kept: Any = None
        if config.get("threads"):
            torch.set_num_threads(int(config["threads"]))
        self.cv2_threads = config.get("cv2_threads")

    def fresh(self) -> Any:
        loader = self.source.loader(dict(self.options), self.dataset)
        if self.cv2_threads is not None:
            loader.worker_init_fn = Cv2Threads(int(self.cv2_threads), loader.worker_init_fn)
        return loader

    def kept(self, number: int | None) -> Any:
        """The arm's one loader, for the blocks that do not build their own."""
        if self._kept is None:
            loader = self.fresh()
            self._kept = limited(loader, number, again=True) if number else loader
        return self._kept

    def block(self) -> dict[str, Any]:
        """Run one block; ``t`` is what is compared, in the unit of the experiment."""
        gc.collect()
        gc.disable()
        cpu, start = _cpu(), now()
        try:
            found: dict[str, Any] = BLOCKS[self.kind](self)
        finally:
            gc.enable()
        return {**found, "wall": now() - start, "cpu": _cpu() - cpu}


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


def spec_of(batch: Any, depth: int = 0) -> Any:
    """The structure of a batch: what must be equal in both arms."""
    if isinstance(batch, torch.Tensor):
        return [str(batch.dtype), *batch.shape]
    if isinstance(batch, dict) and depth < 4:
        return {str(key): spec_of(value, depth + 1) for key, value in itertools.islice(batch.items(), 40)}
    if isinstance(batch, (list, tuple)) and depth < 4:
        return [spec_of(value, depth + 1) for value in batch[:8]]
    return type(batch).__name__


def epoch(arm: Arm) -> dict[str, Any]:
    """Seconds of an epoch, from ``iter()`` until the workers are done; the loader's making where it is made anew."""
    start = now()
    first, wait, number, spec = 0.0, 0.0, 0, None
    for _ in range(arm.epochs):
        begun = asked = now()
        loader = limited(arm.fresh(), arm.batches, True) if arm.rebuild and arm.batches else None
        loader = loader or (arm.fresh() if arm.rebuild else arm.kept(arm.batches))
        for batch in loader:
            got = now()
            wait += got - asked
            if spec is None:
                spec, first = spec_of(batch), got - begun
            arm.step(batch)
            number += 1
            asked = now()
        loader = None
    return {"t": (now() - start) / arm.epochs, "first": first, "wait": wait / arm.epochs, "n": number, "spec": spec}


def steady(arm: Arm) -> dict[str, Any]:
    """Seconds of a step once the pipeline runs: neither its start nor what was ready before counts."""
    loader = arm.fresh()
    bank = ahead(loader)
    number = arm.batches or max(16, 10 * loader.num_workers)
    warm = 4 + bank
    limited(loader, warm + number + bank, again=True)
    batches = iter(loader)
    begun = now()
    spec = None
    for _ in range(warm):
        batch = next(batches)
        if spec is None:
            spec, first = spec_of(batch), now() - begun
        arm.step(batch)
    wait = 0.0
    start = now()
    for _ in range(number):
        asked = now()
        batch = next(batches)
        wait += now() - asked
        arm.step(batch)
    seconds = now() - start
    for _ in batches:
        pass
    return {"t": seconds / number, "wait": wait / number, "first": first, "n": number, "spec": spec}


def startup(arm: Arm) -> dict[str, Any]:
    """Seconds from ``iter()`` to the first batch."""
    loader = limited(arm.fresh(), 1)
    start = now()
    batches = iter(loader)
    batch = next(batches)
    seconds = now() - start
    for _ in batches:
        pass
    return {"t": seconds, "first": seconds, "n": 1, "spec": spec_of(batch)}


def new_iterator(arm: Arm) -> dict[str, Any]:
    """Seconds of a step that takes ``next(iter(loader))``."""
    loader = arm.kept(None)
    number = arm.batches or 4
    start = now()
    for _ in range(number):
        batch = next(iter(loader))
        arm.step(batch)
    return {"t": (now() - start) / number, "n": number, "spec": spec_of(batch)}


def one_iterator(arm: Arm) -> dict[str, Any]:
    """Seconds of a step that takes the next batch of one iterator."""
    number = arm.batches or 4
    loader = limited(arm.fresh(), number, again=True)
    start = now()
    for batch in loader:
        arm.step(batch)
    return {"t": (now() - start) / number, "n": number, "spec": spec_of(batch)}


def added_memory(arm: Arm) -> dict[str, Any]:
    """Bytes that iterating adds to the process and its workers, until they grow no more within an epoch."""
    loader = arm.fresh()
    before = memory.pss_of_tree()
    if before is None:
        raise OSError("this system does not tell how much memory a process shares")
    total = len(loader)
    quarter = min(LONG_QUARTER, max(1, total // 4, loader.num_workers))
    limited(loader, quarter * QUARTERS, again=True)
    points: list[list[int]] = [[0, before]]
    spec = None
    kept: list[Any] = []
    for number, batch in enumerate(loader, 1):
        if spec is None:
            spec = spec_of(batch)
        if arm.keep:
            kept.append(batch)
        full = len(kept) * bytes_of(batch) > KEPT_ENOUGH
        if number == 1 or number % quarter == 0 or full:
            points.append([number, memory.pss_of_tree() or 0])
            if full or number > quarter and points[-1][1] < points[-2][1] * (1 + GROWTH):
                break  # the loader is not used again: its workers end with it
    return {"t": max(size for _, size in points) - before, "points": points, "n": points[-1][0], "spec": spec}


def in_flight(arm: Arm) -> dict[str, Any]:
    """Bytes of shared memory that batches take which are made and not yet asked for."""
    loader = arm.fresh()
    limited(loader, 1 + 2 * ahead(loader), again=True)
    before = memory.shared_memory_used()
    batches = iter(loader)
    batch = next(batches)
    most = steady_since = 0
    end = now() + IN_FLIGHT_S
    while steady_since < 5 and now() < end:
        time.sleep(0.1)
        used = memory.shared_memory_used() - before
        steady_since = 0 if used > most else steady_since + 1
        most = max(most, used)
    for _ in batches:
        pass
    return {"t": most, "n": ahead(loader), "spec": spec_of(batch)}


BLOCKS: dict[str, Callable[[Arm], dict[str, Any]]] = {
    "epoch": epoch,
    "steady": steady,
    "startup": startup,
    "new-iterator": new_iterator,
    "one-iterator": one_iterator,
    "memory": added_memory,
    "in-flight": in_flight,
    **training.BLOCKS,
    **tuning.BLOCKS,
}
