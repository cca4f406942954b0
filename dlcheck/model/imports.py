"""What an import means: a module of the project, what that offers, or a library."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.scopes import Module
from dlcheck.model.values import Alt, External, ModuleRef, Unknown, Value
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.model.project import Project

# Names that no project's own file stands for, whatever lies beside the script.
_LIBRARIES = frozenset(sys.stdlib_module_names - {"test", "code", "this"}) | {
    "torch", "torchvision", "torchaudio", "numpy", "PIL", "cv2", "tqdm", "pandas", "scipy", "sklearn",
}  # fmt: skip


class Imports:
    """The imports of a project's modules, looked up in its workspace."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._files: dict[tuple[str, str, int], str | None] = {}
        self._imported: dict[Module, set[str]] = {}

    def find_module(self, importer: Module, name: str, level: int) -> Module | None:
        """The project's module that an import in ``importer`` means."""
        file = self.find_file(importer, name, level)
        return self._project.module_at(file) if file is not None else None

    def find_file(self, importer: Module, name: str, level: int) -> str | None:
        """The project's file that an import in ``importer`` means; nothing is read."""
        key = (importer.source.file, name, level)
        if key not in self._files:
            folders = self._import_folders(importer, name, level)
            found = (file for folder in folders if (file := self._file_in(folder, name)) is not None)
            self._files[key] = next(found, None)
        return self._files[key]

    def _import_folders(self, importer: Module, name: str, level: int) -> Iterator[str]:
        folder = os.path.dirname(importer.source.file)
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            yield folder
            return
        if name.partition(".")[0] in _LIBRARIES:
            return
        root = self._project.workspace.root
        above = [folder]
        while folder != root and len(folder) > len(root) and len(above) < 12:
            folder = os.path.dirname(folder)
            above.append(folder)
        yield from importer.added_folders
        # A script finds its neighbours first; a module of a package does not see them by plain names.
        in_package = self._project.workspace.exists(os.path.join(above[0], "__init__.py"))
        yield from reversed(above) if in_package else above
        for extra in ("src", "lib"):
            yield os.path.join(root, extra)

    def _file_in(self, folder: str, name: str) -> str | None:
        base = os.path.join(folder, *name.split(".")) if name else folder
        candidates = (f"{base}.py", os.path.join(base, "__init__.py"))
        return next((file for file in candidates if self._project.workspace.exists(file)), None)

    def imported(self, stmt: forms.Import | forms.ImportFrom, name: str, module: Module) -> list[Alt]:
        """What an import statement binds to ``name``."""
        for alias in stmt.aliases:
            if alias.bound == name:
                value = self._import(alias, module) if isinstance(stmt, forms.Import) else None
                if value is None and isinstance(stmt, forms.ImportFrom):
                    return self._import_from(stmt, alias.name, module)
                return [Alt(value or Unknown(), ANY)]
        return [Alt(Unknown(), ANY)]

    def _import(self, alias: forms.Alias, module: Module) -> Value:
        wanted = alias.name if alias.bound != alias.name.partition(".")[0] else alias.bound
        found = self.find_module(module, wanted, 0)
        if found is None and "." in alias.name and wanted == alias.bound:
            # A package without __init__.py: attributes of the name lead on.
            return External(wanted)
        return ModuleRef(found) if found is not None else External(library.canonical(wanted))

    def _import_from(self, stmt: forms.ImportFrom, name: str, module: Module) -> list[Alt]:
        base = self.find_module(module, stmt.module, stmt.level)
        if base is not None and base is not module:
            return self.module_attribute(base, name)
        inner = f"{stmt.module}.{name}" if stmt.module else name
        found = self.find_module(module, inner, stmt.level)
        if found is not None:
            return [Alt(ModuleRef(found), ANY)]
        if stmt.level:
            return [Alt(Unknown(("import", module.name, stmt.at, name)), ANY)]
        return [Alt(External(library.canonical(inner)), ANY)]

    def module_attribute(self, module: Module, name: str) -> list[Alt]:
        """``module.name``: a name of the module, or a module below its package."""
        scope = module.scope
        if name in scope.names:
            return self._project.evaluator.module_name(scope, name)
        starred = self.star_import(module, name)
        if starred is not None:
            return starred
        if module.is_package:
            file = self._file_in(os.path.dirname(module.source.file), name)
            found = self._project.module_at(file) if file is not None else None
            if found is not None:
                return [Alt(ModuleRef(found), ANY)]
        return [Alt(Unknown(("name", module.name, name)), ANY)]

    def star_import(self, module: Module, name: str, seen: tuple[Module, ...] = ()) -> list[Alt] | None:
        """What a star import of ``module`` gives for ``name``."""
        if module in seen or name.startswith("_"):
            return None
        for stmt in reversed(module.stars):
            base = self.find_module(module, stmt.module, stmt.level)
            if base is None:
                torch_data = stmt.module in ("torch.utils.data", "torch.utils.data.dataloader")
                if torch_data and name in library.TORCH_DATA_NAMES:
                    return [Alt(External(library.canonical(f"torch.utils.data.{name}")), ANY)]
                continue
            if name in base.scope.names:
                return self._project.evaluator.module_name(base.scope, name)
            found = self.star_import(base, name, (*seen, module))
            if found is not None:
                return found
        return None

    def neighbours(self, module: Module) -> frozenset[Module]:
        """The modules read so far that a module imports, and those that these import."""
        return self._project.once(("neighbours", module), partial(self._find_neighbours, module))

    def _find_neighbours(self, module: Module) -> frozenset[Module]:
        seen = {module}
        todo = [module]
        while todo and len(seen) < 200:
            here = todo.pop()
            for file in self.files_of(here):
                other = self._project.modules.get(file)
                if other is not None and other not in seen:
                    seen.add(other)
                    todo.append(other)
        return frozenset(seen)

    def files_of(self, module: Module) -> set[str]:
        """The project's files that a module imports; nothing is read."""
        if module not in self._imported:
            found: set[str | None] = set()
            for stmt, _ in module.imports:
                if isinstance(stmt, forms.ImportFrom):
                    found.add(self.find_file(module, stmt.module, stmt.level))
                    prefix = f"{stmt.module}." if stmt.module else ""
                    found |= {self.find_file(module, prefix + alias.name, stmt.level) for alias in stmt.aliases}
                elif isinstance(stmt, forms.Import):
                    found |= {self.find_file(module, alias.name, 0) for alias in stmt.aliases}
            self._imported[module] = {file for file in found if file is not None}
        return self._imported[module]
