"""From a finding to arms: what is written, what is suggested, what is timed of both, and what that needs.

One function a rule says it; everything else here is shared.  A rule's page names the same experiment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dlcheck.findings import Finding
from dlcheck.measure.record import Evidence, Experiment, Fact, Metric, Source
from dlcheck.measure.statistics import BLOCKS

PER_EPOCH = Metric("epoch", "s/epoch", "additive")
EPOCH = Metric("epoch", "s/epoch", "ratio")
STEP = Metric("step", "s/step", "ratio")
PER_STEP = Metric("step", "s/step", "additive")
ADDED = Metric("memory that the workers add", "bytes", "memory")
IN_FLIGHT = Metric("shared memory in flight", "bytes", "memory")

# Of a stretch of the program's own loop: the memory that its steps add, or how long one statement takes.
Gauge = Literal["", "memory", "statement"]

AT_MOST = "at most"  # a step that nobody watches, less all of a statement's time, watching it included

SHAPE = (3, 64, 64)
ROWS = 50_000
STRINGS = 300_000
BLOCK_MB = 128
STEPS = 200  # of a training whose memory grows
# Two threads that copy a row wait for each other longer than the copy takes, where a neighbour has one's CPU.
ALONE = {"threads": 1}


@dataclass(frozen=True)
class Template:
    """What a rule asks for.

    ``written`` and ``suggested`` are what the arms' configs have besides the workload's; ``block`` is
    the worker's name of what is timed.  ``parallel``: the answer depends on how many cores are free.
    ``cost_decides``: a stand-in whose samples cost nothing would turn the answer round.
    ``dataset`` is the stand-in's; ``extract``: whether the arms can be built of the user's own loader;
    ``same_batches``: whether both arms must give the same; ``in_vivo``: whether they can take turns in
    feeding the program's own loop, and ``gauge`` what its stretches are measured by there, where that is not
    time; ``loads``: whether arms have loaders at all.  ``device``: the worker's name of an experiment with a
    CUDA device, whose arms are its own; ``cuda``: whether only such a device shows it.
    """

    experiment: Experiment
    metric: Metric
    block: str
    written: Mapping[str, Any] = field(default_factory=dict)
    suggested: Mapping[str, Any] = field(default_factory=dict)
    controls: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=lambda: {"kind": "shaped", "shape": SHAPE})
    sized: str = ""
    blocks: int | None = None
    warm_ups: int = 1
    parallel: bool = False
    cost_decides: bool = False
    extract: bool = True
    same_batches: bool = True
    in_vivo: bool = False
    gauge: Gauge = ""
    loads: bool = True
    device: str = ""
    cuda: bool = False

    @property
    def only_in_its_loop(self) -> bool:
        """Whether nothing else will do where the program's own loop was meant, and cannot be fed."""
        return bool(self.device) or self.gauge == "statement"


@dataclass(frozen=True)
class Subject:
    """What is known of the loader that a finding is about, as the model described it, or as it was when it ran."""

    finding: Finding
    described: Mapping[str, Any]
    live: Mapping[str, Any] = field(default_factory=dict)  # its options in the running program
    cores: float = 1
    start_method: str = ""  # of the interpreter that runs it
    measured: Mapping[str, Any] = field(default_factory=dict)  # of its samples

    def option(self, name: str, default: Any) -> Any:
        return self.fact(name, default).value

    def fact(self, name: str, default: Any) -> Fact:
        """The value of a loader's option, and where it is known from."""
        if self.live.get(name) is not None:
            return Fact(self.live[name], "measured")
        options: Mapping[str, Any] = self.described.get("options", {})
        if options.get(name) is not None:
            return Fact(options[name], "static")
        # Of several known values the largest is what the fault is about: workers rather than none.
        candidates = [one for one in self.described.get("candidates", {}).get(name, ()) if isinstance(one, (int, str))]
        if candidates:
            return Fact(max(candidates, key=lambda one: (isinstance(one, int), one)), "static")
        return Fact(default, "default")

    @property
    def workers(self) -> int:
        """Of a finding about workers: as written, else two."""
        return max(1, int(self.option("num_workers", 2)))

    @property
    def context(self) -> str:
        """The start method that is written, or in force."""
        written = self.option("multiprocessing_context", None)
        return written if isinstance(written, str) else self.start_method

    @property
    def epochs(self) -> int | None:
        """How often the program goes through the loader; of a running one, whose options may say otherwise, unknown."""
        free = self.is_live and self.described.get("epochs_free")
        return None if free else self.described.get("epochs")

    @property
    def variant(self) -> str:
        """Which of the things that its rule looks for the finding is about."""
        return str(self.described.get("variant", ""))

    @property
    def about(self) -> Mapping[str, Any]:
        """What its rule says of the fault besides the loader."""
        known: Mapping[str, Any] = self.described.get("about", {})
        return known

    @property
    def is_live(self) -> bool:
        return bool(self.live)


def _workers(subject: Subject, **others: Any) -> dict[str, Any]:
    return {"num_workers": subject.workers, **others}


def missing_persistent_workers(subject: Subject) -> Template:
    return Template(
        "epoch",
        PER_EPOCH,
        "epoch",
        {"loader": _workers(subject, persistent_workers=False)},
        {"loader": _workers(subject, persistent_workers=True)},
        sized="epochs",
    )


def loader_rebuilt_in_loop(subject: Subject) -> Template:
    workers = int(subject.option("num_workers", 2))
    keep = {"num_workers": workers, **({"persistent_workers": True} if workers else {})}
    return Template(
        "epoch",
        PER_EPOCH,
        "epoch",
        {"loader": {"num_workers": workers, "persistent_workers": False}, "rebuild": True},
        {"loader": keep},
        sized="epochs",
    )


def next_iter_in_loop(subject: Subject) -> Template:
    return Template(
        "steady",
        STEP,
        "new-iterator",
        {"loader": {"num_workers": int(subject.option("num_workers", 2))}},
        {"loader": {"num_workers": int(subject.option("num_workers", 2))}, "block": "one-iterator"},
        sized="batches",
    )


def _side_by_side(written: Mapping[str, Any], suggested: Mapping[str, Any], **how: Any) -> Template:
    """A step of two ways to share the cores, which only the cost of real samples can tell apart."""
    return Template(
        "steady", STEP, "steady", written, suggested, sized="batches", parallel=True, cost_decides=True, **how
    )


def synchronous_loading(subject: Subject) -> Template:
    alone = {"loader": {"num_workers": 0}}
    suggested = {"loader": {"num_workers": max(1, int(subject.cores))}}
    return _side_by_side(alone, suggested, controls={"one thread": {**alone, "threads": 1}}, in_vivo=True)


def too_many_workers(subject: Subject) -> Template:
    suggested = {"loader": {"num_workers": max(1, int(subject.cores))}}
    return _side_by_side({"loader": _workers(subject)}, suggested, in_vivo=True)


def workers_for_in_memory_data(subject: Subject) -> Template:
    return Template(
        "epoch",
        EPOCH,
        "epoch",
        {"loader": _workers(subject)},
        {"loader": {"num_workers": 0}},
        dataset={"kind": "tensors"},
    )


def pin_memory_no_effect(subject: Subject) -> Template:
    workers = int(subject.option("num_workers", 0))
    return Template(
        "epoch",
        EPOCH,
        "epoch",
        {"loader": {"num_workers": workers, "pin_memory": True}},
        {"loader": {"num_workers": workers, "pin_memory": False}},
        sized="epochs",
    )


def cv2_threads_in_workers(subject: Subject) -> Template:
    loader = {"loader": _workers(subject)}
    return _side_by_side(loader, {**loader, "cv2_threads": 0})


def per_item_tensor_fetch(subject: Subject) -> Template:
    return Template(
        "epoch",
        EPOCH,
        "epoch",
        {"loader": {"num_workers": 0, "shuffle": True}, **ALONE},
        {"loader": {"num_workers": 0, "indexed": "batches"}, **ALONE},
        dataset={"kind": "rows", "size": ROWS},
        extract=False,
    )


def tensors_of_arrays(subject: Subject) -> Template:
    return _samples({"kind": "row-lists"}, {"kind": "stacked-rows"})


def python_list_sample(subject: Subject) -> Template:
    return _samples({"kind": "number-lists"}, {"kind": "number-tensors"})


def whole_file_read_per_item(subject: Subject) -> Template:
    return _samples({"kind": "whole-file"}, {"kind": "part-of-file"}, same_batches=True)


def listdir_in_getitem(subject: Subject) -> Template:
    return _samples({"kind": "listed-again"}, {"kind": "listed-once"}, same_batches=True)


def pandas_row_in_getitem(subject: Subject) -> Template:
    return _samples({"kind": "frame-rows"}, {"kind": "frame-columns"})


def totensor_before_crop(subject: Subject) -> Template:
    return _samples({"kind": "late-crops"}, {"kind": "early-crops"}, same_batches=True)


def view_ships_whole_storage(subject: Subject) -> Template:
    written, suggested = {"kind": "views"}, {"kind": "views", "cloned": True}
    return Template(
        "epoch",
        EPOCH,
        "epoch",
        {"loader": _workers(subject, batch_size=None), "dataset": written},
        {"loader": _workers(subject, batch_size=None), "dataset": suggested},
        dataset=written,
        extract=False,
    )


def _samples(written: Mapping[str, Any], suggested: Mapping[str, Any], *, same_batches: bool = False) -> Template:
    """Two ways to make the same samples, in the process that asks for them."""
    return Template(
        "epoch",
        EPOCH,
        "epoch",
        {"loader": {"num_workers": 0}, "dataset": written, **ALONE},
        {"loader": {"num_workers": 0}, "dataset": suggested, **ALONE},
        dataset=written,
        sized="epochs",
        extract=False,
        same_batches=same_batches,
    )


def cow_growth(subject: Subject) -> Template:
    """Reference counts make each worker copy the pages that it reads: only where they share them at first."""
    return _memory(subject, "fork", {"kind": "strings", "size": STRINGS}, {"kind": "packed-strings", "size": STRINGS})


def spawn_copies_dataset(subject: Subject) -> Template:
    method = subject.context if subject.context in ("spawn", "forkserver") else "spawn"
    return _memory(
        subject,
        method,
        {"kind": "block", "megabytes": BLOCK_MB},
        {"kind": "block", "megabytes": BLOCK_MB, "shared": True},
    )


def eager_dataset_loading(subject: Subject) -> Template:
    """As written under the start method in force; a dataset that reads an item when it is asked holds nothing."""
    return _memory(
        subject, subject.context or "fork", {"kind": "block", "megabytes": BLOCK_MB}, {"kind": "block", "megabytes": 1}
    )


def _memory(subject: Subject, method: str, written: Mapping[str, Any], suggested: Mapping[str, Any]) -> Template:
    # Random access in large batches gets to every page soon.
    options = {"num_workers": subject.workers, "multiprocessing_context": method, "batch_size": 512, "shuffle": True}
    return Template(
        "memory",
        ADDED,
        "memory",
        {"loader": options, "dataset": written},
        {"loader": options, "dataset": suggested},
        dataset=written,
        blocks=1,
        # Spawned workers are new in any case, and it is their start that takes long; a first fork readies the parent.
        warm_ups=int(method == "fork"),
        extract=False,
    )


def cycle_over_loader(subject: Subject) -> Template:
    return _kept_batches(subject)


def hoarded_worker_tensors(subject: Subject) -> Template:
    return _kept_batches(subject)


def _kept_batches(subject: Subject) -> Template:
    """What is kept of every batch stays in memory; what is let go does not."""
    workers = int(subject.option("num_workers", 0))
    return Template(
        "memory",
        Metric("memory that an epoch adds", "bytes", "memory"),
        "memory",
        {"loader": {"num_workers": workers}, "keep": True},
        {"loader": {"num_workers": workers}},
        blocks=1,
    )


def excessive_prefetch(subject: Subject) -> Template:
    return Template(
        "memory",
        IN_FLIGHT,
        "in-flight",
        {"loader": _workers(subject, prefetch_factor=int(subject.option("prefetch_factor", 16)))},
        {"loader": _workers(subject, prefetch_factor=2)},
        blocks=1,
    )


# Steps


def loss_graph_accumulation(subject: Subject) -> Template:
    """In the program itself only a sum can be taken without its graph: what a list is given, nobody can change."""
    return _steps(
        "summed-losses",
        f"memory that {STEPS} steps add",
        {},
        {"detached": True, "patch": "detached"},
        in_vivo=subject.about.get("how") == "sum",
        gauge="memory",
    )


def gpu_tensors_hoarded(subject: Subject) -> Template:
    """A graph is kept wherever it is; that a copy on the host frees the device's memory only a device shows."""
    graph = subject.variant == "with-graph"
    written = {"keeps": "graph" if graph else "output"}
    return _steps("kept-outputs", "memory that 40 batches add", written, {"keeps": "copy"}, cuda=not graph)


def eval_without_no_grad(subject: Subject) -> Template:
    return _steps("recorded-evaluation", "memory that a forward pass holds", {}, {"no_grad": True})


def _steps(block: str, name: str, written: Mapping[str, Any], suggested: Mapping[str, Any], **how: Any) -> Template:
    """What steps of a small network leave in memory, or hold meanwhile."""
    metric = Metric(name, "bytes", "memory")
    network = {"kind": "network"}
    return Template(
        "memory", metric, block, written, suggested, dataset=network, blocks=1,
        extract=False, same_batches=False, loads=False, **how,
    )  # fmt: skip


def host_work_in_train_loop(subject: Subject) -> Template:
    """The step as it is against what is left of it without the statement.

    Watching it takes time as well, which makes what is left longer: no more is shown than there is.
    """
    return Template(
        "steady",
        Metric("step without the statement", "s/step", "ratio"),
        "",
        suggested={"without": "the statement"},
        controls={AT_MOST: {"without": "the statement"}},
        dataset={},
        extract=False,
        same_batches=False,
        in_vivo=True,
        gauge="statement",
        loads=False,
    )


def column_then_row_index(subject: Subject) -> Template:
    return _samples({"kind": "column-first"}, {"kind": "row-first"}, same_batches=True)


def trainer_arguments_loading(subject: Subject) -> Template | str:
    """The trainer's loader is a loader: which of its options the finding is about decides what is compared."""
    if subject.variant == "prefetch":
        return "the arguments themselves raise an error: there is nothing to time"
    options = {"respawn": missing_persistent_workers, "pin": missing_pin_memory}
    return options.get(subject.variant, synchronous_loading)(subject)


# With a device


def _transfer(written: Mapping[str, Any], suggested: Mapping[str, Any], **how: Any) -> Template:
    return Template("transfer", STEP, "", written, suggested, device="transfer", extract=False, **how)


PINNED = {"pinned": True}
NON_BLOCKING = {"non_blocking": True}


def blocking_transfer(subject: Subject) -> Template:
    """How long the step computes decides it: a copy hides behind a long one, and gains nothing before it."""
    written, suggested = PINNED, {**PINNED, **NON_BLOCKING, "patch": "non_blocking"}
    return _transfer(written, suggested, cost_decides=True, in_vivo=True)


def non_blocking_without_pin(subject: Subject) -> Template:
    suggested = {**PINNED, **NON_BLOCKING, "loader": {"pin_memory": True}}
    return _transfer(NON_BLOCKING, suggested, cost_decides=True, in_vivo=True)


def missing_pin_memory(subject: Subject) -> Template:
    return _transfer({}, {**PINNED, "loader": {"pin_memory": True}}, cost_decides=True, in_vivo=True)


def inline_pin_memory(subject: Subject) -> Template:
    return _transfer({"pin_and_copy": True, **NON_BLOCKING}, {})


def host_tensor_then_move(subject: Subject) -> Template:
    metric = Metric("call", "s/call", "ratio")
    return Template("transfer", metric, "", {}, {"on_device": True}, device="making", extract=False)


def loop_invariant_transfer(subject: Subject) -> Template:
    return Template("transfer", PER_STEP, "", {}, {"once": True}, device="constants", extract=False)


def cast_before_transfer(subject: Subject) -> Template:
    return Template("transfer", PER_STEP, "", {}, {"on_device": True}, device="casts", extract=False)


def unsynchronised_gpu_timing(subject: Subject) -> Template:
    metric = Metric("what the clock misses", "s/call", "additive")
    return Template("sync", metric, "", {}, {"synchronised": True}, device="clocks", extract=False)


def sync_every_step(subject: Subject) -> Template:
    """A step that launches little has little to lose."""
    return Template(
        "sync",
        STEP,
        "",
        {"sync": "item", "every": 1},
        {"sync": "item", "every": 50, "patch": "stale_item"},
        device="sync",
        extract=False,
        cost_decides=True,
        in_vivo=True,
    )


def stall_call_in_loop(subject: Subject) -> Template:
    return Template("sync", STEP, "", {"empty_cache": True}, {}, device="empty-cache", extract=False)


PLANS: dict[str, Callable[[Subject], Template | str]] = {
    "DLC101": blocking_transfer,
    "DLC102": non_blocking_without_pin,
    "DLC103": missing_pin_memory,
    "DLC104": inline_pin_memory,
    "DLC108": pin_memory_no_effect,
    "DLC111": host_tensor_then_move,
    "DLC112": loop_invariant_transfer,
    "DLC113": cast_before_transfer,
    "DLC201": synchronous_loading,
    "DLC202": missing_persistent_workers,
    "DLC204": workers_for_in_memory_data,
    "DLC205": too_many_workers,
    "DLC206": loader_rebuilt_in_loop,
    "DLC207": next_iter_in_loop,
    "DLC208": cycle_over_loader,
    "DLC210": excessive_prefetch,
    "DLC211": cv2_threads_in_workers,
    "DLC215": hoarded_worker_tensors,
    "DLC301": eager_dataset_loading,
    "DLC302": cow_growth,
    "DLC303": spawn_copies_dataset,
    "DLC306": whole_file_read_per_item,
    "DLC307": listdir_in_getitem,
    "DLC308": pandas_row_in_getitem,
    "DLC309": python_list_sample,
    "DLC310": tensors_of_arrays,
    "DLC311": per_item_tensor_fetch,
    "DLC312": view_ships_whole_storage,
    "DLC313": totensor_before_crop,
    "DLC321": column_then_row_index,
    "DLC501": sync_every_step,
    "DLC502": stall_call_in_loop,
    "DLC503": loss_graph_accumulation,
    "DLC504": gpu_tensors_hoarded,
    "DLC505": eval_without_no_grad,
    "DLC506": host_work_in_train_loop,
    "DLC507": unsynchronised_gpu_timing,
    "DLC701": trainer_arguments_loading,
    "DLC702": blocking_transfer,
}


@dataclass(frozen=True)
class Question:
    """What is asked of the user's own dataset and loader where a result is wrong: one counterexample confirms.

    ``refutes``: whether the absence of one shows that there is none; of a race it does not.
    ``two_runs``: what is counted is compared between two runs of the program.
    ``ranks``: what the ranks of a distributed program are given is "compared"; or the first of them answers
    "instead" of a process that has no others, where that one has nothing to say.
    ``device``: it is asked of such a device, and not of the program.
    """

    oracle: str
    refutes: bool = True
    two_runs: bool = False
    ranks: Literal["", "compared", "instead"] = ""
    device: Literal["", "cuda", "mps"] = ""


QUESTIONS: dict[str, Question] = {
    "DLC107": Question("tensors-not-pinned"),
    "DLC109": Question("read-before-arrival", refutes=False, device="cuda"),
    "DLC110": Question("source-reused-too-soon", refutes=False, device="mps"),
    "DLC209": Question("nested-iteration"),
    "DLC213": Question("batch-cannot-be-sent", refutes=False),
    "DLC214": Question("files-stay-behind"),
    "DLC218": Question("stale-in-workers"),
    "DLC219": Question("state-lost"),
    "DLC304": Question("same-with-workers", refutes=False),
    "DLC305": Question("files-stay-open"),
    "DLC314": Question("samples-raise", refutes=False),
    "DLC315": Question("sample-changes"),
    "DLC316": Question("samples-share-memory"),
    "DLC317": Question("samples-are-missing", refutes=False),
    "DLC318": Question("loader-ignores-dataset"),
    "DLC319": Question("parts-share-dataset"),
    "DLC320": Question("epoch-ends-early", refutes=False),
    "DLC401": Question("copies-per-sample"),
    "DLC402": Question("share-of-a-rank", ranks="compared"),
    "DLC403": Question("randomness-repeats"),
    "DLC404": Question("worker-seeds"),
    "DLC405": Question("sample-never-varies"),
    "DLC406": Question("reseeding-repeats"),
    "DLC407": Question("randomness-repeats", refutes=False),
    "DLC408": Question("indices-of-split", two_runs=True),
    "DLC409": Question("workers-fail-to-start", refutes=False),
    "DLC410": Question("order-repeats", ranks="instead"),
    "DLC412": Question("share-of-a-rank", ranks="compared"),
    "DLC413": Question("samples-left-out"),
    "DLC414": Question("draws-beyond-the-end"),
    "DLC415": Question("samples-left-out"),
    "DLC416": Question("samples-drawn-twice", ranks="instead"),
    "DLC417": Question("order-is-fixed"),
    "DLC418": Question("order-changes"),
    "DLC419": Question("last-batch-is-one"),
    "DLC420": Question("batches-differ"),
    "DLC421": Question("second-pass-is-empty"),
    "DLC602": Question("cannot-be-pickled"),
    "DLC603": Question("cannot-be-pickled"),
}

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
    make = PLANS.get(subject.finding.code)
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
