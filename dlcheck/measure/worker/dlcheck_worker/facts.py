"""What the data cost: measured on some samples, so that a stand-in can cost the same."""

from __future__ import annotations

import time
from statistics import mean, pstdev
from typing import Any

import torch
from torch.utils.data import IterableDataset

from . import residency

SAMPLES = 64


def of(source: Any, seconds: float) -> dict[str, Any]:
    """The loader's options, and of up to 64 samples: seconds of CPU and of waiting, their variation, their bytes.

    ``page_cache`` says how much of the files that they were read from was in memory beforehand.
    """
    facts: dict[str, Any] = {"options": source.options(), "step": getattr(source, "step", None) is not None}
    dataset = source.dataset
    try:
        facts["size"] = len(dataset)
    except Exception:  # noqa: BLE001 -- a stream has no length
        facts["size"] = None
    # A stream has a `__getitem__` as well: that of its base class, which raises.
    if hasattr(dataset, "__getitem__") and facts["size"] and not isinstance(dataset, IterableDataset):
        with residency.watched() as watch:
            facts.update(_cost(dataset, facts["size"], seconds))
        if watch.resident:
            facts["page_cache"] = {"files": len(watch.resident), "resident": mean(watch.resident.values())}
    return facts


def _cost(dataset: Any, size: int, seconds: float) -> dict[str, Any]:
    end = time.perf_counter() + seconds
    busy, walls, sizes = [], [], []
    step = max(1, size // SAMPLES)
    for index in range(0, size, step):
        cpu, wall = time.thread_time(), time.perf_counter()
        sample = dataset[index]
        busy.append(time.thread_time() - cpu)
        walls.append(time.perf_counter() - wall)
        sizes.append(bytes_of(sample))
        if time.perf_counter() > end or len(walls) >= SAMPLES:
            break
    cpu_s, wall_s = mean(busy), mean(walls)
    return {
        "cpu_s": cpu_s,
        "wait_s": max(0.0, wall_s - cpu_s),
        "variation": pstdev(walls) / wall_s if wall_s else 0.0,
        "sample_bytes": int(mean(sizes)),
        "samples": len(walls),
    }


def bytes_of(value: Any, depth: int = 0) -> int:
    """Bytes of the tensors and arrays in a sample."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, dict) and depth < 4:
        return sum(bytes_of(one, depth + 1) for one in value.values())
    if isinstance(value, (list, tuple)) and depth < 4:
        return sum(bytes_of(one, depth + 1) for one in value)
    return 8
