"""SARIF 2.1.0, with what GitHub code scanning asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dlcheck import __version__
from dlcheck.findings import Confidence, Edit, Finding, Place, ReportError, Severity
from dlcheck.report.common import from_root, measured, ranked
from dlcheck.report.json_ import measurement
from dlcheck.report.linehash import line_hashes
from dlcheck.source import Source

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.pages import Page

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

# GitHub refuses a file with more, and does not show a longer text.
MAX_RESULTS, MAX_RELATED, MAX_TEXT = 25_000, 100, 1024

_LEVEL: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
_PROBLEM: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "recommendation"}
# By the first digit of a code.
_FAMILY = {
    "1": "transfer", "2": "workers", "3": "dataset", "4": "sampling", "5": "training-loop", "6": "multiprocessing",
    "7": "framework",
}  # fmt: skip


def render(report: Report, *, pages: Mapping[str, Page], color: bool) -> str:
    return json.dumps(document(report, pages), indent=2) + "\n"


def document(report: Report, pages: Mapping[str, Page]) -> dict[str, Any]:
    results = ranked(report.findings)[:MAX_RESULTS]
    rules = {code: _Rule(code, found, pages.get(code)) for code, found in _by_code(results).items()}
    numbers = {code: number for number, code in enumerate(rules)}
    hashes = _LineHashes(report.sources)
    driver = {
        "name": "dlcheck",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [rule.descriptor() for rule in rules.values()],
    }
    invocation: dict[str, Any] = {"executionSuccessful": not report.errors}
    if report.errors:
        invocation["toolExecutionNotifications"] = [_notification(error) for error in report.errors]
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "newlineSequences": ["\r\n", "\n", "\r"],
        "results": [_result(finding, numbers[finding.code], hashes) for finding in results],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


# -- rules


def _by_code(findings: list[Finding]) -> dict[str, Finding]:
    """A finding of each code, in the order of the codes."""
    found = {finding.code: finding for finding in findings}
    return {code: found[code] for code in sorted(found)}


class _Rule:
    """A rule as SARIF describes it: from its page, or, where it has none, from what a finding says."""

    def __init__(self, code: str, found: Finding, page: Page | None) -> None:
        self.code = code
        self.name = page.name if page else found.rule
        self.severity: Severity = page.severity if page else found.severity
        self.confidence: Confidence = page.confidence if page else found.confidence
        self.summary = (page.summary if page else found.rule.replace("-", " ")) or code
        self.documentation = page.documentation.strip() if page else ""

    def descriptor(self) -> dict[str, Any]:
        about = self.documentation or self.summary
        said = _plain(_opening(about)) or self.summary
        tags = ["pytorch", "correctness" if self.severity == "error" else "performance"]
        tags += [_FAMILY[self.code[3]]] if self.code[3:4] in _FAMILY else []
        return {
            "id": self.code,
            "name": self.name,
            "shortDescription": {"text": _short(f"{self.summary}.")},
            "fullDescription": {"text": _short(said)},
            "help": {"text": said, "markdown": about},
            "defaultConfiguration": {"level": _LEVEL[self.severity]},
            "properties": {
                "tags": tags,
                "precision": self.confidence,
                "problem.severity": _PROBLEM[self.severity],
            },
        }


def _opening(documentation: str) -> str:
    """What a rule does and why: the sections before the example."""
    return documentation.partition("\n## Example")[0]


def _plain(markdown: str) -> str:
    """Markdown without headings, links and the breaks within a paragraph."""
    text = re.sub(r"^#+ .*\n?", "", markdown, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]+)\]\([^)\s]+\)", r"\1", text)
    text = re.sub(r"(?<!\n)\n(?![\n*|-])", " ", text.strip())
    return re.sub(r"\n{3,}", "\n\n", text)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1].rsplit(maxsplit=1)[0] + "…"


# -- results


def _result(finding: Finding, rule: int, hashes: _LineHashes) -> dict[str, Any]:
    place = finding.place
    prints = {"primaryLocationLineHash": hashes.of(place), "dlcheckFingerprint/v1": finding.fingerprint}
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVEL[finding.severity],
        "message": {"text": _message(finding)},
        "locations": [_location(place)],
        "partialFingerprints": {name: value for name, value in prints.items() if value},
        "properties": {"confidence": finding.confidence},
    }
    if finding.measurement:
        result["properties"]["measurement"] = measurement(finding.measurement)
        if finding.measurement.passes:
            # A result of another kind than "fail" has no level.
            result |= {"kind": "pass", "level": "none"}
    if finding.related:
        result["relatedLocations"] = [
            {"id": number, **_location(near), "message": {"text": _linkless(near.message) or "related"}}
            for number, near in enumerate(finding.related[:MAX_RELATED], 1)
        ]
    # A notebook's cells are not where an edit could be made in its file.
    if finding.fix and finding.fix.edits and all(edit.place.cell is None for edit in finding.fix.edits):
        changes = [_change(path, edits) for path, edits in _by_path(finding.fix.edits).items()]
        text = _linkless(finding.fix.message) or "Fix"
        result["fixes"] = [{"description": {"text": text}, "artifactChanges": changes}]
        result["properties"]["fixApplicability"] = finding.fix.applicability
    return result


def _message(finding: Finding) -> str:
    text = finding.message or finding.rule
    if finding.place.cell is not None:
        text = f"Cell {finding.place.cell}, line {finding.place.line}: {text}"
    if finding.help:
        text += f"\n{finding.help}"
    if finding.measurement:
        text += f"\n{measured(finding)}"
    return _linkless(text)


def _linkless(text: str) -> str:
    """A message in which nothing is a link: `[x](1)` would be one to a related place."""
    return text.replace("](", "] (")


def _location(place: Place) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": uri(place.path)}, "region": _region(place)}
    }
    if place.cell is not None:
        full = f"cell {place.cell}:{place.line}:{place.column}"
        location["logicalLocations"] = [{"name": f"cell {place.cell}", "fullyQualifiedName": full, "kind": "cell"}]
    return location


def _region(place: Place) -> dict[str, int]:
    if place.cell is not None:
        # Lines of a cell are no lines of the file: its first character, a brace, stands for it.
        return {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 2}
    line, column = max(place.line, 1), max(place.column, 1)
    end_line, end_column = max((place.end_line, place.end_column), (line, column))
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}


def uri(path: str) -> str:
    """A path as a relative reference, or as a file's address where it is absolute."""
    path = from_root(path, "GITHUB_WORKSPACE")
    quoted = quote(path.encode("utf-8", "surrogateescape"), safe="/")
    if re.match(r"[A-Za-z]:/", path):
        return "file:///" + path[:2] + quoted[4:]
    return "file://" + quoted if path.startswith("/") else quoted


def _by_path(edits: tuple[Edit, ...]) -> dict[str, list[Edit]]:
    by_path: dict[str, list[Edit]] = {}
    for edit in edits:
        by_path.setdefault(edit.place.path, []).append(edit)
    return by_path


def _change(path: str, edits: list[Edit]) -> dict[str, Any]:
    replacements = [
        {"deletedRegion": _region(edit.place), "insertedContent": {"text": edit.replacement}} for edit in edits
    ]
    return {"artifactLocation": {"uri": uri(path)}, "replacements": replacements}


def _notification(error: ReportError) -> dict[str, Any]:
    notification: dict[str, Any] = {"level": "error", "message": {"text": _linkless(error.message) or "error"}}
    if error.path:
        physical: dict[str, Any] = {"artifactLocation": {"uri": uri(error.path)}}
        if error.line:
            physical["region"] = {"startLine": error.line}
        notification["locations"] = [{"physicalLocation": physical}]
    return notification


# -- fingerprints


class _LineHashes:
    """The line fingerprints of the files that findings are in, each file hashed once."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._hashes: dict[str, list[str]] = {}

    def of(self, place: Place) -> str | None:
        source = self._sources.get(place.path)
        if source is None:
            return None
        if place.path not in self._hashes:
            self._hashes[place.path] = line_hashes(_as_github_reads(source))
        above = next((cell.first_line for cell in source.cells if cell.number == place.cell), 0)
        hashes = self._hashes[place.path]
        line = place.line + above
        return hashes[line - 1] if 1 <= line <= len(hashes) else None


def _as_github_reads(source: Source) -> str:
    """The file's text where it is taken for UTF-8, byte order mark included."""
    text = source.text
    if source.encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig", "ascii"):
        try:
            text = text.encode(source.encoding).decode("utf-8", "replace")
        except (LookupError, UnicodeError):
            return text
    return "\ufeff" + text if source.bom else text
