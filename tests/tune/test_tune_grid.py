"""What is tried on a machine, and what is not: each limit removes what cannot fit, and is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcheck.advise.tuning import grid
from dlcheck.advise.tuning.bounds import Bounds, Taken, bounds, passed
from dlcheck.advise.tuning.grid import NO_DEVICE, Data, Machine, Wanted
from dlcheck.advise.tuning.setting import Setting, made, present
from dlcheck.measure.machine import System

GB = 1 << 30
MACHINE = Machine(cores=8, memory=32 * GB, shm=16 * GB)
DATA = Data(batch_bytes=4 << 20, batches=500)
NOW = Setting(0)


def of(
    wanted: Wanted | None = None, machine: Machine = MACHINE, data: Data = DATA, now: Setting = NOW, **more: bool
) -> grid.Grid:
    return grid.grid(wanted or Wanted(), machine, data, now, "fork", **more)


def workers(found: grid.Grid) -> list[int]:
    return sorted({one.workers for one in found.settings})


def test_cores_decide_how_many_workers_are_tried() -> None:
    assert workers(of()) == [0, 1, 2, 3, 4, 6, 8, 12]
    assert workers(of(machine=replace(MACHINE, cores=2))) == [0, 1, 2, 3]
    assert workers(of(machine=replace(MACHINE, cores=0.5))) == [0, 1]


def test_who_waits_for_a_network_may_have_more_workers_than_cores() -> None:
    waits = replace(DATA, cpu_s=0.001, wait_s=0.003)
    assert max(workers(of(data=waits, machine=replace(MACHINE, cores=2)))) == 12
    assert max(workers(of(data=waits))) == 48


def test_what_a_formula_asks_for_is_tried() -> None:
    assert workers(of(data=replace(DATA, advised=7))) == [0, 1, 2, 3, 4, 6, 7, 8, 12]
    assert max(workers(of(data=replace(DATA, advised=40)))) == 40
    assert max(workers(of(data=replace(DATA, advised=4000)))) == 12


def test_what_it_has_now_is_tried_whatever_the_limits() -> None:
    now = made(40, 16, False, method="fork")
    tight = replace(MACHINE, shm=1 << 20)
    assert now in of(machine=tight, now=now).settings


def test_asked_for_is_tried() -> None:
    found = of(Wanted(workers=(0, 5), prefetch=(3,)), now=made(5, 3, False, method="fork"))
    assert [one.short for one in found.settings] == ["no workers", "5 workers, prefetch 3"]


def test_pin_needs_a_device_and_a_line_says_so() -> None:
    assert NO_DEVICE in of().removed
    assert not any(one.pin for one in of().settings)
    both = of(machine=replace(MACHINE, device=True))
    assert {one.pin for one in both.settings} == {False, True}
    assert both.removed == ()
    assert {one.pin for one in of(Wanted(pin="on"), replace(MACHINE, device=True)).settings if one != NOW} == {True}
    assert of(Wanted(pin="off"), replace(MACHINE, device=True)).removed == ()


@pytest.mark.parametrize(
    ("machine", "data", "name"),
    [
        (replace(MACHINE, shm=64 << 20), DATA, "/dev/shm"),
        (replace(MACHINE, memory=200 << 20), DATA, "memory"),
        (MACHINE, replace(DATA, batches=5), "the length of an epoch"),
        (replace(MACHINE, shm=256 << 20, ranks=8), DATA, "on each of 8 ranks"),
    ],
)
def test_limits_remove_and_say_so(machine: Machine, data: Data, name: str) -> None:
    found = of(Wanted(workers=(0, 2, 8)), machine, data)
    assert any("removed by" in line and name in line for line in found.removed)
    assert 8 not in workers(found)
    assert 0 in workers(found)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 96),
    st.integers(1 << 20, 64 * GB),
    st.integers(0, 64 * GB),
    st.integers(1, 1 << 28),
    st.integers(1, 8),
)
def test_what_is_left_fits(cores: int, memory: int, shm: int, batch: int, ranks: int) -> None:
    found = of(machine=Machine(cores, memory, shm, ranks, True), data=Data(batch, 1000))
    assert NOW in found.settings
    for one in found.settings:
        assert one.ahead * batch * ranks <= shm
        assert one.workers * grid.WORKER[one.method or "fork"] * ranks <= memory
    assert list(found.settings) == sorted(found.settings, key=lambda one: one.cost)


def test_a_full_grid_has_all_starts() -> None:
    found = of(Wanted(workers=(0, 1), prefetch=(2,), methods=("fork", "spawn")), full=True)
    assert {(one.method, one.persistent) for one in found.settings if one.workers} == {
        ("fork", False), ("fork", True), ("spawn", False), ("spawn", True),
    }  # fmt: skip


def test_methods_begin_with_that_of_now() -> None:
    assert grid.methods(Wanted(), ("fork", "spawn", "forkserver"), "spawn") == ["spawn", "fork", "forkserver"]
    assert grid.methods(Wanted(methods=("fork",)), ("fork", "spawn"), "spawn") == ["fork"]
    with pytest.raises(ValueError, match="`fork` is no start method of this system"):
        grid.methods(Wanted(methods=("fork",)), ("spawn",), "spawn")


# Settings


def test_options_are_what_a_loader_takes() -> None:
    assert made(2, None, True, True, "spawn").options == {
        "num_workers": 2,
        "prefetch_factor": 2,
        "pin_memory": True,
        "persistent_workers": True,
        "multiprocessing_context": "spawn",
    }
    none = made(0, 4, False, True, "spawn")
    assert none == Setting(0)
    assert none.options["multiprocessing_context"] is None


def test_what_a_loader_has_is_read() -> None:
    options = {"num_workers": 3, "prefetch_factor": None, "pin_memory": True, "persistent_workers": True}
    assert present({**options, "start_method": None}, "fork") == Setting(3, 2, True, True, "fork")
    assert present({"num_workers": 0}, "fork") == Setting(0)


def test_code_names_a_start_method_only_where_it_changes() -> None:
    one = made(2, 2, False, True, "fork")
    assert "multiprocessing_context" not in one.as_code(one)
    assert 'multiprocessing_context="fork"' in one.as_code(made(1, 2, False, False, "spawn"))


# Bounds


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        (Taken(3 * GB, 10 * GB, GB), "it took 3.22 GB of memory, and 2.15 GB are allowed"),
        (Taken(GB, GB // 4, GB), "only 0.27 GB of the machine's memory"),
        (Taken(GB, 10 * GB, 1 << 20), "only 1.0 MB of /dev/shm"),
        (Taken(GB, 10 * GB, GB), ""),
        (Taken(GB, None, None), ""),
    ],
)
def test_bounds(taken: Taken, said: str) -> None:
    found = passed(Bounds(memory=2 * GB, spare=GB // 2, shm=64 << 20), taken)
    assert said in found
    assert bool(said) == bool(found)


def test_what_is_unknown_is_no_bound() -> None:
    assert passed(Bounds(), Taken(1 << 50, 0, 0)) == ""


def test_ranks_share_a_machine() -> None:
    one, two = bounds(System(), 1), bounds(System(), 2)
    assert one.memory is None or two.memory is None or one.memory > 1.5 * two.memory
    assert bounds(System(), 1, 1 << 20).memory == 1 << 20
