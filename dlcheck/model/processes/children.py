"""Child processes of daemons: workers, and the processes of a pool, may not start any.

A worker of a loader is a daemon, and so is each process of ``multiprocessing.Pool``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, last_name
from dlcheck.model.values import Bound, ClassRef, Const, External, Func, Instance, Made, Value
from dlcheck.model.workers import WorkerCall, WorkerCode, code_from, worlds_in_worker
from dlcheck.model.worlds import World, product

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader, OptionAlt
    from dlcheck.model.project import Project

# Code that asks whether it runs in a daemon knows what it does.
_ASKING = frozenset({"daemon", "_config", "current_process", "parent_process"})

_POOL_METHODS = frozenset(
    {"map", "map_async", "imap", "imap_unordered", "starmap", "starmap_async", "apply", "apply_async"}
)


class Parent(NamedTuple):
    """A daemon that runs project code: what it is, and where it is started."""

    kind: Literal["pool", "process"]
    name: str
    module: Module
    at: int
    code: WorkerCode


@dataclass(eq=False)
class ChildProcess:
    """Processes that a daemon starts.

    ``loader`` is the one whose workers are the daemons or, with a ``parent``, whose workers a daemon starts.
    """

    loader: Loader
    workers: OptionAlt
    text: str  # what starts the processes
    owner: str  # the class or function whose code does it
    module: Module
    at: int
    link: Link
    worlds: list[World]
    parent: Parent | None = None


def starts_processes(path: str) -> bool:
    """Whether calling the library's ``path`` starts processes, or makes an object that will."""
    own = path.removeprefix("torch.")
    if own.startswith("multiprocessing."):
        name = own.rpartition(".")[2]
        if name in ("spawn", "start_processes"):
            return path.startswith("torch.")
        return name in ("Pool", "Process", "Manager") and ".dummy." not in own
    return path in (
        "concurrent.futures.ProcessPoolExecutor",
        "concurrent.futures.process.ProcessPoolExecutor",
        "tqdm.contrib.concurrent.process_map",
    )


def child_processes(project: Project) -> Iterator[ChildProcess]:
    """Every place where a daemon starts processes of its own."""
    parents = list(_parents(project))
    for loader in project.loaders:
        for workers in loader.option("num_workers"):
            if workers.positive:
                yield from _of_workers(loader, workers)
                yield from _inside_daemons(loader, workers, parents)


# -- in the workers of a loader


def _of_workers(loader: Loader, workers: OptionAlt) -> Iterator[ChildProcess]:
    for code, owner, world in loader.worker_codes:
        if code.mentions(_ASKING):
            continue
        for call in code.calls:
            text = _started_by(loader.project, call)
            if text and not _expects_failure(call.site.link):
                reached = worlds_in_worker(loader.project, call.site.link, call.point.frame, call.world)
                worlds = list(product(reached, [world]))
                yield ChildProcess(loader, workers, text, owner, call.site.module, call.call.at, call.site.link, worlds)
        yield from _inner_loaders(loader, workers, code, owner, world)


def _started_by(project: Project, call: WorkerCall) -> str:
    if starts_processes(call.path):
        return f"{call.path.replace('()', '(...)')}(...)"
    if not call.path and isinstance(call.call.func, (forms.Name, forms.Attr)):
        for value in project.evaluator.values(call.call.func, call.point):
            if isinstance(value, ClassRef) and _is_process(project, value.scope):
                return f"{value.scope.name}(...)"
    return ""


def _is_process(project: Project, cls: Scope) -> bool:
    return any(starts_processes(path) for path in project.external_bases(cls))


def _expects_failure(link: Link) -> bool:
    """Inside a ``try`` that catches the AssertionError of a daemon."""
    child = link
    for outer in link.outer():
        if isinstance(outer.stmt, forms.Try) and child.slot == "body":
            for handler in outer.stmt.handlers:
                if handler.type is not None and any(
                    last_name(expr) == "AssertionError" for expr in descend(handler.type)
                ):
                    return True
        child = outer
    return False


def _inner_loaders(
    loader: Loader, workers: OptionAlt, code: WorkerCode, owner: str, world: World
) -> Iterator[ChildProcess]:
    """Loaders with workers that the code of a worker iterates."""
    for inner, own in _iterated_in(loader.project, code):
        for option in inner.option("num_workers"):
            if option.positive and inner.constructor != loader.constructor:
                worlds = list(product(product([option.world], [own]), [world]))
                yield ChildProcess(
                    loader, workers, f"{inner.class_name}(...)", owner, inner.module, inner.name_at, inner.link, worlds
                )


def _iterated_in(project: Project, code: WorkerCode) -> Iterator[tuple[Loader, World]]:
    """The loaders that code iterates, each with the world in which it does."""
    scopes = {frame.scope for frame, _ in code.frames}
    for loop in project.loops:
        if loop.link.scope in scopes:
            yield project.loader_of(loop.ref), loop.world
    for call in project.next_calls:
        if call.site.link.scope in scopes:
            yield project.loader_of(call.ref), call.world


# -- loaders that are iterated in a daemon


def _inside_daemons(loader: Loader, workers: OptionAlt, parents: list[Parent]) -> Iterator[ChildProcess]:
    for parent in parents:
        for inner, world in _iterated_in(loader.project, parent.code):
            if inner.constructor == loader.constructor and inner.ref.key == loader.ref.key:
                yield ChildProcess(
                    loader,
                    workers,
                    loader.name,
                    parent.name,
                    loader.module,
                    loader.name_at,
                    loader.link,
                    [world],
                    parent,
                )


def _parents(project: Project) -> Iterator[Parent]:
    """The daemons of the project that run its functions."""
    for module in project.loaded():
        for site in module.calls:
            project.evaluator.fresh()
            yield from _daemons_at(project, site)


def _daemons_at(project: Project, site: Site) -> Iterator[Parent]:
    call = site.expr
    assert isinstance(call, forms.Call)
    name = last_name(call.func)
    if name in _POOL_METHODS and isinstance(call.func, forms.Attr) and call.args:
        if _is_pool(project, call.func.value, site):
            yield from _running(project, site, call.args[0].value, "pool")
    elif name == "Process" and _is_daemon(project, site, call):
        target = next((arg.value for arg in call.args if arg.name == "target"), None)
        if target is not None:
            yield from _running(project, site, target, "process")


def _is_pool(project: Project, expr: forms.Expr, site: Site) -> bool:
    values = list(project.evaluator.values(expr, project.point(site)))
    return bool(values) and all(
        isinstance(value, Made) and starts_processes(value.path) and value.path.endswith("Pool") for value in values
    )


def _is_daemon(project: Project, site: Site, call: forms.Call) -> bool:
    """``Process(..., daemon=True)``, or ``process.daemon = True`` after it."""
    point = project.point(site)
    called = [value for value in project.evaluator.values(call.func, point) if isinstance(value, External)]
    if not any(starts_processes(value.path) for value in called):
        return False
    given = calling.keyword(calling.arguments(call, point), "daemon")
    if given is not None:
        return all(alt.value == Const(True) for alt in project.evaluator.force(given))
    names = site.link.changes
    return any(
        store.target.name == "daemon"
        and store.link.scope is site.link.scope
        and last_name(store.target.value) in {name.rpartition(".")[2] for name in names}
        and isinstance(store.value, forms.Const)
        and store.value.value is True
        for store in site.module.stores
    )


def _running(project: Project, site: Site, target: forms.Expr, kind: Literal["pool", "process"]) -> Iterator[Parent]:
    ev = project.evaluator
    for value in ev.values(target, project.point(site)):
        func = _function(project, value)
        if func is not None:
            code = code_from(project, [ev.frame(func.scope, self_=func.self_)])
            if not code.mentions(_ASKING):
                yield Parent(kind, func.scope.qualified, site.module, site.expr.at, code)


def _function(project: Project, value: Value) -> Func | None:
    if isinstance(value, Bound):
        return _function(project, value.func)
    if isinstance(value, Instance):
        method = project.method(value.cls, "__call__")
        return Func(method, value) if method is not None else None
    return value if isinstance(value, Func) else None
