"""Figures as people read them."""

from __future__ import annotations

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def size(number: float) -> str:
    """``1.5 GiB``, ``64 MiB``, ``12 KiB``, ``300 B``."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if number >= unit:
            value = number / unit
            return f"{value:.1f} {name}" if value < 10 and round(value, 1) % 1 else f"{value:.0f} {name}"
    return f"{number:.0f} B"


def count(number: float, one: str, many: str = "") -> str:
    """``1 core``, ``3.5 cores``, ``no cores``."""
    told = f"{round(number, 2):g}" if number else "no"
    return f"{told} {one if number == 1 else many or one + 's'}"


def seconds(number: float) -> str:
    """``180 ms``, ``2.1 s``, ``35 us``."""
    if number >= 1:
        return f"{number:.2g} s"
    return f"{number * 1e3:.3g} ms" if number >= 1e-3 else f"{number * 1e6:.3g} us"
