"""The GPUs of a machine: from the driver's program where there is one, else from the kernel; nothing is set."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from dlcheck.system import System

PATIENCE_S = 10.0
PCI = "/sys/bus/pci/devices"
MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
_FIELDS = "name,pci.bus_id,memory.total,pcie.link.gen.max,pcie.link.width.max"

GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64": 6, "64.0": 6}
# Of a lane, one direction, after encoding: 8b/10b, 128b/130b, and the FLITs of generation 6.
LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


@dataclass(frozen=True, slots=True)
class Gpu:
    """``memory`` in bytes; ``generation`` and ``width`` are the most that its PCIe link can be."""

    name: str
    memory: int | None = None
    address: str | None = None
    generation: int | None = None
    width: int | None = None
    source: str = ""

    @property
    def link_gbs(self) -> float | None:
        """GB/s that the link can carry in one direction, before the headers of its packets."""
        lane = LANE_GBS.get(self.generation or 0)
        return lane * self.width if lane is not None and self.width else None


def gpus_of(system: System) -> list[Gpu] | None:
    """The GPUs; None where neither a driver nor the kernel would tell of any."""
    if system.root == "/" and (told := _by_driver()):
        return told
    folder = system.path(PCI)
    if not os.path.isdir(folder):
        return None
    found = [gpu for address in sorted(os.listdir(folder)) if (gpu := _by_kernel(system, address)) is not None]
    return found or _without_addresses(system)


def _without_addresses(system: System) -> list[Gpu]:
    """GPUs that the driver knows by files, where a container does not show the bus."""
    folder = system.path("/proc/driver/nvidia/gpus")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [
        Gpu(_model(system, name) or "NVIDIA GPU", address=name, source="/proc/driver/nvidia/gpus") for name in names
    ]


def _by_driver() -> list[Gpu]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return parsed(run.stdout) if run.returncode == 0 else []


def parsed(text: str) -> list[Gpu]:
    """What nvidia-smi prints of each GPU; "[N/A]" and the like are unknown."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    found = []
    for name, address, mib, generation, width in (row for row in rows if len(row) == 5):
        memory = _int(mib)
        bytes_ = memory << 20 if memory is not None else None
        found.append(Gpu(name, bytes_, address, _int(generation), _int(width), "nvidia-smi"))
    return found


def _by_kernel(system: System, address: str) -> Gpu | None:
    """A display or compute device of a maker whose GPUs torch uses."""
    here = f"{PCI}/{address}"
    maker = MAKERS.get(system.read(f"{here}/vendor") or "")
    kind = system.read(f"{here}/class") or ""
    if maker is None or not kind.startswith(("0x0300", "0x0302", "0x0380", "0x1200")):
        return None
    speed = (system.read(f"{here}/max_link_speed") or "").partition(" ")[0]
    name = (_model(system, address) if maker == "NVIDIA" else None) or f"{maker} GPU"
    memory = _int(system.read(f"{here}/mem_info_vram_total") or "")
    return Gpu(name, memory, address, GENERATIONS.get(speed), _int(system.read(f"{here}/max_link_width") or ""), PCI)


def _model(system: System, address: str) -> str | None:
    text = system.read(f"/proc/driver/nvidia/gpus/{address}/information") or ""
    found = re.search(r"^Model:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else None


def _int(text: str) -> int | None:
    try:
        return int(float(text))
    except ValueError:
        return None
