"""The order in which statements run: what lies inside a loop, what comes before and after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlcheck.facts import forms
from dlcheck.model.scopes import Link, Scope


def links_of(scope: Scope) -> Iterator[Link]:
    """All statements of a scope, those of its blocks included, in the order of the source."""
    yield from _all(scope.body)


def links_in(link: Link) -> Iterator[Link]:
    """The statements inside a compound statement, in the order of the source."""
    for block in link.blocks.values():
        yield from _all(block)


def _all(links: Iterable[Link]) -> Iterator[Link]:
    for link in links:
        yield link
        yield from links_in(link)


def is_inside(link: Link, outer: Link) -> bool:
    """Whether a statement is ``outer`` or lies within it."""
    return link is outer or any(around is outer for around in link.outer())


def loops_around(link: Link) -> Iterator[Link]:
    """The loops in whose body a statement lies, innermost first, within its scope."""
    child = link
    for outer in link.outer():
        if isinstance(outer.stmt, (forms.For, forms.While)) and child.slot == "body":
            yield outer
        child = outer


def conditions_between(link: Link, outer: Link) -> Iterator[Link]:
    """The compound statements between a statement and ``outer``: what decides whether a round runs it."""
    for around in link.outer():
        if around is outer:
            return
        yield around


def _may_skip(link: Link) -> bool:
    if isinstance(link.stmt, forms.Jump):
        return link.stmt.kind != "pass"
    return any(isinstance(inner.stmt, forms.Jump) and inner.stmt.kind == "continue" for inner in links_in(link))


def later_in_function(link: Link) -> Iterator[Link]:
    """The statements after one that may still run, nearest first: of its block, then of the blocks around it."""
    here: Link | None = link
    while here is not None:
        for after in here.block[here.index + 1 :]:
            yield after
            yield from links_in(after)
        here = here.parent


def earlier_in_function(link: Link) -> Iterator[Link]:
    """The statements before one, nearest first: of its block, then of the blocks around it."""
    here: Link | None = link
    while here is not None:
        yield from reversed(here.block[: here.index])
        here = here.parent


def leaves_after(link: Link, loop: Link) -> bool:
    """Whether a statement inside a loop is followed, in the same round, by what leaves that loop."""
    if not is_inside(link, loop):
        return False
    here = link
    while here is not loop:
        for after in here.block[here.index :]:
            stmt = after.stmt
            if isinstance(stmt, (forms.Return, forms.Raise)) or isinstance(stmt, forms.Jump) and stmt.kind == "break":
                return True
        if here.parent is None or isinstance(here.parent.stmt, (forms.For, forms.While)):
            return False
        here = here.parent
    return False
