"""Who calls a function: where the program says so, and by the hand of whoever is given it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.index import is_super
from dlcheck.model.scopes import Module, Scope, Site, descend, last_name
from dlcheck.model.values import Alt, Arguments, ClassRef, Func, Instance, Many, Point, Thunk, Unknown, Value
from dlcheck.model.worlds import ANY
from dlcheck.skim import Skim

if TYPE_CHECKING:
    from dlcheck.model.project import Project

MAX_CALLING_FILES = 12  # read in search of a function's callers


class Callers:
    """The calls of a project's functions, as far as they can be found; files that may have some are read for it."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._found: dict[Scope, list[tuple[Arguments, Point]]] = {}
        self._hidden: dict[Scope, bool] = {}

    def of(self, scope: Scope) -> list[tuple[Arguments, Point]]:
        """The calls of a function that can be found, each with its arguments and its place."""
        if scope in self._found:
            return self._found[scope]
        self._found[scope] = []  # to ask for them on the way finds none
        self._found[scope] = self._find_callers(scope)
        return self._found[scope]

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
            names = {owner.name, "__init__", "cls"} | {cls.name for cls in self._project.subclasses(owner)}
        for name in tuple(names):
            names |= self._project.aliases(name)
        names.update(self._parameters_holding(scope))
        sites = [site for name in sorted(names) for site in self._project.index.get("plain_calls", name)]
        if owner is not None:
            for cls in self._project.subclasses(owner):
                sites += self._project.index.get("super_calls", (cls, scope.name))
        return sites

    def _parameters_holding(self, scope: Scope) -> Iterator[str]:
        """Names of parameters of the project's functions that this function is passed to."""
        for site, arg in self._project.index.get("references", scope.name)[:20]:
            call = site.expr
            assert isinstance(call, forms.Call)
            if arg.name is not None:
                yield arg.name
            else:
                for function in self._project.index.get("functions", last_name(call.func)):
                    params = function.function.params
                    number = call.args.index(arg)
                    if number < len(params):
                        yield params[number].name

    def _match_call(self, scope: Scope, site: Site, found: list[tuple[Arguments, Point]]) -> None:
        if self.may_call(site, scope):
            call = site.expr
            assert isinstance(call, forms.Call)
            point = self._project.point(site)
            found.append((calling.arguments(call, point), point))

    def may_call(self, site: Site, scope: Scope) -> bool:
        """Whether a function is among those that a call is known to call."""
        call = site.expr
        if not isinstance(call, forms.Call):
            return False
        return any(
            self._means(value, scope) and (getattr(value, "scope", None) is scope or not is_super(call.func))
            for value in self._project.evaluator.values(call.func, self._project.point(site))
        )

    def _means(self, value: Value, scope: Scope) -> bool:
        if isinstance(value, Func):
            if value.scope is scope:
                return True
            # self._project.step() of a base class, where a subclass overrides step.
            owner = scope.owner
            return (
                owner is not None
                and value.scope.name == scope.name
                and isinstance(value.self_, Instance)
                and value.self_.key is None
                and value.scope.owner in self._project.lineage(owner)
            )
        if isinstance(value, ClassRef):
            return scope.name == "__init__" and self._project.method(value.scope, "__init__") is scope
        return False

    def hides_parameters(self, scope: Scope) -> bool:
        """Whether a decorator may call the function with other arguments than its caller gave."""
        if scope not in self._hidden:
            self._hidden[scope] = False
            self._hidden[scope] = any(self._is_opaque(decorator, scope) for decorator in scope.decorators())
        return self._hidden[scope]

    def _is_opaque(self, decorator: forms.Expr, scope: Scope) -> bool:
        assert scope.link is not None
        func = decorator.func if isinstance(decorator, forms.Call) else decorator
        frame = self._project.evaluator.any_frame(scope.parent or scope)
        for value in self._project.evaluator.values(func, Point(frame, scope.link)):
            if isinstance(value, Func) and not _passes_arguments_on(value.scope):
                return True
        return False

    def _passed_on(self, scope: Scope, found: list[tuple[Arguments, Point]]) -> None:
        """``spawn(main, args=(a, b))``, ``Process(target=main, args=(a,))``: calls by another's hand."""
        for site, arg in self._project.index.get("references", scope.name)[:20]:
            call = site.expr
            assert isinstance(call, forms.Call)
            given = next((other.value for other in call.args if other.name == "args"), None)
            spawns = last_name(call.func) in ("spawn", "start_processes")
            if given is None and spawns and len(call.args) > 1 and call.args[1].name is None:
                given = call.args[1].value
            if given is None:
                continue
            point = self._project.point(site)
            passed = self._project.evaluator.values(arg.value, point)
            if not any(isinstance(value, Func) and value.scope is scope for value in passed):
                continue
            many = next(
                (value for value in self._project.evaluator.values(given, point) if isinstance(value, Many)), None
            )
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
            found = self._project.workspace.reaching(*words, packages, with_loaders=offered != stem)
            for file in [file for file in found if file not in self._project.modules][:MAX_CALLING_FILES]:
                self._project.module_at(file)

    def _package_offering(self, module: Module, stem: str, name: str) -> list[str]:
        """The package whose ``__init__`` hands on what a module of it defines: others name the package alone."""
        folder = os.path.dirname(module.source.file)
        if module.is_package or not self._project.workspace.exists(os.path.join(folder, "__init__.py")):
            return []
        data = self._project.workspace.read(os.path.join(folder, "__init__.py")) or b""
        words, untold = self._project.once(
            ("handed on", folder), lambda: (Skim(data).imported, bool(Skim(data).anything))
        )
        handed_on = stem.encode(errors="surrogatepass") in words
        handed_on &= untold or name.encode(errors="surrogatepass") in words
        return [os.path.basename(folder)] if handed_on else []


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
