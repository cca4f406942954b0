"""Whether code only reads a value that it is given: then the value may be kept, and given to it again."""

from __future__ import annotations

from collections.abc import Iterable

from dlcheck.checks import class_edits
from dlcheck.checks.class_edits import with_parents
from dlcheck.facts import forms
from dlcheck.model.flow import links_of
from dlcheck.model.project import Project
from dlcheck.model.scopes import (
    Link,
    Module,
    Scope,
    descend,
    dotted,
    expressions,
    flat_targets,
    last_name,
    target_names,
)

# Methods and functions whose results are things of their own, and that leave alone what they are given.
_FRESH = frozenset(
    {"copy", "clone", "astype", "item", "tolist", "to_dict", "to_list", "float", "double", "half", "int", "long",
     "bool", "str", "len", "sum", "mean", "min", "max", "argmax", "std", "split", "strip", "decode", "encode", "lower",
     "upper", "replace", "startswith", "endswith", "rstrip", "lstrip", "tensor", "array", "stack", "concatenate", "cat",
     "FloatTensor", "LongTensor", "float32", "float64", "int64", "to_numpy", "count", "index", "isinstance", "range",
     "sorted", "print", "abs", "round", "all", "any", "isin", "unique", "hash", "type", "join", "format"}
)  # fmt: skip
# These give the same memory, or what lies in it.
_VIEWS = frozenset(
    {"get", "items", "keys", "values", "numpy", "from_numpy", "as_tensor", "asarray", "squeeze", "unsqueeze",
     "reshape", "view", "transpose", "permute", "flatten", "ravel", "Tensor", "list", "tuple", "dict", "zip",
     "enumerate", "fromarray", "itertuples", "iterrows", "iter", "next", "query", "contiguous", "expand_dims",
     "swapaxes", "to"}
)  # fmt: skip
_ATTRIBUTES = frozenset(
    {"iloc", "loc", "at", "iat", "values", "shape", "T", "columns", "size", "dtype", "ndim", "index"}
)

MAX_DEPTH = 8


class ReadOnly:
    """Asks it for values inside the methods of some classes.  What it does not know, changes them."""

    def __init__(self, project: Project, classes: Iterable[Scope]) -> None:
        self.project, self.classes = project, list(classes)
        self.seen: set[tuple[Module, int]] = set()

    def holds(self, expr: forms.Expr, around: tuple[forms.Expr, ...], link: Link, depth: int = 0) -> bool:
        """Whether nothing changes what an expression gives; ``around`` are the expressions around it."""
        if depth > MAX_DEPTH:
            return False
        if not around:
            return self._statement(expr, link, depth)
        parent, rest = around[0], around[1:]
        if isinstance(parent, forms.Sub):
            if parent.value is not expr:
                return True  # it is an index
            return not _is_changed(parent, link) and self.holds(parent, rest, link, depth + 1)
        if isinstance(parent, forms.Attr):
            return self._attribute(parent, rest, link, depth)
        if isinstance(parent, forms.Call):
            return parent.func is not expr and self._argument(parent, rest, link, depth)
        if isinstance(parent, (forms.Sequence, forms.Dict, forms.IfExp, forms.Star)):
            return self.holds(parent, rest, link, depth + 1)
        if isinstance(parent, forms.Slice):
            return True
        if isinstance(parent, forms.Comp):
            calls = [part for part in descend(parent) if isinstance(part, forms.Call)]
            known = all(last_name(call.func) in _FRESH | _VIEWS for call in calls)
            return known and parent.kind != "generator" and self.holds(parent, rest, link, depth + 1)
        return isinstance(parent, (forms.Binary, forms.Compare, forms.Unary, forms.FString))

    def _attribute(self, attribute: forms.Attr, rest: tuple[forms.Expr, ...], link: Link, depth: int) -> bool:
        called = bool(rest) and isinstance(rest[0], forms.Call) and rest[0].func is attribute
        if not called:
            return attribute.name in _ATTRIBUTES and (
                not _is_changed(attribute, link) and self.holds(attribute, rest, link, depth + 1)
            )
        call = rest[0]
        assert isinstance(call, forms.Call)
        if any(arg.name in ("inplace", "out") for arg in call.args):
            return False
        if attribute.name in _FRESH:
            return True
        return attribute.name in _VIEWS and self.holds(call, rest[1:], link, depth + 1)

    def _argument(self, call: forms.Call, rest: tuple[forms.Expr, ...], link: Link, depth: int) -> bool:
        name = last_name(call.func)
        if any(arg.name in ("inplace", "out") for arg in call.args):
            return False
        if isinstance(call.func, forms.Name) and call.func.id in link.scope.module.scope.functions:
            return False
        if name in _FRESH:
            return True
        if name in _VIEWS:
            return self.holds(call, rest, link, depth + 1)
        # A transform that the dataset was given; it may change what it gets, but should not.
        func = dotted(call.func) or ""
        own = class_edits.own_name(link.scope)
        given = bool(own) and func.startswith(f"{own}.") and func.count(".") == 1
        return (
            given
            and not any(name in cls.functions for cls in self.classes)
            and (any(word in name.lower() for word in ("transform", "token", "process", "augment")))
        )

    def _statement(self, expr: forms.Expr, link: Link, depth: int) -> bool:
        stmt = link.stmt
        if isinstance(stmt, forms.Return):
            return link.scope.name == "__getitem__" or self._result(link.scope, depth)
        if isinstance(stmt, (forms.If, forms.While, forms.Assert, forms.Do, forms.Raise)):
            return True
        if isinstance(stmt, forms.AugAssign):
            return stmt.target is not expr
        if isinstance(stmt, forms.For):
            return stmt.iter is expr and self._names(set(target_names(stmt.target)), link, depth)
        if isinstance(stmt, forms.Assign) and stmt.value is expr:
            names: set[str] = set()
            for target in stmt.targets:
                if isinstance(target, (forms.Name, forms.Sequence)):
                    names |= set(target_names(target))
                elif not isinstance(target, forms.Sub):
                    return False
            return self._names(names, link, depth)
        return False

    def _names(self, names: set[str], link: Link, depth: int) -> bool:
        """Whether what has these names is only read, wherever the function uses them."""
        scope = link.scope
        if names & scope.not_local or any("." in name for name in names):
            return False
        for other in links_of(scope):
            if isinstance(other.stmt, (forms.Function, forms.Class)):
                return False
            for root in expressions(other.stmt):
                for expr, around in with_parents(root, ()):
                    if not isinstance(expr, forms.Name) or expr.id not in names or _is_bound(expr, other):
                        continue
                    key = (scope.module, expr.at)
                    if key not in self.seen:
                        self.seen.add(key)
                        if not self.holds(expr, around, other, depth + 1):
                            return False
        return True

    def _result(self, method: Scope, depth: int) -> bool:
        """Whether those who call a method only read what it returns."""
        if method.owner is None or method.name.startswith("__"):
            return False
        is_property = method.has_decorator("property")
        for use in class_edits.uses(self.project, self.classes, method.name):
            expr: forms.Expr = use.expr
            around = use.around
            if not is_property and around and isinstance(around[0], forms.Call) and around[0].func is expr:
                expr, around = around[0], around[1:]
            elif not is_property:
                return False
            if not use.is_own or not self.holds(expr, around, use.link, depth + 1):
                return False
        return True


def _is_bound(name: forms.Name, link: Link) -> bool:
    stmt = link.stmt
    if isinstance(stmt, forms.Assign):
        targets = [item for target in stmt.targets for item in flat_targets(target)]
        return any(target is name for target in targets)
    return isinstance(stmt, forms.For) and any(target is name for target in flat_targets(stmt.target))


def _is_changed(expr: forms.Expr, link: Link) -> bool:
    """Whether a statement sets an item or attribute."""
    stmt = link.stmt
    if isinstance(stmt, forms.AugAssign):
        return any(part is expr for part in descend(stmt.target))
    targets = stmt.targets if isinstance(stmt, (forms.Assign, forms.Delete)) else ()
    return any(part is expr for target in targets for part in descend(target))
