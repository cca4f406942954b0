"""Evaluation that records gradients although nobody asks for any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.flow import is_inside, links_in, links_of
from dlcheck.model.loops import BatchLoop, called_scopes, callers_in
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, dotted, expressions, last_name
from dlcheck.model.training.evaluation import (
    call_of,
    goes_backward,
    in_evaluation_mode,
    is_of_training,
    reached_calls,
    without_gradients,
)
from dlcheck.model.values import External, Func, Instance, Made, Moved, Point, Unknown

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.project import Project

# What shows that gradients are wanted, or that the code decides about them itself.
_WANTS_GRADIENTS = frozenset(
    {"grad", "requires_grad", "requires_grad_", "retain_grad", "enable_grad", "set_grad_enabled", "backward",
     "jacobian", "hessian", "vjp", "jvp", "jacrev", "hessian_vector_product", "attack", "perturb", "pgd", "fgsm",
     "volatile", "no_grad", "inference_mode", "step", "freeze"}
)  # fmt: skip

# Contexts that leave gradients as they are.
_HARMLESS_CONTEXTS = frozenset(
    {"autocast", "tqdm", "open", "nullcontext", "profile", "record_function", "trange", "Progress", "suppress",
     "SummaryWriter", "device", "Pool", "ThreadPoolExecutor", "alive_bar", "catch_warnings", "Timer", "timer"}
)  # fmt: skip

_HARMLESS_DECORATORS = frozenset({"staticmethod", "classmethod", "wraps", "record", "main", "override"})

# Functions that take a network and ask nothing of its gradients.
_HARMLESS_CALLS = frozenset(
    {"print", "len", "isinstance", "hasattr", "getattr", "id", "type", "str", "repr", "next", "iter", "list", "tuple"}
)

MAX_DEPTH = 2


class RecordingLoop(NamedTuple):
    """A loop that evaluates ``network`` and records its graph in each round; ``eval`` put it into evaluation mode."""

    loop: BatchLoop
    network: str
    eval: Site
    call: Site


def recording_loop(loop: BatchLoop) -> RecordingLoop | None:
    """Whether a loop evaluates a network, with gradients on in its own world and nothing that could want them."""
    frameworks = {loop.framework, loop.project.loader_of(loop.ref).framework}
    if not frameworks <= {"", "Accelerate"}:  # which leaves gradients to its user
        return None
    if goes_backward(loop) or not in_evaluation_mode(loop) or without_gradients(loop):
        return None
    if _decides_itself(loop):
        return None
    for name, site in _evaluated_networks(loop):
        call = _call_of_network(loop.project, loop.link.scope, _calls(loop), name, 0)
        if call is not None and not _may_be_frozen(loop, name, site) and not _is_compiled(loop.project, call):
            return RecordingLoop(loop, name, site, call)
    return None


def _calls(loop: BatchLoop) -> list[Site]:
    return loop.module.calls_in(loop.link)


def _decides_itself(loop: BatchLoop) -> bool:
    """Whether the code around or in the loop says anything of gradients, or may do so out of sight."""
    project = loop.project
    scopes = {loop.link.scope} | {site.scope for site in reached_calls(loop)}
    if any(_mentions(scope, loop.link if scope is loop.link.scope else None) for scope in scopes):
        return True
    if any(_is_unknown_decorator(decorator) for decorator in loop.link.scope.decorators()):
        return True
    contexts = [link for link in (*loop.link.outer(), *links_in(loop.link)) if isinstance(link.stmt, forms.With)]
    if any(_may_switch_off(project, link) for link in contexts):
        return True
    return any(_sets_mode(module) for module in _modules_around(loop))


def _modules_around(loop: BatchLoop) -> set[Module]:
    """The module of a loop, and those of whoever calls its function."""
    scope = loop.link.scope
    callers = callers_in(loop.project, scope, loop.world) if scope.kind == "function" else ()
    return {loop.module, *(point.module for point in callers)}


def _sets_mode(module: Module) -> bool:
    """``torch.set_grad_enabled(False)`` as a statement: from then on, for whatever runs."""
    return any(
        isinstance(site.link.stmt, forms.Do)
        and isinstance(site.expr, forms.Call)
        and last_name(site.expr.func) in ("set_grad_enabled", "_set_grad_enabled")
        for site in module.calls
    )


def _mentions(scope: Scope, loop: Link | None) -> bool:
    """Whether a function, or of it only the loop, names anything of gradients."""
    links = (loop, *links_in(loop)) if loop is not None else links_of(scope)
    if loop is None and any(_is_unknown_decorator(decorator) for decorator in scope.decorators()):
        return True
    return any(
        last_name(inner) in _WANTS_GRADIENTS or isinstance(inner, forms.Call) and _is_volatile(inner)
        for link in links
        for expr in expressions(link.stmt)
        for inner in descend(expr)
    )


def asks_for_gradients(project: Project, scope: Scope) -> bool:
    """Whether a function, or one of the project that it calls, trains or says anything of gradients."""
    sites = list(scope.module.calls_by_scope.get(scope, ()))
    called = {inner for site in sites for inner in called_scopes(project, site)}
    return any(_mentions(inner, None) for inner in (scope, *called)) or any(map(is_of_training, map(call_of, sites)))


def _is_volatile(call: forms.Call) -> bool:
    """``Variable(x, volatile=True)``: how gradients were switched off before torch 0.4."""
    return any(arg.name in ("volatile", "create_graph", "requires_grad") for arg in call.args)


def _is_unknown_decorator(decorator: Expr) -> bool:
    func = decorator.func if isinstance(decorator, forms.Call) else decorator
    return last_name(func) not in _HARMLESS_DECORATORS


def _may_switch_off(project: Project, link: Link) -> bool:
    """Whether a ``with`` statement may switch gradients off in a function that it calls."""
    assert isinstance(link.stmt, forms.With)
    for item in link.stmt.items:
        func = item.value.func if isinstance(item.value, forms.Call) else item.value
        if last_name(func) in _HARMLESS_CONTEXTS:
            continue
        values = list(project.evaluator.values(func, project.point(Site(func, link, None))))
        if any(not isinstance(value, (Func, External)) for value in values):
            return True
        if any(isinstance(value, Func) and _mentions(value.scope, None) for value in values):
            return True
    return False


# -- which network


def _evaluated_networks(loop: BatchLoop) -> Iterator[tuple[str, Site]]:
    """The names, as the loop's function has them, of the networks put into evaluation mode, and where that is."""
    scope = loop.link.scope
    own = list(_evals(scope, loop.link))
    yield from own
    if own or scope.kind != "function":
        return
    for point in callers_in(loop.project, scope, loop.world):
        for name, site in _evals(point.link.scope, point.link):
            if name.startswith("self.") and scope.owner is not None and scope.owner is point.link.scope.owner:
                yield name, site
            for parameter in _parameters_given(loop.project, scope, point, name):
                yield parameter, site


def _evals(scope: Scope, before: Link) -> Iterator[tuple[str, Site]]:
    """The ``net.eval()`` of a scope, nearest to a statement first."""
    found: list[tuple[str, Site]] = []
    for site in scope.module.calls_by_scope.get(scope, ()):
        call = site.expr
        assert isinstance(call, forms.Call)
        if not isinstance(call.func, forms.Attr) or not _is_eval(call):
            continue
        name = dotted(call.func.value)
        if name is not None and (call.at < before.stmt.at or is_inside(site.link, before)):
            found.append((name, site))
    yield from reversed(found)


def _is_eval(call: forms.Call) -> bool:
    """``net.eval()``, ``net.train(False)``."""
    name = last_name(call.func)
    if name == "train" and len(call.args) == 1:
        return isinstance(call.args[0].value, forms.Const) and call.args[0].value.value is False
    return name == "eval" and not call.args


def _parameters_given(project: Project, scope: Scope, point: Point, name: str) -> Iterator[str]:
    """The parameters of a function to which a call at a point passes ``name``."""
    for site in point.link.scope.module.calls_in(point.link):
        if scope in called_scopes(project, site):
            yield from parameters_given(scope, site, name)


def parameters_given(scope: Scope, site: Site, name: str) -> Iterator[str]:
    """The parameters of a function to which a call passes ``name`` itself."""
    call = site.expr
    assert isinstance(call, forms.Call)
    params = [param.name for param in scope.function.params]
    skip = 1 if scope.owner is not None and not scope.has_decorator("staticmethod") else 0
    number = skip
    for arg in call.args:
        if arg.name is None and not arg.star:
            if dotted(arg.value) == name and number < len(params):
                yield params[number]
            number += 1
        elif arg.name in params and dotted(arg.value) == name:
            yield str(arg.name)


def _call_of_network(project: Project, scope: Scope, sites: list[Site], name: str, depth: int) -> Site | None:
    """Where the code runs a network; None where it does not, or hands it to somebody who may do anything."""
    ran: Site | None = None
    for site in sites:
        call = site.expr
        assert isinstance(call, forms.Call)
        func = dotted(call.func)
        if func in (name, f"{name}.forward", f"{name}.module"):
            ran = ran or site
        elif func is not None and func.startswith(f"{name}."):
            inner = [found for found in called_scopes(project, site) if not _mentions(found, None)]
            ran = ran or (site if inner and func.rpartition(".")[2] not in ("eval", "train", "to") else None)
        elif any(dotted(arg.value) == name for arg in call.args):
            scopes = list(called_scopes(project, site))
            if not scopes:
                if last_name(call.func) in _HARMLESS_CALLS:
                    continue
                return None
            for found in scopes if depth < MAX_DEPTH else ():
                for parameter in parameters_given(found, site, name):
                    calls = list(found.module.calls_by_scope.get(found, ()))
                    if _call_of_network(project, found, calls, parameter, depth + 1) is not None:
                        ran = ran or site
    return ran


def _is_compiled(project: Project, call: Site) -> bool:
    """Whether the network is none of torch's own, or takes care of gradients in its ``forward``."""
    assert isinstance(call.expr, forms.Call)
    func = call.expr.func
    for value in project.evaluator.values(func, project.point(call)):
        value = value.value if isinstance(value, Moved) else value
        if isinstance(value, Instance):
            forward = project.method(value.cls, "forward") or project.method(value.cls, "__call__")
            if forward is not None and _mentions(forward, None):
                return True
            if not any(path.startswith(("torch.", "?")) for path in project.external_bases(value.cls)):
                return forward is not None and not project.external_bases(value.cls)
        elif isinstance(value, Made):
            if any(word in value.path for word in ("jit", "onnx", "trt", "openvino", "quantiz", "export")):
                return True
        elif not isinstance(value, (Unknown, Func, External)):
            return True
    return False


def _may_be_frozen(loop: BatchLoop, name: str, site: Site) -> bool:
    """Whether the functions at hand take the gradients from the network's weights."""
    scopes = {loop.link.scope, site.scope}
    for scope in scopes:
        module = scope.module
        if any(store.target.name == "requires_grad" and store.link.scope is scope for store in module.stores):
            return True
    last = name.rpartition(".")[2]
    return any(
        isinstance(other.expr, forms.Call)
        and isinstance(other.expr.func, forms.Attr)
        and other.expr.func.name == "requires_grad_"
        and last_name(other.expr.func.value) == last
        and calling.positional(calling.arguments(other.expr, loop.project.point(other)), 0) is not None
        for scope in scopes
        for other in scope.module.calls
    )
