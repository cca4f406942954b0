"""What one process of several that train together is given: the parent compares it with what the others are given."""

from __future__ import annotations

import time
import zlib
from collections.abc import Collection
from typing import Any

import torch
from torch.utils.data import IterableDataset

from . import asking
from .asking import STREAM, answer, digest, drawn_by, generators_kept, samples_in, seed

AGAIN = 200  # samples of a second pass
PROBED = 8
DRAWN = 1_000_000


def share_of_a_rank(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The samples of an epoch, each by a key that is the same in every process that gives it.

    ``ended``: whether these are all; ``same``: whether a second pass gives them again, so that keys mean something.
    """
    stream = isinstance(source.dataset, IterableDataset)
    keys, ended, same = _of_stream(source) if stream else _of_indices(source)
    distinct = set(keys)
    apart, some = _some_of(distinct)
    told = {"world": _world(), "number": len(keys), "distinct": len(distinct), "ended": ended, "same": same}
    return {**answer(False, f"{len(keys)} samples"), "share": {**told, "apart": apart, "keys": some}}


def _world() -> int:
    """How many processes train together; one where the program has not said that they do."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _some_of(keys: Collection[str]) -> tuple[int, list[str]]:
    """As many keys as can be sent, and the power of two by which they were chosen: half of all, or a quarter.

    Each process chooses the same, or more of the same.
    """
    apart = 1
    while len(keys) > STREAM * apart:
        apart *= 2
    return apart, [key for key in keys if zlib.crc32(key.encode()) % apart == 0]


def _of_stream(source: Any) -> tuple[list[str], bool, bool]:
    keys, ended = _first(source, STREAM)
    known, again = set(keys), _first(source, AGAIN)[0]
    return keys, ended, sum(key in known for key in again) > 0.5 * min(AGAIN, len(keys))


def _first(source: Any, number: int) -> tuple[list[str], bool]:
    """Keys of the first samples of a stream, as many as there is time for, and whether it has no more."""
    keys: list[str] = []
    end = time.monotonic() + 2 * asking.RACE_S
    for sample in samples_in(source.loader({})):
        if len(keys) >= number or keys and time.monotonic() > end:
            return keys, False
        keys.append(digest(sample))
    return keys, True


def _of_indices(source: Any) -> tuple[list[str], bool, bool]:
    """Indices say which samples they are where the dataset is the same: some of it is looked at as well."""
    drawn = drawn_by(source.loader({"num_workers": 0}), DRAWN)
    first, second = (_looked_at(source.dataset) for _ in range(2))
    return [f"{first} {index}" for index in drawn], len(drawn) < DRAWN, first == second


def _looked_at(dataset: Any) -> str:
    """A hash of some samples, the generators being where they are in every other process."""
    size = len(dataset)
    found: list[Any] = [size]
    with generators_kept():
        for index in range(0, size, max(1, size // PROBED)):
            seed(index)
            found.append(digest(dataset[index]))
    return digest(found)
