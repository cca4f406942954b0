"""Copies of a constant, made once above the loop."""

from __future__ import annotations

from dlcheck.checks import moving
from dlcheck.checks.loader_moves import free_name, named_above
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Fix
from dlcheck.model.flow import links_in
from dlcheck.model.scopes import Link, descend, dotted, expressions
from dlcheck.model.training.copying import Move, chain_root
from dlcheck.model.training.hostdata import Constant

_INSIDE = Refused("it depends on what the loop sets")


def constant_above(move: Move, found: Constant) -> Fix | Refused:
    """The statement that makes a constant, and those that it needs, above the loop; or the constant under a name."""
    loop, link, module = found.loop, move.link, move.module
    if loop is None:
        return Refused("a function makes it in each call: keep it as a buffer, or pass it in")
    if loop.scope is not link.scope:
        return Refused("the loop is in another function")
    if link.parent is not loop:
        return Refused("it stands in a block inside the loop")
    stmt = link.stmt
    if isinstance(stmt, forms.Assign) and stmt.value is move.call and isinstance(stmt.targets[0], forms.Name):
        links = _needed(link, loop)
        if links is None or len(stmt.targets) != 1 or _is_read_before(links, loop):
            return _INSIDE
        return make_fix("safe", "Make it once, above the loop", moving.hoist(module.source, module.facts, links, loop))
    if _names(move.call) & loop.changes:
        return _INSIDE
    name = _name(move)
    if not free_name(module, loop.scope, name):
        return Refused(f"`{name}` is something else here")
    return make_fix("safe", f"Make `{name}` once, above the loop", named_above(module, loop, move.call, name))


def _needed(link: Link, loop: Link) -> list[Link] | None:
    """The statements of a loop that one of them needs, and itself, in order; None where not all can move."""
    found = {link.index: link}
    todo = [link]
    while todo:
        stmt = todo.pop().stmt
        assert isinstance(stmt, forms.Assign)
        for name in _names(stmt.value) & loop.changes:
            setting = [other for other in links_in(loop) if name in other.changes]
            if any(one.parent is not loop or one.index > link.index for one in setting) or not setting:
                return None
            for one in setting:
                if not isinstance(one.stmt, forms.Assign) or [dotted(t) for t in one.stmt.targets] != [name]:
                    return None
                if one.index not in found:
                    found[one.index] = one
                    todo.append(one)
    return [found[index] for index in sorted(found)]


def _is_read_before(links: list[Link], loop: Link) -> bool:
    """Whether the loop uses a name before the statements that would move set it."""
    names = {name for link in links for name in link.changes}
    return any(
        part.id in names
        for other in loop.blocks["body"][: links[-1].index]
        if other not in links
        for inner in (other, *links_in(other))
        for root in expressions(inner.stmt)
        for part in descend(root)
        if isinstance(part, forms.Name)
    )


def _names(expr: forms.Expr) -> set[str]:
    """The names that an expression reads, dotted ones as well."""
    return {name for part in descend(expr) if (name := dotted(part)) is not None}


def _name(move: Move) -> str:
    """``anchors_on_device`` of ``anchors.to(device)``, ``weight`` of ``weight=torch.tensor(...).cuda()``."""
    root = dotted(chain_root(move.receiver)[0])
    if root is not None:
        return f"{root.rpartition('.')[2]}_on_device"
    for site in move.module.calls_in(move.link):
        if isinstance(site.expr, forms.Call):
            for arg in site.expr.args:
                if arg.value is move.call and arg.name:
                    return arg.name
    return "constant"
