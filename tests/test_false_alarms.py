"""False alarms that real repositories showed, each reduced to its idiom: all must stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcheck import engine
from dlcheck.config import Config, load
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
    "loss of a network that is none of torch's": (
        {"DLC503"},
        """
from torch.utils.data import DataLoader

def train(model, groups):
    total = 0.0
    for answers in DataLoader(groups):
        group_loss = 0.0
        for answer in answers:
            loss = model.loss(answer)
            group_loss += float(loss) if not isinstance(loss, float) else loss
        group_loss /= len(answers)
        model.backward(group_loss)
        model.step()
        total += group_loss
    return total
""",
    ),
    "stream of a stream of which nothing is known": (
        {"DLC401"},
        """
from torch.utils.data import DataLoader, IterableDataset

class Mapped(IterableDataset):
    def __init__(self, pipe, function):
        self.pipe, self.function = pipe, function
    def __iter__(self):
        for item in self.pipe:
            yield self.function(item)

class Filtered(IterableDataset):
    def __init__(self, pipe):
        self.pipe = pipe
    def __iter__(self):
        for item in self.pipe:
            if item:
                yield item

def build(source):
    return DataLoader(Mapped(Filtered(source), str.lower), batch_size=None, num_workers=8)
""",
    ),
    "labels beside samples that are on the GPU": (
        {"DLC101", "DLC102", "DLC103"},
        """
import torch
from torch.utils.data import DataLoader, Dataset

class Tiles(Dataset):
    def __init__(self, tiles):
        self.tiles = tiles
    def __len__(self):
        return len(self.tiles)
    def __getitem__(self, index):
        return torch.from_numpy(self.tiles[index]).to("cuda"), index

def train(net, tiles, pin):
    for images, labels in DataLoader(Tiles(tiles), pin_memory=True):
        net(images, labels.cuda())
    for images, labels in DataLoader(Tiles(tiles)):
        net(images, labels.cuda(non_blocking=True))
""",
    ),
    "trackers of which nobody knows what they keep": (
        {"DLC503"},
        """
import sys
from labml import tracker
from torch.utils.data import DataLoader

d2l = sys.modules[__name__]

def train(self, net, dataset, optimizer):
    metric = d2l.Accumulator(2)
    for inputs, labels in DataLoader(dataset):
        loss = net(inputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.add("loss.train", loss)
        metric.add(loss, len(labels))
        self.trainer.fit_loop.running_loss.append(loss)
""",
    ),
    "end of a dataset that people iterate": (
        {"DLC320"},
        """
from torch.utils.data import DataLoader, Dataset

class Masks(Dataset):
    def __init__(self, paths, size=None):
        self.paths, self.size = paths, size
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        if self.size is not None and self.size == index:
            raise StopIteration
        if self.size is None and len(self.paths) == index:
            raise StopIteration
        return read(self.paths[index])

loader = DataLoader(Masks(["a"]), batch_size=2)
""",
    ),
    "size of a batch that the user has to give": (
        {"DLC411"},
        """
import argparse
from torch.utils.data import DataLoader

def main(dataset):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int)
    args = parser.parse_args()
    return DataLoader(dataset, batch_size=args.batch_size, drop_last=True)
""",
    ),
    "device that a worker gives nobody": (
        {"DLC105", "DLC216"},
        """
from torch.utils.data import DataLoader, Dataset

def move(item, device):
    if device == "pin":
        return item.pin_memory()
    return item.to("cuda")

class Shared:
    def read(self, index, device=None):
        row = self.rows[index]
        if device is not None:
            return move(row, device)
        return row.clone()

class Rows(Dataset):
    def __init__(self):
        self.shared = Shared()
    def __len__(self):
        return 100
    def __getitem__(self, index):
        return self.shared.read(index)

loader = DataLoader(Rows(), num_workers=4, multiprocessing_context="fork")
""",
    ),
    "functions that a worker does not hand over": (
        {"DLC105", "DLC216"},
        """
from torch.utils.data import DataLoader, Dataset

def apply(function, data):
    if isinstance(data, (list, tuple)):
        return type(data)([apply(function, item) for item in data])
    return function(data)

def copied(item):
    return item.clone()

def moved(item):
    return item.pin_memory().to("cuda")

class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        return apply(copied, self.rows[index])

def train(net, rows):
    for batch in DataLoader(Rows(rows), num_workers=4):
        net(apply(moved, batch))
""",
    ),
    "array of a copy that its caller waits for": (
        {"DLC109"},
        """
import torch

def start(tensor):
    return tensor.to("cpu", non_blocking=True).numpy()

def later(tensor, stream):
    with torch.cuda.stream(stream):
        array = start(tensor)
    stream.synchronize()
    return array.mean()
""",
    ),
    "shuffled where there is no sampler, by other words": (
        {"DLC411"},
        """
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from trainer.torch import is_dist_avail_and_initialized

def build(dataset, num_gpus):
    sampler = DistributedSampler(dataset) if num_gpus > 1 else None
    return DataLoader(dataset, shuffle=num_gpus == 0, sampler=sampler)

def build_distributed(dataset):
    sampler = DistributedSampler(dataset) if is_dist_avail_and_initialized() else None
    return DataLoader(dataset, shuffle=not is_dist_avail_and_initialized(), sampler=sampler)
""",
    ),
    "dataset that gives whatever comes next": (
        {"DLC417"},
        """
from torch.utils.data import DataLoader, Dataset

class Speakers(Dataset):
    def __init__(self, speakers):
        self.cycler = Cycler(speakers)
    def __len__(self):
        return 10_000
    def __getitem__(self, index):
        return next(self.cycler)

def train(net, optimizer, speakers):
    loader = DataLoader(Speakers(speakers), batch_size=64, shuffle=False)
    for epoch in range(10):
        for batch in loader:
            loss = net(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
""",
    ),
    "no workers where the user wants no GPU, in a script": (
        {"DLC201"},
        """
import argparse
import torch
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true", default=False)
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
augment = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
kwargs = {"num_workers": 1, "pin_memory": True} if args.cuda else {}
images = datasets.CIFAR10("data", transform=augment)
train_loader = torch.utils.data.DataLoader(images, batch_size=64, shuffle=True, **kwargs)

def train(epoch):
    for images, labels in train_loader:
        if args.cuda:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        net(images, labels).backward()

if __name__ == "__main__":
    for epoch in range(10):
        train(epoch)
""",
    ),
    "no workers where the user wants no GPU": (
        {"DLC201"},
        """
import argparse
import torch
from torchvision import datasets, transforms
from torch.utils.data import DataLoader

def main(net):
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    args.cuda = not args.no_cuda and torch.cuda.is_available()
    augment = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
    options = {"num_workers": 1, "pin_memory": True, "persistent_workers": True} if args.cuda else {}
    loader = DataLoader(datasets.CIFAR10("data", transform=augment), batch_size=64, shuffle=True, **options)
    for epoch in range(10):
        train(args, net, loader)

def train(args, net, loader):
    for images, labels in loader:
        if args.cuda:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        net(images, labels).backward()

if __name__ == "__main__":
    main(torch.nn.Linear(1, 1))
""",
    ),
    "batch of a class whose metaclass chooses another": (
        {"DLC107"},
        """
import torch
from torch.utils.data import DataLoader

class Graph:
    def pin_memory(self):
        return self

class Inheriting(type):
    def __call__(cls, *args, **kwargs):
        return type.__call__(type("GraphBatch", (cls, Graph), {}), *args, **kwargs)

class Batch(metaclass=Inheriting):
    def __init__(self, rows):
        self.rows = torch.stack(rows)

def collate(rows):
    return Batch(rows)

def build(dataset):
    return DataLoader(dataset, num_workers=2, pin_memory=True, collate_fn=collate)
""",
    ),
    "name that becomes a path where it is first used": (
        {"DLC219"},
        """
from pathlib import Path
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    def __init__(self, path):
        path = Path(path)
        if path.is_dir():
            self.files = sorted([f for f in path.iterdir() if f.exists()])
        else:
            self.files = [path]
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        if isinstance(self.files[index], str):
            self.files[index] = Path(self.files[index])
        with self.files[index].open() as file:
            return file.read()

def train():
    loader = DataLoader(Texts("a"), num_workers=2, persistent_workers=False)
    for epoch in range(10):
        for text in loader:
            print(text)
""",
    ),
    "option that is taken out of the keywords in the same call": (
        {"DLC411"},
        """
from torch.utils.data import DataLoader, IterableDataset

class Stream(IterableDataset):
    def __init__(self, shuffle):
        self.shuffle = shuffle
    def __iter__(self):
        yield from range(100)

def build(**kwargs):
    return DataLoader(Stream(shuffle=kwargs.pop("shuffle", True)), batch_size=None, **kwargs)

for batch in build(shuffle=True, num_workers=2):
    print(batch)
""",
    ),
    "options that are taken out to make another one": (
        {"DLC411"},
        """
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

def build(dataset):
    options = dict(sampler=RandomSampler(dataset), batch_size=4, drop_last=True, num_workers=2)
    sampler = options.pop("sampler")
    options["batch_sampler"] = BatchSampler(sampler, options.pop("batch_size"), options.pop("drop_last"))
    if options.pop("shuffle", None):
        print("a sampler decides")
    return DataLoader(dataset, **options)
""",
    ),
    "loader that shuffles its dataset before each epoch": (
        {"DLC315"},
        """
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

class Rows(IterableDataset):
    def __init__(self, rows):
        self.rows, self.order = rows, torch.arange(len(rows))
    def shuffle(self):
        np.random.shuffle(self.order.numpy())
    def __iter__(self):
        return iter(self.rows[self.order].split(4))

class Shuffling(DataLoader):
    def __init__(self, rows):
        self.rows = Rows(rows)
        super().__init__(self.rows, batch_size=None, num_workers=2)
    def __iter__(self):
        self.rows.shuffle()
        return super().__iter__()
""",
    ),
    "end of a video that nobody reads to": (
        {"DLC320"},
        """
from torch.utils.data import DataLoader, Dataset

class Video:
    def __init__(self, path, times):
        self.path, self.times, self.at = path, times, 0
    def read(self, time=None):
        if time is None:
            if self.at == 0:
                time = self.times[0]
            elif self.at >= len(self.times):
                raise StopIteration
            else:
                time = self.times[self.at]
        self.at += 1
        return decode(self.path, time)

class Frames(Dataset):
    def __init__(self, path, times):
        self.video, self.times = Video(path, times), times
    def __len__(self):
        return len(self.times)
    def __getitem__(self, index):
        return self.video.read(self.times[index])

loader = DataLoader(Frames("a.mp4", find("a.mp4")), num_workers=2)
""",
    ),
    "iterator that is begun anew where it ended": (
        {"DLC320"},
        """
from torch.utils.data import DataLoader, Dataset

class Queue(Dataset):
    def __init__(self, subjects, count):
        self.subjects, self.count, self.it, self.noise = subjects, count, None, iter(subjects)
        self.begin()
    def begin(self):
        self.it = iter(self.subjects)
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        try:
            subject = next(self.it)
        except StopIteration:
            self.begin()
            subject = next(self.it)
        try:
            noise = next(self.noise)
        except StopIteration:
            self.noise = iter(self.subjects)
            noise = next(self.noise)
        return subject + noise

loader = DataLoader(Queue(list(range(10)), 100), num_workers=2)
""",
    ),
    "stream that is its own iterator, and is given what to give": (
        {"DLC421"},
        """
from torch.utils.data import DataLoader, IterableDataset

class Buffers(IterableDataset):
    def __iter__(self):
        return self
    def __next__(self):
        if self.count == len(self.buffers):
            raise StopIteration
        self.count += 1
        return self.buffers[self.count - 1]
    def give(self, buffers):
        self.buffers = buffers
        self.count = 0

def run(net, recordings):
    buffers = Buffers()
    loader = DataLoader(buffers, batch_size=None)
    for recording in recordings:
        buffers.give(recording)
        for buffer in loader:
            net(buffer)
""",
    ),
    "weight that a loss is multiplied by": (
        {"DLC503"},
        """
import torch
from torch.utils.data import DataLoader

def train(net, dataset, optimizer, total):
    loader = DataLoader(dataset, batch_size=64)
    seen = torch.tensor(0.0)
    for batch in loader:
        weight = float(len(batch)) / max(float(total), 1.0)
        loss = net(batch)
        (loss * weight).backward()
        optimizer.step()
        seen = seen + loss.detach() * weight
    return seen
""",
    ),
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
    report = engine.check(["."], load(".", {"select": sorted(wrong)}))  # some are off unless they are asked for
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
