"""Rules about what a training step does besides training."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding
from dlcheck.findings import Finding
from dlcheck.model.loops import BatchLoop
from dlcheck.model.training.gradients import kept_graphs
from dlcheck.model.training.gradmode import recording_loop
from dlcheck.model.training.hostwork import host_work
from dlcheck.model.training.stalls import stalls
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
            name=kept.name,
            value=kept.value,
            loop=loop.module.line(loop.link.head),
        )


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
            call=inside.module.line(inside.expr.at),
        )


@rule("DLC505")
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
