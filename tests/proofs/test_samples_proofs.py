"""What ``__getitem__`` gives, with real loaders: views, reversed views, edits of stored data, None, early ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from real_workers import forkserver
from torch.utils.data import DataLoader, Dataset, IterableDataset, StackDataset, Subset, random_split
from torch.utils.data._utils.collate import default_collate

TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def same(samples: list[Any]) -> list[Any]:
    return samples


def drain(loader: DataLoader[Any]) -> int:
    """The number of batches; the workers are gone then, also where an error ends it."""
    iterator = iter(loader)
    try:
        return sum(1 for _ in iterator)
    finally:
        getattr(iterator, "_shutdown_workers", int)()


# -- DLC312


class Views(Dataset[torch.Tensor]):
    def __init__(self, copies: bool) -> None:
        self.rows = torch.zeros(64, 4096)  # 1 MiB
        self.copies = copies

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        row = self.rows[index]
        return row.clone() if self.copies else row


def shared_bytes(tensor: Any) -> int:
    """The bytes of shared memory that come with a tensor of a worker."""
    assert tensor.is_shared()
    return int(tensor.untyped_storage().nbytes())


@pytest.mark.proves("DLC312")
def test_a_view_takes_all_of_the_tensor_to_shared_memory() -> None:
    whole, row = 64 * 4096 * 4, 4096 * 4
    for options, copied in (({"batch_size": None}, False), ({"batch_size": 2, "collate_fn": same}, False)):
        loader = DataLoader(Views(copied), num_workers=1, multiprocessing_context="fork", **options)
        first = next(iter(loader))
        assert shared_bytes(first if isinstance(first, torch.Tensor) else first[0]) == whole
    good = DataLoader(Views(True), batch_size=None, num_workers=1, multiprocessing_context="fork")
    assert shared_bytes(next(iter(good))) == row
    collated = DataLoader(Views(False), batch_size=2, num_workers=1, multiprocessing_context="fork")
    assert shared_bytes(next(iter(collated))) == 2 * row


# -- DLC313


class Image:
    """A stand-in for an image: counts the pixels that are converted."""

    converted = 0

    def __init__(self, side: int) -> None:
        self.side = side


def to_tensor(image: Image) -> Image:
    Image.converted += image.side**2
    return image


def crop(image: Image) -> Image:
    return Image(min(image.side, 224))


@pytest.mark.proves("DLC313")
def test_converting_first_converts_what_the_crop_throws_away() -> None:
    Image.converted = 0
    crop(to_tensor(Image(1024)))
    early, Image.converted = Image.converted, 0
    to_tensor(crop(Image(1024)))
    assert early > 20 * Image.converted
    # What is converted is four times the bytes, too.
    assert torch.zeros(8, dtype=torch.uint8).float().nbytes == 4 * torch.zeros(8, dtype=torch.uint8).nbytes


# -- DLC314


class Flipped(Dataset[np.ndarray]):
    def __init__(self, copies: bool) -> None:
        self.copies = copies

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> np.ndarray:
        image = np.full((2, 3), index)[:, ::-1]
        return image.copy() if self.copies else image


@pytest.mark.proves("DLC314")
@pytest.mark.parametrize("convert", [torch.from_numpy, torch.as_tensor, torch.tensor])
def test_torch_refuses_a_reversed_view(convert: Callable[[np.ndarray], torch.Tensor]) -> None:
    image = np.arange(6.0).reshape(2, 3)
    for view in (image[:, ::-1], np.flip(image), np.fliplr(image), np.flipud(image), np.rot90(image)):
        with pytest.raises(ValueError, match="negative"):
            convert(view)
        assert convert(view.copy()).tolist() == view.tolist()
    for fine in (image[:, ::-1] * 2, image[:, ::-1].astype(np.float32), image[:, ::-1][:, ::-1], np.rot90(image, 4)):
        assert convert(fine).tolist() == fine.tolist()


@pytest.mark.proves("DLC314")
@pytest.mark.parametrize("workers", [0, 1])
def test_the_loader_refuses_it_too(workers: int) -> None:
    context = "fork" if workers else None
    with pytest.raises(ValueError, match="negative"):
        drain(DataLoader(Flipped(False), batch_size=2, num_workers=workers, multiprocessing_context=context))
    assert len(list(DataLoader(Flipped(True), batch_size=2))) == 2


# -- DLC315


class Centred(Dataset[Any]):
    def __init__(self, copies: bool) -> None:
        self.rows = np.full((1, 4), 10.0)
        self.copies = copies

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> float:
        row = self.rows[index].copy() if self.copies else self.rows[index]
        row -= 1
        return float(row[0])


class Doubled(Dataset[Any]):
    def __init__(self, copies: bool) -> None:
        self.items = [{"label": 1}]
        self.copies = copies

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        item = dict(self.items[index]) if self.copies else self.items[index]
        item["label"] = item["label"] * 2
        return item["label"]


def epochs(loader: DataLoader[Any], count: int = 3) -> list[Any]:
    return [batch.item() for _ in range(count) for batch in loader]


@pytest.mark.proves("DLC315")
def test_each_visit_finds_what_the_visit_before_left() -> None:
    assert epochs(DataLoader(Centred(False))) == [9, 8, 7]
    assert epochs(DataLoader(Centred(True))) == [9, 9, 9]
    assert epochs(DataLoader(Doubled(False))) == [2, 4, 8]
    assert epochs(DataLoader(Doubled(True))) == [2, 2, 2]


@pytest.mark.proves("DLC315")
def test_workers_that_stay_remember_and_new_ones_do_not() -> None:
    def workers(persistent: bool) -> DataLoader[Any]:
        return DataLoader(
            Centred(False), num_workers=1, persistent_workers=persistent, multiprocessing_context=forkserver()
        )

    assert epochs(workers(True)) == [9, 8, 7]
    assert epochs(workers(False), 2) == [9, 9]


# -- DLC316


class Buffered(Dataset[torch.Tensor]):
    def __init__(self, copies: bool) -> None:
        self.buffer = torch.empty(2)
        self.copies = copies

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        self.buffer.fill_(index)
        return self.buffer.clone() if self.copies else self.buffer


def batch_of_four(copies: bool, workers: int) -> list[list[float]]:
    context = forkserver() if workers else None
    loader = DataLoader(Buffered(copies), batch_size=4, num_workers=workers, multiprocessing_context=context)
    found: list[list[float]] = next(iter(loader)).tolist()
    return found


@pytest.mark.proves("DLC316")
def test_all_samples_of_a_batch_are_the_last_one() -> None:
    assert batch_of_four(False, 0) == [[3, 3], [3, 3], [3, 3], [3, 3]]
    assert batch_of_four(False, 1) == [[3, 3], [3, 3], [3, 3], [3, 3]]
    assert batch_of_four(True, 0) == [[0, 0], [1, 1], [2, 2], [3, 3]]


# -- DLC317


class Broken(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor | None:
        try:
            return torch.ones(2) if index != self.bad else [torch.ones(2)][index + 1]
        except IndexError:
            return None

    def __init__(self, bad: int) -> None:
        self.bad = bad


def without_none(samples: list[Any]) -> Any:
    collate: Any = default_collate
    return collate([sample for sample in samples if sample is not None])


@pytest.mark.proves("DLC317")
@pytest.mark.parametrize("bad", [0, 3])
def test_none_cannot_be_collated(bad: int) -> None:
    with pytest.raises(TypeError, match="NoneType"):
        list(DataLoader(Broken(bad), batch_size=4))
    assert next(iter(DataLoader(Broken(bad), batch_size=4, collate_fn=without_none))).shape == (3, 2)
    assert [sample is None for sample in DataLoader(Broken(bad), batch_size=None)].count(True) == 1


# -- DLC318


class Negated(StackDataset):  # type: ignore[type-arg]
    def __getitem__(self, index: int) -> Any:
        return tuple(-part[index] for part in self.datasets)


class NegatedInBatches(Negated):
    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class Part(Subset):  # type: ignore[type-arg]
    def __getitem__(self, index: Any) -> Any:
        return -self.dataset[self.indices[index]]


class PartInBatches(Part):
    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class PartOfItsOwn(Part):
    def __init__(self, dataset: Any, indices: list[int]) -> None:
        self.dataset, self.indices = dataset, indices


ONES: Any = torch.ones(4)


@pytest.mark.proves("DLC318")
def test_the_loader_asks_for_whole_batches_instead() -> None:
    assert Negated(ONES)[0] == (-1,)
    assert next(iter(DataLoader(Negated(ONES), batch_size=2)))[0].tolist() == [1, 1]
    assert next(iter(DataLoader(NegatedInBatches(ONES), batch_size=2)))[0].tolist() == [-1, -1]
    assert next(iter(DataLoader(PartInBatches(ONES, [0, 1]), batch_size=2))).tolist() == [-1, -1]


@pytest.mark.proves("DLC318")
def test_a_subset_is_refused_since_2_11_and_wrong_before() -> None:
    if TORCH >= (2, 11):
        with pytest.raises(NotImplementedError, match="__getitems__"):
            Part(ONES, [0, 1])
    elif TORCH >= (2, 1):
        assert next(iter(DataLoader(Part(ONES, [0, 1]), batch_size=2))).tolist() == [1, 1]
    if TORCH >= (2, 1):  # nothing of torch's refuses it
        assert next(iter(DataLoader(PartOfItsOwn(ONES, [0, 1]), batch_size=2))).tolist() == [1, 1]


# -- DLC319


class Transformed(Dataset[str]):
    def __init__(self, transform: str) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> str:
        return self.transform


@pytest.mark.proves("DLC319")
def test_the_parts_of_a_split_share_the_dataset() -> None:
    generator = torch.Generator().manual_seed(0)
    train, val = random_split(Transformed("augment"), [2, 2], generator=generator)
    val.dataset.transform = "plain"  # type: ignore[attr-defined]
    assert next(iter(DataLoader(train, batch_size=2))) == ["plain", "plain"]
    val.transform = "other"  # type: ignore[attr-defined]
    assert next(iter(DataLoader(val, batch_size=2))) == ["plain", "plain"]
    train, val = Subset(Transformed("augment"), [0, 1]), Subset(Transformed("plain"), [2, 3])
    assert next(iter(DataLoader(train, batch_size=2))) == ["augment", "augment"]
    assert next(iter(DataLoader(val, batch_size=2))) == ["plain", "plain"]


# -- DLC320


class Searching(Dataset[int]):
    def __init__(self, default: bool) -> None:
        self.default = default

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        wanted = (number for number in range(8) if number == index and number != 5)
        return next(wanted, -1) if self.default else next(wanted)


class Streaming(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        for index in range(8):
            yield next(number for number in range(8) if number == index and number != 5)


@pytest.mark.proves("DLC320")
def test_stopiteration_ends_the_epoch() -> None:
    assert len(list(DataLoader(Searching(False)))) == 5
    assert drain(DataLoader(Searching(False), num_workers=1, multiprocessing_context="fork")) == 5
    assert len(list(DataLoader(Searching(True)))) == 8


@pytest.mark.proves("DLC320")
def test_in_a_generator_it_cannot_hide() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Streaming()))


# -- DLC322


class Endless(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.proves("DLC322")
def test_the_loaders_own_samplers_ask_for_a_length() -> None:
    with pytest.raises(TypeError, match="has no len"):
        DataLoader(Endless(), shuffle=True)
    with pytest.raises(TypeError, match="has no len"):
        list(DataLoader(Endless()))
    sampler = random.sample(range(100), 6)
    assert [batch.tolist() for batch in DataLoader(Endless(), batch_size=3, sampler=sampler)] == [
        sampler[:3], sampler[3:]
    ]  # fmt: skip
