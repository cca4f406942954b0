"""What a worker times for a search: loaders whose figures are known, real processes, and no times that are asserted."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "dlcheck" / "measure" / "worker"))
if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)

import torch
from dlcheck_worker import blocks, tuning
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Counted(Dataset[torch.Tensor]):
    """Samples whose number is their value; how many were made here is counted."""

    def __init__(self, size: int = 12, seconds: float = 0.0) -> None:
        self.size, self.seconds, self.made = size, seconds, 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.size:
            raise IndexError(index)
        self.made += 1
        time.sleep(self.seconds)
        return torch.tensor([float(index)])


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.tensor([float(number)]) for number in range(self.size))


class Source:
    step = None

    def __init__(self, dataset: Any, **options: Any) -> None:
        self.dataset, self.options = dataset, options
        self.loaders: list[Any] = []

    def loader(self, options: dict[str, Any], dataset: Any = None) -> Any:
        loader = DataLoader(self.dataset, **{"batch_size": 2, **self.options, **options})
        self.loaders.append(loader)
        return loader


def block(source: Source, kind: str = "stretch", **config: Any) -> dict[str, Any]:
    return blocks.Arm(source, {"block": kind, "seconds": 0.02, "step": {"kind": "none"}, **config}).block()


def test_a_stretch_goes_on_over_the_ends_of_short_epochs() -> None:
    source = Source(Counted(4))
    found = block(source)
    assert found["n"] >= tuning.FEWEST
    assert source.dataset.made >= 2 * found["n"]
    assert found["batch_bytes"] == 8
    assert found["copy"] == 0.0 or torch.cuda.is_available()


def test_a_slow_loader_is_not_waited_for_longer_than_it_takes_to_tell() -> None:
    source = Source(Counted(1000, seconds=0.03))
    assert block(source)["n"] == tuning.FEWEST


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_workers_leave_nothing_behind() -> None:
    source = Source(Counted(200), num_workers=2, multiprocessing_context="fork")
    found = block(source)
    assert found["n"] >= 4  # each worker had its turn, twice
    assert found["memory"]["pss"] is None or found["memory"]["pss"] > found["memory"]["workers"] >= 0
    assert not torch.multiprocessing.active_children()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("persistent", [False, True])
def test_slow_workers_end_with_what_they_have_in_the_making(persistent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "DRAINED_S", -1.0)  # nothing is worth waiting for
    options = {"num_workers": 2, "prefetch_factor": 16, "multiprocessing_context": "fork"}
    source = Source(Counted(2000), persistent_workers=persistent, **options)
    source.loaders = Forgetful()
    found = block(source)
    assert found["n"] >= tuning.FEWEST
    assert not torch.multiprocessing.active_children()


class Forgetful(list[Any]):
    """A loader that is remembered does not end."""

    def append(self, one: Any) -> None:
        self[:] = [weakref.proxy(one)]


def test_waiting_is_part_of_a_step() -> None:
    found = block(Source(Counted(1000)), step={"kind": "idle-wait", "s": 0.005})
    assert 0 < found["wait"] < found["t"]
    assert found["t"] >= 0.005


@pytest.mark.parametrize("size", [3, 5, 100_000])
def test_streams_end_where_they_end(size: int) -> None:
    found = block(Source(Stream(size)))
    assert found["t"] > 0
    assert size == 100_000 or found["n"] <= -(-size // 2)


def test_an_empty_loader_is_an_error() -> None:
    with pytest.raises(ValueError, match="no batch"):
        block(Source(Stream(0)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("persistent", [False, True])
def test_starts_are_those_of_an_epoch(persistent: bool) -> None:
    options = {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": persistent}
    source = Source(Counted(100), **options)
    found = block(source, "starts")
    assert found["t"] > 0
    assert found["once"] > 0
    assert len(source.loaders) == 1


def test_what_is_moved_keeps_its_structure() -> None:
    move = tuning.Mover(wanted=False, pinned=True)
    batch = {"x": torch.ones(2), "y": [torch.ones(1), "name", (torch.ones(3), 4)]}
    assert move(batch) is batch
    assert move.seconds(batch) == 0.0
    move.device = "meta"  # in place of a GPU: what is moved there is somewhere else as well
    moved = move(batch)
    assert moved["x"].device.type == moved["y"][0].device.type == moved["y"][2][0].device.type == "meta"
    assert (moved["y"][1], moved["y"][2][1]) == ("name", 4)
    assert move.seconds(batch) > 0
