"""What worker code leaves on ``self``: caches, counters, epochs.  It ends with the worker, and no other sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.flow import is_inside, links_of, loops_around
from dlcheck.model.processes.changes import is_plain_data, is_same
from dlcheck.model.scopes import Link, Module, Scope, descend, dotted, expressions, last_name, same_place
from dlcheck.model.values import Frame, Instance, Made, Point
from dlcheck.model.workers import WorkerCode, code_from, worlds_in_worker
from dlcheck.model.worlds import World, product

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

# What gives a single value in another form.
_CONVERSIONS = frozenset({"Path", "str", "int", "float", "bool", "bytes", "PurePath", "fspath"})

_GROWING = frozenset({"append", "add", "update", "extend"})


class Kept(NamedTuple):
    """State that worker code keeps on its dataset.

    ``kind``: a "cache" by sample; a "count" that the main process reads at ``read``; a "turn", which tells each
    iteration from the one before.
    """

    kind: Literal["cache", "count", "turn"]
    dataset: str
    attribute: str
    module: Module
    at: int
    link: Link
    worlds: list[World]
    read: tuple[Module, int] | None = None


def kept_by_workers(loader: Loader) -> Iterator[Kept]:
    """The state of a loader's datasets that its workers change."""
    for alt in loader.held_datasets:
        if alt.dataset is not None:
            for found in _of_dataset(loader, alt.dataset):
                yield found._replace(worlds=list(product(found.worlds, [alt.world])))


def _of_dataset(loader: Loader, dataset: DatasetClass) -> Iterator[Kept]:
    project = loader.project
    lineage = project.lineage(dataset.cls)
    for frame, world in dataset.worker_code.frames:
        scope = frame.scope
        if scope.owner not in lineage or not scope.function.params:
            continue
        own = scope.function.params[0].name
        for link in links_of(scope):
            found = [*_caches(project, dataset, frame, link, own), *_counts(loader, dataset, frame, link, own)]
            if found:
                worlds = worlds_in_worker(project, link, frame, world)
                yield from (kept._replace(worlds=worlds) for kept in found)


def _caches(project: Project, dataset: DatasetClass, frame: Frame, link: Link, own: str) -> Iterator[Kept]:
    lineage, code = project.lineage(dataset.cls), dataset.worker_code
    for name in _stored_by_sample(project, code, frame, link, own):
        used = is_plain_data(project, dataset.instance, name) and _is_used(code, lineage, name, link)
        if used and not _is_filled_before(project, dataset, frame.scope, name) and not _is_warmed_up(project, dataset):
            yield Kept("cache", dataset.name, name, frame.scope.module, link.stmt.at, link, [])


def _counts(loader: Loader, dataset: DatasetClass, frame: Frame, link: Link, own: str) -> Iterator[Kept]:
    project, code = loader.project, dataset.worker_code
    for name in _counted(link.stmt, own):
        if is_plain_data(project, dataset.instance, name):
            kept = Kept("count", dataset.name, name, frame.scope.module, link.stmt.at, link, [])
            for read in _reads_after(loader, dataset, code, name):
                yield kept._replace(read=read)
            if _is_turn(project, dataset, code, frame.scope, link, name):
                yield kept._replace(kind="turn")


def _own_name(expr: forms.Expr, own: str) -> str:
    """``x`` of ``self.x``; "" for anything else."""
    name = dotted(expr) or ""
    first, _, rest = name.partition(".")
    return rest if first == own and rest and "." not in rest else ""


# -- caches


def _stored_by_sample(project: Project, code: WorkerCode, frame: Frame, link: Link, own: str) -> Iterator[str]:
    """``self.cache[index] = sample``."""
    stmt = link.stmt
    if not isinstance(stmt, forms.Assign):
        return
    for target in stmt.targets:
        name = _own_name(target.value, own) if isinstance(target, forms.Sub) else ""
        key = target.index if isinstance(target, forms.Sub) else None
        by_sample = isinstance(key, forms.Name) and code.is_sample(frame, key.id)
        if not name or not by_sample or _is_converted(target, stmt.value):
            continue
        if not _opens(project, stmt.value, Point(frame, link)):
            yield name


def _is_converted(target: forms.Expr, value: forms.Expr) -> bool:
    """``self.files[index] = Path(self.files[index])``: it is lost, and costs next to nothing."""
    called = last_name(value.func) if isinstance(value, forms.Call) and len(value.args) == 1 else ""
    return called in _CONVERSIONS and isinstance(value, forms.Call) and same_place(value.args[0].value, target)


def _opens(project: Project, expr: forms.Expr, point: Point) -> bool:
    """Whether what is stored is an open file, a connection or a memory map: each worker needs its own."""
    for value in project.evaluator.values(expr, point):
        root = value.path.partition("()")[0] if isinstance(value, Made) else ""
        if root in library.HANDLES or root in ("numpy.memmap", "zarr.open"):
            return True
        if isinstance(value, Made) and value.args is not None and any(n == "mmap_mode" for n, _ in value.args.keywords):
            return True
    return False


def _is_used(code: WorkerCode, lineage: list[Scope], name: str, store: Link) -> bool:
    """Whether worker code also reads the attribute, apart from the statement that stores."""
    for frame, _ in code.frames:
        if frame.scope.owner not in lineage or not frame.scope.function.params:
            continue
        own = frame.scope.function.params[0].name
        for link in links_of(frame.scope):
            if link is store:
                continue
            targets = link.stmt.targets if isinstance(link.stmt, forms.Assign) else ()
            written = {target.value.at for target in targets if isinstance(target, forms.Sub)}
            for root in expressions(link.stmt):
                for expr in descend(root):
                    if isinstance(expr, forms.Attr) and expr.at not in written and _own_name(expr, own) == name:
                        return True
    return False


def _is_filled_before(project: Project, dataset: DatasetClass, store: Scope, name: str) -> bool:
    """Whether code of the class fills the attribute in the main process: its constructor, or a method for that."""
    if any(frame.scope is store for frame, _ in dataset.construction_code.frames):
        return True
    in_worker = {frame.scope for frame, _ in dataset.worker_code.frames}
    for base in project.lineage(dataset.cls):
        for method in base.functions.values():
            own = method.function.params[0].name if method.function.params else "self"
            for link in links_of(method) if method not in in_worker else ():
                targets = link.stmt.targets if isinstance(link.stmt, forms.Assign) else ()
                if any(isinstance(target, forms.Sub) and _own_name(target.value, own) == name for target in targets):
                    return True
                in_loop = any(True for _ in loops_around(link))
                if in_loop and any(
                    _takes_sample(expr, own) for root in expressions(link.stmt) for expr in descend(root)
                ):
                    return True
    return False


def _takes_sample(expr: forms.Expr, own: str) -> bool:
    """``self[index]``, ``self.__getitem__(index)``."""
    if isinstance(expr, forms.Sub):
        return dotted(expr.value) == own
    return isinstance(expr, forms.Attr) and _own_name(expr, own) == "__getitem__"


def _is_warmed_up(project: Project, dataset: DatasetClass) -> bool:
    """Whether the main process goes through the dataset itself, and so fills what workers inherit."""
    ev = project.evaluator
    for module in project.loaded():
        for loop in module.loops:
            if loop.scope.owner in project.lineage(dataset.cls) or not isinstance(loop.stmt, forms.For):
                continue
            ev.fresh()
            frame = ev.any_frame(loop.scope)
            for value in ev.values(loop.stmt.iter, Point(frame, loop)):
                inner = getattr(value, "of", ())
                found = [value, *(inner if isinstance(inner, tuple) else ())]
                if any(isinstance(one, Instance) and one.cls is dataset.cls for one in found):
                    return True
            for link in (link for block in loop.blocks.values() for link in block):
                if _indexes(project, dataset, link, frame):
                    return True
    return False


def _indexes(project: Project, dataset: DatasetClass, link: Link, frame: Frame) -> bool:
    for root in expressions(link.stmt):
        for expr in descend(root):
            if isinstance(expr, forms.Sub) and isinstance(expr.index, forms.Name):
                values = project.evaluator.values(expr.value, Point(frame, link))
                if any(isinstance(value, Instance) and value.cls is dataset.cls for value in values):
                    return True
    return False


# -- counters


def _counted(stmt: forms.Stmt, own: str) -> Iterator[str]:
    """``self.n += 1``, ``self.n = self.n + 1``, ``self.log.append(x)``, ``self.seen[key] += 1``."""
    if isinstance(stmt, forms.AugAssign):
        target = stmt.target.value if isinstance(stmt.target, forms.Sub) else stmt.target
        if _own_name(target, own):
            yield _own_name(target, own)
    elif isinstance(stmt, forms.Assign) and isinstance(stmt.value, forms.Binary):
        name = _own_name(stmt.targets[0], own)
        if name and any(_own_name(side, own) == name for side in (stmt.value.left, stmt.value.right)):
            yield name
    elif isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call):
        func = stmt.value.func
        if isinstance(func, forms.Attr) and func.name in _GROWING and _own_name(func.value, own):
            yield _own_name(func.value, own)


def _reads_after(loader: Loader, dataset: DatasetClass, code: WorkerCode, name: str) -> Iterator[tuple[Module, int]]:
    """Where the main process reads an attribute in or after a loop over the loader."""
    project = loader.project
    for loop in loader.loops:
        outermost = [loop.link, *loops_around(loop.link)][-1]
        for link in links_of(loop.link.scope):
            if not (is_inside(link, outermost) or link.stmt.at > outermost.stmt.at):
                continue
            for root in expressions(link.stmt):
                for expr in descend(root):
                    if isinstance(expr, forms.Attr) and _reads(project, dataset, code, expr, link, name):
                        yield link.scope.module, expr.at
                        return


def _reads(project: Project, dataset: DatasetClass, code: WorkerCode, expr: forms.Attr, link: Link, name: str) -> bool:
    """Whether ``expr`` is the attribute of the dataset, or one of its methods that reads it."""
    if isinstance(link.stmt, (forms.Assign, forms.AugAssign)):
        targets = link.stmt.targets if isinstance(link.stmt, forms.Assign) else (link.stmt.target,)
        if any(expr is part for target in targets for part in descend(target)):
            return False
    method = project.method(dataset.cls, expr.name)
    if expr.name != name and (method is None or expr.name.startswith("__")):
        return False
    ev = project.evaluator
    point = Point(ev.any_frame(link.scope), link)
    if not any(is_same(value, dataset.instance) for value in ev.values(expr.value, point)):
        return False
    if expr.name == name:
        return True
    if method is None or any(frame.scope is method for frame, _ in code.frames) or _resets(method, name):
        return False
    return code_from(project, [ev.frame(method, self_=dataset.instance)]).reads_attribute(dataset.cls, name)


def _resets(method: Scope, name: str) -> bool:
    stores = (store for store in method.module.stores if store.link.scope is method)
    return any(store.target.name == name for store in stores) and not method.returns


# -- what tells one iteration from the next


def _is_turn(project: Project, dataset: DatasetClass, code: WorkerCode, scope: Scope, link: Link, name: str) -> bool:
    """``self.epoch += 1`` in ``__iter__``, which then shuffles by it."""
    if (
        scope.name != "__iter__"
        or not isinstance(link.stmt, (forms.AugAssign, forms.Assign))
        or link.parent is not None
    ):
        return False
    others = [store for store in project.stores(dataset.cls, name) if store.link is not link]
    if any(store.link.scope.name != "__init__" for store in others):
        return False
    return _is_used(code, project.lineage(dataset.cls), name, link)
