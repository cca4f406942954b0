"""Copies of any tensor to another device, and what a copy's expression is made of.

``transfers`` knows what is copied (a batch, a pinned tensor); here every ``.to()``, ``.cuda()`` and
``.copy_()`` counts, for rules that ask where the tensor came from or what is done with the copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.call_sites import CallSite
from dlcheck.model.scopes import Link, Scope, Site, children, dotted, expressions, last_name
from dlcheck.model.training.invariance import step_loops
from dlcheck.model.transfers import Kind, blocking_of, device_kinds, target_of, targets_of
from dlcheck.model.values import Arguments, Const, External, Instance, Made, Point, Value
from dlcheck.model.worlds import World, product

if TYPE_CHECKING:
    from dlcheck.model.project import Project

# What people call a device, where nothing else tells what an expression is.
_DEVICE_WORDS = ("device", "dev", "gpu", "cuda", "rank")

# What runs a function in a thread.
_STARTERS = frozenset({"Thread", "submit", "map", "run_in_executor", "Timer"})

_MAX_BETWEEN = 3  # statements between a tensor's pinning and its copy that still belong together


@dataclass(eq=False)
class Move(CallSite):
    """A call ``x.to(...)``, ``x.cuda(...)`` or ``x.copy_(...)``, whatever ``x`` is."""

    project: Project
    site: Site
    steps: set[Link]  # the loops of the project whose rounds are steps

    @property
    def method(self) -> str:
        return last_name(self.call.func)

    @property
    def receiver(self) -> forms.Expr:
        assert isinstance(self.call.func, forms.Attr)
        return self.call.func.value

    @cached_property
    def point(self) -> Point:
        return self.project.point(self.site)

    @cached_property
    def args(self) -> Arguments:
        return calling.arguments(self.call, self.point)

    @cached_property
    def guards(self) -> list[World]:
        """The worlds in which control gets here."""
        return self.project.evaluator.guards(self.point.link, self.point.frame)

    @cached_property
    def kinds(self) -> list[tuple[Kind, World]]:
        """Where it copies to, each with its world."""
        self.project.evaluator.fresh()
        return targets_of(self.project.evaluator, self.method, self.args)

    def waits(self, answer: bool) -> list[World]:
        """The worlds in which the host does (or does not) wait for the copy; none where that is unknown."""
        blocking = blocking_of(self.project.evaluator, self.method, self.args)
        return [world for blocks, world in blocking if blocks is answer]

    def to_gpu(self) -> bool:
        """Whether it copies to a GPU: one that is known, or what the program calls a device, such as ``x.device``."""
        if any(kind == "cuda" for kind, _ in self.kinds):
            return True
        target = target_of(self.args)
        if target is None or any(kind != "unknown" for kind, _ in self.kinds):
            return False
        return is_device_name(target.expr)

    def to_host_only(self) -> bool:
        """Whether it is certain that it copies to the CPU, whatever the user says."""
        target = target_of(self.args)
        if target is None or not self.kinds or any(kind != "cpu" for kind, _ in self.kinds):
            return False
        return not any(_may_differ(alt.value) for alt in self.project.evaluator.force(target))

    def values(self) -> list[Value]:
        """What is copied."""
        self.project.evaluator.fresh()
        return list(self.project.evaluator.values(self.receiver, self.point))

    def mps_worlds(self) -> list[World]:
        """The worlds in which it copies to the GPU of a Mac.  There CUDA is not available."""
        found = [world for kind, world in self.kinds if kind == "mps"] or self._any_accelerator()
        on_mac = (both for world in found if (both := world.assume(("symbol", "cuda"), False)) is not None)
        return list(product(self.guards, on_mac))

    def names_mps(self) -> bool:
        """Whether the program itself speaks of MPS, and not only of whatever accelerator there is."""
        return any(kind == "mps" for kind, _ in self.kinds)

    def _any_accelerator(self) -> list[World]:
        target = target_of(self.args)
        alts = self.project.evaluator.force(target) if target is not None else []
        return [alt.world for alt in alts if _is_any_accelerator(alt.value)]


def _may_differ(value: Value) -> bool:
    """Whether the user can give another device."""
    return isinstance(value, Const) and value.free is not None


def _is_any_accelerator(value: Value) -> bool:
    return isinstance(value, Made) and value.path == "torch.accelerator.current_accelerator"


def is_device_name(expr: forms.Expr | None) -> bool:
    """Whether an expression is called like a device: ``device``, ``x.device``, ``self.dev``, ``local_rank``."""
    if isinstance(expr, forms.Sub):
        expr = expr.value
    return any(word in last_name(expr).lower() for word in _DEVICE_WORDS)


def moves(project: Project) -> Iterator[Move]:
    """The copies in the modules that findings are asked for."""
    steps = step_loops(project)  # whose search reads the files of the callers, too
    for module in filter(project.is_asked, project.loaded()):
        for site in module.calls_to("to", "cuda", "copy_"):
            call = site.expr
            assert isinstance(call, forms.Call)
            if isinstance(call.func, forms.Attr):
                yield Move(project, site, steps)


# -- pinned and copied at once


def pinned_for_this_copy(project: Project, site: Site) -> bool:
    """Whether the tensor that a call copies is pinned just for it: in the same expression, or right before."""
    call = site.expr
    if not isinstance(call, forms.Call) or not isinstance(call.func, forms.Attr):
        return False
    receiver = call.func.value
    if isinstance(receiver, forms.Call):
        return _is_pinning(project, receiver, project.point(site))
    if not isinstance(receiver, forms.Name) or site.inner is not None:
        return False
    return _pinned_just_before(site.link, receiver.id)


def _is_pinning(project: Project, call: forms.Call, point: Point) -> bool:
    """``x.pin_memory()`` of a tensor: an object of the project has its own way to pin."""
    if not isinstance(call.func, forms.Attr) or call.func.name != "pin_memory" or call.args:
        return False
    return not any(isinstance(value, Instance) for value in project.evaluator.values(call.func.value, point))


def _pinned_just_before(link: Link, name: str) -> bool:
    """``x = x.pin_memory()`` among the few simple statements before this one."""
    for earlier in reversed(link.block[max(0, link.index - _MAX_BETWEEN) : link.index]):
        stmt = earlier.stmt
        if not isinstance(stmt, forms.Assign):
            return False
        if any(name in (dotted(target) or "") for target in stmt.targets):
            value = stmt.value
            return isinstance(value, forms.Call) and last_name(value.func) == "pin_memory" and not value.args
        if not _only_pins(stmt.value):
            return False
    return False


def _only_pins(expr: forms.Expr) -> bool:
    return isinstance(expr, forms.Call) and last_name(expr.func) in ("pin_memory", "to", "cuda")


def in_background(project: Project, link: Link) -> bool:
    """Whether a statement runs beside the training: in a thread of its own, or on a stream of its own."""
    for outer in (link, *link.outer()):
        if isinstance(outer.stmt, forms.With) and any("stream" in _text(item.value) for item in outer.stmt.items):
            return True
    scope: Scope | None = link.scope
    while scope is not None and scope.kind != "module":
        if scope.kind == "class" and any("Thread" in path for path in project.external_bases(scope)):
            return True
        if scope.kind == "function" and (scope.function.is_async or _runs_in_thread(scope)):
            return True
        scope = scope.parent
    return False


def _text(expr: forms.Expr) -> str:
    """The dotted name of what is called or named."""
    return (dotted(expr.func if isinstance(expr, forms.Call) else expr) or "").lower()


def _runs_in_thread(scope: Scope) -> bool:
    """Whether the module hands the function to a thread or an executor."""
    for site in scope.module.calls:
        call = site.expr
        if not isinstance(call, forms.Call) or last_name(call.func) not in _STARTERS:
            continue
        if any(last_name(arg.value) == scope.name for arg in call.args):
            return True
    return False


# -- the expression around a copy


def way_out(link: Link, target: forms.Expr) -> list[forms.Expr]:
    """The expressions of a statement that hold ``target``, from the nearest to the statement's own."""
    for root in expressions(link.stmt):
        found = _way(root, target)
        if found is not None:
            return found[1:]
    return []


def _way(expr: forms.Expr, target: forms.Expr) -> list[forms.Expr] | None:
    if expr.at == target.at and type(expr) is type(target):
        return [expr]
    for child in children(expr):
        found = _way(child, target)
        if found is not None:
            return [*found, expr]
    return None


def chain_root(expr: forms.Expr) -> tuple[forms.Expr, list[forms.Call]]:
    """The expression that a chain of methods begins with, and the methods called on it, last one first.

    ``Variable(x)`` is ``x``.
    """
    called: list[forms.Call] = []
    while True:
        if isinstance(expr, forms.Call) and last_name(expr.func) == "Variable" and len(expr.args) == 1:
            expr = expr.args[0].value
        elif isinstance(expr, forms.Call) and isinstance(expr.func, forms.Attr) and not _is_library(expr.func.value):
            called.append(expr)
            expr = expr.func.value
        elif isinstance(expr, forms.Sub):
            expr = expr.value
        else:
            return expr, called


def _is_library(expr: forms.Expr) -> bool:
    """Whether what a function is taken from is a module, by its name."""
    return (dotted(expr) or "") in ("torch", "np", "numpy", "torch.cuda", "torch.random", "F", "th")


def library_path(project: Project, call: forms.Call, point: Point) -> str:
    """The library function that a call means, "" for none or several."""
    project.evaluator.fresh()
    paths = {value.path if isinstance(value, External) else "" for value in project.evaluator.values(call.func, point)}
    return paths.pop() if len(paths) == 1 else ""


def device_is_cuda(project: Project, args: Arguments) -> bool:
    """Whether ``device=`` is given, and may be a GPU."""
    given = calling.keyword(args, "device")
    return given is not None and any(kind != "cpu" for kind, _ in device_kinds(project.evaluator, given))
