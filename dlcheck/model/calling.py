"""Calls: which function, with which arguments, and what comes back."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dlcheck.facts import forms
from dlcheck.model import builtin_calls, library, settings
from dlcheck.model.scopes import MUTATORS, Link, Scope, descend, dotted
from dlcheck.model.values import (
    UNDEFINED,
    UNKNOWN,
    Alt,
    Arguments,
    Batch,
    Bound,
    ClassRef,
    Const,
    External,
    Frame,
    Func,
    Generated,
    Instance,
    LambdaFunc,
    LoaderRef,
    Made,
    Managed,
    Many,
    Mapping,
    Moved,
    Origin,
    Pinned,
    Point,
    SuperOf,
    Thunk,
    Undefined,
    Unknown,
    Value,
)
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.project import Project

MAX_CALLERS = 12
MAX_RETURNS = 8

# -- arguments


def arguments(call: forms.Call, point: Point) -> Arguments:
    """The arguments of a call, to be evaluated when asked for."""
    return Arguments(
        tuple((Thunk(arg.value, point), arg.star == "*") for arg in call.args if arg.name is None and arg.star != "**"),
        tuple((arg.name, Thunk(arg.value, point)) for arg in call.args if arg.name is not None),
        tuple(Thunk(arg.value, point) for arg in call.args if arg.star == "**"),
        call,
        point,
    )


def arguments_of(ev: Evaluator, exprs: Sequence[Expr], point: Point) -> Arguments:
    """Arguments made of plain expressions."""
    return Arguments(tuple((Thunk(expr, point), False) for expr in exprs), (), (), None, point)


def keyword(args: Arguments, name: str) -> Thunk | None:
    return next((thunk for key, thunk in args.keywords if key == name), None)


def positional(args: Arguments, number: int) -> Thunk | None:
    """The argument at a position, unless a ``*args`` before it makes that uncertain."""
    before = args.positional[: number + 1]
    if len(before) <= number or any(starred for _, starred in before):
        return None
    return before[number][0]


def argument(args: Arguments, name: str, number: int | None) -> Thunk | None:
    """The argument given as ``name=`` or at a position."""
    found = keyword(args, name)
    return found if found is not None or number is None else positional(args, number)


# -- parameters


def parameter(ev: Evaluator, name: str, frame: Frame) -> list[Alt]:
    """The alternatives for a parameter of the frame's function."""

    def compute() -> list[Alt]:
        out: list[Alt] = []
        for thunk, world in parameter_thunks(ev, name, frame):
            for value, other in ev.force(thunk):
                both = world.merge(other)
                if both is not None:
                    out.append(Alt(value, both))
        return out or [Alt(Unknown(("parameter", frame, name)), ANY)]

    return ev.remember(("parameter", frame, name), compute)


def parameter_thunks(ev: Evaluator, name: str, frame: Frame) -> list[tuple[Thunk, World]]:
    """The expressions that a parameter can stand for: of this call, or of every caller."""
    scope = frame.scope
    if frame.self_ is not None and _is_self(scope, name):
        return [(known(frame.self_), ANY)]
    if ev.project.callers.hides_parameters(scope):
        return [(known(Unknown(("decorated", frame, name))), ANY)]
    if frame.args is not None:
        return [(_bound(ev, scope, name, frame.args, frame), ANY)]
    out: list[tuple[Thunk, World]] = []
    key, choices = caller_choices(ev.project, scope)
    for choice, args, point in choices[:MAX_CALLERS]:
        thunk = _bound(ev, scope, name, args, frame)
        for world in ev.guards(point.link, point.frame):
            both = world.assume(key, choice)
            if both is not None:
                out.append((thunk, both))
    if out:
        return out
    return [(_default(ev, scope, name, frame), ANY)]


def caller_choices(project: Project, scope: Scope) -> tuple[Hashable, list[tuple[Hashable, Arguments, Point]]]:
    """The key under which worlds choose a caller of a function, and each choice with its call."""
    return ("call", scope.module.name, scope.qualified), [
        ((point.module.name, args.call.at if args.call is not None else 0), args, point)
        for args, point in project.callers.of(scope)
    ]


def _is_self(scope: Scope, name: str) -> bool:
    if scope.owner is None or scope.has_decorator("staticmethod"):
        return False
    params = scope.function.params
    return bool(params) and params[0].name == name


def known(value: Value, world: World = ANY) -> Thunk:
    return Thunk(None, None, (Alt(value, world),))


def _bound(ev: Evaluator, scope: Scope, name: str, args: Arguments, frame: Frame) -> Thunk:
    """What ``name`` is when ``scope`` is called with ``args``."""
    params = scope.function.params
    skip = 1 if scope.owner is not None and not scope.has_decorator("staticmethod") else 0
    names = [param.name for param in params if param.kind in ("positional", "normal")][skip:]
    kind = next((param.kind for param in params if param.name == name), "normal")
    if kind == "**":
        return _extra_keywords(ev, params, args)
    if kind == "*":
        return _extra_positional(names, args)
    found = keyword(args, name)
    if found is None and name in names:
        found = positional(args, names.index(name))
    if found is not None:
        return found
    if args.spreads or any(starred for _, starred in args.positional):
        return _from_spreads(ev, scope, name, args, frame, names)
    return _default(ev, scope, name, frame, called=True)


def _from_spreads(ev: Evaluator, scope: Scope, name: str, args: Arguments, frame: Frame, names: list[str]) -> Thunk:
    """A parameter that may come through ``*args`` or ``**kwargs``."""
    alts = from_keyword_spreads(ev, args, name)
    starred = [thunk for thunk, star in args.positional if star]
    if starred and name in names:
        number = names.index(name) - sum(not star for _, star in args.positional[: _first_star(args)])
        alts = ev.bind(alts, partial(_starred_item, ev, starred, number))
    if any(isinstance(alt.value, Undefined) for alt in alts):
        alts = ev.where_unset(alts, ev.force(_default(ev, scope, name, frame, called=True)))
    return Thunk(None, None, tuple(alts))


def _first_star(args: Arguments) -> int:
    return next((at for at, (_, star) in enumerate(args.positional) if star), len(args.positional))


def _starred_item(ev: Evaluator, starred: list[Thunk], number: int, value: Value) -> list[Alt]:
    if not isinstance(value, Undefined):
        return [Alt(value, ANY)]
    if len(starred) > 1:
        return [Alt(UNKNOWN, ANY)]

    def pick(many: Value) -> list[Alt]:
        if isinstance(many, Many):
            if 0 <= number < len(many.items):
                return ev.force(many.items[number])
            return [Alt(UNKNOWN if many.open else UNDEFINED, ANY)]
        return [Alt(UNKNOWN, ANY)]

    return ev.bind(ev.force(starred[0]), pick)


def from_keyword_spreads(ev: Evaluator, args: Arguments, name: str) -> list[Alt]:
    """What the ``**spreads`` of a call give for ``name``; Undefined where none of them does."""
    alts: list[Alt] = [Alt(UNDEFINED, ANY)]
    for spread in args.spreads:
        alts = ev.bind(alts, partial(_spread_entry, ev, spread, name))
    return alts


def _spread_entry(ev: Evaluator, spread: Thunk, name: str, value: Value) -> list[Alt]:
    if not isinstance(value, Undefined):
        return [Alt(value, ANY)]

    def pick(mapping: Value) -> list[Alt]:
        if isinstance(mapping, Mapping):
            thunk = mapping.get(name)
            if thunk is not None:
                return ev.force(thunk)
            return [Alt(UNKNOWN if mapping.open else UNDEFINED, ANY)]
        return [Alt(UNKNOWN, ANY)]

    return ev.bind(ev.force(spread), pick)


def _extra_keywords(ev: Evaluator, params: Sequence[forms.Param], args: Arguments) -> Thunk:
    """The dict of a ``**kwargs`` parameter."""
    taken = {param.name for param in params if param.kind in ("normal", "keyword")}
    own = tuple((name, thunk) for name, thunk in args.keywords if name not in taken)
    alts: list[Alt] = [Alt(Mapping(own), ANY)]
    for spread in args.spreads:
        alts = ev.combine(alts, spread, lambda old, other: [Alt(joined(old, other, without=taken), ANY)])
    return Thunk(None, None, tuple(alts))


def _extra_positional(names: list[str], args: Arguments) -> Thunk:
    given = args.positional[len(names) :]
    open_ = any(star for _, star in args.positional)
    return known(Many("tuple", tuple(thunk for thunk, star in given if not star), open_))


def joined(old: Value, other: Value, without: frozenset[str] | set[str] | None = None) -> Value:
    """``{**old, **other}``.

    With ``without``, names that are left out, the two are arguments of one call: they cannot
    clash, so that what ``old`` holds stays certain whatever ``other`` may hold.
    """
    if not isinstance(old, Mapping):
        return old
    kept = old.entries if without is not None else ()
    if not isinstance(other, Mapping):
        return Mapping(kept, True)
    new = tuple((name, thunk) for name, thunk in other.entries if name not in (without or ()))
    names = {name for name, _ in new}
    before = kept if other.open else old.entries
    return Mapping((*(entry for entry in before if entry[0] not in names), *new), old.open or other.open)


def _default(ev: Evaluator, scope: Scope, name: str, frame: Frame, called: bool = False) -> Thunk:
    """The default of a parameter; it can be overridden only where no caller is known."""
    param = next((param for param in scope.function.params if param.name == name), None)
    if param is None or param.kind in ("*", "**"):
        value: Value = Unknown(("parameter", frame, name))
        if param is not None:
            value = Mapping((), True) if param.kind == "**" else Many("tuple", (), True)
        return known(value)
    declared = settings.command_parameter(ev, scope, name)
    if declared is not None and not called:
        return Thunk(None, None, tuple(declared))
    if param.default is None:
        if dotted(param.annotation) in ("Path", "pathlib.Path"):
            return known(Made("pathlib.Path", None, ("parameter", frame, name)))
        unknown = Unknown(("parameter", frame, name))
        settings_class = None if called else _annotated_settings(ev, scope, param)
        if settings_class is None:
            return known(unknown)
        return Thunk(None, None, default_settings(settings_class, ("settings", scope.module.name, param.at), unknown))
    assert scope.link is not None
    outer = ev.frame(scope.parent) if scope.parent is not None and scope.parent.kind != "function" else None
    if outer is None:
        outer = frame.closure or ev.any_frame(scope.parent) if scope.parent else ev.frame(scope)
    alts = ev.eval(param.default, Point(outer, scope.link))
    origin = Origin(f"default of `{name}`", scope.module, param.at)
    free = None if called else ("default", scope.module.name, param.at)
    out: list[Alt] = []
    for value, world in alts:
        for inner in settings.declared_default(ev, value) or [Alt(value, ANY)]:
            joint = world.merge(inner.world)
            if joint is not None:
                out += _as_default(inner.value, joint, origin, free)
    return Thunk(None, None, tuple(out))


def default_settings(cls: Scope, key: Hashable, other: Value) -> tuple[Alt, Alt]:
    """Settings as their class declares them, and what they are where the user gives others."""
    made = Instance(cls, Arguments((), (), ()), key)
    choice = ("free", key)
    return Alt(made, World({choice: "default"})), Alt(other, World({choice: "other"}))


def _annotated_settings(ev: Evaluator, scope: Scope, param: forms.Param) -> Scope | None:
    """The class of a parameter that nobody is seen to give, where that is settings with defaults for all."""
    if not isinstance(param.annotation, (forms.Name, forms.Attr)):
        return None
    body = scope.module.scope.body
    values = list(ev.values(param.annotation, Point(ev.frame(scope.module.scope), body[-1])))
    if len(values) != 1 or not isinstance(values[0], ClassRef) or not _is_settings(values[0].scope):
        return None
    lines = [link for base in ev.project.lineage(values[0].scope) for link in base.body]
    fields = [link.stmt for link in lines if isinstance(link.stmt, forms.Declare)]
    return values[0].scope if fields and all(field.value is not None for field in fields) else None


def _is_settings(cls: Scope) -> bool:
    """Whether a class's fields are declared in its body: a dataclass and its like."""
    decorated = cls.has_decorator("dataclass", "attrs", "define", "frozen")
    return decorated or bool({"BaseModel", "BaseSettings", "NamedTuple"}.intersection(_base_names(cls)))


def _as_default(value: Value, world: World, origin: Origin, free: Hashable) -> list[Alt]:
    """A parameter's default; where no caller is known, somebody may give another value."""
    if isinstance(value, Const):
        value = Const(value.value, value.origin or origin, value.free)
    elif not is_number(value):
        return [Alt(value, world)]
    if free is None:
        return [Alt(value, world)]
    alts = settings.overridable(value, free, flag=isinstance(value, Const) and isinstance(value.value, bool))
    return [Alt(alt.value, both) for alt in alts if (both := world.merge(alt.world)) is not None]


# -- calls


def call(ev: Evaluator, expr: forms.Call, point: Point) -> list[Alt]:
    """What a call gives."""
    if isinstance(expr.func, forms.Name) and expr.func.id == "super":
        return _super(ev, expr, point)
    args = arguments(expr, point)
    if isinstance(expr.func, forms.Attr):
        found = builtin_calls.method_on_value(ev, expr, args, point)
        if found is not None:
            return found
    return ev.bind(ev.eval(expr.func, point), lambda func: call_function(ev, func, args))


def call_function(ev: Evaluator, func: Value, args: Arguments) -> list[Alt]:
    """What calling ``func`` with ``args`` gives."""
    if isinstance(func, Func):
        return _call_project_function(ev, func, args)
    if isinstance(func, ClassRef):
        return construct(ev, func.scope, args)
    if isinstance(func, Bound):
        return call_function(ev, func.func, with_bound(func.args, args))
    if isinstance(func, External):
        return builtin_calls.call_external(ev, func.path, args, func.of)
    if isinstance(func, Instance):
        method = ev.project.method(func.cls, "__call__") or ev.project.method(func.cls, "forward")
        if method is not None:
            return call_function(ev, Func(method, func), args)
    if isinstance(func, LambdaFunc):  # its parameters stay unknown
        inner = func.point.module.inners.get(func.form.at)
        return ev.eval(func.form.body, Point(func.point.frame, func.point.link, inner))
    return _unknown_call(args)


def with_bound(first: Arguments, then: Arguments) -> Arguments:
    given = {name for name, _ in then.keywords}
    kept = tuple(pair for pair in first.keywords if pair[0] not in given)
    return Arguments(
        first.positional + then.positional,
        kept + then.keywords,
        first.spreads + then.spreads,
        then.call or first.call,
        then.point or first.point,
    )


def _unknown_call(args: Arguments) -> list[Alt]:
    if args.call is None or args.point is None:
        return [Alt(UNKNOWN, ANY)]
    return [Alt(Unknown((args.point.module.name, args.call.at, args.point.frame)), ANY)]


def call_key(args: Arguments) -> tuple[Any, ...]:
    """What tells this call from others: its place and its frame."""
    if args.call is None or args.point is None:
        return (None,)
    return (args.point.module.name, args.call.at, args.point.frame)


def _call_project_function(ev: Evaluator, func: Func, args: Arguments) -> list[Alt]:
    frame = ev.frame(func.scope, args, args.point, func.self_, func.closure)
    if frame.scope.has_decorator("contextmanager", "fixture"):
        return _unknown_call(args)
    if func.scope.function.is_generator:
        return [Alt(Generated(frame), ANY)]
    return returned(ev, frame)


def returned(ev: Evaluator, frame: Frame) -> list[Alt]:
    """What a function returns, in the worlds that reach each ``return``."""

    def compute() -> list[Alt]:
        out: list[Alt] = []
        returns = frame.scope.returns[:MAX_RETURNS]
        for link in returns:
            assert isinstance(link.stmt, forms.Return)
            if link.stmt.value is None:
                alts = [Alt(Const(None), ANY)]
            else:
                alts = ev.eval(link.stmt.value, Point(frame, link))
            for world in ev.guards(link, frame):
                for value, other in alts:
                    both = world.merge(other)
                    if both is not None:
                        out.append(Alt(value, both))
        if not returns:
            out.append(Alt(Const(None), ANY))
        return out or [Alt(UNKNOWN, ANY)]

    return ev.remember(("returned", frame), compute)


def construct(ev: Evaluator, cls: Scope, args: Arguments) -> list[Alt]:
    """A new object of a project class; a subclass of DataLoader is a loader."""
    key = call_key(args)
    assert args.point is not None or args.call is None
    if args.point is not None and ev.project.is_loader_class(cls):
        return [Alt(LoaderRef(cls, args, args.point, key), ANY)]
    new = ev.project.method(cls, "__new__")
    if new is not None and new.module is cls.module and new.returns:
        return _unknown_call(args)
    return [Alt(Instance(cls, args, key, args.point), ANY)]


def _super(ev: Evaluator, expr: forms.Call, point: Point) -> list[Alt]:
    scope = point.frame.scope
    while scope.kind == "function" and scope.owner is None and scope.parent is not None:
        scope = scope.parent
    owner = scope.owner
    if owner is None:
        return ev.unknown_at(expr, point)
    self_ = point.frame.self_ or Instance(owner)
    return [Alt(SuperOf(owner, self_), ANY)]


def super_init_frame(ev: Evaluator, instance: Instance, method: Scope) -> Frame:
    """The frame of a base class's ``__init__`` as the object's own ``__init__`` calls it."""
    own = ev.project.method(instance.cls, "__init__")
    if own is None or own is method or instance.point is None:
        return ev.frame(method, self_=instance)
    frame = ev.frame(own, instance.args, instance.point, instance)
    for link, call in super_calls(own):
        point = Point(frame, link)
        for value in ev.values(call.func, point):
            if isinstance(value, Func) and value.scope is method:
                return ev.frame(method, arguments(call, point), point, instance)
    return ev.frame(method, self_=instance)


def super_calls(init: Scope) -> Iterator[tuple[Link, forms.Call]]:
    """``super().__init__(...)`` and ``Base.__init__(self, ...)`` in a method."""
    for site in init.module.calls:
        call = site.expr
        if site.scope is not init or not isinstance(call, forms.Call):
            continue
        if isinstance(call.func, forms.Attr) and call.func.name == "__init__":
            yield site.link, call


def field_argument(ev: Evaluator, cls: Scope, name: str, instance: Instance) -> list[Alt] | None:
    """A dataclass's field as its constructor was given it."""
    if ev.project.method(instance.cls, "__init__") is not None or instance.args is None:
        return None
    if not _is_settings(cls):
        return None
    fields = [
        dotted(link.stmt.target) or ""
        for base in reversed(ev.project.lineage(cls))
        for link in base.body
        if isinstance(link.stmt, forms.Declare)
    ]
    found = argument(instance.args, name, fields.index(name) if name in fields else None)
    if found is not None:
        return ev.force(found)
    if instance.args.spreads:
        return [Alt(UNKNOWN, ANY)]
    return None


def _base_names(cls: Scope) -> list[str]:
    from dlcheck.model.scopes import last_name

    node = cls.node
    return [last_name(base.value) for base in node.bases] if isinstance(node, forms.Class) else []


# -- statements that change a value in place


def mutated(ev: Evaluator, name: str, point: Point, before: forms.Name | None = None) -> list[Alt]:
    """``name`` after what the statement calls to change it: ``name.update(...)``, ``x = f(name.pop("key"))``.

    With ``before`` only what is called before that is reached.  Undefined where nothing is.
    """
    alts: list[Alt] = []
    for call in _mutations(point.link, name, before):
        assert isinstance(call.func, forms.Attr)
        earlier = alts or ev.value_before(call.func.value, name, point)
        step = partial(_mutate, ev, method=call.func.name, args=arguments(call, point), point=point)
        alts = ev.bind(earlier, step)
    return alts or [Alt(UNDEFINED, ANY)]


def _mutations(link: Link, name: str, before: forms.Name | None) -> list[forms.Call]:
    """The calls in a statement itself that change ``name`` in place, in their order."""
    if name not in link.mutated:
        return []
    found = []
    for site in link.scope.module.calls_in(link):
        call = site.expr
        if site.link is not link or site.inner is not None or not isinstance(call, forms.Call):
            continue
        func = call.func
        if not isinstance(func, forms.Attr) or func.name not in MUTATORS or dotted(func.value) != name:
            continue
        if before is None or call.at < before.at and all(part is not before for part in descend(call)):
            found.append(call)
    return sorted(found, key=lambda call: call.at)


def _mutate(ev: Evaluator, old: Value, *, method: str, args: Arguments, point: Point) -> list[Alt]:
    if isinstance(old, Mapping):
        return _mutate_mapping(ev, old, method, args)
    if isinstance(old, Many) and method in ("append", "add") and args.positional:
        return [Alt(Many(old.kind, (*old.items, args.positional[0][0]), old.open or _in_loop(point)), ANY)]
    if isinstance(old, Many) and method in ("extend", "insert", "update"):
        return [Alt(Many(old.kind, old.items, True), ANY)]
    if isinstance(old, Many) and method in ("pop", "remove", "clear"):
        return [Alt(Many(old.kind, (), True), ANY)]
    return [Alt(old, ANY)]


def _in_loop(point: Point) -> bool:
    return any(isinstance(link.stmt, (forms.For, forms.While)) for link in point.link.outer())


def _mutate_mapping(ev: Evaluator, old: Mapping, method: str, args: Arguments) -> list[Alt]:
    if method == "clear":
        return [Alt(Mapping(()), ANY)]
    if method == "update":
        alts: list[Alt] = [Alt(joined(old, Mapping(tuple(args.keywords))), ANY)]
        for thunk in [thunk for thunk, _ in args.positional] + list(args.spreads):
            alts = ev.combine(alts, thunk, lambda value, other: [Alt(joined(value, other), ANY)])
        return alts
    first = positional(args, 0)
    if first is None or method not in ("pop", "setdefault"):
        return [Alt(old, ANY)]

    def step(key: Value) -> list[Alt]:
        if not isinstance(key, Const):
            return [Alt(Mapping(old.entries, True), ANY)]
        if method == "pop":
            return [Alt(Mapping(tuple(entry for entry in old.entries if entry[0] != key.value), old.open), ANY)]
        if old.get(key.value) is not None:
            return [Alt(old, ANY)]
        value = positional(args, 1) or known(Const(None))
        if old.open:
            # It may be there already: the default holds, but who calls can override it.
            value = Thunk(None, None, tuple(Alt(_overridable(alt.value, args), alt.world) for alt in ev.force(value)))
        return [Alt(Mapping((*old.entries, (key.value, value)), old.open), ANY)]

    return ev.bind(ev.force(first), step)


def _overridable(value: Value, args: Arguments) -> Value:
    if isinstance(value, Const):
        return Const(value.value, value.origin, value.free or ("setdefault", *call_key(args)))
    return value


def augmented(ev: Evaluator, stmt: forms.AugAssign, old: Value, point: Point) -> list[Alt]:
    """``name op= value``."""
    if isinstance(old, Undefined):
        base = stmt.target
        if isinstance(base, forms.Name):
            return ev.bind(ev.outside(base.id, point.frame, old), lambda value: _augment(ev, stmt, value, point))
        return ev.unknown_at(forms.Other((), stmt.at), point)
    return _augment(ev, stmt, old, point)


def _augment(ev: Evaluator, stmt: forms.AugAssign, old: Value, point: Point) -> list[Alt]:
    expr = forms.Binary(stmt.op, stmt.target, stmt.value, stmt.at)
    return ev.bind(ev.eval(stmt.value, point), lambda other: binary(expr, old, other, point))


# -- operators

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "|": operator.or_, "&": operator.and_,
}  # fmt: skip


def binary(expr: forms.Binary, left: Value, right: Value, point: Point) -> list[Alt]:
    """``left op right``."""
    if isinstance(left, Const) and isinstance(right, Const):
        result = _arithmetic(expr.op, left.value, right.value)
        if result is not None:
            return [Alt(Const(result, left.origin or right.origin, left.free or right.free), ANY)]
    if isinstance(left, Const) and isinstance(left.value, str) and expr.op in "+%":
        text = left.value.partition("%")[0] if expr.op == "%" else left.value
        return [Alt(Made(f"text:{text}", None, (point.module.name, expr.at, point.frame)), ANY)]
    if isinstance(left, Mapping) and expr.op == "|":
        return [Alt(joined(left, right), ANY)]
    if isinstance(left, Many) and isinstance(right, Many) and expr.op == "+":
        return [Alt(Many(left.kind, left.items + right.items, left.open or right.open), ANY)]
    if _is_share_of_cpus(expr.op, left, right):
        return [Alt(Made(library.CPU_SHARE, None, (point.module.name, expr.at, point.frame), left), ANY)]
    for side in (left, right):
        if isinstance(side, Batch):
            return [Alt(Batch(side.loader, side.managed, False, True), ANY)]
        if isinstance(side, Moved):
            return [Alt(side, ANY)]
    return [Alt(Unknown((point.module.name, expr.at, point.frame)), ANY)]


def is_number(value: Value) -> bool:
    """Whether a value is a number that only running the program gives: of CPUs, or one above zero."""
    return counts_cpus(value) or isinstance(value, Made) and value.path == "positive"


def counts_cpus(value: Value) -> bool:
    """Whether a value is the machine's number of CPUs, or computed of that number and constants alone."""
    if not isinstance(value, Made):
        return False
    return value.path in library.CPU_COUNTS or value.path in (library.CPU_SHARE, "positive") and value.base is not None


def _is_share_of_cpus(op: str, left: Value, right: Value) -> bool:
    """``os.cpu_count() // 2``; who divides by more than that may mean the GPUs of a machine."""
    if not counts_cpus(left) or not isinstance(right, Const) or not isinstance(right.value, (int, float)):
        return False
    if op in ("/", "//"):
        return 0 < right.value < 4
    return op in "+-" or op == "*" and right.value > 0.25


def _arithmetic(op: str, left: object, right: object) -> object:
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    texts = op == "+" and isinstance(left, str) and isinstance(right, str)
    if not (numbers or texts) or op not in _ARITHMETIC:
        return None
    try:
        result = _ARITHMETIC[op](left, right)
    except (ArithmeticError, TypeError, ValueError):
        return None
    if isinstance(result, str):
        return result if len(result) <= 10_000 else None
    return result if abs(result) <= 1e12 else None


def unary(expr: forms.Unary, value: Value, point: Point) -> list[Alt]:
    """``-value``, ``+value``, ``~value``."""
    if isinstance(value, Const) and isinstance(value.value, (int, float)) and expr.op in "+-":
        return [Alt(Const(-value.value if expr.op == "-" else value.value, value.origin, value.free), ANY)]
    if isinstance(value, Batch):
        return [Alt(Batch(value.loader, value.managed, False, True), ANY)]
    if isinstance(value, (Moved, Pinned, Managed)):
        return [Alt(value, ANY)]
    return [Alt(Unknown((point.module.name, expr.at, point.frame)), ANY)]


def made(path: str, args: Arguments, base: Value | None = None) -> Made:
    """The result of calling a library's ``path``."""
    return Made(library.canonical(path), args, call_key(args), base)
