"""What comes out of a value: its elements, its items, a slice of it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.scopes import Scope
from dlcheck.model.values import (
    UNKNOWN,
    Alt,
    Batch,
    Const,
    Elements,
    External,
    Frame,
    Func,
    Generated,
    Instance,
    Iterating,
    LoaderRef,
    Made,
    Managed,
    Many,
    Mapping,
    Moved,
    Pinned,
    Point,
    Thunk,
    Unknown,
    Value,
)
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator

MAX_CHOICES = 8


def elements(ev: Evaluator, alts: list[Alt], key: Hashable) -> list[Alt]:
    """What iterating a value gives; ``key`` names the choice among several elements."""
    return ev.bind(alts, lambda value: _elements(ev, value, key))


def _elements(ev: Evaluator, value: Value, key: Hashable) -> list[Alt]:
    if isinstance(value, LoaderRef):
        return _loader_elements(ev, value, key)
    if isinstance(value, Managed):
        return [
            Alt(Batch(item.loader, value.framework) if isinstance(item, Batch) else item, world)
            for item, world in _elements(ev, value.value, key)
        ]
    if isinstance(value, Batch):
        return [Alt(part_of(value), ANY)]
    if isinstance(value, Iterating):
        return _iterating(ev, value, key)
    if isinstance(value, Many):
        return _choices(ev, value.items, value.open, key)
    if isinstance(value, Mapping):
        return [Alt(Const(name), World({key: name})) for name, _ in value.entries[:MAX_CHOICES]] or [Alt(UNKNOWN, ANY)]
    if isinstance(value, Elements):
        return _comprehended(ev, value)
    if isinstance(value, Generated):
        return _yielded(ev, value.frame, key)
    if isinstance(value, Instance):
        return _iterated_instance(ev, value, key)
    if isinstance(value, (Moved, Pinned)):
        return [Alt(value, ANY)]
    return [Alt(unknown_part(value, key), ANY)]


def unknown_part(value: Value, part: Hashable) -> Unknown:
    """A part of a value: of the same unknown, the same unknown part."""
    if isinstance(value, Unknown) and value.token is not None:
        return Unknown((value.token, part))
    return UNKNOWN


def part_of(batch: Batch) -> Batch:
    return batch if batch.part else Batch(batch.loader, batch.managed, batch.exact, True)


def _loader_elements(ev: Evaluator, loader: LoaderRef, key: Hashable) -> list[Alt]:
    """A batch; or what the ``__iter__`` of the project's own subclass yields."""
    if isinstance(loader.maker, Scope):
        method = ev.project.method(loader.maker, "__iter__")
        if method is not None:
            own = Instance(loader.maker, loader.args, loader.key, loader.point)
            found = _yielded(ev, ev.frame(method, self_=own), key)
            return [alt for alt in found if isinstance(alt.value, (Batch, Moved))] or [Alt(UNKNOWN, ANY)]
    return [Alt(Batch(loader), ANY)]


def _iterating(ev: Evaluator, value: Iterating, key: Hashable) -> list[Alt]:
    inside = [elements(ev, [Alt(of, ANY)], (key, number)) for number, of in enumerate(value.of)]
    if value.kind == "enumerate":
        return [Alt(Many("tuple", (_known(UNKNOWN), Thunk(None, None, tuple(inside[0])))), ANY)]
    if value.kind == "zip":
        return [Alt(Many("tuple", tuple(Thunk(None, None, tuple(alts)) for alts in inside)), ANY)]
    if value.kind == "chain":
        return [alt for alts in inside for alt in alts]
    if value.kind in ("items", "values"):
        mapping = value.of[0]
        if isinstance(mapping, Elements) and mapping.form.kind == "dict":
            return _comprehended_values(ev, mapping, value.kind)
        if isinstance(mapping, Mapping):
            return _mapping_elements(ev, mapping, value.kind, key)
        if isinstance(mapping, (Batch, Moved, Pinned)):
            item = Alt(part_of(mapping) if isinstance(mapping, Batch) else mapping, ANY)
            if value.kind == "values":
                return [item]
            return [Alt(Many("tuple", (_known(UNKNOWN), Thunk(None, None, (item,)))), ANY)]
        return [Alt(unknown_part(value, key), ANY)]
    return inside[0] if inside else [Alt(UNKNOWN, ANY)]


def _mapping_elements(ev: Evaluator, mapping: Mapping, kind: str, key: Hashable) -> list[Alt]:
    out = []
    for name, thunk in mapping.entries[:MAX_CHOICES]:
        for value, world in ev.force(thunk):
            both = world.assume(key, name)
            if both is None:
                continue
            if kind == "items":
                pair = (_known(Const(name)), Thunk(None, None, (Alt(value, ANY),)))
                out.append(Alt(Many("tuple", pair), both))
            else:
                out.append(Alt(value, both))
    if mapping.open or not out:
        out.append(Alt(UNKNOWN, ANY))
    return out


def _choices(ev: Evaluator, items: tuple[Thunk, ...], open_: bool, key: Hashable) -> list[Alt]:
    out = []
    for number, thunk in enumerate(items[:MAX_CHOICES]):
        for value, world in ev.force(thunk):
            both = world.assume(key, number)
            if both is not None:
                out.append(Alt(value, both))
    if open_ or not out:
        out.append(Alt(UNKNOWN, ANY))
    return out


def _comprehended(ev: Evaluator, value: Elements) -> list[Alt]:
    """What iterating a comprehension gives: of a dict the keys."""
    return ev.eval(value.form.key or value.form.value, _inside(value.form, value.point))


def _comprehended_values(ev: Evaluator, value: Elements, kind: str) -> list[Alt]:
    """``.values()`` and ``.items()`` of a dict comprehension."""
    inside = _inside(value.form, value.point)
    found = ev.eval(value.form.value, inside)
    if kind == "values":
        return found
    assert value.form.key is not None
    pair = (Thunk(value.form.key, inside), Thunk(None, None, tuple(found)))
    return [Alt(Many("tuple", pair), ANY)]


def _inside(form: forms.Comp, point: Point) -> Point:
    return Point(point.frame, point.link, point.module.inners.get(form.at))


def comprehension(ev: Evaluator, form: forms.Comp, point: Point) -> Value:
    """What a comprehension makes: ``{x: make(x) for x in ["train", "val"]}`` is a dict with known keys."""
    if form.kind == "dict" and form.key is not None and len(form.clauses) == 1 and not form.clauses[0].ifs:
        inside = _inside(form, point)
        chosen = ("in", point.module.name, form.clauses[0].at)
        keys = ev.eval(form.key, inside)
        known = [key.value.value for key in keys if isinstance(key.value, Const) and key.world.get(chosen) is not None]
        if 0 < len(keys) == len(known) == len(set(map(repr, known))):
            values = ev.eval(form.value, inside)
            return Mapping(tuple(_entry(key, values) for key in keys))
    return Elements(form, point, (point.module.name, form.at, point.frame))


def _entry(key: Alt, values: list[Alt]) -> tuple[object, Thunk]:
    """One entry of a dict comprehension: the values in the world in which the loop variable gives this key."""
    assert isinstance(key.value, Const)
    alts = [Alt(value, both) for value, world in values if (both := key.world.merge(world)) is not None]
    return key.value.value, Thunk(None, None, tuple(alts))


def _yielded(ev: Evaluator, frame: Frame, key: Hashable) -> list[Alt]:
    """What a generator yields, from any of its yields."""
    # A generator may iterate itself, each time in a deeper frame: the evaluator ends that.
    return ev.remember(("yielded", frame), lambda: _yields_of(ev, frame, key))


def _yields_of(ev: Evaluator, frame: Frame, key: Hashable) -> list[Alt]:
    out: list[Alt] = []
    for number, site in enumerate(frame.scope.yields[:MAX_CHOICES]):
        expr = site.expr
        assert isinstance(expr, forms.Yield)
        if expr.value is None:
            continue
        alts = ev.eval(expr.value, Point(frame, site.link, site.inner))
        if expr.delegates:
            alts = elements(ev, alts, (key, number))
        for value, world in alts:
            both = world.assume(("yield", frame.scope.module.name, frame.scope.qualified), number)
            if both is not None:
                out.append(Alt(value, both))
    return out or [Alt(UNKNOWN, ANY)]


def _iterated_instance(ev: Evaluator, value: Instance, key: Hashable) -> list[Alt]:
    method = ev.project.method(value.cls, "__iter__")
    if method is None:
        return [Alt(unknown_part(value, key), ANY)]
    frame = ev.frame(method, self_=value)
    if method.function.is_generator:
        return _yielded(ev, frame, key)
    # What an ``__iter__`` returns may be the object again, wrapped: the evaluator ends that.
    return ev.remember(("iterated", frame, key), lambda: _iterated_by(ev, value, frame, key))


def _iterated_by(ev: Evaluator, value: Instance, frame: Frame, key: Hashable) -> list[Alt]:
    step = ev.project.method(value.cls, "__next__")
    from dlcheck.model import calling

    results = calling.returned(ev, frame)
    own = [alt for alt in results if not (isinstance(alt.value, Instance) and alt.value.cls is value.cls)]
    if len(own) == len(results):
        return elements(ev, results, key)
    if step is not None:
        return calling.returned(ev, ev.frame(step, self_=value))
    return [Alt(unknown_part(value, key), ANY)]


def _known(value: Value) -> Thunk:
    return Thunk(None, None, (Alt(value, ANY),))


def item(ev: Evaluator, value: Value, number: int) -> list[Alt]:
    """``value[number]`` for a constant number."""
    if isinstance(value, Many):
        if not value.open and -len(value.items) <= number < len(value.items):
            return ev.force(value.items[number])
        if value.open and 0 <= number < len(value.items):
            return ev.force(value.items[number])
        return [Alt(unknown_part(value, number), ANY)]
    if isinstance(value, Batch):
        return [Alt(part_of(value), ANY)]
    if isinstance(value, (Moved, Pinned)):
        return [Alt(value, ANY)]
    if isinstance(value, Made):
        return [Alt(Made(f"{value.path}[]", value.args, (value.key, number), value.base), ANY)]
    if isinstance(value, (Elements, Generated, Iterating)):
        # Unpacking ``x, y = (t.cuda() for t in batch)``: each gets an element.
        return elements(ev, [Alt(value, ANY)], ("item", number))
    return [Alt(unknown_part(value, number), ANY)]


def rest(ev: Evaluator, value: Value) -> list[Alt]:
    """The starred part of an unpacking."""
    if isinstance(value, (Batch, Moved, Pinned)):
        return [Alt(part_of(value) if isinstance(value, Batch) else value, ANY)]
    return [Alt(unknown_part(value, "rest"), ANY)]


def sliced(ev: Evaluator, value: Value, expr: forms.Sub, point: Point) -> list[Alt]:
    """``value[a:b]`` and ``value[i, j]``: of a batch a view, else unknown."""
    if isinstance(value, (Batch, Moved, Pinned, Many)):
        if isinstance(value, Many):
            return [Alt(Many(value.kind, value.items, True), ANY)]
        return [Alt(part_of(value) if isinstance(value, Batch) else value, ANY)]
    if isinstance(value, Made):
        return [Alt(Made(f"{value.path}[:]", value.args, (value.key, expr.at), value.base), ANY)]
    return ev.unknown_at(expr, point)


def subscript(ev: Evaluator, value: Value, expr: forms.Sub, point: Point) -> list[Alt]:
    """``value[key]``."""
    if isinstance(value, (Batch, Moved, Pinned)):
        return item(ev, value, 0)
    if isinstance(value, Elements) and value.form.kind == "dict":
        return _comprehended_values(ev, value, "values")
    if isinstance(value, External) and value.path == "os.environ":
        rank = local_rank([alt.value for alt in ev.eval(expr.index, point)], (point.module.name, expr.at))
        return ev.unknown_at(expr, point) if rank is None else [Alt(rank, ANY)]
    if isinstance(value, (Many, Mapping, Made)):
        return ev.bind(ev.eval(expr.index, point), lambda key: _keyed(ev, value, key, expr, point))
    if isinstance(value, Instance):
        method = ev.project.method(value.cls, "__getitem__")
        if method is not None:
            from dlcheck.model import calling

            args = calling.arguments_of(ev, (expr.index,), point)
            return calling.call_function(ev, Func(method, value), args)
    if isinstance(value, Managed):
        return subscript(ev, value.value, expr, point)
    return ev.unknown_at(expr, point)


def local_rank(keys: list[Value], place: Hashable) -> Unknown | None:
    """The variable of the environment in which a launcher says which GPU is the process's; None for others."""
    if all(isinstance(key, Const) and key.value in library.LOCAL_RANKS for key in keys):
        return Unknown(("rank", place))
    return None


def _keyed(ev: Evaluator, value: Value, key: Value, expr: forms.Sub, point: Point) -> list[Alt]:
    if isinstance(value, Mapping):
        if isinstance(key, Const):
            thunk = value.get(key.value)
            if thunk is not None:
                return ev.force(thunk)
            return ev.unknown_at(expr, point)
        return _mapping_elements(ev, value, "values", ("key", point.module.name, expr.at))
    if isinstance(value, Many) and isinstance(key, Const) and isinstance(key.value, int):
        return item(ev, value, key.value)
    if isinstance(value, Many):
        return _choices(ev, value.items, value.open, ("index", point.module.name, expr.at))
    if isinstance(value, Made):
        if isinstance(key, Const) and isinstance(key.value, str):
            from dlcheck.model import settings

            option = settings.namespace_attribute(ev, value, key.value) if settings.is_namespace(value) else None
            if option is not None:
                return option
        number = key.value if isinstance(key, Const) else expr.at
        return [Alt(Made(f"{value.path}[]", value.args, (value.key, number), value.base), ANY)]
    return ev.unknown_at(expr, point)
