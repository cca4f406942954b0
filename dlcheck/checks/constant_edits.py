"""Copies of a constant, made once above the loop."""

from __future__ import annotations

from dlcheck.checks import moving
from dlcheck.checks.loader_moves import free_name, named_above
from dlcheck.checks.name_uses import bound_before, imported, is_read_before
from dlcheck.checks.report import make_fix
from dlcheck.checks.tensor_uses import is_mentioned_elsewhere, use_of, use_of_expression
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Applicability, Fix
from dlcheck.model.flow import links_in, links_of
from dlcheck.model.scopes import Link, children, descend, dotted, last_name
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
        if links is None or len(stmt.targets) != 1:
            return _INSIDE
        if is_read_before(links, loop):
            return Refused("a round uses that of the round before")
        names = {name for one in links for name in one.changes}
        others = [one for one in (loop, *links_in(loop)) if one not in links]
        used = {use_of(move.project, others, name) for name in names}
        if "edited" in used:
            return Refused("the loop may edit it, under another name or in a function")
        same = used == {"read"} and not any(bound_before(loop, name) for name in names) and _stays(move, links, loop)
        kind: Applicability = "safe" if same else "unsafe"
        return make_fix(kind, "Make it once, above the loop", moving.hoist(module.source, module.facts, links, loop))
    if _names(move.call) & loop.changes:
        return _INSIDE
    name = _name(move)
    if not free_name(module, loop.scope, name):
        return Refused(f"`{name}` is something else here")
    used = {use_of_expression(move.project, link, move.call)}
    if "edited" in used:
        return Refused("the loop may edit it, under another name or in a function")
    kind = "safe" if used == {"read"} and _stays(move, [link], loop) else "unsafe"
    return make_fix(kind, f"Make `{name}` once, above the loop", named_above(module, loop, move.call, name))


# What such arguments name cannot be edited.
_SETTLED = frozenset({"device", "dtype", "requires_grad", "pin_memory", "non_blocking"})


def _stays(move: Move, links: list[Link], loop: Link) -> bool:
    """Whether nothing in the loop can change what the constant is made of."""
    made = (
        [move.call] if links == [move.link] else [one.stmt.value for one in links if isinstance(one.stmt, forms.Assign)]
    )
    set_here = {name for one in links for name in one.changes}
    return all(_part_stays(move, part, loop, links, set_here, False) for part in made)


def _part_stays(move: Move, expr: forms.Expr, loop: Link, links: list[Link], set_here: set[str], settled: bool) -> bool:
    """Whether a part of the constant stays; ``settled`` where it is a device or type, which nobody can edit."""
    module, scope = move.module, loop.scope
    name = dotted(expr)
    if name is not None:
        root, last = name.partition(".")[0], name.rpartition(".")[2]
        if root in imported(module) or name in set_here:
            return True
        if any(root in other.not_local for other in module.functions):
            return False
        if "." in name:
            return settled and _is_set_once(move, last) or not is_mentioned_elsewhere(move.project, last, links)
        if settled:
            return True
        if scope.kind == "function" and root in scope.names:
            others = [one for one in (loop, *links_in(loop)) if one not in links]
            return use_of(move.project, others, root) == "read"
        return _is_constant(move, root)
    if isinstance(expr, forms.Call):
        moves = last_name(expr.func) in ("to", "cuda", "type")
        parts = [(arg.value, moves or arg.name in _SETTLED) for arg in expr.args]
        if isinstance(expr.func, forms.Attr):
            parts.append((expr.func.value, False))
        return all(_part_stays(move, part, loop, links, set_here, known) for part, known in parts)
    return all(_part_stays(move, part, loop, links, set_here, settled) for part in children(expr))


def _is_set_once(move: Move, attribute: str) -> bool:
    """Whether an attribute is set in ``__init__`` alone."""
    stores = [store for module in move.project.loaded() for store in module.stores if store.target.name == attribute]
    return all(store.link.scope.name == "__init__" for store in stores)


def _is_constant(move: Move, name: str) -> bool:
    """Whether a name of the module is only read, wherever it is mentioned."""
    everywhere = (link for scope in move.module.functions for link in links_of(scope))
    return not any(name in link.changes for link in everywhere) and name.isupper()


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
