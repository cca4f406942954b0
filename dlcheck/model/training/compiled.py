"""Networks that ``torch.compile`` has compiled, and the loops that feed them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.loops import BatchLoop
from dlcheck.model.scopes import Module, Scope, Site, dotted, last_name
from dlcheck.model.training.loop_uses import Use, uses_in
from dlcheck.model.values import Alt, Arguments, Const, External, Func, Instance, Made, Thunk, Unknown, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.project import Project

COMPILE = "torch.compile"
_WRAPPERS = frozenset(
    {"torch.nn.parallel.DistributedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel",
     "torch.nn.DataParallel"}
)  # fmt: skip


class Compiled(NamedTuple):
    """A compiled network or function that a loop calls: where it is compiled, how, and in which world."""

    module: Module
    at: int
    name: str  # as the loop calls it
    shapes: str  # "dynamic", "fixed" for one graph for each shape, "mixed" for the default
    world: World


def compiled_calls(loop: BatchLoop) -> Iterator[Compiled]:
    """The compiled networks and functions that a loop calls, itself or in what it calls."""
    for use in uses_in(loop):
        if use.is_called:
            yield from _compiled(loop.project, Alt(use.value, use.world), use.name, 0)
            yield from _in_place(loop.project, use)


def _compiled(project: Project, alt: Alt, name: str, depth: int) -> Iterator[Compiled]:
    value, world = alt
    if isinstance(value, Func):
        yield from _decorated(project, value.scope, name, world)
    if not isinstance(value, Made) or value.args is None or value.args.call is None or value.args.point is None:
        return
    if value.path == COMPILE:
        call = value.args.call
        yield Compiled(value.args.point.module, call.func.at, name, _shapes(project, value.args), world)
    elif value.path in _WRAPPERS and depth < 2:
        first = calling.argument(value.args, "module", 0)
        for inner in project.evaluator.force(first) if first is not None else ():
            both = inner.world.merge(world)
            if both is not None:
                yield from _compiled(project, Alt(inner.value, both), name, depth + 1)


def _decorated(project: Project, scope: Scope, name: str, world: World) -> Iterator[Compiled]:
    """A function under ``@torch.compile`` or ``@torch.compile(...)``."""
    assert scope.link is not None
    for decorator in scope.decorators():
        func = decorator.func if isinstance(decorator, forms.Call) else decorator
        site = Site(decorator, scope.link, None)
        point = project.point(site)
        values = project.evaluator.values(func, point)
        if any(isinstance(value, External) and value.path == COMPILE for value in values):
            args = calling.arguments(decorator, point) if isinstance(decorator, forms.Call) else None
            shapes = _shapes(project, args) if args is not None else "mixed"
            yield Compiled(scope.module, func.at, name, shapes, world)


class _InPlace(NamedTuple):
    """``net.compile()``: the call, what ``net`` is called there, and what it is."""

    site: Site
    name: str | None
    values: list[Value]


def _in_place(project: Project, use: Use) -> Iterator[Compiled]:
    """``net.compile()``, which compiles a network where it is: in the function that calls it, or before that."""
    scope, name = use.site.link.scope, use.name
    is_known = isinstance(use.value, (Instance, Made)) or isinstance(use.value, Unknown) and bool(use.value.token)
    for site, called, values in project.once("compiled in place", lambda: list(_compiling_in_place(project))):
        if site.link.scope is scope and called == name or is_known and values == [use.value]:
            call = site.expr
            assert isinstance(call, forms.Call)
            assert isinstance(call.func, forms.Attr)
            shapes = _shapes(project, calling.arguments(call, project.point(site)))
            yield Compiled(site.module, call.func.name_at, name, shapes, use.world)


def _compiling_in_place(project: Project) -> Iterator[_InPlace]:
    for site in project.calls_named("compile"):
        call = site.expr
        assert isinstance(call, forms.Call)
        of_keras = any(arg.name in _KERAS for arg in call.args)
        if isinstance(call.func, forms.Attr) and isinstance(site.link.stmt, forms.Do) and not of_keras:
            values = project.evaluator.values(call.func.value, project.point(site))
            yield _InPlace(site, dotted(call.func.value), list(values))


_KERAS = frozenset({"optimizer", "loss", "metrics"})


def _shapes(project: Project, args: Arguments) -> str:
    """What ``dynamic`` and ``mode`` say of batches of another size: "" where that is unknown."""
    if args.spreads:
        return ""
    dynamic, mode = calling.keyword(args, "dynamic"), calling.keyword(args, "mode")
    told = _constants(project, dynamic)
    if True in told or ... in told:
        return "dynamic"
    modes = _constants(project, mode)
    if ... in modes or modes & {"max-autotune-no-cudagraphs"}:
        return "mixed"
    return "fixed" if False in told or modes & {"reduce-overhead", "max-autotune"} else "mixed"


def _constants(project: Project, thunk: Thunk | None) -> set[object]:
    values: list[Value] = [alt.value for alt in project.evaluator.force(thunk)] if thunk is not None else []
    return {value.value if isinstance(value, Const) else ... for value in values}


_TELLING = frozenset({"mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked"})
_SETTINGS = frozenset({"assume_static_by_default", "automatic_dynamic_shapes", "force_parameter_static_shapes"})


def decides_shapes(project: Project, modules: set[Module]) -> bool:
    """Whether the program tells the compiler itself which sizes change."""
    for module in modules:
        if any(isinstance(site.expr, forms.Call) and last_name(site.expr.func) in _TELLING for site in module.calls):
            return True
        if any(store.target.name in _SETTINGS for store in module.stores):
            return True
    return False
