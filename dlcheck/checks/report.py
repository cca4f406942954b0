"""From what a check knows to a Finding: the page's words, the place, the statement around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dlcheck import pages
from dlcheck.edits import Refused
from dlcheck.findings import Applicability, Edit, Finding, Fix, Place
from dlcheck.model.conditions import is_possible
from dlcheck.model.values import Const, Value
from dlcheck.model.worlds import World, product

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader, OptionAlt
    from dlcheck.model.scopes import Link, Module

MAX_WORLDS = 24


class Spot(NamedTuple):
    """A node of a module, with a caption where it is shown beside a finding."""

    module: Module
    at: int
    caption: str = ""

    def place(self) -> Place:
        start, end = self.module.facts.span(self.at)
        return self.module.source.place(start, end, self.caption)


def finding(
    code: str,
    spot: Spot,
    link: Link,
    *,
    variant: str = "",
    related: Iterable[Spot] = (),
    fix: Fix | Refused | None = None,
    about: Mapping[str, Any] | None = None,
    **fields: object,
) -> Finding:
    """A finding of rule ``code`` at a spot; ``link`` is the statement that holds it.

    ``fix`` may be why there is none.  ``about`` is what a measurement must know of the fault besides its
    loader, as plain data.
    """
    page = pages.load()[code]
    said = page.variant(variant)
    message, help_ = pages.words(page, variant, **fields)
    start, end = _statement(spot.module, link)
    source = spot.module.source
    first, last = source.place(start, end).line, source.place(start, end).end_line
    assert said.severity is not None
    assert said.confidence is not None
    return Finding(
        page.code,
        page.name,
        said.severity,
        said.confidence,
        spot.place(),
        message,
        help_,
        tuple(dict.fromkeys(other.place() for other in related)),
        fix if isinstance(fix, Fix) else None,
        source.text[start:end],
        (first, last),
        {name: value for name, value in (("variant", variant), ("about", dict(about or {}))) if value},
        unfixed=fix.reason if isinstance(fix, Refused) else "",
    )


def _statement(module: Module, link: Link) -> tuple[int, int]:
    """The range of a statement; of a compound one, of its head."""
    return module.facts.span(link.head)


def make_fix(
    applicability: Applicability, message: str, edits: Sequence[Edit | Refused], *, alters: bool = False
) -> Fix | Refused:
    """A fix, if every edit that it needs is possible; else why the first one is not.

    ``alters``: it changes options of a loader.
    """
    possible = [edit for edit in edits if isinstance(edit, Edit)]
    refused = next((edit for edit in edits if isinstance(edit, Refused)), None)
    return refused or Fix(applicability, message, tuple(possible), alters)


def joint(*groups: Iterable[World]) -> list[World]:
    """The worlds in which one of each group holds; empty where the groups contradict each other."""
    first, *rest = (list(group) for group in groups)
    worlds = first
    for group in rest:
        worlds = list(dict.fromkeys(product(worlds, group)))[:MAX_WORLDS]
    return [world for world in worlds if is_possible(world)]


def worlds(options: Iterable[OptionAlt]) -> list[World]:
    return [option.world for option in options]


def written(option: OptionAlt, loader: Loader) -> Spot:
    """Where an option is written, else the constructor's name.

    A dict that holds it for several loaders may be right for the others: the constructor then.
    """
    if option.module is None or loader.project.shares_option(option.module, option.at):
        return Spot(loader.module, loader.name_at)
    return Spot(option.module, option.at)


def elsewhere(option: OptionAlt, loader: Loader, caption: str) -> list[Spot]:
    """Where an option is written, if that is outside the constructor's call."""
    if option.module is None or written(option, loader).at == option.at:
        return []
    return [Spot(option.module, option.at, caption)]


def provenance(value: Value) -> list[Spot]:
    """The place that a value comes from, where that is another: a default, a constant."""
    if isinstance(value, Const) and value.origin is not None:
        return [Spot(value.origin.module, value.origin.at, value.origin.words)]
    return []
