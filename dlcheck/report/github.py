"""GitHub Actions: workflow commands, which become annotations, and a table for the step's summary."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dlcheck.findings import Finding, Severity
from dlcheck.harmless import no_command, printable
from dlcheck.report.common import error_line, from_root, measured, ranked, summary, where
from dlcheck.report.concise import concise_lines

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.pages import Page

_COMMAND: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice"}
_LINE = re.compile(r"[^\r\n]+")
# A step shows so many annotations of each kind and drops the others without a word.
SHOWN = 10
# GitHub takes 1 MiB of summary per step and refuses a longer one whole.
SUMMARY_ROWS, SUMMARY_BYTES = 1000, 900_000


def render(report: Report, *, pages: Mapping[str, Page], color: bool) -> str:
    if file := os.environ.get("GITHUB_STEP_SUMMARY"):
        append_summary(report, file)
    return "\n".join((*commands(report.findings), *_plain(report), ""))


def commands(findings: Sequence[Finding]) -> list[str]:
    """The most serious and certain findings of each kind, as workflow commands."""
    shown: list[str] = []
    for severity in _COMMAND:
        of_kind = [finding for finding in ranked(findings) if finding.severity == severity]
        shown += (_command(finding) for finding in of_kind[:SHOWN])
    return shown


def _plain(report: Report) -> list[str]:
    lines = [*concise_lines(report.findings), *map(error_line, report.errors), summary(report)]
    return [no_command(line) for text in lines for line in text.split("\n")]


def _command(finding: Finding) -> str:
    place, message = finding.place, finding.message
    properties = {"title": f"dlcheck ({finding.code})", "file": from_root(place.path, "GITHUB_WORKSPACE")}
    if place.cell is None:
        properties |= {"line": str(place.line), "col": str(place.column)}
        properties |= {"endLine": str(place.end_line), "endColumn": str(place.end_column)}
    else:
        # A cell's line is no line of the notebook's file.
        properties["line"] = "1"
        message = f"cell {place.cell}, line {place.line}: {message}"
    if finding.help:
        message += f"\n{finding.help}"
    if finding.measurement:
        message += f"\n{measured(finding)}"
    named = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{_COMMAND[finding.severity]} {named}::{_escape(message)}"


def _escape(text: str) -> str:
    shown = _LINE.sub(lambda line: printable(line[0]), text)  # a log is shown in a terminal
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def append_summary(report: Report, file: str) -> None:
    """Append the findings to the Markdown file that GitHub shows as the step's summary."""
    try:
        with open(file, "a", encoding="utf-8") as out:
            out.write(step_summary(report))
    except OSError:
        # A summary that cannot be written is no reason to fail the step: the log says the same.
        pass


def step_summary(report: Report) -> str:
    """The findings as a Markdown table."""
    total = summary(report)
    if not report.findings:
        return f"### dlcheck\n\n{total}\n"
    lines = ["### dlcheck", "", total, "", "| severity | rule | where | what |", "| --- | --- | --- | --- |"]
    size = sum(len(line) for line in lines)
    rows = ranked(report.findings)
    for number, finding in enumerate(rows):
        row = _row(finding)
        size += len(row.encode("utf-8", "replace")) + 1
        if number == SUMMARY_ROWS or size > SUMMARY_BYTES:
            lines += "", f"{len(rows) - number} more are in the log."
            break
        lines.append(row)
    return "\n".join(lines) + "\n"


def _row(finding: Finding) -> str:
    said = "; ".join(filter(None, (finding.message, measured(finding))))
    cells = (finding.severity, f"{finding.code} {finding.rule}", where(finding.place), said)
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    text = printable(text)
    parts = text.split("`")
    # In code Markdown takes characters as they are; but what is code, a backslash or a lone mark in a name may change.
    if len(parts) % 2 == 0 or "\\" in text:
        return _inline(_MARKDOWN.sub(_entity, text))
    plain = [_MARKDOWN.sub(_entity, part) for part in parts]
    plain[1::2] = parts[1::2]
    return _inline("`".join(plain).replace("|", "\\|"))


_MARKDOWN = re.compile(r"[&<\\`|]|(?<=\])\(")  # `](` is what makes a link


def _entity(match: re.Match[str]) -> str:
    return _ENTITIES.get(match[0], f"&#{ord(match[0])};")


_ENTITIES = {"&": "&amp;", "<": "&lt;"}


def _inline(text: str) -> str:
    return " ".join(text.split())
