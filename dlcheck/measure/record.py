"""What a measurement leaves behind: the data of one record, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "dlcheck.measurement/1"

Verdict = Literal[
    "confirmed",
    "refuted-no-effect",
    "refuted-harmful",
    "inconclusive",
    "not-measurable-here",
    "suggestion-breaks",
    "error",
]
Evidence = Literal["in-vivo", "extract", "factory", "synthetic", "analytic", "none"]
Experiment = Literal["epoch", "steady", "startup", "memory", "transfer", "sync", "oracle", "repro"]
Kind = Literal["ratio", "additive", "memory", "count"]
Status = Literal["pass", "warn", "fail", "skipped"]
Source = Literal["static", "measured", "user", "default"]

VERDICTS: tuple[Verdict, ...] = (
    "confirmed",
    "refuted-no-effect",
    "refuted-harmful",
    "inconclusive",
    "not-measurable-here",
    "suggestion-breaks",
    "error",
)


@dataclass(frozen=True, slots=True)
class Location:
    """Where the finding stands: as `Place` has it; ``statement`` is a hash of the statement's text."""

    path: str
    line: int
    column: int
    cell: int | None = None
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that shaped the workload, and where it is known from."""

    value: Any
    source: Source


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison; ``config`` is what a worker is told to build."""

    label: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """What is compared: seconds, bytes, ..., by step or epoch (``unit``), on the scale of ``kind``."""

    name: str
    unit: str  # s, s/step, s/epoch, bytes, GB/s, samples
    kind: Kind
    lower_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Effect:
    """A against B: ``ratio`` is B/A, ``diff`` is A - B in the metric's unit, each with its interval."""

    a: float
    b: float
    ratio: float
    ci: tuple[float, float]
    diff: float
    diff_ci: tuple[float, float]
    level: float
    units: Literal["rounds", "blocks"]
    n_units: int
    looks: int


@dataclass(frozen=True, slots=True)
class Noise:
    """The A/A of the same block type in the same run; ``floor`` is the half width of its interval."""

    ratio: float
    ci: tuple[float, float]
    floor: float


@dataclass(frozen=True, slots=True)
class Guard:
    name: str
    status: Status
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """One timed block, raw: from these anybody can compute the verdict again.

    ``t`` is in the metric's unit; ``wait`` and ``first`` are seconds spent waiting for batches, and
    until the first one; ``copy`` and ``compute`` seconds of device work where events showed them;
    ``psi`` the share of time that somebody waited for a CPU meanwhile.
    """

    round: int
    arm: str
    position: int
    t: float
    wait: float | None = None
    first: float | None = None
    copy: float | None = None
    compute: float | None = None
    cpu: float | None = None
    psi: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Proportional set size of the process tree, in bytes, after ``batches`` batches."""

    arm: str
    round: int
    batches: int
    pss: int


@dataclass(frozen=True, slots=True)
class Record:
    """Everything about one finding's measurement."""

    id: str
    code: str
    rule: str
    fingerprint: str
    location: Location
    verdict: Verdict
    reason: str  # one sentence that names the deciding number
    evidence: Evidence
    experiment: Experiment
    date: str  # ISO 8601, UTC
    metric: Metric | None = None
    arms: Mapping[str, Arm] = field(default_factory=dict)  # "A", "B", and controls by name
    workload: Mapping[str, Fact] = field(default_factory=dict)
    effect: Effect | None = None
    controls: Mapping[str, Effect] = field(default_factory=dict)  # effects of other pairs, such as "A1": one thread
    noise: Noise | None = None
    ceiling: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None  # predicted seconds per step by arm, the terms, the error
    counts: Mapping[str, Any] | None = None  # of an oracle: what was counted, by arm; of a repro: how children ended
    saves: Mapping[str, float] = field(
        default_factory=dict
    )  # per_epoch_s, per_run_s, bytes: carried over to the user's run
    guards: Sequence[Guard] = ()
    blocks: Sequence[Block] = ()
    memory: Sequence[MemoryPoint] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, Any] = field(default_factory=dict)
    side_effects: Mapping[str, Any] | None = None  # in-vivo and extract: restored, removed, created, ...
    cost: Mapping[str, float] = field(default_factory=dict)  # wall_s, setup_s, budget_s
    rerun: str = ""
