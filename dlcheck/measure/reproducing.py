"""Crashes and hangs, made to happen: the user's program is run up to its first batches, and has a time limit.

What crashes under one start method only is run under that one and under fork: the difference is the proof.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcheck.findings import Finding
from dlcheck.measure import program
from dlcheck.measure.record import Verdict

AS_IT_IS = ""
BATCHES = 3
LIMIT_S = 120.0

# By rule: the start method under which it crashes.
METHODS: Mapping[str, str] = {
    "DLC105": AS_IT_IS,
    "DLC106": AS_IT_IS,
    "DLC203": AS_IT_IS,
    "DLC212": AS_IT_IS,
    "DLC216": AS_IT_IS,
    "DLC217": AS_IT_IS,
    "DLC322": AS_IT_IS,
    "DLC411": AS_IT_IS,
    "DLC422": AS_IT_IS,
    "DLC423": AS_IT_IS,
    "DLC601": "spawn",
    "DLC604": "spawn",
}

NEED_CUDA = frozenset({"DLC105", "DLC106", "DLC216"})


@dataclass(frozen=True)
class Answer:
    """What came of it; ``counts`` says how each run ended."""

    verdict: Verdict
    reason: str
    counts: Mapping[str, Any]
    side_effects: Mapping[str, Any]
    seconds: float


def reproduce(
    finding: Finding, command: str, environment: Mapping[str, str], audit: str, limit_s: float = LIMIT_S
) -> Answer:
    """Run the program as the rule's fault needs it."""
    method = METHODS[finding.code]
    written = _run(finding, command, environment, audit, method, limit_s)
    if method == AS_IT_IS:
        return _as_it_is(finding, written)
    control = _run(finding, command, environment, audit, "fork", limit_s) if _fails(written) else written
    counts = {method: written.sentence, "fork": control.sentence if control is not written else "not run"}
    if not _fails(written):
        reason, judged = f"under {method} the program made {BATCHES} batches", "refuted-no-effect"
    elif _fails(control):
        reason, judged = f"under fork as well: {control.sentence}", "error"
    else:
        reason, judged = f"under {method}: {written.sentence}; under fork it made {BATCHES} batches", "confirmed"
    seconds = written.seconds + (control.seconds if control is not written else 0.0)
    return Answer(judged, reason, counts, written.side_effects, seconds)  # type: ignore[arg-type]


def _as_it_is(finding: Finding, found: program.Outcome) -> Answer:
    counts = {"as written": found.sentence}
    judged: Verdict = "refuted-no-effect"
    reason = f"the program made {BATCHES} batches"
    if _fails(found):
        there = _hangs(found) or _raised_there(finding, found.events)
        judged, reason = ("confirmed" if there else "error"), found.sentence
    return Answer(judged, reason, counts, found.side_effects, found.seconds)


def _run(
    finding: Finding, command: str, environment: Mapping[str, str], audit: str, method: str, limit_s: float
) -> program.Outcome:
    loader = finding.measure.get("loader")
    site = {**loader, "file": os.path.abspath(loader["file"])} if loader else None
    spec: dict[str, Any] = {
        "mode": "vivo",
        "site": site,
        "audit": audit,
        "arms": {"A": {}},
        "stop": {"batches": BATCHES},
    }
    if method:
        spec["start_method"] = method
    return program.run(command, spec, env=environment, budget_s=limit_s)


def _fails(found: program.Outcome) -> bool:
    return found.reason != "stopped"


def _hangs(found: program.Outcome) -> bool:
    return found.reason == "time-limit" and found.reached


def _raised_there(finding: Finding, events: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the program's error came through the place of the finding, or that of its loader."""
    places = [(os.path.abspath(finding.place.path), finding.statement_lines)]
    if loader := finding.measure.get("loader"):
        places.append((os.path.abspath(loader["file"]), (loader["line"], loader["end_line"])))
    return any(
        os.path.realpath(frame["file"]) == os.path.realpath(file) and first <= frame["line"] <= last
        for event in events
        for frame in event.get("raised", {}).get("frames", ())
        for file, (first, last) in places
    )
