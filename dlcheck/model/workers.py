"""Worker code: what runs in a worker, and why it does.

Everything reachable from the dataset's ``__getitem__``, ``__getitems__`` or ``__iter__``, from
``collate_fn`` and from the transforms that the dataset calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.conditions import IN_WORKER
from dlcheck.model.depth import unfolds
from dlcheck.model.scopes import Inner, Link, Scope, Site, descend, dotted, expressions, target_names
from dlcheck.model.values import (
    Arguments,
    Bound,
    ClassRef,
    External,
    Frame,
    Func,
    Generated,
    Instance,
    LambdaFunc,
    Made,
    Many,
    Point,
    Value,
)
from dlcheck.model.worlds import ANY, World, product

if TYPE_CHECKING:
    from dlcheck.model.project import Project

MAX_FRAMES = 40
MAX_WALK_STEPS = 60_000  # of the evaluator, for the code behind one entry
MAX_OBJECTS = 6  # of a class, or with the same method, that are each followed for themselves


class WorkerCall(NamedTuple):
    """A call in worker code: where, in which frame, and the library function that it means ("" for none)."""

    site: Site
    point: Point
    path: str
    world: World

    @property
    def call(self) -> forms.Call:
        assert isinstance(self.site.expr, forms.Call)
        return self.site.expr


@dataclass(eq=False)
class WorkerCode:
    """The functions that run in a worker, each in its frame, and the calls in them."""

    project: Project
    calls: list[WorkerCall] = field(default_factory=list)
    frames: list[tuple[Frame, World]] = field(default_factory=list)
    is_cut: bool = False  # too much to follow: there is more code than this
    _varying_names: dict[Frame, set[str] | None] = field(default_factory=dict, repr=False)

    def mentions(self, names: frozenset[str]) -> bool:
        """Whether any of the names or attributes stands in the code, or may in what was not followed."""
        return self.is_cut or any(not names.isdisjoint(_words_in(frame.scope)) for frame, _ in self.frames)

    def reads_attribute(self, cls: Scope, name: str) -> bool:
        """Whether the code reads ``self.name`` in a method of ``cls``'s lineage."""
        lineage = self.project.lineage(cls)
        return any(frame.scope.owner in lineage and reads_own(frame.scope, name) for frame, _ in self.frames)

    def depends_on_sample(self, call: WorkerCall) -> bool:
        """Whether a call's arguments differ from sample to sample: they follow from the index."""
        names = self._varying(call.point.frame, 0)
        mentioned = {name for arg in call.call.args for name in _names(arg.value)}
        inner = call.site.inner
        while inner is not None:
            if isinstance(inner.form, forms.Comp):
                return True  # one of many, of which a comprehension takes each
            inner = inner.parent
        return names is None or bool(mentioned & names)

    def varies(self, expr: forms.Expr, frame: Frame) -> bool:
        """Whether an expression in the code differs from sample to sample."""
        names = self._varying(frame, 0)
        return names is None or bool(names & set(_names(expr)))

    def is_sample(self, frame: Frame, name: str) -> bool:
        """Whether a local name differs from sample to sample."""
        names = self._varying(frame, 0)
        return names is not None and name in names

    def _varying(self, frame: Frame, depth: int) -> set[str] | None:
        """The local names that differ from sample to sample; None for all of them."""
        if frame not in self._varying_names:
            self._varying_names[frame] = set()
            self._varying_names[frame] = self._find_varying(frame, depth)
        return self._varying_names[frame]

    def _find_varying(self, frame: Frame, depth: int) -> set[str] | None:
        scope = frame.scope
        if scope.kind != "function":  # an argument that is written outside of all functions: no sample is known there
            return set()
        if scope.name == "__iter__" or scope.function.is_generator or depth > 8:
            return None
        params = [param.name for param in scope.function.params]
        if frame.site is None:
            varying = set(params[1:] if scope.owner is not None else params)
        else:
            varying = {name for name in params if self._argument_varies(frame, name, depth)}
        for _ in range(3):  # assignments in any order: a few rounds find what follows from what
            for stmt in statements(scope):
                for targets, value in _bindings(stmt):
                    if varying & set(_names(value)):
                        varying.update(targets)
        return varying

    def _argument_varies(self, frame: Frame, name: str, depth: int) -> bool:
        for thunk, _ in calling.parameter_thunks(self.project.evaluator, name, frame):
            if thunk.expr is None or thunk.point is None:
                continue
            outer = self._varying(thunk.point.frame, depth + 1)
            if outer is None or outer & set(_names(thunk.expr)):
                return True
        return False

    def stores_attribute(self, name: str) -> bool:
        """Whether the code assigns ``self.name`` itself."""
        scopes = {frame.scope for frame, _ in self.frames}
        return any(
            store.target.name == name for scope in scopes for store in scope.module.stores if store.link.scope is scope
        )


def worker_code(project: Project, entry: Value, methods: tuple[str, ...] = ()) -> WorkerCode:
    """What runs when a worker calls ``entry``: a function, or the ``methods`` of a dataset."""
    known = project.worker_codes.get((entry, methods))
    if known is None:
        shared = _shared(project, entry, methods)
        known = _walked(project, entry, methods) if shared is None else worker_code(project, shared, methods)
        project.worker_codes[entry, methods] = known
    return known


def _walked(project: Project, entry: Value, methods: tuple[str, ...]) -> WorkerCode:
    code = WorkerCode(project)
    walk = _Walk(project, code)
    if isinstance(entry, Instance) and methods:
        for name in methods:
            method = project.method(entry.cls, name)
            if method is not None:
                walk.add(project.evaluator.frame(method, self_=entry), ANY)
    else:
        walk.enter(entry, None, ANY)
    walk.run()
    return code


def _shared(project: Project, entry: Value, methods: tuple[str, ...]) -> Value | None:
    """In place of one more object of a class of which there are many: any object of it, of which less is known."""
    scope: Scope
    anybody: Value
    if isinstance(entry, Instance):
        scope, anybody = entry.cls, Instance(entry.cls)
    elif isinstance(entry, Func) and entry.self_ is not None and entry.scope.owner is not None:
        scope, anybody = entry.scope, Func(entry.scope, Instance(entry.scope.owner), entry.closure)
    else:
        return None
    objects = project.walked_objects.setdefault((scope, methods), set())
    if entry == anybody or len(objects) < MAX_OBJECTS:
        objects.add(entry)
        return None
    return anybody


def worlds_in_worker(project: Project, link: Link, frame: Frame, world: World) -> list[World]:
    """The worlds in which a worker gets to a statement; what is made on first use counts as reached."""
    guards = project.evaluator.guards(link, frame)
    if not guards and _made_on_first_use(link):
        guards = [ANY]
    reached = product(guards, [world])
    return [inside for both in reached if (inside := both.assume(IN_WORKER, True)) is not None]


def _made_on_first_use(link: Link) -> bool:
    """Below ``if self.x is None:`` or ``if not hasattr(self, "x"):``."""
    return any(
        isinstance(outer.stmt, forms.If) and any(_asks_for_attribute(expr) for expr in descend(outer.stmt.test))
        for outer in link.outer()
    )


def _asks_for_attribute(expr: forms.Expr) -> bool:
    if isinstance(expr, forms.Call):
        return dotted(expr.func) == "hasattr"
    return isinstance(expr, forms.Attr) and (dotted(expr) or "").startswith("self.")


def code_from(project: Project, frames: list[Frame]) -> WorkerCode:
    """What runs when these functions are called: the constructor of a dataset, for one."""
    code = WorkerCode(project)
    walk = _Walk(project, code)
    for frame in frames:
        walk.add(frame, ANY)
    walk.run()
    return code


class _Walk:
    def __init__(self, project: Project, code: WorkerCode) -> None:
        self.project = project
        self.code = code
        self.todo: list[tuple[Frame, World]] = []
        self.seen: set[Frame] = set()

    def add(self, frame: Frame, world: World) -> None:
        if frame in self.seen:
            return
        if len(self.seen) >= MAX_FRAMES:
            self.code.is_cut = True
            return
        self.seen.add(frame)
        self.todo.append((frame, world))

    def run(self) -> None:
        ev = self.project.evaluator
        start = ev.total_steps
        while self.todo:
            if ev.total_steps - start > MAX_WALK_STEPS:
                self.code.is_cut = True
                return
            frame, world = self.todo.pop(0)
            self.code.frames.append((frame, world))
            for site in frame.scope.module.calls_by_scope.get(frame.scope, ()):
                self._call(site, frame, world)
            self._properties(frame, world)
            self._iterations(frame, world)

    def _call(self, site: Site, frame: Frame, world: World) -> None:
        ev = self.project.evaluator
        ev.fresh()
        if not worlds_in_worker(self.project, site.link, frame, world):
            return
        point = Point(frame, site.link, site.inner)
        call = site.expr
        assert isinstance(call, forms.Call)
        known = False
        for value, other in ev.eval(call.func, point):
            both = world.merge(other)
            if both is None:
                continue
            if isinstance(value, External):
                known = True
                self.code.calls.append(WorkerCall(site, point, value.path, both))
            if not _is_given_by_anybody(call.func, frame):
                self.enter(value, calling.arguments(call, point), both)
        if not known:
            self.code.calls.append(WorkerCall(site, point, "", world))

    def _properties(self, frame: Frame, world: World) -> None:
        """Reading ``self.name`` runs the code of a property."""
        own, params = frame.self_, frame.scope.function.params
        if not isinstance(own, Instance) or not params or frame.scope.owner is None:
            return
        for cls in self.project.lineage(own.cls):
            for name, method in cls.functions.items():
                computed = method.has_decorator("property", "cached_property", "lazy_property")
                if computed and self.project.method(own.cls, name) is method and reads_own(frame.scope, name):
                    self.add(self.project.evaluator.frame(method, self_=own), world)

    def enter(self, value: Value, args: Arguments | None, world: World) -> None:
        """Follow a call of ``value``."""
        ev, project = self.project.evaluator, self.project
        site = args.point if args is not None else None
        if isinstance(value, Func):
            self.add(ev.frame(value.scope, args, site, value.self_, value.closure), world)
        elif isinstance(value, Bound):
            self.enter(value.func, calling.with_bound(value.args, args) if args is not None else value.args, world)
        elif isinstance(value, Instance):
            method = project.method(value.cls, "__call__") or project.method(value.cls, "forward")
            if method is not None:
                self.add(ev.frame(method, args, site, value), world)
        elif isinstance(value, ClassRef) and args is not None:
            init = project.method(value.scope, "__init__")
            if init is not None:
                own = Instance(value.scope, args, calling.call_key(args), args.point)
                self.add(ev.frame(init, args, site, own), world)
        elif isinstance(value, LambdaFunc):
            self._lambda(value, world)
        elif isinstance(value, Made) and value.path.rpartition(".")[2] in ("Compose", "Lambda", "Sequential"):
            self._composed(value, args, world)

    @unfolds(None)
    def _composed(self, value: Made, args: Arguments | None, world: World) -> None:
        """The project's own transforms inside a library's ``Compose([...])``."""
        for thunk, _ in value.args.positional if value.args is not None else ():
            for inner, other in self.project.evaluator.force(thunk):
                both = world.merge(other)
                if both is None:
                    continue
                if isinstance(inner, Many):
                    for item in inner.items:
                        for found, third in self.project.evaluator.force(item):
                            joint = both.merge(third)
                            if joint is not None:
                                self.enter(found, args, joint)
                else:
                    self.enter(inner, args, both)

    def _lambda(self, value: LambdaFunc, world: World) -> None:
        module = value.point.module
        inner = module.inners.get(value.form.at)
        for site in module.calls:
            if _inside(site.inner, inner):
                frame = value.point.frame
                point = Point(frame, site.link, site.inner)
                call = site.expr
                assert isinstance(call, forms.Call)
                paths = [v.path for v in self.project.evaluator.values(call.func, point) if isinstance(v, External)]
                self.code.calls.append(WorkerCall(site, point, paths[0] if paths else "", world))

    def _iterations(self, frame: Frame, world: World) -> None:
        """Iterating a generator of the project runs its code, too."""
        ev = self.project.evaluator
        for link in frame.scope.module.loops:
            if link.scope is frame.scope and isinstance(link.stmt, forms.For):
                for value in ev.values(link.stmt.iter, Point(frame, link)):
                    if isinstance(value, Generated):
                        self.add(value.frame, world)
                    elif isinstance(value, Instance):
                        method = self.project.method(value.cls, "__iter__")
                        if method is not None:
                            self.add(ev.frame(method, self_=value), world)


def _is_given_by_anybody(func: forms.Expr, frame: Frame) -> bool:
    """Whether what is called is an argument, in a frame of any caller, as one of a function that calls itself is.

    Callers that run in no worker hand over functions that run in none.
    """
    while isinstance(func, forms.Attr):
        func = func.value
    if frame.args is not None or not isinstance(func, forms.Name):
        return False
    own = 1 if frame.scope.owner is not None else 0
    return any(param.name == func.id for param in frame.scope.function.params[own:])


def _inside(inner: Inner | None, around: Inner | None) -> bool:
    while inner is not None:
        if inner is around:
            return True
        inner = inner.parent
    return False


def statements(scope: Scope) -> Iterator[forms.Stmt]:
    """All statements of a function, those of its blocks included."""
    todo = list(scope.body)
    while todo:
        link = todo.pop(0)
        yield link.stmt
        for block in link.blocks.values():
            todo.extend(block)


def _names(root: forms.Expr) -> Iterator[str]:
    return (expr.id for expr in descend(root) if isinstance(expr, forms.Name))


def _bindings(stmt: forms.Stmt) -> Iterator[tuple[list[str], forms.Expr]]:
    """The names that a statement binds, and what it binds them to."""
    if isinstance(stmt, forms.Assign):
        yield [name for target in stmt.targets for name in target_names(target)], stmt.value
    elif isinstance(stmt, (forms.AugAssign, forms.Declare)) and stmt.value is not None:
        yield list(target_names(stmt.target)), stmt.value
    elif isinstance(stmt, forms.For):
        yield list(target_names(stmt.target)), stmt.iter
    elif isinstance(stmt, forms.With):
        for item in stmt.items:
            yield list(target_names(item.target)), item.value


def _words_in(scope: Scope) -> frozenset[str]:
    """The names and attributes that stand in a function's own statements."""
    return scope.module.once(("words", scope), lambda _: frozenset(_names_and_attributes(scope)))


def _names_and_attributes(scope: Scope) -> Iterator[str]:
    for stmt in statements(scope):
        for root in expressions(stmt):
            for expr in descend(root):
                if isinstance(expr, forms.Name):
                    yield expr.id
                elif isinstance(expr, forms.Attr):
                    yield expr.name


def reads_own(scope: Scope, name: str) -> bool:
    """Whether a method reads ``self.name``."""
    if name not in _words_in(scope):
        return False
    params = scope.function.params
    wanted = f"{params[0].name}.{name}" if params else ""
    for stmt in statements(scope):
        for root in expressions(stmt):
            for expr in descend(root):
                if isinstance(expr, forms.Attr) and expr.name == name and dotted(expr) == wanted:
                    return True
    return False
