"""Rules about workers and the batches that they prepare: for nothing, too many, iterated twice, kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dlcheck import edits
from dlcheck.checks.loader_moves import start_anew
from dlcheck.checks.mending import alias_of, below_imports
from dlcheck.checks.option_edits import alone, fix_of, remove_option, set_option
from dlcheck.checks.registry import facts, option, rule
from dlcheck.checks.report import Spot, elsewhere, finding, joint, make_fix, provenance, written
from dlcheck.checks.sampler_edits import indexed_by_batch
from dlcheck.edits import Refused
from dlcheck.findings import Finding, Fix
from dlcheck.model import calling, library
from dlcheck.model.data.in_memory import is_plain_tensor_dataset, lies_in_memory
from dlcheck.model.data.sizes import sample_bytes
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.processes.containers import leaves_shared_memory_small
from dlcheck.model.processes.cycling import CycledLoader, cycled_loaders
from dlcheck.model.processes.nesting import NestedIteration, nested_iterations
from dlcheck.model.processes.sharing import SharingStrategy, sharing_strategies
from dlcheck.model.randomness.samplers import distributed_samplers
from dlcheck.model.scopes import Module, last_name
from dlcheck.model.values import Const, Made, Value
from dlcheck.model.workers import WorkerCall
from dlcheck.model.worlds import World

facts(CycledLoader, cycled_loaders)
facts(NestedIteration, nested_iterations)
facts(SharingStrategy, sharing_strategies)

MIB = 2**20


# -- workers that only cost


@rule("DLC204")
def workers_for_in_memory_data(loader: Loader) -> Iterator[Finding]:
    for workers in loader.option("num_workers"):
        if _is_for_nothing(loader, workers) and all(_is_for_nothing(other, workers) for other in _siblings(loader)):
            spot = written(workers, loader)
            yield finding(
                "DLC204",
                spot,
                loader.project.link_at(spot.module, spot.at),
                related=provenance(workers.value),
                fix=_load_in_process(loader, workers),
                loader=loader.name,
                dataset=_dataset_name(loader),
                workers=_count(workers.value),
            )
            return


def _load_in_process(loader: Loader, workers: OptionAlt) -> Fix | Refused:
    """No workers, and none of the options that demand them."""
    changes = [alone(set_option(loader, workers, "num_workers", "0"))]
    for name in ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"):
        given = {(option.module, option.at): option for option in loader.option(name) if option.given}
        changes += [alone(remove_option(loader, option, name)) for option in given.values()]
    also = ", and remove what needs workers" if len(changes) > 1 else ""
    return fix_of("unsafe", f"Set `num_workers=0`{also}", changes)


def _is_for_nothing(loader: Loader, workers: OptionAlt) -> bool:
    """Whether workers fetch what lies in the memory of the main process, and do nothing to it."""
    if not workers.positive or not loader.is_plain or not _collates_by_default(loader):
        return False
    if not all(lies_in_memory(loader.project.evaluator, alt) for alt in loader.datasets):
        return False
    return bool(joint([workers.world], [alt.world for alt in loader.datasets], loader.worlds()))


def _siblings(loader: Loader) -> list[Loader]:
    """The same constructor call as other callers see it: what is right for one need not be for another."""
    return [other for other in loader.project.loaders if other.constructor == loader.constructor]


def _collates_by_default(loader: Loader) -> bool:
    return all(given.is_(None) for given in loader.option("collate_fn"))


def _dataset_name(loader: Loader) -> str:
    alt = loader.datasets[0]
    return alt.dataset.name if alt.dataset is not None else alt.path.rpartition(".")[2]


def _count(value: Value) -> str:
    """In words: "4 workers", "a worker", "its workers"."""
    if isinstance(value, Const):
        return "a worker" if value == Const(1) else f"{value.value} workers"
    return "its workers"


@rule("DLC311")
def per_item_tensor_fetch(loader: Loader) -> Iterator[Finding]:
    ev = loader.project.evaluator
    if loader.framework or not loader.is_plain or not _collates_by_default(loader):
        return
    if not loader.datasets or not all(is_plain_tensor_dataset(ev, alt) for alt in loader.datasets):
        return
    if any(workers.positive for workers in loader.option("num_workers")):
        return  # DLC204 says it
    if not all(given.is_(None) for given in loader.option("batch_sampler")):
        return
    epochs = [(loop, around) for loop in loader.loops if loop.trains() for around in loop.repeated_by()]
    for batch in loader.option("batch_size"):
        size = batch.value.value if isinstance(batch.value, Const) else None
        if not isinstance(size, int) or size < int(option(loader.project, "DLC311", "batch-size")):
            continue
        for loop, around in epochs:
            if joint([loop.world], [batch.world], loader.worlds()):
                yield finding(
                    "DLC311",
                    Spot(loader.module, loader.name_at),
                    loader.link,
                    related=[Spot(around.scope.module, around.head, "in each round"), *provenance(batch.value)],
                    fix=indexed_by_batch(loader),
                    loader=loader.name,
                    size=size,
                )
                return


# -- too many


@rule("DLC205")
def too_many_workers(loader: Loader) -> Iterator[Finding]:
    for workers in loader.option("num_workers"):
        excess = _excess(loader, workers)
        if excess is None or workers.module is None or not joint([workers.world], loader.worlds()):
            continue
        # It is as wrong for the other loaders that share a dict of options: there is one place to change.
        spot = Spot(workers.module, workers.at)
        yield finding(
            "DLC205",
            spot,
            loader.project.link_at(spot.module, spot.at),
            variant=excess.variant,
            related=[*provenance(workers.value), *excess.related],
            fix=_capped(workers),
            loader=loader.name,
            workers=excess.workers,
        )
        return


def _capped(workers: OptionAlt) -> Fix | Refused:
    """Not more than eight: asking for the CPUs that the process may use would break it where there is no affinity."""
    counted = _counting_call(workers.value)
    if counted is None:
        return Refused("the right number depends on the machine")
    module, at = counted
    text = f"min(8, {module.line(at)})"
    edit = edits.replace(module.source, module.facts, at, text)
    return make_fix("unsafe", f"Take `{text}`", [edit], alters=True)


class _Excess(NamedTuple):
    """Why a number of workers is too large: the variant of the rule, the number in words, where it comes from."""

    variant: str
    workers: str
    related: list[Spot]


def _excess(loader: Loader, workers: OptionAlt) -> _Excess | None:
    value = workers.value
    if calling.counts_cpus(value):
        counted = _counting_call(value)
        if counted is None or _is_bounded(value, workers.world):
            return None
        spot = Spot(counted[0], counted[1], "counts the CPUs of the whole machine")
        apart = spot.module is not workers.module or not _holds(spot, workers)
        return _Excess("", counted[0].line(counted[1]), [spot] if apart else [])
    if not isinstance(value, Const) or not isinstance(value.value, int):
        return None
    if value.value >= int(option(loader.project, "DLC205", "ceiling")):
        return _Excess("literal", str(value.value), [])
    if value.value >= int(option(loader.project, "DLC205", "ceiling-per-rank")):
        ranks = _rank_evidence(loader, workers.world)
        return _Excess("ranks", str(value.value), [ranks]) if ranks is not None else None
    return None


def _counting_call(value: Value) -> tuple[Module, int] | None:
    while isinstance(value, Made) and value.path not in library.CPU_COUNTS and value.base is not None:
        value = value.base
    if not isinstance(value, Made) or value.args is None or value.args.call is None or value.args.point is None:
        return None
    return value.args.point.module, value.args.call.at


def _holds(spot: Spot, workers: OptionAlt) -> bool:
    """Whether the argument itself holds the call."""
    start, end = spot.module.facts.span(workers.at)
    first, last = spot.module.facts.span(spot.at)
    return start <= first and last <= end


def _is_bounded(value: Value, world: World) -> bool:
    """Whether the world has compared the number with another: ``if workers > 8: workers = 8``."""
    keys = set()
    while isinstance(value, Made):
        keys.add(value.key)
        if value.base is None:
            break
        value = value.base
    return any(isinstance(key, tuple) and key[:1] == ("cmp",) and key[1] in keys for key in world.choices)


def _rank_evidence(loader: Loader, world: World) -> Spot | None:
    """A sampler or a wrapped model that says that several processes of this program run side by side."""
    for sampler in distributed_samplers(loader):
        if joint([sampler.world], [world]):
            return Spot(sampler.module, sampler.name_at, "each rank has as many")
    project = loader.project
    for module in sorted(project.imports.neighbours(loader.module), key=lambda module: module is not loader.module):
        for site in module.calls:
            func = getattr(site.expr, "func", None)
            if last_name(func) in ("DistributedDataParallel", "init_process_group", "FullyShardedDataParallel"):
                return Spot(module, site.expr.at, "each rank has as many")
    return None


# -- too much prepared


class _InFlight(NamedTuple):
    """What the workers of a loader hold ready: batches, and where the numbers are written."""

    workers: OptionAlt
    factor: OptionAlt
    batches: int
    world: list[World]


@rule("DLC210")
def excessive_prefetch(loader: Loader) -> Iterator[Finding]:
    limit = int(option(loader.project, "DLC210", "batches-in-flight"))
    for flight in _in_flight(loader):
        size = _bytes_in_flight(loader, flight)
        if flight.batches > limit and (flight.factor.given or _excess(loader, flight.workers) is None):
            yield _prefetching(loader, flight, "", size)
            return
        if size is not None and size > MIB * int(option(loader.project, "DLC210", "shared-memory-mib")):
            if leaves_shared_memory_small(loader.project):
                yield _prefetching(loader, flight, "container", size)
                return
            if _raised(flight.factor):
                yield _prefetching(loader, flight, "bytes", size)
                return


def _in_flight(loader: Loader) -> Iterator[_InFlight]:
    """The numbers that are known, in each world; torch prefetches two batches for a worker."""
    for workers in loader.option("num_workers"):
        for factor in loader.option("prefetch_factor") if workers.positive else ():
            both = joint([workers.world], [factor.world], loader.worlds())
            if isinstance(workers.value, Const) and isinstance(factor.value, Const) and both:
                each = 2 if factor.is_(None) else factor.value.value
                if isinstance(each, int) and isinstance(workers.value.value, int):
                    yield _InFlight(workers, factor, workers.value.value * each, both)


def _raised(factor: OptionAlt) -> bool:
    """Whether the author asked for more than torch would prefetch."""
    return isinstance(factor.value, Const) and isinstance(factor.value.value, int) and factor.value.value > 2


def _bytes_in_flight(loader: Loader, flight: _InFlight) -> int | None:
    """At least so many bytes; None where the size of a batch is unknown."""
    if not _collates_by_default(loader):
        return None
    for batch in loader.option("batch_size"):
        for size, world in sample_bytes(loader):
            count = batch.value.value if isinstance(batch.value, Const) else None
            if isinstance(count, int) and joint(flight.world, [batch.world], [world]):
                return size * count * flight.batches
    return None


def _prefetching(loader: Loader, flight: _InFlight, variant: str, size: int | None) -> Finding:
    option_ = flight.factor if flight.factor.given else flight.workers
    spot = written(option_, loader)
    others = elsewhere(flight.workers, loader, "workers") if flight.factor.given else []
    return finding(
        "DLC210",
        spot,
        loader.project.link_at(spot.module, spot.at),
        variant=variant,
        related=[*others, *provenance(flight.workers.value), *provenance(flight.factor.value)],
        fix=_prefetch_less(loader, flight, variant),
        loader=loader.name,
        batches=flight.batches,
        size=_mib(size),
    )


def _prefetch_less(loader: Loader, flight: _InFlight, variant: str) -> Fix | Refused:
    """Two batches for each worker, which is torch's default."""
    given = flight.factor.value.value if isinstance(flight.factor.value, Const) else None
    each = 2 * flight.batches // given if isinstance(given, int) and given > 2 else 0
    if not each or not variant and each > int(option(loader.project, "DLC210", "batches-in-flight")):
        return Refused("it takes fewer workers, or smaller batches")
    return fix_of("unsafe", "Set `prefetch_factor=2`", [set_option(loader, flight.factor, "prefetch_factor", "2")])


def _mib(size: int | None) -> str:
    if size is None:
        return ""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size // MIB} MiB"


# -- one loader, several iterators


@rule("DLC208")
def cycle_over_loader(cycled: CycledLoader) -> Iterator[Finding]:
    loader = cycled.project.loader_of(cycled.ref)
    if _is_one_batch(loader) or not joint([cycled.world], loader.worlds()):
        return
    yield finding(
        "DLC208",
        Spot(cycled.site.module, cycled.call.at),
        cycled.site.link,
        variant="endless" if loader.never_ends() else "",
        related=[Spot(loader.module, loader.name_at, "the loader")],
        fix=start_anew(cycled, loader.never_ends()),
        call=cycled.site.module.line(cycled.call.at),
        loader=loader.name,
    )


def _is_one_batch(loader: Loader) -> bool:
    """``batch_size=len(dataset)``: there is but one batch to keep."""
    given = calling.argument(loader.ref.args, "batch_size", 1)
    func = getattr(given.expr, "func", None) if given is not None else None
    return last_name(func) == "len"


@rule("DLC209")
def nested_iteration_persistent(nested: NestedIteration) -> Iterator[Finding]:
    loader = nested.project.loader_of(nested.ref)
    kept = next(given for given in loader.option("persistent_workers") if given.truthy)
    related = [*elsewhere(kept, loader, "its workers persist")] or [
        written(kept, loader)._replace(caption="its workers persist")
    ]
    if nested.how != "zipped":
        related.insert(0, Spot(nested.outer.module, nested.outer.link.head, "the loop over the same loader"))
    yield finding(
        "DLC209",
        Spot(nested.module, nested.at),
        nested.link,
        variant=nested.how,
        related=related,
        loader=loader.name,
    )


# -- settings for the whole process


# The functions of OpenCV that share an image out among its threads.
_THREADED = frozenset(
    f"cv2.{name}"
    for name in (
        "resize", "warpAffine", "warpPerspective", "remap", "cvtColor", "GaussianBlur", "blur", "boxFilter",
        "medianBlur", "bilateralFilter", "filter2D", "sepFilter2D", "LUT", "dilate", "erode", "morphologyEx",
        "threshold", "pyrDown", "pyrUp", "undistort", "dft", "fastNlMeansDenoising", "fastNlMeansDenoisingColored",
        "adaptiveThreshold", "Sobel", "Laplacian", "equalizeHist", "createCLAHE", "warpPolar",
    )
)  # fmt: skip

# Libraries that limit OpenCV's threads when they are imported, or when they start their workers.
_LIMITING = frozenset({"ultralytics", "mmcv", "mmengine", "mmdet", "mmseg", "mmpose", "mmocr", "albumentations"})


@rule("DLC211")
def cv2_threads_in_workers(loader: Loader) -> Iterator[Finding]:
    for code, owner, world in loader.worker_codes:
        call = next((call for call in code.calls if call.path in _THREADED), None)
        if call is None:
            continue
        for workers in loader.option("num_workers"):
            several = workers.positive and not workers.is_(1)
            if several and joint([world], [call.world], [workers.world], loader.worlds()):
                if not _limits_opencv(loader, call):
                    yield finding(
                        "DLC211",
                        Spot(call.site.module, call.call.at),
                        call.site.link,
                        related=[
                            written(workers, loader)._replace(caption="in each of these workers"),
                            *provenance(workers.value),
                        ],
                        fix=_one_thread(call.site.module),
                        call=call.path,
                        owner=owner,
                        workers=_count(workers.value),
                    )
                return


def _one_thread(module: Module) -> Fix | Refused:
    cv2, missing = alias_of(module, "cv2", "cv2")
    if missing:
        return Refused("the module does not import `cv2` by itself")
    return make_fix(
        "safe", "Give OpenCV no threads of its own", [below_imports(module, f"{cv2}.setNumThreads(0)", cv2)]
    )


def _limits_opencv(loader: Loader, call: WorkerCall) -> bool:
    """Whether anything of the project sets the number of OpenCV's threads, or imports what does."""
    project = loader.project
    project.mention("setNumThreads")
    project.mention("OPENCV_FOR_THREADS_NUM")
    program = project.imports.neighbours(loader.module) | project.imports.neighbours(call.site.module)
    if any(module.libraries & _LIMITING for module in program):
        return True
    return any(
        word in module.source.text
        for module in project.loaded()
        for word in ("setNumThreads", "OPENCV_FOR_THREADS_NUM")
    )


@rule("DLC214")
def file_system_sharing_strategy(strategy: SharingStrategy) -> Iterator[Finding]:
    if strategy.name == Const("file_system") and not strategy.depends_on_platform:
        yield finding(
            "DLC214",
            Spot(strategy.site.module, strategy.call.at),
            strategy.site.link,
            related=provenance(strategy.name),
        )
