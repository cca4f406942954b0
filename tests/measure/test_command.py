"""`dlcheck measure`, as a person at a console meets it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")

TRAIN = """\
import torch
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        for index in range(self.size):
            yield torch.tensor([float(index)])


def make():
    return DataLoader(Stream(40), batch_size=4, num_workers=2)


def main():
    loader = make()
    model = torch.nn.Linear(1, 1)
    for epoch in range(3):
        for batch in loader:
            model(batch).sum().backward()
    torch.save(model.state_dict(), "model.pt")
    open("done.txt", "w").close()


if __name__ == "__main__":
    main()
"""
IN_MEMORY = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.zeros(4096, 8)), batch_size=64, num_workers=2, persistent_workers=True)
for epoch in range(9):
    for batch in loader:
        pass
"""
EAGER = """\
import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Plates(Dataset):
    def __init__(self, paths):
        self.plates = []
        for path in paths:
            self.plates.append(numpy.load(path))

    def __len__(self):
        return len(self.plates)

    def __getitem__(self, index):
        return torch.from_numpy(self.plates[index])


def make():
    return DataLoader(Plates(["plate.npy"]), num_workers=2)


if __name__ == "__main__":
    for batch in make():
        pass
"""
CRASHES = """\
from torch.utils.data import DataLoader, TensorDataset
import torch

loader = DataLoader(TensorDataset(torch.zeros(4)), persistent_workers=True)
for batch in loader:
    pass
"""

Run = subprocess.CompletedProcess[str]
Console = Callable[..., Run]


@pytest.fixture
def console(tmp_path: Path) -> Console:
    def run(*words: str, environment: dict[str, str] | None = None) -> Run:
        known = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **(environment or {})}
        known.pop("VIRTUAL_ENV", None)
        if environment is None or "PRE_COMMIT" not in environment:
            known.pop("PRE_COMMIT", None)
        known["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), known.get("PATH", "")])
        command = [sys.executable, "-m", "dlcheck", *words]
        return subprocess.run(command, cwd=tmp_path, env=known, capture_output=True, text=True, timeout=240)

    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    (tmp_path / "train.py").write_text(TRAIN)
    return run


def measured(run: Run) -> dict[str, dict[str, Any]]:
    assert run.stdout, run.stderr
    return {one["code"]: one["measurement"] for one in json.loads(run.stdout)["findings"]}


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((folder / ".dlcheck" / "measurements").glob("*.json"))]


JSON = ("--output-format", "json")


@TORCH
@pytest.mark.slow
def test_a_wrong_result_is_confirmed_by_the_program_itself(console: Console, tmp_path: Path) -> None:
    run = console("measure", ".", "--select", "DLC401", "--run", "python train.py", *JSON)
    assert run.returncode == 1
    assert measured(run)["DLC401"]["verdict"] == "confirmed"
    assert measured(run)["DLC401"]["evidence"] == "extract"
    assert "runs `python train.py` up to its loader" in run.stderr
    # Not one step was taken, and nothing was left behind but the record.
    assert sorted(os.listdir(tmp_path)) == [".dlcheck", "pyproject.toml", "train.py"]
    (record,) = records(tmp_path)
    assert record["counts"] == {"alone": 40, "with_workers": 80, "again": 40}
    assert record["experiment"] == "oracle"


@TORCH
@pytest.mark.slow
def test_later_runs_know_it(console: Console) -> None:
    console("measure", ".", "--select", "DLC401", "--factory", "train:make")
    run = console(".", "--select", "DLC401")
    assert "= measured: here on" in run.stdout
    assert "confirmed: 40 samples without workers, 80 with 2" in run.stdout


@TORCH
@pytest.mark.slow
def test_a_crash_is_made_to_happen(console: Console, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CRASHES)
    run = console("measure", "train.py", "--select", "DLC203", "--run", "python train.py", *JSON)
    assert measured(run)["DLC203"]["verdict"] == "confirmed"
    assert "persistent_workers option needs num_workers > 0" in records(tmp_path)[0]["reason"]


@TORCH
@pytest.mark.slow
def test_an_effect_is_timed_with_a_stand_in(console: Console, tmp_path: Path) -> None:
    """Data in memory is handed over by workers far slower than it is taken: a factor of ten."""
    (tmp_path / "train.py").write_text(IN_MEMORY)
    page = tmp_path / "page.html"
    words = ("measure", ".", "--select", "DLC204", "--quick", "--progress", "json", "--report", str(page))
    run = console(*words, "--budget", "200", *JSON)
    found = measured(run)["DLC204"]
    assert found["ratio"] is not None, run.stderr
    assert found["ratio"] < 0.5
    assert (found["unit"], found["evidence"]) == ("s/epoch", "synthetic")
    events = [json.loads(line) for line in run.stderr.splitlines() if line.startswith("{")]
    assert [event["round"] for event in events if "round" in event] == [1, 2, 3, 4]
    assert events[-1]["event"] == "record"
    (record,) = records(tmp_path)
    assert len([block for block in record["blocks"] if block["position"] >= 0]) == 4 * 4 * 3
    assert {"A", "B", "A again"} <= set(record["arms"])
    assert "DLC204" in page.read_text()


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):  # which the tests' own run may have been told to ignore
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@TORCH
@pytest.mark.slow
def test_an_interruption_keeps_what_was_measured(console: Console, tmp_path: Path) -> None:
    if os.name == "nt":
        pytest.skip("signals are others there")
    (tmp_path / "train.py").write_text(TRAIN.replace("for epoch in range(3):", "while True:"))
    command = [sys.executable, "-m", "dlcheck", "measure", ".", "--select", "DLC401,DLC202", "--progress", "lines"]
    command += ["--factory", "train:make", "--extend-exclude", "none", "--output-format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PRE_COMMIT", None)
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever started the tests may ignore it, and children inherit that.
        preexec_fn=_heed_interrupts,
    )
    assert process.stderr is not None
    lines: list[str] = []
    limit = time.monotonic() + 120
    for line in process.stderr:
        lines.append(line)
        if "round 1/" in line or time.monotonic() > limit:
            process.send_signal(signal.SIGINT)
            break
    out, rest = process.communicate(timeout=120)
    assert "Traceback" not in rest
    assert "interrupted: what was measured until then is kept" in rest
    found = {one["code"]: one["measurement"] for one in json.loads(out)["findings"]}
    assert found["DLC401"]["verdict"] == "confirmed"
    assert found["DLC202"]["verdict"] == "inconclusive"
    assert process.returncode == 130


OVERWRITES = TRAIN.replace(
    "    loader = make()\n",
    "    open('results.csv', 'w').write('started')\n    import time; time.sleep(60)\n    loader = make()\n",
)


@TORCH
@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_whoever_ends_it_the_files_of_the_program_are_put_back(name: str, console: Console, tmp_path: Path) -> None:
    if not hasattr(signal, name):
        pytest.skip("no such signal here")
    (tmp_path / "train.py").write_text(OVERWRITES)
    results = tmp_path / "results.csv"
    results.write_text("a year of results\n")
    command = [sys.executable, "-m", "dlcheck", "measure", ".", "--select", "DLC401"]
    process = subprocess.Popen(
        [*command, "--run", f"{sys.executable} train.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PRE_COMMIT"} | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_heed_interrupts,
    )
    limit = time.monotonic() + 90
    while results.read_text() != "started" and time.monotonic() < limit:
        time.sleep(0.1)
    assert results.read_text() == "started"
    process.send_signal(getattr(signal, name))
    assert process.wait(60) == 130
    assert results.read_text() == "a year of results\n"


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A measurement whose program has just overwritten a file, and waits; it needs no torch until then."""
    if os.name == "nt":
        pytest.skip("signals are others there")
    body = (
        "if __name__ == '__main__':\n    open('results.csv', 'w').write('started')\n    import time; time.sleep(600)\n"
    )
    (tmp_path / "train.py").write_text(body + TRAIN)
    results = tmp_path / "results.csv"
    results.write_text("a year of results\n")
    command = [sys.executable, "-m", "dlcheck", "measure", ".", "--select", "DLC401", "--progress", "none"]
    process = subprocess.Popen(
        [*command, "--run", f"{sys.executable} train.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PRE_COMMIT"} | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_interrupts,
        start_new_session=True,
    )
    try:
        limit = time.monotonic() + 90
        while results.read_text() != "started" and time.monotonic() < limit:
            time.sleep(0.05)
        assert results.read_text() == "started"
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.mark.slow
def test_ctrl_c_again_and_again_does_not_break_off_the_putting_back(
    at_work: subprocess.Popen[str], console: Console, tmp_path: Path
) -> None:
    results = tmp_path / "results.csv"
    limit = time.monotonic() + 60
    while results.read_text() == "started" and time.monotonic() < limit:
        os.killpg(at_work.pid, signal.SIGINT)  # as a terminal sends it
        time.sleep(0.02)
    _, said = at_work.communicate(timeout=60)

    assert results.read_text() == "a year of results\n"
    assert at_work.returncode == 130
    assert "dlcheck: put back results.csv\n" in said
    assert "interrupted: what was measured until then is kept" in said
    assert "Traceback" not in said
    assert sorted(os.listdir(tmp_path)) == ["pyproject.toml", "results.csv", "train.py"]


@pytest.mark.slow
def test_a_second_run_in_a_project_is_refused(at_work: subprocess.Popen[str], console: Console, tmp_path: Path) -> None:
    folder = tmp_path / "deeper"
    folder.mkdir()
    run = console("measure", "deeper", "--run", f"{sys.executable} train.py")
    assert run.returncode == 2
    assert run.stderr == (
        f"dlcheck: error: another `dlcheck measure` (process {at_work.pid}) works in .: wait until it has ended\n"
    )
    assert (tmp_path / "results.csv").read_text() == "started"

    at_work.kill()  # which lets go of the lock, whatever still runs
    at_work.communicate(timeout=60)
    again = console("measure", "deeper", "--run", f"{sys.executable} train.py")
    assert "was killed: put back results.csv\n" in again.stderr
    assert (tmp_path / "results.csv").read_text() == "a year of results\n"
    assert not (tmp_path / ".dlcheck").exists()


@TORCH
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_what_a_killed_measurement_has_left_is_put_back_by_the_next(console: Console, tmp_path: Path) -> None:
    made = "    import os; os.makedirs('runs/1'); open('runs/1/log', 'x').write('begun')\n"
    (tmp_path / "train.py").write_text(OVERWRITES.replace("    open('results", made + "    open('results"))
    results = tmp_path / "results.csv"
    results.write_text("a year of results\n")
    private = tmp_path.parent / f"{tmp_path.name}-tmp"
    private.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PRE_COMMIT"}
    environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(private)}
    command = [sys.executable, "-m", "dlcheck", "measure", ".", "--select", "DLC401"]
    process = subprocess.Popen(
        [*command, "--run", f"{sys.executable} train.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    limit = time.monotonic() + 90
    while results.read_text() != "started" and time.monotonic() < limit:
        time.sleep(0.1)
    process.kill()
    process.wait(60)
    assert (results.read_text(), (tmp_path / "runs" / "1" / "log").exists()) == ("started", True)
    (journal,) = tmp_path.glob(".dlcheck/kept-*/journal-*.jsonl")
    program = psutil.Process(int(journal.stem.partition("-")[2]))
    assert program.is_running()

    # Another folder for passing files: on clusters each job has its own.
    run = console("measure", ".", "--select", "DLC401")
    assert not program.is_running()
    assert results.read_text() == "a year of results\n"
    assert "was killed: put back results.csv; removed what was new: runs\n" in run.stderr
    assert sorted(os.listdir(tmp_path)) == ["pyproject.toml", "results.csv", "train.py"]
    assert list(private.iterdir()) == []
    assert "was killed" not in console("measure", ".", "--select", "DLC401").stderr


# What does not run


def test_nothing_is_measured_under_pre_commit(console: Console) -> None:
    run = console("measure", ".", environment={"PRE_COMMIT": "1"})
    assert run.returncode == 2
    assert run.stderr == "dlcheck: error: nothing is measured under pre-commit: a hook must not run your program\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--extract"], "--extract goes with --run"),
        (["--run", "python train.py", "--factory", "train:make"], "give one"),
        (["--budget", "0"], "'--budget': `0`: it takes a second at least, and a number of them"),
        (["--total", "-1"], "'--total': `-1`: it takes a second at least, and a number of them"),
        (["--total", "inf"], "'--total': `inf`: it takes a second at least, and a number of them"),
        (["--budget", "nan"], "'--budget': `nan`: it takes a second at least, and a number of them"),
        (["--budget", "x"], "'--budget': `x` is no number of seconds"),
        (["--audit", "maybe"], "--audit"),
        (["--factory", "train:make", "--audit", "deny"], "--audit goes with --run: a factory may"),
        (["--audit", "keep"], "--audit goes with --run"),
        (["--factory", "train"], "--factory is MODULE:FUNCTION, not `train`"),
        (["--run", "python 'train.py"], "--run: no closing quotation"),
        (["--run", " "], "--run is empty"),
        (["--run", "BATCH=4"], "--run is empty"),
        (
            ["--run", "cd src && python train.py"],
            "no shell reads its `&&`: give --run \"bash -c 'cd src && python train.py'\"",
        ),
        (["--run", "python 'my train.py' | tee log"], 'no shell reads its `|`: give --run "bash FILE", with this in'),
        (["--python", "/nothing/python"], "/nothing/python: no program to run"),
        (["--report", "nothing/page.html"], "nothing/page.html: No such file"),
    ],
)
def test_options_that_do_not_fit(words: Sequence[str], said: str, console: Console) -> None:
    run = console("measure", ".", *words)
    assert run.returncode == 2
    assert said in run.stderr


@pytest.mark.parametrize("words", [["--run", "python train.py"], ["--quick"], ["--factory", "train:make"]])
def test_a_plain_check_measures_nothing(words: Sequence[str], console: Console, tmp_path: Path) -> None:
    run = console("check", ".", *words)
    assert run.returncode == 2
    assert f"{words[0]} goes with --measure" in run.stderr
    assert not (tmp_path / ".dlcheck").exists()


def test_an_interpreter_without_torch_is_told_in_one_line(console: Console, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    run = console("measure", ".", "--python", str(bare))
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1] == (
        f"dlcheck: error: {bare} has no torch: install it there, or name another interpreter with --python"
    )


def test_what_is_no_python_is_told_in_one_line(console: Console, tmp_path: Path) -> None:
    none = tmp_path / "none"
    none.write_text("#!/bin/sh\n")
    none.chmod(0o755)
    run = console("measure", ".", "--python", str(none))
    assert run.returncode == 2
    last = run.stderr.splitlines()[-1]
    assert last == f"dlcheck: error: {none} is no Python: name that of your project with --python"


def test_that_nothing_was_measured_is_said_whatever_the_report(console: Console) -> None:
    words = ("measure", ".", "--run", "no-such-program", "--progress", "none", "--output-format", "concise")
    lines = console(*words, "--select", "DLC401").stderr.splitlines()
    (line,) = [one for one in lines if "measuring failed" in one]
    assert line.startswith("dlcheck: warning: measuring failed for 1 finding: ")
    assert "cannot run `no-such-program`" in line


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program train.py", "cannot run `no-such-program`"),
        ("python nothing.py", "ended with status 2"),
        ("python -c pass", "the program ended without running train.py"),
        ("python -I train.py", "`python -I` takes nothing from its environment"),
    ],
)
def test_a_program_that_cannot_be_measured_is_told(command: str, said: str, console: Console) -> None:
    run = console("measure", ".", "--select", "DLC401", "--run", command, "-q", *JSON)
    assert "Traceback" not in run.stderr
    (finding,) = json.loads(run.stdout)["findings"]
    assert finding["measurement"]["verdict"] == "error"
    assert (
        said in finding["measurement"].get("text", "")
        or said in console("measure", ".", "--select", "DLC401", "--run", command, "-q").stdout
    )


@TORCH
@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("def broken():\n    raise LookupError\n", "measuring failed: LookupError (train.py:3{})"),
        ("def broken():\n    return 7\n", "must return a DataLoader or a dict with `dataset`, not int"),
    ],
)
def test_a_factory_that_fails_is_told_with_its_line(function: str, said: str, console: Console, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.replace("def make", f"{function}\n\ndef make"))
    line = (tmp_path / "train.py").read_text().splitlines().index("    raise LookupError") + 1 if "{}" in said else 0
    run = console("measure", ".", "--select", "DLC401", "--factory", "train:broken", "-q")
    assert said.replace("3{}", str(line)) in run.stdout


@TORCH
@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--run", "python train.py"],
        pytest.param(["--run", "python train.py", "--extract"], marks=pytest.mark.long),
        pytest.param(["--factory", "train:make"], marks=pytest.mark.long),
    ],
)
def test_that_a_stand_in_is_measured_instead_is_said(words: list[str], console: Console, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "plate.npy", numpy.zeros(4))
    (tmp_path / "train.py").write_text(EAGER)
    run = console("measure", ".", "--select", "DLC301", *words, "--quick", "--budget", "1", "--total", "12", *JSON)
    said = "DLC301 is measured by a stand-in: its advice needs other code, and dlcheck does not rewrite yours"
    assert [line for line in run.stderr.splitlines() if "stand-in" in line] == [f"dlcheck: warning: {said}"]
    assert measured(run)["DLC301"]["evidence"] == "synthetic"


def test_a_stand_in_that_was_asked_for_is_not_explained(console: Console, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(EAGER)
    run = console("measure", ".", "--select", "DLC301", "--quick", "--budget", "1", "--total", "1")
    assert "by a stand-in" not in run.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--run", "no-such-program x"],
        pytest.param(["--run", "python nothing.py"], marks=pytest.mark.long),
        pytest.param(["--factory", "nothing:make"], marks=pytest.mark.long),
        ["--factory", "train:nothing"],
    ],
    ids=" ".join,
)
def test_where_nothing_could_be_run_the_status_is_2(words: list[str], console: Console) -> None:
    select = ("measure", ".", "--select", "DLC401", "--fail-on", "never")
    run = console(*select, *words, "-q")
    if "has no torch" in run.stderr:
        pytest.skip("needs torch")
    assert run.returncode == 2
    assert f"nothing could be measured with `{' '.join(words)}`" in run.stdout
    assert "measuring failed for 1 finding: " in run.stderr
    told = console(*select, *words, *JSON)
    assert told.returncode == 2
    assert [one["path"] for one in json.loads(told.stdout)["errors"]] == [""]


def test_what_no_run_decides_is_said(console: Console) -> None:
    run = console("measure", ".", "--select", "DLC401", "-q")
    if "has no torch" in run.stderr:
        pytest.skip("needs torch")
    assert (
        "not measurable here: it is asked of your own data: give --run COMMAND or --factory MODULE:FUNCTION"
        in run.stdout
    )
