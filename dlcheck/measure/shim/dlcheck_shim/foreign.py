"""Libraries that open files in C, where no audit hook sees it: the common ones of them are made to say so."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session

ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
# By module: what writes, and where among its arguments the path is.
WRITERS: dict[str, tuple[tuple[str, int, str], ...]] = {
    "cv2": (("imwrite", 0, "filename"),),
    "pyarrow.parquet": (("write_table", 1, "where"),),
    "safetensors.numpy": (("save_file", 1, "filename"),),
}
# Of h5py, whose mode says it.
MODES = {
    "w": ANEW,
    "w-": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "x": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "a": os.O_RDWR | os.O_CREAT,
    "r+": os.O_RDWR,
}


def watch(session: Session) -> None:
    for name in WRITERS:
        session.hook.after(name, partial(_announced, session, name))
    session.hook.after("h5py", lambda module: _files_of_hdf5(session, module))


def _announced(session: Session, name: str, module: ModuleType) -> None:
    for function, at, keyword in WRITERS[name]:
        write = getattr(module, function, None)
        if write is not None:
            setattr(module, function, _announcing(session, write, at, keyword))


def _announcing(session: Session, write: Callable[..., Any], at: int, keyword: str) -> Callable[..., Any]:
    @wraps(write)
    def announced(*args: Any, **options: Any) -> Any:
        path = args[at] if at < len(args) else options.get(keyword)
        if isinstance(path, (str, bytes, os.PathLike)):
            session.guard.opens(path, ANEW)
        return write(*args, **options)

    return announced


def _files_of_hdf5(session: Session, module: ModuleType) -> None:
    kind: Any = module.File
    initialise = kind.__init__

    @wraps(initialise)
    def opened(file: Any, name: Any, mode: Any = "r", *rest: Any, **options: Any) -> None:
        if mode in MODES and isinstance(name, (str, bytes, os.PathLike)) and options.get("driver") != "core":
            session.guard.opens(name, MODES[mode])
        initialise(file, name, mode, *rest, **options)

    kind.__init__ = opened
