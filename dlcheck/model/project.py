"""All modules of a project, linked: imports, classes, callers, command-line options."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dlcheck.facts import Unreadable, extract, forms
from dlcheck.model import calling, library
from dlcheck.model.data.stored import Samples, sample_makers
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.evaluate import Evaluator
from dlcheck.model.frameworks import mark_managed
from dlcheck.model.index import Index, is_super
from dlcheck.model.loaders import Loader, built_loaders, is_fallback, loader_calls
from dlcheck.model.loops import BatchLoop, NextCall, batch_loops, called_scopes, next_calls
from dlcheck.model.scopes import Link, Module, Scope, Site, Store, descend, dotted, last_name
from dlcheck.model.transfers import Transfer, transfers
from dlcheck.model.values import (
    Alt,
    Arguments,
    Batch,
    ClassRef,
    External,
    Func,
    Instance,
    LoaderRef,
    Many,
    ModuleRef,
    Point,
    Thunk,
    Unknown,
    Value,
)
from dlcheck.model.worlds import ANY, World
from dlcheck.skim import Skim
from dlcheck.targets import Targets

if TYPE_CHECKING:
    from dlcheck.facts import ModuleFacts
    from dlcheck.files import Workspace
    from dlcheck.model.workers import WorkerCode
    from dlcheck.source import Source

Answer = TypeVar("Answer")

MAX_EXTRA_MODULES = 150
MAX_CALLING_FILES = 12  # read in search of a function's callers
MAX_MODULE_BYTES = 1_000_000

# Names that no project's own file stands for, whatever lies beside the script.
_LIBRARIES = frozenset(sys.stdlib_module_names - {"test", "code", "this"}) | {
    "torch", "torchvision", "torchaudio", "numpy", "PIL", "cv2", "tqdm", "pandas", "scipy", "sklearn",
}  # fmt: skip


def _passes_arguments_on(decorator: Scope) -> bool:
    """Whether all that a decorator's inner functions call with stars gets the caller's ``*args, **kwargs``."""
    inner = list(decorator.functions.values())
    inner += [deeper for function in inner for deeper in function.functions.values()]
    starred = [
        site.expr
        for function in inner
        for site in function.module.calls_by_scope.get(function, ())
        if isinstance(site.expr, forms.Call) and any(arg.star for arg in site.expr.args)
    ]
    return all(any(arg.star == "*" for arg in call.args) for call in starred)


def _is_test(module: Module) -> bool:
    """Whether a module is a test, by its name or folder."""
    *folders, name = module.name.split(".")
    return (
        name.startswith("test_")
        or name.endswith("_test")
        or name == "conftest"
        or not {"test", "tests"}.isdisjoint(folders)
    )


def _is_given(site: Site, loaders: Collection[str]) -> bool:
    """Whether a call is given one of these loaders, or something that is called one."""
    call = site.expr
    given = [arg.value for arg in call.args] if isinstance(call, forms.Call) else []
    return any(dotted(value) in loaders or "loader" in last_name(value).lower() for value in given)


def _may_get_a_loader(scope: Scope) -> bool:
    """Whether a function goes over a parameter of its own, or it, its class or a parameter is called after a loader."""
    params = {param.name for param in scope.function.params}
    names = [scope.name, scope.owner.name if scope.owner is not None else "", *params]
    return any("loader" in name.lower() for name in names) or any(
        isinstance(part, forms.Name) and part.id in params
        for link in scope.module.loops
        if link.scope is scope and isinstance(link.stmt, forms.For)
        for part in descend(link.stmt.iter)
    )


def _offered_by(site: Site) -> set[str]:
    """The module-level names through which others get at what is built at a site."""
    scope, link = site.link.scope, site.link
    while scope.parent is not None and scope.parent.kind != "module":
        scope = scope.parent
    if scope.kind != "module":
        return {scope.name}
    return {name for name in link.changes if "." not in name}


class Project:
    """The modules of a project and what follows from them.

    ``named`` are the modules that analysis begins with; others are read on demand from the
    workspace, where a name leads to them.  Findings are asked for in all of ``asked``, where that is given,
    else in the named ones.  ``parse`` gives their facts, ``link`` the modules of facts; ``tick`` is
    called now and then, and may raise to end it all.
    """

    def __init__(
        self,
        workspace: Workspace,
        named: Sequence[tuple[Source, ModuleFacts]],
        targets: Targets,
        rule_options: Mapping[str, Mapping[str, Any]] | None = None,
        parse: Callable[[Source], ModuleFacts] = extract,
        tick: Callable[[], None] | None = None,
        link: Callable[[str, Source, ModuleFacts, bool, bool], Module] = Module,
        asked: Collection[str] | None = None,
    ) -> None:
        self.workspace = workspace
        self._asked = frozenset(source.file for source, _ in named) if asked is None else asked
        self._parse = parse
        self._link = link
        self.targets = targets
        self.rule_options = rule_options or {}
        self.modules: dict[str, Module | None] = {}
        self._index = Index()
        self._searched: set[object] = set()
        self._extra = 0
        self._import_files: dict[tuple[str, str, int], str | None] = {}
        self._neighbour_files: dict[Module, set[str]] = {}
        self._callers: dict[Scope, list[tuple[Arguments, Point]]] = {}
        self._lineages: dict[Scope, list[Scope]] = {}
        self._externals: dict[Scope, list[str]] = {}
        self._stores: dict[Scope, dict[str, list[Store]]] = {}
        self._hidden: dict[Scope, bool] = {}
        self._datasets: dict[tuple[Scope, object], DatasetClass] = {}
        self._methods: dict[tuple[Scope, str], Scope | None] = {}
        self.worker_codes: dict[tuple[Value, tuple[str, ...]], WorkerCode] = {}
        self.walked_objects: dict[tuple[Scope, tuple[str, ...]], set[Value]] = {}
        self._meanings: dict[tuple[int, str], bool] = {}  # with the number of modules that they rest on
        self._answers: dict[Hashable, tuple[int, object]] = {}  # with the number of modules that they rest on
        self.evaluator = Evaluator(self, tick)
        for source, facts in named:
            self._add(source.file, source, facts, named=True)

    def forget(self) -> None:
        """Let go of all that was found out: it knows of itself, and would lie in memory until garbage is looked for."""
        for held in (self.evaluator, self):
            vars(held).clear()

    # -- modules

    @property
    def named_modules(self) -> list[Module]:
        return [module for module in self.modules.values() if module is not None and module.named]

    def is_asked(self, module: Module) -> bool:
        """Whether findings in a module are of interest."""
        return module.source.file in self._asked

    def loaded(self) -> list[Module]:
        return [module for module in self.modules.values() if module is not None]

    def _add(self, file: str, source: Source, facts: ModuleFacts, named: bool) -> Module:
        is_package = os.path.basename(file) == "__init__.py"
        module = self._link(self._module_name(file), source, facts, named, is_package)
        self.modules[file] = module
        self._index.add(module)
        return module

    def _module_name(self, file: str) -> str:
        relative = os.path.relpath(file, self.workspace.root).removesuffix(".py")
        parts = [part for part in relative.split(os.sep) if part not in ("..", ".")]
        if parts and parts[-1] == "__init__" and len(parts) > 1:
            parts.pop()
        return ".".join(parts)

    def module_at(self, file: str) -> Module | None:
        """The module of a file, read now if it was not yet; None where that is not possible."""
        if file in self.modules:
            return self.modules[file]
        self.modules[file] = None
        if self._extra >= MAX_EXTRA_MODULES:
            return None
        data = self.workspace.read(file)
        source = self.workspace.source(file) if data is not None and len(data) <= MAX_MODULE_BYTES else None
        if source is None:
            return None
        self._extra += 1
        try:
            facts = self._parse(source)
        except Unreadable:
            return None
        return self._add(file, source, facts, named=False)

    # -- imports

    def find_module(self, importer: Module, name: str, level: int) -> Module | None:
        """The project's module that an import in ``importer`` means."""
        file = self.find_file(importer, name, level)
        return self.module_at(file) if file is not None else None

    def find_file(self, importer: Module, name: str, level: int) -> str | None:
        """The project's file that an import in ``importer`` means; nothing is read."""
        key = (importer.source.file, name, level)
        if key not in self._import_files:
            folders = self._import_folders(importer, name, level)
            found = (file for folder in folders if (file := self._file_in(folder, name)) is not None)
            self._import_files[key] = next(found, None)
        return self._import_files[key]

    def _import_folders(self, importer: Module, name: str, level: int) -> Iterator[str]:
        folder = os.path.dirname(importer.source.file)
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            yield folder
            return
        if name.partition(".")[0] in _LIBRARIES:
            return
        root = self.workspace.root
        above = [folder]
        while folder != root and len(folder) > len(root) and len(above) < 12:
            folder = os.path.dirname(folder)
            above.append(folder)
        yield from importer.added_folders
        # A script finds its neighbours first; a module of a package does not see them by plain names.
        in_package = self.workspace.exists(os.path.join(above[0], "__init__.py"))
        yield from reversed(above) if in_package else above
        for extra in ("src", "lib"):
            yield os.path.join(root, extra)

    def _file_in(self, folder: str, name: str) -> str | None:
        base = os.path.join(folder, *name.split(".")) if name else folder
        candidates = (f"{base}.py", os.path.join(base, "__init__.py"))
        return next((file for file in candidates if self.workspace.exists(file)), None)

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
            return self.evaluator.module_name(scope, name)
        starred = self.star_import(module, name)
        if starred is not None:
            return starred
        if module.is_package:
            file = self._file_in(os.path.dirname(module.source.file), name)
            found = self.module_at(file) if file is not None else None
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
                return self.evaluator.module_name(base.scope, name)
            found = self.star_import(base, name, (*seen, module))
            if found is not None:
                return found
        return None

    # -- classes

    def lineage(self, cls: Scope) -> list[Scope]:
        """A class and its bases within the project, nearest first."""
        if cls not in self._lineages:
            self._lineages[cls] = [cls]
            self._externals[cls] = []
            self._lineages[cls], self._externals[cls] = self._ancestry(cls)
        return self._lineages[cls]

    def _ancestry(self, cls: Scope) -> tuple[list[Scope], list[str]]:
        scopes, externals = [cls], []
        node = cls.node
        assert isinstance(node, forms.Class)
        assert cls.link is not None
        frame = self.evaluator.any_frame(cls.parent or cls)
        for base in node.bases:
            if base.name is not None:
                continue
            for value in self.evaluator.values(base.value, Point(frame, cls.link)):
                if isinstance(value, ClassRef) and value.scope is not cls:
                    scopes += [scope for scope in self.lineage(value.scope) if scope not in scopes]
                    externals += self.external_bases(value.scope)
                elif isinstance(value, External):
                    externals.append(value.path)
                elif isinstance(value, Unknown):
                    externals.append("?")
            if isinstance(base.value, forms.Sub):  # Dataset[T]
                for value in self.evaluator.values(base.value.value, Point(frame, cls.link)):
                    if isinstance(value, External):
                        externals.append(value.path)
                    elif isinstance(value, ClassRef) and value.scope is not cls:
                        scopes += [scope for scope in self.lineage(value.scope) if scope not in scopes]
                        externals += self.external_bases(value.scope)
        return scopes, list(dict.fromkeys(externals))

    def external_bases(self, cls: Scope) -> list[str]:
        """The library classes that a class descends from; "?" for one that could not be resolved."""
        self.lineage(cls)
        return self._externals[cls]

    def method(self, cls: Scope, name: str) -> Scope | None:
        """The method ``name`` of a class, from itself or its bases in the project."""
        key = (cls, name)
        if key not in self._methods:
            self._methods[key] = next(
                (base.functions[name] for base in self.lineage(cls) if name in base.functions), None
            )
        return self._methods[key]

    def subclasses(self, cls: Scope) -> list[Scope]:
        """The loaded classes that descend from ``cls``."""
        names = {cls.name} | self.aliases(cls.name)
        named = dict.fromkeys(other for name in sorted(names) for other in self._index.get("by_base", name))
        found = [other for other in named if other is not cls and cls in self.lineage(other)]
        return found + [deeper for direct in found if direct.name not in names for deeper in self.subclasses(direct)]

    def is_loader_class(self, cls: Scope) -> bool:
        return any(library.loader_class(path) for path in self.external_bases(cls))

    def stores(self, cls: Scope, name: str) -> list[Store]:
        """The assignments ``self.name = ...`` in the methods of a class and of its bases.

        The nearest class that assigns decides.
        """
        for base in self.lineage(cls):
            found = self._own_stores(base).get(name)
            if found:
                return found
        return []

    def _own_stores(self, cls: Scope) -> dict[str, list[Store]]:
        if cls not in self._stores:
            by_name: dict[str, list[Store]] = defaultdict(list)
            for store in cls.module.stores_by_owner.get(cls, ()):
                if isinstance(store.target.value, forms.Name):
                    params = store.link.scope.function.params
                    if params and params[0].name == store.target.value.id:
                        by_name[store.target.name].append(store)
            self._stores[cls] = dict(by_name)
        return self._stores[cls]

    def functions_named(self, name: str) -> list[Scope]:
        """The functions of the loaded modules that are called so where they are defined."""
        return self._index.get("functions", name)

    def calls_named(self, name: str) -> list[Site]:
        """The calls in the loaded modules of whatever is called ``name`` there."""
        return self._index.get("calls", name)

    def once(self, key: Hashable, compute: Callable[[], Answer]) -> Answer:
        """``compute()`` once for the modules that are loaded now; anew when others have been read since."""
        number = len(self.modules)
        known = self._answers.get(key)
        if known is None or known[0] != number:
            known = self._answers[key] = (number, compute())
        return cast("Answer", known[1])

    def aliases(self, name: str) -> set[str]:
        """The other names that imports of the loaded modules give to ``name``."""
        return set(self._index.get("aliases", name))

    # -- callers

    def callers(self, scope: Scope) -> list[tuple[Arguments, Point]]:
        """The calls of a function that can be found, each with its arguments and its place."""
        if scope in self._callers:
            return self._callers[scope]
        self._callers[scope] = []  # to ask for them on the way finds none
        self._callers[scope] = self._find_callers(scope)
        return self._callers[scope]

    def _find_callers(self, scope: Scope) -> list[tuple[Arguments, Point]]:
        self._search_callers(scope)
        found: list[tuple[Arguments, Point]] = []
        for site in self._sites_calling(scope):
            self._match_call(scope, site, found)
        self._passed_on(scope, found)
        found.sort(key=lambda call: not call[1].module.named)
        # What tests pass to a function says little of how the program calls it.
        outside = [call for call in found if not _is_test(call[1].module)]
        return outside if outside and not _is_test(scope.module) else found

    def _sites_calling(self, scope: Scope) -> list[Site]:
        owner = scope.owner
        names = {scope.name}
        if scope.name in ("__init__", "__new__", "__post_init__") and owner is not None:
            names = {owner.name, "__init__", "cls"} | {cls.name for cls in self.subclasses(owner)}
        for name in tuple(names):
            names |= self.aliases(name)
        names.update(self._parameters_holding(scope))
        sites = [site for name in sorted(names) for site in self._index.get("plain_calls", name)]
        if owner is not None:
            for cls in self.subclasses(owner):
                sites += self._index.get("super_calls", (cls, scope.name))
        return sites

    def _parameters_holding(self, scope: Scope) -> Iterator[str]:
        """Names of parameters of the project's functions that this function is passed to."""
        for site, arg in self._index.get("references", scope.name)[:20]:
            call = site.expr
            assert isinstance(call, forms.Call)
            if arg.name is not None:
                yield arg.name
            else:
                for function in self._index.get("functions", last_name(call.func)):
                    params = function.function.params
                    number = call.args.index(arg)
                    if number < len(params):
                        yield params[number].name

    def _match_call(self, scope: Scope, site: Site, found: list[tuple[Arguments, Point]]) -> None:
        if self.may_call(site, scope):
            call = site.expr
            assert isinstance(call, forms.Call)
            point = self.point(site)
            found.append((calling.arguments(call, point), point))

    def may_call(self, site: Site, scope: Scope) -> bool:
        """Whether a function is among those that a call is known to call."""
        call = site.expr
        if not isinstance(call, forms.Call):
            return False
        return any(
            self._means(value, scope) and (getattr(value, "scope", None) is scope or not is_super(call.func))
            for value in self.evaluator.values(call.func, self.point(site))
        )

    def _means(self, value: Value, scope: Scope) -> bool:
        if isinstance(value, Func):
            if value.scope is scope:
                return True
            # self.step() of a base class, where a subclass overrides step.
            owner = scope.owner
            return (
                owner is not None
                and value.scope.name == scope.name
                and isinstance(value.self_, Instance)
                and value.self_.key is None
                and value.scope.owner in self.lineage(owner)
            )
        if isinstance(value, ClassRef):
            return scope.name == "__init__" and self.method(value.scope, "__init__") is scope
        return False

    def point(self, site: Site) -> Point:
        """The point of a site, seen by any caller."""
        scope = site.link.scope
        return Point(self.evaluator.any_frame(scope), site.link, site.inner)

    def hides_parameters(self, scope: Scope) -> bool:
        """Whether a decorator may call the function with other arguments than its caller gave."""
        if scope not in self._hidden:
            self._hidden[scope] = False
            self._hidden[scope] = any(self._is_opaque(decorator, scope) for decorator in scope.decorators())
        return self._hidden[scope]

    def _is_opaque(self, decorator: forms.Expr, scope: Scope) -> bool:
        assert scope.link is not None
        func = decorator.func if isinstance(decorator, forms.Call) else decorator
        frame = self.evaluator.any_frame(scope.parent or scope)
        for value in self.evaluator.values(func, Point(frame, scope.link)):
            if isinstance(value, Func) and not _passes_arguments_on(value.scope):
                return True
        return False

    def _passed_on(self, scope: Scope, found: list[tuple[Arguments, Point]]) -> None:
        """``spawn(main, args=(a, b))``, ``Process(target=main, args=(a,))``: calls by another's hand."""
        for site, arg in self._index.get("references", scope.name)[:20]:
            call = site.expr
            assert isinstance(call, forms.Call)
            given = next((other.value for other in call.args if other.name == "args"), None)
            spawns = last_name(call.func) in ("spawn", "start_processes")
            if given is None and spawns and len(call.args) > 1 and call.args[1].name is None:
                given = call.args[1].value
            if given is None:
                continue
            point = self.point(site)
            passed = self.evaluator.values(arg.value, point)
            if not any(isinstance(value, Func) and value.scope is scope for value in passed):
                continue
            many = next((value for value in self.evaluator.values(given, point) if isinstance(value, Many)), None)
            if many is None:
                continue
            thunks = [(thunk, False) for thunk in many.items]
            if spawns:
                rank = Thunk(None, None, (Alt(Unknown(("rank", point.module.name, call.at)), ANY),))
                thunks.insert(0, (rank, False))
            found.append((Arguments(tuple(thunks), (), (), call, point), point))

    def _search_callers(self, scope: Scope) -> None:
        """Read the project's files that may call a function: they name it, and its module or class."""
        module = scope.module
        stem = os.path.splitext(os.path.basename(module.source.file))[0]
        if stem == "__init__":
            stem = os.path.basename(os.path.dirname(module.source.file))
        if stem in ("", "__main__"):
            return
        if scope.name == "forward":
            return  # models are called as objects
        name = scope.owner.name if scope.owner is not None else scope.name
        packages = [word.encode(errors="surrogatepass") for word in module.name.split(".")]
        packaged = self._package_offering(module, stem, name) if _may_get_a_loader(scope) else []
        for offered in (stem, *packaged):
            words = (offered.encode(errors="surrogatepass"), name.encode(errors="surrogatepass"))
            # Many name a package: of these only such as may have a loader to hand over.
            found = self.workspace.reaching(*words, packages, with_loaders=offered != stem)
            for file in [file for file in found if file not in self.modules][:MAX_CALLING_FILES]:
                self.module_at(file)

    def _package_offering(self, module: Module, stem: str, name: str) -> list[str]:
        """The package whose ``__init__`` hands on what a module of it defines: others name the package alone."""
        folder = os.path.dirname(module.source.file)
        if module.is_package or not self.workspace.exists(os.path.join(folder, "__init__.py")):
            return []
        data = self.workspace.read(os.path.join(folder, "__init__.py")) or b""
        words, untold = self.once(("handed on", folder), lambda: (Skim(data).imported, bool(Skim(data).anything)))
        handed_on = stem.encode(errors="surrogatepass") in words
        handed_on &= untold or name.encode(errors="surrogatepass") in words
        return [os.path.basename(folder)] if handed_on else []

    def gives_meaning(self, word: str) -> bool:
        """Whether anything of the project may be called so: a function, a class, an attribute."""
        key = (len(self.modules), word)
        if key not in self._meanings:
            known = self.once(("outside",), self._words_outside)
            found = self.workspace.gives_meaning(word) or word.encode(errors="surrogatepass") in known
            self._meanings[key] = found
        return self._meanings[key]

    def _words_outside(self) -> frozenset[bytes]:
        """What modules that are not among the project's files give a meaning: notebooks, files that git ignores."""
        listed = set(self.workspace.files())
        texts = [module.source.text for module in self.loaded() if module.source.file not in listed]
        return frozenset[bytes]().union(*(Skim(text.encode(errors="surrogatepass")).given for text in texts))

    def mentioning(self, word: str) -> list[str]:
        """The files of the project in which a word stands."""
        key = ("mention", word)
        if key not in self._searched:
            self._searched.add(key)
            # A file's name may hold bytes that are no text.
            self._mentions[word] = self.workspace.mentions([word.encode(errors="surrogatepass")])
        return self._mentions[word]

    @cached_property
    def _mentions(self) -> dict[str, list[str]]:
        return {}

    # -- settings

    def options(self, name: str, near: Module) -> list[Site]:
        """The ``add_argument`` calls for ``args.name``, from the nearest modules that have any."""
        own = [site for site in self._index.get("options", name) if site.module is near]
        if own:
            return own
        if ("option", name) not in self._searched:
            self._searched.add(("option", name))
            dashed = name.replace("_", "-")
            for file in self.workspace.declaring({dashed.encode(), name.encode()}):
                self.module_at(file)
        sites = self._index.get("options", name)
        folder = os.path.dirname(near.source.file)
        neighbours = self.neighbours(near)
        imported = [site for site in sites if site.module in neighbours]
        beside = [site for site in sites if site.module.source.file.startswith(folder + os.sep)]
        return imported or beside or sites

    def neighbours(self, module: Module) -> frozenset[Module]:
        """The modules read so far that a module imports, and those that these import."""
        return self.once(("neighbours", module), partial(self._find_neighbours, module))

    def _find_neighbours(self, module: Module) -> frozenset[Module]:
        seen = {module}
        todo = [module]
        while todo and len(seen) < 200:
            here = todo.pop()
            for file in self._imported_files(here):
                other = self.modules.get(file)
                if other is not None and other not in seen:
                    seen.add(other)
                    todo.append(other)
        return frozenset(seen)

    def _imported_files(self, module: Module) -> set[str]:
        if module not in self._neighbour_files:
            found: set[str | None] = set()
            for stmt, _ in module.imports:
                if isinstance(stmt, forms.ImportFrom):
                    found.add(self.find_file(module, stmt.module, stmt.level))
                    prefix = f"{stmt.module}." if stmt.module else ""
                    found |= {self.find_file(module, prefix + alias.name, stmt.level) for alias in stmt.aliases}
                elif isinstance(stmt, forms.Import):
                    found |= {self.find_file(module, alias.name, 0) for alias in stmt.aliases}
            self._neighbour_files[module] = {file for file in found if file is not None}
        return self._neighbour_files[module]

    def mention(self, word: str) -> None:
        """Read every file of the project in which a word stands."""
        if ("word", word) not in self._searched:
            self._searched.add(("word", word))
            for file in self.workspace.mentions([word.encode()]):
                self.module_at(file)

    def config_stores(self, path: Sequence[str]) -> list[Store]:
        """Module-level assignments to an attribute chain that ends in ``path``."""
        key = ("config", *path)
        if key not in self._searched:
            self._searched.add(key)
            if len(path) > 1 or path[0].isupper():
                for file in self.workspace.naming(*(part.encode() for part in path), within="." + ".".join(path)):
                    self.module_at(file)
        return self._index.get("config", path[-1])

    def local_config_stores(self, name: str) -> list[Store]:
        """Assignments to an attribute of a configuration inside the functions that set it up."""
        return self._index.get("local_config", name)

    def classes(self) -> Iterator[Scope]:
        """All classes of the loaded modules."""
        for module in self.loaded():
            yield from module.classes

    # -- the domain

    def dataset_class(self, instance: Instance) -> DatasetClass:
        """The dataset that an object is; one for each class and construction."""
        key = (instance.cls, instance.key)
        if key not in self._datasets:
            self._datasets[key] = DatasetClass(self, instance)
        return self._datasets[key]

    @cached_property
    def loops(self) -> list[BatchLoop]:
        """The loops over loaders."""
        self._read_users()
        found = list(batch_loops(self))
        for _ in range(2):
            read = len(self.loaded())
            for link in dict.fromkeys(loop.link for loop in found):
                for site in link.scope.module.calls_in(link):
                    for _scope in called_scopes(self, site):
                        pass  # a helper that moves the batch, or yields it, is read in passing
            if len(self.loaded()) == read:
                break
            found = list(batch_loops(self))
        return found

    def _read_users(self) -> None:
        """Read the files that name what the named modules offer: a loader's loop, a dataset's loader.

        Two rounds: who uses a dataset builds its loader, and who uses that iterates it.
        """
        for builder in dict.fromkeys(site.module for site in loader_calls(self)):
            self._read_what_it_calls(builder)
        done: set[Module] = set()
        for _ in range(2):
            offers = {module: names for module, names in self._offers().items() if module not in done}
            done |= offers.keys()
            self._read_those_who_name(offers)

    def _offers(self) -> dict[Module, set[str]]:
        """For each module the names of its loaders, of what builds them, and of its datasets."""
        offers: dict[Module, set[str]] = {}
        for site in loader_calls(self):
            offers.setdefault(site.module, set()).update(_offered_by(site))
        for module in self.named_modules:
            names = {cls.name for cls in module.classes if cls.functions.keys() & {"__getitem__", "__iter__"}}
            offers.setdefault(module, set()).update(names)
        return offers

    def _read_those_who_name(self, offers: dict[Module, set[str]]) -> None:
        for module, names in offers.items():
            stem = os.path.splitext(os.path.basename(module.source.file))[0]
            if module.is_package:
                stem = os.path.basename(os.path.dirname(module.source.file))
            words = [name.encode() for name in names]
            unread = [file for file in self.mentioning(stem) if file not in self.modules] if words and stem else []
            found = [file for file in unread if any(word in (self.workspace.read(file) or b"") for word in words)]
            for file in found[:MAX_CALLING_FILES]:
                user = self.module_at(file)
                if user is not None:
                    self._read_what_it_calls(user)

    def _read_what_it_calls(self, module: Module) -> None:
        """Read what a module imports: what it hands loaders or batches to lies there, or where that has it from."""
        for imported in sorted(self._imported_files(module))[:MAX_CALLING_FILES]:
            self.module_at(imported)
        self.evaluator.fresh()
        built = [site.link for site in loader_calls(self) if site.module is module]
        names = {name for link in built for name in link.changes}
        for stmt, _ in module.imports:
            if isinstance(stmt, forms.ImportFrom):
                for alias in stmt.aliases:
                    called = module.calls_by_name.get(alias.bound, ())
                    if any(site.link in built or _is_given(site, names) for site in called):
                        self.imported(stmt, alias.bound, module)

    @cached_property
    def loaders(self) -> list[Loader]:
        """The loaders, each with the loops that get its batches.

        A constructor that is reached through several chains of callers gives one for each chain
        that a loop knows, besides the one that any caller sees.
        """
        found = {ref.key: Loader(self, ref) for ref in built_loaders(self)}
        for loop in self.loops:
            if is_fallback(loop.ref.point.link):
                continue
            loader = found.setdefault(loop.ref.key, Loader(self, loop.ref))
            loader.loops.append(loop)
            loader.framework = loader.framework or loop.framework
        mark_managed(self, found)
        return list(found.values())

    @cached_property
    def samples(self) -> list[Samples]:
        """The datasets, each with the paths through what makes its samples."""
        return list(sample_makers(self))

    def samples_of(self, loader: Loader) -> list[tuple[Samples, World]]:
        """The datasets of a loader, with their worlds."""
        return [(samples, world) for samples in self.samples for user, world in samples.loaders if user is loader]

    @cached_property
    def transfers(self) -> list[Transfer]:
        """The copies of batches to a device."""
        assert self.loops is not None  # they make sure that the files with the copies are read
        return list(transfers(self))

    @cached_property
    def next_calls(self) -> list[NextCall]:
        """The calls ``next(iter(loader))``."""
        return list(next_calls(self))

    @cached_property
    def _loaders_by_key(self) -> dict[object, Loader]:
        return {loader.ref.key: loader for loader in self.loaders}

    @cached_property
    def _option_users(self) -> dict[tuple[Module, int], set[tuple[str, int]]]:
        users: dict[tuple[Module, int], set[tuple[str, int]]] = {}
        for loader in self.loaders:
            for name in library.LOADER_DEFAULTS:
                for option in loader.option(name):
                    if option.module is not None:
                        users.setdefault((option.module, option.at), set()).add(loader.constructor)
        return users

    def shares_option(self, module: Module, at: int) -> bool:
        """Whether an option that is written here serves several constructor calls."""
        return len(self._option_users.get((module, at), ())) > 1

    def loader_of(self, ref: LoaderRef) -> Loader:
        """The loader of a reference."""
        return self._loaders_by_key.setdefault(ref.key, Loader(self, ref))

    @cached_property
    def _copies(self) -> dict[object, list[tuple[Transfer, Alt]]]:
        found: dict[object, list[tuple[Transfer, Alt]]] = {}
        for transfer in self.transfers:
            for source in transfer.sources:
                if isinstance(source.value, Batch):
                    found.setdefault(source.value.loader.key, []).append((transfer, source))
        return found

    def copies_of(self, ref: LoaderRef) -> list[tuple[Transfer, Alt]]:
        """The copies of a loader's batches to a device."""
        return self._copies.get(ref.key, [])

    def link_at(self, module: Module, at: int) -> Link:
        """The innermost statement that holds a node."""
        return module.link_at(at)
