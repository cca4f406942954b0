"""The JSON report, whose shape is fixed: programs read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlcheck import __version__
from dlcheck.findings import Edit, Finding, Measurement, Place
from dlcheck.report.common import counts

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.pages import Page

SCHEMA = "dlcheck.report/1"


def render(report: Report, *, pages: Mapping[str, Page], color: bool) -> str:
    return json.dumps(document(report), indent=2) + "\n"


def document(report: Report) -> dict[str, Any]:
    fixable = sum(finding.fix is not None for finding in report.findings)
    fixed = {} if report.fixed is None else {"fixed": report.fixed}
    return {
        "schema": SCHEMA,
        "version": __version__,
        "findings": [_finding(finding) for finding in report.findings],
        "errors": [{"path": error.path, "line": error.line, "message": error.message} for error in report.errors],
        "summary": {"files": report.files, **counts(report.findings), "fixable": fixable, **fixed},
    }


def _finding(finding: Finding) -> dict[str, Any]:
    fix = finding.fix
    return {
        "code": finding.code,
        "rule": finding.rule,
        "severity": finding.severity,
        "confidence": finding.confidence,
        **_range(finding.place),
        "cell": finding.place.cell,
        "message": finding.message,
        "help": finding.help,
        "related": [{**_range(place), **_cell(place), "message": place.message} for place in finding.related],
        "fix": fix
        and {
            "applicability": fix.applicability,
            "message": fix.message,
            "edits": [_edit(edit) for edit in fix.edits],
        },
        "fingerprint": finding.fingerprint,
        "measurement": finding.measurement and measurement(finding.measurement),
    }


def measurement(found: Measurement) -> dict[str, Any]:
    """The nine fields of a measurement, which SARIF shows as well."""
    return {
        "verdict": found.verdict,
        "ratio": found.ratio,
        "ci": found.ci and list(found.ci),
        "a": found.a,
        "b": found.b,
        "unit": found.unit,
        "evidence": found.evidence,
        "date": found.date,
        "record": found.record,
    }


def _edit(edit: Edit) -> dict[str, Any]:
    return {**_range(edit.place), **_cell(edit.place), "replacement": edit.replacement}


def _range(place: Place) -> dict[str, Any]:
    return {
        "path": place.path,
        "line": place.line,
        "column": place.column,
        "end_line": place.end_line,
        "end_column": place.end_column,
    }


def _cell(place: Place) -> dict[str, int]:
    # Without it a place in a notebook names nothing; in a module it would be a key too many.
    return {} if place.cell is None else {"cell": place.cell}
