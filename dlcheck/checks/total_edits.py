"""Sums that a loop keeps on the host although what it adds up is on the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dlcheck import edits
from dlcheck.checks import moving
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.flow import earlier_in_function, is_inside, links_in, links_of
from dlcheck.model.scopes import Link, Module, Scope, descend, dotted, expressions, last_name
from dlcheck.model.training.gradients import backward_names
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
    # What a cell has reached when somebody interrupts it is there for the next one.
    safe = exact and not (loop.module.source.cells and loop.link.scope.kind == "module")
    for one in sums:
        if one is None:
            return Refused("when a value has to be read is for you to decide")
        reason = _reads_elsewhere(loop.link, one)
        if reason:
            return Refused(reason)
        if one.kind == "unknown":
            return Refused(f"whether `{one.name}` adds up whole numbers is not clear")
        changes.append(_on_gpu(loop.module, one, exact))
        reads[one.name] = "int" if one.kind == "int" else "float"
        safe = safe and one.same and not _may_swallow(loop.link)
    lines = [f"{name} = {kind}({name})" for name, kind in reads.items()]
    below = moving.insert_below(loop.module.source, loop.module.facts, loop.link, lines)
    return make_fix("safe" if safe else "unsafe", "Add up on the GPU, and read the sum once", [*changes, below])


class _Sum(NamedTuple):
    """``name += ...call...``, where ``call`` is ``value.item()``.

    ``kind`` is of the total: int, float, or unknown; ``same`` where it is the same to the last digit, and of the
    same type even if the loop has no rounds.
    """

    name: str
    link: Link
    call: forms.Call
    value: forms.Expr
    kind: str
    same: bool


def _sum_of(loop: StepLoop, sync: Sync) -> _Sum | None:
    stmt, link = sync.link.stmt, sync.link
    if not isinstance(stmt, forms.AugAssign) or stmt.op != "+" or not isinstance(stmt.target, forms.Name):
        return None
    if not is_inside(link, loop.link) or any(isinstance(outer.stmt, (forms.For, forms.While)) and outer is not loop.link
                                             for outer in link.outer() if is_inside(outer, loop.link)):  # fmt: skip
        return None
    calls = [part for part in descend(stmt.value) if isinstance(part, forms.Call) and last_name(part.func) == "item"]
    if len(calls) != 1 or calls[0].args or not isinstance(calls[0].func, forms.Attr) or sync.at != calls[0].at:
        return None
    name, value = stmt.target.id, calls[0].func.value
    start = _start(link.scope, loop.link, name)
    if start is None or not _stays_number(stmt.value, calls[0]):
        return None
    divided = any(isinstance(part, forms.Binary) and part.op == "/" for part in _around(stmt.value, calls[0]))
    kind = _kind(loop, value)
    if divided or isinstance(start, float) or any(map(_is_fraction, _around(stmt.value, calls[0]))):
        kind = "float"
    # A GPU divides by a number by multiplying with its inverse.
    same = not divided and (kind == "int" or isinstance(start, float) or _is_only_divided(loop.link, name))
    return _Sum(name, link, calls[0], value, kind, same)


def _around(expr: forms.Expr, call: forms.Call) -> Iterator[forms.Expr]:
    """An expression's parts but for those of a call in it."""
    todo = [expr]
    while todo:
        part = todo.pop()
        if part is not call:
            yield part
            todo += [part.left, part.right] if isinstance(part, forms.Binary) else []


def _is_fraction(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Const) and isinstance(expr.value, float)


def _kind(loop: StepLoop, value: forms.Expr) -> str:
    """Whether a tensor holds a whole number: one that counts does, one that goes backward does not."""
    if isinstance(value, forms.Name):
        if any(value.id in backward_names(site) for site in loop.backward if site.scope is loop.link.scope):
            return "float"
        scope = loop.link.scope
        if any(param.name == value.id for param in scope.function.params) or value.id in scope.not_local:
            return "unknown"
        bound = [link.stmt for link in links_of(scope) if value.id in link.changes and not _only_inside(link, value.id)]
        values = [stmt.value if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1
                  and isinstance(stmt.targets[0], forms.Name) else None for stmt in bound]  # fmt: skip
        kinds = {_kind_of(one) if one is not None else "unknown" for one in values}
        return kinds.pop() if len(kinds) == 1 else "unknown"
    return _kind_of(value)


def _only_inside(link: Link, name: str) -> bool:
    """Whether it is a statement inside a compound one that binds a name."""
    return any(name in inner.changes for block in link.blocks.values() for inner in block)


def _kind_of(value: forms.Expr) -> str:
    if _is_count(value):
        return "int"
    # torch takes the mean of floats only.
    return "float" if isinstance(value, forms.Call) and last_name(value.func) in _FLOATS else "unknown"


_FLOATS = frozenset(
    {"mean", "float", "double", "cross_entropy", "mse_loss", "nll_loss", "binary_cross_entropy", "l1_loss",
     "binary_cross_entropy_with_logits", "smooth_l1_loss", "kl_div"}
)  # fmt: skip


def _is_count(value: forms.Expr) -> bool:
    """``(predicted == labels).sum()``, ``predicted.eq(labels).sum()``: a whole number."""
    if not isinstance(value, forms.Call) or not isinstance(value.func, forms.Attr) or value.func.name != "sum":
        return False
    inner = value.func.value
    if value.args:
        return False
    return isinstance(inner, forms.Compare) or isinstance(inner, forms.Call) and last_name(inner.func) in ("eq", "ne")


def _stays_number(expr: forms.Expr, call: forms.Call) -> bool:
    """Whether the value is multiplied or divided by plain numbers only."""
    if expr is call:
        return True
    if isinstance(expr, forms.Binary) and expr.op in ("*", "/"):
        sides = [side for side in (expr.left, expr.right) if not any(part is call for part in descend(side))]
        others = [side for side in (expr.left, expr.right) if side not in sides]
        if len(sides) != 1 or expr.op == "/" and sides[0] is expr.left:
            return False
        return _is_plain(sides[0]) and _stays_number(others[0], call)
    return False


def _is_plain(expr: forms.Expr) -> bool:
    if isinstance(expr, forms.Const):
        return isinstance(expr.value, (int, float)) and not isinstance(expr.value, bool)
    if isinstance(expr, forms.Sub):  # x.shape[0]
        return last_name(expr.value) == "shape" and isinstance(expr.index, forms.Const)
    return isinstance(expr, forms.Call) and last_name(expr.func) in ("size", "len") and len(expr.args) == 1


def _start(scope: Scope, loop: Link, name: str) -> int | float | None:
    """The number that a local name has before a loop, in each of its passes."""
    if scope.kind == "function" and (name in scope.not_local or name not in scope.names):
        return None
    if scope.kind == "class" or _is_known_elsewhere(scope, name):
        return None
    for link in earlier_in_function(loop):
        if name in link.changes:
            stmt = link.stmt
            if isinstance(stmt, forms.Assign):
                values = [stmt.value] if all(dotted(target) == name for target in stmt.targets) else _paired(stmt, name)
                if len(values) == 1 and isinstance(values[0], forms.Const) and _lasts(loop, link, name):
                    value = values[0].value
                    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
            return None
    return None


def _is_known_elsewhere(scope: Scope, name: str) -> bool:
    """Whether another function, a lambda or a generator may look at a name of a scope at any time."""
    module = scope.module
    for other in (*module.functions, *module.classes):
        around = other.parent
        while around is not None and around is not scope:
            around = around.parent
        hidden = name in other.names and name not in other.not_local
        if around is scope and (name in other.not_local or not hidden and any(_names(link, name) for link in
                                                                             links_of(other))):  # fmt: skip
            return True
    lazy = (part for link in links_of(scope) for root in expressions(link.stmt) for part in descend(root)
            if isinstance(part, forms.Lambda) or isinstance(part, forms.Comp) and part.kind == "generator")  # fmt: skip
    return any(isinstance(inner, forms.Name) and inner.id == name for part in lazy for inner in descend(part))


def _lasts(loop: Link, start: Link, name: str) -> bool:
    """Whether nothing changes a name between where it starts and a loop, in any pass of the loops around that."""
    outermost = None
    here = loop
    while here.block is not start.block:
        assert here.parent is not None
        here = here.parent
        if isinstance(here.stmt, (forms.For, forms.While)):
            outermost = here
    if outermost is None:
        return True
    others = (link for link in links_in(outermost) if not link.blocks and not is_inside(link, loop))
    return name not in outermost.changes or not any(name in link.changes for link in others)


def _is_only_divided(loop: Link, name: str) -> bool:
    """Whether all that is done with a sum is to divide it: whether it is 0 or 0.0 is the same then."""
    read = divided = 0
    for link in links_of(loop.scope):
        if is_inside(link, loop) and link is not loop or isinstance(link.stmt, (forms.Assert, forms.Match)):
            continue
        stmt = link.stmt
        roots = [stmt.value] if isinstance(stmt, forms.Assign) else expressions(stmt)
        targets = stmt.targets if isinstance(stmt, forms.Assign) else ()
        for root in (*roots, *(target for target in targets if isinstance(target, (forms.Sub, forms.Attr)))):
            for part in descend(root):
                read += isinstance(part, forms.Name) and part.id == name
                if isinstance(part, forms.Binary) and part.op == "/":
                    divided += sum(isinstance(side, forms.Name) and side.id == name for side in (part.left, part.right))
    return read == divided


def _paired(stmt: forms.Assign, name: str) -> list[forms.Expr]:
    target = stmt.targets[0]
    if not isinstance(target, forms.Sequence) or not isinstance(stmt.value, forms.Sequence):
        return []
    if len(target.items) != len(stmt.value.items) or len(stmt.targets) != 1:
        return []
    return [value for item, value in zip(target.items, stmt.value.items, strict=True) if dotted(item) == name]


def _names(link: Link, name: str) -> bool:
    """Whether a statement, its blocks aside, names something; the facts have no messages of asserts."""
    facts, text = link.scope.module.facts, link.scope.module.source.text
    if isinstance(link.stmt, forms.Assert):
        start, end = facts.span(link.stmt.at)
        return re.search(rf"\b{name}\b", text[start:end]) is not None
    roots = [*expressions(link.stmt)]
    if isinstance(link.stmt, forms.Match):
        roots += [case.guard for case in link.stmt.cases if case.guard is not None]
    return any(isinstance(part, forms.Name) and part.id == name for root in roots for part in descend(root))


# They give whoever calls them all names, or run any text.
_ALL_NAMES = frozenset({"locals", "vars", "globals", "eval", "exec", "dir"})


def _reads_elsewhere(loop: Link, one: _Sum) -> str:
    """Where a loop, or what catches its errors, does anything else with a sum than adding to it."""
    inside = f"`{one.name}` is read inside the loop"
    if loop.blocks.get("orelse"):
        return inside
    for link in links_in(loop):
        if isinstance(link.stmt, forms.Return):
            return inside
        if link is one.link:
            continue
        changed = one.name in link.changes and not link.blocks
        if changed or any(_names(link, name) for name in (one.name, *_ALL_NAMES)):
            return inside
    child = loop
    for outer in loop.outer():
        if isinstance(outer.stmt, forms.Try) and (child.slot == "body" or child.slot == "orelse"):
            behind = [link for slot, links in outer.blocks.items() if slot.startswith("handler") or slot == "final"
                      for first in links for link in (first, *links_in(first))]  # fmt: skip
            arms = [links for slot, links in outer.blocks.items() if slot.startswith("handler")]
            goes_on = child.slot == "body" and any(not isinstance(arm[-1].stmt, (forms.Return, forms.Raise))
                                                   for arm in arms if arm)  # fmt: skip
            if any(isinstance(link.stmt, (forms.Return, forms.Jump)) for link in outer.blocks.get("final", ())):
                goes_on = True
            if goes_on:
                others = (link for link in links_of(loop.scope) if not is_inside(link, loop))
                behind += [link for link in others if not _only_sets(link, one.name)]
            if any(_names(link, one.name) for link in behind):
                return f"`{one.name}` is read where an error has ended the loop"
        child = outer
    return ""


def _only_sets(link: Link, name: str) -> bool:
    """``total = 0``, ``total, n = 0, 0``: a name is bound, and not read."""
    if not isinstance(link.stmt, forms.Assign):
        return False
    return not any(isinstance(part, forms.Name) and part.id == name for part in descend(link.stmt.value))


_LETS_PASS = frozenset({"tqdm", "trange", "autocast", "open", "device", "profile", "SummaryWriter", "record_function",
                        "alive_bar", "Progress", "ThreadPoolExecutor", "nullcontext", "detect_anomaly"})  # fmt: skip


def _may_swallow(loop: Link) -> bool:
    """Whether a ``with`` around a loop may end errors, as ``suppress`` does: what follows would see the tensor."""
    return any(
        last_name(getattr(item.value, "func", item.value)) not in _LETS_PASS
        for outer in loop.outer()
        if isinstance(outer.stmt, forms.With)
        for item in outer.stmt.items
    )


def _on_gpu(module: Module, one: _Sum, exact: bool) -> Edit | Refused:
    """The value without its graph; in double precision, the sum is what it would be on the host."""
    source, facts = module.source, module.facts
    (start, end), stop = facts.span(one.value.at), facts.span(one.call.at)[1]
    text = source.text[start:end]
    if "#" in source.text[end:stop]:
        return Refused("a comment stands in the way")
    if not isinstance(one.value, (forms.Name, forms.Attr, forms.Sub, forms.Call)):
        text = f"({text})"
    if one.kind == "int":
        return edits.replace(source, facts, one.call.at, text)
    graph = "" if _is_count(one.value) else ".detach()"
    return edits.replace(source, facts, one.call.at, f"{text}{graph}{'.double()' if exact else ''}")
