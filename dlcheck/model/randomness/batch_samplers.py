"""Batch samplers given to a loader as its sampler: what the dataset is asked for is then a list of indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.data.kinds import Kinds
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Scope, descend, dotted, expressions
from dlcheck.model.values import Const, External, Instance, Made, Many, Point, Thunk, Unknown, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.loaders import Loader, OptionAlt
    from dlcheck.model.project import Project

BATCH_SAMPLER = "torch.utils.data.BatchSampler"
# Of what these draw nobody makes windows, which are rows that stand side by side.
_RANDOM = frozenset(f"torch.utils.data.{name}RandomSampler" for name in ("", "Subset", "Weighted"))
# What is asked of a list of indices, and never of one index.
_OF_LISTS = frozenset({"len", "isinstance", "list", "tuple", "set", "iter", "map", "zip", "sorted", "enumerate"})


@dataclass(frozen=True, eq=False)
class NestedBatches:
    """A sampler of batches whose lists of indices the loader takes for single indices, and collects in batches."""

    option: OptionAlt  # the sampler, as it is given to the loader
    sampler: Made | Instance
    size: OptionAlt  # how many lists the loader collects

    @property
    def name(self) -> str:
        """The class of the sampler."""
        return self.sampler.cls.name if isinstance(self.sampler, Instance) else self.sampler.path.rpartition(".")[2]

    @property
    def made_at(self) -> list[tuple[Point, int]]:
        """Where the sampler is made, if that is known: the point, and the number of the call."""
        args = self.sampler.args
        return [] if args is None or args.point is None or args.call is None else [(args.point, args.call.at)]


def nested_batches(loader: Loader) -> Iterator[NestedBatches]:
    """The samplers of a loader that yield batches, with the sizes of its own batches for which that is no plan."""
    for option in loader.option("sampler"):
        sampler = option.value
        if isinstance(sampler, (Made, Instance)) and yields_batches(loader.project, sampler):
            for size in loader.option("batch_size"):
                if _is_mistaken(loader.project, sampler, size):
                    yield NestedBatches(option, sampler, size)


def plain_batches(loader: Loader) -> tuple[list[World], ...]:
    """The worlds with a dataset of single samples; those with no batch sampler; unshuffled; collated by torch."""
    alone = [option.world for option in loader.option("batch_sampler") if option.is_(None)]
    unshuffled = [option.world for option in loader.option("shuffle") if not option.is_(True)]
    return _single_samples(loader), alone, unshuffled, _torchs_collate(loader)


# -- the sampler


def yields_batches(project: Project, value: Value) -> bool:
    """Whether it is torch's BatchSampler, or of a class of the project that derives from it and yields lists."""
    if isinstance(value, Made):
        return value.path == BATCH_SAMPLER
    if not isinstance(value, Instance) or BATCH_SAMPLER not in project.external_bases(value.cls):
        return False
    method = project.method(value.cls, "__iter__")
    return method is None or _yields_lists(project, method, value)


def _yields_lists(project: Project, method: Scope, sampler: Instance) -> bool:
    frame = project.evaluator.frame(method, self_=sampler)
    yielded = [(site.expr, Point(frame, site.link)) for site in method.yields if isinstance(site.expr, forms.Yield)]
    return bool(yielded) and all(
        expr.value is not None and not expr.delegates and _is_list(project, expr.value, point)
        for expr, point in yielded
    )


def _is_list(project: Project, expr: forms.Expr, point: Point) -> bool:
    """Whether it is a list; a tuple may be an index with something beside it."""
    tuples = (isinstance(value, Many) and value.kind == "tuple" for value in project.evaluator.values(expr, point))
    return not any(tuples) and Kinds(project.evaluator).of(expr, point).startswith("list[")


def _is_mistaken(project: Project, sampler: Made | Instance, size: OptionAlt) -> bool:
    """Whether batches of a sampler's lists are no plan: both have one size, or the lists are of random rows.

    Lists of another size, in order, may be windows over a series.
    """
    if not _several(size.value) and not (isinstance(size.value, Unknown) and size.value.token is not None):
        return False
    own = _values(project, _given(project, sampler, "batch_size"))
    if own and all(value == size.value for value in own):
        return True
    rows = _values(project, _given(project, sampler, "sampler"))
    return _several(size.value) and bool(rows) and all(isinstance(row, Made) and row.path in _RANDOM for row in rows)


def _several(size: Value) -> bool:
    return isinstance(size, Const) and isinstance(size.value, int) and size.value > 1


def _given(project: Project, sampler: Made | Instance, name: str) -> Thunk | None:
    """An argument of a batch sampler; one given by its place where the parameters are torch's, or are seen."""
    if sampler.args is None:
        return None
    init = project.method(sampler.cls, "__init__") if isinstance(sampler, Instance) else None
    names = ["sampler", "batch_size"] if init is None else [param.name for param in init.function.params[1:]]
    return calling.argument(sampler.args, name, names.index(name) if name in names else None)


def _values(project: Project, thunk: Thunk | None) -> list[Value]:
    return [] if thunk is None else [alt.value for alt in project.evaluator.force(thunk)]


# -- the loader


def _torchs_collate(loader: Loader) -> list[World]:
    """Where batches are collated by torch: a function of the user's may join what it is given."""
    own = External("torch.utils.data.default_collate")
    return [option.world for option in loader.option("collate_fn") if option.is_(None) or option.value == own]


def _single_samples(loader: Loader) -> list[World]:
    """The worlds with a dataset that nobody has seen handle a list of indices."""
    return [
        alt.world
        for alt in loader.datasets
        if alt.path != library.ITERABLE_DATASET
        and (alt.dataset is None or not alt.dataset.is_iterable and not takes_lists(alt.dataset))
    ]


# -- the dataset


def takes_lists(dataset: DatasetClass) -> bool:
    """Whether ``__getitem__`` visibly handles several indices, or ``__getitems__`` gets all of a batch at once."""
    if dataset.project.method(dataset.cls, "__getitems__") is not None:
        return True
    method = dataset.project.method(dataset.cls, "__getitem__")
    params = method.function.params[1:2] if method is not None else ()
    if method is None or not params:
        return False
    (index,) = params
    single = index.annotation is None or dotted(index.annotation) == "int"
    return not single or any(_handles_several(link, index.name) for link in links_of(method))


def _handles_several(link: Link, name: str) -> bool:
    """Whether a statement goes through an index, unpacks it, or asks what it is."""
    stmt = link.stmt
    if isinstance(stmt, forms.For) and _is(stmt.iter, name):
        return True
    if isinstance(stmt, forms.Assign) and _is(stmt.value, name):
        return any(isinstance(target, forms.Sequence) for target in stmt.targets)
    return any(_asks_of_a_list(part, name) for root in expressions(stmt) for part in descend(root))


def _asks_of_a_list(expr: forms.Expr, name: str) -> bool:
    if isinstance(expr, forms.Comp):
        return any(_is(clause.iter, name) for clause in expr.clauses)
    if isinstance(expr, forms.Call) and dotted(expr.func) in _OF_LISTS:
        return any(_is(arg.value, name) for arg in expr.args)
    return isinstance(expr, (forms.Attr, forms.Sub, forms.Star)) and _is(expr.value, name)


def _is(expr: forms.Expr | None, name: str) -> bool:
    return isinstance(expr, forms.Name) and expr.id == name
