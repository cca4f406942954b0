"""What all oracles share: answers, hashes of samples, and the user's loader asked for them."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from multiprocessing.managers import BaseProxy
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import IterableDataset

try:
    import numpy
except ImportError:  # torch goes without
    numpy = None  # type: ignore[assignment]

SAMPLES = 500  # looked at, at most
WORKERS = 2
ITEMS = 50
STREAM = 2_000  # samples of a stream
RACE_S = 5.0  # what depends on who comes first is tried for so long
DEPTH = 8  # of what samples hold
ENTRIES = 100_000
CTYPES = (ctypes._SimpleCData, ctypes.Array, ctypes.Structure)


class Inapplicable(Exception):
    """The question has no answer here: the program, run like this, does not have what it is about."""


def answer(violated: bool, said: str, **counts: Any) -> dict[str, Any]:
    return {"violated": violated, "said": said, "counts": counts}


def digest(value: Any) -> str:
    """A hash of what a sample holds: numbers, text, and the order of things."""
    state = hashlib.blake2b(digest_size=12)
    _feed(state, value)
    return state.hexdigest()


def _feed(state: Any, value: Any, depth: int = 0) -> None:
    shared = getattr(value, "get_obj", None)  # multiprocessing.Value: a number, and the lock around it
    value = shared() if callable(shared) else value
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        state.update(repr((str(value.dtype), tuple(value.shape))).encode())
        flat = value.contiguous().reshape(-1)
        state.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    elif hasattr(value, "tobytes"):
        state.update(value.tobytes())
    elif isinstance(value, BaseProxy):
        _feed(state, value._getvalue(), depth)
    elif isinstance(value, CTYPES):
        state.update(bytes(value))
    elif isinstance(value, dict) and depth < DEPTH:
        state.update(repr(len(value)).encode())
        for key in itertools.islice(value, ENTRIES):
            state.update(repr(key).encode())
            _feed(state, value[key], depth + 1)
    elif isinstance(value, (list, tuple)) and depth < DEPTH:
        state.update(f"[{len(value)}".encode())
        for one in itertools.islice(value, ENTRIES):
            _feed(state, one, depth + 1)
    elif isinstance(value, (set, frozenset)):
        state.update(repr(sorted(map(repr, value))).encode())
    elif isinstance(value, (str, bytes, int, float, bool, type(None))):
        state.update(repr(value).encode())
    else:
        _feed_object(state, value, depth)


def _feed_object(state: Any, value: Any, depth: int) -> None:
    """What it is, and what it holds; locks and files are what they are in each process."""
    state.update(f"{type(value).__name__} {getattr(value, '__qualname__', '')}".encode())
    holds = getattr(value, "__dict__", None)
    if isinstance(holds, dict) and depth < DEPTH and not isinstance(value, (type, ModuleType)):
        _feed(state, {name: one for name, one in holds.items() if not name.startswith("__")}, depth + 1)


def rows(batch: Any) -> Iterator[Any]:
    """The samples of a collated batch."""
    columns = list(batch.values()) if isinstance(batch, dict) else batch
    several = isinstance(columns, (list, tuple)) and bool(columns)
    if isinstance(columns, torch.Tensor) or several and all(isinstance(one, (str, bytes)) for one in columns):
        yield from columns
    elif several and all(hasattr(one, "__len__") for one in columns):
        yield from zip(*columns)
    else:
        yield batch


def samples_in(loader: Any) -> Iterator[Any]:
    """The samples that a loader gives, one by one."""
    collates = loader.batch_size is not None or loader.batch_sampler is not None
    for batch in loader:
        yield from rows(batch) if collates else (batch,)


def samples_of(loader: Any, number: int = SAMPLES) -> list[str]:
    """The hashes of the first samples that a loader gives."""
    # The loader is taken to its end or its workers are ended with it: it is used for nothing else.
    return [digest(sample) for sample in itertools.islice(samples_in(loader), number)]


def with_workers(source: Any, **options: Any) -> Any:
    """The user's loader with some workers, where it is written with none."""
    known = source.options()
    return source.loader({"num_workers": known["num_workers"] or WORKERS, **options})


def size_of(dataset: Any) -> int:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise Inapplicable(f"{type(dataset).__name__} is a stream: it has no samples to ask for by number")
    return len(dataset)


def drawn_by(loader: Any, number: int | None = None) -> list[Any]:
    """The indices of an epoch, or the first of them."""
    if isinstance(loader.dataset, IterableDataset):
        raise Inapplicable(f"{type(loader.dataset).__name__} is a stream: nobody draws indices for it")
    batches = loader.batch_sampler
    drawn = loader.sampler if batches is None else itertools.chain.from_iterable(batches)
    return list(itertools.islice(drawn, number))


def line_of(error: BaseException) -> str:
    """An error in a line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1][:200] if lines else ''}"


def versions(number: int) -> str:
    """How often a sample that was drawn again and again came out otherwise."""
    return "is always the same" if number == 1 else f"comes in {number} versions"


GENERATORS = ("torch", "random", "numpy")


def seed(number: int, generators: Collection[str] = GENERATORS, own: torch.Generator | None = None) -> None:
    """Put generators, by name, to one beginning; ``own`` is the loader's."""
    if "torch" in generators:
        torch.manual_seed(number)
    if "random" in generators:
        random.seed(number)
    if "numpy" in generators and numpy is not None:
        numpy.random.seed(number)
    if "own" in generators and own is not None:
        own.manual_seed(number)


@contextmanager
def generators_kept(own: torch.Generator | None = None) -> Iterator[None]:
    """What is drawn in between is not missed afterwards."""
    of_torch, of_random = torch.random.get_rng_state(), random.getstate()
    of_numpy: Any = numpy and numpy.random.get_state()
    of_own = None if own is None else own.get_state()
    try:
        yield
    finally:
        torch.random.set_rng_state(of_torch)
        random.setstate(of_random)
        if numpy is not None:
            numpy.random.set_state(of_numpy)
        if own is not None and of_own is not None:
            own.set_state(of_own)
