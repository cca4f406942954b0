"""What several report formats share."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlcheck.findings import CONFIDENCES, SEVERITIES, Finding, Place, ReportError

if TYPE_CHECKING:
    from dlcheck.engine import Report

# Control characters, marks that change the direction of text, and surrogates: in a terminal or a
# log they could hide what the code says, or break the line.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """The text on one line, with a visible sign for each character that must not reach a terminal."""
    return _HIDDEN.sub(_sign, text)


def harmless(text: str) -> str:
    """The text without what a terminal or GitHub's runner would obey; further lines of it are set in."""
    return "\n  ".join(map(no_command, map(printable, text.split("\n"))))


def no_command(line: str) -> str:
    """A line that GitHub's runner does not take for a command, whoever wrote it: ``::`` in front, ``##[`` anywhere."""
    line = line.replace("##[", "## [")
    return f"./{line.lstrip()}" if line.lstrip().startswith("::") else line


def _sign(match: re.Match[str]) -> str:
    char = match[0]
    if char in "\t\n\r\u2028\u2029":
        return " "
    return chr(0x2400 + ord(char)) if char < " " else "\u2421" if char == "\x7f" else "\ufffd"


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
