"""What an expression of each kind is, out of what its parts are.

One function for each; ``Evaluator.eval`` remembers their answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dlcheck.facts import forms
from dlcheck.model import attributes, calling, conditions, iteration
from dlcheck.model.scopes import dotted
from dlcheck.model.values import Alt, Const, LambdaFunc, Made, Many, Mapping, Point, Thunk, Undefined, Value, normal
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator


def _name(ev: Evaluator, expr: forms.Name, point: Point) -> list[Alt]:
    if expr.id in point.link.mutated and point.inner is None:  # f(kwargs.pop("shuffle"), **kwargs)
        changed = calling.mutated(ev, expr.id, point, expr)
        if not isinstance(changed[0].value, Undefined):
            return changed
    return ev.name(expr.id, point)


def _attr(ev: Evaluator, expr: forms.Attr, point: Point) -> list[Alt]:
    return attributes.attribute(ev, expr, point)


def _sub(ev: Evaluator, expr: forms.Sub, point: Point) -> list[Alt]:
    values = ev.eval(expr.value, point)
    if isinstance(expr.index, (forms.Slice, forms.Sequence)):
        return ev.bind(values, lambda value: iteration.sliced(ev, value, expr, point))
    return ev.bind(values, lambda value: iteration.subscript(ev, value, expr, point))


def _call(ev: Evaluator, expr: forms.Call, point: Point) -> list[Alt]:
    if dotted(expr.func) == "isinstance":
        return [Alt(Const(truth), world) for truth, world in conditions.truth(ev, expr, point)]
    return calling.call(ev, expr, point)


def _sequence(ev: Evaluator, expr: forms.Sequence, point: Point) -> list[Alt]:
    open_ = any(isinstance(item, forms.Star) for item in expr.items)
    items = tuple(Thunk(item, point) for item in expr.items if not isinstance(item, forms.Star))
    return [Alt(Many(expr.kind, items, open_, _left_out(expr)), ANY)]


def _left_out(expr: forms.Sequence) -> int | None:
    last = expr.items[-1] if expr.items else None
    number = last.value if isinstance(last, forms.Star) else None
    return number.value if isinstance(number, forms.Const) and isinstance(number.value, int) else None


def _dict(ev: Evaluator, expr: forms.Dict, point: Point) -> list[Alt]:
    alts: list[Alt] = [Alt(Mapping(()), ANY)]
    known: list[tuple[object, Thunk]] = []
    for entry in expr.entries:
        if isinstance(entry.key, forms.Const):  # all at once: a table may have thousands
            known.append((entry.key.value, Thunk(entry.value, point)))
            continue
        alts = normal(ev.bind(_with_known(alts, known), partial(_with_entry, ev, entry, point)))
        known = []
    return _with_known(alts, known)


def _with_known(alts: list[Alt], known: list[tuple[object, Thunk]]) -> list[Alt]:
    return [
        Alt(Mapping((*old.entries, *known), old.open) if isinstance(old, Mapping) else old, world)
        for old, world in alts
    ]


def _with_entry(ev: Evaluator, entry: forms.Entry, point: Point, old: Value) -> list[Alt]:
    if not isinstance(old, Mapping):
        return [Alt(old, ANY)]
    if entry.key is None:
        return ev.bind(ev.eval(entry.value, point), lambda other: [Alt(calling.joined(old, other), ANY)])

    def put(key: Value) -> list[Alt]:
        if isinstance(key, Const):
            return [Alt(Mapping((*old.entries, (key.value, Thunk(entry.value, point))), old.open), ANY)]
        return [Alt(Mapping(old.entries, True), ANY)]

    return ev.bind(ev.eval(entry.key, point), put)


def _comp(ev: Evaluator, expr: forms.Comp, point: Point) -> list[Alt]:
    return [Alt(iteration.comprehension(ev, expr, point), ANY)]


def _lambda(ev: Evaluator, expr: forms.Lambda, point: Point) -> list[Alt]:
    return [Alt(LambdaFunc(expr, (point.module.name, expr.at, point.frame), point), ANY)]


def _if_exp(ev: Evaluator, expr: forms.IfExp, point: Point) -> list[Alt]:
    out: list[Alt] = []
    for truth, world in conditions.truth(ev, expr.test, point):
        for value, other in ev.eval(expr.body if truth else expr.orelse, point):
            both = world.merge(other)
            if both is not None:
                out.append(Alt(value, both))
    return out or ev.unknown_at(expr, point)


def _bool(ev: Evaluator, expr: forms.Bool, point: Point) -> list[Alt]:
    """``a or b``: the value of one of the two, as the first one's truth decides."""
    out: list[Alt] = []
    for value, world in ev.eval(expr.left, point):
        for truth, other in conditions.truth_of(ev, value, (point.module.name, expr.left.at, point.frame)):
            both = world.merge(other)
            if both is None:
                continue
            if truth == (expr.op == "or"):
                out.append(Alt(value, both))
            else:
                out += [
                    Alt(right, joint) for right, third in ev.eval(expr.right, point) if (joint := both.merge(third))
                ]
    return out or ev.unknown_at(expr, point)


def _not(ev: Evaluator, expr: forms.Unary, point: Point) -> list[Alt]:
    if expr.op == "not":
        values = ev.eval(expr.value, point)
        if all(isinstance(alt.value, Const) for alt in values):  # what the user chose stays chosen
            return ev.bind(values, lambda value: [Alt(_negated(value), ANY)])
        return [Alt(Const(truth), world) for truth, world in conditions.truth(ev, expr, point)]
    return ev.bind(ev.eval(expr.value, point), lambda value: calling.unary(expr, value, point))


def _negated(value: Value) -> Value:
    assert isinstance(value, Const)
    return Const(not value.value, value.origin, value.free, value.chosen)


def _compare(ev: Evaluator, expr: forms.Compare, point: Point) -> list[Alt]:
    return [Alt(Const(truth), world) for truth, world in conditions.truth(ev, expr, point)]


def _binary(ev: Evaluator, expr: forms.Binary, point: Point) -> list[Alt]:
    return ev.bind(
        ev.eval(expr.left, point),
        lambda left: ev.bind(ev.eval(expr.right, point), lambda right: calling.binary(expr, left, right, point)),
    )


def _walrus(ev: Evaluator, expr: forms.Walrus, point: Point) -> list[Alt]:
    return ev.eval(expr.value, point)


def _await(ev: Evaluator, expr: forms.Await, point: Point) -> list[Alt]:
    return ev.eval(expr.value, point)


def _fstring(ev: Evaluator, expr: forms.FString, point: Point) -> list[Alt]:
    text = ""
    for part in expr.parts:
        values = [alt.value for alt in ev.eval(part, point)]
        if len(values) != 1 or not isinstance(values[0], Const) or values[0].free is not None:
            if text:  # what it begins with still tells a device, such as f"cuda:{rank}"
                return [Alt(Made(f"text:{text}", None, (point.module.name, expr.at, point.frame)), ANY)]
            return ev.unknown_at(expr, point)
        text += str(values[0].value)
    return [Alt(Const(text), ANY)]


EVALUATE: dict[type, Callable[..., Any]] = {
    forms.Name: _name, forms.Attr: _attr, forms.Sub: _sub, forms.Call: _call, forms.Sequence: _sequence,
    forms.Dict: _dict, forms.Comp: _comp, forms.Lambda: _lambda, forms.IfExp: _if_exp, forms.Bool: _bool,
    forms.Unary: _not, forms.Compare: _compare, forms.Binary: _binary, forms.Walrus: _walrus,
    forms.Await: _await, forms.FString: _fstring,
}  # fmt: skip
