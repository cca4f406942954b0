"""Fixes that build a loader, or its iterator, once: above the loop that does so again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlcheck import edits
from dlcheck.checks import moving
from dlcheck.checks.mending import indentation
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Applicability, Edit, Fix
from dlcheck.model.flow import is_inside, links_in
from dlcheck.model.loaders import Loader
from dlcheck.model.scopes import Link, Module, Scope, descend, last_name, target_names

# Calls that give the same again and do nothing else.
_PURE = frozenset({"len", "int", "str", "float", "bool", "list", "tuple", "dict", "range", "min", "max", "partial",
                   "device", "is_available", "Subset", "RandomSampler", "SequentialSampler"})  # fmt: skip


def build_once(loader: Loader, loop: Link) -> Fix | Refused:
    """The loader above the loop that builds it anew in each round."""
    link, module = loader.link, loader.module
    if link.scope is not loop.scope or not is_inside(link, loop):
        return Refused("it is built by a function that the loop calls")
    if link.parent is not loop:
        return Refused("it is built in a block inside the loop")
    kind: Applicability = "safe" if _is_the_same(loader) else "unsafe"
    words = "Build the loader above the loop"
    stmt = link.stmt
    if isinstance(stmt, forms.Assign) and stmt.value is loader.call:
        names = [name for target in stmt.targets for name in target_names(target)]
        if any(names_changed(loop, link, names)) or any("." in name for name in names):
            return Refused("the loop gives its name other values, too")
        return make_fix(kind, words, moving.hoist(module.source, module.facts, [link], loop))
    if isinstance(stmt, forms.For):
        return make_fix(kind, words, named_above(module, loop, loader.call, "loader"))
    return Refused("it is part of a larger statement")


def _is_the_same(loader: Loader) -> bool:
    """Whether one loader gives what a new one for each round gives: no new seed, no state that its workers keep."""
    calls = [part for arg in loader.call.args for part in descend(arg.value) if isinstance(part, forms.Call)]
    if any(last_name(call.func) not in _PURE for call in calls):
        return False
    if any(option.given and not option.is_(None) for option in loader.option("generator")):
        return False
    return all(option.falsy for option in loader.option("persistent_workers"))


def names_changed(loop: Link, link: Link, names: Iterable[str]) -> Iterator[str]:
    """The names that a loop gives other values than one of its statements does."""
    others = {name for other in links_in(loop) if other is not link and not other.blocks for name in other.changes}
    others |= {name for other in (loop, *links_in(loop)) if isinstance(other.stmt, forms.For)
               for name in target_names(other.stmt.target)}  # fmt: skip
    yield from (name for name in names if name in others)


def free_name(module: Module, scope: Scope, name: str) -> bool:
    """Whether nothing else has a name, in a function or in its module."""
    params = {param.name for param in scope.function.params}
    return name not in scope.names | params | module.scope.names


def named_above(module: Module, loop: Link, expr: forms.Expr, name: str) -> list[Edit | Refused]:
    """An expression of a loop computed once, above it, under a name."""
    source, facts, text = module.source, module.facts, module.source.text
    if not free_name(module, loop.scope, name):
        return [Refused(f"`{name}` is something else here")]
    start, end = facts.span(expr.at)
    old, new = indentation(text, start), indentation(text, facts.span(loop.stmt.at)[0])
    piece = moving.reindented(f"{old}{name} = {text[start:end]}\n", old, new)
    if isinstance(piece, Refused):
        return [piece]
    lines = [line.removeprefix(new) for line in piece.rstrip("\n").split("\n")]
    return [moving.insert_above(source, facts, loop, lines), edits.replace(source, facts, expr.at, name)]
