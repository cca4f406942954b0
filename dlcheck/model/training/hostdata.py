"""Tensors that the program builds on the host and then moves: from constants, by a factory, by a cast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.depth import unfolds
from dlcheck.model.loops import callers_in
from dlcheck.model.scopes import Link, Scope, descend, dotted, last_name
from dlcheck.model.training.copying import Move, chain_root, device_is_cuda, library_path, way_out
from dlcheck.model.training.invariance import (
    decided_by_the_round,
    is_changed_again,
    is_constant,
    is_forward,
    is_invariant,
    lies_in,
    set_only_in_init,
    step_around,
)
from dlcheck.model.values import Arguments, Batch, Made, Many, Point, Value
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetAlt
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

# Functions that make a tensor of data that is given to them.
DATA_MAKERS = frozenset(
    f"torch.{name}"
    for name in (
        "tensor", "as_tensor", "from_numpy", "Tensor", "FloatTensor", "LongTensor", "DoubleTensor", "HalfTensor",
        "IntTensor", "BoolTensor", "ByteTensor",
    )
)  # fmt: skip

# Functions that make a tensor of a given shape, by what a fix can do: "same" on any device, or other random numbers.
FACTORIES = {
    **{f"torch.{name}": "same" for name in ("zeros", "ones", "empty", "full", "eye", "arange", "linspace")},
    **{f"torch.{name}": "random" for name in ("rand", "randn", "randint", "randperm")},
}

# Calls that hold what stays the same from call to call.
_CACHES = frozenset({"lru_cache", "cache", "cached_property", "jit_export", "script"})

_FLOATS = frozenset({"float", "float32", "FloatTensor"})

# Functions whose result is a tensor of bytes.
_BYTES = frozenset({"torchvision.io.read_image", "torchvision.io.decode_image", "torchvision.io.decode_jpeg"})


# -- built by a factory


def factory(move: Move) -> forms.Call | None:
    """The call such as ``torch.zeros(n)`` whose result a copy moves at once to the GPU; None where it is none."""
    root, called = chain_root(move.receiver)
    if not isinstance(root, forms.Call) or any(_is_move(call) for call in called):
        return None
    if library_path(move.project, root, move.point) not in FACTORIES:
        return None
    told = any(arg.star == "**" or arg.name in ("device", "generator", "pin_memory", "out") for arg in root.args)
    # With more than a device the copy converts, too, or was meant not to block.
    return None if told or len(move.call.args) > 1 else root


def methods_between(move: Move) -> list[forms.Call]:
    """The methods that a chain calls between what makes the tensor and the copy."""
    return chain_root(move.receiver)[1]


def is_random(move: Move, made: forms.Call) -> bool:
    """Whether a factory draws random numbers, which a GPU draws otherwise."""
    return FACTORIES[library_path(move.project, made, move.point)] == "random"


def _is_move(call: forms.Call) -> bool:
    """Whether a method of a chain moves, or pins, or asks for another tensor's device."""
    return last_name(call.func) in ("cuda", "pin_memory", "type_as") or (
        last_name(call.func) == "to" and not all(_is_dtype(arg.value) for arg in call.args)
    )


def _is_dtype(expr: forms.Expr) -> bool:
    return (dotted(expr) or "").startswith("torch.")


def is_cached(link: Link) -> bool:
    """Whether what a statement makes is kept for the next time: under ``if x is None``, in a cached function."""
    if link.scope.has_decorator(*_CACHES):
        return True
    return any(isinstance(outer.stmt, forms.If) and _asks_for_presence(outer.stmt.test) for outer in link.outer())


def _asks_for_presence(test: forms.Expr) -> bool:
    return any(
        isinstance(part, forms.Compare) and any(op in ("is", "not in", "is not", "!=") for op in part.ops)
        or isinstance(part, forms.Call) and last_name(part.func) == "hasattr"
        for part in descend(test)
    )  # fmt: skip


# -- built of constants


class Constant(NamedTuple):
    """A tensor that is the same in each step: where it repeats, and whether that is a network's ``forward``."""

    loop: Link | None
    in_forward: bool


def constant(move: Move, loops: set[Link]) -> Constant | None:
    """Whether a copy moves, in every step, a tensor that is the same each time."""
    link, project = move.link, move.project
    if move.site.inner is not None or link.scope.has_decorator(*_CACHES) or is_cached(link):
        return None
    loop = step_around(link, loops)
    if loop is not None:
        if decided_by_the_round(link, loop) or _result_changes(move, loop):
            return None
        return Constant(loop, False) if all(_is_fixed(move, value, loop) for value in move.values()) else None
    scope = link.scope
    if scope.kind != "function" or decided_by_the_round(link, None) or _result_changes(move, scope):
        return None
    in_forward = is_forward(project, scope)
    if not in_forward and not _called_in_each_step(project, scope, loops):
        return None
    if all(_is_literal_here(move, value, vector=in_forward) for value in move.values()):
        return Constant(None, in_forward)
    return None


def _origin(value: Value) -> Made | None:
    """The library call that a chain of methods on its result began with."""
    while isinstance(value, Made) and value.base is not None:
        value = value.base
    return value if isinstance(value, Made) else None


def _is_fixed(move: Move, value: Value, loop: Link) -> bool:
    """Whether a value is a host tensor of constants, or one that was made before the loop and stays as it is."""
    made = _origin(value)
    if made is None or made.args is None or made.args.call is None or made.args.point is None:
        return False
    if not _on_host(move, made) or _was_moved(value):
        return False
    where = made.args.point.link
    if lies_in(where, loop):
        return made.path in DATA_MAKERS and _all_invariant(made.args, where, loop)
    return _made_before(move, where, loop)


def _on_host(move: Move, made: Made) -> bool:
    """Whether a tensor is made on the CPU, and holds data that nothing changes on purpose."""
    if made.args is None or made.path not in DATA_MAKERS and made.path not in FACTORIES:
        return False
    names = {name for name, _ in made.args.keywords}
    return not (names & {"requires_grad", "out"} or device_is_cuda(move.project, made.args) or made.args.spreads)


def _was_moved(value: Value) -> bool:
    """Whether a method of the chain may have moved the tensor already: ``.to(device)``, ``.type_as(x)``."""
    while isinstance(value, Made) and value.base is not None:
        name = value.path.rpartition(".")[2]
        given = [thunk.expr for thunk, _ in value.args.positional] if value.args is not None else []
        if name in ("cuda", "type_as") or name == "to" and not all(expr and _is_dtype(expr) for expr in given):
            return True
        value = value.base
    return False


def _all_invariant(args: Arguments, where: Link, loop: Link) -> bool:
    given = [thunk.expr for thunk, _ in args.positional]
    return bool(given) and all(expr is not None and is_invariant(expr, where, loop) for expr in given)


def _made_before(move: Move, where: Link, loop: Link) -> bool:
    """Whether the copied name leads to a tensor from before the loop that the loop leaves alone."""
    root, called = chain_root(move.receiver)
    name = dotted(root)
    if name is None or any(_is_move(call) for call in called) or not is_invariant(root, move.link, loop):
        return False
    if is_changed_again(name, move.link, loop):
        return False
    if "." not in name:
        return where.scope is move.link.scope or where.scope.kind == "module" or where.scope.kind == "function"
    base, _, attribute = name.rpartition(".")
    if base != "self" or move.link.scope.owner is None:
        return False
    return set_only_in_init(move.project, move.link.scope.owner, attribute)


def _is_literal_here(move: Move, value: Value, *, vector: bool) -> bool:
    """Whether a value is made in this very function of literals; in a network, of more than one number."""
    made = _origin(value)
    if made is None or made.args is None or made.args.point is None or made.path not in DATA_MAKERS:
        return False
    if made.args.point.link.scope is not move.link.scope or not _on_host(move, made) or _was_moved(value):
        return False
    given = [thunk.expr for thunk, _ in made.args.positional]
    if not given or any(expr is None or not is_constant(expr, move.link.scope) for expr in given):
        return False
    return not vector or all(expr is not None and _is_vector(expr) for expr in given)


def _is_vector(expr: forms.Expr) -> bool:
    """Whether a literal holds several numbers; a name of the module is taken to."""
    if isinstance(expr, forms.Sequence):
        return len(expr.items) > 1 or any(isinstance(item, forms.Sequence) for item in expr.items)
    return not isinstance(expr, (forms.Const, forms.Unary))


def _result_changes(move: Move, within: Link | Scope) -> bool:
    """Whether the name that gets the copy is set or edited again: it then starts from the constant each time."""
    stmt = move.link.stmt
    if isinstance(stmt, forms.Assign):
        names = [dotted(target) for target in stmt.targets]
        return any(name is None or is_changed_again(name, move.link, within) for name in names)
    return isinstance(stmt, (forms.AugAssign, forms.Return)) and isinstance(within, Scope) and not within.returns


def _called_in_each_step(project: Project, scope: Scope, loops: set[Link]) -> bool:
    """Whether a function is called from a step loop, in every round."""
    for point in callers_in(project, scope, ANY):
        loop = step_around(point.link, loops)
        if loop is not None and not decided_by_the_round(point.link, loop):
            return True
    return False


# -- cast before the copy


class Step(NamedTuple):
    """What is done to a tensor on its way: a method's name, or an operator."""

    name: str
    expr: forms.Expr
    link: Link


class Cast(NamedTuple):
    """A batch of bytes made floats on the host: the expression that does so, the steps before it, and those after."""

    at: int
    link: Link
    before: tuple[Step, ...]
    after: tuple[Step, ...]
    loaders: tuple[Loader, ...]


def cast_of_bytes(move: Move, loop: Link) -> Cast | None:
    """The cast to float32 that a batch of bytes went through before this copy, within the loop's round."""
    steps, root, link = _trace(move.receiver, move.link)
    batches = [value for value in _at(move, root, link) if isinstance(value, Batch)]
    if not batches or any(batch.managed or not batch.exact for batch in batches):
        return None
    if any(step.name in ("half", "bfloat16", "double", "cuda") for step in steps):
        return None
    in_order = tuple(reversed(steps))
    number = next((number for number, step in enumerate(in_order) if _is_float_cast(step)), None)
    if number is None or not lies_in(in_order[number].link, loop):
        return None
    cast = in_order[number]
    scaled = any(_scales_bytes(step) for step in steps) or _scaled_after(move)
    loaders = [move.project.loader_of(batch.loader) for batch in batches]
    if scaled or all(loader.datasets and all(map(_gives_bytes, loader.datasets)) for loader in loaders):
        return Cast(cast.expr.at, cast.link, in_order[:number], in_order[number + 1 :], tuple(loaders))
    return None


def _at(move: Move, root: forms.Expr, link: Link) -> list[Value]:
    point = Point(move.point.frame, link, move.point.inner if link is move.link else None)
    return list(move.project.evaluator.values(root, point))


def _trace(expr: forms.Expr, link: Link) -> tuple[list[Step], forms.Expr, Link]:
    """The steps from an expression back to the name that they began with, last one first."""
    steps: list[Step] = []
    for _ in range(12):
        if isinstance(expr, forms.Call) and isinstance(expr.func, forms.Attr):
            steps.append(Step(expr.func.name, expr, link))
            expr = expr.func.value
        elif isinstance(expr, forms.Binary) and isinstance(expr.right, (forms.Const, forms.Unary)):
            steps.append(Step(expr.op, expr, link))
            expr = expr.left
        elif isinstance(expr, forms.Sub):
            expr = expr.value
        elif isinstance(expr, forms.Name):
            earlier = _set_before(expr.id, link)
            if earlier is None:
                break
            stmt = earlier.stmt
            if isinstance(stmt, forms.AugAssign):
                steps.append(Step(stmt.op, forms.Binary(stmt.op, stmt.target, stmt.value, stmt.at), earlier))
                expr, link = stmt.target, earlier
            elif isinstance(stmt, forms.Assign) and dotted(stmt.targets[0]) == expr.id:
                expr, link = stmt.value, earlier
            else:
                break
        else:
            break
    return steps, expr, link


def _set_before(name: str, link: Link) -> Link | None:
    """The statement of the same block that last set a name."""
    return next((earlier for earlier in reversed(link.block[: link.index]) if name in earlier.changes), None)


def _is_float_cast(step: Step) -> bool:
    if step.name == "float":
        return True
    if step.name not in ("to", "type") or not isinstance(step.expr, forms.Call):
        return False
    return any(last_name(arg.value) in _FLOATS for arg in step.expr.args)


def _scales_bytes(step: Step) -> bool:
    """``/ 255``, ``.div(255)``, ``* (1 / 255)``: what is done to bytes."""
    if isinstance(step.expr, forms.Binary) and step.name == "/":
        return _is_byte_range(step.expr.right)
    if step.name in ("div", "div_", "true_divide") and isinstance(step.expr, forms.Call) and step.expr.args:
        return _is_byte_range(step.expr.args[0].value)
    return False


def _is_byte_range(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Const) and expr.value in (255, 256, 127.5)


def _scaled_after(move: Move) -> bool:
    """Whether the copy is divided by 255, in its own expression or in the next statements."""
    for outer in way_out(move.link, move.call):
        name = outer.op if isinstance(outer, forms.Binary) else last_name(getattr(outer, "func", None))
        if _scales_bytes(Step(name, outer, move.link)):
            return True
    stmt = move.link.stmt
    given = dotted(stmt.targets[0]) if isinstance(stmt, forms.Assign) else None
    return given is not None and any(_scales(link, given) for link in move.link.block[move.link.index + 1 :][:4])


def _scales(link: Link, name: str) -> bool:
    stmt = link.stmt
    if isinstance(stmt, forms.AugAssign):
        return dotted(stmt.target) == name and stmt.op == "/" and _is_byte_range(stmt.value)
    if isinstance(stmt, forms.Assign) and isinstance(stmt.value, forms.Binary):
        value = stmt.value
        return dotted(value.left) == name and value.op == "/" and _is_byte_range(value.right)
    return isinstance(stmt, (forms.Assign, forms.Do)) and any(
        _scales_bytes(Step(last_name(call.func), call, link)) and dotted(chain_root(call)[0]) == name
        for call in _chained(stmt.value)
    )


def _chained(expr: forms.Expr) -> Iterator[forms.Call]:
    while isinstance(expr, forms.Call):
        yield expr
        expr = expr.func.value if isinstance(expr.func, forms.Attr) else expr.func


def _gives_bytes(alt: DatasetAlt) -> bool:
    """Whether a dataset's samples begin with a tensor of bytes, as far as that is certain."""
    dataset = alt.dataset
    if dataset is None:
        return False
    project = dataset.project
    method = project.method(dataset.cls, "__getitem__")
    if method is None:
        return False
    ev = project.evaluator
    values = [found.value for found in calling.returned(ev, ev.frame(method, self_=dataset.instance))]
    return bool(values) and all(_is_bytes(project, value) for value in values)


@unfolds(False)
def _is_bytes(project: Project, value: Value) -> bool:
    if isinstance(value, Many) and value.items:
        return all(_is_bytes(project, alt.value) for alt in project.evaluator.force(value.items[0]))
    return isinstance(value, Made) and library.canonical(value.path) in _BYTES
