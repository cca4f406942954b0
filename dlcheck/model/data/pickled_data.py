"""Large data that a dataset holds when its workers are started: what spawn and forkserver copy to each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.data.collecting import collected
from dlcheck.model.data.keeping import kept_stores
from dlcheck.model.scopes import Link, Module, Scope, Store, dotted
from dlcheck.model.values import Const, External, Frame, Made, Point, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.evaluate import Evaluator

_STATE = ("__getstate__", "__reduce__", "__reduce_ex__")
_MAPS = frozenset({"numpy.memmap", "numpy.lib.format.open_memmap"})
_ARRAYS = frozenset({"numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "scipy.io.loadmat"})
_SAME_DATA = frozenset({"astype", "reshape", "transpose", "copy", "squeeze", "T", "__arith__", "view"})


class Pickled(NamedTuple):
    """Data on ``self`` that is pickled for each worker: a "memmap", an "array" or Python "objects"."""

    kind: str
    what: str
    attribute: str
    module: Module
    at: int
    link: Link
    world: World


def pickled_data(dataset: DatasetClass) -> Iterator[Pickled]:
    """The large data that every worker which is not forked gets a copy of."""
    project = dataset.project
    if any(project.method(dataset.cls, name) is not None for name in _STATE):
        return
    yield from _kept_whole(dataset)
    ev = project.evaluator
    own = {frame.scope for frame, _ in dataset.construction_code.frames}
    reads = any(library.canonical(call.path) in library.DECODERS for call in dataset.worker_code.calls)
    for store, frame in kept_stores(dataset):
        name = store.target.name
        if store.value is None or not dataset.worker_code.reads_attribute(dataset.cls, name) or _is_dropped(store):
            continue
        ev.fresh()
        for value, world in ev.eval(store.value, Point(frame, store.link)):
            kind, what = _large(ev, value)
            if kind == "array" and (reads or not _is_given(value, own)):
                continue  # a table beside the samples; or what DLC301 speaks of
            if kind:
                yield from _under_guards(ev, Pickled(kind, what, name, *_place(store), world), frame)
    for found in collected(dataset):
        if not (found.nested or found.is_object_array):
            continue  # names and paths: small beside what they name
        yield Pickled("objects", found.what, found.attribute, found.module, found.at, found.link, found.world)


def _kept_whole(dataset: DatasetClass) -> Iterator[Pickled]:
    """What DLC301 speaks of: samples read one and all by the constructor."""
    ev = dataset.project.evaluator
    tensors = {  # they travel through shared memory
        store.link
        for store, frame in kept_stores(dataset)
        if store.value is not None
        for value in ev.values(store.value, Point(frame, store.link))
        if isinstance(value, Made) and value.path.startswith("torch.")
    }
    for kept in dataset.kept_data:
        if kept.link not in tensors:
            yield Pickled(kept.kind, kept.what, "", kept.module, kept.at, kept.link, kept.world)


def _under_guards(ev: Evaluator, found: Pickled, frame: Frame) -> Iterator[Pickled]:
    for guard in ev.guards(found.link, frame):
        both = found.world.merge(guard)
        if both is not None:
            yield found._replace(world=both)


def _place(store: Store) -> tuple[Module, int, Link]:
    return store.link.scope.module, store.target.at, store.link


def _is_dropped(store: Store) -> bool:
    """Whether the constructor itself lets go of it again: ``del self.x``, ``self.x = None``."""
    link, name = store.link, dotted(store.target)
    for later in link.block[link.index + 1 :]:
        stmt = later.stmt
        if isinstance(stmt, forms.Delete) and any(dotted(target) == name for target in stmt.targets):
            return True
        if isinstance(stmt, forms.Assign) and any(dotted(target) == name for target in stmt.targets):
            return True
    return False


def _large(ev: Evaluator, value: Value) -> tuple[str, str]:
    if not isinstance(value, (Made, External)):
        return "", ""
    root, *steps = value.path.replace("[:]", "").replace("()[]", "().item").split("().")
    if any(step not in _SAME_DATA for step in steps):
        return "", ""
    if root in _MAPS:
        return "memmap" if not steps else "array", root
    if root in _ARRAYS - {"numpy.load"}:
        return "array", root
    made: Value | None = value.of if isinstance(value, External) else value
    while isinstance(made, Made) and made.path != root and made.base is not None:
        made = made.base
    if root == "numpy.load" and isinstance(made, Made) and made.args is not None:
        mode = calling.argument(made.args, "mmap_mode", 1)
        mapped = mode is not None and any(
            isinstance(alt.value, Const) and isinstance(alt.value.value, str) for alt in ev.force(mode)
        )
        return "memmap" if mapped and not steps else "array", "numpy.load"
    return "", ""


def _is_given(value: Value, own: set[Scope]) -> bool:
    """Whether the data was read by who builds the dataset, and handed to it."""
    made = value.of if isinstance(value, External) else value
    if not isinstance(made, Made):
        return False
    while isinstance(made.base, Made):
        made = made.base
    return made.args is not None and made.args.point is not None and made.args.point.link.scope not in own
