"""Datasets: the class behind a loader, what it keeps, and what its samples cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.model import calling, library
from dlcheck.model.data import keeping
from dlcheck.model.data.wrapped import wrapped
from dlcheck.model.scopes import Scope
from dlcheck.model.values import Alt, Instance, Made, Many, Value
from dlcheck.model.workers import WorkerCode, worker_code
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

SAMPLE_METHODS = ("__getitem__", "__getitems__", "__iter__")


@dataclass(eq=False)
class DatasetClass:
    """A dataset class of the project, as one construction of it sees it."""

    project: Project
    instance: Instance

    @property
    def cls(self) -> Scope:
        return self.instance.cls

    @property
    def name(self) -> str:
        return self.cls.name

    @cached_property
    def bases(self) -> list[str]:
        return self.project.external_bases(self.cls)

    @property
    def is_iterable(self) -> bool:
        """Whether it derives from IterableDataset."""
        return library.ITERABLE_DATASET in self.bases

    @property
    def is_map_style(self) -> bool:
        return self.project.method(self.cls, "__getitem__") is not None and not self.is_iterable

    @cached_property
    def worker_code(self) -> WorkerCode:
        """What a worker runs to make samples."""
        return worker_code(self.project, self.instance, SAMPLE_METHODS)

    @cached_property
    def construction_code(self) -> WorkerCode:
        """What runs when it is built."""
        return keeping.construction_code(self)

    @cached_property
    def handles(self) -> list[keeping.Handle]:
        """The open handles that workers inherit from the constructor."""
        return keeping.handles(self)

    @cached_property
    def kept_data(self) -> list[keeping.Kept]:
        """The data that the constructor reads whole and keeps."""
        return keeping.kept_data(self)

    @cached_property
    def init(self) -> Scope | None:
        return self.project.method(self.cls, "__init__")


class DatasetAlt(NamedTuple):
    """One possible dataset of a loader: a class of the project, or a library's by its path ("" unknown)."""

    dataset: DatasetClass | None
    path: str
    made: Made | None
    world: World


def datasets_of(loader: Loader) -> list[DatasetAlt]:
    """The datasets that a loader may have, seen through Subset, random_split and the like."""
    project = loader.project
    out: list[DatasetAlt] = []
    for option in loader.option("dataset"):
        for value, world in unwrapped(project.evaluator, [Alt(option.value, option.world)]):
            if isinstance(value, Instance):
                out.append(DatasetAlt(project.dataset_class(value), "", None, world))
            elif isinstance(value, Made):
                out.append(DatasetAlt(None, value.path, value, world))
            else:
                out.append(DatasetAlt(None, "", None, world))
    return out


MAX_WRAPPED = 12


def with_wrapped(project: Project, datasets: list[DatasetAlt]) -> list[DatasetAlt]:
    """Datasets, and those of the project that they index in turn."""
    found = list(datasets)
    seen = {(alt.dataset.cls, alt.dataset.instance.key) for alt in found if alt.dataset is not None}
    for outer in found:  # which grows on the way
        for value, world in wrapped(outer.dataset) if outer.dataset is not None else ():
            both = outer.world.merge(world)
            if both is None or not isinstance(value, Instance) or len(found) >= MAX_WRAPPED:
                continue
            if (value.cls, value.key) not in seen:
                seen.add((value.cls, value.key))
                found.append(DatasetAlt(project.dataset_class(value), "", None, both))
    return found


def unwrapped(ev: Evaluator, alts: list[Alt], depth: int = 0) -> Iterator[Alt]:
    """The datasets inside Subset, random_split and the like."""
    for value, world in alts:
        inner = _inside(ev, value) if depth < 5 else None
        if inner is None:
            yield Alt(value, world)
        else:
            for found, other in unwrapped(ev, inner, depth + 1):
                both = world.merge(other)
                if both is not None:
                    yield Alt(found, both)


def _inside(ev: Evaluator, value: Value) -> list[Alt] | None:
    if not isinstance(value, Made) or value.args is None:
        return None
    if value.path.removesuffix("[]") in library.DATASET_WRAPPERS:
        first = calling.positional(value.args, 0) or calling.keyword(value.args, "dataset")
        alts = ev.force(first) if first is not None else None
        if alts is not None and value.path == "torch.utils.data.ConcatDataset":
            return [inner for alt in alts for inner in _members(ev, alt)]
        return alts
    return None


def _members(ev: Evaluator, alt: Alt) -> Iterator[Alt]:
    if isinstance(alt.value, Many):
        for thunk in alt.value.items:
            for value, world in ev.force(thunk):
                both = alt.world.merge(world)
                if both is not None:
                    yield Alt(value, both)
    else:
        yield alt
