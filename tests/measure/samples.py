"""Records such as measuring leaves behind, for the tests of what is made of them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from dlcheck.measure.record import (
    Arm,
    Block,
    Effect,
    Evidence,
    Fact,
    Guard,
    Location,
    MemoryPoint,
    Metric,
    Noise,
    Record,
    Verdict,
)

MACHINE: dict[str, Any] = {
    "identity": {"cpu": "AMD EPYC 7763", "cores": 2, "gpus": [], "os": "Linux"},
    "usable_cores": 2,
    "available_memory": 23832977408,
    "quota": None,
    "load": [4.8, 4.3, 4.3],
}
SOFTWARE = {"python": "3.11.7", "torch": "2.13.0+cpu"}
EPOCH = Metric("epoch wall time", "s/epoch", "additive")
STEP = Metric("step wall time", "s/step", "ratio")
MEMORY = Metric("memory of all processes", "bytes", "memory")


def timed(
    code: str = "DLC202",
    rule: str = "missing-persistent-workers",
    *,
    verdict: Verdict = "confirmed",
    a: float = 0.351,
    b: float = 0.275,
    metric: Metric = EPOCH,
    line: int = 34,
    rounds: int = 5,
    spread: float = 0.03,
    evidence: Evidence = "synthetic",
    parts: bool = True,
    path: str = "train.py",
    seed: int = 1,
    knobs: Mapping[str, tuple[Any, Any]] | None = None,
    **changes: Any,
) -> Record:
    """A record whose blocks scatter around ``a`` and ``b``, and whose effect follows from them."""
    dice = random.Random(f"{code!a}{line}{seed}")
    blocks = []
    for number in range(rounds):
        drift = dice.gauss(1, spread / 3)
        for position in range(8):
            t = (a, b)[position % 2] * drift * dice.gauss(1, spread)
            wait = t * (0.55, 0.4)[position % 2] * dice.gauss(1, 0.1) if parts else None
            first = t * (0.3, 0.08)[position % 2] * dice.gauss(1, 0.1) if parts else None
            blocks.append(Block(number, "AB"[position % 2], position // 2, t, wait, first, psi=0.05 if parts else None))
    knobs = knobs or {"persistent_workers": (False, True)}
    effect = effect_of(blocks)
    made = Record(
        id=f"{dice.getrandbits(64):016x}",
        code=code,
        rule=rule,
        fingerprint=f"{dice.getrandbits(128):032x}",
        location=Location(path, line, 14, statement="0123456789abcdef"),
        verdict=verdict,
        reason=f"{metric.name}: B/A {effect.ratio:.3f} [{effect.ci[0]:.3f}, {effect.ci[1]:.3f}] over {rounds} rounds",
        evidence=evidence,
        experiment="epoch",
        date="2026-11-29T18:20:11Z",
        metric=metric,
        arms={
            "A": Arm("as written", {"num_workers": 2, **{name: pair[0] for name, pair in knobs.items()}}),
            "B": Arm("as suggested", {"num_workers": 2, **{name: pair[1] for name, pair in knobs.items()}}),
        },
        workload={
            "batch_size": Fact(16, "static"),
            "samples": Fact(128, "default"),
            "decode": Fact("Pillow 500x375 JPEG -> 224", "measured"),
            "epochs": Fact(90, "user"),
        },
        effect=effect,
        noise=Noise(1.004, (0.972, 1.037), 0.0325),
        saves={"per_epoch_s": a - b, "per_run_s": 90 * (a - b)} if metric is EPOCH and verdict == "confirmed" else {},
        guards=(
            Guard("specs-equal", "pass"),
            Guard("other-tenants", "warn", "somebody waited for a CPU 5 % of the time"),
            Guard("aa", "pass", "1.004 [0.972, 1.037]"),
        ),
        blocks=tuple(blocks),
        machine=MACHINE,
        software=SOFTWARE,
        cost={"wall_s": 35.5, "setup_s": 9.1, "budget_s": 60.0},
        rerun=f"dlcheck measure --select {code} {path} --seed 1",
    )
    return replace(made, **changes)


def effect_of(blocks: list[Block]) -> Effect:
    rounds = sorted({block.round for block in blocks})
    sides = [
        [median(one.t for one in blocks if one.round == number and one.arm == arm) for number in rounds] for arm in "AB"
    ]
    logs = [math.log(b / a) for a, b in zip(*sides, strict=True)]
    differences = [a - b for a, b in zip(*sides, strict=True)]
    (ratio, low, high), (diff, least, most) = interval(logs), interval(differences)
    return Effect(
        a=median(sides[0]),
        b=median(sides[1]),
        ratio=math.exp(ratio),
        ci=(math.exp(low), math.exp(high)),
        diff=diff,
        diff_ci=(least, most),
        level=0.9779,
        units="rounds",
        n_units=len(rounds),
        looks=1,
    )


def interval(values: list[float]) -> tuple[float, float, float]:
    mean = sum(values) / len(values)
    sd = math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1))
    half = 3.2 * sd / math.sqrt(len(values))
    return mean, mean - half, mean + half


def growing() -> Record:
    """A record of memory."""
    dice = random.Random(7)
    points = [
        MemoryPoint(
            arm,
            number,
            batches,
            int(1e6 * (base + top * (1 - math.exp(-batches / 40)) + dice.gauss(0, 4))),
        )
        for number in range(3)
        for arm, base, top in (("A", 98, 440), ("B", 42, 94))
        for batches in (0, 10, 25, 50, 100, 200, 400)
    ]
    return timed(
        "DLC302",
        "cow-growth-python-objects",
        metric=MEMORY,
        a=538e6,
        b=137e6,
        line=12,
        path="data/index.py",
        parts=False,
        memory=tuple(points),
        blocks=(),
        experiment="memory",
        evidence="extract",
        knobs={"index": ("list of str", "numpy bytes")},
    )


def counted() -> Record:
    """A record of an oracle: one counterexample decides, and nothing is timed."""
    return replace(
        timed("DLC403", "copied-rng-in-dataset", line=61),
        metric=None,
        effect=None,
        noise=None,
        blocks=(),
        saves={},
        experiment="oracle",
        reason="4 workers drew 16 equal numbers of 64: each begins with the same state",
        counts={"A": {"draws": 64, "distinct": 16}, "B": {"draws": 64, "distinct": 64}},
    )


def failed(verdict: Verdict = "error", reason: str = "the worker ended with status 1: no module named 'cv2'") -> Record:
    return replace(
        timed("DLC211", "cv2-threads-in-workers", verdict=verdict, line=80),
        metric=None,
        effect=None,
        noise=None,
        arms={},
        workload={},
        blocks=(),
        guards=(),
        saves={},
        evidence="none",
        reason=reason,
    )


def several() -> list[Record]:
    """One of each kind."""
    return [
        timed(),
        timed(
            "DLC201",
            "synchronous-loading",
            metric=STEP,
            a=0.0421,
            b=0.025,
            line=30,
            evidence="factory",
            knobs={"num_workers": (0, 2)},
            controls={
                "A1": Effect(0.0421, 0.0409, 0.97, (0.94, 1.0), 0.0012, (-0.0002, 0.003), 0.9779, "rounds", 5, 1)
            },
        ),
        timed(
            "DLC210",
            "excessive-prefetch",
            verdict="refuted-no-effect",
            metric=STEP,
            a=0.0107,
            b=0.0108,
            line=31,
            spread=0.01,
        ),
        timed(
            "DLC204",
            "workers-for-in-memory-data",
            verdict="refuted-harmful",
            metric=STEP,
            a=0.004,
            b=0.0069,
            line=44,
            evidence="in-vivo",
        ),
        timed(
            "DLC205", "too-many-workers", verdict="inconclusive", metric=STEP, a=0.0303, b=0.0289, line=35, spread=0.15
        ),
        growing(),
        counted(),
        failed(),
        failed("not-measurable-here", "pinning needs CUDA, and torch.cuda.is_available() is False"),
        failed("suggestion-breaks", "a lambda in the dataset cannot be pickled: the workers do not start under spawn"),
    ]


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&\u202e\x1b[2J\ud800"


def hostile() -> Record:
    """Text that wants to be markup, wherever text can stand."""
    return timed(
        EVIL,
        EVIL,
        path=f"{EVIL}.py",
        arms={"A": Arm(EVIL, {EVIL: EVIL}), "B": Arm(EVIL, {EVIL: [EVIL]}), EVIL: Arm(EVIL, {})},
        workload={EVIL: Fact(EVIL, "user")},
        reason=EVIL,
        guards=(Guard(EVIL, "warn", EVIL),),
        machine={"identity": {"cpu": EVIL, "cores": 2, "gpus": [EVIL], "os": EVIL}, EVIL: EVIL},
        software={EVIL: EVIL},
        counts={EVIL: {EVIL: EVIL}},
        side_effects={"writes": [EVIL]},
        rerun=EVIL,
        date=EVIL,
    )
