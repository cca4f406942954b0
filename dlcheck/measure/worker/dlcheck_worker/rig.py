"""What the experiments of one process share: the device, its calibrated work, streams, events, and host memory."""

from __future__ import annotations

from typing import Any

import torch

from .compute import Compute

POISON = -1024.0  # no batch has this value: what is read before it was copied shows


class Rig:
    """One device and what was prepared for it once.

    Streams come from here and are used again: memory of torch's allocator belongs to the stream it was
    made on, and a new stream for each block would make it ask the device for memory while the clock runs.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.compute = Compute(backend)
        self.side = backend.stream()
        self._events: list[Any] = []
        self._batches: dict[tuple[int, int, bool], list[torch.Tensor]] = {}
        self._arenas: dict[bool, torch.Tensor] = {}
        self.kept: dict[Any, Any] = {}  # what an experiment measured once for all of its kind

    def events(self, number: int) -> list[Any]:
        """So many events, made before they are needed."""
        while len(self._events) < number:
            self._events.append(self.backend.event())
        return self._events[:number]

    def batches(self, size: int, number: int, pinned: bool) -> list[torch.Tensor]:
        """Host batches of ``size`` bytes; batch i holds i + 1 throughout."""
        key = (size, number, pinned)
        if key not in self._batches:
            made = [torch.full((max(2, size // 4),), float(index + 1)) for index in range(number)]
            self._batches[key] = [self.backend.pin(one) for one in made] if pinned else made
        return self._batches[key]

    def arena(self, size: int, pinned: bool) -> torch.Tensor:
        """Host memory to copy from, at least ``size`` bytes, all eight-byte words of it different."""
        kept = self._arenas.get(pinned)
        if kept is None or kept.numel() < size:
            made = torch.arange((size + 7) // 8).view(torch.uint8)
            self._arenas[pinned] = kept = self.backend.pin(made) if pinned else made
        return kept

    def scrub(self, shape: torch.Size, dtype: torch.dtype, number: int, side: bool) -> None:
        """Make ready the memory that a block's batches will get, and fill it with what no batch holds.

        Otherwise the bytes of the last block would lie there still, and a copy that comes too late would not show.
        """
        with self.backend.on(self.side if side else None):
            made = [torch.full(shape, POISON, dtype=dtype, device=self.backend.device) for _ in range(number)]
        self.backend.sync()
        del made
