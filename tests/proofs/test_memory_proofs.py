"""What datasets keep in memory and what that costs in workers, shown with real ones."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from real_workers import forkserver, run_script
from torch.utils.data import DataLoader, Dataset

SAMPLES = 40
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def make_arrays(folder: Path) -> list[str]:
    paths = [str(folder / f"{number:03d}.npy") for number in range(SAMPLES)]
    for number, path in enumerate(paths):
        np.save(path, np.full(5_000, number, dtype=np.float32))
    return paths


# -- DLC301


class Eager(Dataset):
    def __init__(self, paths: list[str]) -> None:
        self.arrays = [np.load(path) for path in paths]

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> float:
        return float(self.arrays[index][0])


class OneByOne(Dataset):
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
    reads = []
    load = np.load
    monkeypatch.setattr(np, "load", lambda path: reads.append(path) or load(path))
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

GROWTH = """
    import sys

    import numpy as np
    from torch.utils.data import DataLoader, Dataset

    COUNT = 60_000


    def private():
        with open("/proc/self/smaps_rollup") as file:
            sizes = [int(line.split()[1]) for line in file if line.startswith(("Private_Clean", "Private_Dirty"))]
        return sum(sizes) / 1024


    class Records(Dataset):
        def __init__(self, records):
            self.records = records

        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            return self.records[index]


    def measure(samples):
        for sample in samples:
            if isinstance(sample, dict):
                list(sample.values())
        return private()


    dicts = [{"file": f"{number:012d}.jpg", "box": [number, number + 1, 0.5, 0.25]} for number in range(COUNT)]
    for records in (dicts, np.zeros((COUNT, 24)), np.array([record["file"] for record in dicts], dtype=object),
                    np.array([record["file"] for record in dicts])):
        loader = DataLoader(
            Records(records), batch_size=5_000, num_workers=2, collate_fn=measure, multiprocessing_context="fork"
        )
        sizes = list(loader)
        print(sum(sizes[-2:]) - sum(sizes[:2]))
"""


@linux_only
@pytest.mark.proves("DLC302")
def test_python_objects_grow_in_forked_workers_and_arrays_do_not() -> None:
    done = run_script(GROWTH, timeout=120)
    assert done.returncode == 0, done.stderr
    dicts, numbers, objects, fixed = map(float, done.stdout.split())  # MiB, both workers together
    assert dicts > 8
    assert objects > 2  # "use numpy" does not help where the array holds objects
    assert abs(numbers) < dicts / 3
    assert fixed < objects / 2


# -- DLC303


class Mapped(Dataset):
    def __init__(self, path: str) -> None:
        self.maps = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.maps)

    def __getitem__(self, index: int) -> bool:
        return self.maps._mmap is not None  # whether the file is behind it


class OpenedInWorker(Dataset):
    def __init__(self, path: str) -> None:
        self.path = path
        self.maps: np.memmap | None = None
        self.count = len(np.load(path, mmap_mode="r"))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> bool:
        if self.maps is None:
            self.maps = np.load(self.path, mmap_mode="r")
        return self.maps._mmap is not None


class Tensors(Dataset):
    def __init__(self, path: str) -> None:
        self.maps = torch.from_numpy(np.load(path))

    def __len__(self) -> int:
        return len(self.maps)

    def __getitem__(self, index: int) -> bool:
        return self.maps.is_shared()


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

OFFSETS = """
    import sys
    import time

    from torch.utils.data import DataLoader, Dataset

    COUNT, SIZE = 200, 16


    class Shared(Dataset):
        def __init__(self, path):
            self.path = path
            self.file = open(path, "rb", buffering=0)

        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            self.file.seek(index * SIZE)
            time.sleep(0.0005)
            return index, self.file.read(SIZE) == b"%016d" % index


    class Own(Shared):
        def __init__(self, path):
            self.path = path
            self.file = None

        def __getitem__(self, index):
            if self.file is None:
                self.file = open(self.path, "rb", buffering=0)
            return super().__getitem__(index)


    with open(sys.argv[1], "wb") as file:
        file.write(b"".join(b"%016d" % number for number in range(COUNT)))
    for dataset in (Shared(sys.argv[1]), Own(sys.argv[1])):
        loader = DataLoader(dataset, batch_size=10, num_workers=4, multiprocessing_context="fork")
        print(sum(int((~right).sum()) for _, right in loader))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.proves("DLC304")
def test_forked_workers_share_the_position_of_an_open_file(tmp_path: Path) -> None:
    done = run_script(OFFSETS, arguments=(str(tmp_path / "records"),))
    assert done.returncode == 0, done.stderr
    shared, own = map(int, done.stdout.split())
    assert shared > 0
    assert own == 0


class Rows(Dataset):
    def __init__(self, path: str) -> None:
        self.path = path
        self.connection: sqlite3.Connection | None = sqlite3.connect(path)
        self.count = self.connection.execute("select count(*) from samples").fetchone()[0]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if self.connection is None:
            self.connection = sqlite3.connect(self.path)
        return self.connection.execute("select x from samples where x = ?", (index,)).fetchone()[0]


class LateRows(Rows):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        assert self.connection is not None
        self.connection.close()
        self.connection = None


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


def open_image(path: str) -> LazyImage:
    try:
        from PIL import Image
    except ImportError:
        return LazyImage(path)
    return Image.open(path)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@linux_only
@pytest.mark.proves("DLC305")
def test_opened_images_keep_their_files_open(tmp_path: Path) -> None:
    import resource

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
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + SAMPLES, hard))
    try:
        assert len([open_image(path).convert("L") for _ in range(4 * SAMPLES)]) == 4 * SAMPLES
        kept = []
        with pytest.raises(OSError, match="open files") as caught:
            kept.extend(open_image(path) for _ in range(4 * SAMPLES))
        assert caught.value.errno == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
