"""A real DataLoader in front of the device: what its page-locked memory and the copies out of it are worth together."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, ClassVar

import torch
from torch.utils.data import DataLoader, Dataset

from .compute import agrees, now
from .experiment import Experiment
from .rig import Rig
from .transfer import Marks, Spent, TransferArm, run

SHARE_OF_SHM = 0.5  # of what is free in /dev/shm: the most that batches under way may take
LEVELS = 251  # values of samples, exact in any floating type that batches come in


class Filled(Dataset[torch.Tensor]):
    """Sample i holds i modulo 251 throughout, so that sums over batches are known beforehand."""

    def __init__(self, number: int, shape: tuple[int, ...]) -> None:
        self.number = number
        self.shape = shape

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> torch.Tensor:
        if not 0 <= index < self.number:
            raise IndexError(index)
        return torch.full(self.shape, float(index % LEVELS))


@dataclasses.dataclass(frozen=True)
class LoadingArm:
    """What the loader and the transfer are told; ``replay`` feeds a few page-locked batches again and again."""

    pinned: bool = False
    non_blocking: bool = False
    side_stream: bool = False
    replay: bool = False

    def transfer(self) -> TransferArm:
        return TransferArm(pinned=self.pinned, non_blocking=self.non_blocking, side_stream=self.side_stream)


class Loading(Experiment):
    """Seconds of a step of a loop over a DataLoader with ``loader`` options, over samples of ``shape``.

    A block's loader serves batches to warm up, as many as it prepares ahead, those that are timed, and as
    many as it prepares ahead again, and is always read to its end: workers of a loader that is left early
    would still prepare batches while the next arm is timed.
    """

    arm_type = LoadingArm
    needs = ("async_copies", "can_pin")
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "plain": {},
        "pinned": {"pinned": True},
        "pinned_nb": {"pinned": True, "non_blocking": True},
        "nb_only": {"non_blocking": True},
        "pinned_nb_side": {"pinned": True, "non_blocking": True, "side_stream": True},
        "replay": {"pinned": True, "non_blocking": True, "side_stream": True, "replay": True},
    }
    WARM = 4

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        options = dict(self.config.get("loader", {"batch_size": 32, "num_workers": min(4, os.cpu_count() or 1)}))
        self.shape = tuple(int(side) for side in self.config.get("shape", (3, 224, 224)))
        self.sample_bytes = 4 * math.prod(self.shape)
        self.options = fitting(options, self.sample_bytes, free_shm())
        self.ahead = self.options["num_workers"] * (self.options.get("prefetch_factor") or 2)
        self.repetitions = rig.compute.repetitions(float(self.config.get("compute_s", 0.005)))
        self.compute_s = self.repetitions * rig.compute.per_s
        self._waits: dict[str, float] = {}

    def steps(self, arm: LoadingArm) -> int:
        return int(self.config.get("steps", max(20, 10 * self.options["num_workers"])))

    def loader(self, arm: LoadingArm, steps: int) -> DataLoader[torch.Tensor]:
        batches = self.WARM + self.ahead + steps + self.ahead
        dataset = Filled(batches * self.options["batch_size"], self.shape)
        pin = arm.pinned and self.backend.can_pin and not arm.replay
        return DataLoader(dataset, pin_memory=pin, **self.options)

    def prepare(self, arm: LoadingArm, steps: int) -> None:
        shape = torch.Size((self.options["batch_size"], *self.shape))
        self.rig.scrub(shape, torch.float32, steps + 1 if arm.side_stream else 2, arm.side_stream)

    def timed(self, arm: LoadingArm, steps: int) -> dict[str, Any]:
        warm = self.WARM + self.ahead
        transfer = arm.transfer()
        begun = now()
        loader = iter(self.loader(arm, steps))
        first = next(loader)
        found: dict[str, Any] = {"first": now() - begun, "pinned": bool(self.backend.can_pin and first.is_pinned())}
        batches: Iterator[torch.Tensor] = itertools.chain([first], loader)
        if arm.replay:
            kept = [self.backend.pin(one) for one in itertools.islice(batches, self.WARM)]
            for _ in loader:
                pass
            batches = itertools.cycle(kept)
        run(self.rig, transfer, batches, self.repetitions, Marks.of(self.rig, warm))
        self.backend.sync()
        self.rig.compute.clear()
        self.backend.sync()
        self._marks = Marks.of(self.rig, steps)
        pinning = thread_seconds("pt_data_pin")
        start = now()
        spent: Spent = run(self.rig, transfer, batches, self.repetitions, self._marks)
        self.backend.sync()
        seconds = now() - start
        pinned = thread_seconds("pt_data_pin")
        if not arm.replay:
            for _ in batches:
                pass
        found.update(t=seconds / steps, blocked=spent.blocked / steps)
        found.update(wait=sum(spent.waits) / steps, wait_median=median(spent.waits))
        if pinning is not None and pinned is not None:
            found["pin_cpu"] = (pinned - pinning) / steps
        return found

    def check(self, arm: LoadingArm, steps: int) -> dict[str, Any]:
        seen = self.rig.compute.seen()
        size, warm = self.options["batch_size"], self.WARM + self.ahead
        numbers = range(warm, warm + steps)
        if arm.replay:
            numbers_of_replay = [number % self.WARM for number in numbers]
            expected = sum(ends(number, size) for number in numbers_of_replay)
        else:
            expected = sum(ends(number, size) for number in numbers)
        return {
            "copy": self._marks.copy_s(),
            "compute": self._marks.work_s(),
            "ok": agrees(seen, float(expected)),
            "sum": seen,
            "expected": float(expected),
        }

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "loader": self.options,
            "bytes": self.sample_bytes * self.options["batch_size"],
            "compute_s": self.compute_s,
            "ahead": self.ahead,
        }


def ends(number: int, size: int) -> int:
    """First and last element of a batch of :class:`Filled`, added up."""
    return number * size % LEVELS + ((number + 1) * size - 1) % LEVELS


def fitting(options: dict[str, Any], sample_bytes: int, free: int | None) -> dict[str, Any]:
    """Options whose batches under way fit into shared memory: smaller batches first, then no workers.

    A worker that finds no room there is killed, and takes the run with it.
    """
    options = {"num_workers": 0, "batch_size": 32, **options}
    workers = options["num_workers"]
    if workers and free is not None:
        under_way = workers * (options.get("prefetch_factor") or 2) + 2
        room = int(free * SHARE_OF_SHM / under_way / sample_bytes)
        options["batch_size"] = min(options["batch_size"], max(1, room))
        if room < 1:
            options["num_workers"] = 0
    if not options["num_workers"]:
        for name in ("prefetch_factor", "multiprocessing_context", "persistent_workers"):
            options.pop(name, None)
    return options


def free_shm() -> int | None:
    """Bytes free for shared memory, where that is a file system."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage("/dev/shm").free
    return None


def thread_seconds(name: str) -> float | None:
    """CPU seconds of this process's threads of a name; None where the system or torch does not name them."""
    total, found = 0.0, False
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return None
    for thread in threads:
        with contextlib.suppress(OSError, ValueError, IndexError):  # the thread has ended
            with open(f"/proc/self/task/{thread}/stat") as stream:
                line = stream.read()
            if line[line.index("(") + 1 : line.rindex(")")] == name:
                fields = line[line.rindex(")") + 2 :].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                found = True
    return total if found else None
