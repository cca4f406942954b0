"""Make small synthetic tiles, so that the example runs anywhere: `python make_data.py FOLDER`."""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from pathlib import Path

import numpy as np

CLASSES = 4
SIDE = 24


def tile(rng: np.random.Generator, label: int) -> np.ndarray:
    """A noisy tile (3, SIDE, SIDE) of bytes whose brightest stripe tells its class."""
    pixels = rng.integers(0, 160, size=(3, SIDE, SIDE), dtype=np.uint8)
    width = SIDE // CLASSES
    pixels[:, :, label * width : (label + 1) * width] += 90
    return pixels


def write(root: Path, train: int = 192, val: int = 64, shards: int = 4) -> None:
    """Write the archive of labelled tiles, the folder of held-out ones and the unlabelled shards."""
    rng = np.random.default_rng(0)
    root.mkdir(parents=True, exist_ok=True)

    labels = rng.integers(0, CLASSES, size=train)
    with zipfile.ZipFile(root / "train.zip", "w") as archive:
        for number, label in enumerate(labels):
            member = io.BytesIO()
            np.save(member, tile(rng, label))
            archive.writestr(f"{number:04}.npy", member.getvalue())
    write_labels(root / "train.csv", labels)

    labels = rng.integers(0, CLASSES, size=val)
    (root / "val").mkdir(exist_ok=True)
    for number, label in enumerate(labels):
        np.save(root / "val" / f"{number:04}.npy", tile(rng, label))
    write_labels(root / "val.csv", labels)

    (root / "unlabelled").mkdir(exist_ok=True)
    for number in range(shards):
        tiles = np.stack([tile(rng, label) for label in rng.integers(0, CLASSES, size=32)])
        np.save(root / "unlabelled" / f"{number:02}.npy", tiles)


def write_labels(path: Path, labels: np.ndarray) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows((f"{number:04}.npy", label) for number, label in enumerate(labels))


def ensure(root: Path) -> None:
    """Write the tiles where there are none."""
    if not (root / "unlabelled").is_dir():
        write(root)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
