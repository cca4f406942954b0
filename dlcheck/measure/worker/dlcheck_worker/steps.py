"""What a step does besides its work that makes the host wait: reading a loss, synchronizing, emptying the cache."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, ClassVar, TextIO

import torch

from .compute import agrees, now, spin
from .experiment import Experiment
from .rig import Rig

KINDS = ("none", "item", "print", "cpu", "synchronize")


@dataclasses.dataclass(frozen=True)
class SyncArm:
    """How the host looks at the loss (``sync``), and at every how many steps (``every``; 0: never)."""

    sync: str = "item"
    every: int = 1

    def __post_init__(self) -> None:
        if self.sync not in KINDS:
            raise ValueError(f"no way to wait `{self.sync}`: {', '.join(KINDS)}")
        if self.every < 0:
            raise ValueError("`every` is a number of steps")


def sized(rig: Rig, target_s: float, least: int = 1 << 10, most: int = 1 << 27) -> tuple[torch.Tensor, float]:
    """A tensor on which one small kernel takes about so long, and how long it takes."""
    low, high = least, most
    while high > 2 * low:  # the middle of the powers: a device's time grows with the size, or not at all
        middle = 1 << ((low.bit_length() + high.bit_length() - 2 + 1) // 2)
        if middle in (low, high):
            break
        if _kernel_s(rig, torch.zeros(middle, device=rig.backend.device)) < target_s:
            low = middle
        else:
            high = middle
    values = torch.zeros(high, device=rig.backend.device)
    return values, _kernel_s(rig, values)


def _kernel_s(rig: Rig, values: torch.Tensor) -> float:
    return min(rig.compute.device_seconds(lambda: add_one(values), 40) for _ in range(2))


def add_one(values: torch.Tensor) -> None:
    values.add_(1.0)


def launch_s(rig: Rig, count: int = 200) -> float:
    """Seconds of host for the launch of one small kernel."""
    values = torch.zeros(1 << 10, device=rig.backend.device)
    best = float("inf")
    for _ in range(5):
        rig.backend.sync()
        start = now()
        for _ in range(count):
            add_one(values)
        best = min(best, (now() - start) / count)
    rig.backend.sync()
    return best


class Kernels(Experiment):
    """A step of ``kernels`` small kernels, whose loss is a whole number known beforehand and summed on the device.

    ``compute_of_launch`` is how long a kernel runs against how long its launch takes; ``host_s`` is what the host
    does besides, or ``host_of_step`` times the longer of work and launches.
    """

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        self.kernels = int(self.config.get("kernels", 50))
        self.kernel_launch_s = launch_s(rig)
        target = float(self.config.get("compute_of_launch", 1.0)) * self.kernel_launch_s
        self.values, self.kernel_s = sized(rig, target, most=int(self.config.get("most", 1 << 27)))
        self.launch_s = self._launch()
        self.compute_s = self.kernels * self.kernel_s
        host = self.config.get("host_s")
        longer = max(self.launch_s, self.compute_s)
        self.host_s = float(self.config.get("host_of_step", 0.0)) * longer if host is None else float(host)
        self.sync_s = self._one_sync()

    def _launch(self) -> float:
        """Host seconds for putting one step into an empty queue."""
        best = float("inf")
        for _ in range(10):
            self.backend.sync()
            start = now()
            self._work()
            best = min(best, now() - start)
        self.backend.sync()
        return best

    def _work(self) -> torch.Tensor:
        """A step without looks; its loss, on the device."""
        values = self.values
        for _ in range(self.kernels):
            add_one(values)
        loss = values[0]
        self.rig.compute.total.add_(loss)
        return loss

    def _one_sync(self) -> float:
        """What the host pays for asking when there is hardly anything to wait for."""
        loss, best = self.values[0], float("inf")
        for _ in range(20):
            add_one(self.values[:1])
            start = now()
            loss.item()
            best = min(best, now() - start)
        return best

    def expected_s(self, arm: Any) -> float:
        return max(self.host_s + self.launch_s, self.compute_s)

    def prepare(self, arm: Any, steps: int) -> None:
        self.values.zero_()

    def sum_of(self, steps: int) -> float:
        """Of the losses of so many steps."""
        return float(self.kernels * steps * (steps + 1) // 2)

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "kernels": self.kernels,
            "numbers": self.values.numel(),
            "terms": {
                "host": self.host_s,
                "launch": self.launch_s,
                "compute": self.compute_s,
                "kernel": self.kernel_s,
                "sync": self.sync_s,
            },
        }


class Syncs(Kernels):
    """Seconds of a step whose loss the host looks at, and adds up, or does not."""

    arm_type = SyncArm
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "every": {"sync": "item", "every": 1},
        "interval": {"sync": "item", "every": 25},
        "never": {"sync": "none", "every": 0},
    }

    def steps(self, arm: SyncArm) -> int:
        """The same number for all arms, a multiple of their intervals: each block ends with a look where it has any."""
        interval: int = max([1, *(one.every for one in self.arms.values())])
        return -(-super().steps(arm) // interval) * interval

    def prepare(self, arm: SyncArm, steps: int) -> None:
        super().prepare(arm, steps)
        self._looked = 0.0

    def timed(self, arm: SyncArm, steps: int) -> dict[str, Any]:
        host_s, work = self.host_s, self._work
        looked, held, every = 0.0, 0.0, arm.every
        with open(os.devnull, "w") as sink:
            start = now()
            for step in range(1, steps + 1):
                spin(host_s)
                loss = work()
                if every and step % every == 0:
                    asked = now()
                    looked += self._look(arm.sync, loss, sink)
                    held += now() - asked
            self.backend.sync()
            seconds = now() - start
        self._looked = looked
        return {"t": seconds / steps, "blocked": held / steps}

    def _look(self, kind: str, loss: torch.Tensor, sink: TextIO) -> float:
        if kind == "item":
            return float(loss.item())
        if kind == "cpu":
            return float(loss.cpu())
        if kind == "print":
            sink.write(f"{loss}\n")
        elif kind == "synchronize":
            self.backend.sync()
        return 0.0

    def check(self, arm: SyncArm, steps: int) -> dict[str, Any]:
        seen = self.rig.compute.seen()
        expected = self.sum_of(steps)
        every = arm.every if arm.sync in ("item", "cpu") else 0
        looks = range(every, steps + 1, every) if every else ()
        told = float(sum(self.kernels * step for step in looks))
        return {
            "ok": agrees(seen, expected) and agrees(self._looked, told),
            "sum": seen,
            "expected": expected,
        }


@dataclasses.dataclass(frozen=True)
class ReleaseArm:
    empty_cache: bool = False


class Releases(Experiment):
    """Seconds of a step that makes and drops tensors of ``sizes`` bytes; the cache is emptied after it, or not."""

    arm_type = ReleaseArm
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"keeps": {}, "empties": {"empty_cache": True}}
    KIB = (4, 16, 64, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 20480)
    KIB_OF_LARGE = (32768, 32768, 49152, 65536, 65536)

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        self.sizes = tuple(self.config.get("sizes", [size << 10 for size in self.KIB + self.KIB_OF_LARGE]))

    def expected_s(self, arm: ReleaseArm) -> float:
        return 1e-2 if arm.empty_cache else 1e-3

    def timed(self, arm: ReleaseArm, steps: int) -> dict[str, Any]:
        total, device, sizes = self.rig.compute.total, self.backend.device, self.sizes
        before = self.backend.allocations()
        start = now()
        for step in range(steps):
            kept = []
            for size in sizes:
                values = torch.empty(size // 4, device=device)
                values.fill_(float(step % 7))
                total.add_(values[-1])
                kept.append(values)
            del kept, values
            if arm.empty_cache:
                self.backend.empty_cache()
        self.backend.sync()
        seconds = now() - start
        found: dict[str, Any] = {"t": seconds / steps}
        after = self.backend.allocations()
        if before is not None and after is not None:
            found["allocated"] = (after["allocated"] - before["allocated"]) / steps
            found["freed"] = (after["freed"] - before["freed"]) / steps
            found["peak"] = after["peak"]
        return found

    def check(self, arm: ReleaseArm, steps: int) -> dict[str, Any]:
        seen = self.rig.compute.seen()
        expected = float(len(self.sizes) * sum(step % 7 for step in range(steps)))
        return {"ok": agrees(seen, expected), "sum": seen, "expected": expected}

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "tensors": len(self.sizes), "bytes": sum(self.sizes)}
