"""What the fixes make of faulty programs does what it should: they are fixed, then run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from dlcheck.config import Config
from dlcheck.engine import check
from dlcheck.fixing import fix

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the fixed programs need torch"),
]

DATASETS = """\
import random
import sys
import zipfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset


class Archive(Dataset):
    def __init__(self, path):
        self.archive = zipfile.ZipFile(path)
        self.names = self.archive.namelist()

    def __len__(self):
        return len(self.archive.namelist())

    def __getitem__(self, index):
        return int(self.archive.read(self.names[index])[:8])


class Buffered(Dataset):
    def __init__(self):
        self.row = torch.empty(2)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.row[:] = index
        return self.row


class Reversed(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.from_numpy(np.arange(3)[::-1])


class Shifted(Dataset):
    def __init__(self):
        self.rows = np.zeros((2, 3))

    def __len__(self):
        return 2

    def __getitem__(self, index):
        row = self.rows[index]
        row += 1
        return torch.from_numpy(row.copy())


class Negative(Subset):
    def __getitem__(self, index):
        return -super().__getitem__(index)


class Drawing(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return np.random.randint(2**31)


def seed_worker(worker_id):
    np.random.seed(7 + worker_id)


def seed_wide(worker_id):
    np.random.seed(torch.initial_seed())


def collate(batch):
    arrays = [np.full(2, one, dtype=np.float32) for one in batch]
    return torch.tensor(arrays)


def archived(path, method):
    dataset = Archive(path)
    loader = DataLoader(dataset, batch_size=4, num_workers=4 if method == "fork" else 1, multiprocessing_context=method)
    return [int(one) for batch in loader for one in batch] == list(range(len(dataset)))


def seeded():
    loader = DataLoader(Drawing(), batch_size=2, shuffle=True, num_workers=2, worker_init_fn=seed_worker)
    drawn = set()
    for epoch in range(2):
        for batch in loader:
            drawn.update(batch.tolist())
    return len(drawn) == 16


def wide():
    return len(list(DataLoader(Drawing(), shuffle=True, num_workers=1, worker_init_fn=seed_wide))) == 8


def main(path):
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(200):
            archive.writestr(str(number), f"{number:8}" * 500)
    shifted = Shifted()
    print(archived(path, "fork"), archived(path, "forkserver"))
    print(next(iter(DataLoader(Buffered(), batch_size=4))).tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]])
    print(next(iter(DataLoader(Reversed(), batch_size=1))).tolist() == [[2, 1, 0]])
    print(shifted[0].tolist() == shifted[0].tolist() == [1, 1, 1])
    print(next(iter(DataLoader(Negative([1, 2], [0, 1]), batch_size=2))).tolist() == [-1, -2])
    print(seeded(), wide())
    made = next(iter(DataLoader([1, 2], batch_size=2, collate_fn=collate)))
    print(made.dtype == torch.float32 and made.tolist() == [[1, 1], [2, 2]])


if __name__ == "__main__":
    main(sys.argv[1])
"""
CODES = ["DLC304", "DLC310", "DLC314", "DLC315", "DLC316", "DLC318", "DLC404", "DLC409"]


def test_fixed_datasets_give_what_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(DATASETS)
    config = Config(overrides={"select": CODES})
    done = fix(lambda after: check(["train.py"], config, overlays=after), unsafe=True)
    assert sorted(done.applied) == CODES
    assert not done.errors
    (change,) = done.changes
    (tmp_path / "train.py").write_bytes(change.after)
    command = [sys.executable, "train.py", "archive.zip"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert set(ran.stdout.split()) == {"True"}, ran.stdout + ran.stderr
    assert len(ran.stdout.split()) == 9
