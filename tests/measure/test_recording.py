"""From what was measured to a record: predictions beside figures, and what stands in the way of a verdict."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dlcheck.findings import Finding, Place
from dlcheck.measure import page, stepmodel, words
from dlcheck.measure.children import Failed
from dlcheck.measure.plan import Plan, plan
from dlcheck.measure.record import Evidence, Record
from dlcheck.measure.recording import Context, Measured, Settings
from dlcheck.measure.runner import Comparison, Config, Group, Outcome, Runner
from dlcheck.measure.serial import from_json, to_json
from dlcheck.measure.template import AT_MOST, Subject
from dlcheck.measure.workload import OnDevice

PLACE = Place("train.py", 3, 1, 3, 9)
Facts = list[Mapping[str, Any]]
TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
LITTLE = {"kernels": 3, "block_s": 0.0, "warm_s": 0.0, "most": 1 << 12, "steps": 6}
TERMS = {"host": 0.0, "launch": 1e-3, "compute": 1e-3, "kernel": 1e-5, "sync": 1e-4}


def planned(code: str, rule: str = "some-rule") -> Plan:
    finding = Finding(code, rule, "warning", "high", PLACE, "message", fingerprint=f"f-{code}")
    found = plan(Subject(finding, {}, cores=4, start_method="fork"))
    assert isinstance(found, Plan)
    return found


def recorded(one: Plan, outcome: Outcome, evidence: Evidence = "synthetic") -> Record:
    arms: dict[str, Config] = {"A": one.written, "B": one.suggested}
    outcome.configs = dict(arms)
    outcome.looks = 1
    group = Group(arms, {one.finding.fingerprint: Comparison("A", "B", one.template.metric.kind)})
    return Measured(group, outcome, [], None, evidence, 60.0).record(one, Context(Settings("."), {}, {}))


def rounds(**arms: float) -> list[dict[str, list[float]]]:
    """Four rounds that differ by a tenth of a percent."""
    return [{arm: [value * (1 + 0.001 * number)] for arm, value in arms.items()} for number in range(4)]


def test_of_a_program_that_was_over_too_soon_only_that_is_said() -> None:
    over = "the program came to its end before enough was measured"
    found = recorded(planned("DLC201"), Outcome(failures={"A": Failed("program", "", over)}))
    assert (found.verdict, found.reason) == ("error", over)
    found = recorded(planned("DLC201"), Outcome(failures={"A": Failed("block", "KeyError", "'x'")}))
    assert found.reason == "what is written could not be run: KeyError: 'x'"


@pytest.mark.parametrize(
    ("number", "budget_s", "said"),
    [
        (3, 60.0, "the time for it (--budget) was used up after 3 rounds; "),
        (1, 60.0, "the time for it (--budget) was used up before two rounds were done"),
        (3, 7.0, "the time for all findings (--total) was used up after 3 rounds; "),
    ],
)
def test_the_option_that_ended_it_is_named(number: int, budget_s: float, said: str) -> None:
    one = planned("DLC201")
    outcome = Outcome(rounds=rounds(A=2e-3, B=1e-3)[:number], stopped="budget", configs=_arms(one))
    group = Group(_arms(one), {one.finding.fingerprint: Comparison("A", "B", one.template.metric.kind)})
    found = Measured(group, outcome, [], None, "synthetic", budget_s).record(one, Context(Settings("."), {}, {}))
    assert found.verdict == "inconclusive"
    assert found.reason.startswith(said)


def test_a_prediction_stands_beside_each_figure() -> None:
    one = planned("DLC501")
    facts: Facts = [{"terms": {**TERMS, "compute": 1e-3 * number}, "missing": []} for number in (1, 2, 3)]
    found = recorded(one, Outcome(rounds=rounds(A=2.31e-3, B=2.0e-3), facts=facts))
    terms = stepmodel.SyncTerms(compute=2e-3, launch=1e-3, sync=1e-4)
    assert found.model is not None
    assert found.model["terms"]["compute"] == 2e-3  # the middle of three processes
    assert found.model["predicted"] == {"A": stepmodel.synced(terms, 1), "B": stepmodel.synced(terms, 50)}
    assert found.model["error"]["A"] == pytest.approx(2.1 / 2.31 - 1, abs=0.005)
    assert "(step 2.31 -> 2.00 ms; the model says 2.10 -> 2.00 ms, off by -9 % and +0 %)" in words.line(found)


def test_a_record_keeps_its_prediction_and_the_page_shows_it() -> None:
    facts: Facts = [{"terms": TERMS, "missing": []}]
    found = recorded(planned("DLC501"), Outcome(rounds=rounds(A=1.2e-3, B=1e-3), facts=facts))
    assert from_json(to_json(found)).model == found.model
    text = page.render([found])
    assert "Step model" in text
    assert "1.10 ms, off by -8 %" in text


def test_where_no_model_speaks_nothing_is_predicted() -> None:
    making = recorded(planned("DLC111"), Outcome(rounds=rounds(A=2e-3, B=1e-3), facts=[{"missing": []}]))
    assert making.model is None
    assert words.promise(making) == ""
    other = recorded(planned("DLC502"), Outcome(rounds=rounds(A=2e-3, B=1e-3), facts=[{"terms": TERMS}]))
    assert other.model is None


def test_a_device_that_lacks_what_it_needs_decides_nothing() -> None:
    facts: Facts = [{"missing": ["page-locked memory"]}]
    found = recorded(planned("DLC104"), Outcome(rounds=rounds(A=2e-3, B=1e-3), facts=facts))
    assert found.verdict == "inconclusive"
    assert found.reason.startswith("it lacks page-locked memory; ")


@TORCH
@pytest.mark.parametrize(
    ("code", "experiment"),
    [
        ("DLC501", "sync"),
        pytest.param("DLC112", "constants", marks=pytest.mark.slow),
        pytest.param("DLC113", "casts", marks=pytest.mark.slow),
    ],
)
def test_the_workers_figures_become_a_prediction(code: str, experiment: str) -> None:
    one = planned(code)
    assert one.template.device == experiment
    settings = {arm: {k: v for k, v in config.items() if k != "patch"} for arm, config in _arms(one).items()}
    config = {**LITTLE, "bytes": 4096}
    request = {"experiment": experiment, "arms": settings, "config": config, "device": "cpu", "seed": 0}
    work = OnDevice(sys.executable, request, random.Random(0))
    pairs = {one.finding.fingerprint: Comparison("A", "B", one.template.metric.kind)}
    group = Group(_arms(one), pairs, work.hosts, blocks=1, one_process=True)
    outcome = Runner(looks=(2,)).run(group, 120)
    assert not outcome.failures
    assert len(outcome.facts) == 2
    found = Measured(group, outcome, [], None, "synthetic", 60.0).record(one, Context(Settings("."), {}, {}))
    assert found.model is not None
    assert found.model["predicted"].keys() == found.model["error"].keys() == {"A", "B"}
    assert all(value > 0 for value in found.model["predicted"].values())
    assert found.verdict == "inconclusive"  # the host is no device


def _arms(one: Plan) -> dict[str, Config]:
    return {"A": one.written, "B": one.suggested}


class Wrong:
    """A host whose device read something else."""

    ready: Mapping[str, Any] = {}

    def ask(self, request: Mapping[str, Any], limit_s: float = 0) -> dict[str, Any]:
        return {"t": 1.0, "ok": request["arm"] != "B", "sum": 3.0, "expected": 4.0}

    def close(self) -> None:
        pass


def test_a_device_that_read_other_bytes_is_no_measurement() -> None:
    def hosts(arms: Sequence[str]) -> Mapping[str, Wrong]:
        return dict.fromkeys(arms, Wrong())

    found = Runner(looks=(2,)).run(Group({"A": {}, "B": {}}, {"x": Comparison("A", "B", "ratio")}, hosts), 60)
    assert set(found.failures) == {"B"}
    assert "the sum is 3.0, and not 4.0" in found.failures["B"].message


def test_a_package_that_a_stand_in_lacks_is_named() -> None:
    failures = {"A": Failed("block", "ModuleNotFoundError", "No module named 'datasets'")}
    missing = recorded(planned("DLC321"), Outcome(failures=failures))
    assert missing.verdict == "not-measurable-here"
    assert missing.reason.endswith("the interpreter does not have: No module named 'datasets'")
    # What the program itself lacks is the program's own error.
    assert recorded(planned("DLC321"), Outcome(failures=failures), "in-vivo").verdict == "error"


@pytest.mark.parametrize(
    ("left", "at_most", "verdict"),
    [
        (0.80, 0.78, "confirmed"),  # even with what watching costs
        (0.99, 0.98, "refuted-no-effect"),
        (1.30, 0.98, "refuted-no-effect"),  # watching costs much, and yet all that was seen is little
        (0.99, 0.80, "inconclusive"),
        (1.10, 0.70, "inconclusive"),
    ],
)
def test_what_watching_costs_confirms_nothing(left: float, at_most: float, verdict: str) -> None:
    outcome = Outcome(rounds=rounds(A=0.01, B=0.01 * left, **{AT_MOST: 0.01 * at_most}))
    found = recorded(planned("DLC506"), outcome, "in-vivo")
    assert found.verdict == verdict
    if verdict == "inconclusive":
        assert f"the statement takes {max(0.0, 1 - left):.0%} to {1 - at_most:.0%} of a step" in found.reason


def test_the_stand_ins_data_are_not_the_programs() -> None:
    outcome = Outcome(rounds=rounds(A=4e7, B=1e6))
    assert "dataset" in recorded(planned("DLC503"), outcome).workload
    assert "dataset" not in recorded(planned("DLC503"), outcome, "in-vivo").workload


def test_memory_is_confirmed_by_bytes() -> None:
    assert recorded(planned("DLC503"), Outcome(rounds=rounds(A=4e7, B=1e6))).verdict == "confirmed"
    assert recorded(planned("DLC503"), Outcome(rounds=rounds(A=4e6, B=1e5))).verdict == "inconclusive"
