"""What fixes must know of a class before they change what its objects keep: who else has to do with an attribute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dlcheck.checks import mending
from dlcheck.facts import forms
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.flow import links_of
from dlcheck.model.project import Project
from dlcheck.model.scopes import Link, Module, Scope, children, descend, dotted, expressions, last_name

# Methods with which attributes are no longer what they seem.
SPECIAL = frozenset({"__setattr__", "__getattr__", "__getattribute__"})

# Calls that change files, by their last names.
_WRITERS = frozenset(
    {"save", "savez", "savez_compressed", "savetxt", "dump", "imwrite", "to_csv", "to_parquet", "to_pickle", "to_json",
     "mkdir", "makedirs", "remove", "unlink", "rename", "rmtree", "copyfile", "copytree", "touch",
     "write_text", "write_bytes", "symlink", "urlretrieve", "extractall", "writelines"}
)  # fmt: skip


class Use(NamedTuple):
    """An attribute of an object where it is used: ``around`` are the expressions around it, innermost first."""

    expr: forms.Attr
    link: Link
    around: tuple[forms.Expr, ...]
    is_own: bool  # of the class's own object, by the first parameter of a method

    @property
    def parent(self) -> forms.Expr | None:
        return self.around[0] if self.around else None

    @property
    def module(self) -> Module:
        return self.link.scope.module


def family(project: Project, cls: Scope) -> list[Scope]:
    """A class, those that derive from it, and those that it derives from."""
    return list(dict.fromkeys((cls, *project.subclasses(cls), *project.lineage(cls))))


def own_name(method: Scope) -> str:
    """How a method calls its object."""
    params = method.function.params
    return params[0].name if params and not method.has_decorator("staticmethod", "classmethod") else ""


def unusual(classes: Iterable[Scope]) -> str:
    """Why the attributes of a class cannot be reasoned about, if anything."""
    for cls in classes:
        if "__slots__" in cls.names:
            return "the class has `__slots__`"
        special = next((name for name in sorted(SPECIAL) if name in cls.functions), "")
        if special:
            return f"the class has `{special}`"
    return ""


def uses(project: Project, classes: Iterable[Scope], name: str) -> Iterator[Use]:
    """Where an attribute of that name is used, but for those of objects that are certainly of other classes."""
    classes = set(classes)
    project.mention(f".{name}")
    for module in project.loaded():
        for scope in (module.scope, *module.classes, *module.functions):
            owner = scope.owner
            own = own_name(scope) if owner is not None else ""
            for link in links_of(scope):
                for root in expressions(link.stmt):
                    for expr, around in with_parents(root, ()):
                        if isinstance(expr, forms.Attr) and expr.name == name:
                            is_self = bool(own) and dotted(expr.value) == own
                            if not is_self or owner in classes:
                                yield Use(expr, link, around, is_self)


def with_parents(
    root: forms.Expr, around: tuple[forms.Expr, ...]
) -> Iterator[tuple[forms.Expr, tuple[forms.Expr, ...]]]:
    """An expression and all that it contains, each with the expressions around it, innermost first."""
    yield root, around
    for child in children(root):
        yield from with_parents(child, (root, *around))


def taken_names(classes: Iterable[Scope]) -> set[str]:
    """The names of attributes and methods that classes have or ask for."""
    found: set[str] = set()
    for cls in classes:
        found |= cls.names | set(cls.functions)
        for scope in cls.module.functions:
            if scope.owner is cls or scope.parent is not None and scope.parent.owner is cls:
                for link in links_of(scope):
                    for root in expressions(link.stmt):
                        found |= {expr.name for expr in descend(root) if isinstance(expr, forms.Attr)}
    return found


def prefix(dataset: DatasetClass) -> str:
    """What a new attribute's name begins with: bases of libraries may have one of any plain name."""
    return "_" if set(dataset.bases) - mending.PLAIN_BASES else ""


def set_elsewhere(project: Project, classes: Iterable[Scope], name: str) -> bool:
    """Whether anything but the constructors of these classes sets an attribute."""
    classes = set(classes)
    project.mention(f".{name} =")
    for module in project.loaded():
        for store in module.stores:
            if store.target.name != name:
                continue
            method = store.link.scope
            owner = method.owner
            is_self = owner is not None and dotted(store.target.value) == own_name(method)
            if is_self and owner not in classes or is_self and method.name == "__init__":
                continue
            return True
    return False


def writes_files(classes: Iterable[Scope]) -> bool:
    """Whether methods of classes, their constructors apart, change files."""
    for cls in classes:
        for method in cls.functions.values():
            if method.name == "__init__":
                continue
            for site in method.module.calls_by_scope.get(method, ()):
                if isinstance(site.expr, forms.Call) and _writes(site.expr):
                    return True
    return False


def _writes(call: forms.Call) -> bool:
    name = last_name(call.func)
    if name == "open":
        texts = [arg.value.value for arg in call.args[1:] if isinstance(arg.value, forms.Const)]
        return any(isinstance(text, str) and set(text) & set("wax+") for text in texts)
    return name in _WRITERS


def singular(name: str) -> str:
    """``image`` of ``images``."""
    bare = name.strip("_")
    return bare[:-1] if bare.endswith("s") and not bare.endswith(("ss", "us")) and len(bare) > 2 else bare
