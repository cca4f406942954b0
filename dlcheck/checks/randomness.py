"""Rules about random numbers in workers, and about iterating a loader again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dlcheck import edits
from dlcheck.checks import mending
from dlcheck.checks.epoch_edits import seed_by_epoch
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, joint, make_fix, provenance, written
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Finding, Fix
from dlcheck.model import library
from dlcheck.model.call_sites import called_name_at
from dlcheck.model.data.one_shot import one_shot
from dlcheck.model.data.samples import WORKER_WORDS, function_name, is_endless, library_transforms
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.flow import links_of
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.loops import BatchLoop
from dlcheck.model.processes.late_changes import LoaderChange, loader_changes
from dlcheck.model.program import copies_to_workers
from dlcheck.model.randomness.default_device import draws_on_cpu, generators_on, gpu_defaults
from dlcheck.model.randomness.foreign_generators import (
    NUMPY_SEEDED_SINCE,
    ForeignDraw,
    foreign_draws,
    monai_draw,
    seeds_library,
)
from dlcheck.model.randomness.generators import CopiedGenerator, copied_generators, generator, local_generators, made_at
from dlcheck.model.randomness.ranks import knows_rank, mentions_rank, wrapping_of
from dlcheck.model.randomness.reseeding import Reseed, reseeds
from dlcheck.model.randomness.seeding import (
    NARROW_SEEDERS,
    Seeding,
    SeedSources,
    Source,
    drawn_from,
    draws_after,
    is_chosen,
    is_wide,
    may_draw,
    restores_state,
    seedings,
)
from dlcheck.model.randomness.sharding import ALLOWED_BASES, delegates, reads_to_its_end
from dlcheck.model.training.evaluation import evaluates
from dlcheck.model.values import Bound, Const, Func, Instance, LambdaFunc, LoaderRef, Made, Value
from dlcheck.model.workers import WorkerCall, WorkerCode, worker_code, worlds_in_worker
from dlcheck.model.worlds import World

facts(LoaderChange, loader_changes)

_FUNCTIONS = (Func, Bound, LambdaFunc, Instance)


def _sample_codes(loader: Loader) -> Iterator[tuple[WorkerCode, str, World]]:
    """What makes samples and batches: of datasets and ``collate_fn``, without ``worker_init_fn``."""
    for alt in loader.held_datasets:
        if alt.dataset is not None:
            yield alt.dataset.worker_code, alt.dataset.name, alt.world
    yield from library_transforms(loader)
    for option in loader.option("collate_fn"):
        if isinstance(option.value, _FUNCTIONS):
            yield worker_code(loader.project, option.value), function_name(option.value), option.world


def _has_unknown_init(loader: Loader) -> bool:
    """Whether there is a ``worker_init_fn`` that cannot be read."""
    return any(
        not option.is_(None) and not isinstance(option.value, _FUNCTIONS) for option in loader.option("worker_init_fn")
    )


def _init_codes(loader: Loader) -> Iterator[tuple[WorkerCode, OptionAlt]]:
    for option in loader.option("worker_init_fn"):
        if isinstance(option.value, _FUNCTIONS):
            yield worker_code(loader.project, option.value), option


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_EVALUATION = frozenset(
    {"val", "valid", "validation", "test", "eval", "evaluation", "evaluate", "predict", "inference"}
)


def _only_evaluates(loader: Loader) -> bool:
    """Whether all that is seen of a loader is evaluation, where the same random numbers may be wanted.

    Where no loop is seen, the names say it, the nearest first.
    """
    if loader.loops:
        return all(evaluates(loop) for loop in loader.loops)
    datasets = [alt.dataset.name for alt in loader.datasets if alt.dataset is not None]
    for name in (loader.name, *datasets, loader.link.scope.qualified):
        words = {word.lower() for word in _WORDS.findall(name)}
        if words & {"train", "training"}:
            return False
        if words & _EVALUATION:
            return True
    return False


def _reached(loader: Loader, call: WorkerCall) -> list[World]:
    """The worlds in which control gets to a call in worker code."""
    guards = loader.project.evaluator.guards(call.site.link, call.point.frame)
    return joint([call.world], guards)


def _at_least_two(value: Value) -> bool:
    return not isinstance(value, Const) or value.value != 1


# -- ranks


@rule("DLC402")
def iterable_not_split_by_rank(loader: Loader) -> Iterator[Finding]:
    wrapping = wrapping_of(loader)
    if wrapping is None or loader.framework or _only_evaluates(loader):
        return
    if _has_unknown_init(loader) or any(mentions_rank(code) for code, _ in _init_codes(loader)):
        return
    for alt in loader.datasets:
        dataset = alt.dataset
        method = loader.project.method(dataset.cls, "__iter__") if dataset is not None else None
        if dataset is None or method is None or method.link is None or not _is_one_stream(dataset):
            continue
        if joint([alt.world], _worlds_split_by_worker(loader, dataset), loader.worlds()):
            yield finding(
                "DLC402",
                Spot(method.module, method.function.name_at),
                method.link,
                related=[
                    Spot(wrapping.module, wrapping.at, "one process for each device"),
                    Spot(loader.module, loader.name_at, "the loader of each process"),
                ],
                dataset=dataset.name,
                wrapper=wrapping.name,
            )


def _is_one_stream(dataset: DatasetClass) -> bool:
    """Whether a dataset gives the same samples in every process."""
    if not dataset.is_iterable or any(base not in ALLOWED_BASES for base in dataset.bases):
        return False
    endless = is_endless(dataset.project, dataset.instance) and not reads_to_its_end(dataset)
    return not (knows_rank(dataset) or delegates(dataset) or endless)


def _worlds_split_by_worker(loader: Loader, dataset: DatasetClass) -> list[World]:
    """The worlds in which the workers of one process share the samples out; else each repeats them, as DLC401 says."""
    workers = loader.option("num_workers")
    if dataset.worker_code.mentions(WORKER_WORDS) or loader.worker_init_may_touch_dataset():
        return [option.world for option in workers]
    return [option.world for option in workers if option.is_(0) or option.is_(1)]


# -- generators of one's own


@rule("DLC403")
def copied_rng_in_dataset(loader: Loader) -> Iterator[Finding]:
    for code, owner, world in _sample_codes(loader):
        if code.mentions(WORKER_WORDS):
            continue
        for copied in copied_generators(loader.project.evaluator, code):
            if _is_renewed(loader, copied) or copied.seeded and _only_evaluates(loader):
                continue
            for workers in loader.option("num_workers"):
                worlds = joint(
                    [world], [copied.world], _reached(loader, copied.drawn), [workers.world], loader.worlds()
                )
                if workers.positive and worlds and not _one_lasting_worker(loader, workers):
                    yield _copied(loader, copied, owner, workers)
                    break


def _is_renewed(loader: Loader, copied: CopiedGenerator) -> bool:
    """Whether each worker may get a generator of its own: by ``worker_init_fn``, or by importing the module anew."""
    if copied.in_module and not copied.seeded and copies_to_workers(loader):
        return True
    if _has_unknown_init(loader):
        return True
    return any(code.mentions(frozenset({"dataset", copied.name})) for code, _ in _init_codes(loader))


def _one_lasting_worker(loader: Loader, workers: OptionAlt) -> bool:
    if _at_least_two(workers.value):
        return False
    return any(option.truthy for option in loader.option("persistent_workers"))


def _copied(loader: Loader, copied: CopiedGenerator, owner: str, workers: OptionAlt) -> Finding:
    drawn = copied.drawn
    return finding(
        "DLC403",
        Spot(copied.module, copied.at),
        copied.link,
        related=[
            Spot(drawn.site.module, drawn.call.at, "drawn from in the workers"),
            written(workers, loader)._replace(caption="with these workers"),
            *provenance(workers.value),
        ],
        generator=copied.text,
        owner=owner,
    )


# -- seeds


@rule("DLC404")
def worker_init_fixed_seed(loader: Loader) -> Iterator[Finding]:
    for code, option in _init_codes(loader):
        sources = SeedSources(loader.project, code, "worker")
        for seeding in seedings(code):
            variant = _fixed_variant(loader, sources.of(seeding), seeding)
            if variant is None or is_chosen(seeding.link) or restores_state(seeding.link.scope):
                continue
            if not _samples_may_draw(loader, seeding):
                continue
            if joint([option.world], _reached(loader, seeding.call), _worlds_with_workers(loader)):
                yield finding(
                    "DLC404",
                    Spot(seeding.module, seeding.at),
                    seeding.link,
                    variant=variant,
                    related=[written(option, loader)._replace(caption="runs in each worker when it starts")],
                    fix=_seeded_by_torch(code, seeding),
                    seeding=seeding.text,
                )


def _seeded_by_torch(code: WorkerCode, seeding: Seeding) -> Fix | Refused:
    """The seed that PyTorch gives each worker in each epoch, in the place of one that is the same again."""
    module, seed, scope = seeding.module, _seed_at(seeding), seeding.link.scope
    if not code.frames or scope is not code.frames[0][0].scope:
        return Refused("the seed is chosen in a function that others may call, too")
    if seed is None:
        return Refused("the seed goes through a helper with several arguments")
    if seeding.at == seeding.call.call.at and library.canonical(seeding.call.path).startswith("torch."):
        # It has that seed already; and the other generators may be given torch's seed after this call.
        if not isinstance(seeding.link.stmt, forms.Do):
            return Refused("the call is part of a larger statement")
        return make_fix(
            "unsafe", "Leave torch's seed as it is",
            [mending.remove_statement(module.source, module.facts, seeding.link)],
        )  # fmt: skip
    edit: Edit = edits.replace(module.source, module.facts, _origin(seeding, seed).at, "torch.initial_seed() % 2**32")
    return make_fix(
        "unsafe", "Take the seed of the worker", [edit, *mending.import_edits(module, "torch", use=seeding.link)]
    )


def _origin(seeding: Seeding, seed: forms.Expr) -> forms.Expr:
    """What a local name is bound to, where that is done once, by itself, and for seeding only."""
    if isinstance(seed, forms.Name):
        scope = seeding.link.scope
        bound = [link for link in links_of(scope) if seed.id in link.changes]
        if len(bound) == 1 and not any(param.name == seed.id for param in scope.function.params):
            stmt = bound[0].stmt
            if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], forms.Name):
                return stmt.value
    return seed


def _seed_at(seeding: Seeding) -> forms.Expr | None:
    """The seed where the code chooses it: an argument of the seeding call, or the only one of a helper."""
    if seeding.at == seeding.call.call.at:
        return seeding.seed
    call = next((site.expr for site in seeding.module.calls if site.expr.at == seeding.at), None)
    args = call.args if isinstance(call, forms.Call) else ()
    return args[0].value if len(args) == 1 and not args[0].star else None


def _samples_may_draw(loader: Loader, seeding: Seeding) -> bool:
    """Whether the samples of a loader may be made with what is seeded; of a dataset that is not seen, they may."""
    if any(alt.dataset is None for alt in loader.datasets):
        return True
    return any(may_draw(code, seeding.generators) for code, _, _ in _sample_codes(loader))


def _worlds_with_workers(loader: Loader) -> list[World]:
    """The worlds in which there may be workers: without any, ``worker_init_fn`` never runs."""
    workers = [option.world for option in loader.option("num_workers") if not option.is_(0)]
    return joint(workers, loader.worlds())


def _fixed_variant(loader: Loader, sources: set[Source], seeding: Seeding) -> str | None:
    """What a seed makes equal: workers, epochs, or both; None where it does no harm."""
    if not sources <= {"fixed", "worker", "state"} or _only_evaluates(loader):
        return None
    if "worker" not in sources:
        return "equal-workers"
    if not _starts_again(loader):
        return None
    torch = loader.project.targets.torch
    if torch is not None and torch < NUMPY_SEEDED_SINCE and "numpy" in seeding.generators:
        return "old-torch"
    return "numpy-state" if "state" in sources else ""


def _starts_again(loader: Loader) -> bool:
    """Whether the workers of a loader start more than once, as far as one can see."""
    if not any(option.is_(False) for option in loader.option("persistent_workers")) or loader.never_ends():
        return False
    if loader.loops:
        return bool(loader.framework) or any(loop.repeated_by() for loop in loader.loops)
    shuffles = [option for option in loader.option("shuffle") if not option.falsy]
    samples = [option for name in ("sampler", "batch_sampler") for option in loader.option(name) if option.given]
    return bool(shuffles or samples or loader.framework)


@rule("DLC405")
def constant_seed_in_getitem(loader: Loader) -> Iterator[Finding]:
    if _only_evaluates(loader):
        return
    for code, owner, world in _sample_codes(loader):
        sources = SeedSources(loader.project, code, "sample")
        yield from _constant_generators(loader, sources, owner, world)
        for seeding in seedings(code):
            scope = seeding.link.scope
            if sources.of(seeding) != {"fixed"} or _seeds_once(seeding.call):
                continue
            if is_chosen(seeding.link) or restores_state(scope) or not draws_after(code, seeding):
                continue
            if joint([world], _reached(loader, seeding.call), loader.worlds()):
                yield finding(
                    "DLC405",
                    Spot(seeding.module, seeding.at),
                    seeding.link,
                    related=[Spot(loader.module, loader.name_at, "its loader")],
                    seeding=seeding.text,
                    owner=owner,
                )


def _seeds_once(call: WorkerCall) -> bool:
    """Whether it runs once in an epoch, not for each sample: at the top of ``__iter__``."""
    frame = call.point.frame
    scopes = [frame.scope]
    while frame.site is not None:
        frame = frame.site.frame
        scopes.append(frame.scope)
    return any(one.name in ("__iter__", "__init__") or one.function.is_generator for one in scopes)


def _constant_generators(loader: Loader, sources: SeedSources, owner: str, world: World) -> Iterator[Finding]:
    """Generators that are made anew for each sample, always with the same seed."""
    for local in local_generators(loader.project.evaluator, sources.code):
        calls = [call for _, call in local.seeds]
        if any(sources.sources(seed, call.point) != {"fixed"} or _seeds_once(call) for seed, call in local.seeds):
            continue
        if any(is_chosen(call.site.link) for call in calls):
            continue
        if joint([world], _reached(loader, calls[0]), loader.worlds()):
            yield finding(
                "DLC405",
                Spot(local.module, local.at),
                local.link,
                variant="own-generator",
                related=[Spot(loader.module, loader.name_at, "its loader")],
                seeding=local.text,
                owner=owner,
            )


@rule("DLC406")
def reseed_in_epoch_loop(loop: BatchLoop) -> Iterator[Finding]:
    if loop.framework or not loop.trains() or evaluates(loop):
        return
    loader = loop.project.loader_of(loop.ref)
    for reseed in reseeds(loop):
        if _repeats_epochs(loader, reseed) and joint([loop.world], loader.worlds()):
            yield finding(
                "DLC406",
                Spot(reseed.module, reseed.at),
                reseed.link,
                related=[
                    Spot(reseed.loop.scope.module, reseed.loop.head, "in each round of this loop"),
                    Spot(loop.module, loop.link.head, "the batches that come the same way"),
                ],
                about={"generators": sorted(reseed.generators) or ["own"]},
                fix=seed_by_epoch(reseed),
                seeding=reseed.text,
            )


def _repeats_epochs(loader: Loader, reseed: Reseed) -> bool:
    """Whether the order of a loader, or what its samples draw, follows from the generators that are put back."""
    if reseed.own is not None:
        own = [generator(option.value) for option in loader.option("generator")]
        return any(made is not None and made_at(made) == reseed.own for made in own)
    without = any(option.is_(0) for option in loader.option("num_workers"))
    drawn = {drawn_from(call.path) for code, _, _ in _sample_codes(loader) for call in code.calls}
    if "torch" in reseed.generators:
        # The order, and the seeds of the workers, from which all that they draw follows.
        return _shuffles(loader) or bool(drawn - {None} if not without else drawn & reseed.generators)
    return without and bool(drawn & reseed.generators)


def _shuffles(loader: Loader) -> bool:
    """Whether a loader's order comes from torch's global generator."""
    if not any(option.is_(None) for option in loader.option("generator")):
        return False
    return any(option.truthy for option in loader.option("shuffle")) or any(
        isinstance(option.value, Made)
        and option.value.path.rpartition(".")[2] in ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")
        for option in loader.option("sampler")
    )


@rule("DLC407")
def third_party_rng_in_worker(loader: Loader) -> Iterator[Finding]:
    for code, owner, world in _sample_codes(loader):
        for draw in foreign_draws(loader, code):
            yield from _foreign(loader, draw, owner, world)
    for alt in loader.datasets:
        found = monai_draw(loader, alt)
        if found is not None:
            yield from _foreign(loader, found, alt.path.rpartition(".")[2], alt.world)


def _foreign(loader: Loader, draw: ForeignDraw, owner: str, world: World) -> Iterator[Finding]:
    if draw.library == "MONAI" and loader.path != library.DATALOADER:
        return  # MONAI's own loader seeds its transforms
    if _has_unknown_init(loader) or any(seeds_library(code, draw.library) for code, _ in _init_codes(loader)):
        return
    for workers in loader.option("num_workers"):
        worlds = joint([world], [draw.world], [workers.world], loader.worlds())
        if workers.positive and worlds and not _one_lasting_worker(loader, workers):
            yield finding(
                "DLC407",
                Spot(draw.module, draw.at),
                draw.link,
                variant=draw.library.lower(),
                related=[written(workers, loader)._replace(caption="with these workers"), *provenance(workers.value)],
                drawing=draw.text,
                owner=owner,
            )
            return


@rule("DLC409")
def worker_seed_overflow(loader: Loader) -> Iterator[Finding]:
    project = loader.project
    codes = [(code, _worlds_with_workers(loader), option.world) for code, option in _init_codes(loader)]
    with_workers = [option.world for option in loader.option("num_workers") if option.positive]
    codes += [(code, joint(with_workers, loader.worlds()), world) for code, _, world in _sample_codes(loader)]
    for code, worlds, world in codes:
        for seeding in seedings(code, NARROW_SEEDERS):
            wide = is_wide(project.evaluator, seeding.seed, seeding.call.point)
            call = seeding.call
            reached = worlds_in_worker(project, call.site.link, call.point.frame, call.world)
            if wide and joint([world], reached, worlds):
                yield finding(
                    "DLC409",
                    Spot(seeding.module, seeding.at),
                    seeding.link,
                    related=[Spot(loader.module, loader.name_at, "its loader")],
                    fix=_narrowed(seeding),
                    seeding=seeding.text,
                )


def _narrowed(seeding: Seeding) -> Fix | Refused:
    """The seed cut to what numpy takes, where the code chooses it."""
    module, seed = seeding.module, _seed_at(seeding)
    if seed is None:
        return Refused("the seed goes through a helper with several arguments")
    return make_fix("safe", "Cut the seed", [mending.add_operator(module.source, module.facts, seed, " % 2**32")])


# -- iterating again


@rule("DLC421")
def one_shot_iterable(loader: Loader) -> Iterator[Finding]:
    for alt in loader.datasets:
        if alt.dataset is None or not alt.dataset.is_iterable or not _goes_through_again(loader):
            continue
        found = one_shot(alt.dataset)
        if found is None or _is_reported_handle(loader, alt.dataset, found.attribute):
            continue
        if joint([alt.world], loader.worlds()):
            yield finding(
                "DLC421",
                Spot(found.module, found.at),
                found.link,
                variant="" if found.attribute else "own-iterator",
                related=[
                    Spot(found.iterated.scope.module, found.iterated.head, "iterated here"),
                    Spot(loader.module, loader.name_at, "its loader"),
                ],
                dataset=alt.dataset.name,
                iterator=found.text,
            )


def _goes_through_again(loader: Loader) -> bool:
    """Whether a second pass is to be expected: none is seen where all loops run once."""
    if not loader.loops or any(loop.repeated_by() for loop in loader.loops) or len(loader.loops) > 1:
        return True
    return any(option.positive and not option.is_(1) for option in loader.option("num_workers"))


def _is_reported_handle(loader: Loader, dataset: DatasetClass, attribute: str) -> bool:
    """Whether DLC304 speaks of the same: an open file that several workers read."""
    if not any(option.positive for option in loader.option("num_workers")):
        return False
    return any(handle.attribute == attribute for handle in dataset.handles)


@rule("DLC422")
def loader_attribute_after_init(change: LoaderChange) -> Iterator[Finding]:
    variant, ref = _change_variant(change), change.ref
    if variant is None:
        return
    yield finding(
        "DLC422",
        Spot(change.module, change.at),
        change.link,
        variant=variant,
        related=[Spot(ref.point.module, _name_at(ref), "the loader is built here")] if ref is not None else [],
        change=change.text,
        name=change.name,
    )


def _change_variant(change: LoaderChange) -> str | None:
    if change.is_refused():
        return ""
    if change.is_ignored():
        return "ignored"
    if change.adds_workers():
        return "workers"
    return "collate" if change.removes_collate() else None


def _name_at(ref: LoaderRef) -> int:
    call = ref.args.call
    assert call is not None
    return called_name_at(call)


# -- the default device


@rule("DLC423")
def default_device_breaks_loader(loader: Loader) -> Iterator[Finding]:
    defaults = gpu_defaults(loader)
    for default in defaults:
        on_cpu = [*draws_on_cpu(loader), *(option.world for option in generators_on(loader, "cpu"))]
        if joint(default.worlds, on_cpu, loader.worlds()):
            yield finding(
                "DLC423",
                Spot(default.module, default.at),
                default.link,
                related=[Spot(loader.module, loader.name_at, "draws from a CPU generator")],
                default=default.text,
                loader=loader.name,
            )
    for option in [] if defaults else generators_on(loader, "cuda"):
        if joint([option.world], loader.worlds()):
            spot = written(option, loader)
            yield finding(
                "DLC423",
                spot,
                loader.project.link_at(spot.module, spot.at),
                variant="gpu-generator",
                related=provenance(option.value),
                loader=loader.name,
            )
            break
