"""What a dataset keeps on itself, and which process has it: the main one, or the workers that got a copy."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import get_worker_info

from . import asking
from .asking import ITEMS, Inapplicable, answer, digest, line_of

PERSISTENT = "run like this the loader has no persistent workers: each epoch copies the dataset again"


class Told:
    """A ``collate_fn`` that gives, in place of a batch, what the worker's copy of an object holds."""

    def __init__(self, inner: Any, about: dict[str, Any]) -> None:
        self.inner = inner
        self.about = about

    def __call__(self, samples: Any) -> tuple[int, str]:
        info = get_worker_info()
        assert info is not None
        return info.id, held(owner_of(info.dataset, self.inner, self.about), self.about)


def held(owner: Any, about: dict[str, Any]) -> str:
    """A hash of the attributes that a finding is about."""
    return digest([getattr(owner, name, None) for name in about["attributes"]])


def owner_of(dataset: Any, collate: Any, about: dict[str, Any]) -> Any:
    """The object that the finding names: the dataset, one inside it, or what collates."""
    candidates = [*_nested(dataset), collate]
    of_class = (one for one in candidates if about["owner"] in {cls.__name__ for cls in type(one).__mro__})
    owner = next(of_class, None)
    if owner is None:
        raise Inapplicable(f"run like this the loader has no {about['owner']}")
    return owner


def _nested(dataset: Any, depth: int = 0) -> Iterator[Any]:
    """A dataset and those that it is made of."""
    yield dataset
    inner = [getattr(dataset, "dataset", None), *(getattr(dataset, "datasets", None) or ())]
    for one in inner if depth < 4 else ():
        if one is not None:
            yield from _nested(one, depth + 1)


def _about(config: dict[str, Any]) -> dict[str, Any]:
    if not config.get("attributes"):
        raise Inapplicable("it is not known which attribute it is about")
    return config


def _asked_workers(source: Any, about: dict[str, Any], **options: Any) -> Any:
    """The user's loader, whose workers tell what they hold instead of what a batch is."""
    collate = source.loader({"num_workers": 0}).collate_fn
    return source.loader({"collate_fn": Told(collate, about), "pin_memory": False, "prefetch_factor": 1, **options})


def stale_in_workers(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether persistent workers do not see what the main process changes between two epochs."""
    about, options = _about(config), source.options()
    if not (options["num_workers"] and options["persistent_workers"]):
        raise Inapplicable(PERSISTENT)
    loader = _asked_workers(source, about)
    owner = owner_of(source.dataset, loader.collate_fn.inner, about)
    before, kept = held(owner, about), dict(vars(owner))
    first = dict(itertools.islice(loader, loader.num_workers))
    try:
        how = _change(owner, about, before)
        after = held(owner, about)
        second = dict(itertools.islice(loader, loader.num_workers))
    finally:
        vars(owner).update(kept)
    stale = [worker for worker, seen in second.items() if seen != after]
    if any(second[worker] not in (before, first.get(worker)) for worker in stale):
        raise Inapplicable(f"the workers change `{about['attributes'][0]}` themselves")
    said = f"after {how}, {len(second) - len(stale)} of {len(second)} persistent workers have the new value"
    return answer(bool(stale), said, workers=len(second), stale=len(stale))


def _change(owner: Any, about: dict[str, Any], before: str) -> str:
    """Do what the program does between epochs, until the object holds something else; what was done."""
    for number in (1, 2, 3):
        if about.get("method"):
            how = _call(owner, about, number)
        else:
            name = about["attributes"][0]
            setattr(owner, name, _another(getattr(owner, name), number))
            how = f"`{name}` was set"
        if held(owner, about) != before:
            return how
    raise Inapplicable(f"{how}, and `{about['attributes'][0]}` is what it was")


def _call(owner: Any, about: dict[str, Any], number: int) -> str:
    """Call a method as the program does; in place of what is not known, with a number as an epoch has."""
    name = about["method"]
    given = [[key, number if value is None else value] for key, value in about.get("arguments", ())]
    if not given:
        needed = inspect.signature(getattr(owner, name)).parameters.values()
        given = [["", number] for one in needed if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    try:
        getattr(owner, name)(*(value for key, value in given if not key), **{key: value for key, value in given if key})
    except Exception as error:  # noqa: BLE001 -- it may want anything, and that is not known here
        raise Inapplicable(f"`{name}` cannot be called with numbers: {line_of(error)}") from None
    return f"`{name}` was called"


def _another(value: Any, number: int) -> Any:
    """Something else of the same kind, where that is simple."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + number
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value + number
    return f"{value} {number}" if isinstance(value, str) else [number]


def _seen(loader: Any) -> Iterator[str]:
    """What workers hold, batch by batch: each looked at once, and for some seconds."""
    end = time.monotonic() + asking.RACE_S
    for number, (_, state) in enumerate(itertools.islice(loader, ITEMS), 1):
        yield state
        if number >= loader.num_workers and time.monotonic() > end:
            return


def state_lost(source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Whether workers change what the dataset keeps, and the main process has it as it was."""
    about, options = _about(config), source.options()
    if not options["num_workers"]:
        raise Inapplicable("run like this the loader has no workers: its dataset keeps what it keeps")
    if about.get("kind") != "count" and options["persistent_workers"]:
        raise Inapplicable("run like this the workers are persistent: they keep it")
    loader = _asked_workers(source, about)
    owner = owner_of(source.dataset, loader.collate_fn.inner, about)
    before = held(owner, about)
    seen = list(_seen(loader))
    changed, kept = sum(state != before for state in seen), held(owner, about) != before
    name = about["attributes"][0]
    if not changed:
        raise Inapplicable(f"in {len(seen)} batches no worker changes `{name}`")
    said = f"workers have changed `{name}` at {changed} of {len(seen)} batches, the main process has "
    said += "it as well" if kept else "it as it was"
    return answer(not kept, said, changed=changed, batches=len(seen))
