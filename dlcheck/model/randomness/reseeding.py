"""Generators that a program seeds anew in each round of its epoch loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.flow import conditions_between, is_inside
from dlcheck.model.loops import BatchLoop, called_scopes, callers_in, calls_within, enclosing_loops
from dlcheck.model.randomness.generators import generator
from dlcheck.model.randomness.seeding import RESTORES, SEEDERS, Generator, is_invariant_in, seed_argument
from dlcheck.model.scopes import Link, Module, Scope, Site, last_name, target_names
from dlcheck.model.values import External, Made

if TYPE_CHECKING:
    from dlcheck.model.project import Project

_OPTIMIZERS = frozenset(
    {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "LBFGS", "Rprop", "Lion"}
)
_STARTS_ANEW = _OPTIMIZERS | {"reset_parameters", "load_state_dict", "configure_optimizers", "build_optimizer"}


class Reseed(NamedTuple):
    """A call that puts generators back to the same beginning in each round of an epoch loop.

    ``own`` is the place where a generator of the program's own was made, if it is one.
    """

    module: Module
    at: int
    link: Link
    loop: Link
    generators: frozenset[Generator]
    own: tuple[Module, int] | None = None

    @property
    def text(self) -> str:
        return self.module.line(self.at)


def reseeds(loop: BatchLoop) -> Iterator[Reseed]:
    """The seedings with a constant that each epoch runs before it goes through the batches."""
    around = loop.repeated_by() or list(_epochs_that_build(loop))
    if not around:
        return
    epochs = around[0]
    for site in filter(_is_called_like_a_seeding, _before(loop, epochs)):
        found = _constant_seed(loop.project, site, epochs)
        if found is not None and _runs_in_each_round(site, epochs) and not _begins_training(loop.project, epochs):
            generators, own = found
            yield Reseed(site.module, site.expr.at, site.link, epochs, generators, own)


def _epochs_that_build(loop: BatchLoop) -> Iterator[Link]:
    """The loops that count epochs and build the loader anew in each: the same seed gives it the same order."""
    for link in enclosing_loops(loop.project, loop.link, loop.inner, loop.world):
        if isinstance(link.stmt, forms.For) and any("epoch" in name.lower() for name in target_names(link.stmt.target)):
            yield link


def _is_called_like_a_seeding(site: Site) -> bool:
    name = last_name(site.expr.func).lower() if isinstance(site.expr, forms.Call) else ""
    return any(word in name for word in ("seed", "random", "determin", "reprod", "rng"))


def _begins_training(project: Project, epochs: Link) -> bool:
    """Whether each round begins a training of its own, or puts the generators back afterwards."""
    names = {last_name(call.func) for call in calls_within(project, epochs)}
    return bool(names & (_STARTS_ANEW | RESTORES))


def _before(loop: BatchLoop, epochs: Link) -> Iterator[Site]:
    """The calls that run before the batch loop: in the epoch loop, and in the function of the batch loop."""
    start = loop.link.stmt.at
    if epochs.scope is loop.link.scope:
        yield from (site for site in epochs.scope.module.calls_in(epochs) if site.link.stmt.at < start)
        return
    inside = [point.link for point in callers_in(loop.project, loop.link.scope, loop.world)]
    called = [link.stmt.at for link in inside if is_inside(link, epochs)]
    limit = min(called) if called else None
    for site in epochs.scope.module.calls_in(epochs):
        if limit is None or site.link.stmt.at < limit:
            yield site
    for site in loop.module.calls_by_scope.get(loop.link.scope, ()):
        if site.link.stmt.at < start:
            yield site


def _runs_in_each_round(site: Site, epochs: Link) -> bool:
    """Whether no inner loop and no condition on the epoch decides that it runs."""
    if site.inner is not None:
        return False
    for around in conditions_between(site.link, epochs):
        if isinstance(around.stmt, (forms.For, forms.While)):
            return False
        if isinstance(around.stmt, forms.If) and not is_invariant_in(epochs, around.stmt.test):
            return False
    return True


def _constant_seed(
    project: Project, site: Site, epochs: Link
) -> tuple[frozenset[Generator], tuple[Module, int] | None] | None:
    """What a call seeds with the same number in each round, itself or as a helper."""
    call = site.expr
    assert isinstance(call, forms.Call)
    point = project.point(site)
    for value in project.evaluator.values(call.func, point):
        if isinstance(value, External):
            seed = seed_argument(call)
            if seed is None or not _is_same(project, seed, site, epochs):
                continue
            generators = SEEDERS.get(library.canonical(value.path))
            if generators:
                return frozenset(generators), None
            own = generator(value.of) if isinstance(value.of, Made) else None
            if own is not None and last_name(call.func) in ("manual_seed", "seed"):
                place = own.args.point.module if own.args is not None and own.args.point is not None else None
                if place is not None and own.args is not None and own.args.call is not None:
                    return frozenset(), (place, own.args.call.at)
    for helper in called_scopes(project, site):
        seeded = _helper_seeds(project, helper, call, site, epochs)
        if seeded:
            return seeded, None
    return None


def _is_same(project: Project, seed: forms.Expr, site: Site, epochs: Link) -> bool:
    """Whether a seed is the same in each round; a parameter is what the epoch loop passes for it."""
    if not is_invariant_in(epochs, seed):
        return False
    scope = site.link.scope
    if scope is epochs.scope or not isinstance(seed, forms.Name) or seed.id not in scope.names:
        return True
    if scope.kind != "function" or all(param.name != seed.id for param in scope.function.params):
        return isinstance(seed, forms.Const)
    passed = calling.parameter_thunks(project.evaluator, seed.id, project.evaluator.any_frame(scope))
    return all(thunk.expr is None or is_invariant_in(epochs, thunk.expr) for thunk, _ in passed)


def _helper_seeds(
    project: Project, helper: Scope, call: forms.Call, site: Site, epochs: Link
) -> frozenset[Generator] | None:
    """What a helper seeds, if the seed is a constant or what this call passes, the same each time."""
    names = [param.name for param in helper.function.params]
    skip = 1 if helper.owner is not None and not helper.has_decorator("staticmethod") else 0
    given = calling.arguments(call, project.point(site))
    found: set[Generator] = set()
    for inner in helper.module.calls_by_scope.get(helper, ()):
        assert isinstance(inner.expr, forms.Call)
        seed = seed_argument(inner.expr)
        if seed is None:
            continue
        paths = [
            value.path
            for value in project.evaluator.values(inner.expr.func, project.point(inner))
            if isinstance(value, External)
        ]
        generators = next((SEEDERS[path] for path in map(library.canonical, paths) if path in SEEDERS), ())
        if not generators:
            continue
        if isinstance(seed, forms.Name) and seed.id in names:
            thunk = calling.argument(given, seed.id, names.index(seed.id) - skip)
            default = helper.function.params[names.index(seed.id)].default
            expr = thunk.expr if thunk is not None else default
            if expr is None or not _is_same(project, expr, site, epochs):
                return None
        elif not isinstance(seed, forms.Const):
            return None
        found.update(generators)
    return frozenset(found) or None
