"""Training steps: the loops whose rounds call ``.backward()``, and what every round does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import library, loops
from dlcheck.model.flow import links_in, links_of, loops_around
from dlcheck.model.scopes import Link, Module, Scope, Site, children, descend, expressions, last_name, target_names
from dlcheck.model.training.evaluation import reached_calls
from dlcheck.model.values import External
from dlcheck.model.worlds import ANY

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.project import Project

MAX_CALLS_UP = 4
MAX_CALLS_DOWN = 3

# Methods that Lightning and the trainer of Transformers call in each training step.
STEP_HOOKS = frozenset(
    {"training_step", "on_train_batch_start", "on_train_batch_end", "on_before_zero_grad", "on_after_backward",
     "on_before_backward", "on_step_begin", "on_step_end"}
)  # fmt: skip

# Rounds that are no steps but whole trainings, or passes over all data.
_LONG_ROUNDS = ("epoch", "fold", "trial", "seed", "layer", "client", "task", "run", "experiment", "config", "stage")

# Tests that hold in a round which goes wrong, not in every n-th one: what they skip still counts as each round's.
_ACCIDENTS = frozenset({"isnan", "isfinite", "isinf", "is_nan", "any", "all", "len"})


class Region(NamedTuple):
    """Statements that run together in a round: the body of a loop, or a function that the round calls.

    ``call`` is the call in the round that leads there, None for the loop's own body.
    """

    scope: Scope
    links: tuple[Link, ...]  # those of inner blocks included, in the order of the source
    loop: Link | None
    call: Site | None

    @property
    def module(self) -> Module:
        return self.scope.module

    def certain(self) -> list[Link]:
        """The statements that every round runs."""
        return [link for link in self.links if always_runs(link, self.loop)]


@dataclass(eq=False)
class StepLoop:
    """A loop of which each round takes a training step: ``backward`` are the calls that go backward.

    Where a framework has the loop, ``hook`` is the method that it calls in each step, and ``link`` defines that.
    """

    project: Project
    link: Link
    backward: list[Site]
    hook: Scope | None = None

    @property
    def module(self) -> Module:
        return self.link.scope.module

    @property
    def body(self) -> Region:
        if self.hook is not None:
            return function_region(self.hook)
        return Region(self.link.scope, tuple(_body(self.link)), self.link, None)

    def regions(self) -> list[Region]:
        """The loop's body, and the functions of the project that every round calls."""
        return list(_regions(self.project, self.body, 0, {self.body.scope}))

    def calls_each_round(self) -> Iterator[tuple[Site, Region]]:
        """The calls that no round leaves out, each with the region in which it stands."""
        for region in self.regions():
            for site in certain_calls(region):
                yield site, region

    def is_long(self) -> bool:
        """Whether a round is a pass over all data, or a training of its own: what it does once is done seldom."""
        stmt = self.link.stmt
        if self.hook is not None:
            return False
        names = " ".join(target_names(stmt.target)) if isinstance(stmt, forms.For) else self.module.line(self.link.head)
        return not self.is_over_loader() and any(word in names.lower() for word in _LONG_ROUNDS)

    def is_over_loader(self) -> bool:
        """Whether it iterates a known loader."""
        return any(loop.link is self.link for loop in self.project.loops)


def step_loops(project: Project) -> list[StepLoop]:
    """The innermost loops around each call of ``.backward()``, and the loops over loaders around these."""
    found: dict[Link, list[Site]] = {}
    project.loops  # noqa: B018 -- they make sure that the files with the loops are read
    for module in project.loaded():
        for site in module.calls:
            if goes_backward(site):
                project.evaluator.fresh()
                for link in dict.fromkeys(_nearest_loops(project, site.link, 0, ())):
                    found.setdefault(link, []).append(site)
    for loop in project.loops:
        if loop.inner is None and isinstance(loop.link.stmt, forms.For) and loop.link not in found:
            sites = [site for site in reached_calls(loop) if goes_backward(site)]
            if sites:
                found[loop.link] = sites
    return [StepLoop(project, link, sites) for link, sites in found.items()] + list(_hooks(project))


def _hooks(project: Project) -> Iterator[StepLoop]:
    for module in project.loaded():
        for cls in module.classes:
            names = [name for name in cls.functions if name in STEP_HOOKS]
            if names and any(library.framework_of(path) for path in project.external_bases(cls)):
                for name in names:
                    hook = cls.functions[name]
                    assert hook.link is not None
                    yield StepLoop(project, hook.link, [], hook)


def goes_backward(site: Site) -> bool:
    """``loss.backward()``, ``accelerator.backward(loss)``; not the ``backward`` of an autograd function."""
    call = site.expr
    if not isinstance(call, forms.Call) or not isinstance(call.func, forms.Attr):
        return False
    if call.func.name not in ("backward", "manual_backward"):
        return False
    return site.scope.name not in ("backward", "manual_backward")


def _nearest_loops(project: Project, link: Link, depth: int, seen: tuple[Scope, ...]) -> Iterator[Link]:
    own = next(loops_around(link), None)
    if own is not None:
        yield own
        return
    scope = link.scope
    while scope.kind == "function" and scope.parent is not None and scope.parent.kind == "function":
        if scope.name in ("closure", "_closure") and scope.link is not None:  # what the optimizer calls, in place
            yield from _nearest_loops(project, scope.link, depth, seen)
            return
        break
    if scope.kind != "function" or depth >= MAX_CALLS_UP or scope in seen:
        return
    for point in loops.callers_in(project, scope, ANY):
        yield from _nearest_loops(project, point.link, depth + 1, (*seen, scope))


def _body(loop: Link) -> Iterator[Link]:
    for link in loop.blocks["body"]:
        yield link
        yield from links_in(link)


def _regions(project: Project, region: Region, depth: int, seen: set[Scope]) -> Iterator[Region]:
    yield region
    if depth >= MAX_CALLS_DOWN:
        return
    for site in certain_calls(region):
        scopes = list(loops.called_scopes(project, site))
        if len(scopes) != 1 or scopes[0] in seen or scopes[0].function.is_generator:
            continue
        seen.add(scopes[0])
        yield from _regions(project, function_region(scopes[0], site), depth + 1, seen)


def function_region(scope: Scope, call: Site | None = None) -> Region:
    return Region(scope, tuple(links_of(scope)), None, call)


def certain_calls(region: Region) -> Iterator[Site]:
    """The calls that run whenever the region does."""
    certain = set(region.certain())
    wanted = {id(expr) for link in certain for expr in certain_expressions(link.stmt)}
    sites = region.module.calls_in(region.loop) if region.loop is not None else _calls_of(region.scope)
    for site in sites:
        if site.link in certain and id(site.expr) in wanted:
            yield site


def _calls_of(scope: Scope) -> list[Site]:
    return scope.module.calls_by_scope.get(scope, [])


def certain_expressions(stmt: forms.Stmt) -> Iterator[Expr]:
    """The expressions that a statement evaluates whenever it runs; of compound ones, those of the head."""
    if isinstance(stmt, (forms.Function, forms.Class)):
        return
    todo: list[Expr] = list(expressions(stmt))
    while todo:
        expr = todo.pop()
        yield expr
        if isinstance(expr, forms.IfExp):
            todo.append(expr.test)
        elif isinstance(expr, forms.Bool):
            todo.append(expr.left)
        elif not isinstance(expr, (forms.Lambda, forms.Comp)):
            todo.extend(children(expr))


def always_runs(link: Link, loop: Link | None) -> bool:
    """Whether each round of ``loop`` (without one: each call of the function) runs a statement.

    Rounds that are given up, because a loss is not finite for one, do not count.
    """
    here = link
    while here is not loop:
        if any(_may_skip(earlier, loop is None) for earlier in here.block[: here.index]):
            return False
        parent = here.parent
        if parent is None:
            return loop is None
        if here.slot.startswith("handler") or parent is loop and here.slot != "body":
            return False
        if parent is not loop and not isinstance(parent.stmt, (forms.With, forms.Try)) and not _asks_for_gpu(here):
            return False
        here = parent
    return True


def _asks_for_gpu(link: Link) -> bool:
    """Whether a statement stands in the body of ``if torch.cuda.is_available():``, which holds where it matters."""
    test = link.parent.stmt.test if link.parent is not None and isinstance(link.parent.stmt, forms.If) else None
    return link.slot == "body" and isinstance(test, forms.Call) and last_name(test.func) == "is_available"


def _may_skip(link: Link, in_function: bool) -> bool:
    stmt = link.stmt
    if isinstance(stmt, (forms.Return, forms.Raise)) or isinstance(stmt, forms.Jump) and stmt.kind != "pass":
        return True
    return any(_skips(inner, in_function) and not _is_accident(inner, link) for inner in links_in(link))


def _skips(link: Link, in_function: bool) -> bool:
    if isinstance(link.stmt, forms.Return):
        return in_function
    return isinstance(link.stmt, forms.Jump) and link.stmt.kind == "continue" and not in_function


def _is_accident(link: Link, outermost: Link) -> bool:
    """Whether a jump is taken only where something went wrong: an exception, a loss that is no number."""
    for around in (outermost, *link.outer()):
        if link.slot.startswith("handler"):
            return True
        if isinstance(around.stmt, forms.If) and any(
            isinstance(expr, forms.Call)
            and last_name(expr.func) in _ACCIDENTS
            or isinstance(expr, forms.Compare)
            and expr.ops[0] in ("is", "is not")
            for expr in descend(around.stmt.test)
        ):
            return True
    return False


# -- which library function a call means


def library_path(project: Project, site: Site) -> str:
    """The dotted path of the library function that a call means, "" where it is not one for certain."""
    call = site.expr
    assert isinstance(call, forms.Call)
    if not isinstance(call.func, (forms.Name, forms.Attr)):
        return ""
    values = list(project.evaluator.values(call.func, project.point(site)))
    paths = {library.canonical(value.path) for value in values if isinstance(value, External)}
    return paths.pop() if len(paths) == 1 and len(values) == 1 else ""


def names_in(exprs: Iterable[Expr]) -> set[str]:
    return {inner.id for expr in exprs for inner in descend(expr) if isinstance(inner, forms.Name)}
