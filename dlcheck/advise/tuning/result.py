"""What a search has found: rows, starts, the choice and its proof, and their JSON form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from statistics import median
from typing import Any, Literal

from dlcheck.advise.tuned import FOLDER, SCHEMA
from dlcheck.advise.tuning.choice import Choice, interval, spread_of
from dlcheck.advise.tuning.setting import Setting
from dlcheck.measure import identity, store
from dlcheck.measure.record import Effect, Evidence, Guard, Metric, Verdict
from dlcheck.measure.serial import plain

Status = Literal["complete", "budget", "interrupted", "stopped"]


@dataclass
class Row:
    """One setting: of each block the seconds of a step, those of them spent waiting, and the way to the first batch."""

    setting: Setting
    blocks: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    memory: Mapping[str, int | None] = field(default_factory=dict)  # pss, workers, parent, shm: bytes, of the last
    failure: str = ""
    stage: str = ""  # at which it failed
    wall_s: float = 0.0  # of its longest block, with all that is not timed in it

    @property
    def step_s(self) -> float | None:
        return median(self.blocks) if self.blocks else None

    @property
    def ran(self) -> bool:
        return bool(self.blocks) and not self.failure

    @property
    def waiting(self) -> float | None:
        """The share of a step that is spent waiting for the loader."""
        if not self.blocks:
            return None
        return min(1.0, median(wait / t for wait, t in zip(self.waits, self.blocks, strict=True)))


@dataclass(frozen=True)
class Start:
    """What an epoch costs beyond its batches, as its workers are started and kept; ``once`` is of the first epoch."""

    setting: Setting
    seconds: float | None = None
    once: float | None = None
    failure: str = ""


@dataclass(frozen=True)
class Proof:
    """The choice against what the loader has now, measured anew."""

    verdict: Verdict
    reason: str
    metric: Metric | None = None
    effect: Effect | None = None
    controls: Mapping[str, Effect] = field(default_factory=dict)
    guards: Sequence[Guard] = ()


@dataclass
class Result:
    """All of it.  ``status`` says why it ended, ``notes`` what went another way than one might think."""

    asked: Mapping[str, Any]  # of the command line
    evidence: Evidence = "none"
    status: Status = "complete"
    date: str = ""
    version: str = ""
    present: Setting | None = None
    choice: Choice | None = None
    chosen: Setting | None = None  # with how its workers are started and kept
    step: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    grid: int = 0
    removed: Sequence[str] = ()
    rows: list[Row] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    proof: Proof | None = None
    ranks: int = 1
    limits: Mapping[str, int | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    machine: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, Any] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    effects: Mapping[str, Any] = field(default_factory=dict)  # what the program did outside, and what became of it
    rerun: str = ""

    @property
    def id(self) -> str:
        told = json.dumps([self.date, self.asked], sort_keys=True, default=str)
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def best(self) -> Row | None:
        return next((row for row in self.rows if self.choice is not None and row.setting == self.choice.setting), None)

    @property
    def now(self) -> Row | None:
        """The row of what the loader has; one with its workers started as they are, if there is one."""
        known = self.present
        if known is None:
            return None
        alike = [row for row in self.rows if row.setting.short == known.short]
        return min(alike, key=lambda row: (row.setting != known, row.setting.method != known.method), default=None)

    def name(self, row: Row) -> str:
        """What to call a setting: how workers are started only where that differs between rows."""
        ways = {(one.setting.method, one.setting.persistent) for one in self.rows if one.setting.workers}
        return row.setting.words if len(ways) > 1 else row.setting.short

    @property
    def advice(self) -> Literal["take", "keep", "perhaps"] | None:
        """What to do: as fast with less is worth taking as well; None where nothing is chosen."""
        if self.chosen is None or self.present is None:
            return None
        if self.chosen == self.present:
            return "keep"
        judged = self.proof.verdict if self.proof is not None else "inconclusive"
        if judged == "refuted-no-effect":
            return "take" if self.chosen.cost < self.present.cost else "keep"
        if judged in ("confirmed", "not-measurable-here"):  # the latter: what it has now does not run
            return "take"
        return "keep" if judged == "refuted-harmful" else "perhaps"

    def interval_of(self, row: Row) -> tuple[float, float] | None:
        return interval(row.blocks, spread_of({one.setting: one.blocks for one in self.rows if one.ran}))

    @property
    def batch(self) -> int | None:
        """Samples of a batch, on all ranks of the node together."""
        size = self.workload.get("batch_size")
        return int(size) * self.ranks if isinstance(size, int) and size else None


def to_json(result: Result) -> dict[str, Any]:
    """As ``tuning.schema.json`` has it."""
    batch = result.batch
    return {
        "schema": SCHEMA,
        "id": result.id,
        "version": result.version,
        "date": result.date,
        "asked": dict(result.asked),
        "evidence": result.evidence,
        "status": result.status,
        "present": _setting(result.present),
        "chosen": _setting(result.chosen),
        "advice": result.advice,
        "choice": _choice(result.choice),
        "proof": _plain(result.proof),
        "step": dict(result.step),
        "workload": _plain(result.workload),
        "grid": {"settings": result.grid, "tried": len(result.rows), "removed": list(result.removed)},
        "rows": [_row(row, result.interval_of(row), batch) for row in result.rows],
        "starts": [
            {
                **(_setting(one.setting) or {}),
                "start_s": one.seconds,
                "once_s": one.once,
                "failure": one.failure or None,
            }
            for one in result.starts
        ],
        "ranks": result.ranks,
        "limits": _plain(result.limits),
        "notes": list(result.notes),
        "machine": _plain(result.machine),
        "software": _plain(result.software),
        "cost": _plain(result.cost),
        "side_effects": _plain(result.effects),
        "rerun": result.rerun,
    }


def _setting(setting: Setting | None) -> dict[str, Any] | None:
    if setting is None:
        return None
    return {
        "num_workers": setting.workers,
        "prefetch_factor": setting.prefetch,
        "pin_memory": setting.pin,
        "persistent_workers": setting.persistent,
        "start_method": setting.method,
    }


def _choice(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {"best": _setting(choice.best), "ratio_to_best": choice.ratio, "reason": choice.reason}


def _row(row: Row, ci: tuple[float, float] | None, batch: int | None) -> dict[str, Any]:
    step = row.step_s
    return {
        **(_setting(row.setting) or {}),
        "step_s": step,
        "ci": list(ci) if ci and row.ran else None,
        "samples_per_s": batch / step if batch and step else None,
        "waiting": row.waiting,
        "first_s": median(row.firsts) if row.firsts else None,
        "memory": dict(row.memory) or None,
        "blocks": list(row.blocks),
        "failure": row.failure or None,
    }


def _plain(value: Any) -> Any:
    """JSON data of what is none yet, with all that it has."""
    return plain(asdict(value) if is_dataclass(value) and not isinstance(value, type) else value)


def save(root: str, result: Result) -> str:
    """Write a search down below a project's top; the file.  Raises OSError."""
    machine = identity.fingerprint(identity.of(result.machine))
    return store.write(root, FOLDER, f"{result.id}-{machine}.json", to_json(result))
