"""Rules about what training frameworks leave to their user."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from dlcheck import edits
from dlcheck.checks.option_edits import is_free
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, joint, make_fix, provenance
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Applicability, Edit, Finding, Fix
from dlcheck.model.loaders import OptionAlt
from dlcheck.model.scopes import Module, dotted, last_name
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
                fix = _argument(arguments, option, "dataloader_prefetch_factor", "")
                yield _of(arguments, option, "prefetch", related=provenance(workers.value), fix=fix)
                return


def _work_without_workers(arguments: TrainerArguments) -> Iterator[Finding]:
    for workers in arguments.option("dataloader_num_workers"):
        for work in arguments.work() if workers.is_(0) else ():
            if joint([workers.world], [work.world], arguments.worlds()):
                related = [Spot(work.module, work.at, "done here for each sample"), *provenance(workers.value)]
                fix = _workers(arguments, workers)
                yield _of(arguments, workers, "", related=related, owner=work.owner, what=work.what, fix=fix)
                return


def _workers_each_epoch(arguments: TrainerArguments) -> Iterator[Finding]:
    if not all(option.is_(-1) or option.is_(0) for option in arguments.option("max_steps")):
        return
    for workers in arguments.option("dataloader_num_workers"):
        for option in arguments.option("dataloader_persistent_workers") if workers.positive else ():
            for epochs in arguments.option("num_train_epochs") if option.falsy else ():
                several = isinstance(epochs.value, Const) and _is_more_than_one(epochs.value.value)
                if several and joint([workers.world], [option.world], [epochs.world], arguments.worlds()):
                    yield _of(
                        arguments, option, "respawn", related=provenance(workers.value), fix=_kept(arguments, option)
                    )
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
                yield _of(arguments, option, "pin", fix=_argument(arguments, option, "dataloader_pin_memory", "True"))
                return


def _workers(arguments: TrainerArguments, workers: OptionAlt) -> Fix | Refused:
    """A few workers, which live as long as the loader unless something is said of that."""
    module, call, name = arguments.module, arguments.call, "dataloader_num_workers"
    if workers.given and not isinstance(_own(call, name), forms.Const):
        return Refused(f"`{name}` is given elsewhere")
    values = {name: "4"}
    if not any(option.given for option in arguments.option("dataloader_persistent_workers")):
        values["dataloader_persistent_workers"] = "True"
    steps = [partial(edits.set_argument, name=name, value=value, order=()) for name, value in values.items()]
    said = " and ".join(f"`{name}={value}`" for name, value in values.items())
    edit = edits.in_turn(module.source, module.facts, call, steps)
    return make_fix("unsafe", f"Pass {said}", [edit], alters=True)


def _own(call: forms.Call, name: str) -> forms.Expr | None:
    return next((arg.value for arg in call.args if arg.name == name), None)


def _kept(arguments: TrainerArguments, option: OptionAlt) -> Fix | Refused:
    """``dataloader_persistent_workers=True``, where it is certain that there are workers."""
    known = arguments.option("dataloader_num_workers")
    if not all(workers.positive and not is_free(workers) for workers in known):
        return Refused("the number of its workers is given elsewhere, and may be 0")
    return _argument(arguments, option, "dataloader_persistent_workers", "True")


def _argument(arguments: TrainerArguments, option: OptionAlt, name: str, value: str) -> Fix | Refused:
    """Another value for an argument of the trainer's arguments, or none; only raising an error less is safe."""
    module, call = arguments.module, arguments.call
    if option.given and not isinstance(_own(call, name), forms.Const):
        return Refused(f"`{name}` is given elsewhere")
    if not value:
        edit = edits.remove_argument(module.source, module.facts, call, name, order=())
        return make_fix("safe", f"Remove `{name}`", [edit], alters=True)
    edit = edits.set_argument(module.source, module.facts, call, name, value, order=())
    kind: Applicability = "safe" if name == "dataloader_pin_memory" else "unsafe"
    return make_fix(kind, f"{'Set' if option.given else 'Add'} `{name}={value}`", [edit], alters=True)


def _of(
    arguments: TrainerArguments,
    option: OptionAlt,
    variant: str,
    *,
    related: Sequence[Spot] = (),
    owner: str = "",
    what: str = "",
    fix: Fix | Refused | None = None,
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
        fix=fix,
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
        fix=_overlapping(accelerator),
        loader=loader.name,
    )


_CONFIGURATION = "DataLoaderConfiguration"


def _overlapping(accelerator: BlockingAccelerator) -> Fix | Refused:
    """``non_blocking=True`` in the accelerator's configuration of loaders; an old Accelerate does not know it."""
    module, call = accelerator.module, accelerator.call
    source, facts = module.source, module.facts
    config = _own(call, "dataloader_config")
    if config is not None and not (isinstance(config, forms.Const) and config.value is None):
        if not isinstance(config, forms.Call) or last_name(config.func) != _CONFIGURATION:
            return Refused(f"`{module.line(config.at)}` holds its configuration")
        edit = edits.set_argument(source, facts, config, "non_blocking", "True", order=())
        return make_fix("unsafe", "Set `non_blocking=True`", [edit])
    found = _named_configuration(module, call)
    if isinstance(found, Refused):
        return found
    name, imports = found
    value = f"{name}(non_blocking=True)"
    edit = edits.set_argument(source, facts, call, "dataloader_config", value, order=())
    return make_fix("unsafe", f"Pass `dataloader_config={value}`", [edit, *imports])


def _named_configuration(module: Module, call: forms.Call) -> tuple[str, list[Edit]] | Refused:
    """How the class is called in a module, and what that takes: it is imported from where the accelerator is."""
    called = dotted(call.func) or ""
    if "." in called:
        return f"{called.rpartition('.')[0]}.{_CONFIGURATION}", []
    for stmt, link in module.imports:
        if link.scope is not module.scope or link.parent is not None:
            continue
        if not isinstance(stmt, forms.ImportFrom) or stmt.module.partition(".")[0] != "accelerate":
            continue
        if any(alias.bound == _CONFIGURATION for alias in stmt.aliases):
            return _CONFIGURATION, []
    for stmt, link in module.imports:
        if isinstance(stmt, forms.ImportFrom) and stmt.module == "accelerate" and link.scope.kind == "module":
            start, end = module.facts.span(stmt.at)
            match = re.search(r"\bAccelerator\b(?: as \w+)?", module.source.text[start:end])
            if match is not None:
                at = start + match.end()
                return _CONFIGURATION, [Edit(module.source.place(at, at), f", {_CONFIGURATION}")]
    return Refused(f"`{_CONFIGURATION}` would have to be imported")
