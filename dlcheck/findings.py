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
    """Edits that are applied together or not at all.

    ``alters`` says that they change options of a loader, on which fixes of other rules may rest.
    """

    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]
    alters: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a record says of a finding: nine fields that reports show, and one line for people.

    ``ratio`` is suggested by written, with its interval ``ci``; ``a`` and ``b`` are the figures as written
    and as suggested, in ``unit``; all are None where nothing was timed or counted.  ``here`` says whether
    this machine measured it, ``outdated`` whether that was under another torch or Python.
    """

    verdict: str
    ratio: float | None
    ci: tuple[float | None, float | None] | None
    a: float | None
    b: float | None
    unit: str | None
    evidence: str
    date: str
    record: str
    text: str = ""
    here: bool = True
    outdated: bool = False

    @property
    def confirms(self) -> bool:
        return self.verdict == "confirmed"

    @property
    def passes(self) -> bool:
        """Whether it was shown, under the versions of today, that the suggestion changes nothing."""
        return self.verdict == "refuted-no-effect" and not self.outdated

    @property
    def refutes(self) -> bool:
        """Whether this machine, under the versions of today, has shown that the suggestion is not worth following."""
        return self.verdict in ("refuted-no-effect", "refuted-harmful") and self.here and not self.outdated


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong at one place.

    ``statement`` is the text of the statement around the place: the fingerprint is made of it,
    so that it survives lines moving above.  ``statement_lines`` are the first and last line of
    that statement, in the coordinates of ``place``; a comment on or above them can suppress it.
    ``unfixed`` says why there is no fix where the rule has one.
    ``measure`` is for those who measure it: which variant of its rule it is, what it is ``about``, and its loader.
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
    measurement: Measurement | None = None
    unfixed: str = ""

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
    seen: dict[tuple[str, str, str], int] = {}
    done: list[Finding] = []
    for finding in sorted(findings, key=lambda item: item.sort_key):
        same = (finding.code, finding.place.path, squeezed(finding.statement))
        seen[same] = seen.get(same, 0) + 1
        done.append(replace(finding, fingerprint=_fingerprint(*same, seen[same])))
    return done


def fingerprint_under(finding: Finding, path: str) -> str:
    """The fingerprint that a finding would have if its file were called ``path``.

    Its number among equals is that which its own fingerprint was made with, so that the answer is the same
    whatever was left out of the run's findings since.
    """
    text = squeezed(finding.statement)

    def under(path: str, number: int) -> str:
        return _fingerprint(finding.code, path, text, number)

    numbers = range(1, _MOST_EQUALS) if finding.fingerprint else ()
    own = (number for number in numbers if under(finding.place.path, number) == finding.fingerprint)
    return under(path, next(own, 1))


def squeezed(statement: str) -> str:
    """A statement's text without whitespace: what stays when only its layout changes."""
    return "".join(statement.split())


# More equal statements in one file are no code that anybody wrote.
_MOST_EQUALS = 10_000


def _fingerprint(code: str, path: str, statement: str, number: int) -> str:
    same = "\0".join((code, path, statement))
    return hashlib.blake2b(f"{same}\0{number}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
