"""Which fixes count as safe: those after which a program gives what it gave before."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from dlcheck import edits
from dlcheck.config import Config
from dlcheck.engine import check
from dlcheck.findings import Finding
from dlcheck.source import Source


def found(code: str, place: Path, patch: pytest.MonkeyPatch, text: str, name: str = "train.py") -> list[Finding]:
    (place / name).write_text(text, encoding="utf-8")
    patch.chdir(place)
    findings = check(["."], Config(isolated=True, overrides={"select": [code]})).findings
    assert findings
    return findings


def kind_of(finding: Finding) -> str:
    """Of a finding's fix; why there is none, where there is none."""
    return finding.fix.applicability if finding.fix is not None else finding.unfixed


EVALUATION = """\
import torch
from torch.utils.data import DataLoader

LAST, STORE = None, {{}}


class Meter:
    def __init__(self, name):
        self.name, self.sum, self.count, self.avg = name, 0.0, 0, 0.0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count


def keep(value):
    STORE["value"] = value
    return 0


class Trainer:
    def evaluate(self, net, data, outs, sink, criterion, device):
        {first}
        net.eval()
        total, hits, own, labels = 0.0, 0, [], []
        for i, (x, y) in enumerate(DataLoader(data, batch_size=8)):
            x, y = x.to(device), y.to(device)
            out = net(x)
            {inside}
        {last}
"""

COUNTS = (
    "loss = criterion(out, y); total += loss.item() * x.size(0); hits += (out.argmax(1) == y).sum().item(); "
    "own.append(out.argmax(1).cpu().numpy()); labels.extend(y.tolist())"
)


@pytest.mark.parametrize(
    ("inside", "last"),
    [
        (COUNTS, "return total / len(data), hits"),
        (COUNTS, "print(f'{total:.2f}', hits / len(data))"),
        (COUNTS, "return own, labels"),
        (f"meter.update(out.mean().item(), x.size(0)); {COUNTS}", "self.best = max(total, 3); return meter.avg"),
        (COUNTS, "self.history.append((total, hits)); return {'loss': total, 'hits': hits}"),
        ("own.append(out.detach())", "return torch.cat(own), sink"),
        ("own.append(out)", "return torch.cat(own).argmax(1).tolist()"),
    ],
)
def test_an_evaluation_that_gives_numbers_is_safely_without_gradients(
    inside: str, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = "meter = Meter('loss')"
    (finding,) = found("DLC505", tmp_path, monkeypatch, EVALUATION.format(first=first, inside=inside, last=last))
    assert kind_of(finding) == ("unsafe" if "meter.avg" in last else "safe")


@pytest.mark.parametrize(
    ("first", "inside", "last"),
    [
        ("pass", "outs[i] = out", "pass"),
        ("pass", "outs.insert(0, out.sum())", "pass"),
        ("pass", "outs += [out]", "pass"),
        ("pass", "sink(out)", "pass"),
        ("pass", "own.append(out); sink(value=own)", "pass"),
        ("pass", "self.feats[i] = out", "pass"),
        ("pass", "self.last += [out]", "pass"),
        ("pass", "self.last[:] = [out]", "pass"),
        ("pass", "self.last.appendleft(out)", "pass"),
        ("pass", "own.append(out)", "self.outs = own"),
        ("pass", "own.append(out)", "return {'outs': own}"),
        ("pass", "own.append(out)", "return [one.float() for one in own]"),
        ("pass", "own = out", "return own"),
        ("alias = self.feats", "alias[i] = out", "pass"),
        ("alias = self.feats", "alias.append(out)", "pass"),
        ("global LAST", "LAST = out", "pass"),
        ("pass", "keep(out)", "pass"),
        ("pass", "value = keep(out)", "pass"),
        ("last = []; hold = lambda v: last.append(v)", "hold(out)", "return last"),
        ("pass", "for self.last in [out]: pass", "pass"),
        ("pass", "print(out)", "pass"),
        ("pass", "total += out.sum()", "return total"),
        ("pass", "total += (sink * out.argmax(1)).sum()", "return total"),
        ("from collections import deque; queue = deque()", "queue.appendleft(out)", "return queue"),
    ],
)
def test_what_may_go_backward_later_is_no_safe_evaluation(
    first: str, inside: str, last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = EVALUATION.format(first=first, inside=inside, last=last)
    (finding,) = found("DLC505", tmp_path, monkeypatch, text)
    assert kind_of(finding) == "unsafe"


WATCHED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

acts = {{}}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        {forward}

    def remember(self, x):
        self.cache = x


def predict(net, data):
    net.eval()
    hits = 0
    for x, y in DataLoader(data, batch_size=8):
        hits += (net(x).argmax(1) == y).sum().item()
    return hits


def main(data):
    net = Net()
    {main}
    return predict(net, data)
"""


@pytest.mark.parametrize(
    ("forward", "main", "expected"),
    [
        ("return self.layer(x)", "pass", "safe"),
        ("self.cache = self.layer(x); return self.cache", "pass", "unsafe"),
        ("x = self.layer(x); self.remember(x); return x", "pass", "unsafe"),
        ("return self.layer(x)", "net.layer.register_forward_hook(lambda m, i, o: acts.update(a=o))", "unsafe"),
        ("return self.layer(x) if torch.is_grad_enabled() else x", "pass", "unsafe"),
    ],
)
def test_networks_that_keep_what_they_compute(
    forward: str, main: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (finding,) = found("DLC505", tmp_path, monkeypatch, WATCHED.format(forward=forward, main=main))
    assert kind_of(finding) == expected


TOTALS = """\
import torch
from contextlib import suppress
from torch.utils.data import DataLoader


def train(net, data, optimizer, measure):
    total = {start}
    {above}
    for x, y in DataLoader(data, batch_size=8):
        x, y = x.cuda(), y.cuda()
        out = net(x)
        loss = out.mean()
        loss.backward()
        optimizer.step()
        hits = (out.argmax(1) == y).sum()
        other = measure(out)
        total += {added}
    {below}
    return total{last}
"""
EDGES = "whether `total` adds up whole numbers is not clear"


@pytest.mark.parametrize(
    ("start", "above", "added", "below", "last", "expected"),
    [
        ("0.0", "pass", "loss.item()", "pass", "", "safe"),
        ("0", "pass", "loss.item()", "pass", "", "unsafe"),
        ("0", "pass", "loss.item()", "pass", " / len(data)", "safe"),
        ("0", "pass", "hits.item()", "pass", "", "safe"),
        ("0", "pass", "100 * hits.item()", "pass", "", "safe"),
        ("0.0", "pass", "hits.item()", "pass", "", "safe"),
        ("0", "pass", "hits.item() / y.size(0)", "pass", " / 2", "unsafe"),
        ("0", "pass", "other.item()", "pass", "", EDGES),
        ("0.0", "pass", "other.item()", "pass", "", "safe"),
        ("0.0", "pass", "1 / loss.item()", "pass", "", "when a value has to be read is for you to decide"),
        ("0.0", "log = lambda: print(total)", "loss.item()", "pass", "", None),
        ("0.0", "log = (total for _ in data)", "loss.item()", "pass", "", None),
    ],
)
def test_sums_on_the_gpu(
    start: str, above: str, added: str, below: str, last: str, expected: str | None,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    text = TOTALS.format(start=start, above=above, added=added, below=below, last=last)
    kinds = [kind_of(one) for one in found("DLC501", tmp_path, monkeypatch, text)]
    assert kinds == [expected or "when a value has to be read is for you to decide"]


AROUND = """\
from contextlib import suppress
from torch.utils.data import DataLoader


def train(net, data, optimizer):
{lines}
"""
LOOP = """\
for x in DataLoader(data, batch_size=8):
    loss = net(x.cuda()).mean()
    loss.backward()
    optimizer.step()
    total += loss.item()
"""
CUT = "`total` is read where an error has ended the loop"


@pytest.mark.parametrize(
    ("above", "depth", "below", "expected"),
    [
        ("total = 0.0\ntry:", 1, "except KeyboardInterrupt:\n    print(total)", CUT),
        ("total = 0.0\ntry:", 1, "except KeyboardInterrupt:\n    pass\nreturn total", CUT),
        ("total = 0.0\ntry:", 1, "finally:\n    print(total)", CUT),
        ("total = 0.0\ntry:", 1, "except KeyboardInterrupt:\n    raise\nreturn total", "safe"),
        ("total = 0.0\nwith suppress(KeyboardInterrupt):", 1, "return total", "unsafe"),
        ("total = 0\nfor epoch in range(3):", 1, "    total /= 2\nreturn total", None),
        ("for epoch in range(3):\n    total = 0.0", 1, "    total /= 2\n    print(total)", "safe"),
        ("for epoch in range(3):\n    total = 0.0", 1, "        print(locals())", "`total` is read inside the loop"),
        (
            "for epoch in range(3):\n    total = 0.0",
            1,
            "        assert x.any(), total",
            "`total` is read inside the loop",
        ),
    ],
)
def test_sums_that_an_error_cuts_short(
    above: str, depth: int, below: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = "".join("    " * depth + line for line in LOOP.splitlines(True))
    lines = "".join(f"    {line}\n" for line in f"{above}\n{loop}{below}".splitlines())
    (finding,) = found("DLC501", tmp_path, monkeypatch, AROUND.format(lines=lines))
    assert kind_of(finding) == (expected or "when a value has to be read is for you to decide")


def test_an_import_of_a_later_cell_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [
        "from torch.utils.data import DataLoader",
        "def evaluate(net, data):\n    net.eval()\n    for x in DataLoader(data):\n        print(len(net(x)))\n",
        "import torch\nprint(evaluate(torch.nn.Linear(1, 1), []))",
    ]
    notebook = {
        "cells": [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": []} for cell in cells],
        "metadata": {}, "nbformat": 4, "nbformat_minor": 5,
    }  # fmt: skip
    (finding,) = found("DLC505", tmp_path, monkeypatch, json.dumps(notebook), "train.ipynb")
    assert finding.fix is not None
    assert ("import torch\n", 1) in [(edit.replacement.lstrip("\n") + "\n" * (not edit.replacement.endswith("\n")),
                                      edit.place.cell) for edit in finding.fix.edits]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("torch.zeros(3).to(device)", "safe"),
        ("torch.arange(n).view(-1) \\\n            .to(device)", "safe"),
        ("torch.arange(0, n, 2).to(device)", "safe"),
        ("torch.arange(0, 1, 0.1).to(device)", "unsafe"),
        ("torch.zeros(3).expand(2, 3).to(device)", "unsafe"),
        ("torch.zeros(3, requires_grad=True).to(device)", "leaf"),
        ("torch.zeros(3, requires_grad=False).to(device)", "safe"),
        ("torch.zeros(3).requires_grad_().to(device)", "leaf"),
    ],
)
def test_tensors_made_on_the_gpu(made: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import torch\n\n\ndef train(net, batches, n, device='cuda'):\n    for x in batches:\n"
        f"        made = {made}\n        net(x.cuda(), made).backward()\n"
    )
    (finding,) = found("DLC111", tmp_path, monkeypatch, text)
    assert expected in kind_of(finding)
    if finding.fix is not None:
        source = Source("train.py", "/train.py", text)
        ast.parse(edits.apply(source, list(finding.fix.edits)))


@pytest.mark.parametrize(
    ("arrays", "expected", "call"),
    [
        ("[np.asarray(s['x'], dtype=np.float32) for s in batch]", "safe", "np.stack"),
        ("[np.asarray(s['x']) for s in batch]", "unsafe", "np.stack"),
        ("[np.asarray(s['x'], dtype=np.float32) for s in batch if s['x']]", "unsafe", "np.array"),
        ("[np.asarray(x, dtype=np.float32) for s in batch for x in s['x']]", "unsafe", "np.array"),
        ("[np.asarray(x, dtype=np.float32) for x in batch[0]]", "unsafe", "np.array"),
    ],
)
def test_arrays_that_become_one(
    arrays: str, expected: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "import numpy as np\nimport torch\nfrom torch.utils.data import DataLoader\n\n\ndef collate(batch):\n"
        f"    arrays = {arrays}\n    return torch.tensor(arrays)\n\n\n"
        "def build(data):\n    return DataLoader(data, collate_fn=collate)\n"
    )
    (finding,) = found("DLC310", tmp_path, monkeypatch, text)
    assert kind_of(finding) == expected
    assert finding.fix is not None
    assert any(call in edit.replacement for edit in finding.fix.edits)
