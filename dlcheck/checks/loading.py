"""Rules about workers: none, too late, again and again, or with CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.checks.loader_moves import build_once, draw_on
from dlcheck.checks.option_edits import (
    Change,
    argument_text,
    fix_of,
    is_literal,
    remove_option,
    set_in_call,
    set_option,
    workers_text,
)
from dlcheck.checks.registry import rule
from dlcheck.checks.report import Spot, elsewhere, finding, joint, provenance, worlds, written
from dlcheck.checks.worker_edits import moved_in_loop
from dlcheck.edits import Refused
from dlcheck.findings import Finding, Fix
from dlcheck.model.conditions import IN_WORKER
from dlcheck.model.data.samples import CudaUse
from dlcheck.model.frameworks import epochs_by
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.loops import NextCall
from dlcheck.model.processes.nesting import is_nested
from dlcheck.model.rebuilding import loop_of_calls
from dlcheck.model.values import Const, Made, Value
from dlcheck.model.worlds import ANY, World

# Where a program asks whether there is a GPU: only then does anything wait for the samples.
WITH_CUDA = World({("symbol", "cuda"): True})


@rule("DLC201")
def synchronous_loading(loader: Loader) -> Iterator[Finding]:
    waiting = _waits_for_it(loader) if loader.is_plain else []
    for option in loader.option("num_workers"):
        for cost in loader.sample_costs() if option.is_(0) else ():
            if joint([option.world], [cost.world], loader.worlds(), [WITH_CUDA], waiting):
                spot = written(option, loader)
                related = [Spot(cost.spot[0], cost.spot[1], "read here for each sample")] if cost.spot else []
                yield finding(
                    "DLC201",
                    spot,
                    loader.project.link_at(spot.module, spot.at),
                    related=[*related, *provenance(option.value)],
                    fix=_start_workers(loader, option),
                    loader=loader.name,
                    dataset=cost.dataset,
                    what=cost.what,
                )
                return


def _start_workers(loader: Loader, option: OptionAlt) -> Fix | Refused:
    """A few workers: how many help depends on the machine."""
    change = set_option(loader, option, "num_workers", "4")
    return fix_of("unsafe", f"{'Set' if option.given else 'Add'} `num_workers=4`", [change])


def _waits_for_it(loader: Loader) -> list[World]:
    """The worlds in which its batches go to the GPU or to a backward pass, by the program's hand or a trainer's."""
    if loader.trained_by:
        return [ANY]
    copied = [world for transfer, _ in loader.copies() for world in transfer.to_cuda()]
    return copied or ([ANY] if any(loop.trains() for loop in loader.loops) else [])


@rule("DLC202")
def missing_persistent_workers(loader: Loader) -> Iterator[Finding]:
    if loader.never_ends() or loader.dataset_changes():
        return
    if loader.trained_by:
        yield from _respawning_by_trainer(loader)
        return
    for loop in loader.loops:
        if not loop.direct or loop.draws_first():  # DLC207 says it
            continue
        for option in loader.option("persistent_workers") if loop.repeated_by() else ():
            for workers in loader.option("num_workers"):
                if not (option.falsy and workers.positive):
                    continue
                if joint([loop.world], [option.world], [workers.world], loader.worlds()):
                    where = Spot(loop.module, loop.link.head, "started again each time here")
                    yield _respawning(loader, where, option, workers)
                    return


def _respawning_by_trainer(loader: Loader) -> Iterator[Finding]:
    """A trainer iterates the loader anew in each epoch, and leaves its options as they are."""
    for option in loader.option("persistent_workers"):
        for workers in loader.option("num_workers"):
            if option.falsy and workers.positive and joint([option.world], [workers.world], loader.worlds()):
                trainer = epochs_by(loader.project)
                if trainer is not None:
                    yield _respawning(loader, Spot(*trainer, "started again in each epoch by this"), option, workers)
                return


def _respawning(loader: Loader, where: Spot, option: OptionAlt, workers: OptionAlt) -> Finding:
    spot = written(option, loader)
    return finding(
        "DLC202",
        spot,
        loader.project.link_at(spot.module, spot.at),
        related=[where, *provenance(workers.value)],
        fix=_keep_workers(loader, option),
        loader=loader.name,
        workers=_count(workers.value, "worker", "workers"),
    )


def _keep_workers(loader: Loader, option: OptionAlt) -> Fix | Refused:
    """``persistent_workers=True``; torch refuses it without workers, so it follows a number that may be 0."""
    number = workers_text(loader)
    if isinstance(number, Refused):
        return number
    text = f"{number} > 0" if number else "True"
    change = (set_in_call if number and option.given else set_option)(loader, option, "persistent_workers", text)
    return fix_of("unsafe", f"{'Set' if option.given else 'Add'} `persistent_workers={text}`", [change])


def _count(value: Value, one: str, many: str) -> str:
    """In words: "4 workers", "worker", "`os.cpu_count()` workers"."""
    if isinstance(value, Const):
        return one if value == Const(1) else f"{value.value} {many}"
    return f"`{value.path}()` {many}" if isinstance(value, Made) and value.path != "positive" else many


_DEMANDING = ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout")


@rule("DLC203")
def worker_options_without_workers(loader: Loader) -> Iterator[Finding]:
    if not loader.path or loader.path.startswith("dgl."):  # whose loader makes of its options what it likes
        return
    for name in _DEMANDING:
        for option in loader.option(name):
            for workers in loader.option("num_workers"):
                if not workers.is_(0) or not option.given or not _demands(loader, name, option):
                    continue
                if joint([option.world], [workers.world], loader.worlds()):
                    yield _without_workers(loader, name, option, workers)


def _demands(loader: Loader, name: str, option: OptionAlt) -> bool:
    """Whether torch refuses this value when there are no workers."""
    if not isinstance(option.value, Const):
        return False
    if name == "prefetch_factor":
        # Before 2.0 the default was 2, and passing it was the same as passing nothing.
        old = loader.project.targets.torch is not None and loader.project.targets.torch < (2, 0)
        return option.value.value is not None and not (old and option.is_(2))
    if name == "timeout":
        return option.positive
    return option.truthy


def _without_workers(loader: Loader, name: str, option: OptionAlt, workers: OptionAlt) -> Finding:
    spot = written(option, loader)
    origin = workers.value.origin if isinstance(workers.value, Const) else None
    text = f"{name}={option.value.value!r}" if isinstance(option.value, Const) else name
    free = isinstance(workers.value, Const) and workers.value.free is not None
    related = [*elsewhere(option, loader, "set here"), *elsewhere(workers, loader, "no workers")]
    return finding(
        "DLC203",
        spot,
        loader.project.link_at(spot.module, spot.at),
        variant="defaults" if free and origin is not None else "",
        related=[*related, *provenance(workers.value)],
        fix=_fit_to_workers(loader, name, option, workers),
        option=text,
        loader=loader.name,
        origin=origin.words if origin is not None else "",
    )


# What stands for each option where there are no workers.
_WITHOUT_WORKERS = {"prefetch_factor": "None", "multiprocessing_context": "None", "timeout": "0"}


def _fit_to_workers(loader: Loader, name: str, option: OptionAlt, workers: OptionAlt) -> Fix | Refused:
    """Without workers the option goes; where a user or a caller may give workers, it follows their number."""
    if is_literal(loader, workers):
        return fix_of("safe", f"Remove `{name}`", [remove_option(loader, option, name)])
    number, said = workers_text(loader), argument_text(loader, name)
    if isinstance(number, Refused):
        return number
    if said is None:
        return Refused(f"`{name}` is given elsewhere")
    oldest = loader.project.targets.torch_min
    if name == "prefetch_factor" and oldest is not None and oldest < (2, 0):
        return Refused("before torch 2.0 `prefetch_factor` cannot be `None`")
    follows = f"{number} > 0" if said == "True" else f"{said} and {number} > 0"
    if name != "persistent_workers":
        follows = f"{said} if {number} else {_WITHOUT_WORKERS[name]}"
    change = set_in_call(loader, option, name, follows)
    if isinstance(change, Change):
        change = change._replace(shared=False)  # with workers, it is what it was
    return fix_of("safe", f"Set `{name}={follows}`", [change])


@rule("DLC206")
def loader_rebuilt_in_loop(loader: Loader) -> Iterator[Finding]:
    if loader.framework:
        return
    loop = loader.rebuilding_loop() or loop_of_calls(loader)
    if loop is None:
        return
    workers = worlds(option for option in loader.option("num_workers") if option.positive)
    if joint(workers, loader.worlds()):
        yield finding(
            "DLC206",
            Spot(loader.module, loader.name_at),
            loader.link,
            related=[Spot(loop.scope.module, loop.head, "built again in each round")],
            fix=build_once(loader, loop),
            loader=loader.name,
            loop=loop.scope.module.line(loop.head),
        )


@rule("DLC207")
def next_iter_in_loop(call: NextCall) -> Iterator[Finding]:
    if call.framework or not call.repeated_by():
        return
    loader = call.project.loader_of(call.ref)
    if loader.never_ends() or is_nested(call):
        return
    cheap = all(option.is_(0) for option in loader.option("num_workers")) and all(
        option.is_(True) for option in loader.option("shuffle")
    )
    if cheap and call.by_loop:
        return
    yield finding(
        "DLC207",
        Spot(call.site.module, call.site.expr.at),
        call.site.link,
        variant="no-workers" if cheap else "loop" if call.by_loop else "",
        related=[Spot(loader.module, loader.name_at, "the loader")],
        fix=Refused("it may be meant as a look at one batch") if cheap else draw_on(call),
        loader=loader.name,
    )


@rule("DLC216")
def cuda_in_worker(loader: Loader) -> Iterator[Finding]:
    in_workers = loader.cuda_in_workers()
    for use in (*in_workers, *_stored_on_gpu(loader, in_workers)):
        for workers in loader.option("num_workers"):
            if workers.positive and joint([use.world], [workers.world], loader.worlds()):
                if loader.spawns():
                    continue
                yield finding(
                    "DLC216",
                    Spot(use.module, use.at),
                    use.link,
                    variant="" if use in in_workers else "stored",
                    related=[
                        written(workers, loader)._replace(caption="with these workers"),
                        *provenance(workers.value),
                    ],
                    fix=moved_in_loop(loader, use) if use in in_workers else _LIES_THERE,
                    call=use.text,
                    dataset_or_function=use.owner,
                    workers=_count(workers.value, "a worker process", "worker processes"),
                )
                break


_LIES_THERE = Refused("leave the samples on the GPU and use no workers, or keep them on the host")


def _stored_on_gpu(loader: Loader, in_workers: list[CudaUse]) -> Iterator[CudaUse]:
    """The tensors that a dataset holds on the GPU already, and that its workers hand out."""
    known = {(use.module, use.at) for use in in_workers}
    for sample in loader.cuda_samples:
        world = sample.world.assume(IN_WORKER, True)
        if world is not None and (sample.module, sample.at) not in known:
            known.add((sample.module, sample.at))
            link = loader.project.link_at(sample.module, sample.at)
            yield CudaUse(sample.module, sample.at, link, sample.module.line(sample.at), sample.owner, world)
