"""Clocks read around work of the GPU: what they measure is how long it took to ask for the work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model.flow import links_in, links_of
from dlcheck.model.loops import called_scopes
from dlcheck.model.scopes import Link, Module, Scope, Site, descend, dotted, expressions, last_name
from dlcheck.model.training.networks import is_network
from dlcheck.model.training.steps import library_path
from dlcheck.model.training.syncs import moves_to_gpu, network_names
from dlcheck.model.values import Moved

if TYPE_CHECKING:
    from dlcheck.facts.forms import Expr
    from dlcheck.model.project import Project

CLOCKS = frozenset(
    {"time.time", "time.time_ns", "time.perf_counter", "time.perf_counter_ns", "time.monotonic", "time.monotonic_ns",
     "timeit.default_timer"}
)  # fmt: skip
_CLOCK_NAMES = {path.rpartition(".")[2] for path in CLOCKS}

# What waits for the GPU, or shows that the author knows of it.
_WAITS = frozenset(
    {"synchronize", "item", "cpu", "tolist", "numpy", "wait", "record", "elapsed_time", "Event", "nonzero",
     "block_until_ready", "barrier", "print", "float", "int", "bool", "str", "format", "save", "generate"}
)  # fmt: skip

# Functions of torch that are work for the GPU, where their tensors are there.
_WORK = frozenset({"matmul", "mm", "bmm", "einsum", "conv2d", "conv1d", "conv3d", "linear", "softmax", "relu", "addmm"})


class Timing(NamedTuple):
    """A stretch of statements between two readings of a clock, in which ``work`` is asked of the GPU.

    ``at`` is the second reading.
    """

    project: Project
    link: Link
    at: int
    started: Link
    work: Site

    @property
    def module(self) -> Module:
        return self.link.scope.module


def timings(project: Project) -> Iterator[Timing]:
    """The stretches that are timed and do not wait for the GPU before the clock is read again."""
    for module in project.named_modules:
        clocks = _clock_names(module)
        starts = [link for link in module.links.values() if _reads_clock(link, clocks)]
        if not starts:
            continue
        networks = network_names(module)
        for link in starts:
            if library_path(project, _clock_site(module, link)) in CLOCKS:
                yield from _timed_from(project, link, networks, clocks)


def _clock_names(module: Module) -> set[str]:
    """The last names that a clock may have in a module: those of the libraries, and what it imports them as."""
    found = set(_CLOCK_NAMES)
    for stmt, _ in module.imports:
        if isinstance(stmt, forms.ImportFrom) and stmt.module in ("time", "timeit"):
            found |= {alias.bound for alias in stmt.aliases if alias.name in _CLOCK_NAMES}
    return found


def _reads_clock(link: Link, clocks: set[str]) -> bool:
    stmt = link.stmt
    return (
        isinstance(stmt, forms.Assign)
        and isinstance(stmt.value, forms.Call)
        and last_name(stmt.value.func) in clocks
        and len(stmt.targets) == 1
        and dotted(stmt.targets[0]) is not None
    )


def _clock_site(module: Module, link: Link) -> Site:
    assert isinstance(link.stmt, forms.Assign)
    return Site(link.stmt.value, link, None)


def _timed_from(project: Project, start: Link, networks: set[str], clocks: set[str]) -> Iterator[Timing]:
    assert isinstance(start.stmt, forms.Assign)
    name = dotted(start.stmt.targets[0]) or ""
    between: list[Link] = []
    for link in start.block[start.index + 1 :]:
        end = _end(start.scope, link, name, clocks)
        if end is not None:
            work = _unfinished_work(project, between, link, end, networks)
            if work is not None and moves_to_gpu(project, start.scope.module):
                yield Timing(project, link, end.at, start, work)
            return
        if name in link.changes:
            return
        between.append(link)


def _end(scope: Scope, link: Link, name: str, clocks: set[str]) -> Expr | None:
    """The reading of the clock from which a statement, or one after it, subtracts ``name``."""
    if isinstance(link.stmt, (forms.For, forms.While, forms.If, forms.Try, forms.With)):
        return None
    for expr in expressions(link.stmt):
        for inner in descend(expr):
            if not isinstance(inner, forms.Binary) or inner.op != "-" or dotted(inner.right) != name:
                continue
            if isinstance(inner.left, forms.Call) and last_name(inner.left.func) in clocks:
                return inner.left
    if _reads_clock(link, clocks):
        assert isinstance(link.stmt, forms.Assign)
        end = dotted(link.stmt.targets[0])
        later = (expr for other in links_of(scope) for root in expressions(other.stmt) for expr in descend(root))
        if any(
            isinstance(expr, forms.Binary)
            and expr.op == "-"
            and dotted(expr.left) == end
            and dotted(expr.right) == name
            for expr in later
        ):
            return link.stmt.value
    return None


def _unfinished_work(project: Project, between: list[Link], last: Link, end: Expr, networks: set[str]) -> Site | None:
    """The last work that is asked of the GPU in a stretch, unless something after it waits, or might."""
    found: Site | None = None
    for link in between:
        if any(not _is_short(inner) for inner in (link, *links_in(link))):
            return None
        sites = link.scope.module.calls_in(link)
        work = next((site for site in sites if _is_work(project, site, networks)), None)
        waits = any(_may_wait(project, site, networks) for site in sites)
        if work is not None and not waits:
            found = work
        elif waits:
            found = None
    return None if any(last_name(call.func) in _WAITS for call in _calls_before(last, end)) else found


def _calls_before(link: Link, end: Expr) -> Iterator[forms.Call]:
    """The calls of a statement that are done before ``end``, which is in it: not those that it is an argument of."""
    for site in link.scope.module.calls_in(link):
        call = site.expr
        assert isinstance(call, forms.Call)
        if call.at < end.at and not any(inner is end for inner in descend(call)):
            yield call


def _is_short(link: Link) -> bool:
    """Whether a statement is no loop over more than a count: in a long one, the last of the queue weighs little."""
    stmt = link.stmt
    if isinstance(stmt, forms.For):
        return isinstance(stmt.iter, forms.Call) and last_name(stmt.iter.func) in ("range", "trange")
    return not isinstance(stmt, (forms.While, forms.Function, forms.Class))


def _is_work(project: Project, site: Site, networks: set[str]) -> bool:
    call = site.expr
    assert isinstance(call, forms.Call)
    name = last_name(call.func)
    if dotted(call.func) in networks and call.args:
        return True
    if isinstance(call.func, forms.Attr) and name in ("backward", "forward"):
        return True
    if name in _WORK:
        return library_path(project, site).startswith("torch.") and _is_given_moved(project, site, call)
    if not isinstance(call.func, (forms.Name, forms.Attr)) or not _is_given_moved(project, site, call):
        return False
    return is_network(project, site.link, call.func, list(project.evaluator.values(call.func, project.point(site))))


def _is_given_moved(project: Project, site: Site, call: forms.Call) -> bool:
    """Whether an argument is something that was copied to a device."""
    given = (project.evaluator.values(arg.value, project.point(site)) for arg in call.args)
    return any(isinstance(value, Moved) for values in given for value in values)


_HARMLESS = frozenset(
    {"to", "cuda", "zero_grad", "step", "train", "eval", "append", "range", "no_grad", "autocast", "inference_mode",
     "size", "len", "view", "reshape", "unsqueeze", "squeeze", "permute", "detach", "argmax", "max", "mean", "sum",
     "softmax", "sigmoid", "randn", "rand", "zeros", "ones", "next", "iter", "float16", "half", "parameters",
     "clip_grad_norm_", "scale", "update", "flatten", "contiguous", "clone", "trange"}
)  # fmt: skip


def _may_wait(project: Project, site: Site, networks: set[str]) -> bool:
    """Whether a call waits for the GPU, or is one of which nobody knows."""
    call = site.expr
    assert isinstance(call, forms.Call)
    name = last_name(call.func)
    if name in _WAITS:
        return True
    if _is_work(project, site, networks) or name in _HARMLESS or name in _CLOCK_NAMES:
        return False
    if any(True for _ in called_scopes(project, site)):
        return True
    path = library_path(project, site)
    return not path.startswith("torch.") and "criterion" not in name.lower() and "loss" not in name.lower()
