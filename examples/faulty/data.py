"""Tiles of satellite images: labelled ones in an archive, held-out ones in a folder, unlabelled ones in shards."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset


def read_labels(path: Path) -> list[tuple[str, int]]:
    with path.open(newline="") as file:
        return [(name, int(label)) for name, label in csv.reader(file)]


def to_tensor(tile: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(tile).float() / 255


class TileArchive(Dataset):
    """Labelled tiles, each decoded from its member of a zip archive when it is asked for."""

    def __init__(self, archive: Path, labels: Path) -> None:
        self.rows = read_labels(labels)
        self.archive = zipfile.ZipFile(archive)  # DLC304

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name, label = self.rows[index]
        tile = np.load(io.BytesIO(self.archive.read(name)))
        return {"image": to_tensor(tile), "label": label}


class TileFolder(Dataset):
    """Labelled tiles, one file each."""

    def __init__(self, folder: Path, labels: Path) -> None:
        self.rows = read_labels(labels)
        self.tiles = [np.load(folder / name) for name, _ in self.rows]  # DLC301

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": to_tensor(self.tiles[index]), "label": self.rows[index][1]}


class TileStream(IterableDataset):
    """Unlabelled tiles, shard after shard."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.npy"))

    def __iter__(self) -> Iterator[torch.Tensor]:  # DLC401
        for file in self.files:
            for tile in np.load(file):
                yield to_tensor(tile)
