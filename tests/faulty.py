"""The example project in a real editor: where it is, what runs in it, and what its fix is to be."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def copied(folder: Path) -> tuple[Path, dict[str, str]]:
    """A copy of the project, and an environment in which `dlcheck` is this one."""
    project = folder / "project"
    shutil.copytree(ROOT / "examples" / "faulty", project)
    command = folder / "bin" / "dlcheck"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m dlcheck "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    here = {
        **os.environ,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    return project, here


def is_fixed(project: Path) -> bool:
    """Whether the one finding of `devices.py` was mended, and nothing else was done."""
    before = (ROOT / "examples" / "faulty" / "devices.py").read_text(encoding="utf-8")
    after = (project / "devices.py").read_text(encoding="utf-8")
    return after == before.replace("value.to(device)", "value.to(device, non_blocking=True)") != before
