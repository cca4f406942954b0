"""``itertools.cycle(loader)``: an iterator that keeps what it has yielded, to yield it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.loops import sources_of
from dlcheck.model.scopes import Site
from dlcheck.model.values import External, LoaderRef
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.project import Project

CYCLE = "itertools.cycle"

# What chooses a few batches, or has stored them all already: then that is what was wanted.
_CHOSEN = frozenset({"islice", "list", "filter", "reversed"})


@dataclass(eq=False)
class CycledLoader:
    """A call of ``itertools.cycle`` on a loader, or on what iterates one."""

    project: Project
    site: Site
    ref: LoaderRef
    world: World

    @property
    def call(self) -> forms.Call:
        assert isinstance(self.site.expr, forms.Call)
        return self.site.expr


def cycled_loaders(project: Project) -> Iterator[CycledLoader]:
    """Every loader of the loaded modules that is cycled, in each world in which it is."""
    ev = project.evaluator
    project.loops  # noqa: B018 -- it makes sure that the files that get loaders are read
    names = {"cycle"} | project.aliases("cycle")
    for module in project.loaded():
        if "itertools" not in module.libraries:
            continue
        for site in module.calls_to(*sorted(names)):
            call = site.expr
            assert isinstance(call, forms.Call)
            if not call.args or call.args[0].star:
                continue
            ev.fresh()
            point = project.point(site)
            if not any(isinstance(value, External) and value.path == CYCLE for value in ev.values(call.func, point)):
                continue
            first = calling.positional(calling.arguments(call, point), 0)
            for value, world in ev.force(first) if first is not None else ():
                for ref, kinds, _ in sources_of(value):
                    if not _CHOSEN.intersection(kinds):
                        yield CycledLoader(project, site, ref, world)
