"""How processes share tensors: the strategy that a program sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.scopes import Link, Site, descend, last_name
from dlcheck.model.values import Const, External
from dlcheck.model.worlds import World, product

if TYPE_CHECKING:
    from dlcheck.model.project import Project

_SETTERS = frozenset({"torch.multiprocessing.set_sharing_strategy"})

# Who asks for the platform knows that others than Linux have no other strategy.
_PLATFORM = frozenset({"platform", "system", "uname", "name", "get_all_sharing_strategies"})


@dataclass(eq=False)
class SharingStrategy:
    """``torch.multiprocessing.set_sharing_strategy(name)``, and the worlds in which it is called with that name."""

    project: Project
    site: Site
    name: Const
    worlds: list[World]

    @property
    def call(self) -> forms.Call:
        assert isinstance(self.site.expr, forms.Call)
        return self.site.expr

    @property
    def depends_on_platform(self) -> bool:
        """Whether a test around it, or before it, asks which system this is."""
        return any(_asks_for_platform(link) for link in self.site.link.outer())


def _asks_for_platform(link: Link) -> bool:
    stmt = link.stmt
    if not isinstance(stmt, forms.If):
        return False
    return any(last_name(expr) in _PLATFORM for expr in descend(stmt.test))


def sharing_strategies(project: Project) -> Iterator[SharingStrategy]:
    """Every call that sets a strategy by a name that is known."""
    ev = project.evaluator
    for module in project.loaded():
        for site in module.calls_to("set_sharing_strategy"):
            call = site.expr
            assert isinstance(call, forms.Call)
            ev.fresh()
            point = project.point(site)
            if not any(isinstance(value, External) and value.path in _SETTERS for value in ev.values(call.func, point)):
                continue
            given = calling.argument(calling.arguments(call, point), "new_strategy", 0)
            guards = ev.guards(site.link, point.frame)
            for value, world in ev.force(given) if given is not None else ():
                worlds = list(product(guards, [world]))
                if isinstance(value, Const) and not value.chosen and worlds:
                    yield SharingStrategy(project, site, value, worlds)
