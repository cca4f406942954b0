"""What is drawn at random: in each sample, in each worker, in each epoch."""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from . import asking
from .asking import (
    ITEMS,
    SAMPLES,
    WORKERS,
    Inapplicable,
    answer,
    digest,
    drawn_by,
    generators_kept,
    line_of,
    samples_of,
    seed,
    size_of,
    versions,
)

DRAWS = 24  # of a random sample; with fewer different ones than ENOUGH, workers may agree by chance
ENOUGH = 8
SEED = 1
RARE = 96  # so that a flip with a chance of one in ten is seen


def sample_never_varies(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a sample that should be drawn at random is always the same."""
    drawn = _drawings(source, RARE)
    distinct = len(set(drawn))
    said = f"one sample, drawn {len(drawn)} times, {versions(distinct)}"
    return answer(distinct == 1, said, distinct=distinct, drawn=len(drawn))


def randomness_repeats(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether workers draw the same as each other, or in each epoch, what one process would draw anew."""
    drawn = _drawings(source, DRAWS)
    if len(set(drawn)) < ENOUGH:
        told = f"one sample, drawn {len(drawn)} times, {versions(len(set(drawn)))}"
        raise Inapplicable(f"{told}: so few may agree by chance")
    epochs = []
    for _ in range(2):
        # dlcheck: ignore[DLC206] an epoch is one of new workers
        loader = DataLoader(
            source.dataset,
            batch_size=None,
            sampler=[0] * len(drawn),
            num_workers=WORKERS,
            worker_init_fn=getattr(source.loader({"num_workers": 0}), "worker_init_fn", None),
        )
        epochs.append([digest(sample) for sample in loader])
    between_epochs = epochs[0] == epochs[1]
    between_workers = epochs[0][0::2] == epochs[0][1::2]
    said = (
        f"one sample, drawn in {WORKERS} workers and two epochs: "
        f"workers {'agree' if between_workers else 'differ'}, epochs {'agree' if between_epochs else 'differ'}"
    )
    repeats = between_epochs or between_workers
    return answer(repeats, said, workers_agree=between_workers, epochs_agree=between_epochs)


def _drawings(source: Any, number: int) -> list[str]:
    """Hashes of one sample, asked for again and again."""
    size_of(source.dataset)
    end = time.monotonic() + asking.RACE_S
    drawn: list[str] = []
    while len(drawn) < number and (len(drawn) < 4 or time.monotonic() < end):
        drawn.append(digest(source.dataset[0]))
    return drawn[: len(drawn) // 2 * 2]


class _Draws(Dataset[Any]):
    """A probe: what the generators of a worker draw."""

    def __len__(self) -> int:
        return 2 * WORKERS

    def __getitem__(self, index: int) -> Any:
        drawn: list[float] = [torch.rand(()).item(), random.random()]
        try:
            import numpy
        except ImportError:
            return drawn
        return [*drawn, float(numpy.random.random())]


def worker_seeds(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether the user's ``worker_init_fn`` leaves workers and epochs their own numbers."""
    init = getattr(source.loader({"num_workers": 0}), "worker_init_fn", None)
    epochs = [list(DataLoader(_Draws(), batch_size=None, num_workers=WORKERS, worker_init_fn=init)) for _ in range(2)]
    names = ("torch", "random", "numpy")[: len(epochs[0][0])]
    agree = [
        name
        for place, name in enumerate(names)
        if epochs[0][0][place] == epochs[0][1][place]
        or [one[place] for one in epochs[0]] == [one[place] for one in epochs[1]]
    ]
    who = " and ".join(agree)
    if not agree:
        return answer(False, "each worker and epoch draws its own numbers", agree=agree)
    return answer(True, f"the numbers of {who} repeat in each worker or epoch", agree=agree)


def workers_fail_to_start(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether the user's ``worker_init_fn`` raises: a seed of 64 bits is too large for NumPy, say."""
    init = getattr(source.loader({"num_workers": 0}), "worker_init_fn", None)
    if init is None:
        raise Inapplicable("run like this the loader has no worker_init_fn")
    try:
        list(DataLoader(_Draws(), batch_size=None, num_workers=WORKERS, worker_init_fn=init))
    except Exception as error:  # noqa: BLE001 -- that is the question
        return answer(True, f"a worker ends with {line_of(error)}")
    return answer(False, f"{WORKERS} workers start")


def reseeding_repeats(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether two epochs are alike if each begins with the same seed, and are not otherwise."""
    loader, generators = source.loader({}), config.get("generators", ["torch"])
    if "own" in generators and loader.generator is None:
        raise Inapplicable("run like this the loader has no generator of its own")
    with generators_kept(loader.generator):
        free = [_epoch(source, loader, ()) for _ in range(2)]
        seeded = [_epoch(source, loader, generators) for _ in range(2)]
    random_parts = [name for name in free[0] if free[0][name] != free[1][name]]
    if not random_parts:
        raise Inapplicable("two epochs are alike without a seed as well: there is nothing that it could repeat")
    repeats = [name for name in random_parts if seeded[0][name] == seeded[1][name]]
    who = " and the ".join(repeats or random_parts)
    said = f"the {who} of two epochs that begin with the same seed {'are the same' if repeats else 'differ'}"
    return answer(bool(repeats), said, repeats=repeats, random=random_parts)


def _epoch(source: Any, loader: Any, generators: Collection[str]) -> dict[str, str]:
    """Hashes of an epoch that begins with a seed for these generators."""
    found = {}
    if not isinstance(source.dataset, IterableDataset):
        seed(SEED, generators, loader.generator)
        found["order"] = digest(drawn_by(loader, SAMPLES))
    seed(SEED, generators, loader.generator)
    return {**found, "samples": digest(samples_of(loader, ITEMS))}
