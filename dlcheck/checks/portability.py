"""Rules about start methods: what only works under fork."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.checks.guard_edits import guarded
from dlcheck.checks.lambda_edits import named_function
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, joint, provenance, written
from dlcheck.checks.state_edits import sendable
from dlcheck.findings import Finding
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.processes.main_only import main_only_globals
from dlcheck.model.processes.pickling import (
    Attribute,
    Obstacle,
    has_own_pickler,
    kept_arguments,
    local_class,
    obstacles,
    own_attributes,
)
from dlcheck.model.program import Script, copies_to_workers, forks, only_forks, scripts
from dlcheck.model.scopes import Module
from dlcheck.model.worlds import World

facts(Script, scripts)


@rule("DLC601")
def missing_main_guard(script: Script) -> Iterator[Finding]:
    if script.module.libraries & {"fastai"}:
        return
    for run in script.runs:
        loader = script.project.loader_of(run.use.ref)
        for workers in loader.option("num_workers") if not forks(loader) else ():
            if workers.positive and joint([run.world], [workers.world], loader.worlds()):
                yield finding(
                    "DLC601",
                    Spot(script.module, run.link.head),
                    run.link,
                    variant="linux" if only_forks(script.project) else "",
                    related=[
                        written(workers, loader)._replace(caption="with these workers"),
                        *provenance(workers.value),
                    ],
                    fix=guarded(script.module, run.link),
                    loader=loader.name,
                )
                return


@rule("DLC602")
def unpicklable_worker_argument(loader: Loader) -> Iterator[Finding]:
    if forks(loader) or has_own_pickler(loader.project):
        return
    yield from _functions(loader)
    yield from _datasets(loader)


def _functions(loader: Loader) -> Iterator[Finding]:
    ev = loader.project.evaluator
    for name in ("collate_fn", "worker_init_fn"):
        for option in loader.option(name):
            for obstacle in obstacles(ev, option.value):
                if _with_workers(loader, [option.world], [obstacle.world]):
                    yield _unpicklable(loader, written(option, loader), obstacle, f"`{name}`")
                    break


def _datasets(loader: Loader) -> Iterator[Finding]:
    given = loader.option("dataset")
    for alt in loader.held_datasets:
        if alt.dataset is not None and _with_workers(loader, [alt.world]):
            words = local_class(loader, alt.dataset)
            if words and given:
                obstacle = Obstacle(f"an object of {words}", None, 0, alt.dataset.cls.link, alt.world)
                yield _unpicklable(loader, written(given[0], loader), obstacle, "the dataset")
        for obstacle in kept_arguments(loader.project.evaluator, alt):
            if obstacle.module is not None and _with_workers(loader, [alt.world], [obstacle.world]):
                spot = Spot(obstacle.module, obstacle.at)
                yield _unpicklable(loader, spot, obstacle, "the dataset")


def _with_workers(loader: Loader, *groups: list[World]) -> OptionAlt | None:
    """The workers that a loader has in a world of each group, if it has any."""
    for workers in loader.option("num_workers"):
        if workers.positive and joint(*groups, [workers.world], loader.worlds()):
            return workers
    return None


def _unpicklable(loader: Loader, spot: Spot, obstacle: Obstacle, part: str) -> Finding:
    workers = next(option for option in loader.option("num_workers") if option.positive)
    return finding(
        "DLC602",
        spot,
        loader.project.link_at(spot.module, spot.at),
        variant="linux" if only_forks(loader.project) else "",
        related=[written(workers, loader)._replace(caption="with these workers"), *provenance(workers.value)],
        fix=named_function(obstacle, part.strip("`")),
        part=part[:1].upper() + part[1:],
        what=obstacle.what,
    )


@rule("DLC603")
def unpicklable_dataset_attribute(loader: Loader) -> Iterator[Finding]:
    if forks(loader) or has_own_pickler(loader.project):
        return
    for alt in loader.held_datasets:
        seen: set[tuple[Module, int]] = set()
        for attribute in own_attributes(alt.dataset) if alt.dataset is not None else ():
            workers = _with_workers(loader, [alt.world], [attribute.obstacle.world])
            made = _made_elsewhere(attribute)
            if workers is not None and alt.dataset is not None and not made & seen:
                seen |= made
                yield finding(
                    "DLC603",
                    Spot(attribute.module, attribute.at),
                    attribute.link,
                    variant="linux" if only_forks(loader.project) else "",
                    related=[
                        *(Spot(*place, "which is made here") for place in made),
                        written(workers, loader)._replace(caption="with these workers"),
                        *provenance(workers.value),
                    ],
                    fix=sendable(alt.dataset, attribute),
                    about={"owner": alt.dataset.name, "attribute": attribute.name},
                    attribute=attribute.name,
                    dataset=alt.dataset.name,
                    what=attribute.obstacle.what,
                )


def _made_elsewhere(attribute: Attribute) -> set[tuple[Module, int]]:
    """Where an object that the attribute is makes what cannot be pickled: several attributes may be such objects."""
    obstacle = attribute.obstacle
    if obstacle.module is None or obstacle.link is None or obstacle.link.scope is attribute.link.scope:
        return set()
    return {(obstacle.module, obstacle.at)}


@rule("DLC604")
def main_only_globals_in_workers(loader: Loader) -> Iterator[Finding]:
    if forks(loader):
        return
    for found in main_only_globals(loader):
        workers = _with_workers(loader, [found.world])
        if workers is not None:
            certain = copies_to_workers(loader)
            kind = "undefined" if found.undefined else "stale"
            yield finding(
                "DLC604",
                Spot(found.module, found.at),
                found.link,
                variant="linux" if only_forks(loader.project) else f"{kind}-certain" if certain else kind,
                related=[
                    Spot(found.module, found.set_at, "set here, in the main process only"),
                    written(workers, loader)._replace(caption="with these workers"),
                    *provenance(workers.value),
                ],
                owner=found.owner,
                name=found.name,
                before=found.before,
            )
