"""Loops and step model against each other, in a world that has no noise and no opinion."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dlcheck_worker import compute, detours, overlap, steps, transfer
from dlcheck_worker.compute import Compute
from dlcheck_worker.detours import Casts, Clocks, Constants
from dlcheck_worker.overlap import ARMS, Overlap
from dlcheck_worker.rig import Rig
from dlcheck_worker.steps import Syncs

from devices import VirtualBackend, VirtualClock
from dlcheck.measure import stepmodel

LAUNCH, KERNEL = 2e-6, 25e-6


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    clock = VirtualClock()
    for module in (compute, detours, overlap, steps, transfer):
        monkeypatch.setattr(module, "now", clock)
    for module in (detours, overlap, steps):
        monkeypatch.setattr(module, "spin", clock.spin)
    return clock


@pytest.fixture
def rig(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Rig:
    backend = VirtualBackend(clock, copy=1.2e-3, pageable=6e-3, pin=5e-3)
    monkeypatch.setattr(Compute, "run", lambda self, number: backend.kernels(number, LAUNCH, KERNEL))
    return Rig(backend)


def test_work_is_calibrated(rig: Rig) -> None:
    assert rig.compute.settled
    assert rig.compute.per_s == pytest.approx(KERNEL, rel=0.01)
    assert rig.compute.launch_s == pytest.approx(LAUNCH, rel=0.05)


@pytest.mark.parametrize("host", [0.0, 0.5, 1.2])
@pytest.mark.parametrize("phi", [0.25, 1.0, 4.0])
def test_transfers_take_what_the_model_says(rig: Rig, phi: float, host: float) -> None:
    config = {"bytes": 64, "buffers": 4, "steps": 150, "block_s": 0.0, "phi": phi, "host_of_compute": host}
    found = Overlap(config, rig)
    terms = stepmodel.Terms.of(found.facts()["terms"])
    assert (terms.copy, terms.pageable, terms.pin) == pytest.approx((1.2e-3, 6e-3, 5e-3), rel=0.01)
    assert terms.compute == pytest.approx(phi * 1.2e-3, rel=0.05)
    for name, arm in ARMS.items():
        block = found.block(name)
        assert block["ok"]
        predicted = stepmodel.predicted(terms, stepmodel.Transfer.of(arm))
        assert block["t"] == pytest.approx(predicted, rel=0.03), name
        assert not stepmodel.is_impossible(block["t"], stepmodel.least(terms))


def test_copies_and_work_are_told_apart(rig: Rig) -> None:
    found = Overlap({"bytes": 64, "buffers": 4, "steps": 50, "block_s": 0.0, "phi": 2.0}, rig)
    for name in ("pinned_nb", "pinned_nb_side"):
        block = found.block(name)
        assert block["copy"] == pytest.approx(1.2e-3, rel=0.02)
        assert block["compute"] == pytest.approx(2.4e-3, rel=0.02)
        assert block["blocked"] < 1e-4
    assert found.block("pageable")["blocked"] > 6e-3


def small_kernels(rig: Rig, monkeypatch: pytest.MonkeyPatch, ratio: float) -> Any:
    """The device, whose small kernels take so many times their launch."""
    backend: Any = rig.backend

    def one(values: torch.Tensor) -> None:
        values.data.add_(1.0)
        backend.kernels(1, 5e-6, ratio * 5e-6)

    monkeypatch.setattr(steps, "add_one", one)
    monkeypatch.setattr(steps, "sized", lambda rig, target, most: (torch.zeros(4), ratio * 5e-6))
    return backend


# Seconds of a kernel against those of its launch.
@pytest.mark.parametrize("ratio", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("host", [0.0, 1.0])
def test_waits_take_what_the_model_says(
    rig: Rig, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, ratio: float, host: float
) -> None:
    backend = small_kernels(rig, monkeypatch, ratio)

    def look(kind: str, loss: torch.Tensor, sink: Any) -> float:
        backend.sync()
        return loss.item() if kind == "item" else 0.0

    config = {"kernels": 50, "compute_of_launch": ratio, "host_of_step": host, "steps": 100, "block_s": 0.0}
    syncs = Syncs(config, rig)
    monkeypatch.setattr(syncs, "_look", look)
    terms = stepmodel.SyncTerms.of({**syncs.facts()["terms"], "sync": 0.0})
    for name, arm in syncs.arms.items():
        block = syncs.block(name)
        assert block["ok"]
        every = arm.every if arm.sync == "item" else 0
        assert block["t"] == pytest.approx(stepmodel.synced(terms, every), rel=0.05), name


@pytest.mark.parametrize("ratio", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("host", [0.0, 1.0])
def test_a_constant_costs_what_the_model_says(
    rig: Rig, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, ratio: float, host: float
) -> None:
    small_kernels(rig, monkeypatch, ratio).pageable = 2e-5

    def made(self: Constants) -> torch.Tensor:
        clock.spin(1e-5)
        return torch.tensor(self.VALUES).view(3, 1, 1)

    monkeypatch.setattr(Constants, "_made", made)
    config = {"kernels": 50, "compute_of_launch": ratio, "host_of_step": host, "steps": 100, "block_s": 0.0}
    constants = Constants(config, rig)
    terms = {**constants.facts()["terms"], "sync": 0.0}
    assert (terms["making"], terms["moving"]) == pytest.approx((1e-5, 2e-5), rel=0.05)
    for name, arm in constants.default_arms.items():
        block = constants.block(name)
        assert block["ok"]
        assert block["t"] == pytest.approx(stepmodel.of_arm("constants", terms, arm), rel=0.05), name


@pytest.mark.parametrize("phi", [0.5, 20.0])
def test_casts_take_what_the_model_says(
    rig: Rig, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, phi: float
) -> None:
    def floats(self: Casts, batch: torch.Tensor) -> torch.Tensor:
        clock.spin(8e-3)
        return batch.float()

    monkeypatch.setattr(Casts, "_floats", floats)
    casts = Casts({"bytes": 64, "phi": phi, "steps": 50, "block_s": 0.0}, rig)
    terms = casts.facts()["terms"]
    assert terms["cast"] == pytest.approx(8e-3, rel=0.01)
    for name, arm in casts.default_arms.items():
        block = casts.block(name)
        assert block["ok"]
        assert block["t"] == pytest.approx(stepmodel.of_arm("casts", terms, arm), rel=0.03), name


def test_a_clock_that_does_not_wait_misses_the_work(rig: Rig) -> None:
    clocks = Clocks({"work_s": 5e-3, "steps": 10}, rig)
    at_once, waits = clocks.block("at_once"), clocks.block("waits")
    assert at_once["ok"]
    assert waits["ok"]
    assert at_once["t"] == pytest.approx(5e-3 * (1 - LAUNCH / KERNEL), rel=0.02)
    assert waits["shown"] == pytest.approx(5e-3, rel=0.02)
    assert waits["t"] < 1e-5
