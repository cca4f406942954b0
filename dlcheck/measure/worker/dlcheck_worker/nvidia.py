"""What a GPU's driver and the kernel tell about it, read only: nothing here sets a clock or a mode."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

PCI = "/sys/bus/pci/devices"
PATIENCE = 5.0  # seconds for one answer
SLOW = 0.5  # seconds: without persistence mode each answer loads the driver anew, and would disturb what is measured

STATE = {
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "celsius": "temperature.gpu",
    "watts": "power.draw",
    "utilization": "utilization.gpu",
    "used_mib": "memory.used",
}
CARD = {
    "uuid": "uuid",
    "driver": "driver_version",
    "max_sm_mhz": "clocks.max.sm",
    "persistence": "persistence_mode",
    "compute_mode": "compute_mode",
}
LINK = {"generation": "pcie.link.gen.max", "width": "pcie.link.width.max"}
# The first name is that of drivers up to 530; later ones have the second, and most of them understand both.
REASONS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
REASON_BITS = {
    0x1: "idle",
    0x2: "applications clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
SLOWING = ("power cap", "hardware slowdown", "thermal slowdown", "hardware thermal slowdown", "power brake")

TRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # GT/s by generation of PCIe
# Of the bits on the wire these carry bytes: 8b/10b, 128b/130b, and the FLITs of generation 6.
ENCODING = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
# Where the GPU hangs on the processor's own link, PCIe says nothing: datasheets, each direction.
CHIP_TO_CHIP = {"GH200": 450.0, "GB200": 450.0, "GB300": 450.0}


def limit_of(gigatransfers: float, width: int) -> float | None:
    """GB/s that a link can carry in one direction, before the headers of its packets."""
    encoding = ENCODING.get(gigatransfers)
    return gigatransfers * encoding * width / 8 if encoding and width > 0 else None


def link_of(name: str, address: str | None, root: str = PCI) -> dict[str, Any] | None:
    """The widest and fastest that the GPU's link can be, and what it is now (an idle one slows down)."""
    for chip, datasheet in CHIP_TO_CHIP.items():
        if chip in name:
            return {"kind": "chip to chip", "limit_gbs": datasheet, "source": "datasheet"}
    if address is None:
        return None
    folder = os.path.join(root, address)
    speed, width = _number(_line(folder, "max_link_speed")), _number(_line(folder, "max_link_width"))
    limit = limit_of(speed or 0.0, int(width or 0))
    if limit is None:
        return None
    return {
        "kind": "pcie",
        "gigatransfers": speed,
        "width": int(width or 0),
        "limit_gbs": limit,
        "now": [_line(folder, "current_link_speed"), _line(folder, "current_link_width")],
        "numa_node": _line(folder, "numa_node"),
        "source": "sysfs",
    }


def _line(folder: str, name: str) -> str | None:
    try:
        with open(os.path.join(folder, name)) as stream:
            return stream.readline().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(text: str | None) -> float | None:
    """The number that a line begins with: 32.0 of `32.0 GT/s PCIe`; None of `Unknown` and `[N/A]`."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None


def address_of(properties: Any, index: int) -> str | None:
    """The PCI address of a device, from torch where it tells it, else from the driver."""
    bus, device = getattr(properties, "pci_bus_id", None), getattr(properties, "pci_device_id", None)
    if isinstance(bus, int) and isinstance(device, int):
        return f"{getattr(properties, 'pci_domain_id', 0):04x}:{bus:02x}:{device:02x}.0"
    rows = _rows(["--query-gpu=uuid,pci.bus_id"])
    uuid = str(getattr(properties, "uuid", ""))
    found = [row[1] for row in rows if len(row) == 2 and uuid and uuid in row[0]]
    if not found and len(rows) == 1 and index == 0 and len(rows[0]) == 2:
        found = [rows[0][1]]
    return normal(found[0]) if len(found) == 1 else None


def normal(address: str) -> str:
    """`00000000:3B:00.0`, as the driver writes it, as the kernel does: `0000:3b:00.0`."""
    domain, _, rest = address.strip().lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _rows(options: list[str]) -> list[list[str]]:
    """What nvidia-smi answers; nothing where there is none, or where it does not know a field."""
    command = ["nvidia-smi", *options, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return parsed(done.stdout) if done.returncode == 0 else []


def parsed(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]


def reasons_of(mask: str) -> list[str] | None:
    """Names of the reasons in a mask such as `0x0000000000000004`; None where it is none."""
    try:
        bits = int(mask, 16)
    except ValueError:
        return None
    return [name for bit, name in REASON_BITS.items() if bits & bit]


class Watch:
    """Asks the driver about one GPU, and stops asking where that takes long."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.slow = False
        self._reasons = list(REASONS)

    def _ask(self, fields: dict[str, str]) -> dict[str, Any]:
        if self.address is None:
            return {}
        rows = _rows([f"--query-gpu={','.join(fields.values())}", f"--id={self.address}"])
        if len(rows) != 1 or len(rows[0]) != len(fields):
            return {}
        cells = dict(zip(fields, rows[0]))
        return {key: _number(cell) if _number(cell) is not None else cell for key, cell in cells.items()}

    def card(self) -> dict[str, Any]:
        return self._ask(CARD)

    def link(self) -> dict[str, Any] | None:
        found = self._ask(LINK)
        generation, width = found.get("generation"), found.get("width")
        if not isinstance(generation, float) or not isinstance(width, float):
            return None
        speed = TRANSFERS.get(int(generation), 0.0)
        limit = limit_of(speed, int(width))
        if limit is None:
            return None
        return {"kind": "pcie", "gigatransfers": speed, "width": int(width), "limit_gbs": limit, "source": "driver"}

    def state(self) -> dict[str, Any] | None:
        if self.slow:
            return None
        start = time.perf_counter()
        found = self._ask(STATE)
        self.slow = time.perf_counter() - start > SLOW
        if not found:
            return None
        found["reasons"] = self._why()
        found["slowed"] = [reason for reason in found["reasons"] or () if reason in SLOWING]
        found["others"] = self._others()
        return found

    def _why(self) -> list[str] | None:
        """Why the clocks are not higher."""
        while self._reasons:
            answer = self._ask({"mask": self._reasons[0]})
            if answer:
                return reasons_of(str(answer["mask"]))
            self._reasons.pop(0)
        return None

    def _others(self) -> list[int]:
        """Processes that compute on the same GPU; in a container this one may be among them under another number."""
        rows = _rows(["--query-compute-apps=pid", f"--id={self.address}"])
        return [int(row[0]) for row in rows if row[0].isdigit() and int(row[0]) != os.getpid()]
