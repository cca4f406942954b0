"""What a search for loader options times: a stretch of a running pipeline, and the start and the end of an epoch.

A stretch ends by the clock, so that a search knows what a setting costs before it knows how fast the setting is.  It
leaves nothing behind all the same: the sampler is told to stop, and what is in the making then is taken untimed, or
ended with its workers where that would last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

from . import memory
from .facts import bytes_of

now = time.perf_counter
SLOW = 4  # times as long as it is given: then a stretch ends with fewer batches than were wanted
FEWEST = 2  # batches that tell a time at all
MOST = 5_000
END = object()
DEPTH = 4  # of tensors in what a loader gives
COPIES = 5
DRAINED_S = 1.0  # that taking what is in the making may last


class Stoppable:
    """What a sampler yields, from the start again where it ends, until it is told to stop."""

    def __init__(self, inner: Any, again: bool) -> None:
        self.inner = inner
        self.again = again
        self._stopped = False
        self.batch_size = getattr(inner, "batch_size", None)

    def __iter__(self) -> Iterator[Any]:
        while not self.over():
            empty = True
            for one in self.inner:
                if self.over():
                    return
                empty = False
                yield one
            if empty or not self.again:
                return

    def over(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        self._stopped = True

    def __len__(self) -> int:
        return len(self.inner)


def stoppable(loader: Any) -> Stoppable:
    """The sampler that a loader has from now on; a stream has its end from its dataset, and is not begun again."""
    name = "batch_sampler" if loader.batch_sampler is not None else "sampler"
    streams = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    sampler = Stoppable(getattr(loader, name), again=not streams)
    object.__setattr__(loader, name, sampler)
    return sampler


class Mover:
    """Takes batches to the device, as a training loop does; without one, or where the step is the user's, nowhere.

    What pinned memory is worth shows in the copy only.  A pinned batch is copied while Python goes on.
    """

    def __init__(self, wanted: bool, pinned: bool) -> None:
        self.pinned = pinned
        self.device: str | None = None
        if wanted and torch.cuda.is_available():
            rank = os.environ.get("LOCAL_RANK", "")
            self.device = f"cuda:{(int(rank) if rank.isdigit() else 0) % torch.cuda.device_count()}"

    def __call__(self, batch: Any) -> Any:
        return batch if self.device is None else self._moved(batch, 0)

    def _moved(self, value: Any, depth: int) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(self.device, non_blocking=self.pinned)
        if isinstance(value, dict) and depth < DEPTH:
            return {key: self._moved(one, depth + 1) for key, one in value.items()}
        if isinstance(value, (list, tuple)) and depth < DEPTH:
            return [self._moved(one, depth + 1) for one in value]
        return value

    def seconds(self, batch: Any) -> float:
        """What it takes to have a batch on the device; 0 without one."""
        if self.device is None:
            return 0.0
        took = []
        for _ in range(COPIES):
            synchronise()
            start = now()
            self(batch)
            synchronise()
            took.append(now() - start)
        return float(median(took))


def synchronise() -> None:
    """Wait for what the steps so far have given a device, if there is one."""
    cuda: Any = torch.cuda
    if cuda.is_available() and cuda.is_initialized():
        cuda.synchronize()


def stretch(arm: Any) -> dict[str, Any]:
    """Seconds of a step of a pipeline that runs: for ``seconds``, and until each worker has had its turn.

    ``first`` is the way to the first batch, ``wait`` what of a step is spent waiting for the loader.
    """
    from .blocks import ahead, spec_of

    seconds = float(arm.config["seconds"])
    loader = arm.fresh()
    move = Mover(arm.config.get("step", {}).get("kind") != "real", bool(loader.pin_memory))
    sampler = stoppable(loader)
    shared = _shared()
    begun = now()
    batches = iter(loader)
    batch = next(batches, END)
    if batch is END:
        raise ValueError("the loader gives no batch")
    first = now() - begun
    found = {"first": first, "spec": spec_of(batch), "batch_bytes": bytes_of(batch), "copy": move.seconds(batch)}
    arm.step(move(batch))
    given = 1
    for _ in range(ahead(loader)):  # what the workers have in store would be given as if it cost nothing
        if now() - begun - first > 2 * seconds:
            break
        if (batch := next(batches, END)) is END:
            break
        arm.step(move(batch))
        given += 1
    synchronise()
    number, wait, start = 0, 0.0, now()
    while number < MOST:
        passed = now() - start
        if number >= FEWEST and passed >= seconds * (1 if number >= 2 * loader.num_workers else SLOW):
            break
        asked = now()
        if (batch := next(batches, END)) is END:
            break
        wait += now() - asked
        arm.step(move(batch))
        number += 1
    synchronise()
    took = now() - start
    held = {**sizes(), "shm": max(0, _shared() - shared)}
    sampler.stop()
    if ahead(loader) * took <= DRAINED_S * max(1, number):
        for _ in batches:
            pass
    else:  # what is in the making is not worth its time: its workers end with the loader, before the next one begins
        del batches, loader
    if number < FEWEST:  # a stream that is over before its pipeline runs: all of it is what can be timed
        number, took, wait = given + number, now() - begun, 0.0
    return {**found, "t": took / number, "wait": wait / number, "n": number, "memory": held}


def starts(arm: Any) -> dict[str, Any]:
    """Seconds that an epoch costs beyond its batches: from ``iter()`` to the first, and after the last.

    Of the second epoch of a loader: a server of processes that is started but once is none of it (``once`` is that).
    """
    from .blocks import limited, spec_of

    loader = arm.fresh()
    limited(loader, max(2, loader.num_workers), again=True)
    costs = []
    spec = None
    for _ in range(2):
        begun = now()
        batches = iter(loader)
        batch = next(batches)
        first = last = now()
        spec = spec or spec_of(batch)
        for _ in batches:
            last = now()
        del batches
        costs.append((first - begun) + (now() - last))
    return {"t": costs[1], "once": costs[0], "n": 2, "spec": spec}


def sizes() -> dict[str, int | None]:
    """Bytes of this process and its workers: proportional in all, the workers' own, and resident here."""
    below = memory.tree(os.getpid())[1:]
    own = [memory.own(pid) for pid in below]
    return {
        "pss": memory.pss_of_tree(),
        "workers": sum(one or 0 for one in own) if all(one is not None for one in own) else None,
        "parent": memory.resident(os.getpid()),
    }


def _shared() -> int:
    try:
        return memory.shared_memory_used()
    except (OSError, AttributeError):  # there is no such folder, or no such question
        return 0


BLOCKS = {"stretch": stretch, "starts": starts}
