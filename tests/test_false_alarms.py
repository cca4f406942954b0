"""False alarms that real repositories showed, each reduced to its idiom: all must stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcheck import engine
from dlcheck.config import Config
from dlcheck.facts import extract, forms
from dlcheck.source import Source

DATASET = """
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        return Image.open(self.paths[index])
"""

CASES = {
    "flag that the user would have to give": (
        {"DLC102", "DLC103"},
        """
import argparse
import torch
from torch.utils.data import DataLoader

def main(net, dataset):
    parser = argparse.ArgumentParser()
    parser.add_argument("--pin_mem", action="store_true")
    parser.add_argument("--no_pin_mem", action="store_false", dest="pin_mem")
    parser.set_defaults(pin_mem=True)
    args = parser.parse_args()
    loader = DataLoader(dataset, num_workers=4, persistent_workers=True, pin_memory=args.pin_mem)
    for epoch in range(10):
        for images in loader:
            net(images.to("cuda", non_blocking=True)).backward()
""",
    ),
    "flag that would make a copy blocking": (
        {"DLC101"},
        """
import argparse
from torch.utils.data import DataLoader

def main(net, dataset):
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocking", action="store_false", dest="non_blocking")
    args = parser.parse_args()
    loader = DataLoader(dataset, num_workers=4, persistent_workers=True, pin_memory=True)
    for epoch in range(10):
        for images in loader:
            net(images.to("cuda", non_blocking=args.non_blocking)).backward()
""",
    ),
    "non_blocking in one of several dicts": (
        {"DLC101", "DLC103"},
        """
from torch.utils.data import DataLoader

HOW, WHAT = {"non_blocking": True}, {"copy": False}

def main(net, dataset):
    loader = DataLoader(dataset, num_workers=4, persistent_workers=True, pin_memory=True)
    for epoch in range(10):
        for images in loader:
            net(images.to("cuda", **HOW, **WHAT)).backward()
""",
    ),
    "fallback for older versions": (
        {"DLC202"},
        """
from torch.utils.data import DataLoader

def fit(net, dataset):
    options = {"num_workers": 4, "persistent_workers": True}
    try:
        loader = DataLoader(dataset, **options)
    except TypeError:
        options.pop("persistent_workers")
        loader = DataLoader(dataset, **options)
    for epoch in range(10):
        for images in loader:
            net(images).backward()
""",
    ),
    "isinstance of a known class": (
        {"DLC411"},
        """
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

class Stream(IterableDataset):
    def __iter__(self):
        yield from range(10)

def build(dataset):
    options = {}
    if isinstance(dataset, IterableDataset):
        options["batch_size"] = 4
    else:
        options["sampler"] = RandomSampler(dataset)
    return DataLoader(dataset, **options)

loader = build(Stream())
""",
    ),
    "no workers, but no GPU either": (
        {"DLC201"},
        DATASET
        + """
import torch

def train(net, paths):
    cuda = torch.cuda.is_available()
    options = {"num_workers": 4, "persistent_workers": True, "pin_memory": True} if cuda else {}
    loader = DataLoader(Photos(paths), **options)
    for epoch in range(10):
        for images in loader:
            if cuda:
                images = images.cuda(non_blocking=True)
            net(images).backward()
""",
    ),
    "one pass through an endless generator": (
        {"DLC202"},
        """
from torch.utils.data import DataLoader

def forever(loader):
    while True:
        for batch in loader:
            yield batch

def evaluate(net, dataset):
    loader = DataLoader(dataset, num_workers=4)
    batches = forever(loader)
    for _ in range(len(loader)):
        net(next(batches))

def show(net, dataset):
    loader = DataLoader(dataset, num_workers=2)
    batches = forever(loader)
    for _ in range(len(loader)):
        net.draw(next(batches))
""",
    ),
    "a single batch, before the loop": (
        {"DLC101"},
        """
from torch.utils.data import DataLoader

def main(net, dataset):
    loader = DataLoader(dataset, num_workers=1, pin_memory=True)
    images = next(iter(loader))
    net.show(images.to("cuda"))
""",
    ),
    "data that the caller read": (
        {"DLC301"},
        """
from torch.utils.data import DataLoader, Dataset

class Characters(Dataset):
    def __init__(self, text):
        self.text = text
    def __len__(self):
        return len(self.text)
    def __getitem__(self, index):
        return self.text[index : index + 64]

def main(net):
    text = open("input.txt").read()
    loader = DataLoader(Characters(text), num_workers=4, persistent_workers=True)
    for batch in loader:
        net(batch).backward()
""",
    ),
    "only some attributes of a graph on the GPU": (
        {"DLC216"},
        """
from torch.utils.data import DataLoader

class Neighbours:
    def __init__(self, graph, nodes):
        self.graph = graph
        self.loader = DataLoader(nodes, collate_fn=self.pick, num_workers=4, persistent_workers=True)

    def pick(self, nodes):
        return self.graph if self.graph.is_directed else self.graph.edges[nodes]

def main(net, read):
    graph = read().to("cuda", "x", "y")
    for batch in Neighbours(graph, list(range(10))).loader:
        net(batch).backward()
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_false_alarm_stays_away(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, source = CASES[name]
    (tmp_path / "train.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    report = engine.check(["."], Config())
    assert not report.errors
    assert [finding.message for finding in report.findings if finding.code in wrong] == []


def test_a_loop_in_a_helper_of_another_file_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helpers.py").write_text("def log(batches):\n    for batch in batches:\n        yield batch\n")
    (tmp_path / "train.py").write_text(
        """
import helpers
from torch.utils.data import DataLoader, DistributedSampler

def main(net, dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler, num_workers=4)
    for epoch in range(10):
        for images in helpers.log(loader):
            net(images).backward()
"""
    )
    monkeypatch.chdir(tmp_path)
    found = {finding.code for finding in engine.check(["."], Config()).findings}
    assert found == {"DLC202", "DLC410"}


def test_labels_beside_samples_read_through_a_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(
        """
import json
import h5py
from torch.utils.data import DataLoader, Dataset

class Captions(Dataset):
    def __init__(self, path, captions):
        self.file = h5py.File(path, "r")
        self.images = self.file["images"]
        with open(captions) as lines:
            self.captions = json.load(lines)
    def __len__(self):
        return len(self.captions)
    def __getitem__(self, index):
        return self.images[index], self.captions[index]

def main(net):
    loader = DataLoader(Captions("a.h5", "a.json"), num_workers=4, persistent_workers=True)
    for images, captions in loader:
        net(images, captions).backward()
"""
    )
    monkeypatch.chdir(tmp_path)
    found = [finding.code for finding in engine.check(["."], Config()).findings]
    assert found == ["DLC304", "DLC302"]  # no samples loaded whole; but the captions are Python objects


def test_an_unknown_setting_does_not_hide_what_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(
        """
from yacs.config import CfgNode
from torch.utils.data import DataLoader

cfg = CfgNode().clone()

def main(net, dataset):
    loader = DataLoader(dataset, num_workers=4)
    if cfg.ONLY_EVALUATE:
        return
    for epoch in range(10):
        for images in loader:
            net(images).backward()
"""
    )
    monkeypatch.chdir(tmp_path)
    assert [finding.code for finding in engine.check(["."], Config()).findings] == ["DLC202"]


def codes(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> list[str]:
    """The codes that are reported of some files, in order."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    return [finding.code for finding in engine.check(["."], Config()).findings]


def test_a_dict_without_non_blocking_leaves_the_copy_blocking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = """
from torch.utils.data import DataLoader

WHAT = {"copy": False}

def main(net, dataset):
    loader = DataLoader(dataset, pin_memory=True)
    for images in loader:
        net(images.to("cuda", **WHAT)).backward()
"""
    assert codes(tmp_path, monkeypatch, train=train) == ["DLC101"]


def test_counting_something_else_is_not_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = """
from torch.utils.data import DataLoader

def forever(loader):
    while True:
        for batch in loader:
            yield batch

def fit(net, dataset, steps):
    loader = DataLoader(dataset, num_workers=4)
    batches = forever(loader)
    for _ in range(len(steps)):
        net(next(batches)).backward()
"""
    assert codes(tmp_path, monkeypatch, train=train) == ["DLC202"]


def test_loops_of_two_modules_are_two_even_where_they_have_the_same_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = """
from engine import run
from torch.utils.data import DataLoader

def main(net, first, second):
    loaders = [DataLoader(first, num_workers=4), DataLoader(second, num_workers=4)]
    for loader in loaders:
        run(net, loader)
"""
    engine_text = """
def run(net, loader):
    for epoch in range(10):
        for images in loader:
            net(images).backward()
"""
    wanted = number_of_first_loop(train)
    padded = (f"x = {[0] * width}\n" + engine_text for width in range(60))
    same = next(text for text in padded if number_of_first_loop(text) == wanted)
    assert codes(tmp_path, monkeypatch, train=train, engine=same) == ["DLC202", "DLC202"]


def number_of_first_loop(text: str) -> int:
    """The number that facts give the first loop of a text whose functions hold its loops."""
    body = extract(Source("x.py", "x.py", text)).body
    functions = (stmt for stmt in body if isinstance(stmt, forms.Function))
    return next(stmt.at for function in functions for stmt in function.body if isinstance(stmt, forms.For))


def test_a_loop_over_loaders_takes_another_one_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = """
from torch.utils.data import DataLoader

def evaluate(net, datasets):
    loaders = [DataLoader(dataset, num_workers=4) for dataset in datasets]
    for loader in loaders:
        for images in loader:
            net(images)

def compare(net, datasets, rounds):
    loaders = {name: DataLoader(datasets[name], num_workers=4) for name in datasets}
    for name, loader in loaders.items():
        for images in loader:
            net(images)
"""
    assert codes(tmp_path, monkeypatch, train=train) == []


def test_an_own_method_may_set_the_attribute_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = """
from torch.utils.data import DataLoader, SubsetRandomSampler

class Loader(DataLoader):
    def __init__(self, dataset, split=0.1, shuffle=True):
        self.shuffle = shuffle
        self.sampler = self.part(dataset, split)
        super().__init__(dataset, sampler=self.sampler, shuffle=self.shuffle)

    def part(self, dataset, split):
        self.shuffle = False
        return SubsetRandomSampler(range(int(split * len(dataset))))

def build(dataset):
    return Loader(dataset)
"""
    assert codes(tmp_path, monkeypatch, train=train) == []
