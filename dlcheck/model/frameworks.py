"""Loaders that a training framework takes over: it moves batches, shards samplers, starts epochs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.call_sites import called_name_at
from dlcheck.model.scopes import Module, Scope, last_name
from dlcheck.model.values import Arguments, Const, External, LoaderRef, Managed, Many, Mapping, Thunk, Value
from dlcheck.model.worlds import ANY, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlcheck.model.evaluate import Evaluator
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

_HOOKS = frozenset({"train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"})
_TAKING = frozenset(
    {"fit", "validate", "test", "predict", "run", "prepare", "setup_dataloaders", "setup", "prepare_data_loader",
     "initialize", "evaluate", "train", "Trainer", "Learner", "DataLoaders", "MpDeviceLoader", "ParallelLoader",
     "Runner"}
)  # fmt: skip

_TRAIN_LOADERS = ("train_dataloaders", "train_dataloader", "train_loader")


def mark_managed(project: Project, loaders: dict[Hashable, Loader]) -> None:
    """Note on each loader the framework that it is handed to, or whose hook returns it."""
    handed = list(_handed_over(project))
    taken = {constructor: framework for constructor, framework, _ in handed}
    trained = {constructor: framework for constructor, framework, trains in handed if trains}
    for loader in loaders.values():
        hook = _hook_of(project, loader.link.scope)
        if not loader.framework:
            loader.framework = taken.get(loader.constructor, "") or hook
        if loader.framework == "Lightning":
            in_hook = "Lightning" if hook and _hook_scope(loader.link.scope).name == "train_dataloader" else ""
            loader.trained_by = trained.get(loader.constructor, "") or in_hook


def made_by_hook(loader: Loader, *hooks: str) -> list[World]:
    """The worlds in which one of these methods of a module of Lightning makes a loader, itself or by a helper."""
    if loader.framework != "Lightning":
        return []
    scope = _hook_scope(loader.link.scope)
    if scope.name in hooks:
        return [ANY]
    key, choices = calling.caller_choices(loader.project, scope)
    return [World({key: choice}) for choice, _, point in choices if _hook_scope(point.link.scope).name in hooks]


def epochs_by(project: Project) -> tuple[Module, int] | None:
    """The trainer of Lightning that goes through its loaders in several epochs, and makes them only once.

    None where no trainer can be seen, or one of them may do otherwise.
    """
    project.mention("Trainer")
    found: tuple[Module, int] | None = None
    ev = project.evaluator
    for module in project.loaded():
        for site in module.calls_to("Trainer"):
            call = site.expr
            assert isinstance(call, forms.Call)
            ev.fresh()
            paths = [value.path for value in ev.values(call.func, project.point(site)) if isinstance(value, External)]
            if not any(library.framework_of(path) == "Lightning" for path in paths):
                continue
            if not _repeats(ev, calling.arguments(call, project.point(site))):
                return None
            found = (module, called_name_at(call))
    return found


# Options with which a trainer ends early, or makes its loaders anew.
_OTHERWISE = ("max_steps", "fast_dev_run", "reload_dataloaders_every_n_epochs", "max_time", "overfit_batches")


def _repeats(ev: Evaluator, args: Arguments) -> bool:
    """Whether a trainer is known to run several epochs: 1000 where nothing else is said."""
    if args.spreads or any(starred for _, starred in args.positional):
        return False
    for name in _OTHERWISE:
        given = calling.keyword(args, name)
        if given is not None and not all(_is_off(alt.value) for alt in ev.force(given)):
            return False
    epochs = calling.keyword(args, "max_epochs")
    values = [alt.value for alt in ev.force(epochs)] if epochs is not None else [Const(1000)]
    known = [value.value for value in values if isinstance(value, Const) and not value.chosen]
    return bool(known) and all(epoch is None or isinstance(epoch, int) and epoch not in (0, 1) for epoch in known)


def _is_off(value: Value) -> bool:
    return isinstance(value, Const) and (not value.value or value.value == -1)


def _hook_of(project: Project, scope: Scope) -> str:
    """Lightning builds its loaders in methods of modules and data modules."""
    scope = _hook_scope(scope)
    owner = scope.owner
    if owner is None:
        return ""
    for path in project.external_bases(owner):
        framework = library.framework_of(path)
        if framework and (path.rpartition(".")[2] in library.LIGHTNING_CLASSES or scope.name in _HOOKS):
            return framework
    if scope.name in _HOOKS and scope.module.libraries & {"pytorch_lightning", "lightning"}:
        return "Lightning"
    return ""


def _hook_scope(scope: Scope) -> Scope:
    """The method in which something stands, functions inside it left behind."""
    while scope.owner is None and scope.parent is not None:
        scope = scope.parent
    return scope


def _handed_over(project: Project) -> Iterator[tuple[tuple[str, int], str, bool]]:
    """The loaders that are passed to a framework: the constructor, the framework, whether it trains on them."""
    ev = project.evaluator
    for module in project.loaded():
        if not module.libraries & library.FRAMEWORKS.keys():
            continue
        for site in module.calls_to(*sorted(_TAKING)):
            call = site.expr
            assert isinstance(call, forms.Call)
            ev.fresh()
            point = project.point(site)
            called = (value for value in ev.values(call.func, point) if isinstance(value, External))
            framework = next((library.framework_of(value.path) for value in called), "")
            if not framework:
                continue
            for number, arg in enumerate(call.args):
                fits = last_name(call.func) == "fit"
                trains = fits and (arg.name in _TRAIN_LOADERS if arg.name is not None else number == 1)
                for value in ev.values(arg.value, point):
                    for ref in _loaders_in(project, value):
                        yield (ref.point.module.name, ref.args.call.at if ref.args.call else 0), framework, trains


def _loaders_in(project: Project, value: Value, depth: int = 0) -> Iterator[LoaderRef]:
    if isinstance(value, LoaderRef):
        yield value
    elif isinstance(value, Managed):
        yield from _loaders_in(project, value.value)
    elif isinstance(value, (Many, Mapping)) and depth < 2:
        thunks: list[Thunk] = list(value.items) if isinstance(value, Many) else [thunk for _, thunk in value.entries]
        for thunk in thunks[:6]:
            for alt in project.evaluator.force(thunk):
                yield from _loaders_in(project, alt.value, depth + 1)
