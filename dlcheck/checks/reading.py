"""Rules about how a dataset reads its files and tables, and what it makes samples of."""

from __future__ import annotations

from collections.abc import Iterator

from dlcheck import edits
from dlcheck.checks import mending
from dlcheck.checks.listing_edits import listed_once
from dlcheck.checks.registry import facts, rule
from dlcheck.checks.report import Spot, finding, joint, make_fix
from dlcheck.checks.table_edits import columns_taken_out
from dlcheck.checks.whole_file_edits import read_once
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Finding, Fix
from dlcheck.model import library
from dlcheck.model.data.kinds import ARRAY, ENCODING, Kinds, list_of
from dlcheck.model.data.list_samples import ListPart, is_list_of_arrays, list_parts, unformatted_tokens
from dlcheck.model.data.reading import repeated_listings, repeated_reads
from dlcheck.model.data.sample_code import SampleCode, sample_codes
from dlcheck.model.data.tables import ColumnItem, column_items, pandas_lookups
from dlcheck.model.datasets import DatasetClass
from dlcheck.model.flow import links_of
from dlcheck.model.loaders import Loader
from dlcheck.model.scopes import Link, Site, descend, expressions, last_name
from dlcheck.model.values import Made
from dlcheck.model.workers import WorkerCall

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
            fix=read_once(code, read),
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
            fix=listed_once(code, listing),
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
            fix=_LITTLE if variant == "beside-decoding" else columns_taken_out(code.project, lookup),
            text=lookup.module.line(lookup.at),
            dataset=code.owner,
        )


_LITTLE = Refused("beside the file that it reads, little would be gained")


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
                    fix=_as_tensor(alt.dataset, part),
                    text=part.text,
                    dataset=alt.dataset.name,
                )
        elif alt.made is not None and _is_tokenized(loader, kinds, alt.made):
            spot = loader_spot._replace(caption="")
            yield finding("DLC309", spot, loader.link, variant="hf", fix=_HF, dataset="Dataset", text="")


_HF = Refused('`.with_format("torch")` also says which columns become tensors')


def _as_tensor(dataset: DatasetClass, part: ListPart) -> Fix | Refused:
    module = part.module
    if part.link.scope.owner not in dataset.project.lineage(dataset.cls):
        return Refused("the list is made in a function that others may call, too")
    torch, added = mending.alias_of(module, "torch", "torch", part.link)
    expr = next((expr for root in expressions(part.link.stmt) for expr in descend(root) if expr.at == part.at), None)
    if expr is None:
        return Refused("it is not known where the list is given")
    project = dataset.project
    if Kinds(project.evaluator).of(expr, project.point(Site(expr, part.link, None))) == ENCODING:
        return Refused("a tokenizer gives several lists at once: `return_tensors` says what it makes of them")
    change = mending.wrap(module.source, module.facts, expr, f"{torch}.tensor(")
    return make_fix("unsafe", "Make it a tensor", [change, *added])


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
                fix=_of_one_array(code, call),
                maker=call.path,
                text=call.site.module.line(call.call.at),
            )


def _of_one_array(code: SampleCode, call: WorkerCall) -> Fix | Refused:
    """The arrays become one array first; then a tensor of it, which is one copy of memory."""
    module, form = call.site.module, call.call
    first = form.args[0].value
    numpy, added = mending.alias_of(module, "numpy", "np", call.site.link)
    # Of nothing `stack` makes an error; `array` makes an array, though of another type.
    made = _where_made(first, call.site.link)
    flat = code.kinds.of(first, call.point) == list_of(ARRAY) and _has_items(code, call, made)
    whole = (
        call.path in ("torch.tensor", "torch.as_tensor") and len(form.args) == 1 and isinstance(form.func, forms.Attr)
    )
    change = mending.wrap(module.source, module.facts, first, f"{numpy}.{'stack' if flat else 'array'}(")
    changes: list[Edit | Refused] = [change, *added]
    if flat and whole and isinstance(form.func, forms.Attr):
        start, end = module.facts.span(form.func.name_at)
        changes.append(Edit(module.source.place(start, end), "from_numpy"))
    alike = flat and isinstance(made, forms.Comp) and _has_type(made.value)
    return make_fix("safe" if alike else "unsafe", "Make one array of them first", changes)


def _where_made(expr: forms.Expr, link: Link) -> forms.Expr:
    """The expression that makes a list: the only one that its name is bound to, where it has a name."""
    if isinstance(expr, forms.Name):
        bound = [other.stmt for other in links_of(link.scope) if expr.id in other.changes and not other.blocks]
        stmt = bound[0] if len(bound) == 1 else None
        if isinstance(stmt, forms.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], forms.Name):
            return stmt.value
    return expr


def _has_items(code: SampleCode, call: WorkerCall, made: forms.Expr) -> bool:
    """Whether a list is never empty: some items are written, or there is one for each sample of a batch."""
    if isinstance(made, forms.Sequence):
        return any(not isinstance(item, forms.Star) for item in made.items)
    if not isinstance(made, forms.Comp) or len(made.clauses) != 1 or made.clauses[0].ifs:
        return False
    given, scope = made.clauses[0].iter, call.site.link.scope
    if isinstance(given, forms.Sequence):
        return any(not isinstance(item, forms.Star) for item in given.items)
    if code.role != "collate" or not code.code.frames or code.code.frames[0][0].scope is not scope:
        return False
    params = [param.name for param in scope.function.params if param.kind in ("positional", "normal")]
    batch = params[1 if scope.owner is not None and not scope.has_decorator("staticmethod") else 0 :][:1]
    if not isinstance(given, forms.Name) or [given.id] != batch:
        return False
    return not any(given.id in link.changes for link in links_of(scope))


def _has_type(expr: forms.Expr) -> bool:
    """Whether an expression makes arrays of the same type each time: one that it names."""
    if isinstance(expr, forms.Binary):
        number = isinstance(expr.right, forms.Const) and isinstance(expr.right.value, (int, float))
        return number and _has_type(expr.left)
    if isinstance(expr, forms.Sub):
        return _has_type(expr.value)
    if isinstance(expr, forms.Attr):
        return expr.name == "T" and _has_type(expr.value)
    if not isinstance(expr, forms.Call):
        return False
    if any(arg.name == "dtype" and not (isinstance(arg.value, forms.Const) and arg.value.value is None)
           for arg in expr.args) or last_name(expr.func) in ("astype", "float32", "zeros", "ones"):  # fmt: skip
        return True
    kept = last_name(expr.func) in ("transpose", "copy", "reshape", "squeeze", "flatten", "swapaxes", "clip")
    return kept and isinstance(expr.func, forms.Attr) and _has_type(expr.func.value)


@rule("DLC321")
def column_then_row_index(item: ColumnItem) -> Iterator[Finding]:
    yield finding(
        "DLC321",
        Spot(item.module, item.at),
        item.link,
        fix=_row_first(item),
        table=item.table,
        column=item.column,
        row=item.row,
    )


def _row_first(item: ColumnItem) -> Fix | Refused:
    text = f"{item.table}[{item.row}][{item.column}]"
    if "#" in text:
        return Refused("a comment stands in the way")
    change = edits.replace(item.module.source, item.module.facts, item.at, text)
    return make_fix("unsafe", "Take the row first", [change])
