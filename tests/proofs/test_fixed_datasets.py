"""Datasets, and what is done with their batches, behave after their fixes as their rules' good examples do."""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mended import mended

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the fixed programs need torch"),
]

IMPORTS = """\
import torch
from torch.utils.data import DataLoader, Dataset
"""


def run(text: str, patch: pytest.MonkeyPatch) -> Any:
    """A program as a module that can be imported, so that its objects can be pickled."""
    module = ModuleType("train")
    patch.setitem(sys.modules, "train", module)
    exec(compile(text, "train.py", "exec"), module.__dict__)
    return module


def fixed(code: str, place: Path, patch: pytest.MonkeyPatch, text: str) -> tuple[Any, Any]:
    """A program as it is written, and after its fixes, which must have left nothing to be found."""
    after = mended([code], place, patch, IMPORTS + text)
    return run(IMPORTS + text, patch), run(after, patch)


def counted(module: Any, name: str, patch: pytest.MonkeyPatch) -> list[Any]:
    """What a function is called with from now on."""
    function, given = getattr(module, name), list[Any]()

    def call(path: Any) -> Any:
        given.append(path)
        return function(path)

    patch.setattr(module, name, call)
    return given


class Picture:
    """What ``PIL.Image.open`` gives, as far as it matters here: its file is open until it is read."""

    opened = 0

    def __init__(self, path: Any) -> None:
        self.path = path
        self.is_open = True
        Picture.opened += 1

    def load(self) -> str:
        Picture.opened -= self.is_open
        self.is_open = False
        return Path(self.path).read_text(encoding="utf-8")


def test_no_image_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
from PIL import Image


class Plates(Dataset):
    def __init__(self, paths):
        self.plates = [Image.open(path) for path in paths]
        self.others = {}
        for number, path in enumerate(paths):
            image = Image.open(path)
            self.others[number] = image

    def __len__(self):
        return len(self.plates)

    def __getitem__(self, index):
        return self.plates[index].load() + self.others[index].load()
"""
    pil, image = ModuleType("PIL"), ModuleType("PIL.Image")
    monkeypatch.setattr(image, "open", Picture, raising=False)
    monkeypatch.setattr(pil, "Image", image, raising=False)
    monkeypatch.setitem(sys.modules, "PIL", pil)
    monkeypatch.setitem(sys.modules, "PIL.Image", image)
    monkeypatch.setattr(Picture, "opened", 0)
    before, after = fixed("DLC305", tmp_path, monkeypatch, text)
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for path in paths:
        path.write_text(path.name, encoding="utf-8")
    written = before.Plates(paths)
    assert Picture.opened == 10
    samples = [written[index] for index in range(len(written))]
    assert Picture.opened == 0

    mended = after.Plates(paths)
    assert Picture.opened == 0
    assert [mended[index] for index in range(len(mended))] == samples
    assert Picture.opened == 0


def test_a_folder_is_listed_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
import os
from pathlib import Path


class Folder(Dataset):
    def __init__(self, root):
        self.root = root

    def __len__(self):
        return len(os.listdir(self.root))

    def __getitem__(self, index):
        folder = Path(self.root)
        names = [name for name in os.listdir(self.root) if name.endswith(".pt")]
        return names[index], list(folder.glob("*.pt"))[index].name
"""
    before, after = fixed("DLC307", tmp_path, monkeypatch, text)
    folder = tmp_path / "clips"
    folder.mkdir()
    names = [f"{number}.pt" for number in range(9)]
    for name in reversed(names):
        (folder / name).touch()
    listed = counted(os, "listdir", monkeypatch)
    written = before.Folder(folder)
    assert sorted(written[index][0] for index in range(len(written))) == names
    assert len(listed) == 10

    listed.clear()
    mended = after.Folder(folder)
    made = len(listed)
    assert [mended[index] for index in range(len(mended))] == [(name, name) for name in names]
    assert len(listed) == made == 2


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
import json

import numpy as np


class Rows(Dataset):
    def __init__(self, root):
        self.root = root

    def __len__(self):
        return 4

    def __getitem__(self, index):
        path = self.root / "rows.npy"
        rows = np.load(path)
        with open(self.root / "labels.json") as file:
            labels = json.load(file)
            label = labels[index]
        return torch.from_numpy(rows[index]), label
"""
    numpy = pytest.importorskip("numpy")
    before, after = fixed("DLC306", tmp_path, monkeypatch, text)
    numpy.save(tmp_path / "rows.npy", numpy.arange(8.0).reshape(4, 2))
    (tmp_path / "labels.json").write_text("[3, 1, 2, 0]", encoding="utf-8")
    read = counted(numpy, "load", monkeypatch)

    def samples(dataset: Any) -> list[tuple[list[float], int]]:
        return [(row.tolist(), label) for row, label in map(dataset.__getitem__, range(len(dataset)))]

    wanted = samples(before.Rows(tmp_path))
    assert len(read) == 4
    read.clear()
    mended = after.Rows(tmp_path)
    assert not read
    assert samples(mended) == samples(mended) == wanted
    assert len(read) == 1
    assert samples(pickle.loads(pickle.dumps(mended))) == wanted


def test_a_dataset_can_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor


class Clips(Dataset):
    def __init__(self, clips, threads):
        self.clips = clips
        self.threads = threads
        self.__lock = threading.Lock()
        self.pool = ThreadPoolExecutor(self.threads)

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        with self.__lock:
            return self.pool.submit(lambda: self.clips[index]).result()


class Scaled(Dataset):
    def __init__(self, clips, factor):
        self.clips = clips
        self.lists = defaultdict(lambda: [])
        self.scale = lambda clip: clip * factor

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        self.lists[index].append(index)
        return self.scale(self.clips[index]), self.lists[index]


def build(clips):
    return DataLoader(Clips(clips, 2), num_workers=4), DataLoader(Scaled(clips, 3), num_workers=4)
"""
    _, module = fixed("DLC603", tmp_path, monkeypatch, text)
    clips = module.Clips([5, 6, 7], 1)
    assert clips[1] == 6
    sent = pickle.loads(pickle.dumps(clips))
    assert [sent[index] for index in range(3)] == [5, 6, 7]
    assert sent.pool is not clips.pool
    scaled = pickle.loads(pickle.dumps(module.Scaled([5, 6, 7], 3)))
    assert scaled[2] == (21, [2])


def test_bytes_are_copied_before_they_are_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
def outputs(net, dataset, device="cuda"):
    loader = DataLoader(dataset, batch_size=2, num_workers=0)
    found = []
    for images, masks in loader:
        images = images.float() / 255
        images = images.to(device)
        found.append(net(images) + (masks.type(torch.FloatTensor) / 255).to(device))
    return torch.cat(found)
"""
    torch = pytest.importorskip("torch")
    before, after = fixed("DLC113", tmp_path, monkeypatch, text)
    images, masks = (torch.randint(0, 256, (5, 3), dtype=torch.uint8) for _ in range(2))
    data = torch.utils.data.TensorDataset(images, masks)
    to, copied = torch.Tensor.to, list[Any]()

    def noted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        copied.extend([tensor.dtype] if args[:1] == ("cpu",) else [])
        return to(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", noted)
    net = torch.nn.Linear(3, 3)
    wanted = before.outputs(net, data, "cpu")
    assert set(copied) == {torch.float32}
    copied.clear()
    assert torch.equal(after.outputs(net, data, "cpu"), wanted)
    assert set(copied) == {torch.uint8}
