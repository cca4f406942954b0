"""What the program's own loop shows besides time: memory that its steps add, and the time of one statement."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dlcheck.measure import program
from dlcheck.measure.runner import Fed
from dlcheck.measure.template import AT_MOST, Gauge
from dlcheck.measure.workload import LEAST, Command, InItsLoop

HERE = Path(__file__).resolve().parent
STEPS = HERE / "programs" / "steps.py"
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


def line(mark: str) -> int:
    lines = STEPS.read_text(encoding="utf-8").splitlines()
    return next(number for number, text in enumerate(lines, 1) if f"# {mark}" in text)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fed(gauge: Gauge, mark: str, arms: dict[str, Any], *words: str, turns: int = 2) -> Fed:
    loader = {"file": str(STEPS), "line": line("FLAGGED")}
    place = {"file": str(STEPS), "line": line(mark), "end_line": line(mark)}
    command = Command(f"{sys.executable} {STEPS} {' '.join(words)}", loader, place, "log", environment())
    return InItsLoop(command, gauge).feed(arms, turns, 0, 120)


def times(found: Fed, arm: str) -> list[float]:
    return [block.t for block in found.blocks if block.arm == arm]


DETACHED = {"A": {}, "B": {"detached": True, "patch": "detached"}}
WITHOUT = {"A": {}, "B": {"without": "it"}, AT_MOST: {"without": "it"}}


def counts_memory() -> Iterator[str]:
    import torch
    from dlcheck_worker import memory

    try:
        memory.Allocated(torch)
    except OSError as why:
        yield str(why)


@pytest.mark.parametrize(("place", "words"), [("SUM", ()), ("LESS", ("--less",))])
def test_graphs_that_a_total_keeps_are_memory_that_steps_add(place: str, words: tuple[str, ...]) -> None:
    for why in counts_memory():
        pytest.skip(why)
    found = fed("memory", place, DETACHED, "--layers", "30", "--anew", *words)
    assert not found.failures
    assert min(times(found, "A")) > 5e6
    assert set(times(found, "B")) == {float(LEAST)}


@pytest.mark.slow
def test_where_nothing_is_added_up_nothing_is_detached() -> None:
    for why in counts_memory():
        pytest.skip(why)
    found = fed("memory", "WORK", DETACHED, "--layers", "30", turns=1)
    assert min(times(found, "A") + times(found, "B")) > 5e6


def test_the_statement_is_most_of_the_step() -> None:
    found = fed("statement", "WORK", WITHOUT, "--work", "0.02")
    assert not found.failures
    assert [len(times(found, arm)) for arm in WITHOUT] == [2, 2, 2]
    assert min(times(found, "A")) > 0.02
    assert max(times(found, "B")) < min(times(found, "A")) / 2
    assert max(times(found, AT_MOST)) < min(times(found, "A")) / 2


@pytest.mark.slow
def test_a_statement_of_a_function_of_the_loop_is_found_too() -> None:
    found = fed("statement", "HELPER", WITHOUT, "--step", "0.02")
    # A quarter of it for each of four parts: as long as the rest of the step.
    assert all(0.2 < 1 - b / a < 0.8 for a, b in zip(times(found, "A"), times(found, "B"), strict=True))


@pytest.mark.parametrize(
    ("mark", "words", "said"),
    [
        ("NEVER", [], "the program's steps do not come by the statement"),
        pytest.param(
            "WORK",
            ["--traced"],
            "the program is traced already, by a debugger or for its coverage",
            marks=pytest.mark.skipif(hasattr(sys, "monitoring"), reason="there they do not meet"),
        ),
    ],
)
def test_why_a_statement_cannot_be_watched(mark: str, words: list[str], said: str) -> None:
    found = fed("statement", mark, WITHOUT, *words)
    assert {arm: failure.message for arm, failure in found.failures.items()} == {"A": said}


def test_an_arm_that_is_changed_and_fails_is_the_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [{"pid": 1, "on": {"arm": arm}} for arm in "AB"]
    told = program.Outcome("failed", "the program ended with status 1", 1, True, events, "", 1.0)
    monkeypatch.setattr(program, "run", lambda *_, **__: told)
    assert set(fed("memory", "SUM", DETACHED).failures) == {"B"}
    assert set(fed("", "SUM", {"A": {}, "B": {"loader": {}}}).failures) == {"A"}


# -- a loader that a library builds


LIBRARY = """\
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, data):
        self.data = data
    def train(self):
        for epoch in range(50):
            for batch in DataLoader(self.data, 4):
                pass
"""
USER = """\
import torch
from torch.utils.data import DataLoader
from library.trainer import Trainer

data = [torch.zeros(3)] * 64
for batch in DataLoader(data[:8], 2):
    pass
Trainer(data).train()
"""


def test_the_loader_that_a_library_builds_is_the_one(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "__init__.py").touch()
    (tmp_path / "library" / "trainer.py").write_text(LIBRARY)
    (tmp_path / "train.py").write_text(USER)
    spec = {
        "mode": "vivo",
        "site": {"built_by": "library.trainer"},
        "arms": {"A": {}, "B": {"loader": {"batch_size": 2}}},
        "segment": {"batches": 4},
        "stop": {"segments": 2},
    }
    outcome = program.run([sys.executable, "train.py"], spec, env=environment(), budget_s=120)
    assert outcome.reason == "stopped", outcome.output
    (reached,) = outcome.all("reached")
    assert (Path(reached["file"]).name, reached["batches"]) == ("trainer.py", 16)


def test_a_library_that_builds_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(USER.partition("Trainer(")[0].replace("from library", "# from library"))
    spec = {"mode": "vivo", "site": {"built_by": "library.trainer"}, "arms": {"A": {}}}
    outcome = program.run([sys.executable, "train.py"], spec, env=environment(), budget_s=120)
    assert outcome.sentence.startswith("no DataLoader was built at library.trainer; built: train.py:6")
