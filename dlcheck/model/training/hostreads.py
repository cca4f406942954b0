"""What the host does with a tensor after a copy to it was started: waits for it, reads it, passes it on.

``tensor.to("cpu", non_blocking=True)`` returns at once, and the memory is filled later.  Whoever
reads it before a synchronisation gets what was there before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.flow import later_in_function
from dlcheck.model.loops import calls_within
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, dotted, expressions, flat_targets, last_name
from dlcheck.model.training.copying import Move, device_is_cuda, is_device_name, library_path, way_out
from dlcheck.model.transfers import TENSOR_MAKERS, may_not_block
from dlcheck.model.values import Batch, Const, External, Made, Pinned, Point, Value

if TYPE_CHECKING:
    from dlcheck.model.project import Project

# Calls after which a copy that was started before is done; ``record`` tells of events, which know what they do.
_WAITS = frozenset(
    {"synchronize", "wait", "wait_stream", "wait_event", "query", "record", "record_event", "barrier", "item", "cpu",
     "nonzero", "all_gather_object", "gather_object"}
)  # fmt: skip

# Methods that give the same memory, or tell of it without reading it.
_NOT_READING = library.VIEWS | {
    "size", "dim", "numel", "element_size", "data_ptr", "is_pinned", "pin_memory", "share_memory_", "record_stream",
    "stride", "storage", "untyped_storage", "is_contiguous", "type", "get_device", "append", "extend", "add", "insert",
    "put", "put_nowait", "update", "setdefault", "pop", "clear", "copy_", "to", "cuda", "submit", "register_hook",
    "keys", "values", "items", "get", "register_buffer",
}  # fmt: skip
_HOLDING = frozenset({"append", "extend", "add", "insert", "appendleft"})
_SHAPES = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "grad_fn", "grad"})
_READING_BUILTINS = frozenset(
    {"print", "float", "int", "bool", "str", "sum", "max", "min", "sorted", "any", "all", "abs"}
)
_READING_LIBRARIES = ("numpy.", "pickle.", "pandas.", "matplotlib.", "cv2.", "PIL.")
_TORCH_ONLY_ASKS = frozenset({"is_tensor", "numel", "is_floating_point", "empty_like", "zeros_like", "ones_like"})

_MAX_CALLERS = 6


# Functions that make a tensor on the host, where no device is given.
_MAKERS = TENSOR_MAKERS | {"torch.from_numpy", "torch.Tensor", "torch.FloatTensor"}


class Outcome(NamedTuple):
    """What becomes of a copy: read too early or kept unsafely, and where."""

    kind: Literal["read", "kept"]
    module: Module
    at: int


class _Names:
    """The names under which the copy, or a container of it, goes."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.inner: set[str] = set()  # within a comprehension
        self.kept: tuple[Module, int] | None = None
        self.returned: Link | None = None

    def holds(self, expr: forms.Expr) -> bool:
        """Whether an expression is the copy, a view of it or a container of it."""
        return root_name(expr) in self.names | self.inner


def root_name(expr: forms.Expr) -> str:
    """The dotted name of what an expression is a view or an item of; "" where it is none."""
    while True:
        if isinstance(expr, (forms.Sub, forms.Star)):
            expr = expr.value
        elif isinstance(expr, forms.Call) and isinstance(expr.func, forms.Attr) and expr.func.name in library.VIEWS:
            expr = expr.func.value
        elif isinstance(expr, forms.Attr) and expr.name in library.VIEWS:
            expr = expr.value
        else:
            return dotted(expr) or ""


def fills_pinned_buffer(move: Move) -> bool:
    """Whether ``x.copy_(...)`` fills pinned memory; into other memory of the host no copy runs by itself."""
    return all(isinstance(value, Pinned) or _is_made_pinned(move, value) for value in move.values())


def _is_made_pinned(move: Move, value: Value) -> bool:
    if not isinstance(value, Made) or value.args is None or not is_on_host(move, value):
        return False
    given = calling.keyword(value.args, "pin_memory")
    return given is not None and all(alt.value == Const(True) for alt in move.project.evaluator.force(given))


def copies_from_host(move: Move) -> bool:
    """Whether what ``x.copy_(y)`` copies is known to be on the host already."""
    given = calling.positional(move.args, 0)
    return given is None or all(is_on_host(move, alt.value) for alt in move.project.evaluator.force(given))


def is_on_host(move: Move, value: Value) -> bool:
    """Whether a tensor is known to be on the CPU: of a batch that was not moved, or made there."""
    if isinstance(value, Batch):
        return not value.managed
    while isinstance(value, Made) and value.base is not None:
        value = value.base
    if not isinstance(value, Made) or value.args is None:
        return False
    return value.path.rstrip("[:]") in _MAKERS and not device_is_cuda(move.project, value.args)


def outcome(move: Move) -> Outcome | None:
    """What becomes of a copy to the host that was started by ``move``; None where it is safe, or unknown."""
    names = _Names()
    if move.method == "copy_":
        names.names = {root_name(move.receiver)} - {""}
    else:
        found = _from_expression(move, names)
        if found is not None:
            return found
    if not names.names and names.kept is None and names.returned is None:
        return None
    return _follow(move.project, move.link, names, 0)


def _from_expression(move: Move, names: _Names) -> Outcome | None:
    """A read in the copy's own expression; else the names that get it."""
    around = way_out(move.link, move.call)
    inside: forms.Expr = move.call
    for outer in around:
        if isinstance(outer, forms.Call) and not isinstance(inside, forms.Attr):
            if outer.func is inside:
                return None
            if isinstance(outer.func, forms.Attr) and outer.func.name in _HOLDING:
                names.names.add(root_name(outer.func.value))
                return None
            if _reads_argument(move.project, outer, move.point):
                return Outcome("read", move.module, outer.at)
            return None
        if isinstance(outer, forms.Attr):
            if outer.name in _SHAPES:
                return None
        elif isinstance(outer, forms.Call):
            assert isinstance(inside, forms.Attr)
            if inside.name == "numpy" and outer is around[-1] and _is_handed_on(move.link):
                break  # an array of the same memory, that others read
            if inside.name not in _NOT_READING:
                return Outcome("read", move.module, outer.at)
            if inside.name in ("to", "cuda", "record_stream"):
                return None
        elif isinstance(outer, (forms.Binary, forms.Compare, forms.FString)):
            return Outcome("read", move.module, outer.at)
        elif isinstance(outer, (forms.Yield, forms.Lambda, forms.Await)):
            return None
        inside = outer
    _bind(move.link, names, whole=True, move=move)
    return None


def _is_handed_on(link: Link) -> bool:
    """Whether a statement does nothing with its value but return it, or put it into an attribute."""
    if isinstance(link.stmt, forms.Assign):
        return all(isinstance(target, forms.Attr) for target in link.stmt.targets)
    return isinstance(link.stmt, forms.Return)


def _bind(link: Link, names: _Names, *, whole: bool, move: Move | None = None) -> None:
    """Where a statement puts the copy, if its value holds it."""
    stmt = link.stmt
    if isinstance(stmt, (forms.Assign, forms.Declare)) and stmt.value is not None:
        targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
        for target in targets:
            for one in flat_targets(target):
                if move is not None and dotted(one) == dotted(move.receiver) and isinstance(one, forms.Attr):
                    return  # model.part = model.part.to("cpu"): put away, not read
                if isinstance(one, forms.Name):
                    names.names.add(one.id)
                elif isinstance(one, (forms.Sub, forms.Attr)):
                    names.names.add(root_name(one))
                    names.kept = names.kept or (link.scope.module, link.stmt.at)
    elif isinstance(stmt, forms.Return) and whole:
        names.returned = link


def _follow(project: Project, start: Link, names: _Names, depth: int) -> Outcome | None:
    """The first thing that the statements after ``start`` do with the copy."""
    found = _through_function(project, start, names)
    if isinstance(found, Outcome):
        return found
    if found == "safe" or _knows_how_to_wait(start.scope):
        return None
    if names.returned is not None:
        return _in_callers(project, start.scope, names.returned, depth)
    if names.kept is not None:
        return Outcome("kept", *names.kept)
    return None


def _through_function(project: Project, start: Link, names: _Names) -> Outcome | Literal["safe"] | None:
    """What the rest of the function does, up to where it returns the copy."""
    for link in () if names.returned is not None else later_in_function(start):
        found = _step(project, link, names)
        if found is not None:
            return found
        if names.returned is not None:
            return None
        if not names.names and names.kept is None:
            return "safe"
    return None


def _step(project: Project, link: Link, names: _Names) -> Outcome | Literal["safe"] | None:
    module = link.scope.module
    read = _read_in(project, link, names)
    if _waits(project, link, names):
        return "safe"
    if read is not None:
        return Outcome("read", module, read)
    _pass_on(link, names)
    return None


def _own_calls(link: Link) -> list[Site]:
    """The calls in a statement's own expressions, not in its blocks."""
    return [site for site in link.scope.module.calls_in(link) if site.link is link]


def _waits(project: Project, link: Link, names: _Names) -> bool:
    """Whether a statement makes the host wait for the GPU, itself or in a function that it calls."""
    for site in _own_calls(link):
        call = site.expr
        assert isinstance(call, forms.Call)
        if isinstance(call.func, forms.Attr) and not names.holds(call.func.value) and _blocks(call):
            return True
    own = {site.expr.at for site in _own_calls(link)}
    if link.blocks:
        return False  # its blocks are followed one by one
    return any(call.at not in own and _blocks(call) for call in calls_within(project, link))


def _blocks(call: forms.Call) -> bool:
    """Whether a method waits for the GPU: a synchronisation, or a copy that blocks."""
    name = last_name(call.func)
    if name in _WAITS:
        return True
    if name not in ("to", "cuda") or may_not_block(call):
        return False
    if name == "cuda":
        return True
    first = call.args[0].value if call.args else None
    return is_device_name(first) or isinstance(first, forms.Const) and isinstance(first.value, str)


def _read_in(project: Project, link: Link, names: _Names) -> int | None:
    """The expression of a statement that reads the copy."""
    for root in expressions(link.stmt):
        names.inner = {name for expr in descend(root) for name in _inner_names(expr, names)}
        for expr in descend(root):
            if _reads(project, link, expr, names):
                return expr.at
    names.inner = set()
    return None


def _inner_names(expr: forms.Expr, names: _Names) -> Iterator[str]:
    """The names that a comprehension gives to the items of the copy."""
    for clause in expr.clauses if isinstance(expr, forms.Comp) else ():
        yield from _item_names(clause.target, clause.iter, names)


def _item_names(target: forms.Expr, source: forms.Expr, names: _Names) -> Iterator[str]:
    """The names that get items of the copy where a target goes through ``source``."""
    pairs: list[tuple[forms.Expr, forms.Expr]] = [(target, source)]
    if isinstance(source, forms.Call) and isinstance(target, forms.Sequence):
        name, given = last_name(source.func), [arg.value for arg in source.args]
        if name == "zip":
            pairs = list(zip(target.items, given, strict=False))
        elif name == "enumerate" and len(target.items) == 2 and given:
            pairs = [(target.items[1], given[0])]
        elif name == "items" and len(target.items) == 2:
            pairs = [(target.items[1], source)]
    for one, held in pairs:
        if names.holds(held):
            yield from (inner.id for inner in flat_targets(one) if isinstance(inner, forms.Name))


def _reads(project: Project, link: Link, expr: forms.Expr, names: _Names) -> bool:
    if isinstance(expr, forms.Call):
        func = expr.func
        if isinstance(func, forms.Attr) and names.holds(func.value):
            return func.name not in _NOT_READING
        if any(names.holds(arg.value) for arg in expr.args):
            return _reads_argument(project, expr, project.point(Site(expr, link, None)))
        return False
    if isinstance(expr, forms.Binary):
        return names.holds(expr.left) or names.holds(expr.right)
    if isinstance(expr, forms.Compare):
        identity = all(op in ("is", "is not", "in", "not in") for op in expr.ops)
        return not identity and (names.holds(expr.left) or any(map(names.holds, expr.rights)))
    return isinstance(expr, forms.FString) and any(map(names.holds, expr.parts))


def _reads_argument(project: Project, call: forms.Call, point: Point) -> bool:
    """Whether a function reads the tensors that it is given: numpy's, torch's, ``print``."""
    func = call.func
    if isinstance(func, forms.Name) and func.id in _READING_BUILTINS:
        return any(value == External(f"builtins.{func.id}") for value in project.evaluator.values(func, point))
    path = library_path(project, call, point)
    if path.startswith(_READING_LIBRARIES):
        return True
    name = path.rpartition(".")[2]
    return path == f"torch.{name}" and name[:1].islower() and name not in _TORCH_ONLY_ASKS


def _pass_on(link: Link, names: _Names) -> None:
    """New names for the copy, and those that it loses."""
    stmt = link.stmt
    for site in _own_calls(link):
        call = site.expr
        assert isinstance(call, forms.Call)
        if not isinstance(call.func, forms.Attr) or call.func.name not in _HOLDING:
            continue
        if any(_mentions(arg.value, names) for arg in call.args):
            names.names.add(root_name(call.func.value))
    if isinstance(stmt, (forms.Assign, forms.Declare)) and stmt.value is not None:
        if _mentions(stmt.value, names):
            _bind(link, names, whole=False)
        else:
            targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
            lost = {one.id for target in targets for one in flat_targets(target) if isinstance(one, forms.Name)}
            names.names -= lost
    elif isinstance(stmt, forms.Return) and stmt.value is not None and _mentions(stmt.value, names):
        names.returned = link
    elif isinstance(stmt, forms.For):
        names.names.update(_item_names(stmt.target, stmt.iter, names))


def _mentions(expr: forms.Expr, names: _Names) -> bool:
    """Whether a value is the copy, or a container that is built of it."""
    if isinstance(expr, forms.Sequence):
        return any(_mentions(item, names) for item in expr.items)
    if isinstance(expr, forms.Dict):
        return any(_mentions(entry.value, names) for entry in expr.entries)
    if isinstance(expr, forms.IfExp):
        return _mentions(expr.body, names) or _mentions(expr.orelse, names)
    return names.holds(expr)


def _knows_how_to_wait(scope: Scope) -> bool:
    """Whether a function, or another method of its class, has to do with events or synchronisation.

    What is offloaded is not read on the host: it goes back to the GPU in the order of the stream.
    """
    owner = scope.owner
    if any(word in scope.qualified.lower() for word in ("offload", "swap")):
        return True
    scopes = [scope] if owner is None else list(owner.functions.values())
    return any(
        last_name(site.expr.func) in _WAITS - {"item", "cpu", "nonzero"}
        for one in scopes
        for site in scope.module.calls_by_scope.get(one, ())
        if isinstance(site.expr, forms.Call)
    )


def _in_callers(project: Project, scope: Scope, returned: Link, depth: int) -> Outcome | None:
    """What the callers of a function do with the copy that it returns."""
    callers = project.callers.of(scope)[:_MAX_CALLERS] if depth < 2 else []
    if not callers:
        return Outcome("kept", scope.module, returned.stmt.at)
    outcomes = []
    for args, point in callers:
        names = _Names()
        if args.call is None:
            return None
        stmt = point.link.stmt
        if isinstance(stmt, forms.Assign) and stmt.value is args.call:
            _bind(point.link, names, whole=False)
        elif isinstance(stmt, forms.Return) and stmt.value is args.call:
            names.returned = point.link
        else:
            around = way_out(point.link, args.call)
            holder = next((one for one in around if isinstance(one, forms.Call)), None)
            if holder is None or not isinstance(holder.func, forms.Attr):
                return None
            if holder.func.name in _HOLDING:
                names.names.add(root_name(holder.func.value))
            elif isinstance(around[0], forms.Attr) and around[0].name not in _NOT_READING:
                return Outcome("read", point.module, holder.at)
            else:
                return None
        outcomes.append(_follow(project, point.link, names, depth + 1))
    return next((found for found in outcomes if found is not None and found.kind == "read"), None)
