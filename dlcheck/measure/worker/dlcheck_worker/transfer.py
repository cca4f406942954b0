"""How a batch gets to the device: the settings of an arm, and the loop that all arms share."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import torch

from .rig import Rig

now = time.perf_counter


@dataclasses.dataclass(frozen=True)
class TransferArm:
    """What the code under test says about its transfer.

    ``wait_event`` False is the negative control: work is put in the queue without waiting for the
    copy on the side stream, which is wrong, and must be seen to be wrong.
    """

    pinned: bool = False
    non_blocking: bool = False
    side_stream: bool = False
    pin_and_copy: bool = False
    wait_event: bool = True


@dataclasses.dataclass
class Marks:
    """Events around the copy and the work of each step, recorded in the block and read after it."""

    copy_begin: list[Any]
    copy_end: list[Any]
    work_begin: list[Any]
    work_end: list[Any]

    @classmethod
    def of(cls, rig: Rig, steps: int) -> Marks:
        events = rig.events(4 * steps)
        return cls(*(events[part * steps : (part + 1) * steps] for part in range(4)))

    def copy_s(self) -> float:
        return _mean_s(self.copy_begin, self.copy_end)

    def work_s(self) -> float:
        return _mean_s(self.work_begin, self.work_end)


def _mean_s(begins: list[Any], ends: list[Any]) -> float:
    total: float = sum(begin.elapsed_time(ends[index]) for index, begin in enumerate(begins))
    return total / 1e3 / len(begins)


@dataclasses.dataclass
class Spent:
    """Host seconds of a loop: held up by transfers, and waiting for batches."""

    blocked: float = 0.0
    waits: list[float] = dataclasses.field(default_factory=list)


def run(rig: Rig, arm: TransferArm, batches: Iterator[Any], repetitions: int, marks: Marks) -> Spent:
    """So many steps as there are marks: take a batch, move it, read it, compute.

    With a side stream the next batch is fetched and its copy begun after the work on this one is in the queue.
    """
    steps = len(marks.copy_begin)
    spent = Spent()
    compute = rig.compute

    def begin(step: int) -> torch.Tensor:
        asked = now()
        batch = next(batches)
        got = now()
        spent.waits.append(got - asked)
        moved = _begin(rig, arm, batch, marks.copy_begin[step], marks.copy_end[step])
        spent.blocked += now() - got
        return moved

    ahead = begin(0) if arm.side_stream else None
    for step in range(steps):
        batch = begin(step) if ahead is None else ahead
        if arm.side_stream:
            asked = now()
            if arm.wait_event:
                rig.backend.wait(marks.copy_end[step])
            rig.backend.keep(batch)
            spent.blocked += now() - asked
        marks.work_begin[step].record()
        compute.read(batch)
        compute.run(repetitions)
        marks.work_end[step].record()
        if arm.side_stream and step + 1 < steps:
            ahead = begin(step + 1)
    return spent


def _begin(rig: Rig, arm: TransferArm, batch: torch.Tensor, copy_begin: Any, copy_end: Any) -> torch.Tensor:
    with rig.backend.on(rig.side if arm.side_stream else None):
        copy_begin.record()
        if arm.pin_and_copy:
            batch = rig.backend.pin(batch)
        moved: torch.Tensor = rig.backend.h2d(batch, arm.non_blocking)
        copy_end.record()
    return moved
