"""Fixes that copy a sample, or a part of one, where it is returned or given to torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dlcheck.checks import mending
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model.data.memory import ARRAY, CONTAINERS, TENSOR, Piece
from dlcheck.model.data.stored import Samples
from dlcheck.model.data.traces import Edit as MemoryEdit
from dlcheck.model.data.traces import Exit, Refusal
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import dotted

_COPIES = {ARRAY: ".copy()", TENSOR: ".clone()"}


def copied_sample(samples: Samples | None, end: Exit, due: Callable[[Piece], bool]) -> Fix | Refused:
    """Copies of the parts of what a path returns that are ``due`` to be copied."""
    if end.link is None or samples is None:
        return Refused("it is not known what is returned")
    module, value = end.link.scope.module, _returned(end)
    others = [
        other.piece
        for maker in samples.project.samples
        for other in maker.ends
        if other.link is end.link
    ]  # fmt: skip
    edits: list[Edit | Refused] = []
    for expr, piece, key in _parts(value, end.piece):
        if not any(due(inner) for inner in piece.within()):
            continue
        alike = {piece.kind} | {_at(other, key).kind for other in others}
        if piece.kind not in _COPIES or alike != {piece.kind}:
            return Refused(f"`{module.line(expr.at)}` is not the same kind of thing on every path")
        edits.append(mending.add_call(module.source, module.facts, expr, _COPIES[piece.kind]))
    return make_fix("safe", "Return a copy", edits) if edits else Refused("it is not known what is returned")


def straightened(refusal: Refusal) -> Fix | Refused:
    """A copy of the reversed array that torch is given."""
    module = refusal.module
    call = next((site.expr for site in module.calls if site.expr.at == refusal.at), None)
    first = call.args[0] if isinstance(call, forms.Call) and call.args else None
    if first is None or first.star:
        return Refused("it is not known which argument the array is")
    if isinstance(first.value, (forms.Sequence, forms.Comp)):
        return Refused("the array is one of several")
    # These take tensors, too, which have no such method: on another path the name may be one.
    unsure = refusal.call in ("as_tensor", "tensor") and isinstance(first.value, forms.Name)
    edit = mending.add_call(module.source, module.facts, first.value, ".copy()")
    return make_fix("unsafe" if unsure else "safe", "Copy the array first", [edit])


def _returned(end: Exit) -> forms.Expr | None:
    stmt = end.link.stmt if end.link is not None else None
    value = stmt.value if isinstance(stmt, (forms.Return, forms.Do)) else None
    return value.value if isinstance(value, forms.Yield) else value


def _parts(value: forms.Expr | None, piece: Piece) -> Iterator[tuple[forms.Expr, Piece, object]]:
    """The parts of what is returned, each with what is known of it and its place or key; ``None`` for the whole."""
    if value is None:
        return
    if isinstance(value, forms.Sequence) and not any(isinstance(item, forms.Star) for item in value.items):
        for number, item in enumerate(value.items):
            part = piece.part(number)
            if part is not None:
                yield item, part, number
    elif isinstance(value, forms.Dict):
        for entry in value.entries:
            key = entry.key.value if isinstance(entry.key, forms.Const) else None
            part = piece.part(key) if key is not None else None
            if part is not None:
                yield entry.value, part, key
    else:
        yield value, piece, None


def _at(piece: Piece, key: object) -> Piece:
    found = piece if key is None else piece.part(key)
    return found if found is not None else Piece()


# -- before it is changed


def copied_first(edit: MemoryEdit, samples: Samples) -> Fix | Refused:
    """A copy of a stored sample where it is taken, so that what is changed is the copy."""
    module, root = edit.module, _root(edit)
    if edit.link.scope is not samples.method:
        return Refused("it is changed in a function that others may call, too")
    copy = _COPIES.get(edit.piece.kind, ".copy()" if edit.piece.kind in CONTAINERS else "")
    if not root or root == edit.link.scope.function.params[0].name or not copy or not _is_direct(edit):
        return Refused("what is changed lies inside of what is taken from the dataset")
    bindings = [link for link in links_of(edit.link.scope) if root in link.changes and _binds(link.stmt, root)]
    start = module.facts.span(edit.link.stmt.at)[0]
    earlier = [link for link in bindings if module.facts.span(link.stmt.at)[0] < start]
    if not earlier:
        return Refused("it is not known where it is taken from the dataset")
    last = earlier[-1]
    around = set(map(id, edit.link.outer()))
    if last.block is not edit.link.block and last.parent is not None and id(last.parent) not in around:
        return Refused("it is taken from the dataset in one of several branches")
    if isinstance(last.stmt, forms.Assign) and isinstance(last.stmt.targets[0], forms.Name):
        change: Edit | Refused = mending.add_call(module.source, module.facts, last.stmt.value, copy)
    else:
        change = mending.insert_after(module.source, module.facts, last, [f"{root} = {root}{copy}"])
    return make_fix("unsafe", "Change a copy", [change])


def _root(edit: MemoryEdit) -> str:
    """The name through which it is changed; of ``random.shuffle(order)`` that is the argument's."""
    stmt = edit.link.stmt
    call = stmt.value if isinstance(stmt, forms.Do) else None
    if isinstance(call, forms.Call) and edit.root not in edit.link.scope.names and len(call.args) == 1:
        return dotted(call.args[0].value) or ""
    return edit.root


def _binds(stmt: forms.Stmt, name: str) -> bool:
    return isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and _is_bound(stmt.targets[0], name)


def _is_bound(target: forms.Expr, name: str) -> bool:
    if isinstance(target, forms.Sequence):
        return any(_is_bound(item, name) for item in target.items)
    return isinstance(target, forms.Name) and target.id == name


def _is_direct(edit: MemoryEdit) -> bool:
    """Whether the thing that is changed is what the name stands for, not something that it holds."""
    stmt = edit.link.stmt
    if isinstance(stmt, (forms.Assign, forms.AugAssign)):
        target = stmt.targets[0] if isinstance(stmt, forms.Assign) else stmt.target
        numeric = edit.piece.kind in _COPIES
        while isinstance(target, forms.Sub):
            if numeric and isinstance(target.index, forms.Const) and isinstance(target.index.value, str):
                return False
            target = target.value
            if not numeric:
                break
        return isinstance(target, forms.Name)
    call = stmt.value if isinstance(stmt, forms.Do) else None
    if not isinstance(call, forms.Call):
        return False
    held = call.func.value if isinstance(call.func, forms.Attr) else None
    if isinstance(held, forms.Name) and held.id == _root(edit):
        return True
    return any(isinstance(arg.value, forms.Name) and arg.value.id == _root(edit) for arg in call.args)
