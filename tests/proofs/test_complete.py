"""Every rule has a proof, or says why it can have none on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

from dlcheck.checks import RULES

HERE = Path(__file__).resolve().parent
PROVES = re.compile(r"\.proves\(([^)]*)\)")

# What a machine without a GPU (a Mac, many cores) cannot show.
NOT_ON_A_CPU: dict[str, str] = {
    "DLC101": "Whether a copy to the GPU blocks can be seen on a GPU alone.",
    "DLC102": "Whether a copy to the GPU blocks can be seen on a GPU alone.",
    "DLC103": "Memory is pinned for a GPU; without one, torch pins nothing.",
    "DLC104": "Without a GPU torch refuses to pin a tensor, so that the two ways of copying cannot be compared.",
    "DLC106": "There is no CUDA tensor to pin without a GPU.",
    "DLC109": "A copy between host and host is done when the call returns; only a GPU's may still be on its way.",
    "DLC110": "Only a Mac's GPU reads a source that was freed.",
    "DLC216": "CUDA cannot be initialised, in a worker or elsewhere, without a GPU.",
    "DLC423": "A default device other than the CPU needs a GPU whose generators torch can make.",
    "DLC501": "The host waits only for a device that works behind it: the CPU's tensors are there at once.",
    "DLC504": "How much of a GPU's memory a list keeps can be seen on a GPU alone.",
    "DLC507": "On the CPU a call returns when its work is done, so that every clock is right.",
    "DLC702": "Whether a copy to the GPU blocks can be seen on a GPU alone.",
}


def proven() -> set[str]:
    """The codes that the proofs name."""
    texts = (file.read_text(encoding="utf-8") for file in HERE.glob("test_*_proofs.py"))
    return {code for text in texts for found in PROVES.findall(text) for code in re.findall(r"DLC\d{3}", found)}


def test_every_rule_is_proven_or_says_why_not() -> None:
    assert set(RULES) == proven() | set(NOT_ON_A_CPU)
    assert not proven() & set(NOT_ON_A_CPU)
