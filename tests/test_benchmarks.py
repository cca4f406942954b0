"""What benchmarks name of dlcheck is there: they are run by hand, long after a name was changed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which its dataclasses look for
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("where", "name"), sorted({(where, name) for _, where, name in loaded("speed").PHASES}))
def test_each_phase_is_a_function(where: str, name: str) -> None:
    module, _, cls = where.partition(":")
    owner: Any = importlib.import_module(module)
    assert callable(getattr(getattr(owner, cls) if cls else owner, name))
