"""Fixes that switch gradients off: on the function of an evaluation, or around its loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dlcheck.checks import mending, moving
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Applicability, Fix
from dlcheck.model.flow import links_of
from dlcheck.model.loops import BatchLoop, called_scopes
from dlcheck.model.scopes import MUTATORS, Link, Scope, Site, descend, dotted, expressions, last_name, target_names
from dlcheck.model.training.gradmode import asks_for_gradients

if TYPE_CHECKING:
    from dlcheck.model.project import Project


def gradients_off(loop: BatchLoop) -> Fix | Refused:
    """``@torch.no_grad()`` on the function of a loop; around the loop, where the function does more than evaluate."""
    module, scope, link = loop.module, loop.link.scope, loop.link
    if not isinstance(link.stmt, forms.For) or link.stmt.iter is not loop.iterated and loop.inner is not None:
        return Refused("the loop is part of an expression")
    function = scope.function
    if (
        scope.kind != "function"
        or function.is_async
        or function.is_generator
        or asks_for_gradients(loop.project, scope)
    ):
        if any(site.link is link or link in site.link.outer() for site in scope.yields):
            return Refused("gradients would be off for whoever takes what it yields, too")
        torch, imports = mending.alias_of(module, "torch", "torch", link)
        step = moving.unit(module)
        around = moving.put_into(module.source, module.facts, link, f"with {torch}.no_grad():", step)
        return make_fix("unsafe", f"Put the loop into `with {torch}.no_grad():`", [around, *imports])
    torch, imports = mending.alias_of(module, "torch", "torch", scope.link)
    decorator = f"{torch}.no_grad()"
    edit = moving.add_decorator(module.source, module.facts, scope, decorator)
    kind: Applicability = "safe" if _gives_no_graph(loop, scope) and not _is_watched(loop.project) else "unsafe"
    return make_fix(kind, f"Put `@{decorator}` on `{scope.name}`", [edit, *imports])


# What shows that a program looks at a network's tensors, or computes otherwise, while gradients are on.
_WATCHING = (
    "register_forward_hook", "register_forward_pre_hook", "register_module_forward_hook", "register_full_backward_hook",
    "is_grad_enabled", "TransformerEncoder", "MultiheadAttention", "nn.Transformer(", "saved_tensors_hooks",
)  # fmt: skip


def _is_watched(project: Project) -> bool:
    """Whether the networks of a project may keep what they compute: by hooks, or in attributes."""
    if any(project.mentioning(word) for word in _WATCHING):
        return True
    project.mention("def forward")
    return any(
        not _keeps_nothing(_Plain(method, None, "nothing")) for cls in project.classes() for method in _passes(cls)
    )


def _passes(cls: Scope) -> Iterator[Scope]:
    """The ``forward`` of a class, and the methods that it calls."""
    todo, seen = ["forward", "__call__"], set[str]()
    while todo:
        name = todo.pop()
        method = cls.functions.get(name)
        if method is None or name in seen or "forward" not in cls.functions:
            continue
        seen.add(name)
        yield method
        for site in cls.module.calls_by_scope.get(method, ()):
            func = getattr(site.expr, "func", None)
            if isinstance(func, forms.Attr) and isinstance(func.value, forms.Name):
                todo.append(func.name)


def _gives_no_graph(loop: BatchLoop, scope: Scope) -> bool:
    """Whether all that the network gives ends in a function: nothing of its graph is returned, stored or handed on."""
    project, plain = loop.project, _Plain(scope, loop.link, "as it is")
    if not _keeps_nothing(plain):
        return False
    for other in scope.module.functions:
        if _is_within(other, scope) and not _keeps_nothing(_Plain(other, None, "nothing")):
            return False
    seen = {scope}
    for site in scope.module.calls_by_scope.get(scope, ()):
        assert isinstance(site.expr, forms.Call)
        given = all(plain.holds(arg.value) for arg in site.expr.args)
        todo = [(called, "all" if given else "nothing") for called in called_scopes(project, site)]
        while todo:
            called, params = todo.pop()
            if called in seen and params == "all":
                continue
            if called not in seen:
                inner = (inner for one in called.module.calls_by_scope.get(called, ())
                         for inner in called_scopes(project, one))  # fmt: skip
                todo += [(one, "nothing") for one in inner if one not in seen and len(seen) < 40]
            seen.add(called)
            if not _keeps_nothing(_Plain(called, None, params)):
                return False
    results = [link.stmt.value for link in scope.returns if isinstance(link.stmt, forms.Return)]
    return all(value is None or plain.holds(value) for value in results)


def _is_within(scope: Scope, outer: Scope) -> bool:
    around = scope.parent
    while around is not None and around is not outer:
        around = around.parent
    return around is outer


def _keeps_nothing(plain: _Plain) -> bool:
    """Whether a function puts nothing but numbers, and what it was given as it is, into what is not its own."""
    scope = plain.scope
    return all(_stays_inside(link, plain) for link in links_of(scope)) and not any(
        _hands_out(site, plain) for site in scope.module.calls_by_scope.get(scope, ())
    )


def _stays_inside(link: Link, plain: _Plain) -> bool:
    stmt = link.stmt
    if isinstance(stmt, forms.Assign):
        return plain.holds(stmt.value) or all(_is_own(target, plain, False) for target in stmt.targets)
    if isinstance(stmt, (forms.AugAssign, forms.Declare)):
        in_place = isinstance(stmt, forms.AugAssign)
        return stmt.value is None or plain.holds(stmt.value) or _is_own(stmt.target, plain, in_place)
    if isinstance(stmt, forms.For):
        return _is_own(stmt.target, plain, False)
    if isinstance(stmt, forms.With):
        return all(item.target is None or _is_own(item.target, plain, False) for item in stmt.items)
    return True


def _is_own(target: forms.Expr, plain: _Plain, in_place: bool) -> bool:
    """Whether what is assigned to a target stays in the function."""
    if isinstance(target, forms.Sequence):
        return all(_is_own(item, plain, in_place) for item in target.items)
    if isinstance(target, forms.Star):
        return _is_own(target.value, plain, in_place)
    if isinstance(target, forms.Name):
        if target.id in plain.scope.not_local:
            return False
        return not in_place or plain.is_fresh(target.id)
    return isinstance(target, forms.Sub) and isinstance(target.value, forms.Name) and plain.is_fresh(target.value.id)


# Methods that keep what they are given.
_KEEPING = frozenset(
    {"append", "appendleft", "extend", "insert", "add", "update", "put", "put_nowait", "setdefault", "__setitem__",
     "setattr", "push", "add_", "copy_", "save", "record", "store", "cache"}
)  # fmt: skip


def _hands_out(site: Site, plain: _Plain) -> bool:
    """Whether a call puts something else than numbers into what is not the function's own.

    One whose result nobody takes is made for what it does; one of the project is looked at by itself.
    """
    call = site.expr
    assert isinstance(call, forms.Call)
    stmt = site.link.stmt
    name = last_name(call.func)
    if not isinstance(stmt, forms.Do) and name not in _KEEPING or name == "print" and isinstance(call.func, forms.Name):
        return name == "print" and not all(plain.holds(arg.value) for arg in call.args)
    if isinstance(stmt, forms.Do) and stmt.value is not call and name not in _KEEPING and _is_used(stmt, call):
        return False
    owner = call.func.value if isinstance(call.func, forms.Attr) and name in MUTATORS else None
    if isinstance(owner, forms.Name) and plain.is_fresh(owner.id):
        return False  # what it holds is looked at where that goes
    return not all(plain.holds(arg.value) for arg in call.args)


def _is_used(stmt: forms.Do, call: forms.Call) -> bool:
    """Whether a call in a statement gives its result to another one, or its owner to a method."""
    return isinstance(stmt.value, forms.Call) and any(part is call for part in descend(stmt.value))


# Methods and functions that give numbers, text or tensors without a graph, whatever they are given.
_FREE_METHODS = frozenset(
    {"size", "item", "tolist", "numpy", "format", "argmax", "argmin", "argsort", "detach", "numel", "dim", "eq", "ne",
     "long", "bool", "nelement", "keys", "state_dict", "time", "perf_counter"}
)  # fmt: skip
_FREE_FUNCTIONS = frozenset({"float", "int", "len", "bool", "range", "type", "isinstance", "hasattr"})
_FREE_ATTRIBUTES = frozenset({"shape", "data", "dtype", "device", "ndim"})
_FREE_LIBRARIES = frozenset({"np", "numpy", "math", "time", "os", "json", "datetime"})
# What passes numbers on as numbers.
_PASSING = frozenset(
    {"str", "repr", "sum", "max", "min", "abs", "round", "list", "tuple", "dict", "set", "sorted", "zip", "enumerate",
     "reversed", "to", "cuda", "cpu", "float", "double", "half", "view", "reshape", "squeeze", "unsqueeze", "mean",
     "flatten", "items", "values", "get", "pop", "join", "split", "copy", "int", "cat", "stack", "tensor", "tqdm",
     "trange", "flip"}
)  # fmt: skip
_FRESH = frozenset({"list", "dict", "set", "defaultdict", "OrderedDict", "deque", "Counter"})


class _Plain:
    """Which expressions of a function hold nothing that its networks compute with a graph.

    ``params`` says what its parameters hold: "nothing" that is known, "all" numbers, or something that may be
    passed on "as it is" (but what is computed of it here has lost its graph after the fix).
    """

    def __init__(self, scope: Scope, loop: Link | None, params: str) -> None:
        self.scope = scope
        self.loop = loop
        self.params = params
        self._known: dict[tuple[str, bool], bool] = {}
        self._links = list(links_of(scope))

    def holds(self, expr: forms.Expr, inner: frozenset[str] = frozenset(), computes: bool = False) -> bool:
        """Whether an expression is numbers, text, or (unless something is computed of it) what the function has."""
        if isinstance(expr, (forms.Const, forms.FString, forms.Compare, forms.Slice)):
            return True
        if isinstance(expr, forms.Call):
            return self._gives(expr, inner, computes)
        parts: Iterable[forms.Expr]
        if isinstance(expr, (forms.Binary, forms.Bool)):
            parts, computes = (expr.left, expr.right), computes or isinstance(expr, forms.Binary)
        elif isinstance(expr, forms.IfExp):
            parts = (expr.body, expr.orelse)
        elif isinstance(expr, (forms.Unary, forms.Star, forms.Walrus, forms.Sub)):
            parts = (expr.value,)
        elif isinstance(expr, forms.Sequence):
            parts = expr.items
        elif isinstance(expr, forms.Dict):
            parts = (entry.value for entry in expr.entries)
        elif isinstance(expr, forms.Comp):
            for clause in expr.clauses:
                if self.holds(clause.iter, inner, computes):
                    inner |= set(target_names(clause.target))
            parts = (expr.value,)
        elif isinstance(expr, forms.Attr):
            return expr.name in _FREE_ATTRIBUTES or self.params == "all"
        else:
            return isinstance(expr, forms.Name) and (expr.id in inner or self._is_plain_name(expr.id, computes))
        return all(self.holds(part, inner, computes) for part in parts)

    def _gives(self, call: forms.Call, inner: frozenset[str], computes: bool) -> bool:
        name = last_name(call.func)
        root = (dotted(call.func) or "").partition(".")[0]
        computes = computes or name not in _FRESH and (isinstance(call.func, forms.Name) or root == "torch")
        args = all(self.holds(arg.value, inner, computes) for arg in call.args)
        if isinstance(call.func, forms.Name):
            return name in _FREE_FUNCTIONS or name in (*_PASSING, *_FRESH) and args
        if not isinstance(call.func, forms.Attr):
            return False
        if name in _FREE_METHODS or root in _FREE_LIBRARIES and root not in self.scope.names:
            return True
        return name in _PASSING and args and (root == "torch" or self.holds(call.func.value, inner, True))

    def _is_plain_name(self, name: str, computes: bool) -> bool:
        key = name, computes
        if key not in self._known:
            self._known[key] = True  # what it is made of may name it again
            known = name in self.scope.names and name not in self.scope.not_local
            if self._is_param(name) and self.params != "all":
                known = known and self.params == "as it is" and not computes
            self._known[key] = known and all(
                value is not None and self.holds(value, computes=computes) for value in self._bound(name)
            )
        return self._known[key]

    def is_fresh(self, name: str) -> bool:
        """Whether a local name is bound to nothing but new containers."""
        if name not in self.scope.names or name in self.scope.not_local or self._is_param(name):
            return False
        values = list(self._bound(name, plainly=True))
        return bool(values) and all(
            isinstance(value, (forms.Dict, forms.Comp, forms.Sequence))
            or isinstance(value, forms.Call) and isinstance(value.func, (forms.Name, forms.Attr))
            and last_name(value.func) in _FRESH
            for value in values
        )  # fmt: skip

    def _is_param(self, name: str) -> bool:
        return any(param.name == name for param in self.scope.function.params)

    def _bound(self, name: str, plainly: bool = False) -> Iterator[forms.Expr | None]:
        """What a local name is bound to, or added; None for what is no plain assignment.

        ``plainly`` leaves out what is only added to it.
        """
        for link in self._links:
            stmt = link.stmt
            if name not in link.changes or any(name in inner.changes for block in link.blocks.values()
                                               for inner in block) and not isinstance(stmt, forms.For):  # fmt: skip
                continue
            if isinstance(stmt, forms.For):
                if name in target_names(stmt.target):
                    # What the loader gives has passed no network.
                    yield forms.Const(0, stmt.at) if link is self.loop else stmt.iter
                continue
            if isinstance(stmt, (forms.Assign, forms.AugAssign, forms.Declare)):
                yield from self._of_assignment(name, stmt, plainly)
            elif not plainly:
                yield from self._of_calls(name, stmt)
            elif not isinstance(stmt, (forms.Do, forms.Delete)):
                yield None

    def _of_assignment(
        self, name: str, stmt: forms.Assign | forms.AugAssign | forms.Declare, plainly: bool
    ) -> Iterator[forms.Expr | None]:
        targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
        for target in targets:
            if name not in target_names(target):
                continue
            if isinstance(target, forms.Sub) or isinstance(stmt, forms.AugAssign):
                if not plainly:
                    yield stmt.value
            elif isinstance(target, forms.Sequence) and isinstance(stmt.value, forms.Sequence):
                pairs = zip(target.items, stmt.value.items, strict=False)
                found = [value for item, value in pairs if dotted(item) == name]
                yield from found if len(target.items) == len(stmt.value.items) and found else [None]
            elif dotted(target) == name:
                yield stmt.value
            else:
                # Of what holds numbers only, each part is one.
                yield stmt.value if not plainly else None
        if not any(name in target_names(target) for target in targets):
            yield from [None] if plainly else self._of_calls(name, stmt)

    def _of_calls(self, name: str, stmt: forms.Stmt) -> Iterator[forms.Expr | None]:
        """What methods such as ``append`` add to a name in a statement."""
        seen = False
        for root in expressions(stmt):
            for part in descend(root):
                if (
                    isinstance(part, forms.Call)
                    and isinstance(part.func, forms.Attr)
                    and dotted(part.func.value) == name
                ):
                    seen = True
                    yield from (arg.value for arg in part.args)
        if not seen:
            yield None
