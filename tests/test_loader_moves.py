"""Loaders moved out of loops, and started anew: when one gives what many gave, and when it may not or cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlcheck.config import Config
from dlcheck.engine import check
from dlcheck.fixing import fix

HEAD = """\
from torch.utils.data import DataLoader, RandomSampler, Subset

BS = 2
def learn(net, batches):
    for x in batches: net(x).mean().backward()
def mark(batches): batches.marks = 1
def keep(cfg, seen, batches): seen.append(batches)
def fill(ds): ds.append(1)

"""


def applicability(text: str, place: Path, patch: pytest.MonkeyPatch) -> str:
    """Of the fix of the only finding; else why there is none, or "silent"."""
    (place / "pyproject.toml").touch()
    (place / "train.py").write_text(HEAD + text, encoding="utf-8")
    patch.chdir(place)
    found = check(["."], Config(isolated=True, overrides={"select": ["DLC206"]})).findings
    if not found:
        return "silent"
    return found[0].fix.applicability if found[0].fix is not None else found[0].unfixed


def looped(built: str, before: str = "", after: str = "learn(net, loader)", top: str = "", params: str = "") -> str:
    lines = [f"def train(net, ds, cfg, bs=4{params}):", f"    {top}" if top else "", "    for epoch in range(3):"]
    lines += [f"        {line}" for line in (before, f"loader = DataLoader({built})", after) if line]
    return "\n".join((*lines, ""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # what it is given
        (looped("ds, batch_size=bs, num_workers=1"), "safe"),
        (looped("ds, batch_size=cfg.bs, num_workers=1"), "safe"),
        (looped("ds, batch_size=BS, num_workers=1"), "safe"),
        (looped("Subset(ds, range(8)), sampler=RandomSampler(ds), num_workers=1"), "safe"),
        (looped("ds, num_workers=1, collate_fn=lambda b: b[0]"), "safe"),
        (looped("ds, **cfg", top="cfg = {'num_workers': 1}"), "safe"),
        (looped("ds, **cfg", "net.prepare(cfg)", top="cfg = {'num_workers': 1}"), "unsafe"),
        (looped("ds, num_workers=1, **rest", params=", **rest"), "unsafe"),
        (looped("ds, num_workers=1, **cfg"), "unsafe"),
        (looped("ds, batch_size=cfg['bs'], num_workers=1"), "unsafe"),
        (looped("ds, batch_size=len(cfg), num_workers=1"), "unsafe"),
        (looped("ds, batch_size=cfg.bs, num_workers=1") + "def grow(c): c.bs = 8\n", "unsafe"),
        (looped("ds, batch_size=BS, num_workers=1") + "def grow():\n    global BS\n    BS = 8\n", "unsafe"),
        (looped("ds, batch_size=cfg.bs, num_workers=1", "setattr(cfg, net.name, 1)"), "unsafe"),
        (looped("ds, num_workers=1", "net.prepare(ds)"), "unsafe"),
        (looped("ds, num_workers=1", "net.train()"), "safe"),
        # what is done with it
        (looped("ds, num_workers=1", after="for x in loader: net(x)"), "safe"),
        (looped("ds, num_workers=1", after="for i, x in enumerate(loader): print(len(loader.dataset))"), "safe"),
        (looped("ds, num_workers=1", after="learn(net, loader); mark(loader)"), "unsafe"),
        (looped("ds, num_workers=1", after="learn(net, loader); keep(cfg, [], loader)"), "unsafe"),
        (looped("ds, num_workers=1", after="learn(net, loader); loader.marks = 1"), "unsafe"),
        (looped("ds, num_workers=1", after="learn(net, loader); cfg.each.append(loader)"), "unsafe"),
        (looped("ds, num_workers=1", after="learn(net, loader); print(loader)"), "unsafe"),
        (looped("ds, num_workers=1", top="loader = None"), "unsafe"),
        # read before it is set
        (looped("ds, num_workers=1", "if loader: print(len(loader))", top="loader = None"),
         "a round uses the loader of the round before"),
        (looped("ds, num_workers=1", "print(size())", top="size = lambda: len(loader)"),
         "a round uses the loader of the round before"),
        (looped("ds, num_workers=1", "print(size())", top="def size(): return len(loader)"),
         "a round uses the loader of the round before"),
        # a function that the loop calls changes what it is given
        (looped("ds, batch_size=cfg.bs, num_workers=1", "grow(cfg)") + "def grow(c): c.bs = 8\n", "silent"),
        (looped("ds, batch_size=cfg['bs'], num_workers=1", "grow(cfg)") + "def grow(c): c['bs'] = 8\n", "silent"),
        (looped("ds, batch_size=cfg['bs'], num_workers=1", "far(cfg)")
         + "def far(c): grow(0, by=c)\ndef grow(n, by): by.update(bs=8)\n", "silent"),
        (looped("ds, batch_size=BS, num_workers=1", "grow()") + "def grow():\n    global BS\n    BS = 8\n", "silent"),
        (looped("ds, num_workers=1", "fill(ds)"), "silent"),
        (looped("ds, batch_size=bs, num_workers=1", "grow(bs)") + "def grow(n):\n    n = n + 8\n", "unsafe"),
    ],
)  # fmt: skip
def test_one_loader_for_many(text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert applicability(text, tmp_path, monkeypatch) == expected


LOADER = "from torch.utils.data import DataLoader\nloader = DataLoader(ds, batch_size=4, shuffle=True)"
LOOP = "for x, i in zip(cycle(loader), range(100)):\n    print(x)"
FOREVER = "def forever(loader):\n    while True:\n        yield from loader\n\n\n"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([LOADER, "from itertools import cycle", LOOP], [LOADER, "", FOREVER + LOOP.replace("cycle", "forever")]),
        ([LOADER, "import os\nfrom itertools import cycle", LOOP],
         [LOADER, "import os", FOREVER + LOOP.replace("cycle", "forever")]),
        ([LOADER, "from itertools import cycle\n", "\n\n", LOOP],
         [LOADER, "", "\n\n", FOREVER + LOOP.replace("cycle", "forever")]),
        ([LOADER, "from itertools import cycle", LOOP, "%time cycle"],
         [LOADER, "from itertools import cycle", FOREVER + LOOP.replace("cycle", "forever"), "%time cycle"]),
    ],
)  # fmt: skip
def test_cells_of_a_notebook(
    cells: list[str], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = [
        {"cell_type": "code", "source": one, "execution_count": None, "metadata": {}, "outputs": []} for one in cells
    ]
    whole = {"cells": made, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "train.ipynb").write_text(json.dumps(whole), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    config = Config(isolated=True, overrides={"select": ["DLC208"]})
    done = fix(lambda after: check(["."], config, overlays=after), unsafe=True)
    assert not done.errors
    after = json.loads(done.changes[0].after)
    assert [cell["source"] for cell in after["cells"]] == expected
