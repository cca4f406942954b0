"""What datasets keep in memory and what that costs in workers, shown with real ones."""

from __future__ import annotations

import errno
import gc
import importlib
import importlib.util
import multiprocessing
import os
import pickle
import sqlite3
import sys
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from real_workers import apart, forkserver
from torch.utils.data import DataLoader, Dataset

SAMPLES = 40
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def make_arrays(folder: Path) -> list[str]:
    paths = [str(folder / f"{number:03d}.npy") for number in range(SAMPLES)]
    for number, path in enumerate(paths):
        np.save(path, np.full(5_000, number, dtype=np.float32))
    return paths


# -- DLC301


class Eager(Dataset[float]):
    def __init__(self, paths: list[str]) -> None:
        self.arrays = [np.load(path) for path in paths]

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> float:
        return float(self.arrays[index][0])


class OneByOne(Dataset[float]):
    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> float:
        return float(np.load(self.paths[index])[0])


@pytest.mark.proves("DLC301")
def test_eager_loading_reads_all_before_the_first_sample_and_sends_it_to_each_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = make_arrays(tmp_path)
    reads: list[str] = []
    load = np.load

    def load_and_note(path: str) -> Any:
        reads.append(path)
        return load(path)

    monkeypatch.setattr(np, "load", load_and_note)
    eager = Eager(paths)
    assert len(reads) == SAMPLES
    one_by_one = OneByOne(paths)
    assert len(reads) == SAMPLES

    data = SAMPLES * 5_000 * 4
    assert len(pickle.dumps(eager)) > data  # what spawn and forkserver send to each worker
    assert len(pickle.dumps(one_by_one)) < data / 100
    monkeypatch.undo()

    for dataset in (eager, one_by_one):
        loader = DataLoader(dataset, batch_size=10, num_workers=1, multiprocessing_context=forkserver(), timeout=60)
        assert torch.cat(list(loader)).tolist() == list(range(SAMPLES))


# -- DLC302

RECORDS = 60_000


class Records(Dataset[Any]):
    def __init__(self, records: Sequence[Any]) -> None:
        self.records = records

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        return self.records[index]


def look_and_measure(samples: list[Any]) -> float:
    """The MiB that this process shares with no other, once it has looked at the samples."""
    for sample in samples:
        if isinstance(sample, dict):
            list(sample.values())
    with open("/proc/self/smaps_rollup") as file:
        sizes = [int(line.split()[1]) for line in file if line.startswith(("Private_Clean", "Private_Dirty"))]
    return sum(sizes) / 1024


def growth() -> list[float]:
    """How many MiB two forked workers grow by together, for each kind of record, in one epoch."""
    gc.disable()  # the collector writes to objects too, at moments of its own
    dicts = [{"file": f"{number:012d}.jpg", "box": [number, number + 1, 0.5, 0.25]} for number in range(RECORDS)]
    names = [record["file"] for record in dicts]
    found = []
    every_kind: Any = (dicts, np.zeros((RECORDS, 24)), np.array(names, dtype=object), np.array(names))
    for records in every_kind:
        dataset = Records(records)
        options: dict[str, Any] = {"batch_size": 5_000, "num_workers": 2, "multiprocessing_context": "fork"}
        sizes = list(DataLoader(dataset, collate_fn=look_and_measure, **options))
        found.append(sum(sizes[-2:]) - sum(sizes[:2]))
    return found


@linux_only
@pytest.mark.proves("DLC302")
def test_python_objects_grow_in_forked_workers_and_arrays_do_not() -> None:
    dicts, numbers, objects, fixed = apart(growth)
    assert dicts > 8
    assert objects > 2  # "use numpy" does not help where the array holds objects
    assert abs(numbers) < dicts / 3
    assert fixed < objects / 2


# -- DLC303


class Mapped(Dataset[bool]):
    def __init__(self, path: str) -> None:
        self.maps: Any = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.maps)

    def __getitem__(self, index: int) -> bool:
        return self.maps._mmap is not None  # whether the file is behind it


class OpenedInWorker(Dataset[bool]):
    def __init__(self, path: str) -> None:
        self.path = path
        self.maps: Any = None
        self.count = len(np.load(path, mmap_mode="r"))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> bool:
        if self.maps is None:
            self.maps = np.load(self.path, mmap_mode="r")
        return self.maps._mmap is not None


class Tensors(Dataset[bool]):
    def __init__(self, path: str) -> None:
        self.maps: Any = torch.from_numpy(np.load(path))

    def __len__(self) -> int:
        return len(self.maps)

    def __getitem__(self, index: int) -> bool:
        return bool(self.maps.is_shared())


@pytest.mark.proves("DLC303")
def test_a_memory_map_is_pickled_with_its_contents(tmp_path: Path) -> None:
    path = str(tmp_path / "maps.npy")
    np.save(path, np.zeros((8, 50_000)))
    size = 8 * 50_000 * 8
    assert len(pickle.dumps(Mapped(path))) > size
    assert len(pickle.dumps(OpenedInWorker(path))) < 1_000

    for dataset, expected in ((Mapped(path), False), (OpenedInWorker(path), True), (Tensors(path), True)):
        loader = DataLoader(dataset, batch_size=8, num_workers=1, multiprocessing_context=forkserver(), timeout=60)
        assert next(iter(loader)).tolist() == [expected] * 8


# -- DLC304

COUNT, SIZE = 8, 16


class SharedFile(Dataset[bool]):
    """Each sample tells whether it is the record that was asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: FileIO | None = FileIO(path)
        self.all_sought = multiprocessing.get_context("fork").Barrier(2)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> bool:
        if self.file is None:
            self.file = FileIO(self.path)
        self.file.seek(index * SIZE)
        self.all_sought.wait(timeout=60)  # what a busy machine does now and then: both workers seek, then both read
        return self.file.read(SIZE) == b"%016d" % index


class OwnFile(SharedFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        assert self.file is not None
        self.file.close()
        self.file = None


@pytest.mark.proves("DLC304")
def test_forked_workers_share_the_position_of_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"".join(b"%016d" % number for number in range(COUNT)))
    for dataset, all_right in ((SharedFile(path), False), (OwnFile(path), True)):
        loader = DataLoader(dataset, batch_size=1, num_workers=2, multiprocessing_context="fork", timeout=60)
        right = [bool(row) for row in loader]
        assert len(right) == COUNT
        assert all(right) is all_right


class Rows(Dataset[int]):
    def __init__(self, path: str) -> None:
        self.path = path
        self.connection: sqlite3.Connection | None = sqlite3.connect(path)
        self.count = int(self.connection.execute("select count(*) from samples").fetchone()[0])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if self.connection is None:
            self.connection = sqlite3.connect(self.path)
        return int(self.connection.execute("select x from samples where x = ?", (index,)).fetchone()[0])


class LateRows(Rows):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        assert self.connection is not None
        self.connection.close()
        self.connection = None


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")  # torch's hint beside the error
@pytest.mark.proves("DLC304")
def test_a_connection_stops_workers_that_are_not_forked(tmp_path: Path) -> None:
    path = str(tmp_path / "samples.db")
    with sqlite3.connect(path) as connection:
        connection.execute("create table samples (x integer)")
        connection.executemany("insert into samples values (?)", [(number,) for number in range(4)])
    connection.close()

    with pytest.raises(TypeError, match="pickle"):
        iter(DataLoader(Rows(path), num_workers=1, multiprocessing_context=forkserver()))
    loader = DataLoader(LateRows(path), batch_size=4, num_workers=1, multiprocessing_context=forkserver(), timeout=60)
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]


# -- DLC305


class LazyImage:
    """An image as PIL opens it: the file stays open until something asks for the pixels."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "rb")  # noqa: SIM115 -- that is the point

    def convert(self, mode: str) -> bytes:
        with self.file:
            return self.file.read()


# Pillow itself where it is installed, too.
OPENERS = ["stand-in", *(["Pillow"] if importlib.util.find_spec("PIL") else [])]


def opener(name: str) -> Callable[[str], Any]:
    if name == "stand-in":
        return LazyImage
    opens: Callable[[str], Any] = importlib.import_module("PIL.Image").open
    return opens


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@linux_only
@pytest.mark.proves("DLC305")
@pytest.mark.parametrize("library", OPENERS)
def test_opened_images_keep_their_files_open(tmp_path: Path, library: str) -> None:
    import resource

    open_image = opener(library)
    path = str(tmp_path / "pixel.ppm")
    with open(path, "wb") as file:
        file.write(b"P6 64 64 255\n" + bytes(64 * 64 * 3))

    gc.collect()
    before = open_files()
    lazy = [open_image(path) for _ in range(SAMPLES)]
    assert open_files() > before + SAMPLES / 2
    read = [image.convert("L") for image in lazy]
    del lazy
    assert len(read) == SAMPLES
    assert open_files() < before + SAMPLES / 2

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 4 * SAMPLES, hard))
    try:
        assert len([open_image(path).convert("L") for _ in range(8 * SAMPLES)]) == 8 * SAMPLES
        kept: list[Any] = []
        with pytest.raises(OSError, match="open files") as caught:
            kept.extend(open_image(path) for _ in range(8 * SAMPLES))
        assert caught.value.errno == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
