"""Images that PIL has opened but not read: each keeps its file open until something reads its pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.flow import links_of, loops_around
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, dotted, expressions
from dlcheck.model.values import External

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.project import Project
    from dlcheck.model.values import Frame

OPEN = "PIL.Image.open"
_KEEPERS = frozenset({"append", "add", "insert", "extend"})
# What is asked of an image without reading its pixels.
_WITHOUT_PIXELS = frozenset({"size", "width", "height", "mode", "format", "info", "filename", "getexif"})


class LazyImages(NamedTuple):
    """A container of opened images: where ``Image.open`` stands, and the statement that keeps them."""

    module: Module
    at: int
    link: Link
    kept_by: frozenset[Link]


def lazy_images(dataset: DatasetClass) -> Iterator[LazyImages]:
    """The images that the constructor of a dataset, or who builds it, opens in a loop and keeps unread."""
    seen: set[tuple[Module, int]] = set()
    for scope, containers in _scopes(dataset):
        for site in scope.module.calls_by_scope.get(scope, ()):
            key = (site.module, site.expr.at)
            if key not in seen and (_opens(dataset.project, site) or _maps(dataset.project, site)):
                kept_by = _kept_unread(site, scope, containers)
                if kept_by:
                    seen.add(key)
                    yield LazyImages(site.module, site.expr.at, site.link, kept_by)


def _scopes(dataset: DatasetClass) -> Iterator[tuple[Scope, set[str] | None]]:
    """The functions that run when it is built; and those that make the lists it is given, with the lists' names."""
    frames = [frame for frame, _ in dataset.construction_code.frames]
    for scope in dict.fromkeys(frame.scope for frame in frames):
        yield scope, None
    init = dataset.init
    frame = next((frame for frame in frames if frame.scope is init), None)
    if init is not None and frame is not None:
        yield from _given(dataset, init, frame)


def _given(dataset: DatasetClass, init: Scope, frame: Frame) -> Iterator[tuple[Scope, set[str] | None]]:
    ev = dataset.project.evaluator
    for param in init.function.params[1:]:
        for thunk, _ in calling.parameter_thunks(ev, param.name, frame):
            if thunk.point is not None and isinstance(thunk.expr, forms.Name):
                yield thunk.point.link.scope, {thunk.expr.id}


def _opens(project: Project, site: Site) -> bool:
    call = site.expr
    if not isinstance(call, forms.Call) or not isinstance(call.func, (forms.Attr, forms.Name)):
        return False
    name = call.func.name if isinstance(call.func, forms.Attr) else call.func.id
    if "open" not in name.lower():
        return False
    return _is_open(project, call.func, site)


def _maps(project: Project, site: Site) -> bool:
    """``list(map(Image.open, paths))``."""
    call = site.expr
    if not isinstance(call, forms.Call) or dotted(call.func) not in ("list", "tuple") or len(call.args) != 1:
        return False
    inner = call.args[0].value
    if not isinstance(inner, forms.Call) or dotted(inner.func) != "map" or not inner.args:
        return False
    return _is_open(project, inner.args[0].value, site)


def _is_open(project: Project, func: Expr, site: Site) -> bool:
    project.evaluator.fresh()
    values = project.evaluator.values(func, project.point(site))
    return any(isinstance(value, External) and value.path == OPEN for value in values)


def _kept_unread(site: Site, scope: Scope, containers: set[str] | None) -> frozenset[Link]:
    """The statements that keep what a call opens, if nothing reads it; else none."""
    call, link = site.expr, site.link
    if isinstance(link.stmt, forms.With):
        return frozenset()  # closed at its end
    whole = call if isinstance(call, forms.Call) and dotted(call.func) in ("list", "tuple") else None
    comp = whole or _comprehension_of(call, link)
    if comp is not None:
        stays = _stays(comp, link, scope) and (containers is None or containers & link.changes)
        return frozenset({link}) if stays else frozenset()
    stmt = link.stmt
    targets = stmt.targets if isinstance(stmt, forms.Assign) and stmt.value is call else ()
    names = {name for target in targets if (name := dotted(target))}
    keepers = [
        other for other in links_of(scope)
        if _keeps(other, call, names) and (containers is None or containers & other.changes)
    ]  # fmt: skip
    loops = set(loops_around(link))
    in_loop = frozenset(keeper for keeper in keepers if loops & set(loops_around(keeper)))
    if any(_touches(other, names, call) for other in links_of(scope)):
        return frozenset()
    return in_loop


def _comprehension_of(call: Expr, link: Link) -> forms.Comp | None:
    """The list or dict comprehension whose items are the opened images themselves."""
    for root in expressions(link.stmt):
        for expr in descend(root):
            if isinstance(expr, forms.Comp) and expr.kind != "generator" and _is_itself(expr.value, call, set()):
                return expr
    return None


def _stays(comp: Expr, link: Link, scope: Scope) -> bool:
    """Whether the container itself is kept: ``self.x = [...]``, ``x = [...]``; and not gone through at once."""
    stmt = link.stmt
    if isinstance(stmt, forms.Return):
        return stmt.value is comp
    if not isinstance(stmt, (forms.Assign, forms.Declare)) or stmt.value is not comp:
        return False
    targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
    names = {dotted(target) for target in targets}
    for other in links_of(scope):
        if other is link:
            continue
        for root in _iterated(other):
            if dotted(root) in names:
                return False  # for image in images: image.load(), or converted into another list
    return True


def _iterated(link: Link) -> Iterator[Expr]:
    if isinstance(link.stmt, forms.For):
        yield link.stmt.iter
    for root in expressions(link.stmt):
        for expr in descend(root):
            if isinstance(expr, forms.Comp):
                yield from (clause.iter for clause in expr.clauses)
            elif isinstance(expr, forms.Call) and dotted(expr.func) == "map":
                yield from (arg.value for arg in expr.args[1:])


def _is_itself(expr: Expr, call: Expr, names: set[str]) -> bool:
    """The image, or a tuple or dict with the image in it."""
    if expr is call or isinstance(expr, forms.Name) and expr.id in names:
        return True
    if isinstance(expr, forms.Sequence):
        return any(_is_itself(item, call, names) for item in expr.items)
    return isinstance(expr, forms.Dict) and any(_is_itself(entry.value, call, names) for entry in expr.entries)


def _keeps(link: Link, call: Expr, names: set[str]) -> bool:
    stmt = link.stmt
    if isinstance(stmt, forms.Do):
        done = stmt.value.items if isinstance(stmt.value, forms.Sequence) else (stmt.value,)
        return any(
            isinstance(keeper, forms.Call)
            and _is_keeper(keeper)
            and any(_is_itself(arg.value, call, names) for arg in keeper.args)
            for keeper in done
        )
    if isinstance(stmt, forms.Assign) and any(isinstance(target, forms.Sub) for target in stmt.targets):
        return _is_itself(stmt.value, call, names)
    return isinstance(stmt, forms.AugAssign) and _is_itself(stmt.value, call, names)


def _touches(link: Link, names: set[str], call: Expr) -> bool:
    """Whether a statement does anything with the image that may read it: a method, a function, another name."""
    for root in expressions(link.stmt):
        for expr in descend(root):
            if isinstance(expr, forms.Attr) and dotted(expr.value) in names and expr.name not in _WITHOUT_PIXELS:
                return True
            if isinstance(expr, forms.Call) and _gets(expr, names):
                return True
    stmt = link.stmt
    return isinstance(stmt, forms.Assign) and stmt.value is not call and dotted(stmt.targets[0]) in names


def _gets(call: forms.Call, names: set[str]) -> bool:
    """Whether a function gets the image that is not only there to keep it."""
    return not _is_keeper(call) and any(dotted(arg.value) in names for arg in call.args)


def _is_keeper(call: forms.Call) -> bool:
    return isinstance(call.func, forms.Attr) and call.func.name in _KEEPERS
