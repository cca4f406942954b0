"""All modules of a project, linked: imports, classes, callers, command-line options."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dlcheck.facts import Unreadable, extract, forms
from dlcheck.model import library
from dlcheck.model.callers import MAX_CALLING_FILES, Callers
from dlcheck.model.data.stored import Samples, sample_makers
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.evaluate import Evaluator
from dlcheck.model.frameworks import mark_managed
from dlcheck.model.imports import Imports
from dlcheck.model.index import Index
from dlcheck.model.loaders import Loader, built_loaders, is_fallback, loader_calls
from dlcheck.model.loops import BatchLoop, NextCall, batch_loops, called_scopes, next_calls
from dlcheck.model.scopes import Link, Module, Scope, Site, Store, dotted, last_name
from dlcheck.model.transfers import Transfer, transfers
from dlcheck.model.values import (
    Alt,
    Batch,
    ClassRef,
    External,
    Instance,
    LoaderRef,
    Point,
    Unknown,
    Value,
)
from dlcheck.model.worlds import World
from dlcheck.skim import Skim
from dlcheck.targets import Targets

if TYPE_CHECKING:
    from dlcheck.facts import ModuleFacts
    from dlcheck.files.workspace import Workspace
    from dlcheck.model.workers import WorkerCode
    from dlcheck.source import Source

Answer = TypeVar("Answer")

MAX_EXTRA_MODULES = 150
MAX_MODULE_BYTES = 1_000_000


def _is_given(site: Site, loaders: Collection[str]) -> bool:
    """Whether a call is given one of these loaders, or something that is called one."""
    call = site.expr
    given = [arg.value for arg in call.args] if isinstance(call, forms.Call) else []
    return any(dotted(value) in loaders or "loader" in last_name(value).lower() for value in given)


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
        self.index = Index()
        self._searched: set[object] = set()
        self._extra = 0
        self._lineages: dict[Scope, list[Scope]] = {}
        self._externals: dict[Scope, list[str]] = {}
        self._stores: dict[Scope, dict[str, list[Store]]] = {}
        self._datasets: dict[tuple[Scope, object], DatasetClass] = {}
        self._methods: dict[tuple[Scope, str], Scope | None] = {}
        self.worker_codes: dict[tuple[Value, tuple[str, ...]], WorkerCode] = {}
        self.walked_objects: dict[tuple[Scope, tuple[str, ...]], set[Value]] = {}
        self._meanings: dict[tuple[int, str], bool] = {}  # with the number of modules that they rest on
        self._answers: dict[Hashable, tuple[int, object]] = {}  # with the number of modules that they rest on
        self.evaluator = Evaluator(self, tick)
        self.imports = Imports(self)
        self.callers = Callers(self)
        for source, facts in named:
            self._add(source.file, source, facts, named=True)

    def forget(self) -> None:
        """Let go of all that was found out: it knows of itself, and would lie in memory until garbage is looked for."""
        for held in (self.evaluator, self.imports, self.callers, self):
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
        self.index.add(module)
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
                made = base.name == "metaclass" and self._decides_what_is_made(base.value, Point(frame, cls.link))
                externals += ["?"] if made else []
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

    def _decides_what_is_made(self, metaclass: forms.Expr, point: Point) -> bool:
        """Whether a metaclass of the project may make objects of another class than the one that is called."""
        return any(
            isinstance(value, ClassRef) and any(self.method(value.scope, name) for name in ("__call__", "__new__"))
            for value in self.evaluator.values(metaclass, point)
        )

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
        named = dict.fromkeys(other for name in sorted(names) for other in self.index.get("by_base", name))
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
        return self.index.get("functions", name)

    def calls_named(self, name: str) -> list[Site]:
        """The calls in the loaded modules of whatever is called ``name`` there."""
        return self.index.get("calls", name)

    def once(self, key: Hashable, compute: Callable[[], Answer]) -> Answer:
        """``compute()`` once for the modules that are loaded now; anew when others have been read since."""
        number = len(self.modules)
        known = self._answers.get(key)
        if known is None or known[0] != number:
            known = self._answers[key] = (number, compute())
        return cast("Answer", known[1])

    def aliases(self, name: str) -> set[str]:
        """The other names that imports of the loaded modules give to ``name``."""
        return set(self.index.get("aliases", name))

    def point(self, site: Site) -> Point:
        """The point of a site, seen by any caller."""
        scope = site.link.scope
        return Point(self.evaluator.any_frame(scope), site.link, site.inner)

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
        own = [site for site in self.index.get("options", name) if site.module is near]
        if own:
            return own
        if ("option", name) not in self._searched:
            self._searched.add(("option", name))
            dashed = name.replace("_", "-")
            for file in self.workspace.declaring({dashed.encode(), name.encode()}):
                self.module_at(file)
        sites = self.index.get("options", name)
        folder = os.path.dirname(near.source.file)
        neighbours = self.imports.neighbours(near)
        imported = [site for site in sites if site.module in neighbours]
        beside = [site for site in sites if site.module.source.file.startswith(folder + os.sep)]
        return imported or beside or sites

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
        return self.index.get("config", path[-1])

    def local_config_stores(self, name: str) -> list[Store]:
        """Assignments to an attribute of a configuration inside the functions that set it up."""
        return self.index.get("local_config", name)

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
        for imported in sorted(self.imports.files_of(module))[:MAX_CALLING_FILES]:
            self.module_at(imported)
        self.evaluator.fresh()
        built = [site.link for site in loader_calls(self) if site.module is module]
        names = {name for link in built for name in link.changes}
        for stmt, _ in module.imports:
            if isinstance(stmt, forms.ImportFrom):
                for alias in stmt.aliases:
                    called = module.calls_by_name.get(alias.bound, ())
                    if any(site.link in built or _is_given(site, names) for site in called):
                        self.imports.imported(stmt, alias.bound, module)

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
