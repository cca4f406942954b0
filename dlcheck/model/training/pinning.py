"""Pinned memory: who pins where, and what the pinning thread cannot pin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.conditions import IN_WORKER
from dlcheck.model.scopes import Link, Module, Scope
from dlcheck.model.transfers import TENSOR_MAKERS, Kind
from dlcheck.model.values import (
    Alt,
    Arguments,
    Bound,
    ClassRef,
    Const,
    Func,
    Instance,
    LambdaFunc,
    Made,
    Many,
    Mapping,
    Moved,
    Point,
    Value,
)
from dlcheck.model.worlds import ANY, World, product

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project
    from dlcheck.model.workers import WorkerCall

# Bases that give a class nothing that the pinning thread knows: neither a method nor a container's items.
_PLAIN_BASES = frozenset(
    {"builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Generic"}
)


# -- in worker code


class WorkerPin(NamedTuple):
    """Memory that is pinned where samples or batches are made."""

    module: Module
    at: int
    link: Link
    text: str
    owner: str
    world: World


def worker_pins(loader: Loader) -> Iterator[WorkerPin]:
    """Where the dataset's methods or ``collate_fn`` pin memory."""
    project = loader.project
    for code, owner, world in loader.worker_codes:
        for call in code.calls:
            if _pins(project, call):
                guards = project.evaluator.guards(call.site.link, call.point.frame)
                for guard in product(product(guards, [call.world]), [world]):
                    in_worker = guard.assume(IN_WORKER, True)
                    if in_worker is not None:
                        text = call.site.module.line(call.call.at)
                        yield WorkerPin(call.site.module, call.call.at, call.site.link, text, owner, in_worker)


def _pins(project: Project, call: WorkerCall) -> bool:
    """``x.pin_memory()`` of a tensor, or ``torch.empty(..., pin_memory=True)``."""
    ev = project.evaluator
    ev.fresh()
    func = call.call.func
    if isinstance(func, forms.Attr) and func.name == "pin_memory" and not call.call.args:
        owned = (Func, Bound, LambdaFunc)
        return not any(isinstance(value, owned) for value in ev.values(func, call.point))
    if library.canonical(call.path) in TENSOR_MAKERS:
        given = calling.keyword(calling.arguments(call.call, call.point), "pin_memory")
        return given is not None and all(alt.value == Const(True) for alt in ev.force(given))
    return False


# -- batches that nothing pins


class Unpinnable(NamedTuple):
    """An object of a batch that the pinning thread leaves as it is: its class, and where it is built."""

    cls: Scope
    module: Module
    at: int
    link: Link
    owner: str
    world: World


def unpinnable_batches(loader: Loader) -> Iterator[Unpinnable]:
    """The objects that ``collate_fn`` returns and that pinning skips."""
    project = loader.project
    for option in loader.option("collate_fn"):
        cls = _class_of(option.value)
        if cls is not None and option.module is not None and _is_skipped(project, cls):
            yield Unpinnable(cls, option.module, option.at, loader.link, cls.name, option.world)
        for value, world in _returned(project, option.value):
            both = option.world.merge(world)
            if both is not None:
                yield from _unpinnable(project, value, both, _name(option.value), whole=True, depth=0)


def gives_objects(loader: Loader) -> bool:
    """Whether its batches are objects of a project class: what their ``.to()`` does is for that class to say."""
    return any(
        _class_of(option.value) is not None
        or any(isinstance(alt.value, Instance) for alt in _returned(loader.project, option.value))
        for option in loader.option("collate_fn")
    )


def _class_of(func: Value) -> Scope | None:
    """The class whose constructor makes the batch: ``collate_fn=Batch``, ``partial(Batch, pad=0)``."""
    if isinstance(func, Bound):
        return _class_of(func.func)
    return func.scope if isinstance(func, ClassRef) else None


def _returned(project: Project, func: Value) -> list[Alt]:
    """What a function returns when a worker calls it with samples."""
    ev = project.evaluator
    ev.fresh()
    if isinstance(func, Func):
        return calling.returned(ev, ev.frame(func.scope, self_=func.self_, closure=func.closure))
    if isinstance(func, Bound):
        return _returned(project, func.func)
    if isinstance(func, Instance):
        method = project.method(func.cls, "__call__")
        return calling.returned(ev, ev.frame(method, self_=func)) if method is not None else []
    if isinstance(func, LambdaFunc):
        point = func.point
        inner = point.module.inners.get(func.form.at)
        return ev.eval(func.form.body, Point(point.frame, point.link, inner))
    return []


def _name(func: Value) -> str:
    if isinstance(func, Func):
        return func.scope.qualified
    if isinstance(func, Bound):
        return _name(func.func)
    return func.cls.name if isinstance(func, Instance) else "collate_fn"


def _unpinnable(
    project: Project, value: Value, world: World, owner: str, *, whole: bool, depth: int
) -> Iterator[Unpinnable]:
    if isinstance(value, Instance) and value.point is not None and value.args is not None:
        call = value.args.call
        if call is not None and _is_skipped(project, value.cls) and (whole or _holds_tensors(project, value.args)):
            yield Unpinnable(value.cls, value.point.module, call.at, value.point.link, owner, world)
    elif isinstance(value, (Many, Mapping)) and depth < 3:
        thunks = value.items if isinstance(value, Many) else tuple(thunk for _, thunk in value.entries)
        for thunk in thunks:
            for inner, other in project.evaluator.force(thunk):
                both = world.merge(other)
                if both is not None:
                    yield from _unpinnable(project, inner, both, owner, whole=False, depth=depth + 1)


def _is_skipped(project: Project, cls: Scope) -> bool:
    """Whether objects of a class are neither containers, nor tensors, nor know how to pin themselves."""
    if not set(project.external_bases(cls)) <= _PLAIN_BASES or cls.has_decorator("tensorclass"):
        return False
    return not any(
        name in base.functions or name in base.names
        for base in project.lineage(cls)
        for name in ("pin_memory", "__getattr__", "__getattribute__")
    )


def _holds_tensors(project: Project, args: Arguments) -> bool:
    """Whether an object is built of what torch computed."""
    given = [thunk for thunk, _ in args.positional] + [thunk for _, thunk in args.keywords]
    return any(
        isinstance(value, Moved) or isinstance(value, Made) and value.path.startswith("torch.")
        for thunk in given
        for value in (alt.value for alt in project.evaluator.force(thunk))
    )


# -- pinning without a use


class Idle(NamedTuple):
    """Batches that never go to a GPU: the kind of device that they are copied to, and where."""

    kind: Kind
    module: Module
    at: int
    world: World


def copied_elsewhere(loader: Loader) -> Idle | None:
    """The device without pinned memory that all copies of a loader's batches go to; None where any may be a GPU."""
    found: Idle | None = None
    for transfer, source in loader.copies():
        if not transfer.devices or any(kind not in ("cpu", "mps") for kind, _ in transfer.devices):
            return None
        target = _target(transfer.call)
        alts = loader.project.evaluator.eval(target, transfer.point) if target is not None else []
        if not alts or any(isinstance(alt.value, Const) and alt.value.free is not None for alt in alts):
            return None
        kind: Kind = "mps" if transfer.maybe_mps() else "cpu"
        world = source.world.merge(transfer.devices[0][1]) or source.world or ANY
        if found is None or kind == "mps":
            found = Idle(kind, transfer.module, transfer.call.at, world)
    return found


def _target(call: forms.Call) -> forms.Expr | None:
    named = next((arg.value for arg in call.args if arg.name == "device"), None)
    return named if named is not None else next((arg.value for arg in call.args if arg.name is None), None)
