"""Collate functions: does what they return still hold the samples themselves?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import dotted, target_names
from dlcheck.model.values import External, Func, Instance, LambdaFunc, Value

if TYPE_CHECKING:
    from dlcheck.model.project import Project

_CONTAINERS = frozenset({"list", "tuple", "zip", "dict", "sorted", "reversed"})


def passes_samples_on(project: Project, collate: Value) -> bool:
    """Whether a collate function is known to return the samples uncopied: themselves, listed or transposed."""
    if isinstance(collate, External):
        return collate.path in ("builtins.list", "builtins.tuple")
    if isinstance(collate, LambdaFunc):
        names = {param.name for param in collate.form.params[:1]}
        return _holds(collate.form.body, names)
    if isinstance(collate, Instance):
        method = project.method(collate.cls, "__call__")
        collate = Func(method, collate) if method is not None else collate
    if not isinstance(collate, Func) or not collate.scope.returns:
        return False
    params = [param.name for param in collate.scope.function.params]
    own = collate.scope.owner is not None and not collate.scope.has_decorator("staticmethod")
    names = set(params[own : own + 1])
    for link in links_of(collate.scope):
        stmt = link.stmt
        if isinstance(stmt, forms.Assign) and _holds(stmt.value, names):
            names.update(name for target in stmt.targets for name in target_names(target))
        elif isinstance(stmt, forms.Assign):
            names.difference_update(name for target in stmt.targets for name in target_names(target))
    returned = [link.stmt.value for link in collate.scope.returns if isinstance(link.stmt, forms.Return)]
    return all(value is not None and _holds(value, names) for value in returned)


def _holds(expr: forms.Expr, names: set[str]) -> bool:
    """Whether an expression has samples in it that nothing copied."""
    if isinstance(expr, forms.Name):
        return expr.id in names
    if isinstance(expr, forms.Star):
        return _holds(expr.value, names)
    if isinstance(expr, forms.Sub):
        return _holds(expr.value, names)
    if isinstance(expr, forms.Sequence):
        return any(_holds(item, names) for item in expr.items)
    if isinstance(expr, forms.Dict):
        return any(_holds(entry.value, names) for entry in expr.entries)
    if isinstance(expr, forms.Call):
        return dotted(expr.func) in _CONTAINERS and any(_holds(arg.value, names) for arg in expr.args)
    if isinstance(expr, forms.Comp) and len(expr.clauses) == 1 and _holds(expr.clauses[0].iter, names):
        return _holds(expr.value, names | set(target_names(expr.clauses[0].target)))
    return False
