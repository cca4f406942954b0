"""What this machine can do, and how much of it is free: read from the system, nothing set.

Every file is read below a root, so that recorded trees of other machines can stand in for this one.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dlcheck.measure.identity import identity
from dlcheck.measure.record import Fact, Guard

FREE_ENOUGH = 0.8  # of the usable cores: with less, what workers gain is what the neighbours leave
PRESSURE_LIMIT = 0.10  # of the time somebody waits for a CPU
SETTLE_S = 20.0
WARM = 0.95  # of the pages: as good as all
_PROBE_S = 0.3
_PROBE = """
import hashlib, sys, time
sys.stdin.readline()
piece, done = bytes(65536), 0
start = time.perf_counter()
while time.perf_counter() - start < {seconds}:
    hashlib.sha256(piece).digest()
    done += 1
print(done / (time.perf_counter() - start))
"""


@dataclass(frozen=True)
class System:
    """The files of a system; ``root`` is another folder in tests."""

    root: str = "/"

    def read(self, path: str) -> str | None:
        try:
            with open(os.path.join(self.root, path.lstrip("/"))) as stream:
                return stream.read().strip()
        except OSError:
            return None

    # Cores

    def affinity(self) -> set[int]:
        if self.root == "/" and hasattr(os, "sched_getaffinity"):
            return os.sched_getaffinity(0)
        status = self.read("/proc/self/status") or ""
        for line in status.splitlines():
            if line.startswith("Cpus_allowed_list:"):
                return set(_ranges(line.split(":", 1)[1].strip()))
        return set(range(os.cpu_count() or 1))

    def physical_cores(self) -> int | None:
        """Distinct cores among the CPUs that we may run on."""
        siblings = {
            self.read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in self.affinity()
        }
        return None if None in siblings or not siblings else len(siblings)

    def quota(self) -> float | None:
        """Cores that the control group allows: the least on the way to the root."""
        return min(self._quotas(), default=None)

    def _quotas(self) -> Iterator[float]:
        for line in (self.read("/proc/self/cgroup") or "").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                yield from self._quotas_of_v2(path)
            elif "cpu" in controllers.split(","):
                yield from self._quotas_of_v1(controllers, path)

    def _quotas_of_v2(self, path: str) -> Iterator[float]:
        while True:
            words = (self.read(f"/sys/fs/cgroup{path.rstrip('/')}/cpu.max") or "max").split()
            if words[0] != "max" and len(words) == 2:
                yield int(words[0]) / int(words[1])
            if path in ("/", ""):
                return
            path = os.path.dirname(path)

    def _quotas_of_v1(self, controllers: str, path: str) -> Iterator[float]:
        for folder in (f"/sys/fs/cgroup/{controllers}{path}", f"/sys/fs/cgroup/cpu{path}", "/sys/fs/cgroup/cpu"):
            quota, period = (self.read(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
            if quota and period and int(quota) > 0:
                yield int(quota) / int(period)

    def throttled(self) -> int:
        """How often the control group has been stopped for using up its quota."""
        for line in (self.read("/proc/self/cgroup") or "").splitlines():
            number, _, path = line.split(":", 2)
            folder = f"/sys/fs/cgroup{path}" if number == "0" else f"/sys/fs/cgroup/cpu{path}"
            for entry in (self.read(f"{folder}/cpu.stat") or "").splitlines():
                name, _, value = entry.partition(" ")
                if name == "nr_throttled":
                    return int(value)
        return 0

    def usable_cores(self) -> float:
        limits = [len(self.affinity()), self.physical_cores(), self.quota()]
        return min(limit for limit in limits if limit)

    # Memory and load

    def available_memory(self) -> int | None:
        """Bytes that can still be had: of the machine, or of the control group where that has less."""
        lines = (self.read("/proc/meminfo") or "").splitlines()
        limits = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
        for line in (self.read("/proc/self/cgroup") or "").splitlines():
            number, controllers, path = line.split(":", 2)
            names = (f"/sys/fs/cgroup{path}/memory.max",) if number == "0" else ()
            if "memory" in controllers.split(","):
                names = (f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes",)
            limits += [
                int(text) for name in names if (text := self.read(name)) and text.isdigit() and int(text) < 1 << 60
            ]
        return min(limits, default=None)

    def shared_memory(self) -> tuple[int, int] | None:
        """Bytes of /dev/shm: all, and free; None where there is none."""
        if not hasattr(os, "statvfs"):
            return None
        try:
            found = os.statvfs(os.path.join(self.root, "dev/shm"))
        except OSError:
            return None
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def pressure(self) -> int | None:
        """Microseconds so far in which somebody waited for a CPU; None where the kernel does not count them."""
        text = self.read("/proc/pressure/cpu")
        if not text:
            return None
        return int(text.splitlines()[0].rpartition("=")[2])


def _ranges(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def facts(system: System | None = None) -> dict[str, Any]:
    """What a record says of the machine; what is unknown is None."""
    system = system or System()
    shared = system.shared_memory()
    return {
        "identity": identity(),
        "kernel": platform.release(),
        "affinity": len(system.affinity()),
        "physical_cores": system.physical_cores(),
        "quota": system.quota(),
        "usable_cores": system.usable_cores(),
        "available_memory": system.available_memory(),
        "shm_total": shared[0] if shared else None,
        "shm_free": shared[1] if shared else None,
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "world": _world(),
    }


def _world() -> int:
    """Ranks that share this machine, as torchrun says it; one where it says nothing sensible."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(text)) if text.isdigit() else 1


class Pressure:
    """The share of a stretch of time in which somebody waited for a CPU."""

    def __init__(self, system: System | None = None) -> None:
        self._system = system or System()
        self._start = time.perf_counter()
        self._waited = self._system.pressure()

    def share(self) -> float | None:
        waited = self._system.pressure()
        if waited is None or self._waited is None:
            return None
        return (waited - self._waited) / 1e6 / max(1e-9, time.perf_counter() - self._start)


def free_capacity(processes: int, seconds: float = _PROBE_S) -> float:
    """How many cores' worth of work ``processes`` processes get done at once; 1.95 of 2 on a quiet machine.

    The same work alone first, then in all of them: what files say of the machine does not change
    when a neighbour takes half of it, this does.
    """
    alone = _rates(1, seconds)[0]
    together = _rates(processes, seconds)
    return sum(together) / alone


def _rates(number: int, seconds: float) -> list[float]:
    command = [sys.executable, "-I", "-S", "-c", _PROBE.format(seconds=seconds)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(number)
    ]
    # They wait until all of them have started.
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [float(process.communicate()[0]) for process in running]


def settle(system: System | None = None, limit_s: float = SETTLE_S) -> Guard:
    """Wait until others leave the CPUs alone, for some seconds at most."""
    system = system or System()
    if system.pressure() is None:
        return Guard("other-tenants", "skipped", "this system does not tell who waits for a CPU")
    end = time.perf_counter() + limit_s
    while True:
        watch = Pressure(system)
        time.sleep(1.0)
        share = watch.share() or 0.0
        if share < PRESSURE_LIMIT:
            return Guard("other-tenants", "pass", f"somebody waited for a CPU {share:.0%} of a second")
        if time.perf_counter() > end:
            return Guard("other-tenants", "warn", f"somebody waits for a CPU {share:.0%} of the time")


def capacity_guard(free: float, usable: int, when: str) -> Guard:
    enough = free >= FREE_ENOUGH * usable
    return Guard(f"capacity-{when}", "pass" if enough else "fail", f"{free:.2f} of {usable} cores were free {when}")


def cache_guard(workload: Mapping[str, Fact]) -> list[Guard]:
    """Whether all files of the dataset were in memory: of others what is read first waits for the disk."""
    known = workload.get("page_cache")
    if known is None:
        return []
    share = float(known.value["resident"])
    detail = f"{share:.0%} of {known.value['files']} files were in the page cache before"
    return [Guard("page-cache", "pass" if share >= WARM else "warn", detail)]
