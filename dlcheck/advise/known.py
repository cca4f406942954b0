"""What a recommendation rests on, and what it is: plain data, with its units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeGuard

MAIN_SHARE = 0.2  # of a core that the main process uses while a device computes, where nobody has measured it

Basis = Literal["known", "measured", "estimate", "open"]


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """What is known of a loader, of the data behind it and of who uses its batches; None, "" or False: not known.

    ``cpu_s`` and ``wait_s`` are seconds for a sample, of work and of waiting; ``step_s`` for what is done with a
    batch; ``variation`` is the standard deviation of a batch's time over its mean; ``main_share`` the share of a
    core that the main process uses.  ``looks_up``: samples are only looked up in memory; ``decodes``: they are read,
    decoded or computed, as ``work`` says.  ``held`` is what the dataset keeps, of ``held_bytes``: "array" and
    "objects" are copied to workers that do not fork, "objects" by and by to those that do, a "tensor" to none.
    ``device`` is where batches are copied to.  ``moved_by`` is the framework that copies them.  ``passes``: how
    often the program goes through the loader; ``repeats``: whether more than once.  ``repeats_in_workers``: a stream
    that each worker would give whole.  ``changes``: why workers must not outlive an epoch.
    """

    batch_size: int | None = None
    sample_bytes: int | None = None
    samples: int | None = None
    cpu_s: float | None = None
    wait_s: float | None = None
    step_s: float | None = None
    variation: float | None = None
    main_share: float = MAIN_SHARE
    looks_up: bool = False
    decodes: bool = False
    work: str = ""
    held: Literal["", "array", "objects", "tensor"] = ""
    held_bytes: int | None = None
    device: Literal["", "cuda", "cpu", "mps"] = ""
    moved_by: str = ""
    on_gpu: bool = False
    passes: int | None = None
    repeats: bool | None = None
    repeats_in_workers: bool = False
    changes: str = ""
    start_method: str = ""
    files_per_worker: int = 8

    @property
    def batch_bytes(self) -> int | None:
        known = self.batch_size is not None and self.sample_bytes is not None
        return self.batch_size * self.sample_bytes if known else None  # type: ignore[operator]


# Of the workload of a record what is a fact of the dataset, by its name there.
_MEASURED: dict[str, tuple[str, type]] = {
    "batch_size": ("batch_size", int),
    "sample_bytes": ("sample_bytes", int),
    "size": ("samples", int),
    "cpu_s": ("cpu_s", float),
    "wait_s": ("wait_s", float),
    "variation": ("variation", float),
}


def is_amount(value: object) -> TypeGuard[int | float]:
    """Whether what a record holds can be bytes, seconds or a number of samples."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18


def with_measured(dataset: DatasetFacts, workload: Mapping[str, Any]) -> DatasetFacts:
    """A dataset of which the values of a record's workload are known as well; what cannot be is passed over."""
    known: dict[str, Any] = {}
    for name, (ours, kind) in _MEASURED.items():
        value = workload.get(name)
        if is_amount(value):
            known[ours] = kind(value)
    found = replace(dataset, **known)
    if "variation" in known and found.batch_size:  # of samples, which even out in a batch
        found = replace(found, variation=known["variation"] / math.sqrt(found.batch_size))
    return found


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What loaders share on a machine.

    ``cores`` that may be used by one of its ``ranks``; ``memory`` and ``shm`` are the bytes that are free, of the
    whole machine; ``shm_total`` all of /dev/shm; ``open_files`` of a process, None where there is no limit;
    ``gpus`` how many torch can use; ``storage`` the kind of storage of the data.
    """

    cores: float | None = None
    ranks: int = 1
    memory: int | None = None
    shm: int | None = None
    shm_total: int | None = None
    open_files: int | None = None
    gpus: int | None = None
    start_method: str = "fork"
    storage: str = ""
    container: str = ""


class Cap(NamedTuple):
    """The most workers that something allows, and why."""

    name: Literal["cores", "/dev/shm", "memory", "open files", "batches per epoch", "stream"]
    workers: int
    why: str


class Knob(NamedTuple):
    """What to set, in one sentence why.

    ``span`` is between what the answer lies where it takes a measurement to know it; ``value`` is then where to begin,
    or None.  ``basis``: whether it follows from program and machine ("known"), from what was measured, or from bounds
    ("estimate"); "open" is what nobody can say yet.
    """

    value: int | bool | str | None
    why: str
    basis: Basis = "known"
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The options of a loader.

    ``memory`` and ``shm`` are the bytes that they take on the machine, all ranks together, None where the size of a
    batch is not known; ``least_memory`` is known in any case.  ``caps`` are sorted, the ``binding`` one first, and
    that is None where the need is met.  ``refused``: what cannot fit, and which limit stops it.
    """

    num_workers: Knob
    prefetch_factor: Knob
    pin_memory: Knob
    persistent_workers: Knob
    non_blocking: Knob
    start_method: Knob
    caps: tuple[Cap, ...] = ()
    binding: Cap | None = None
    memory: int | None = None
    least_memory: int = 0
    shm: int | None = None
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    would_change: tuple[str, ...] = ()
