"""Transforms in a row: ``Compose([...])`` of torchvision, item by item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.scopes import Module, Site, last_name
from dlcheck.model.values import Alt, External, Made, Many, Thunk, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.project import Project

_PLACES = ("torchvision.transforms.", "torchvision.transforms.v2.", "torchvision.transforms.transforms.")
_SEVERAL = 8


class Step(NamedTuple):
    """One transform of a pipeline: its name in torchvision ("" for any other), and where it is made."""

    name: str
    made: Made | None
    module: Module
    at: int


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A ``Compose`` as one world sees it: its steps in order, those of inner ones included."""

    project: Project
    site: Site
    steps: list[Step]
    world: World

    @property
    def call(self) -> forms.Call:
        assert isinstance(self.site.expr, forms.Call)
        return self.site.expr


def pipelines(project: Project) -> Iterator[Pipeline]:
    """The pipelines of the loaded modules whose steps are known, each once for each world."""
    ev = project.evaluator
    for module in project.loaded():
        for site in module.calls:
            call = site.expr
            assert isinstance(call, forms.Call)
            if not call.args or not (last_name(call.func) or "").endswith("Compose"):
                continue
            ev.fresh()
            point = project.point(site)
            if not any(
                isinstance(value, External) and _is_compose(value.path) for value in ev.values(call.func, point)
            ):
                continue
            for steps, world in _steps(ev, calling.argument(calling.arguments(call, point), "transforms", 0), 0):
                yield Pipeline(project, site, steps, world)


def _is_compose(path: str) -> bool:
    return path.startswith("torchvision.transforms.") and path.endswith(".Compose")


def _steps(ev: Evaluator, given: Thunk | None, depth: int) -> Iterator[tuple[list[Step], World]]:
    """The steps of a list of transforms, for each world in which the list is known."""
    if given is None or depth > 3:
        return
    for value, world in ev.force(given):
        if not isinstance(value, Many) or value.open:
            continue
        found: list[tuple[list[Step], World]] = [([], world)]
        for thunk in value.items:
            found = [
                ([*steps, *more], both)
                for steps, before in found
                for alt in ev.force(thunk)
                for more, other in _step(ev, alt, thunk, depth)
                if (both := before.merge(other)) is not None
            ][:_SEVERAL]
        yield from found


def _step(ev: Evaluator, alt: Alt, thunk: Thunk, depth: int) -> list[tuple[list[Step], World]]:
    value, world = alt
    if isinstance(value, Made) and _is_compose(value.path) and value.args is not None:
        inner = list(_steps(ev, calling.argument(value.args, "transforms", 0), depth + 1))
        if inner:
            return [(steps, both) for steps, other in inner if (both := world.merge(other)) is not None]
    place = _place(value, thunk)
    if place is None:
        return [([Step("", None, *_nowhere(thunk))], world)] if thunk.point is not None else []
    name = value.path.rpartition(".")[2] if isinstance(value, Made) and value.path.startswith(_PLACES) else ""
    return [([Step(name, value if isinstance(value, Made) else None, *place)], world)]


def _place(value: Value, thunk: Thunk) -> tuple[Module, int] | None:
    """Where a transform is made: its own call, else the item of the list."""
    if isinstance(value, Made) and value.args is not None and value.args.call and value.args.point:
        return value.args.point.module, value.args.call.at
    return None


def _nowhere(thunk: Thunk) -> tuple[Module, int]:
    assert thunk.point is not None
    return thunk.point.module, thunk.expr.at if thunk.expr is not None else thunk.point.link.stmt.at


# -- what a step does

_TO_FLOAT = frozenset({"ToTensor", "ConvertImageDtype", "ToDtype", "Normalize", "ConvertDtype"})
_SHRINKING = frozenset({"Resize", "RandomResizedCrop", "CenterCrop", "RandomCrop", "FiveCrop", "TenCrop",
                        "RandomSizedCrop", "Scale", "RandomShortestSize", "RandomIoUCrop"})  # fmt: skip
# Between the two these change nothing of what a crop does, and work on images of either kind.
_NEUTRAL = frozenset({"ToTensor", "ConvertImageDtype", "ToDtype", "Normalize", "ToImage", "PILToTensor",
                      "RandomHorizontalFlip", "RandomVerticalFlip", "ColorJitter", "RandomGrayscale", "Grayscale",
                      "RandomRotation", "RandomAffine", "RandomPerspective", "GaussianBlur", "Pad",
                      "RandomAdjustSharpness", "RandomAutocontrast", "RandomPhotometricDistort"})  # fmt: skip


def becomes_float(project: Project, step: Step) -> bool:
    """Whether the image is floating point from this step on."""
    if step.name not in _TO_FLOAT:
        return False
    if step.name in ("ToTensor", "Normalize"):
        return True
    dtype = calling.argument(step.made.args, "dtype", 0) if step.made is not None and step.made.args else None
    values = [alt.value for alt in project.evaluator.force(dtype)] if dtype is not None else []
    if not values:
        return step.name == "ConvertImageDtype"
    return all(isinstance(value, External) and value.path in _FLOATS for value in values)


_FLOATS = frozenset({"torch.float32", "torch.float", "torch.float16", "torch.half", "torch.float64", "torch.bfloat16"})


def shrinks(project: Project, step: Step) -> bool:
    """Whether a step leaves a smaller image; a crop that pads first may give one of the same size."""
    if step.name not in _SHRINKING:
        return False
    args = step.made.args if step.made is not None else None
    if step.name == "RandomCrop" and args is not None:
        return calling.argument(args, "padding", 1) is None and calling.keyword(args, "pad_if_needed") is None
    return True


def is_neutral(step: Step) -> bool:
    return step.name in _NEUTRAL


def serves_small_images(pipeline: Pipeline) -> bool:
    """Whether the pipeline is given to one of the small sets in memory: their images grow, if anything."""
    project = pipeline.project
    ev = project.evaluator
    names = {path.rpartition(".")[2] for path in library.MEMORY_DATASETS}
    for module in project.loaded():
        for site in module.calls:
            call = site.expr
            assert isinstance(call, forms.Call)
            if last_name(call.func) not in names and not _may_be_small(call):
                continue
            for arg in call.args:
                if arg.name not in (None, "transform"):
                    continue
                for value in ev.values(arg.value, project.point(site)):
                    if isinstance(value, Made) and value.args is not None and value.args.call is pipeline.call:
                        return _is_small(ev, site, project)
    return False


def _may_be_small(call: forms.Call) -> bool:
    return any(arg.name == "transform" for arg in call.args)


def _is_small(ev: Evaluator, site: Site, project: Project) -> bool:
    call = site.expr
    assert isinstance(call, forms.Call)
    made = (value for value in ev.values(call, project.point(site)) if isinstance(value, Made))
    return any(value.path in library.MEMORY_DATASETS for value in made)
