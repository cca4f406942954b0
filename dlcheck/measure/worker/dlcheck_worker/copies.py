"""Copies by themselves: how fast they are, what many small ones cost, and tensors that are made on the wrong side."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from .compute import agrees, now
from .experiment import Experiment
from .rig import Rig

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class CopyArm:
    pinned: bool = False
    non_blocking: bool = False


class Bandwidth(Experiment):
    """Seconds of a copy of ``bytes`` into memory that is there already.

    The sources are pieces of a large area, taken in turn, so that the host's caches do not hold them;
    what the device has at the end is compared byte by byte.
    """

    unit = "s/copy"
    arm_type = CopyArm
    needs = ("async_copies", "can_pin")
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "pageable": {},
        "pageable_nb": {"non_blocking": True},
        "pinned": {"pinned": True},
        "pinned_nb": {"pinned": True, "non_blocking": True},
    }
    MOST = 400  # the queue of a device holds about a thousand entries: beyond them any call waits

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        self.size = int(self.config.get("bytes", MIB))
        self.area = max(int(self.config.get("area", 1024 * MIB)), 2 * self.size)
        self.target = torch.empty(self.size, dtype=torch.uint8, device=self.backend.device)

    def steps(self, arm: CopyArm) -> int:
        # At a pace between those of the slowest and the fastest host: the number need not be exact.
        expected = 2e-5 + self.size / 2e10
        least = int(self.config.get("steps", 8))
        number: int = min(self.MOST, max(least, round(self.config.get("block_s", 0.05) / expected)))
        return number

    def prepare(self, arm: CopyArm, steps: int) -> None:
        area = self.rig.arena(self.area, arm.pinned)
        pieces = self.area // self.size
        stride = max(1, pieces // steps)  # spread: neighbours might still be in a cache
        offsets = [index * stride % pieces * self.size for index in range(steps)]
        self._sources = [area[offset : offset + self.size] for offset in offsets]
        self._events = self.rig.events(2)
        self.target.zero_()
        self.target.copy_(self._sources[0], non_blocking=arm.non_blocking)  # the first call of a kind sets things up
        self.target.zero_()

    def timed(self, arm: CopyArm, steps: int) -> dict[str, Any]:
        begin, end = self._events
        target, non_blocking, held = self.target, arm.non_blocking, 0.0
        start = now()
        begin.record()
        for source in self._sources:
            asked = now()
            target.copy_(source, non_blocking=non_blocking)
            held += now() - asked
        end.record()
        self.backend.sync()
        seconds = now() - start
        return {"t": seconds / steps, "blocked": held / steps}

    def check(self, arm: CopyArm, steps: int) -> dict[str, Any]:
        copy = float(self._events[0].elapsed_time(self._events[1])) / 1e3 / steps
        return {
            "copy": copy,
            "gbs": self.size / copy / 1e9 if copy > 0 else 0.0,
            "ok": bool(torch.equal(self.target.cpu(), self._sources[-1])),
        }

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "bytes": self.size}


@dataclasses.dataclass(frozen=True)
class GrainArm:
    """How many copies a batch takes: ``sample`` one for each tensor of each sample, ``batch`` one for each
    tensor of the batch, ``packed`` one."""

    grain: str = "sample"
    non_blocking: bool = False

    def __post_init__(self) -> None:
        if self.grain not in ("sample", "batch", "packed"):
            raise ValueError(f"no grain `{self.grain}`: sample, batch, packed")


class SmallCopies(Experiment):
    """Seconds of a batch of ``samples`` samples with ``tensors`` tensors of ``floats`` numbers; all arms end with
    the same tensors on the device, and put them together on the way."""

    unit = "s/batch"
    arm_type = GrainArm
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sample": {"grain": "sample"},
        "batch": {"grain": "batch"},
        "packed": {"grain": "packed"},
    }

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        samples, tensors = int(self.config.get("samples", 64)), int(self.config.get("tensors", 4))
        floats = int(self.config.get("floats", 1024))
        self.samples = [
            [torch.full((floats,), float(sample * tensors + number)) for number in range(tensors)]
            for sample in range(samples)
        ]
        self.expected = float(sum(number + (samples - 1) * tensors + number for number in range(tensors)))

    def expected_s(self, arm: GrainArm) -> float:
        return 1e-5 * len(self.samples) * len(self.samples[0])

    def batch(self, arm: GrainArm) -> list[torch.Tensor]:
        """The tensors of the batch, on the device."""
        h2d, non_blocking = self.backend.h2d, arm.non_blocking
        fields = range(len(self.samples[0]))
        if arm.grain == "sample":
            moved = [[h2d(tensor, non_blocking) for tensor in sample] for sample in self.samples]
            return [torch.stack([sample[field] for sample in moved]) for field in fields]
        stacked = [torch.stack([sample[field] for sample in self.samples]) for field in fields]
        if arm.grain == "batch":
            return [h2d(tensor, non_blocking) for tensor in stacked]
        packed: torch.Tensor = h2d(torch.stack(stacked), non_blocking)
        return list(packed.unbind(0))

    def timed(self, arm: GrainArm, steps: int) -> dict[str, Any]:
        read = self.rig.compute.read
        start = now()
        for _ in range(steps):
            for tensor in self.batch(arm):
                read(tensor)
        self.backend.sync()
        return {"t": (now() - start) / steps}

    def check(self, arm: GrainArm, steps: int) -> dict[str, Any]:
        seen, expected = self.rig.compute.seen(), self.expected * steps
        return {"ok": agrees(seen, expected), "sum": seen, "expected": expected}

    def facts(self) -> dict[str, Any]:
        tensors = self.samples[0]
        return {
            **super().facts(),
            "samples": len(self.samples),
            "tensors": len(tensors),
            "bytes": 4 * sum(tensor.numel() for tensor in tensors) * len(self.samples),
        }


@dataclasses.dataclass(frozen=True)
class MakingArm:
    on_device: bool = False


class Making(Experiment):
    """Seconds of making a tensor on the host and moving it, against making it on the device.

    ``make`` says how: ``tensor`` from a Python list, which the host must read in both arms, or ``arange``.
    """

    unit = "s/call"
    arm_type = MakingArm
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"then_move": {}, "on_device": {"on_device": True}}

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        self.number = int(self.config.get("number", 100_000))
        self.make = str(self.config.get("make", "tensor"))
        if self.make not in ("tensor", "arange"):
            raise ValueError(f"no way to make a tensor `{self.make}`: tensor, arange")
        self._values = [float(index) for index in range(self.number)] if self.make == "tensor" else []

    def expected_s(self, arm: MakingArm) -> float:
        return 2e-5 + (5e-8 if self.make == "tensor" else 1e-9) * self.number

    def made(self, device: torch.device) -> torch.Tensor:
        if self.make == "tensor":
            return torch.tensor(self._values, device=device)
        return torch.arange(self.number, dtype=torch.float32, device=device)

    def timed(self, arm: MakingArm, steps: int) -> dict[str, Any]:
        read, device, host = self.rig.compute.read, self.backend.device, torch.device("cpu")
        start = now()
        for _ in range(steps):
            read(self.made(device) if arm.on_device else self.backend.h2d(self.made(host), False))
        self.backend.sync()
        return {"t": (now() - start) / steps}

    def check(self, arm: MakingArm, steps: int) -> dict[str, Any]:
        seen, expected = self.rig.compute.seen(), float(steps * (self.number - 1))
        return {"ok": agrees(seen, expected), "sum": seen, "expected": expected}

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "make": self.make, "bytes": 4 * self.number}
