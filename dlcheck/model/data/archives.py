"""Files of many arrays: ``.npz``, of which only the members are read that are asked for by name."""

from __future__ import annotations

from dlcheck.facts import forms
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Scope, descend, dotted, expressions, last_name, target_names

SUFFIX = ".npz"


def names_archive(path: forms.Expr) -> bool:
    """Whether an expression for a path ends in ``.npz``, whatever it begins with."""
    if isinstance(path, forms.Const):
        return str(path.value).endswith(SUFFIX)
    if isinstance(path, forms.FString):
        return bool(path.parts) and names_archive(path.parts[-1])
    if isinstance(path, forms.Binary):
        return path.op in "+/%" and names_archive(path.right if path.op != "%" else path.left)
    if isinstance(path, forms.Call) and path.args:
        func = path.func
        if last_name(func) in ("join", "joinpath", "str", "Path", "with_suffix", "with_name", "fspath"):
            return names_archive(path.args[-1].value)
        return isinstance(func, forms.Attr) and func.name == "format" and names_archive(func.value)
    return False


def is_read_as_archive(call: forms.Call, link: Link) -> bool:
    """Whether what ``numpy.load`` gives is used as only an archive can be: in a ``with``, or by its members' names."""
    if any(names_archive(arg.value) for arg in call.args[:1]):
        return True
    if isinstance(link.stmt, forms.With) and any(item.value is call for item in link.stmt.items):
        return True
    names = holders(call, link)
    return any(
        isinstance(expr, forms.Attr) and expr.name == "files" and dotted(expr.value) in names
        for expr in _expressions(link.scope)
    )


def reads_fixed_member(call: forms.Call, link: Link) -> bool:
    """Whether a member is read whose name is written down: an array of its own."""
    names = holders(call, link)
    return any(
        isinstance(expr, forms.Sub)
        and (expr.value is call or dotted(expr.value) in names)
        and isinstance(expr.index, forms.Const)
        and isinstance(expr.index.value, str)
        for expr in _expressions(link.scope)
    )


def holders(call: forms.Call, link: Link) -> set[str | None]:
    """The names and attributes that hold what a call gives."""
    stmt = link.stmt
    if isinstance(stmt, forms.With):
        return {name for item in stmt.items if item.value is call for name in target_names(item.target)}
    if isinstance(stmt, forms.Assign) and stmt.value is call:
        return {dotted(target) for target in stmt.targets} - {None}
    return set()


def _expressions(scope: Scope) -> list[forms.Expr]:
    return [expr for link in links_of(scope) for root in expressions(link.stmt) for expr in descend(root)]
