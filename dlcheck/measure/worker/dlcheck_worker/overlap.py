"""Does the copy of a batch run beside the work on another? The arms of a transfer, against a known load."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, ClassVar

import torch

from .compute import agrees, now, spin
from .experiment import Experiment
from .rig import Rig
from .transfer import Marks, TransferArm, run

MIB = 1 << 20
SHARE_OF_MEMORY = 0.25  # of the device: the most that batches under way may take

ARMS: dict[str, dict[str, bool]] = {
    "pageable": {},
    "pageable_nb": {"non_blocking": True},
    "pinned": {"pinned": True},
    "pinned_nb": {"pinned": True, "non_blocking": True},
    "pinned_nb_side": {"pinned": True, "non_blocking": True, "side_stream": True},
    "pin_and_copy": {"pin_and_copy": True, "non_blocking": True},
}
# Runs beside the arms and is no arm: it must read bytes that have not arrived, or the checksums prove nothing.
CONTROL = {"pinned": True, "non_blocking": True, "side_stream": True, "wait_event": False}


class Terms:
    """Seconds of each part of a step, measured apart: what the step model is fed with."""

    def __init__(self, rig: Rig, size: int, buffers: int) -> None:
        self._rig = rig
        backend = rig.backend
        pageable, pinned = rig.batches(size, buffers, False), rig.batches(size, buffers, True)
        rig.compute.warm()
        self.pinned_copy = median(self._queued(pinned) for _ in range(3))
        self.pageable_copy = median(self._blocking(pageable) for _ in range(3))
        for batch in itertools.islice(pageable, 2):
            backend.h2d(backend.pin(batch), True)
        backend.sync()
        self.pin = median(self._pinning(batch) for batch in pageable)

    def _queued(self, batches: list[torch.Tensor]) -> float:
        """Copies one behind the other, as the device's clock sees them."""
        backend = self._rig.backend
        begin, end = backend.event(), backend.event()
        backend.sync()
        begin.record()
        for batch in batches:
            backend.h2d(batch, True)
        end.record()
        backend.sync()
        return float(begin.elapsed_time(end)) / 1e3 / len(batches)

    def _blocking(self, batches: list[torch.Tensor]) -> float:
        backend = self._rig.backend
        backend.sync()
        start = now()
        for batch in batches:
            backend.h2d(batch, False)
        backend.sync()
        return (now() - start) / len(batches)

    def _pinning(self, batch: torch.Tensor) -> float:
        """The host's copy into page-locked memory that the allocator has already, as in the middle of a run."""
        start = now()
        pinned = self._rig.backend.pin(batch)
        seconds = now() - start
        del pinned
        return seconds


def terms_of(rig: Rig, size: int, buffers: int) -> Terms:
    """The terms for batches of a size, measured once in a process."""
    key = ("terms", size, buffers)
    if key not in rig.kept:
        rig.kept[key] = Terms(rig, size, buffers)
    terms: Terms = rig.kept[key]
    return terms


class Overlap(Experiment):
    """Seconds of a step by arm, for batches of ``bytes``.

    The work K is ``compute_s``, or ``phi`` times a pinned copy; the host's c is ``host_s``, or
    ``host_of_compute`` times K.
    """

    arm_type = TransferArm
    needs = ("async_copies", "can_pin")
    default_arms: ClassVar[Mapping[str, Mapping[str, Any]]] = ARMS

    def __init__(self, config: Any, rig: Rig) -> None:
        super().__init__(config, rig)
        self.size = int(self.config.get("bytes", 64 * MIB)) // 4 * 4
        self.buffers = int(self.config.get("buffers", 8))
        self.terms = terms_of(rig, self.size, self.buffers)
        wanted = self.config.get("compute_s")
        if wanted is None:
            wanted = self.config.get("phi", 1.0) * self.terms.pinned_copy
        self.repetitions = rig.compute.repetitions(float(wanted))
        self.compute_s = self.repetitions * rig.compute.per_s
        self.launch_s = self._launch()
        host = self.config.get("host_s")
        self.host_s = float(self.config.get("host_of_compute", 0.0)) * self.compute_s if host is None else float(host)

    def _launch(self) -> float:
        """Host seconds for putting the work of one step into an empty queue."""
        batch = self.backend.h2d(self.sources(TransferArm())[0], False)
        begin, end = self.rig.events(2)
        seconds = []
        for _ in range(5):
            self.backend.sync()
            start = now()
            begin.record()
            self.rig.compute.read(batch)
            self.rig.compute.run(self.repetitions)
            end.record()
            seconds.append(now() - start)
        self.backend.sync()
        return median(seconds)

    def expected_s(self, arm: TransferArm) -> float:
        copy = self.terms.pinned_copy if arm.pinned else self.terms.pageable_copy
        return max(self.host_s + self.launch_s, self.compute_s, copy)

    def sources(self, arm: TransferArm) -> list[torch.Tensor]:
        return self.rig.batches(self.size, self.buffers, arm.pinned)

    def steps(self, arm: TransferArm) -> int:
        return min(super().steps(arm), self._most()) if arm.side_stream else super().steps(arm)

    def _most(self) -> int:
        """The host may run ahead by a whole block, and each batch under way has memory of its own."""
        free = self.backend.free_bytes()
        return 1 << 30 if free is None else max(4, int(free * SHARE_OF_MEMORY / self.size))

    def prepare(self, arm: TransferArm, steps: int) -> None:
        like = self.sources(arm)[0]
        self.rig.scrub(like.shape, like.dtype, steps + 1 if arm.side_stream else 2, arm.side_stream)
        if arm.pin_and_copy:
            self.backend.ready_pinned(like, min(steps, 24))
        self._marks = Marks.of(self.rig, steps)

    def _feed(self, arm: TransferArm) -> Iterator[torch.Tensor]:
        for batch in itertools.cycle(self.sources(arm)):
            spin(self.host_s)
            yield batch

    def timed(self, arm: TransferArm, steps: int) -> dict[str, Any]:
        batches = self._feed(arm)
        start = now()
        spent = run(self.rig, arm, batches, self.repetitions, self._marks)
        self.backend.sync()
        seconds = now() - start
        return {"t": seconds / steps, "blocked": spent.blocked / steps}

    def check(self, arm: TransferArm, steps: int) -> dict[str, Any]:
        seen = self.rig.compute.seen()
        expected = float(sum(2 * (step % self.buffers + 1) for step in range(steps)))
        return {
            "copy": self._marks.copy_s(),
            "compute": self._marks.work_s(),
            "ok": agrees(seen, expected),
            "sum": seen,
            "expected": expected,
        }

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "bytes": self.size,
            "repetitions": self.repetitions,
            "terms": {
                "host": self.host_s,
                "launch": self.launch_s,
                "compute": self.compute_s,
                "copy": self.terms.pinned_copy,
                "pageable": self.terms.pageable_copy,
                "pin": self.terms.pin,
            },
        }
