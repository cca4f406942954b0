"""Loaders that a function builds, where a loop calls that function again and again with the same arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.flow import links_of
from dlcheck.model.loops import callers_in, runs_once
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, dotted
from dlcheck.model.values import Frame, Func, Point
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

_MAX_CALLS = 3


def changed_by_calls(project: Project, loop: Link) -> set[str]:
    """What the project's functions that a loop calls change: of what it gives them, and of names further out."""
    return _changed_by(project, loop.scope.module.calls_in(loop), 0)


def _changed_by(project: Project, sites: Iterable[Site], depth: int) -> set[str]:
    """The dotted names, as the caller calls them."""
    found: set[str] = set()
    for site in sites:
        call = site.expr
        if not isinstance(call, forms.Call) or not isinstance(call.func, (forms.Name, forms.Attr)):
            continue
        for value in project.evaluator.values(call.func, project.point(site)):
            if isinstance(value, Func):
                found |= _as_called(value, call, _changes_of(project, value.scope, depth), site.module)
    return found


def _changes_of(project: Project, scope: Scope, depth: int) -> set[str]:
    """What a function changes that is not its own: names, attributes, what is in a list or dict."""
    own = {param.name for param in scope.function.params} | scope.names - scope.not_local
    names = {name for link in links_of(scope) for name in link.changes}
    rebound = {name for link in links_of(scope) for target in _targets(link.stmt) for name in _plain(target)}
    edited = {name for link in links_of(scope) for name in _edited(link)}
    params = {param.name for param in scope.function.params}
    out = {name for name in names if name.partition(".")[0] not in own or "." in name}
    out |= {name for name in names & params if name in edited or name not in rebound}
    if depth < _MAX_CALLS:
        inner = _changed_by(project, scope.module.calls_by_scope.get(scope, ()), depth + 1)
        out |= {name for name in inner if name.partition(".")[0] not in own - params}
    return out


def _targets(stmt: forms.Stmt) -> tuple[forms.Expr, ...]:
    if isinstance(stmt, forms.Assign):
        return stmt.targets
    if isinstance(stmt, (forms.AugAssign, forms.Declare, forms.For)):
        return (stmt.target,)
    return ()


def _plain(target: forms.Expr) -> Iterator[str]:
    if isinstance(target, forms.Name):
        yield target.id
    elif isinstance(target, forms.Sequence):
        yield from (name for item in target.items for name in _plain(item))


def _edited(link: Link) -> Iterator[str]:
    """The names of which a statement sets items."""
    for target in _targets(link.stmt):
        if isinstance(target, forms.Sub):
            yield dotted(target.value) or ""


def _as_called(function: Func, call: forms.Call, changed: set[str], module: Module) -> set[str]:
    """What a function changes, by the names that the caller has for it."""
    params = function.scope.function.params
    names: dict[str, str | None] = dict.fromkeys(param.name for param in params)
    plain = [param.name for param in params if param.kind in ("positional", "normal")]
    if function.self_ is not None and plain and isinstance(call.func, forms.Attr):
        names[plain.pop(0)] = dotted(call.func.value)
    for arg in call.args:
        if arg.name is not None:
            names[arg.name] = dotted(arg.value)
        elif not arg.star and plain:
            names[plain.pop(0)] = dotted(arg.value)
    found = set()
    for name in changed:
        root, dot, rest = name.partition(".")
        if root in names:
            found |= {f"{given}{dot}{rest}" for given in [names[root]] if given is not None}
        elif function.scope.module is module:
            found.add(name)
    return found


def loop_of_calls(loader: Loader) -> Link | None:
    """The loop whose rounds call the function that builds the loader, where nothing it is built of differs."""
    scope, frame = loader.link.scope, loader.ref.point.frame
    if scope.kind != "function" or not loader.loops or not _always_builds(loader.link) or loader.dataset_changes():
        return None
    if not _built_of_arguments(loader.project, scope, _arguments(loader.call)):
        return None
    return _calling_loop(loader.project, scope, frame, 0)


def _always_builds(link: Link) -> bool:
    """Whether each call of a function gets to a statement: nothing is tested, cached or handed out before it."""
    scope = link.scope
    plain = ("staticmethod", "classmethod", "property")
    if len(scope.decorators()) > scope.has_decorator(*plain) or scope.function.is_generator:
        return False
    if any(
        isinstance(outer.stmt, (forms.If, forms.Try, forms.For, forms.While, forms.Match)) for outer in link.outer()
    ):
        return False
    return not any(isinstance(earlier.stmt, (forms.If, forms.Return)) for earlier in link.block[: link.index])


def _arguments(call: forms.Call) -> Iterator[forms.Expr]:
    """All that stands in the arguments of a call."""
    return (part for arg in call.args for part in descend(arg.value))


def _given(call: forms.Call) -> Iterator[forms.Expr]:
    """All that stands in what a call is given: its arguments, and the object whose method it is."""
    yield from _arguments(call)
    if isinstance(call.func, forms.Attr):
        yield from descend(call.func.value)


def _built_of_arguments(project: Project, scope: Scope, given: Iterable[forms.Expr]) -> bool:
    """Whether a call in a function is given only its parameters, what ``__init__`` set, and names from outside."""
    params = {param.name for param in scope.function.params}
    rebound = {name for link in scope.body for name in link.changes}
    owner = scope.owner
    for expr in given:
        if isinstance(expr, forms.Name) and (expr.id in rebound or expr.id in scope.names - params):
            return False
        if isinstance(expr, (forms.Call, forms.Lambda, forms.Comp)):
            return False
        name = dotted(expr) or ""
        if owner is not None and name.startswith("self."):
            stores = project.stores(owner, name.split(".")[1])
            if not stores or any(store.link.scope.name != "__init__" for store in stores):
                return False
    return True


def _calling_loop(project: Project, scope: Scope, frame: Frame, depth: int) -> Link | None:
    """The loop around the calls of a function; None where one call is in none, or is made under a condition."""
    if depth >= _MAX_CALLS:
        return None
    site = frame.site
    points = [site] if site is not None else list(callers_in(project, scope, ANY))
    found = [_loop_around(project, scope, point, depth) for point in points]
    return found[0] if found and all(loop is not None for loop in found) else None


def _loop_around(project: Project, scope: Scope, point: Point, depth: int) -> Link | None:
    child = point.link
    calls = _calls_at(project, point, scope)
    for outer in point.link.outer():
        if isinstance(outer.stmt, (forms.If, forms.Try, forms.Match)) or child.slot == "orelse":
            return None
        if isinstance(outer.stmt, (forms.For, forms.While)):
            return outer if _differs_in_nothing(project, outer, calls) else None
        child = outer
    if any(isinstance(earlier.stmt, (forms.If, forms.Return)) for earlier in point.link.block[: point.link.index]):
        return None
    caller = point.link.scope
    if caller.kind != "function" or not all(_built_of_arguments(project, caller, _given(call)) for call in calls):
        return None
    return _calling_loop(project, caller, point.frame, depth + 1)


def _calls_at(project: Project, point: Point, scope: Scope) -> list[forms.Call]:
    """The calls of a function in a statement: what they are given must stay the same.

    What stands around them, as in ``print(f"epoch {epoch}: {train()}")``, may change with each round.
    """
    sites = [site for site in point.module.calls_in(point.link) if site.link is point.link]
    meant = [site for site in sites if project.callers.may_call(site, scope)]
    return [site.expr for site in meant or sites if isinstance(site.expr, forms.Call)]


def _differs_in_nothing(project: Project, loop: Link, calls: Iterable[forms.Call]) -> bool:
    """Whether a loop counts epochs or steps, and nothing that the calls are given changes in it."""
    if isinstance(loop.stmt, forms.For) and not _counts(loop.stmt.iter) or runs_once(project.evaluator, loop):
        return False
    changed = {name.partition(".")[0] if not name.startswith("self.") else name for name in loop.changes}
    changed |= changed_by_calls(project, loop)
    for call in calls:
        for expr in _given(call):
            if isinstance(expr, forms.Name) and expr.id in changed - {"self"} or dotted(expr) in changed:
                return False
            if isinstance(expr, (forms.Lambda, forms.Comp)):
                return False
    return True


def _counts(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Call) and (dotted(expr.func) or "").rpartition(".")[2] in ("range", "trange", "count")
