"""Rules about what a training step does besides training."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.checks import mending, moving
from dlcheck.checks.gradient_edits import gradients_off
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, make_fix
from dlcheck.checks.total_edits import add_up_there
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Finding, Fix
from dlcheck.model.flow import links_of
from dlcheck.model.loops import BatchLoop
from dlcheck.model.scopes import Link, Module, dotted, last_name, target_names
from dlcheck.model.training.gradients import Kept, backward_names, carriers, kept_graphs
from dlcheck.model.training.gradmode import recording_loop
from dlcheck.model.training.hostwork import host_work
from dlcheck.model.training.stalls import Stall, stalls
from dlcheck.model.training.steps import StepLoop, step_loops
from dlcheck.model.training.syncs import syncs
from dlcheck.model.training.timing import Timing, timings

facts(StepLoop, step_loops)
facts(Timing, timings)


@rule("DLC503")
def loss_graph_accumulation(loop: StepLoop) -> Iterator[Finding]:
    for kept in kept_graphs(loop):
        variant = kept.how if kept.how == "meter" else "emptied" if kept.emptied else ""
        yield finding(
            "DLC503",
            Spot(kept.region.module, kept.at),
            kept.link,
            variant=variant,
            related=[Spot(kept.backward.module, kept.backward.expr.at, "the loss goes backward here")],
            about={"how": kept.how},
            fix=_detached(kept),
            name=kept.name,
            value=kept.value,
            loop=loop.module.line(loop.link.head),
        )


def _detached(kept: Kept) -> Fix | Refused:
    """``.detach()`` for what carries the graph; safe where that is certainly a tensor, and its graph was used up."""
    if any(isinstance(expr, forms.Comp) for expr in kept.exprs):
        return Refused("it is a comprehension that holds the graphs")
    module, call = kept.region.module, kept.backward.expr
    assert isinstance(call, forms.Call)
    unknown = [expr for expr in kept.exprs if not _is_tensor(kept, expr)]
    for name in {name for expr in unknown for name in carriers(expr)}:
        if any(_may_be_number(link, name) for link in links_of(kept.link.scope)):
            return Refused(f"`{name}` may be a plain number, which has no `.detach()`")
    on_purpose = any(arg.name in ("retain_graph", "create_graph") or arg.star for arg in call.args)
    safe = not unknown and not on_purpose
    changes = [_detach(module, expr) for expr in kept.exprs]
    return make_fix("safe" if safe else "unsafe", "Add `.detach()`", changes)


def _may_be_number(link: Link, name: str) -> bool:
    """Whether a statement may give a name a number instead of a tensor."""
    stmt = link.stmt
    if not isinstance(stmt, forms.Assign) or name not in {bound for one in stmt.targets for bound in target_names(one)}:
        return False
    values = [stmt.value.body, stmt.value.orelse] if isinstance(stmt.value, forms.IfExp) else [stmt.value]
    return any(isinstance(value, forms.Const) for value in values)


def _is_tensor(kept: Kept, expr: forms.Expr) -> bool:
    """Whether an expression is made of what goes backward in the same function, directly or under one other name."""
    links = list(links_of(kept.link.scope))
    certain = set(backward_names(kept.backward)) if kept.backward.scope is kept.link.scope else set()
    for name in carriers(expr):
        values = [
            link.stmt.value
            for link in links
            if isinstance(link.stmt, forms.Assign) and any(dotted(target) == name for target in link.stmt.targets)
        ]
        if name in certain or len(values) == 1 and certain & set(carriers(values[0])):
            return True
    return False


def _detach(module: Module, expr: forms.Expr) -> Edit:
    """Of a product with a number only the loss: ``loss.detach() * images.size(0)``."""
    while isinstance(expr, forms.Binary) and expr.op in ("*", "/"):
        if _is_number(expr.right):
            expr = expr.left
        elif _is_number(expr.left):
            expr = expr.right
        else:
            break
    return mending.add_call(module.source, module.facts, expr, ".detach()")


def _is_number(expr: forms.Expr) -> bool:
    """Whether an expression is certainly no tensor."""
    if isinstance(expr, forms.Sub):
        return last_name(expr.value) == "shape"
    return isinstance(expr, forms.Const) or isinstance(expr, forms.Call) and last_name(expr.func) in ("size", "len")


@rule("DLC502")
def stall_call_in_loop(loop: StepLoop) -> Iterator[Finding]:
    for stall in stalls(loop):
        inside = stall.inside
        related = [Spot(loop.module, loop.link.head, "in each round of this loop")]
        if inside is not stall.site:
            related.append(Spot(inside.module, inside.expr.at, "called here"))
        yield finding(
            "DLC502",
            Spot(stall.site.module, stall.site.expr.at),
            stall.site.link,
            variant="" if stall.kind == "cache" else stall.kind,
            related=related,
            fix=_without_call(stall),
            call=inside.module.line(inside.expr.at),
        )


def _without_call(stall: Stall) -> Fix | Refused:
    """The call goes, with the question whether there is a GPU if nothing else hangs on that."""
    module, link = stall.site.module, stall.site.link
    if stall.inside is not stall.site:
        return Refused("a helper does it, which may be right elsewhere")
    if not isinstance(link.stmt, forms.Do) or link.stmt.value is not stall.site.expr:
        return Refused("the call is part of a larger statement")
    assert isinstance(stall.site.expr, forms.Call)
    imports = moving.unused_import(module, stall.site.expr.func)
    outer = link.parent
    alone = outer is not None and len(link.block) == 1 and len(outer.block) > 1
    if (
        outer is not None
        and alone
        and isinstance(outer.stmt, forms.If)
        and not outer.stmt.orelse
        and link.slot == "body"
    ):
        whole = moving.lines_of(module.source, module.facts, outer)
        if isinstance(whole, Refused):
            return whole
        return make_fix("unsafe", "Remove the call", [moving.removed(module.source, whole, outer), *imports])
    removed = mending.remove_statement(module.source, module.facts, link)
    return make_fix("unsafe", "Remove the call", [removed, *imports])


@rule("DLC505", at_fact=True)
def eval_without_no_grad(loop: BatchLoop) -> Iterator[Finding]:
    found = recording_loop(loop)
    if found is not None:
        yield finding(
            "DLC505",
            Spot(loop.module, loop.link.head),
            loop.link,
            related=[
                Spot(found.eval.module, found.eval.expr.at, "in evaluation mode from here"),
                Spot(found.call.module, found.call.expr.at, "the graph is recorded here"),
            ],
            fix=gradients_off(loop),
            network=found.network,
        )


@rule("DLC501")
def sync_every_step(loop: StepLoop) -> Iterator[Finding]:
    found = syncs(loop)
    if found:
        first, *others = found
        yield finding(
            "DLC501",
            Spot(first.module, first.shown_at),
            first.link,
            variant="several" if others else "",
            related=[
                *(Spot(other.module, other.at, "and here") for other in others[:8]),
                Spot(loop.module, loop.link.head, "in each round of this loop"),
            ],
            fix=add_up_there(loop, found),
            call=first.text,
            others=len(others),
        )


@rule("DLC506")
def host_work_in_train_loop(loop: BatchLoop) -> Iterator[Finding]:
    if loop.framework:
        return
    loader = loop.project.loader_of(loop.ref)
    if all(option.is_(0) for option in loader.option("num_workers")):
        return  # without workers it makes no difference who does the work
    for work in host_work(loop):
        yield finding(
            "DLC506",
            Spot(work.module, work.at),
            work.link,
            related=[Spot(loader.module, loader.name_at, "its workers could do it")],
            call=work.what,
        )


@rule("DLC507")
def unsynchronised_gpu_timing(timing: Timing) -> Iterator[Finding]:
    yield finding(
        "DLC507",
        Spot(timing.module, timing.at),
        timing.link,
        related=[
            Spot(timing.module, timing.started.stmt.at, "timed from here"),
            Spot(timing.work.module, timing.work.expr.at, "the GPU may still be doing this"),
        ],
        call=timing.module.line(timing.work.expr.at),
    )
