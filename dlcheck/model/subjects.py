"""What a finding is about, as plain data: the loader behind it, its options as far as they are known, its dataset.

Who measures a finding needs to know which loader to catch in the user's program, and how to shape a
stand-in where there is no program to run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dlcheck.model.loaders import Loader
from dlcheck.model.values import Const

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetAlt
    from dlcheck.model.project import Project

OPTIONS = (
    "batch_size",
    "shuffle",
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "drop_last",
    "multiprocessing_context",
)


def describe(fact: Any) -> dict[str, Any]:
    """The subject of what a rule was called with; empty where no loader is in sight.

    ``loader``: ``name``, ``file`` (absolute), ``line`` and ``end_line`` of the constructor's call;
    ``options``: those with one known value; ``candidates``: the known values of those with several;
    ``given``: those that are written, whatever they are; ``dataset``: the name of its class, or a
    library's path.
    """
    loader = next(iter(loaders_of(fact)), None)
    return _described(loader) if loader is not None else {}


def _described(loader: Loader) -> dict[str, Any]:
    alternatives = {name: loader.option(name) for name in OPTIONS}
    known = {name: {alt.value for alt in alts} for name, alts in alternatives.items()}
    constants = {name: sorted(_constants(values), key=repr) for name, values in known.items()}
    place = loader.module.source.place(*loader.module.facts.span(loader.call.at))
    return {
        "loader": {
            "name": loader.name,
            "file": os.path.abspath(loader.module.source.path),
            "line": place.line,
            "end_line": place.end_line,
            "cell": place.cell,
        },
        "options": {name: values[0] for name, values in constants.items() if len(known[name]) == 1 and values},
        "candidates": {name: values for name, values in constants.items() if len(known[name]) > 1 and values},
        "given": sorted(name for name, alts in alternatives.items() if any(alt.given for alt in alts)),
        "dataset": _dataset(loader.datasets),
    }


def _constants(values: Iterable[Any]) -> Iterator[Any]:
    """The constants among values that JSON can hold."""
    for value in values:
        if isinstance(value, Const) and (value.value is None or isinstance(value.value, (bool, int, float, str))):
            yield value.value


def _dataset(datasets: list[DatasetAlt]) -> str:
    names = {alt.dataset.name if alt.dataset is not None else alt.path for alt in datasets}
    return names.pop() if len(names) == 1 else ""


def loaders_of(fact: Any) -> Iterator[Loader]:
    """The loaders that a fact is about, nearest first."""
    if isinstance(fact, Loader):
        yield fact
        return
    near = getattr(fact, "loader", None)
    if isinstance(near, Loader):
        yield near
    for pair in getattr(fact, "loaders", ()):
        yield pair[0] if isinstance(pair, tuple) else pair
    project = getattr(fact, "project", None)
    if project is not None:
        yield from _found(project, fact)


def _found(project: Project, fact: Any) -> Iterator[Loader]:
    ref = getattr(fact, "ref", None)
    cls = getattr(getattr(fact, "dataset", fact), "cls", None)
    for loader in project.loaders:
        named = ref is not None and loader.ref == ref
        holds = cls is not None and any(alt.dataset and alt.dataset.cls is cls for alt in loader.held_datasets)
        copied = any(transfer.site == getattr(fact, "site", None) for transfer, _ in loader.copies())
        if named or holds or copied:
            yield loader
