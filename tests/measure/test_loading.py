"""Real loaders in front of a device: read to their end, checked, and never larger than shared memory."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from typing import Any

import pytest
import torch
from dlcheck_worker.device import CpuBackend
from dlcheck_worker.loading import Filled, Loading, ends, fitting, thread_seconds
from dlcheck_worker.rig import Rig
from torch.utils.data import DataLoader

SMALL: dict[str, Any] = {"shape": (2, 3), "steps": 4, "compute_s": 0.0, "warm_s": 0.0}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig(CpuBackend())


@pytest.mark.parametrize("batch_size", [1, 3, 300])
def test_sums_of_batches_are_known_beforehand(batch_size: int) -> None:
    loader = DataLoader(Filled(4 * batch_size, (2, 2)), batch_size=batch_size)
    for number, batch in enumerate(loader):
        assert batch.view(-1)[0] + batch.view(-1)[-1] == ends(number, batch_size)


def test_every_arm_reads_the_right_batches(rig: Rig) -> None:
    loading = Loading({**SMALL, "loader": {"batch_size": 3, "num_workers": 0}}, rig)
    for name in loading.arms:
        block = loading.block(name)
        assert block["ok"], (name, block)
        assert not block["pinned"]
    assert len(loading.missing()) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="other workers start for seconds")
def test_loaders_with_workers_are_read_to_their_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # A loader that is left early goes on preparing batches in the next arm's block, and its next epoch begins late.
    served: list[int] = []
    expected: list[int] = []
    make = Loading.loader

    def counting(self: Loading, arm: Any, steps: int) -> Any:
        loader = make(self, arm, steps)
        expected.append(len(loader))
        return Counted(loader, served)

    monkeypatch.setattr(Loading, "loader", counting)
    options = {"batch_size": 2, "num_workers": 1, "multiprocessing_context": "fork"}
    loading = Loading({**SMALL, "loader": options}, rig)
    for name in ("plain", "pinned_nb_side", "replay"):
        assert loading.block(name)["ok"]
        assert multiprocessing.active_children() == []
    assert served == expected


class Counted:
    def __init__(self, loader: Any, served: list[int]) -> None:
        self._loader = loader
        self._served = served

    def __iter__(self) -> Any:
        number = 0
        for number, batch in enumerate(self._loader, 1):  # noqa: B007 -- the last is what counts
            yield batch
        self._served.append(number)


def test_a_wrong_batch_is_seen(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(self: Filled, index: int) -> torch.Tensor:
        return torch.full(self.shape, float((index + 1) % 251))

    monkeypatch.setattr(Filled, "__getitem__", off_by_one)
    loading = Loading({**SMALL, "loader": {"batch_size": 3, "num_workers": 0}}, rig)
    assert not loading.block("plain")["ok"]


OPTIONS = {"batch_size": 32, "num_workers": 4, "prefetch_factor": 2, "persistent_workers": True}


def test_options_stay_where_there_is_room() -> None:
    assert fitting(OPTIONS, 600_000, 24 << 30) == OPTIONS
    assert fitting(OPTIONS, 600_000, None) == OPTIONS


def test_batches_get_smaller_where_there_is_little() -> None:
    # Docker's 64 MiB: ten batches under way, half of the room.
    found = fitting(OPTIONS, 600_000, 64 << 20)
    assert found["num_workers"] == 4
    assert found["batch_size"] == 5
    assert 10 * found["batch_size"] * 600_000 <= 32 << 20


def test_no_workers_where_there_is_hardly_any() -> None:
    assert fitting(OPTIONS, 600_000, 1 << 20) == {"batch_size": 1, "num_workers": 0}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names threads where others can read it")
def test_seconds_of_a_thread_by_name() -> None:
    if not hasattr(torch.multiprocessing, "_set_thread_name"):
        pytest.skip("this torch does not name threads")
    busy, done = threading.Event(), threading.Event()

    def work() -> None:
        torch.multiprocessing._set_thread_name("dl_busy")
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass
        busy.set()
        done.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert busy.wait(20)
        assert (thread_seconds("dl_busy") or 0.0) >= 0.05
        assert thread_seconds("dl_idle") is None
    finally:
        done.set()
        thread.join()
