"""What the calls of a loop are made on and given: the networks that its batches go into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.loops import BatchLoop
from dlcheck.model.scopes import Site, dotted
from dlcheck.model.values import Frame, Func, Point, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.project import Project

MAX_DEPTH = 3


class Use(NamedTuple):
    """A value that a call in a loop names: what is called, or an argument, in a world of the loop."""

    value: Value
    world: World
    name: str  # as it stands there
    site: Site
    is_called: bool


def uses_in(loop: BatchLoop) -> list[Use]:
    """What the calls in a loop name, and the calls in the project's functions that it calls, as it calls them."""
    return loop.project.once(("uses", loop), lambda: list(_uses_in(loop)))


def _uses_in(loop: BatchLoop) -> Iterator[Use]:
    frame = loop.project.evaluator.any_frame(loop.link.scope)
    seen: set[Frame] = {frame}
    for site in loop.module.calls_in(loop.link):
        yield from _uses(loop.project, site, Point(frame, site.link, site.inner), loop.world, 0, seen)


def _uses(project: Project, site: Site, point: Point, world: World, depth: int, seen: set[Frame]) -> Iterator[Use]:
    ev, call = project.evaluator, site.expr
    assert isinstance(call, forms.Call)
    for expr in (call.func, *(arg.value for arg in call.args)):
        name = dotted(expr)
        for value, other in ev.eval(expr, point) if name is not None else ():
            both = other.merge(world)
            if both is None or name is None:
                continue
            yield Use(value, both, name, site, expr is call.func)
            if expr is call.func and isinstance(value, Func) and depth < MAX_DEPTH:
                frame = ev.frame(value.scope, calling.arguments(call, point), point, value.self_, value.closure)
                if frame in seen:
                    continue
                seen.add(frame)
                for inner in value.scope.module.calls_by_scope.get(value.scope, ()):
                    here = Point(frame, inner.link, inner.inner)
                    yield from _uses(project, inner, here, both, depth + 1, seen)
