"""Proofs on a CPU of the rules about copies and pinning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from real_workers import forkserver
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import pin_memory as pinning

pin_memory: Any = pinning.pin_memory

# -- DLC105


class PinsForItself(Dataset[torch.Tensor]):
    """Each sample lies in memory of the worker's own, as pinned memory would."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        sample: Any = torch.full((4,), float(index))
        assert not sample.is_shared()
        return torch.as_tensor(sample)


def first(samples: list[torch.Tensor]) -> torch.Tensor:
    return samples[0]


@pytest.mark.proves("DLC105")
def test_memory_of_a_worker_does_not_survive_the_queue() -> None:
    through_queue: Any = DataLoader(
        PinsForItself(), num_workers=1, collate_fn=first, multiprocessing_context=forkserver(), timeout=60
    )
    assert all(batch.is_shared() for batch in through_queue), "a copy in shared memory, whatever it was before"
    in_process: Any = DataLoader(PinsForItself(), collate_fn=first)
    assert not any(batch.is_shared() for batch in in_process)


# -- DLC107


@dataclass
class Plain:
    x: torch.Tensor
    y: torch.Tensor


@dataclass
class Pinnable:
    x: torch.Tensor
    y: torch.Tensor

    def pin_memory(self) -> Pinnable:
        return Pinnable(self.x.pin_memory(), self.y.pin_memory())


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The tensors that are asked to pin themselves, which no CPU could do."""
    asked: list[torch.Tensor] = []

    def ask(self: torch.Tensor, *_: Any) -> torch.Tensor:
        asked.append(self)
        return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", ask)
    return asked


@pytest.mark.proves("DLC107")
def test_pinning_skips_an_object_without_the_method(pinned: list[torch.Tensor]) -> None:
    x, y = torch.zeros(2), torch.ones(2)
    batch = Plain(x, y)
    assert pin_memory(batch) is batch
    assert pinned == []


@pytest.mark.proves("DLC107")
@pytest.mark.parametrize("kind", [Pinnable, Pair, dict, SimpleNamespace])
def test_pinning_reaches_what_it_knows(kind: Any, pinned: list[torch.Tensor]) -> None:
    pin_memory(kind(x=torch.zeros(2), y=torch.ones(2)))
    assert len(pinned) == (0 if kind is SimpleNamespace else 2)


# -- DLC108


def warnings_of(**options: Any) -> tuple[list[str], bool]:
    """What torch says of a loader's options, and whether the loader pins."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        samples: Any = range(4)
        iterator: Any = iter(DataLoader(samples, **options))
    return [str(one.message) for one in caught], bool(iterator._pin_memory)


without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


@without_gpu
@pytest.mark.proves("DLC108")
def test_pinning_without_an_accelerator_only_warns() -> None:
    said, pins = warnings_of(pin_memory=True)
    assert not pins
    assert any("no accelerator is found" in text for text in said)
    said, pins = warnings_of(pin_memory=torch.cuda.is_available())
    assert not pins
    assert said == []


@without_gpu
@pytest.mark.skipif(VERSION < (2, 9), reason="ignored since 2.9")
@pytest.mark.proves("DLC108")
def test_the_device_to_pin_for_is_ignored() -> None:
    said, _ = warnings_of(pin_memory=True, pin_memory_device="cuda:1")
    assert any("pin_memory_device" in text and "ignore" in text for text in said)
    said, _ = warnings_of(pin_memory_device="cuda:1")
    assert said == [], "without pin_memory=True nobody even looks"


# -- DLC111, DLC112, DLC113: what a host does for a copy that another device would not need


class Moves(NamedTuple):
    """The copies of three steps from the host to another device, and their bytes."""

    copies: int
    bytes: int


def moves(step: Callable[[], Any]) -> Moves:
    """What three steps copy; ``meta`` stands for the GPU: a device other than the host, which every machine has."""
    found: list[int] = []

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if "_to_copy" in str(func) and out.device.type == "meta" and args[0].device.type == "cpu":
            found.append(args[0].numel() * args[0].element_size())
        return out

    mode: Any = type("Counting", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})
    with mode():
        for _ in range(3):
            step()
    return Moves(len(found), sum(found))


@pytest.mark.proves("DLC111")
@pytest.mark.parametrize("factory", [torch.zeros, torch.ones, torch.empty, torch.rand, torch.randn])
def test_a_factory_on_the_host_copies_in_each_step(factory: Any) -> None:
    assert moves(lambda: factory(8, 4).to("meta")).copies == 3
    assert moves(lambda: factory(8, 4, device="meta")).copies == 0


@pytest.mark.proves("DLC111")
def test_a_factory_gives_the_same_wherever_it_fills() -> None:
    assert torch.arange(5).to("meta").shape == torch.arange(5, device="meta").shape
    assert torch.full((2,), 3.0).dtype == torch.full((2,), 3.0, device="meta").dtype


@pytest.mark.proves("DLC112")
def test_a_constant_in_the_loop_copies_in_each_step() -> None:
    assert moves(lambda: torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1).to("meta")).copies == 3
    before = torch.tensor([0.485, 0.456, 0.406], device="meta").view(3, 1, 1)
    assert moves(lambda: before.to("meta")).copies == 0
    on_host = torch.tensor([0.485, 0.456, 0.406])
    assert moves(lambda: on_host.to("meta")).copies == 3


@pytest.mark.proves("DLC113")
def test_floats_are_four_times_the_bytes() -> None:
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    late, early = moves(lambda: images.to("meta").float()), moves(lambda: images.float().to("meta"))
    assert early.bytes == 4 * late.bytes
    doubles = torch.zeros(4, 3, dtype=torch.float64)
    assert moves(lambda: doubles.float().to("meta")).bytes < moves(lambda: doubles.to("meta").float()).bytes


@pytest.mark.proves("DLC113")
def test_the_cast_is_exact() -> None:
    values = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(values.float().to(torch.uint8), values)
