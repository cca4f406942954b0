"""Rules about how a dataset reads its files and tables, and what it makes samples of."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, joint
from dlcheck.findings import Finding
from dlcheck.model import library
from dlcheck.model.data.kinds import Kinds
from dlcheck.model.data.list_samples import is_list_of_arrays, list_parts, unformatted_tokens
from dlcheck.model.data.reading import repeated_listings, repeated_reads
from dlcheck.model.data.sample_code import SampleCode, sample_codes
from dlcheck.model.data.tables import ColumnItem, column_items, pandas_lookups
from dlcheck.model.loaders import Loader
from dlcheck.model.values import Made

facts(SampleCode, sample_codes)
facts(ColumnItem, column_items)


@rule("DLC306")
def whole_file_read_per_item(code: SampleCode) -> Iterator[Finding]:
    if code.role != "item":
        return
    for read in repeated_reads(code):
        yield finding(
            "DLC306",
            Spot(read.module, read.at),
            read.link,
            variant="" if read.shared else "shard",
            what=f"{read.what}",
            dataset=code.owner,
        )


@rule("DLC307")
def listdir_in_getitem(code: SampleCode) -> Iterator[Finding]:
    if code.role not in ("item", "length"):
        return
    for listing in repeated_listings(code):
        yield finding(
            "DLC307",
            Spot(listing.call.site.module, listing.call.call.at),
            listing.call.site.link,
            variant="" if code.role == "item" else "length",
            what=listing.what,
            dataset=code.owner,
        )


@rule("DLC308")
def pandas_row_in_getitem(code: SampleCode) -> Iterator[Finding]:
    if code.role != "item":
        return
    for lookup in pandas_lookups(code):
        variant = "scan" if lookup.scan else "beside-decoding" if code.decodes else ""
        yield finding(
            "DLC308",
            Spot(lookup.module, lookup.at),
            lookup.link,
            variant=variant,
            text=lookup.module.line(lookup.at),
            dataset=code.owner,
        )


@rule("DLC309")
def python_list_sample(loader: Loader) -> Iterator[Finding]:
    if loader.path != library.DATALOADER and not loader.path.startswith("torchdata."):
        return
    plain = [alt.world for alt in loader.option("collate_fn") if alt.is_(None)]
    batches = [alt.world for alt in loader.option("batch_size") if not alt.is_(None)]
    kinds = Kinds(loader.project.evaluator)
    for alt in loader.datasets:
        if not joint(plain, batches, [alt.world], loader.worlds()):
            continue
        loader_spot = Spot(loader.module, loader.name_at, "collated by this loader")
        if alt.dataset is not None:
            for part in list_parts(alt.dataset):
                yield finding(
                    "DLC309",
                    Spot(part.module, part.at),
                    part.link,
                    variant="tokens" if part.tokens else "",
                    related=[loader_spot],
                    text=part.text,
                    dataset=alt.dataset.name,
                )
        elif alt.made is not None and _is_tokenized(loader, kinds, alt.made):
            spot = loader_spot._replace(caption="")
            yield finding("DLC309", spot, loader.link, variant="hf", dataset="Dataset", text="")


def _is_tokenized(loader: Loader, kinds: Kinds, made: Made) -> bool:
    return made.path.startswith("datasets.") and unformatted_tokens(kinds, made) and not _is_formatted(loader)


def _is_formatted(loader: Loader) -> bool:
    """Whether the program tells some dataset to give tensors, in place."""
    words = ("set_format", "set_transform", "with_format")
    return any(
        site.expr.func.name in words
        for module in loader.project.loaded()
        for site in module.calls
        if hasattr(site.expr, "func") and hasattr(site.expr.func, "name")
    )


@rule("DLC310")
def tensor_from_ndarray_list(code: SampleCode) -> Iterator[Finding]:
    for call in code.code.calls:
        if is_list_of_arrays(code.kinds, call):
            yield finding(
                "DLC310",
                Spot(call.site.module, call.call.at),
                call.site.link,
                maker=call.path,
                text=call.site.module.line(call.call.at),
            )


@rule("DLC321")
def column_then_row_index(item: ColumnItem) -> Iterator[Finding]:
    yield finding(
        "DLC321",
        Spot(item.module, item.at),
        item.link,
        table=item.table,
        column=item.column,
        row=item.row,
    )
