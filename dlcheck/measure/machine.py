"""What this machine can do, and how much of it is free: read from the system, nothing set."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from dlcheck.measure.identity import identity
from dlcheck.measure.record import Fact, Guard
from dlcheck.system import System

__all__ = ["Pressure", "System", "cache_guard", "capacity_guard", "facts", "free_capacity", "settle"]

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
        "world": int(ranks.value) if (ranks := system.ranks()) else 1,
    }


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
