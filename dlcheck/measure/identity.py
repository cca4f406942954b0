"""Which machine this is, as far as a measurement depends on it, and nothing by which its owner could be known."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What makes it another machine: neither its load nor what a container or a variable grants today.
KEYS = ("cpu", "cores", "gpus", "os")


def identity() -> dict[str, Any]:
    """This machine's CPU model, cores, GPUs and operating system."""
    return {"cpu": _cpu(), "cores": os.cpu_count() or 1, "gpus": _gpus(), "os": platform.system() or sys.platform}


def of(machine: Mapping[str, Any]) -> Mapping[str, Any]:
    """Which machine a record's facts are of; nothing where they do not say it."""
    told = machine.get("identity")
    return told if isinstance(told, dict) else {}


def fingerprint(which: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that stand for a machine, made of what KEYS names."""
    told = json.dumps([which.get(key) for key in KEYS], sort_keys=True, default=str)
    return hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def described(which: Mapping[str, Any]) -> str:
    """``AMD EPYC 7763, 2 cores, NVIDIA H200``; nothing of a machine that is unknown."""
    cores, listed = which.get("cores"), which.get("gpus")
    gpus = [str(name) for name in listed] if isinstance(listed, (list, tuple)) else []
    counted = [f"{gpus.count(name)} x {name}" if gpus.count(name) > 1 else name for name in dict.fromkeys(gpus)]
    parts = [str(which.get("cpu") or ""), f"{cores} core{'' if cores == 1 else 's'}" if cores else "", *counted]
    return ", ".join(filter(None, parts)) or str(which.get("os") or "")


def _cpu() -> str:
    # The first processor's paragraph is enough: on a server the file has a hundred of them.
    found = re.search(r"^model name\s*:\s*(.+)$", _head("/proc/cpuinfo"), re.MULTILINE)
    if found:
        return " ".join(found[1].split())
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    drivers = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    names = [found[1].strip() for file in drivers if (found := re.search(r"^Model:\s*(.+)$", _head(str(file)), re.M))]
    if names:
        return sorted(names)
    import shutil

    # Windows, and Linux below it, do not show what the driver knows as files.
    if shutil.which("nvidia-smi"):
        return sorted(filter(None, _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()))
    return []


def _head(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return stream.read(4096)
    except OSError:
        return ""


def _output(*command: str) -> str:
    import subprocess

    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""
