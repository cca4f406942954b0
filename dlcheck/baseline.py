"""A file of known findings, which are not reported again.

A finding is known by its code, its file, the statement's own text and its number among equals:
not by its line, so that a baseline survives edits elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from dlcheck import files, writing
from dlcheck.findings import Finding, with_fingerprints

SCHEMA = "dlcheck.baseline/1"
DEFAULT = ".dlcheck-baseline.json"
# A file that cannot be read hides all that may be in it: never something to get used to.
NEVER = frozenset({"DLC001"})


class BaselineError(Exception):
    """A baseline that cannot be read or written."""

    def __init__(self, file: str, message: str) -> None:
        self.path = files.shown(file)
        self.message = message
        super().__init__(f"{self.path}: {message}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One known finding; ``path`` is relative to the folder of the baseline."""

    key: str
    code: str
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Split:
    """Findings against a baseline: what is new, what is known, and which entries match nothing."""

    new: list[Finding]
    known: list[Finding]
    stale: list[Entry]


def read(file: str) -> list[Entry]:
    """The entries of a baseline file; raises BaselineError where it is none."""
    import json

    try:
        document = json.loads(files.read(file))
    except files.UnusableError as error:
        raise BaselineError(file, error.message) from None
    except (ValueError, RecursionError) as error:
        raise BaselineError(file, f"not a baseline: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BaselineError(file, f"not a baseline of this version ({SCHEMA})")
    try:
        rows = [(row["key"], row["code"], row["path"], row["message"]) for row in document["findings"]]
        if not all(isinstance(word, str) for row in rows for word in row):
            raise TypeError
        return [Entry(*row) for row in rows]
    except (KeyError, TypeError):
        raise BaselineError(file, "not a baseline: an entry lacks key, code, path or message") from None


def write(file: str, entries: Iterable[Entry]) -> None:
    """Write a baseline, replacing the file as a whole; the same entries give the same bytes."""
    import json

    rows: list[dict[str, Any]] = [
        {"code": entry.code, "path": entry.path, "key": entry.key, "message": entry.message}
        for entry in sorted(set(entries), key=lambda entry: (entry.path, entry.code, entry.key))
    ]
    text = json.dumps({"schema": SCHEMA, "findings": rows}, indent=1, ensure_ascii=False) + "\n"
    try:
        writing.replace(file, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise BaselineError(file, error.strerror or str(error)) from None


def entries(findings: Iterable[Finding], file: str) -> list[Entry]:
    """What a baseline at ``file`` holds of these findings."""
    return [entry for _, entry in _keyed(findings, file)]


def split(findings: Iterable[Finding], known: Iterable[Entry], file: str, checked: Collection[str]) -> Split:
    """Findings against the entries of the baseline at ``file``.

    ``checked`` are the files (absolute) that the run looked at: an entry of another file that
    still exists may well be alive.
    """
    by_key = {entry.key: entry for entry in known}
    keyed = _keyed(findings, file)
    found = {entry.key for _, entry in keyed}
    folder = os.path.dirname(file)
    stale = []
    for entry in by_key.values():
        path = os.path.normpath(os.path.join(folder, entry.path))
        if entry.key not in found and (path in checked or not os.path.exists(path)):
            stale.append(entry)
    unseen = [finding for finding in findings if finding.code in NEVER]
    new = unseen + [finding for finding, entry in keyed if entry.key not in by_key]
    return Split(
        sorted(new, key=lambda finding: finding.sort_key),
        [finding for finding, entry in keyed if entry.key in by_key],
        stale,
    )


def _keyed(findings: Iterable[Finding], file: str) -> list[tuple[Finding, Entry]]:
    folder = os.path.dirname(file)
    by_path: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.code not in NEVER:
            by_path.setdefault(finding.place.path, []).append(finding)
    keyed = []
    for path, group in by_path.items():
        relative = os.path.relpath(os.path.abspath(path), folder).replace(os.sep, "/")
        moved = [replace(finding, place=replace(finding.place, path=relative)) for finding in group]
        # Both in the order of their places, which the new path leaves as it was.
        pairs = zip(sorted(group, key=lambda finding: finding.sort_key), with_fingerprints(moved), strict=True)
        keyed += [
            (finding, Entry(keyed_as.fingerprint, finding.code, relative, finding.message))
            for finding, keyed_as in pairs
        ]
    return keyed
