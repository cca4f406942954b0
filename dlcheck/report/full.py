"""The report that people read first: each finding with its code, its related places and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dlcheck.findings import Finding, Severity
from dlcheck.harmless import printable
from dlcheck.report.common import error_line, ranked, summary, where
from dlcheck.report.frame import Frame, frame

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.pages import Page

RED, YELLOW, BLUE, CYAN, BOLD = "1;31", "1;33", "1;34", "1;36", "1"
_COLOR: dict[Severity, str] = {"error": RED, "warning": YELLOW, "info": CYAN}


def render(report: Report, *, pages: Mapping[str, Page], color: bool, quiet: bool = False) -> str:
    brush = Brush(color)
    blocks = ["\n".join(_finding(finding, report, brush)) for finding in report.findings]
    blocks += [_error(error_line(error), brush) for error in report.errors]
    if not quiet:
        blocks.append("\n".join(_ending(report, pages, brush)))
    return "\n\n".join(blocks) + "\n" if blocks else ""


class Brush:
    """Colours text where colours are wanted."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._color and text else text


def _finding(finding: Finding, report: Report, brush: Brush) -> list[str]:
    style = _COLOR[finding.severity]
    own = frame(report.sources.get(finding.place.path), finding.place, context=1, mark="^")
    near = [frame(report.sources.get(place.path), place, context=0, mark="-") for place in finding.related]
    # One width for all frames of a finding, so that their rules stand below one another.
    margin = " " * max(part.number_width for part in (own, *near))
    rule = margin + brush(BLUE, " |")
    head = brush(style, f"{finding.severity}[{finding.code}]")
    lines = [
        f"{head} {brush(BOLD, finding.rule)}: {printable(finding.message)}",
        f"{margin}{brush(BLUE, '-->')} {where(finding.place)}",
        *_drawn(own, margin, style, brush),
    ]
    for place, part in zip(finding.related, near, strict=True):
        caption = "" if part.rows or not place.message else f": {printable(place.message)}"
        lines += f"{margin}{brush(BLUE, ':::')} {where(place)}{caption}", *_drawn(part, margin, BLUE, brush)
    notes = {"help": finding.help}
    if finding.fix:
        notes["fix"] = f"{finding.fix.message} ({finding.fix.applicability})"
    if finding.unfixed:
        notes["not fixed"] = finding.unfixed
    if finding.measurement:
        notes["measured"] = finding.measurement.text
    lines += (
        f"{margin} {brush(BLUE, '=')} {brush(BOLD, name)}: {printable(text)}" for name, text in notes.items() if text
    )
    return lines[:-1] if lines[-1] == rule else lines


def _drawn(part: Frame, margin: str, style: str, brush: Brush) -> Iterator[str]:
    """The rows of a frame between two rules; nothing of a frame without code."""
    if not part.rows:
        return
    width = len(margin)
    rule = margin + brush(BLUE, " |")
    yield rule
    for row in part.rows:
        if row.elided:
            yield brush(BLUE, "...".ljust(width + 3)) + brush(style, row.bar.strip())
            continue
        number = "" if row.number is None else str(row.number)
        gutter = brush(BLUE, f"{number:>{width}} |")
        yield f"{gutter} {brush(style, row.bar)}{row.text}{brush(style, row.mark)}".rstrip()
    yield rule


def _error(line: str, brush: Brush) -> str:
    head, colon, rest = line.partition(":")
    return f"{brush(RED, head)}{colon}{rest}"


def _ending(report: Report, pages: Mapping[str, Page], brush: Brush) -> Iterator[str]:
    yield brush(BOLD, summary(report))
    told = [finding.code for finding in ranked(report.findings) if finding.code in pages]
    if told:
        yield f"`dlcheck rule {told[0]}` says why, and when not to follow it."
