"""Rules about which samples come, how often, and in what order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dlcheck.checks.epoch_edits import tell_epoch
from dlcheck.checks.option_edits import (
    Change,
    alone,
    argument,
    argument_text,
    fix_of,
    remove_option,
    rename_in_call,
    set_in_call,
    siblings,
)
from dlcheck.checks.registry import rule
from dlcheck.checks.report import Spot, elsewhere, finding, joint, provenance, written
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Finding, Fix
from dlcheck.model import library
from dlcheck.model.conditions import is_object
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.randomness.batch_samplers import NestedBatches, nested_batches, plain_batches, yields_batches
from dlcheck.model.randomness.samplers import distributed_samplers
from dlcheck.model.randomness.sharding import shares_out
from dlcheck.model.scopes import Scope
from dlcheck.model.values import Const, Value


@rule("DLC401")
def unsharded_iterable(loader: Loader) -> Iterator[Finding]:
    for alt in loader.datasets:
        dataset = alt.dataset
        if dataset is None or not dataset.is_iterable or shares_out(loader, dataset):
            continue
        method = loader.project.method(dataset.cls, "__iter__")
        for workers in loader.option("num_workers"):
            value = workers.value
            if method is None or method.link is None or not _at_least_two(value):
                continue
            if joint([alt.world], [workers.world], loader.worlds()):
                yield finding(
                    "DLC401",
                    Spot(method.module, method.function.name_at),
                    method.link,
                    related=[written(workers, loader)._replace(caption="with these workers"), *provenance(value)],
                    dataset=dataset.name,
                    workers=value.value if isinstance(value, Const) else "several",
                )
                break


def _at_least_two(value: Value) -> bool:
    return isinstance(value, Const) and isinstance(value.value, int) and value.value >= 2


@rule("DLC410")
def missing_set_epoch(loader: Loader) -> Iterator[Finding]:
    if loader.framework:
        return
    for sampler in distributed_samplers(loader):
        if sampler.has_set_epoch():
            continue
        training = any(loop.trains() or loop.feeds_training() for loop in loader.loops)
        for loop in loader.loops if training else ():
            if not loop.direct or loop.framework or not loop.repeated_by():
                continue
            if joint([loop.world], [sampler.world], loader.worlds()):
                yield finding(
                    "DLC410",
                    Spot(sampler.module, sampler.name_at),
                    sampler.link,
                    related=[Spot(loop.module, loop.link.head, "iterated anew in each epoch here")],
                    fix=tell_epoch(sampler, loop),
                    sampler=sampler.name,
                )
                break


@rule("DLC411")
def exclusive_sampling_options(loader: Loader) -> Iterator[Finding]:
    if loader.path != library.DATALOADER and not loader.path.startswith("torchdata."):
        return
    yield from _conflicts(loader)
    yield from _iterable_conflicts(loader)


_EXCLUSIVE = (
    ("shuffle", "sampler", "a sampler decides the order itself"),
    ("batch_sampler", "batch_size", "a batch sampler decides what is in a batch"),
    ("batch_sampler", "shuffle", "a batch sampler decides what is in a batch"),
    ("batch_sampler", "sampler", "a batch sampler decides what is in a batch"),
    ("batch_sampler", "drop_last", "a batch sampler decides what is in a batch"),
)


def _conflicts(loader: Loader) -> Iterator[Finding]:
    for first, second, why in _EXCLUSIVE:
        for one in loader.option(first):
            if not _is_set(first, one):
                continue
            for other in loader.option(second):
                if _is_set(second, other) and joint([one.world], [other.world], loader.worlds()):
                    spot, also = (one, other) if first == "shuffle" else (other, one)
                    options = f"`{_text(first, one)}` and `{_text(second, other)}`"
                    name = "shuffle" if first == "shuffle" else second
                    yield _exclusive(loader, name, spot, [also], options, why)
                    break
    for size in loader.option("batch_size"):
        for drop in loader.option("drop_last"):
            if size.given and size.is_(None) and drop.is_(True) and joint([size.world], [drop.world], loader.worlds()):
                why = "without batches there is no last one to drop"
                yield _exclusive(loader, "drop_last", drop, [size], "`batch_size=None` and `drop_last=True`", why)


def _iterable_conflicts(loader: Loader) -> Iterator[Finding]:
    iterable = [alt.world for alt in loader.datasets if alt.dataset is not None and alt.dataset.is_iterable]
    iterable += [alt.world for alt in loader.datasets if alt.path == library.ITERABLE_DATASET]
    if not iterable:
        return
    for name in ("shuffle", "sampler", "batch_sampler"):
        for option in loader.option(name):
            if _is_set(name, option) and joint([option.world], iterable, loader.worlds()):
                why = "an iterable dataset decides the order itself"
                yield _exclusive(loader, name, option, [], f"`{_text(name, option)}` with an `IterableDataset`", why)
                break


def _is_set(name: str, option: OptionAlt) -> bool:
    """Whether an option has a value that torch takes for a choice of the user's."""
    if not option.given:
        return False
    if name == "batch_size":
        return isinstance(option.value, Const) and option.value.value != 1
    if name in ("shuffle", "drop_last"):
        return option.is_(True)
    return is_object(option.value) and not isinstance(option.value, Const)


def _text(name: str, option: OptionAlt) -> str:
    return f"{name}={option.value.value!r}" if isinstance(option.value, Const) else name


def _exclusive(
    loader: Loader, name: str, option: OptionAlt, others: list[OptionAlt], options: str, why: str
) -> Finding:
    spot = written(option, loader)
    related = elsewhere(option, loader, "set here")
    for other in others:
        related += elsewhere(other, loader, "excluded by this") or [
            written(other, loader)._replace(caption="excluded by this")
        ]
    return finding(
        "DLC411",
        spot,
        loader.project.link_at(spot.module, spot.at),
        related=[*related, *provenance(option.value)],
        fix=_one_of_them(loader, name, option, others),
        options=options,
        why=why,
    )


def _alternatives(loader: Loader, name: str) -> set[OptionAlt]:
    return {alt for other in siblings(loader) for alt in other.option(name)}


def _may_be_none(loader: Loader, name: str) -> bool:
    """Whether some run, or a caller that is not seen, gives no sampler."""
    if any(alt.is_(None) for alt in _alternatives(loader, name)):
        return True
    given = argument(loader, name)
    if isinstance(given, forms.Name):
        return _defaults_to_none(loader.link.scope, given.id)
    if not isinstance(given, forms.Attr):
        return False
    stores = [store for module in loader.project.loaded() for store in module.stores if store.target.name == given.name]
    values = [(store.value, store.link.scope) for store in stores]
    return any(isinstance(value, forms.Name) and _defaults_to_none(scope, value.id) for value, scope in values)


def _defaults_to_none(scope: Scope, name: str) -> bool:
    params = (param for param in scope.function.params if param.name == name)
    return any(isinstance(param.default, forms.Const) and param.default.value is None for param in params)


def _one_of_them(loader: Loader, name: str, option: OptionAlt, others: list[OptionAlt]) -> Fix | Refused:
    """The option that is excluded goes; ``shuffle`` stays for a sampler that may be ``None``."""
    if name == "batch_sampler":
        return Refused("without it each batch would be one sample: give a `batch_size` instead")
    excluding = next((one for one in ("sampler", "batch_sampler") if set(others) & _alternatives(loader, one)), "")
    if excluding and name != excluding and _may_be_none(loader, excluding):
        text = argument_text(loader, excluding)
        if name != "shuffle" or text is None:
            return Refused(f"only some of the samplers exclude `{name}`")
        change = set_in_call(loader, option, name, f"{text} is None")
        if isinstance(change, Change):
            change = change._replace(shared=False)  # who gives no sampler still shuffles
        return fix_of("safe", f"Set `shuffle={text} is None`", [change])
    return fix_of("unsafe", f"Remove `{name}`", [alone(remove_option(loader, option, name))])


@rule("DLC424")
def batch_sampler_as_sampler(loader: Loader) -> Iterator[Finding]:
    if loader.path != library.DATALOADER and not loader.path.startswith("torchdata."):
        return
    for nested in islice(_nested(loader), 1):
        spot = written(nested.option, loader)
        made = [Spot(point.module, at, "made here") for point, at in nested.made_at if at != spot.at]
        yield finding(
            "DLC424",
            spot,
            loader.project.link_at(spot.module, spot.at),
            related=[*elsewhere(nested.option, loader, "set here"), *made, *provenance(nested.size.value)],
            fix=_as_batch_sampler(loader, nested),
            sampler=nested.name,
        )


def _nested(loader: Loader) -> Iterator[NestedBatches]:
    for nested in nested_batches(loader):
        if joint([nested.option.world], [nested.size.world], *plain_batches(loader), loader.worlds()):
            yield nested


def _as_batch_sampler(loader: Loader, nested: NestedBatches) -> Fix | Refused:
    """The sampler decides what is in a batch, and what it excludes goes."""
    batched = all(yields_batches(loader.project, alt.value) for alt in _alternatives(loader, "sampler"))
    if not batched or not all(any(_nested(other)) for other in siblings(loader)):
        return Refused("only some callers give it batches as samples")
    excluded = [("batch_size", nested.size)]
    excluded += [("drop_last", drop) for drop in loader.option("drop_last") if drop.given and not drop.is_(False)]
    removed = [remove_option(loader, option, name) for name, option in excluded]
    renamed = rename_in_call(loader, nested.option, "sampler", "batch_sampler")
    # All that call the constructor here are mended by one change there; what is set elsewhere may serve another.
    own = [change if isinstance(change, Change) and change.form is loader.call else alone(change) for change in removed]
    return fix_of("unsafe", "Give it as `batch_sampler`", [renamed, *own])
