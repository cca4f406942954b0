"""Devices for tests: one that copies as late as it may, and one that counts how often the host waits for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from dlcheck_worker.device import Clock, CpuBackend
from dlcheck_worker.rig import POISON


class Lane:
    """A stream whose copies nobody has waited for yet."""

    def __init__(self) -> None:
        self.todo: list[Callable[[], Any]] = []
        self.done = 0

    def run(self, until: int) -> None:
        while self.done < until:
            self.todo[self.done]()
            self.done += 1


class LateEvent(Clock):
    def __init__(self, device: LateBackend) -> None:
        super().__init__()
        self._device = device
        self.lane: Lane | None = None
        self.position = 0

    def record(self, stream: Any = None) -> None:
        super().record()
        self.lane = self._device.current
        self.position = len(self.lane.todo) if self.lane else 0


class LateBackend(CpuBackend):
    """The order of things that a GPU promises and nothing more: a copy on a side stream happens when it is waited for.

    It is no GPU and tells no times; it shows whether an experiment waits for what it reads.
    """

    name = "late"
    async_copies = True
    can_pin = True

    def __init__(self) -> None:
        super().__init__()
        self.current: Lane | None = None
        self.lanes: list[Lane] = []
        self.kept = 0

    def event(self) -> Any:
        return LateEvent(self)

    def stream(self) -> Any:
        self.lanes.append(Lane())
        return self.lanes[-1]

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream or self.current
        try:
            yield
        finally:
            self.current = before

    def wait(self, event: Any) -> None:
        if event.lane is not None:
            event.lane.run(event.position)

    def sync(self) -> None:
        for lane in self.lanes:
            lane.run(len(lane.todo))

    def h2d(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        if self.current is None or not non_blocking:
            return tensor.clone()
        target = torch.full_like(tensor, POISON)
        self.current.todo.append(lambda: target.copy_(tensor))
        return target

    def keep(self, tensor: torch.Tensor) -> None:
        self.kept += 1


class CountingBackend(CpuBackend):
    """The host, and how often somebody waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.streams = 0

    def sync(self) -> None:
        self.waits += 1

    def stream(self) -> Any:
        self.streams += 1
        return super().stream()


class VirtualClock:
    """The host's time in a world without noise; looking at it takes a little, so that who waits for it gets on."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 1e-7
        return self.time

    def spin(self, seconds: float) -> None:
        self.time += seconds


class Queue:
    def __init__(self) -> None:
        self.free_at = 0.0


class VirtualEvent:
    def __init__(self, device: VirtualBackend) -> None:
        self._device = device
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        self.time = max(self._device.current.free_at, self._device.clock.time)

    def elapsed_time(self, end: VirtualEvent) -> float:
        return (end.time - self.time) * 1e3


class VirtualBackend(CpuBackend):
    """A device of queues: each does what it is given, in order, beside the others and beside the host.

    That is all that the step model assumes, so with it loop and model must agree; a GPU may still differ.
    """

    name = "virtual"
    async_copies = True
    can_pin = True

    def __init__(self, clock: VirtualClock, copy: float, pageable: float, pin: float) -> None:
        super().__init__()
        self.clock = clock
        self.copy, self.pageable, self.pinning = copy, pageable, pin
        self.queues = [Queue()]
        self.current = self.queues[0]
        self._pinned: set[int] = set()
        self._alive: list[torch.Tensor] = []

    def event(self) -> Any:
        return VirtualEvent(self)

    def stream(self) -> Any:
        self.queues.append(Queue())
        return self.queues[-1]

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream or self.current
        try:
            yield
        finally:
            self.current = before

    def wait(self, event: Any) -> None:
        self.current.free_at = max(self.current.free_at, event.time)

    def sync(self) -> None:
        self.clock.time = max([self.clock.time, *(queue.free_at for queue in self.queues)])

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        self.clock.time += self.pinning
        pinned = tensor.clone()
        self._alive.append(pinned)  # else its address might be another's later
        self._pinned.add(pinned.data_ptr())
        return pinned

    def h2d(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        queue = self.current
        begin = max(self.clock.time, queue.free_at)
        if tensor.data_ptr() in self._pinned:
            queue.free_at = begin + self.copy
            if not non_blocking:
                self.clock.time = queue.free_at
        else:
            self.clock.time = queue.free_at = begin + self.pageable
        return tensor.clone()

    def kernels(self, number: int, launch_s: float, kernel_s: float) -> None:
        """So many kernels, one behind the other, each put in the queue by the host."""
        for _ in range(number):
            self.clock.time += launch_s
            self.current.free_at = max(self.current.free_at, self.clock.time) + kernel_s


class LateCopies:
    """A device that reads and writes the host's memory when somebody waits, unless it is told to block.

    Memory that a tensor has left is the next one's at once, as an allocator may have it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._todo: list[Callable[[], Any]] = []

    def work(self) -> None:
        pass

    def wait(self) -> None:
        for one in self._todo:
            one()
        self._todo.clear()

    def to_host(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        return self._copied(tensor, non_blocking)

    def to_device(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        moved = self._copied(tensor, non_blocking)
        if non_blocking:
            tensor.fill_(POISON)
        return moved

    def _copied(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        target = torch.full_like(tensor, POISON)
        self._todo.append(lambda: target.copy_(tensor))
        if not non_blocking:
            self.wait()
        return target
