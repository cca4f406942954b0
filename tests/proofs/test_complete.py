"""Every rule has a proof, or says why it can have none on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

from dlcheck.checks import RULES

HERE = Path(__file__).resolve().parent
PROVES = re.compile(r"\.proves\(([^)]*)\)")

# What a machine without a GPU (a Mac, many cores) cannot show.
NOT_ON_A_CPU: dict[str, str] = {}


def proven() -> set[str]:
    """The codes that the proofs name."""
    texts = (file.read_text(encoding="utf-8") for file in HERE.glob("test_*_proofs.py"))
    return {code for text in texts for found in PROVES.findall(text) for code in re.findall(r"DLC\d{3}", found)}


def test_every_rule_is_proven_or_says_why_not() -> None:
    assert set(RULES) == proven() | set(NOT_ON_A_CPU)
    assert not proven() & set(NOT_ON_A_CPU)
