"""The worker's modules are found as the worker finds them; where there is no torch, nothing of it is tested."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Last: none of these names is to hide anybody else's.
sys.path += [str(ROOT / "dlcheck" / "measure" / "worker"), str(ROOT / "benchmarks" / "gpu")]

NEED_TORCH = [
    "test_detours.py",
    "test_device.py",
    "test_gpu_run.py",
    "test_loading.py",
    "test_oracles.py",
    "test_overlap.py",
    "test_ranks.py",
    "test_stand_ins.py",
    "test_steps.py",
    "test_training.py",
    "test_virtual.py",
]
collect_ignore = [] if importlib.util.find_spec("torch") else NEED_TORCH


@pytest.fixture(autouse=True, scope="package")
def _quick_torch() -> Iterator[None]:
    """Many threads on few cores make small tensors a hundred times slower, and each collection reads all of torch."""
    if collect_ignore:
        yield
        return
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
