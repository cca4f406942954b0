"""What to set in a loader: a pure function of what is known of its dataset and of the machine.

The formulas, and the machines that they were held against, are told in docs/advise.md; no threshold stands here
without a measurement behind it.  What would have to be measured is None, and then the answer is a range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dlcheck.advise.costs import FULL, JITTER, PREFETCH, PREFETCH_UNEVEN, SHARE_OF_SHM, UNEVEN, WORTH, Costs, shm_remedy
from dlcheck.advise.known import Basis, Cap, DatasetFacts, Knob, MachineFacts, Recommendation
from dlcheck.advise.units import count, seconds, size

__all__ = ["Basis", "Cap", "DatasetFacts", "Knob", "MachineFacts", "Recommendation", "needs", "recommend"]


def recommend(dataset: DatasetFacts, machine: MachineFacts) -> Recommendation:
    """What to set in a loader with this dataset on this machine."""
    return _Advisor(dataset, machine).recommend()


def needs(dataset: DatasetFacts, machine: MachineFacts, workers: int, prefetch: int) -> tuple[int | None, int | None]:
    """Bytes of memory and of /dev/shm that so many workers of each rank take; None where nothing tells."""
    costs = Costs(dataset, machine)
    return costs.memory(workers, prefetch, pinned=bool(machine.gpus)), costs.shm(workers, prefetch)


@dataclass(frozen=True)
class _Advisor(Costs):
    """Decides option by option."""

    def recommend(self) -> Recommendation:
        caps = self.caps()
        workers, binding = self.workers(caps)
        number = workers.value if isinstance(workers.value, int) else workers.span[1] if workers.span else 0
        prefetch = self.prefetch(number)
        pin = self.pin(number)
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
            refused=tuple(self.refused(caps)) if binding is not None and binding.workers < 1 else (),
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
        step = self.dataset.step_s
        told = f"a batch takes {seconds(made[0])} of work"
        told += f" and {seconds(made[1])} of waiting" if made[1] > made[0] / 20 else ""
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
            told += f"; {least.name}: {least.workers} at most" if step is not None else ""
        return Knob(number, told, "measured", None if step is not None else (1, number)), least if bound else None

    def _by_bounds(self, caps: list[Cap]) -> tuple[Knob, Cap | None]:
        """Without a time nobody knows the number, only between what it lies."""
        data = self.dataset
        if not caps:
            return Knob(None, "neither cores nor memory of this machine are known: measure it", "open"), None
        least, *_ = caps
        others = [cap.workers for cap in caps if cap.name != "cores"]
        work = f" ({data.work})" if data.work else ""
        if data.decodes and self.machine.storage == "network" and least.name == "cores" and others:
            told = f"reading from network storage waits{work}, so that more workers than cores can pay"
            return Knob(least.workers, told, "estimate", (1, min(others))), None
        bound = f"{least.why}: {count(least.workers, 'worker')} at most"
        if data.decodes:
            told = f"samples cost CPU time{work}; {bound}, and fewer may do"
            return Knob(least.workers, told, "estimate", (1, least.workers)), least
        told = f"what a sample costs is not known from the code; {bound}"
        told += ", and more only where samples wait" if least.name == "cores" else ""
        return Knob(None, told, "open", (0, least.workers)), least

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
        told = f"the time of a batch varies by {100 * data.variation:.0f} %"
        return Knob(factor, f"{told}: {'a longer queue evens it out' if uneven else 'two are enough'}", "measured")

    def pin(self, workers: int) -> Knob:
        data, gpus = self.dataset, self.machine.gpus
        if data.on_gpu:
            return Knob(False, "CUDA tensors cannot be pinned: torch raises an error")
        if data.device in ("cpu", "mps"):
            where = "on the CPU" if data.device == "cpu" else "by a Mac's GPU, for which nothing is pinned"
            return Knob(False, f"the batches are used {where}")
        if gpus == 0 and data.device == "cuda" and workers:
            return Knob(True, "for CUDA; without a GPU, as here, torch only warns", "estimate")
        if gpus == 0:
            return Knob(False, "there is no GPU here: torch only warns")
        if not workers:
            return Knob(False, "without workers the main process itself pins, which costs what it saves", "estimate")
        if data.device == "cuda" or gpus and data.moved_by:
            return Knob(True, self._pinned(), "estimate")
        if gpus:
            told = "where the batches go is not known from the code: True if they are copied to the GPU"
            return Knob(None, told, "open")
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
            but = ", but of Python objects each makes a copy by and by" if data.held == "objects" else ""
            return Knob(method, f"{origin}: workers share what the dataset holds{but}")
        if self.copied or data.held in ("array", "objects") and data.held_bytes is None:
            much = size(self.copied) if self.copied else "what the dataset keeps"
            told = f"{origin}: each worker gets a copy of {much}; a torch tensor or a memory map would be shared"
            return Knob(method, told)
        return Knob(method, f"{origin}: the dataset is pickled for each worker, which starts anew")

    # What stands in the way

    def refused(self, caps: list[Cap]) -> Iterator[str]:
        """Limits that leave no room for a single worker, and what would."""
        for cap in caps:
            if cap.workers >= 1:
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
            f"/dev/shm of {total}: {count(workers, 'worker')} would keep up to {size(needed)} of batches there, and "
            f"{FULL}; {shm_remedy(needed, machine.container)}"
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
        open_ = {
            "the time of a sample": data.cpu_s,
            "the time of a step": data.step_s,
            "the size of a batch": data.batch_bytes,
        }
        yield from (what for what, value in open_.items() if value is None)
        copied = data.held == "objects" or data.held == "array" and self.method != "fork"
        if copied and data.held_bytes is None:
            yield "the size of what the dataset keeps, of which each worker comes to have a copy"
        if binding is not None and workers.value != 0 and workers.basis == "measured":
            yield f"more {binding.name}"
