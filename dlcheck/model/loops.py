"""Loops over loaders: which loader a loop iterates, and how often that happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.flow import leaves_after, links_in
from dlcheck.model.iteration import elements
from dlcheck.model.scopes import Inner, Link, Module, Scope, Site, descend, dotted, expressions, last_name, target_names
from dlcheck.model.values import (
    Alt,
    Batch,
    Const,
    Frame,
    Func,
    Instance,
    Iterating,
    LoaderRef,
    Managed,
    Many,
    Point,
    Value,
)
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.project import Project

MAX_CHAIN = 6


@dataclass(eq=False)
class BatchLoop:
    """A loop whose rounds get batches of a loader.

    ``direct`` where the loop itself iterates the loader; else it takes what such a loop yields.
    """

    project: Project
    ref: LoaderRef
    link: Link
    inner: Inner | None
    world: World
    direct: bool
    framework: str = ""
    iterated: forms.Expr | None = None  # what stands after ``in``, or after ``yield from``

    @property
    def module(self) -> Module:
        return self.link.scope.module

    def draws_first(self) -> bool:
        """Whether it always leaves in its first round, to train on that batch or to hand it out.

        Who only looks at one batch now and then, in an evaluation, is not meant.
        """
        if not isinstance(self.link.stmt, forms.For) or self.inner is not None or not leaves_at_once(self.link):
            return False
        return isinstance(self.link.blocks["body"][-1].stmt, forms.Return) or self.trains()

    def trains(self) -> bool:
        """Whether ``.backward()`` is called in the loop, or in what the loop calls."""
        return any(last_name(call.func) == "backward" for call in calls_within(self.project, self.link))

    def feeds_training(self) -> bool:
        """Whether the loop yields its batches to functions that call ``.backward()``, also one by one with ``next``."""
        if not any(self.link in site.link.outer() for site in self.link.scope.yields):
            return False
        callers = [point.link.scope for point in callers_in(self.project, self.link.scope, self.world)]
        return any(
            last_name(call.func) == "backward"
            for caller in callers
            for link in caller.body
            for call in calls_within(self.project, link)
        )

    def repeated_by(self) -> list[Link]:
        """The loops that iterate the loader anew: around this loop, not around its constructor."""
        ev = self.project.evaluator
        around = [*enclosing_loops(self.project, self.link, self.inner, self.world)]
        built = set(loops_of_constructor(self.project, self.ref, self.world))
        return [
            link
            for link in around
            if link not in built and not self._chooses(link) and not self._is_one_pass(link) and not runs_once(ev, link)
        ]

    def _is_one_pass(self, link: Link) -> bool:
        """An endless generator over the loader of which the callers take ``len(loader)`` batches."""
        scope = link.scope
        if not isinstance(link.stmt, forms.While) or not scope.yields:
            return False
        callers = [point.link.scope for point in callers_in(self.project, scope, self.world)]
        return bool(callers) and all(self._counts_batches(caller) for caller in callers)

    def _counts_batches(self, scope: Scope) -> bool:
        """Whether a function counts in ``range(len(loader))``, and so goes through this loader once."""
        for site in scope.module.calls_by_scope.get(scope, ()):
            call = site.expr
            if isinstance(call, forms.Call) and dotted(call.func) == "range":
                counted = [arg.value for arg in call.args if isinstance(arg.value, forms.Call)]
                if any(self._is_its_length(inner, site) for inner in counted):
                    return True
        return False

    def _is_its_length(self, call: forms.Call, site: Site) -> bool:
        if dotted(call.func) != "len" or len(call.args) != 1:
            return False
        values = self.project.evaluator.values(call.args[0].value, self.project.point(site))
        return any(found is not None and found[0].args.call is self.ref.args.call for found in map(source_of, values))

    def _chooses(self, link: Link) -> bool:
        """Whether a loop goes over loaders: each of its rounds takes another one."""
        if not isinstance(link.stmt, forms.For):
            return False
        if ("in", link.scope.module.name, link.stmt.at) in self.world.choices:
            return True
        # ``for loader in [build(path) for path in paths]``: no choice among known ones, but another each time.
        names = set(target_names(link.stmt.target)) if link.scope is self.link.scope else set()
        return any(isinstance(part, forms.Name) and part.id in names for part in _parts(self.iterated))


@dataclass(eq=False)
class NextCall:
    """The first batch of a loader and no other: ``next(iter(loader))``.

    ``by_loop``: it is drawn by a loop that leaves in its first round; ``site`` is what that iterates.
    """

    project: Project
    ref: LoaderRef
    site: Site
    world: World
    framework: str
    by_loop: bool = False

    def repeated_by(self) -> list[Link]:
        ev = self.project.evaluator
        around = enclosing_loops(self.project, self.site.link, self.site.inner, self.world)
        built = set(loops_of_constructor(self.project, self.ref, self.world))
        return [
            link
            for link in around
            if link not in built and not runs_once(ev, link) and not leaves_after(self.site.link, link)
        ]


def _parts(expr: forms.Expr | None) -> Iterator[forms.Expr]:
    return descend(expr) if expr is not None else iter(())


def source_of(value: Value) -> tuple[LoaderRef, tuple[str, ...], str] | None:
    """The loader that iterating a value iterates, and through what."""
    kinds: tuple[str, ...] = ()
    framework = ""
    while True:
        if isinstance(value, LoaderRef):
            return value, kinds, framework
        if isinstance(value, Managed):
            framework, value = value.framework, value.value
        elif isinstance(value, Iterating) and value.of and value.kind not in ("items", "values"):
            kinds = (*kinds, value.kind)
            value = value.of[0]
        else:
            return None


def sources_of(value: Value) -> Iterator[tuple[LoaderRef, tuple[str, ...], str]]:
    """All loaders that iterating a value iterates: ``zip(a, b)`` has several."""
    if isinstance(value, Iterating) and value.kind in ("zip", "chain", "enumerate"):
        for part in value.of:
            for ref, kinds, framework in sources_of(part):
                yield ref, (value.kind, *kinds), framework
        return
    found = source_of(value)
    if found is not None:
        yield found


def batch_loops(project: Project) -> Iterator[BatchLoop]:
    """Every loop of the loaded modules that gets batches of a loader."""
    for module in project.loaded():
        for link in module.loops:
            if isinstance(link.stmt, forms.For):
                yield from _loops_at(project, link.stmt.iter, link, None, ("in", module.name, link.stmt.at))
        for site in module.comps:
            comp = site.expr
            assert isinstance(comp, forms.Comp)
            yield from _loops_at(
                project, comp.clauses[0].iter, site.link, site.inner, ("in", module.name, comp.clauses[0].at)
            )
        for function in module.functions:
            for site in function.yields:
                expr = site.expr
                if isinstance(expr, forms.Yield) and expr.delegates and expr.value is not None:
                    yield from _loops_at(project, expr.value, site.link, site.inner, ("in", module.name, expr.at))


def _loops_at(
    project: Project, expr: forms.Expr, link: Link, inner: Inner | None, key: tuple[str, str, int]
) -> Iterator[BatchLoop]:
    if _uninteresting(expr):
        return
    ev = project.evaluator
    ev.fresh()
    point = project.point(Site(expr, link, inner))
    for value, world in ev.eval(expr, point):
        found = list(sources_of(value))
        for ref, kinds, framework in found:
            yield BatchLoop(project, ref, link, inner, world, "iter" not in kinds, framework, expr)
        if not found:
            for batch, other in _batches(ev, elements(ev, [Alt(value, ANY)], key)):
                both = world.merge(other)
                if both is not None:
                    yield BatchLoop(project, batch.loader, link, inner, both, False, batch.managed, expr)


def _uninteresting(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Const) or isinstance(expr, forms.Call) and dotted(expr.func) == "range"


def _batches(ev: Evaluator, alts: list[Alt]) -> Iterator[tuple[Batch, World]]:
    for value, world in alts:
        if isinstance(value, Batch) and not value.part:
            yield value, world
        elif isinstance(value, Many):
            for thunk in value.items[:3]:
                for inner, other in ev.force(thunk):
                    both = world.merge(other)
                    if isinstance(inner, Batch) and not inner.part and both is not None:
                        yield inner, both


def next_calls(project: Project) -> Iterator[NextCall]:
    """Every ``next(iter(loader))``."""
    ev = project.evaluator
    project.loops  # noqa: B018 -- it makes sure that the files that draw from loaders are read
    for module in project.loaded():
        for site in module.calls_to("next", "__next__"):
            call = site.expr
            assert isinstance(call, forms.Call)
            iterated = _drawn_from(call)
            if isinstance(iterated, forms.Name):
                iterated = _made_for_one_draw(site, iterated.id)
            if isinstance(iterated, forms.Call) and last_name(iterated.func) in ("iter", "__iter__"):
                ev.fresh()
                for value, world in ev.eval(iterated, project.point(site)):
                    found = source_of(value)
                    if found is not None:
                        yield NextCall(project, found[0], site, world, found[2])


def first_rounds(project: Project) -> Iterator[NextCall]:
    """Every loop over a loader that takes its first batch, and no other."""
    for loop in project.loops:
        if loop.direct and isinstance(loop.link.stmt, forms.For) and loop.draws_first():
            site = Site(loop.link.stmt.iter, loop.link, None)
            yield NextCall(project, loop.ref, site, loop.world, loop.framework, by_loop=True)


def _made_for_one_draw(site: Site, name: str) -> forms.Expr | None:
    """``iter(loader)`` of ``it = iter(loader)``, from which a function draws once and no more."""
    scope = site.link.scope
    if scope.kind != "function" or site.inner is not None or site.link.parent is not None or name in scope.not_local:
        return None
    uses = [
        link for link in scope.body for expr in expressions(link.stmt)
        for part in descend(expr) if isinstance(part, forms.Name) and part.id == name
    ]  # fmt: skip
    changing = [link for link in scope.body if name in link.changes]
    if (
        len(changing) != 1
        or changing[0].index >= site.link.index
        or any(link not in (changing[0], site.link) for link in uses)
    ):
        return None
    stmt = changing[0].stmt
    plain = isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and dotted(stmt.targets[0]) == name
    return stmt.value if plain and isinstance(stmt, forms.Assign) else None


def _drawn_from(call: forms.Call) -> forms.Expr | None:
    """The iterator that ``next(it)``, ``it.__next__()`` or the older ``it.next()`` draws from."""
    if dotted(call.func) == "next" and call.args:
        return call.args[0].value
    if isinstance(call.func, forms.Attr) and call.func.name in ("__next__", "next") and not call.args:
        return call.func.value
    return None


# -- how often


def enclosing_loops(
    project: Project, link: Link, inner: Inner | None, world: World, depth: int = 0, seen: tuple[Scope, ...] = ()
) -> Iterator[Link]:
    """The loops that run a statement again: around it, or around a call of its function."""
    child = link
    for outer in link.outer():
        if isinstance(outer.stmt, (forms.For, forms.While)) and child.slot == "body":
            yield outer
        child = outer
    scope = link.scope
    if scope.kind != "function" or depth >= MAX_CHAIN or scope in seen:
        return
    for point in callers_in(project, scope, world):
        yield from enclosing_loops(project, point.link, point.inner, world, depth + 1, (*seen, scope))


def callers_in(project: Project, scope: Scope, world: World) -> Iterator[Point]:
    """Where a function is called from, in a world that may have chosen one of its callers."""
    key, choices = calling.caller_choices(project, scope)
    chosen = world.get(key)
    return (point for choice, _, point in choices if chosen is None or choice == chosen)


def loops_of_constructor(project: Project, ref: LoaderRef, world: World) -> Iterator[Link]:
    """The loops in whose rounds a loader is built anew."""
    frame: Frame | None = ref.point.frame
    link = ref.point.link
    while frame is not None:
        child = link
        for outer in link.outer():
            if isinstance(outer.stmt, (forms.For, forms.While)) and child.slot == "body":
                yield outer
            child = outer
        if frame.site is None:
            if frame.scope.kind == "function":
                for point in callers_in(project, frame.scope, world):
                    yield from enclosing_loops(project, point.link, point.inner, world, 1, (frame.scope,))
            return
        link, frame = frame.site.link, frame.site.frame


def runs_once(ev: Evaluator, link: Link) -> bool:
    """Whether a loop is known to run at most one round."""
    stmt = link.stmt
    if not isinstance(stmt, (forms.For, forms.While)):
        return False
    if leaves_at_once(link):
        return True
    counts = list(rounds(ev, link))
    return bool(counts) and all(count is not None and count.number <= 1 and not count.free for count in counts)


class Rounds(NamedTuple):
    """How often a loop goes round; ``free``: unless the user of the program asks for another number."""

    number: int
    free: bool


def rounds(ev: Evaluator, link: Link) -> Iterator[Rounds | None]:
    """What ``for epoch in range(number)`` may count to; None for a number that is not known."""
    stmt = link.stmt
    if not isinstance(stmt, forms.For) or not isinstance(stmt.iter, forms.Call) or len(stmt.iter.args) not in (1, 2):
        return
    if last_name(stmt.iter.func) not in ("range", "trange"):
        return
    point = Point(ev.any_frame(link.scope), link)
    ends = [list(_whole_numbers(ev.values(arg.value, point))) for arg in stmt.iter.args]
    starts = ends[0] if len(ends) == 2 else [Rounds(0, False)]
    for start in starts:
        for end in ends[-1]:
            yield Rounds(end.number - start.number, start.free or end.free) if start and end else None


def _whole_numbers(values: Iterable[Value]) -> Iterator[Rounds | None]:
    for value in values:
        if isinstance(value, Const) and isinstance(value.value, int):
            yield Rounds(value.value, value.free is not None)
        else:
            yield None


def leaves_at_once(link: Link) -> bool:
    """Whether a loop ends in its first round, whatever happens: ``for batch in loader: return batch``."""
    body = link.blocks.get("body", [])
    return bool(body) and _breaks(body[-1]) and not any(_continues(inner) for inner in links_in(link))


def _breaks(link: Link) -> bool:
    stmt = link.stmt
    return isinstance(stmt, (forms.Return, forms.Raise)) or isinstance(stmt, forms.Jump) and stmt.kind == "break"


def _continues(link: Link) -> bool:
    return isinstance(link.stmt, forms.Jump) and link.stmt.kind == "continue"


def calls_within(project: Project, link: Link, depth: int = 0, seen: set[Scope] | None = None) -> Iterator[forms.Call]:
    """The calls inside a statement, and inside the project's functions that they call."""
    seen = set() if seen is None else seen
    for site in link.scope.module.calls_in(link):
        call = site.expr
        assert isinstance(call, forms.Call)
        yield call
        if depth >= 3:
            continue
        for scope in called_scopes(project, site):
            if scope not in seen:
                seen.add(scope)
                for inner in scope.body:
                    yield from calls_within(project, inner, depth + 1, seen)


def called_scopes(project: Project, site: Site) -> Iterator[Scope]:
    """The project's functions that a call can mean; of an object that is called, its ``__call__``."""
    call = site.expr
    assert isinstance(call, forms.Call)
    if not isinstance(call.func, (forms.Name, forms.Attr)):
        return
    if isinstance(call.func, forms.Attr) and not project.gives_meaning(call.func.name):
        return  # most calls are of tensors' methods: what the tensor is need not be known for that
    for value in project.evaluator.values(call.func, project.point(site)):
        if isinstance(value, Func):
            yield value.scope
        elif isinstance(value, Instance):
            method = project.method(value.cls, "__call__")
            if method is not None:
                yield method
