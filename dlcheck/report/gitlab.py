"""GitLab's Code Quality report: a JSON list of issues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlcheck.findings import Finding, Severity
from dlcheck.report.common import from_root, measured

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.pages import Page

_SEVERITY: dict[Severity, str] = {"error": "critical", "warning": "major", "info": "info"}


def render(report: Report, *, pages: Mapping[str, Page], color: bool) -> str:
    seen: set[str] = set()
    return json.dumps([_issue(finding, seen) for finding in report.findings], indent=2) + "\n"


def _issue(finding: Finding, seen: set[str]) -> dict[str, Any]:
    place = finding.place
    cell = "" if place.cell is None else f"cell {place.cell}, line {place.line}: "
    said = "; ".join(filter(None, (finding.message, measured(finding))))
    # A cell's line is no line of the notebook's file.
    begin, end = (place.line, place.end_line) if place.cell is None else (1, 1)
    return {
        "description": f"{finding.code} {cell}{said}",
        "check_name": finding.code,
        "fingerprint": _unique(finding.fingerprint, seen),
        "severity": _SEVERITY[finding.severity],
        "location": {"path": from_root(place.path, "CI_PROJECT_DIR"), "lines": {"begin": begin, "end": end}},
    }


def _unique(fingerprint: str, seen: set[str]) -> str:
    """GitLab shows one of several issues with the same fingerprint: make it differ."""
    number, unique = 1, fingerprint
    while not unique or unique in seen:
        number += 1
        unique = hashlib.blake2b(f"{fingerprint}:{number}".encode(), digest_size=16).hexdigest()
    seen.add(unique)
    return unique
