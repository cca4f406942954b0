"""A loader that is iterated anew inside a loop over it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model.flow import leaves_after, loops_around
from dlcheck.model.loops import BatchLoop, NextCall, enclosing_loops, runs_once, source_of
from dlcheck.model.scopes import Link, Module, Site, descend, dotted
from dlcheck.model.values import External, LoaderRef, Point
from dlcheck.model.worlds import World, product

if TYPE_CHECKING:
    from dlcheck.model.project import Project

# How it is iterated within: to its end, for a batch or two, or side by side with itself.
How = Literal["whole", "restarted", "zipped"]


class NestedIteration(NamedTuple):
    """A place inside a loop over a loader that asks the same loader for an iterator again."""

    project: Project
    ref: LoaderRef
    how: How
    module: Module
    at: int
    link: Link
    outer: BatchLoop
    world: World


class _Again(NamedTuple):
    """A place that asks a loader for an iterator: ``for x in loader``, ``iter(loader)``."""

    ref: LoaderRef
    how: How
    site: Site
    world: World


def nested_iterations(project: Project) -> Iterator[NestedIteration]:
    """Every iteration of a loader, whose workers persist, inside a loop over that very loader."""
    for nested in _nested(project):
        loader = project.loader_of(nested.ref)
        persistent = [option.world for option in loader.option("persistent_workers") if option.truthy]
        workers = [option.world for option in loader.option("num_workers") if option.positive]
        if any(True for _ in product(product(product([nested.world], persistent), workers), loader.worlds())):
            yield nested


def is_nested(call: NextCall) -> bool:
    """Whether ``next(iter(loader))`` stands inside a loop over the loader, whose workers persist."""
    if not any(option.truthy for option in call.project.loader_of(call.ref).option("persistent_workers")):
        return False
    inside = {part.at for part in descend(call.site.expr)}
    return any(nested.module is call.site.module and nested.at in inside for nested in nested_iterations(call.project))


def _nested(project: Project) -> Iterator[NestedIteration]:
    by_loader: dict[object, list[BatchLoop]] = {}
    for loop in project.loops:
        by_loader.setdefault(loop.ref.key, []).append(loop)
    for again in _asking(project):
        for outer in by_loader.get(again.ref.key, ()):
            both = outer.world.merge(again.world)
            if both is None or not _is_one_object(outer):
                continue
            if _lies_in(project, again, outer) and not runs_once(project.evaluator, outer.link):
                for world in product(_reaching(project, again.site.link), [both]):
                    yield _found(project, again, outer, world)
    yield from _zipped_with_itself(project, by_loader)


def _reaching(project: Project, link: Link) -> list[World]:
    """The worlds in which control gets to a statement, whoever calls its function."""
    ev = project.evaluator
    return ev.guards(link, ev.any_frame(link.scope))


def _found(project: Project, again: _Again, outer: BatchLoop, world: World) -> NestedIteration:
    site = again.site
    return NestedIteration(project, again.ref, again.how, site.module, site.expr.at, site.link, outer, world)


def _asking(project: Project) -> Iterator[_Again]:
    ev = project.evaluator
    for loop in project.loops:
        if loop.direct and loop.iterated is not None:
            yield _Again(loop.ref, "whole", Site(loop.iterated, loop.link, loop.inner), loop.world)
    for module in project.loaded():
        for site in module.calls_to("iter"):
            call = site.expr
            assert isinstance(call, forms.Call)
            if dotted(call.func) != "iter" or len(call.args) != 1:
                continue
            ev.fresh()
            point = project.point(site)
            if not any(value == External("builtins.iter") for value in ev.values(call.func, point)):
                continue
            for value, world in ev.eval(call.args[0].value, point):
                found = source_of(value)
                if found is not None and "iter" not in found[1]:
                    how: How = "whole" if isinstance(site.link.stmt, forms.For) else "restarted"
                    yield _Again(found[0], how, site, world)


def _lies_in(project: Project, again: _Again, outer: BatchLoop) -> bool:
    """Whether the rounds of ``outer`` get to a place, and there is another round after it."""
    site = again.site
    stmt = outer.link.stmt
    if not isinstance(stmt, forms.For) or outer.iterated is not stmt.iter or site.link is outer.link:
        return False
    if outer.link in loops_around(site.link):
        return not leaves_after(site.link, outer.link)
    around = enclosing_loops(project, site.link, site.inner, again.world)
    return site.scope is not outer.link.scope and outer.link in around


def _is_one_object(outer: BatchLoop) -> bool:
    """Whether both mean one loader: not two that one constructor call made, round by round."""
    around = set(loops_around(outer.link))
    point: Point | None = outer.ref.point
    while point is not None:
        if point.inner is not None or not set(loops_around(point.link)) <= around:
            return False
        scope = point.link.scope
        if scope.kind == "function" and scope.has_decorator("property"):
            return False  # each access builds another
        point = point.frame.site
    return True


def _zipped_with_itself(project: Project, by_loader: dict[object, list[BatchLoop]]) -> Iterator[NestedIteration]:
    for loops in by_loader.values():
        for number, loop in enumerate(loops):
            stmt = loop.link.stmt
            if not loop.direct or loop.inner is not None or not isinstance(stmt, forms.For):
                continue
            for other in loops[number + 1 :]:
                same = other.direct and other.link is loop.link and other.inner is None
                both = loop.world.merge(other.world) if same else None
                site = Site(stmt.iter, loop.link, None)
                if both is not None and _names_it_twice(stmt.iter) and _is_one_object(loop):
                    yield _found(project, _Again(loop.ref, "zipped", site, both), loop, both)
                    break


def _names_it_twice(expr: forms.Expr) -> bool:
    """``zip(loader, loader)``, also inside ``enumerate`` or a progress bar: one name, two places."""
    while isinstance(expr, forms.Call) and dotted(expr.func) != "zip" and expr.args:
        expr = expr.args[0].value
    if not isinstance(expr, forms.Call) or dotted(expr.func) != "zip":
        return False
    names = [dotted(arg.value) for arg in expr.args if dotted(arg.value) is not None]
    return len(set(names)) < len(names)
