"""Programs in which a fix has added, moved or changed a statement do what their rules' good examples do."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from mended import mended

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the fixed programs need torch"),
]

IMPORTS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, SubsetRandomSampler, TensorDataset


"""


def fixed(code: str, place: Path, patch: pytest.MonkeyPatch, text: str) -> dict[str, Any]:
    """The names of a program, run after its fixes, which must have changed it."""
    after = mended([code], place, patch, IMPORTS + text)
    names: dict[str, Any] = {"__name__": "train"}
    exec(compile(after, "train.py", "exec"), names)
    return names


def test_a_sum_of_losses_keeps_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def train(net, loader):
    total, curve = 0.0, []
    for rows in loader:
        loss = net(rows).mean()
        loss.backward()
        total += loss * len(rows)
        curve.append(loss)
    return total, curve
"""
    torch = pytest.importorskip("torch")
    train = fixed("DLC503", tmp_path, monkeypatch, text)["train"]
    total, curve = train(torch.nn.Linear(2, 1), [torch.ones(3, 2)] * 4)
    assert total.grad_fn is None
    assert not any(loss.requires_grad for loss in curve)


def test_an_evaluation_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def features(net, data):
    net.eval()
    found = []
    for (rows,) in DataLoader(data, batch_size=2):
        found.append(net(rows))
    return torch.cat(found)


def run(net, data):
    loader = DataLoader(data, batch_size=2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    seen = []
    for (rows,) in loader:
        loss = net(rows).mean()
        loss.backward()
        optimizer.step()
    net.eval()
    for (rows,) in loader:
        seen.append(net(rows))
    return seen
"""
    torch = pytest.importorskip("torch")
    names = fixed("DLC505", tmp_path, monkeypatch, text)
    net, data = torch.nn.Linear(2, 1), torch.utils.data.TensorDataset(torch.ones(4, 2))
    assert not names["features"](net, data).requires_grad
    assert not any(output.requires_grad for output in names["run"](net, data))
    assert net.weight.grad is not None


def test_each_epoch_has_an_order_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def train(net, data):
    sampler = DistributedSampler(data, num_replicas=1, rank=0)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    orders = []
    for epoch in range(3):
        for (rows,) in loader:
            net(rows).mean().backward()
            orders.append(rows.flatten().tolist())
    return orders
"""
    torch = pytest.importorskip("torch")
    train = fixed("DLC410", tmp_path, monkeypatch, text)["train"]
    orders = train(torch.nn.Linear(1, 1), torch.utils.data.TensorDataset(torch.arange(32.0)[:, None]))
    assert len(set(map(tuple, orders))) == 3


def test_a_seed_follows_the_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def train(net, data):
    loader = DataLoader(data, batch_size=32, shuffle=True)
    orders = []
    for epoch in range(3):
        torch.manual_seed(7)
        for (rows,) in loader:
            net(rows).mean().backward()
            orders.append(rows.flatten().tolist())
    return orders
"""
    torch = pytest.importorskip("torch")
    train = fixed("DLC406", tmp_path, monkeypatch, text)["train"]
    orders = train(torch.nn.Linear(1, 1), torch.utils.data.TensorDataset(torch.arange(32.0)[:, None]))
    assert len(set(map(tuple, orders))) == 3


def test_batches_come_once_in_each_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def train(net, data, steps):
    loader = DataLoader(data, batch_size=2, shuffle=True)
    seen = []
    for step in range(steps):
        (rows,) = next(iter(loader))
        net(rows).mean().backward()
        seen.append(rows.flatten().tolist())
    return seen
"""
    torch = pytest.importorskip("torch")
    text = text.replace("shuffle=True", "num_workers=2")
    train = fixed("DLC207", tmp_path, monkeypatch, text)["train"]
    seen = train(torch.nn.Linear(1, 1), torch.utils.data.TensorDataset(torch.arange(4.0)[:, None]), 4)
    assert seen == [[0, 1], [2, 3], [0, 1], [2, 3]]


def test_a_new_pass_has_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
from itertools import cycle


def train(data, steps):
    stream = cycle(DataLoader(data, batch_size=32, shuffle=True))
    return [next(stream)[0].flatten().tolist() for _ in range(steps)]
"""
    torch = pytest.importorskip("torch")
    names = fixed("DLC208", tmp_path, monkeypatch, text)
    passes = names["train"](torch.utils.data.TensorDataset(torch.arange(32.0)[:, None]), 3)
    assert len(set(map(tuple, passes))) == 3
    assert "cycle" not in names


def test_a_loader_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def train(net, data, epochs):
    seen = 0
    for epoch in range(epochs):
        loader = DataLoader(data, batch_size=2, num_workers=1)
        for (rows,) in loader:
            net(rows).mean().backward()
            seen += len(rows)
    return seen
"""
    torch = pytest.importorskip("torch")
    names = fixed("DLC206", tmp_path, monkeypatch, text)
    built = []

    class Counted(torch.utils.data.DataLoader):  # type: ignore[misc, name-defined]
        def __init__(self, data: Any, batch_size: int, num_workers: int) -> None:
            built.append(num_workers)
            super().__init__(data, batch_size=batch_size)

    names["DataLoader"] = Counted
    data = torch.utils.data.TensorDataset(torch.arange(4.0)[:, None])
    assert names["train"](torch.nn.Linear(1, 1), data, 3) == 12
    assert built == [1]


def test_a_named_function_can_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def build(data, scale):
    own = DataLoader(data, num_workers=1, batch_size=2, collate_fn=lambda rows: rows)
    return own, DataLoader(data, num_workers=1, batch_size=2, collate_fn=lambda rows: torch.stack(rows) * scale)
"""
    torch = pytest.importorskip("torch")
    rows = list(torch.arange(4.0))
    names = fixed("DLC602", tmp_path, monkeypatch, text)
    same, scaled = names["build"](rows, 10)
    assert same.collate_fn is names["identity_collate"]
    assert scaled.collate_fn.func is names["collate_batch"]
    assert scaled.collate_fn(rows).tolist() == [0, 10, 20, 30]


def test_importing_a_script_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
SEEN = []
loader = DataLoader(list(range(4)), batch_size=2, num_workers=1)
for rows in loader:
    SEEN.append(rows.tolist())
"""
    pytest.importorskip("torch")
    names = fixed("DLC601", tmp_path, monkeypatch, text)
    assert names["SEEN"] == []
    names["main"]()
    assert names["SEEN"] == [[0, 1], [2, 3]]


def test_a_part_of_the_samples_is_divided_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
@torch.no_grad()
def mean(data):
    loader = DataLoader(data, batch_size=2, sampler=SubsetRandomSampler([0, 1, 2]))
    total = 0
    for (rows,) in loader:
        total += rows.sum().item()
    return total / len(loader.dataset)
"""
    torch = pytest.importorskip("torch")
    mean = fixed("DLC413", tmp_path, monkeypatch, text)["mean"]
    assert mean(torch.utils.data.TensorDataset(torch.ones(8, 1))) == 1


def test_a_sum_on_the_gpu_is_the_sum_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def train(net, data, labels, optimizer, device="cuda"):
    total, correct = 0.0, 0
    for (rows,) in DataLoader(data, batch_size=2):
        outputs = net(rows.to(device))
        loss = outputs.mean()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
        correct += (outputs.argmax(1) == 0).sum().item()
    return total, correct
"""
    torch = pytest.importorskip("torch")
    train = fixed("DLC501", tmp_path, monkeypatch, text)["train"]
    places: dict[str, Any] = {"__name__": "written"}
    exec(compile(IMPORTS + text, "train.py", "exec"), places)
    data = torch.utils.data.TensorDataset(torch.rand(9, 3))
    results = []
    for one in (train, places["train"]):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        results.append(one(net, data, None, torch.optim.SGD(net.parameters(), lr=0.1), "cpu"))
    assert results[0] == results[1]
    assert [type(result) for result in results[0]] == [float, int]


def test_a_share_that_is_added_up_stays_a_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def train(net, data, optimizer, device="cuda"):
    share, correct = 0, 0
    for (rows,) in DataLoader(data, batch_size=2):
        outputs = net(rows.to(device))
        outputs.mean().backward()
        optimizer.step()
        hits = (outputs.argmax(1) == 0).sum()
        share += (outputs.argmax(1) == 0).sum().item() / rows.size(0)
        correct += hits.item()
    return share, f"{correct:d}"
"""
    torch = pytest.importorskip("torch")
    train = fixed("DLC501", tmp_path, monkeypatch, text)["train"]
    places: dict[str, Any] = {"__name__": "written"}
    exec(compile(IMPORTS + text, "train.py", "exec"), places)
    results = []
    for one in (train, places["train"]):
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        data = torch.utils.data.TensorDataset(torch.randn(9, 3))
        results.append(one(net, data, torch.optim.SGD(net.parameters(), lr=0.1), "cpu"))
    assert results[0] == results[1]
    assert 0 < results[0][0] != int(results[0][0])


def test_an_import_under_the_main_guard_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
from torch.utils.data import DataLoader


def evaluate(net, data):
    net.eval()
    hits = 0
    for (rows,) in DataLoader(data, batch_size=2):
        hits += int((net(rows) > 0).sum())
    return hits


if __name__ == "__main__":
    import torch
"""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(f"{__name__}.IMPORTS", "")
    evaluate = fixed("DLC505", tmp_path, monkeypatch, text)["evaluate"]
    assert evaluate(torch.nn.Linear(1, 1), torch.utils.data.TensorDataset(torch.ones(4, 1))) in (0, 4)


def test_a_batch_without_boxes_is_still_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
import numpy as np


def collate(batch):
    boxes = [np.asarray(box, dtype=np.float32) for sample in batch for box in sample]
    return torch.tensor(boxes)


def build(data):
    return DataLoader(data, batch_size=2, collate_fn=collate)
"""
    pytest.importorskip("torch")
    collate = fixed("DLC310", tmp_path, monkeypatch, text)["collate"]
    assert collate([[], []]).shape == (0,)
    assert collate([[[1, 2]], []]).tolist() == [[1, 2]]
