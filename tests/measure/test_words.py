"""The line that says what a record found."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import EPOCH, MEMORY, STEP, counted, failed, timed

from dlcheck.measure import words
from dlcheck.measure.record import Effect, Metric


def effect(a: float, b: float, ci: tuple[float, float], diff_ci: tuple[float, float]) -> Effect:
    return Effect(a, b, b / a, ci, a - b, diff_ci, 0.9779, "rounds", 4, 1)


HELD = replace(MEMORY, name="memory that is held")
EPOCHS = effect(0.351, 0.275, (0.75, 0.81), (0.064, 0.089))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "confirmed, saves 76 ms per epoch [64, 89] (epoch 351 -> 275 ms), synthetic workload"),
        (
            {"saves": {"per_run_s": 6.84}},
            "confirmed, saves 76 ms per epoch [64, 89] (epoch 351 -> 275 ms; 6.8 s in 90 epochs), synthetic workload",
        ),
        (
            {"metric": STEP, "effect": effect(0.0421, 0.025, (0.57, 0.63), (0.015, 0.018)), "evidence": "in-vivo"},
            "confirmed, saves 41 % per step [37, 43] (step 42.1 -> 25.0 ms), in the program itself",
        ),
        (
            {"metric": HELD, "effect": effect(3116e6, 522e6, (0.16, 0.17), (2.58e9, 2.61e9)), "evidence": "extract"},
            "confirmed, saves 2.59 GB [2.58, 2.61] (memory that is held: 3.12 -> 0.52 GB), the program's own loader",
        ),
        (
            {"effect": effect(0.069, 0.00001, (0.0001, 0.0002), (0.06, 0.07))},
            "confirmed, saves 69 ms per epoch [60, 70] (epoch 69 -> 0.010 ms), synthetic workload",
        ),
        (
            {"effect": effect(0.069, 0.0, (0.0, 0.0), (0.06, 0.07))},
            "confirmed, saves 69 ms per epoch [60, 70] (epoch 69 -> 0 ms), synthetic workload",
        ),
        (
            {
                "metric": Metric("copies", "GB/s", "ratio", lower_is_better=False),
                "effect": effect(11.3, 54.1, (4.7, 4.9), (-43, -42)),
                "evidence": "factory",
            },
            "confirmed, 4.79 times as much [4.70, 4.90] (11.3 -> 54.1 GB/s), workload of a factory",
        ),
        (
            {"verdict": "refuted-no-effect", "effect": effect(0.351, 0.350, (0.98, 1.01), (-0.003, 0.007))},
            "refuted (no effect), 1.00 times as long [0.98, 1.01] (epoch 351 -> 350 ms), synthetic workload",
        ),
        (
            {"verdict": "refuted-harmful", "effect": effect(0.2, 0.254, (1.2, 1.35), (-0.069, -0.04))},
            "refuted (harmful), costs 54 ms per epoch [40, 69] (epoch 200 -> 254 ms), synthetic workload",
        ),
        (
            {"verdict": "refuted-harmful", "metric": STEP, "effect": effect(0.025, 0.421, (16, 17.5), (-0.5, -0.3))},
            "refuted (harmful), 16.8 times as long [16.0, 17.5] (step 25.0 -> 421 ms), synthetic workload",
        ),
        (
            {"verdict": "inconclusive", "effect": effect(0.3, 0.285, (0.8, math.inf), (-math.inf, 0.1))},
            "inconclusive, 0.95 times as long [0.80, ∞] (epoch 300 -> 285 ms), synthetic workload",
        ),
    ],
)
def test_outcomes(changes: dict[str, Any], said: str) -> None:
    made = timed(**{"metric": EPOCH, "effect": EPOCHS, "saves": {}, **changes})
    assert words.outcome(made) == said


def test_outcomes_without_figures() -> None:
    assert words.outcome(counted()) == f"confirmed: {counted().reason}"
    assert words.outcome(failed("error", "it died")) == "measuring failed: it died"
    assert words.outcome(failed("not-measurable-here", "no CUDA")) == "not measurable: no CUDA"
    assert words.outcome(failed("suggestion-breaks", "a lambda")) == "the suggestion breaks: a lambda"
    assert words.outcome(failed("error", "")) == "measuring failed"


def test_what_stopped_a_verdict_is_said() -> None:
    made = timed(verdict="inconclusive", effect=EPOCHS, reason="aa: 1.20 [1.10, 1.30]; epoch: B/A 0.784 [0.75, 0.81]")
    figures = "0.78 times as long [0.75, 0.81] (epoch 351 -> 275 ms)"
    assert words.outcome(made) == f"inconclusive, {figures}, synthetic workload: aa: 1.20 [1.10, 1.30]"


def test_line() -> None:
    made = replace(timed(effect=EPOCHS, saves={}))
    outcome = "confirmed, saves 76 ms per epoch [64, 89] (epoch 351 -> 275 ms), synthetic workload"
    assert words.line(made) == f"here on 29 Nov 2026: {outcome}"
    assert words.line(made, here=False, outdated=True) == (
        f"on another machine (AMD EPYC 7763, 2 cores) on 29 Nov 2026: {outcome}; "
        "outdated: measured with torch 2.13.0+cpu on Python 3.11.7"
    )
    assert words.line(replace(made, machine={}), here=False).startswith("on another machine (unknown) on 29 Nov 2026: ")


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0, "s", "0 s"),
        (0.99996, "s", "1.00 s"),
        (4.2e-9, "s", "4.2 ns"),
        (119, "s", "119 s"),
        (130, "s/epoch", "2.17 min"),
        (3e4, "s", "8.3 h"),
        (1536, "bytes", "1.54 kB"),
        (64, "samples", "64 samples"),
        (1e300, "bytes", "1e+288 TB"),
        (math.nan, "s", "? s"),
        (-math.inf, "s", "-∞ s"),
    ],
)
def test_quantities(value: float, unit: str, said: str) -> None:
    assert words.quantity(value, unit) == said


@given(st.lists(st.floats(), min_size=1, max_size=4), st.sampled_from(["s/step", "bytes", "GB/s", "x"]))
def test_any_numbers_have_words(values: list[float], unit: str) -> None:
    texts, _ = words.quantities(values, unit)
    assert len(texts) == len(values)
    assert all(0 < len(text) <= 12 for text in texts)


def test_days() -> None:
    assert words.day("2026-11-29T23:59:59Z") == "29 Nov 2026"
    assert words.day("2026-11-29T23:59:59.123456+00:00") == "29 Nov 2026"
    assert words.day("yesterday") == "yesterday"
