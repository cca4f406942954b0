"""Distributed samplers: where one is made for a loader, and whether anybody sets its epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.call_sites import called_name_at
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Module, Site, descend, last_name
from dlcheck.model.values import Const, Made, Point
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader, OptionAlt


@dataclass(eq=False)
class DistributedSampler:
    """``DistributedSampler(...)`` that shuffles, given to a loader."""

    loader: Loader
    made: Made
    world: World

    @property
    def module(self) -> Module:
        return self._point.module

    @property
    def link(self) -> Link:
        return self._point.link

    @property
    def call(self) -> forms.Call:
        assert self.made.args is not None
        assert self.made.args.call is not None
        return self.made.args.call

    @property
    def _point(self) -> Point:
        assert self.made.args is not None
        assert self.made.args.point is not None
        return self.made.args.point

    @property
    def name_at(self) -> int:
        return called_name_at(self.call)

    @property
    def name(self) -> str:
        """The name it is assigned to, else its class."""
        stmt = self.link.stmt
        if isinstance(stmt, forms.Assign) and stmt.value is self.call:
            return last_name(stmt.targets[0]) or last_name(self.call.func)
        return last_name(self.call.func)

    def has_set_epoch(self) -> bool:
        """Whether anything of the same program calls ``set_epoch``: on what is not asked, a hook may do it."""
        project = self.loader.project
        project.mention("set_epoch")
        near = {self.module, self.loader.module, *(loop.module for loop in self.loader.loops)}
        program = set(near)
        for module in near:
            program |= project.imports.neighbours(module)
        for module in project.loaded():
            if module not in program and project.imports.neighbours(module) & near:
                program.add(module)
                program |= project.imports.neighbours(module)
        return any(
            not self._is_another(site)
            for module in program
            for site in module.calls
            if isinstance(site.expr, forms.Call) and last_name(site.expr.func) in ("set_epoch", "set_sampler_epoch")
        )

    def _is_another(self, site: Site) -> bool:
        """Whether ``x.set_epoch()`` is called on what is certainly another sampler than this one."""
        func = site.expr.func if isinstance(site.expr, forms.Call) else None
        if not isinstance(func, forms.Attr):
            return False
        project = self.loader.project
        values = list(project.evaluator.values(func.value, project.point(site)))
        return all(
            isinstance(value, Made) and value.path == library.DISTRIBUTED_SAMPLER and value.key != self.made.key
            for value in values
        )


def distributed_samplers(loader: Loader) -> Iterator[DistributedSampler]:
    """The shuffling distributed samplers that a loader may have, also inside a batch sampler."""
    return (sampler for sampler in all_distributed_samplers(loader) if _shuffles(loader, sampler.made))


def all_distributed_samplers(loader: Loader) -> Iterator[DistributedSampler]:
    """The distributed samplers that a loader may have, shuffling or not, also inside a batch sampler."""
    ev = loader.project.evaluator
    for name in ("sampler", "batch_sampler"):
        for option in loader.option(name):
            value, world = option.value, option.world
            if isinstance(value, Made) and value.path.endswith("BatchSampler") and value.args is not None:
                inner = calling.positional(value.args, 0)
                for alt in ev.force(inner) if inner is not None else ():
                    both = world.merge(alt.world)
                    if isinstance(alt.value, Made) and both is not None and _is_distributed(alt.value):
                        yield DistributedSampler(loader, alt.value, both)
            elif isinstance(value, Made) and _is_distributed(value):
                yield DistributedSampler(loader, value, world)


def _is_distributed(made: Made) -> bool:
    return made.path == library.DISTRIBUTED_SAMPLER and made.args is not None and made.args.call is not None


def _shuffles(loader: Loader, made: Made) -> bool:
    assert made.args is not None
    thunk = calling.argument(made.args, "shuffle", 3)
    if thunk is None:
        return not made.args.spreads
    return all(isinstance(alt.value, Const) and bool(alt.value.value) for alt in loader.project.evaluator.force(thunk))


def knows_of_padding(sampler: DistributedSampler) -> bool:
    """Whether the function that makes a sampler asks how the set divides: ``if len(dataset) % ranks: ...``."""
    return any(
        isinstance(part, forms.Binary)
        and part.op == "%"
        and isinstance(part.left, forms.Call)
        and last_name(part.left.func) == "len"
        for link in links_of(sampler.link.scope)
        if isinstance(link.stmt, forms.If)
        for part in descend(link.stmt.test)
    )


def drops_last(loader: Loader) -> Iterator[OptionAlt]:
    """Where a loader, or its batch sampler, is told to drop a last batch that is not full."""
    yield from (option for option in loader.option("drop_last") if option.is_(True))
    ev = loader.project.evaluator
    for option in loader.option("batch_sampler"):
        value = option.value
        if not isinstance(value, Made) or value.path != "torch.utils.data.BatchSampler" or value.args is None:
            continue
        given = calling.argument(value.args, "drop_last", 2)
        if given is None or given.expr is None or given.point is None:
            continue
        module = given.point.module
        for alt in ev.force(given):
            both = alt.world.merge(option.world)
            if alt.value == Const(True) and both is not None:
                yield option._replace(
                    value=alt.value,
                    world=both,
                    module=module,
                    at=module.arguments.get(given.expr.at, given.expr.at),
                )
