"""The experiments with a device, by name: the worker's way in."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

from .copies import Bandwidth, Making, SmallCopies
from .detours import Casts, Clocks, Constants
from .device import backend_of
from .experiment import Experiment
from .loading import Loading
from .overlap import Overlap
from .rig import Rig
from .steps import Releases, Syncs

EXPERIMENTS: dict[str, type[Experiment]] = {
    "bandwidth": Bandwidth,
    "transfer": Overlap,
    "loading": Loading,
    "sync": Syncs,
    "empty-cache": Releases,
    "small-copies": SmallCopies,
    "making": Making,
    "constants": Constants,
    "casts": Casts,
    "clocks": Clocks,
}


def experiment(name: str, config: Mapping[str, Any], backend: Any, rig: Rig | None = None) -> Experiment:
    """The experiment ``name`` with ``.arms``, ``.block(arm)``, ``.missing()`` and ``.facts()``.

    ``config["arms"]`` maps each arm's name to its settings.  Experiments of one process share a ``rig``.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"no experiment `{name}`: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name](config, rig or Rig(backend))


def source(request: Mapping[str, Any]) -> Experiment:
    """The experiment that a worker's first line asks for: ``experiment``, ``config``, ``arms``, ``device``."""
    # Before each block garbage is collected; of what is here already nothing ever will be.
    gc.collect()
    gc.freeze()
    config = dict(request.get("config", {}))
    if request.get("arms"):
        config["arms"] = request["arms"]
    return experiment(request["experiment"], config, backend_of(request.get("device")))
