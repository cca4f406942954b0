"""Steps that wait, and steps that empty the cache: all arms do the same arithmetic, and differ in nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from dlcheck_worker.device import CpuBackend
from dlcheck_worker.rig import Rig
from dlcheck_worker.steps import Releases, Syncs, sized

from devices import CountingBackend

SMALL: dict[str, Any] = {"kernels": 3, "block_s": 0.0, "warm_s": 0.0, "most": 1 << 12, "steps": 6}
KINDS = {kind: {"sync": kind, "every": 1} for kind in ("item", "print", "cpu", "synchronize")}
ARMS = {**KINDS, "none": {"sync": "none", "every": 0}, "interval": {"sync": "item", "every": 4}}


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig(CpuBackend())


def test_all_arms_add_up_the_same(rig: Rig) -> None:
    syncs = Syncs({**SMALL, "arms": ARMS}, rig)
    blocks = {name: syncs.block(name) for name in ARMS}
    assert all(block["ok"] for block in blocks.values())
    # Eight steps: six, made a multiple of the interval; the loss of step i is 3 i.
    assert {block["steps"] for block in blocks.values()} == {8}
    assert {block["sum"] for block in blocks.values()} == {3.0 * 36}


def test_what_the_host_was_told_is_checked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs({**SMALL, "arms": ARMS}, rig)
    monkeypatch.setattr(syncs, "_look", lambda kind, loss, sink: 0.0)
    assert not syncs.block("item")["ok"]
    assert not syncs.block("interval")["ok"]
    assert syncs.block("none")["ok"]


def test_a_wrong_sum_on_the_device_is_seen(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs({**SMALL, "arms": ARMS}, rig)
    monkeypatch.setattr(syncs, "prepare", lambda arm, steps: None)  # the values of the last block stay
    syncs.values.fill_(1.0)
    syncs._looked = 0.0
    assert not syncs.block("none")["ok"]


def test_only_the_arm_that_synchronizes_waits_in_its_block() -> None:
    backend = CountingBackend()
    syncs = Syncs({**SMALL, "arms": ARMS}, Rig(backend))
    waits = {}
    for name, arm in syncs.arms.items():
        syncs.prepare(arm, 6)
        before = backend.waits
        syncs.timed(arm, 6)
        waits[name] = backend.waits - before
    assert waits == {**dict.fromkeys(ARMS, 1), "synchronize": 7}


def test_kernels_are_sized_by_their_time(rig: Rig) -> None:
    values, taken = sized(rig, 5e-3, most=1 << 24)
    smaller, shorter = sized(rig, 1e-9, most=1 << 24)
    assert smaller.numel() <= 1 << 11
    assert values.numel() > smaller.numel()
    assert taken > shorter


def test_ways_to_wait_that_do_not_exist_are_refused(rig: Rig) -> None:
    with pytest.raises(ValueError, match="no way to wait `glance`"):
        Syncs({**SMALL, "arms": {"A": {"sync": "glance"}}}, rig)
    with pytest.raises(ValueError, match="number of steps"):
        Syncs({**SMALL, "arms": {"A": {"every": -1}}}, rig)


class Emptied(CpuBackend):
    """Counts as a GPU's allocator does: each emptying frees all that a step allocated, which comes again."""

    def __init__(self) -> None:
        super().__init__()
        self.freed = 0

    def empty_cache(self) -> None:
        self.freed += 2

    def allocations(self) -> dict[str, int]:
        return {"allocated": self.freed, "freed": self.freed, "reserved": 0, "peak": 1 << 20}


def test_emptying_is_counted_and_changes_no_sum() -> None:
    releases = Releases({"sizes": [4096, 8192], "steps": 5, "block_s": 0.0, "warm_s": 0.0}, Rig(Emptied()))
    keeps, empties = releases.block("keeps"), releases.block("empties")
    assert keeps["sum"] == empties["sum"] == 2 * (0 + 1 + 2 + 3 + 4)
    assert keeps["ok"]
    assert empties["ok"]
    assert (keeps["freed"], empties["freed"], empties["allocated"]) == (0, 2, 2)
