"""Which samples an epoch takes, in which order, and how many in a batch."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any

from torch.utils.data import IterableDataset

from . import asking
from .asking import SAMPLES, STREAM, Inapplicable, answer, digest, drawn_by, line_of, size_of, with_workers


def order_repeats(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether two epochs take the samples in the same order."""
    loader = source.loader({"num_workers": 0})
    if not hasattr(loader.sampler, "set_epoch"):
        raise Inapplicable(
            f"run like this the loader has a {type(loader.sampler).__name__}, which has no epochs to set"
        )
    first, second = ([*itertools.islice(iter(loader.sampler), SAMPLES)] for _ in range(2))
    same = first == second and first != sorted(first)
    said = f"the first {len(first)} indices of two epochs are {'the same' if first == second else 'different'}"
    return answer(same, said, indices=len(first))


def samples_left_out(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """How many samples of a dataset an epoch does not give."""
    drawn = drawn_by(source.loader({"num_workers": 0}))
    size, seen = size_of(source.dataset), len(set(drawn))
    return answer(seen < size, f"an epoch gives {seen} of {size} samples", seen=seen, size=size, drawn=len(drawn))


def samples_drawn_twice(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """How many samples all ranks together are given more than once, so that each has as many."""
    sampler = source.loader({"num_workers": 0}).sampler
    if not hasattr(sampler, "total_size"):
        raise Inapplicable(f"run like this the loader has a {type(sampler).__name__}, which fills nothing up")
    size = size_of(source.dataset)
    again = sampler.total_size - size
    return answer(
        again > 0, f"{sampler.total_size} draws for {size} samples: {again} come twice", again=again, size=size
    )


def order_is_fixed(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether an epoch takes the samples in the order in which they are stored."""
    drawn = drawn_by(source.loader({"num_workers": 0}), SAMPLES)
    fixed = drawn == sorted(drawn)
    return answer(
        fixed, f"the first {len(drawn)} indices are {'in order' if fixed else 'shuffled'}", indices=len(drawn)
    )


def order_changes(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether two epochs take the samples in another order."""
    loader = source.loader({"num_workers": 0})
    first, second = (drawn_by(loader, SAMPLES) for _ in range(2))
    same = first == second
    told = f"the first {len(first)} indices of two epochs are {'the same' if same else 'different'}"
    return answer(not same, told, indices=len(first))


def last_batch_is_one(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether the last batch of an epoch has but one sample."""
    sizes = _sizes(source)
    return answer(sizes[-1:] == [1], f"the last of {len(sizes)} batches has {sizes[-1] if sizes else 0} samples")


def batches_differ(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a batch of an epoch has another size than the others: code that was compiled for one size meets two."""
    sizes = Counter(_sizes(source))
    shown = ", ".join(f"{count} of {size}" for size, count in sizes.most_common(4))
    said = f"an epoch has {sum(sizes.values())} batches: {shown} samples"
    return answer(len(sizes) > 1, said, sizes={str(size): count for size, count in sizes.items()})


def _sizes(source: Any) -> list[int]:
    """The sizes of an epoch's batches: as drawn, or of a stream as they come."""
    loader = source.loader({"num_workers": 0})
    if loader.batch_sampler is None:
        raise Inapplicable("run like this the loader makes no batches: each is what the dataset gives")
    if not isinstance(source.dataset, IterableDataset):
        return [len(batch) for batch in loader.batch_sampler]
    end, sizes = time.monotonic() + asking.RACE_S, []
    for size in source.loader({"collate_fn": len, "pin_memory": False}):
        sizes.append(size)
        if len(sizes) >= STREAM or time.monotonic() > end:
            raise Inapplicable(f"the stream goes on after {len(sizes)} batches: its last one is not known")
    return sizes


def epoch_ends_early(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether an epoch has fewer batches than it says."""
    loader = source.loader({"num_workers": 0})
    said_length = len(loader)
    counted = sum(1 for _ in itertools.islice(loader, said_length + 1))
    said = f"len(loader) is {said_length}, an epoch has {counted} batches"
    return answer(counted != said_length, said, length=said_length, counted=counted)


def second_pass_is_empty(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a stream can be gone through but once."""
    loader = source.loader({"num_workers": 0})
    first, second = (sum(1 for _ in itertools.islice(loader, SAMPLES)) for _ in range(2))
    told = f"{first} batches in the first epoch, {second} in the second"
    return answer(second < first, told, first=first, second=second)


def nested_iteration(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether iterating persistent workers again inside a loop takes the outer loop its batches."""
    loader = with_workers(source, persistent_workers=True)
    expected = len(loader)
    if expected < 3:
        raise Inapplicable(f"an epoch has {expected} batches: there is nothing to nest")
    given = 0
    try:
        for given, _ in enumerate(loader, 1):
            if given == 1:
                inner = iter(loader)
                for _ in range(2):
                    next(inner)
    except Exception as error:  # noqa: BLE001 -- that is an answer as well
        return answer(True, f"after {given} of {expected} batches the outer loop raises {line_of(error)}", given=given)
    told = f"the outer loop gets {given} of {expected} batches"
    return answer(given < expected, told, given=given, expected=expected)


def draws_beyond_the_end(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a weighted sampler draws from as many indices as there are samples."""
    loader = source.loader({"num_workers": 0})
    weights = getattr(loader.sampler, "weights", None)
    if weights is None:
        raise Inapplicable(f"run like this the loader has a {type(loader.sampler).__name__}, which has no weights")
    size = size_of(source.dataset)
    said = f"{len(weights)} weights for {size} samples"
    return answer(len(weights) != size, said, weights=len(weights), size=size)


def indices_of_split(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Which samples a part of a dataset holds: what two runs are compared by."""
    indices = getattr(source.dataset, "indices", None)
    if indices is None:
        raise Inapplicable(f"{type(source.dataset).__name__} is no part of a dataset")
    return answer(False, f"{len(indices)} indices", digest=digest(list(map(int, indices))))
