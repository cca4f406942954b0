"""Distributed programs: is there one process per device, and does a dataset know which one it is in?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model.flow import links_of
from dlcheck.model.scopes import Module, Scope, descend, expressions, target_names
from dlcheck.model.values import External, Instance

if TYPE_CHECKING:
    from dlcheck.model.datasets import DatasetClass
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project
    from dlcheck.model.workers import WorkerCode

# Who wraps a network in one of these, or calls it, runs one process for each device.
_WRAPPERS = {
    "torch.nn.parallel.DistributedDataParallel": "DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel": "DistributedDataParallel",
    "torch.distributed.fsdp.FullyShardedDataParallel": "FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": "FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_shard": "fully_shard",
    "torch.distributed._composable.fsdp.fully_shard": "fully_shard",
    "apex.parallel.DistributedDataParallel": "DistributedDataParallel",
}
_WRAPPER_NAMES = frozenset(_WRAPPERS.values()) | {"DDP", "FSDP"}

# Parts of names, and of keys of the environment, that tell processes apart.
_RANK_WORDS = (
    "rank", "world_size", "worldsize", "replica", "num_shards", "n_shards", "shard_id", "shard_index", "shard_idx",
    "by_node", "node_id", "num_nodes", "process_index", "process_id", "num_processes", "distributed", "dist_info",
    "num_parts", "part_id", "part_index", "is_main", "is_master", "num_gpus", "n_gpus", "ngpus",
)  # fmt: skip
_RANK_NAMES = frozenset({"dist", "hvd", "xm", "ddp", "world", "shard"})


class Wrapping(NamedTuple):
    """Where a program wraps its network for several processes."""

    module: Module
    at: int
    name: str


def wrapping_of(loader: Loader) -> Wrapping | None:
    """Where the program that trains with a loader wraps its network; None where it does not, or elsewhere."""
    project = loader.project
    near = dict.fromkeys([*(loop.module for loop in loader.loops), loader.module])
    using = [
        module for module in project.loaded() if module not in near and project.imports.neighbours(module) & near.keys()
    ]
    for module in [*near, *using]:
        found = next(_wrappings(project, module), None)
        if found is not None:
            return found
    return None


def _wrappings(project: Project, module: Module) -> Iterator[Wrapping]:
    names = _WRAPPER_NAMES | project.aliases("DistributedDataParallel")
    sites = (site for name in sorted(names) for site in module.calls_by_name.get(name, ()))
    for site in sorted(sites, key=lambda site: site.expr.at):
        call = site.expr
        assert isinstance(call, forms.Call)
        for value in project.evaluator.values(call.func, project.point(site)):
            if isinstance(value, External) and value.path in _WRAPPERS:
                yield Wrapping(module, call.at, _WRAPPERS[value.path])


def mentions_rank(code: WorkerCode) -> bool:
    """Whether worker code names a rank."""
    return any(_is_rank_name(name) for frame, _ in code.frames for name in _names_of(frame.scope))


def knows_rank(dataset: DatasetClass) -> bool:
    """Whether anything of a dataset looks at the rank: its code, or what it is built from."""
    project = dataset.project
    if mentions_rank(dataset.worker_code):
        return True
    for cls in project.lineage(dataset.cls):
        for method in cls.functions.values():
            if any(_is_rank_name(name) for name in _names_of(method)):
                return True
    return _is_built_by_rank(project, dataset.instance)


def _is_built_by_rank(project: Project, instance: Instance) -> bool:
    """Whether the constructor's arguments follow from the rank: ``Lines(files[rank::world_size])``."""
    if instance.args is None or instance.point is None or instance.args.call is None:
        return True  # nobody knows how it is built
    scope = instance.point.link.scope
    words = [name for arg in instance.args.call.args for name in _names(arg.value)]
    seen: set[str] = set()
    while words:
        word = words.pop()
        if _is_rank_name(word):
            return True
        if word not in seen:
            seen.add(word)
            words += _assigned_from(scope, word)
            words += (name for helper in project.functions_named(word) for name in _names_of(helper))
    return False


def _assigned_from(scope: Scope, name: str) -> Iterator[str]:
    """The names in what a name of a function, or of its module, is assigned from."""
    for around in (scope, scope.module.scope):
        for link in links_of(around):
            stmt = link.stmt
            if not isinstance(stmt, (forms.Assign, forms.AugAssign, forms.Declare)) or stmt.value is None:
                continue
            targets = stmt.targets if isinstance(stmt, forms.Assign) else (stmt.target,)
            if any(name in target_names(target) for target in targets):
                yield from _names(stmt.value)


def _names_of(scope: Scope) -> Iterator[str]:
    yield from (param.name for param in scope.function.params)
    for link in links_of(scope):
        for root in expressions(link.stmt):
            yield from _names(root)


def _names(root: forms.Expr) -> Iterator[str]:
    """The names, attributes and texts in an expression."""
    for expr in descend(root):
        if isinstance(expr, forms.Name):
            yield expr.id
        elif isinstance(expr, forms.Attr):
            yield expr.name
        elif isinstance(expr, forms.Const) and isinstance(expr.value, str) and expr.value.isupper():
            yield expr.value
        elif isinstance(expr, forms.Call):
            yield from (arg.name for arg in expr.args if arg.name)


def _is_rank_name(name: str) -> bool:
    lowered = name.lower()
    return name in _RANK_NAMES or any(word in lowered for word in _RANK_WORDS)
