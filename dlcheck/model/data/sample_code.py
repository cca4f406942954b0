"""The code that makes samples and batches, whoever loads them: methods of datasets, functions that collate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.data.kinds import Kinds
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Module, Scope, children, expressions, last_name
from dlcheck.model.values import Bound, External, Frame, Func, Instance, LambdaFunc, Point, Value
from dlcheck.model.workers import WorkerCall, WorkerCode, worker_code
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.project import Project

PER_ITEM = ("__getitem__", "__getitems__")

# Library classes that are datasets although their names do not end so.
_DATASET_BASES = frozenset(
    {
        "torchvision.datasets.VisionDataset", "torchvision.datasets.ImageFolder", "torchvision.datasets.DatasetFolder",
        "torchvision.datasets.vision.VisionDataset", "torchvision.datasets.CIFAR10", "torchvision.datasets.MNIST",
    }
)  # fmt: skip


class Place:
    """An expression in code that runs for samples or batches: its statement and its frame."""

    __slots__ = ("expr", "frame", "link")

    def __init__(self, expr: Expr, link: Link, frame: Frame) -> None:
        self.expr, self.link, self.frame = expr, link, frame

    @property
    def point(self) -> Point:
        return Point(self.frame, self.link)


@dataclass(eq=False)
class SampleCode:
    """What runs to make a sample or a batch.

    ``role``: "item" for ``__getitem__``, "length" for ``__len__``, "stream" for ``__iter__``,
    "construction" for the constructor, "collate" for what makes a batch of samples, "loop" for the
    body of a loop over a loader.
    """

    project: Project
    code: WorkerCode
    owner: str
    role: str
    dataset: DatasetClass | None = None
    kinds: Kinds = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = Kinds(self.project.evaluator)

    def places(self) -> Iterator[Place]:
        """Every expression of the code outside nested functions, each once for each frame."""
        for frame, _ in self.code.frames:
            for link in links_of(frame.scope):
                todo = list(expressions(link.stmt)) if not isinstance(link.stmt, (forms.Function, forms.Class)) else []
                while todo:
                    expr = todo.pop()
                    yield Place(expr, link, frame)
                    todo.extend(children(expr))

    @cached_property
    def decodes(self) -> bool:
        """Whether each sample reads or decodes a file of its own: milliseconds."""
        return any(
            library.canonical(call.path) in library.DECODERS and self.code.depends_on_sample(call)
            for call in self.code.calls
        )


def sample_codes(project: Project) -> list[SampleCode]:
    """The code of all datasets of the project and of all functions that collate."""
    found: list[SampleCode] = []
    for dataset in datasets(project):
        found += _of_dataset(dataset)
    found += _collates(project)
    found += _loops(project)
    return found


def datasets(project: Project) -> list[DatasetClass]:
    """The datasets of the loaders as these build them, and the other dataset classes of the named modules."""
    found: dict[object, DatasetClass] = {}
    for loader in project.loaders:
        for alt in loader.datasets:
            if alt.dataset is not None:
                found.setdefault((alt.dataset.cls, alt.dataset.instance.key), alt.dataset)
    known = {dataset.cls for dataset in found.values()}
    for module in project.named_modules:
        for cls in module.classes:
            if cls not in known and is_dataset(project, cls):
                found[cls] = project.dataset_class(Instance(cls))
    return list(found.values())


def is_dataset(project: Project, cls: Scope) -> bool:
    """Whether a class makes samples: a subclass of a library's dataset with a method that gives them."""
    if not any(project.method(cls, name) is not None for name in (*PER_ITEM, "__iter__")):
        return False
    return any(
        path in _DATASET_BASES or path.rpartition(".")[2].endswith("Dataset") for path in project.external_bases(cls)
    )


def _of_dataset(dataset: DatasetClass) -> Iterator[SampleCode]:
    project = dataset.project
    roles = (("item", PER_ITEM), ("length", ("__len__",)), ("stream", ("__iter__",)))
    for role, methods in roles:
        if any(project.method(dataset.cls, name) is not None for name in methods):
            code = worker_code(project, dataset.instance, methods)
            yield SampleCode(project, code, dataset.name, role, dataset)
    yield SampleCode(project, dataset.construction_code, dataset.name, "construction", dataset)


def _collates(project: Project) -> Iterator[SampleCode]:
    seen: set[Scope] = set()
    for loader in project.loaders:
        for option in loader.option("collate_fn"):
            value = option.value
            if isinstance(value, (Func, Instance, Bound, LambdaFunc)):
                scope = _scope_of(project, value)
                if scope is None or scope not in seen:
                    seen |= {scope} if scope is not None else set()
                    yield SampleCode(project, worker_code(project, value), _name(value), "collate")
    for module in project.named_modules:
        for value in _named_collates(project, module):
            scope = _scope_of(project, value)
            if scope is not None and scope not in seen:
                seen.add(scope)
                yield SampleCode(project, _as_anybody_calls(project, value), _name(value), "collate")


def _named_collates(project: Project, module: Module) -> Iterator[Value]:
    """Functions and callable classes that say by their names that they collate."""
    for scope in module.functions:
        if "collate" in scope.name.lower():
            owner = scope.owner
            yield Func(
                scope, Instance(owner) if owner is not None and not scope.has_decorator("staticmethod") else None
            )
    for cls in module.classes:
        if "collat" in cls.name.lower() and project.method(cls, "__call__") is not None:
            yield Instance(cls)


def _as_anybody_calls(project: Project, value: Value) -> WorkerCode:
    if isinstance(value, Func) and value.self_ is not None and value.scope.owner is not None:
        return worker_code(project, Instance(value.scope.owner), (value.scope.name,))
    return worker_code(project, value)


def _scope_of(project: Project, value: Value) -> Scope | None:
    if isinstance(value, Func):
        return value.scope
    if isinstance(value, Bound):
        return _scope_of(project, value.func)
    if isinstance(value, Instance):
        return project.method(value.cls, "__call__")
    return None


def _name(value: Value) -> str:
    if isinstance(value, Func):
        return value.scope.qualified
    if isinstance(value, Bound):
        return _name(value.func)
    return value.cls.name if isinstance(value, Instance) else "collate_fn"


def _loops(project: Project) -> Iterator[SampleCode]:
    """The bodies of the loops over loaders, without what they call."""
    for link in dict.fromkeys(loop.link for loop in project.loops):
        if isinstance(link.stmt, forms.For):
            code = WorkerCode(project, list(_calls_in(project, link)))
            yield SampleCode(project, code, link.scope.qualified, "loop")


def _calls_in(project: Project, link: Link) -> Iterator[WorkerCall]:
    for site in link.scope.module.calls_in(link):
        call = site.expr
        if isinstance(call, forms.Call) and "ensor" in last_name(call.func):
            project.evaluator.fresh()
            point = project.point(site)
            for value in project.evaluator.values(call.func, point):
                if isinstance(value, External):
                    yield WorkerCall(site, point, value.path, ANY)
