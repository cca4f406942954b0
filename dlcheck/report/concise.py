"""One line per finding: ``train.py:18:14: DLC101 message``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dlcheck.findings import Finding
from dlcheck.harmless import printable
from dlcheck.report.common import error_line, summary, where

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.pages import Page


def concise_lines(findings: Iterable[Finding]) -> list[str]:
    return [f"{where(found.place)}: {found.code} {printable(found.message)}" for found in findings]


def render(report: Report, *, pages: Mapping[str, Page], color: bool, quiet: bool = False) -> str:
    lines = [*concise_lines(report.findings), *map(error_line, report.errors)]
    if not quiet:
        lines.append(summary(report))
    return "\n".join((*lines, ""))
