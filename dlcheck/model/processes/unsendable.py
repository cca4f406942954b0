"""What a worker cannot send back: tensors with a gradient graph, generators, lambdas, open files.

A worker puts its batch on a queue; a thread pickles it there.  What cannot be pickled is dropped by that
thread, and the program waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.flow import links_of
from dlcheck.model.processes.pickling import has_own_pickler, obstacles
from dlcheck.model.scopes import Link, Module, Scope, dotted, last_name, target_names
from dlcheck.model.training.evaluation import without_gradients
from dlcheck.model.training.networks import NO_GRADIENTS, has_weights, parts, without_graph
from dlcheck.model.values import (
    Bound,
    Const,
    External,
    Frame,
    Func,
    Instance,
    LambdaFunc,
    Made,
    Point,
    Value,
)
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

# How samples get from the dataset to the queue: through torch's collate, as they are, or through the project's own.
Way = Literal["default", "as-is", "own"]

_WITHOUT_GRAPH = frozenset({"detach", "no_grad", "inference_mode", "numpy", "tolist", "item", "data"})

# Methods whose result belongs to the graph of the tensor they are called on.
_KEEP_GRAPH = frozenset(
    {"squeeze", "unsqueeze", "view", "reshape", "flatten", "mean", "sum", "float", "double", "half", "cpu", "to",
     "permute", "transpose", "contiguous", "clone", "softmax", "log_softmax", "sigmoid", "tanh", "relu", "norm",
     "expand", "repeat", "chunk", "split", "unbind", "pow", "exp", "log", "mul", "add", "div", "clamp", "t"}
)  # fmt: skip
_NO_TENSOR = frozenset({"data", "shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "grad"})


class Unsendable(NamedTuple):
    """Something that a dataset or ``collate_fn`` returns and no queue carries.

    ``kind``: a tensor with a "graph", the same where torch's collate already "fails", or another "object".
    """

    kind: Literal["graph", "fails", "object"]
    what: str
    owner: str
    module: Module
    at: int
    link: Link
    world: World


def unsendable(loader: Loader) -> Iterator[Unsendable]:
    """What the workers of a loader make and cannot send."""
    project = loader.project
    if has_own_pickler(project):
        return
    graphs = not _gradients_are_off(loader)
    for way, world in _ways(loader):
        for alt in loader.datasets:
            both = world.merge(alt.world)
            if alt.dataset is None or both is None:
                continue
            for name in ("__getitem__", "__iter__"):
                method = project.method(alt.dataset.cls, name)
                if method is not None:
                    frame = project.evaluator.frame(method, self_=alt.dataset.instance)
                    yield from _of_function(project, frame, way, graphs, alt.dataset.name, both)
    for option in loader.option("collate_fn"):
        collate = _frame_of(project, option.value)
        if collate is not None:
            yield from _of_function(project, collate, "as-is", graphs, collate.scope.qualified, option.world)


def _ways(loader: Loader) -> Iterator[tuple[Way, World]]:
    for option in loader.option("collate_fn"):
        if option.is_(None):
            for size in loader.option("batch_size"):
                both = option.world.merge(size.world)
                if both is not None and isinstance(size.value, Const):
                    yield ("as-is" if size.value.value is None else "default"), both
        elif _returns_its_argument(option.value):
            yield "as-is", option.world
        else:
            frame = _frame_of(loader.project, option.value)
            if frame is not None:
                code = [code for code, _, _ in loader.worker_codes if code.frames and code.frames[0][0] is frame]
                if not any(part.mentions(_WITHOUT_GRAPH) for part in code):
                    yield "own", option.world


def _frame_of(project: Project, value: Value) -> Frame | None:
    if isinstance(value, Bound):
        return _frame_of(project, value.func)
    if isinstance(value, Instance):
        method = project.method(value.cls, "__call__")
        return project.evaluator.frame(method, self_=value) if method is not None else None
    return (
        project.evaluator.frame(value.scope, self_=value.self_, closure=value.closure)
        if isinstance(value, Func)
        else None
    )


def _returns_its_argument(value: Value) -> bool:
    """``lambda batch: batch``, ``def same(batch): return batch``, also of its first element."""
    if isinstance(value, LambdaFunc):
        return _is_argument(value.form.body, [param.name for param in value.form.params])
    if isinstance(value, Func):
        params = [param.name for param in value.scope.function.params]
        stmts = [link.stmt for link in value.scope.returns]
        body = [link for link in value.scope.body if not isinstance(link.stmt, forms.Do)]
        return len(body) == 1 and any(
            isinstance(stmt, forms.Return) and stmt.value is not None and _is_argument(stmt.value, params)
            for stmt in stmts
        )
    return False


def _is_argument(expr: forms.Expr, params: list[str]) -> bool:
    while isinstance(expr, forms.Sub):
        expr = expr.value
    return isinstance(expr, forms.Name) and expr.id in params


def _of_function(
    project: Project, frame: Frame, way: Way, graphs: bool, owner: str, world: World
) -> Iterator[Unsendable]:
    for link, expr in _results(frame.scope):
        project.evaluator.fresh()
        for what, other in _objects(project.evaluator, expr, Point(frame, link), way):
            both = world.merge(other)
            if both is not None:
                yield Unsendable("object", what, owner, frame.scope.module, expr.at, link, both)
    if graphs and not without_graph(frame.scope):
        for link, call in _Graph(project, frame).returned():
            module = frame.scope.module
            kind: Literal["graph", "fails"] = "fails" if way == "default" else "graph"
            yield Unsendable(kind, module.line(call.at), owner, module, call.at, link, world)


def _results(scope: Scope) -> Iterator[tuple[Link, forms.Expr]]:
    """What a function returns or yields."""
    for link in scope.returns:
        if isinstance(link.stmt, forms.Return) and link.stmt.value is not None and not scope.function.is_generator:
            yield link, link.stmt.value
    for site in scope.yields:
        if isinstance(site.expr, forms.Yield) and site.expr.value is not None and not site.expr.delegates:
            yield site.link, site.expr.value


# -- objects


def _objects(ev: Evaluator, expr: forms.Expr, point: Point, way: Way) -> Iterator[tuple[str, World]]:
    for value, world in ev.eval(expr, point):
        if way == "as-is":
            for found in obstacles(ev, value):
                # A name of the main script is found again: the batch travels towards it.
                if "main guard" not in found.what and found.what != "a `torch.Generator`":
                    yield found.what, world
            yield from ((what, world) for what in _open_files(ev, value, 0))
        for what in _factories(ev, value, 0):
            yield what, world


def _open_files(ev: Evaluator, value: Value, depth: int) -> Iterator[str]:
    if isinstance(value, Made) and library.HANDLES.get(value.path) is not None:
        yield f"the open `{value.path.removeprefix('builtins.')}(...)`"
    yield from (what for inner in parts(ev, value, depth) for what in _open_files(ev, inner, depth + 1))


def _factories(ev: Evaluator, value: Value, depth: int) -> Iterator[str]:
    """``defaultdict(lambda: ...)``, which torch's collate keeps as it is."""
    if isinstance(value, Made) and value.path == "collections.defaultdict" and value.args is not None:
        first = calling.positional(value.args, 0)
        for alt in ev.force(first) if first is not None else ():
            local = isinstance(alt.value, Func) and alt.value.scope.parent is not None
            if isinstance(alt.value, LambdaFunc):
                yield "a `defaultdict` whose factory is a lambda"
            elif local and isinstance(alt.value, Func) and alt.value.scope.parent.kind == "function":  # type: ignore[union-attr]
                yield "a `defaultdict` whose factory is a local function"
    yield from (what for inner in parts(ev, value, depth) for what in _factories(ev, inner, depth + 1))


# -- graphs


def _gradients_are_off(loader: Loader) -> bool:
    """Whether something freezes weights or switches gradients off: in the project, or around each loop.

    A forked worker inherits the gradient mode of the loop that starts it.
    """
    project = loader.project
    if project.calls_named("requires_grad_") or project.calls_named("set_grad_enabled"):
        return True
    if any(store.target.name == "requires_grad" for module in project.loaded() for store in module.stores):
        return True
    return bool(loader.loops) and all(without_gradients(loop) for loop in loader.loops)


@dataclass
class _Graph:
    """Follows what a network computed through one function, to what that returns."""

    project: Project
    frame: Frame
    depth: int = 0
    names: dict[str, forms.Expr] = field(default_factory=dict)

    def returned(self) -> Iterator[tuple[Link, forms.Expr]]:
        """The calls of networks whose results are returned, each with its ``return``."""
        scope = self.frame.scope
        results = dict(_results(scope))
        for link in links_of(scope):
            self._follow(link)
            if link in results:
                source = self._source(results[link], Point(self.frame, link))
                if source is not None:
                    yield link, source

    def _follow(self, link: Link) -> None:
        stmt, point = link.stmt, Point(self.frame, link)
        if isinstance(stmt, forms.Assign):
            source = self._source(stmt.value, point)
            for target in stmt.targets:
                self._bind(target, source)
        elif isinstance(stmt, forms.AugAssign):
            source = self._source(stmt.value, point)
            if source is not None:
                self._bind(stmt.target, source)
        elif isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call):
            call = stmt.value
            if isinstance(call.func, forms.Attr) and call.func.name in ("append", "extend") and call.args:
                source = self._source(call.args[0].value, point)
                if source is not None:
                    self._bind(call.func.value, source)

    def _bind(self, target: forms.Expr, source: forms.Expr | None) -> None:
        for name in target_names(target):
            if source is not None:
                self.names[name] = source
            elif not isinstance(target, forms.Sub):
                self.names.pop(name, None)

    def _source(self, expr: forms.Expr, point: Point) -> forms.Expr | None:
        """The call of a network that ``expr`` still has in its graph."""
        if isinstance(expr, forms.Name):
            return self.names.get(expr.id)
        if isinstance(expr, forms.Call):
            return self._of_call(expr, point)
        if isinstance(expr, forms.Attr):
            name = dotted(expr)
            if name is not None and name in self.names:
                return self.names[name]
            return None if expr.name in _NO_TENSOR else self._source(expr.value, point)
        if isinstance(expr, forms.Sub):
            return self._source(expr.value, point)
        if isinstance(expr, forms.Sequence):
            return self._first(expr.items, point)
        if isinstance(expr, forms.Dict):
            return self._first(tuple(entry.value for entry in expr.entries), point)
        if isinstance(expr, forms.Binary):
            return self._first((expr.left, expr.right), point)
        if isinstance(expr, forms.IfExp):
            return self._first((expr.body, expr.orelse), point)
        if isinstance(expr, forms.Comp) and expr.kind != "generator":
            return self._source(expr.value, Point(point.frame, point.link, point.module.inners.get(expr.at)))
        return None

    def _first(self, exprs: tuple[forms.Expr, ...], point: Point) -> forms.Expr | None:
        return next((found for expr in exprs if (found := self._source(expr, point)) is not None), None)

    def _of_call(self, call: forms.Call, point: Point) -> forms.Expr | None:
        args = tuple(arg.value for arg in call.args)
        if isinstance(call.func, forms.Attr) and call.func.name in _KEEP_GRAPH:
            found = self._source(call.func.value, point)
            if found is not None:
                return found
        if _is_off(point.link):
            return None
        ev = self.project.evaluator
        for value in ev.values(call.func, point):
            if isinstance(value, External) and value.path.startswith("torch.") and "no_grad" not in value.path:
                return self._first((*args, *self._unpacked(args)), point)
            if has_weights(self.project, value, 0):
                return call
            if isinstance(value, Func) and self.depth < 3 and self._helper_gives_graph(value, call, point):
                return call
        return None

    def _unpacked(self, args: tuple[forms.Expr, ...]) -> tuple[forms.Expr, ...]:
        return tuple(arg.value for arg in args if isinstance(arg, forms.Star))

    def _helper_gives_graph(self, func: Func, call: forms.Call, point: Point) -> bool:
        scope = func.scope
        if without_graph(scope) or scope is self.frame.scope or scope.function.is_generator:
            return False
        frame = self.project.evaluator.frame(scope, calling.arguments(call, point), point, func.self_, func.closure)
        return any(True for _ in _Graph(self.project, frame, self.depth + 1).returned())


def _is_off(link: Link) -> bool:
    """Inside ``with torch.no_grad():``."""
    return any(
        isinstance(item.value, forms.Call) and last_name(item.value.func) in NO_GRADIENTS
        for outer in link.outer()
        if isinstance(outer.stmt, forms.With)
        for item in outer.stmt.items
    )
