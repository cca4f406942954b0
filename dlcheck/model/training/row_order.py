"""Results that a loop collects batch by batch, and are then laid beside something in the order of the dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.flow import later_in_function, links_in
from dlcheck.model.loops import BatchLoop, callers_in
from dlcheck.model.scopes import Link, Module, Site, children, descend, dotted, expressions, last_name, target_names
from dlcheck.model.values import Instance, LoaderRef, Made, Managed, Unknown

if TYPE_CHECKING:
    from dlcheck.model.loaders import OptionAlt

_DRAWING = frozenset(
    f"torch.utils.data.{name}" for name in ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")
)
_JOINING = frozenset({"cat", "concatenate", "concat", "hstack", "vstack", "append", "stack"})


class Pairing(NamedTuple):
    """An expression in which collected results stand beside something in the order of the dataset."""

    module: Module
    link: Link
    at: int
    name: str  # of the results


def is_shuffled(option: OptionAlt) -> bool:
    """Whether ``shuffle`` or ``sampler`` puts samples in another order than the dataset has."""
    return option.is_(True) or isinstance(option.value, Made) and option.value.path in _DRAWING


def pairings(loop: BatchLoop) -> Iterator[Pairing]:
    """Where the results of a loop are laid beside the rows of the dataset, in its function or that of a caller."""
    names = set(_collected(loop))
    if not names:
        return
    first = sorted(names)[0]
    yield from _after(loop, loop.link, names, set(), first)
    scope = loop.link.scope
    if scope.kind != "function" or not _returns(loop, names):
        return
    for point in callers_in(loop.project, scope, loop.world):
        calls = {
            site.expr.at
            for site in point.module.calls_in(point.link)
            if isinstance(site.expr, forms.Call) and last_name(site.expr.func) == scope.name
        }
        given = set(point.link.changes) if isinstance(point.link.stmt, forms.Assign) else set()
        yield from _in_statement(loop, point.link, set(), calls, first)
        yield from _after(loop, point.link, given, set(), first)


def _collected(loop: BatchLoop) -> Iterator[str]:
    """The lists and arrays that grow in each round."""
    if not isinstance(loop.link.stmt, forms.For):
        if isinstance(loop.link.stmt, forms.Assign):  # preds = [net(x) for x in loader]
            yield from (name for target in loop.link.stmt.targets for name in target_names(target))
        return
    for link in links_in(loop.link):
        stmt = link.stmt
        if isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call):
            func = stmt.value.func
            if isinstance(func, forms.Attr) and func.name in ("append", "extend") and dotted(func.value):
                yield dotted(func.value) or ""
        elif isinstance(stmt, forms.AugAssign) and stmt.op == "+" and _is_list(stmt.value):
            yield dotted(stmt.target) or ""
        elif isinstance(stmt, forms.Assign) and isinstance(stmt.value, forms.Call):
            name = dotted(stmt.targets[0])
            inside = {dotted(part) for part in descend(stmt.value)}
            if name and name in inside and last_name(stmt.value.func) in _JOINING:
                yield name


def _is_list(expr: forms.Expr) -> bool:
    """``.tolist()``, ``list(...)``, a list: what ``+=`` adds to the end of a list."""
    if isinstance(expr, forms.Call):
        return last_name(expr.func) in ("tolist", "list", "to_list")
    return isinstance(expr, (forms.Sequence, forms.Comp))


def _returns(loop: BatchLoop, names: set[str]) -> bool:
    """Whether the loop's function gives back what was collected, and nothing that came with it."""
    known = set(names)
    for link in later_in_function(loop.link):
        _follow(link, known)
    for link in loop.link.scope.returns:
        value = link.stmt.value if isinstance(link.stmt, forms.Return) else None
        if value is not None and not isinstance(value, (forms.Sequence, forms.Dict)) and _mentions(value, known, ()):
            return True
    return False


def _follow(link: Link, names: set[str]) -> None:
    if isinstance(link.stmt, forms.Assign) and _mentions(link.stmt.value, names, ()):
        names.update(name for target in link.stmt.targets for name in target_names(target) if name)


def _mentions(expr: forms.Expr, names: set[str], calls: Iterable[int]) -> bool:
    return any(dotted(part) in names or part.at in calls for part in descend(expr))


def _after(loop: BatchLoop, link: Link, names: set[str], calls: set[int], first: str) -> Iterator[Pairing]:
    known = set(names)
    for later in later_in_function(link):
        yield from _in_statement(loop, later, known, calls, first)
        if isinstance(later.stmt, forms.Assign) and not any(
            isinstance(target, forms.Sub) for target in later.stmt.targets
        ):
            _follow(later, known)


def _in_statement(loop: BatchLoop, link: Link, names: set[str], calls: set[int], first: str) -> Iterator[Pairing]:
    module = link.scope.module
    if isinstance(link.stmt, forms.Assign) and _mentions(link.stmt.value, names, calls):
        for target in link.stmt.targets:
            if isinstance(target, forms.Sub) and _is_table(loop, target.value, link):
                yield Pairing(module, link, target.at, first)  # table["label"] = predictions
    for root in expressions(link.stmt):
        for part in descend(root):
            if not isinstance(part, (forms.Call, forms.Compare, forms.Binary, forms.Dict)):
                continue
            sides = _sides(part)
            mine = [side for side in sides if _mentions(side, names, calls)]
            others = [side for side in sides if side not in mine]
            if mine and any(
                _is_in_dataset_order(loop, side, link) or _is_zip(part) and _is_given(loop, side, link)
                for side in others
            ):
                yield Pairing(module, link, part.at, first)
                return


def _sides(expr: forms.Expr) -> list[forms.Expr]:
    if isinstance(expr, forms.Call):
        return [arg.value for arg in expr.args]
    if isinstance(expr, forms.Dict):
        return [entry.value for entry in expr.entries]
    return list(children(expr))


def _is_table(loop: BatchLoop, expr: forms.Expr, link: Link) -> bool:
    """A pandas or polars table that was read or selected: its rows have an order of their own."""
    values = loop.project.evaluator.values(expr, loop.project.point(Site(expr, link, None)))
    return any(
        isinstance(value, Made) and value.path.startswith(("pandas.", "polars.")) and "DataFrame" not in value.path
        for value in values
    )


def _is_in_dataset_order(loop: BatchLoop, expr: forms.Expr, link: Link) -> bool:
    """``loader.dataset.paths``, ``dataset.targets``: an attribute of the loop's own dataset; not its length."""
    given = calling.argument(loop.ref.args, "dataset", 0)
    for part in descend(expr):
        if isinstance(part, forms.Call) and dotted(part.func) == "len":
            return False
        if not isinstance(part, forms.Attr):
            continue
        if isinstance(part.value, forms.Attr) and part.value.name == "dataset" and _is_loader(loop, part.value, link):
            return True
        if given is not None and given.expr is not None and given.point is not None and dotted(part.value) is not None:
            same_name = dotted(part.value) == dotted(given.expr) and link.scope is given.point.link.scope
            if same_name or _is_dataset(loop, part.value, link):
                return True
    return False


def _is_zip(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Call) and dotted(expr.func) == "zip"


def _is_given(loop: BatchLoop, expr: forms.Expr, link: Link) -> bool:
    """Whether the loop's dataset was built of it, in the same function: ``paths`` of ``Files(paths)``."""
    name = dotted(expr)
    if name is None:
        return False
    for option in loop.project.loader_of(loop.ref).option("dataset"):
        args = option.value.args if isinstance(option.value, Instance) else None
        if args is not None and args.call is not None and args.point is not None:
            given = [dotted(arg.value) for arg in args.call.args]
            if args.point.link.scope is link.scope and name in given:
                return True
    return False


def _is_loader(loop: BatchLoop, expr: forms.Attr, link: Link) -> bool:
    values = loop.project.evaluator.values(expr.value, loop.project.point(Site(expr, link, None)))
    found = (value.value if isinstance(value, Managed) else value for value in values)
    return any(isinstance(value, LoaderRef) and value.args.call is loop.ref.args.call for value in found)


def _is_dataset(loop: BatchLoop, expr: forms.Expr, link: Link) -> bool:
    mine = set(loop.project.evaluator.values(expr, loop.project.point(Site(expr, link, None))))
    options = loop.project.loader_of(loop.ref).option("dataset")
    known = {option.value for option in options if not isinstance(option.value, Unknown) or option.value.token}
    return bool(mine & known)
