"""Fixes that switch gradients off: on the function of an evaluation, or around its loop."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.checks import mending, moving
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Applicability, Fix
from dlcheck.model.flow import links_of
from dlcheck.model.loops import BatchLoop, callers_in
from dlcheck.model.scopes import Link, Scope, Site, descend, dotted, last_name, target_names
from dlcheck.model.training.gradients import backward_names
from dlcheck.model.training.gradmode import asks_for_gradients
from dlcheck.model.training.steps import goes_backward


def gradients_off(loop: BatchLoop) -> Fix | Refused:
    """``@torch.no_grad()`` on the function of a loop; around the loop, where the function does more than evaluate."""
    module, scope, link = loop.module, loop.link.scope, loop.link
    torch, imports = mending.alias_of(module, "torch", "torch")
    if not isinstance(link.stmt, forms.For) or link.stmt.iter is not loop.iterated and loop.inner is not None:
        return Refused("the loop is part of an expression")
    function = scope.function
    if (
        scope.kind != "function"
        or function.is_async
        or function.is_generator
        or asks_for_gradients(loop.project, scope)
    ):
        if any(site.link is link or link in site.link.outer() for site in scope.yields):
            return Refused("gradients would be off for whoever takes what it yields, too")
        step = moving.unit(module)
        around = moving.put_into(module.source, module.facts, link, f"with {torch}.no_grad():", step)
        return make_fix("unsafe", f"Put the loop into `with {torch}.no_grad():`", [around, *imports])
    decorator = f"{torch}.no_grad()"
    edit = moving.add_decorator(module.source, module.facts, scope, decorator)
    kind: Applicability = "safe" if _gives_no_graph(loop, scope) else "unsafe"
    return make_fix(kind, f"Put `@{decorator}` on `{scope.name}`", [edit, *imports])


def _gives_no_graph(loop: BatchLoop, scope: Scope) -> bool:
    """Whether nobody can go backward from what a function returns or stores."""
    if any(store.link.scope is scope and store.value is not None and not _is_number(store.value, scope, 0)
           for store in scope.module.stores):  # fmt: skip
        return False
    if any(_hands_out(site, scope) for site in scope.module.calls_by_scope.get(scope, ())):
        return False
    results = [link.stmt.value for link in scope.returns if isinstance(link.stmt, forms.Return)]
    if all(value is None or _is_number(value, scope, 0) for value in results):
        return True
    points = list(callers_in(loop.project, scope, loop.world))
    return bool(points) and all(_is_for_looking(point.link) for point in points)


def _hands_out(site: Site, scope: Scope) -> bool:
    """Whether a call puts something else than numbers into what is not the function's own."""
    call = site.expr
    if not isinstance(call, forms.Call) or last_name(call.func) not in ("append", "extend", "add", "update", "put"):
        return False
    owner = (dotted(call.func) or "self.").partition(".")
    own = owner[0] in scope.names and all(param.name != owner[0] for param in scope.function.params)
    return not own and not all(_is_number(arg.value, scope, 0) for arg in call.args)


_NUMBERS = frozenset(
    {"size", "item", "float", "int", "len", "round", "tolist", "numpy", "str", "format", "bool", "print"}
)


def _is_number(expr: forms.Expr, scope: Scope, depth: int) -> bool:
    """Whether an expression is plain numbers or text, whatever the network gave."""
    if isinstance(expr, (forms.Const, forms.FString, forms.Compare)):
        return True
    if isinstance(expr, forms.Call):
        return last_name(expr.func) in _NUMBERS
    if isinstance(expr, forms.Binary):
        return _is_number(expr.left, scope, depth) and _is_number(expr.right, scope, depth)
    if isinstance(expr, forms.Sequence):
        return all(_is_number(item, scope, depth) for item in expr.items)
    if isinstance(expr, forms.Dict):
        return all(_is_number(entry.value, scope, depth) for entry in expr.entries)
    if isinstance(expr, forms.Name) and depth < 4:
        values = list(_bound(expr.id, scope))
        return bool(values) and all(value is not None and _is_number(value, scope, depth + 1) for value in values)
    return False


def _bound(name: str, scope: Scope) -> Iterator[forms.Expr | None]:
    """What a local name is bound to, or added; None for what is no plain assignment."""
    if any(param.name == name for param in scope.function.params):
        yield None
    for link in links_of(scope):
        stmt = link.stmt
        if link.blocks and not (isinstance(stmt, forms.For) and name in target_names(stmt.target)):
            continue
        if name not in link.changes:
            continue
        targets = [stmt.target] if isinstance(stmt, forms.AugAssign) else getattr(stmt, "targets", [None])
        if isinstance(stmt, (forms.Assign, forms.AugAssign)) and all(dotted(target) == name for target in targets):
            yield stmt.value
        elif isinstance(stmt, forms.Assign) and isinstance(stmt.value, forms.Sequence):
            yield from _of_pairs(name, stmt)
        else:
            yield None


def _of_pairs(name: str, stmt: forms.Assign) -> Iterator[forms.Expr | None]:
    """``a, b = 0, 1``."""
    values = stmt.value.items if isinstance(stmt.value, forms.Sequence) else ()
    for target in stmt.targets:
        items = target.items if isinstance(target, forms.Sequence) else ()
        if items and len(items) == len(values):
            yield from (value for item, value in zip(items, values, strict=True) if dotted(item) == name)
        else:
            yield None


def _is_for_looking(link: Link) -> bool:
    """Whether a caller does not go backward from what a call gives, nor hands it on."""
    stmt = link.stmt
    if isinstance(stmt, forms.Do):
        return not isinstance(stmt.value, (forms.Yield, forms.Await)) and not any(
            last_name(part) in ("append", "extend", "add") for part in descend(stmt.value)
        )
    if not isinstance(stmt, forms.Assign):
        return False
    names = {name for target in stmt.targets for name in target_names(target)}
    if any("." in name for name in names):
        return False
    scope = link.scope
    wanted = {
        name
        for site in scope.module.calls_by_scope.get(scope, ())
        if goes_backward(site)
        for name in backward_names(site)
    }
    for other in links_of(scope):
        if isinstance(other.stmt, forms.Return) and other.stmt.value is not None and _names(other.stmt.value) & names:
            return False
    for _ in range(3):
        for other in links_of(scope):
            if isinstance(other.stmt, (forms.Assign, forms.AugAssign)) and wanted & other.changes:
                wanted |= _names(other.stmt.value)
    return not wanted & names


def _names(expr: forms.Expr) -> set[str]:
    return {part.id for part in descend(expr) if isinstance(part, forms.Name)}
