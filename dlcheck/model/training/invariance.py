"""What a training step does again and again: its loops, and expressions that are the same in each round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.flow import is_inside, links_in
from dlcheck.model.loops import callers_in, runs_once
from dlcheck.model.scopes import Link, Scope, Site, descend, dotted, last_name, target_names
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.model.project import Project

_MAX_CALLERS = 4

# Functions that give the same for the same arguments, by their last names.
_PURE = frozenset(
    {
        "tensor", "as_tensor", "from_numpy", "Tensor", "FloatTensor", "LongTensor", "DoubleTensor", "HalfTensor",
        "IntTensor", "BoolTensor", "ByteTensor", "array", "asarray", "float32", "float64", "int64", "list", "tuple",
        "len", "range", "float", "int", "sorted", "sum", "min", "max", "sqrt", "log", "exp", "prod", "view", "reshape",
        "unsqueeze", "squeeze", "permute", "transpose", "flatten", "long", "double", "half", "type", "astype",
        "to", "expand", "repeat", "t", "zeros", "ones", "full", "eye", "arange", "linspace", "contiguous", "div", "mul",
        "detach", "clone", "numpy", "values", "keys", "tolist", "size", "Variable", "cuda", "cpu", "bool",
    }
)  # fmt: skip


# Functions that fill the tensor that they are given: collective operations, above all.
_FILLING = frozenset(
    {"all_reduce", "reduce", "broadcast", "recv", "irecv", "scatter", "all_gather_into_tensor", "reduce_scatter"}
)


def step_loops(project: Project) -> set[Link]:
    """The loops whose rounds are training or evaluation steps: over a loader, or with ``backward()`` of their own."""
    found = {loop.link for loop in project.loops if isinstance(loop.link.stmt, forms.For) and not loop.framework}
    for module in project.loaded():
        for site in module.calls_to("backward"):
            loop = _loop_of(site.link)
            if loop is not None:
                found.add(loop)
    return {link for link in found if not runs_once(project.evaluator, link)}


def _loop_of(link: Link) -> Link | None:
    child = link
    for outer in link.outer():
        if isinstance(outer.stmt, (forms.For, forms.While)) and child.slot == "body":
            return outer
        child = outer
    return None


def step_around(link: Link, loops: set[Link]) -> Link | None:
    """The step loop in whose body a statement lies."""
    child = link
    for outer in link.outer():
        if outer in loops and child.slot == "body":
            return outer
        child = outer
    return None


def in_every_step(project: Project, link: Link, loops: set[Link], depth: int = 0) -> bool:
    """Whether a statement belongs to a step: in such a loop, in ``forward``, or in a function called from there."""
    if step_around(link, loops) is not None:
        return True
    scope = link.scope
    if is_forward(project, scope):
        return True
    if scope.kind != "function" or scope.name == "__init__" or depth >= _MAX_CALLERS:
        return False
    return any(in_every_step(project, point.link, loops, depth + 1) for point in callers_in(project, scope, ANY))


def is_forward(project: Project, scope: Scope) -> bool:
    """Whether a function is the ``forward`` of a network."""
    owner = scope.owner
    return scope.name == "forward" and owner is not None and _is_network(project, owner)


def _is_network(project: Project, cls: Scope) -> bool:
    return any(path.startswith("torch.nn.") for path in project.external_bases(cls))


def decided_by_the_round(link: Link, loop: Link | None) -> bool:
    """Whether what lies between a statement and its loop (or function) lets only some rounds run it."""
    child = link
    for outer in link.outer():
        if outer is loop:
            return False
        stmt = outer.stmt
        if isinstance(stmt, forms.If):
            if loop is None or not is_invariant(stmt.test, outer, loop):
                return True
        elif isinstance(stmt, (forms.Match, forms.While)) or child.slot.startswith("handler"):
            return True
        child = outer
    return False


def is_invariant(expr: forms.Expr, link: Link, loop: Link, depth: int = 0) -> bool:
    """Whether an expression of a statement is the same in every round of a loop.

    It is made of literals, and of names that the loop leaves alone or sets to such before.
    """
    for part in descend(expr):
        if isinstance(part, forms.Name):
            if not _name_is_invariant(part.id, link, loop, depth):
                return False
        elif isinstance(part, forms.Attr):
            name = dotted(part)
            if name is not None and name in loop.changes:
                return False
        elif isinstance(part, forms.Call):
            if last_name(part.func) not in _PURE:
                return False
        elif isinstance(part, (forms.Comp, forms.Lambda, forms.Yield, forms.Await, forms.Walrus, forms.Other)):
            return False
    return True


def _name_is_invariant(name: str, use: Link, loop: Link, depth: int) -> bool:
    if name not in loop.changes:
        return True
    setting = [link for link in links_in(loop) if not link.blocks and name in link.changes]
    if isinstance(loop.stmt, forms.For) and name in target_names(loop.stmt.target) or len(setting) != 1 or depth > 3:
        return False
    if any(isinstance(link.stmt, forms.For) and name in target_names(link.stmt.target) for link in links_in(loop)):
        return False
    stmt = setting[0].stmt
    if not isinstance(stmt, forms.Assign) or [dotted(target) for target in stmt.targets] != [name]:
        return False
    return _comes_before(setting[0], use) and is_invariant(stmt.value, setting[0], loop, depth + 1)


def _comes_before(link: Link, use: Link) -> bool:
    """Whether a statement runs before another in each round."""
    return any(link.block is here.block and link.index < here.index for here in (use, *use.outer()))


def is_constant(expr: forms.Expr, scope: Scope) -> bool:
    """Whether an expression is the same in every call of a function: literals, and names of the module."""
    for part in descend(expr):
        if isinstance(part, forms.Name):
            if part.id in scope.names:
                return False
        elif isinstance(part, forms.Call):
            if last_name(part.func) not in _PURE:
                return False
        elif isinstance(part, (forms.Comp, forms.Lambda, forms.Yield, forms.Await, forms.Walrus, forms.Other)):
            return False
    return True


def is_changed_again(name: str, link: Link, within: Link | Scope) -> bool:
    """Whether a name that a statement sets is set otherwise, or edited in place, in the same loop or function."""
    links = links_in(within) if isinstance(within, Link) else _links_of(within)
    for other in links:
        if other is not link and not other.blocks and name in other.changes and not _feeds(other, link, name):
            return True
    sites = within.scope.module.calls_in(within) if isinstance(within, Link) else _sites_of(within)
    return any(_edits(site, name) for site in sites)


def _feeds(other: Link, link: Link, name: str) -> bool:
    """``w = torch.tensor(...)`` right before ``w = w.to(device)``: both make the same constant."""
    return other.block is link.block and other.index < link.index and isinstance(other.stmt, forms.Assign)


def _edits(site: Site, name: str) -> bool:
    call = site.expr
    assert isinstance(call, forms.Call)
    func = call.func
    if last_name(func) in _FILLING or any(arg.name == "out" for arg in call.args):
        return any(dotted(arg.value) == name for arg in call.args)
    if not isinstance(func, forms.Attr) or not func.name.endswith("_") or func.name.endswith("__"):
        return False
    base = func.value
    while isinstance(base, forms.Sub):
        base = base.value
    return dotted(base) == name


def _links_of(scope: Scope) -> Iterator[Link]:
    for link in scope.body:
        yield link
        yield from links_in(link)


def _sites_of(scope: Scope) -> list[Site]:
    return scope.module.calls_by_scope.get(scope, [])


def set_only_in_init(project: Project, cls: Scope, name: str) -> bool:
    """Whether ``self.name`` is assigned in ``__init__`` alone."""
    stores = project.stores(cls, name)
    return bool(stores) and all(store.link.scope.name == "__init__" for store in stores)


def lies_in(link: Link, loop: Link) -> bool:
    return link is not loop and is_inside(link, loop)
