"""Copies between host and device, and waits for the device: counted, and changed at single lines while an arm is on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any

from .spec import Site, Spec

if TYPE_CHECKING:
    from .session import Session

COPIES = ("to", "cuda")
WAITS = ("item", "tolist", "cpu", "numpy", "__float__")
SUMS = ("__add__", "__radd__", "__iadd__", "__sub__", "__rsub__", "__isub__")
KINDS = ("non_blocking", "stale_item", "detached")
FRAMES = 6


def are_wanted(spec: Spec) -> bool:
    """Whether anything is to be counted, or changed, that tensors do."""
    return spec.count or any(patch["kind"] in KINDS for patch in spec.patches)


class Patched:
    """Methods of Tensor that tell of calls from outside torch."""

    def __init__(self, session: Session, torch: Any) -> None:
        self.on = next(iter(session.spec.arms))
        self.counts: dict[str, dict[str, int]] = {}
        self._session = session
        self._device = torch.device
        self._tensor = torch.Tensor
        self._torch = os.path.dirname(torch.__file__) + os.sep
        self._main = threading.main_thread()
        self._non_blocking, self._stale, self._detached = (
            [(patch.get("arm", "B"), Site(patch)) for patch in session.spec.patches if patch["kind"] == kind]
            for kind in KINDS
        )
        self._values: dict[int, Any] = {}
        self._files: dict[str, str] = {}
        for name in COPIES:
            self._replace(torch.Tensor, name, self._copying)
        for name in WAITS:
            self._replace(torch.Tensor, name, self._waiting)
        for name in SUMS if self._detached else ():
            self._replace(torch.Tensor, name, self._adding)

    def _replace(self, cls: Any, name: str, around: Callable[..., Any]) -> None:
        method = getattr(cls, name)

        @wraps(method)
        def wrapper(tensor: Any, *args: Any, **options: Any) -> Any:
            frame = sys._getframe(1)
            if frame.f_code.co_filename.startswith(self._torch) or threading.current_thread() is not self._main:
                return method(tensor, *args, **options)
            return around(name, method, frame, tensor, args, options)

        setattr(cls, name, wrapper)

    def _copying(self, name: str, method: Any, frame: FrameType, tensor: Any, args: Any, options: Any) -> Any:
        if self._at(self._non_blocking, frame) is not None:
            flags = [at for at, arg in enumerate(args) if isinstance(arg, bool)]
            if flags:  # the first flag of every form is non_blocking
                args = (*args[: flags[0]], True, *args[flags[0] + 1 :])
            else:
                options = {**options, "non_blocking": True}
        if self._session.spec.count:
            target = self._target(name, args, options)
            if tensor.device.type == "cpu" and target not in (None, "cpu"):
                flags = [arg for arg in args if isinstance(arg, bool)]
                soon = bool(options.get("non_blocking", flags[0] if flags else False))
                self._add("h2d", tensor, non_blocking=int(soon), pinned=int(tensor.is_pinned()))
            elif tensor.device.type != "cpu" and target == "cpu":
                self._add("d2h", tensor)
        return method(tensor, *args, **options)

    def _waiting(self, name: str, method: Any, frame: FrameType, tensor: Any, args: Any, options: Any) -> Any:
        if self._session.spec.count:
            self._add(name, tensor, accelerator=int(tensor.device.type != "cpu"))
        if name in ("item", "__float__"):
            at = self._at(self._stale, frame, any_arm=True)
            if at is not None:
                arm, place = at
                if arm == self.on and place in self._values:
                    return self._values[place]
                value = self._values[place] = method(tensor, *args, **options)
                return value
        return method(tensor, *args, **options)

    def _adding(self, name: str, method: Any, frame: FrameType, tensor: Any, args: Any, options: Any) -> Any:
        # Which of the two is the total the line does not say; neither's graph is asked for.
        if self._at(self._detached, frame, frames=1) is not None:
            tensor, *args = (one.detach() if isinstance(one, self._tensor) else one for one in (tensor, *args))
        return method(tensor, *args, **options)

    def _at(
        self, patches: list[tuple[str, Site]], frame: FrameType | None, any_arm: bool = False, frames: int = FRAMES
    ) -> Any:
        """The patch whose line is being executed: by the caller, or through a library's helper."""
        for number, (arm, site) in enumerate(patches):
            if arm != self.on and not any_arm:
                continue
            caller = frame
            for _ in range(frames):
                if caller is None:
                    break
                if site.holds(self._file(caller), caller.f_lineno):
                    return arm, number
                caller = caller.f_back
        return None

    def _file(self, frame: FrameType) -> str:
        name = frame.f_code.co_filename
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = os.path.realpath(os.path.join(self._session.folder, name))
        return file

    def _target(self, name: str, args: Any, options: Any) -> str | None:
        if name == "cuda":
            return "cuda"
        device = options.get("device", args[0] if args else None)
        if isinstance(device, str):
            return device.split(":")[0]
        if isinstance(device, self._device):
            found: str = device.type
            return found
        if isinstance(device, int) and not isinstance(device, bool):
            return "cuda"
        other = getattr(device, "device", None)  # `.to(tensor)`
        return other.type if other is not None else None

    def _add(self, name: str, tensor: Any, **more: int) -> None:
        count = self.counts.setdefault(name, {"n": 0, "bytes": 0})
        count["n"] += 1
        count["bytes"] += tensor.numel() * tensor.element_size()
        for key, value in more.items():
            count[key] = count.get(key, 0) + value
