"""Batches on their way to a device and back: what of them is pinned, and what is read before it has arrived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch.utils.data._utils import pin_memory as pinning

from .asking import Inapplicable, answer

TIMES = 100
NUMBERS = 1 << 20
LOAD = 40  # multiplications that the device has still before it when it is asked for a copy


def tensors_not_pinned(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a batch holds tensors that the loader's pinning does not get to."""
    real = torch.cuda.is_available()
    batch = next(iter(source.loader({"pin_memory": real})), None)
    found = {id(one): one for one in _tensors(batch) if not one.is_cuda}
    if not found:
        raise Inapplicable("a batch holds no tensors")
    pinned = {key for key, one in found.items() if one.is_pinned()} if real else _reached(batch) & set(found)
    said = f"of {len(found)} tensors in a batch ({type(batch).__name__}) {len(pinned)} "
    said += "are pinned" if real else "are reached by what pins it"
    return answer(len(pinned) < len(found), said, tensors=len(found), pinned=len(pinned))


def _tensors(value: Any, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """All tensors that an object holds."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, (str, bytes, int, float, type, ModuleType)):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        return
    inside = list(value.values()) if isinstance(value, Mapping) else []
    inside += value if isinstance(value, (list, tuple)) else []
    inside += vars(value).values() if hasattr(value, "__dict__") else []
    inside += [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
    for one in inside:
        yield from _tensors(one, seen)


def _reached(batch: Any) -> set[int]:
    """The tensors that torch's own function would pin: without a CUDA device it can only be watched."""
    reached: set[int] = set()

    def note(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
        reached.add(id(tensor))
        return tensor

    with _replaced(torch.Tensor, "pin_memory", note):
        pinning.pin_memory(batch)  # type: ignore[no-untyped-call, unused-ignore]
    return reached


@contextmanager
def _replaced(cls: Any, name: str, value: Any) -> Iterator[None]:
    """A method that the class inherits, replaced for a while."""
    setattr(cls, name, value)
    try:
        yield
    finally:
        delattr(cls, name)


# Asked of a device, not of the program: what is read is known


def read_before_arrival(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether what a copy to the host gives is read before the device has written it."""
    device = Device(config.get("device", "cuda"))
    values = torch.zeros(NUMBERS, device=device.name)
    early = blocking = 0
    for number in range(1, TIMES + 1):
        device.work()
        values.fill_(number)
        read = device.to_host(values, non_blocking=True)
        early += bool((read != number).any())
        device.wait()
        blocking += bool((device.to_host(values, non_blocking=False) != number).any())
    said = (
        f"of {TIMES} copies to the host that nobody waits for {early} were read too soon; of blocking ones {blocking}"
    )
    return answer(early > blocking, said, early=early, blocking=blocking, copies=TIMES)


def source_reused_too_soon(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a copy to the device reads memory of the host that was given to another tensor meanwhile."""
    device = Device(config.get("device", "mps"))
    wrong = {True: 0, False: 0}
    for number in range(1, TIMES + 1):
        for non_blocking in wrong:
            device.work()
            made = torch.full((NUMBERS,), float(number))
            moved = device.to_device(made, non_blocking=non_blocking)
            del made
            others = [torch.full((NUMBERS,), -1.0) for _ in range(2)]  # what the batch lay in is theirs now
            device.wait()
            wrong[non_blocking] += bool((moved.cpu() != number).any())
            del others
    said = (
        f"of {TIMES} copies that are not waited for {wrong[True]} hold other numbers, of blocking ones {wrong[False]}"
    )
    return answer(wrong[True] > wrong[False], said, wrong=wrong[True], blocking=wrong[False], copies=TIMES)


class Device:
    """An accelerator that has work before it, so that what it is asked for comes late."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._matrix = torch.eye(1024, device=name)

    def work(self) -> None:
        for _ in range(LOAD):
            self._matrix = self._matrix @ self._matrix

    def wait(self) -> None:
        module = getattr(torch, self.name, None)
        if module is not None and hasattr(module, "synchronize"):
            module.synchronize()

    def to_host(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        return tensor.to("cpu", non_blocking=non_blocking, copy=True)

    def to_device(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        return tensor.to(self.name, non_blocking=non_blocking, copy=True)
