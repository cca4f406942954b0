"""The facts of a machine that decide what to set in a loader: each with its source, and with what follows from it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlcheck.advise.devices import Gpu, gpus_of
from dlcheck.advise.interpreter import Interpreter
from dlcheck.advise.storage import Storage, storage_of
from dlcheck.system import UNLIMITED, Limit, System

SCHEMA = "dlcheck.env/1"
_CGROUP = "/sys/fs/cgroup"
_CPUS = "/sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class Fact:
    """``value`` is plain data, None where it is unknown; ``source`` the file or call that says it, or would."""

    value: Any
    source: str
    follows: str = ""


Facts = Mapping[str, Fact]


def facts(system: System, path: str, interpreter: Interpreter | None) -> dict[str, Fact]:
    """All facts, by name, in the order in which people read them; ``path`` is that of the data, absolute."""
    return {
        **_cores(system),
        **_memory(system),
        **_limits(system),
        "storage": _storage(storage_of(system, path)),
        "container": _container(system),
        **_threads(system),
        "gpus": _gpus(system),
        **_software(interpreter),
    }


# Cores


def _cores(system: System) -> dict[str, Fact]:
    visible, allowed, group = system.visible(), system.allowed(), system.cpuset()
    quota = min(system.quotas(), default=None)
    physical = system.physical_cores() if allowed is not None or system.calls.cores else None
    found = {
        "visible_cpus": _limit(visible, "/sys/devices/system/cpu/online", "what os.cpu_count() counts"),
        "affinity": Fact(
            len(allowed) if allowed is not None else None,
            "os.sched_getaffinity(0)" if system.calls.affinity is not None else "/proc/self/status",
            "CPUs that this process may run on",
        ),
        "physical_cores": Fact(
            physical,
            "psutil.cpu_count(logical=False)" if system.calls.cores else f"{_CPUS}/cpu*/topology/thread_siblings_list",
            "counted instead of threads, which share their core's units",
        ),
        "cpuset": Fact(len(group[0]) if group else None, group[1] if group else _CGROUP, "CPUs of the control group"),
        "cpu_quota": _limit(quota, _CGROUP, "the control group is stopped when it has used so many cores' time"),
    }
    limits = {name: fact.value for name, fact in found.items() if fact.value and name != "visible_cpus"}
    limits = limits or {name: fact.value for name, fact in found.items() if fact.value}
    found["usable_cores"] = Fact(
        min(limits.values(), default=None),
        f"the least of {', '.join(limits)}" if limits else "none of these is known",
        "more workers than this gain nothing while samples are decoded or computed",
    )
    return {**found, **_ranks(system, found["usable_cores"].value, allowed)}


def _ranks(system: System, usable: float | None, allowed: set[int] | None) -> dict[str, Fact]:
    """Who shares the cores, and what each has of them."""
    ranks, own = system.ranks(), _is_own_share(system, allowed)
    share = usable if usable is None or own or ranks is None else usable / ranks.value
    told = "processes on this machine that each start workers of their own"
    unset = Fact(None, "LOCAL_WORLD_SIZE, and variables of Slurm and MPI", "one process is assumed")
    return {
        "ranks": _limit(ranks, ranks.source, told) if ranks else unset,
        "cores_per_rank": Fact(
            share,
            "affinity, which Slurm has narrowed to this task" if own else "usable_cores / ranks",
            "what num_workers of one process is counted in",
        ),
    }


def _is_own_share(system: System, allowed: set[int] | None) -> bool:
    """Whether the CPUs that we see are those of one task of Slurm rather than of all on the machine."""
    text = system.calls.environ.get("SLURM_CPUS_PER_TASK", "")
    if not text.isdecimal() or allowed is None or "SLURM_STEP_ID" not in system.calls.environ:
        return False
    return len(allowed) <= 2 * int(text)  # with both threads of each core


def _limit(limit: Limit | None, source: str, follows: str) -> Fact:
    """A limit as a fact; ``source`` is where it would stand."""
    if limit is None:
        return Fact(None, source)
    value = int(limit.value) if float(limit.value).is_integer() else limit.value
    return Fact(value, limit.source, follows)


# Memory and files


def _memory(system: System) -> dict[str, Fact]:
    total, limit, shared = system.total_memory(), min(system.memory_limits(), default=None), system.shared_memory()
    by_files = total is not None and total.source.startswith("/")
    source = "/proc/meminfo, and what the control group has left" if by_files else "psutil.virtual_memory()"
    has_shm = system.calls.platform in ("", "linux")
    of_shm = "os.statvfs('/dev/shm')" if has_shm else "this system has no /dev/shm"
    return {
        "memory_total": _limit(total, "/proc/meminfo", "all of the machine's"),
        "memory_limit": _limit(limit, _CGROUP, "the kernel ends a process beyond it; /dev/shm counts, too"),
        "memory_available": Fact(
            system.available_memory(), source, "for workers, their copies of the dataset, and batches"
        ),
        "shm_total": Fact(
            shared[0] if shared else None, of_shm, "batches of workers lie there until they are used" if has_shm else ""
        ),
        "shm_free": Fact(shared[1] if shared else None, of_shm),
    }


def _limits(system: System) -> dict[str, Fact]:
    calls = system.calls
    return {
        "open_files": Fact(
            _or_unlimited(calls.open_files),
            "RLIMIT_NOFILE (ulimit -n)",
            "each tensor of a worker that the main process keeps is an open file, as tensors are shared on Linux",
        ),
        "locked_memory": Fact(
            _or_unlimited(calls.locked_memory),
            "RLIMIT_MEMLOCK (ulimit -l)",
            "libraries for RDMA need it large; pin_memory locks through the driver",
        ),
    }


def _or_unlimited(value: int | None) -> int | str | None:
    return "unlimited" if value == UNLIMITED else value


# Where it runs


OF_STORAGE = {
    "network": "reading waits: more workers than cores can pay, and only a measurement says how many",
    "memory": "reading takes no time: what decoding costs decides",
    "disk": "seeks take milliseconds: a cold epoch may wait for the disk whatever the workers do",
    "ssd": "many readers at once are served well",
    "virtual": "what lies behind it is not known: measure a cold epoch",
    "layer": "slow for many small files, and gone with the container: mount the data",
    "unknown": "measure a cold epoch",
}


def _storage(found: Storage | None) -> Fact:
    if found is None:
        return Fact(None, "/proc/self/mountinfo", "")
    value = {name: getattr(found, name) for name in ("kind", "mount", "filesystem", "device")}
    return Fact(value, f"/proc/self/mountinfo; {found.why}", OF_STORAGE[found.kind])


def _container(system: System) -> Fact:
    calls = system.calls
    for file, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if os.path.exists(system.path(file)):
            return Fact(name, file)
    if "KUBERNETES_SERVICE_HOST" in calls.environ:
        return Fact("kubernetes", "KUBERNETES_SERVICE_HOST")
    if calls.environ.get("container"):
        return Fact(calls.environ["container"], "the variable `container`")
    groups = system.read("/proc/1/cgroup")
    for word in ("kubepods", "docker", "containerd", "libpod", "lxc"):
        if word in (groups or ""):
            return Fact(word, "/proc/1/cgroup")
    root = storage_of(system, "/")
    if root is not None and root.kind == "layer":
        return Fact(root.filesystem, "/proc/self/mountinfo: the root is a layer")
    if groups is None and root is None:
        return Fact(None if calls.platform in ("", "linux") else False, "this system tells nothing of containers")
    return Fact(False, "/.dockerenv, /run/.containerenv, /proc/1/cgroup, /proc/self/mountinfo")


def _threads(system: System) -> dict[str, Fact]:
    found = {}
    for name, variable in (("omp_threads", "OMP_NUM_THREADS"), ("mkl_threads", "MKL_NUM_THREADS")):
        text = system.calls.environ.get(variable, "").partition(",")[0].strip()
        told = "threads of the main process" if text else "as many threads as cores in the main process"
        found[name] = Fact(int(text) if text.isdecimal() else None, variable, f"{told}; a worker has one")
    return found


def _gpus(system: System) -> Fact:
    found = gpus_of(system)
    apple = system.calls.platform == "darwin"
    if found is None:
        told = "pinning does nothing on a Mac" if apple else ""
        return Fact(None, "neither nvidia-smi nor /sys/bus/pci tells of any", told)
    shown = _shown(found, system.calls.environ.get("CUDA_VISIBLE_DEVICES"))
    value = [_described(gpu) for gpu in shown]
    hidden = f"; CUDA_VISIBLE_DEVICES leaves {len(shown)} of {len(found)}" if len(shown) < len(found) else ""
    source = (found[0].source if found else "nvidia-smi; /sys/bus/pci/devices") + hidden
    follows = "batches are copied to it: pin_memory and non_blocking can matter" if shown else "pinning does nothing"
    return Fact(value, source, follows)


def _described(gpu: Gpu) -> dict[str, Any]:
    told = dataclasses.asdict(gpu)
    del told["source"]
    return {**told, "link_gbs": gpu.link_gbs}


def _shown(found: list[Gpu], variable: str | None) -> list[Gpu]:
    """Those that the variable leaves; which of them, where it names them by number."""
    if variable is None or not found:
        return found
    names = [name.strip() for name in variable.split(",") if name.strip()]
    kept: list[Gpu] = []
    for name in names:
        if name.isdecimal():
            if int(name) >= len(found):
                break  # as CUDA does: what follows an unknown one is hidden
            kept.append(found[int(name)])
        elif name.startswith("-"):
            break
        else:
            kept.append(found[min(len(kept), len(found) - 1)])
    return kept[: len(found)]


def _software(known: Interpreter | None) -> dict[str, Fact]:
    if known is None:
        return {name: Fact(None, "no interpreter was asked") for name in ("python", "torch", "start_method")}
    source, why = f"{known.path} ({known.found})", known.problem
    no_torch = "it has no torch: name the interpreter of your project with --python" if known.python else why
    follows = _OF_START.get(known.start_method or "", why)
    return {
        "python": Fact(known.python, source, why),
        "torch": Fact(known.torch, f"metadata of its packages; {source}", "" if known.torch else no_torch),
        "start_method": Fact(known.start_method, "multiprocessing.get_start_method()", follows),
    }


_OF_START = {
    "fork": "workers share what the dataset holds, until they write to it or count its Python objects",
    "forkserver": "the dataset is pickled for each worker, which gets a copy; torch's tensors are shared",
    "spawn": "the dataset is pickled for each worker, which gets a copy; torch's tensors are shared",
}
