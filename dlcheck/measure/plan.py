"""From a finding to arms that are ready to run; several that go together; and what stands in the way of them here."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlcheck.findings import Finding
from dlcheck.measure.experiments import EXPERIMENTS
from dlcheck.measure.record import Evidence, Fact, Source
from dlcheck.measure.statistics import BLOCKS
from dlcheck.measure.template import EPOCH, Subject, Template

BATCHES = 8


@dataclass(frozen=True)
class Plan:
    """A finding and the arms that decide it: ready to run."""

    finding: Finding
    template: Template
    workload: Mapping[str, Fact]
    base: Mapping[str, Any]  # loader options of every arm

    def config(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """An arm's config: the workload's options, and what the arm has besides."""
        if self.template.device:
            return dict(extra)
        if not self.template.loads:
            return {"block": self.template.block, **extra} if self.template.block else dict(extra)
        loader = {**self.base, **extra.get("loader", {})}
        size = {"batches": BATCHES} if self.template.block in ("epoch", "new-iterator", "one-iterator") else {}
        return {"block": self.template.block, **size, **extra, "loader": loader}

    @property
    def written(self) -> dict[str, Any]:
        return self.config(self.template.written)

    @property
    def suggested(self) -> dict[str, Any]:
        return self.config(self.template.suggested)


def _unlike_what_runs(template: Template, subject: Subject) -> str:
    """Why a finding does not hold for the program as it was started: other options give it another loader."""
    live, written = subject.live.get("num_workers"), template.written.get("loader", {}).get("num_workers")
    if live is None or written is None or not template.extract or bool(live) == bool(written):
        return ""
    return f"run like this the loader has {live or 'no'} worker{'' if live == 1 else 's'}"


def _shaped(template: Template, subject: Subject) -> Template:
    """The stand-in with the samples that the finding's dataset has, as far as the model knows them."""
    dataset, arrays = template.dataset, subject.described.get("sample")
    if dataset.get("kind") != "shaped":
        return template
    if arrays:
        dataset = {"kind": "shaped", "arrays": arrays}
    if subject.described.get("streams") and template.experiment != "memory":
        dataset = {**dataset, "kind": "stream"}
    return replace(template, dataset=dataset)


def plan(subject: Subject) -> Plan | str:
    """The plan of a finding, or why nothing can decide it here."""
    make = EXPERIMENTS.get(subject.finding.code)
    if make is None:
        return "no experiment decides it: it is right or wrong as it is written"
    template = make(subject)
    if isinstance(template, str):
        return template
    unfit = _unlike_what_runs(template, subject)
    if unfit:
        return unfit
    batch_size = subject.fact("batch_size", 32)
    workload = {"batch_size": batch_size} if template.loads else {}
    workload |= {name: Fact(value, "measured") for name, value in subject.measured.items()}
    if template.dataset and not subject.is_live and not template.device:
        template = _shaped(template, subject)
        source: Source = "static" if "arrays" in template.dataset else "default"
        workload["dataset"] = Fact(dict(template.dataset), source)
    if "num_workers" in template.written.get("loader", {}):
        known = subject.fact("num_workers", template.written["loader"]["num_workers"])
        workload["num_workers"] = Fact(template.written["loader"]["num_workers"], known.source)
    if (epochs := subject.epochs) is not None:
        workload["epochs"] = Fact(epochs, "static")
    base = {} if subject.is_live else {"batch_size": batch_size.value}
    return Plan(subject.finding, template, workload, base)


ALL = "ALL"
NO_CUDA = "it needs a CUDA device"
NO_DEVICE = {"cuda": NO_CUDA, "mps": "it needs an Apple GPU"}
NEEDS_LOOP = "it is timed in your own loop: give --run COMMAND, without --extract"


# Without workers torch refuses some of these, and the others mean nothing.
_OF_WORKERS = frozenset({"cv2_threads", "multiprocessing_context", "persistent_workers", "prefetch_factor", "timeout"})


def _settings(side: Mapping[str, Any]) -> dict[str, Any]:
    """What an arm has, options of its loader or not; of what is timed one plan stands for all."""
    return {name: side[name] for name in side if name not in ("block", "loader")} | dict(side.get("loader", {}))


def _changed(one: Plan) -> set[str]:
    """What a suggestion sets otherwise than it is written."""
    written, suggested = _settings(one.template.written), _settings(one.template.suggested)
    return {name for name in written | suggested if written.get(name) != suggested.get(name)}


def _takes_workers_away(one: Plan) -> bool:
    return "num_workers" in _changed(one) and not _settings(one.template.suggested).get("num_workers")


def together(plans: Sequence[Plan]) -> list[Plan]:
    """Those of several suggestions about one loader that can be followed at once.

    There is one number of workers; and where it is none, nothing that only workers have is left to be set.
    """
    numbers = [one for one in plans if "num_workers" in _changed(one)]
    number = next((one for one in numbers if _takes_workers_away(one)), next(iter(numbers), None))
    kept = [one for one in plans if one is number or "num_workers" not in _changed(one)]
    if number is None or not _takes_workers_away(number):
        return [one for one in kept if _changed(one)]
    return [one for one in kept if _changed(one) - _OF_WORKERS]


def combined(plans: Sequence[Plan]) -> Plan:
    """One plan of several that go together: all that is written against all that is suggested, by the epoch."""
    first = plans[0]
    loader = {name: value for one in plans for name, value in one.template.written.get("loader", {}).items()}
    written = {name: value for one in plans for name, value in _settings(one.template.written).items()}
    suggested = dict(written)
    for one in plans:
        wanted = _settings(one.template.suggested)
        suggested.update({name: wanted.get(name) for name in _changed(one)})
        loader.update(one.template.suggested.get("loader", {}))
    if any(map(_takes_workers_away, plans)):
        suggested = {name: value for name, value in suggested.items() if name not in _OF_WORKERS}
    template = Template(
        "epoch",
        EPOCH,
        "epoch",
        _side(written, loader),
        _side(suggested, loader),
        dataset=first.template.dataset,
        sized="epochs",
        blocks=BLOCKS,
    )
    places = sorted({(one.finding.place.path, one.finding.code) for one in plans})
    finding = replace(
        first.finding,
        code=ALL,
        rule="+".join(sorted({code for _, code in places})),
        fingerprint=f"{ALL}-{first.finding.fingerprint}",
        measure={**first.finding.measure, "together": places},
    )
    return replace(first, finding=finding, template=template)


def _side(settings: Mapping[str, Any], loader: Collection[str]) -> dict[str, Any]:
    """An arm's settings, those that are the loader's with it; what is None is left out."""
    plain = {name: value for name, value in settings.items() if name not in loader and value is not None}
    return {**plain, "loader": {name: value for name, value in settings.items() if name in loader}}


def missing(template: Template, evidence: Evidence, subject: Subject, *, has_cuda: bool) -> str:
    """What stands in the way of an experiment here; empty where nothing does."""
    if (template.device or template.cuda) and not has_cuda:
        return NO_CUDA
    if template.gauge == "statement" and evidence != "in-vivo":
        return NEEDS_LOOP
    if template.parallel and subject.cores < 2:
        return f"it needs two usable cores, and there are {subject.cores:g}"
    if template.cost_decides and evidence == "synthetic":
        return "what a sample costs decides it, and nothing here knows: give --run COMMAND or --factory MODULE:FUNCTION"
    if template.experiment == "memory" and not os.path.exists("/proc/self/smaps_rollup"):
        return "it needs /proc/PID/smaps_rollup (Linux): other systems do not tell which memory is shared"
    method = template.written.get("loader", {}).get("multiprocessing_context")
    if method == "fork" and sys.platform == "win32":
        return "it needs fork, which Windows does not have"
    return ""


ARMS = 3  # that are alive at once: as written, once more, and as suggested
SHARE = 0.5  # of what is free: more, and the machine measures how it swaps


def too_large(one: Plan, machine: Mapping[str, Any], ranks: int = 1) -> str:
    """Why the batches of all arms would not fit into this machine's memory; empty where they do, or nobody knows."""
    batch = 0 if one.template.device else _batch_bytes(one.workload)
    loader = one.written.get("loader", {})
    workers = max(int(loader.get("num_workers") or 0), int(one.suggested.get("loader", {}).get("num_workers") or 0))
    ahead = workers * int(loader.get("prefetch_factor") or 2)
    needed = ranks * ARMS * batch * (ahead + 2)
    known = ("available_memory", "shm_free") if workers else ("available_memory",)
    for name in known:
        free = machine.get(name)
        if free is not None and needed > SHARE * free:
            where = "/dev/shm" if name == "shm_free" else "memory"
            told = f"{ahead + 2} batches of {batch / 1e6:.0f} MB in each of {ARMS} arms"
            told += f" on {ranks} ranks" if ranks > 1 else ""
            return f"{told} do not fit into half of the {free / 1e6:.0f} MB that are free in {where}"
    return ""


def _batch_bytes(workload: Mapping[str, Fact]) -> int:
    size, sample, dataset = (workload.get(name) for name in ("batch_size", "sample_bytes", "dataset"))
    if size is None or not isinstance(size.value, int):
        return 0
    if sample is not None:
        return size.value * int(sample.value)
    arrays = dataset.value.get("arrays", ()) if dataset is not None else ()
    return size.value * sum(int(array["bytes"]) for array in arrays)
