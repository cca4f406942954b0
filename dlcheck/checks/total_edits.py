"""Sums that a loop keeps on the host although what it adds up is on the GPU."""

from __future__ import annotations

from typing import NamedTuple

from dlcheck import edits
from dlcheck.checks import moving
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.flow import earlier_in_function, is_inside, links_in, links_of
from dlcheck.model.scopes import Link, Module, Scope, descend, dotted, expressions, last_name
from dlcheck.model.training.steps import StepLoop
from dlcheck.model.training.syncs import Sync


def add_up_there(loop: StepLoop, found: list[Sync]) -> Fix | Refused:
    """``total += loss.item()`` as a sum on the GPU, read once after the loop."""
    if loop.hook is not None or not isinstance(loop.link.stmt, forms.For):
        return Refused("when a value has to be read is for you to decide")
    sums = [_sum_of(loop, sync) for sync in found]
    changes: list[Edit | Refused] = []
    reads: dict[str, str] = {}
    exact = "mps" not in loop.module.source.text.lower()
    for one in sums:
        if one is None:
            return Refused("when a value has to be read is for you to decide")
        if _is_read(loop.link, one):
            return Refused(f"`{one.name}` is read inside the loop")
        changes.append(_on_gpu(loop.module, one, exact))
        reads[one.name] = "int" if one.counts else "float"
    lines = [f"{name} = {kind}({name})" for name, kind in reads.items()]
    below = moving.insert_below(loop.module.source, loop.module.facts, loop.link, lines)
    return make_fix("safe" if exact else "unsafe", "Add up on the GPU, and read the sum once", [*changes, below])


class _Sum(NamedTuple):
    """``name += ...call...``, where ``call`` is ``value.item()``; ``counts`` where whole numbers are added up."""

    name: str
    link: Link
    call: forms.Call
    value: forms.Expr
    counts: bool


def _sum_of(loop: StepLoop, sync: Sync) -> _Sum | None:
    stmt, link = sync.link.stmt, sync.link
    if not isinstance(stmt, forms.AugAssign) or stmt.op != "+" or not isinstance(stmt.target, forms.Name):
        return None
    if not is_inside(link, loop.link) or any(isinstance(outer.stmt, (forms.For, forms.While)) and outer is not loop.link
                                             for outer in link.outer() if is_inside(outer, loop.link)):  # fmt: skip
        return None
    calls = [part for part in descend(stmt.value) if isinstance(part, forms.Call) and last_name(part.func) == "item"]
    if len(calls) != 1 or calls[0].args or not isinstance(calls[0].func, forms.Attr):
        return None
    name, value = stmt.target.id, calls[0].func.value
    counts = _is_count(value)
    start = _start(link.scope, loop.link, name)
    if start is None or counts and not isinstance(start, int) or not _stays_number(stmt.value, calls[0]):
        return None
    return _Sum(name, link, calls[0], value, counts)


def _is_count(value: forms.Expr) -> bool:
    """``(predicted == labels).sum()``, ``predicted.eq(labels).sum()``: a whole number."""
    if not isinstance(value, forms.Call) or not isinstance(value.func, forms.Attr) or value.func.name != "sum":
        return False
    inner = value.func.value
    return isinstance(inner, forms.Compare) or isinstance(inner, forms.Call) and last_name(inner.func) in ("eq", "ne")


def _stays_number(expr: forms.Expr, call: forms.Call) -> bool:
    """Whether the value is multiplied or divided by plain numbers only."""
    if expr is call:
        return True
    if isinstance(expr, forms.Binary) and expr.op in ("*", "/"):
        sides = [side for side in (expr.left, expr.right) if not any(part is call for part in descend(side))]
        others = [side for side in (expr.left, expr.right) if side not in sides]
        plain = all(isinstance(side, forms.Const) or last_name(getattr(side, "func", None)) in ("size", "len")
                    for side in sides)  # fmt: skip
        return len(sides) == 1 and plain and _stays_number(others[0], call)
    return False


def _start(scope: Scope, loop: Link, name: str) -> int | float | None:
    """The number that a local name has before a loop."""
    if scope.kind == "function" and (name in scope.not_local or name not in scope.names):
        return None
    if scope.kind == "module" and any(name in other.not_local for other in scope.module.functions):
        return None
    if any(name in {part.id for link in links_of(other) for root in expressions(link.stmt)
                    for part in descend(root) if isinstance(part, forms.Name)}
           for other in scope.module.functions if other.parent is scope):  # fmt: skip
        return None
    for link in earlier_in_function(loop):
        if name in link.changes:
            stmt = link.stmt
            if isinstance(stmt, forms.Assign):
                values = [stmt.value] if all(dotted(target) == name for target in stmt.targets) else _paired(stmt, name)
                if len(values) == 1 and isinstance(values[0], forms.Const):
                    value = values[0].value
                    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
            return None
    return None


def _paired(stmt: forms.Assign, name: str) -> list[forms.Expr]:
    target = stmt.targets[0]
    if not isinstance(target, forms.Sequence) or not isinstance(stmt.value, forms.Sequence):
        return []
    if len(target.items) != len(stmt.value.items) or len(stmt.targets) != 1:
        return []
    return [value for item, value in zip(target.items, stmt.value.items, strict=True) if dotted(item) == name]


def _is_read(loop: Link, one: _Sum) -> bool:
    """Whether a loop does anything else with a sum than adding to it, or may be left with it."""
    for link in links_in(loop):
        if isinstance(link.stmt, forms.Return) or loop.blocks.get("orelse"):
            return True
        if link is one.link:
            continue
        names = {part.id for root in expressions(link.stmt) for part in descend(root) if isinstance(part, forms.Name)}
        if one.name in names or one.name in link.changes and not link.blocks:
            return True
    return False


def _on_gpu(module: Module, one: _Sum, exact: bool) -> Edit:
    """The value without its graph; in double precision, the sum is what it would be on the host."""
    source, facts = module.source, module.facts
    start, end = facts.span(one.value.at)
    text = source.text[start:end]
    if not isinstance(one.value, (forms.Name, forms.Attr, forms.Sub, forms.Call)):
        text = f"({text})"
    if one.counts:
        return edits.replace(source, facts, one.call.at, text)
    return edits.replace(source, facts, one.call.at, f"{text}.detach(){'.double()' if exact else ''}")
