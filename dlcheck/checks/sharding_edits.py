"""Fixes that share a data set out among the ranks of a distributed training."""

from __future__ import annotations

from functools import partial

from dlcheck import edits
from dlcheck.checks.option_edits import (
    Change,
    alone,
    argument_text,
    fix_of,
    remove_option,
    serves_several,
    set_in_call,
    siblings,
)
from dlcheck.checks.sampler_edits import named_dataset, parameters, samplers_of
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Fix
from dlcheck.model.flow import earlier_in_function
from dlcheck.model.loaders import Loader
from dlcheck.model.loops import BatchLoop, calls_within, loops_of_constructor
from dlcheck.model.project import Project
from dlcheck.model.randomness.replicas import Replica, may_be_single
from dlcheck.model.scopes import Link, Scope, last_name
from dlcheck.model.training.evaluation import goes_backward
from dlcheck.model.values import Const

_SAMPLER = "DistributedSampler"
# Without these no process knows its rank, and the sampler's constructor raises.
_JOINING = frozenset({"init_process_group", "DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"})


def shared_out(loader: Loader, loop: BatchLoop, replica: Replica) -> Fix | Refused:
    """``sampler=DistributedSampler(dataset)`` in the place of ``shuffle=True``."""
    reason = _obstacle(loader, loop, replica)
    if reason:
        return Refused(reason)
    named, order = named_dataset(loader), _order(loader)
    if isinstance(named, Refused):
        return named
    if isinstance(order, Refused):
        return order
    dataset, changes, above = named
    shuffle, removal = order
    changes += removal
    (name,), imports = samplers_of(loader, [_SAMPLER])
    value = f"{name}({dataset}{shuffle})"
    sampler = loader.option("sampler")[0]
    if sampler.given:
        changes.append(alone(set_in_call(loader, sampler, "sampler", value)))
    else:
        step = partial(edits.add_argument, name="sampler", value=value, order=parameters(loader))
        changes.append(Change(loader.module, loader.call, step))
    also = ", and remove `shuffle`" if removal else ""
    return fix_of("unsafe", f"Pass `sampler={value}`{also}", changes, [*above, *imports])


# -- what stands in the way


def _obstacle(loader: Loader, loop: BatchLoop, replica: Replica) -> str:
    """Why the loader cannot simply be given a sampler, if anything stands in the way."""
    project = loader.project
    everywhere = [one for other in siblings(loader) for one in other.loops]
    if serves_several(loader) or not all(map(goes_backward, everywhere)):
        return "the loader serves others than this training"
    if any(True for _ in loops_of_constructor(project, loader.ref, loop.world)):
        return "the loader is built anew in each round of a loop: its sampler would not know the epoch"
    if _is_conditional(project, replica, loader) or may_be_single(loop, loader.worlds()):
        return "in some runs there is one process only, in which a sampler cannot be made"
    if not _knows_ranks(project, loader.link):
        return "it is not certain that the process group is there before the loader is built"
    return ""


def _is_conditional(project: Project, replica: Replica, loader: Loader) -> bool:
    """Whether the network is wrapped in a branch in which the loader is not built."""
    link = project.link_at(replica.module, replica.at)
    around = {id(outer) for outer in loader.link.outer()}
    return any(isinstance(outer.stmt, (forms.If, forms.Match)) and id(outer) not in around for outer in link.outer())


def _knows_ranks(project: Project, link: Link) -> bool:
    """Whether the process has joined the others before a statement, as far as its callers are known."""
    joining = _JOINING | {
        alias.bound
        for module in project.loaded()
        for stmt, _ in module.imports
        if isinstance(stmt, forms.ImportFrom)
        for alias in stmt.aliases
        if alias.name in _JOINING
    }
    seen: set[Scope] = set()
    while link.scope not in seen:
        seen.add(link.scope)
        for earlier in earlier_in_function(link):
            if any(last_name(call.func) in joining for call in calls_within(project, earlier)):
                return True
        callers = project.callers.of(link.scope) if link.scope.kind == "function" else []
        if len(callers) != 1:
            return False
        link = callers[0][1].link
    return False


# -- what is written


def _order(loader: Loader) -> tuple[str, list[Change | Refused]] | Refused:
    """The sampler's own ``shuffle`` for that of the loader, and how the loader loses it."""
    given = {(option.module, option.at): option for option in loader.option("shuffle")}
    if len(given) != 1:
        return Refused("several values of `shuffle` are possible")
    (option,) = given.values()
    if not option.given:
        return ", shuffle=False", []
    removed = alone(remove_option(loader, option, "shuffle"))
    text = argument_text(loader, "shuffle")
    if text is None and isinstance(option.value, Const):
        text = str(bool(option.value.value)) if isinstance(removed, Change) else None
    if text is None:
        return Refused("`shuffle` is computed")
    return "" if text == "True" else f", shuffle={text}", [removed]
