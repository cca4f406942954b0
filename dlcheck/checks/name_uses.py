"""Where a function, or the code around it, mentions a name: what a fix that moves its statement has to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlcheck.facts import forms
from dlcheck.model.flow import is_inside, links_in, links_of, loops_around
from dlcheck.model.scopes import Link, Module, Scope, children, descend, expressions


def uses(link: Link, name: str) -> Iterator[tuple[forms.Name, forms.Form]]:
    """Where the statement itself mentions a name, each with the expression or statement right around it."""
    todo: list[tuple[forms.Expr, forms.Form]] = [(root, link.stmt) for root in expressions(link.stmt)]
    while todo:
        expr, around = todo.pop()
        if isinstance(expr, forms.Name) and expr.id == name:
            yield expr, around
        todo.extend((child, expr) for child in children(expr))


def imported(module: Module) -> set[str]:
    """The names that imports of a module bind, wherever they stand."""
    stmts = (stmt for stmt, _ in module.imports)
    return {
        alias.bound for stmt in stmts if isinstance(stmt, (forms.Import, forms.ImportFrom)) for alias in stmt.aliases
    }


def bound_before(loop: Link, name: str) -> bool:
    """Whether a name may have a value in front of a loop: without a round, it keeps that."""
    again = any(True for _ in loops_around(loop))
    if any(param.name == name for param in loop.scope.function.params):
        return True
    return any(
        name in link.changes and not link.blocks and not is_inside(link, loop)
        for link in links_of(loop.scope)
        if again or link.stmt.at < loop.stmt.at
    )


def lies_within(scope: Scope | None, outer: Scope) -> bool:
    while scope is not None:
        if scope is outer:
            return True
        scope = scope.parent
    return False


def is_read_before(links: Iterable[Link], loop: Link) -> bool:
    """Whether a round uses a name before the statements of the loop that would move set it."""
    links = list(links)
    names = {name for link in links for name in link.changes}
    last = max(link.index for link in links)
    before = [
        inner for other in loop.blocks["body"][:last] if other not in links for inner in (other, *links_in(other))
    ]
    own = [loop] if isinstance(loop.stmt, forms.While) else []
    if any(True for link in (*own, *before) for name in names for _ in uses(link, name)):
        return True
    return any(mentions(loop.scope, name) for name in names) and any(
        True for link in before for _ in link.scope.module.calls_in(link)
    )


def mentions(scope: Scope, name: str) -> bool:
    """Whether a function or lambda of the module means this scope's name."""
    own = (part for link in links_of(scope) for root in expressions(link.stmt) for part in descend(root))
    if any(isinstance(part, forms.Lambda) and any(_is_name(inner, name) for inner in descend(part)) for part in own):
        return True
    return any(
        name not in (other.names - other.not_local)
        for other in scope.module.functions
        if other is not scope and (scope.kind == "module" or lies_within(other, scope))
        for link in links_of(other)
        for _ in uses(link, name)
    )


def _is_name(expr: forms.Expr, name: str) -> bool:
    return isinstance(expr, forms.Name) and expr.id == name
