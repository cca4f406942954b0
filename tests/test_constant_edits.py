"""Constants moved out of loops: safe where the loop only reads them, refused where it edits them by another name."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcheck.config import Config
from dlcheck.engine import check

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

WEIGHTS = [0.3, 0.7]
def scaled(x, w): return x * w
def jitter_(w): w.mul_(0.5)
def same(w): return w
def far(n, by): return jitter_(by)

def train(net, ds, opt, values, device=torch.device("cuda")):
    for x, y in DataLoader(ds, batch_size=8):
"""


def applicability(lines: list[str], place: Path, patch: pytest.MonkeyPatch) -> str:
    (place / "pyproject.toml").touch()
    body = "".join(f"        {line}\n" for line in (*lines, "net(x.to(device)).sum().backward()"))
    (place / "train.py").write_text(HEAD + body, encoding="utf-8")
    patch.chdir(place)
    (found,) = check(["."], Config(isolated=True, overrides={"select": ["DLC112"]})).findings
    return found.fix.applicability if found.fix is not None else found.unfixed


EDITED = "the loop may edit it, under another name or in a function"


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        (["x = x * w"], "safe"),
        (["loss = nn.functional.cross_entropy(net(x), y, weight=w)"], "safe"),
        (["x = scaled(x, w)", "print(w.shape, f'{w}')"], "safe"),
        (["v = w.view(2, 1)", "x = x + v"], "safe"),
        (["x = torch.where(y, w, x)"], "safe"),
        (["x = same(w) + 1"], "safe"),
        (["x = net(x, w)"], "unsafe"),
        (["net.weight = w"], "unsafe"),
        (["opt.add(w)"], "unsafe"),
        (["seen = [w]", "net(seen)"], "unsafe"),
        (["jitter_(w)"], EDITED),
        (["far(1, by=w)"], EDITED),
        (["v = same(w)", "v += 1"], EDITED),
        (["state = {'w': w}", "state['w'] *= 2"], EDITED),
        (["v = w", "v += 1"], EDITED),
        (["v = w.view(2, 1)", "v[0] = 1"], EDITED),
        (["w.view(-1).mul_(2)"], EDITED),
    ],
)
def test_what_the_loop_does_with_it(
    uses: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert applicability(["w = torch.tensor([0.3, 0.7]).to(device)", *uses], tmp_path, monkeypatch) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["w = torch.tensor(WEIGHTS).to(device)", "x = x * w"], "safe"),
        (["w = torch.tensor(values).to(device)", "x = x * w"], "safe"),
        (["w = torch.tensor(values).to(device)", "x = x * w", "opt.grow(values)"], "unsafe"),
        (["a = [0.3, 0.7]", "w = torch.tensor(a).to(device)", "x = x * w"], "safe"),
        (["x = x * torch.tensor([0.3, 0.7]).to(device)"], "safe"),
        (["jitter_(torch.tensor([0.3, 0.7]).to(device))"], EDITED),
        (["if len(x) > 9: print(w)", "w = torch.tensor([0.3, 0.7]).to(device)"],
         "a round uses that of the round before"),
    ],
)  # fmt: skip
def test_what_it_is_made_of(lines: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert applicability(lines, tmp_path, monkeypatch) == expected
