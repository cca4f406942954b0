"""Where the names of the loaded modules stand: calls, arguments, classes, options by what they are called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from typing import Any

from dlcheck.facts import forms
from dlcheck.model import settings
from dlcheck.model.scopes import Module, Scope, Site, Store, dotted, last_name

_Lists = defaultdict[Any, list[Any]]


def _lists() -> _Lists:
    return defaultdict(list)


@dataclass(eq=False, slots=True)
class Names:
    """Of one module, by name.  ``super_calls`` are by the class that they stand in, and the name."""

    calls: dict[str, list[Site]]
    plain_calls: dict[str, list[Site]] = field(default_factory=_lists)  # all that are not ``super().name()``
    super_calls: dict[tuple[Scope, str], list[Site]] = field(default_factory=_lists)
    references: dict[str, list[tuple[Site, forms.Arg]]] = field(default_factory=_lists)  # as arguments
    functions: dict[str, list[Scope]] = field(default_factory=_lists)
    by_base: dict[str, list[Scope]] = field(default_factory=_lists)
    aliases: dict[str, list[str]] = field(default_factory=_lists)  # other names that imports give
    options: dict[str, list[Site]] = field(default_factory=_lists)
    config: dict[str, list[Store]] = field(default_factory=_lists)
    local_config: dict[str, list[Store]] = field(default_factory=_lists)


def names_of(module: Module) -> Names:
    """What stands in a module, by name."""
    found = Names(module.calls_by_name)
    for function in module.functions:
        found.functions[function.name].append(function)
    for cls in module.classes:
        for base in cls.node.bases if isinstance(cls.node, forms.Class) else ():
            found.by_base[last_name(base.value)].append(cls)
    for site in module.calls:
        _add_call(found, module, site)
    for stmt, _ in module.imports:
        assert isinstance(stmt, (forms.Import, forms.ImportFrom))
        for alias in stmt.aliases:
            if alias.bound != alias.name:
                found.aliases[alias.name.rpartition(".")[2]].append(alias.bound)
    for store in module.stores:
        if store.value is None:
            continue
        if store.link.scope.kind == "module":
            found.config[store.target.name].append(store)
        elif (dotted(store.target) or "").partition(".")[0] in settings.NODE_NAMES:
            found.local_config[store.target.name].append(store)
    return found


def _add_call(found: Names, module: Module, site: Site) -> None:
    call = site.expr
    assert isinstance(call, forms.Call)
    name = last_name(call.func)
    if name:
        around = site.scope.owner if is_super(call.func) else None
        if around is None:
            found.plain_calls[name].append(site)
        else:
            found.super_calls[around, name].append(site)
    if name == "add_argument" or name in module.shortcuts.get("add_argument", ()):
        option = settings.option_name(call)
        if option:
            found.options[option].append(site)
    for arg in call.args:
        passed = last_name(arg.value)
        if passed:
            found.references[passed].append((site, arg))


def is_super(func: forms.Expr) -> bool:
    """``super().step``: this very method of a base, whatever the object."""
    return isinstance(func, forms.Attr) and isinstance(func.value, forms.Call) and last_name(func.value.func) == "super"


class Index:
    """The names of all modules so far, in the order in which these were added."""

    def __init__(self) -> None:
        self._all: dict[str, _Lists] = {kind: _lists() for kind in _KINDS}
        self._given: dict[tuple[str, Hashable], list[Any]] = {}

    def add(self, module: Module) -> None:
        names = module.once("names", names_of)
        for kind, found in self._all.items():
            for name, places in getattr(names, kind).items():
                found[name] += places

    def get(self, kind: str, name: Hashable) -> list[Any]:
        """All that is called so, of one of the kinds of ``Names``; a later module does not change what was given."""
        found = self._all[kind].get(name, _NOTHING)
        given = self._given.get((kind, name), _NOTHING)
        if len(given) != len(found):
            given = self._given[kind, name] = list(found)
        return given


_KINDS = tuple(one.name for one in fields(Names))
_NOTHING: list[Any] = []
