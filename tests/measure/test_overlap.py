"""Transfers: every arm gives the device the right bytes, and a wrong one is seen."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from dlcheck_worker import gpu
from dlcheck_worker.copies import Bandwidth
from dlcheck_worker.device import CpuBackend
from dlcheck_worker.experiment import Experiment
from dlcheck_worker.overlap import ARMS, CONTROL, Overlap
from dlcheck_worker.rig import Rig

from devices import CountingBackend, LateBackend

SMALL: dict[str, Any] = {"bytes": 4096, "buffers": 3, "steps": 7, "block_s": 0.0, "warm_s": 0.0, "phi": 1.0}
TINY: dict[str, dict[str, Any]] = {
    "bandwidth": {"bytes": 4096, "area": 1 << 16, "block_s": 0.001},
    "transfer": SMALL,
    "sync": {"kernels": 3, "block_s": 0.0, "warm_s": 0.0, "most": 1 << 12, "steps": 5},
    "empty-cache": {"sizes": [4096, 8192], "block_s": 0.0, "steps": 4, "warm_s": 0.0},
    "small-copies": {"samples": 3, "tensors": 2, "floats": 16, "block_s": 0.0, "steps": 4, "warm_s": 0.0},
    "making": {"number": 64, "block_s": 0.0, "steps": 4, "warm_s": 0.0},
}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig(CpuBackend())


@pytest.fixture
def late() -> Rig:
    return Rig(LateBackend())


@pytest.fixture(params=TINY)
def experiment(request: pytest.FixtureRequest, rig: Rig) -> Experiment:
    return gpu.experiment(request.param, TINY[request.param], rig.backend, rig)


def test_every_arm_reads_the_right_bytes(experiment: Experiment) -> None:
    for name in experiment.arms:
        block = experiment.block(name)
        assert block["ok"], (name, block)
        assert block["t"] > 0
        assert json.loads(json.dumps(block)) == block


def test_nothing_is_decided_without_what_it_needs(experiment: Experiment) -> None:
    assert experiment.missing()
    facts = json.loads(json.dumps(experiment.facts()))
    assert facts["missing"] == experiment.missing()


def test_a_device_that_has_all_decides(late: Rig) -> None:
    assert Overlap(SMALL, late).missing() == []


@pytest.mark.parametrize("name", TINY)
def test_one_wait_at_the_end_of_each_block(name: str) -> None:
    # One sync in one of the arms only is how pinned memory once came out slower than it is.
    backend = CountingBackend()
    experiment = gpu.experiment(name, TINY[name], backend)
    for arm in experiment.arms.values():
        experiment.prepare(arm, 6)
        before = backend.waits
        experiment.timed(arm, 6)
        assert backend.waits - before == 1


def test_a_wrong_byte_is_seen(rig: Rig) -> None:
    overlap = Overlap({**SMALL, "bytes": 2048}, rig)
    batches = rig.batches(2048, 3, False)
    assert overlap.block("pageable")["ok"]
    batches[1][-1] = 99.0
    block = overlap.block("pageable")
    assert not block["ok"]
    assert block["sum"] != block["expected"]


def test_a_wrong_byte_of_a_plain_copy_is_seen(rig: Rig) -> None:
    bandwidth = Bandwidth(TINY["bandwidth"], rig)
    arm = bandwidth.arms["pageable"]
    bandwidth.prepare(arm, 4)
    bandwidth.timed(arm, 4)
    assert bandwidth.check(arm, 4)["ok"]
    bandwidth.target[-1] += 1
    assert not bandwidth.check(arm, 4)["ok"]


def test_no_number_is_no_agreement(rig: Rig) -> None:
    overlap = Overlap({**SMALL, "bytes": 1024}, rig)
    rig.batches(1024, 3, False)[0][0] = float("nan")
    assert not overlap.block("pageable")["ok"]


def test_the_negative_control_fails_where_copies_are_late(late: Rig) -> None:
    overlap = Overlap({**SMALL, "arms": {**ARMS, "control": CONTROL}}, late)
    assert all(overlap.block(name)["ok"] for name in ARMS)
    assert not overlap.block("control")["ok"]


def test_bytes_of_the_last_block_do_not_help_the_control(late: Rig) -> None:
    overlap = Overlap({**SMALL, "buffers": 1, "arms": {"side": ARMS["pinned_nb_side"], "control": CONTROL}}, late)
    for _ in range(3):
        assert overlap.block("side")["ok"]
        assert not overlap.block("control")["ok"]


def test_memory_of_a_block_holds_what_no_batch_does(late: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a GPU the allocator hands out what the last block left; all that a side stream may be given is filled anew.
    overlap = Overlap(SMALL, late)
    scrubbed = []
    monkeypatch.setattr(late, "scrub", lambda shape, dtype, number, side: scrubbed.append((number, side)))
    steps = overlap.block("pinned_nb_side")["steps"]
    overlap.block("pinned_nb")
    (first, aside), (second, beside) = scrubbed
    assert (first > steps, aside) == (True, True)
    assert (second > 1, beside) == (True, False)


def test_the_control_cannot_fail_on_the_host(rig: Rig) -> None:
    overlap = Overlap({**SMALL, "arms": {"control": CONTROL}}, rig)
    assert overlap.block("control")["ok"]
    assert "a device that copies and computes while the host goes on" in overlap.missing()


def test_memory_of_the_side_stream_is_kept_for_each_batch(late: Rig) -> None:
    overlap = Overlap(SMALL, late)
    before = late.backend.kept
    steps = overlap.block("pinned_nb_side")["steps"]
    assert late.backend.kept - before == steps


def test_streams_are_made_once() -> None:
    backend = CountingBackend()
    overlap = Overlap(SMALL, Rig(backend))
    for _ in range(3):
        overlap.block("pinned_nb_side")
    assert backend.streams == 1


def test_an_arm_is_its_settings_and_not_its_name(rig: Rig) -> None:
    arms = {"No pin_memory": {}, "plain": {"pinned": True, "non_blocking": True}}
    overlap = Overlap({**SMALL, "arms": arms}, rig)
    assert not overlap.arms["No pin_memory"].pinned
    assert overlap.arms["plain"].pinned


def test_settings_that_do_not_exist_are_refused(rig: Rig) -> None:
    with pytest.raises(ValueError, match="arm `B`: no setting nonblocking; there are"):
        Overlap({**SMALL, "arms": {"B": {"nonblocking": True}}}, rig)


def test_experiments_that_do_not_exist_are_refused(rig: Rig) -> None:
    with pytest.raises(ValueError, match="no experiment `warp`"):
        gpu.experiment("warp", {}, rig.backend, rig)


def test_a_worker_asks_by_its_first_line() -> None:
    request = {"experiment": "transfer", "device": "cpu", "config": SMALL, "arms": {"A": {}, "B": {"pinned": True}}}
    experiment = gpu.source(request)
    assert list(experiment.arms) == ["A", "B"]
    experiment.add("C", {"pinned": True, "non_blocking": True})
    assert experiment.block("C")["ok"]


def test_work_is_as_long_as_asked(rig: Rig) -> None:
    overlap = Overlap({**SMALL, "compute_s": 100 * rig.compute.per_s, "host_of_compute": 1.2}, rig)
    terms = overlap.facts()["terms"]
    assert overlap.repetitions == 100
    assert terms["compute"] == pytest.approx(100 * rig.compute.per_s)
    assert terms["host"] == pytest.approx(1.2 * terms["compute"])
    assert overlap.block("pageable")["t"] >= terms["host"]


def test_blocks_are_long_enough(rig: Rig) -> None:
    overlap = Overlap({**SMALL, "compute_s": 0.01, "host_s": 0.0, "block_s": 5.0}, rig)
    arm = overlap.arms["pageable"]
    assert overlap.expected_s(arm) >= overlap.compute_s
    assert overlap.steps(arm) == max(7, round(5.0 / overlap.expected_s(arm)))


def test_a_side_stream_takes_no_more_memory_than_there_is(late: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    overlap = Overlap({**SMALL, "steps": 500}, late)
    monkeypatch.setattr(late.backend, "free_bytes", lambda: 100 * overlap.size)
    assert overlap.steps(overlap.arms["pinned_nb_side"]) == 25
    assert overlap.steps(overlap.arms["pinned_nb"]) == 500


def test_sources_of_copies_are_spread_over_the_area(rig: Rig) -> None:
    bandwidth = Bandwidth({"bytes": 4096, "area": 1 << 20}, rig)
    bandwidth.prepare(bandwidth.arms["pageable"], 8)
    starts = {source.data_ptr() for source in bandwidth._sources}
    assert len(starts) == 8
    assert max(starts) - min(starts) > (1 << 19)
    assert len({tuple(source[:8].tolist()) for source in bandwidth._sources}) == 8


def test_all_ways_of_moving_samples_end_with_the_same_tensors(rig: Rig) -> None:
    moving: Any = gpu.experiment("small-copies", TINY["small-copies"], rig.backend, rig)
    by_sample, *others = [moving.batch(arm) for arm in moving.arms.values()]
    assert len(by_sample) == 2
    for other in others:
        assert all(torch.equal(one, same) for one, same in zip(by_sample, other, strict=True))


@pytest.mark.parametrize("make", ["tensor", "arange"])
def test_both_ways_of_making_give_the_same(rig: Rig, make: str) -> None:
    making: Any = gpu.experiment("making", {**TINY["making"], "make": make}, rig.backend, rig)
    assert torch.equal(making.made(torch.device("cpu")), torch.arange(64.0))
    assert {making.block(arm)["sum"] for arm in making.arms} == {4 * 63.0}


def test_ways_that_do_not_exist_are_refused(rig: Rig) -> None:
    with pytest.raises(ValueError, match="no grain `byte`"):
        gpu.experiment("small-copies", {"arms": {"A": {"grain": "byte"}}}, rig.backend, rig)
    with pytest.raises(ValueError, match="no way to make a tensor `magic`"):
        gpu.experiment("making", {"make": "magic"}, rig.backend, rig)
