"""Fixes at the top of the loop that counts the epochs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from dlcheck import edits
from dlcheck.checks import mending, moving
from dlcheck.checks.report import make_fix
from dlcheck.edits import Refused
from dlcheck.facts import forms
from dlcheck.findings import Fix
from dlcheck.model import library
from dlcheck.model.flow import links_in
from dlcheck.model.loops import BatchLoop
from dlcheck.model.project import Project
from dlcheck.model.randomness.reseeding import Reseed
from dlcheck.model.randomness.samplers import DistributedSampler
from dlcheck.model.randomness.seeding import seed_argument
from dlcheck.model.scopes import Link, descend, dotted, expressions, last_name
from dlcheck.model.values import Const, LoaderRef, Made, Point, Value


def tell_epoch(sampler: DistributedSampler, loop: BatchLoop) -> Fix | Refused:
    """``sampler.set_epoch(epoch)`` at the top of the loop over epochs, if need be by way of the loader."""
    counting = [(link, name) for link in loop.repeated_by() if (name := counter(link))]
    if not counting:
        return Refused("no variable counts the epochs of the loop")
    for link, epoch in counting:
        for name, guard in (*_by_name(sampler, link), *_by_loader(sampler, link, loop)):
            call = f"{name}.set_epoch({epoch})"
            lines = [guard, f"{moving.unit(link.scope.module)}{call}"] if guard else [call]
            module = link.scope.module
            edit = moving.insert_first(module.source, module.facts, link, lines)
            return make_fix("unsafe", f"Call `{call}`", [edit])
    return Refused("neither the sampler nor its loader has a name where the epochs are counted")


def counter(link: Link) -> str:
    """The variable that counts the rounds of a loop: ``epoch`` of ``for epoch in tqdm(range(epochs))``."""
    stmt = link.stmt
    if not isinstance(stmt, forms.For) or not isinstance(stmt.target, forms.Name) or stmt.target.id == "_":
        return ""
    calls = [part for part in descend(stmt.iter) if isinstance(part, forms.Call)]
    wrapped = {"range", "trange", "tqdm", "count", "track", "trackbar", "len", "int", "max", "min"}
    counts = any(last_name(call.func) in ("range", "trange", "count") for call in calls)
    outer = isinstance(stmt.iter, forms.Call) and last_name(stmt.iter.func) in wrapped - {"len", "int", "max", "min"}
    return stmt.target.id if counts and outer else ""


def _by_name(sampler: DistributedSampler, link: Link) -> Iterator[tuple[str, str]]:
    """The name of a sampler before a loop of its own function, and the question whether it is one."""
    stmt = sampler.link.stmt
    if not isinstance(stmt, forms.Assign) or sampler.link.scope is not link.scope:
        return
    name = dotted(stmt.targets[0])
    if name is None or "." in name or name in link.changes:
        return
    ev = sampler.loader.project.evaluator
    values = [alt.value for alt in ev.before(link.block, link.index, name, ev.any_frame(link.scope))]
    if all(map(_is_distributed, values)):
        yield name, ""
    elif all(_is_distributed(value) or value == Const(None) for value in values):
        yield name, f"if {name} is not None:"


def _is_distributed(value: Value) -> bool:
    return isinstance(value, Made) and value.path == library.DISTRIBUTED_SAMPLER


def _by_loader(sampler: DistributedSampler, link: Link, loop: BatchLoop) -> Iterator[tuple[str, str]]:
    """The sampler as an attribute of the loader that a loop mentions."""
    loader = sampler.loader
    inside = any(option.given and not option.is_(None) for option in loader.option("batch_sampler"))
    attribute = "batch_sampler.sampler" if inside else "sampler"
    samplers = [option.value for option in loader.option("batch_sampler" if inside else "sampler")]
    always = len(samplers) == 1 if inside else all(map(_is_distributed, samplers))
    names = _names_of(loader.project, loader.ref, link, links_in(link))
    if link.scope.owner is not None and loop.link.scope.owner is link.scope.owner:
        own = _names_of(loader.project, loader.ref, link, [loop.link])
        names = chain(names, (name for name in own if name.startswith("self.")))
    for name in names:
        handle = f"{name}.{attribute}"
        yield handle, "" if always else f'if hasattr({handle}, "set_epoch"):'


def _names_of(project: Project, ref: LoaderRef, loop: Link, places: Iterable[Link]) -> Iterator[str]:
    """The names that statements give a loader which is built outside a loop."""
    ev = project.evaluator
    for link in places:
        frame = ev.any_frame(link.scope)
        for expr in (part for root in expressions(link.stmt) for part in descend(root)):
            name = dotted(expr)
            if name is None or name in loop.changes or name.partition(".")[0] in loop.changes - {"self"}:
                continue
            values = list(ev.values(expr, Point(frame, link)))
            if values and all(isinstance(one, LoaderRef) and one.args.call is ref.args.call for one in values):
                yield name


def seed_by_epoch(reseed: Reseed) -> Fix | Refused:
    """``seed + epoch``; where no variable counts the epochs, the seeding above their loop."""
    module, loop, link = reseed.module, reseed.loop, reseed.link
    source, facts = module.source, module.facts
    if link.scope is not loop.scope:
        return Refused("the function that seeds does not know the epoch")
    call = next((site.expr for site in module.calls_in(link) if site.expr.at == reseed.at), None)
    assert isinstance(call, forms.Call)
    epoch = counter(loop)
    seed = seed_argument(call) or (call.args[0].value if len(call.args) == 1 and not call.args[0].star else None)
    if epoch and seed is not None:
        if isinstance(seed, forms.Const) and seed.value == 0:
            return make_fix("unsafe", f"Seed with `{epoch}`", [edits.replace(source, facts, seed.at, epoch)])
        added = mending.add_operator(source, facts, seed, f" + {epoch}")
        return make_fix("unsafe", f"Add `{epoch}` to the seed", [added])
    if link.parent is not loop:
        return Refused("it stands in a block inside the loop")
    return make_fix("unsafe", "Seed once, above the loop", moving.hoist(source, facts, [link], loop))
