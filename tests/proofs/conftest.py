"""Proofs need torch and real workers; where there is no torch, or no fork, there are none."""

from __future__ import annotations

import importlib.util
import multiprocessing
import random
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
POSSIBLE = importlib.util.find_spec("torch") is not None and "fork" in multiprocessing.get_all_start_methods()

collect_ignore_glob = [] if POSSIBLE else ["test_*_proofs.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name.endswith("_proofs.py"):
            item.add_marker(pytest.mark.slow)
            # Python 3.12 and later say so of every fork beside a loader, whose queues have threads.
            item.add_marker(pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Many intra-op threads on few cores make small tensors a hundred times slower."""
    if POSSIBLE:
        import torch

        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """What is drawn does not hang on which tests ran before, nor on luck."""
    if POSSIBLE:
        import numpy as np
        import torch

        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_worker_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the workers of iterators that an exception's traceback keeps alive.

    The garbage collector would find them in some later test, close their queues first, and then wait for each worker,
    which can no longer hear that it should end, for five seconds.
    """
    if not POSSIBLE:
        yield
        return
    from torch.utils.data import DataLoader, _utils, dataloader

    iterators: weakref.WeakSet[Any] = weakref.WeakSet()
    make: Any = DataLoader._get_iterator

    def make_and_note(loader: Any) -> Any:
        iterator = make(loader)
        iterators.add(iterator)
        return iterator

    monkeypatch.setattr(DataLoader, "_get_iterator", make_and_note)
    # Five seconds elsewhere: how long a loader waits for workers that do not end, and before it sees that one has died.
    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 1.0)
    iterator_type: Any = dataloader._MultiProcessingDataLoaderIter
    monkeypatch.setattr(iterator_type._try_get_data, "__defaults__", (1.0,))
    yield
    for iterator in iterators:
        getattr(iterator, "_shutdown_workers", int)()
