"""What is shown while a finding is measured: a line for people, or a line of JSON for machines."""

from __future__ import annotations

import json
from typing import Any

from dlcheck import files
from dlcheck.findings import Finding
from dlcheck.measure import words
from dlcheck.measure.record import Effect, Record
from dlcheck.measure.runner import Progress
from dlcheck.measure.session import Step

BAR = 12


def text(step: Step) -> str:
    """``[3/7] DLC202 missing-persistent-workers train.py:34  round 5/7  B/A 0.77 [0.70, 0.84]  21 s left``"""
    finding = step.finding
    parts = [f"[{step.number}/{step.of}] {finding.code} {finding.rule} {place(finding)}"]
    if step.progress is not None:
        parts.append(f"round {step.progress.round}/{step.progress.of}")
        effect = _effect(step)
        if effect is not None:
            parts.append(f"B/A {words.ratio(effect.ratio)} [{', '.join(map(words.ratio, effect.ci))}]")
        if step.progress.left_s is not None and step.progress.round < step.progress.of:
            parts.append(f"{step.progress.left_s:.0f} s left")
    return "  ".join(parts)


def bar(step: Step, width: int) -> str:
    """The same with a bar, on one line of a terminal that is ``width`` columns wide."""
    progress = step.progress or Progress(0, 1, {}, None)
    done = round(BAR * progress.round / max(1, progress.of))
    return f"{'#' * done}{'.' * (BAR - done)} {text(step)}"[: max(1, width - 1)]


def line_of_json(step: Step) -> str:
    effect = _effect(step)
    said: dict[str, Any] = {
        "event": "progress",
        "code": step.finding.code,
        "path": step.finding.place.path,
        "line": step.finding.place.line,
        "number": step.number,
        "of": step.of,
    }
    if step.progress is not None:
        said.update(round=step.progress.round, rounds=step.progress.of, left_s=step.progress.left_s)
    if effect is not None:
        said.update(ratio=effect.ratio, ci=list(effect.ci))
    return json.dumps(said)


def record_as_json(record: Record) -> str:
    """A finished one."""
    return json.dumps({
        "event": "record",
        "code": record.code,
        "path": record.location.path,
        "line": record.location.line,
        "verdict": record.verdict,
        "reason": record.reason,
        "record": record.id,
    })  # fmt: skip


def record_as_text(record: Record) -> str:
    """``train.py:34 DLC202 missing-persistent-workers: confirmed, saves 76 ms per epoch [64, 89]``"""
    at = record.location
    cell = f":cell {at.cell}" if at.cell is not None else ""
    return f"{at.path}{cell}:{at.line} {record.code} {record.rule}: {words.outcome(record)}"


def place(finding: Finding) -> str:
    at = finding.place
    return f"{files.shown(at.path)}{f':cell {at.cell}' if at.cell is not None else ''}:{at.line}"


def _effect(step: Step) -> Effect | None:
    if step.progress is None:
        return None
    return step.progress.effects.get(step.finding.fingerprint)
