"""Rules about splits and samplers: what training and evaluation see, and what their figures are divided by."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck import edits
from dlcheck.checks.mending import import_edits
from dlcheck.checks.option_edits import alone, fix_of, set_option
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, elsewhere, finding, joint, make_fix, provenance, written
from dlcheck.checks.sharding_edits import shared_out
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Finding, Fix
from dlcheck.model import calling
from dlcheck.model.data.lengths import dataset_lengths
from dlcheck.model.data.ordering import in_order, shuffles_itself
from dlcheck.model.data.splitting import RandomSplit, random_splits
from dlcheck.model.frameworks import made_by_hook
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.loops import BatchLoop
from dlcheck.model.randomness.replicas import has_other_order_per_rank, is_map_style, replicas, same_for_all_ranks
from dlcheck.model.randomness.samplers import DistributedSampler, all_distributed_samplers, drops_last, knows_of_padding
from dlcheck.model.randomness.weighting import WeightedSampling, weighted_samplings
from dlcheck.model.scopes import Module, dotted, last_name
from dlcheck.model.training.averages import Average, adds_means, averages, full_batches, miscounts
from dlcheck.model.training.compiled import compiled_calls, decides_shapes
from dlcheck.model.training.evaluation import evaluates, goes_backward, in_evaluation_mode, updates_weights
from dlcheck.model.training.metrics import collects, reduced_over_ranks, removes_repeats, stops_early
from dlcheck.model.training.normalization import crashing_norm
from dlcheck.model.training.row_order import is_shuffled, pairings
from dlcheck.model.values import Const, External, Func
from dlcheck.model.workers import worker_code
from dlcheck.model.worlds import World

facts(RandomSplit, random_splits)
facts(WeightedSampling, weighted_samplings)


@rule("DLC408")
def unseeded_random_split(split: RandomSplit) -> Iterator[Finding]:
    if split.is_repeatable():
        return
    variant = "ranks" if split.differs_between_ranks() else "restart" if split.outlives_a_restart() else ""
    spot = Spot(split.module, split.name_at)
    yield finding("DLC408", spot, split.link, variant=variant, fix=_seeded(split), call=split.name)


# The argument that makes each kind of split repeatable, its value, and the places of the arguments.
_GENERATOR = "torch.Generator().manual_seed(42)"
_SEEDS = {
    "random_split": ("generator", _GENERATOR, ("dataset", "lengths", "generator")),
    "randperm": ("generator", _GENERATOR, ()),
    "train_test_split": ("random_state", "42", ()),
}


def _seeded(split: RandomSplit) -> Fix | Refused:
    call, module = split.call, split.module
    values = split.project.evaluator.values(call.func, split.project.point(split.site))
    paths = {value.path if isinstance(value, External) else "" for value in values}
    kind = paths.pop().rpartition(".")[2] if len(paths) == 1 else last_name(call.func)
    if kind not in _SEEDS:
        return Refused("it draws from the generator of the whole process: seed that, or draw from one of your own")
    name, text, order = _SEEDS[kind]
    edit = edits.set_argument(module.source, module.facts, call, name, text, order=order)
    imports = import_edits(module, "torch", use=split.link) if text.startswith("torch.") else ()
    return make_fix("unsafe", f"Pass `{name}={text}`", [edit, *imports])


@rule("DLC412")
def ddp_without_sharding(loader: Loader) -> Iterator[Finding]:
    if loader.framework or not loader.is_plain or not _has_no_sampler(loader):
        return
    for loop in loader.loops:
        if loop.framework or not goes_backward(loop):
            continue
        for replica in replicas(loop):
            ordered = [option.world for option in loader.option("shuffle") if option.is_(True)]
            whole = ordered or [alt.world for alt in loader.datasets if is_map_style(loader, alt)]
            if not joint([replica.world], [loop.world], whole, loader.worlds()):
                continue
            if not same_for_all_ranks(loader) or _is_shared_out_elsewhere(loader, loop):
                return
            yield finding(
                "DLC412",
                Spot(loader.module, loader.name_at),
                loader.link,
                related=[
                    Spot(replica.module, replica.at, "trained on several ranks by this"),
                    Spot(loop.module, loop.link.head, "trained here"),
                ],
                fix=shared_out(loader, loop, replica),
                loader=loader.name,
                wrapper=replica.name,
            )
            return


def _has_no_sampler(loader: Loader) -> bool:
    """Whether in every world the loader takes all samples of its dataset."""
    return all(option.is_(None) for name in ("sampler", "batch_sampler") for option in loader.option(name))


def _is_shared_out_elsewhere(loader: Loader, loop: BatchLoop) -> bool:
    """Whether the program knows another way: a loader with a sampler for training, or a seed for each rank."""
    project = loader.project
    near = {loader.module, loop.module}
    for other in project.loaders:
        near |= {one.module for one in other.loops if one.link is loop.link}
        if other is loader or not (other.module in near or any(one.link is loop.link for one in other.loops)):
            continue
        if not _has_no_sampler(other) and not (other.loops and all(map(evaluates, other.loops))):
            return True
    return has_other_order_per_rank(project, near)


@rule("DLC413")
def metric_over_wrong_length(loop: BatchLoop) -> Iterator[Finding]:
    loader = loop.project.loader_of(loop.ref)
    if loop.framework or loader.framework or stops_early(loop):
        return
    for average in averages(loop):
        wrong = [one for one in miscounts(loader, loop) if joint([one.world], [loop.world], loader.worlds())]
        if wrong:
            yield _wrong_length(loader, loop, average, "", wrong[0].why)
        elif adds_means(loop, average.sum) and joint(_batches(loader), [loop.world], loader.worlds()):
            yield _wrong_length(loader, loop, average, "means", "")


def _wrong_length(loader: Loader, loop: BatchLoop, average: Average, variant: str, why: str) -> Finding:
    return finding(
        "DLC413",
        Spot(loop.module, average.length.at),
        average.link,
        variant=variant,
        related=[
            Spot(loop.module, average.sum.link.head, "added up here"),
            Spot(loader.module, loader.name_at, "the loader"),
        ],
        fix=_counted(loader, loop, average.length, variant, why),
        sum=average.sum.name,
        length=loop.module.line(average.length.at),
        loader=loader.name,
        why=why,
    )


def _counted(loader: Loader, loop: BatchLoop, length: forms.Expr, variant: str, why: str) -> Fix | Refused:
    """The number of what was added up: of the batches, or of the samples that the sampler or full batches give."""
    counted = length.args[0].value if isinstance(length, forms.Call) and len(length.args) == 1 else None
    if not isinstance(counted, forms.Attr) or counted.name != "dataset" or dotted(counted) is None:
        return Refused("the length is not written as `len(loader.dataset)`")
    module = loop.module
    name = module.line(counted.value.at)
    text = f"len({name})" if variant else f"len({name}.sampler)"
    if not variant and "drop_last" in why:
        if loop.link.scope is not loader.link.scope:
            return Refused("other loaders may come here, which do not drop their last batch")
        text = f"(len({name}) * {name}.batch_size)"
    if not variant and any(option.given and not option.is_(None) for option in loader.option("batch_sampler")):
        return Refused("its batch sampler may have no length of its own")
    edit = edits.replace(module.source, module.facts, length.at, text)
    return make_fix("unsafe", f"Divide by `{text}`", [edit])


def _batches(loader: Loader) -> list[World]:
    """The worlds in which a batch holds more than one sample."""
    sizes = [size for size in loader.option("batch_size") if not size.is_(1) and not size.is_(None)]
    samplers = [option for option in loader.option("batch_sampler") if not option.is_(None)]
    return [option.world for option in (*sizes, *samplers)]


@rule("DLC414")
def class_weights_as_sample_weights(sampling: WeightedSampling) -> Iterator[Finding]:
    weights = sampling.weights
    if weights is not None and sampling.weighs_classes():
        yield finding(
            "DLC414",
            Spot(sampling.module, weights.at),
            sampling.link,
            related=[Spot(sampling.module, at, "made here") for at in sampling.origin],
            weights=sampling.module.line(weights.at),
        )


@rule("DLC415")
def drop_last_on_eval(loader: Loader) -> Iterator[Finding]:
    if any(goes_backward(loop) for loop in loader.loops) or _needs_equal_batches(loader):
        return
    yield from _dropped_by_hook(loader)
    for drop in drops_last(loader) if not loader.framework else ():
        for loop in loader.loops:
            if loop.framework or not evaluates(loop) or not collects(loop) or stops_early(loop):
                continue
            sizes, of_several = _sizes(loader, drop)
            if joint([drop.world], [loop.world], of_several, loader.worlds()):
                yield _dropped(loader, drop, sizes, [Spot(loop.module, loop.link.head, "evaluated here")])
                return


def _dropped_by_hook(loader: Loader) -> Iterator[Finding]:
    """A loader that Lightning evaluates with: its module logs a figure for all batches.

    To predict, Lightning takes the last batch whatever ``drop_last`` says.
    """
    hooks = made_by_hook(loader, "val_dataloader", "test_dataloader")
    for drop in drops_last(loader) if hooks else ():
        sizes, of_several = _sizes(loader, drop)
        if joint([drop.world], hooks, of_several, loader.worlds()):
            yield _dropped(loader, drop, sizes, [])
            return


def _sizes(loader: Loader, drop: OptionAlt) -> tuple[list[OptionAlt], list[World]]:
    """The sizes of the batches of which one is dropped, and the worlds in which that may hold several samples."""
    by_itself = drop in loader.option("drop_last")  # else a batch sampler does it, with a size of its own
    sizes = [size for size in loader.option("batch_size") if by_itself and not size.is_(1)]
    return sizes, [size.world for size in sizes] if by_itself else [drop.world]


def _dropped(loader: Loader, drop: OptionAlt, sizes: list[OptionAlt], evaluated: list[Spot]) -> Finding:
    spot = written(drop, loader)
    return finding(
        "DLC415",
        spot,
        loader.project.link_at(spot.module, spot.at),
        related=[*evaluated, *elsewhere(drop, loader, "set here"), *provenance(drop.value)],
        fix=_kept_last(loader, drop),
        loader=loader.name,
        samples=_at_most(sizes),
    )


def _kept_last(loader: Loader, drop: OptionAlt) -> Fix | Refused:
    """``drop_last=False``, where nothing counts on full batches."""
    for loop in loader.loops:
        counted = full_batches(loop)
        if counted is not None:
            return Refused(f"`{loop.module.line(counted.at)}` counts full batches, which the last one need not be")
    return _changed(loader, drop, "drop_last", "False")


def _changed(loader: Loader, option: OptionAlt, name: str, text: str) -> Fix | Refused:
    """Another value for an option, where no other loader has it from the same place."""
    verb = "Set" if option.given else "Add"
    return fix_of("unsafe", f"{verb} `{name}={text}`", [alone(set_option(loader, option, name, text))])


def _at_most(sizes: list[OptionAlt]) -> str:
    """How many samples a ragged batch can hold."""
    known = {size.value.value for size in sizes if isinstance(size.value, Const)}
    number = known.pop() if len(known) == 1 and len(sizes) == 1 else None
    return f"up to {number - 1} samples" if isinstance(number, int) else "the last samples"


def _needs_equal_batches(loader: Loader) -> bool:
    """Whether the program compiles for one shape of batch."""
    near = {loader.module, *(loop.module for loop in loader.loops)}
    return any({"torch_xla", "tensorrt", "torch_tensorrt", "poptorch"} & module.libraries for module in near)


@rule("DLC416")
def distributed_eval_padding(loader: Loader) -> Iterator[Finding]:
    if loader.framework or any(goes_backward(loop) for loop in loader.loops):
        return
    for sampler in all_distributed_samplers(loader):
        for loop in loader.loops if _repeats(sampler) and not knows_of_padding(sampler) else ():
            if loop.framework or not evaluates(loop) or stops_early(loop) or removes_repeats(loop):
                continue
            site = reduced_over_ranks(loop)
            if site is not None and joint([sampler.world], [loop.world], loader.worlds()):
                yield finding(
                    "DLC416",
                    Spot(sampler.module, sampler.name_at),
                    sampler.link,
                    related=[
                        Spot(loop.module, loop.link.head, "evaluated here"),
                        Spot(site.module, site.expr.at, "brought together here"),
                    ],
                    sampler=sampler.name,
                )
                break


def _repeats(sampler: DistributedSampler) -> bool:
    """Whether it repeats samples to give each rank as many: unless it drops some, and nobody asked about that."""
    args = sampler.made.args
    assert args is not None
    given = calling.argument(args, "drop_last", 5)
    if given is None:
        return not args.spreads
    alts = sampler.loader.project.evaluator.force(given)
    return all(isinstance(alt.value, Const) and not alt.value.value for alt in alts)


@rule("DLC417")
def unshuffled_training_loader(loader: Loader) -> Iterator[Finding]:
    if loader.framework or not loader.is_plain or shuffles_itself(loader) or loader.dataset_changes():
        return
    for loop in loader.loops:
        if loop.framework or not updates_weights(loop):
            continue
        options = [
            [option.world for option in loader.option("shuffle") if option.falsy],
            [option.world for option in loader.option("sampler") if option.is_(None)],
            [option.world for option in loader.option("batch_sampler") if option.is_(None)],
        ]
        datasets = [alt.world for alt in in_order(loader)]
        if all(options) and joint([loop.world], *options, datasets, loader.worlds()):
            yield _unshuffled(loader, loop)
            return


def _unshuffled(loader: Loader, loop: BatchLoop) -> Finding:
    option = next(option for option in loader.option("shuffle") if option.falsy)
    spot = written(option, loader)
    return finding(
        "DLC417",
        spot,
        loader.project.link_at(spot.module, spot.at),
        related=[Spot(loop.module, loop.link.head, "trained here"), *provenance(option.value)],
        fix=_changed(loader, option, "shuffle", "True"),
        loader=loader.name,
    )


@rule("DLC419")
def small_last_batch_batchnorm(loader: Loader) -> Iterator[Finding]:
    if loader.framework or not loader.is_plain or not _has_no_sampler(loader):
        return
    for loop in loader.loops:
        if not goes_backward(loop) or in_evaluation_mode(loop) or stops_early(loop):
            continue
        norm = crashing_norm(loop)
        for number, size, world in _single_leftovers(loader) if norm is not None else ():
            if norm is not None and joint([world], [loop.world], loader.worlds()):
                drop = next(option for option in loader.option("drop_last") if option.falsy)
                spot = written(drop, loader)
                yield finding(
                    "DLC419",
                    spot,
                    loader.project.link_at(spot.module, spot.at),
                    related=[
                        Spot(*norm, "needs more than one sample"),
                        Spot(loop.module, loop.link.head, "trained here"),
                    ],
                    fix=_changed(loader, drop, "drop_last", "True"),
                    loader=loader.name,
                    number=number,
                    size=size,
                    norm=_class_at(*norm),
                )
                return


def _class_at(module: Module, at: int) -> str:
    return module.line(at).partition("(")[0].rpartition(".")[2]


def _single_leftovers(loader: Loader) -> Iterator[tuple[int, int, World]]:
    """The lengths of the dataset and the batch sizes that leave one sample for the last batch, which is kept."""
    kept = [option.world for option in loader.option("drop_last") if option.falsy]
    for number, world in dataset_lengths(loader):
        for option in loader.option("batch_size"):
            size = option.value.value if isinstance(option.value, Const) and option.value.free is None else None
            if isinstance(size, int) and size > 1 and number % size == 1:
                yield from ((number, size, both) for both in joint([world], [option.world], kept))


@rule("DLC420")
def ragged_last_batch_with_compile(loader: Loader) -> Iterator[Finding]:
    if (
        loader.framework
        or not loader.is_plain
        or loader.never_ends()
        or _differs_anyway(loader)
        or _divides_evenly(loader)
    ):
        return
    plain = [option.world for option in loader.option("batch_sampler") if option.is_(None)]
    sizes = [size.world for size in loader.option("batch_size") if not size.is_(1) and not size.is_(None)]
    for loop in loader.loops:
        if loop.framework or not goes_backward(loop) or stops_early(loop):
            continue
        for compiled in compiled_calls(loop):
            if compiled.shapes not in ("mixed", "fixed") or decides_shapes(
                loader.project, {compiled.module, loop.module}
            ):
                continue
            for drop in loader.option("drop_last"):
                if drop.falsy and joint([drop.world], [compiled.world], [loop.world], plain, sizes, loader.worlds()):
                    spot = written(drop, loader)
                    yield finding(
                        "DLC420",
                        spot,
                        loader.project.link_at(spot.module, spot.at),
                        variant="each-shape" if compiled.shapes == "fixed" else "",
                        related=[
                            Spot(compiled.module, compiled.at, "compiled here"),
                            Spot(loop.module, loop.link.head, "trained here"),
                        ],
                        loader=loader.name,
                        net=compiled.name,
                    )
                    return


_PADDING = frozenset({"pad", "pad_sequence", "padded_tensor", "constant_pad_nd", "padding", "max_len", "max_length"})


def _differs_anyway(loader: Loader) -> bool:
    """Whether batches may differ in shape anyway: a collate function that nobody knows, or one that pads."""
    for option in loader.option("collate_fn"):
        if option.is_(None):
            continue
        if not isinstance(option.value, Func):
            return True
        if worker_code(loader.project, option.value).mentions(_PADDING):
            return True
    return False


def _divides_evenly(loader: Loader) -> bool:
    sizes = {size.value.value for size in loader.option("batch_size") if isinstance(size.value, Const)}
    lengths = {number for number, _ in dataset_lengths(loader)}
    return any(isinstance(size, int) and size and number % size == 0 for number in lengths for size in sizes)


@rule("DLC418")
def shuffled_order_dependent_evaluation(loop: BatchLoop) -> Iterator[Finding]:
    loader = loop.project.loader_of(loop.ref)
    if loop.framework or loader.framework or not evaluates(loop):
        return
    for name in ("shuffle", "sampler"):
        for option in loader.option(name):
            if not is_shuffled(option) or not joint([option.world], [loop.world], loader.worlds()):
                continue
            for pairing in pairings(loop):
                spot = written(option, loader)
                yield finding(
                    "DLC418",
                    spot,
                    loader.project.link_at(spot.module, spot.at),
                    related=[
                        Spot(loop.module, loop.link.head, "collected here"),
                        Spot(pairing.module, pairing.at, "laid beside the dataset's rows here"),
                    ],
                    fix=_in_order(loader, option, name),
                    loader=loader.name,
                    results=pairing.name,
                )
                return


def _in_order(loader: Loader, option: OptionAlt, name: str) -> Fix | Refused:
    if name != "shuffle":
        return Refused("a sampler decides the order: take one that keeps it")
    return _changed(loader, option, "shuffle", "False")
