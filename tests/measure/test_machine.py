"""What is read of a machine, on recorded trees of others; and the probe, on this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlcheck.measure import machine
from dlcheck.measure.machine import System

Tree = dict[str, str]

V2 = {
    "proc/self/cgroup": "0::/kubepods/pod1/box",
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-7\n",
    "sys/fs/cgroup/kubepods/pod1/box/cpu.max": "max 100000",
    "sys/fs/cgroup/kubepods/pod1/cpu.max": "350000 100000",
    "sys/fs/cgroup/kubepods/cpu.max": "800000 100000",
    "sys/fs/cgroup/kubepods/pod1/box/memory.max": "2147483648",
    "sys/fs/cgroup/kubepods/pod1/box/cpu.stat": "usage_usec 5\nnr_periods 10\nnr_throttled 7\n",
    "proc/meminfo": "MemTotal: 99 kB\nMemAvailable:    16777216 kB\n",
    "proc/pressure/cpu": "some avg10=1.00 avg60=0.50 avg300=0.10 total=123456\nfull avg10=0.00 total=1\n",
}
V1 = {
    "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc",
    "proc/self/status": "Cpus_allowed_list:\t0-3\n",
    "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "150000",
    "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "1073741824",
    "proc/meminfo": "MemAvailable: 4194304 kB\n",
}
BARE = {
    "proc/self/cgroup": "0::/",
    "proc/self/status": "Cpus_allowed_list:\t0,2,4-5\n",
    "proc/meminfo": "MemAvailable: 1024 kB\n",
}
UNLIMITED_V1 = {**V1, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "9223372036854771712"}  # fmt: skip


def siblings(pairs: dict[int, str]) -> Tree:
    return {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": text for cpu, text in pairs.items()}


def system(folder: Path, tree: Tree) -> System:
    for name, text in tree.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return System(str(folder))


@pytest.mark.parametrize(
    ("tree", "cores", "quota", "usable", "memory"),
    [
        (V2, 8, 3.5, 3.5, 2 << 30),
        (V1, 4, 1.5, 1.5, 1 << 30),
        (UNLIMITED_V1, 4, None, 4, 4 << 30),
        (BARE, 4, None, 4, 1 << 20),
        ({**V2, **siblings({cpu: f"{cpu % 2}" for cpu in range(8)})}, 8, 3.5, 2, 2 << 30),
    ],
    ids=["cgroup v2", "cgroup v1", "no limit", "bare", "two threads a core"],
)
def test_limits_are_found_where_the_kernel_tells_them(
    tree: Tree, cores: int, quota: float | None, usable: float, memory: int, tmp_path: Path
) -> None:
    found = system(tmp_path, tree)
    assert len(found.affinity()) == cores
    assert found.quota() == quota
    assert found.usable_cores() == usable
    assert found.available_memory() == memory


def test_pressure_and_throttling(tmp_path: Path) -> None:
    found = system(tmp_path, V2)
    assert (found.pressure(), found.throttled()) == (123456, 7)
    (tmp_path / "proc/pressure/cpu").write_text("some avg10=1.00 total=623456\n")
    assert found.pressure() == 623456


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    found = system(tmp_path, {})
    assert (found.pressure(), found.throttled(), found.quota(), found.available_memory()) == (None, 0, None, None)
    assert found.usable_cores() >= 1
    assert machine.Pressure(found).share() is None
    assert machine.settle(found).status == "skipped"


def test_facts_of_this_machine() -> None:
    found = machine.facts()
    assert 1 <= found["usable_cores"] <= found["affinity"] <= (os.cpu_count() or 1)
    assert found["identity"]["cores"] == os.cpu_count()
    assert found["world"] == 1


@pytest.mark.slow
def test_two_processes_do_not_do_the_work_of_five() -> None:
    free = machine.free_capacity(2, 0.2)
    assert 0.2 < free < 5


@pytest.mark.parametrize(("free", "usable", "status"), [(1.9, 2, "pass"), (1.0, 2, "fail"), (6.5, 8, "pass")])
def test_less_than_four_fifths_is_too_little(free: float, usable: int, status: str) -> None:
    guard = machine.capacity_guard(free, usable, "before")
    assert (guard.name, guard.status) == ("capacity-before", status)
    assert f"{free:.2f} of {usable}" in guard.detail
