"""Constants, casts and clocks: arms that give the same sums, and sums that show what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dlcheck_worker import gpu
from dlcheck_worker.detours import Casts, Clocks, Constants
from dlcheck_worker.device import CpuBackend
from dlcheck_worker.rig import Rig

from devices import CountingBackend

SHORT: dict[str, Any] = {"block_s": 0.0, "warm_s": 0.0, "steps": 6}
KERNELS = {**SHORT, "kernels": 3, "most": 1 << 12}
SMALL = {"constants": KERNELS, "casts": {**SHORT, "bytes": 4096}, "clocks": {**SHORT, "work_s": 1e-4}}
SUMS = {"constants": 3.0 * 21 + 4.0 * 6, "casts": 2.0 * (1 + 2 + 3 + 4 + 1 + 2), "clocks": 6.0}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig(CpuBackend())


@pytest.mark.parametrize("name", SMALL)
def test_all_arms_add_up_the_same(rig: Rig, name: str) -> None:
    experiment = gpu.experiment(name, SMALL[name], rig.backend, rig)
    blocks = {arm: experiment.block(arm) for arm in experiment.arms}
    assert all(block["ok"] for block in blocks.values())
    assert {block["sum"] for block in blocks.values()} == {SUMS[name]}
    assert all(block["t"] > 0 for block in blocks.values())


@pytest.mark.parametrize("name", SMALL)
def test_the_host_lacks_what_decides(rig: Rig, name: str) -> None:
    assert gpu.experiment(name, SMALL[name], rig.backend, rig).facts()["missing"]


def test_another_constant_is_seen(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = Constants(KERNELS, rig)
    monkeypatch.setattr(constants, "_made", lambda: torch.zeros(3, 1, 1))
    assert not constants.block("each")["ok"]


def test_only_what_is_made_anew_is_moved_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []

    class Moving(CpuBackend):
        def h2d(self, tensor: torch.Tensor, non_blocking: bool) -> torch.Tensor:
            moved.append(tensor.numel())
            return super().h2d(tensor, non_blocking)

    constants = Constants(KERNELS, Rig(Moving()))
    counts = {}
    for name in ("each", "once"):
        moved.clear()
        constants.block(name)
        counts[name] = moved.count(3)
    assert counts == {"each": 6, "once": 1}


def test_bytes_cross_or_four_times_as_many(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    casts = Casts(SMALL["casts"], rig)
    crossed: list[int] = []
    h2d = rig.backend.h2d

    def copied(tensor: torch.Tensor, non_blocking: bool) -> Any:
        crossed.append(tensor.numel() * tensor.element_size())
        return h2d(tensor, non_blocking)

    monkeypatch.setattr(rig.backend, "h2d", copied)
    sizes = {}
    for name in ("host", "device"):
        crossed.clear()
        casts.block(name)
        sizes[name] = set(crossed)
    assert sizes == {"host": {4 * 4096}, "device": {4096}}


def test_bytes_that_arrive_wrong_are_seen(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    casts = Casts(SMALL["casts"], rig)
    monkeypatch.setattr(rig.backend, "h2d", lambda tensor, non_blocking: torch.zeros_like(tensor))
    assert not casts.block("device")["ok"]
    assert not casts.block("host")["ok"]


def test_only_one_clock_waits_before_it_is_read() -> None:
    backend = CountingBackend()
    clocks = Clocks(SMALL["clocks"], Rig(backend))
    waits = {}
    for name, arm in clocks.arms.items():
        before = backend.waits
        clocks.timed(arm, 6)
        waits[name] = backend.waits - before
    assert waits == {"at_once": 12, "waits": 18}
