"""The default device: what ``torch.set_default_device`` does to loaders, whose samplers count on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.loaders import OptionAlt
from dlcheck.model.scopes import Link, Module, last_name
from dlcheck.model.transfers import device_kinds
from dlcheck.model.values import Const, External, Made, Point, Thunk
from dlcheck.model.worlds import ANY, World, product

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

_SETTERS = ("torch.set_default_device", "torch.set_default_tensor_type")


class DefaultDevice(NamedTuple):
    """A call that makes a GPU the device on which new tensors are put, and the worlds in which it does."""

    module: Module
    at: int
    link: Link
    worlds: list[World]

    @property
    def text(self) -> str:
        return self.module.line(self.at)


def gpu_defaults(loader: Loader) -> list[DefaultDevice]:
    """The calls of a loader's program that make a GPU the default; none where another call takes it back."""
    project = loader.project
    found: list[DefaultDevice] = []
    others: list[World] = []
    for module in _program(loader):
        calls = module.calls_by_name
        for site in (*calls.get("set_default_device", ()), *calls.get("set_default_tensor_type", ())):
            call = site.expr
            assert isinstance(call, forms.Call)
            point = project.point(site)
            paths = [value.path for value in project.evaluator.values(call.func, point) if isinstance(value, External)]
            if not any(path in _SETTERS for path in paths):
                continue
            gpu = _gpu_worlds(project.evaluator, call, point)
            guards = project.evaluator.guards(site.link, point.frame)
            if gpu:
                found.append(DefaultDevice(module, call.at, site.link, list(product(gpu, guards))))
            else:
                others += guards
    # What another branch of the same condition sets takes nothing back.
    return [default for default in found if not any(True for _ in product(default.worlds, others))]


def _program(loader: Loader) -> list[Module]:
    """The modules of the programs that a loader is part of: those that it imports, and those that import it."""
    project: Project = loader.project
    project.mention("set_default_")
    near = {loader.module, *(loop.module for loop in loader.loops)}
    program = set(near)
    for module in near:
        program |= project.imports.neighbours(module)
    program |= {module for module in project.loaded() if project.imports.neighbours(module) & near}
    return [module for module in project.loaded() if module in program]


def _gpu_worlds(ev: Evaluator, call: forms.Call, point: Point) -> list[World]:
    args = calling.arguments(call, point)
    thunk = calling.argument(args, "device", 0) or calling.keyword(args, "t")
    if thunk is None:
        return []
    if last_name(call.func) == "set_default_device":
        return [world for kind, world in device_kinds(ev, thunk) if kind in ("cuda", "mps")]
    return [
        world
        for value, world in ev.force(thunk)
        if isinstance(value, External)
        and value.path.startswith("torch.cuda.")
        or isinstance(value, Const)
        and isinstance(value.value, str)
        and value.value.startswith("torch.cuda.")
    ]


def generators_on(loader: Loader, wanted: str) -> list[OptionAlt]:
    """The alternatives for a loader's ``generator=`` that are generators on a "cuda" or "cpu" device."""
    ev = loader.project.evaluator
    out = []
    for option in loader.option("generator"):
        made = option.value
        if isinstance(made, Made) and made.path == "torch.Generator().manual_seed" and isinstance(made.base, Made):
            made = made.base
        if not isinstance(made, Made) or made.path != "torch.Generator" or made.args is None:
            continue
        for kind, world in _generator_kinds(ev, calling.argument(made.args, "device", 0)):
            both = option.world.merge(world)
            if kind == wanted and both is not None:
                out.append(option._replace(world=both))
    return out


def _generator_kinds(ev: Evaluator, device: Thunk | None) -> Iterator[tuple[str, World]]:
    if device is None:
        yield "cpu", ANY
    else:
        yield from device_kinds(ev, device)


def draws_on_cpu(loader: Loader) -> list[World]:
    """The worlds in which a loader shuffles with a CPU generator of torch's own making."""
    plain = [option.world for option in loader.option("generator") if option.is_(None)]
    shuffled = [option.world for option in loader.option("shuffle") if option.truthy]
    shuffled += [option.world for option in loader.option("sampler") if _is_random_sampler(option)]
    return list(product(plain, shuffled))


def _is_random_sampler(option: OptionAlt) -> bool:
    made = option.value
    if not isinstance(made, Made) or library.canonical(made.path) != "torch.utils.data.RandomSampler":
        return False
    return made.args is not None and calling.argument(made.args, "generator", 3) is None and not made.args.spreads
