"""What a finding is about, as plain data: the loader behind it, its options as far as they are known, its dataset.

Who measures a finding needs to know which loader to catch in the user's program, and how to shape a
stand-in where there is no program to run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dlcheck.model import loops
from dlcheck.model.data.sizes import sample_arrays, size_of
from dlcheck.model.loaders import Loader
from dlcheck.model.training.trainers import TrainerArguments
from dlcheck.model.values import Const

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetAlt
    from dlcheck.model.loaders import OptionAlt
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
BUILT_BY = "transformers.trainer"


def describe(fact: Any) -> dict[str, Any]:
    """The subject of what a rule was called with; empty where no loader is in sight.

    ``loader``: ``name``, ``file`` (absolute), ``line`` and ``end_line`` of the constructor's call, or ``built_by``,
    the module of a library that builds it;
    ``options``: those with one known value; ``candidates``: the known values of those with several;
    ``given``: those that are written, whatever they are; ``dataset``: the name of its class, or a
    library's path; ``streams``: whether it is iterable only; ``sample``: shape, type and bytes of each array
    of a sample that is known, the smallest where it may differ; ``epochs``: how often the program goes
    through it, where that is one number; ``epochs_free``: whether its user may ask for another.
    """
    if isinstance(fact, TrainerArguments):
        return _of_trainer(fact)
    loader = next(iter(loaders_of(fact)), None)
    return _described(loader) if loader is not None else {}


def _of_trainer(arguments: TrainerArguments) -> dict[str, Any]:
    """The loader that a trainer builds by itself: where it is built is known by the library's module only."""
    names = {name: f"dataloader_{name}" for name in OPTIONS}
    names["batch_size"] = "per_device_train_batch_size"
    options, candidates = _known({name: arguments.option(given) for name, given in names.items()})
    return {"loader": {"built_by": BUILT_BY}, "options": options, "candidates": candidates}


def _known(alternatives: Mapping[str, list[OptionAlt]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of options the one known value, and the known ones of those with several."""
    known = {name: {alt.value for alt in alts} for name, alts in alternatives.items()}
    constants = {name: sorted(_constants(values), key=repr) for name, values in known.items()}
    return (
        {name: values[0] for name, values in constants.items() if len(known[name]) == 1 and values},
        {name: values for name, values in constants.items() if len(known[name]) > 1 and values},
    )


def _described(loader: Loader) -> dict[str, Any]:
    alternatives = {name: loader.option(name) for name in OPTIONS}
    options, candidates = _known(alternatives)
    place = loader.module.source.place(*loader.module.facts.span(loader.call.at))
    return {
        "loader": {
            "name": loader.name,
            "file": os.path.abspath(loader.module.source.path),
            "line": place.line,
            "end_line": place.end_line,
            "cell": place.cell,
        },
        "options": options,
        "candidates": candidates,
        "given": sorted(name for name, alts in alternatives.items() if any(alt.given for alt in alts)),
        "dataset": _dataset(loader.datasets),
        "streams": any(alt.dataset is not None and alt.dataset.is_iterable for alt in loader.datasets),
        **_sample(loader),
        **_epochs(loader),
    }


def _sample(loader: Loader) -> dict[str, Any]:
    known = [arrays for arrays, _ in sample_arrays(loader)]
    if not known:
        return {}
    least = min(known, key=size_of)
    return {"sample": [{"shape": list(one.shape), "dtype": one.dtype, "bytes": one.bytes} for one in least]}


def _epochs(loader: Loader) -> dict[str, Any]:
    """Of the loops that train on it, each of which goes through it in the rounds of one other loop."""
    ev = loader.project.evaluator
    around = [loop.repeated_by() for loop in loader.loops if loop.trains()]
    counts = {count for links in around for link in links for count in loops.rounds(ev, link)}
    if any(count is not None and count.free for count in counts):
        counts.discard(None)  # what the user of the program may ask for instead of its default
    if len(counts) != 1 or any(len(links) != 1 for links in around):
        return {}
    count = counts.pop()
    return {"epochs": count.number, "epochs_free": count.free} if count is not None else {}


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
