"""Steps with a detour: a constant that is moved anew, bytes that cross as floats, a clock that is read too soon."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from statistics import median
from typing import Any, ClassVar

import torch

from .compute import agrees, now, spin
from .experiment import Experiment
from .overlap import terms_of
from .rig import Rig
from .steps import Kernels
from .transfer import Marks


@dataclasses.dataclass(frozen=True)
class ConstantArm:
    """``once``: the constant is made before the loop; else in each step, and moved from ordinary memory."""

    once: bool = False


class Constants(Kernels):
    """Seconds of a step that also uses a constant of three numbers."""

    arm_type = ConstantArm
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"each": {}, "once": {"once": True}}
    VALUES = (1.0, 2.0, 4.0)

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        self.making_s = median(self._timed(self._made) for _ in range(20))
        constant = self._made()
        self.copy_s = median(self._timed(lambda: self.backend.h2d(constant, False)) for _ in range(20))

    def _timed(self, call: Any) -> float:
        """Host seconds of a call with an empty queue."""
        self.backend.sync()
        start = now()
        call()
        return now() - start

    def _made(self) -> torch.Tensor:
        return torch.tensor(self.VALUES).view(3, 1, 1)

    def timed(self, arm: ConstantArm, steps: int) -> dict[str, Any]:
        total, h2d = self.rig.compute.total, self.backend.h2d
        kept = h2d(self._made(), False) if arm.once else None
        held = 0.0
        start = now()
        for _ in range(steps):
            spin(self.host_s)
            asked = now()
            constant = h2d(self._made(), False) if kept is None else kept
            held += now() - asked
            total.add_(constant[2, 0, 0])
            self._work()
        self.backend.sync()
        return {"t": (now() - start) / steps, "blocked": held / steps}

    def check(self, arm: ConstantArm, steps: int) -> dict[str, Any]:
        seen = self.rig.compute.seen()
        expected = self.sum_of(steps) + self.VALUES[2] * steps
        return {"ok": agrees(seen, expected), "sum": seen, "expected": expected}

    def facts(self) -> dict[str, Any]:
        found = super().facts()
        return {**found, "terms": {**found["terms"], "making": self.making_s, "moving": self.copy_s}}


@dataclasses.dataclass(frozen=True)
class CastArm:
    """``on_device``: the bytes are copied and cast there; else the host casts them, and ordinary memory is copied."""

    on_device: bool = False
    non_blocking: bool = True


class Casts(Experiment):
    """Seconds of a step for batches of ``bytes`` bytes, page-locked as a loader hands them out, that become floats.

    The work is ``compute_s``, or ``phi`` times the copy of the bytes.
    """

    arm_type = CastArm
    needs = ("async_copies", "can_pin")
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"host": {}, "device": {"on_device": True}}
    BYTES = 64 * 3 * 224 * 224
    BUFFERS = 4

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        self.size = int(self.config.get("bytes", self.BYTES)) // 4 * 4
        pin = self.backend.pin
        self.sources = [pin(torch.full((self.size,), index + 1, dtype=torch.uint8)) for index in range(self.BUFFERS)]
        self.copy_s = terms_of(rig, self.size, self.BUFFERS).pinned_copy
        self.pageable_s = terms_of(rig, 4 * self.size, self.BUFFERS).pageable_copy
        compute_s = float(self.config.get("compute_s", float(self.config.get("phi", 1.0)) * self.copy_s))
        self.repetitions = rig.compute.repetitions(compute_s)
        self.cast_s = median(self._cast(source) for source in self.sources)
        moved = self.backend.h2d(self.sources[0], False)
        self.device_cast_s = rig.compute.device_seconds(lambda: moved.float(), 4)
        self.launch_s = self.repetitions * rig.compute.launch_s

    def _floats(self, batch: torch.Tensor) -> torch.Tensor:
        """By the host."""
        return batch.float()

    def _cast(self, source: torch.Tensor) -> float:
        start = now()
        self._floats(source)
        return now() - start

    def expected_s(self, arm: CastArm) -> float:
        work = self.repetitions * self.rig.compute.per_s
        if arm.on_device:
            return max(self.launch_s, self.copy_s + self.device_cast_s + work)
        return max(self.launch_s + self.cast_s, work) + self.pageable_s

    def prepare(self, arm: CastArm, steps: int) -> None:
        for numbers in (self.size // 4, self.size):  # the memory of bytes, and that of floats
            self.rig.scrub(torch.Size((numbers,)), torch.float32, 2, False)
        self._marks = Marks.of(self.rig, steps)

    def timed(self, arm: CastArm, steps: int) -> dict[str, Any]:
        h2d, compute, marks, held = self.backend.h2d, self.rig.compute, self._marks, 0.0
        start = now()
        for step, source in enumerate(itertools.islice(itertools.cycle(self.sources), steps)):
            asked = now()
            batch = source if arm.on_device else self._floats(source)
            marks.copy_begin[step].record()
            moved = h2d(batch, arm.non_blocking)
            marks.copy_end[step].record()
            held += now() - asked
            marks.work_begin[step].record()
            compute.read(moved.float())
            compute.run(self.repetitions)
            marks.work_end[step].record()
        self.backend.sync()
        return {"t": (now() - start) / steps, "blocked": held / steps}

    def check(self, arm: CastArm, steps: int) -> dict[str, Any]:
        seen = self.rig.compute.seen()
        expected = float(sum(2 * (step % self.BUFFERS + 1) for step in range(steps)))
        parts = {"copy": self._marks.copy_s(), "compute": self._marks.work_s()}
        return {**parts, "ok": agrees(seen, expected), "sum": seen, "expected": expected}

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "bytes": self.size,
            "terms": {
                "launch": self.launch_s,
                "compute": self.repetitions * self.rig.compute.per_s,
                "copy": self.copy_s,
                "pageable": self.pageable_s,
                "cast": self.cast_s,
                "device_cast": self.device_cast_s,
            },
        }


@dataclasses.dataclass(frozen=True)
class ClockArm:
    synchronised: bool = False


class Clocks(Experiment):
    """Seconds that a clock misses which is read after work of ``work_s`` was asked for, waited for or not."""

    unit = "s/call"
    arm_type = ClockArm
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"at_once": {}, "waits": {"synchronised": True}}
    LEAST = 1e-6  # what two readings of a clock are apart anyway

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        self.work_s = float(self.config.get("work_s", 0.005))
        self.repetitions = max(1, rig.compute.repetitions(self.work_s))

    def expected_s(self, arm: ClockArm) -> float:
        return self.work_s

    def timed(self, arm: ClockArm, steps: int) -> dict[str, Any]:
        sync, run, total = self.backend.sync, self.rig.compute.run, self.rig.compute.total
        missed = shown = 0.0
        for _ in range(steps):
            sync()
            start = now()
            run(self.repetitions)
            total.add_(1)
            if arm.synchronised:
                sync()
            read = now()
            sync()
            missed += now() - read
            shown += read - start
        return {"t": max(missed / steps, self.LEAST), "shown": shown / steps}

    def check(self, arm: ClockArm, steps: int) -> dict[str, Any]:
        seen = self.rig.compute.seen()
        return {"ok": agrees(seen, float(steps)), "sum": seen, "expected": float(steps)}
