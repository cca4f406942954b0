"""The example projects: the faulty one has the findings marked in its sources, its twin has none, and both run."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import forked
import pytest

ROOT = Path(__file__).resolve().parent.parent
FAULTY = ROOT / "examples" / "faulty"
FIXED = ROOT / "examples" / "fixed"

MARK = re.compile(r"# (DLC\d{3}(?:, DLC\d{3})*)$")

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("numpy") is None,
    reason="training needs torch and numpy: install the extra `test`",
)


def dlcheck(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "CLICOLOR_FORCE"}}
    return forked.dlcheck(*arguments, cwd=cwd, environment={**environment, "DLCHECK_OUTPUT_FORMAT": "full"})


def report(*arguments: str, cwd: Path) -> dict[str, Any]:
    run = dlcheck("check", "--output-format", "json", *arguments, cwd=cwd)
    assert run.returncode in (0, 1), run.stderr
    parsed: dict[str, Any] = json.loads(run.stdout)
    assert parsed["errors"] == []
    return parsed


def expected() -> Counter[tuple[str, int, str]]:
    """(file, line, code) of every mark in the faulty example."""
    marks: Counter[tuple[str, int, str]] = Counter()
    for file in sorted(FAULTY.glob("*.py")):
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            if match := MARK.search(line):
                marks.update((file.name, number, code) for code in match[1].split(", "))
    return marks


def found(parsed: dict[str, Any]) -> Counter[tuple[str, int, str]]:
    return Counter((Path(item["path"]).name, item["line"], item["code"]) for item in parsed["findings"])


def test_marks_are_read() -> None:
    assert len(expected()) >= 10


@pytest.mark.parametrize(
    ("cwd", "path"), [(ROOT, "examples/faulty"), (FAULTY, "."), (ROOT.parent, str(FAULTY))], ids=["root", "here", "far"]
)
def test_faulty_example_has_the_marked_findings(cwd: Path, path: str) -> None:
    assert found(report(path, cwd=cwd)) == expected()


def test_each_fault_is_found_from_its_own_file_alone() -> None:
    together: Counter[tuple[str, int, str]] = Counter()
    for file in sorted({name for name, _, _ in expected()}):
        together += found(report(file, cwd=FAULTY))
    assert together == expected()


@pytest.mark.parametrize(("cwd", "path"), [(ROOT, "examples/fixed"), (FIXED, ".")], ids=["root", "here"])
def test_fixed_example_is_silent(cwd: Path, path: str) -> None:
    # Its list of paths is short; of one, nobody can know that, and so DLC302 is of low confidence there.
    assert report("--min-confidence", "low", "--ignore", "DLC302", path, cwd=cwd)["findings"] == []


def test_twins_have_the_same_files() -> None:
    assert {file.name for file in FAULTY.glob("*.*")} == {file.name for file in FIXED.glob("*.*")}
    for name in ("make_data.py", "model.py", "pyproject.toml", "train.py"):
        assert (FAULTY / name).read_bytes() == (FIXED / name).read_bytes()
    assert not [file for file in FIXED.glob("*.py") if "# DLC" in file.read_text()]


def python(script: Path, *arguments: str, data: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, str(script), "--data", str(data), "--epochs", "1", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("example") / "data"


@needs_torch
@pytest.mark.slow
def test_fixed_example_trains(data: Path) -> None:
    run = python(FIXED / "train.py", data=data)
    assert run.returncode == 0, run.stderr
    assert re.match(r"epoch 0: loss [0-9.]+, accuracy \d+%", run.stdout)


@needs_torch
@pytest.mark.slow
def test_faulty_example_trains_where_its_faults_do_not_crash(data: Path) -> None:
    if multiprocessing.get_all_start_methods()[0] != "fork":
        pytest.skip("an open archive cannot be pickled: this is one of the faults")
    run = python(FAULTY / "train.py", "--workers", "1", "--eval-workers", "1", data=data)
    assert run.returncode == 0, run.stderr


@needs_torch
@pytest.mark.slow
def test_faulty_example_crashes_as_foretold(data: Path) -> None:
    run = python(FAULTY / "train.py", data=data)
    assert run.returncode == 1
    assert "ValueError: prefetch_factor" in run.stderr


@needs_torch
@pytest.mark.slow
def test_faulty_stream_is_read_by_every_worker(data: Path) -> None:
    runs = [python(folder / "pretrain.py", "--workers", "2", data=data) for folder in (FAULTY, FIXED)]
    assert [run.returncode for run in runs] == [0, 0]
    twice, once = (int(run.stdout.split()[2]) for run in runs)
    assert twice == 2 * once
