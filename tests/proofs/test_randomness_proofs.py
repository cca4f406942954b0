"""Random numbers in workers, shares of workers and ranks, and what comes when a loader is iterated again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from real_workers import forkserver
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    get_worker_info,
)

EPOCHS, SAMPLES, WORKERS = 3, 8, 2
ALL = EPOCHS * SAMPLES


def epochs(dataset: Dataset[float], count: int = EPOCHS, **options: Any) -> list[list[float]]:
    """What a loader gives in each epoch; with two forked workers unless the options say otherwise."""
    options = {"num_workers": WORKERS, **options}
    if options["num_workers"]:
        options = {"timeout": 60, "multiprocessing_context": "fork", **options}
    loader = DataLoader(dataset, batch_size=None, **options)
    return [[float(sample) for sample in loader] for _ in range(count)]


def numbers(count: int) -> Any:
    """A range serves as a dataset, though no type says so."""
    return range(count)


def different(drawn: list[list[float]]) -> int:
    return len({number for epoch in drawn for number in epoch})


def from_numpy() -> float:
    return float(np.random.rand())


def from_random() -> float:
    return random.random()


class Drawing(Dataset[float]):
    """Each sample is a random number."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> float:
        return self.draw()


# -- shares


class Items(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(12)


class SplitByWorker(Items):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        yield from range(info.id, 12, info.num_workers)


class SplitByRank(Items):
    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        yield from range(self.rank * info.num_workers + info.id, 12, self.ranks * info.num_workers)


@pytest.mark.proves("DLC401")
def test_each_worker_yields_the_whole_iterable() -> None:
    (whole,) = epochs(Items(), 1)
    assert Counter(whole) == dict.fromkeys(range(12), WORKERS)
    (split,) = epochs(SplitByWorker(), 1)
    assert sorted(split) == list(range(12))


@pytest.mark.proves("DLC402")
def test_each_rank_yields_the_whole_iterable() -> None:
    ranks = [epochs(SplitByWorker(), 1)[0] for _ in range(2)]  # what each process of its own does
    assert Counter(ranks[0] + ranks[1]) == dict.fromkeys(range(12), 2)
    ranks = [epochs(SplitByRank(rank, 2), 1)[0] for rank in range(2)]
    assert sorted(ranks[0] + ranks[1]) == list(range(12))


# -- random numbers


class OwnGenerator(Dataset[float]):
    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> float:
        return float(self.rng.random())


class LazyGenerator(OwnGenerator):
    def __init__(self) -> None:
        super().__init__(None)

    def __getitem__(self, index: int) -> float:
        if self.rng is None:
            info = get_worker_info()
            self.rng = np.random.default_rng(info.seed if info else None)
        return super().__getitem__(index)


@pytest.mark.proves("DLC403")
@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState, random.Random])
def test_workers_copy_a_generator(make: Callable[[], Any]) -> None:
    drawn = epochs(OwnGenerator(make()))
    assert different(drawn) == SAMPLES // WORKERS
    assert sorted(drawn[0]) == sorted(drawn[1])
    assert different(epochs(OwnGenerator(make()), num_workers=0)) == ALL


@pytest.mark.proves("DLC403")
def test_a_generator_made_in_the_worker_is_its_own() -> None:
    assert different(epochs(LazyGenerator())) == ALL
    persistent = epochs(OwnGenerator(np.random.default_rng()), persistent_workers=True)
    assert different(persistent) == ALL // WORKERS


@pytest.mark.proves("DLC403")
def test_workers_that_are_not_forked_copy_it_too() -> None:
    drawn = epochs(OwnGenerator(np.random.default_rng()), 1, multiprocessing_context=forkserver())
    assert different(drawn) == SAMPLES // WORKERS


def by_worker(worker_id: int) -> None:
    np.random.seed(10 + worker_id)


def by_constant(worker_id: int) -> None:
    np.random.seed(42)


def by_state(worker_id: int) -> None:
    state: Any = np.random.get_state()
    np.random.seed(state[1][0] + worker_id)


def by_torch(worker_id: int) -> None:
    np.random.seed(torch.initial_seed() % 2**32)


@pytest.mark.proves("DLC404")
@pytest.mark.parametrize(("init", "expected"), [(by_worker, 8), (by_state, 8), (by_constant, 4)])
def test_a_fixed_seed_repeats_the_first_epoch(init: Callable[[int], None], expected: int) -> None:
    drawn = epochs(Drawing(from_numpy), worker_init_fn=init)
    assert different(drawn) == expected
    assert sorted(drawn[0]) == sorted(drawn[1]) == sorted(drawn[2])


@pytest.mark.proves("DLC404")
@pytest.mark.parametrize("init", [None, by_torch])
def test_torch_seeds_the_workers_anew(init: Callable[[int], None] | None) -> None:
    assert different(epochs(Drawing(from_numpy), worker_init_fn=init)) == ALL


@pytest.mark.proves("DLC404")
def test_persistent_workers_go_on() -> None:
    assert different(epochs(Drawing(from_numpy), worker_init_fn=by_worker, persistent_workers=True)) == ALL
    constant = epochs(Drawing(from_numpy), worker_init_fn=by_constant, persistent_workers=True)
    assert different(constant) == ALL // WORKERS


def seeded_draw() -> float:
    random.seed(1337)
    return random.random()


@pytest.mark.proves("DLC405")
def test_a_constant_seed_makes_all_samples_alike() -> None:
    assert different(epochs(Drawing(seeded_draw))) == 1
    assert different(epochs(Drawing(from_random))) == ALL
    state = random.getstate()
    try:
        random.seed(0)
        first = random.random()
        epochs(Drawing(seeded_draw), 1, num_workers=0)
        after = random.random()
        random.seed(1337)
        assert [random.random(), random.random()][1] == after != first  # the program's own stream was put back
    finally:
        random.setstate(state)


@pytest.mark.proves("DLC406")
@pytest.mark.parametrize("reseeds", [True, False])
def test_a_seed_in_the_epoch_loop_repeats_order_and_numbers(reseeds: bool) -> None:
    loader = DataLoader(numbers(SAMPLES), batch_size=None, sampler=RandomSampler(numbers(SAMPLES)))
    options: dict[str, Any] = {"num_workers": WORKERS, "timeout": 60, "multiprocessing_context": "fork"}
    drawing = DataLoader(Drawing(from_numpy), batch_size=None, **options)
    orders, drawn = [], []
    torch.manual_seed(0)
    for _ in range(EPOCHS):
        if reseeds:
            torch.manual_seed(0)
        orders.append(tuple(int(index) for index in loader))
        drawn.append([float(number) for number in drawing])
    assert (len(set(orders)) == 1) is reseeds
    assert different(drawn) == (SAMPLES if reseeds else ALL)


class Library:
    """As imgaug, OpenCV and others do: a generator of its own, made once."""

    rng = np.random.RandomState(0xFFFFFFFF)

    @classmethod
    def randn(cls) -> float:
        return float(cls.rng.randn())

    @classmethod
    def seed_worker(cls, worker_id: int) -> None:
        cls.rng.seed(torch.initial_seed() % 2**32)


@pytest.mark.proves("DLC407")
def test_torch_does_not_seed_the_generators_of_libraries() -> None:
    drawn = epochs(Drawing(Library.randn))
    assert different(drawn) == SAMPLES // WORKERS
    assert sorted(drawn[0]) == sorted(drawn[1])
    assert different(epochs(Drawing(Library.randn), worker_init_fn=Library.seed_worker)) == ALL


def uncut(worker_id: int) -> None:
    np.random.seed(torch.initial_seed())


def uncut_info(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    np.random.seed(info.seed + worker_id)


@pytest.mark.proves("DLC409")
@pytest.mark.parametrize("init", [uncut, uncut_info])
def test_numpy_refuses_the_seed_of_a_worker(init: Callable[[int], None]) -> None:
    with pytest.raises(ValueError, match=r"Seed must be between 0 and 2\*\*32 - 1"):
        epochs(Drawing(from_numpy), 1, worker_init_fn=init)
    assert len(epochs(Drawing(from_numpy), 1, worker_init_fn=by_torch)[0]) == SAMPLES


# -- samplers


@pytest.mark.proves("DLC410")
def test_a_distributed_sampler_repeats_its_order() -> None:
    sampler: DistributedSampler[Any] = DistributedSampler(numbers(12), num_replicas=2, rank=0)
    loader = DataLoader(numbers(12), batch_size=None, sampler=sampler)
    assert list(loader) == list(loader)
    orders = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        orders.append(tuple(loader))
    assert len(set(orders)) == EPOCHS


@pytest.mark.proves("DLC411")
@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "sampler": range(4)},
        {"batch_sampler": [[0, 1], [2, 3]], "batch_size": 2},
        {"batch_sampler": [[0, 1], [2, 3]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
    ],
)
def test_options_that_exclude_each_other_raise(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="mutually exclusive"):
        DataLoader(numbers(4), **options)
    for name in options:
        if options[name] is not None:
            assert list(DataLoader(numbers(4), **{name: options[name]}))


@pytest.mark.proves("DLC411")
def test_an_iterable_dataset_has_no_order_to_choose() -> None:
    with pytest.raises(ValueError, match="expected unspecified shuffle option"):
        DataLoader(Items(), shuffle=True)
    assert len(list(DataLoader(Items(), batch_size=4))) == 3


@pytest.mark.proves("DLC424")
def test_a_batch_sampler_as_sampler_makes_batches_of_batches() -> None:
    def batches(count: int, role: str, **options: Any) -> list[tuple[int, ...]]:
        dataset = TensorDataset(torch.zeros(count, 2))
        options[role] = BatchSampler(RandomSampler(dataset), 32, drop_last=False)
        return [tuple(rows.shape) for (rows,) in DataLoader(dataset, **options)]

    assert batches(256, "sampler", batch_size=32) == [(8, 32, 2)]
    with pytest.raises(RuntimeError, match="equal size"):
        batches(100, "sampler", batch_size=32)
    assert batches(100, "batch_sampler") == [(32, 2)] * 3 + [(4, 2)]
    assert batches(100, "sampler", batch_size=None) == [(32, 2)] * 3 + [(4, 2)]


@pytest.mark.proves("DLC424")
def test_a_sequence_has_no_index_that_is_a_list() -> None:
    sampler = BatchSampler(RandomSampler(numbers(8)), 4, drop_last=False)
    with pytest.raises(TypeError, match="indices must be integers"):
        list(DataLoader(numbers(8), batch_size=4, sampler=sampler))
    assert len(list(DataLoader(numbers(8), batch_sampler=sampler))) == 2


# -- again


class Once(IterableDataset[int]):
    def __init__(self) -> None:
        self.numbers = (number for number in range(6))

    def __iter__(self) -> Iterator[int]:
        return self.numbers


class OwnIterator(IterableDataset[int]):
    def __init__(self, resets: bool) -> None:
        self.resets = resets
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        if self.resets:
            self.at = 0
        return self

    def __next__(self) -> int:
        if self.at >= 6:
            raise StopIteration
        self.at += 1
        return self.at


class Again(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(6)


def counts(dataset: IterableDataset[int], **options: Any) -> list[int]:
    return [len(epoch) for epoch in epochs(dataset, **{"num_workers": 0, **options})]


@pytest.mark.filterwarnings("ignore:Got pickle error")
@pytest.mark.proves("DLC421")
def test_an_iterator_is_used_up_after_one_epoch() -> None:
    assert counts(Once()) == counts(OwnIterator(resets=False)) == [6, 0, 0]
    assert counts(Again()) == counts(OwnIterator(resets=True)) == [6, 6, 6]
    assert counts(OwnIterator(resets=False), num_workers=1, persistent_workers=True) == [6, 0, 0]
    assert counts(Again(), num_workers=1, persistent_workers=True) == [6, 6, 6]
    with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
        counts(Once(), num_workers=1, multiprocessing_context=forkserver())
    assert counts(Once(), num_workers=2) == [12, 12, 12]  # forked: each worker has a fresh copy, in each epoch


@pytest.mark.proves("DLC422")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 4),
        ("sampler", range(4)),
        ("batch_sampler", [[0]]),
        ("drop_last", True),
        ("dataset", range(2)),
        ("persistent_workers", True),
    ],
)
def test_a_loader_refuses_late_changes(name: str, value: object) -> None:
    loader = DataLoader(numbers(4), batch_size=2)
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
        setattr(loader, name, value)
    loader.timeout = 0.0
    assert len(list(loader)) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.proves("DLC422")
def test_a_loader_ignores_or_stumbles_over_others() -> None:
    loader: Any = DataLoader(numbers(64), batch_size=None)
    loader.shuffle = True
    assert list(loader) == list(range(64))
    assert list(DataLoader(numbers(64), batch_size=None, shuffle=True)) != list(range(64))
    loader.num_workers = 2
    with pytest.raises(TypeError):
        next(iter(loader))
    other: Any = DataLoader(numbers(4), batch_size=2)
    other.collate_fn = None
    with pytest.raises(TypeError):
        next(iter(other))
