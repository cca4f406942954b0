"""Rules about what a dataset keeps in memory, and what that costs in several workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dlcheck.checks.image_edits import kept_as_paths
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, joint, provenance, written
from dlcheck.findings import Finding
from dlcheck.model.data.collecting import Collected, collected
from dlcheck.model.data.lazy_images import lazy_images
from dlcheck.model.data.pickled_data import Pickled, pickled_data
from dlcheck.model.data.sample_code import datasets
from dlcheck.model.datasets import DatasetAlt, DatasetClass
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.program import chosen_method, copies_to_workers, start_method
from dlcheck.model.values import Const, Value
from dlcheck.model.worlds import ANY

facts(DatasetClass, datasets)


@rule("DLC302")
def cow_growth_of_python_objects(loader: Loader) -> Iterator[Finding]:
    for alt in loader.held_datasets:
        found = list(collected(alt.dataset)) if alt.dataset is not None else []
        if alt.dataset is None or not found or copies_to_workers(loader):
            continue  # where nothing is shared from the start: DLC303
        loaded_whole = {kept.link for kept in alt.dataset.kept_data}  # DLC301
        for container in found:
            if container.link in loaded_whole:
                continue
            for workers in loader.option("num_workers"):
                several = workers.positive and not workers.is_(1)
                if several and joint([alt.world], [container.world], [workers.world], loader.worlds()):
                    yield _growth(loader, alt.dataset, container, workers)
                    break


def _growth(loader: Loader, dataset: DatasetClass, container: Collected, workers: OptionAlt) -> Finding:
    variant = "object-array" if container.is_object_array else "" if container.nested else "strings"
    return finding(
        "DLC302",
        Spot(container.module, container.at),
        container.link,
        variant=variant,
        related=[
            written(workers, loader)._replace(caption="the workers that read it"),
            *provenance(workers.value),
        ],
        attribute=f"self.{container.attribute}",
        dataset=dataset.name,
        workers=_number(workers.value),
    )


@rule("DLC303")
def spawn_copies_dataset(loader: Loader) -> Iterator[Finding]:
    for alt in loader.held_datasets:
        found = list(pickled_data(alt.dataset)) if alt.dataset is not None else []
        if alt.dataset is None or not found or not copies_to_workers(loader):
            continue
        chosen = _start_method(loader)
        loaded_whole = {kept.link for kept in alt.dataset.kept_data}  # DLC301
        data = [one for one in found if chosen is not None or one.link not in loaded_whole]
        method = start_method(loader.project)
        if not data and method in ("spawn", "forkserver"):  # DLC301 speaks at the data: here, at the loader
            data, chosen = found, OptionAlt(Const(method), ANY, None, -1)
        # At the start method one finding speaks for all that it copies.
        yield from islice(_copies(loader, alt, data, chosen), 1 if chosen is not None else None)


def _copies(loader: Loader, alt: DatasetAlt, found: list[Pickled], chosen: OptionAlt | None) -> Iterator[Finding]:
    assert alt.dataset is not None
    starts = [chosen.world] if chosen is not None else loader.worlds()
    for data in found:
        for workers in loader.option("num_workers"):
            if workers.positive and joint([alt.world], [data.world], [workers.world], starts, loader.worlds()):
                yield _copied(loader, alt.dataset, data, workers, chosen)
                break


def _start_method(loader: Loader) -> OptionAlt | None:
    """Where the loader itself says that its workers are not forked."""
    for option in loader.option("multiprocessing_context"):
        if option.given and chosen_method(loader.project, option.value) in ("spawn", "forkserver"):
            return option
    return None


def _copied(
    loader: Loader, dataset: DatasetClass, data: Pickled, workers: OptionAlt, chosen: OptionAlt | None
) -> Finding:
    there = Spot(data.module, data.at)
    place = written(chosen, loader) if chosen is not None else there
    also = there._replace(caption="the data") if chosen is not None else written(workers, loader)._replace(
        caption="the workers that get it"
    )  # fmt: skip
    link = data.link if place is there else loader.project.link_at(place.module, place.at)
    return finding(
        "DLC303",
        place,
        link,
        variant="memmap" if data.kind == "memmap" else "",
        related=[also, *provenance(workers.value)],
        dataset=dataset.name,
        what=f"{data.what}" if not data.attribute else f"self.{data.attribute}",
        workers=_number(workers.value),
    )


def _number(value: Value) -> str:
    if isinstance(value, Const) and value.value == 1:
        return "1 worker"
    return f"{value.value} workers" if isinstance(value, Const) else "several workers"


@rule("DLC305")
def lazy_image_handles(dataset: DatasetClass) -> Iterator[Finding]:
    for images in lazy_images(dataset):
        fix = kept_as_paths(dataset, images)
        yield finding("DLC305", Spot(images.module, images.at), images.link, fix=fix, dataset=dataset.name)
