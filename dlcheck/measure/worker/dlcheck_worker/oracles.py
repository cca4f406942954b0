"""What is counted where a result is wrong rather than slow: one counterexample confirms.

Each oracle asks one question of the user's own dataset and loader, on a few samples, and answers with
``violated``, what it counted, and a sentence.  An exception of the user's code in the place that the
rule speaks of is an answer as well.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

SAMPLES = 500  # looked at, at most
WORKERS = 2
ITEMS = 50
STREAM = 2_000  # samples of a stream
DRAWS = 24  # of a random sample; with fewer different ones than ENOUGH, workers may agree by chance
ENOUGH = 8
RARE = 96  # so that a flip with a chance of one in ten is seen
RACE_S = 5.0  # what depends on who comes first is tried for so long


class Inapplicable(Exception):
    """The question has no answer here: the program, run like this, does not have what it is about."""


def ask(name: str, source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The answer of an oracle: ``{"violated": bool, "counts": {...}, "said": sentence}``."""
    try:
        return ORACLES[name](source, config)
    except Inapplicable as error:
        return {"inapplicable": str(error)}


def answer(violated: bool, said: str, **counts: Any) -> dict[str, Any]:
    return {"violated": violated, "said": said, "counts": counts}


# What samples are


def digest(value: Any) -> str:
    """A hash of what a sample holds: numbers, text, and the order of things."""
    state = hashlib.blake2b(digest_size=12)
    _feed(state, value)
    return state.hexdigest()


def _feed(state: Any, value: Any, depth: int = 0) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        state.update(repr((str(value.dtype), tuple(value.shape))).encode())
        flat = value.contiguous().reshape(-1)
        state.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    elif hasattr(value, "tobytes"):
        state.update(value.tobytes())
    elif isinstance(value, dict) and depth < 8:
        for key in value:
            state.update(repr(key).encode())
            _feed(state, value[key], depth + 1)
    elif isinstance(value, (list, tuple)) and depth < 8:
        state.update(b"[")
        for one in value:
            _feed(state, one, depth + 1)
    elif isinstance(value, (str, bytes, int, float, bool, type(None))):
        state.update(repr(value).encode())
    else:
        state.update(type(value).__name__.encode())


def rows(batch: Any) -> Iterator[Any]:
    """The samples of a collated batch."""
    columns = list(batch.values()) if isinstance(batch, dict) else batch
    if isinstance(columns, torch.Tensor):
        yield from columns
    elif isinstance(columns, (list, tuple)) and columns and all(hasattr(one, "__len__") for one in columns):
        yield from zip(*columns)
    else:
        yield batch


def samples_of(loader: Any, number: int = SAMPLES) -> list[str]:
    """The hashes of the first samples that a loader gives."""
    # The loader is taken to its end or its workers are ended with it: it is used for nothing else.
    return [digest(row) for row in itertools.islice((row for batch in loader for row in rows(batch)), number)]


def with_workers(source: Any, **options: Any) -> Any:
    """The user's loader with some workers, where it is written with none."""
    known = source.options()
    return source.loader({"num_workers": known["num_workers"] or WORKERS, **options})


# Oracles


def copies_per_sample(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether workers give samples again that others gave."""
    if not isinstance(source.dataset, IterableDataset):
        raise Inapplicable(f"{type(source.dataset).__name__} is no stream: its sampler shares it out")
    alone = samples_of(source.loader({"num_workers": 0}), STREAM)
    loader = with_workers(source)
    many = samples_of(loader, STREAM * loader.num_workers)
    known = Counter(alone)
    again = sum(max(0, count - known[one]) for one, count in Counter(many).items() if one in known)
    counts = {"alone": len(alone), "with_workers": len(many), "again": again}
    said = f"{len(alone)} samples without workers, {len(many)} with {loader.num_workers}"
    if len(alone) < STREAM:  # all of it: then numbers tell, also where samples are drawn at random
        return answer(len(many) > 1.5 * len(alone), said, **counts)
    if not again and not set(alone) & set(many):
        raise Inapplicable(f"{said}, none of them like another: a long stream of random samples tells nothing")
    return answer(again > 0, f"{said}, {again} of them again", **counts)


def same_with_workers(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether workers give other samples than the dataset does when it is asked by one process."""
    indices = list(range(min(_size(source.dataset), SAMPLES)))
    expected = [digest(source.dataset[index]) for index in indices]
    if expected != [digest(source.dataset[index]) for index in indices]:
        raise Inapplicable("its samples differ from one time to the next: there is nothing to compare")
    end = time.monotonic() + RACE_S
    passes = 0
    while passes == 0 or time.monotonic() < end:
        passes += 1
        # dlcheck: ignore[DLC206] each pass has new workers, which race anew
        loader = DataLoader(source.dataset, batch_size=None, sampler=indices, num_workers=4)
        try:
            wrong = sum(digest(sample) != known for sample, known in zip(loader, expected))
        except Exception as error:  # noqa: BLE001 -- what a worker raises where one process does not is an answer
            return answer(True, f"with four workers reading raises {_said(error)}", passes=passes)
        if wrong:
            told = f"{wrong} of {len(indices)} samples differ between four workers and one process"
            return answer(True, told, wrong=wrong, samples=len(indices), passes=passes)
    told = f"in {passes} passes no sample of {len(indices)} differs between four workers and one process"
    return answer(False, told, wrong=0, samples=len(indices), passes=passes)


def _size(dataset: Any) -> int:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise Inapplicable(f"{type(dataset).__name__} is a stream: it has no samples to ask for by number")
    return len(dataset)


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1][:200] if lines else ''}"


def sample_never_varies(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a sample that should be drawn at random is always the same."""
    drawn = _drawings(source, RARE)
    distinct = len(set(drawn))
    said = f"one sample, {len(drawn)} times: {distinct} different"
    return answer(distinct == 1, said, distinct=distinct, drawn=len(drawn))


def randomness_repeats(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether workers draw the same as each other, or in each epoch, what one process would draw anew."""
    drawn = _drawings(source, DRAWS)
    if len(set(drawn)) < ENOUGH:
        told = f"one sample, {len(drawn)} times: only {len(set(drawn))} different, which may agree by chance"
        raise Inapplicable(told)
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
    _size(source.dataset)
    end = time.monotonic() + RACE_S
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
            pass
        else:
            drawn.append(float(numpy.random.random()))
        return drawn


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
    said = f"{who} repeat in each worker or epoch" if agree else "each worker and epoch draws its own numbers"
    return answer(bool(agree), said, agree=agree)


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
    drawn = _drawn(source.loader({"num_workers": 0}))
    size, seen = _size(source.dataset), len(set(drawn))
    return answer(seen < size, f"an epoch gives {seen} of {size} samples", seen=seen, size=size, drawn=len(drawn))


def samples_drawn_twice(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """How many samples all ranks together are given more than once, so that each has as many."""
    sampler = source.loader({"num_workers": 0}).sampler
    if not hasattr(sampler, "total_size"):
        raise Inapplicable(f"run like this the loader has a {type(sampler).__name__}, which fills nothing up")
    size = _size(source.dataset)
    again = sampler.total_size - size
    return answer(
        again > 0, f"{sampler.total_size} draws for {size} samples: {again} come twice", again=again, size=size
    )


def order_is_fixed(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether an epoch takes the samples in the order in which they are stored."""
    drawn = _drawn(source.loader({"num_workers": 0}))[:SAMPLES]
    fixed = drawn == sorted(drawn)
    return answer(
        fixed, f"the first {len(drawn)} indices are {'in order' if fixed else 'shuffled'}", indices=len(drawn)
    )


def last_batch_is_one(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether the last batch of an epoch has but one sample."""
    loader = source.loader({"num_workers": 0})
    sizes = [len(batch) for batch in loader.batch_sampler]
    return answer(sizes[-1:] == [1], f"the last of {len(sizes)} batches has {sizes[-1] if sizes else 0} samples")


def _drawn(loader: Any) -> list[Any]:
    """The indices of an epoch."""
    if loader.batch_sampler is None:
        return list(loader.sampler)
    return [index for batch in loader.batch_sampler for index in batch]


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


def sample_changes(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether asking for a sample changes it, all generators being where they were."""
    state = torch.random.get_rng_state(), random.getstate()
    seen = []
    for _ in range(3):
        torch.random.set_rng_state(state[0])
        random.setstate(state[1])
        _reseed_numpy()
        seen.append(digest(source.dataset[0]))
    distinct = len(set(seen))
    said = f"one sample, three times with the same generators: {distinct} different"
    return answer(distinct > 1, said, distinct=distinct)


def _reseed_numpy() -> None:
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(0)


def samples_share_memory(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a sample that was given changes when the next is asked for."""
    first = source.dataset[0]
    before = digest(first)
    for index in range(1, min(_size(source.dataset), 4)):
        source.dataset[index]
    changed = digest(first) != before
    told = f"sample 0 {'changes' if changed else 'stays as it is'} when others are read"
    return answer(changed, told, changed=changed)


def samples_are_missing(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether the dataset gives None for a sample."""
    number = min(_size(source.dataset), SAMPLES)
    missing = sum(source.dataset[index] is None for index in range(number))
    return answer(missing > 0, f"{missing} of {number} samples are None", missing=missing, samples=number)


def samples_raise(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether making samples, and a batch of them, raises."""
    loader = source.loader({"num_workers": 0})
    try:
        for _ in itertools.islice(loader, ITEMS):
            pass
    except Exception as error:  # noqa: BLE001 -- that is the question
        return answer(True, _said(error), raised=1)
    return answer(False, f"{ITEMS} batches were made", raised=0)


def loader_ignores_dataset(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a loader gives other samples than indexing does."""
    loader = DataLoader(source.dataset, batch_size=1, collate_fn=_only)
    number = min(_size(source.dataset), 8)
    wrong = sum(digest(source.dataset[i]) != digest(one) for i, one in zip(range(number), loader))
    return answer(wrong > 0, f"{wrong} of {number} samples of the loader are not `dataset[i]`", wrong=wrong)


def _only(samples: Any) -> Any:
    return samples[0]


def cannot_be_pickled(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether what a worker is started with can be sent to another process."""
    loader = source.loader({"num_workers": 0})
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        why = _why_not_pickled(getattr(loader, name))
        if why:
            return answer(True, f"{name}: {why}", part=name)
    return answer(False, "dataset, collate_fn and worker_init_fn can be pickled", part=None)


def _why_not_pickled(value: Any) -> str:
    try:
        pickle.dumps(value)
    except Exception as error:  # noqa: BLE001 -- that is the question
        return _said(error)
    return ""


def batch_cannot_be_sent(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a batch cannot be handed from a worker to the process that asked for it."""
    from multiprocessing.reduction import ForkingPickler

    collate = source.loader({"num_workers": 0}).collate_fn
    try:
        ForkingPickler.dumps(collate([source.dataset[0], source.dataset[1]]))
    except Exception as error:  # noqa: BLE001 -- that is the question
        return answer(True, f"a batch cannot be pickled: {_said(error)}")
    return answer(False, "a batch of the first two samples can be pickled")


def files_stay_open(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether reading samples leaves files open."""
    number = min(_size(source.dataset), 100)
    source.dataset[0]
    before = _open_files()
    kept = [source.dataset[index] for index in range(number)]
    opened = _open_files() - before
    said = f"{opened} more open files after {len(kept)} samples that are kept"
    return answer(opened * 2 >= number, said, opened=opened, samples=number)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def draws_beyond_the_end(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether a weighted sampler draws from as many indices as there are samples."""
    loader = source.loader({"num_workers": 0})
    weights = getattr(loader.sampler, "weights", None)
    if weights is None:
        raise Inapplicable(f"run like this the loader has a {type(loader.sampler).__name__}, which has no weights")
    size = _size(source.dataset)
    said = f"{len(weights)} weights for {size} samples"
    return answer(len(weights) != size, said, weights=len(weights), size=size)


def order_changes(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether two epochs take the samples in another order."""
    loader = source.loader({"num_workers": 0})
    first, second = (_drawn(loader)[:SAMPLES] for _ in range(2))
    same = first == second
    told = f"the first {len(first)} indices of two epochs are {'the same' if same else 'different'}"
    return answer(not same, told, indices=len(first))


def workers_fail_to_start(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether the user's ``worker_init_fn`` raises: a seed of 64 bits is too large for NumPy, say."""
    init = getattr(source.loader({"num_workers": 0}), "worker_init_fn", None)
    if init is None:
        raise Inapplicable("run like this the loader has no worker_init_fn")
    try:
        list(DataLoader(_Draws(), batch_size=None, num_workers=WORKERS, worker_init_fn=init))
    except Exception as error:  # noqa: BLE001 -- that is the question
        return answer(True, f"a worker ends with {_said(error)}")
    return answer(False, f"{WORKERS} workers start")


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
        return answer(True, f"after {given} of {expected} batches the outer loop raises {_said(error)}", given=given)
    told = f"the outer loop gets {given} of {expected} batches"
    return answer(given < expected, told, given=given, expected=expected)


def indices_of_split(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Which samples a part of a dataset holds: what two runs are compared by."""
    indices = getattr(source.dataset, "indices", None)
    if indices is None:
        raise Inapplicable(f"{type(source.dataset).__name__} is no part of a dataset")
    return answer(False, f"{len(indices)} indices", digest=digest(list(map(int, indices))))


Oracle = Callable[[Any, dict[str, Any]], dict[str, Any]]

ORACLES: dict[str, Oracle] = {
    "copies-per-sample": copies_per_sample,
    "same-with-workers": same_with_workers,
    "randomness-repeats": randomness_repeats,
    "sample-never-varies": sample_never_varies,
    "worker-seeds": worker_seeds,
    "order-repeats": order_repeats,
    "samples-left-out": samples_left_out,
    "samples-drawn-twice": samples_drawn_twice,
    "order-is-fixed": order_is_fixed,
    "order-changes": order_changes,
    "workers-fail-to-start": workers_fail_to_start,
    "nested-iteration": nested_iteration,
    "indices-of-split": indices_of_split,
    "last-batch-is-one": last_batch_is_one,
    "epoch-ends-early": epoch_ends_early,
    "second-pass-is-empty": second_pass_is_empty,
    "sample-changes": sample_changes,
    "samples-share-memory": samples_share_memory,
    "samples-are-missing": samples_are_missing,
    "samples-raise": samples_raise,
    "loader-ignores-dataset": loader_ignores_dataset,
    "cannot-be-pickled": cannot_be_pickled,
    "batch-cannot-be-sent": batch_cannot_be_sent,
    "files-stay-open": files_stay_open,
    "draws-beyond-the-end": draws_beyond_the_end,
}
