"""Whole training scripts, fixed by `--fix`, train to the same loss as before, seed for seed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the scripts need torch"),
]

ROOT = Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "tests" / "measure" / "programs" / "mnist.py"
PLAIN = '"shuffle": True}'
WITH_WORKERS = PLAIN[:-1] + ', "num_workers": 1, "persistent_workers": True, "pin_memory": True}'

# A network for folders of images, as long scripts of this kind are: options of a command line, distributed or
# not, learning rates by epoch, top-1 and top-5 of a validation set.
FOLDERS = """\
import argparse
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

parser = argparse.ArgumentParser(description="Train on a folder of images")
parser.add_argument("data")
parser.add_argument("-j", "--workers", type=int, default=2)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--world-size", type=int, default=1)


class Folder(Dataset):
    def __init__(self, root, train):
        self.train = train
        self.paths = sorted(os.path.join(root, name) for name in os.listdir(root))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        image = np.load(path)
        if self.train and torch.rand(1).item() < 0.5:
            image = image[:, ::-1]
        return torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255, int(path[-5])


def accuracy(output, target, top):
    return (output.topk(top, dim=1).indices == target[:, None]).any(1).sum()


def train(loader, net, criterion, optimizer, device):
    net.train()
    total = 0.0
    for images, target in loader:
        images = images.to(device)
        target = target.to(device, non_blocking=False)
        loss = criterion(net(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    return total / len(loader)


def validate(loader, net, criterion, device):
    net.eval()
    first = fifth = 0
    for images, target in loader:
        output = net(images.to(device))
        target = target.to(device)
        first += accuracy(output, target, 1)
        fifth += accuracy(output, target, 5)
    return int(first), int(fifth)


def main():
    args = parser.parse_args()
    torch.manual_seed(3)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), args.lr, momentum=0.9)
    train_set, val_set = Folder(args.data, True), Folder(args.data, False)
    sampler = DistributedSampler(train_set, args.world_size, 0) if args.world_size > 1 else None
    for epoch in range(args.epochs):
        loader = DataLoader(
            train_set, batch_size=args.batch_size, shuffle=(sampler is None),
            num_workers=args.workers, pin_memory=True, sampler=sampler)
        val_loader = DataLoader(
            val_set, batch_size=args.batch_size, shuffle=False, num_workers=args.workers, pin_memory=True)
        loss = train(loader, net, criterion, optimizer, device)
        print(epoch, loss.item(), *validate(val_loader, net, criterion, device))


if __name__ == "__main__":
    main()
"""


def python(place: Path, *words: str) -> str:
    here = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=place, env=here, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Path:
    numpy = pytest.importorskip("numpy")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "images").mkdir()
    draw = numpy.random.default_rng(5)
    for number in range(40):
        image = draw.integers(0, 256, (12, 12, 3), dtype="uint8")
        numpy.save(tmp_path / "images" / f"{number:03}_{number % 10}.npy", image)
    digits = DIGITS.read_text(encoding="utf-8")
    assert PLAIN in digits
    (tmp_path / "mnist.py").write_text(digits.replace(PLAIN, WITH_WORKERS), encoding="utf-8")
    (tmp_path / "folders.py").write_text(FOLDERS, encoding="utf-8")
    return tmp_path


SCRIPTS = {"mnist.py": ["--epochs", "2"], "folders.py": ["images"]}


def fix(place: Path, script: str, *words: str) -> None:
    """Fix a script, which must change it and leave nothing that could still be fixed."""
    text = (place / script).read_text(encoding="utf-8")
    python(place, "-m", "dlcheck", "check", "--isolated", "--exit-zero", "--fix", *words, script)
    assert (place / script).read_text(encoding="utf-8") != text
    assert python(place, "-m", "dlcheck", "check", "--isolated", "--diff", *words, script) == ""


# What unsafe fixes leave as it was, without DLC202's, safe ones do.
@pytest.mark.parametrize("script", ["mnist.py", pytest.param("folders.py", marks=pytest.mark.long)])
def test_safe_fixes_leave_every_loss_as_it_was(place: Path, script: str) -> None:
    before = python(place, script, *SCRIPTS[script])
    fix(place, script)
    assert python(place, script, *SCRIPTS[script]) == before


@pytest.mark.long
def test_with_unsafe_fixes_the_first_epoch_stays(place: Path) -> None:
    """Workers that stay draw no new seed for the second epoch, whose order is another: why DLC202's fix is unsafe."""
    before = python(place, "folders.py", "images")
    fix(place, "folders.py", "--unsafe-fixes")
    assert "persistent_workers=args.workers > 0" in (place / "folders.py").read_text(encoding="utf-8")
    after = python(place, "folders.py", "images")
    assert after.splitlines()[0] == before.splitlines()[0]


def test_but_for_their_order_unsafe_fixes_change_no_loss(place: Path) -> None:
    before = python(place, "folders.py", "images")
    fix(place, "folders.py", "--unsafe-fixes", "--ignore", "DLC202")
    text = (place / "folders.py").read_text(encoding="utf-8")
    assert text.index("loader = DataLoader(") < text.index("for epoch in range")
    assert python(place, "folders.py", "images") == before
