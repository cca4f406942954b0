"""What dlcheck says of a place: findings, their places, fixes and text edits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
Confidence = Literal["high", "medium", "low"]
Applicability = Literal["safe", "unsafe"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class Place:
    """A range of one file: lines and columns count from 1, in characters; the end is exclusive.

    In a notebook ``cell`` is the number of the code cell (from 1) and lines count within it.
    ``path`` is relative to the current folder where possible, with ``/``.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    cell: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text at ``place`` by ``replacement``; an empty place inserts."""

    place: Place
    replacement: str


@dataclass(frozen=True, slots=True)
class Fix:
    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong at one place.

    ``statement`` is the text of the statement around the place: the fingerprint is made of it,
    so that it survives lines moving above.  ``statement_lines`` are the first and last line of
    that statement, in the coordinates of ``place``; a comment on or above them can suppress it.
    """

    code: str
    rule: str
    severity: Severity
    confidence: Confidence
    place: Place
    message: str
    help: str = ""
    related: tuple[Place, ...] = ()
    fix: Fix | None = None
    statement: str = ""
    statement_lines: tuple[int, int] = (0, 0)
    measure: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""

    @property
    def sort_key(self) -> tuple[str, int, int, int, str]:
        at = self.place
        return (at.path, at.cell or 0, at.line, at.column, self.code)


@dataclass(frozen=True, slots=True)
class ReportError:
    """Something that went wrong and is no finding: a baseline, a cache, a plug-in."""

    path: str
    line: int
    message: str


def with_fingerprints(findings: list[Finding]) -> list[Finding]:
    """Sort findings and give each its fingerprint.

    A fingerprint hashes code, path, the statement's own text without whitespace, and the
    finding's number among those that are equal in all three.
    """
    seen: dict[str, int] = {}
    done: list[Finding] = []
    for finding in sorted(findings, key=lambda item: item.sort_key):
        squeezed = "".join(finding.statement.split())
        same = "\0".join((finding.code, finding.place.path, squeezed))
        seen[same] = seen.get(same, 0) + 1
        digest = hashlib.blake2b(f"{same}\0{seen[same]}".encode("utf-8", "surrogatepass"), digest_size=16)
        done.append(replace(finding, fingerprint=digest.hexdigest()))
    return done
