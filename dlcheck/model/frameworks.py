"""Loaders that a training framework takes over: it moves batches, shards samplers, starts epochs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model import library
from dlcheck.model.scopes import Scope, last_name
from dlcheck.model.values import External, LoaderRef, Managed, Many, Mapping, Thunk, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

_HOOKS = frozenset({"train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"})
_TAKING = frozenset(
    {"fit", "validate", "test", "predict", "run", "prepare", "setup_dataloaders", "setup", "prepare_data_loader",
     "initialize", "evaluate", "train", "Trainer", "Learner", "DataLoaders", "MpDeviceLoader", "ParallelLoader",
     "Runner"}
)  # fmt: skip


def mark_managed(project: Project, loaders: dict[Hashable, Loader]) -> None:
    """Note on each loader the framework that it is handed to, or whose hook returns it."""
    handed = dict(_handed_over(project))
    for loader in loaders.values():
        if not loader.framework:
            constructor = loader.constructor
            loader.framework = handed.get(constructor, "") or _hook_of(project, loader.link.scope)


def _hook_of(project: Project, scope: Scope) -> str:
    """Lightning builds its loaders in methods of modules and data modules."""
    owner = scope.owner
    while owner is None and scope.parent is not None:
        scope = scope.parent
        owner = scope.owner
    if owner is None:
        return ""
    for path in project.external_bases(owner):
        framework = library.framework_of(path)
        if framework and (path.rpartition(".")[2] in library.LIGHTNING_CLASSES or scope.name in _HOOKS):
            return framework
    if scope.name in _HOOKS and project.imports_of(scope.module) & {"pytorch_lightning", "lightning"}:
        return "Lightning"
    return ""


def _handed_over(project: Project) -> Iterator[tuple[tuple[str, int], str]]:
    ev = project.evaluator
    for module in project.loaded():
        if not project.imports_of(module) & library.FRAMEWORKS.keys():
            continue
        for site in module.calls:
            call = site.expr
            assert isinstance(call, forms.Call)
            if last_name(call.func) not in _TAKING:
                continue
            ev.fresh()
            point = project.point(site)
            called = (value for value in ev.values(call.func, point) if isinstance(value, External))
            framework = next((library.framework_of(value.path) for value in called), "")
            if not framework:
                continue
            for arg in call.args:
                for value in ev.values(arg.value, point):
                    for ref in _loaders_in(project, value):
                        yield (ref.point.module.name, ref.args.call.at if ref.args.call else 0), framework


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
