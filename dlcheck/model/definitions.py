"""The expression that a name stands for, and all that a value was made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.flow import earlier_in_function, links_of
from dlcheck.model.scopes import Link, Scope, Site, children, dotted, expressions
from dlcheck.model.values import Const

if TYPE_CHECKING:
    from dlcheck.model.project import Project

MAX_HISTORY = 200


class Definition(NamedTuple):
    """An expression, and the statement in which it stands."""

    expr: forms.Expr
    link: Link


def definition(project: Project, expr: forms.Expr, link: Link) -> Definition | None:
    """What was last assigned to a name before a statement, where exactly one assignment can be meant."""
    name = dotted(expr)
    if name is None:
        return None
    for before in earlier_in_function(link):
        if name in before.changes:
            return _assigned(before, name)
    scope = link.scope
    if scope.kind == "function" and any(param.name == name for param in scope.function.params):
        return _argument(project, scope, name)
    if isinstance(expr, forms.Attr) and scope.owner is not None and name == f"{_self(scope)}.{expr.name}":
        stores = project.stores(scope.owner, expr.name)
        if len(stores) == 1 and stores[0].value is not None:
            return Definition(stores[0].value, stores[0].link)
        return None
    return _of_outer_scope(scope, name)


def resolved(project: Project, expr: forms.Expr, link: Link) -> Definition:
    """An expression, or what the name that it is stands for, however many names lie between."""
    here = Definition(expr, link)
    for _ in range(8):
        found = definition(project, here.expr, here.link)
        if found is None or found == here:
            break
        here = found
    return here


def _assigned(link: Link, name: str) -> Definition | None:
    stmt = link.stmt
    if isinstance(stmt, forms.With):
        inside = next((inner for inner in reversed(link.blocks["body"]) if name in inner.changes), None)
        return _assigned(inside, name) if inside is not None else None
    if isinstance(stmt, forms.Assign) and any(dotted(target) == name for target in stmt.targets):
        return Definition(stmt.value, link)
    if isinstance(stmt, forms.Declare) and stmt.value is not None:
        return Definition(stmt.value, link)
    return None


def _self(scope: Scope) -> str:
    params = scope.function.params
    return params[0].name if params else ""


def _argument(project: Project, scope: Scope, name: str) -> Definition | None:
    """What the one caller of a function gives for a parameter."""
    ev = project.evaluator
    thunks = [thunk for thunk, _ in calling.parameter_thunks(ev, name, ev.any_frame(scope))]
    found = {
        (thunk.expr.at, thunk.point.module.name): Definition(thunk.expr, thunk.point.link)
        for thunk in thunks
        if thunk.expr is not None and thunk.point is not None
    }
    return next(iter(found.values())) if len(found) == 1 and len(thunks) == 1 else None


def _of_outer_scope(scope: Scope, name: str) -> Definition | None:
    """A name of an enclosing function or of the module, assigned once."""
    outer = scope.parent
    while outer is not None:
        if outer.kind != "class" and name.partition(".")[0] in outer.names:
            changing = [link for link in outer.body if name in link.changes]
            return _assigned(changing[0], name) if len(changing) == 1 else None
        outer = outer.parent
    return None


# -- what a value was made of


def ingredients(project: Project, expr: forms.Expr, link: Link) -> set[str]:
    """The names and attributes in an expression, in all that was assigned to them, and in what decided it.

    They are followed backwards through the function, the enclosing scopes, the attributes of the
    object and the callers' arguments.
    """
    found: set[str] = set()
    seen: set[object] = set()
    todo: list[Definition] = [Definition(expr, link)]
    while todo and len(seen) < MAX_HISTORY:
        here = todo.pop()
        key = (here.expr.at, here.link.scope)
        if key in seen:
            continue
        seen.add(key)
        for part in _descend(here.expr):
            if isinstance(part, (forms.Name, forms.Attr)):
                found.add(part.id if isinstance(part, forms.Name) else part.name)
                todo += _sources(project, part, here.link)
            elif isinstance(part, forms.Const) and isinstance(part.value, str) and part.value.isidentifier():
                found.add(part.value)
            elif isinstance(part, forms.Call):
                found.update(arg.name for arg in part.args if arg.name)
    return found


def _descend(expr: forms.Expr) -> Iterator[forms.Expr]:
    """An expression and all in it, but for who downloads the data: that does not change what it is."""
    todo = [expr]
    while todo:
        part = todo.pop()
        yield part
        if isinstance(part, forms.Call):
            todo += [part.func, *(arg.value for arg in part.args if arg.name != "download")]
        else:
            todo.extend(children(part))


def _sources(project: Project, part: forms.Name | forms.Attr, link: Link) -> Iterator[Definition]:
    name = dotted(part)
    if name is None:
        return
    scope: Scope | None = link.scope
    if isinstance(part, forms.Attr):
        owner = link.scope.owner
        if owner is not None and name == f"{_self(link.scope)}.{part.name}":
            for store in project.stores(owner, part.name):
                yield from _expressions_of(store.link)
    while scope is not None:
        if scope.kind != "class":
            for other in links_of(scope):
                if name not in other.changes or isinstance(other.stmt, (forms.Import, forms.ImportFrom)):
                    continue
                if isinstance(other.stmt, forms.Function):
                    for inner in links_of(scope.functions[name]) if name in scope.functions else ():
                        yield from _expressions_of(inner)
                else:
                    yield from _expressions_of(other)
            if scope.kind == "function" and any(param.name == name for param in scope.function.params):
                ev = project.evaluator
                for thunk, _ in calling.parameter_thunks(ev, name, ev.any_frame(scope)):
                    if thunk.expr is not None and thunk.point is not None:
                        yield Definition(thunk.expr, thunk.point.link)
                return
            if name in scope.names:
                return
        scope = scope.parent


def _expressions_of(link: Link) -> Iterator[Definition]:
    """What stands in a statement, and the tests that decide whether it runs."""
    for here in (link, *link.outer()):
        if here is link or isinstance(here.stmt, (forms.If, forms.While, forms.For)):
            for expr in expressions(here.stmt):
                yield Definition(expr, here)


def constant(project: Project, expr: forms.Expr, link: Link) -> object:
    """The one constant that an expression is, whoever calls; ``...`` where there is none."""
    ev = project.evaluator
    values = list(ev.values(expr, project.point(Site(expr, link, None))))
    value = values[0] if len(values) == 1 else None
    return value.value if isinstance(value, Const) and value.free is None else ...
