"""`dlcheck tune` as a person at a console meets it: real loaders, real workers, real ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dlcheck.advise.tuning import result

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((Path(result.__file__).parent / "tuning.schema.json").read_text(encoding="utf-8"))
NEED_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and workers of Unix")
TORCHRUN = shutil.which("torchrun", path=os.path.dirname(sys.executable)) or shutil.which("torchrun")

DATA = """\
import os
import signal

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Rows(Dataset):
    def __init__(self, size=64):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.full((256,), float(index))


class Unpicklable(Rows):
    def __init__(self):
        super().__init__()
        self.scale = lambda row: row


class Deadly(Rows):
    def __getitem__(self, index):
        info = get_worker_info()
        if info is not None and info.num_workers == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Greedy(Rows):
    def __getitem__(self, index):
        info = get_worker_info()
        if info is not None and info.num_workers >= 2:
            self.held = torch.ones(1 << 30, dtype=torch.uint8)
        return super().__getitem__(index)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.zeros(500, 16))


def loader():
    return DataLoader(Rows(), batch_size=8, shuffle=True)


def stepped():
    return {"dataset": Rows(), "loader_kwargs": {"batch_size": 8, "num_workers": 1}, "step": lambda batch: batch.sum()}


def unpicklable():
    return DataLoader(Unpicklable(), batch_size=8, num_workers=1)


def deadly():
    return DataLoader(Deadly(), batch_size=8)


def greedy():
    return DataLoader(Greedy(), batch_size=8)


def stream():
    return DataLoader(Stream(), batch_size=8)


def empty():
    return DataLoader(Rows(0), batch_size=8)


def lonely():
    if os.environ.get("RANK") == "1":
        os.kill(os.getppid(), signal.SIGKILL)
    return loader()


def raises():
    raise ValueError("no such split")
"""

TRAIN = """\
import sys

import torch
from data import Rows
from torch.utils.data import DataLoader


def main():
    checked = DataLoader(Rows(80), batch_size=2)
    if "--look" in sys.argv:
        next(iter(checked))
    loader = DataLoader(Rows(400), batch_size=8, num_workers=1)
    with open("log.txt", "a") as log:
        log.write("begun\\n")
    for epoch in range(3):
        for batch in loader:
            batch.sum()
    torch.save({}, "model.pt")


if __name__ == "__main__":
    main()
"""

Console = Callable[..., subprocess.CompletedProcess[str]]


def environment(**more: str) -> dict[str, str]:
    known = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    for name in ("PRE_COMMIT", "VIRTUAL_ENV", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_STEP_ID"):
        known.pop(name, None)
    return {**known, **more}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    (tmp_path / "data.py").write_text(DATA)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def console(project: Path) -> Console:
    def run(*words: str, status: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dlcheck", "tune", *words]
        done = subprocess.run(
            command, cwd=project, env=environment(**more), capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == status, done.stderr + done.stdout
        return done

    return run


SMALL = ("--workers", "0,1,2", "--prefetch", "2", "--output-format", "json", "--budget", "25")


def read(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    return found


def by_workers(found: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    return {row["num_workers"]: row for row in found["rows"]}


# What is asked for


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --factory MODULE:FUNCTION or --run COMMAND"),
        (("--factory", "data:loader", "--run", "python train.py"), "two ways to get at the loader"),
        (("--factory", "data"), "--factory is MODULE:FUNCTION"),
        (("--factory", "data:loader", "--workers", "0,x"), "give numbers from 0"),
        (("--factory", "data:loader", "--prefetch", "0"), "give numbers from 1"),
        (("--factory", "data:loader", "--start-methods", "clone"), "`clone` is none of fork, forkserver, spawn"),
        (("--factory", "data:loader", "--loader", "train.py:3"), "--loader goes with --run"),
        (("--run", "python train.py", "--loader", "train.py"), "--loader is FILE:LINE"),
        (("--run", "python train.py", "--loader", "none.py:3"), "none.py: no such file"),
        (("--run", "python a.py | tee"), "no shell reads its `|`"),
        (("--factory", "data:loader", "--python", "no-such-python"), "no-such-python: no program to run"),
        (("--factory", "data:loader", "--report", "no/such/page.html"), "no/such/page.html: No such file"),
        (("--factory", "data:loader", "--budget", "0"), "it takes a second at least"),
    ],
)
def test_what_makes_no_sense_is_one_line(console: Console, words: tuple[str, ...], said: str) -> None:
    done = console(*words, status=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "runs" not in done.stderr


@pytest.mark.parametrize(("rank", "said"), [("0", "cannot put back what they write"), ("1", "")])
def test_a_program_on_several_ranks_may_write_no_file(console: Console, rank: str, said: str) -> None:
    ranks = {"LOCAL_RANK": rank, "RANK": rank, "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    done = console("--run", "python train.py", status=2, **ranks)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == len(said.splitlines())


def test_nothing_is_run_under_pre_commit(console: Console) -> None:
    assert (
        "nothing is measured under pre-commit" in console("--factory", "data:loader", status=2, PRE_COMMIT="1").stderr
    )


@NEED_TORCH
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("data:none", "no loader comes of `data:none`: AttributeError: module 'data' has no attribute 'none'"),
        ("nothing:none", "no loader comes of `nothing:none`: ModuleNotFoundError: No module named 'nothing'"),
        ("data:raises", "no loader comes of `data:raises`: ValueError: no such split (data.py:"),
        ("data:empty", "`data:empty`"),
    ],
)
def test_a_factory_that_gives_no_loader(console: Console, name: str, said: str) -> None:
    done = console("--factory", name, status=2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 2  # what is run, and why it did not
    assert done.stdout == ""


# A factory


@NEED_TORCH
@pytest.mark.slow
def test_a_loader_is_tuned(console: Console, project: Path) -> None:
    done = console("--factory", "data:loader", *SMALL, "--report", "page.html", "--step-seconds", "0.001")
    found = read(done)
    assert "runs `data:loader` again and again, for 25 s at most" in done.stderr
    assert "pin_memory is left as it is" in done.stderr or any(row["pin_memory"] for row in found["rows"])
    assert (found["status"], found["evidence"], found["ranks"]) == ("complete", "factory", 1)
    assert set(by_workers(found)) == {0, 1, 2}
    assert all(row["failure"] is None and row["step_s"] > 0 for row in found["rows"])
    assert found["present"]["num_workers"] == 0
    assert found["workload"]["batches"] == 8
    assert found["step"] == {"kind": "idle-wait", "s": 0.001, "source": "user"}
    assert found["advice"] in ("take", "keep", "perhaps")
    (kept,) = (project / ".dlcheck" / "tuning").glob("*.json")
    assert json.loads(kept.read_text()) == found
    assert "heat" in (project / "page.html").read_text()


@NEED_TORCH
@pytest.mark.long
def test_a_factory_s_own_step_and_no_record(console: Console, project: Path) -> None:
    done = console(
        "--factory", "data:stepped", "--workers", "0,1", "--prefetch", "2", "--start-methods", "fork", "--no-records",
        "--budget", "30",
    )  # fmt: skip
    assert "the step that the factory gives" in done.stdout
    assert not (project / ".dlcheck").exists()
    assert not list(project.glob("*.html"))


@NEED_TORCH
@pytest.mark.slow
def test_a_stream_has_no_length_and_is_tuned(console: Console) -> None:
    found = read(console("--factory", "data:stream", *SMALL[2:], "--workers", "0,1", "--start-methods", "fork"))
    assert found["workload"]["batches"] is None
    assert all(row["step_s"] > 0 for row in found["rows"])


@NEED_TORCH
@pytest.mark.long
def test_everything_is_tried_with_full(console: Console) -> None:
    words = ("--workers", "0,1", "--start-methods", "fork", "--no-records")
    found = read(console("--factory", "data:loader", "--full", *SMALL, *words))
    blocks = {(row["num_workers"], row["persistent_workers"]): len(row["blocks"]) for row in found["rows"]}
    assert blocks.keys() == {(0, False), (1, False), (1, True)}
    assert all(1 <= number <= 4 for number in blocks.values()), "four times, as far as the budget goes"
    assert len(found["starts"]) == 3


@NEED_TORCH
@POSIX
@pytest.mark.slow
def test_a_worker_that_dies_is_a_row(console: Console) -> None:
    rows = by_workers(read(console("--factory", "data:deadly", *SMALL, "--start-methods", "fork", "--no-records")))
    assert "worker" in rows[2]["failure"]
    assert rows[0]["failure"] is rows[1]["failure"] is None


@NEED_TORCH
@pytest.mark.slow
def test_what_spawn_cannot_pickle_is_a_row(console: Console) -> None:
    words = ("--factory", "data:unpicklable", *SMALL, "--start-methods", "spawn", "--no-records")
    found = read(console(*words))
    rows = by_workers(found)
    assert "pickle" in rows[1]["failure"]
    assert "pickle" in rows[2]["failure"]
    assert found["chosen"]["num_workers"] == 0
    assert found["proof"]["verdict"] == "not-measurable-here"
    assert found["advice"] == "take"


@NEED_TORCH
@POSIX
@pytest.mark.slow
def test_where_one_start_method_fails_the_next_is_tried(console: Console) -> None:
    words = ("--factory", "data:unpicklable", *SMALL, "--budget", "15", "--start-methods", "spawn,fork", "--no-records")
    found = read(console(*words))
    assert any(row["start_method"] == "fork" and row["failure"] is None for row in found["rows"])


@NEED_TORCH
@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="memory is told on Linux")
@pytest.mark.slow
def test_what_takes_too_much_is_stopped_and_what_would_take_more_left_out(console: Console) -> None:
    words = ("--factory", "data:greedy", *SMALL[2:], "--workers", "0,1,2,3", "--max-memory", "900")
    found = read(console(*words, "--start-methods", "fork", "--no-records"))
    rows = by_workers(found)
    assert rows[2]["failure"].startswith("stopped: it took ")
    assert rows[3]["failure"] == "left out: 2 workers, prefetch 2 took too much already"
    assert rows[0]["step_s"] > 0
    assert found["limits"]["memory"] <= 900_000_000


# A program


@NEED_TORCH
@POSIX
@pytest.mark.slow
def test_a_program_is_caught_at_its_loader_and_leaves_nothing(console: Console, project: Path) -> None:
    before = {path.name: path.read_bytes() for path in project.iterdir()}
    done = console("--run", f"'{sys.executable}' train.py", *SMALL, "--start-methods", "fork", "--no-records")
    found = read(done)
    assert "stopped at its loader" in done.stderr
    assert "files are put back afterwards" in done.stderr
    assert found["evidence"] == "extract"
    assert found["step"]["source"] == "program"
    assert found["present"] == {
        "num_workers": 1, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": False,
        "start_method": found["present"]["start_method"],
    }  # fmt: skip
    assert found["workload"]["batches"] == 50
    assert {path.name: path.read_bytes() for path in project.iterdir() if path.is_file()} == before


@NEED_TORCH
@POSIX
@pytest.mark.slow
def test_the_loader_of_a_line_is_caught(console: Console) -> None:
    line = next(number for number, text in enumerate(TRAIN.splitlines(), 1) if "Rows(400)" in text)
    command = ("--run", f"'{sys.executable}' train.py --look", "--extract", *SMALL, "--workers", "0", "--no-records")
    assert read(console(*command, "--loader", f"train.py:{line}"))["workload"]["batches"] == 50


@NEED_TORCH
@POSIX
@pytest.mark.long
def test_the_first_loader_is_caught(console: Console) -> None:
    command = ("--run", f"'{sys.executable}' train.py --look", "--extract", *SMALL, "--workers", "0", "--no-records")
    assert read(console(*command))["workload"]["batches"] == 40


@NEED_TORCH
@pytest.mark.slow
def test_a_program_without_a_loader_is_one_line(console: Console) -> None:
    done = console("--run", f"'{sys.executable}' data.py", status=2)
    assert "the program built no DataLoader" in done.stderr.splitlines()[-1]


# Ends


@NEED_TORCH
@POSIX
@pytest.mark.slow
def test_ctrl_c_reports_what_is_known(project: Path) -> None:
    words = [sys.executable, "-m", "dlcheck", "tune", "--factory", "data:loader", *SMALL, "--budget", "120"]
    words += ["--step-seconds", "0.05"]
    running = subprocess.Popen(
        words, cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert running.stderr is not None
    for line in running.stderr:
        if "settings to choose from" in line:
            break
    time.sleep(3)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "interrupted" in err
    found = json.loads(out)
    jsonschema.validate(found, SCHEMA)
    assert found["status"] == "interrupted"
    assert found["rows"]


@NEED_TORCH
@pytest.mark.slow
@pytest.mark.long
def test_a_small_budget_is_no_error(console: Console) -> None:
    found = read(console("--factory", "data:loader", *SMALL[:-1], "12", "--step-seconds", "0.01", "--no-records"))
    assert found["rows"]


# Ranks


@NEED_TORCH
@POSIX
@pytest.mark.slow
@pytest.mark.skipif(TORCHRUN is None, reason="needs torchrun")
def test_ranks_are_tuned_together(project: Path) -> None:
    words = [str(TORCHRUN), "--nproc-per-node", "2", "--master-port", "0", "-m", "dlcheck", "tune"]
    words += ["--factory", "data:loader", *SMALL, "--start-methods", "fork", "--step-seconds", "0.005"]
    done = subprocess.run(
        words, cwd=project, env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    found = read(done)
    assert found["ranks"] == 2
    assert set(by_workers(found)) == {0, 1, 2}
    assert all(row["failure"] is None for row in found["rows"])
    assert found["rows"][0]["samples_per_s"] == pytest.approx(16 / found["rows"][0]["step_s"])
    assert done.stderr.count("dlcheck: runs `data:loader` on each of 2 ranks") == 1
    assert len(list((project / ".dlcheck" / "tuning").glob("*.json"))) == 1


@NEED_TORCH
@POSIX
@pytest.mark.slow
@pytest.mark.skipif(TORCHRUN is None, reason="needs torchrun")
def test_a_rank_that_dies_ends_the_others_with_one_line(project: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "dlcheck", "tune", "--factory", "data:lonely", *SMALL],
            cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(os.getpid()),
            ),
        )
        for rank in range(2)
    ]  # fmt: skip
    out, err = started[0].communicate(timeout=120)
    started[1].communicate(timeout=120)
    assert started[0].returncode == 2, err
    assert started[1].returncode == -signal.SIGKILL
    assert err.splitlines()[-1] == "dlcheck: error: rank 1 has ended"
    assert out == ""


DDP = """\
import torch
import torch.distributed as dist
from data import Rows
from torch.utils.data import DataLoader, DistributedSampler


def main():
    dist.init_process_group("gloo")
    rows = Rows(960)
    loader = DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 4))
    for epoch in range(3):
        for batch in loader:
            model(batch).sum().backward()


if __name__ == "__main__":
    main()
"""


@NEED_TORCH
@POSIX
@pytest.mark.long
@pytest.mark.skipif(TORCHRUN is None, reason="needs torchrun")
def test_a_program_that_trains_on_ranks_is_started_again_and_again(project: Path) -> None:
    (project / "ddp.py").write_text(DDP)
    words = [str(TORCHRUN), "--nproc-per-node", "2", "--master-port", "0", "-m", "--", "dlcheck", "tune"]
    words += [
        "--run",
        f"'{sys.executable}' ddp.py",
        "--audit",
        "deny",
        *SMALL,
        "--workers",
        "0,1",
        "--start-methods",
        "fork",
    ]
    words += ["--budget", "60", "--no-records"]
    done = subprocess.run(words, cwd=project, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = read(done)
    assert found["workload"]["batches"] == 60  # of 120: the ranks know of each other
    assert found["step"]["source"] == "program", found["notes"]
    assert all(row["failure"] is None for row in found["rows"])
