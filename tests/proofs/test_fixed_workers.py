"""Programs in which a fix has changed what workers and ranks are given do what their rules' good examples do."""

from __future__ import annotations

import importlib.util
from functools import partial
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
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate


"""


def fixed(codes: list[str], place: Path, patch: pytest.MonkeyPatch, text: str, device: str = "cuda") -> dict[str, Any]:
    """The names of a program, run after its fixes, which must have changed it; ``device`` stands in for the GPU."""
    after = mended(codes, place, patch, IMPORTS + text)
    return run(after, device)


def run(text: str, device: str = "cuda") -> dict[str, Any]:
    """The names of a program, whose loaders load in this process."""
    names: dict[str, Any] = {"__name__": "train"}
    exec(compile(text.replace('"cuda"', repr(device)), "train.py", "exec"), names)
    loader = names["DataLoader"]
    names["DataLoader"] = lambda *args, **options: loader(*args, **{**options, "num_workers": 0})
    return names


def test_each_rank_has_its_part_in_another_order_each_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
from torch.nn.parallel import DistributedDataParallel


def train(net, rows, epochs):
    net = DistributedDataParallel(net)
    loader = DataLoader(TensorDataset(rows), batch_size=4, shuffle=True)
    orders = []
    for epoch in range(epochs):
        order = []
        for (batch,) in loader:
            net(batch).mean().backward()
            order += batch.flatten().tolist()
        orders.append(order)
    return orders
"""
    torch = pytest.importorskip("torch")
    names = fixed(["DLC412", "DLC410"], tmp_path, monkeypatch, text)
    sampler = names["DistributedSampler"]
    names["DistributedDataParallel"] = lambda net: net
    ranks = []
    for rank in range(2):
        names["DistributedSampler"] = partial(sampler, num_replicas=2, rank=rank)
        ranks.append(names["train"](torch.nn.Linear(1, 1), torch.arange(32.0)[:, None], 3))
    for first, second in zip(*ranks, strict=True):
        assert sorted(first + second) == list(range(32))
    assert len({tuple(order) for order in ranks[0]}) == 3


def test_columns_taken_out_give_the_same_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
class Table(Dataset):
    def __init__(self, table, columns):
        self.table = table
        self.columns = columns

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        row = self.table.iloc[index]
        rest = self.table.iloc[index, 1:3].to_numpy("float32")
        return row[self.columns].to_numpy("float32"), int(row["label"]), rest, self.table["b"].iloc[index]
"""
    pandas = pytest.importorskip("pandas")
    places = run(IMPORTS + text)
    names = fixed(["DLC308"], tmp_path, monkeypatch, text)
    table = pandas.DataFrame({"label": [3, 4], "a": [0.1, 0.2], "b": [5, 6]})
    written, mended = places["Table"](table, ["a", "b"]), names["Table"](table, ["a", "b"])
    for index in range(2):
        for one, other in zip(written[index], mended[index], strict=True):
            assert type(one) is type(other)
            assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
            assert (one == other) is True or (one == other).all()
    mended[0][0][:] = 0  # the sample is the caller's own
    assert mended[0][0].any()


def test_batches_reach_the_device_in_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        row = row.to("cuda")
        return row, torch.zeros(1, device="cuda"), index


def train(net, rows):
    seen = []
    for step, (x, y, index) in enumerate(DataLoader(Rows(rows), batch_size=2, num_workers=2)):
        net(x, y).backward()
        seen.append((x.device.type, y.device.type, index.device.type, x.shape, y.dtype, step))
    return seen
"""
    torch = pytest.importorskip("torch")

    class Net:
        def __call__(self, x: Any, y: Any) -> Any:
            return torch.zeros((), requires_grad=True)

    rows = torch.ones(3, 2)
    written = run(IMPORTS + text, "meta")
    mended = fixed(["DLC216"], tmp_path, monkeypatch, text, "meta")
    assert written["Rows"](rows)[0][0].device.type == "meta"
    assert {part.device.type for part in mended["Rows"](rows)[0][:2]} == {"cpu"}
    assert mended["train"](Net(), rows) == written["train"](Net(), rows)
    assert mended["train"](Net(), rows)[0][:3] == ("meta", "meta", "cpu")


def test_the_loader_pins_and_the_worker_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def collate(samples):
    rows, labels = default_collate(samples)
    return rows.pin_memory(), labels.pin_memory()


def loader(data):
    return DataLoader(data, batch_size=2, num_workers=2, collate_fn=collate)
"""
    torch = pytest.importorskip("torch")
    names = fixed(["DLC105"], tmp_path, monkeypatch, text)
    data = torch.utils.data.TensorDataset(torch.arange(4.0), torch.arange(4))
    loader = names["loader"](data)
    assert loader.pin_memory
    for found, plain in zip(loader, torch.utils.data.DataLoader(data, batch_size=2), strict=True):
        assert all(map(torch.equal, found, plain))


def test_what_is_on_the_device_is_not_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def collate(samples):
    return torch.stack(samples).to("cuda")


def loader(rows):
    return DataLoader(rows, batch_size=2, collate_fn=collate, pin_memory=True)
"""
    torch = pytest.importorskip("torch")
    loader = fixed(["DLC106"], tmp_path, monkeypatch, text, "meta")["loader"](torch.ones(4, 1))
    assert not loader.pin_memory
    assert [batch.device.type for batch in loader] == ["meta", "meta"]


def test_whole_batches_are_the_same_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def train(net, rows, labels, epochs):
    loader = DataLoader(TensorDataset(rows, labels), batch_size=16, shuffle=True, drop_last=True)
    seen = [len(loader)]
    for _ in range(epochs):
        for batch in loader:
            net(batch[0]).mean().backward()
            seen.append((type(batch), [part.tolist() for part in batch]))
    return seen
"""
    torch = pytest.importorskip("torch")
    seen = []
    for train in (run(IMPORTS + text)["train"], fixed(["DLC311"], tmp_path, monkeypatch, text)["train"]):
        torch.manual_seed(3)
        seen.append(train(torch.nn.Linear(1, 1), torch.arange(40.0)[:, None], torch.arange(40), 2))
    assert seen[0] == seen[1]
    assert len(seen[0]) == 5
