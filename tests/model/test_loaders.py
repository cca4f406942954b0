"""Which calls build a loader, under which name, and where its batches go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from snippets import HEAD, Files, blocks, cases, deep, devices, loaders, only, option, project, transfers

from dlcheck.model import Project
from dlcheck.model.loops import BatchLoop
from dlcheck.model.values import Batch


@pytest.fixture(autouse=True)
def _deep() -> Iterator[None]:
    with deep():
        yield


# -- names

TORCH = {
    "from": "from torch.utils.data import DataLoader\nDataLoader(0)",
    "from as": "from torch.utils.data import DataLoader as DL\nDL(0)",
    "module as": "import torch.utils.data as tud\ntud.DataLoader(0)",
    "full path": "import torch\ntorch.utils.data.DataLoader(0)",
    "full path imported": "import torch.utils.data\ntorch.utils.data.DataLoader(0)",
    "package": "from torch.utils import data\ndata.DataLoader(0)",
    "package as": "from torch.utils import data as D\nD.DataLoader(0)",
    "inner module": "from torch.utils.data.dataloader import DataLoader\nDataLoader(0)",
    "torch as": "import torch as t\nt.utils.data.DataLoader(0)",
    "alias": "import torch\nDL = torch.utils.data.DataLoader\nDL(0)",
    "alias of an alias": "import torch\nD = torch.utils.data\nDL = D.DataLoader\nDL(0)",
    "in a function": "def f():\n    from torch.utils.data import DataLoader\n    return DataLoader(0)",
    "star": "from torch.utils.data import *\nDataLoader(0)",
    "type checking": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch.utils.data import DataLoader\n"
        "def f():\n    return DataLoader(0)"
    ),
    "try": (
        "try:\n    from torch.utils.data import DataLoader\nexcept ImportError:\n    DataLoader = None\nDataLoader(0)"
    ),
    "try something else": (
        "try:\n    from mylib import DataLoader\nexcept ImportError:\n    from torch.utils.data import DataLoader\n"
        "DataLoader(0)"
    ),
    "partial": "from functools import partial\nfrom torch.utils.data import DataLoader\nL = partial(DataLoader)\nL(0)",
    "functools.partial": "import functools, torch\nL = functools.partial(torch.utils.data.DataLoader)\nL(0)",
    "chosen": "from torch.utils.data import DataLoader\nL = DataLoader if x else DataLoader\nL(0)",
    "by key": "from torch.utils.data import DataLoader\nkinds = {'a': DataLoader}\nkinds['a'](0)",
    "parameter": "from torch.utils.data import DataLoader\ndef f(L):\n    return L(0)\nf(DataLoader)",
    "parameter called like one": (
        "from torch.utils.data import DataLoader\ndef f(loader_class=DataLoader):\n    return loader_class(0)"
    ),
    "subclass": "from torch.utils.data import DataLoader\nclass L(DataLoader):\n    pass\nL(0)",
    "subclass of a subclass": (
        "import torch\nclass A(torch.utils.data.DataLoader):\n    pass\nclass B(A):\n    pass\nB(0)"
    ),
    "StatefulDataLoader": "from torchdata.stateful_dataloader import StatefulDataLoader\nStatefulDataLoader(0)",
    "PyG": "from torch_geometric.loader import DataLoader\nDataLoader(0)",
    "MONAI": "from monai.data import DataLoader\nDataLoader(0)",
    "MONAI as": "import monai\nmonai.data.DataLoader(0)",
    "DGL": "import dgl\ndgl.dataloading.DataLoader(0)",
}  # fmt: skip

NOT_FOLLOWED = {
    "parameter": "a class handed to a parameter of any name",
    "by key": "a class taken from a dict",
}


@pytest.mark.parametrize("text", cases({name: (text,) for name, text in TORCH.items()}, NOT_FOLLOWED))
def test_a_loader_under_any_name(text: str, tmp_path: Path) -> None:
    assert len(loaders(project(tmp_path, {"train.py": text + "\n"}))) == 1


OTHERS = {
    "another library's": "from paddle.io import DataLoader\nDataLoader(0)",
    "another library's module": "import mxnet.gluon.data as data\ndata.DataLoader(0)",
    "an own class": "class DataLoader:\n    def __init__(self, x): ...\nDataLoader(0)",
    "an own function": "def DataLoader(x):\n    return x\nDataLoader(0)",
    "rebound": "from torch.utils.data import DataLoader\nDataLoader = print\nDataLoader(0)",
    "a loader of something else": "import yaml\nyaml.SafeLoader(0)",
    "a string": "'DataLoader(0)'",
    "only named": "from torch.utils.data import DataLoader\nx: DataLoader = None",
    "torch.load": "import torch\ntorch.load('x')",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_what_is_no_loader(text: str, tmp_path: Path) -> None:
    assert loaders(project(tmp_path, {"train.py": text + "\n"})) == []


ACROSS: dict[str, dict[str, str]] = {
    "relative": {
        "pkg/__init__.py": "",
        "pkg/names.py": "from torch.utils.data import DataLoader as DL\n",
        "pkg/train.py": "from .names import DL\nDL(0, num_workers=3)\n",
    },
    "relative module": {
        "pkg/__init__.py": "",
        "pkg/names.py": "from torch.utils.data import DataLoader as DL\n",
        "pkg/train.py": "from . import names\nnames.DL(0, num_workers=3)\n",
    },
    "relative to the parent": {
        "pkg/__init__.py": "",
        "pkg/names.py": "from torch.utils.data import DataLoader as DL\n",
        "pkg/sub/__init__.py": "",
        "pkg/sub/train.py": "from ..names import DL\nDL(0, num_workers=3)\n",
    },
    "re-exported": {
        "pkg/__init__.py": "from .names import DL\n",
        "pkg/names.py": "from torch.utils.data import DataLoader as DL\n",
        "train.py": "from pkg import DL\nDL(0, num_workers=3)\n",
    },
    "re-exported twice": {
        "pkg/__init__.py": "from .sub import DL\n",
        "pkg/sub/__init__.py": "from .names import DL\n",
        "pkg/sub/names.py": "from torch.utils.data import DataLoader as DL\n",
        "train.py": "import pkg\npkg.DL(0, num_workers=3)\n",
    },
    "star": {
        "names.py": "from torch.utils.data import DataLoader as DL\n",
        "train.py": "from names import *\nDL(0, num_workers=3)\n",
    },
    "star through __init__": {
        "pkg/__init__.py": "from .names import *\n",
        "pkg/names.py": "from torch.utils.data import DataLoader as DL\n",
        "train.py": "from pkg import *\nDL(0, num_workers=3)\n",
    },
    "src layout": {
        "src/pkg/__init__.py": "",
        "src/pkg/names.py": "from torch.utils.data import DataLoader as DL\n",
        "src/pkg/train.py": "from pkg.names import DL\nDL(0, num_workers=3)\n",
    },
    "subclass elsewhere": {
        "names.py": "import torch\nclass L(torch.utils.data.DataLoader):\n    pass\n",
        "train.py": "from names import L\nL(0, num_workers=3)\n",
    },
    "circular": {
        "names.py": "import train\nfrom torch.utils.data import DataLoader as DL\n",
        "train.py": "from names import DL\nDL(0, num_workers=3)\n",
    },
}


@pytest.mark.parametrize("files", ACROSS.values(), ids=ACROSS)
def test_a_loader_imported_from_the_project(files: dict[str, str], tmp_path: Path) -> None:
    assert option(only(project(tmp_path, files)), "num_workers") == {3}


@pytest.mark.parametrize("files", ACROSS.values(), ids=ACROSS)
def test_a_loader_imported_from_files_that_are_not_named(files: dict[str, str], tmp_path: Path) -> None:
    # Under a name that tells nothing, the file would have to be read to know.
    telling = {name: text.replace("DL", "DataLoader") for name, text in files.items()}
    telling = {name: re.sub(r"\bL\b", "MyLoader", text) for name, text in telling.items()}
    named = [name for name in files if name.endswith("train.py")]
    loader = only(project(tmp_path, telling, named))
    assert loader.module.named
    assert option(loader, "num_workers") == {3}


# -- constructors

BUILT: dict[str, tuple[str, set[object]]] = {
    "super().__init__": (
        ("class L(DataLoader):\n    def __init__(self, ds, workers=3):\n"
        "        super().__init__(ds, num_workers=workers)\nL(ds)"),
        {3},
    ),
    "super().__init__, given": (
        ("class L(DataLoader):\n    def __init__(self, ds, workers=3):\n"
        "        super().__init__(ds, num_workers=workers)\nL(ds, 5)"),
        {5},
    ),
    "super(L, self).__init__": (
        "class L(DataLoader):\n    def __init__(self, ds):\n        super(L, self).__init__(ds, num_workers=3)\nL(ds)",
        {3},
    ),
    "DataLoader.__init__": (
        (
"class L(DataLoader):\n    def __init__(self, ds):\n"
"        DataLoader.__init__(self, ds, num_workers=3)\nL(ds)"
),
        {3},
    ),
    "super().__init__(**kwargs)": (
        ("class L(DataLoader):\n    def __init__(self, ds, **kwargs):\n"
        "        super().__init__(ds, **kwargs)\nL(ds, num_workers=5)"),
        {5},
    ),
    "super().__init__ of two": (
        ("class A(DataLoader):\n    def __init__(self, ds, n):\n        super().__init__(ds, num_workers=n)\n"
        "class B(A):\n    def __init__(self, ds):\n        super().__init__(ds, 7)\nB(ds)"),
        {7},
    ),
    "no __init__": ("class L(DataLoader):\n    pass\nL(ds, num_workers=3)", {3}),
    "init_kwargs of self": (
        ("class L(DataLoader):\n    def __init__(self, ds, n=2):\n        self.init_kwargs = {'num_workers': n}\n"
        "        super().__init__(dataset=ds, **self.init_kwargs)\nL(ds)"),
        {2},
    ),
    "partial": ("from functools import partial\nL = partial(DataLoader, num_workers=3)\nL(ds)", {3}),
    "partial, overridden": ((
"from functools import partial\n"
"L = partial(DataLoader, num_workers=3)\nL(ds, num_workers=5)"
), {5}),
    "partial of **kwargs": (
        "from functools import partial\nkw = dict(num_workers=3)\nL = partial(DataLoader, **kw)\nL(ds)",
        {3},
    ),
    "method": (
        ("class T:\n    def __init__(self, n):\n        self.n = n\n    def build(self):\n"
        "        return DataLoader(ds, num_workers=self.n)\nT(3).build()"),
        {3},
    ),
    "lambda": ("make = lambda d: DataLoader(d, num_workers=3)\nmake(ds)", {3}),
    "in a list": ("ls = [DataLoader(d, num_workers=3) for d in x]", {3}),
    "in a dict": ("ls = {k: DataLoader(d, num_workers=3) for k, d in x}", {3}),
    "Lightning hook": (
        ("import pytorch_lightning as pl\nclass D(pl.LightningDataModule):\n    def __init__(self, n=3):\n"
        "        super().__init__()\n        self.n = n\n    def train_dataloader(self):\n"
        "        return DataLoader(ds, num_workers=self.n)\n"),
        {3, "?"},
    ),
    "hyperparameters": (
        ("import pytorch_lightning as pl\nclass D(pl.LightningModule):\n    def __init__(self, n=3):\n"
        "        super().__init__()\n        self.save_hyperparameters()\n    def train_dataloader(self):\n"
        "        return DataLoader(ds, num_workers=self.hparams.n)\n"),
        {3, "?"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), cases(BUILT))
def test_workers_of_what_is_built(text: str, expected: set[object], tmp_path: Path) -> None:
    found = loaders(project(tmp_path, text))
    assert len(found) == 1
    assert option(found[0], "num_workers") == expected


MANAGED: dict[str, tuple[str, bool]] = {
    "Lightning hook": (
        (
            "import lightning as L\nclass D(L.LightningDataModule):\n    def train_dataloader(self):\n"
            "        return DataLoader(ds)\n"
        ),
        True,
    ),
    "Lightning hook of several": (
        (
            "import pytorch_lightning as pl\nclass D(pl.LightningModule):\n    def val_dataloader(self):\n"
            "        return [DataLoader(ds)]\n"
        ),
        True,
    ),
    "Lightning, built by a method": (
        (
            "import pytorch_lightning as pl\nclass D(pl.LightningDataModule):\n"
            "    def make(self):\n        return DataLoader(ds)\n"
            "    def train_dataloader(self):\n        return self.make()\n"
        ),
        True,
    ),
    "Lightning fit": ("import pytorch_lightning as pl\nloader = DataLoader(ds)\npl.Trainer().fit(model, loader)", True),
    "Accelerate": (
        (
            "from accelerate import Accelerator\nacc = Accelerator()\n"
            "model, opt, loader = acc.prepare(model, opt, DataLoader(ds))\n"
            "for batch in loader:\n    pass"
        ),
        True,
    ),
    "Accelerate, one": (
        (
            "from accelerate import Accelerator\nacc = Accelerator()\n"
            "loader = DataLoader(ds)\nloader = acc.prepare(loader)\n"
            "for batch in loader:\n    pass"
        ),
        True,
    ),
    "Fabric": (
        (
            "from lightning.fabric import Fabric\nfabric = Fabric()\n"
            "loader = fabric.setup_dataloaders(DataLoader(ds))\n"
            "for batch in loader:\n    pass"
        ),
        True,
    ),
    "nobody": ("loader = DataLoader(ds)\nfor batch in loader:\n    pass", False),
    "a hook of an own class": ("class D:\n    def train_dataloader(self):\n        return DataLoader(ds)\n", False),
}


@pytest.mark.parametrize(("text", "expected"), MANAGED.values(), ids=MANAGED)
def test_who_moves_the_batches(text: str, expected: bool, tmp_path: Path) -> None:
    of = project(tmp_path, text.replace("model, loader", "x, loader").replace("(model, opt", "(a, b"))
    assert len(loaders(of)) == 1
    assert any(loader.framework for loader in of.loaders) is expected


# -- loops

LOOPS: dict[str, tuple[str, int]] = {
    "plain": ("for batch in loader: pass", 1),
    "twice": ("for batch in loader: pass\nfor batch in loader: pass", 2),
    "enumerate": ("for i, batch in enumerate(loader): pass", 1),
    "enumerate from": ("for i, batch in enumerate(loader, 1): pass", 1),
    "tqdm": ("from tqdm import tqdm\nfor batch in tqdm(loader, desc='a'): pass", 1),
    "tqdm module": ("import tqdm\nfor batch in tqdm.tqdm(loader): pass", 1),
    "tqdm auto": ("from tqdm.auto import tqdm\nfor batch in tqdm(enumerate(loader), total=len(loader)): pass", 1),
    "tqdm variable": ("from tqdm import tqdm\nbar = tqdm(loader)\nfor batch in bar: pass", 1),
    "tqdm with": ("from tqdm import tqdm\nwith tqdm(loader) as bar:\n    for batch in bar: pass", 1),
    "rich": ("from rich.progress import track\nfor batch in track(loader): pass", 1),
    "zip": ("for batch, other in zip(loader, x): pass", 1),
    "zip second": ("for other, batch in zip(x, loader): pass", 1),
    "islice": ("from itertools import islice\nfor batch in islice(loader, 5): pass", 1),
    "islice module": ("import itertools\nfor batch in itertools.islice(loader, 5): pass", 1),
    "iter": ("for batch in iter(loader): pass", 1),
    "iterator": ("it = iter(loader)\nfor batch in it: pass", 1),
    "cycle": ("from itertools import cycle\nfor batch in cycle(loader): pass", 1),
    "comprehension": ("xs = [batch for batch in loader]", 1),
    "sum": ("total = sum(batch.sum() for batch in loader)", 1),
    "parameter": ("def train(data):\n    for batch in data: pass\ntrain(loader)", 1),
    "parameter by name": ("def train(data=None):\n    for batch in data: pass\ntrain(data=loader)", 1),
    "two functions down": (
        "def step(d):\n    for batch in d: pass\ndef train(data):\n    step(data)\ntrain(loader)",
        1,
    ),
    "global": ("def train():\n    for batch in loader: pass\ntrain()", 1),
    "attribute": (
        (
            "class T:\n    def __init__(self, data):\n        self.data = data\n    def train(self):\n"
            "        for batch in self.data: pass\nT(loader).train()"
        ),
        1,
    ),
    "attribute of a base class": (
        (
            "class B:\n    def __init__(self, data):\n        self.data = data\nclass T(B):\n    def train(self):\n"
            "        for batch in self.data: pass\nT(loader).train()"
        ),
        1,
    ),
    "dict": ("ls = {'train': loader}\nfor batch in ls['train']: pass", 1),
    "dict of phases": ("ls = {'train': loader}\nfor phase in ['train']:\n    for batch in ls[phase]: pass", 1),
    "dict values": ("ls = {'train': loader}\nfor one in ls.values():\n    for batch in one: pass", 1),
    "dict items": ("ls = {'train': loader}\nfor name, one in ls.items():\n    for batch in one: pass", 1),
    "list": ("ls = [loader]\nfor batch in ls[0]: pass", 1),
    "tuple": ("one, other = loader, 1\nfor batch in one: pass", 1),
    "loop over loaders": ("for one in (loader,):\n    for batch in one: pass", 1),
    "returned": ("def get():\n    return loader\nfor batch in get(): pass", 1),
    "returned of two": ("def get():\n    return loader, 1\none, _ = get()\nfor batch in one: pass", 1),
    "returned in a dict": ("def get():\n    return {'a': loader}\nfor batch in get()['a']: pass", 1),
    "property": (
        (
            "class T:\n    @property\n    def data(self):\n        return loader\n    def train(self):\n"
            "        for batch in self.data: pass\nT().train()"
        ),
        1,
    ),
    "generator": ("def stream():\n    for batch in loader:\n        yield batch\nfor batch in stream(): pass", 2),
    "yield from": ("def stream():\n    yield from loader\nfor batch in stream(): pass", 2),
    "generator of a parameter": (
        "def stream(d):\n    for batch in d:\n        yield batch\nfor batch in stream(loader): pass",
        2,
    ),
    "conditional": ("one = loader if flag else []\nfor batch in one: pass", 1),
    "alias": ("one = loader\nfor batch in one: pass", 1),
    "async-looking while": ("it = iter(loader)\nwhile True:\n    batch = next(it)", 0),
    "indices": ("for i in range(len(loader)): pass", 0),
    "something else": ("for batch in x: pass", 0),
    "dataset": ("for sample in loader.dataset: pass", 0),
}


@pytest.mark.parametrize(("text", "expected"), LOOPS.values(), ids=LOOPS)
def test_loops_over_a_loader(text: str, expected: int, tmp_path: Path) -> None:
    of = project(tmp_path, "loader = DataLoader(ds)\n" + text)
    assert len({loop.link.stmt.at for loop in of.loops}) == expected


REPEATED: dict[str, tuple[str, int]] = {
    "once": ("for batch in loader: pass", 0),
    "epochs": ("for epoch in range(10):\n    for batch in loader: pass", 1),
    "epochs of the user": ("for epoch in range(args.epochs):\n    for batch in loader: pass", 1),
    "one epoch": ("for epoch in range(1):\n    for batch in loader: pass", 0),
    "while": ("while True:\n    for batch in loader: pass", 1),
    "while with break": ("while True:\n    for batch in loader: pass\n    break", 0),
    "called in a loop": ("def train():\n    for batch in loader: pass\nfor epoch in range(9):\n    train()", 1),
    "called once": ("def train():\n    for batch in loader: pass\ntrain()", 0),
    "called twice down": (
        "def step():\n    for batch in loader: pass\ndef train():\n    step()\nfor epoch in range(9):\n    train()",
        1,
    ),
    "method": (
        (
            "class T:\n    def epoch(self):\n        for batch in loader: pass\n    def fit(self):\n"
            "        for e in range(9):\n            self.epoch()\nT().fit()"
        ),
        1,
    ),
    "built in the loop": ("for epoch in range(9):\n    loader = DataLoader(ds)\n    for batch in loader: pass", 0),
    "another loader each round": ("for one in [loader]:\n    for batch in one: pass", 0),
    "after the loop": ("for epoch in range(9): pass\nfor batch in loader: pass", 0),
    "else of the loop": ("for epoch in range(9): pass\nelse:\n    for batch in loader: pass", 0),
    "if in the loop": ("for epoch in range(9):\n    if epoch % 2:\n        for batch in loader: pass", 1),
}


@pytest.mark.parametrize(("text", "expected"), REPEATED.values(), ids=REPEATED)
def test_how_often_a_loader_is_iterated(text: str, expected: int, tmp_path: Path) -> None:
    of = project(tmp_path, "loader = DataLoader(ds)\n" + text)
    found = [loop for loop in of.loops if loop.direct]
    assert found
    assert {len(loop.repeated_by()) for loop in found} == {expected}


def test_a_loop_in_another_module(tmp_path: Path) -> None:
    files = {
        "train.py": HEAD + "from engine import fit\nloader = DataLoader(ds)\nfor epoch in range(9):\n    fit(loader)\n",
        "engine.py": "def fit(data):\n    for batch in data:\n        batch.cuda()\n",
    }
    of = project(tmp_path, files, ["train.py"])
    (loop,) = of.loops
    assert loop.module.name == "engine"
    assert len(loop.repeated_by()) == 1
    assert len(transfers(of)) == 1


def test_a_loader_of_another_module(tmp_path: Path) -> None:
    files = {
        "train.py": "from data import build\nfor epoch in range(9):\n    for batch in build(4):\n        pass\n",
        "data.py": HEAD + "def build(n):\n    return DataLoader(ds, num_workers=n)\n",
    }
    of = project(tmp_path, files, ["data.py"])
    (loop,) = of.loops
    assert loop.module.name == "train"
    assert option(of.loader_of(loop.ref), "num_workers") == {4}


def batch_loop(of: Project) -> BatchLoop:
    (loop,) = of.loops
    return loop


@pytest.mark.parametrize(
    ("body", "trains"),
    [("loss.backward()", True), ("step(batch)", True), ("self = batch", False), ("model(batch)", False)],
)
def test_a_loop_that_trains(body: str, trains: bool, tmp_path: Path) -> None:
    text = f"def step(b):\n    b.loss().backward()\nfor batch in DataLoader(ds):\n    {body}\n"
    assert batch_loop(project(tmp_path, text)).trains() is trains


NEXTS: dict[str, tuple[str, list[int]]] = {
    "in a loop": ("for i in range(9):\n    batch = next(iter(loader))", [1]),
    "once": ("batch = next(iter(loader))", [0]),
    "two steps": ("for i in range(9):\n    it = iter(loader)\n    batch = next(it)", []),
    "method": ("for i in range(9):\n    batch = next(loader.__iter__())", [1]),
    "of something else": ("for i in range(9):\n    batch = next(iter(x))", []),
    "called in a loop": ("def get():\n    return next(iter(loader))\nfor i in range(9):\n    get()", [1]),
}


@pytest.mark.parametrize(("text", "expected"), NEXTS.values(), ids=NEXTS)
def test_next_of_a_new_iterator(text: str, expected: list[int], tmp_path: Path) -> None:
    of = project(tmp_path, "loader = DataLoader(ds)\n" + text)
    assert [len(call.repeated_by()) for call in of.next_calls] == expected


REBUILT: dict[str, tuple[str, bool]] = {
    "in each epoch": ("for e in range(9):\n    l = DataLoader(ds)\n    for b in l: pass", True),
    "of what changes": ("for e in range(9):\n    l = DataLoader(ds[e])\n    for b in l: pass", False),
    "of other data": ("for d in x:\n    l = DataLoader(d)\n    for b in l: pass", False),
    "once": ("l = DataLoader(ds)\nfor e in range(9):\n    for b in l: pass", False),
    "under an if": ("for e in range(9):\n    if e % 3 == 0:\n        l = DataLoader(ds)\n    for b in l: pass", False),
}


@pytest.mark.parametrize(("text", "expected"), REBUILT.values(), ids=REBUILT)
def test_a_loader_that_is_built_again(text: str, expected: bool, tmp_path: Path) -> None:
    of = project(tmp_path, text)
    assert any(loader.rebuilding_loop() is not None for loader in of.loaders) is expected


# -- copies to a device

COPIES: dict[str, tuple[str, list[bool]]] = {
    "cuda": ("batch.cuda()", [True]),
    "cuda, non-blocking": ("batch.cuda(non_blocking=True)", [False]),
    "cuda, a rank": ("batch.cuda(0, non_blocking=True)", [False]),
    "cuda, by position": ("batch.cuda(None, True)", [False]),
    "to": ("batch.to('cuda')", [True]),
    "to, blocking": ("batch.to('cuda', non_blocking=False)", [True]),
    "to, by keyword": ("batch.to(device='cuda', non_blocking=True)", [False]),
    "to, by position": ("batch.to('cuda', torch.float, True)", [False]),
    "to, by **": ("kw = dict(non_blocking=True)\n    batch.to('cuda', **kw)", [False]),
    "to, constant": ("NB = True\n    batch.to('cuda', non_blocking=NB)", [False]),
    "type": ("batch.type(torch.cuda.FloatTensor)", [True]),
    "unpacked": ("x, y = batch\n    x.cuda()\n    y.cuda()", [True, True]),
    "index": ("batch[0].cuda()", [True]),
    "key": ("batch['image'].cuda()", [True]),
    "attribute": ("batch.image.cuda()", [True]),
    "list": ("batch = [t.cuda() for t in batch]", [True]),
    "dict": ("batch = {k: v.cuda() for k, v in batch.items()}", [True]),
    "items set": ("for k in batch:\n        batch[k] = batch[k].cuda()", [True]),
    "items": ("for k, v in batch.items():\n        batch[k] = v.cuda()", [True]),
    "generator": ("x, y = (t.cuda() for t in batch)", [True]),
    "map": ("x, y = map(lambda t: t.cuda(), batch)", [True]),
    "helper": ("move(batch)", [True]),
    "helper of a list": ("move_all(batch)", [True]),
    "alias": ("b = batch\n    b.cuda()", [True]),
    "walrus": ("(b := batch).cuda()", [True]),
    "twice": ("batch = batch.cuda()\n    batch = batch.cuda()", [True]),
    "something else": ("model.cuda()", []),
    "conditional": ("if flag:\n        batch = batch.cuda()", [True]),
    "parenthesised": ("(batch).cuda()", [True]),
    "enumerate": ("pass\nfor i, (x, y) in enumerate(loader):\n    x.cuda()", [True]),
    "nested": ("pass\nfor i, ((x, y), z) in enumerate(loader):\n    y.cuda()", [True]),
    "starred": ("x, *rest = batch\n    rest[0].cuda()", [True]),
}

HELPERS = """\
def move(b):
    return b.cuda()
def move_all(b):
    return [t.cuda() for t in b]
loader = DataLoader(ds)
for batch in loader:
"""


@pytest.mark.parametrize(("body", "expected"), cases(COPIES))
def test_copies_of_a_batch(body: str, expected: list[bool], tmp_path: Path) -> None:
    of = project(tmp_path, f"{HELPERS}    {body}\n")
    found = transfers(of)
    assert [blocks(transfer) for transfer in found] == [{blocking} for blocking in expected]
    assert all(devices(transfer) == {"cuda"} for transfer in found)


@pytest.mark.parametrize(
    ("work", "exact"), [("batch", True), ("batch[0]", True), ("batch.float()", False), ("batch * 2", False)]
)
def test_memory_that_is_still_the_loader_s_own(work: str, exact: bool, tmp_path: Path) -> None:
    of = project(tmp_path, f"for batch in DataLoader(ds):\n    x = {work}\n    x.cuda()\n")
    found = [source.value for transfer in transfers(of) for source in transfer.sources]
    assert [value.exact for value in found if isinstance(value, Batch)] == [exact]


def test_nothing_is_said_of_unknown_blocking(tmp_path: Path) -> None:
    of = project(tmp_path, "for batch in DataLoader(ds):\n    batch.to('cuda', non_blocking=x)\n")
    (transfer,) = transfers(of)
    assert blocks(transfer) == set()
    assert transfer.worlds(blocking=True) == []


DEVICES: dict[str, tuple[str, set[str]]] = {
    "cuda": ("'cuda'", {"cuda"}),
    "cuda:0": ("'cuda:0'", {"cuda"}),
    "number": ("0", {"cuda"}),
    "cpu": ("'cpu'", {"cpu"}),
    "mps": ("'mps'", {"mps"}),
    "torch.device": ("torch.device('cuda')", {"cuda"}),
    "torch.device and number": ("torch.device('cuda', 0)", {"cuda"}),
    "torch.device of a number": ("torch.device(0)", {"cuda"}),
    "cuda or cpu": ("torch.device('cuda' if torch.cuda.is_available() else 'cpu')", {"cuda", "cpu"}),
    "cuda or mps or cpu": ("'cuda' if a else 'mps' if b else 'cpu'", {"cuda", "mps", "cpu"}),
    "f-string": ("f'cuda:{n}'", {"cuda"}),
    "format": ("'cuda:{}'.format(n)", {"cuda"}),
    "percent": ("'cuda:%d' % n", {"cuda"}),
    "sum": ("'cuda:' + str(n)", {"cuda"}),
    "rank": ("torch.distributed.get_rank()", {"cuda"}),
    "local rank": ("int(os.environ['LOCAL_RANK'])", {"cuda"}),
    "current device": ("torch.cuda.current_device()", {"cuda"}),
    "dtype": ("torch.float16", {"dtype"}),
    "unknown": ("x", {"unknown"}),
}


@pytest.mark.parametrize(("device", "expected"), cases(DEVICES))
@pytest.mark.parametrize("held", [False, True], ids=["in place", "in a variable"])
def test_device_of_a_copy(device: str, expected: set[str], held: bool, tmp_path: Path) -> None:
    setup, target = (f"device = {device}\n", "device") if held else ("", device)
    of = project(tmp_path, f"{setup}for batch in DataLoader(ds):\n    batch.to({target})\n")
    (transfer,) = transfers(of)
    assert devices(transfer) == expected


def test_device_of_the_command_line(tmp_path: Path) -> None:
    text = (
        "p = argparse.ArgumentParser()\np.add_argument('--device', default='cuda')\nargs = p.parse_args()\n"
        "device = torch.device(args.device)\nfor batch in DataLoader(ds):\n    batch.to(device)\n"
    )
    (transfer,) = transfers(project(tmp_path, text))
    assert devices(transfer) == {"cuda", "unknown"}


@pytest.mark.parametrize("name", ["rank", "local_rank", "gpu", "device_id"])
def test_a_rank_is_a_gpu(name: str, tmp_path: Path) -> None:
    text = f"def main({name}):\n    for batch in DataLoader(ds):\n        batch.to({name})\n"
    (transfer,) = transfers(project(tmp_path, text))
    assert devices(transfer) == {"cuda"}


def test_a_copy_only_where_there_is_cuda(tmp_path: Path) -> None:
    text = (
        "cuda = torch.cuda.is_available()\n"
        "for batch in DataLoader(ds, pin_memory=cuda):\n    if cuda:\n        batch.cuda()\n"
    )
    of = project(tmp_path, text)
    (transfer,) = transfers(of)
    worlds = transfer.to_cuda()
    assert worlds
    pinned = [alt.world for alt in only(of).pinning(True)]
    unpinned = [alt.world for alt in only(of).pinning(False)]
    assert any(world.merge(other) for world in worlds for other in pinned)
    assert not any(world.merge(other) for world in worlds for other in unpinned)


def test_a_batch_that_is_not_copied_again_and_again_does_not_matter(tmp_path: Path) -> None:
    assert transfers(project(tmp_path, "batch = next(iter(DataLoader(ds)))\nbatch.cuda()\n")) == []


def test_files_that_are_not_named_are_read_where_they_matter(tmp_path: Path) -> None:
    files: Files = {
        "train.py": HEAD + "from moves import to_device\nfor batch in DataLoader(ds):\n    to_device(batch, 'cuda')\n",
        "moves.py": "def to_device(batch, device):\n    return batch.to(device, non_blocking=True)\n",
        "unrelated.py": "import torch\n",
    }
    of = project(tmp_path, files, ["train.py"])
    (transfer,) = transfers(of)
    assert (transfer.module.name, blocks(transfer), devices(transfer)) == ("moves", {False}, {"cuda"})
    assert sorted(module.name for module in of.loaded()) == ["moves", "train"]
    assert [module.name for module in of.named_modules] == ["train"]
