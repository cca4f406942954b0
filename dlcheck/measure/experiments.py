"""From a rule to its experiment: what is written, what is suggested, what is timed of both, and what that needs.

One function a rule says it; a rule's page names the same experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlcheck.measure.record import Metric
from dlcheck.measure.template import (
    ADDED,
    AT_MOST,
    EPOCH,
    IN_FLIGHT,
    PER_EPOCH,
    PER_STEP,
    STEP,
    STEPS,
    Subject,
    Template,
)

ROWS = 50_000
STRINGS = 300_000
BLOCK_MB = 128
# Two threads that copy a row wait for each other longer than the copy takes, where a neighbour has one's CPU.
ALONE = {"threads": 1}


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


EXPERIMENTS: dict[str, Callable[[Subject], Template | str]] = {
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
