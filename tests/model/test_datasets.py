"""Which dataset a loader has, what its constructor keeps, and what runs in the workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from snippets import HEAD, cases, deep, only, project


@pytest.fixture(autouse=True)
def _deep() -> Iterator[None]:
    with deep():
        yield


CLASSES = """\
from torch.utils.data import ChainDataset, ConcatDataset, Subset, TensorDataset, random_split
class Map(Dataset):
    def __init__(self, root="x"):
        self.root = root
    def __getitem__(self, i):
        return i
class Other(Map):
    pass
class Stream(IterableDataset):
    def __iter__(self):
        yield 1
class Plain:
    def __getitem__(self, i):
        return i
"""

# The names of the classes, or the paths of libraries' ones.
DATASETS: dict[str, tuple[str, set[str]]] = {
    "class": ("DataLoader(Map())", {"Map"}),
    "variable": ("d = Map()\nDataLoader(d)", {"Map"}),
    "subclass": ("DataLoader(Other())", {"Other"}),
    "iterable": ("DataLoader(Stream())", {"Stream"}),
    "no base class": ("DataLoader(Plain())", {"Plain"}),
    "Subset": ("DataLoader(Subset(Map(), [1, 2]))", {"Map"}),
    "Subset of a Subset": ("DataLoader(Subset(Subset(Map(), [1, 2]), [1]))", {"Map"}),
    "random_split": ("a, b = random_split(Map(), [1, 2])\nDataLoader(b)", {"Map"}),
    "random_split by index": ("parts = random_split(Map(), [1, 2])\nDataLoader(parts[0])", {"Map"}),
    "ConcatDataset": ("DataLoader(ConcatDataset([Map(), Plain()]))", {"Map", "Plain"}),
    "ConcatDataset of a list": ("ds = [Map(), Other()]\nDataLoader(ConcatDataset(ds))", {"Map", "Other"}),
    "conditional": ("DataLoader(Map() if flag else Stream())", {"Map", "Stream"}),
    "branches": ("if flag:\n    d = Map()\nelse:\n    d = Stream()\nDataLoader(d)", {"Map", "Stream"}),
    "returned": ("def make():\n    return Map()\nDataLoader(make())", {"Map"}),
    "given": ("def build(d):\n    return DataLoader(d)\nbuild(Map())", {"Map"}),
    "attribute": (
        (
            "class T:\n    def __init__(self):\n        self.d = Map()\n"
            "    def build(self):\n        return DataLoader(self.d)\n"
        ),
        {"Map"},
    ),
    "set up": (
        (
            "class T:\n    def setup(self):\n        self.d, self.v = random_split(Map(), [1, 2])\n"
            "    def build(self):\n        return DataLoader(self.d)\n"
        ),
        {"Map"},
    ),
    "by key": ("ds = {'train': Map()}\nDataLoader(ds['train'])", {"Map"}),
    "library's": (
        "from torchvision.datasets import ImageFolder\nDataLoader(ImageFolder('x'))",
        {"torchvision.datasets.ImageFolder"},
    ),
    "TensorDataset": ("DataLoader(TensorDataset(x))", {"torch.utils.data.TensorDataset"}),
    "class method": (
        "class C(Map):\n    @classmethod\n    def make(cls):\n        return cls()\nDataLoader(C.make())",
        {"C"},
    ),
    "class in a variable": ("kind = Map\nDataLoader(kind())", {"Map"}),
    "unknown": ("DataLoader(x)", {""}),
}


@pytest.mark.parametrize(("text", "expected"), DATASETS.values(), ids=DATASETS)
def test_dataset_of_a_loader(text: str, expected: set[str], tmp_path: Path) -> None:
    alts = only(project(tmp_path, CLASSES + text)).datasets
    assert {alt.dataset.name if alt.dataset else alt.path for alt in alts} == expected


STYLES = {"Map": (True, False), "Other": (True, False), "Stream": (False, True), "Plain": (True, False)}


@pytest.mark.parametrize(("name", "expected"), STYLES.items())
def test_style_of_a_dataset(name: str, expected: tuple[bool, bool], tmp_path: Path) -> None:
    (alt,) = only(project(tmp_path, f"{CLASSES}DataLoader({name}())")).datasets
    assert alt.dataset is not None
    assert (alt.dataset.is_map_style, alt.dataset.is_iterable) == expected


def test_dataset_class_of_another_module(tmp_path: Path) -> None:
    files = {
        "train.py": HEAD + "from pkg.data import Mine\nDataLoader(Mine())\n",
        "pkg/__init__.py": "",
        "pkg/base.py": "from torch.utils.data import IterableDataset\nclass Base(IterableDataset): pass\n",
        "pkg/data.py": "from .base import Base\nclass Mine(Base):\n    def __iter__(self):\n        yield 1\n",
    }
    (alt,) = only(project(tmp_path, files, ["train.py"])).datasets
    assert alt.dataset is not None
    assert (alt.dataset.name, alt.dataset.is_iterable) == ("Mine", True)


# -- what is kept

KEPT: dict[str, tuple[str, list[str]]] = {
    "images": ("self.items = [Image.open(p).convert('RGB') for p in paths]", ["items"]),
    "loop": (
        "self.items = []\n        for p in paths:\n            self.items.append(Image.open(p).load())",
        ["items"],
    ),
    "array": ("self.items = np.load(root)", ["items"]),
    "mapped array": ("self.items = np.load(root, mmap_mode='r')", []),
    "tensors": ("self.items = torch.load(root)", ["items"]),
    "paths": ("self.items = sorted(os.listdir(root))", []),
    "nothing": ("self.items = None", []),
    "local": ("items = np.load(root)\n        self.items = len(items)", []),
}


@pytest.mark.parametrize(("line", "expected"), KEPT.values(), ids=KEPT)
def test_what_the_constructor_keeps(line: str, expected: list[str], tmp_path: Path) -> None:
    text = (
        "import numpy as np\nfrom PIL import Image\nclass D(Dataset):\n    def __init__(self, root, paths):\n"
        f"        {line}\n    def __getitem__(self, i):\n        return self.items[i]\n"
        "DataLoader(D('x', os.listdir('x')), num_workers=2)\n"
    )
    (alt,) = only(project(tmp_path, text)).datasets
    assert alt.dataset is not None
    found = [kept.module.source.text[slice(*kept.module.facts.span(kept.at))] for kept in alt.dataset.kept_data]
    assert len(found) == len(expected)
    assert all("self" in text or "Image" in text or "load" in text for text in found)


HANDLES: dict[str, tuple[str, list[str]]] = {
    "h5py": ("self.f = h5py.File(path, 'r')", ["h5py.File"]),
    "h5py, short": ("self.f = h5py.File(path)['x']", ["h5py.File"]),
    "open": ("self.f = open(path)", ["builtins.open"]),
    "closed": ("with open(path) as f:\n            self.f = f.readlines()", []),
    "none": ("self.f = None", []),
    "by a method": ("self.connect(path)", ["h5py.File"]),
}


@pytest.mark.parametrize(("line", "expected"), HANDLES.values(), ids=HANDLES)
def test_handles_that_workers_inherit(line: str, expected: list[str], tmp_path: Path) -> None:
    text = (
        f"import h5py\nclass D(Dataset):\n    def __init__(self, path):\n        {line}\n"
        "    def connect(self, path):\n        self.f = h5py.File(path)\n"
        "    def __getitem__(self, i):\n        return self.f[i]\nDataLoader(D('x'), num_workers=2)\n"
    )
    (alt,) = only(project(tmp_path, text)).datasets
    assert alt.dataset is not None
    assert [handle.path for handle in alt.dataset.handles] == expected


# -- worker code

WORKER_CALLS: dict[str, tuple[str, str, list[str]]] = {
    "__getitem__": ("return torch.ones(1).cuda()", "D()", ["torch.ones(1).cuda()"]),
    "to": ("return torch.ones(1).to('cuda')", "D()", ["torch.ones(1).to('cuda')"]),
    "to of the CPU": ("return torch.ones(1).to('cpu')", "D()", []),
    "device=": ("return torch.zeros(1, device='cuda')", "D()", ["torch.zeros(1, device='cuda')"]),
    "method": ("return self.work(i)", "D()", ["i.cuda()"]),
    "function": ("return work(i)", "D()", ["i.to('cuda:0')"]),
    "function of a function": ("return deeper(i)", "D()", ["i.to('cuda:0')"]),
    "transform": ("return self.transform(i)", "D(work)", ["i.to('cuda:0')"]),
    "transform of a class": ("return self.transform(i)", "D(Move())", ["x.cuda()"]),
    "transforms in a row": (
        "return self.transform(i)",
        "D(transforms.Compose([transforms.ToTensor(), Move()]))",
        ["x.cuda()"],
    ),
    "lambda": ("return self.transform(i)", "D(lambda t: t.cuda())", ["t.cuda()"]),
    "no transform": ("return self.transform(i)", "D(None)", []),
    "collate_fn": ("return i", "D(), collate_fn=collate", ["torch.stack(b).cuda()"]),
    "collate_fn, partial": ("return i", "D(), collate_fn=partial(collate, k=1)", ["torch.stack(b).cuda()"]),
    "collate_fn, lambda": ("return i", "D(), collate_fn=lambda b: b.cuda()", ["b.cuda()"]),
    "collate_fn, object": ("return i", "D(), collate_fn=Move()", ["x.cuda()"]),
    "collate_fn, method": ("return i", "D(), collate_fn=D().work", ["i.cuda()"]),
    "worker_init_fn": ("return i", "D(), worker_init_fn=start", ["torch.ones(1).cuda()"]),
    "Subset": ("return self.work(i)", "torch.utils.data.Subset(D(), [1])", ["i.cuda()"]),
    "none": ("return i", "D()", []),
}
NOT_REACHED: dict[str, str] = {}

WORKERS = """\
from functools import partial
from torchvision import transforms
from moves import Move, deeper, work
def collate(b, k=0):
    return torch.stack(b).cuda()
def start(worker):
    torch.ones(1).cuda()
def main(x):
    x.cuda()
class D(Dataset):
    def __init__(self, transform=None):
        self.transform = transform
    def work(self, i):
        return i.cuda()
    def __getitem__(self, i):
"""
MOVES = """\
def work(i):
    return i.to('cuda:0')
def deeper(i):
    return work(i)
class Move:
    def __call__(self, x):
        return x.cuda()
"""


@pytest.mark.parametrize(("body", "arguments", "expected"), cases(WORKER_CALLS, NOT_REACHED))
def test_cuda_in_worker_code(body: str, arguments: str, expected: list[str], tmp_path: Path) -> None:
    train = f"{HEAD}{WORKERS}        {body}\nloader = DataLoader({arguments}, num_workers=2)\n"
    of = project(tmp_path, {"train.py": train, "moves.py": MOVES}, ["train.py"])
    assert [use.text for use in only(of).cuda_in_workers()] == expected


def test_code_that_only_the_main_process_runs(tmp_path: Path) -> None:
    text = (
        "class D(Dataset):\n    def __getitem__(self, i):\n        if torch.utils.data.get_worker_info() is None:\n"
        "            return i.cuda()\n        return i\nDataLoader(D(), num_workers=2)\n"
    )
    assert only(project(tmp_path, text)).cuda_in_workers() == []


def test_worker_code_reads_attributes(tmp_path: Path) -> None:
    text = (
        "class D(Dataset):\n    def __init__(self):\n"
        "        self.a = self.b = 1\n    def get(self):\n        return self.a\n"
        "    def __getitem__(self, i):\n        return self.get()\nDataLoader(D())\n"
    )
    (alt,) = only(project(tmp_path, text)).datasets
    assert alt.dataset is not None
    code = alt.dataset.worker_code
    assert code.reads_attribute(alt.dataset.cls, "a")
    assert not code.reads_attribute(alt.dataset.cls, "b")
