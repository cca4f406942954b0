"""Which loops train a network, and which evaluate one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.flow import earlier_in_function, links_in
from dlcheck.model.loops import MAX_CHAIN, BatchLoop, called_scopes, callers_in
from dlcheck.model.scopes import Link, Scope, Site, descend, dotted, expressions, last_name
from dlcheck.model.values import Const, External, Frame, Made, Point, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.project import Project

NO_GRADIENTS = frozenset({"no_grad", "inference_mode"})
_BACKWARD = frozenset({"backward", "manual_backward"})


def evaluates(loop: BatchLoop) -> bool:
    """Whether a loop only looks at what a network gives: no backward pass, and no gradients or evaluation mode.

    What a generator does with batches is for the loop to say that takes them from it.
    """
    if any(site.link is loop.link or loop.link in site.link.outer() for site in loop.link.scope.yields):
        return False
    return not goes_backward(loop) and (without_gradients(loop) or in_evaluation_mode(loop))


def goes_backward(loop: BatchLoop) -> bool:
    """Whether the loop, or what it calls, runs a backward pass in the loop's own world, or hands it to a helper."""
    return any(is_of_training(call_of(site)) for site in reached_calls(loop))


def is_of_training(call: forms.Call) -> bool:
    """Whether a call goes backward, or hands that to a helper."""
    name = last_name(call.func)
    if name in _BACKWARD or name == "zero_grad" or name.startswith(("train_", "training_", "optimize_")):
        return True
    # loss_scaler(loss, optimizer, ...), step(net, batch, optimizer)
    return any("optim" in last_name(arg.value).lower() for arg in call.args)


def updates_weights(loop: BatchLoop) -> bool:
    """Whether the loop trains: a backward pass, and an optimizer's step."""
    calls = [call_of(site) for site in reached_calls(loop)]
    return any(map(is_of_training, calls)) and any("step" in last_name(call.func) for call in calls)


def without_gradients(loop: BatchLoop) -> bool:
    """Whether gradients are off in the loop: around it, in its body, on its function, or wherever that is called."""
    inside = (link for link in links_in(loop.link) if isinstance(link.stmt, forms.With))
    frame = loop.project.evaluator.any_frame(loop.link.scope)
    if any(_switches_off(loop.project, link, frame, loop.world) for link in inside):
        return True
    return _gradients_off(loop.project, loop.link, loop.world, ())


def in_evaluation_mode(loop: BatchLoop) -> bool:
    """Whether ``net.eval()`` was called last before the loop, in its function or wherever that is called."""
    inside = list(_modes(loop.project, loop.link, loop.world, _mentioned(loop.link)))
    if inside:
        return not inside[0]
    return _mode_before(loop.project, loop.link, loop.world, ()) is False


def call_of(site: Site) -> forms.Call:
    assert isinstance(site.expr, forms.Call)
    return site.expr


def reached_calls(loop: BatchLoop) -> Iterator[Site]:
    """The calls in the loop and in the project's functions that it calls, where the loop's world gets to them."""
    ev = loop.project.evaluator
    frame = ev.any_frame(loop.link.scope)
    seen: set[Scope] = set()
    for site in loop.module.calls_in(loop.link):
        if any(world.merge(loop.world) is not None for world in ev.guards(site.link, frame)):
            yield site
            yield from _calls_of_called(loop.project, site, 0, seen)


def _calls_of_called(project: Project, site: Site, depth: int, seen: set[Scope]) -> Iterator[Site]:
    for scope in called_scopes(project, site) if depth < 3 else ():
        if scope not in seen:
            seen.add(scope)
            for inner in scope.module.calls_by_scope.get(scope, ()):
                yield inner
                yield from _calls_of_called(project, inner, depth + 1, seen)


# -- gradients


def _gradients_off(project: Project, link: Link, world: World, seen: tuple[Scope, ...]) -> bool:
    scope = link.scope
    frame = project.evaluator.any_frame(scope)
    for outer in link.outer():
        if isinstance(outer.stmt, forms.With) and _switches_off(project, outer, frame, world):
            return True
    if any(_is_call_of(before, "set_grad_enabled", False) for before in earlier_in_function(link)):
        return True
    if scope.kind != "function" or scope in seen or len(seen) >= MAX_CHAIN:
        return False
    if any(_names_no_gradients(project, decorator, scope) for decorator in scope.decorators()):
        return True
    points = list(callers_in(project, scope, world))
    return bool(points) and all(_gradients_off(project, point.link, world, (*seen, scope)) for point in points)


def _switches_off(project: Project, link: Link, frame: Frame, world: World) -> bool:
    """Whether a ``with`` statement switches gradients off in this world."""
    stmt = link.stmt
    assert isinstance(stmt, forms.With)
    ev = project.evaluator
    point = Point(frame, link)
    for item in stmt.items:
        alts = ev.eval(item.value, point)
        if any(_is_off(project, alt.value) and alt.world.merge(world) is not None for alt in alts):
            return True
        if isinstance(item.value, forms.Call) and last_name(item.value.func) in NO_GRADIENTS:
            return True
    return False


def _is_off(project: Project, value: Value) -> bool:
    if not isinstance(value, Made):
        return False
    name = value.path.rpartition(".")[2]
    if name == "set_grad_enabled" and value.args is not None and value.args.positional:
        flags = project.evaluator.force(value.args.positional[0][0])
        return all(isinstance(alt.value, Const) and not alt.value.value for alt in flags)
    return name in NO_GRADIENTS


def _names_no_gradients(project: Project, decorator: forms.Expr, scope: Scope) -> bool:
    func = decorator.func if isinstance(decorator, forms.Call) else decorator
    if last_name(func) in NO_GRADIENTS:
        return True
    assert scope.link is not None
    point = Point(project.evaluator.any_frame(scope.parent or scope), scope.link)
    values = project.evaluator.values(func, point)
    return any(isinstance(value, External) and value.path.rpartition(".")[2] in NO_GRADIENTS for value in values)


def _is_call_of(link: Link, name: str, flag: bool) -> bool:
    call = link.stmt.value if isinstance(link.stmt, forms.Do) else None
    return (
        isinstance(call, forms.Call)
        and last_name(call.func) == name
        and len(call.args) == 1
        and isinstance(call.args[0].value, forms.Const)
        and call.args[0].value.value is flag
    )


# -- the mode of the network


def _mode_before(project: Project, link: Link, world: World, seen: tuple[Scope, ...]) -> bool | None:
    """Whether the network was last told to train before a statement; None where nothing tells."""
    used = _mentioned(link)
    for before in earlier_in_function(link):
        modes = list(_modes(project, before, world, used))
        if modes:
            return modes[-1]
    scope = link.scope
    if scope.kind != "function" or scope in seen or len(seen) >= MAX_CHAIN:
        return None
    told = {
        None if _hands_optimizer(point.link) else _mode_before(project, point.link, world, (*seen, scope))
        for point in callers_in(project, scope, world)
    }
    return told.pop() if len(told) == 1 else None


def _hands_optimizer(link: Link) -> bool:
    return any(is_of_training(call_of(site)) for site in link.scope.module.calls_in(link) if site.link is link)


def _mentioned(link: Link) -> set[str]:
    """The dotted names that stand in a statement and its blocks."""
    return {
        name
        for here in (link, *links_in(link))
        for root in expressions(here.stmt)
        for part in descend(root)
        if (name := dotted(part)) is not None
    }


def _modes(project: Project, link: Link, world: World, used: set[str]) -> Iterator[bool]:
    """What the calls in a statement tell a network in use: True for ``.train()``, False for ``.eval()``."""
    ev = project.evaluator
    frame = ev.any_frame(link.scope)
    for site in link.scope.module.calls_in(link):
        call = call_of(site)
        if not isinstance(call.func, forms.Attr) or call.func.name not in ("train", "eval") or len(call.args) > 1:
            continue
        name = dotted(call.func.value) or ""
        if name not in used and not name.startswith("self."):
            continue  # a teacher, a network that only measures the loss
        if not any(here.merge(world) is not None for here in ev.guards(site.link, frame)):
            continue
        if not call.args:
            yield call.func.name == "train"
        elif call.func.name == "train":
            flag = _flag(project, call.args[0].value, site, world)
            if flag is not None:
                yield flag


def _flag(project: Project, expr: forms.Expr, site: Site, world: World) -> bool | None:
    alts = project.evaluator.eval(expr, project.point(site))
    values = {alt.value for alt in alts if alt.world.merge(world) is not None}
    told = {bool(value.value) if isinstance(value, Const) else None for value in values}
    return told.pop() if len(told) == 1 else None
