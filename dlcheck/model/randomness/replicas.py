"""Training on several ranks: networks that average their gradients, and data that is shared out among the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling, library
from dlcheck.model.datasets import DatasetAlt
from dlcheck.model.definitions import ingredients
from dlcheck.model.loops import BatchLoop
from dlcheck.model.scopes import Module, dotted, last_name
from dlcheck.model.training.loop_uses import Use, uses_in
from dlcheck.model.values import External, Made, Value
from dlcheck.model.worlds import World, product

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

_WRAPPERS = frozenset(
    {
        "torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
    }
)  # fmt: skip
_IN_PLACE = frozenset(
    {"torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard",
     "torch.distributed._composable.replicate", "torch.distributed._composable.fully_shard"}
)  # fmt: skip

# Whoever names one of these knows of the ranks.
RANK_WORDS = frozenset(
    {
        "rank", "local_rank", "global_rank", "world_size", "get_rank", "get_world_size", "num_replicas", "num_shards",
        "shard", "shard_id", "node_rank", "proc_id", "gpu", "RANK", "WORLD_SIZE", "LOCAL_RANK", "num_gpus", "nprocs",
        "gpu_id", "process_index", "num_processes", "process_count", "is_main_process", "dp_rank", "dp_size",
        "data_parallel_rank", "data_parallel_size", "split_dataset_by_node", "scatter", "num_tasks", "n_gpus",
        "get_data_parallel_rank", "get_data_parallel_world_size", "world", "ngpus", "ngpus_per_node",
        "num_ranks", "broadcast_object_list", "scatter_object_list", "distributed",
    }
)  # fmt: skip


class Replica(NamedTuple):
    """A network whose gradients are averaged over the ranks: where it is wrapped, and in which world."""

    module: Module
    at: int
    name: str
    world: World


def replicas(loop: BatchLoop) -> Iterator[Replica]:
    """The networks of a loop, called in it or handed to what it calls, that are wrapped for several ranks."""
    for use in uses_in(loop):
        found = _wrapped(loop.project, use.value, use.world, 0)
        if found is not None:
            yield found
        yield from _in_place(loop.project, use)


def _wrapped(project: Project, value: Value, world: World, depth: int) -> Replica | None:
    if not isinstance(value, Made) or value.args is None or value.args.call is None or value.args.point is None:
        return None
    if value.path in _WRAPPERS:
        call = value.args.call
        return Replica(value.args.point.module, call.func.at, last_name(call.func), world)
    if value.path == "torch.compile" and depth < 2:
        inner = calling.positional(value.args, 0)
        for alt in project.evaluator.force(inner) if inner is not None else ():
            both = alt.world.merge(world)
            found = _wrapped(project, alt.value, both, depth + 1) if both is not None else None
            if found is not None:
                return found
    return None


def _in_place(project: Project, use: Use) -> Iterator[Replica]:
    """``fully_shard(net)`` in the function that calls ``net``: it changes the network itself."""
    scope = use.site.link.scope
    for other in scope.module.calls_by_scope.get(scope, ()):
        call = other.expr
        assert isinstance(call, forms.Call)
        if (
            last_name(call.func) in ("fully_shard", "replicate")
            and call.args
            and dotted(call.args[0].value) == use.name
        ):
            values = project.evaluator.values(call.func, project.point(other))
            if any(isinstance(value, External) and value.path in _IN_PLACE for value in values):
                yield Replica(scope.module, call.func.at, last_name(call.func), use.world)


def may_be_single(loop: BatchLoop, worlds: Iterable[World]) -> bool:
    """Whether a network that is wrapped for several ranks is none in other runs that reach a loader."""
    uses = [(use, _is_replica(loop.project, use)) for use in uses_in(loop)]
    wrapped = {(use.site.expr.at, use.site.module, use.name) for use, found in uses if found}
    return any(
        not found and (use.site.expr.at, use.site.module, use.name) in wrapped and any(product([use.world], worlds))
        for use, found in uses
    )


def _is_replica(project: Project, use: Use) -> bool:
    return _wrapped(project, use.value, use.world, 0) is not None or any(True for _ in _in_place(project, use))


# -- who gets which samples


def same_for_all_ranks(loader: Loader) -> bool:
    """Whether nothing that a loader, its dataset or its samples are made of knows of the ranks."""
    project = loader.project
    words: set[str] = set()
    for arg in loader.call.args:
        if arg.name not in ("num_workers", "batch_size", "pin_memory", "worker_init_fn"):
            words |= ingredients(project, arg.value, loader.link)
    for outer in loader.link.outer():
        if isinstance(outer.stmt, forms.If):
            words |= ingredients(project, outer.stmt.test, outer)
    if any(word in RANK_WORDS or "rank" in word.lower() or "shard" in word.lower() for word in words):
        return False
    datasets = (alt.dataset for alt in loader.datasets if alt.dataset is not None)
    return not any(
        code.mentions(RANK_WORDS) for dataset in datasets for code in (dataset.worker_code, dataset.construction_code)
    )


def is_map_style(loader: Loader, alt: DatasetAlt) -> bool:
    """Whether a dataset is one that a sampler can share out."""
    if alt.dataset is not None:
        return alt.dataset.is_map_style
    if alt.path and alt.path != library.ITERABLE_DATASET:
        return alt.path.startswith(("torchvision.datasets.", "torch.utils.data.", "torchaudio.datasets."))
    return False


def has_other_order_per_rank(project: Project, modules: set[Module]) -> bool:
    """Whether each rank seeds its random numbers differently: then the ranks at least draw different batches."""
    for module in modules:
        for site in module.calls:
            call = site.expr
            assert isinstance(call, forms.Call)
            if "seed" in last_name(call.func):
                words: set[str] = set()
                for arg in call.args:
                    words |= ingredients(project, arg.value, site.link)
                if any("rank" in word.lower() for word in words):
                    return True
    return False
