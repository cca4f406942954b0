"""Globals that only the main process has: set under the main guard, or by a function that runs only there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model.flow import links_of
from dlcheck.model.program import is_main_guarded
from dlcheck.model.scopes import Link, Module, Scope, children, expressions, target_names
from dlcheck.model.values import Const, Point
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

MAX_CHAIN = 6


class MainOnlyGlobal(NamedTuple):
    """A global that worker code reads: where it does, and where the main process alone sets it.

    ``undefined`` where importing the module does not set it at all; else it then has ``before``.
    """

    name: str
    module: Module
    at: int
    link: Link
    owner: str
    set_at: int
    undefined: bool
    before: str
    world: World


def main_only_globals(loader: Loader) -> Iterator[MainOnlyGlobal]:
    """The globals that the workers of a loader read and that only the main process sets."""
    project = loader.project
    told: set[tuple[Module, str]] = set()
    for code, owner, world in loader.worker_codes:
        for frame, reached in code.frames:
            both = world.merge(reached)
            if both is None or frame.scope.link is None or is_main_guarded(frame.scope.link):
                continue  # what stands under the guard itself reaches no worker: DLC602 says so
            for name, link in _globals_read(frame.scope):
                module = frame.scope.module
                found = _main_only(project, module, name.id) if (module, name.id) not in told else None
                if found is not None:
                    told.add((module, name.id))
                    set_at, before = found
                    yield MainOnlyGlobal(
                        name.id, module, name.at, link, owner, set_at, before is None, before or "", both
                    )


def _globals_read(scope: Scope) -> Iterator[tuple[forms.Name, Link]]:
    """The names of its module that a function reads."""
    if scope.kind != "function":
        return
    local = scope.names - scope.not_local
    around = scope.parent
    while around is not None and around.kind != "module":
        local |= around.names if around.kind == "function" else set()
        around = around.parent
    for link in links_of(scope):
        for root in expressions(link.stmt):
            for name in _free_names(root, frozenset()):
                if name.id not in local:
                    yield name, link


def _free_names(expr: forms.Expr, bound: frozenset[str]) -> Iterator[forms.Name]:
    """The names in an expression that no comprehension or lambda inside it binds."""
    if isinstance(expr, forms.Name):
        if expr.id not in bound:
            yield expr
        return
    if isinstance(expr, forms.Comp):
        bound |= {name for clause in expr.clauses for name in target_names(clause.target)}
    elif isinstance(expr, forms.Lambda):
        bound |= {param.name for param in expr.params}
    for child in children(expr):
        yield from _free_names(child, bound)


def _main_only(project: Project, module: Module, name: str) -> tuple[int, str | None] | None:
    """Where only the main process sets a global, and what importing its module leaves in it (None: nothing)."""
    guarded: list[Link] = []
    plain: list[Link] = []
    for link in links_of(module.scope):
        if name in link.changes and not link.blocks:
            (guarded if is_main_guarded(link) else plain).append(link)
    setters = [function for function in module.functions if name in function.not_local and name in function.names]
    if any(not _runs_only_in_main(project, setter, 0) for setter in setters):
        return None
    set_by = [*guarded, *(link for setter in setters for link in _assignments(setter, name))]
    if not set_by or module.stars or any(not isinstance(link.stmt, forms.Assign) for link in (*set_by, *plain)):
        return None
    if not plain:
        return (set_by[0].stmt.at, None) if name in module.scope.names or setters else None
    return _stale(project, module, name, plain, set_by)


def _stale(
    project: Project, module: Module, name: str, plain: list[Link], set_by: list[Link]
) -> tuple[int, str | None] | None:
    """A global that has one constant after import and may have another one in the main process."""
    if any(link.parent is not None for link in plain):
        return None
    last = plain[-1].stmt
    assert isinstance(last, forms.Assign)
    before = list(project.evaluator.values(last.value, Point(project.evaluator.any_frame(module.scope), plain[-1])))
    if len(before) != 1 or not isinstance(before[0], Const):
        return None
    for link in set_by:
        stmt = link.stmt
        assert isinstance(stmt, forms.Assign)
        values = list(project.evaluator.values(stmt.value, Point(project.evaluator.any_frame(link.scope), link)))
        if any(value != before[0] for value in values):
            return stmt.at, repr(before[0].value)
    return None


def _assignments(function: Scope, name: str) -> Iterator[Link]:
    return (link for link in links_of(function) if name in link.changes and not link.blocks)


def _runs_only_in_main(project: Project, function: Scope, depth: int) -> bool:
    """Whether a function is called, and only from under the main guard."""
    callers = project.callers.of(function)
    if not callers or depth > MAX_CHAIN:
        return False
    return all(
        is_main_guarded(point.link)
        if point.link.scope.kind == "module"
        else point.link.scope.kind == "function" and _runs_only_in_main(project, point.link.scope, depth + 1)
        for _, point in callers
    )
