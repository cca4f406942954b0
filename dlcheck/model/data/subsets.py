"""Subsets: classes that derive from torch's, and what is set on the dataset that several of them share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.scopes import (
    Module,
    Scope,
    Site,
    Store,
    descend,
    dotted,
    expressions,
    last_name,
    target_names,
)
from dlcheck.model.values import External, Instance, Made, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.project import Project

SUBSET = "torch.utils.data.Subset"
STACK = "torch.utils.data.StackDataset"


class SubsetClass(NamedTuple):
    """A class of the project that derives from torch's Subset or StackDataset and overrides ``__getitem__``."""

    project: Project
    cls: Scope
    base: str
    method: Scope

    def is_built_by_torch(self) -> bool:
        """Whether torch's constructor runs, which refuses such a class: each ``__init__`` on the way calls the next."""
        constructors = (known.functions.get("__init__") for known in self.project.lineage(self.cls))
        return all(any(calling.super_calls(init)) for init in constructors if init is not None)

    def loads_single_samples(self) -> bool:
        """Whether all its loaders go without batches: they ask for one sample at a time."""
        loaders = [
            loader
            for loader in self.project.loaders
            for option in loader.option("dataset")
            if isinstance(option.value, Instance) and self.cls in self.project.lineage(option.value.cls)
        ]
        return bool(loaders) and all(
            all(option.is_(None) for option in loader.option("batch_size"))
            and all(option.is_(None) for option in loader.option("batch_sampler"))
            for loader in loaders
        )


def subset_classes(project: Project) -> Iterator[SubsetClass]:
    """The classes that override ``__getitem__`` of a class of torch that loads whole batches at once."""
    for module in project.named_modules:
        for cls in module.classes:
            base = next((path for path in project.external_bases(cls) if path in (SUBSET, STACK)), None)
            method = cls.functions.get("__getitem__")
            if base is None or method is None:
                continue
            if any("__getitems__" in known.names for known in project.lineage(cls)):
                continue
            if any(_mixes_in(path) for path in project.external_bases(cls)):
                continue
            yield SubsetClass(project, cls, base, method)


def _mixes_in(path: str) -> bool:
    """A base of which nobody knows whether it has ``__getitems__``."""
    return path not in (SUBSET, STACK, "typing.Generic", "abc.ABC", "builtins.object", "torch.utils.data.Dataset")


@dataclass(frozen=True, eq=False)
class SubsetStore:
    """``subset.dataset.name = value``, or ``subset.name = value`` on a torch subset.

    ``through`` is whether it goes through ``.dataset``; ``base`` tells the shared dataset from others.
    """

    project: Project
    store: Store
    subset: Made
    through: bool
    world: World

    @property
    def module(self) -> Module:
        return self.store.link.scope.module

    @property
    def holder(self) -> str:
        """The subset as it is written."""
        target = self.store.target.value
        if self.through and isinstance(target, forms.Attr):
            target = target.value
        return self.module.line(target.at)

    def shares_base(self) -> bool:
        """Whether another subset of the same dataset is in use."""
        if self.subset.args is None or self.subset.args.call is None or self.subset.args.point is None:
            return False
        call, point = self.subset.args.call, self.subset.args.point
        if last_name(call.func) == "random_split" or _is_split(self.project, call, Site(call, point.link, point.inner)):
            return self._siblings_used(call)
        return self._cut_twice(call)

    def _siblings_used(self, call: forms.Call) -> bool:
        """Whether at least two parts of a split are used under their names."""
        assert self.subset.args is not None
        assert self.subset.args.point is not None
        link = self.subset.args.point.link
        stmt = link.stmt
        names = list(target_names(stmt.targets[0])) if isinstance(stmt, forms.Assign) and stmt.value is call else []
        if not isinstance(stmt, forms.Assign) or not isinstance(stmt.targets[0], forms.Sequence):
            return True  # kept as a list, or returned
        return sum("." in name or _is_read(link.scope, name) for name in names) > 1

    def _cut_twice(self, call: forms.Call) -> bool:
        """Whether ``Subset(base, ...)`` is called again for the same base."""
        ev = self.project.evaluator
        base = _base_key(ev, self.subset)
        if base is None or _copies(self.module):
            return False
        scope = self.subset.args.point.link.scope if self.subset.args and self.subset.args.point else None
        for site in scope.module.calls if scope is not None else ():
            other = site.expr
            assert isinstance(other, forms.Call)
            if other is call or last_name(other.func) != "Subset" or site.scope is not scope:
                continue
            for value in ev.values(other, self.project.point(site)):
                if isinstance(value, Made) and value.path == SUBSET and _base_key(ev, value) == base:
                    return True
        return False

    def matters(self) -> bool:
        """Whether samples depend on the attribute: always, as far as is known, for datasets of libraries."""
        ev = self.project.evaluator
        given = calling.argument(self.subset.args, "dataset", 0) if self.subset.args is not None else None
        for alt in ev.force(given) if given is not None else ():
            if isinstance(alt.value, Instance):
                code = self.project.dataset_class(alt.value).worker_code
                return code.reads_attribute(alt.value.cls, self.store.target.name)
        return True

    def is_copied(self) -> bool:
        """Whether the program gives the subset a dataset of its own first, or copies it."""
        holder = self.holder
        for store in self.module.stores:
            if dotted(store.target) == f"{holder}.dataset":
                return True
        return _copies(self.module)

    def in_loop(self) -> bool:
        """Whether it is set again and again: a program that switches to and fro."""
        point = self.subset.args.point if self.subset.args is not None else None
        built = set(point.link.outer()) if point is not None else set()
        loops = [outer for outer in self.store.link.outer() if isinstance(outer.stmt, (forms.For, forms.While))]
        return any(outer not in built for outer in loops)

    def is_read(self, name: str) -> bool:
        """Whether the module asks a subset for the attribute that is set on it."""
        holder = self.holder
        for link in self.module.links.values():
            for root in expressions(link.stmt):
                if isinstance(link.stmt, forms.Assign) and any(root is target for target in link.stmt.targets):
                    continue
                if any(isinstance(expr, forms.Attr) and dotted(expr) == f"{holder}.{name}" for expr in descend(root)):
                    return True
        return False

    def same_as_others(self, others: list[Store]) -> bool:
        """Whether the other subsets are given the very same."""
        own = self._text(self.store)
        return bool(others) and all(self._text(other) == own for other in others)

    def _text(self, store: Store) -> str:
        return store.link.scope.module.line(store.value.at) if store.value is not None else ""

    def is_last(self, others: list[Store]) -> bool:
        """Whether it is the one that stays."""
        return all(other.target.at < self.store.target.at for other in others)

    def alike(self) -> list[Store]:
        """The assignments to the same attribute through other subsets, in this function."""
        return [
            other
            for other in self.module.stores
            if other.link.scope is self.store.link.scope
            and other is not self.store
            and other.target.name == self.store.target.name
            and isinstance(other.target.value, forms.Attr)
            and other.target.value.name == "dataset"
        ]


def _is_split(project: Project, call: forms.Call, site: Site) -> bool:
    values = project.evaluator.values(call.func, project.point(site))
    return any(isinstance(value, External) and value.path.endswith("random_split") for value in values)


def _base_key(ev: Evaluator, subset: Made) -> object:
    """What tells the dataset of a subset from others."""
    given = calling.argument(subset.args, "dataset", 0) if subset.args is not None else None
    for alt in ev.force(given) if given is not None else ():
        key = getattr(alt.value, "key", None) or getattr(alt.value, "token", None)
        if key is not None:
            return key
    return None


def _copies(module: Module) -> bool:
    """Whether a module copies objects: a dataset, perhaps."""
    calls = (site.expr for site in module.calls)
    return any(
        isinstance(call, forms.Call) and call.args and last_name(call.func) in ("copy", "deepcopy") for call in calls
    )


def _is_read(scope: Scope, name: str) -> bool:
    """Whether a function uses a name that it has bound."""
    todo = list(scope.body)
    while todo:
        link = todo.pop()
        for block in link.blocks.values():
            todo += block
        for root in expressions(link.stmt):
            if isinstance(link.stmt, forms.Assign) and any(root is target for target in link.stmt.targets):
                if not isinstance(root, forms.Attr):
                    continue
                root = root.value if not isinstance(root.value, forms.Attr) else root.value.value
                continue
            if any(isinstance(expr, forms.Name) and expr.id == name for expr in descend(root)):
                return True
    return False


def subset_stores(project: Project) -> Iterator[SubsetStore]:
    """The attributes that a program sets on torch's subsets, or on the dataset under them."""
    ev = project.evaluator
    for module in project.named_modules:
        for store in module.stores:
            holder = store.target.value
            through = isinstance(holder, forms.Attr) and holder.name == "dataset"
            subset: forms.Expr = holder.value if through and isinstance(holder, forms.Attr) else holder
            if dotted(subset) in ("self", "cls", None) and not isinstance(subset, forms.Sub):
                continue
            ev.fresh()
            for value, world in ev.eval(subset, project.point(Site(subset, store.link, None))):
                if _is_subset(value):
                    assert isinstance(value, Made)
                    yield SubsetStore(project, store, value, through, world)
                    break


def _is_subset(value: Value) -> bool:
    return isinstance(value, Made) and value.path == SUBSET
