"""Networks: which values are some, and which have weights of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.scopes import Link, Scope, dotted, last_name
from dlcheck.model.values import Instance, Made, Many, Mapping, Moved, Point, Unknown, Value

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.project import Project

# What switches gradients off.
NO_GRADIENTS = frozenset({"no_grad", "inference_mode"})

# Layers with weights of their own, by how their names begin.
_LAYERS = (
    "Linear", "Bilinear", "Conv", "Embedding", "LSTM", "GRU", "RNN", "Transformer", "MultiheadAttention", "BatchNorm",
    "LayerNorm", "GroupNorm", "LazyLinear", "LazyConv", "PReLU",
)  # fmt: skip
_FLUENT = frozenset({"eval", "train", "to", "cuda", "cpu", "float", "half", "double", "share_memory"})

# What only networks do.
_MODES = frozenset({"eval", "train", "load_state_dict"})
_LOSSES = ("loss", "criterion", "crit", "objective", "metric", "accuracy", "acc")


def has_weights(project: Project, value: Value, depth: int) -> bool:
    """Whether a value is a network with weights: of torch, of a library of models, or of the project."""
    if depth > 3:
        return False
    if isinstance(value, Instance):
        return _own_network(project, value, depth)
    if not isinstance(value, Made):
        return False
    name = value.path.rpartition(".")[2]
    if name in _FLUENT and value.base is not None:
        return has_weights(project, value.base, depth + 1)
    if value.path.startswith("torch.nn."):
        if name in ("Sequential", "ModuleList"):
            thunks = [thunk for thunk, _ in value.args.positional] if value.args is not None else []
            found = [alt.value for thunk in thunks for alt in project.evaluator.force(thunk)]
            inner = [part for one in found for part in (one, *parts(project.evaluator, one, 0))]
            return any(has_weights(project, part, depth + 1) for part in inner)
        return name.startswith(_LAYERS)
    if value.path.startswith("torchvision.models."):
        return name[:1].islower() and "_Weights" not in value.path and "()" not in value.path
    return value.path == "timm.create_model" or (
        value.path.startswith("transformers.") and name == "from_pretrained" and "Model" in value.path
    )


def _own_network(project: Project, value: Instance, depth: int) -> bool:
    if not any(path.startswith("torch.nn.") for path in project.external_bases(value.cls)):
        return False
    forward = project.method(value.cls, "forward")
    if forward is None or without_graph(forward) or _names_off(forward):
        return False
    for base in project.lineage(value.cls):
        for store in base.module.stores:
            scope = store.link.scope
            if scope.owner is not base or scope.name != "__init__" or store.value is None:
                continue
            for found in project.evaluator.values(store.value, Point(project.evaluator.any_frame(scope), store.link)):
                if (
                    isinstance(found, Made)
                    and found.path == "torch.nn.Parameter"
                    or has_weights(project, found, depth + 1)
                ):
                    return True
    return False


def _names_off(scope: Scope) -> bool:
    calls = scope.module.calls_by_scope.get(scope, ())
    return any(
        isinstance(site.expr, forms.Call) and last_name(site.expr.func) in {*NO_GRADIENTS, "detach"} for site in calls
    )


def without_graph(scope: Scope) -> bool:
    """Whether a function is decorated so that it records no gradients."""
    return scope.has_decorator(*NO_GRADIENTS)


def parts(ev: Evaluator, value: Value, depth: int) -> Iterator[Value]:
    """The items of a list, tuple or dict."""
    if isinstance(value, (Many, Mapping)) and depth < 3:
        thunks = value.items if isinstance(value, Many) else tuple(thunk for _, thunk in value.entries)
        for thunk in thunks[:12]:
            yield from (alt.value for alt in ev.force(thunk))


# -- networks by what is done with them


def is_network(project: Project, link: Link, func: forms.Expr, values: list[Value]) -> bool:
    """Whether what is called is a network: known as one, treated or at least named as one."""
    names = []
    base = func
    while isinstance(base, (forms.Attr, forms.Name)):
        names.append(dotted(base) or "")
        if isinstance(base, forms.Name):
            break
        base = base.value
    if any(_is_loss(name.rpartition(".")[2]) for name in names):
        return False
    if any(name and name != "self" and _has_mode(link, name) for name in names):
        return True
    if all(isinstance(value, (Unknown, Moved)) for value in values):
        return bool(_NETWORK.search(last_name(func)))
    return any(
        has_weights(project, value, 0)
        or isinstance(value, Instance)
        and not _is_loss(value.cls.name)
        and any(path.startswith("torch.nn.") for path in project.external_bases(value.cls))
        for value in values
    )


# What people call a network.
_NETWORK = re.compile(
    r"^(model|net|network|encoder|backbone|extractor|generator|module)$|_(model|net|encoder|backbone)$"
)


def _is_loss(name: str) -> bool:
    return any(part in name.lower() for part in _LOSSES)


def _has_mode(link: Link, name: str) -> bool:
    """``name.eval()``, ``name = Net().to(device).train()``: in the function or, of ``self.x``, in its class."""
    owner = link.scope.owner if name.startswith("self.") else None
    for site in link.scope.module.calls:
        scope = site.link.scope
        if scope is not link.scope and (owner is None or scope.owner is not owner):
            continue
        call = site.expr
        if isinstance(call, forms.Call) and isinstance(call.func, forms.Attr) and call.func.name in _MODES:
            stmt = site.link.stmt
            assigned = isinstance(stmt, forms.Assign) and stmt.value is call and dotted(stmt.targets[0]) == name
            if assigned or dotted(call.func.value) == name:
                return True
    return False
