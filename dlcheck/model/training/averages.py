"""Averages over a loader: what is added up in its loop, and the number of samples that the sum is divided by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.definitions import resolved
from dlcheck.model.depth import unfolds
from dlcheck.model.flow import later_in_function, links_in, links_of
from dlcheck.model.loops import BatchLoop
from dlcheck.model.randomness.samplers import drops_last
from dlcheck.model.scopes import Link, Site, descend, dotted, expressions, last_name
from dlcheck.model.training.metrics import reduced_over_ranks
from dlcheck.model.values import Const, External, LoaderRef, Made, Managed, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader

_SAME = frozenset({"item", "float", "double", "cpu", "detach", "numpy", "data", "to", "cuda", "int", "long", "half"})
_SUBSET = "torch.utils.data.SubsetRandomSampler"
_DRAWING = {"torch.utils.data.WeightedRandomSampler": 1, "torch.utils.data.RandomSampler": 2}
_LOSSES = frozenset(
    f"torch.nn.functional.{name}"
    for name in (
        "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss", "gaussian_nll_loss", "soft_margin_loss",
        "multilabel_soft_margin_loss", "multilabel_margin_loss", "multi_margin_loss", "margin_ranking_loss",
        "hinge_embedding_loss", "cosine_embedding_loss", "triplet_margin_loss", "ctc_loss",
    )
)  # fmt: skip
_REDUCTION = frozenset({"reduction", "reduce", "size_average"})


class Sum(NamedTuple):
    """``name += value`` in a loop, or ``name.append(value)``."""

    name: str
    value: forms.Expr
    link: Link


class Average(NamedTuple):
    """A sum over a loader, divided by the length of the loader's dataset."""

    sum: Sum
    length: forms.Expr
    link: Link


class Miscount(NamedTuple):
    """Why a loader gives another number of samples than its dataset has, and in which world."""

    why: str
    world: World


def averages(loop: BatchLoop) -> Iterator[Average]:
    """The sums of a loop that are divided by the length of its loader's dataset after it."""
    sums = {found.name: found for found in _sums(loop)}
    for link in later_in_function(loop.link) if sums else ():
        stmt = link.stmt
        if isinstance(stmt, forms.AugAssign) and stmt.op == "/":
            name = dotted(stmt.target)
            if name in sums and _is_length(loop, stmt.value, link):
                yield Average(sums[name], stmt.value, link)
        for root in expressions(stmt):
            for part in descend(root):
                if isinstance(part, forms.Binary) and part.op == "/":
                    name = _summed(part.left)
                    if name in sums and _is_length(loop, part.right, link):
                        yield Average(sums[name], part.right, link)


def _sums(loop: BatchLoop) -> Iterator[Sum]:
    for link in links_in(loop.link):
        stmt = link.stmt
        if isinstance(stmt, forms.AugAssign) and stmt.op == "+" and not isinstance(stmt.value, forms.Const):
            name = dotted(stmt.target)
            if name is not None:
                yield Sum(name, stmt.value, link)
        elif isinstance(stmt, forms.Assign) and isinstance(stmt.value, forms.Binary) and stmt.value.op == "+":
            name = dotted(stmt.targets[0])
            for mine, other in ((stmt.value.left, stmt.value.right), (stmt.value.right, stmt.value.left)):
                if name is not None and dotted(mine) == name and not isinstance(other, forms.Const):
                    yield Sum(name, other, link)
        elif isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call):
            call = stmt.value
            if isinstance(call.func, forms.Attr) and call.func.name == "append" and len(call.args) == 1:
                name = dotted(call.func.value)
                if name is not None:
                    yield Sum(name, call.args[0].value, link)


def _summed(expr: forms.Expr) -> str | None:
    """``total`` of ``100 * total.item()``, of ``float(total)`` and of ``sum(total)``."""
    if isinstance(expr, forms.Binary) and expr.op == "*":
        percent = [side for side in (expr.left, expr.right) if isinstance(side, forms.Const) and side.value in (1, 100)]
        sides = [side for side in (expr.left, expr.right) if side not in percent]
        return _summed(sides[0]) if len(sides) == 1 else None
    return dotted(_bare(expr))


def _bare(expr: forms.Expr, same: frozenset[str] = _SAME) -> forms.Expr:
    """A value without what only changes its type or place, or whatever methods leave it the ``same``."""
    while True:
        if isinstance(expr, forms.Call) and isinstance(expr.func, forms.Attr) and expr.func.name in same:
            expr = expr.func.value
        elif isinstance(expr, forms.Call) and last_name(expr.func) in ("float", "int", "sum") and len(expr.args) == 1:
            expr = expr.args[0].value
        elif isinstance(expr, forms.Attr) and expr.name == "data":
            expr = expr.value
        else:
            return expr


def _is_length(loop: BatchLoop, expr: forms.Expr, link: Link) -> bool:
    """Whether an expression is the number of samples of the loop's own dataset."""
    found = resolved(loop.project, expr, link)
    call = _bare(found.expr)
    if dotted(call) is not None and call is not found.expr:
        found = resolved(loop.project, call, found.link)
        call = found.expr
    if not isinstance(call, forms.Call) or dotted(call.func) != "len" or len(call.args) != 1:
        return False
    counted = call.args[0].value
    if isinstance(counted, forms.Attr) and counted.name == "dataset":
        point = loop.project.point(Site(counted.value, found.link, None))
        values = list(loop.project.evaluator.values(counted.value, point))
        return bool(values) and any(_is_loader(loop, value) for value in values)
    name = dotted(counted)
    given = calling.argument(loop.ref.args, "dataset", 0)
    if name is None or given is None or given.expr is None or given.point is None or dotted(given.expr) != name:
        return False
    return given.point.link.scope is found.link.scope


def full_batches(loop: BatchLoop) -> forms.Binary | None:
    """``len(loader) * batch_size`` beside a loop: the number of samples where the last batch is dropped, not else."""
    for link in links_of(loop.link.scope):
        products = (
            part
            for root in expressions(link.stmt)
            for part in descend(root)
            if isinstance(part, forms.Binary) and part.op == "*"
        )
        for product in products:
            if any(_counts_batches(loop, side, link) for side in (product.left, product.right)):
                return product
    return None


def _counts_batches(loop: BatchLoop, expr: forms.Expr, link: Link) -> bool:
    if not isinstance(expr, forms.Call) or dotted(expr.func) != "len" or len(expr.args) != 1:
        return False
    counted = expr.args[0].value
    point = loop.project.point(Site(counted, link, None))
    return any(_is_loader(loop, value) for value in loop.project.evaluator.values(counted, point))


def _is_loader(loop: BatchLoop, value: Value) -> bool:
    value = value.value if isinstance(value, Managed) else value
    return isinstance(value, LoaderRef) and value.args.call is loop.ref.args.call


# -- how many samples there are


def miscounts(loader: Loader, loop: BatchLoop) -> Iterator[Miscount]:
    """Why the loop gets another number of samples than the dataset has."""
    for option in drops_last(loader):
        yield Miscount("`drop_last=True` leaves some out", option.world)
    for name in ("sampler", "batch_sampler"):
        for option in loader.option(name):
            yield from _of_sampler(loader, loop, option.value, option.world)


@unfolds(())
def _of_sampler(loader: Loader, loop: BatchLoop, value: Value, world: World) -> tuple[Miscount, ...]:
    return tuple(_by_sampler(loader, loop, value, world))


def _by_sampler(loader: Loader, loop: BatchLoop, value: Value, world: World) -> Iterator[Miscount]:
    if not isinstance(value, Made) or value.args is None:
        return
    ev = loader.project.evaluator
    if value.path == "torch.utils.data.BatchSampler":
        inner = calling.argument(value.args, "sampler", 0)
        for alt in ev.force(inner) if inner is not None else ():
            both = alt.world.merge(world)
            if both is not None:
                yield from _of_sampler(loader, loop, alt.value, both)
    elif value.path == _SUBSET and not _takes_all(loader, value):
        yield Miscount("its sampler takes a part of them", world)
    elif value.path in _DRAWING:
        number = calling.argument(value.args, "num_samples", _DRAWING[value.path])
        values = [alt.value for alt in ev.force(number)] if number is not None else []
        if values and all(isinstance(one, Const) and one.value is not None for one in values):
            yield Miscount("its sampler draws another number", world)
    elif value.path == "torch.utils.data.DistributedSampler" and reduced_over_ranks(loop) is None:
        yield Miscount("each rank has a part of them", world)


def _takes_all(loader: Loader, made: Made) -> bool:
    """Whether a sampler of a subset is given all indices, in some order."""
    assert made.args is not None
    given = calling.argument(made.args, "indices", 0)
    if given is None or given.expr is None or given.point is None:
        return True
    found = resolved(loader.project, given.expr, given.point.link)
    expr = found.expr
    while isinstance(expr, forms.Call):
        name = last_name(expr.func)
        if name in ("range", "randperm", "permutation", "arange"):
            return True
        if isinstance(expr.func, forms.Attr) and name in ("tolist", "numpy", "long"):
            expr = expr.func.value
        elif name in ("list", "sorted", "tuple", "array") and expr.args:
            expr = resolved(loader.project, expr.args[0].value, found.link).expr
        else:
            return False
    return False


# -- what is added up


def adds_means(loop: BatchLoop, found: Sum) -> bool:
    """Whether each batch adds the mean of a loss over its samples."""
    of_one_number = _SAME | {"sum", "mean"}
    here = resolved(loop.project, _bare(found.value, of_one_number), found.link)
    call = _bare(here.expr, of_one_number)
    if not isinstance(call, forms.Call) or _chooses_reduction(call):
        return False
    values = list(loop.project.evaluator.values(call.func, loop.project.point(Site(call, here.link, None))))
    return bool(values) and all(_is_mean_loss(value) for value in values)


def _chooses_reduction(call: forms.Call) -> bool:
    return any(arg.star or arg.name in _REDUCTION and not _is_mean(arg.value) for arg in call.args)


def _is_mean(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Const) and expr.value == "mean"


def _is_mean_loss(value: Value) -> bool:
    if isinstance(value, External):
        return value.path in _LOSSES
    if not isinstance(value, Made) or value.args is None or value.args.call is None:
        return False
    is_loss = value.path.startswith("torch.nn.") and value.path.endswith("Loss")
    return is_loss and not _chooses_reduction(value.args.call)
