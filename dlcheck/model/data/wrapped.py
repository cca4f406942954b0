"""Datasets inside a dataset: a wrapper of the project's own indexes another one, to transform or select its samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.data.keeping import kept_stores
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Scope, descend, dotted, expressions
from dlcheck.model.values import Alt, Frame, Instance, Point

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass

# What torch itself indexes as ``self.dataset`` or ``self.datasets``.
_WRAPPERS = frozenset({"torch.utils.data.Subset", "torch.utils.data.ConcatDataset", "torch.utils.data.StackDataset"})


def wrapped(dataset: DatasetClass) -> Iterator[Alt]:
    """The objects of the project that a dataset indexes for its own samples; each with its world."""
    from dlcheck.model.datasets import unwrapped

    for alt in unwrapped(dataset.project.evaluator, [*_kept(dataset), *_given_to_torch(dataset)]):
        value = alt.value
        if not isinstance(value, Instance) or value.cls is dataset.cls:
            continue
        if dataset.project.method(value.cls, "__getitem__") is not None:
            yield alt


def _kept(dataset: DatasetClass) -> Iterator[Alt]:
    ev = dataset.project.evaluator
    for store, frame in kept_stores(dataset):
        if store.value is None or not _indexes(dataset, store.target.name):
            continue
        for value, world in ev.eval(store.value, Point(frame, store.link)):
            for guard in ev.guards(store.link, frame):
                both = world.merge(guard)
                if both is not None:
                    yield Alt(value, both)


def _indexes(dataset: DatasetClass, name: str) -> bool:
    """Whether ``self.name[...]`` stands in the code that makes samples."""
    lineage = dataset.project.lineage(dataset.cls)
    scopes = {frame.scope for frame, _ in dataset.worker_code.frames}
    return any(scope.owner in lineage and _subscripts(scope, name) for scope in scopes)


def _subscripts(scope: Scope, name: str) -> bool:
    params = scope.function.params
    wanted = f"{params[0].name}.{name}" if params else ""
    return any(
        isinstance(expr, forms.Sub) and dotted(expr.value) == wanted
        for link in links_of(scope)
        for root in expressions(link.stmt)
        for expr in descend(root)
    )


def _given_to_torch(dataset: DatasetClass) -> Iterator[Alt]:
    """What a subclass of ``Subset`` hands to ``super().__init__``, or has been given where it has none of its own."""
    if not _WRAPPERS & set(dataset.bases):
        return
    ev, init, args = dataset.project.evaluator, dataset.init, dataset.instance.args
    if init is None:
        first = calling.argument(args, "dataset", 0) if args is not None else None
        yield from ev.force(first) if first is not None else ()
        return
    frame: Frame = ev.frame(init, args, dataset.instance.point, dataset.instance)
    for link, call in calling.super_calls(init):
        plain = isinstance(call.func, forms.Attr) and not isinstance(call.func.value, forms.Call)
        first = calling.argument(calling.arguments(call, Point(frame, link)), "dataset", 1 if plain else 0)
        yield from ev.force(first) if first is not None else ()
