"""Attributes of a loader that a program changes after the loader was built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.loaders import option_alts
from dlcheck.model.scopes import Inner, Link, Module, Scope
from dlcheck.model.values import Const, Instance, LoaderRef, Point, Value

if TYPE_CHECKING:
    from dlcheck.model.project import Project

# What ``DataLoader.__setattr__`` refuses once the loader is built.
REFUSED = frozenset({"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"})
_WATCHED = REFUSED | {"shuffle", "num_workers", "collate_fn"}


class LoaderChange(NamedTuple):
    """``loader.name = value``; ``ref`` is None where a loader class of the project changes itself."""

    project: Project
    name: str
    value: forms.Expr | None  # None where it is not plainly given
    ref: LoaderRef | None
    module: Module
    at: int
    point: Point

    @property
    def text(self) -> str:
        return self.module.line(self.at)

    @property
    def link(self) -> Link:
        return self.point.link

    def values(self) -> list[Value]:
        if self.value is None:
            return []
        return list(self.project.evaluator.values(self.value, self.point))

    def is_refused(self) -> bool:
        return self.name in REFUSED

    def is_ignored(self) -> bool:
        """``loader.shuffle = True``: torch's loader has no such attribute, and nobody reads it."""
        return self.name == "shuffle" and self.ref is not None and not isinstance(self.ref.maker, Scope)

    def adds_workers(self) -> bool:
        """Whether a loader that was built without workers gets some."""
        if self.name != "num_workers" or self.ref is None:
            return False
        built = [value for value, _ in option_alts(self.project.evaluator, self.ref, "num_workers")]
        values = self.values()
        return (
            bool(values)
            and all(isinstance(value, Const) and value == Const(0) and value.free is None for value in built)
            and all(isinstance(value, Const) and value.value in range(1, 1000) for value in values)
        )

    def removes_collate(self) -> bool:
        values = self.values()
        return self.name == "collate_fn" and values == [Const(None)]


def loader_changes(project: Project) -> Iterator[LoaderChange]:
    """Every assignment to an attribute of a loader that comes too late."""
    for module in project.loaded():
        for store in module.stores:
            if store.target.name in _WATCHED:
                point = Point(project.evaluator.any_frame(store.link.scope), store.link)
                at = store.link.stmt.at if store.value is not None else store.target.at
                yield from _of_loader(project, store.target.value, store.target.name, store.value, at, point)
        for site in module.calls_to("setattr"):
            call = site.expr
            if isinstance(call, forms.Call) and isinstance(call.func, forms.Name):
                yield from _by_setattr(project, call, site.link, site.inner)


def _by_setattr(project: Project, call: forms.Call, link: Link, inner: Inner | None) -> Iterator[LoaderChange]:
    """``setattr(loader, "batch_size", 64)``."""
    if len(call.args) != 3 or not isinstance(call.args[1].value, forms.Const):
        return
    name = call.args[1].value.value
    if isinstance(name, str) and name in _WATCHED:
        point = Point(project.evaluator.any_frame(link.scope), link, inner)
        yield from _of_loader(project, call.args[0].value, name, call.args[2].value, call.at, point)


def _of_loader(
    project: Project, owner: forms.Expr, name: str, value: forms.Expr | None, at: int, point: Point
) -> Iterator[LoaderChange]:
    if _opens_lock(point.link.scope):
        return
    project.evaluator.fresh()
    found = [alt.value for alt in project.evaluator.eval(owner, point) if alt.value != Const(None)]
    if not found:
        return
    ref: LoaderRef | None = None
    for one in found:
        if isinstance(one, LoaderRef):
            if isinstance(one.maker, Scope) and _handles(project, one.maker, name):
                return
            ref = one
        elif not (isinstance(one, Instance) and _changes_itself(project, one.cls, name, point)):
            return
    yield LoaderChange(project, name, value, ref, point.module, at, point)


def _opens_lock(scope: Scope) -> bool:
    """``loader._DataLoader__initialized = False``: whoever writes that knows what is refused."""
    return any(
        store.target.name.endswith("__initialized") for store in scope.module.stores if store.link.scope is scope
    )


def _handles(project: Project, cls: Scope, name: str) -> bool:
    """Whether a loader class of the project has its own way with an attribute."""
    return any(project.method(cls, method) is not None for method in (name, "__setattr__"))


def _changes_itself(project: Project, cls: Scope, name: str, point: Point) -> bool:
    """Whether a loader class sets a refused attribute of itself after its base was built."""
    if name not in REFUSED or not project.is_loader_class(cls) or _handles(project, cls, name):
        return False
    scope = point.link.scope
    if scope.name != "__init__":
        return scope.owner is not None
    return any(_is_before(link, point.link) for link, _ in calling.super_calls(scope))


def _is_before(first: Link, second: Link) -> bool:
    """Whether a statement always runs before another one of the same function."""
    return any(first.block is here.block and first.index < here.index for here in (second, *second.outer()))
