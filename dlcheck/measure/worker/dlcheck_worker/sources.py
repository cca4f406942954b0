"""Where an arm's loaders come from: the user's program, the user's factory, or a stand-in.

A source has ``evidence``, ``dataset``, ``loader(options, dataset)`` and ``options()``; the program
that was stopped at its loader brings its own.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from . import datasets


def without_worker_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options as DataLoader takes them: those that need workers go where there are none."""
    if options.get("num_workers"):
        return options
    return {name: value for name, value in options.items() if name not in ("prefetch_factor", "persistent_workers")}


def described(loader: Any) -> dict[str, Any]:
    """The options that a loader ended up with."""
    context = getattr(loader, "multiprocessing_context", None)
    batch_size = loader.batch_size
    if batch_size is None and loader.batch_sampler is not None:
        batch_size = getattr(loader.batch_sampler, "batch_size", None)
    try:
        batches = len(loader)
    except Exception:  # noqa: BLE001 -- a stream has none, and what a user's __len__ raises is the user's
        batches = None
    return {
        "batch_size": batch_size,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "pin_memory": loader.pin_memory,
        "drop_last": loader.drop_last,
        "start_method": context.get_start_method() if context is not None else None,
        "dataset": type(loader.dataset).__name__,
        "sampler": type(loader.sampler).__name__,
        "batches": batches,
    }


class Synthetic:
    """A dataset shaped by what is known of the user's, and a loader with the user's options."""

    evidence = "synthetic"

    def __init__(self, dataset: dict[str, Any], loader: dict[str, Any]) -> None:
        self._spec = dataset
        self._loader = loader
        self._made: dict[str, Any] = {}

    @property
    def dataset(self) -> Any:
        return self._dataset(self._spec)

    def _dataset(self, spec: dict[str, Any]) -> Any:
        key = repr(sorted(spec.items()))
        if key not in self._made:
            self._made[key] = datasets.make(spec)
        return self._made[key]

    def loader(self, options: dict[str, Any], dataset: dict[str, Any] | None = None) -> Any:
        """A loader with the options changed; an option ``indexed: "batches"`` hands the dataset whole batches."""
        data = self._dataset(dataset or self._spec)
        options = without_worker_options({**self._loader, **options})
        if options.pop("indexed", None) == "batches":
            options["sampler"] = BatchSampler(RandomSampler(data), options["batch_size"], False)
            options.update(batch_size=None, shuffle=None)
        return DataLoader(data, **options)

    def options(self) -> dict[str, Any]:
        return described(self.loader({"num_workers": 0}))


class Factory:
    """What ``module:function`` of the user returns: a DataLoader, or ``dataset``, ``loader_kwargs`` and a ``step``."""

    evidence = "factory"

    def __init__(self, name: str, folder: str) -> None:
        module, colon, function = name.partition(":")
        if not colon:
            raise ValueError(f"`{name}` is not module:function")
        sys.path.insert(0, folder)
        os.chdir(folder)
        made = getattr(importlib.import_module(module), function)()
        if isinstance(made, DataLoader):
            made = {"dataset": made.dataset, "loader_kwargs": _arguments(made)}
        if not isinstance(made, dict) or "dataset" not in made:
            raise ValueError(f"`{name}` must return a DataLoader or a dict with `dataset`, not {type(made).__name__}")
        self.dataset = made["dataset"]
        self.step = made.get("step")
        self._arguments = dict(made.get("loader_kwargs", {}))

    def loader(self, options: dict[str, Any], dataset: dict[str, Any] | None = None) -> Any:
        return DataLoader(self.dataset, **without_worker_options({**self._arguments, **options}))

    def options(self) -> dict[str, Any]:
        return described(self.loader({}))


def _arguments(loader: Any) -> dict[str, Any]:
    """The arguments that build a loader like this one again."""
    arguments: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context,
        "generator": loader.generator,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
    }
    if loader.batch_size is None and loader.batch_sampler is not None:
        return {**arguments, "batch_sampler": loader.batch_sampler}
    arguments.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
    if not isinstance(loader.dataset, IterableDataset):
        arguments["sampler"] = loader.sampler
    return arguments
