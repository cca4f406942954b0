"""Rules about copying batches to the GPU, and pinning them for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dlcheck import edits
from dlcheck.checks.registry import rule
from dlcheck.checks.report import Spot, elsewhere, finding, joint, make_fix, provenance, worlds, written
from dlcheck.edits import Refused
from dlcheck.findings import Applicability, Finding, Fix
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.training.copying import pinned_for_this_copy
from dlcheck.model.training.pinning import gives_objects, unpinnable_batches
from dlcheck.model.transfers import Transfer
from dlcheck.model.values import Alt, Batch, Pinned
from dlcheck.model.worlds import World


@rule("DLC101")
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


@rule("DLC102")
def non_blocking_without_pin(transfer: Transfer) -> Iterator[Finding]:
    for source in transfer.sources:
        loader = _loader(transfer, source)
        if loader is None or loader.yields_cuda():
            continue
        for option in loader.pinning(False):
            if _unpinned(loader, option, source, transfer.worlds(blocking=False)):
                yield _at(
                    transfer,
                    "DLC102",
                    related=[_unpinned_here(loader), *provenance(option.value)],
                    fix=_pin(loader, option),
                    call=transfer.text,
                    loader=loader.name,
                )
                break


@rule("DLC103")
def missing_pin_memory(loader: Loader) -> Iterator[Finding]:
    if not loader.is_plain or loader.framework or loader.yields_cuda():
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
                    fix=_pin(loader, option),
                    loader=loader.name,
                    call=transfer.text,
                )
                return


@rule("DLC106")
def pin_memory_of_cuda_tensor(loader: Loader) -> Iterator[Finding]:
    for option in loader.pinning(True):
        for use in loader.cuda_samples():
            if joint([option.world], [use.world], loader.worlds()):
                place = written(option, loader)
                yield finding(
                    "DLC106",
                    place,
                    loader.project.link_at(place.module, place.at),
                    related=[Spot(use.module, use.at, "moved to the GPU here")],
                    loader=loader.name,
                    what=f"`{use.owner}` returns CUDA tensors",
                )
                return


# -- what they share


def _loader(transfer: Transfer, source: Alt) -> Loader | None:
    """The loader that a copied batch comes from, unless a framework moves its batches or they were changed."""
    if not isinstance(source.value, Batch) or source.value.managed or not source.value.exact:
        return None
    loader = transfer.project.loader_of(source.value.loader)
    if not source.value.part and gives_objects(loader):
        return None
    return loader if loader.is_plain and not loader.framework else None


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


def _non_blocking(transfer: Transfer) -> Fix | Refused | None:
    """``non_blocking=True``; on a Mac with an older torch it races, so only where MPS is no target."""
    if transfer.method == "type":
        return None
    module = transfer.module
    edit = edits.add_argument(module.source, module.facts, transfer.call, "non_blocking", "True")
    kind: Applicability = "unsafe" if transfer.maybe_mps() else "safe"
    return make_fix(kind, "Add `non_blocking=True`", [edit])


def _pin(loader: Loader, option: OptionAlt) -> Fix | Refused | None:
    if option.given:
        return None
    module = loader.module
    edit = edits.add_argument(module.source, module.facts, loader.call, "pin_memory", "True")
    return make_fix("safe", "Add `pin_memory=True`", [edit])
