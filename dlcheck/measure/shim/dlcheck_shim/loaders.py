"""DataLoader, watched: where each is built, with what, and who iterates it."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from .link import rank, world

if TYPE_CHECKING:
    from .feeding import Feeder
    from .session import Session
    from .tensors import Patched

# What only loaders with workers take, and what it must be where there are none.
FOR_WORKERS: dict[str, Any] = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}
ITERABLE = 1  # torch's _DatasetKind.Iterable
SITES = 100
STANDARD = os.path.dirname(os.path.realpath(os.__file__))

Iterate = Callable[[Any], Any]


class Info:
    """How one loader came to be."""

    def __init__(self, loader: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.loader = weakref.ref(loader)
        self.args = args
        self.options = options
        self.call: tuple[tuple[Any, ...], dict[str, Any]] | None = None  # of the class, which may be another's
        self.site = ("?", 0)
        self.flagged = False


class Tally:
    """The loaders of one place."""

    def __init__(self) -> None:
        self.built = 0
        self.iterated = 0
        self.flagged = False
        self.options: dict[str, Any] = {}


class Watched:
    """The patched class, and all loaders that were built since."""

    tensors: Patched | None = None

    def __init__(self, session: Session, module: ModuleType) -> None:
        self.session = session
        self.cls: Any = module.DataLoader
        self.torch = os.path.dirname(os.path.realpath(sys.modules["torch"].__file__ or "")) + os.sep
        self.tallies: dict[tuple[str, int], Tally] = {}
        self._infos: dict[int, Info] = {}
        self._calls: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._subject: Info | None = None
        self._feeder: Feeder | None = None
        self._overrides: Mapping[str, Any] | None = None
        self._begun: dict[int, Any] = {}
        self._files: dict[str, str] = {}
        code = self.cls.__init__.__code__
        self.names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount]
        self._patch()

    def _patch(self) -> None:
        cls, watched, session = self.cls, self, self.session
        initialise, iterate = cls.__init__, cls.__iter__

        # `__init__` is called with what a subclass passes on; only here is seen what the subclass itself was given.
        @wraps(initialise)
        def create(kind: Any, *args: Any, **options: Any) -> Any:
            above = super(cls, kind).__new__
            loader = above(kind) if above is object.__new__ else above(kind, *args, **options)
            if not session.aside and (args or options):
                watched._calls[id(loader)] = (args, options)
            return loader

        @wraps(initialise)
        def set_up(loader: Any, *args: Any, **options: Any) -> None:
            if session.own and watched._overrides is not None:
                args, options = changed(watched.names, args, options, watched._overrides)
            initialise(loader, *args, **options)
            if not session.aside:
                watched._built(loader, args, options, sys._getframe(1))

        @wraps(iterate)
        def begin(loader: Any) -> Any:
            if session.own:
                # A class that iterates itself while it is built: its iterator is what it feeds from.
                iterator = watched._begun[id(loader)] = iterate(loader)
                return iterator
            if session.aside or watched._in_torch(sys._getframe(1)):
                return iterate(loader)
            return watched._iterated(loader, iterate)

        cls.__new__ = staticmethod(create)
        cls.__init__ = set_up
        cls.__iter__ = begin

    # -- building

    def _built(self, loader: Any, args: tuple[Any, ...], options: dict[str, Any], frame: FrameType) -> None:
        self.session.adopt()
        info = Info(loader, args, options)
        call = self._calls.pop(id(loader), None)
        if call is not None:
            info.call = call
        self._place(info, loader, frame)
        key = id(loader)
        self._infos[key] = info
        weakref.finalize(loader, self._infos.pop, key, None).atexit = False
        if len(self.tallies) >= SITES and info.site not in self.tallies:
            return
        tally = self.tallies.setdefault(info.site, Tally())
        tally.built += 1
        tally.flagged = tally.flagged or info.flagged
        if tally.built == 1:
            tally.options = described(loader)
            self.session.tell(built={**placed(info.site), "flagged": info.flagged, **tally.options})

    def _place(self, info: Info, loader: Any, frame: FrameType | None) -> None:
        """Find the call that built a loader: past what initialises it, then out through libraries."""
        while frame is not None and _initialises(frame, loader):
            frame = frame.f_back
        site, library = None, False
        wanted = self.session.spec.site
        for _ in range(60):
            if frame is None:
                break
            file = self._file(frame)
            module = frame.f_globals.get("__name__")
            if wanted is not None and (wanted.holds(file, frame.f_lineno) or wanted.is_module(module)):
                info.flagged = wanted.dataset in (None, type(loader.dataset).__name__)
                site = (file, frame.f_lineno)
                break
            if not self._of_library(file):
                site = site or (file, frame.f_lineno)
                break
            library = True
            frame = frame.f_back
        info.site = site or ("?", 0)
        if library and not info.flagged:
            # A framework's own loader over the same data takes the place of the one that the user built.
            for other in list(self._infos.values()):
                known = other.loader()
                if other.flagged and known is not None and known.dataset is loader.dataset:
                    info.flagged, info.site = True, other.site
                    break

    def _file(self, frame: FrameType) -> str:
        name = frame.f_code.co_filename
        file = self._files.get(name)
        if file is None:
            file = name if name.startswith("<") else os.path.realpath(os.path.join(self.session.folder, name))
            self._files[name] = file
        return file

    def _of_library(self, file: str) -> bool:
        if file.startswith("<") or "site-packages" in file or "dist-packages" in file:
            return True
        return file.startswith(STANDARD + os.sep)

    def _in_torch(self, frame: FrameType | None) -> bool:
        return frame is not None and self._file(frame).startswith(self.torch)

    def build(self, loader: Any, overrides: Mapping[str, Any]) -> Any:
        """Another loader of the same class over the same dataset, with the same arguments but for some options."""
        info = self._infos.get(id(loader))
        if info is None:
            raise LookupError("a loader whose arguments are not known: it was copied, or unpickled")
        with self._overriding(overrides):
            if info.call is not None and any(
                value is loader.dataset for value in (*info.call[0], *info.call[1].values())
            ):
                return type(loader)(*info.call[0], **info.call[1])
            if type(loader) is self.cls:
                return self.cls(*info.args, **info.options)
            # The class makes its dataset by itself: calling it again would make, and measure, another.
            twin = object.__new__(type(loader))
            own = {"_iterator", "_DataLoader__initialized", "_DataLoader__multiprocessing_context"}
            twin.__dict__.update({name: value for name, value in loader.__dict__.items() if name not in own})
            twin.__dict__["_DataLoader__initialized"] = False
            self.cls.__init__(twin, *info.args, **info.options)
            return twin

    @contextmanager
    def _overriding(self, overrides: Mapping[str, Any]) -> Iterator[None]:
        with self.session.beside():
            self._overrides = overrides
            self._begun.clear()
            try:
                yield
            finally:
                self._overrides = None

    def begin(self, loader: Any, iterate: Iterate) -> Any:
        """An iterator of a loader of ours: the one that its class has begun already, or a new one."""
        begun = self._begun.pop(id(loader), None)
        if begun is not None:
            return begun
        with self.session.beside():
            return iterate(loader)

    # -- iterating

    def _iterated(self, loader: Any, iterate: Iterate) -> Any:
        self.session.adopt()
        info = self._infos.get(id(loader))
        if info is not None and info.site in self.tallies:
            self.tallies[info.site].iterated += 1
        if not self._is_subject(info, loader):
            return iterate(loader)
        assert info is not None
        if not self.session.reached:
            self._reach(info, loader)
        if self._feeder is None:
            from .feeding import Feeder

            self._feeder = Feeder(self, iterate)
        return self._feeder.epoch(loader)

    def _is_subject(self, info: Info | None, loader: Any) -> bool:
        """Whether this is the loader that is measured, or the same one built again for another epoch."""
        if info is None:
            return False
        subject = self._subject
        if subject is None:
            if self.session.spec.site is not None and not info.flagged:
                return False
            self._subject = info
            return True
        if info is subject:
            return True
        if not info.flagged and info.site != subject.site:
            return False
        # One line may build loaders for training and for validation: those are others, however alike.
        first = subject.loader()
        if first is not None and first.dataset is not loader.dataset:
            return False
        if first is None and (type(loader.sampler), loader.batch_size) != self._form:
            return False
        self._subject = info
        return True

    def _reach(self, info: Info, loader: Any) -> None:
        session = self.session
        session.hush()
        session.reached = True
        self._form = (type(loader.sampler), loader.batch_size)
        session.tell(reached={**placed(info.site), "rank": rank(), "world": world(), **described(loader)})
        if session.spec.mode == "extract":
            from .extracting import become_worker

            become_worker(self, loader)

    _form: tuple[Any, Any] = (None, None)

    # -- what is known at the end

    def described(self) -> list[dict[str, Any]]:
        return [
            {
                **placed(site),
                "built": tally.built,
                "iterated": tally.iterated,
                "flagged": tally.flagged,
                "dataset": tally.options.get("dataset"),
            }
            for site, tally in self.tallies.items()
        ]

    def results(self) -> dict[str, Any]:
        found = self._feeder.results() if self._feeder is not None else {}
        if self.tensors is not None:
            found["counts"] = self.tensors.counts
        return found


def _initialises(frame: FrameType, loader: Any) -> bool:
    """Whether a frame is a method of the loader itself, or stands in for one: its first argument is the loader."""
    names = frame.f_code.co_varnames
    if not names or not frame.f_code.co_argcount:
        return False
    return frame.f_locals.get(names[0]) is loader


def changed(
    names: tuple[str, ...], args: tuple[Any, ...], options: Mapping[str, Any], overrides: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with some of them changed, each where it stands; without workers, without what only workers need."""
    placed_args, named = list(args), dict(options)

    def put(name: str, value: Any) -> None:
        at = names.index(name) if name in names else len(placed_args)
        if at < len(placed_args):
            placed_args[at] = value
        else:
            named[name] = value

    for name, value in overrides.items():
        put(name, value)
    bound = {**dict(zip(names, placed_args)), **named}  # noqa: B905 -- not in Python 3.9
    if not bound.get("num_workers"):
        for name, neutral in FOR_WORKERS.items():
            if name in overrides or name not in bound:
                continue
            if name in named:
                del named[name]
            else:
                put(name, neutral)
    return tuple(placed_args), named


def placed(site: tuple[str, int]) -> dict[str, Any]:
    return {"file": site[0], "line": site[1]}


def described(loader: Any) -> dict[str, Any]:
    """The options that a loader ended up with."""
    batch_size = loader.batch_size
    if batch_size is None and loader.batch_sampler is not None:
        batch_size = getattr(loader.batch_sampler, "batch_size", None)
    return {
        "class": type(loader).__name__,
        "batch_size": batch_size,
        "num_workers": loader.num_workers,
        "prefetch_factor": getattr(loader, "prefetch_factor", None),
        "persistent_workers": getattr(loader, "persistent_workers", False),
        "pin_memory": loader.pin_memory,
        "drop_last": loader.drop_last,
        "start_method": start_method(loader),
        "dataset": type(loader.dataset).__name__,
        "sampler": type(loader.sampler).__name__,
        "batches": length(loader),
    }


def start_method(loader: Any) -> str | None:
    """How the loader's workers are started; asked without settling it for the program."""
    context = getattr(loader, "multiprocessing_context", None)
    if context is not None:
        found: str | None = context.get_start_method()
        return found
    import multiprocessing

    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def length(loader: Any) -> int | None:
    """Batches in an epoch; a stream is not asked, since torch then takes its answer for a promise."""
    if getattr(loader, "_dataset_kind", None) == ITERABLE:
        return None
    try:
        return len(loader)
    except Exception:  # noqa: BLE001 -- what a user's __len__ raises is the user's
        return None
