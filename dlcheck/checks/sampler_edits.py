"""Fixes that give a loader a sampler: one that asks for whole batches; what such fixes have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from dlcheck import edits
from dlcheck.checks import mending
from dlcheck.checks.loader_moves import free_name
from dlcheck.checks.option_edits import Change, argument, argument_text, fix_of, remove_option, serves_several
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Edit, Fix
from dlcheck.model import library
from dlcheck.model.loaders import Loader
from dlcheck.model.scopes import dotted
from dlcheck.model.values import External, Instance, Made, Value

_PACKAGE = "torch.utils.data"
# Datasets that give a batch for a list of indices.
_BATCHED = frozenset({library.TENSOR_DATASET, f"{_PACKAGE}.Subset", f"{_PACKAGE}.random_split"})
# What a loader may be told that takes whole batches.
_OPTIONS = frozenset({"dataset", "batch_size", "shuffle", "sampler", "drop_last", "num_workers", "pin_memory"})
_DESCRIBED = re.compile(r"(?:load|dl\b)\w*(?:\[[^\]\n]*\])?\.(?:batch_size|drop_last|sampler|batch_sampler)\b")
# The samplers that a loader makes for itself, by its ``shuffle``.
_BY_SHUFFLE = {"True": "RandomSampler", "False": "SequentialSampler"}


# -- what fixes have in common


def parameters(loader: Loader) -> tuple[str, ...]:
    """The positional parameters of the loader's class."""
    return tuple(library.LOADER_CLASSES.get(loader.path, library.LOADER_PARAMETERS))


def named_dataset(loader: Loader) -> tuple[str, list[Change | Refused], list[Edit | Refused]] | Refused:
    """The name of the dataset; where it is built in the loader's call, a name that it is given above."""
    text, given = argument_text(loader, "dataset"), argument(loader, "dataset")
    if isinstance(given, forms.Sub) and isinstance(given.index, forms.Const) and dotted(given.value) is not None:
        text = loader.module.line(given.at)
    if text is not None:
        return text, [], []
    stmt, module, link = loader.link.stmt, loader.module, loader.link
    simple = isinstance(stmt, (forms.Assign, forms.Declare, forms.Return)) and stmt.value is loader.call
    name = "dataset"
    if not isinstance(given, forms.Call) or not simple or not free_name(module, link.scope, name):
        return Refused("the dataset has no name that its sampler could be given, too")
    start, end = module.facts.span(given.at)
    above = mending.insert_before(module.source, module.facts, link, [f"{name} = {module.source.text[start:end]}"])
    step = partial(edits.set_argument, name="dataset", value=name, order=parameters(loader))
    return name, [Change(module, loader.call, step)], [above]


def samplers_of(loader: Loader, names: Sequence[str]) -> tuple[list[str], list[Edit | Refused]]:
    """How the loader's module calls samplers of torch: as it calls the loader."""
    func, project = loader.call.func, loader.project
    if isinstance(func, forms.Attr):
        values = list(project.evaluator.values(func.value, loader.ref.point))
        if values and all(isinstance(value, External) and value.path == _PACKAGE for value in values):
            return [f"{loader.module.line(func.value.at)}.{name}" for name in names], []
    homes = ("torch.utils.data.distributed", "torch.utils.data.sampler")
    return mending.imported_names(loader.module, _PACKAGE, names, homes, loader.link)


# -- whole batches


def indexed_by_batch(loader: Loader) -> Fix | Refused:
    """``sampler=BatchSampler(...)`` and ``batch_size=None``: the dataset is asked for a whole batch at once."""
    reason = _obstacle(loader)
    if reason:
        return Refused(reason)
    named, line = named_dataset(loader), _sampler_line(loader)
    if isinstance(named, Refused):
        return named
    if isinstance(line, Refused):
        return line
    own = re.fullmatch(r"(\w+_)(?:data_?)?loader", loader.name)
    names = (f"{own[1] if own else ''}sampler", "sampler", "batches")
    name = next((name for name in names if free_name(loader.module, loader.link.scope, name)), "")
    if not name:
        return Refused("the sampler has no name that is free")
    dataset, changes, above = named
    text, imports = line
    text = f"{name} = {text.format(dataset=dataset)}"
    above.append(mending.insert_before(loader.module.source, loader.module.facts, loader.link, [text]))
    for option in ("shuffle", "drop_last"):
        if argument(loader, option) is not None:
            changes.append(remove_option(loader, loader.option(option)[0], option))
    for option, value in (("batch_size", "None"), ("sampler", name)):
        step = partial(edits.set_argument, name=option, value=value, order=parameters(loader))
        changes.append(Change(loader.module, loader.call, step))
    return fix_of("unsafe", "Ask for whole batches, with a `BatchSampler`", changes, [*_joined(above), *imports])


def _sampler_line(loader: Loader) -> tuple[str, list[Edit | Refused]] | Refused:
    """What makes the sampler of batches, with ``{dataset}`` for its dataset, and the imports that it takes."""
    size = argument_text(loader, "batch_size")
    if size is None:
        return Refused("the batch size is not said in the call")
    drops: str | None = "False"
    if argument(loader, "drop_last") is not None:
        drops = argument_text(loader, "drop_last")
    if drops is None:
        return Refused("`drop_last` is computed in the call")
    rows = _rows(loader)
    if isinstance(rows, Refused):
        return rows
    made = rows in _BY_SHUFFLE.values()
    names, imports = samplers_of(loader, ["BatchSampler", *([rows] if made else [])])
    inner = f"{names[1]}({{dataset}})" if made else rows
    return f"{names[0]}({inner}, batch_size={size}, drop_last={drops})", imports


def _rows(loader: Loader) -> str | Refused:
    """The sampler of single rows: the name of a class of torch, or what the loader is given."""
    sampler = argument(loader, "sampler")
    if sampler is not None and not all(option.is_(None) for option in loader.option("sampler")):
        text = argument_text(loader, "sampler")
        return text if text is not None else Refused("the sampler is made in the call")
    shuffle = "False" if argument(loader, "shuffle") is None else argument_text(loader, "shuffle")
    return _BY_SHUFFLE.get(shuffle or "", Refused("`shuffle` is not the same in all runs"))


def _joined(above: Sequence[Edit | Refused]) -> list[Edit | Refused]:
    """Lines above one statement as one edit."""
    made = [edit for edit in above if isinstance(edit, Edit)]
    if len(made) != len(above) or len(made) < 2:
        return list(above)
    return [Edit(made[0].place, "".join(edit.replacement for edit in made))]


def _obstacle(loader: Loader) -> str:
    """Why the loader cannot be asked for whole batches, if anything stands in the way."""
    stmt = loader.link.stmt
    if not isinstance(stmt, (forms.Assign, forms.Declare, forms.Return)) or stmt.value is not loader.call:
        return "the loader is built inside of a larger statement"
    if serves_several(loader) or not isinstance(loader.ref.maker, External) or loader.path != library.DATALOADER:
        return "others build such loaders, too"
    plain = [arg for arg in loader.call.args if arg.name is None]
    names = {arg.name for arg in loader.call.args if arg.name is not None} | set(parameters(loader)[: len(plain)])
    if any(arg.star for arg in loader.call.args) or not names <= _OPTIONS:
        return "the loader has options that may not go together with a sampler of batches"
    if not all(map(_gives_batches, (option.value for option in loader.option("dataset")))):
        return "the dataset may not give a batch for a list of indices"
    if any(_DESCRIBED.search(module.source.text) for module in loader.project.loaded()):
        return "the batch size or the sampler of a loader is asked for"
    return ""


def _gives_batches(dataset: Value) -> bool:
    if isinstance(dataset, Made):
        return dataset.path.removesuffix("[]").removesuffix("()") in _BATCHED
    return isinstance(dataset, Instance)
