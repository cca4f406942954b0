"""`dlcheck measure` as several ranks of a launcher: all run, the first one speaks."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dlcheck.measure import record

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((Path(record.__file__).parent / "measurement.schema.json").read_text(encoding="utf-8"))
NEED_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
TORCHRUN = shutil.which("torchrun", path=os.path.dirname(sys.executable)) or shutil.which("torchrun")
LAUNCHED = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

TRAIN = """\
import os
import signal

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(40):
            yield torch.tensor([float(index)])


def note():
    with open(os.path.join(os.path.dirname(__file__), "..", "seen.txt"), "a") as seen:
        seen.write(f"{os.environ.get('RANK')} of {os.environ.get('WORLD_SIZE')}\\n")


def make():
    note()
    return DataLoader(TensorDataset(torch.zeros(256, 8)), batch_size=16, num_workers=2, persistent_workers=True)


def lonely():
    if os.environ["RANK"] == "1":
        os.kill(os.getppid(), signal.SIGKILL)
    return make()


def stream():
    note()
    return DataLoader(Stream(), batch_size=4, num_workers=2)


if __name__ == "__main__":
    for batch in stream():
        pass
    for epoch in range(9):
        for batch in make():
            pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    (project / "train.py").write_text(TRAIN)
    return project


def environment(**more: str) -> dict[str, str]:
    known = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    for name in ("PRE_COMMIT", "VIRTUAL_ENV", "SLURM_STEP_ID", *LAUNCHED):
        known.pop(name, None)
    known["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), known.get("PATH", "")])
    return {**known, **more}


def started(project: Path, words: Sequence[str], node: int = 0) -> list[subprocess.Popen[str]]:
    """Two ranks of a node, as a launcher starts them; their port says which of them belong together."""
    return [
        subprocess.Popen(
            [sys.executable, "-m", "dlcheck", "measure", ".", *words],
            cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(
                RANK=str(2 * node + rank), LOCAL_RANK=str(rank), WORLD_SIZE="4", LOCAL_WORLD_SIZE="2",
                GROUP_RANK=str(node), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(os.getpid()),
            ),
        )
        for rank in range(2)
    ]  # fmt: skip


def ended(ranks: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Status, standard output and standard error of each."""
    return [(rank.returncode, out, err) for rank in ranks for out, err in (rank.communicate(timeout=200),)]


def records(project: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((project / ".dlcheck" / "measurements").glob("*.json"))]


def seen(project: Path) -> set[str]:
    return set((project.parent / "seen.txt").read_text().splitlines())


SILENT = (0, "", "")
JSON = ("--output-format", "json")


@NEED_TORCH
@POSIX
@pytest.mark.long
@pytest.mark.skipif(TORCHRUN is None, reason="needs torchrun")
def test_ranks_are_measured_together_and_the_first_one_speaks(project: Path) -> None:
    words = [str(TORCHRUN), "--nproc-per-node", "2", "--master-port", "0", "-m", "dlcheck", "measure", "."]
    words += ["--select", "DLC204", "--factory", "train:make", "--quick", "--budget", "20", *JSON]
    done = subprocess.run(words, cwd=project, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]  # one report, which is all that is on standard output
    assert finding["measurement"]["ratio"] < 0.8, done.stderr
    assert done.stderr.count("1 finding to measure on 2 ranks") == 1
    assert done.stderr.count("round 1/4") == 1
    assert seen(project) == {"0 of 2", "1 of 2"}
    (kept,) = records(project)
    jsonschema.validate(kept, SCHEMA)
    assert kept["workload"]["ranks"] == {"value": 2, "source": "user"}
    assert kept["rerun"].startswith("torchrun --nproc-per-node 2 -m -- dlcheck measure ")


@NEED_TORCH
@POSIX
@pytest.mark.slow
def test_a_rank_that_dies_ends_the_others_with_one_line(project: Path) -> None:
    first, second = ended(started(project, ["--select", "DLC204", "--factory", "train:lonely", "--quick", *JSON]))
    assert first[0] == 2, first
    assert first[2].splitlines()[-1] == "dlcheck: error: rank 1 has ended"
    assert "Traceback" not in first[2]
    assert first[1] == ""
    assert second == (-signal.SIGKILL, "", "")
    assert not (project / ".dlcheck").exists()


@NEED_TORCH
@POSIX
@pytest.mark.slow
def test_what_is_right_or_wrong_is_asked_of_one_that_has_no_others(project: Path) -> None:
    first, second = ended(started(project, ["--select", "DLC401", "--factory", "train:stream", *JSON]))
    assert second == SILENT
    assert first[0] == 1, first
    report = json.loads(first[1])
    assert report["findings"][0]["measurement"]["verdict"] == "confirmed"
    assert seen(project) == {"0 of 1"}
    assert "DLC401: run by rank 0 alone; all ranks take part in what times a factory's loader" in first[2]
    (kept,) = records(project)
    assert "ranks" not in kept["workload"]


@NEED_TORCH
@POSIX
@pytest.mark.slow
def test_a_program_is_run_by_the_first_alone(project: Path) -> None:
    first, second = ended(started(project, ["--select", "DLC401", "--run", "python train.py", *JSON]))
    assert second == SILENT
    assert first[0] == 1, first
    assert json.loads(first[1])["findings"][0]["measurement"]["evidence"] == "extract"
    assert seen(project) == {"0 of 1"}
    assert first[2].count("DLC401: run by rank 0 alone") == 1


@NEED_TORCH
@POSIX
@pytest.mark.slow
def test_an_interruption_ends_all(project: Path) -> None:
    ranks = started(project, ["--select", "DLC204", "--factory", "train:make", "--progress", "lines", *JSON])
    until = time.monotonic() + 120
    while not (project.parent / "seen.txt").exists() and time.monotonic() < until:
        time.sleep(0.1)
    ranks[0].send_signal(signal.SIGTERM)  # which is heard as Ctrl-C is, and not ignored by what runs in the background
    first, second = ended(ranks)
    assert first[0] == 130, first
    assert "interrupted" in first[2].splitlines()[-1]
    assert second == SILENT


def test_another_node_leaves_it_to_the_one_that_reports(project: Path) -> None:
    assert ended(started(project, ["--factory", "train:make"], node=1)) == [SILENT, SILENT]
    assert not (project.parent / "seen.txt").exists()


def test_the_configuration_is_the_first_one_s(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.dlcheck]\nselect = 3\n")
    first, second = ended(started(project, ["--factory", "train:make"]))
    assert (first[0], first[1]) == (2, "")
    assert "pyproject.toml" in first[2]
    assert second == SILENT


def test_what_makes_no_sense_is_said_before_anybody_waits(project: Path) -> None:
    for status, out, err in ended(started(project, ["--factory", "train"])):
        assert (status, out) == (2, "")
        assert "--factory is MODULE:FUNCTION" in err
