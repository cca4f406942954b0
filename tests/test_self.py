"""dlcheck finds nothing in its own repository."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_own_code_is_silent() -> None:
    command = [sys.executable, "-m", "dlcheck", "check", "--output-format", "json", "."]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout)
    assert report["errors"] == []
    assert report["findings"] == []
    assert report["summary"]["files"] > 0
