"""What workers take of a machine, and so how many of them it has room for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dlcheck.advise.known import Cap, DatasetFacts, MachineFacts
from dlcheck.advise.units import GIB, MIB, count, size

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
FILES_OF_PROCESS = 128
FILES_OF_WORKER = 16

KUBERNETES = ("kubernetes", "kubepods")
FULL = "a worker that finds it full dies ('No space left on device', or a bus error)"


@dataclass(frozen=True)
class Costs:
    """What a loader takes with this dataset on this machine."""

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
            told = f"half of {size(machine.shm)} free{shares}"
            yield Cap("/dev/shm", room, f"{told}, {PREFETCH + IN_HAND} batches of {size(batch)} for each worker")
        if machine.memory is not None:
            each = self.per_worker + (PREFETCH + IN_HAND) * (batch or 0)
            room = int(machine.memory * SHARE_OF_MEMORY / machine.ranks // each)
            copy = f", {size(self.copied)} of it the dataset" if self.copied else ""
            told = f"{100 * SHARE_OF_MEMORY:.0f} % of {size(machine.memory)} free{shares}"
            yield Cap("memory", room, f"{told}, {size(each)} for each worker{copy}")
        if machine.open_files is not None:
            room = max(0, machine.open_files - FILES_OF_PROCESS) // (FILES_OF_WORKER + data.files_per_worker)
            yield Cap("open files", room, f"`ulimit -n` is {machine.open_files}")
        if data.samples and data.batch_size:
            batches = max(1, data.samples // data.batch_size)
            yield Cap("batches per epoch", batches, f"{count(batches, 'batch', 'batches')} in an epoch")
        if data.repeats_in_workers:
            yield Cap("stream", 1, "each worker would give the whole stream again (DLC401)")


def shm_remedy(needed: int, container: str) -> str:
    """How to get so many bytes of /dev/shm, and as many again for what else lies there."""
    wanted = needed / SHARE_OF_SHM
    number, unit = (math.ceil(wanted / GIB), "G") if wanted > GIB else (math.ceil(wanted / MIB / 64) * 64, "M")
    if container in KUBERNETES:
        return f"mount an emptyDir with `medium: Memory` and `sizeLimit: {number}{unit}i` at /dev/shm"
    amount = f"{number}{unit.lower()}"
    if container:
        return f"start the container with --shm-size={amount}"
    return f"`mount -o remount,size={amount} /dev/shm`, or --shm-size={amount} for a container"
