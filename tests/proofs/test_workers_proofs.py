"""What workers do: which process makes the samples, what is started again, what stays in memory."""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import itertools
import multiprocessing
import os
import time
import warnings
import weakref
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import pytest
import torch
from real_workers import apart, forkserver
from torch.utils.data import BatchSampler, DataLoader, Dataset, TensorDataset

LIMIT = 60  # seconds after which a loader gives up


class Decoded(Dataset[Any]):
    """Each sample tells its index, and the process that made it."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, os.getpid()


def loader_of(dataset: Dataset[Any], workers: int = 1, **options: Any) -> DataLoader[Any]:
    """A loader whose workers start at once."""
    return DataLoader(dataset, num_workers=workers, multiprocessing_context=forkserver(), timeout=LIMIT, **options)


def indices(batches: Any) -> list[int]:
    return [int(index) for index, _ in batches]


def makers(batches: Any) -> set[int]:
    """The processes that made the samples of batches."""
    return {int(pid) for _, pid in batches}


# -- DLC201


@pytest.mark.proves("DLC201")
def test_without_workers_the_training_process_makes_the_samples() -> None:
    assert makers(DataLoader(Decoded())) == {os.getpid()}
    with_workers = makers(loader_of(Decoded(), 2))
    assert len(with_workers) == 2
    assert os.getpid() not in with_workers


# -- DLC202 and DLC206


@pytest.mark.proves("DLC202")
def test_workers_are_started_again_in_every_epoch_unless_they_persist() -> None:
    respawning = loader_of(Decoded())
    assert makers(respawning).isdisjoint(makers(respawning))
    persisting = loader_of(Decoded(), persistent_workers=True)
    assert makers(persisting) == makers(persisting)


@pytest.mark.proves("DLC206")
def test_a_loader_built_in_the_loop_starts_workers_again_although_they_persist() -> None:
    rebuilt = [makers(loader_of(Decoded(), persistent_workers=True)) for _ in range(2)]
    assert rebuilt[0].isdisjoint(rebuilt[1])
    loader = loader_of(Decoded(), persistent_workers=True)
    assert [makers(loader) for _ in range(2)] == [makers(loader)] * 2


# -- DLC203


@pytest.mark.proves("DLC203")
@pytest.mark.parametrize(
    "options", [{"persistent_workers": True}, {"prefetch_factor": 2}, {"multiprocessing_context": "spawn"}], ids=str
)
def test_options_for_workers_are_refused_without_workers(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="num_workers"):
        DataLoader(Decoded(), num_workers=0, **options)
    DataLoader(Decoded(), num_workers=1, **options)


@pytest.mark.proves("DLC203")
def test_a_timeout_without_workers_fails_in_the_first_iteration() -> None:
    with pytest.raises(AssertionError):
        next(iter(DataLoader(Decoded(), timeout=LIMIT)))
    assert indices(DataLoader(Decoded(), timeout=0)) == [0, 1, 2, 3]


# -- DLC204


@pytest.mark.proves("DLC204")
def test_workers_copy_into_shared_memory_what_lies_in_memory_already() -> None:
    dataset = TensorDataset(torch.arange(8.0))
    here = [batch for (batch,) in DataLoader(dataset, batch_size=4)]
    sent = [batch for (batch,) in loader_of(dataset, batch_size=4)]
    assert torch.equal(torch.stack(here), torch.stack(sent))
    assert [batch.is_shared() for batch in here] == [False, False]
    assert [batch.is_shared() for batch in sent] == [True, True]


# -- DLC205


def on_one_cpu() -> list[tuple[int, list[str]]]:
    """The numbers of CPUs that two calls give on one CPU, and what torch says of as many workers."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    found = []
    for workers in (os.cpu_count() or 1, len(os.sched_getaffinity(0))):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            DataLoader(Decoded(), num_workers=workers)
        found.append((workers, [str(one.message) for one in told]))
    return found


@pytest.mark.proves("DLC205")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or os.cpu_count() == 1, reason="has one CPU, or no affinity")
def test_cpu_count_ignores_how_many_cpus_the_process_may_use() -> None:
    (of_machine, told), (of_process, told_nothing) = apart(on_one_cpu)
    assert (of_machine, of_process) == (os.cpu_count(), 1)
    assert len(told) == 1
    assert f"will create {of_machine} worker processes" in told[0]
    assert told_nothing == []


# -- DLC207


@pytest.mark.proves("DLC207")
def test_next_iter_gets_the_first_batch_again_from_new_workers() -> None:
    loader = loader_of(Decoded())
    again = [next(iter(loader)) for _ in range(2)]
    assert indices(again) == [0, 0]
    assert len(makers(again)) == 2
    batches = iter(loader)
    held = [next(batches) for _ in range(3)]
    assert indices(held) == [0, 1, 2]
    assert len(makers(held)) == 1


# -- DLC208


def forever(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def two_passes(batches: Iterator[list[torch.Tensor]], count: int) -> tuple[list[float], list[float], int]:
    """What the first samples of both passes are, and how many batches of the first are still alive."""
    first, alive = [], []
    for (batch,) in itertools.islice(batches, count):
        first.append(batch.item())
        alive.append(weakref.ref(batch))
    del batch
    gc.collect()
    kept = sum(each() is not None for each in alive)
    return first, [batch.item() for (batch,) in itertools.islice(batches, count)], kept


@pytest.mark.proves("DLC208")
def test_cycle_keeps_and_replays_the_first_pass() -> None:
    def shuffled() -> DataLoader[Any]:
        dataset = TensorDataset(torch.arange(64.0))
        return DataLoader(dataset, shuffle=True, generator=torch.Generator().manual_seed(0))

    first, second, kept = two_passes(itertools.cycle(shuffled()), 64)
    assert first == second
    assert kept == 64
    first, second, kept = two_passes(forever(shuffled()), 64)
    assert first != second
    assert sorted(first) == sorted(second)
    assert kept <= 1


# -- DLC209


def with_preview(loader: DataLoader[Any]) -> list[int]:
    seen = []
    for index, _ in loader:
        seen.append(int(index))
        next(iter(loader))
        if len(seen) == 6:
            break
    return seen


@pytest.mark.proves("DLC209")
def test_a_preview_restarts_the_loop_where_workers_persist() -> None:
    assert with_preview(loader_of(Decoded(), persistent_workers=True)) == [0, 1, 1, 1, 1, 1]
    assert with_preview(loader_of(Decoded())) == [0, 1, 2, 3]


@pytest.mark.proves("DLC209")
def test_an_inner_loop_ends_the_outer_one_where_workers_persist() -> None:
    loader = loader_of(Decoded(), persistent_workers=True)
    assert [indices(loader) for _ in loader] == [[0, 1, 2, 3]]
    assert [indices(loader) for _ in DataLoader(Decoded())] == [[0, 1, 2, 3]] * 4


@pytest.mark.proves("DLC209")
def test_a_loader_zipped_with_itself_takes_turns_where_workers_persist() -> None:
    persisting, plain = loader_of(Decoded(), persistent_workers=True), loader_of(Decoded())
    assert [(int(a), int(b)) for (a, _), (b, _) in zip(persisting, persisting, strict=True)] == [(0, 1), (2, 3)]
    assert [(int(a), int(b)) for (a, _), (b, _) in zip(plain, plain, strict=True)] == [(i, i) for i in range(4)]


# -- DLC210


class Counted(Dataset[Any]):
    """Counts the samples that all workers together have made."""

    def __init__(self, made: Synchronized[int]) -> None:
        self.made = made

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        with self.made.get_lock():
            self.made.value += 1
        return index


def made_in_advance(expected: int, **options: Any) -> int:
    """How many samples are made before the first batch is taken."""
    made = forkserver().Value("i", 0)
    iterator = iter(loader_of(Counted(made), **options))
    deadline = time.monotonic() + LIMIT
    while made.value < expected and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)  # a chance to make more
    del iterator
    return int(made.value)


@pytest.mark.proves("DLC210")
def test_workers_times_prefetch_factor_batches_wait_in_memory() -> None:
    assert made_in_advance(32, workers=2, prefetch_factor=16) == 32
    assert made_in_advance(4, workers=2) == 4
    assert made_in_advance(12, workers=1, prefetch_factor=4, batch_size=3) == 12


# -- DLC211


class StandIn:
    """What OpenCV does: as many threads as the machine has CPUs, until somebody says how many."""

    threads = os.cpu_count()

    @classmethod
    def getNumThreads(cls) -> int | None:  # noqa: N802 -- as OpenCV calls it
        return cls.threads

    @classmethod
    def setNumThreads(cls, count: int) -> None:  # noqa: N802
        cls.threads = max(count, 1)


# OpenCV itself where it is installed, too.
LIBRARIES = ["stand-in", *(["cv2"] if importlib.util.find_spec("cv2") else [])]


def library_of(name: str) -> Any:
    return StandIn if name == "stand-in" else importlib.import_module(name)


class Threads(Dataset[Any]):
    """How many threads torch and a library would use in the process that makes a sample."""

    def __init__(self, library: str) -> None:
        self.library = library

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> tuple[int, int]:
        return torch.get_num_threads(), library_of(self.library).getNumThreads()


def quiet_worker(worker_id: int, library: str) -> None:
    library_of(library).setNumThreads(0)


@pytest.mark.proves("DLC211")
@pytest.mark.skipif(os.cpu_count() == 1, reason="OpenCV has one thread anyway")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_worker_limits_the_threads_of_torch_and_not_those_of_opencv(library: str) -> None:
    ((of_torch, of_opencv),) = [(int(a), int(b)) for a, b in loader_of(Threads(library))]
    assert of_torch == 1
    assert of_opencv > 1
    quiet = functools.partial(quiet_worker, library=library)
    ((_, limited),) = [(int(a), int(b)) for a, b in loader_of(Threads(library), worker_init_fn=quiet)]
    assert limited == 1


# -- DLC214

SHARED = Path("/dev/shm")


def share(strategy: str, done: Connection) -> None:
    """A program that shares a tensor, and waits until it is killed."""
    torch.multiprocessing.set_sharing_strategy(strategy)  # type: ignore[no-untyped-call]
    shared: Any = torch.ones(1000)
    shared.share_memory_()
    done.send(shared.is_shared())
    time.sleep(LIMIT)


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
        if parent == pid:
            found.append(int(status.parent.name))
    return found


def left_by_killed_program(strategy: str) -> list[Path]:
    """The files that are there once a program that shares a tensor was killed with its helper."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    program = forkserver().Process(target=share, args=(strategy, theirs))
    program.start()
    theirs.close()
    with ours:
        assert ours.poll(LIMIT)
        assert ours.recv()
    pid = program.pid
    assert pid is not None
    for helper in children(pid):
        os.kill(helper, 9)
    program.kill()
    program.join()
    return list(SHARED.glob(f"torch_{pid}_*"))


@pytest.mark.proves("DLC214")
@pytest.mark.skipif(not SHARED.is_dir() or not Path("/proc/self/stat").exists(), reason="Linux only")
def test_a_named_file_outlives_the_program_and_memory_without_a_name_does_not() -> None:
    left = left_by_killed_program("file_system")
    for file in left:
        file.unlink()
    assert len(left) == 1
    assert not left_by_killed_program("file_descriptor")


# -- DLC311


class Rows(TensorDataset):
    """A TensorDataset that notes what it is asked for."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__(*tensors)
        self.asked: list[Any] = []

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, ...]:
        self.asked.append(index)
        return tuple(tensor[index] for tensor in self.tensors)


@pytest.mark.proves("DLC311")
def test_a_tensor_dataset_is_asked_for_each_row_and_can_give_a_batch() -> None:
    dataset = Rows(torch.arange(32.0))
    rows = [batch for (batch,) in DataLoader(dataset, batch_size=16)]
    assert dataset.asked == list(range(32))

    dataset.asked.clear()
    sampler = BatchSampler(range(32), batch_size=16, drop_last=False)
    whole = [batch for (batch,) in DataLoader(dataset, sampler=sampler, batch_size=None)]
    assert [len(asked) for asked in dataset.asked] == [16, 16]
    assert torch.equal(torch.stack(rows), torch.stack(whole))
