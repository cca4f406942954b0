"""What a loop has on the GPU of each batch, and is large: the batch itself, and what a network makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model.flow import links_in
from dlcheck.model.iteration import elements
from dlcheck.model.loops import BatchLoop
from dlcheck.model.scopes import Link, Module, dotted, last_name
from dlcheck.model.training.networks import is_network
from dlcheck.model.values import Alt, Batch, Elements, External, Iterating, Moved, Point, Value

if TYPE_CHECKING:
    from dlcheck.model.project import Project
    from dlcheck.model.transfers import Transfer

# What a result of a network goes through and stays as large as it is.
_KEEP_SIZE = frozenset(
    {"detach", "squeeze", "unsqueeze", "view", "reshape", "flatten", "float", "half", "softmax", "log_softmax",
     "tanh", "relu", "clone", "contiguous", "normalize", "permute", "transpose", "data", "type_as"}
)  # fmt: skip


# Attributes that are no part of a network's output, or a small one.
_SMALL = frozenset({"shape", "device", "dtype", "ndim", "loss"})


class Large(NamedTuple):
    """A value as large as what a network takes or gives, and the copy to the GPU that it stems from."""

    transfer: Transfer
    kind: Literal["input", "output"]
    detached: bool


def large_on_gpu(project: Project, loop: BatchLoop, expr: forms.Expr, point: Point, depth: int = 0) -> Large | None:
    """The copy to the GPU that a value stems from, where it is as large as what a network takes or gives."""
    if depth > 8:
        return None
    if isinstance(expr, forms.Call):
        return _of_call(project, loop, expr, point, depth)
    if isinstance(expr, forms.Name):
        origin = _assignment_of(loop.link, point.link, expr.id)
        if origin is not None:
            stmt = origin.stmt
            assert isinstance(stmt, forms.Assign)
            return large_on_gpu(project, loop, stmt.value, Point(point.frame, origin), depth + 1)
        moved = _moved_by(project, expr, point)
        if moved is not None and _feeds_network(project, loop, moved.call, point):
            return Large(moved, "input", True)
        return None
    attribute = isinstance(expr, forms.Attr) and expr.name not in _SMALL
    part = attribute or isinstance(expr, forms.Sub) and _is_view(expr.index)
    if part and isinstance(expr, (forms.Attr, forms.Sub)):
        found = large_on_gpu(project, loop, expr.value, point, depth + 1)
        if found is not None and found.kind == "output":
            return found._replace(detached=found.detached or last_name(expr) == "data")
    return None


def _of_call(project: Project, loop: BatchLoop, call: forms.Call, point: Point, depth: int) -> Large | None:
    func = call.func
    if _one_number_each(call):
        return None
    if isinstance(func, forms.Attr) and func.name in _KEEP_SIZE and not _names_library(func):
        found = large_on_gpu(project, loop, func.value, point, depth + 1)
        return found._replace(detached=found.detached or func.name == "detach") if found is not None else None
    values = list(project.evaluator.values(func, point))
    library_paths = [value.path for value in values if isinstance(value, External)]
    if library_paths and last_name(func) in _KEEP_SIZE and call.args:
        return large_on_gpu(project, loop, call.args[0].value, point, depth + 1)
    if isinstance(func, forms.Attr) and func.name in ("to", "cuda"):
        moved = _transfer_at(project, point.module, call.at)
        used = moved is not None and _feeds_network(project, loop, call, point)
        return Large(moved, "input", True) if moved is not None and used else None
    if not library_paths and is_network(project, loop.link, func, values):
        for arg in call.args:
            source = _moved_by(project, arg.value, point)
            if source is not None:
                return Large(source, "output", False)
    return None


def _is_view(index: forms.Expr) -> bool:
    """``[0]``, ``["features"]``, ``[:n]``, ``[:, 0]``: a part that keeps all of it alive."""
    if isinstance(index, forms.Sequence):
        return all(_is_view(item) for item in index.items)
    return isinstance(index, (forms.Const, forms.Slice)) or isinstance(index, forms.Unary) and _is_view(index.value)


def _one_number_each(call: forms.Call) -> bool:
    """``.view(-1)``, ``.squeeze(1)``, ``.flatten()``: outputs of one number for each sample are small."""
    name = last_name(call.func)
    args = [arg.value for arg in call.args]
    if name == "flatten":
        return not args
    if name not in ("view", "reshape", "squeeze") or len(args) != 1:
        return False
    minus_one = isinstance(args[0], forms.Unary) and isinstance(args[0].value, forms.Const) and args[0].value.value == 1
    return minus_one or name == "squeeze" and isinstance(args[0], forms.Const) and args[0].value == 1


def _names_library(func: forms.Attr) -> bool:
    return (
        isinstance(func.value, forms.Name)
        and func.value.id in ("F", "torch", "nn", "np")
        or (dotted(func.value) or "").endswith("functional")
    )


def _assignment_of(loop: Link, link: Link, name: str) -> Link | None:
    """The last plain assignment of a name before a statement, inside the loop."""
    found = None
    for other in links_in(loop):
        if other.stmt.at >= link.stmt.at:
            break
        if name in other.changes and not other.blocks:
            plain = isinstance(other.stmt, forms.Assign) and any(
                dotted(target) == name for target in other.stmt.targets
            )
            found = other if plain else None
    return found


def _moved_by(project: Project, expr: forms.Expr, point: Point) -> Transfer | None:
    ev = project.evaluator
    found = ev.eval(expr, point)
    if any(isinstance(alt.value, Elements) for alt in found):  # {key: value.to(device) for ...}
        whole = [Alt(_values_of(alt.value), alt.world) for alt in found]
        found = elements(ev, whole, ("moved", point.module.name, expr.at))
    for value, _ in found:
        if isinstance(value, Moved) and isinstance(value.value, Batch) and value.place is not None:
            return _transfer_at(project, *value.place)
    return None


def _values_of(value: Value) -> Value:
    """What holds the tensors of a comprehension: the values of a dict, not its keys."""
    if isinstance(value, Elements) and value.form.kind == "dict":
        return Iterating("values", (value,), value.key)
    return value


def _transfer_at(project: Project, module: Module, at: int) -> Transfer | None:
    return next((found for found in project.transfers if found.module is module and found.call.at == at), None)


def _feeds_network(project: Project, loop: BatchLoop, move: forms.Call, point: Point) -> bool:
    """Whether what a copy gives is what a network is called with: labels are small."""
    for site in loop.module.calls_in(loop.link):
        call = site.expr
        assert isinstance(call, forms.Call)
        if call is move or not call.args:
            continue
        values = list(project.evaluator.values(call.func, project.point(site)))
        external = any(isinstance(value, External) for value in values)
        if external or not is_network(project, loop.link, call.func, values):
            continue
        moved = project.evaluator.values(call.args[0].value, project.point(site))
        if any(isinstance(value, Moved) and value.place == (point.module, move.at) for value in moved):
            return True
    return False
