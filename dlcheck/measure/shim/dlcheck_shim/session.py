"""What the shim knows in this process, and how it leaves."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, NoReturn

from . import audit, foreign
from . import spec as specs
from .hooks import Hook
from .link import Link, rank
from .worker import frames, told

_current: list[Session] = []


class Session:
    """One in each process; a child of multiprocessing has one that stays asleep until it turns out to train."""

    def __init__(self, spec: specs.Spec, role: str) -> None:
        self.spec = spec
        self.started = time.perf_counter()
        self.folder = os.getcwd()  # file names of code that was compiled with relative ones start here
        self.link = Link(spec.address, spec.token, self._nobody_listens)
        self.hook = Hook(self.failed)
        self.guard = audit.Guard(self)
        self.left = False
        self.saves = 0
        self.reached = False  # the loop has begun: the flagged loader has been iterated
        self._role = role
        self._local = threading.local()
        self._adopted = role == "program"

    # -- where we are

    @property
    def own(self) -> bool:
        """Whether this thread is about our own business: loaders that are built and iterated here are ours."""
        return getattr(self._local, "beside", 0) > 0

    @property
    def muted(self) -> bool:
        """Whether what is opened and connected to here is our own business as well, and none of the program's code."""
        return getattr(self._local, "muted", 0) > 0

    @contextmanager
    def beside(self) -> Iterator[None]:
        self._local.beside = getattr(self._local, "beside", 0) + 1
        try:
            yield
        finally:
            self._local.beside -= 1

    @contextmanager
    def muting(self) -> Iterator[None]:
        self._local.muted = getattr(self._local, "muted", 0) + 1
        try:
            yield
        finally:
            self._local.muted -= 1

    @property
    def aside(self) -> bool:
        """Whether loaders here are to be left alone: in their workers, and where we use them ourselves."""
        if self.own:
            return True
        worker = sys.modules.get("torch.utils.data._utils.worker")
        return worker is not None and getattr(worker, "_worker_info", None) is not None

    def adopt(self) -> None:
        """Speak for this process: at once in a program, in a child of one as soon as it builds loaders of its own."""
        if self.link.ours:
            return
        with self.muting():
            self.link.open()
        self.hush()
        if not self._adopted:
            self._adopted = True
            self.guard.watch()

    def hush(self) -> None:
        """Say nothing in the ranks that nobody asks."""
        self.link.quiet = rank() != 0 and not self.spec.every_rank

    # -- what is said

    def tell(self, **message: Any) -> None:
        with self.muting():
            if self.link.ours:
                self.link.send(message)

    def failed(self, what: str, error: BaseException) -> None:
        self.tell(trouble={"what": what, **told(error)})

    def raised(self, error: BaseException) -> None:
        """The program ends with an error."""
        self.tell(raised={**told(error), "frames": frames(error)})

    # -- the end

    def _nobody_listens(self) -> NoReturn:
        """A program that is fed by us is not to train on by itself; when it ended is kept for who undoes it."""
        with self.muting():
            self.guard.keeper.ends()
        os._exit(1)

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "loaders": [],
            "saves": self.saves,
            "writes": self.guard.writes,
            "denied": self.guard.denied,
            "unseen": [name for name in UNSEEN if name in sys.modules],
        }
        if self.guard.on and self.spec.site is not None:
            found["came_by"] = self.guard.came_by
        loaders = self.watched
        if loaders is not None:
            found["loaders"] = loaders.described()
            found.update(loaders.results())
        return found

    watched: Any | None = None  # the patched DataLoader's bookkeeping, once there is one

    def ended(self) -> None:
        if self.link.ours and not self.left:
            self.left = True
            self.tell(ended=self.summary())

    def refuse(self, why: str) -> NoReturn:
        """The program must not go on: it is ended, or has to do with an error where it is not ours to end."""
        if self.link.ours and not self.link.quiet:
            self.leave(why, 1)
        raise PermissionError(f"dlcheck measure: {why}")

    def leave(self, why: str, status: int = 0) -> NoReturn:
        """End the program here: no `finally:`, no atexit, nothing that saves on its way out."""
        self.left = True
        self.tell(stopped={"why": why, **self.summary()})
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the user's own stream, or none
                stream.flush()
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is not None:
            for child in multiprocessing.active_children():
                child.terminate()
        os._exit(status)


# Loaders that never come by DataLoader.__iter__: said when a program ends without having reached one.
UNSEEN = ("torchdata.stateful_dataloader", "nvidia.dali", "ffcv", "webdataset", "tensorflow", "mosaicml_streaming")


def start(role: str) -> None:
    if _current:
        return
    spec = specs.read()
    session = Session(spec, role)
    if role == "program":
        try:
            session.link.open()
        except OSError:
            # A process that outlived its measurement must not train, and save, as if it were none.
            sys.stderr.write("dlcheck: nobody measures this program any more: it is ended\n")
            os._exit(3)
        session.hush()
        atexit.register(session.ended)
        session.guard.watch()
    else:
        session.guard.watch()
    if role == "program" and spec.start_method:
        import multiprocessing

        # Not forced: a program that sets its own is measured with that.
        multiprocessing.context._default_context._default_context = multiprocessing.get_context(spec.start_method)  # type: ignore[attr-defined]
    _current.append(session)
    session.hook.after("torch.serialization", lambda module: _saving(session, module))
    if spec.audit != "off":
        foreign.watch(session)
    session.hook.after("safetensors.torch", lambda module: _safetensors(session, module))
    session.hook.after("numpy", lambda module: _arrays(session, module))
    session.hook.after("torch.utils.data.dataloader", lambda module: _loaders(session, module))


def _saving(session: Session, module: ModuleType) -> None:
    from . import saving

    saving.patch(session, module)


def _safetensors(session: Session, module: ModuleType) -> None:
    from . import saving

    saving.patch_safetensors(session, module)


def _arrays(session: Session, module: ModuleType) -> None:
    from . import saving

    saving.patch_memmap(session, module)


def _loaders(session: Session, module: ModuleType) -> None:
    from . import loaders, tensors

    torch = sys.modules["torch"]
    session.tell(torch={"version": str(getattr(torch, "__version__", "?"))})
    session.watched = loaders.Watched(session, module)
    if tensors.are_wanted(session.spec):
        session.watched.tensors = tensors.Patched(session, torch)
