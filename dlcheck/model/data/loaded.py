"""What an attribute is that ``torch.load`` or ``pickle.load`` gave: judged by what its class does with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.data.memory import ARRAY, TENSOR
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import descend, dotted, expressions

if TYPE_CHECKING:
    from dlcheck.model.project import Project
    from dlcheck.model.scopes import Scope

# Only a tensor has these methods; lists and dicts of tensors have none of them.
_OF_TENSORS = frozenset(
    {"unsqueeze", "permute", "detach", "narrow", "expand", "view_as", "movedim", "float", "long", "double", "half",
     "size", "dim", "numel", "contiguous", "numpy", "to", "share_memory_", "index_select"}
)  # fmt: skip
_OF_BOTH = frozenset({"shape", "ndim"})


def kind_by_use(project: Project, cls: Scope, name: str) -> str:
    """A tensor, at least an array, or "" where its class uses an attribute like neither."""
    return project.once(("kind by use", cls, name), lambda: _kind_by_use(project, cls, name))


def _kind_by_use(project: Project, cls: Scope, name: str) -> str:
    found = ""
    for base in project.lineage(cls):
        for method in base.functions.values():
            params = method.function.params
            own = f"{params[0].name}.{name}" if params else ""
            for link in links_of(method):
                for root in expressions(link.stmt):
                    for expr in descend(root):
                        kind = _shown(expr, own)
                        if kind == TENSOR:
                            return kind
                        found = found or kind
    return found


def _shown(expr: forms.Expr, own: str) -> str:
    """What one expression shows that ``own``, or a slice of it, is."""
    if isinstance(expr, forms.Call):
        func = expr.func
        if isinstance(func, forms.Attr) and _is_whole(func.value, own):
            shaped = func.name in ("view", "reshape") and len(expr.args) > 1  # ndarray.view takes a dtype
            return TENSOR if func.name in _OF_TENSORS or shaped and func.name == "view" else ARRAY if shaped else ""
        return ""
    return ARRAY if isinstance(expr, forms.Attr) and expr.name in _OF_BOTH and dotted(expr.value) == own else ""


def _is_whole(expr: forms.Expr, own: str) -> bool:
    while isinstance(expr, forms.Sub) and isinstance(expr.index, forms.Slice):
        expr = expr.value
    return dotted(expr) == own
