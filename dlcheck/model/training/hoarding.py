"""What a loop over a loader keeps of every batch until it has ended: tensors of workers, tensors on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.flow import links_in, loops_around
from dlcheck.model.loops import BatchLoop
from dlcheck.model.scopes import Link, Module, descend, dotted, expressions, last_name, target_names
from dlcheck.model.training.evaluation import without_gradients
from dlcheck.model.training.outputs import large_on_gpu
from dlcheck.model.values import (
    Batch,
    External,
    Made,
    Many,
    Mapping,
    Moved,
    Point,
    Unknown,
    Value,
)
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project
    from dlcheck.model.transfers import Transfer

# Where a program asks whether there is a GPU, the world in which there is one.
WITH_CUDA = World({("symbol", "cuda"): True})

# Methods that give the very memory of a CPU tensor again.
_SAME_MEMORY = frozenset({"cpu", "numpy", "detach", "contiguous", "data"})

# Methods that only tensors have: who calls one has a tensor.  The others arrays have, too.
_TENSOR_METHODS = frozenset(
    {"to", "cuda", "cpu", "numpy", "detach", "unsqueeze", "permute", "float", "long", "dim", "numel", "clone"}
)
_ARRAY_METHODS = frozenset(
    {"view", "squeeze", "size", "argmax", "max", "sum", "mean", "item", "tolist", "reshape", "flatten", "type"}
)
_JOINING = frozenset({"torch.cat", "torch.stack", "torch.concat", "torch.vstack", "torch.hstack"})


@dataclass(eq=False)
class Hoard:
    """One statement that keeps something of every batch.

    ``kind``: a tensor from a "worker", as it came; a batch that was moved to the GPU ("input"), or what a network
    made of it there ("output").  ``graph`` where the network's graph is kept, too.
    """

    loop: BatchLoop
    loader: Loader
    kind: Literal["worker", "input", "output"]
    container: str
    text: str
    module: Module
    at: int
    link: Link
    worlds: list[World]
    transfer: Transfer | None = None
    graph: bool = False
    value: forms.Expr | None = None  # what is kept, where it is certainly one tensor, and is not joined to another


@dataclass(eq=False)
class _Keeping:
    """``container.append(value)`` and the like, or the value of a list comprehension over a loader."""

    container: str
    expr: forms.Expr
    point: Point
    at: int
    spreads: bool = False  # extend: its elements are kept
    copies: bool = False  # torch.cat: a new tensor with what it was and the value


def hoards(project: Project) -> Iterator[Hoard]:
    """Everything that loops over loaders keep of their batches."""
    for loop in project.loops:
        if loop.framework:
            continue
        for kept in _kept(project, loop):
            project.evaluator.fresh()
            found = _from_worker(project, loop, kept) or _on_gpu(project, loop, kept)
            if found is not None:
                yield found


# -- what is kept


def _kept(project: Project, loop: BatchLoop) -> Iterator[_Keeping]:
    stmt = loop.link.stmt
    if not isinstance(stmt, forms.For) or stmt.iter is not loop.iterated:
        yield from _comprehended(project, loop)
        return
    if _ends_early(loop.link):
        return
    frame = project.evaluator.any_frame(loop.link.scope)
    for link in links_in(loop.link):
        point = Point(frame, link)
        for name, expr, at, spreads in (*_additions(link.stmt), *_entries(link.stmt, loop.link)):
            if _outlives(loop.link, link, name) and _is_container(project, name, link, loop.link):
                yield _Keeping(name, expr, point, at, spreads)
        for name, expr, at in _grown(project, link.stmt, point):
            if _outlives(loop.link, link, name):
                yield _Keeping(name, expr, point, at, copies=True)


def _comp_of(loop: BatchLoop) -> forms.Comp | None:
    """The list comprehension that iterates the loader, where the loop is one."""
    for site in loop.module.comps:
        comp = site.expr
        assert isinstance(comp, forms.Comp)
        if comp.kind == "list" and comp.clauses[0].iter is loop.iterated:
            return comp
    return None


def _comprehended(project: Project, loop: BatchLoop) -> Iterator[_Keeping]:
    comp = _comp_of(loop)
    if comp is None:
        return
    inner = loop.module.inners.get(comp.at)
    point = Point(project.evaluator.any_frame(loop.link.scope), loop.link, inner)
    yield _Keeping(_assigned(loop.link), comp.value, point, comp.value.at)


def _assigned(link: Link) -> str:
    stmt = link.stmt
    return (dotted(stmt.targets[0]) or "") if isinstance(stmt, forms.Assign) else ""


def _additions(stmt: forms.Stmt) -> Iterator[tuple[str, forms.Expr, int, bool]]:
    """The container, the value and its node, for each thing that a statement adds to a container."""
    if isinstance(stmt, forms.Do):
        done = stmt.value.items if isinstance(stmt.value, forms.Sequence) else (stmt.value,)
        for call in done:
            if isinstance(call, forms.Call) and isinstance(call.func, forms.Attr) and len(call.args) == 1:
                name = _container_name(call.func.value)
                if name and call.func.name in ("append", "extend") and not call.args[0].star:
                    yield name, call.args[0].value, call.at, call.func.name == "extend"
    elif isinstance(stmt, forms.AugAssign) and stmt.op == "+":
        name = dotted(stmt.target) or ""
        if name and isinstance(stmt.value, forms.Sequence) and stmt.value.kind == "list":
            for item in stmt.value.items:
                yield name, item, stmt.at, False
        elif name and isinstance(stmt.value, (forms.Name, forms.Call, forms.Sub)):
            yield name, stmt.value, stmt.at, True


def _entries(stmt: forms.Stmt, loop: Link) -> Iterator[tuple[str, forms.Expr, int, bool]]:
    """``found[name] = value``, where each round has a name of its own."""
    if not isinstance(stmt, forms.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], forms.Sub):
        return
    target = stmt.targets[0]
    own = {name for link in links_in(loop) for name in link.changes}
    if isinstance(loop.stmt, forms.For):
        own |= set(target_names(loop.stmt.target))
    name = dotted(target.value) or ""
    keys = {part.id for part in descend(target.index) if isinstance(part, forms.Name)}
    if name and keys & (own - {name}):
        yield name, stmt.value, stmt.at, False


def _grown(project: Project, stmt: forms.Stmt, point: Point) -> Iterator[tuple[str, forms.Expr, int]]:
    """``outputs = torch.cat([outputs, value])``: the tensor, what is joined to it, and the statement's node."""
    if not isinstance(stmt, forms.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.value, forms.Call):
        return
    name, call = dotted(stmt.targets[0]) or "", stmt.value
    parts = call.args[0].value if call.args else None
    if not name or not isinstance(parts, forms.Sequence) or name not in map(dotted, parts.items):
        return
    paths = {value.path for value in project.evaluator.values(call.func, point) if isinstance(value, External)}
    if paths and paths <= _JOINING - {"torch.stack"}:
        yield from ((name, part, stmt.at) for part in parts.items if dotted(part) != name)


def _container_name(expr: forms.Expr) -> str:
    """``xs`` of ``xs.append``, also of ``xs[key].append``."""
    while isinstance(expr, forms.Sub):
        expr = expr.value
    return dotted(expr) or ""


def _outlives(loop: Link, link: Link, name: str) -> bool:
    """Whether what is added stays until the loop has ended: nothing in the loop empties or replaces the container."""
    for other in links_in(loop):
        if other is link:
            continue
        stmt = other.stmt
        if isinstance(stmt, (forms.Assign, forms.Delete, forms.Declare)):
            targets = stmt.targets if isinstance(stmt, (forms.Assign, forms.Delete)) else (stmt.target,)
            if any(name == changed for target in targets for changed in target_names(target)):
                return False
        if any(
            isinstance(expr, forms.Call)
            and isinstance(expr.func, forms.Attr)
            and expr.func.name in ("clear", "pop", "popleft", "remove")
            and _container_name(expr.func.value) == name
            for root in expressions(stmt)
            for expr in descend(root)
        ):
            return False
    return True


def _is_container(project: Project, name: str, link: Link, loop: Link) -> bool:
    """Whether a name is a list or dict that was empty before the loop."""
    expr = _expression_of(link, name)
    if expr is None:
        return False
    point = Point(project.evaluator.any_frame(link.scope), link)
    values = [value for value in project.evaluator.values(expr, point) if not isinstance(value, Unknown)]
    return bool(values) and all(_holds_all(value) for value in values)


def _holds_all(value: Value) -> bool:
    if isinstance(value, Made):
        return value.path in ("collections.defaultdict", "builtins.list", "builtins.dict", "collections.OrderedDict")
    return isinstance(value, Mapping) or isinstance(value, Many) and value.kind == "list"


def _expression_of(link: Link, name: str) -> forms.Expr | None:
    for root in expressions(link.stmt):
        for expr in descend(root):
            if isinstance(expr, (forms.Name, forms.Attr)) and dotted(expr) == name:
                return expr
    return None


def _ends_early(loop: Link) -> bool:
    """Whether the loop may stop after some batches: it takes a look, it does not collect all."""
    return any(
        isinstance(link.stmt, forms.Jump) and link.stmt.kind == "break" and next(loops_around(link), None) is loop
        for link in links_in(loop)
    )


# -- tensors of workers


def _from_worker(project: Project, loop: BatchLoop, kept: _Keeping) -> Hoard | None:
    worlds = []
    expr = kept.expr
    if kept.copies or kept.spreads and _ends_in_numpy(expr):
        return None  # the elements of an array are copies
    items = expr.items if isinstance(expr, forms.Sequence) and not kept.spreads else (expr,)
    for item in items:
        root = _same_memory(item)
        alts = project.evaluator.eval(root, kept.point)
        exact = [alt for alt in alts if isinstance(alt.value, Batch) and alt.value.exact]
        ref = next((alt.value.loader for alt in exact if isinstance(alt.value, Batch)), None)
        if ref is None or ref.key != loop.ref.key or any(isinstance(alt.value, Moved) for alt in alts):
            continue
        loader = project.loader_of(ref)
        if _is_tensor(project, loop, loader, kept, item, root):
            worlds = [both for alt in exact if (both := alt.world.merge(loop.world)) is not None]
            if worlds and loader.is_plain:
                whole = item is root and any(isinstance(alt.value, Batch) and not alt.value.part for alt in exact)
                return Hoard(
                    loop, loader, "worker", kept.container, kept.point.module.line(item.at), kept.point.module,
                    kept.at, kept.point.link, worlds, value=None if whole else item,
                )  # fmt: skip
    return None


def _ends_in_numpy(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Call) and last_name(expr.func) in ("numpy", "list", "tolist")


def _same_memory(expr: forms.Expr) -> forms.Expr:
    """What ``expr`` shares its memory with: without the calls that copy nothing."""
    while True:
        if isinstance(expr, forms.Call) and isinstance(expr.func, forms.Attr) and not expr.args:
            if expr.func.name not in _SAME_MEMORY:
                return expr
            expr = expr.func.value
        elif isinstance(expr, forms.Attr) and expr.name == "data":
            expr = expr.value
        else:
            return expr


def _is_tensor(
    project: Project, loop: BatchLoop, loader: Loader, kept: _Keeping, item: forms.Expr, root: forms.Expr
) -> bool:
    """Whether a part of a batch is a tensor for certain: not a list of names, of which nothing stays open."""
    default = all(option.is_(None) for option in loader.option("collate_fn"))  # which makes tensors of arrays
    methods = _TENSOR_METHODS | _ARRAY_METHODS if default else _TENSOR_METHODS
    if item is not root or isinstance(root, forms.Call) and last_name(root.func) in methods:
        return True
    if isinstance(root, forms.Sub) and not isinstance(root.index, forms.Const):
        root = root.value
    name = dotted(root)
    if name is not None and any(_calls_method(link, name, methods) for link in links_in(loop.link)):
        return True
    if _joined(project, loop, kept):
        return True
    whole = [value for value in project.evaluator.values(root, kept.point) if isinstance(value, Batch)]
    if default and not kept.spreads and whole and not any(value.part for value in whole):
        return True
    return default and bool(loader.datasets) and all(alt.path in library.MEMORY_DATASETS for alt in loader.datasets)


def _calls_method(link: Link, name: str, methods: frozenset[str]) -> bool:
    return any(
        isinstance(expr, forms.Call)
        and isinstance(expr.func, forms.Attr)
        and expr.func.name in methods
        and dotted(expr.func.value) == name
        for root in expressions(link.stmt)
        for expr in descend(root)
    )


def _joined(project: Project, loop: BatchLoop, kept: _Keeping) -> bool:
    """``torch.cat(labels)`` of what was collected, or of the comprehension itself."""
    scope = loop.link.scope
    for site in scope.module.calls_by_scope.get(scope, ()):
        call = site.expr
        assert isinstance(call, forms.Call)
        first = call.args[0].value if call.args else None
        comp = isinstance(first, forms.Comp) and first.clauses[0].iter is loop.iterated
        if comp or kept.container and dotted(first) == kept.container:
            for value in project.evaluator.values(call.func, project.point(site)):
                if isinstance(value, External) and value.path in _JOINING:
                    return True
    return False


# -- tensors on the GPU


def _on_gpu(project: Project, loop: BatchLoop, kept: _Keeping) -> Hoard | None:
    if kept.spreads or loop.trains():
        return None
    loader = project.loader_of(loop.ref)
    items = kept.expr.items if isinstance(kept.expr, forms.Sequence) else (kept.expr,)
    for item in items:
        found = large_on_gpu(project, loop, item, kept.point)
        if found is None:
            continue
        transfer, kind, detached = found
        worlds = [both for world in transfer.to_cuda() if (both := world.merge(loop.world)) is not None]
        if worlds:
            module = kept.point.module
            graph = kind == "output" and not detached and not without_gradients(loop)
            value = item if not kept.copies and _is_one_tensor(project, loop, kept, item) else None
            return Hoard(
                loop, loader, kind, kept.container, module.line(item.at), module, kept.at, kept.point.link, worlds,
                transfer, graph, value,
            )  # fmt: skip
    return None


def _is_one_tensor(project: Project, loop: BatchLoop, kept: _Keeping, item: forms.Expr) -> bool:
    """Whether something on the GPU is used as a tensor: no tuple or dict of them."""
    methods = _TENSOR_METHODS | _ARRAY_METHODS
    if isinstance(item, forms.Call):
        values = project.evaluator.values(item.func, kept.point)
        if any(isinstance(value, External) and value.path.startswith("torch.") for value in values):
            return True
        if isinstance(item.func, forms.Attr) and item.func.name in methods:
            return True
    if isinstance(item, forms.Sub) and isinstance(item.index, forms.Slice):
        return True
    name = dotted(item)
    if name is not None and any(_calls_method(link, name, methods) for link in links_in(loop.link)):
        return True
    return item is kept.expr and _joined(project, loop, kept)
