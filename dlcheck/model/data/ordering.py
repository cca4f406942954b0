"""Is the order in which a dataset gives its samples one that means something?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.definitions import ingredients
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import descend, expressions, last_name

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetAlt, DatasetClass
    from dlcheck.model.loaders import Loader

_SHUFFLING = frozenset({"shuffle", "permutation", "randperm", "permuted", "shuffled", "shuffle_data", "randint"})
_STREAMING = ("iter", "stream", "webdataset", "wds", "pipe", "infinite", "mosaic", "ffcv")
_DRAWING = ("random.", "numpy.random.", "torch.rand", "torch.multinomial")


def in_order(loader: Loader) -> Iterator[DatasetAlt]:
    """The datasets whose samples come as they have them: no stream, and no samples drawn at random."""
    named: bool | None = None  # the same for all that only their names tell of
    for alt in loader.datasets:
        dataset = alt.dataset
        if alt.path == library.ITERABLE_DATASET:
            continue
        if dataset is None:
            named = _is_named_in_order(loader) if named is None else named
            if named:
                yield alt
        elif dataset.is_map_style and _heeds_index(dataset) and not _draws(dataset):
            yield alt


def _draws(dataset: DatasetClass) -> bool:
    return any(call.path.startswith(_DRAWING) for call in dataset.worker_code.calls)


def _heeds_index(dataset: DatasetClass) -> bool:
    """Whether ``__getitem__`` looks at what it is asked for: where it does not, no order of the loader's matters."""
    method = dataset.project.method(dataset.cls, "__getitem__")
    if method is None or len(method.function.params) < 2:
        return True
    index = method.function.params[1].name
    return any(
        isinstance(part, forms.Name) and part.id == index
        for link in links_of(method)
        for root in expressions(link.stmt)
        for part in descend(root)
    )


def _is_named_in_order(loader: Loader) -> bool:
    """Whether no name of what a loader's dataset is made of speaks of a stream."""
    given = calling.argument(loader.ref.args, "dataset", 0)
    if given is None or given.expr is None or given.point is None:
        return False
    words = ingredients(loader.project, given.expr, given.point.link)
    for outer in loader.link.outer():  # if isinstance(dataset, IterableDataset): ...
        if isinstance(outer.stmt, forms.If):
            words |= ingredients(loader.project, outer.stmt.test, outer)
    return not any(part in word.lower() for word in words for part in _STREAMING)


def shuffles_itself(loader: Loader) -> bool:
    """Whether the program puts the samples in a random order before the loader sees them."""
    given = calling.argument(loader.ref.args, "dataset", 0)
    if given is not None and given.expr is not None and given.point is not None:
        words = ingredients(loader.project, given.expr, given.point.link)
        if words & _SHUFFLING or {"sample", "frac"} <= words:
            return True
    scopes = {loader.link.scope}
    for alt in loader.datasets:
        scopes |= {frame.scope for frame, _ in alt.dataset.construction_code.frames} if alt.dataset else set()
    return any(
        isinstance(site.expr, forms.Call) and last_name(site.expr.func) in _SHUFFLING
        for scope in scopes
        for site in scope.module.calls_by_scope.get(scope, ())
    )
