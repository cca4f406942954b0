"""What cannot be pickled, and so reaches no spawned worker: functions that no module holds, locks, streams.

Which objects those are was tried with ``pickle.dumps`` on Python 3.11; for ``torch.Generator``, which pickles but does
not arrive, with a real worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model.data.keeping import kept_stores
from dlcheck.model.flow import links_of
from dlcheck.model.program import is_main_guarded
from dlcheck.model.scopes import Link, Module, Scope, descend
from dlcheck.model.values import (
    Alt,
    Arguments,
    Bound,
    ClassRef,
    Elements,
    Func,
    Generated,
    Instance,
    LambdaFunc,
    Made,
    Many,
    Mapping,
    Point,
    Thunk,
    Value,
)
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetAlt, DatasetClass
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

# A class that says itself what is pickled.
STATE_METHODS = ("__getstate__", "__reduce__", "__reduce_ex__")

# Who imports one of these may have taught multiprocessing to pickle anything.
_PICKLERS = frozenset({"dill", "cloudpickle", "multiprocess", "loky"})

# What a library makes and pickle refuses.
OBJECTS: dict[str, str] = {
    **{
        f"threading.{name}": f"a `threading.{name}`"
        for name in (
            "Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "local", "Thread",
        )
    },
    **{f"queue.{name}": f"a `queue.{name}`" for name in ("Queue", "LifoQueue", "PriorityQueue", "SimpleQueue")},
    "concurrent.futures.ThreadPoolExecutor": "a `ThreadPoolExecutor`",
    "concurrent.futures.ProcessPoolExecutor": "a `ProcessPoolExecutor`",
    "multiprocessing.Pool": "a `multiprocessing.Pool`",
    "multiprocessing.pool.Pool": "a `multiprocessing.Pool`",
    "multiprocessing.pool.ThreadPool": "a `ThreadPool`",
    "multiprocessing.Manager": "a `multiprocessing.Manager`",
    "cv2.createCLAHE": "a `cv2.CLAHE`",
    "cv2.createBackgroundSubtractorMOG2": "a `cv2.BackgroundSubtractorMOG2`",
    "cv2.ORB_create": "a `cv2.ORB`",
    "cv2.SIFT_create": "a `cv2.SIFT`",
    "torch.Generator": "a `torch.Generator`",
    "weakref.ref": "a `weakref.ref`",
    "csv.reader": "a `csv.reader`",
    "csv.DictReader": "a `csv.DictReader`",
}  # fmt: skip

MAX_DEPTH = 4


class Obstacle(NamedTuple):
    """Something that cannot be pickled: in words, and where it is written, if that is known."""

    what: str
    module: Module | None
    at: int
    link: Link | None
    world: World


class Attribute(NamedTuple):
    """An attribute of a dataset that cannot be pickled, and the assignment that makes it so."""

    name: str
    obstacle: Obstacle
    module: Module
    at: int
    link: Link


def has_own_pickler(project: Project) -> bool:
    """Whether the project imports a library that pickles what pickle cannot."""
    return any(module.libraries & _PICKLERS for module in project.loaded())


def obstacles(
    ev: Evaluator, value: Value, depth: int = 0, holders: frozenset[Scope] = frozenset()
) -> Iterator[Obstacle]:
    """What keeps a value from being pickled, also deep inside it.

    ``holders`` are the classes of the objects that it lies in: one more of the same holds nothing new.
    """
    if isinstance(value, LambdaFunc):
        link = value.point.link
        yield Obstacle("a lambda", link.scope.module, value.form.at, link, ANY)
    elif isinstance(value, Func):
        words = _hidden(value.scope, "function")
        if words:
            yield Obstacle(words, value.scope.module, value.scope.function.name_at, value.scope.link, ANY)
    elif isinstance(value, Instance):
        words = _hidden(value.cls, "class")
        if any(ev.project.method(value.cls, name) for name in STATE_METHODS):
            return
        if words:
            yield Obstacle(f"an object of {words}", None, 0, value.cls.link, ANY)
        elif depth < MAX_DEPTH and value.args is not None and value.cls not in holders:
            for attribute in _attributes(ev.project.dataset_class(value), depth + 1, holders):
                yield attribute.obstacle
    elif isinstance(value, ClassRef):
        words = _hidden(value.scope, "class")
        if words:
            yield Obstacle(words, None, 0, value.scope.link, ANY)
    elif isinstance(value, Generated) or isinstance(value, Elements) and value.form.kind == "generator":
        yield Obstacle("a generator", None, 0, None, ANY)
    elif depth < MAX_DEPTH:
        yield from _inside(ev, value, depth, holders)


def _inside(ev: Evaluator, value: Value, depth: int, holders: frozenset[Scope]) -> Iterator[Obstacle]:
    if isinstance(value, Bound):
        yield from obstacles(ev, value.func, depth + 1, holders)
        yield from _in_arguments(ev, value.args, depth, holders)
    elif isinstance(value, Made):
        path = value.path.removesuffix("().manual_seed")  # which gives the generator back
        if path in OBJECTS:
            yield Obstacle(OBJECTS[path], None, 0, None, ANY)
        elif _keeps_functions(value.path) and value.args is not None:
            yield from _in_arguments(ev, value.args, depth, holders)
    elif isinstance(value, (Many, Mapping)):
        thunks = value.items if isinstance(value, Many) else tuple(thunk for _, thunk in value.entries)
        for thunk in thunks[:12]:
            yield from _in_alts(ev, ev.force(thunk), depth, holders)


def _keeps_functions(path: str) -> bool:
    """Transforms that hold other transforms or functions: ``Compose([...])``, ``Lambda(f)``, ``RandomApply``."""
    name = path.rpartition(".")[2]
    return (
        ".transforms." in path and name[:1].isupper() or path in ("collections.defaultdict", "albumentations.Compose")
    )


def _in_arguments(
    ev: Evaluator, args: Arguments, depth: int, holders: frozenset[Scope] = frozenset()
) -> Iterator[Obstacle]:
    given: list[Thunk] = [thunk for thunk, starred in args.positional if not starred]
    for thunk in [*given, *(thunk for _, thunk in args.keywords)]:
        yield from _in_alts(ev, ev.force(thunk), depth, holders)


def _in_alts(ev: Evaluator, alts: list[Alt], depth: int, holders: frozenset[Scope]) -> Iterator[Obstacle]:
    for alt in alts:
        for found in obstacles(ev, alt.value, depth + 1, holders):
            both = alt.world.merge(found.world)
            if both is not None:
                yield found._replace(world=both)


def _hidden(scope: Scope, kind: str) -> str:
    """Words for a function or class that no module holds under its name; "" for one that is found there."""
    outer = scope.parent
    while outer is not None and outer.kind == "class":
        outer = outer.parent
    if outer is not None and outer.kind == "function":
        return f"the {kind} `{scope.name}` of `{outer.qualified}`"
    if scope.link is not None and is_main_guarded(scope.link):
        return f"the {kind} `{scope.name}` under the main guard"
    return ""


# -- what a loader hands to its workers


def kept_arguments(ev: Evaluator, alt: DatasetAlt) -> Iterator[Obstacle]:
    """What the maker of a dataset gives it to keep, and cannot be pickled: ``transform=lambda ...``."""
    if alt.made is not None and alt.made.args is not None and alt.path.startswith("torchvision.datasets."):
        yield from _in_arguments(ev, alt.made.args, 0)
    elif alt.dataset is not None:
        for attribute in _attributes(alt.dataset):
            obstacle = attribute.obstacle
            if obstacle.module is not None and not _is_own(alt.dataset, obstacle):
                yield obstacle


def own_attributes(dataset: DatasetClass) -> Iterator[Attribute]:
    """The attributes that a dataset's own code makes and that cannot be pickled."""
    for attribute in _attributes(dataset):
        if attribute.obstacle.module is None or _is_own(dataset, attribute.obstacle):
            yield attribute


def kept_attributes(dataset: DatasetClass) -> Iterator[Attribute]:
    """All attributes of a dataset that cannot be pickled, whoever has made what they are."""
    yield from _attributes(dataset)


def _is_own(dataset: DatasetClass, obstacle: Obstacle) -> bool:
    scopes = {frame.scope for frame, _ in dataset.construction_code.frames}
    return obstacle.link is not None and obstacle.link.scope in scopes


def _attributes(dataset: DatasetClass, depth: int = 0, holders: frozenset[Scope] = frozenset()) -> Iterator[Attribute]:
    ev = dataset.project.evaluator
    if any(dataset.project.method(dataset.cls, name) for name in STATE_METHODS):
        return
    for store, frame in kept_stores(dataset):
        if store.value is None or _is_replaced(dataset, store.target.name, store.link):
            continue
        for value, world in ev.eval(store.value, Point(frame, store.link)):
            for found in obstacles(ev, value, depth, holders | {dataset.cls}):
                for guard in ev.guards(store.link, frame):
                    both = world.merge(found.world)
                    joint = both.merge(guard) if both is not None else None
                    if joint is not None:
                        link = store.link
                        yield Attribute(
                            store.target.name, found._replace(world=joint), link.scope.module, link.stmt.at, link
                        )


def _is_replaced(dataset: DatasetClass, name: str, link: Link) -> bool:
    """Whether the constructor sets the attribute again, or deletes it, after this assignment."""
    after = {id(later) for here in (link, *link.outer()) for later in here.block[here.index + 1 :]}
    for frame, _ in dataset.construction_code.frames:
        for store in frame.scope.module.stores_by_scope.get(frame.scope, ()):
            if store.target.name == name and id(store.link) in after:
                return True
    return any(
        isinstance(part, forms.Attr) and part.name == name
        for other in links_of(link.scope)
        if isinstance(other.stmt, forms.Delete)
        for target in other.stmt.targets
        for part in descend(target)
    )


def local_class(loader: Loader, dataset: DatasetClass) -> str:
    """Words for the class of a dataset that no module holds, "" where one does."""
    if any(loader.project.method(dataset.cls, name) for name in STATE_METHODS):
        return ""
    return _hidden(dataset.cls, "class")
