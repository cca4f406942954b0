"""What several report formats share."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlcheck.findings import CONFIDENCES, SEVERITIES, Finding, Place, ReportError
from dlcheck.harmless import printable

if TYPE_CHECKING:
    from dlcheck.engine import Report


def where(place: Place) -> str:
    """``train.py:18:14``; in a notebook ``nb.ipynb:cell 2:3:5``."""
    cell = "" if place.cell is None else f"cell {place.cell}:"
    return f"{printable(place.path)}:{cell}{place.line}:{place.column}"


def measured(finding: Finding) -> str:
    """``measured: here on 29 Nov 2026: confirmed, ...``; nothing where no record speaks of the finding."""
    return f"measured: {finding.measurement.text}" if finding.measurement else ""


def error_line(error: ReportError) -> str:
    at = printable(error.path) + (f":{error.line}" if error.line else "")
    message = "\n".join(map(printable, error.message.split("\n")))
    return f"error: {at}: {message}" if at else f"error: {message}"


def unread_line(finding: Finding) -> str:
    """For commands that give no report of findings."""
    return f"{printable(finding.place.path)}:{finding.place.line}: {printable(finding.message)}"


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """The most serious and certain ones first."""
    return sorted(
        findings,
        key=lambda one: (SEVERITIES.index(one.severity), CONFIDENCES.index(one.confidence), one.sort_key),
    )


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings of each severity."""
    found = Counter(finding.severity for finding in findings)
    return {severity: found[severity] for severity in SEVERITIES}


def summary(report: Report) -> str:
    """The line that ends a report for people."""
    known = f"; {len(report.known)} more in the baseline" if report.known else ""
    known += f"; {len(report.refuted)} more refuted by measurements on this machine" if report.refuted else ""
    known += f"; {report.fixed} fixed" if report.fixed else ""
    if not report.findings and not report.files:
        return f"No file was checked{known}."
    if not report.findings:
        return f"No findings in {_number(report.files, 'file')}{known}."
    parts = [_number(count, severity) for severity, count in counts(report.findings).items() if count]
    return f"Found {_number(len(report.findings), 'finding')} ({', '.join(parts)}){known}."


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 or word == 'info' else 's'}"


def from_root(path: str, variable: str) -> str:
    """A path as seen from the root of a CI's checkout, which an environment variable names.

    Outside that CI, or where the path does not lie below the root, the path as it is.
    """
    root = os.environ.get(variable)
    if not root:
        return path
    try:
        below = os.path.relpath(os.path.realpath(path), os.path.realpath(root)).replace(os.sep, "/")
    except ValueError:  # on another drive
        return path
    return path if below.startswith("../") else below
