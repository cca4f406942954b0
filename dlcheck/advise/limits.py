"""The limits of a machine that will bite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlcheck.advise.costs import FULL, KUBERNETES
from dlcheck.advise.env import OF_STORAGE, Facts
from dlcheck.advise.units import count, size


@dataclass(frozen=True, slots=True)
class Bite:
    """A limit that will bite: the fact that it is about, what happens, and what to do."""

    fact: str
    message: str


SMALL_SHM = 64 << 20  # what Docker, containerd and podman give where nobody asks for more
FEW_FILES = 1024  # the usual default, which a loop that keeps a thousand batches uses up


def warnings(found: Facts) -> list[Bite]:
    """The limits that will bite whatever the program is; those that depend on it ``advise`` tells."""
    return [*_of_cores(found), *_of_memory(found), *_of_files(found), *_of_software(found)]


def _value(found: Facts, name: str) -> Any:
    return found[name].value if name in found else None


def _of_cores(found: Facts) -> Iterator[Bite]:
    visible, usable = _value(found, "visible_cpus"), _value(found, "usable_cores")
    quota, affinity, ranks = (_value(found, name) for name in ("cpu_quota", "affinity", "ranks"))
    if quota and affinity and quota < affinity:
        yield Bite(
            "cpu_quota",
            f"{count(affinity, 'CPU')} to see, {quota:g} to use: os.cpu_count() and len(os.sched_getaffinity(0)) "
            "both promise more than the quota allows; count workers by the quota",
        )
    elif visible and affinity and affinity < visible:
        yield Bite(
            "affinity",
            f"os.cpu_count() says {visible}, and {affinity} may be used: take len(os.sched_getaffinity(0))",
        )
    threads = _value(found, "omp_threads") or _value(found, "mkl_threads")
    if threads and usable and threads * (ranks or 1) > usable:
        each = f" in each of {ranks} ranks" if ranks and ranks > 1 else ""
        yield Bite("omp_threads", f"{threads} threads{each} on {count(usable, 'usable core')}: they take turns")


def _of_memory(found: Facts) -> Iterator[Bite]:
    shm, container = _value(found, "shm_total"), _value(found, "container")
    if shm is not None and shm <= SMALL_SHM:
        remedy = (
            "in Kubernetes mount an emptyDir with `medium: Memory` there"
            if container in KUBERNETES
            else "start the container with --shm-size=8g, or --ipc=host"
            if container
            else "mount it anew with a larger size="
        )
        yield Bite(
            "shm_total",
            f"/dev/shm has {size(shm)}, and num_workers x prefetch_factor batches lie there: {FULL}; {remedy}",
        )
    limit, total = _value(found, "memory_limit"), _value(found, "memory_total")
    if limit and total and limit < total:
        yield Bite(
            "memory_limit",
            f"{size(limit)} of {size(total)} may be used, by all processes and by /dev/shm: beyond it the kernel kills "
            "one of them",
        )


def _of_files(found: Facts) -> Iterator[Bite]:
    files, linux = _value(found, "open_files"), _value(found, "shm_total") is not None
    if isinstance(files, int) and files <= FEW_FILES and linux:
        yield Bite(
            "open_files",
            f"{files} open files: who keeps the batches of workers in a list, one for each tensor, ends at "
            f"'Too many open files'; `ulimit -n 65536`, or keep copies",
        )
    storage = _value(found, "storage")
    if storage and storage["kind"] in ("network", "layer"):
        told = f"{storage['mount']} is {storage['filesystem']}"
        yield Bite("storage", f"{told}: {OF_STORAGE[storage['kind']]}")


def _of_software(found: Facts) -> Iterator[Bite]:
    torch, gpus, python = (_value(found, name) for name in ("torch", "gpus", "python"))
    if python and not torch:
        yield Bite("torch", f"{found['torch'].source}: {found['torch'].follows}")
    elif not python and (why := found["python"].follows):
        yield Bite("python", why)
    if torch and gpus and str(torch).endswith("+cpu"):
        yield Bite("torch", f"torch {torch} is a build without CUDA, on a machine with {count(len(gpus), 'GPU')}")
    cores, ranks = _value(found, "cores_per_rank"), _value(found, "ranks")
    if cores is not None and ranks and cores < 1:
        yield Bite("ranks", f"{ranks} ranks share {count(_value(found, 'usable_cores'), 'core')}: less than one each")
