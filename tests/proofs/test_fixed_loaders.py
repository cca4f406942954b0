"""Loaders whose options a fix has changed do what their rules' good examples do: they are fixed, then run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from mended import mended

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the fixed loaders need torch"),
]

IMPORTS = """\
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset, random_split


"""


def run(code: str, place: Path, patch: pytest.MonkeyPatch, text: str) -> Any:
    """What ``main()`` of a program returns after its fixes, which must have changed it."""
    after = mended([code], place, patch, IMPORTS + text)
    names: dict[str, Any] = {"__name__": "train"}
    exec(compile(after, "train.py", "exec"), names)
    return names["main"]()


def test_options_for_workers_follow_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def build(data, workers=0):
    return DataLoader(data, num_workers=workers, persistent_workers=True, prefetch_factor=4)


def main():
    none, two = build([1, 2]), build([1, 2], 2)
    return none.persistent_workers, none.prefetch_factor, two.persistent_workers, two.prefetch_factor, list(none)
"""
    *options, batches = run("DLC203", tmp_path, monkeypatch, text)
    assert options == [False, None, True, 4]
    assert [int(batch) for batch in batches] == [1, 2]


def test_without_workers_their_options_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def main():
    data = TensorDataset(torch.arange(4))
    loader = DataLoader(data, num_workers=2, persistent_workers=True, prefetch_factor=3)
    return loader.num_workers, [int(item) for (item,) in loader]
"""
    assert run("DLC204", tmp_path, monkeypatch, text) == (0, [0, 1, 2, 3])


def test_a_loader_shuffles_where_it_has_no_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def build(data, distributed=False):
    sampler = RandomSampler(data, num_samples=3) if distributed else None
    return DataLoader(data, shuffle=True, sampler=sampler)


def main():
    return [len(build([1, 2, 3, 4])), len(build([1, 2, 3, 4], True)), type(build([1]).sampler).__name__]
"""
    assert run("DLC411", tmp_path, monkeypatch, text) == [4, 3, "RandomSampler"]


def test_a_batch_sampler_decides_what_is_in_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def build(data, size):
    rows = RandomSampler(data)
    return DataLoader(data, batch_size=size, sampler=BatchSampler(rows, size, False), drop_last=True)


def main():
    loaders = build(TensorDataset(torch.zeros(8, 2)), 4), build(TensorDataset(torch.zeros(5, 2)), 2)
    return [[tuple(rows.shape) for (rows,) in loader] for loader in loaders]
"""
    assert run("DLC424", tmp_path, monkeypatch, text) == [[(4, 2)] * 2, [(2, 2), (2, 2), (1, 2)]]


def test_a_split_is_the_same_at_every_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def main():
    return [split() for _ in range(2)]


def split():
    train, val = random_split(range(40), [30, 10])
    return val.indices
"""
    first, second = run("DLC408", tmp_path, monkeypatch, text)
    assert first == second


def test_the_last_samples_are_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def evaluate(net, loader):
    net.eval()
    total = 0
    with torch.no_grad():
        for (x,) in loader:
            total += net(x).sum()
    return total


def main():
    loader = DataLoader(TensorDataset(torch.ones(5, 1)), batch_size=2, drop_last=True)
    return int(evaluate(torch.nn.Identity(), loader))
"""
    assert run("DLC415", tmp_path, monkeypatch, text) == 5


def test_a_single_leftover_does_not_reach_the_norm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def main():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    loader = DataLoader(TensorDataset(torch.ones(5, 2)), batch_size=2)
    for (x,) in loader:
        net(x).sum().backward()
    return len(loader)
"""
    assert run("DLC419", tmp_path, monkeypatch, text) == 2
