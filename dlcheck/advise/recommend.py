"""What to set in a loader: a pure function of what is known of its dataset and of the machine.

The formulas, and the machines that they were held against, are told in docs/advise.md; no threshold stands here
without a measurement behind it.  What would have to be measured is None, and then the answer is a range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dlcheck.advise.units import GIB, MIB, count, seconds, size

# What a worker takes before it holds a sample, in bytes: the interpreter with torch, as PSS showed it.
FORKED = 60_000_000
STARTED_ANEW = 120_000_000
JITTER = 1.25  # more than the mean need, since batches differ
IN_HAND = 1  # batches of a worker besides the prefetched ones: one that is being made, or has just been handed over
PREFETCH = 2  # torch's default
PREFETCH_UNEVEN = 4
UNEVEN = 0.3  # standard deviation of a batch's time over its mean, from which on the larger one pays
SHARE_OF_SHM = 0.5  # others use it, too, and what does not fit ends in a bus error
SHARE_OF_MEMORY = 0.6
WORTH = 4  # times what handing a batch over costs: what makes less than that is made where it is used
HAND_OVER_S = 1.5e-3  # a batch from a worker: fixed, and by its bytes
HAND_OVER_BYTES_S = 4e9
MAIN_SHARE = 0.2  # of a core that the main process uses while a device computes, where nobody has measured it
FILES_OF_PROCESS = 128
FILES_OF_WORKER = 16

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
    why_cores: str = "usable cores"


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
    would_change: tuple[str, ...] = field(default=())


def recommend(dataset: DatasetFacts, machine: MachineFacts) -> Recommendation:
    """What to set in a loader with this dataset on this machine."""
    return _Advisor(dataset, machine).recommend()


def needs(dataset: DatasetFacts, machine: MachineFacts, workers: int, prefetch: int) -> tuple[int | None, int | None]:
    """Bytes of memory and of /dev/shm that so many workers of each rank take; None where nothing tells."""
    advisor = _Advisor(dataset, machine)
    return advisor.memory(workers, prefetch, pinned=bool(machine.gpus)), advisor.shm(workers, prefetch)


@dataclass(frozen=True)
class _Advisor:
    dataset: DatasetFacts
    machine: MachineFacts

    # What it takes

    @property
    def method(self) -> str:
        return self.dataset.start_method or self.machine.start_method

    @property
    def copied(self) -> int:
        """Bytes of the dataset that each worker comes to have for itself."""
        data = self.dataset
        copies = data.held == "objects" or data.held == "array" and self.method != "fork"
        return (data.held_bytes or 0) if copies else 0

    @property
    def per_worker(self) -> int:
        """Bytes of a worker without its batches."""
        return (FORKED if self.method == "fork" else STARTED_ANEW) + self.copied

    @property
    def made_s(self) -> tuple[float, float] | None:
        """Seconds of work and of waiting for a batch."""
        data = self.dataset
        if data.cpu_s is None or data.batch_size is None:
            return None
        return data.cpu_s * data.batch_size, (data.wait_s or 0.0) * data.batch_size

    @property
    def handed_over_s(self) -> float:
        return HAND_OVER_S + (self.dataset.batch_bytes or 0) / HAND_OVER_BYTES_S

    def memory(self, workers: int, prefetch: int, *, pinned: bool) -> int | None:
        batch = self.dataset.batch_bytes
        if batch is None:
            return None
        each = self.per_worker + (PREFETCH + IN_HAND) * batch
        ready = (workers * prefetch + 1) * batch * (2 if pinned else 1)
        return int(self.machine.ranks * (workers * each + ready))

    def shm(self, workers: int, prefetch: int) -> int | None:
        batch = self.dataset.batch_bytes
        return None if batch is None else workers * (prefetch + IN_HAND) * batch * self.machine.ranks

    # Caps

    def cores_cap(self) -> Cap | None:
        """As many workers as cores, but for what the main process takes; more where samples mostly wait."""
        cores = self.machine.cores
        if cores is None:
            return None
        workers = max(1, round(cores - self.dataset.main_share)) if cores >= 2 else 1
        why = f"{count(cores, 'usable core')}{' for each rank' if self.machine.ranks > 1 else ''}"
        made = self.made_s
        if made is not None and made[1] > made[0]:
            workers = int(workers * (1 + made[1] / max(made[0], 1e-9)))
            why += f", and samples that wait {made[1] / max(made[0], 1e-9):.0f} times as long as they compute"
        return Cap("cores", workers, why)

    def caps(self) -> list[Cap]:
        return sorted(self._caps(), key=lambda cap: cap.workers)

    def _caps(self) -> Iterator[Cap]:
        data, machine, batch = self.dataset, self.machine, self.dataset.batch_bytes
        shares = f", shared by {machine.ranks} ranks" if machine.ranks > 1 else ""
        cores = self.cores_cap()
        if cores is not None:
            yield cores
        if machine.shm is not None and batch:
            room = int(machine.shm * SHARE_OF_SHM / machine.ranks // (batch * (PREFETCH + IN_HAND)))
            yield Cap("/dev/shm", room, f"half of {size(machine.shm)} free{shares}, {PREFETCH + IN_HAND} batches of "
                                        f"{size(batch)} for each worker")  # fmt: skip
        if machine.memory is not None:
            each = self.per_worker + (PREFETCH + IN_HAND) * (batch or 0)
            room = int(machine.memory * SHARE_OF_MEMORY / machine.ranks // each)
            copy = f", {size(self.copied)} of it the dataset" if self.copied else ""
            yield Cap("memory", room, f"{SHARE_OF_MEMORY:.0%} of {size(machine.memory)} free{shares}, {size(each)} for "
                                      f"each worker{copy}")  # fmt: skip
        if machine.open_files is not None:
            room = max(0, machine.open_files - FILES_OF_PROCESS) // (FILES_OF_WORKER + data.files_per_worker)
            yield Cap("open files", room, f"`ulimit -n` is {machine.open_files}")
        if data.samples and data.batch_size:
            batches = max(1, data.samples // data.batch_size)
            yield Cap("batches per epoch", batches, f"{count(batches, 'batch', 'batches')} in an epoch")
        if data.repeats_in_workers:
            yield Cap("stream", 1, "each worker would give the whole stream again (DLC401)")

    # Workers

    def recommend(self) -> Recommendation:
        caps = self.caps()
        workers, binding = self.workers(caps)
        number = workers.value if isinstance(workers.value, int) else workers.span[1] if workers.span else 0
        prefetch = self.prefetch(number)
        pin = self.pin()
        factor = prefetch.value if isinstance(prefetch.value, int) else 0
        memory = self.memory(number, factor, pinned=pin.value is True and bool(self.machine.gpus))
        return Recommendation(
            num_workers=workers,
            prefetch_factor=prefetch,
            pin_memory=pin,
            persistent_workers=self.persistent(number),
            non_blocking=self.non_blocking(pin),
            start_method=self.start(number),
            caps=tuple(caps),
            binding=binding,
            memory=memory,
            least_memory=self.machine.ranks * number * self.per_worker,
            shm=self.shm(number, factor) if number else 0,
            refused=tuple(self.refused(caps)),
            warnings=tuple(self.warnings(caps)),
            would_change=tuple(self.would_change(workers, binding)),
        )

    def workers(self, caps: list[Cap]) -> tuple[Knob, Cap | None]:
        data, made = self.dataset, self.made_s
        if data.on_gpu:
            return Knob(0, "samples are made on the GPU, which a worker must not use"), None
        if made is not None and sum(made) < WORTH * self.handed_over_s:
            told = f"a batch takes {seconds(sum(made))} to make, and about {seconds(self.handed_over_s)} to hand over"
            return Knob(0, f"{told} from a worker", "measured"), None
        if made is None and data.looks_up:
            return Knob(0, "samples are only looked up in memory, which takes less than to hand them over"), None
        stops = [cap for cap in caps if cap.workers < 1]
        if stops:
            return Knob(0, f"not one worker fits: {stops[0].name} stops it ({stops[0].why})"), stops[0]
        if made is not None:
            return self._by_need(made, caps)
        return self._by_bounds(caps)

    def _by_need(self, made: tuple[float, float], caps: list[Cap]) -> tuple[Knob, Cap | None]:
        """Enough to make a batch while a step goes on; without a step as many as the cores can feed."""
        data, step = self.dataset, self.dataset.step_s
        told = f"a batch takes {seconds(made[0])} of work"
        told += f" and {seconds(made[1])} of waiting" if made[1] else ""
        least = caps[0] if caps else None
        if step is None:
            need = (self.machine.cores or 1) * (1 + made[1] / max(made[0], 1e-9))
            told += "; how long a step takes is not known, so as many as the machine can feed"
        else:
            need = sum(made) / max(step, self.handed_over_s) * JITTER
            told += f", a step {seconds(step)}: {sum(made) / max(step, self.handed_over_s):.1f} workers are busy"
        number = max(1, math.ceil(need))
        bound = least is not None and need > least.workers
        if least is not None and bound:
            number = least.workers
            told += f"; {least.name} allows {least.workers}" if step is not None else ""
        return Knob(number, told, "measured", None if step is not None else (1, number)), least if bound else None

    def _by_bounds(self, caps: list[Cap]) -> tuple[Knob, Cap | None]:
        """Without a time nobody knows the number, only between what it lies."""
        data, network = self.dataset, self.machine.storage == "network"
        hard = [cap for cap in caps if not (network and cap.name == "cores")]
        least = hard[0] if hard else None
        cores = next((cap for cap in caps if cap.name == "cores"), None)
        top = min(cap.workers for cap in hard) if hard else None
        begin = min(cap.workers for cap in caps) if caps else None
        if begin is None or top is None:
            return Knob(None, "neither cores nor memory of this machine are known: measure it", "open"), None
        if network and data.decodes:
            told = f"reading from network storage waits ({data.work}), so that more workers than cores can pay"
            return Knob(begin, told, "estimate", (1, max(top, begin))), None
        bound = f"{least.why}: {count(top, 'worker')} at most" if least is not None else ""
        if data.decodes:
            told = f"samples cost CPU time{f' ({data.work})' if data.work else ''}; {bound}, and fewer may do"
            return Knob(begin, told, "estimate", (1, top)), least
        told = f"what a sample costs is not known from the code; {bound}"
        return Knob(None, told, "open", (0, top)), least

    # The other options

    def prefetch(self, workers: int) -> Knob:
        data, machine, batch = self.dataset, self.machine, self.dataset.batch_bytes
        if not workers:
            return Knob(None, "there are no workers to prefetch")
        uneven = data.variation is not None and data.variation >= UNEVEN
        factor = PREFETCH_UNEVEN if uneven else PREFETCH
        room = machine.shm * SHARE_OF_SHM if machine.shm is not None else None
        while batch and room is not None and factor > 1 and (self.shm(workers, factor) or 0) > room:
            factor -= 1
        if factor < (PREFETCH_UNEVEN if uneven else PREFETCH):
            return Knob(factor, f"more would fill half of the {size(machine.shm or 0)} of /dev/shm")
        if data.variation is None:
            return Knob(factor, "torch's default; 4 pays where the times of batches vary by 30 % or more", "estimate")
        told = f"the time of a batch varies by {data.variation:.0%}"
        return Knob(factor, f"{told}: {'a longer queue evens it out' if uneven else 'two are enough'}", "measured")

    def pin(self) -> Knob:
        data, gpus = self.dataset, self.machine.gpus
        if data.on_gpu:
            return Knob(False, "CUDA tensors cannot be pinned: torch raises an error")
        if data.device in ("cpu", "mps"):
            where = "on the CPU" if data.device == "cpu" else "by a Mac's GPU, for which nothing is pinned"
            return Knob(False, f"the batches are used {where}")
        if gpus == 0 and data.device == "cuda":
            return Knob(True, "for CUDA; without a GPU, as here, torch only warns", "estimate")
        if gpus == 0:
            return Knob(False, "there is no GPU here: torch only warns")
        if data.device == "cuda" or gpus and data.moved_by:
            return Knob(True, self._pinned(), "estimate")
        if gpus:
            return Knob(None, "where the batches go is not known from the code: True if they are copied to the GPU",
                        "open")  # fmt: skip
        return Knob(None, "whether there is a GPU is not known", "open")

    def _pinned(self) -> str:
        batch = self.dataset.batch_bytes
        held = f" ({size(batch)} a batch)" if batch else ""
        return f"the copy to the GPU{held} needs no staging, and can run while the host goes on"

    def persistent(self, workers: int) -> Knob:
        data = self.dataset
        if not workers:
            return Knob(False, "there are no workers to keep")
        if data.changes:
            return Knob(False, data.changes)
        if data.passes == 1:
            return Knob(False, "the program goes through it once")
        cost = "0.04 to 0.2 s with fork" if self.method == "fork" else f"3 to 10 s with {self.method}"
        if data.repeats or data.passes:
            often = f" {data.passes} times" if data.passes else " again and again"
            return Knob(True, f"the program goes through it{often}: {cost} to start workers each time")
        if data.repeats is False:
            return Knob(False, "the code shows one pass through it", "estimate")
        return Knob(True, f"if the program goes through it more than once: {cost} to start workers", "estimate")

    def non_blocking(self, pin: Knob) -> Knob:
        if self.dataset.moved_by:
            return Knob(None, f"{self.dataset.moved_by} copies the batches")
        if pin.value is True:
            return Knob(True, "the host need not wait for copies of pinned batches", pin.basis)
        if pin.value is None:
            return Knob(None, "as pin_memory: without it the copy blocks anyway", "open")
        return Knob(False, "without pinned batches it changes nothing")

    def start(self, workers: int) -> Knob:
        data, method = self.dataset, self.method
        origin = "the program chooses it" if data.start_method else "Python's default here"
        if not workers:
            return Knob(None, "there are no workers to start")
        if method == "fork":
            told = f"{origin}: workers share what the dataset holds"
            return Knob(method, told + (", but of Python objects each makes a copy by and by" * (data.held == "objects")))
        if self.copied or data.held in ("array", "objects") and data.held_bytes is None:
            much = size(self.copied) if self.copied else "what the dataset keeps"
            told = f"{origin}: each worker gets a copy of {much}; a torch tensor or a memory map would be shared"
            return Knob(method, told)
        return Knob(method, f"{origin}: the dataset is pickled for each worker, which starts anew")

    # What stands in the way

    def refused(self, caps: list[Cap]) -> Iterator[str]:
        """Limits that leave no room for a single worker, and what would."""
        for cap in caps:
            if cap.workers >= 1 or self.dataset.looks_up or self.dataset.on_gpu:
                continue
            others = [other.workers for other in caps if other is not cap and other.workers >= 1]
            wanted = self._wanted(min(others, default=1))
            if cap.name == "/dev/shm":
                yield self._more_shm(wanted)
            elif cap.name == "memory":
                yield f"memory: not one worker fits ({cap.why})"
            else:
                yield f"{cap.name}: not one worker fits ({cap.why}); raise it"

    def _wanted(self, most: int) -> int:
        """The workers that would be had without the limit in the way."""
        made, step = self.made_s, self.dataset.step_s
        if made is None or step is None:
            return most
        return max(1, min(most, math.ceil(sum(made) / max(step, self.handed_over_s) * JITTER)))

    def _more_shm(self, workers: int) -> str:
        machine = self.machine
        needed = self.shm(workers, PREFETCH) or 0
        total = size(machine.shm_total if machine.shm_total is not None else machine.shm or 0)
        return (
            f"/dev/shm of {total}: {count(workers, 'worker')} would keep up to {size(needed)} of batches there, and a "
            f"worker that finds it full dies with a bus error; {shm_remedy(needed, machine.container)}"
        )

    def warnings(self, caps: list[Cap]) -> Iterator[str]:
        made, step = self.made_s, self.dataset.step_s
        cores = next((cap for cap in caps if cap.name == "cores"), None)
        if made is not None and step is not None and cores is not None and not self.dataset.looks_up:
            workers = max(1, round((self.machine.cores or 1) - self.dataset.main_share))
            if made[0] / workers > step and sum(made) >= WORTH * self.handed_over_s:
                yield (
                    f"CPU-bound: {count(workers, 'worker')} on {cores.why.partition(',')[0]} make a batch every "
                    f"{seconds(made[0] / workers)}, and a step takes {seconds(step)}: decode less, cache it, or "
                    "shrink the data"
                )

    def would_change(self, workers: Knob, binding: Cap | None) -> Iterator[str]:
        """What is not known, and would give another answer."""
        data = self.dataset
        if data.on_gpu or workers.basis == "known" and binding is None:
            return
        open_ = {"the time of a sample": data.cpu_s, "the time of a step": data.step_s, "the size of a batch": data.batch_bytes}
        yield from (what for what, value in open_.items() if value is None)
        copied = data.held == "objects" or data.held == "array" and self.method != "fork"
        if copied and data.held_bytes is None:
            yield "the size of what the dataset keeps, of which each worker comes to have a copy"
        if binding is not None and workers.value != 0 and workers.basis == "measured":
            yield f"more {binding.name}"


def shm_remedy(needed: int, container: str) -> str:
    """How to get so many bytes of /dev/shm, and as many again for what else lies there."""
    gigabytes = math.ceil(needed / SHARE_OF_SHM / GIB)
    amount = f"{gigabytes}g" if needed / SHARE_OF_SHM > GIB else f"{math.ceil(needed / SHARE_OF_SHM / (64 * MIB)) * 64}m"
    if container in ("kubernetes", "kubepods"):
        return f"mount an emptyDir with `medium: Memory` and `sizeLimit: {amount}i` at /dev/shm".replace("gi`", "Gi`").replace("mi`", "Mi`")
    if container:
        return f"start the container with --shm-size={amount}"
    return f"`mount -o remount,size={amount} /dev/shm`, or --shm-size={amount} for a container"
