"""From findings to arms: what each rule compares, and what it says where it cannot."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlcheck import engine, pages
from dlcheck.config import Config
from dlcheck.findings import Finding, Place
from dlcheck.measure import everywhere, reproducing
from dlcheck.measure.experiments import EXPERIMENTS
from dlcheck.measure.lockstep import Lockstep
from dlcheck.measure.machine import System
from dlcheck.measure.meeting import Place as Rank
from dlcheck.measure.plan import NEEDS_LOOP, NO_CUDA, Plan, combined, missing, plan, together
from dlcheck.measure.questions import QUESTIONS
from dlcheck.measure.record import Fact, Record
from dlcheck.measure.recording import Context, Settings
from dlcheck.measure.session import ANSWER_S, EMPTY, Session, Step
from dlcheck.measure.template import Subject
from dlcheck.measure.workload import InChildren

PLACE = Place("train.py", 3, 1, 3, 9)


def subject(code: str, options: Mapping[str, Any] | None = None, **how: Any) -> Subject:
    finding = Finding(code, "some-rule", "warning", "high", PLACE, "message", fingerprint=f"f-{code}")
    how.setdefault("cores", 4)
    how.setdefault("start_method", "fork")
    candidates = how.pop("candidates", {})
    return Subject(finding, {"options": options or {}, "candidates": candidates}, **how)


def planned(code: str, options: Mapping[str, Any] | None = None, **how: Any) -> Plan:
    found = plan(subject(code, options, **how))
    assert isinstance(found, Plan)
    return found


def experiment(code: str) -> str | None:
    if code in EXPERIMENTS:
        return planned(code).template.experiment
    if code in QUESTIONS:
        return "oracle"
    return "repro" if code in reproducing.METHODS else None


@pytest.mark.parametrize("code", sorted(pages.load()))
def test_a_page_names_the_experiment_that_decides_its_rule(code: str) -> None:
    assert pages.load()[code].measure == experiment(code)


def test_no_rule_has_two_experiments() -> None:
    assert not set(EXPERIMENTS) & set(QUESTIONS)
    assert not (set(EXPERIMENTS) | set(QUESTIONS)) & set(reproducing.METHODS)


@pytest.mark.parametrize("code", sorted(EXPERIMENTS))
def test_the_arms_differ_in_what_is_suggested_only(code: str) -> None:
    found = planned(code)
    written, suggested = found.written, found.suggested
    assert written != suggested
    assert written.get("block") or found.template.device or found.template.gauge
    assert written.get("batches") == suggested.get("batches")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("code", sorted(QUESTIONS))
def test_the_worker_knows_each_question(code: str) -> None:
    from dlcheck_worker import oracles

    assert QUESTIONS[code].oracle in oracles.ORACLES


def test_what_is_written_is_taken_over() -> None:
    found = planned("DLC202", {"num_workers": 6, "batch_size": 128})
    assert found.written["loader"] == {"batch_size": 128, "num_workers": 6, "persistent_workers": False}
    assert found.suggested["loader"] == {"batch_size": 128, "num_workers": 6, "persistent_workers": True}
    assert found.workload["num_workers"] == Fact(6, "static")
    assert found.workload["batch_size"] == Fact(128, "static")


def test_what_is_not_known_is_said_to_be_a_default() -> None:
    found = planned("DLC202")
    assert found.workload["num_workers"] == Fact(2, "default")
    assert found.workload["dataset"].source == "default"


def test_of_several_values_the_one_with_workers_counts() -> None:
    assert planned("DLC202", candidates={"num_workers": [0, 3]}).written["loader"]["num_workers"] == 3


def test_what_runs_prevails_over_what_is_written() -> None:
    found = planned("DLC202", {"num_workers": 6}, live={"num_workers": 2, "batch_size": 16})
    assert found.written["loader"] == {"num_workers": 2, "persistent_workers": False}
    assert found.workload["num_workers"] == Fact(2, "measured")


def test_the_advice_on_workers_follows_the_cores() -> None:
    assert planned("DLC201", cores=3.5).suggested["loader"]["num_workers"] == 3
    assert planned("DLC205", {"num_workers": 64}, cores=8).suggested["loader"]["num_workers"] == 8


def test_workers_have_the_control_that_shows_threads() -> None:
    controls = planned("DLC201").template.controls
    assert controls == {"one thread": {"loader": {"num_workers": 0}, "threads": 1}}


@pytest.mark.parametrize(("method", "used"), [("spawn", "spawn"), ("forkserver", "forkserver"), ("fork", "spawn")])
def test_copies_are_measured_under_the_start_method_that_makes_them(method: str, used: str) -> None:
    loader = planned("DLC303", start_method=method).written["loader"]
    assert loader["multiprocessing_context"] == used


def test_what_stands_in_the_way_is_said() -> None:
    assert "two usable cores" in obstacle("DLC201", "extract", cores=1)
    assert "--run COMMAND" in obstacle("DLC201")
    assert obstacle("DLC201", "extract") == ""
    assert obstacle("DLC202") == ""


def obstacle(code: str, evidence: Any = "synthetic", **how: Any) -> str:
    about = subject(code, **how)
    found = plan(about)
    assert isinstance(found, Plan)
    return missing(found.template, evidence, about, has_cuda=False)


def test_a_statement_is_timed_in_its_loop_only() -> None:
    assert obstacle("DLC506") == obstacle("DLC506", "extract") == NEEDS_LOOP
    assert obstacle("DLC506", "in-vivo") == ""


@pytest.mark.parametrize("code", ["DLC112", "DLC113", "DLC504", "DLC507"])
def test_what_only_a_device_shows(code: str) -> None:
    assert obstacle(code) == NO_CUDA


def variant(code: str, name: str, **how: Any) -> Plan | str:
    about = subject(code, **how)
    return plan(replace(about, described={**about.described, "variant": name}))


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="memory is told on Linux")
def test_a_graph_that_is_kept_shows_on_any_machine() -> None:
    found = variant("DLC504", "with-graph")
    assert isinstance(found, Plan)
    assert found.written["keeps"] == "graph"
    assert missing(found.template, "synthetic", subject("DLC504"), has_cuda=False) == ""


@pytest.mark.parametrize(("how", "sums"), [("sum", True), ("list", False), ("meter", False)])
def test_only_a_sum_can_be_taken_without_its_graph(how: str, sums: bool) -> None:
    about = subject("DLC503")
    found = plan(replace(about, described={**about.described, "about": {"how": how}}))
    assert isinstance(found, Plan)
    assert found.template.in_vivo is sums


@pytest.mark.parametrize(("name", "like"), [("", "DLC201"), ("respawn", "DLC202"), ("pin", "DLC103")])
def test_a_trainers_options_are_those_of_its_loader(name: str, like: str) -> None:
    found = variant("DLC701", name, options={"num_workers": 3})
    assert isinstance(found, Plan)
    assert found.template == planned(like, {"num_workers": 3}).template


def test_arguments_that_raise_are_not_timed() -> None:
    assert "raise an error" in str(variant("DLC701", "prefetch"))


def test_rules_that_nothing_decides() -> None:
    found = plan(subject("DLC106"))
    assert isinstance(found, str)


def test_suggestions_about_one_loader_are_put_together() -> None:
    plans = [planned("DLC202", {"num_workers": 2}), planned("DLC206", {"num_workers": 2})]
    whole = combined(plans)
    assert whole.written["rebuild"] is True
    assert whole.written["loader"]["persistent_workers"] is False
    assert "rebuild" not in whole.suggested
    assert whole.suggested["loader"]["persistent_workers"] is True
    assert whole.finding.code == "ALL"


def codes(plans: Sequence[Plan]) -> list[str]:
    return [one.finding.code for one in plans]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["DLC202", "DLC206"], ["DLC202", "DLC206"]),
        (["DLC202", "DLC204"], ["DLC204"]),  # what workers are to be kept alive for is not there any more
        (["DLC202", "DLC204", "DLC206"], ["DLC204", "DLC206"]),
        (["DLC204", "DLC211"], ["DLC204"]),
        (["DLC204", "DLC205"], ["DLC204"]),  # there is but one number of workers
        (["DLC108", "DLC204"], ["DLC108", "DLC204"]),
        (["DLC206", "DLC207"], ["DLC206"]),  # an epoch does not show it
    ],
)
def test_suggestions_that_exclude_each_other_are_not_put_together(given: list[str], kept: list[str]) -> None:
    plans = [planned(code, {"num_workers": 3}) for code in given]
    assert codes(together(plans)) == kept


@pytest.mark.parametrize("first", ["DLC204", "DLC206"])
def test_without_workers_nothing_is_left_that_needs_them(first: str) -> None:
    second = "DLC206" if first == "DLC204" else "DLC204"
    whole = combined([planned(first, {"num_workers": 3}), planned(second, {"num_workers": 3})])
    assert whole.written["loader"] == {"batch_size": 32, "num_workers": 3, "persistent_workers": False}
    assert whole.suggested["loader"] == {"batch_size": 32, "num_workers": 0}
    assert (whole.written.get("rebuild"), whole.suggested.get("rebuild")) == (True, None)


def test_what_one_suggestion_leaves_as_it_is_does_not_undo_another() -> None:
    whole = combined([planned("DLC204", {"num_workers": 3}), planned("DLC108", {"num_workers": 3})])
    assert (whole.suggested["loader"]["num_workers"], whole.suggested["loader"]["pin_memory"]) == (0, False)


def test_what_was_measured_together_is_counted_named_and_measured_again_by_its_rules(tmp_path: Path) -> None:
    steps: list[Step] = []
    session = Session(Settings(root=str(tmp_path)), steps.append)
    session._all = session._done = 3
    session.context = Context(session.settings, {}, {})

    def run(plans: Sequence[Plan]) -> Iterator[Record]:
        (one,) = plans
        session.show(Step(one.finding, session._done + 1, session._all))
        yield session.context.plain(one.finding, "confirmed", "", "synthetic", "epoch")

    session._run = run  # type: ignore[method-assign]
    session._measure_together([planned("DLC202"), planned("DLC206")])
    assert [(one.number, one.of) for one in steps] == [(4, 4)]
    assert session.together is not None
    assert session.together.rule == "DLC202+DLC206"
    assert "--select DLC202,DLC206" in session.together.rerun


def test_python_is_what_was_named_also_where_that_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("PATH", "/somewhere")

    def path(**how: Any) -> str:
        return Session(Settings(root=str(tmp_path), **how))._environment()["PATH"]

    assert path() == "/somewhere"
    assert path(python=sys.executable) == os.pathsep.join([os.path.dirname(sys.executable), "/somewhere"])
    own = tmp_path / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch()
    monkeypatch.setattr(sys, "executable", str(own))
    assert path() == os.pathsep.join([str(own.parent), "/somewhere"])


def test_the_start_of_a_factory_is_limited_by_the_budget(tmp_path: Path) -> None:
    session = Session(Settings(root=str(tmp_path), factory="mine:loader", budget_s=3))
    own = session._own_workload(subject("DLC202").finding, seed=0)
    assert isinstance(own, InChildren)
    assert own.start_s == 3 + ANSWER_S


def test_other_ranks_have_a_say_in_how_long_loading_takes() -> None:
    loading = {
        code: everywhere.suits(planned(code, {"num_workers": 2}).template) for code in EXPERIMENTS if code != "DLC701"
    }
    for code in ("DLC201", "DLC202", "DLC204", "DLC205", "DLC206", "DLC207", "DLC310", "DLC312"):
        assert loading[code], code
    for code in ("DLC101", "DLC103", "DLC210", "DLC215", "DLC302", "DLC303", "DLC501", "DLC503", "DLC506"):
        assert not loading[code], code


def test_a_rank_has_its_share_of_the_cores_or_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cores(own: set[int], others: set[int]) -> float:
        leader = SimpleNamespace(place=Rank(0, 2, True, "torchrun"), cpus=others)
        session = Session(Settings(root=str(tmp_path)), lockstep=Lockstep(leader))  # type: ignore[arg-type]
        session.facts = {**session.facts, "usable_cores": 4, "world": 2}
        monkeypatch.setattr(System, "affinity", lambda self: own)
        return session._subject(subject("DLC201").finding, {}).cores

    monkeypatch.setattr(Session, "context", Context(Settings(root=str(tmp_path)), {}, {}), raising=False)
    assert cores({0, 1, 2, 3}, {0, 1, 2, 3}) == 2
    assert cores({0, 1, 2, 3}, {4, 5, 6, 7}) == 4


def test_of_an_empty_dataset_nothing_is_timed(tmp_path: Path) -> None:
    session = Session(Settings(root=str(tmp_path)))
    session.context = Context(session.settings, {}, {})
    found = session._planned(subject("DLC202").finding, {"size": 0, "options": {"num_workers": 2}})
    assert isinstance(found, Record)
    assert (found.verdict, found.reason) == ("not-measurable-here", EMPTY)


def test_one_suggestion_that_is_left_is_not_measured_again(tmp_path: Path) -> None:
    session = Session(Settings(root=str(tmp_path)))
    session._run = pytest.fail  # type: ignore[assignment, method-assign]
    session._measure_together([planned("DLC202"), planned("DLC204")])
    assert session.together is None


@pytest.mark.parametrize(
    ("code", "workers", "said"),
    [
        ("DLC202", 0, "run like this the loader has no workers"),
        ("DLC201", 1, "run like this the loader has 1 worker"),
        ("DLC204", 0, "run like this the loader has no workers"),
    ],
)
def test_a_program_started_otherwise_decides_nothing(code: str, workers: int, said: str) -> None:
    assert plan(subject(code, live={"num_workers": workers})) == said


def test_a_stand_in_does_not_ask_what_runs() -> None:
    assert isinstance(plan(subject("DLC303", live={"num_workers": 0})), Plan)


def test_what_samples_cost_is_part_of_the_workload() -> None:
    found = planned("DLC202", live={"num_workers": 2}, measured={"cpu_s": 0.002})
    assert found.workload["cpu_s"] == Fact(0.002, "measured")


ABOUT = """\
import torch
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision.datasets import ImageFolder


class Rows(Dataset):
    def __init__(self):
        self.scale, self.stage = 1, "easy"
        self.seen = 0

    def __len__(self):
        return 50

    def set_stage(self, scale, stage):
        self.scale, self.stage = scale, stage

    def __getitem__(self, index):
        self.seen += 1
        return -index if self.stage == "hard" else index * self.scale


def train(net, generator, augment):
    rows, total = Rows(), 0
    loader = DataLoader(rows, shuffle=True, num_workers=2, persistent_workers=True)
    for epoch in range(3):
        torch.manual_seed(1)
        rows.set_stage(epoch, stage="hard")
        for batch in loader:
            loss = net(batch)
            loss.backward()
            total -= loss
    print(rows.seen, total)
    first, second = random_split(ImageFolder("images"), [0.8, 0.2], generator=generator)
    second.dataset.transform = augment
    return first, second
"""


def test_a_finding_says_what_it_is_about(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ABOUT)
    found = engine.check([str(tmp_path)], Config(), with_subjects=True).findings
    about = {one.code: one.measure["about"] for one in found if "about" in one.measure}
    assert about == {
        "DLC218": {
            "owner": "Rows",
            "attributes": ["scale", "stage"],
            "method": "set_stage",
            "arguments": [["", None], ["stage", "hard"]],
        },
        "DLC219": {"owner": "Rows", "attributes": ["seen"], "kind": "count"},
        "DLC319": {"attribute": "transform", "through": True},
        "DLC406": {"generators": ["torch"]},
        "DLC503": {"how": "sum"},
    }
    assert {one.measure["loader"]["name"] for one in found if one.code == "DLC218"} == {"loader"}
