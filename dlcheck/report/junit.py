"""JUnit XML: a suite per file, a failing case per finding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from dlcheck.findings import Finding
from dlcheck.report.common import measured, where

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.pages import Page

# XML 1.0 has no way to write these.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report, *, pages: Mapping[str, Page], color: bool) -> str:
    errors, findings = len(report.errors), len(report.findings)
    total = errors + findings
    root = _element(None, "testsuites", name="dlcheck", tests=total or 1, failures=findings, errors=errors)
    for path, group in groupby(report.findings, key=lambda finding: finding.place.path):
        _suite(root, path, list(group))
    if errors:
        suite = _element(root, "testsuite", name="dlcheck", tests=errors, failures=0, errors=errors)
        for error in report.errors:
            case = _element(suite, "testcase", name=error.path or "dlcheck", classname="dlcheck")
            _element(case, "error", message=error.message)
    if not total:
        suite = _element(root, "testsuite", name="dlcheck", tests=1, failures=0, errors=0)
        _element(suite, "testcase", name=f"No findings in {report.files} files", classname="dlcheck")
    ElementTree.indent(root)
    # Written in ASCII, with references for the rest: right in whatever encoding it is saved.
    body: bytes = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=False)
    return f'<?xml version="1.0"?>\n{body.decode("ascii")}\n'


def _suite(root: ElementTree.Element, path: str, findings: list[Finding]) -> None:
    suite = _element(root, "testsuite", name=path, tests=len(findings), failures=len(findings), errors=0)
    for finding in findings:
        place = finding.place
        name = f"{finding.code} {finding.rule} {where(place)}"
        case = _element(suite, "testcase", name=name, classname=path, file=path, line=place.line, column=place.column)
        failure = _element(case, "failure", type=f"{finding.severity} {finding.code}", message=finding.message)
        lines = (f"{where(place)}: {finding.message}", finding.help, measured(finding))
        failure.text = _clean("\n".join(filter(None, lines)))


def _element(parent: ElementTree.Element | None, tag: str, **attributes: str | int) -> ElementTree.Element:
    clean = {key: _clean(str(value)) for key, value in attributes.items()}
    return ElementTree.Element(tag, clean) if parent is None else ElementTree.SubElement(parent, tag, clean)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
