"""Indices: which part of an array they take, a view or a copy, and what is written there."""

from __future__ import annotations

from dlcheck.facts import forms
from dlcheck.model.data.memory import ARRAY, LIST, NUMERIC, SCALAR, TENSOR, TUPLE, Piece
from dlcheck.model.scopes import descend


def constant_key(index: forms.Expr) -> object:
    return index.value if isinstance(index, forms.Const) else None


def index_key(target: forms.Sub) -> str:
    """What an index says: the same for two that are written alike."""
    return _said(target.index)


def _said(part: object) -> str:
    if not isinstance(part, tuple):
        return repr(part)
    fields = getattr(part, "_fields", None)
    if fields is None:
        return f"({','.join(map(_said, part))})"
    said = (_said(value) for field, value in zip(fields, part, strict=True) if field not in ("at", "name_at"))
    return f"{type(part).__name__}({','.join(said)})"


def source(expr: forms.Sub) -> frozenset[str]:
    return frozenset({index_key(expr)})


def how_stored(base: Piece, key: str, index: Piece, value: Piece) -> str:
    """What ``base[key] = value`` does when it is done again and again."""
    if index.drawn and (base.kind in NUMERIC or base.kind == LIST):
        return "drawn"
    if key in value.sources:
        return "cumulative"
    if value.decoded and base.kind not in NUMERIC:
        return "retained"
    return "settled"


def goes_back(index: forms.Expr) -> bool:
    """``[::-1]``, ``[:, ::-1]``: a step below zero."""
    if isinstance(index, forms.Sequence):
        return sum(goes_back(item) for item in index.items) > 0
    step = index.step if isinstance(index, forms.Slice) else None
    return (
        isinstance(step, forms.Unary)
        and step.op == "-"
        or (isinstance(step, forms.Const) and isinstance(step.value, int) and step.value < 0)
    )


def is_chosen(index: forms.Expr) -> bool:
    """Whether an index may be another for each sample: a name, or a slice that begins at one."""
    if isinstance(index, forms.Sequence):
        return any(map(is_chosen, index.items))
    start = index.lower if isinstance(index, forms.Slice) else index
    return start is not None and any(isinstance(expr, forms.Name) for expr in descend(start))


def has_slice(index: forms.Expr) -> bool:
    if isinstance(index, forms.Sequence):
        return any(map(has_slice, index.items))
    return isinstance(index, forms.Slice) or isinstance(index, forms.Const) and index.value is ...


def is_fancy(index: forms.Expr, piece: Piece) -> bool:
    """Whether an index is a list or an array: then what it gives is a copy."""
    if isinstance(index, forms.Sequence) and index.kind == TUPLE:
        return any(is_fancy(item, part) for item, (_, part) in zip(index.items, piece.parts, strict=False))
    return piece.kind in (ARRAY, TENSOR, LIST, TUPLE) or isinstance(index, (forms.Compare, forms.Comp))


def is_basic(index: forms.Expr, piece: Piece) -> bool:
    """Whether an index is made of numbers and slices: then what it gives is a view."""
    if isinstance(index, forms.Sequence) and index.kind == TUPLE:
        return len(piece.parts) == len(index.items) and all(
            is_basic(item, part) for item, (_, part) in zip(index.items, piece.parts, strict=False)
        )
    return isinstance(index, (forms.Slice, forms.Const)) or piece.kind == SCALAR
