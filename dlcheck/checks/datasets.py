"""Rules about what a dataset keeps and its workers inherit."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.checks.lazy_handles import opened_in_each_process
from dlcheck.checks.registry import rule
from dlcheck.checks.report import Spot, finding, joint, provenance, written
from dlcheck.findings import Finding
from dlcheck.model.data.keeping import Handle, Kept
from dlcheck.model.data.lazy_images import lazy_images
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.program import copies_to_workers, forks, only_forks
from dlcheck.model.values import Const


@rule("DLC301")
def eager_dataset_loading(loader: Loader) -> Iterator[Finding]:
    for alt in loader.held_datasets:
        for kept in _read_whole(alt.dataset) if alt.dataset is not None else ():
            for workers in loader.option("num_workers"):
                if joint([alt.world], [kept.world], [workers.world], loader.worlds()):
                    variant = _eager_variant(loader, kept, workers)
                    if variant is not None and alt.dataset is not None:
                        yield _eager(loader, alt.dataset, kept, workers, variant)
                        break


def _read_whole(dataset: DatasetClass) -> Iterator[Kept]:
    """What is read whole; images that are only opened are DLC305's."""
    unread = {link for images in lazy_images(dataset) for link in images.kept_by}
    return (kept for kept in dataset.kept_data if kept.link not in unread)


def _eager_variant(loader: Loader, kept: Kept, workers: OptionAlt) -> str | None:
    """What it costs, as far as that is known; None where it is not."""
    if workers.is_(0):
        return "no-workers"
    if not workers.positive:
        return None
    if kept.kind == "objects":
        return ""
    if copies_to_workers(loader):
        return "copied-array"
    forked = forks(loader) or only_forks(loader.project)
    return "decoded-files" if kept.kind == "buffers" and not forked else "shared-array"


def _eager(loader: Loader, dataset: DatasetClass, kept: Kept, workers: OptionAlt, variant: str) -> Finding:
    spot = Spot(kept.module, kept.at)
    return finding(
        "DLC301",
        spot,
        kept.link,
        variant=variant,
        related=[
            written(workers, loader)._replace(caption="the loader of this dataset"),
            *provenance(workers.value),
        ],
        dataset=dataset.name,
        what=kept.what,
    )


@rule("DLC304")
def handle_opened_in_init(loader: Loader) -> Iterator[Finding]:
    if loader.worker_init_may_touch_dataset():
        return
    for alt in loader.held_datasets:
        for handle in alt.dataset.handles if alt.dataset is not None else ():
            for workers in loader.option("num_workers"):
                if workers.positive and joint([alt.world], [handle.world], [workers.world], loader.worlds()):
                    variant = _handle_variant(loader, handle, workers)
                    if variant and alt.dataset is not None:
                        yield _handle(loader, alt.dataset, handle, workers, variant)
                        break


def _handle_variant(loader: Loader, handle: Handle, workers: OptionAlt) -> str:
    if handle.kind == "file" and not copies_to_workers(loader):
        several = not isinstance(workers.value, Const) or workers.value != Const(1)
        return "fork-shared" if several else "unpicklable"
    return "unpicklable"


def _handle(loader: Loader, dataset: DatasetClass, handle: Handle, workers: OptionAlt, variant: str) -> Finding:
    caption = "the workers that inherit it" if variant == "fork-shared" else "the workers"
    return finding(
        "DLC304",
        Spot(handle.module, handle.at),
        handle.link,
        variant=variant,
        related=[
            written(workers, loader)._replace(caption=caption),
            *provenance(workers.value),
        ],
        fix=opened_in_each_process(dataset, handle),
        handle=f"{handle.path.removeprefix('builtins.')}(...)",
        dataset=dataset.name,
    )
