"""Proofs need torch and real workers; where torch is not installed there are none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TORCH = importlib.util.find_spec("torch") is not None

collect_ignore_glob = [] if TORCH else ["test_*_proofs.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name.endswith("_proofs.py"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Many intra-op threads on few cores make small tensors a hundred times slower."""
    if TORCH:
        import torch

        torch.set_num_threads(1)
