"""Functions that run right after a module's first import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

After = Callable[[ModuleType], None]


class Hook:
    """A finder that asks the others, and lends their loader one more line."""

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self._waiting: dict[str, After] = {}
        self._busy: set[str] = set()
        self._failed = failed

    def after(self, name: str, function: After) -> None:
        module = sys.modules.get(name)
        if module is not None:
            self._run(name, function, module)
            return
        self._waiting[name] = function
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._waiting or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = self._found(name, path, target)
        finally:
            self._busy.discard(name)
        if spec is not None and spec.loader is not None:
            self._lend(name, spec.loader)
        return spec

    def _found(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                return spec
        return None

    def _lend(self, name: str, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)
            function = self._waiting.pop(name, None)
            if function is not None:
                self._run(name, function, module)

        loader.exec_module = exec_module

    def _run(self, name: str, function: After, module: ModuleType) -> None:
        try:
            function(module)
        except Exception as error:  # noqa: BLE001 -- an import of the user's must not fail for what we do after it
            self._failed(name, error)
