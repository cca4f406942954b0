"""What is asked of a program's loader, of several ranks of it, or of a device, as a person at a console meets it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]

Console = Callable[..., str]
Measured = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """Measure a program; what is printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    for name in ("PRE_COMMIT", "VIRTUAL_ENV", "RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\n")

    def run(text: str, *words: str) -> str:
        (tmp_path / "train.py").write_text(text)
        command = [sys.executable, "-m", "dlcheck", "measure", "train.py", "-q", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 1, done.stderr
        return done.stdout

    return run


@pytest.fixture
def measured(console: Console, tmp_path: Path) -> Measured:
    """Measure a program; the records that were kept, by rule."""

    def run(text: str, *words: str) -> dict[str, dict[str, Any]]:
        said = console(text, *words)
        files = sorted((tmp_path / ".dlcheck" / "measurements").glob("*.json"))
        assert files, said
        return {record["code"]: record for record in map(json.loads, map(Path.read_text, files))}

    return run


def run_by(words: str = "train.py") -> tuple[str, str]:
    return "--run", f"'{sys.executable}' {words}"


# One program with several faults at one loader

FAULTY = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Batch:
    def __init__(self, samples):
        self.rows = torch.stack(samples)


def collate(samples):
    return Batch(samples)


class Rows(Dataset):
    def __init__(self, count):
        self.count = count
        self.seen = 0
        self.scale = 1

    def __len__(self):
        return self.count

    def set_scale(self, scale):
        self.scale = scale

    def __getitem__(self, index):
        self.seen += 1
        return torch.rand(3) * self.scale


def train(net, optimizer):
    dataset = Rows(50)
    loader = DataLoader(
        dataset, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True, collate_fn=collate, pin_memory=True
    )
    net = torch.compile(net)
    for epoch in range(3):
        torch.manual_seed(0)
        dataset.set_scale(epoch)
        for batch in loader:
            optimizer.zero_grad()
            net(batch.rows).mean().backward()
            optimizer.step()
    print(dataset.seen)


if __name__ == "__main__":
    net = nn.Linear(3, 1)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1))
"""


def test_several_questions_are_asked_of_one_loader(measured: Measured, tmp_path: Path) -> None:
    found = measured(FAULTY, "--select", "DLC107,DLC218,DLC219,DLC406,DLC420", *run_by())
    assert {code: record["verdict"] for code, record in found.items()} == dict.fromkeys(found, "confirmed")
    assert len(found) == 5
    assert {record["evidence"] for record in found.values()} == {"extract"}
    assert found["DLC107"]["counts"] == {"tensors": 1, "pinned": 0}
    assert found["DLC218"]["reason"] == "after `set_scale` was called, 0 of 2 persistent workers have the new value"
    assert found["DLC219"]["counts"]["changed"] == found["DLC219"]["counts"]["batches"] == 7
    assert found["DLC406"]["counts"]["repeats"] == ["order"]  # persistent workers draw on
    assert found["DLC420"]["counts"] == {"sizes": {"8": 6, "2": 1}}
    assert not (tmp_path / "model.pt").exists()


# Ranks

DISTRIBUTED = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset, get_worker_info

ROWS = TensorDataset(torch.arange(33.0).reshape(33, 1))


class Numbers(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        yield from (torch.tensor([float(number)]) for number in range(info.id, 40, info.num_workers))


def main():
    {start}
    net = DistributedDataParallel(torch.nn.Linear(1, 1)) if dist.is_initialized() else torch.nn.Linear(1, 1)
    {loader}
    for epoch in range(2):
        for batch in loader:
            net(batch[0]).mean().backward()


if __name__ == "__main__":
    main()
"""
ALWAYS = 'dist.init_process_group("gloo")'
WHERE_SEVERAL = 'if int(os.environ.get("WORLD_SIZE", 1)) > 1: dist.init_process_group("gloo")'
STREAM = "loader = DataLoader(Numbers(), batch_size=4, num_workers=2)"
SAMPLED = """\
sampler = DistributedSampler(ROWS) if dist.is_initialized() else None
    loader = DataLoader(ROWS, batch_size=4, shuffle=sampler is None, sampler=sampler)"""


def program(start: str, loader: str) -> str:
    return DISTRIBUTED.replace("{start}", start).replace("{loader}", loader)


def processes_of(folder: Path) -> list[psutil.Process]:
    known = psutil.process_iter(["cwd", "status"])
    return [one for one in known if one.info["cwd"] == str(folder) and one.info["status"] != psutil.STATUS_ZOMBIE]


def test_a_program_that_needs_its_ranks_is_started_with_them(measured: Measured, tmp_path: Path) -> None:
    """One process alone fails: it is told neither its rank nor how many there are."""
    found = measured(program(ALWAYS, STREAM), "--select", "DLC402", *run_by())
    assert found["DLC402"]["verdict"] == "confirmed"
    assert found["DLC402"]["reason"] == "2 ranks are given 40 and 40 samples, and they are the same"
    assert found["DLC402"]["counts"] == {"samples": [40, 40], "in_common": 1.0}
    assert processes_of(tmp_path) == []


@pytest.mark.long
def test_a_program_that_can_be_alone_is_compared_with_that(measured: Measured) -> None:
    loader = "loader = DataLoader(ROWS, batch_size=4, shuffle=True)"
    found = measured(program(WHERE_SEVERAL, loader), "--select", "DLC412", *run_by())
    assert found["DLC412"]["verdict"] == "confirmed"
    assert found["DLC412"]["counts"] == {"samples": [33, 33], "in_common": 1.0, "alone": 33}


def test_a_program_that_cannot_have_ranks_here_is_told(console: Console, tmp_path: Path) -> None:
    start = 'if "RANK" in os.environ: raise RuntimeError("no GPU for this rank")'
    loader = "loader = DataLoader(ROWS, batch_size=4, shuffle=True)"
    said = console(program(start, loader), "--select", "DLC412", *run_by())
    assert "not measurable here: as 2 ranks: the program ended with status 1 before it iterated" in said
    assert "RuntimeError: no GPU for this rank" in said
    assert processes_of(tmp_path) == []


@pytest.mark.long
def test_the_first_of_several_answers_where_one_has_no_ranks(measured: Measured) -> None:
    """Only a program that is distributed has the sampler that the finding is about."""
    found = measured(program(WHERE_SEVERAL, SAMPLED), "--select", "DLC410", *run_by())
    assert found["DLC410"]["verdict"] == "confirmed"


@pytest.mark.long
def test_ranks_that_the_command_starts_are_used(measured: Measured) -> None:
    launcher = "-m torch.distributed.run --standalone --nproc_per_node=2 train.py"
    found = measured(program(ALWAYS, STREAM), "--select", "DLC402", *run_by(launcher))
    assert found["DLC402"]["verdict"] == "confirmed"


@pytest.mark.long
def test_a_factory_makes_the_loader_of_each_rank(measured: Measured) -> None:
    factory = (
        "\n\ndef make():\n    dist.init_process_group('gloo')\n    return DataLoader(Numbers(), 4, num_workers=2)\n"
    )
    found = measured(program(ALWAYS, STREAM) + factory, "--select", "DLC402", "--factory", "train:make")
    assert (found["DLC402"]["verdict"], found["DLC402"]["evidence"]) == ("confirmed", "factory")


# Devices

RACES = """\
import torch


def predict(net, batches):
    for images in batches:
        host = net(images.cuda()).to("cpu", non_blocking=True)
        print(host.numpy())


def move(batches):
    device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    return [images.to(device, non_blocking=True) for images in batches]
"""


def test_a_race_needs_its_device(console: Console) -> None:
    import torch

    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("needs a machine without")
    said = console(RACES, "--select", "DLC109,DLC110")
    assert said.count("not measurable here: it needs a CUDA device") == 1
    assert said.count("not measurable here: it needs an Apple GPU") == 1
