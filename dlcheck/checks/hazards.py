"""Rules about what breaks inside workers: nested processes, batches that cannot travel, lost or stale state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlcheck.checks import mending, moving
from dlcheck.checks.option_edits import fix_of, set_option, workers_text
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, joint, make_fix, provenance, written
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Finding, Fix
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.processes.changes import Change
from dlcheck.model.processes.children import ChildProcess, child_processes
from dlcheck.model.processes.fork_safety import ForkUnsafe, fork_unsafe
from dlcheck.model.processes.state import Kept, kept_by_workers
from dlcheck.model.processes.unsendable import Unsendable, unsendable
from dlcheck.model.program import copies_to_workers
from dlcheck.model.project import Project
from dlcheck.model.scopes import last_name
from dlcheck.model.training.hoarding import WITH_CUDA, Hoard, hoards

facts(ChildProcess, child_processes)
facts(Hoard, hoards)


def _with_workers(loader: Loader, workers: OptionAlt, caption: str) -> list[Spot]:
    """Where it is written that a loader has workers, and where that number comes from."""
    return [written(workers, loader)._replace(caption=caption), *provenance(workers.value)]


@rule("DLC212")
def workers_inside_daemon_process(child: ChildProcess) -> Iterator[Finding]:
    loader, parent = child.loader, child.parent
    if not joint(child.worlds, [child.workers.world], loader.worlds()):
        return
    if parent is None:
        yield finding(
            "DLC212",
            Spot(child.module, child.at),
            child.link,
            related=_with_workers(loader, child.workers, "the workers that run this"),
            what=child.text,
            owner=child.owner,
        )
        return
    spot = written(child.workers, loader)
    yield finding(
        "DLC212",
        spot,
        loader.project.link_at(spot.module, spot.at),
        variant=parent.kind,
        related=[Spot(parent.module, parent.at, "runs it in a daemon"), *provenance(child.workers.value)],
        loader=loader.name,
        owner=parent.name,
    )


@rule("DLC213")
def unpicklable_batch_hang(loader: Loader) -> Iterator[Finding]:
    for found in unsendable(loader):
        for workers in loader.option("num_workers"):
            if workers.positive and joint([found.world], [workers.world], loader.worlds()):
                yield _unsendable(loader, found, workers)
                break


def _unsendable(loader: Loader, found: Unsendable, workers: OptionAlt) -> Finding:
    return finding(
        "DLC213",
        Spot(found.module, found.at),
        found.link,
        variant={"graph": "gradient", "fails": "stacked-gradient", "object": ""}[found.kind],
        related=_with_workers(loader, workers, "the workers that cannot send it"),
        fix=_without_graph(found),
        what=found.what,
        owner=found.owner,
    )


def _without_graph(found: Unsendable) -> Fix | Refused:
    """Gradients off in the function that the worker runs."""
    scope = found.link.scope
    if found.kind == "object":
        return Refused("it takes another way to return what it holds")
    if scope.kind != "function" or scope.function.is_generator:
        return Refused("a generator would switch gradients off for its caller, too")
    torch, imports = mending.alias_of(found.module, "torch", "torch", scope.link)
    edit = moving.add_decorator(found.module.source, found.module.facts, scope, f"{torch}.no_grad()")
    return make_fix("unsafe", f"Put `@{torch}.no_grad()` on `{scope.name}`", [edit, *imports])


@rule("DLC215")
def hoarded_worker_tensors(hoard: Hoard) -> Iterator[Finding]:
    loader = hoard.loader
    if hoard.kind != "worker" or _shares_files(loader.project):
        return
    for workers in loader.option("num_workers"):
        for pinning in loader.pinning(False):
            if workers.positive and joint(hoard.worlds, [workers.world], [pinning.world], [WITH_CUDA], loader.worlds()):
                yield finding(
                    "DLC215",
                    Spot(hoard.module, hoard.at),
                    hoard.link,
                    related=_with_workers(loader, workers, "the workers that send these tensors"),
                    fix=_copied(hoard),
                    value=hoard.text,
                    loader=loader.name,
                )
                return


def _copied(hoard: Hoard) -> Fix | Refused:
    value, module = hoard.value, hoard.module
    if value is None:
        return Refused("a batch may be a list or a dict of tensors")
    is_array = isinstance(value, forms.Call) and last_name(value.func) == "numpy"
    edit = mending.add_call(module.source, module.facts, value, ".copy()" if is_array else ".clone()")
    return make_fix("safe", "Keep a copy", [edit])


def _shares_files(project: Project) -> bool:
    """Whether the program has chosen another way to share tensors: without open files."""
    project.mention("set_sharing_strategy")
    return any(last_name(getattr(site.expr, "func", None)) == "set_sharing_strategy" for module in project.loaded()
               for site in module.calls)  # fmt: skip


@rule("DLC504")
def gpu_tensors_hoarded(hoard: Hoard) -> Iterator[Finding]:
    if hoard.kind == "worker" or not joint(hoard.worlds, hoard.loader.worlds()):
        return
    related = []
    if hoard.transfer is not None:
        related.append(Spot(hoard.transfer.module, hoard.transfer.call.at, "moved to the GPU here"))
    yield finding(
        "DLC504",
        Spot(hoard.module, hoard.at),
        hoard.link,
        variant="with-graph" if hoard.graph else "",
        related=related,
        fix=_to_host(hoard),
        value=hoard.text,
    )


def _to_host(hoard: Hoard) -> Fix | Refused:
    """``.cpu()``, and the values without their graph where it is kept, too."""
    if hoard.value is None:
        return Refused("it may be more than one tensor, or joined to one on the GPU")
    added = ".detach().cpu()" if hoard.graph else ".cpu()"
    edit = mending.add_call(hoard.module.source, hoard.module.facts, hoard.value, added)
    return make_fix("unsafe", f"Add `{added}`", [edit])


@rule("DLC217")
def fork_unsafe_library(loader: Loader) -> Iterator[Finding]:
    chosen = loader.option("multiprocessing_context")
    if copies_to_workers(loader) or not all(option.is_(None) or option.is_("fork") for option in chosen):
        return
    for found in fork_unsafe(loader):
        for workers in loader.option("num_workers"):
            if workers.positive and joint(found.worlds, [workers.world], loader.worlds()):
                yield _fork_unsafe(loader, found, workers)
                break


def _fork_unsafe(loader: Loader, found: ForkUnsafe, workers: OptionAlt) -> Finding:
    threads = found.kind == "threads"
    caption = "used in the main process here" if threads else "used in a worker here"
    other = [Spot(*found.other, caption)] if found.other is not None else []
    return finding(
        "DLC217",
        Spot(found.module, found.at),
        found.link,
        variant="" if threads else "client",
        related=[*other, *_with_workers(loader, workers, "the workers")],
        fix=_fresh_processes(loader),
        what=found.what,
        library=found.library,
        dataset=found.dataset,
    )


def _fresh_processes(loader: Loader) -> Fix | Refused:
    """Workers that are no copies of the process; without workers, torch refuses the option."""
    number = workers_text(loader)
    if isinstance(number, Refused):
        return number
    text = f'"forkserver" if {number} else None' if number else '"forkserver"'
    option = loader.option("multiprocessing_context")[0]
    change = set_option(loader, option, "multiprocessing_context", text)
    verb = "Set" if option.given else "Add"
    return fix_of("unsafe", f"{verb} `multiprocessing_context={text}`", [change])


@rule("DLC218")
def stale_dataset_in_persistent_workers(loader: Loader) -> Iterator[Finding]:
    if loader.framework or _restarts_workers(loader):
        return
    for change in loader.dataset_changes():
        for persistent in loader.option("persistent_workers") if change.attributes else ():
            for workers in loader.option("num_workers"):
                if not (persistent.truthy and workers.positive):
                    continue
                if joint([loop.world for loop in loader.loops], [persistent.world], [workers.world], loader.worlds()):
                    yield finding(
                        "DLC218",
                        Spot(change.module, change.at),
                        change.link,
                        related=[written(persistent, loader)._replace(caption="the workers live on with their copy")],
                        about=_what_changes(change),
                        change=change.text,
                        dataset=change.name,
                        attribute=change.attributes[0],
                        loader=loader.name,
                    )


def _what_changes(change: Change) -> dict[str, Any]:
    arguments = [list(one) for one in change.arguments]
    attributes = list(change.attributes)
    return {"owner": change.name, "attributes": attributes, "method": change.method, "arguments": arguments}


def _restarts_workers(loader: Loader) -> bool:
    """Whether the program throws the iterator away itself: ``loader._iterator = None``."""
    return any(store.target.name == "_iterator" for module in loader.project.loaded() for store in module.stores)


@rule("DLC219")
def state_lost_in_workers(loader: Loader) -> Iterator[Finding]:
    if loader.framework:
        return
    for kept in kept_by_workers(loader):
        for workers in loader.option("num_workers"):
            for persistent in loader.option("persistent_workers"):
                loses = persistent.falsy and _epochs(loader, kept) or kept.kind == "count"
                worlds = joint(kept.worlds, [workers.world], [persistent.world], loader.worlds())
                if workers.positive and loses and worlds:
                    yield _lost(loader, kept, workers)


def _epochs(loader: Loader, kept: Kept) -> bool:
    """Whether the workers of one epoch are followed by others; of a cache, also where nothing is known of epochs."""
    if any(loop.repeated_by() for loop in loader.loops):
        return True
    return kept.kind == "cache" and not loader.loops


def _lost(loader: Loader, kept: Kept, workers: OptionAlt) -> Finding:
    read = [Spot(*kept.read, "read here, in the main process")] if kept.read is not None else []
    return finding(
        "DLC219",
        Spot(kept.module, kept.at),
        kept.link,
        variant={"cache": "", "count": "counter", "turn": "epoch"}[kept.kind],
        related=[*read, *_with_workers(loader, workers, "the workers")],
        about={"owner": kept.dataset, "attributes": [kept.attribute], "kind": kept.kind},
        attribute=kept.attribute,
        dataset=kept.dataset,
    )
