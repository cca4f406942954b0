"""Rules about what ``__getitem__`` gives: of the wrong kind, shared, or None."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dlcheck import edits
from dlcheck.checks import mending
from dlcheck.checks.copied_samples import copied_first, copied_sample, straightened
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, joint, make_fix, provenance, written
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Finding, Fix
from dlcheck.model import library
from dlcheck.model.data.collating import passes_samples_on
from dlcheck.model.data.exhaustion import MapCode, map_codes
from dlcheck.model.data.memory import ARRAY, CONTAINERS, DICT, NONE, TENSOR, Piece
from dlcheck.model.data.pipelines import Pipeline, becomes_float, is_neutral, pipelines, serves_small_images, shrinks
from dlcheck.model.data.stored import Samples, TensorCode, tensor_codes
from dlcheck.model.data.subsets import STACK, SubsetClass, SubsetStore, subset_classes, subset_stores
from dlcheck.model.data.traces import Edit, Exit
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.program import copies_to_workers
from dlcheck.model.worlds import World

TENSOR_DATASET = "torch.utils.data.TensorDataset"

facts(Samples, lambda project: project.samples)
facts(TensorCode, tensor_codes)
facts(MapCode, map_codes)
facts(Pipeline, pipelines)
facts(SubsetClass, subset_classes)
facts(SubsetStore, subset_stores)


# -- views sent whole


@rule("DLC312")
def view_ships_whole_storage(loader: Loader) -> Iterator[Finding]:
    if copies_to_workers(loader):
        return  # the tensor is in shared memory from the start, once for all workers
    for option in _uncopied(loader):
        for workers in loader.option("num_workers"):
            worlds = joint([option.world], [workers.world], loader.worlds()) if workers.positive else []
            yield from _views(loader, option, workers, worlds)
            for alt in loader.datasets:
                if alt.path == TENSOR_DATASET and joint(worlds, [alt.world]):
                    spot = written(option, loader)
                    link = loader.project.link_at(spot.module, spot.at)
                    yield finding(
                        "DLC312",
                        spot,
                        link,
                        variant="tensor-dataset",
                        related=provenance(workers.value),
                        fix=Refused("what gives the views is torch's own"),
                    )


def _views(loader: Loader, option: OptionAlt, workers: OptionAlt, worlds: list[World]) -> Iterator[Finding]:
    for samples, world in loader.project.samples_of(loader):
        for end in samples.ends:
            kept = next((piece.stored for piece in end.piece.within() if _is_view(piece)), None)
            if kept is not None and end.link is not None and joint(worlds, [world], [end.state.world]):
                yield finding(
                    "DLC312",
                    _returned(end, samples),
                    end.link,
                    related=[
                        written(option, loader)._replace(caption="nothing copies the samples"),
                        written(workers, loader)._replace(caption="with these workers"),
                        *provenance(workers.value),
                    ],
                    fix=copied_sample(samples, end, _is_view),
                    dataset=samples.dataset.name,
                    kept=f"self.{kept[1]}",
                )


def _is_view(piece: Piece) -> bool:
    return piece.kind == TENSOR and not piece.whole and piece.stored is not None


def _uncopied(loader: Loader) -> Iterator[OptionAlt]:
    """The options with which samples are sent as the dataset gives them."""
    if not loader.is_plain:
        return
    collates = loader.option("collate_fn")
    for option in collates:
        if passes_samples_on(loader.project, option.value):
            yield option
    if all(option.is_(None) for option in (*collates, *loader.option("sampler"), *loader.option("batch_sampler"))):
        yield from (option for option in loader.option("batch_size") if option.is_(None))


def _returned(end: Exit, samples: Samples) -> Spot:
    """What a path returns or yields, as it is written."""
    if end.link is None or end.at is None:
        method = samples.method
        assert method is not None
        return Spot(method.module, method.function.name_at)
    return Spot(end.link.scope.module, end.at)


# -- reversed views


@rule("DLC314")
def negative_stride_from_numpy(code: TensorCode) -> Iterator[Finding]:
    for refusal in code.refusals:
        if code.possible(refusal.world):
            yield finding(
                "DLC314",
                Spot(refusal.module, refusal.at),
                refusal.link,
                related=[Spot(*refusal.turned, "reversed here")],
                fix=straightened(refusal),
                call=refusal.call,
            )
    for end, loader in code.collated():
        turned = next((piece.turned for piece in end.piece.within() if piece.turned and piece.kind == ARRAY), None)
        if turned is not None and end.link is not None:
            spot = Spot(end.link.scope.module, getattr(getattr(end.link.stmt, "value", None), "at", end.link.stmt.at))
            yield finding(
                "DLC314",
                spot,
                end.link,
                variant="collated",
                related=[
                    Spot(*turned, "reversed here"),
                    Spot(loader.module, loader.name_at, "collated by this loader"),
                ],
                fix=copied_sample(code.samples, end, lambda piece: piece.turned is not None and piece.kind == ARRAY),
            )


# -- stored samples, edited


@rule("DLC315")
def inplace_edit_of_stored_sample(samples: Samples) -> Iterator[Finding]:
    shared: set[object] = {piece.stored for end in samples.ends for piece in end.piece.within()}
    seen = set()
    for edit in samples.edits:
        variant = _edit_variant(edit)
        if variant is None or not samples.possible(edit.world) or edit.piece.stored in seen:
            continue
        if _is_state(edit, samples, shared):
            continue
        seen.add(edit.piece.stored)
        assert edit.piece.stored is not None
        yield finding(
            "DLC315",
            Spot(edit.module, edit.at),
            edit.link,
            variant=variant,
            fix=copied_first(edit, samples),
            kept=f"self.{edit.piece.stored[1]}",
            dataset=samples.dataset.name,
        )


def _is_state(edit: Edit, samples: Samples, shared: set[object]) -> bool:
    """Whether what is written is a state, a cache or a buffer of the dataset, and no sample."""
    method = samples.method
    container = edit.piece.kind in CONTAINERS
    if container and (edit.root == "self" or method is None or method.function.is_generator):
        return True
    return edit.piece.whole and edit.piece.stored not in shared


def _edit_variant(edit: Edit) -> str | None:
    if edit.asked_first:
        return None  # a cache, or a conversion that asks whether it is still due
    if edit.how == "cumulative":
        return ""
    if edit.how == "drawn":
        return "drawn"
    return "retained" if edit.how == "retained" and edit.piece.kind == DICT else None


# -- one buffer for all samples


@rule("DLC316")
def shared_buffer_sample(samples: Samples) -> Iterator[Finding]:
    if not samples.dataset.is_map_style:
        return
    written_to = {edit.piece.stored: edit for edit in samples.edits if edit.piece.whole and not edit.asked_first}
    for end in samples.ends:
        for piece in end.piece.within():
            edit = written_to.get(piece.stored) if piece.stored is not None else None
            if edit is None or piece.chosen or end.link is None or not samples.batched(end.state.world):
                continue
            yield finding(
                "DLC316",
                _returned(end, samples),
                end.link,
                related=[Spot(edit.module, edit.at, "each sample overwrites it here")],
                fix=copied_sample(samples, end, partial(_is_of, piece)),
                buffer=f"self.{edit.piece.stored[1]}" if edit.piece.stored else "",
                dataset=samples.dataset.name,
            )
            break


def _is_of(buffer: Piece, piece: Piece) -> bool:
    return piece.stored == buffer.stored


# -- None in a batch


@rule("DLC317")
def getitem_returns_none(samples: Samples) -> Iterator[Finding]:
    if not samples.dataset.is_map_style:
        return
    for loader, world in samples.loaders:
        collates = [option.world for option in loader.option("collate_fn") if option.is_(None)]
        sizes = [option.world for option in loader.option("batch_size") if not option.is_(None)]
        if not loader.is_plain or not collates or not sizes:
            continue
        for end in samples.ends:
            together = joint([world], collates, sizes, [end.state.world], loader.worlds())
            if _has_none(end) and samples.gives_none(end) and together:
                method = samples.method
                assert method is not None
                assert method.link is not None
                yield finding(
                    "DLC317",
                    _returned(end, samples),
                    end.link or method.link,
                    variant="" if end.link is not None else "falls-off",
                    related=[Spot(loader.module, loader.name_at, "collated by this loader")],
                    dataset=samples.dataset.name,
                )


def _has_none(end: Exit) -> bool:
    """Whether a path gives None, or None in a tuple or dict: no batch can be made of that either."""
    return any(piece.kind == NONE for piece in (end.piece, *(part for _, part in end.piece.parts)))


# -- the end of an epoch, by mistake


@rule("DLC320")
def stopiteration_truncates_epoch(code: MapCode) -> Iterator[Finding]:
    for escape in code.escapes():
        yield finding("DLC320", Spot(escape.module, escape.at), escape.link, what=escape.what, owner=escape.owner)


# -- no length


# Bases that give no length to what derives from them.
_WITHOUT_LENGTH = frozenset({library.DATASET, "typing.Generic", "abc.ABC", "builtins.object", "typing.Protocol"})


@rule("DLC322")
def dataset_without_len(loader: Loader) -> Iterator[Finding]:
    plain = loader.path == library.DATALOADER
    samplers = [option.world for option in loader.option("sampler") if option.is_(None)]
    batch_samplers = [option.world for option in loader.option("batch_sampler") if option.is_(None)]
    for option in loader.option("dataset") if plain else ():
        for dataset in (alt for alt in loader.datasets if alt.dataset is not None):
            cls = dataset.dataset
            assert cls is not None
            if option.value != cls.instance or not cls.is_map_style or not set(cls.bases) <= _WITHOUT_LENGTH:
                continue
            if any("__len__" in base.names for base in loader.project.lineage(cls.cls)):
                continue
            if joint([dataset.world], samplers, batch_samplers, loader.worlds()):
                yield finding(
                    "DLC322",
                    Spot(loader.module, loader.name_at),
                    loader.link,
                    related=[Spot(cls.cls.module, _name_at(cls.cls.node), "defined here")],
                    dataset=cls.name,
                )


def _name_at(node: forms.Function | forms.Class | None) -> int:
    assert node is not None
    return node.name_at


# -- transforms in the wrong order


@rule("DLC313")
def totensor_before_crop(pipeline: Pipeline) -> Iterator[Finding]:
    project = pipeline.project
    steps = pipeline.steps
    first = next((number for number, step in enumerate(steps) if becomes_float(project, step)), None)
    if first is None or any(shrinks(project, step) for step in steps[:first]):
        return
    for step in steps[first + 1 :]:
        if shrinks(project, step):
            if not serves_small_images(pipeline):
                yield finding(
                    "DLC313",
                    Spot(steps[first].module, steps[first].at),
                    project.link_at(steps[first].module, steps[first].at),
                    related=[Spot(step.module, step.at, "only here it becomes smaller")],
                    fix=_smaller_first(pipeline, first),
                    first=steps[first].name,
                    later=step.name,
                )
            return
        if not is_neutral(step):
            return


_CONVERSIONS = frozenset({"ToTensor", "Normalize", "ToDtype", "ConvertImageDtype", "ConvertDtype"})


def _smaller_first(pipeline: Pipeline, first: int) -> Fix | Refused:
    """The conversions behind the steps that make the image smaller; all others stay in their order."""
    call, module, steps = pipeline.call, pipeline.site.module, pipeline.steps
    given = call.args[0].value if call.args else None
    items = given.items if isinstance(given, forms.Sequence) else ()
    if [(module, item.at) for item in items] != [(step.module, step.at) for step in steps]:
        return Refused("the steps do not stand in one list")
    last = first
    for number, step in enumerate(steps[first + 1 :], first + 1):
        if shrinks(pipeline.project, step):
            last = number
        elif not is_neutral(step):
            break
    moved = [number for number in range(first, last + 1) if steps[number].name in _CONVERSIONS]
    order = [number for number in range(first, last + 1) if number not in moved] + moved
    facts, text = module.facts, module.source.text
    texts = [text[slice(*facts.span(items[number].at))] for number in order]
    if any("#" in one for one in texts):
        return Refused("a comment stands in the way")
    pairs = zip(range(first, last + 1), texts, strict=True)
    changes = [edits.replace(module.source, facts, items[number].at, new) for number, new in pairs]
    return make_fix("unsafe", "Make the image smaller first", changes)


# -- subsets


@rule("DLC318")
def subset_getitem_ignored(found: SubsetClass) -> Iterator[Finding]:
    newest, oldest = found.project.targets.torch, found.project.targets.torch_min
    if newest is not None and newest < (2, 1):
        return
    variant = ""
    if found.base == STACK or newest is not None and newest < (2, 11) or not found.is_built_by_torch():
        variant = "silent"
        if found.loads_single_samples():
            return
    elif oldest is not None and oldest >= (2, 11):
        variant = "raises"
    assert found.method.link is not None
    yield finding(
        "DLC318",
        Spot(found.method.module, found.method.function.name_at),
        found.method.link,
        variant=variant,
        fix=_with_getitems(found),
        cls=found.cls.name,
        base=found.base.rpartition(".")[2],
    )


def _with_getitems(found: SubsetClass) -> Fix | Refused:
    module = found.cls.module
    own = next((param.name for param in found.method.function.params), "self")
    lines = (f"def __getitems__({own}, indices):", f"    return [{own}[index] for index in indices]")
    if len({param.name for param in found.method.function.params if param.default is None}) != 2:
        return Refused("its `__getitem__` takes something else than an index")
    edit = mending.add_methods(module.source, module.facts, found.method, [lines])
    return make_fix("safe", "Add `__getitems__`", [edit])


_TRANSFORMS = frozenset({"transform", "transforms", "target_transform", "target_transforms"})
_MODES = frozenset(
    {"train", "training", "is_train", "is_training", "mode", "split", "phase", "is_test", "eval", "test"}
)


@rule("DLC319")
def split_shares_transform(found: SubsetStore) -> Iterator[Finding]:
    name = found.store.target.name
    if not (name in _TRANSFORMS or found.through and (name in _MODES or "transform" in name or "augment" in name)):
        return
    if found.is_copied() or found.in_loop():
        return
    if not found.through:
        if not found.is_read(name):
            yield _on_subset(found, "no-effect")
        return
    others = found.alike()
    if found.matters() and found.shares_base() and not found.same_as_others(others) and found.is_last(others):
        yield _on_subset(found, "")


def _on_subset(found: SubsetStore, variant: str) -> Finding:
    target = found.store.target
    return finding(
        "DLC319",
        Spot(found.module, target.at),
        found.store.link,
        variant=variant,
        related=[
            Spot(found.module, other.target.at, "and this was set on the same dataset") for other in found.alike()
        ],
        about={"attribute": target.name, "through": found.through},
        target=found.module.line(target.at),
        subset=found.holder,
        name=target.name,
    )
