"""StopIteration that leaves the code of a map-style dataset or a collate function: the loader takes it for the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Link, Module, Scope, descend, dotted, last_name, loops_for_ever
from dlcheck.model.values import Elements, Frame, Func, Generated, Instance, Iterating, LambdaFunc, Made, Value
from dlcheck.model.workers import WorkerCode, worker_code
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.project import Project

# Iterators of libraries that can be empty or run out.
_FINITE = frozenset(
    {"csv.reader", "csv.DictReader", "re.finditer", "glob.iglob", "os.scandir", "pathlib.Path().glob",
     "pathlib.Path().rglob", "pathlib.Path().iterdir", "builtins.open", "json.JSONDecoder().raw_decode",
     "itertools.islice", "itertools.dropwhile", "itertools.takewhile", "itertools.filterfalse", "itertools.compress"}
)  # fmt: skip
# What is iterated for the first time where it is asked has a first element, as a rule.
_FINITE_KINDS = frozenset({"filter", "islice", "zip", "iter", "list", "enumerate", "chain"})


class Escape(NamedTuple):
    """Where StopIteration is raised and nothing catches it: ``next(x)`` without a default, or ``raise``."""

    what: str
    module: Module
    at: int
    link: Link
    owner: str
    world: World


@dataclass(frozen=True, eq=False)
class MapCode:
    """What makes samples or batches for a loader that is not iterable-style: a dataset's, or a collate function's."""

    project: Project
    owner: str
    code: WorkerCode

    def escapes(self) -> Iterator[Escape]:
        """Where StopIteration leaves it."""
        for call in self.code.calls:
            inner = call.site.inner
            if call.path != "builtins.next" or len(call.call.args) != 1 or call.call.args[0].star:
                continue
            if _is_generator(call.point.frame.scope) or inner is not None and _is_lazy(inner.form):
                continue
            self.project.evaluator.fresh()
            values = list(self.project.evaluator.values(call.call.args[0].value, call.point))
            argument = call.call.args[0].value
            if _is_begun_anew(call.site.link, argument) or _caught(call.site.link, call.point.frame):
                continue
            if all(_may_run_out(value, argument) for value in values):
                text = call.site.module.line(call.call.at)
                yield Escape(text, call.site.module, call.call.at, call.site.link, self.owner, call.world)
        for frame, world in self.code.frames:
            for link in links_of(frame.scope):
                own = not _is_generator(frame.scope) and frame.scope.name != "__next__"
                if not own or not _raises_it(link) or _caught(link, frame):
                    continue
                if not _guards_range(link, frame.scope) and not _only_by_default(link, frame):
                    yield Escape("raise StopIteration", link.scope.module, link.stmt.at, link, self.owner, world)


def map_codes(project: Project) -> Iterator[MapCode]:
    """The sample code of the map-style datasets, and the collate functions of the loaders."""
    for samples in project.samples:
        if samples.dataset.is_map_style:
            yield MapCode(project, samples.dataset.name, samples.dataset.worker_code)
    for loader in project.loaders:
        for option in loader.option("collate_fn"):
            if isinstance(option.value, (Func, Instance, LambdaFunc)):
                owner = getattr(getattr(option.value, "scope", None), "qualified", "collate_fn")
                yield MapCode(project, owner, worker_code(project, option.value))


def _is_generator(scope: Scope) -> bool:
    return scope.kind == "function" and scope.function.is_generator


def _is_lazy(form: forms.Comp | forms.Lambda) -> bool:
    """In a generator expression it becomes a RuntimeError."""
    return isinstance(form, forms.Comp) and form.kind == "generator"


def _may_run_out(value: Value, argument: forms.Expr) -> bool:
    if isinstance(value, Elements):
        return any(clause.ifs for clause in value.form.clauses) or not isinstance(argument, forms.Comp)
    if isinstance(value, Generated):
        return not loops_for_ever(value.frame.scope)
    if isinstance(value, Iterating):
        if value.kind == "filter":
            return True
        first = isinstance(argument, forms.Call)  # ``next(iter(x))``: made here, and not used up
        return value.kind in _FINITE_KINDS and not first and all(_is_finite(of) for of in value.of)
    return isinstance(value, Made) and value.path in _FINITE


def _is_finite(value: Value) -> bool:
    if isinstance(value, Iterating):
        return value.kind != "cycle" and all(map(_is_finite, value.of))
    if isinstance(value, Made):
        return not value.path.startswith("itertools.")
    return not isinstance(value, Generated) or not loops_for_ever(value.frame.scope)


_CATCHING = frozenset({"StopIteration", "Exception", "BaseException"})


def _caught(link: Link, frame: Frame) -> bool:
    """Whether a handler here, or around one of the calls that lead here, catches StopIteration."""
    here: Link | None = link
    around: Frame | None = frame
    while here is not None:
        child = here
        for outer in here.outer():
            handlers = outer.stmt.handlers if isinstance(outer.stmt, forms.Try) and child.slot == "body" else ()
            if any(_catches(handler.type) for handler in handlers):
                return True
            if isinstance(outer.stmt, forms.With) and any(
                isinstance(item.value, forms.Call) and last_name(item.value.func) == "suppress"
                for item in outer.stmt.items
            ):
                return True
            child = outer
        site = around.site if around is not None else None
        if site is None:
            return False
        if _is_generator(site.frame.scope):
            return True
        here, around = site.link, site.frame
    return False


def _catches(kind: forms.Expr | None) -> bool:
    if kind is None:
        return True
    return any(last_name(expr) in _CATCHING for expr in descend(kind))


def _raises_it(link: Link) -> bool:
    stmt = link.stmt
    if not isinstance(stmt, forms.Raise) or stmt.value is None:
        return False
    raised = stmt.value.func if isinstance(stmt.value, forms.Call) else stmt.value
    return dotted(raised) == "StopIteration"


def _is_begun_anew(link: Link, argument: forms.Expr) -> bool:
    """``except StopIteration: it = iter(x); next(it)``, or a call that begins it: the first element is there."""
    renewed = [earlier.stmt for earlier in link.block[: link.index]]
    if any(isinstance(stmt, forms.Assign) and _begins(stmt, argument) for stmt in renewed):
        return True
    outer = link.parent.stmt if link.parent is not None and link.slot.startswith("handler") else None
    if not isinstance(outer, forms.Try) or not any(_catches(handler.type) for handler in outer.handlers):
        return False
    return any(isinstance(stmt, forms.Do) and isinstance(stmt.value, forms.Call) for stmt in renewed)


def _begins(stmt: forms.Assign, argument: forms.Expr) -> bool:
    name = dotted(argument)
    named = name is not None and any(dotted(target) == name for target in stmt.targets)
    return named and isinstance(stmt.value, forms.Call)


def _only_by_default(link: Link, frame: Frame) -> bool:
    """Whether it stands under ``if position is None``, and whoever calls gives a position."""
    given = frame.args
    params = [param.name for param in frame.scope.function.params][1 if frame.scope.owner is not None else 0 :]
    for outer in (link, *link.outer()):
        if outer.parent is None or outer.slot != "body" or not isinstance(outer.parent.stmt, forms.If):
            continue
        test = outer.parent.stmt.test
        name = dotted(test.left) if isinstance(test, forms.Compare) and test.ops == ("is",) else None
        if name in params and given is not None:
            assert name is not None
            passed = calling.argument(given, name, params.index(name))
            if passed is not None and not (isinstance(passed.expr, forms.Const) and passed.expr.value is None):
                return True
    return False


def _guards_range(link: Link, scope: Scope) -> bool:
    """``if index >= len(self): raise StopIteration``: for people who iterate the dataset itself."""
    params = {param.name for param in scope.function.params[1:]}
    for outer in link.outer():
        if isinstance(outer.stmt, forms.If):
            compared = [expr for expr in descend(outer.stmt.test) if isinstance(expr, forms.Compare)]
            names = {expr.id for one in compared for expr in descend(one) if isinstance(expr, forms.Name)}
            return bool(names & params)
    return False
