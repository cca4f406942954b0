"""Checkpoints are counted, not written.

Once the loop has begun, what `torch.save` is given goes nowhere.  A file that is saved before it, mostly prepared data,
goes to the private folder, and is read from there when the program asks for it again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session


class Saved:
    """The files that the program believes to have written, and where they are: None is nowhere."""

    def __init__(self) -> None:
        self._files: dict[str, str | None] = {}

    def note(self, path: Any, real: str | None) -> None:
        self._files[_key(path)] = real

    def has(self, path: Any) -> bool:
        return bool(self._files) and _key(path) in self._files

    def real(self, path: Any) -> str | None:
        return self._files.get(_key(path))

    def move(self, source: Any, target: Any, keep: bool = False) -> None:
        real = self._files[_key(source)] if keep else self._files.pop(_key(source))
        self._files[_key(target)] = real

    def forget(self, path: Any) -> None:
        self._files.pop(_key(path), None)


def _key(path: Any) -> str:
    try:
        return os.path.realpath(os.fsdecode(path))
    except (TypeError, ValueError):
        return repr(path)


def _is_path(file: Any) -> bool:
    return isinstance(file, (str, bytes, os.PathLike))


def patch(session: Session, module: ModuleType) -> None:
    saved = Saved()
    save, load = module.save, module.load

    @wraps(save)
    def counted(obj: Any, f: Any, *rest: Any, **options: Any) -> Any:
        if session.aside or not session.link.ours or session.spec.audit == "off":
            return save(obj, f, *rest, **options)
        session.saves += 1
        if session.saves <= 20:
            session.tell(save={"function": "torch.save", "path": str(f) if _is_path(f) else type(f).__name__})
        if session.reached:
            if _is_path(f):
                saved.note(f, None)
            return None
        if not _is_path(f) or not session.spec.keep:
            return save(obj, f, *rest, **options)
        real = os.path.join(session.spec.keep, f"save-{os.getpid()}-{session.saves}.pt")
        with session.muting():
            save(obj, real, *rest, **options)
        saved.note(f, real)
        return None

    @wraps(load)
    def found(f: Any, *rest: Any, **options: Any) -> Any:
        if _is_path(f) and saved.has(f) and not session.aside:
            real = saved.real(f)
            if real is None:
                session.leave(f"the program loads {os.fspath(f)!s}, which was not written")
            return load(real, *rest, **options)
        return load(f, *rest, **options)

    module.__dict__.update(save=counted, load=found)
    _patch_files(saved)


def _patch_files(saved: Saved) -> None:
    """Let a program rename, copy and delete what it believes to have written."""

    def moved(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(src: Any, dst: Any, *rest: Any, **options: Any) -> Any:
            if _is_path(src) and saved.has(src):
                saved.move(src, dst)
                return None
            return function(src, dst, *rest, **options)

        return wrapper

    def removed(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(path: Any, *rest: Any, **options: Any) -> Any:
            if _is_path(path) and saved.has(path):
                saved.forget(path)  # what may be there from another run stays
                return None
            return function(path, *rest, **options)

        return wrapper

    copyfile = shutil.copyfile

    @wraps(copyfile)
    def copied(src: Any, dst: Any, *rest: Any, **options: Any) -> Any:
        if _is_path(src) and saved.has(src):
            saved.move(src, dst, keep=True)
            return dst
        return copyfile(src, dst, *rest, **options)

    def described(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(src: Any, dst: Any, *rest: Any, **options: Any) -> Any:
            if _is_path(src) and saved.has(src):
                return None
            return function(src, dst, *rest, **options)

        return wrapper

    os.__dict__.update(
        rename=moved(os.rename), replace=moved(os.replace), remove=removed(os.remove), unlink=removed(os.unlink)
    )
    shutil.__dict__.update(copyfile=copied, copymode=described(shutil.copymode), copystat=described(shutil.copystat))


def patch_safetensors(session: Session, module: ModuleType) -> None:
    """safetensors writes by itself, where no audit hook sees it."""
    for name in ("save_file", "save_model"):
        save = getattr(module, name, None)
        if save is not None:
            setattr(module, name, _not_written(session, name, save))


def _not_written(session: Session, name: str, save: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(save)
    def counted(tensors: Any, filename: Any, *rest: Any, **options: Any) -> Any:
        if session.aside or not session.link.ours or not session.reached:
            if _is_path(filename):
                session.guard.opens(filename, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            return save(tensors, filename, *rest, **options)
        session.saves += 1
        session.tell(save={"function": f"safetensors.{name}", "path": str(filename)})
        return None

    return counted


MAPPED = 64 << 20  # bytes: larger files are mapped privately rather than copied
WRITABLE = ("r+", "readwrite")


def patch_memmap(session: Session, module: ModuleType) -> None:
    """`numpy.memmap` opens for writing by itself: large files are mapped so that what is written there goes nowhere."""
    memmap: Any = module.memmap
    create, deny = memmap.__new__, session.spec.audit == "deny"

    @wraps(create)
    def mapped(
        kind: Any, filename: Any, dtype: Any = module.uint8, mode: str = "r+", *rest: Any, **options: Any
    ) -> Any:
        if mode in WRITABLE and _is_path(filename) and session.guard.holds(filename, 0 if deny else MAPPED):
            mode = "c"
        return create(kind, filename, dtype, mode, *rest, **options)

    memmap.__new__ = staticmethod(mapped)
