"""Rules about copying batches to the GPU, and pinning them for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dlcheck import edits
from dlcheck.checks.device_tests import asks_for_cuda, choices
from dlcheck.checks.mending import import_edits
from dlcheck.checks.option_edits import fix_of, set_option
from dlcheck.checks.registry import rule
from dlcheck.checks.report import Spot, elsewhere, finding, joint, make_fix, provenance, worlds, written
from dlcheck.checks.worker_edits import not_pinned
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Finding, Fix
from dlcheck.model import calling
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.training.copying import pinned_for_this_copy
from dlcheck.model.training.pinning import gives_objects, unpinnable_batches
from dlcheck.model.transfers import Transfer, target_of
from dlcheck.model.values import Alt, Batch, Pinned
from dlcheck.model.worlds import World


@rule("DLC101", at_fact=True)
def blocking_transfer_of_pinned_batch(transfer: Transfer) -> Iterator[Finding]:
    for source in transfer.sources:
        if isinstance(source.value, Pinned):
            inline = pinned_for_this_copy(transfer.project, transfer.site)  # DLC104 says it
            if not inline and joint([source.world], transfer.worlds(blocking=True)):
                yield _at(transfer, "DLC101", variant="explicit-pin", fix=_non_blocking(transfer), call=transfer.text)
            continue
        loader = _loader(transfer, source)
        if loader is None or any(True for _ in unpinnable_batches(loader)):  # DLC107 says why they are not pinned
            continue
        for option in loader.pinning(True):
            if joint([source.world], transfer.worlds(blocking=True), [option.world], loader.worlds()):
                yield _at(
                    transfer,
                    "DLC101",
                    related=[_pinned_here(loader, option), *provenance(option.value)],
                    fix=_non_blocking(transfer),
                    call=transfer.text,
                    loader=loader.name,
                )
                break


@rule("DLC102", at_fact=True)
def non_blocking_without_pin(transfer: Transfer) -> Iterator[Finding]:
    for source in transfer.sources:
        loader = _loader(transfer, source)
        if loader is None or loader.yields_cuda:
            continue
        for option in loader.pinning(False):
            if _unpinned(loader, option, source, transfer.worlds(blocking=False)):
                yield _at(
                    transfer,
                    "DLC102",
                    related=[_unpinned_here(loader), *provenance(option.value)],
                    fix=_pin(loader, option, [transfer]),
                    call=transfer.text,
                    loader=loader.name,
                )
                break


@rule("DLC103")
def missing_pin_memory(loader: Loader) -> Iterator[Finding]:
    if not loader.is_plain or loader.framework or loader.yields_cuda:
        return
    copies = [
        (transfer, source)
        for transfer, source in loader.copies()
        if transfer.worlds(blocking=True) and _loader(transfer, source) is not None
    ]
    if any(transfer.worlds(blocking=False) for transfer, _ in loader.copies()):
        return  # DLC102 says it, where the author expects the copy to overlap
    for option in loader.pinning(False):
        for transfer, source in copies:
            if _unpinned(loader, option, source, transfer.worlds(blocking=True)):
                spot = written(option, loader)
                yield finding(
                    "DLC103",
                    spot,
                    loader.link if spot.module is loader.module else loader.project.link_at(spot.module, spot.at),
                    related=[_copied_here(transfer), *provenance(option.value)],
                    fix=_pin(loader, option, [copy for copy, _ in copies]),
                    loader=loader.name,
                    call=transfer.text,
                )
                return


@rule("DLC106")
def pin_memory_of_cuda_tensor(loader: Loader) -> Iterator[Finding]:
    for option in loader.pinning(True):
        for use in loader.cuda_samples:
            if joint([option.world], [use.world], loader.worlds()):
                place = written(option, loader)
                yield finding(
                    "DLC106",
                    place,
                    loader.project.link_at(place.module, place.at),
                    related=[Spot(use.module, use.at, "moved to the GPU here")],
                    fix=not_pinned(loader, option),
                    loader=loader.name,
                    what=f"`{use.owner}` returns CUDA tensors",
                )
                return


# -- what they share


def _loader(transfer: Transfer, source: Alt) -> Loader | None:
    """The loader that a copied batch comes from; None where a framework moves it, or nothing can pin it."""
    if not isinstance(source.value, Batch) or source.value.managed or not source.value.exact:
        return None
    loader = transfer.project.loader_of(source.value.loader)
    if not source.value.part and gives_objects(loader):
        return None
    return loader if loader.is_plain and not loader.framework and not loader.cuda_samples else None


def _unpinned(loader: Loader, option: OptionAlt, source: Alt, copying: list[World]) -> bool:
    """Whether one world has workers, no pinning and the copy: without workers, pinning costs what it saves."""
    workers = worlds(alt for alt in loader.option("num_workers") if alt.positive)
    return bool(joint([source.world], copying, [option.world], workers, loader.worlds()))


def _at(
    transfer: Transfer,
    code: str,
    *,
    variant: str = "",
    related: Sequence[Spot] = (),
    fix: Fix | Refused | None = None,
    **fields: Any,
) -> Finding:
    spot = Spot(transfer.module, transfer.call.at)
    return finding(code, spot, transfer.site.link, variant=variant, related=related, fix=fix, **fields)


def _pinned_here(loader: Loader, option: OptionAlt) -> Spot:
    caption = "pinned here"
    return next(iter(elsewhere(option, loader, caption)), written(option, loader)._replace(caption=caption))


def _unpinned_here(loader: Loader) -> Spot:
    return Spot(loader.module, loader.name_at, "its batches are not pinned")


def _copied_here(transfer: Transfer) -> Spot:
    return Spot(transfer.module, transfer.call.at, "copied to the GPU here")


def _non_blocking(transfer: Transfer) -> Fix | Refused:
    """``non_blocking=True``; where a Mac's GPU is possible, on which older torch races, only for CUDA."""
    if transfer.method == "type":
        return Refused("`.type()` also converts: write `.to(device, non_blocking=True)`")
    module, call = transfer.module, transfer.call
    given = next((arg.value for arg in call.args if arg.name in ("non_blocking", "async")), None)
    if given is not None and not isinstance(given, forms.Const):
        return Refused(f"`{module.line(given.at)}` decides it")
    if any(arg.name == "async" for arg in call.args):
        return Refused("`async` is a name of old versions of torch")
    text = "True"
    target = target_of(calling.arguments(call, transfer.point))
    device = target.expr if target is not None else None
    listed = choices(transfer.project, device, transfer.point) if device is not None else set()
    if transfer.maybe_mps() or any(choice.startswith("mps") for choice in listed):
        test = asks_for_cuda(transfer.project, transfer.point, device)
        if test is None:
            return Refused("the device may be a Mac's GPU, and has no name that could be asked")
        text = test
    edit = edits.set_argument(module.source, module.facts, call, "non_blocking", text)
    return make_fix("safe", f"{'Add' if given is None else 'Set'} `non_blocking={text}`", [edit])


def _pin(loader: Loader, option: OptionAlt, copies: Sequence[Transfer]) -> Fix | Refused:
    """``pin_memory=True``; where the program runs without a GPU as well, only where there is one."""
    always = all(kind == "cuda" and not copy.maybe_mps() for copy in copies for kind, _ in copy.devices)
    text = "True" if always else "torch.cuda.is_available()"
    change = set_option(loader, option, "pin_memory", text)
    imports = [] if always or isinstance(change, Refused) else import_edits(change.module, "torch")
    verb = "Set" if option.given else "Add"
    return fix_of("safe", f"{verb} `pin_memory={text}`", [change], imports)
