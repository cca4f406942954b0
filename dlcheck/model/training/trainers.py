"""Trainers of Hugging Face: what their arguments say of loading, and what Accelerate moves how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.call_sites import CallSite, called_name_at
from dlcheck.model.data import samples
from dlcheck.model.datasets import unwrapped
from dlcheck.model.loaders import OptionAlt, argument
from dlcheck.model.scopes import Link, Module, Site, last_name
from dlcheck.model.values import (
    UNKNOWN,
    Alt,
    Arguments,
    Bound,
    Const,
    External,
    Func,
    Instance,
    LambdaFunc,
    LoaderRef,
    Made,
    Managed,
    Point,
    Value,
)
from dlcheck.model.workers import WorkerCode, worker_code
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

# Arguments of trainers, by library: what they mean is the same in all.
_ARGUMENTS = frozenset(
    {"TrainingArguments", "Seq2SeqTrainingArguments", "SentenceTransformerTrainingArguments",
     "CrossEncoderTrainingArguments", "SparseEncoderTrainingArguments", "GaudiTrainingArguments", "SFTConfig",
     "DPOConfig", "GRPOConfig", "RewardConfig", "PRMConfig", "KTOConfig", "ORPOConfig", "CPOConfig", "BCOConfig",
     "RLOOConfig", "GKDConfig", "OnlineDPOConfig", "NashMDConfig", "XPOConfig"}
)  # fmt: skip
_LIBRARIES = ("transformers.", "trl.", "sentence_transformers.", "optimum.")

DEFAULTS: dict[str, object] = {
    "dataloader_num_workers": 0,
    "dataloader_persistent_workers": False,
    "dataloader_prefetch_factor": None,
    "dataloader_pin_memory": True,
    "num_train_epochs": 3.0,
    "max_steps": -1,
}

# Where these are set there is no GPU of CUDA's, or nobody knows which.
_NO_GPU = ("use_cpu", "no_cuda", "use_mps_device")


class Work(NamedTuple):
    """What the samples or batches of a trainer cost: the function, who calls it, where, in which world."""

    what: str
    owner: str
    module: Module
    at: int
    world: World


@dataclass(eq=False)
class TrainerArguments(CallSite):
    """A call of ``TrainingArguments`` or of a configuration that derives from it."""

    project: Project
    site: Site
    args: Arguments
    class_name: str

    def worlds(self) -> list[World]:
        return self.project.evaluator.guards(self.link, self.project.evaluator.any_frame(self.site.scope))

    def option(self, name: str) -> list[OptionAlt]:
        """The alternatives for an argument; the library's default where it is not given."""
        if self._is_set_later(name):
            return [OptionAlt(UNKNOWN, ANY, None, 0)]
        return list(argument(self.project.evaluator, self.args, name, DEFAULTS.get(name, ...)))

    def on_gpu(self) -> bool:
        """Whether nothing says that it trains elsewhere than on a GPU of CUDA's."""
        return all(calling.keyword(self.args, name) is None for name in _NO_GPU) and not self.args.spreads

    def _is_set_later(self, name: str) -> bool:
        """``args.dataloader_num_workers = 4``, ``args.set_dataloader(...)``: after the call."""
        module = self.module
        if any(store.target.name == name for store in module.stores):
            return True
        return any(isinstance(site.expr, forms.Call) and _is_setter(site.expr) for site in module.calls)

    def work(self) -> list[Work]:
        """What its trainer's samples and batches cost, where the trainer and the code are at hand."""
        return [work for trainer in self._trainers() for work in _work_of(self.project, trainer)]

    def feeds_trainer(self) -> bool:
        return any(True for _ in self._trainers())

    def codes(self) -> list[tuple[WorkerCode, str]]:
        """The code that makes its trainer's samples and batches."""
        return [(code, owner) for trainer in self._trainers() for code, owner, _ in _codes(self.project, trainer)]

    def _trainers(self) -> Iterator[Arguments]:
        """The arguments of the trainers that are given these."""
        ev = self.project.evaluator
        for module in self.project.loaded():
            for site in module.calls:
                call = site.expr
                assert isinstance(call, forms.Call)
                if "Trainer" not in last_name(call.func):
                    continue
                ev.fresh()
                point = self.project.point(site)
                args = calling.arguments(call, point)
                given = calling.argument(args, "args", 1)
                values = [alt.value for alt in ev.force(given)] if given is not None else []
                if any(_is_made_by(value, self.args.call) for value in values):
                    yield args


def _is_made_by(value: Value, call: forms.Call | None) -> bool:
    args = value.args if isinstance(value, (Made, Instance)) else None
    return args is not None and args.call is call


def _is_setter(call: forms.Call) -> bool:
    return last_name(call.func) == "set_dataloader"


def trainer_arguments(project: Project) -> Iterator[TrainerArguments]:
    """Every call that makes arguments for a trainer."""
    ev = project.evaluator
    for module in project.loaded():
        for site in module.calls:
            call = site.expr
            assert isinstance(call, forms.Call)
            name = last_name(call.func)
            if not name.endswith(("Arguments", "Config", "Args")):
                continue
            ev.fresh()
            values = list(ev.values(call.func, project.point(site)))
            if len(values) == 1 and isinstance(values[0], External) and _makes_arguments(values[0].path):
                yield TrainerArguments(project, site, calling.arguments(call, project.point(site)), name)


def _makes_arguments(path: str) -> bool:
    return path.startswith(_LIBRARIES) and path.rpartition(".")[2] in _ARGUMENTS


# -- what the samples cost


def _codes(project: Project, trainer: Arguments) -> Iterator[tuple[WorkerCode, str, World]]:
    ev = project.evaluator
    dataset = calling.keyword(trainer, "train_dataset")
    for value, world in unwrapped(ev, ev.force(dataset)) if dataset is not None else ():
        if isinstance(value, Instance):
            found = project.dataset_class(value)
            yield found.worker_code, found.name, world
        for function in _transforms(ev, value):
            yield worker_code(project, function), _name_of(function), world
    collator = calling.keyword(trainer, "data_collator")
    for value, world in ev.force(collator) if collator is not None else ():
        if isinstance(value, (Func, Instance, Bound, LambdaFunc)):
            yield worker_code(project, value), _name_of(value), world


def _transforms(ev: Evaluator, value: Value) -> Iterator[Value]:
    """The functions that a dataset of Hugging Face applies to each sample as it is read."""
    depth = 0
    while isinstance(value, Made) and depth < 8:
        if value.path.endswith("().with_transform") and value.args is not None and value.args.positional:
            for alt in ev.force(value.args.positional[0][0]):
                if isinstance(alt.value, (Func, Bound, LambdaFunc, Instance)):
                    yield alt.value
        if value.base is None:
            return
        value, depth = value.base, depth + 1


def _name_of(value: Value) -> str:
    if isinstance(value, Bound):
        return _name_of(value.func)
    if isinstance(value, Func):
        return value.scope.qualified
    return value.cls.name if isinstance(value, Instance) else "lambda"


def _work_of(project: Project, trainer: Arguments) -> Iterator[Work]:
    for code, owner, world in _codes(project, trainer):
        for what, call in samples.work_in(code):
            both = world.merge(call.world)
            if both is not None:
                yield Work(what, owner, call.site.module, call.call.at, both)
        for call in code.calls:
            what = _processing(project, call.call.func, call.point)
            both = world.merge(call.world)
            if what and call.call.args and both is not None:
                yield Work(what, owner, call.site.module, call.call.at, both)


def _processing(project: Project, func: forms.Expr, point: Point) -> str:
    """The tokenizer or processor that a call runs, by the name that the code gives it."""
    for value in project.evaluator.values(func, point):
        if isinstance(value, Made) and value.path.startswith("transformers.") and ".from_pretrained" in value.path:
            kind = value.path.split(".")[-2]
            if kind.endswith(("Tokenizer", "TokenizerFast", "Processor", "FeatureExtractor")):
                return last_name(func)
    return ""


# -- Accelerate


class BlockingAccelerator(NamedTuple):
    """An ``Accelerator`` that copies the batches of a pinned loader with blocking calls."""

    project: Project
    module: Module
    link: Link
    call: forms.Call
    name_at: int
    loader: Loader
    pinned: OptionAlt
    prepared: Site


def blocking_accelerators(project: Project) -> Iterator[BlockingAccelerator]:
    """Every accelerator that is proven to block where it could go on, with the loader that shows it."""
    ev = project.evaluator
    for module in project.loaded():
        for site in module.calls_to("prepare", "prepare_data_loader"):
            call = site.expr
            assert isinstance(call, forms.Call)
            if _keyword(call, "device_placement"):
                continue
            ev.fresh()
            point = project.point(site)
            for value, world in ev.eval(call.func, point):
                made = value.of if isinstance(value, External) else None
                if made is None or made.path not in ("accelerate.Accelerator", "accelerate.accelerator.Accelerator"):
                    continue
                blocking = _blocking(ev, made)
                for alt in _prepared(ev, call, point):
                    found = _pinned(project, alt, [both for one in blocking if (both := one.merge(world)) is not None])
                    if found is not None and made.args is not None and made.args.call is not None and made.args.point:
                        at = called_name_at(made.args.call)
                        where = made.args.point
                        yield BlockingAccelerator(project, where.module, where.link, made.args.call, at, *found, site)


def _keyword(call: forms.Call, name: str) -> bool:
    return any(arg.name == name or arg.star == "**" for arg in call.args)


def _prepared(ev: Evaluator, call: forms.Call, point: Point) -> Iterator[Alt]:
    for arg in call.args:
        if not arg.star:
            yield from ev.eval(arg.value, point)


def _pinned(project: Project, alt: Alt, blocking: list[World]) -> tuple[Loader, OptionAlt] | None:
    """The loader behind a prepared value, and the option that pins its batches, if one world has it all."""
    value = alt.value.value if isinstance(alt.value, Managed) else alt.value
    if not isinstance(value, LoaderRef):
        return None
    loader = project.loader_of(value)
    if loader.yields_cuda:
        return None
    for option in loader.pinning(True):
        both = option.world.merge(alt.world)
        for world in blocking if both is not None else ():
            whole = world.merge(both) if both is not None else None
            if whole is not None and any(whole.merge(own) is not None for own in loader.worlds()):
                return loader, option
    return None


def _blocking(ev: Evaluator, made: Made) -> list[World]:
    """The worlds in which an accelerator moves batches itself, with blocking copies."""
    args = made.args
    if args is None or args.spreads or any(starred for _, starred in args.positional):
        return []
    if any(calling.keyword(args, name) is not None for name in ("cpu", "device_placement", "deepspeed_plugin")):
        return []
    config = calling.keyword(args, "dataloader_config")
    if config is None:
        return [ANY]
    worlds: list[World] = []
    for value, world in ev.force(config):
        if isinstance(value, Const) and value.value is None:
            worlds.append(world)
        elif isinstance(value, Made) and value.path.endswith("DataLoaderConfiguration") and value.args is not None:
            for option in argument(ev, value.args, "non_blocking", False):
                both = world.merge(option.world)
                if option.falsy and both is not None:
                    worlds.append(both)
    return worlds
