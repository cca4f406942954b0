"""The facts of a machine that decide what to set in a loader: each with its source, and with what follows from it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dlcheck.advise.devices import Gpu, gpus_of
from dlcheck.advise.interpreter import Interpreter
from dlcheck.advise.storage import Storage, storage_of
from dlcheck.advise.units import count, size
from dlcheck.system import UNLIMITED, Limit, System

SCHEMA = "dlcheck.env/1"
_CGROUP = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class Fact:
    """``value`` is plain data, None where it is unknown; ``source`` the file or call that says it, or would."""

    value: Any
    source: str
    follows: str = ""


Facts = Mapping[str, Fact]


def facts(system: System, path: str, interpreter: Interpreter | None) -> dict[str, Fact]:
    """All facts, by name, in the order in which people read them; ``path`` is that of the data, absolute."""
    found = dict(_cores(system))
    found |= _memory(system)
    found |= _shared_memory(system)
    found |= _limits(system)
    found["storage"] = _storage(storage_of(system, path))
    found["container"] = _container(system)
    found |= _threads(system)
    found["gpus"] = _gpus(system)
    found |= _software(system, interpreter)
    return found


# Cores


def _cores(system: System) -> Iterator[tuple[str, Fact]]:
    visible, allowed = system.visible(), system.allowed()
    yield "visible_cpus", Fact(
        int(visible.value) if visible else None,
        visible.source if visible else "/sys/devices/system/cpu/online",
        "what os.cpu_count() counts, whether this process may use it or not",
    )
    called = "os.sched_getaffinity(0)" if system.calls.affinity is not None else "/proc/self/status"
    yield "affinity", Fact(len(allowed) if allowed is not None else None, called, "CPUs that this process may run on")
    physical = system.physical_cores() if allowed is not None or system.calls.cores else None
    per_core = "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list"
    yield "physical_cores", Fact(
        physical,
        per_core if system.calls.cores is None else "psutil.cpu_count(logical=False)",
        "counted instead of threads, which share their core's units",
    )
    group = system.cpuset()
    yield "cpuset", Fact(len(group[0]) if group else None, group[1] if group else _CGROUP, "CPUs of the control group")
    quota = min(system.quotas(), default=None)
    yield "cpu_quota", Fact(
        quota.value if quota else None,
        quota.source if quota else _CGROUP,
        "the control group is stopped when it has used so many cores' time" if quota else "no quota is set, or none shown",
    )
    yield from _shared_cores(system, visible, allowed, group, quota, physical)


def _shared_cores(
    system: System,
    visible: Limit | None,
    allowed: set[int] | None,
    group: tuple[set[int], str] | None,
    quota: Limit | None,
    physical: int | None,
) -> Iterator[tuple[str, Fact]]:
    """The cores that there really are, and what each rank has of them."""
    limits = {
        "affinity": len(allowed) if allowed is not None else None,
        "physical_cores": physical,
        "cpuset": len(group[0]) if group else None,
        "cpu_quota": quota.value if quota else None,
        "visible_cpus": visible.value if visible and allowed is None else None,
    }
    known = {name: value for name, value in limits.items() if value}
    least = min(known, key=lambda name: known[name]) if known else ""
    usable = known[least] if least else None
    yield "usable_cores", Fact(usable, f"least of {', '.join(known)}" if known else "none of the above is known",
                               "more workers than this gain nothing while samples are decoded or computed")  # fmt: skip
    ranks = system.ranks()
    yield "ranks", Fact(
        int(ranks.value) if ranks else None,
        ranks.source if ranks else "LOCAL_WORLD_SIZE and the variables of Slurm and MPI: none is set",
        "processes on this machine that each start workers of their own" if ranks else "one process is assumed",
    )
    own = _is_own_share(system, allowed)
    share = usable if usable is None or own or ranks is None else usable / ranks.value
    told = "affinity, which Slurm has narrowed to this task" if own else "usable_cores / ranks"
    yield "cores_per_rank", Fact(share, told, "what num_workers of one process is counted in")


def _is_own_share(system: System, allowed: set[int] | None) -> bool:
    """Whether the CPUs that we see are those of one task of Slurm rather than of all on the machine."""
    text = system.calls.environ.get("SLURM_CPUS_PER_TASK", "")
    return text.isdecimal() and allowed is not None and "SLURM_STEP_ID" in system.calls.environ and (
        len(allowed) <= int(text) * 2  # with both threads of each core
    )


# Memory


def _memory(system: System) -> Iterator[tuple[str, Fact]]:
    total, limit = system.total_memory(), min(system.memory_limits(), default=None)
    yield "memory_total", Fact(
        int(total.value) if total else None, total.source if total else "/proc/meminfo", "bytes of the machine"
    )
    yield "memory_limit", Fact(
        int(limit.value) if limit else None,
        limit.source if limit else _CGROUP,
        "the kernel ends a process beyond it; /dev/shm counts, too" if limit else "no limit is set, or none shown",
    )
    source = "/proc/meminfo, and what the control group has left" if total and "/" in total.source else "psutil"
    yield "memory_available", Fact(
        system.available_memory(), source, "workers, their copies of the dataset and their batches come out of it"
    )


def _shared_memory(system: System) -> Iterator[tuple[str, Fact]]:
    found = system.shared_memory()
    linux = system.calls.platform in ("", "linux")
    source = "os.statvfs('/dev/shm')" if linux else "this system has no /dev/shm"
    yield "shm_total", Fact(
        found[0] if found else None, source, "batches of workers lie there until they are used" if linux else ""
    )
    yield "shm_free", Fact(found[1] if found else None, source)


def _limits(system: System) -> Iterator[tuple[str, Fact]]:
    calls = system.calls
    yield "open_files", Fact(
        _limit(calls.open_files),
        "RLIMIT_NOFILE (ulimit -n)",
        "each tensor of a worker that the main process keeps is an open file, by the default way of sharing on Linux",
    )
    yield "locked_memory", Fact(
        _limit(calls.locked_memory),
        "RLIMIT_MEMLOCK (ulimit -l)",
        "no limit for pin_memory, which locks through the driver; libraries for RDMA need more",
    )


def _limit(value: int | None) -> int | str | None:
    return "unlimited" if value == UNLIMITED else value


# Where it runs


_OF_STORAGE = {
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
    return Fact(value, f"/proc/self/mountinfo; {found.why}", _OF_STORAGE[found.kind])


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


def _threads(system: System) -> Iterator[tuple[str, Fact]]:
    for name, variable in (("omp_threads", "OMP_NUM_THREADS"), ("mkl_threads", "MKL_NUM_THREADS")):
        text = system.calls.environ.get(variable, "").partition(",")[0].strip()
        told = "threads of the main process; a worker has one" if text else "not set: as many threads as cores in the main process; a worker has one"
        yield name, Fact(int(text) if text.isdecimal() else None, variable, told)


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
    if variable is None:
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
            kept.append(found[min(len(kept), len(found) - 1)] if found else Gpu(name))
    return kept[: len(found)]


def _software(system: System, known: Interpreter | None) -> Iterator[tuple[str, Fact]]:
    if known is None:
        for name in ("python", "torch", "start_method"):
            yield name, Fact(None, "no interpreter was asked")
        return
    source = f"{known.path} ({known.found})"
    why = known.problem
    yield "python", Fact(known.python, source, why)
    no_torch = "it has no torch: name the interpreter of your project with --python" if known.python else why
    yield "torch", Fact(known.torch, f"metadata of its packages; {source}", "" if known.torch else no_torch)
    yield "start_method", Fact(
        known.start_method, "multiprocessing.get_start_method()", _OF_START.get(known.start_method or "", why)
    )


_OF_START = {
    "fork": "workers share what the dataset holds, until they write to it or count its Python objects",
    "forkserver": "the dataset is pickled for each worker, which gets a copy; torch's tensors are shared",
    "spawn": "the dataset is pickled for each worker, which gets a copy; torch's tensors are shared",
}


# What will bite


@dataclass(frozen=True, slots=True)
class Warning_:
    """A limit that will bite: the fact that it is about, what happens, and what to do."""

    fact: str
    message: str


SMALL_SHM = 64 << 20  # what Docker, containerd and podman give where nobody asks for more
FEW_FILES = 1024  # the usual default, which a loop that keeps a thousand batches uses up


def warnings(found: Facts) -> list[Warning_]:
    """The limits that will bite whatever the program is; those that depend on it ``advise`` tells."""
    return [*_of_cores(found), *_of_memory(found), *_of_files(found), *_of_software(found)]


def _value(found: Facts, name: str) -> Any:
    return found[name].value if name in found else None


def _of_cores(found: Facts) -> Iterator[Warning_]:
    visible, usable = _value(found, "visible_cpus"), _value(found, "usable_cores")
    quota, affinity, ranks = (_value(found, name) for name in ("cpu_quota", "affinity", "ranks"))
    if quota and affinity and quota < affinity:
        yield Warning_(
            "cpu_quota",
            f"{count(affinity, 'CPU')} to see, {quota:g} to use: os.cpu_count() and len(os.sched_getaffinity(0)) "
            "both promise more than the quota allows; count workers by the quota",
        )
    elif visible and affinity and affinity < visible:
        yield Warning_(
            "affinity",
            f"os.cpu_count() says {visible}, and {affinity} may be used: take len(os.sched_getaffinity(0))",
        )
    threads = _value(found, "omp_threads") or _value(found, "mkl_threads")
    if threads and usable and threads * (ranks or 1) > usable:
        each = f" in each of {ranks} ranks" if ranks and ranks > 1 else ""
        yield Warning_("omp_threads", f"{threads} threads{each} on {count(usable, 'usable core')}: they take turns")


def _of_memory(found: Facts) -> Iterator[Warning_]:
    shm, container = _value(found, "shm_total"), _value(found, "container")
    if shm is not None and shm <= SMALL_SHM:
        remedy = (
            "in Kubernetes mount an emptyDir with `medium: Memory` there"
            if container in ("kubernetes", "kubepods")
            else "start the container with --shm-size=8g, or --ipc=host"
            if container
            else "mount it anew with a larger size="
        )
        yield Warning_(
            "shm_total",
            f"/dev/shm has {size(shm)}, and num_workers x prefetch_factor batches lie there: beyond it a worker dies "
            f"with a bus error; {remedy}",
        )
    limit, total = _value(found, "memory_limit"), _value(found, "memory_total")
    if limit and total and limit < total:
        yield Warning_(
            "memory_limit",
            f"{size(limit)} of {size(total)} may be used, by all processes and by /dev/shm: beyond it the kernel kills "
            "one of them",
        )


def _of_files(found: Facts) -> Iterator[Warning_]:
    files, linux = _value(found, "open_files"), _value(found, "shm_total") is not None
    if isinstance(files, int) and files <= FEW_FILES and linux:
        yield Warning_(
            "open_files",
            f"{files} open files: who keeps the batches of workers in a list, one for each tensor, ends at "
            f"'Too many open files'; `ulimit -n 65536`, or keep copies",
        )
    storage = _value(found, "storage")
    if storage and storage["kind"] in ("network", "layer"):
        told = f"{storage['mount']} is {storage['filesystem']}"
        yield Warning_("storage", f"{told}: {_OF_STORAGE[storage['kind']]}")


def _of_software(found: Facts) -> Iterator[Warning_]:
    torch, gpus, python = (_value(found, name) for name in ("torch", "gpus", "python"))
    if python and not torch:
        yield Warning_("torch", f"{found['torch'].source}: {found['torch'].follows}")
    elif not python and (why := found["python"].follows):
        yield Warning_("python", why)
    if torch and gpus and str(torch).endswith("+cpu"):
        yield Warning_("torch", f"torch {torch} is a build without CUDA, on a machine with {count(len(gpus), 'GPU')}")
    cores, ranks = _value(found, "cores_per_rank"), _value(found, "ranks")
    if cores is not None and ranks and cores < 1:
        yield Warning_("ranks", f"{ranks} ranks share {count(_value(found, 'usable_cores'), 'core')}: less than one each")
