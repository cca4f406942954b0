"""Rules about what training frameworks leave to their user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, joint, provenance
from dlcheck.findings import Finding
from dlcheck.model.loaders import OptionAlt
from dlcheck.model.training.trainers import (
    BlockingAccelerator,
    TrainerArguments,
    blocking_accelerators,
    trainer_arguments,
)
from dlcheck.model.values import Const

facts(TrainerArguments, trainer_arguments)
facts(BlockingAccelerator, blocking_accelerators)


@rule("DLC701")
def trainer_arguments_loading(arguments: TrainerArguments) -> Iterator[Finding]:
    yield from _prefetch_without_workers(arguments)
    yield from _work_without_workers(arguments)
    yield from _workers_each_epoch(arguments)
    yield from _unpinned(arguments)


def _prefetch_without_workers(arguments: TrainerArguments) -> Iterator[Finding]:
    for option in arguments.option("dataloader_prefetch_factor"):
        for workers in arguments.option("dataloader_num_workers"):
            given = isinstance(option.value, Const) and option.value.value is not None
            if given and workers.is_(0) and joint([option.world], [workers.world], arguments.worlds()):
                yield _of(arguments, option, "prefetch", related=provenance(workers.value))
                return


def _work_without_workers(arguments: TrainerArguments) -> Iterator[Finding]:
    for workers in arguments.option("dataloader_num_workers"):
        for work in arguments.work() if workers.is_(0) else ():
            if joint([workers.world], [work.world], arguments.worlds()):
                related = [Spot(work.module, work.at, "done here for each sample"), *provenance(workers.value)]
                yield _of(arguments, workers, "", related=related, owner=work.owner, what=work.what)
                return


def _workers_each_epoch(arguments: TrainerArguments) -> Iterator[Finding]:
    if not all(option.is_(-1) or option.is_(0) for option in arguments.option("max_steps")):
        return
    for workers in arguments.option("dataloader_num_workers"):
        for option in arguments.option("dataloader_persistent_workers") if workers.positive else ():
            for epochs in arguments.option("num_train_epochs") if option.falsy else ():
                several = isinstance(epochs.value, Const) and _is_more_than_one(epochs.value.value)
                if several and joint([workers.world], [option.world], [epochs.world], arguments.worlds()):
                    yield _of(arguments, option, "respawn", related=provenance(workers.value))
                    return


def _is_more_than_one(epochs: object) -> bool:
    return isinstance(epochs, (int, float)) and epochs > 1


def _unpinned(arguments: TrainerArguments) -> Iterator[Finding]:
    if not arguments.on_gpu() or not arguments.feeds_trainer():
        return
    if any(code.mentions(frozenset({"cuda", "to", "device"})) for code, _ in arguments.codes()):
        return  # what is on the GPU already cannot be pinned
    for option in arguments.option("dataloader_pin_memory"):
        for workers in arguments.option("dataloader_num_workers"):
            if option.is_(False) and workers.positive and joint([option.world], [workers.world], arguments.worlds()):
                yield _of(arguments, option, "pin")
                return


def _of(
    arguments: TrainerArguments,
    option: OptionAlt,
    variant: str,
    *,
    related: Sequence[Spot] = (),
    owner: str = "",
    what: str = "",
) -> Finding:
    spot = Spot(arguments.module, arguments.name_at)
    if option.module is not None:
        spot = Spot(option.module, option.at)
    return finding(
        "DLC701",
        spot,
        arguments.project.link_at(spot.module, spot.at),
        variant=variant,
        related=related,
        arguments=arguments.class_name,
        owner=owner,
        what=what,
    )


@rule("DLC702")
def accelerate_blocking_transfer(accelerator: BlockingAccelerator) -> Iterator[Finding]:
    loader, pinned = accelerator.loader, accelerator.pinned
    where = Spot(pinned.module, pinned.at) if pinned.module is not None else Spot(loader.module, loader.name_at)
    yield finding(
        "DLC702",
        Spot(accelerator.module, accelerator.name_at),
        accelerator.link,
        related=[
            where._replace(caption="pinned here"),
            Spot(accelerator.prepared.module, accelerator.prepared.expr.at, "handed over here"),
        ],
        loader=loader.name,
    )
