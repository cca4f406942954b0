"""What becomes of an evaluation's results: collected in the loop, reduced over the ranks, repeated samples removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.flow import later_in_function, links_in, links_of, loops_around
from dlcheck.model.loops import BatchLoop, called_scopes, callers_in
from dlcheck.model.scopes import Link, Scope, Site, descend, dotted, expressions, last_name, target_names
from dlcheck.model.values import External

if TYPE_CHECKING:
    from dlcheck.model.project import Project

_COLLECTING = frozenset(
    {"append", "extend", "update", "add", "add_batch", "write", "writerow", "writelines", "update_state", "add_metric",
     "put", "push", "process", "log_metric", "index_copy_", "add_"}
)  # fmt: skip


def collects(loop: BatchLoop) -> bool:
    """Whether a loop gathers something of every batch: a sum, a list, a metric."""
    comprehends = not isinstance(loop.link.stmt, forms.For)
    return comprehends or any(_gathers(link) for link in links_in(loop.link))


def _gathers(link: Link) -> bool:
    stmt = link.stmt
    if isinstance(stmt, forms.AugAssign):
        return not isinstance(stmt.value, forms.Const)  # more than a counter
    if isinstance(stmt, forms.Assign):
        for target in stmt.targets:
            if isinstance(target, forms.Sub):
                return True
            name = dotted(target)
            # total = total + loss
            if name and isinstance(stmt.value, forms.Binary) and dotted(stmt.value.left) == name:
                return True
    if isinstance(stmt, forms.Do):
        call = stmt.value
        if isinstance(call, forms.Yield):
            return True
        return isinstance(call, forms.Call) and last_name(call.func) in _COLLECTING
    return False


def stops_early(loop: BatchLoop) -> bool:
    """Whether a loop means to see only some batches: it breaks off, or iterates a part of the loader."""
    stmt = loop.link.stmt
    for link in links_in(loop.link):
        leaves = isinstance(link.stmt, forms.Jump) and link.stmt.kind == "break" or isinstance(link.stmt, forms.Return)
        if leaves and next(loops_around(link), None) is loop.link:
            return True
    iterated = [stmt.iter] if isinstance(stmt, forms.For) else list(expressions(stmt))
    return any(
        isinstance(part, forms.Call) and last_name(part.func) in ("islice", "zip", "takewhile", "take", "cycle")
        for root in iterated
        for part in descend(root)
    )


# -- over the ranks

_REDUCING = (
    "all_reduce", "allreduce", "all_gather", "allgather", "reduce_tensor", "reduce_value", "reduce_dict",
    "reduce_loss", "reduce_metric", "reduce_mean", "reduce_sum", "reduce_scalar", "reduce_across", "gather_object",
    "gather_all", "concat_all_gather", "synchronize_between", "sync_between", "distributed_concat",
    "distributed_gather", "average_across",
)  # fmt: skip


def is_reduction(project: Project, site: Site) -> bool:
    """Whether a call brings the values of all ranks together."""
    call = site.expr
    assert isinstance(call, forms.Call)
    name = last_name(call.func)
    if any(word in name for word in _REDUCING):
        return True
    if name not in ("reduce", "gather", "compute"):
        return False
    for value in project.evaluator.values(call.func, project.point(site)):
        if isinstance(value, External):
            # torchmetrics gathers by itself
            wanted = "torchmetrics." if name == "compute" else "torch.distributed."
            if value.path.startswith(wanted):
                return True
    return False


def evaluation_scopes(loop: BatchLoop) -> list[Scope]:
    """The function that holds a loop, and the project's functions that it calls."""
    found = [loop.link.scope]
    for scope in found:
        if len(found) > 12 or scope.kind != "function" and scope is not loop.link.scope:
            break
        for site in scope.module.calls_by_scope.get(scope, ()):
            found += [called for called in called_scopes(loop.project, site) if called not in found]
    return found


def reduced_over_ranks(loop: BatchLoop) -> Site | None:
    """The call that brings the loop's results of all ranks together, in its function or where that is called."""
    project = loop.project
    for scope in evaluation_scopes(loop):
        for site in scope.module.calls_by_scope.get(scope, ()):
            if is_reduction(project, site):
                return site
    scope = loop.link.scope
    for point in callers_in(project, scope, loop.world) if scope.kind == "function" else ():
        found = next(_reductions_of_result(project, point.link), None)
        if found is not None:
            return found
    return None


def _reductions_of_result(project: Project, link: Link) -> Iterator[Site]:
    """The reductions, after a call, of what the call gave."""
    names = {name for name in link.changes if "." not in name}
    for later in later_in_function(link):
        used = {part.id for root in expressions(later.stmt) for part in descend(root) if isinstance(part, forms.Name)}
        if not used & names:
            continue
        if isinstance(later.stmt, forms.Assign):
            names |= {name for target in later.stmt.targets for name in target_names(target)}
        for site in later.scope.module.calls_in(later):
            if site.link is later and _reduces(project, site):
                yield site


def _reduces(project: Project, site: Site) -> bool:
    """Whether a call, or what it calls, brings the values of all ranks together."""
    if is_reduction(project, site):
        return True
    return any(
        is_reduction(project, inner)
        for scope in called_scopes(project, site)
        for inner in scope.module.calls_by_scope.get(scope, ())
    )


def removes_repeats(loop: BatchLoop) -> bool:
    """Whether samples that several ranks saw are counted once: kept by their id, made unique, or cut off."""
    for link in links_in(loop.link):
        for target in link.stmt.targets if isinstance(link.stmt, forms.Assign) else ():
            if isinstance(target, forms.Sub) and not isinstance(target.index, (forms.Const, forms.Slice)):
                return True  # results[image_id] = prediction
    words = (
        "index_copy",
        "index_all",
        "unique",
        "drop_duplicates",
        "dedup",
        "coco",
        "img_id",
        "image_id",
        "sample_id",
        "visited",
        "seen_id",
    )
    for scope in evaluation_scopes(loop):
        for link in links_of(scope):
            for root in expressions(link.stmt):
                for part in descend(root):
                    name = last_name(part).lower() if isinstance(part, (forms.Attr, forms.Name)) else ""
                    if any(word in name for word in words):
                        return True
                    if isinstance(part, forms.Slice) and part.lower is None and _is_a_length(part.upper):
                        return True
    return False


def _is_a_length(expr: forms.Expr | None) -> bool:
    """``len(dataset)``, ``num_samples``, ``total``: up to where gathered results are real ones."""
    if isinstance(expr, forms.Call):
        return last_name(expr.func) == "len"
    name = last_name(expr)
    return any(word in name for word in ("total", "num_", "size", "length", "n_samples")) or name in ("n", "N")
