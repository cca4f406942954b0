"""What a system says of itself: its cores, memory, shared memory and limits; read, never set.

Every file is read below a root, and what only calls tell is one value beside it, so that recorded trees of other
machines can stand in for this one.  What is not told is None.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

NO_LIMIT = 1 << 60  # bytes: from here on a limit of cgroup v1 is none
UNLIMITED = -1  # of an ``ulimit``, as the C library has it


class Limit(NamedTuple):
    """A limit, and the file that says it."""

    value: float
    source: str


@dataclass(frozen=True)
class Calls:
    """What a system tells when it is called, rather than in files.

    ``affinity``: the CPUs that this process may run on; ``memory`` and ``shared_memory``: bytes, all and free;
    ``open_files`` and ``locked_memory``: soft limits (``UNLIMITED`` where there is none), the latter in bytes.
    """

    platform: str = ""
    cpus: int | None = None
    cores: int | None = None
    affinity: frozenset[int] | None = None
    memory: tuple[int, int] | None = None
    shared_memory: tuple[int, int] | None = None
    open_files: int | None = None
    locked_memory: int | None = None
    environ: Mapping[str, str] = field(default_factory=dict)


def here() -> Calls:
    """What this system tells."""
    import psutil

    on_linux = sys.platform.startswith("linux")
    return Calls(
        platform=sys.platform,
        cpus=os.cpu_count(),
        cores=None if on_linux else psutil.cpu_count(logical=False),
        affinity=frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        memory=_memory(),
        shared_memory=_shared_memory(),
        open_files=_soft_limit("RLIMIT_NOFILE"),
        locked_memory=_soft_limit("RLIMIT_MEMLOCK"),
        environ=dict(os.environ),
    )


def _memory() -> tuple[int, int]:
    import psutil

    found = psutil.virtual_memory()
    return found.total, found.available


def _shared_memory() -> tuple[int, int] | None:
    try:
        found = os.statvfs("/dev/shm")
    except (OSError, AttributeError):  # Windows has no such call, macOS no such folder
        return None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _soft_limit(name: str) -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft = resource.getrlimit(getattr(resource, name))[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


@dataclass(frozen=True)
class System:
    """The files of a system below ``root``, and its calls: those of this one, unless it is another's tree."""

    root: str = "/"
    told: Calls | None = None

    @cached_property
    def calls(self) -> Calls:
        if self.told is not None:
            return self.told
        return here() if self.root == "/" else Calls()

    @property
    def _is_live(self) -> bool:
        """Whether it is this system: what changes is then asked for each time."""
        return self.told is None and self.root == "/"

    def path(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def read(self, path: str) -> str | None:
        try:
            with open(self.path(path), encoding="utf-8", errors="replace") as stream:
                return stream.read().strip()
        except OSError:
            return None

    # Cores

    def allowed(self) -> set[int] | None:
        """The CPUs that this process may run on; None where nothing says it."""
        if self.calls.affinity is not None:
            return set(self.calls.affinity)
        for line in (self.read("/proc/self/status") or "").splitlines():
            if line.startswith("Cpus_allowed_list:"):
                return numbers(line.split(":", 1)[1])
        return None

    def affinity(self) -> set[int]:
        """The CPUs that this process may run on; all of this machine's where nothing says it."""
        return self.allowed() or set(range(os.cpu_count() or 1))

    def visible(self) -> Limit | None:
        """The CPUs that a program sees which counts them, whether it may use them or not."""
        listed = self.read("/sys/devices/system/cpu/online")
        if listed:
            return Limit(len(numbers(listed)), "/sys/devices/system/cpu/online")
        return Limit(self.calls.cpus, "os.cpu_count()") if self.calls.cpus else None

    def physical_cores(self) -> int | None:
        """Distinct cores among the CPUs that we may run on."""
        siblings = {
            self.read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in self.affinity()
        }
        return self.calls.cores if None in siblings or not siblings else len(siblings)

    def cpuset(self) -> tuple[set[int], str] | None:
        """The CPUs that the control group leaves to it, and the file that says so: the nearest one that does."""
        for version, base, path in self._groups("cpuset"):
            name = "cpuset.cpus.effective" if version == 2 else "cpuset.cpus"
            for folder in _to_the_root(path):
                file = f"{base}{folder}/{name}"
                if text := self.read(file):
                    return numbers(text), file
        return None

    def quotas(self) -> list[Limit]:
        """Cores that each control group on the way to the root allows."""
        return list(self._quotas())

    def _quotas(self) -> Iterator[Limit]:
        for version, base, path in self._groups("cpu"):
            for folder in _to_the_root(path):
                if version == 2:
                    file = f"{base}{folder}/cpu.max"
                    words = (self.read(file) or "max").split()
                else:
                    file = f"{base}{folder}/cpu.cfs_quota_us"
                    words = [self.read(file) or "-1", self.read(f"{base}{folder}/cpu.cfs_period_us") or "0"]
                quota, period = (_whole(word) for word in (*words, "100000")[:2])
                if quota and period and quota > 0 and period > 0:
                    yield Limit(quota / period, file)

    def quota(self) -> float | None:
        """Cores that the control group allows: the least on the way to the root."""
        return min((one.value for one in self.quotas()), default=None)

    def throttled(self) -> int:
        """How often the control group has been stopped for using up its quota."""
        for _, base, path in self._groups("cpu"):
            for entry in (self.read(f"{base}{path.rstrip('/')}/cpu.stat") or "").splitlines():
                name, _, value = entry.partition(" ")
                if name == "nr_throttled":
                    return int(value)
        return 0

    def usable_cores(self) -> float:
        limits = [len(self.affinity()), self.physical_cores(), self.quota()]
        return min(limit for limit in limits if limit)

    # Memory and load

    def total_memory(self) -> Limit | None:
        """Bytes of the machine's memory."""
        found = self._of_meminfo("MemTotal")
        if found is not None:
            return Limit(found, "/proc/meminfo")
        return Limit(self.calls.memory[0], "psutil.virtual_memory()") if self.calls.memory else None

    def memory_limits(self) -> list[Limit]:
        """Bytes that each control group on the way to the root allows, page cache and shared memory included."""
        return [limit for limit, _ in self._memory_limits()]

    def available_memory(self) -> int | None:
        """Bytes that can still be had: of the machine, or of the control group where that has less."""
        machine = self._of_meminfo("MemAvailable")
        if machine is None:
            known = _memory() if self._is_live else self.calls.memory
            machine = known[1] if known is not None else None
        free = [max(0, int(limit.value) - used) for limit, used in self._memory_limits()]
        return min([*free, *([machine] if machine is not None else [])], default=None)

    def _of_meminfo(self, name: str) -> int | None:
        for line in (self.read("/proc/meminfo") or "").splitlines():
            if line.startswith(f"{name}:"):
                return (_whole(line.split()[1]) or 0) << 10
        return None

    def _memory_limits(self) -> Iterator[tuple[Limit, int]]:
        """Each limit, and how much of it is used by what cannot be dropped."""
        for version, base, path in self._groups("memory"):
            of_limit, of_usage, of_cache = _MEMORY[version]
            for folder in _to_the_root(path):
                file = f"{base}{folder}/{of_limit}"
                value = _whole(self.read(file) or "")
                if value is not None and 0 < value < NO_LIMIT:
                    used = _whole(self.read(f"{base}{folder}/{of_usage}") or "") or 0
                    yield Limit(value, file), max(0, used - self._cached(f"{base}{folder}/memory.stat", of_cache))

    def _cached(self, file: str, name: str) -> int:
        for line in (self.read(file) or "").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return _whole(value) or 0
        return 0

    def _groups(self, controller: str) -> Iterator[tuple[int, str, str]]:
        """Where a controller's files may lie: version of its hierarchy, the mount, the group's path below it.

        In a container the path is often that of the host, of which the mount shows the container's part only:
        who walks to the root comes to that.
        """
        for line in (self.read("/proc/self/cgroup") or "").splitlines():
            number, _, rest = line.partition(":")
            names, _, path = rest.partition(":")
            if number == "0" and not names:
                for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                    yield 2, base, path or "/"
            elif controller in names.split(","):
                for base in dict.fromkeys((names, controller)):
                    yield 1, f"/sys/fs/cgroup/{base}", path or "/"

    def shared_memory(self) -> tuple[int, int] | None:
        """Bytes of /dev/shm: all, and free now; None where there is none."""
        return _shared_memory() if self._is_live else self.calls.shared_memory

    def pressure(self) -> int | None:
        """Microseconds so far in which somebody waited for a CPU; None where the kernel does not count them."""
        text = self.read("/proc/pressure/cpu")
        if not text:
            return None
        return int(text.splitlines()[0].rpartition("=")[2])

    # The run

    def ranks(self) -> Limit | None:
        """Processes that share this machine, as whoever launched them says it; None where nobody does."""
        for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
                     "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):  # fmt: skip
            # Slurm writes "8(x2)" for two nodes with eight tasks each, "8,4" for nodes that differ.
            text = self.calls.environ.get(name, "").partition("(")[0].partition(",")[0]
            if text.isdecimal() and int(text) > 0:
                return Limit(int(text), name)
        return None


# The names of a group's files: what it may use, what it uses, and how much of that is cache that can be dropped.
_MEMORY = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def _to_the_root(path: str) -> Iterator[str]:
    """A group and all that it lies in: "/a/b", "/a", ""."""
    path = path.rstrip("/")
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def numbers(text: str) -> set[int]:
    """The numbers in a list as the kernel writes it: "0-3,8"."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.strip().isdecimal():
            found.update(range(int(first), int(last or first) + 1))
    return found


def _whole(text: str) -> int | None:
    try:
        return int(text.strip())
    except ValueError:
        return None
