"""Datasets that stand for the user's where nothing better is at hand.

Their cost is spent as work, never as sleep: workers that sleep do not compete for cores, and a
benchmark that lets them shows gains that no decoder has.  Waiting (disks, networks) is its own number.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import tempfile
import time
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

_PIECE = bytes(range(256)) * 256


def pieces_per_second(seconds: float = 0.05) -> float:
    """How many units of work a second of this CPU does; a unit is the SHA-256 of 64 KiB."""
    done = 0
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        hashlib.sha256(_PIECE).digest()
        done += 1
    return done / (time.thread_time() - start)


class Shaped(Dataset[Any]):
    """Samples of a shape that take ``cpu_s`` seconds of work and ``wait_s`` of waiting each, and a label.

    ``arrays`` gives several of them: ``{"shape": [3, 224, 224], "dtype": "float32"}`` each.
    ``jitter`` is the standard deviation of the logarithm of the work.
    """

    def __init__(
        self,
        size: int = 512,
        shape: tuple[int, ...] = (3, 64, 64),
        dtype: str = "float32",
        cpu_s: float = 0.0,
        wait_s: float = 0.0,
        jitter: float = 0.0,
        arrays: list[dict[str, Any]] | None = None,
    ) -> None:
        self.size = size
        known = arrays or [{"shape": shape, "dtype": dtype}]
        self.arrays = [(tuple(one["shape"]), getattr(torch, one["dtype"])) for one in known]
        self.work = cpu_s * pieces_per_second() if cpu_s else 0.0
        self.wait_s = wait_s
        self.jitter = jitter

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.size:
            raise IndexError(index)
        work = self.work
        if self.jitter:
            work *= random.Random(index).lognormvariate(-(self.jitter**2) / 2, self.jitter)
        for _ in range(round(work)):
            hashlib.sha256(_PIECE).digest()
        if self.wait_s:
            time.sleep(self.wait_s)
        # All zeros would not be told apart; 100 is in the range of every type.
        return (*(torch.full(shape, index % 100, dtype=dtype) for shape, dtype in self.arrays), index % 10)


class ShapedStream(IterableDataset[Any]):
    """The same as a stream; each worker yields its own part."""

    def __init__(self, **shape: Any) -> None:
        self.samples = Shaped(**shape)

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        for index in range(first, len(self.samples), step):
            yield self.samples[index]


def tensors(size: int = 8192, shape: tuple[int, ...] = (3, 32, 32)) -> TensorDataset:
    """All data in memory, as ``TensorDataset`` holds it."""
    dice = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(size, *shape, generator=dice), torch.randint(0, 10, (size,), generator=dice))


class Rows(Dataset[Any]):
    """Rows of a table in memory, one item at a time."""

    def __init__(self, size: int = 50_000, width: int = 256) -> None:
        self.rows = torch.randn(size, width, generator=torch.Generator().manual_seed(0))
        self.labels = torch.arange(size) % 10

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index], self.labels[index]


class RowsAtOnce(Rows):
    """The same, a batch of indices at a time (``__getitems__``, torch 2.0 and later)."""

    def __getitems__(self, indices: list[int]) -> Any:
        return list(zip(self.rows[indices], self.labels[indices]))


class Strings(Dataset[Any]):
    """A Python list of as many small objects as there are samples: each worker's reads copy its pages."""

    def __init__(self, size: int = 1_000_000) -> None:
        self.items = [f"/data/train/class_{index % 1000:04d}/image_{index:09d}.jpg" for index in range(size)]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> int:
        return len(self.items[index])


class PackedStrings(Dataset[Any]):
    """The same strings in one buffer and a table of where each ends: no reference counts, so no copies."""

    def __init__(self, size: int = 1_000_000) -> None:
        width = len(f"/data/train/class_{0:04d}/image_{0:09d}.jpg")
        text = bytearray()
        for index in range(size):
            text += f"/data/train/class_{index % 1000:04d}/image_{index:09d}.jpg".encode()
        self.buffer = torch.frombuffer(text, dtype=torch.uint8)
        self.ends = torch.arange(1, size + 1) * width

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> int:
        start = int(self.ends[index - 1]) if index else 0
        return len(bytes(self.buffer[start : int(self.ends[index])].tolist()).decode())


class Block(Dataset[Any]):
    """``megabytes`` of data read in ``__init__``: bytes that pickling copies, or a tensor that workers share."""

    def __init__(self, megabytes: int = 200, size: int = 4096, shared: bool = False) -> None:
        self.size = size
        self.data: Any = bytearray(b"x" * (megabytes << 20))
        if shared:
            self.data = torch.frombuffer(self.data, dtype=torch.uint8).clone()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return int(self.data[index * (len(self.data) // self.size)])


class Numbers(Dataset[Any]):
    """Samples of some hundred numbers: as a Python list, or as a tensor."""

    def __init__(self, size: int = 256, width: int = 512, as_tensor: bool = False) -> None:
        self.size = size
        self.values = [float(index) for index in range(width)]
        self.tensor = torch.tensor(self.values) if as_tensor else None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.values if self.tensor is None else self.tensor


class ArrayRows(Dataset[Any]):
    """Samples made of NumPy rows: ``torch.tensor(list_of_arrays)``, or stacked first."""

    def __init__(self, size: int = 128, rows: int = 16, width: int = 128, stacked: bool = False) -> None:
        import numpy

        self.size = size
        self.rows = [numpy.full(width, row, dtype="float32") for row in range(rows)]
        self.stack = numpy.stack if stacked else None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.rows) if self.stack is None else torch.from_numpy(self.stack(self.rows))


class Views(Dataset[Any]):
    """Samples that are rows of a large tensor: each takes its whole storage along, unless it is cloned."""

    def __init__(self, size: int = 64, width: int = 1024, rows: int = 4096, cloned: bool = False) -> None:
        self.size = size
        self.table = torch.zeros(rows, width)
        self.cloned = cloned

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        row = (self.table + 0)[index]
        return row.clone() if self.cloned else row


class FileItems(Dataset[Any]):
    """Items of one file of ``megabytes``: all of it is read for each, or the item's part."""

    def __init__(self, size: int = 256, megabytes: int = 8, whole: bool = True) -> None:
        self.size = size
        self.part = (megabytes << 20) // size
        self.whole = whole
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "items")
        with open(self.path, "wb") as stream:
            stream.write(bytes(megabytes << 20))

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        start = index * self.part
        with open(self.path, "rb") as stream:
            if self.whole:
                data = stream.read()[start : start + self.part]
            else:
                stream.seek(start)
                data = stream.read(self.part)
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)


class Listed(Dataset[Any]):
    """Names of the files of a folder: listed for each item, or once."""

    def __init__(self, size: int = 2_000, again: bool = True) -> None:
        self.folder = tempfile.TemporaryDirectory()
        for index in range(size):
            open(os.path.join(self.folder.name, f"{index:06d}"), "w").close()
        self.names = None if again else sorted(os.listdir(self.folder.name))
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        names = sorted(os.listdir(self.folder.name)) if self.names is None else self.names
        return int(names[index])


class FrameRows(Dataset[Any]):
    """Rows of a pandas table: by ``iloc`` for each item, or from the columns as arrays."""

    def __init__(self, size: int = 10_000, by_row: bool = True) -> None:
        import numpy
        import pandas

        frame = pandas.DataFrame({name: numpy.arange(size, dtype="float32") for name in "abcd"})
        self.frame = frame if by_row else None
        self.columns = [frame[name].to_numpy() for name in "abcd"]

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> Any:
        if self.frame is None:
            return [column[index] for column in self.columns]
        row = self.frame.iloc[index]
        return [row[name] for name in "abcd"]


class ColumnItems(Dataset[Any]):
    """Items of a Hugging Face dataset of two columns: out of each column, or out of the row."""

    def __init__(self, size: int = 256, width: int = 16, by_row: bool = False) -> None:
        from datasets import Dataset as Table  # type: ignore[import-not-found, unused-ignore]

        rows = [[float(index)] * width for index in range(size)]
        self.table = Table.from_dict({"state": rows, "action": rows})
        self.by_row = by_row

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Any:
        if self.by_row:
            row = self.table[index]
            state, action = row["state"], row["action"]
        else:
            state, action = self.table["state"][index], self.table["action"][index]
        return torch.tensor(state), torch.tensor(action)


class Crops(Dataset[Any]):
    """A crop of 64 x 64 of a picture of 500 x 375: taken of the tensor, or of the picture before it is one."""

    def __init__(self, size: int = 256, late: bool = True) -> None:
        from PIL import Image
        from torchvision import transforms

        steps = [transforms.ToTensor(), transforms.CenterCrop(64)]
        self.transform = transforms.Compose(steps if late else steps[::-1])
        self.picture = Image.new("RGB", (500, 375))
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.picture)


KINDS: dict[str, Any] = {
    "whole-file": FileItems,
    "part-of-file": functools.partial(FileItems, whole=False),
    "listed-again": Listed,
    "listed-once": functools.partial(Listed, again=False),
    "frame-rows": FrameRows,
    "frame-columns": functools.partial(FrameRows, by_row=False),
    "column-first": ColumnItems,
    "row-first": functools.partial(ColumnItems, by_row=True),
    "late-crops": Crops,
    "early-crops": functools.partial(Crops, late=False),
    "shaped": Shaped,
    "stream": ShapedStream,
    "tensors": tensors,
    "rows": Rows,
    "rows-at-once": RowsAtOnce,
    "strings": Strings,
    "packed-strings": PackedStrings,
    "block": Block,
    "number-lists": Numbers,
    "number-tensors": functools.partial(Numbers, as_tensor=True),
    "row-lists": ArrayRows,
    "stacked-rows": functools.partial(ArrayRows, stacked=True),
    "views": Views,
}


def make(spec: dict[str, Any]) -> Any:
    """A dataset from ``{"kind": ..., **arguments}``."""
    arguments = {name: value for name, value in spec.items() if name != "kind"}
    if "shape" in arguments:
        arguments["shape"] = tuple(arguments["shape"])
    return KINDS[spec["kind"]](**arguments)
