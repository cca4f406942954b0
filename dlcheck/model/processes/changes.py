"""What a program changes between epochs in the objects that its workers have a copy of: the dataset, ``collate_fn``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.attributes import frame_of_method
from dlcheck.model.datasets import unwrapped
from dlcheck.model.flow import links_in, links_of
from dlcheck.model.loops import called_scopes
from dlcheck.model.scopes import Link, Module, Scope, Site, Store, descend, dotted, expressions, last_name
from dlcheck.model.values import Const, Func, Instance, Iterating, Made, Many, Mapping, Point, Value
from dlcheck.model.workers import WorkerCode, code_from, reads_own, worker_code

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

MAX_DEPTH = 3

# Attributes of library datasets that their ``__getitem__`` reads.
_LIBRARY_ATTRIBUTES = {
    "torchvision.datasets.": frozenset({"transform", "target_transform", "transforms", "data", "targets", "samples"}),
    "torch.utils.data.Subset": frozenset({"indices", "dataset"}),
}


class Carried(NamedTuple):
    """An object that is copied to the workers: its class, the code that runs there, what people call it."""

    cls: Scope
    code: WorkerCode
    instance: Instance
    name: str


class Change(NamedTuple):
    """A statement between epochs that changes what workers have copied.

    ``attributes`` are those that the workers read; none where it is not known that they do.
    """

    module: Module
    at: int
    link: Link
    said_at: int  # the node that says it
    name: str  # of the class
    attributes: tuple[str, ...]
    constant: bool = False  # each round sets the same value again, before anything else
    method: str = ""  # that is called; where there is none, an attribute is set
    arguments: tuple[tuple[str, Any], ...] = ()  # of the call: their keywords, and those that are constants

    @property
    def text(self) -> str:
        return self.module.line(self.said_at)


def changes(loader: Loader) -> list[Change]:
    """The changes inside the loops that iterate a loader anew, in them or in what they call."""
    around = dict.fromkeys(link for loop in loader.loops for link in loop.repeated_by())
    carried = list(_carried(loader))
    given = calling.argument(loader.ref.args, "dataset", 0)
    name = dotted(given.expr) if given is not None and given.point is not None else None
    found = [change for loop in around for change in _in_loop(loader.project, loop, carried, name)]
    changing = {attribute for change in found if not change.constant for attribute in change.attributes}
    # Workers that start in the first round have what every round sets.
    kept = (
        change._replace(attributes=tuple(name for name in change.attributes if name in changing)) for change in found
    )
    return list(dict.fromkeys(kept))


def _carried(loader: Loader) -> Iterator[Carried]:
    for alt in loader.datasets:
        if alt.dataset is not None:
            yield Carried(alt.dataset.cls, alt.dataset.worker_code, alt.dataset.instance, alt.dataset.name)
    for option in loader.option("collate_fn"):
        value = option.value
        if isinstance(value, Instance):
            yield Carried(value.cls, worker_code(loader.project, value), value, value.cls.name)


def _in_loop(project: Project, loop: Link, carried: list[Carried], name: str | None) -> Iterator[Change]:
    classes = {base for one in carried for base in project.lineage(one.cls)}
    for link in _reached(project, loop, classes, 0, set()):
        for store in link.scope.module.stores:
            if store.link is link:
                yield from _of_store(project, store, carried, name)
        for site in link.scope.module.calls_in(link):
            if site.link is link:
                yield from _of_call(project, site, carried)


def _reached(project: Project, link: Link, classes: set[Scope], depth: int, seen: set[Scope]) -> Iterator[Link]:
    """The statements of a loop, and of the functions that it calls; not of the classes themselves."""
    yield from links_in(link)
    for site in link.scope.module.calls_in(link):
        for scope in called_scopes(project, site) if depth < MAX_DEPTH else ():
            if scope not in seen and scope.owner not in classes:
                seen.add(scope)
                for inner in scope.body:
                    yield inner
                    yield from _reached(project, inner, classes, depth + 1, seen)


def is_same(value: Value | None, other: Instance) -> bool:
    """Whether a value is the object itself, as far as that is known: an object of its class, and no other one."""
    if not isinstance(value, Instance) or value.cls is not other.cls:
        return False
    first, second = value.point, other.point
    if value.key == other.key or first is None or second is None:
        return True
    # Built by one call: the same object, unless two different callers are seen.
    calls = [args.call for args in (value.args, other.args) if args is not None]
    same_call = first.link is second.link and len(calls) == 2 and calls[0] is calls[1]
    return same_call and (first.frame.site is None or second.frame.site is None)


# -- assignments


def _of_store(project: Project, store: Store, carried: list[Carried], name: str | None) -> Iterator[Change]:
    module, link = store.link.scope.module, store.link
    holder = store.target.value
    said_at = store.target.at
    constant = isinstance(store.value, forms.Const) and _is_unconditional(link)
    known = False
    for value in _holders(project, holder, Point(project.evaluator.any_frame(link.scope), link)):
        for one in carried:
            if is_same(value, one.instance):
                known = True
                read = (store.target.name,) if reads(project, one, store.target.name) else ()
                yield Change(module, link.stmt.at, link, said_at, one.name, read, constant)
        if isinstance(value, Made) and _is_read_by_library(value, store.target.name):
            known = True
            yield Change(
                module, link.stmt.at, link, said_at, value.path.rpartition(".")[2], (store.target.name,), constant
            )
    chain = dotted(store.target) or ""
    if not known and (".dataset." in chain or name is not None and dotted(holder) == name):
        yield Change(module, link.stmt.at, link, said_at, "", ())


def _holders(project: Project, expr: forms.Expr, point: Point) -> Iterator[Value]:
    """The objects that an expression means, also the dataset inside a subset: ``subset.dataset``."""
    ev = project.evaluator
    alts = ev.eval(expr, point)
    if isinstance(expr, forms.Attr) and expr.name == "dataset":
        alts = [*alts, *unwrapped(ev, ev.eval(expr.value, point))]
    for alt in alts:
        yield alt.value


def _is_read_by_library(made: Made, name: str) -> bool:
    return any(made.path.startswith(path) and name in names for path, names in _LIBRARY_ATTRIBUTES.items())


# -- calls


def _of_call(project: Project, site: Site, carried: list[Carried]) -> Iterator[Change]:
    call = site.expr
    func = call.func if isinstance(call, forms.Call) else None
    if not isinstance(func, forms.Attr):
        return
    module = site.module
    point = project.point(site)
    known = False
    for value in project.evaluator.values(func, point):
        for one in carried:
            if (
                isinstance(value, Func)
                and value.scope.owner in project.lineage(one.cls)
                and is_same(value.self_, one.instance)
            ):
                known = True
                changed = _changed_by(project, one, value.scope)
                if changed or _sets_attributes(value.scope):
                    read = tuple(sorted(name for name in changed if reads(project, one, name)))
                    constant = _is_unconditional(site.link) and _sets_constants(call, value.scope, changed)
                    given = tuple(_given(call))
                    yield Change(module, call.at, site.link, call.at, one.name, read, constant, func.name, given)
    if not known and last_name(func.value) == "dataset" and dotted(func.value) and func.name.startswith("set_"):
        yield Change(module, call.at, site.link, call.at, "", ())


def _given(call: forms.Expr) -> Iterator[tuple[str, Any]]:
    assert isinstance(call, forms.Call)
    for arg in call.args:
        value = arg.value.value if isinstance(arg.value, forms.Const) else None
        if not arg.star:
            yield arg.name or "", value if isinstance(value, (bool, int, float, str)) else None


def _is_unconditional(link: Link) -> bool:
    return link.parent is None or isinstance(link.parent.stmt, (forms.For, forms.While))


def _sets_constants(call: forms.Expr, method: Scope, changed: set[str]) -> bool:
    """Whether a call sets attributes to constants, its own or the caller's: ``train()``, ``set_mode("test")``."""
    assert isinstance(call, forms.Call)
    params = {param.name for param in method.function.params}
    stores = [store for store in method.module.stores if store.link.scope is method]
    return (
        all(isinstance(arg.value, forms.Const) for arg in call.args)
        and changed == {store.target.name for store in stores}
        and all(
            isinstance(store.value, forms.Const) or isinstance(store.value, forms.Name) and store.value.id in params
            for store in stores
        )
    )


def _sets_attributes(method: Scope) -> bool:
    return any(store.link.scope is method for store in method.module.stores)


def _changed_by(project: Project, one: Carried, method: Scope) -> set[str]:
    """The attributes of its object that a method, or what it calls, sets or changes in place."""
    lineage = project.lineage(one.cls)
    code = code_from(project, [project.evaluator.frame(method, self_=one.instance)])
    found: set[str] = set()
    for frame, _ in code.frames:
        if frame.scope.owner in lineage and frame.scope.function.params:
            found |= _changed_in(project, one, frame.scope)
    return found


def _changed_in(project: Project, one: Carried, scope: Scope) -> set[str]:
    own = f"{scope.function.params[0].name}."
    found = {
        store.target.name
        for store in scope.module.stores
        if store.link.scope is scope and f"{dotted(store.target.value)}." == own
    }
    for link in links_of(scope):
        in_place = {name for name in link.changes if name.startswith(own)} | set(_shuffled(link.stmt))
        names = {name.removeprefix(own) for name in in_place if name.startswith(own)} - found
        found |= {name for name in names if "." not in name and is_plain_data(project, one.instance, name)}
    return found


def _shuffled(stmt: forms.Stmt) -> Iterator[str]:
    """``rng.shuffle(self.order)``."""
    for root in expressions(stmt):
        for expr in descend(root):
            if isinstance(expr, forms.Call) and last_name(expr.func) == "shuffle" and expr.args:
                name = dotted(expr.args[0].value)
                if name is not None:
                    yield name


def is_plain_data(project: Project, instance: Instance, name: str) -> bool:
    """Whether an attribute begins as a constant, list, dict or array of this process: nothing that processes share."""
    stores = [store for store in project.stores(instance.cls, name) if store.link.scope.name == "__init__"]
    return bool(stores) and all(_is_private(project, instance, store) for store in stores)


def _is_private(project: Project, instance: Instance, store: Store) -> bool:
    expr = store.value
    if expr is None:
        return False
    if isinstance(expr, (forms.Dict, forms.Sequence)) or isinstance(expr, forms.Comp) and expr.kind != "generator":
        return True
    if isinstance(expr, forms.Binary) and expr.op == "*":
        return isinstance(expr.left, forms.Sequence) or isinstance(expr.right, forms.Sequence)
    point = Point(frame_of_method(project.evaluator, instance, store.link.scope), store.link)
    values = list(project.evaluator.values(expr, point))
    return bool(values) and all(_of_one_process(value) for value in values)


def _of_one_process(value: Value) -> bool:
    if isinstance(value, (Many, Mapping)):
        return True
    if isinstance(value, Const):
        return value.value is not None
    if isinstance(value, Iterating):
        return value.kind == "list"
    return isinstance(value, Made) and (
        value.path.startswith(("collections.", "builtins."))
        or value.path in ("numpy.zeros", "numpy.empty", "numpy.full", "numpy.ones", "numpy.arange")
    )


def reads(project: Project, one: Carried, name: str) -> bool:
    """Whether the code in a worker reads an attribute, itself or through a property."""
    if one.code.reads_attribute(one.cls, name):
        return True
    return any(
        method.has_decorator("property") and reads_own(method, name) and one.code.reads_attribute(one.cls, method.name)
        for base in project.lineage(one.cls)
        for method in base.functions.values()
    )
