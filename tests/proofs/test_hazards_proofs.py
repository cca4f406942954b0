"""What breaks inside workers: nested processes, batches that cannot travel, open files, lost and stale state."""

from __future__ import annotations

import gc
import multiprocessing
import os
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


def fork() -> Any:
    return multiprocessing.get_context("fork")


def square(value: int) -> int:
    return value * value


# -- DLC212


class Nested(Dataset[Any]):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.kind == "threads":
            with ThreadPoolExecutor(2) as pool:
                return torch.tensor(list(pool.map(square, [index, index])))
        if self.kind == "pool":
            with fork().Pool(2) as processes:
                return torch.tensor(processes.map(square, [index, index]))
        inner = DataLoader(Nested("threads"), num_workers=int(self.kind == "loader"), multiprocessing_context=None)
        return torch.stack([row.sum() for row in inner])


def load(workers: int) -> int:
    return sum(1 for _ in DataLoader(Nested("threads"), num_workers=workers))


@pytest.mark.proves("DLC212")
@pytest.mark.parametrize("kind", ["pool", "loader"])
def test_a_worker_may_have_no_children(kind: str) -> None:
    with pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"):
        list(DataLoader(Nested(kind), num_workers=1, multiprocessing_context=fork()))
    assert len(list(DataLoader(Nested("threads"), num_workers=1, multiprocessing_context=fork()))) == 2
    assert len(list(DataLoader(Nested(kind)))) == 2


@pytest.mark.proves("DLC212")
def test_a_process_of_a_pool_may_have_no_workers() -> None:
    with fork().Pool(1) as pool:
        with pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"):
            pool.apply(load, (1,))
        assert pool.apply(load, (0,)) == 2


# -- DLC213


class Odd(Dataset[Any]):
    """Samples of a kind that a queue may not carry."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.net = torch.nn.Linear(2, 2)

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        if self.kind == "graph":
            return self.net(torch.ones(2))
        if self.kind == "detached":
            with torch.no_grad():
                return self.net(torch.ones(2))
        if self.kind == "lambda":
            return lambda: index
        if self.kind == "generator":
            return (number for number in range(2))
        if self.kind == "defaultdict":
            return defaultdict(lambda: 0, first=torch.ones(1))
        if self.kind == "list factory":
            return defaultdict(list, first=torch.ones(1))
        return torch.ones(2)


def same(batch: Any) -> Any:
    return batch


def lazily(batch: list[Any]) -> Iterator[Any]:
    return (sample for sample in batch)


HANGING: list[tuple[str, Any]] = [
    ("graph", {"collate_fn": same}),
    ("graph", {"batch_size": None}),
    ("graph", {"collate_fn": torch.stack}),
    ("lambda", {"collate_fn": same}),
    ("generator", {"batch_size": None}),
    ("plain", {"collate_fn": lazily}),
    ("defaultdict", {}),
]


def outcome(batches: Iterator[Any]) -> str:
    try:
        return f"arrived: {next(batches)}"
    except RuntimeError as error:
        return str(error)


@pytest.mark.proves("DLC213")
def test_what_cannot_be_pickled_never_arrives() -> None:
    loaders = [
        DataLoader(Odd(kind), num_workers=1, timeout=3, multiprocessing_context=fork(), **options)
        for kind, options in HANGING
    ]
    batches = [iter(loader) for loader in loaders]
    with ThreadPoolExecutor(len(batches)) as waiting:  # all at once: each waits until its time is over
        found = list(waiting.map(outcome, batches))
    assert found == ["DataLoader timed out after 3 seconds"] * len(batches)


@pytest.mark.proves("DLC213")
def test_data_arrives_and_without_workers_all_does() -> None:
    fine: list[tuple[str, Any]] = [("detached", {"collate_fn": same}), ("detached", {}), ("list factory", {})]
    for kind, options in fine:
        loader = DataLoader(Odd(kind), num_workers=1, timeout=20, multiprocessing_context=fork(), **options)
        assert len(list(loader)) == 1
    for kind, options in HANGING:
        assert len(list(DataLoader(Odd(kind), **options))) == 1


@pytest.mark.proves("DLC213")
def test_the_default_collate_refuses_a_graph_in_a_worker() -> None:
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        list(DataLoader(Odd("graph"), num_workers=1, multiprocessing_context=fork()))


# -- DLC215


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), index)


KEEP: dict[str, Callable[[torch.Tensor], Any]] = {
    "as it came": lambda rows: rows,
    "cpu and detach": lambda rows: rows.cpu().detach(),
    "numpy": lambda rows: rows.numpy(),
    "slice": lambda rows: rows[:, 0],
}
LET_GO: dict[str, Callable[[torch.Tensor], Any]] = {
    "clone": lambda rows: rows.clone(),
    "list": lambda rows: rows.tolist(),
    "copied array": lambda rows: rows.numpy().copy(),
}


def shared_files() -> int:
    """How many files of shared tensors this process holds open."""
    targets = []
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            targets.append(os.readlink(file))
    return sum(target.startswith("/dev/shm/torch_") for target in targets)


def held_files(keep: Callable[[torch.Tensor], Any], workers: int) -> int:
    """How many files more are open while what is kept of 40 batches is alive."""
    context = fork() if workers else None
    before = shared_files()
    loader = DataLoader(Rows(), batch_size=1, num_workers=workers, multiprocessing_context=context)
    kept = [keep(rows) for rows in loader]
    assert len(kept) == 40
    return shared_files() - before


@pytest.mark.proves("DLC215")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_each_kept_tensor_holds_a_file_open() -> None:
    gc.collect()  # tensors of other tests
    held = {name: held_files(keep, workers=1) for name, keep in {**KEEP, **LET_GO}.items()}
    assert held == {**dict.fromkeys(KEEP, 40), **dict.fromkeys(LET_GO, 0)}
    assert held_files(KEEP["as it came"], workers=0) == 0


# -- DLC217


class Threads:
    """A library with a thread of its own, made at first use: what polars, JAX and TensorFlow have."""

    def __init__(self) -> None:
        self.jobs: queue.Queue[int] = queue.Queue()
        self.results: queue.Queue[int] = queue.Queue()
        self.started = False

    def run(self, value: int) -> int:
        if not self.started:
            self.started = True
            threading.Thread(target=self.work, daemon=True).start()
        self.jobs.put(value)
        return self.results.get()

    def work(self) -> None:
        while True:
            self.results.put(self.jobs.get() + 1)


class Table(Dataset[Any]):
    def __init__(self, *, early: bool) -> None:
        self.library = Threads()
        self.first = self.library.run(1) if early else 2

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return self.library.run(index)


@pytest.mark.proves("DLC217")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_loses_the_threads_of_a_library() -> None:
    early = DataLoader(Table(early=True), num_workers=1, timeout=2, multiprocessing_context=fork())
    with pytest.raises(RuntimeError, match="timed out after 2 seconds"):
        list(early)
    late = DataLoader(Table(early=False), num_workers=1, timeout=20, multiprocessing_context=fork())
    assert [int(row) for row in late] == [1]
    assert [int(row) for row in DataLoader(Table(early=True))] == [1]


# -- DLC218


class Epochs(Dataset[Any]):
    def __init__(self) -> None:
        self.epoch = 0
        self.shared = fork().Value("i", 0)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.shared.value = epoch

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self.epoch, self.shared.value


def epochs_seen(workers: int, persistent: bool) -> tuple[list[int], list[int]]:
    """What samples of three epochs see of an attribute that is set before each, plain and shared."""
    dataset = Epochs()
    context = fork() if workers else None
    loader = DataLoader(
        dataset, batch_size=2, num_workers=workers, persistent_workers=persistent, multiprocessing_context=context
    )
    plain, shared = [], []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        for own, common in loader:
            plain.append(int(own[0]))
            shared.append(int(common[0]))
    return plain, shared


@pytest.mark.proves("DLC218")
def test_persistent_workers_keep_their_copy() -> None:
    assert epochs_seen(1, persistent=True) == ([0, 0, 0], [0, 1, 2])
    assert epochs_seen(1, persistent=False) == ([0, 1, 2], [0, 1, 2])
    assert epochs_seen(0, persistent=False) == ([0, 1, 2], [0, 1, 2])


# -- DLC219


class Caching(Dataset[Any]):
    def __init__(self) -> None:
        self.cache: dict[int, int] = {}
        self.seen = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        """Whether the sample was in the cache already."""
        self.seen += 1
        hit = index in self.cache
        self.cache[index] = index
        return int(hit)


class Turns(IterableDataset[Any]):
    def __init__(self) -> None:
        self.turn = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.turn += 1
        info = get_worker_info()
        yield self.turn, info.id if info is not None else 0


def hits(dataset: Caching, workers: int, persistent: bool) -> list[int]:
    context = fork() if workers else None
    loader = DataLoader(
        dataset, batch_size=4, num_workers=workers, persistent_workers=persistent, multiprocessing_context=context
    )
    return [int(found.sum()) for _ in range(2) for found in loader]


@pytest.mark.proves("DLC219")
def test_workers_lose_what_they_keep() -> None:
    dataset = Caching()
    assert hits(dataset, 1, persistent=False) == [0, 0]
    assert hits(dataset, 1, persistent=True) == [0, 4]
    assert (dataset.seen, dataset.cache) == (0, {})
    assert hits(dataset, 0, persistent=False) == [0, 4]
    assert (dataset.seen, len(dataset.cache)) == (8, 4)


@pytest.mark.proves("DLC219")
def test_an_epoch_that_workers_count_begins_anew() -> None:
    turns = {}
    for persistent in (False, True):
        loader = DataLoader(Turns(), num_workers=1, persistent_workers=persistent, multiprocessing_context=fork())
        turns[persistent] = [int(turn) for _ in range(3) for turn, _ in loader]
    assert turns == {False: [1, 1, 1], True: [1, 2, 3]}
