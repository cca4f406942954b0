"""What a name can be at a statement: all that is assigned to it, or added to it, before."""

from __future__ import annotations

from typing import NamedTuple

from dlcheck.facts import forms
from dlcheck.model.flow import links_in
from dlcheck.model.scopes import Link, descend, dotted, target_names


class Binding(NamedTuple):
    """What a statement does to a name: sets it, adds to it, or something that is not known."""

    how: str  # set | item of | append | extend | unknown
    value: forms.Expr | None
    link: Link


def deeper(depth: int, ways: int) -> int:
    """The depth of a search one step on: where it goes several ways, each counts for more, for they multiply."""
    return depth + min(max(ways, 1).bit_length(), 4)


def reaching(name: str, link: Link, after: bool = False) -> tuple[list[Binding], bool]:
    """The bindings that can make up a name just before a statement (``after``: after it).

    True if one of them holds whatever came before.
    """
    found: list[Binding] = []
    here: Link | None = link
    start = link.index + 1 if after else link.index
    while here is not None:
        if _backwards(name, here.block, start, found):
            return found, True
        parent = here.parent
        if parent is None:
            return found, False
        if isinstance(parent.stmt, (forms.For, forms.While)) and here.slot == "body":
            if isinstance(parent.stmt, forms.For) and name in target_names(parent.stmt.target):
                found.append(Binding("item of", parent.stmt.iter, parent))
                return found, True
            found.extend(_all_inside(name, parent, seen=found))
        if isinstance(parent.stmt, forms.With):
            for item in parent.stmt.items:
                if item.target is not None and name in target_names(item.target):
                    found.append(Binding("set", item.value if dotted(item.target) == name else None, parent))
                    return found, True
        here, start = parent, parent.index
    return found, False


def _backwards(name: str, block: list[Link], start: int, found: list[Binding]) -> bool:
    for index in range(start - 1, -1, -1):
        link = block[index]
        if name not in link.changes:
            continue
        if link.blocks and not isinstance(link.stmt, forms.With):
            found.extend(_all_inside(name, link, seen=found))
            own = changed_by(link, name)
            if own is not None:
                found.append(own)
            continue
        if link.blocks:
            own = changed_by(link, name)
            if own is not None:
                found.append(own)
                return True
            if _backwards(name, link.blocks["body"], len(link.blocks["body"]), found):
                return True
            continue
        binding = changed_by(link, name)
        if binding is not None:
            found.append(binding)
            if binding.how in ("set", "item of", "unknown"):
                return True
    return False


def _all_inside(name: str, link: Link, seen: list[Binding]) -> list[Binding]:
    known = {binding.link for binding in seen}
    inside = [binding for inner in links_in(link) if (binding := changed_by(inner, name)) is not None]
    return [binding for binding in inside if binding.link not in known]


def changed_by(link: Link, name: str) -> Binding | None:
    """What this very statement does to a name."""
    stmt = link.stmt
    if name not in link.changes:
        return None
    if isinstance(stmt, (forms.Assign, forms.Declare)):
        targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
        for target in targets:
            if dotted(target) == name:
                return Binding("set", stmt.value, link)
            if isinstance(target, forms.Sequence) and name in target_names(target):
                return Binding("set", _unpacked(target, name, stmt.value), link)
            if isinstance(target, forms.Sub) and dotted(target.value) == name:
                return None  # an item of it: of the same kind as the others
        return Binding("unknown", None, link)
    if isinstance(stmt, forms.AugAssign) and dotted(stmt.target) == name:
        return Binding("extend", stmt.value, link)
    if isinstance(stmt, forms.Do):
        return _mutated(stmt.value, name, link)
    if isinstance(stmt, forms.For) and name in target_names(stmt.target):
        return Binding("item of", stmt.iter, link)
    if isinstance(stmt, forms.With):
        for item in stmt.items:
            if item.target is not None and name in target_names(item.target):
                return Binding("set", item.value if dotted(item.target) == name else None, link)
        return None
    if link.blocks:
        return None
    return Binding("unknown", None, link)


def _mutated(expr: forms.Expr, name: str, link: Link) -> Binding | None:
    for call in expr.items if isinstance(expr, forms.Sequence) else (expr,):
        if isinstance(call, forms.Call) and isinstance(call.func, forms.Attr) and dotted(call.func.value) == name:
            args = call.args
            if call.func.name in ("append", "add") and len(args) == 1:
                return Binding("append", args[0].value, link)
            if call.func.name == "insert" and len(args) == 2:
                return Binding("append", args[1].value, link)
            if call.func.name == "extend" and len(args) == 1:
                return Binding("extend", args[0].value, link)
            if call.func.name in ("pop", "remove", "clear"):
                return None
    return Binding("unknown", None, link)


def _unpacked(target: forms.Sequence, name: str, value: forms.Expr | None) -> forms.Expr | None:
    """``a, b = [], []``: the item of the right side that a name gets."""
    if isinstance(value, forms.Sequence) and len(value.items) == len(target.items):
        for item, given in zip(target.items, value.items, strict=True):
            if dotted(item) == name:
                return given
    return None


def mentioned(expr: forms.Expr) -> set[str]:
    """The plain names in an expression."""
    return {node.id for node in descend(expr) if isinstance(node, forms.Name)}
