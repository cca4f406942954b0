"""A program is measured from inside, and neither it nor its files notice."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlcheck.measure import program
from dlcheck.measure.children import Failed
from dlcheck.measure.program import Extracted, Outcome
from dlcheck.measure.shim.dlcheck_shim.loaders import changed

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
LOOP = PROGRAMS / "loop.py"
POSIX = os.name == "posix"

torch_only = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def flagged(file: Path, mark: str = "# FLAGGED") -> int:
    return next(number for number, line in enumerate(file.read_text().splitlines(), 1) if mark in line)


def site(file: Path = LOOP, mark: str = "# FLAGGED") -> dict[str, Any]:
    return {"file": str(file), "line": flagged(file, mark)}


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


Vivo = Callable[..., Outcome]


@pytest.fixture
def vivo(tmp_path: Path) -> Vivo:
    def run(
        words: Sequence[str], b: dict[str, Any], file: Path = LOOP, mark: str = "# FLAGGED", **spec: Any
    ) -> Outcome:
        wanted = {
            "mode": "vivo",
            "site": site(file, mark),
            "arms": {"A": {}, "B": b},
            "segment": {"batches": 5},
            "stop": {"segments": 6},
            **spec,
        }
        command = [sys.executable, str(file), *words]
        return program.run(command, wanted, cwd=tmp_path, env=environment(), budget_s=120)

    return run


def code(text: str, tmp_path: Path, *, audit: str = "log", limit_s: float = 60, **more: str) -> Outcome:
    """Run a few lines that never come to a loader."""
    file = tmp_path / "few.py"
    file.write_text(text)
    return program.run(
        [sys.executable, str(file)],
        {"mode": "watch", "audit": audit},
        cwd=tmp_path,
        env=environment(**more),
        budget_s=limit_s,
    )


def alive(pids: Sequence[int]) -> list[int]:
    return [one.pid for one in psutil.process_iter() if one.pid in pids and one.status() != psutil.STATUS_ZOMBIE]


# -- the program's loop is fed and timed


@torch_only
@fork_only
def test_segments_alternate_and_nothing_of_the_program_happens_after(vivo: Vivo, tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_text("the weights of last week")
    (tmp_path / "log.txt").write_text("earlier\n")
    words = ["--epochs", "50", "--save", "last.pt", "--count-file", "log.txt", "--after", "after.txt"]
    outcome = vivo(words, {"loader": {"num_workers": 2}})

    assert (outcome.reason, outcome.reached) == ("stopped", True), outcome.output
    segments = outcome.all("segment")
    assert [segment["arm"] for segment in segments] == ["A", "B", "B", "A", "A", "B"]
    assert {segment["batches"] for segment in segments} == {5}
    # Two workers hold four batches: twice as many are not timed after a switch to them, none where there is no switch.
    assert [segment["skipped"] for segment in segments] == [5, 8, 0, 5, 0, 8]
    assert all(segment["t"] > 0 and 0 <= segment["wait"] <= 1 for segment in segments)
    assert outcome.all("structure") == [{"arms": ["A", "B"], "same": True, "same_sizes": True}]
    (first, *_) = outcome.all("batch")
    assert first["structure"]["of"][0]["shape"] == [4, 4]
    assert {one["arm"] for one in outcome.all("first")} == {"A", "B"}

    # The program's epochs are as long as they are without us: 16 steps each.
    counts = [line.split() for line in (tmp_path / "log.txt").read_text().splitlines()[1:]]
    assert counts == []  # put back
    (end,) = outcome.all("stopped")
    assert end["why"] == "segments"
    assert end["loaders"][0]["iterated"] == end["batches"] // 16 + 1

    assert not (tmp_path / "after.txt").exists()
    assert (tmp_path / "last.pt").read_text() == "the weights of last week"
    assert (tmp_path / "log.txt").read_text() == "earlier\n"
    assert outcome.side_effects["saves_stopped"] == end["saves"] > 0
    assert outcome.side_effects["restored"] == [str(tmp_path / "log.txt")]
    assert alive([event["pid"] for event in outcome.events]) == []


@torch_only
def test_epochs_keep_their_length(vivo: Vivo, tmp_path: Path) -> None:
    words = ["--epochs", "3", "--count-file", "steps.txt"]
    outcome = vivo(words, {"loader": {}}, stop={"segments": 100}, audit="keep")

    assert outcome.reason == "ended"
    assert outcome.sentence == "the program came to its end before enough was measured"
    assert (tmp_path / "steps.txt").read_text() == "0 16\n1 32\n2 48\n"
    assert outcome.side_effects["created"] == [str(tmp_path / "steps.txt")]
    assert {segment["arm"] for segment in outcome.all("segment")} == {"A", "B"}


@torch_only
@fork_only
def test_subclass_is_built_again_by_its_own_signature(vivo: Vivo) -> None:
    b = {"loader": {"num_workers": 1, "batch_size": 2}}
    outcome = vivo(["--loader", "named", "--epochs", "50"], b, mark="Named(dataset, 4)")

    assert outcome.reason == "stopped", outcome.sentence
    assert outcome.all("reached")[0]["class"] == "Named"
    assert outcome.all("structure") == [{"arms": ["A", "B"], "same": True, "same_sizes": False}]
    sizes = {batch["arm"]: batch["structure"]["of"][0]["shape"] for batch in outcome.all("batch")}
    assert sizes == {"A": [4, 4], "B": [2, 4]}


@torch_only
def test_arm_that_cannot_start_is_a_result(vivo: Vivo) -> None:
    b = {"loader": {"num_workers": 1, "multiprocessing_context": "spawn"}}
    outcome = vivo(["--data", "unsendable", "--epochs", "50"], b)

    assert outcome.reason == "breaks"
    (broken,) = outcome.all("breaks")
    assert (broken["arm"], broken["stage"]) == ("B", "start")
    assert "lambda" in broken["message"]
    assert outcome.sentence.startswith("the loader of arm B cannot start: ")


@torch_only
@pytest.mark.parametrize("writes", [False, True])
def test_replay_says_when_the_step_writes_into_its_batch(vivo: Vivo, writes: bool) -> None:
    outcome = vivo(["--epochs", "50", *["--write-into"] * writes], {"replay": 4}, stop={"segments": 4})

    assert outcome.reason == "stopped"
    assert outcome.all("stopped")[0]["replay"] == {"mutated": writes, "unchecked": 0}
    assert [segment["arm"] for segment in outcome.all("segment")] == ["A", "B", "B", "A"]


@torch_only
@fork_only
def test_loader_that_is_built_in_each_epoch_is_built_once(vivo: Vivo) -> None:
    outcome = vivo(
        ["--loader", "rebuilt", "--workers", "1", "--epochs", "50"],
        {"hoist": True, "loader": {"persistent_workers": True}},
        segment={"unit": "epoch"},
        stop={"segments": 4},
    )
    epochs = outcome.all("segment")
    assert [(epoch["arm"], epoch["cold"]) for epoch in epochs] == [
        ("A", True), ("B", True), ("B", False), ("A", False), ("A", False), ("B", False),
    ]  # fmt: skip
    assert all(epoch["complete"] and epoch["batches"] == 16 for epoch in epochs)
    warm = {arm: [epoch["first"] for epoch in epochs if epoch["arm"] == arm and not epoch["cold"]] for arm in "AB"}
    assert min(warm["A"]) > 2 * max(warm["B"])  # a worker is started, or waits already


@torch_only
@fork_only
def test_epochs_too_short_to_be_timed_by_the_batch_are_said_to_be(vivo: Vivo) -> None:
    outcome = vivo(["--count", "16", "--epochs", "20", "--workers", "2"], {"loader": {"num_workers": 1}})

    assert outcome.reason == "unfit"
    assert outcome.sentence == "an epoch has 4 batches, and the first 8 after a pause are not timed"


@torch_only
def test_first_batch_of_each_epoch_is_a_step_where_epochs_are_steps(vivo: Vivo) -> None:
    outcome = vivo(
        ["--break-after", "1", "--epochs", "60"],
        {"loader": {}},
        segment={"batches": 8, "across": True},
        stop={"segments": 3},
        count=True,
    )
    assert outcome.reason == "stopped"
    assert [segment["batches"] for segment in outcome.all("segment")] == [8, 8, 8]
    end = outcome.all("stopped")[0]
    assert end["loaders"][0]["iterated"] == end["batches"] + 1


@torch_only
def test_single_lines_are_changed_while_their_arm_is_on(vivo: Vivo, tmp_path: Path) -> None:
    copy, item = flagged(LOOP, "# COPY"), flagged(LOOP, "# ITEM")
    outcome = vivo(
        ["--epochs", "50", "--copy", "--values", "values.txt"],
        {"loader": {}},
        segment={"batches": 5, "skip": 0},
        stop={"segments": 4},
        count=True,
        audit="keep",
        patches=[
            {"kind": "non_blocking", "file": str(LOOP), "line": copy},
            {"kind": "stale_item", "file": str(LOOP), "line": item},
        ],
    )
    assert outcome.reason == "stopped", outcome.output
    counts = outcome.all("stopped")[0]["counts"]
    # Four segments of five steps, A B B A: the copies of ten steps do not wait, and ten losses are the last one known.
    assert counts["h2d"] == {"n": 20, "bytes": 20 * 64, "non_blocking": 10, "pinned": 0}
    assert counts["item"]["n"] == 20
    values = (tmp_path / "values.txt").read_text().split()
    assert [len(set(values[at : at + 5])) for at in (0, 5, 10, 15)] == [5, 1, 1, 5]
    assert values[5] == values[10] == values[4]


@torch_only
def test_first_loader_is_watched_where_none_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(LOOP), "--other", "--data", "stream"]
    spec = {"mode": "watch", "segment": {"batches": 2}, "stop": {"batches": 7}}
    outcome = program.run(command, spec, cwd=tmp_path, env=environment())

    assert outcome.reason == "stopped"
    assert outcome.all("reached")[0]["line"] == flagged(LOOP, "DataLoader(dataset, 8)")
    assert [segment["arm"] for segment in outcome.all("segment")] == ["A", "A"]
    assert outcome.all("stopped")[0]["batches"] == 7


# -- the program stops at its loader


@pytest.fixture
def extracted(tmp_path: Path) -> Iterator[Callable[..., Extracted]]:
    open_ones: list[Extracted] = []

    def begin(words: Sequence[str], **options: Any) -> Extracted:
        command = [sys.executable, str(LOOP), *words]
        env = environment(PYTHONPATH=str(tmp_path))
        found = program.extract(command, {"site": site()}, cwd=tmp_path, env=env, **options)
        open_ones.append(found)
        return found

    yield begin
    for one in open_ones:
        one.close()


@torch_only
@fork_only
def test_program_becomes_a_worker_before_its_first_step(extracted: Callable[..., Extracted], tmp_path: Path) -> None:
    # Names that the measuring worker uses for modules of its own.
    for name in ("blocks", "datasets", "memory", "serve"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('of the project')\n")
    host = extracted(["--workers", "1", "--count-file", "steps.txt", "--after", "after.txt"])
    assert host.ready["evidence"] == "extract"
    assert (host.reached["num_workers"], host.reached["batches"]) == (1, 16)

    one = host.ask({"cmd": "block", "arm": "A", "config": {"block": "epoch", "loader": {}}})
    none = host.ask({"cmd": "block", "arm": "B", "config": {"block": "epoch", "loader": {"num_workers": 0}}})
    assert one["n"] == none["n"] == 16
    with pytest.raises(Failed, match="num_workers"):
        host.ask({"cmd": "block", "arm": "C", "config": {"block": "epoch", "loader": {"num_workers": -1}}})

    pids = [child.pid for child in psutil.Process(host._connection.pid).children(recursive=True)]
    host.close()
    assert alive([host._connection.pid, *pids]) == []
    assert not (tmp_path / "steps.txt").exists()
    assert not (tmp_path / "after.txt").exists()
    assert host.side_effects == {}


DAEMON = """
import os, time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index):
        time.sleep(0.3)
        return torch.zeros(1)

if os.fork():
    time.sleep(SLEEP)
    os._exit(0)
os.setsid()
loader = DataLoader(Slow(), batch_size=4)  # FLAGGED
for _ in range(2):
    for batch in loader: pass
"""


@torch_only
@fork_only
def test_what_is_at_its_loader_is_measured_in_the_background_too(tmp_path: Path) -> None:
    file = tmp_path / "daemon.py"
    file.write_text(DAEMON.replace("SLEEP", "1"))
    host = program.extract([sys.executable, str(file)], {"site": site(file)}, cwd=tmp_path, env=environment())
    try:
        limit = time.monotonic() + 60
        while not host.program.ended and time.monotonic() < limit:
            time.sleep(0.1)
        assert host.program.ended
        # It takes longer than what is still on its way is waited for when a program has ended.
        assert host.ask({"cmd": "block", "arm": "A", "config": {"block": "epoch", "loader": {}}})["n"] == 2
    finally:
        host.close()
    assert alive([host._connection.pid]) == []


@torch_only
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--other"], "no DataLoader was built at {}; built: {}:{} (Rows)"),
        (["--fail", "before"], "the program ended with status 1 before it iterated the DataLoader of {}: "),
    ],
)
def test_program_that_never_comes_to_its_loader(
    extracted: Callable[..., Extracted], words: list[str], said: str
) -> None:
    with pytest.raises(Failed) as failed:
        extracted(words)
    expected = said.format(f"{LOOP}:{flagged(LOOP)}", LOOP, flagged(LOOP, "DataLoader(dataset, 8)"))
    assert str(failed.value).startswith(expected)


def test_overridden_arguments_are_replaced_where_they_stand() -> None:
    names = ("dataset", "batch_size", "num_workers", "timeout")
    args, options = ([1], 4, 2, 30), {"prefetch_factor": 4, "drop_last": True}

    assert changed(names, args, options, {"batch_size": 8}) == (([1], 8, 2, 30), options)
    assert changed(names, args, options, {"num_workers": 0}) == (([1], 4, 0, 0), {"drop_last": True})
    kept = {"num_workers": 0, "prefetch_factor": 2}  # what is asked for is tried, and fails as it would
    assert changed(names, args, options, kept) == (([1], 4, 0, 0), {"prefetch_factor": 2, "drop_last": True})
    assert changed(names, ([1],), {}, {"num_workers": 3}) == (([1],), {"num_workers": 3})


# -- files: see also test_undoing.py


def test_deny_refuses_what_leads_out_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("old")
    text = """
import multiprocessing, os, shutil, socket, subprocess, sys, tempfile

def outside(_=None):
    try:
        open("leak", "w")
    except PermissionError:
        return "refused"

def main():
    attempts = {
        "write": lambda: open("new", "w"),
        "append": lambda: open("mine", "a"),
        "remove": lambda: os.remove("mine"),
        "mkdir": lambda: os.mkdir("folder"),
        "rename": lambda: os.rename("mine", "yours"),
        "tree": lambda: shutil.rmtree("."),
        "connect": lambda: socket.create_connection(("127.0.0.1", 9), 1),
        "process": lambda: subprocess.run(["ls"]),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except PermissionError as error:
            assert "dlcheck" in str(error), error
        else:
            raise SystemExit(name + " was possible")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("private")
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(outside, [0]) == ["refused"], method
    code = "open('leak', 'w')"
    assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 1

if __name__ == "__main__":
    main()
"""
    outcome = code(text, tmp_path, audit="deny")

    assert outcome.status == 0, outcome.output
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name != "__pycache__") == ["few.py", "mine"]
    assert (tmp_path / "mine").read_text() == "old"
    denied = [os.path.basename(path) for path in outcome.side_effects["denied"]]
    assert denied[:3] == ["new", "mine", "folder"]
    # What children are refused they say to the program, and only the Python that was started as such says it to us.
    assert denied.count("leak") == 1


# -- how programs start


def test_shadowed_sitecustomize_runs_first_and_is_found_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os\nos.environ['CHAINED'] = 'DLCHECK_SHIM' in os.environ and 'yes'\n"
    )
    text = "import os, sys, sitecustomize\nprint(os.environ['CHAINED'], sitecustomize.__file__)\nsys.path[:] = []\n"
    outcome = code(text, tmp_path, PYTHONPATH=str(folder))

    assert outcome.output == f"yes {folder / 'sitecustomize.py'}"
    assert len(outcome.all("hello")) == 1


def test_failing_sitecustomize_is_said_and_survived(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("1 / 0\n")
    outcome = code("print('goes on')", tmp_path, PYTHONPATH=str(folder))

    assert outcome.output.splitlines() == ["Error in sitecustomize: ZeroDivisionError: division by zero", "goes on"]


@pytest.mark.parametrize(
    ("command", "reason", "said"),
    [
        ("no-such-command train.py", "not-found", "cannot run `no-such-command`: No such file or directory"),
        (
            [sys.executable, "-I", "-c", "1"],
            "no-hello",
            "the program cannot be measured: `python -I` takes nothing from its environment",
        ),
        (
            [sys.executable, "-c", "1 / 0"],
            "failed",
            "the program ended with status 1 before it iterated a DataLoader: ZeroDivisionError: division by zero",
        ),
        ([sys.executable, "-c", "raise SystemExit(0)"], "ended", "the program built no DataLoader"),
    ],
)
def test_one_line_says_why_nothing_was_measured(
    command: str | list[str], reason: str, said: str, tmp_path: Path
) -> None:
    outcome = program.run(command, {"mode": "watch"}, cwd=tmp_path, env=environment())
    assert (outcome.reason, outcome.sentence) == (reason, said)


BEFORE = "the program ended with status 1 before it iterated the DataLoader of loaders.py:3"


def ended(text: str, tmp_path: Path, **spec: Any) -> str:
    """What is said of a few lines that do not come to the loader of line 3 of another file."""
    (tmp_path / "few.py").write_text(text)
    (tmp_path / "loaders.py").write_text("def make(fails=False):\n    if fails: raise ValueError\n    return 1\n")
    wanted = {"mode": "watch", "site": {"file": str(tmp_path / "loaders.py"), "line": 3}, **spec}
    return program.run([sys.executable, "few.py"], wanted, cwd=tmp_path, env=environment(), budget_s=60).sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import json", "the program ended without running loaders.py"),
        ("import loaders; loaders.make()", "the program built no DataLoader"),
        (
            "import loaders\nloaders.make(True)",
            f"{BEFORE}: ValueError (loaders.py:2)",
        ),
        (
            "import json\ndef number(word):\n    raise KeyError\njson.loads('1', parse_int=number)",
            f"{BEFORE}: KeyError (few.py:3)",
        ),
        (
            "import sys\nsys.exit('give --data')",
            f"{BEFORE}: give --data",
        ),
    ],
)
def test_what_was_not_reached_is_said(text: str, said: str, tmp_path: Path) -> None:
    assert ended(text, tmp_path) == said


def test_what_is_refused_is_not_blamed_for_a_file_that_is_not_used(tmp_path: Path) -> None:
    said = ended("open('log.txt', 'w')", tmp_path, audit="deny")
    assert said.endswith(
        f"PermissionError: dlcheck measure: open {tmp_path / 'log.txt'} is refused (--audit deny) (few.py:1); "
        "loaders.py was not run until then"
    )
    assert "not run until then" not in ended("import loaders; open('log.txt', 'w')", tmp_path, audit="deny")


def test_a_torch_that_cannot_be_watched_is_said_to_be_none(tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "utils" / "data"
    folder.mkdir(parents=True)
    for package in (folder, *folder.parents[:2]):
        (package / "__init__.py").touch()
    (folder / "dataloader.py").write_text("Loader = list\n")
    said = ended("import torch.utils.data.dataloader as data\nfor _ in data.Loader('abc'): pass", tmp_path)
    assert said.startswith(
        "the program came to its end, and nothing was seen of its loaders; "
        "dlcheck could not watch torch.utils.data.dataloader: AttributeError: "
    )


@pytest.mark.skipif(not POSIX, reason="a shell of Unix")
def test_commands_that_are_no_python(tmp_path: Path) -> None:
    failing = program.run("sh -c 'echo broken; exit 3'", {"mode": "watch"}, cwd=tmp_path, env=environment())
    assert failing.sentence == "the command ended with status 3 before a Python started: broken"
    slow = program.run("sleep 60", {"mode": "watch"}, cwd=tmp_path, env=environment(), hello_s=0.3)
    assert (slow.reason, slow.seconds < 20) == ("no-hello", True)
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\nprint('hello')\n")
    script.chmod(0o755)
    through = program.run(f"{script} && true", {"mode": "watch"}, cwd=tmp_path, env=environment(), shell=True)
    assert (through.sentence, through.output) == ("the program built no DataLoader", "hello")


CHILDREN = """
import multiprocessing, os, subprocess, sys, time

def wait(_=None):
    time.sleep(60)

if __name__ == "__main__":
    away = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    child = multiprocessing.get_context("spawn").Process(target=wait)
    child.start()
    orphan = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid)"
    orphaned = subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True).stdout
    open(os.environ["PIDS"], "w").write(f"{os.getpid()} {away.pid} {child.pid} {orphaned}")
    wait()
"""


def started(file: Path) -> list[int]:
    return [int(pid) for pid in file.read_text().split()]


@pytest.mark.skipif(not POSIX, reason="sessions")
def test_time_limit_ends_all_that_was_started(tmp_path: Path) -> None:
    outcome = code(CHILDREN, tmp_path, audit="keep", limit_s=3, PIDS=str(tmp_path / "pids"))

    assert outcome.sentence == "the program was ended after 3 s, before it iterated the loader"
    assert len(started(tmp_path / "pids")) == 4
    assert alive(started(tmp_path / "pids")) == []


@pytest.mark.skipif(not POSIX, reason="sessions")
def test_interrupt_ends_all_that_was_started(tmp_path: Path) -> None:
    (tmp_path / "few.py").write_text(CHILDREN)
    (tmp_path / "kept").write_text("old")

    def interrupted(event: dict[str, Any]) -> None:
        pids = tmp_path / "pids"
        while not (pids.exists() and len(pids.read_text().split()) == 4):
            time.sleep(0.05)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.run(
            [sys.executable, str(tmp_path / "few.py")],
            {"mode": "watch", "audit": "keep"},
            cwd=tmp_path,
            env=environment(PIDS=str(tmp_path / "pids")),
            on_event=interrupted,
        )
    assert alive(started(tmp_path / "pids")) == []


# -- programs as they are found


@torch_only
@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_of_every_start_method(vivo: Vivo, method: str) -> None:
    words = ["--workers", "1", "--method", method, "--epochs", "20"]
    outcome = vivo(words, {"loader": {"persistent_workers": True}}, stop={"segments": 3}, audit="deny")

    assert outcome.reason == "stopped", outcome.output
    assert outcome.all("reached")[0]["start_method"] == method
    assert len(outcome.all("hello")) == 1  # workers do not speak for themselves
    assert outcome.side_effects == {}


@torch_only
@fork_only
@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_training_in_a_child_of_multiprocessing(vivo: Vivo, method: str) -> None:
    outcome = vivo([method], {"loader": {}}, PROGRAMS / "spawned.py")

    assert outcome.reason == "stopped", outcome.output
    assert outcome.all("reached")[0]["class"] == "DataLoader"
    assert len({event["pid"] for event in outcome.events if "hello" in event}) == 2


@torch_only
@pytest.mark.long
def test_only_the_first_rank_is_timed(tmp_path: Path) -> None:
    file = PROGRAMS / "mnist.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(file)]
    spec = {"mode": "vivo", "site": site(file), "arms": {"A": {}, "B": {}}, "stop": {"segments": 4}}
    outcome = program.run(command, {**spec, "segment": {"batches": 5}}, cwd=tmp_path, env=environment(), budget_s=120)

    assert outcome.reason == "stopped", outcome.output
    ranks = {event["pid"]: event["rank"] for event in outcome.events if "hello" in event}
    assert sorted(ranks.values()) == [0, 0, 1]  # the launcher, and two ranks
    assert {ranks[event["pid"]] for event in outcome.events if "segment" in event} == {0}
    assert list(tmp_path.iterdir()) == []


@torch_only
@pytest.mark.slow
def test_atomic_checkpoints_and_log_files_leave_no_trace(tmp_path: Path, vivo: Vivo) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("last.pt", "train.log"):
        (out / name).write_text("of another run")
    words = ["--out", str(out), "--workers", "0", "--epochs", "9"]
    outcome = vivo(words, {"loader": {}}, PROGRAMS / "workers.py")

    assert outcome.reason == "stopped", outcome.output
    assert sorted(entry.name for entry in out.iterdir()) == ["last.pt", "train.log"]
    assert {entry.read_text() for entry in out.iterdir()} == {"of another run"}
    assert outcome.side_effects["saves_stopped"] > 0


@torch_only
@pytest.mark.long
@pytest.mark.parametrize("name", ["mnist", "workers", "with_accelerate", "with_lightning"])
def test_scripts_in_the_style_of_public_ones(name: str, tmp_path: Path, vivo: Vivo) -> None:
    library = {"with_accelerate": "accelerate", "with_lightning": "lightning"}.get(name)
    if library is not None and find_spec(library) is None:
        pytest.skip(f"needs {library}")
    words = {"mnist": ["--save-model"], "workers": ["--out", str(tmp_path / "out")]}.get(name, [])
    outcome = vivo(words, {"loader": {"num_workers": 0}}, PROGRAMS / f"{name}.py", stop={"segments": 8})

    assert outcome.reason == "stopped", f"{outcome.sentence}\n{outcome.output}"
    assert list(tmp_path.iterdir()) == []


@torch_only
@fork_only
@pytest.mark.long
@pytest.mark.parametrize("kind", ["faulty", "fixed"])
@pytest.mark.parametrize(("script", "where"), [("train.py", "loaders.py"), ("pretrain.py", "pretrain.py")])
def test_examples(kind: str, script: str, where: str, tmp_path: Path) -> None:
    folder = HERE.parent.parent / "examples" / kind
    words = ["--data", str(tmp_path / "data"), "--epochs", "12", "--workers", "1", "--eval-workers", "1"]
    spec = {
        "mode": "vivo",
        "site": site(folder / where, " DataLoader("),
        "arms": {"A": {}, "B": {"loader": {"persistent_workers": True}}},
        "segment": {"unit": "epoch"},
        "stop": {"segments": 2},
    }
    command = [sys.executable, str(folder / script), *words]
    outcome = program.run(command, spec, cwd=tmp_path, env=environment(), budget_s=120)

    assert outcome.reason == "stopped", outcome.output
    # Training and validation loaders come from one line; only those of training are fed.
    assert {epoch["batches"] for epoch in outcome.all("segment")} == {12 if script == "train.py" else 8}
    with_data = program.extract(command, {"site": spec["site"]}, cwd=tmp_path, env=environment())
    answer = with_data.ask({"cmd": "block", "arm": "A", "config": {"block": "epoch", "loader": {}}})
    with_data.close()
    assert answer["n"] == (12 if script == "train.py" else 8)
    # It has made its data each time, as the first time.
    assert outcome.side_effects["removed"] == with_data.side_effects["removed"] == [str(tmp_path / "data")]
    assert list(tmp_path.iterdir()) == []
