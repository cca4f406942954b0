"""`dlcheck env` and `dlcheck advise`, from the command line."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from dlcheck import cli
from dlcheck.advise import render
from dlcheck.measure import identity

FOLDER = Path(render.__file__).parent
ADVICE, ENV = (json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8")) for name in ("advice", "env"))
FACTS: dict[str, Any] = {
    "visible_cpus": 64, "usable_cores": 8, "cores_per_rank": 8, "memory_available": 64 << 30, "shm_total": 32 << 30,
    "shm_free": 32 << 30, "open_files": 1 << 20, "gpus": [{"name": "NVIDIA H100"}], "container": "docker",
    "python": "3.12.4", "torch": "2.6.0", "start_method": "fork", "ranks": None,
    "storage": {"kind": "ssd", "mount": "/", "filesystem": "ext4", "device": "/dev/nvme0n1"},
}  # fmt: skip
HEAD = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import datasets, transforms
"""
IMAGES = """
class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return transform(Image.open(self.paths[index]))

"""
TRAINING = """
def train(loader, model, optimizer):
    for epoch in range(3):
        for batch in loader:
            model(batch.to("cuda")).sum().backward()
            optimizer.step()

train(loader, model, optimizer)
"""
SIZED = "transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])"


class Session(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        jsonschema.validate(document, ADVICE)
        return document

    @property
    def loader(self) -> dict[str, Any]:
        (only,) = self.json["loaders"]
        assert isinstance(only, dict)
        return only


Console = Callable[..., Session]


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Console:
    """Run the program in this process, in an empty project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DLCHECK_OUTPUT_FORMAT", raising=False)
    Path("pyproject.toml").touch()

    def run(*arguments: str) -> Session:
        monkeypatch.setattr(sys, "argv", ["dlcheck", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return Session(int(caught.value.code or 0), *capsys.readouterr())

    return run


def machine(**changes: Any) -> str:
    """A file with the facts of a machine."""
    facts = {name: {"value": value, "source": "", "follows": ""} for name, value in {**FACTS, **changes}.items()}
    Path("machine.json").write_text(json.dumps({"schema": "dlcheck.env/1", "facts": facts}))
    return "--machine=machine.json"


def write(name: str, text: str, after: str = "", head: str = HEAD) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(head + textwrap.dedent(text) + after)


def advise(console: Console, *more: str, **changes: Any) -> Session:
    return console("advise", machine(**changes), "--output-format", "json", *more)


# env


def test_env_of_this_machine(console: Console) -> None:
    found = console("env")
    assert (found.status, found.err) == (0, "")
    assert "usable cores" in found.out
    document = json.loads(console("env", "--output-format", "json").out)
    jsonschema.validate(document, ENV)
    assert document["facts"]["visible_cpus"]["value"] >= 1
    assert document["facts"]["python"]["value"] is not None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["env", "nowhere"], "nowhere: "),
        (["env", "--python", "no-such-python"], "no-such-python"),
        (["env", "--output-format", "xml"], "xml"),
        (["advise", "nowhere.py"], "nowhere.py: "),
        (["advise", "--python", "no-such-python"], "no-such-python"),
        (["advise", "--machine", "nowhere.json"], "nowhere.json: "),
        (["advise", "--machine", "."], ".: "),
        (["advise", "--data", "nowhere"], "nowhere: "),
        (["advise", "--ranks", "0"], "--ranks"),
        (["advise", "--machine", "other.json", "--data", "."], "--data"),
        (["advise", "--diff", "--output-format", "json"], "--diff"),
    ],
)
def test_bad_options_are_told_in_one_line(arguments: list[str], told: str, console: Console) -> None:
    found = console(*arguments)
    assert found.status == 2
    assert found.out == ""
    assert told in found.err
    assert found.err.startswith("Usage: ") or found.err.count("\n") == 1
    assert "internal error" not in found.err


@pytest.mark.skipif(sys.platform == "win32", reason="a program here is a script with a first line")
def test_what_is_no_python_is_told(console: Console) -> None:
    Path("python").write_text("#!/bin/sh\necho hello\n")
    Path("python").chmod(0o755)
    found = console("env", "--python", "./python")
    assert (found.status, found.out) == (2, "")
    assert "does not answer as Python does" in found.err


def test_the_interpreter_does_not_import_what_lies_beside_it(console: Console) -> None:
    for name in ("json", "importlib", "multiprocessing", "torch"):
        Path(f"{name}.py").write_text("raise SystemExit('imported')\n")
    found = console("env", "--python", sys.executable, "--output-format", "json")
    assert json.loads(found.out)["facts"]["python"]["value"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": "dlcheck.report/1"}', '{"schema": "dlcheck.env/1", "facts": []}',
     '{"schema": "dlcheck.env/1", "facts": {"usable_cores": {"value": "eight"}}}',
     '{"schema": "dlcheck.env/1", "facts": {"usable_cores": {"value": true}}}',
     '{"schema": "dlcheck.env/1", "facts": {"memory_available": {"value": -1}}}',
     '{"schema": "dlcheck.env/1", "facts": {"usable_cores": {"value": NaN}}}',
     '{"schema": "dlcheck.env/1", "facts": {"gpus": {"value": [1]}}}',
     '{"schema": "dlcheck.env/1", "facts": {"storage": {"value": {}}}}',
     '{"schema": "dlcheck.env/1", "facts": {"python": 3}}', "[" * 100_000],
)  # fmt: skip
def test_a_machine_that_is_none_is_told(text: str, console: Console) -> None:
    Path("other.json").write_text(text)
    found = console("advise", "--machine", "other.json")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("dlcheck: error: other.json: ")
    assert found.err.count("\n") == 1


def test_what_env_prints_is_a_machine(console: Console) -> None:
    Path("here.json").write_text(console("env", "--output-format", "json").out)
    write("train.py", IMAGES + "loader = DataLoader(Images(paths), 8, num_workers=2)\n" + TRAINING)
    here, there = console("advise"), console("advise", "--machine", "here.json")
    assert (here.status, there.status) == (0, 0)
    assert here.out.splitlines()[3:] == there.out.splitlines()[3:]


# advise


def test_decoding_gets_as_many_workers_as_can_help(console: Console) -> None:
    write("train.py", IMAGES + "loader = DataLoader(Images(paths), 8, num_workers=2)\n" + TRAINING)
    found = advise(console)
    loader = found.loader
    workers = loader["options"]["num_workers"]
    assert (workers["value"], workers["span"], workers["basis"]) == (8, [1, 8], "estimate")
    assert "`Image.open`, train.py:14" in workers["why"]
    assert [one["value"] for one in workers["written"]] == [2]
    assert loader["options"]["persistent_workers"]["value"] is True
    assert loader["options"]["pin_memory"]["value"] is True
    assert loader["copies"] == [{"path": "train.py", "line": 21, "cell": None, "non_blocking": False}]
    assert loader["rules"] == ["DLC103", "DLC202"]
    assert loader["commands"] == ["dlcheck tune --run 'python train.py' --loader train.py:16"]
    text = console("advise", machine()).out
    assert "train.py:16: loader of Images, batches of 8" in text
    assert "num_workers         2       -> up to 8" in text


def test_tensors_in_memory_get_none(console: Console) -> None:
    write("train.py", "loader = DataLoader(TensorDataset(torch.zeros(100, 4)), 8, num_workers=4)\n" + TRAINING)
    options = advise(console).loader["options"]
    assert (options["num_workers"]["value"], options["num_workers"]["basis"]) == (0, "known")
    assert options["prefetch_factor"]["value"] is None
    text = console("advise", machine()).out
    assert "prefetch_factor" not in text  # who has no workers need not read of it


def test_what_cannot_fit_is_refused_with_the_limit(console: Console) -> None:
    made = f"loader = DataLoader(datasets.ImageFolder('x', {SIZED}), 64, num_workers=8)\n"
    write("train.py", made + TRAINING)
    loader = advise(console, shm_total=64 << 20, shm_free=64 << 20).loader
    assert loader["options"]["num_workers"]["value"] == 0
    assert loader["binding"] == "/dev/shm"
    assert any("8 x 2 batches of 37 MiB are 588 MiB, and /dev/shm has 64 MiB" in line for line in loader["unfit"])
    assert any("--shm-size=2g" in line for line in loader["refused"])
    enough = advise(console).loader
    assert (enough["unfit"], enough["refused"]) == ([], [])
    assert enough["memory"]["shm_bytes"] == 8 * 3 * 64 * 3 * 224 * 224 * 4


def test_a_small_dev_shm_is_told_where_the_batch_is_not_known(console: Console) -> None:
    write("train.py", IMAGES + "loader = DataLoader(Images(paths), 8, num_workers=4)\n" + TRAINING)
    loader = advise(console, shm_total=64 << 20, shm_free=64 << 20).loader
    assert any("with 4 workers no batch may be larger than 8 MiB" in line for line in loader["warnings"])


def test_worlds_are_not_mixed(console: Console) -> None:
    """With a GPU eight workers, without one far too much prefetching, and no workers."""
    chosen = "kwargs = {'num_workers': 8} if torch.cuda.is_available() else {'num_workers': 0, 'prefetch_factor': 64}\n"
    made = f"loader = DataLoader(datasets.ImageFolder('x', {SIZED}), 64, **kwargs)\n"
    write("train.py", chosen + made + TRAINING)
    loader = advise(console, shm_total=1 << 30, shm_free=1 << 30).loader
    assert {one["value"] for one in loader["options"]["prefetch_factor"]["written"]} == {None, 64}
    assert loader["unfit"] == []


def test_memory_stops_workers_that_copy(console: Console) -> None:
    write("train.py", IMAGES + "loader = DataLoader(Images(paths), 8, num_workers=2)\n" + TRAINING)
    loader = advise(console, memory_available=500 << 20, start_method="spawn").loader
    assert (loader["binding"], loader["options"]["num_workers"]["value"]) == ("memory", 2)


def test_more_workers_than_cores_take_turns(console: Console) -> None:
    write("train.py", IMAGES + "loader = DataLoader(Images(paths), 8, num_workers=32)\n" + TRAINING)
    assert any("32 workers as written on 8 usable cores" in line for line in advise(console).loader["warnings"])
    on_network = {**FACTS["storage"], "kind": "network"}
    assert not any("take turns" in line for line in advise(console, storage=on_network).loader["warnings"])


def test_ranks_share_the_machine(console: Console) -> None:
    ranked = "torch.distributed.init_process_group('nccl')\n"
    write("train.py", IMAGES + ranked + "loader = DataLoader(Images(paths), 8, num_workers=2)\n" + TRAINING)
    gpus = [{"name": "NVIDIA H100"}] * 4
    alone = advise(console, gpus=gpus).loader
    assert any("--ranks 4" in line for line in alone["warnings"])
    shared = advise(console, "--ranks", "4", gpus=gpus)
    assert shared.json["machine"]["cores"] == 2
    assert shared.loader["options"]["num_workers"]["span"] == [1, 2]
    assert not any("--ranks" in line for line in shared.loader["warnings"])


@pytest.mark.parametrize(
    ("options", "line", "method"),
    [
        ([], "", "fork"),
        (["--target-python", "3.14"], "", "forkserver"),
        (["--target-python", "3.12"], "", "fork"),
        ([], "torch.multiprocessing.set_start_method('spawn')\n", "spawn"),
    ],
)
def test_the_start_method_is_that_of_the_program(options: list[str], line: str, method: str, console: Console) -> None:
    write("train.py", IMAGES + line + "loader = DataLoader(Images(paths), 8, num_workers=2)\n" + TRAINING)
    found = advise(console, *options)
    assert found.loader["options"]["start_method"]["value"] == method
    assert found.loader["memory"]["least_bytes"] == 8 * (60_000_000 if method == "fork" else 120_000_000)


def test_another_programs_start_method_is_its_own(console: Console) -> None:
    write("train.py", IMAGES + "loader = DataLoader(Images(paths), 8, num_workers=2)\n" + TRAINING)
    write("other.py", "torch.multiprocessing.set_start_method('spawn')\n")
    assert advise(console, ".").loader["options"]["start_method"]["value"] == "fork"


def test_a_loader_is_found_where_it_is_called_for(console: Console) -> None:
    write("data.py", IMAGES + "def make(workers=3):\n    return DataLoader(Images(paths), 8, num_workers=workers)\n")
    write("train.py", "from data import make\nloader = make()\n" + TRAINING)
    loader = advise(console, "train.py").loader
    assert (loader["path"], loader["line"]) == ("data.py", 17)
    assert loader["called_from"] == [{"path": "train.py", "line": 6, "cell": None}]
    (workers,) = loader["options"]["num_workers"]["written"]
    assert (workers["value"], workers["at"]["path"]) == (3, "data.py")
    assert loader["commands"] == ["dlcheck tune --run 'python train.py' --loader data.py:17"]


def test_defaults_of_the_command_line_are_named(console: Console) -> None:
    text = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=5)
    args = parser.parse_args()
    """
    made = "loader = DataLoader(Images(paths), 8, num_workers=args.workers)\n"
    write("train.py", textwrap.dedent(text) + IMAGES + made + TRAINING)
    (written,) = advise(console).loader["options"]["num_workers"]["written"]
    assert (written["value"], written["origin"]) == (5, "default of `--workers`, train.py:8")
    assert "default of `--workers`, train.py:8" in console("advise", machine()).out


def test_loaders_of_which_the_same_is_said_stand_together(console: Console) -> None:
    made = (
        "loader = DataLoader(Images(paths), 8, num_workers=2)\nother = DataLoader(Images(paths), 16, num_workers=2)\n"
    )
    write("train.py", IMAGES + made + TRAINING + "train(other, model, optimizer)\n")
    write("tensors.py", "loader = DataLoader(TensorDataset(torch.zeros(100, 4)), 8)\n" + TRAINING)
    assert [one["line"] for one in advise(console).json["loaders"]] == [5, 16, 17]
    text = console("advise", machine()).out
    assert text.count("num_workers") == 2
    assert "batches of 8\ntrain.py:17: other of Images, batches of 16\n" in text


def test_samples_on_the_gpu_need_the_main_process(console: Console) -> None:
    write(
        "train.py",
        """
    class OnGpu(Dataset):
        def __getitem__(self, index):
            return torch.zeros(3).cuda()

    loader = DataLoader(OnGpu(), 8, num_workers=2, pin_memory=True)
    """,
        TRAINING,
    )
    options = advise(console).loader["options"]
    assert (options["num_workers"]["value"], options["pin_memory"]["value"]) == (0, False)


def test_a_stream_that_workers_repeat_gets_one(console: Console) -> None:
    write(
        "train.py",
        """
    from torch.utils.data import IterableDataset
    class Lines(IterableDataset):
        def __iter__(self):
            yield from open("lines.txt")

    loader = DataLoader(Lines(), 8, num_workers=4)
    """,
        TRAINING,
    )
    loader = advise(console).loader
    assert (loader["binding"], loader["options"]["num_workers"]["span"]) == ("stream", [0, 1])


def test_a_notebook(console: Console) -> None:
    cells = [HEAD, IMAGES, "loader = DataLoader(Images(paths), 8, num_workers=2)\n", TRAINING]
    made: list[dict[str, Any]] = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None} for text in cells
    ]
    Path("nb.ipynb").write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    loader = advise(console, "nb.ipynb").loader
    assert (loader["path"], loader["cell"], loader["line"]) == ("nb.ipynb", 3, 1)
    assert loader["commands"] == ["dlcheck tune --factory MODULE:FUNCTION"]
    assert "nb.ipynb:cell 3:1: loader of Images" in console("advise", machine(), "nb.ipynb").out


def test_a_project_without_loaders(console: Console) -> None:
    write("model.py", "model = torch.nn.Linear(1, 1)\n")
    found = advise(console)
    assert (found.status, found.json["loaders"]) == (0, [])
    assert "no DataLoader is built or used in ." in found.err


def test_what_cannot_be_read_is_told(console: Console) -> None:
    write("broken.py", "loader = DataLoader(\n")
    found = advise(console)
    assert found.status == 2
    assert "broken.py:" in found.err
    write("train.py", IMAGES + "loader = DataLoader(Images(paths), 8)\n" + TRAINING)
    found = advise(console)
    assert (found.status, len(found.json["loaders"])) == (0, 1)
    assert "broken.py:" in found.err


def test_diff_shows_what_fix_would_do(console: Console) -> None:
    made = "loader = DataLoader(Images(paths), 8, num_workers=2, pin_memory=True)\n"
    write("train.py", IMAGES + made + TRAINING)
    before = Path("train.py").read_text()
    found = console("advise", "--diff")
    assert found.status == 1
    assert '+            model(batch.to("cuda", non_blocking=True)).sum().backward()' in found.out
    assert "persistent_workers=True" in found.out
    assert Path("train.py").read_text() == before
    write("train.py", "model = torch.nn.Linear(1, 1)\n")
    assert console("advise", "--diff") == (0, "", "")


def test_suppressions_and_ignored_rules_hold_for_the_diff(console: Console) -> None:
    made = "loader = DataLoader(Images(paths), 8, num_workers=2, pin_memory=True)\n"
    write("train.py", IMAGES + made + TRAINING)
    Path("pyproject.toml").write_text('[tool.dlcheck]\nignore = ["DLC101", "DLC202"]\n')
    assert console("advise", "--diff") == (0, "", "")


@pytest.mark.slow
def test_what_was_measured_here_decides(console: Console) -> None:
    """A sample that costs nothing, of which the code does not tell: measured, it gets no workers."""
    pytest.importorskip("torch")
    write(
        "train.py",
        """
    class Cheap(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return torch.full((4,), index)

    def make_loader():
        return DataLoader(Cheap(), batch_size=8, num_workers=2)

    def train(model, optimizer):
        loader = make_loader()
        for epoch in range(5):
            for batch in loader:
                model(batch.float()).sum().backward()

    if __name__ == "__main__":
        train(torch.nn.Linear(4, 1), None)
    """,
        head="import torch\nfrom torch.utils.data import DataLoader, Dataset\n",
    )
    assert console("advise", "--output-format", "json").loader["options"]["num_workers"]["basis"] == "open"
    time = ("--quick", "--budget", "8", "--total", "16", "--progress", "none")
    console("measure", "--in-ci", "train.py", "--factory", "train:make_loader", "--python", sys.executable, *time)
    if not list(Path(".dlcheck/measurements").glob("*.json")):
        pytest.skip("this machine is too slow, or too busy, to measure anything in eight seconds")
    loader = console("advise", "--output-format", "json").loader
    assert loader["record"]
    assert (loader["facts"]["batch_size"], loader["facts"]["samples"]) == (8, 64)
    workers = loader["options"]["num_workers"]
    assert (workers["value"], workers["basis"]) == (0, "measured")
    assert f"record {loader['record']}" in console("advise").out
    assert console("advise", "--isolated", "--output-format", "json").loader["record"] is None


PROGRAM = """
    class Pages(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return read(index)

    def train(model):
        loader = DataLoader(Pages(), batch_size=8)
        for epoch in range(5):
            for batch in loader:
                model(batch).sum().backward()
"""


def found_before(**how: object) -> dict[str, object]:
    """What a search leaves, as far as advice reads it."""
    return {
        "schema": "dlcheck.tuning/1",
        "id": "20261130T000000-1",
        "date": "2026-11-30T12:00:00Z",
        "asked": {"loader": "train.py:11"},
        "chosen": {"num_workers": 3, "prefetch_factor": 2},
        "advice": "take",
        "workload": {"batch_size": 8, "size": 64, "cpu_s": 0.02, "wait_s": 0.0, "sample_bytes": 4096},
        "step": {"kind": "idle-wait", "s": 0.05, "source": "program"},
        **how,
    }


def leave(record: object, machine: str = "") -> None:
    folder = Path(".dlcheck/tuning")
    folder.mkdir(parents=True, exist_ok=True)
    name = f"a-{machine or identity.fingerprint(identity.identity())}.json"
    (folder / name).write_text(record if isinstance(record, str) else json.dumps(record))


def test_what_tune_has_found_is_told_and_used(console: Console) -> None:
    write("train.py", PROGRAM, head="from torch.utils.data import DataLoader, Dataset\n")
    leave(found_before())
    loader = console("advise", "--output-format", "json").loader
    assert loader["tuned"] == {
        "id": "20261130T000000-1",
        "date": "2026-11-30T12:00:00Z",
        "chosen": "num_workers=3, prefetch_factor=2",
        "advice": "take",
    }
    assert (loader["facts"]["cpu_s"], loader["facts"]["step_s"], loader["facts"]["samples"]) == (0.02, 0.05, 64)
    assert loader["options"]["num_workers"]["basis"] == "measured"
    told = " ".join(console("advise").out.split())
    assert "`dlcheck tune` chose num_workers=3, prefetch_factor=2 here on 2026-11-30 (take; record" in told
    assert console("advise", "--isolated", "--output-format", "json").loader["tuned"] is None


@pytest.mark.parametrize(
    ("record", "machine"),
    [
        (found_before(), "another-machine"),
        (found_before(asked={"loader": "train.py:3"}), ""),
        (found_before(asked={"loader": "other.py:11"}), ""),
        (found_before(asked={"loader": None}), ""),
        (found_before(schema="dlcheck.tuning/2"), ""),
        (found_before(chosen=None), ""),
        (found_before(date=7), ""),
        ("{", ""),
        ("[1]", ""),
        ("[" * 100_000, ""),
    ],
)
def test_other_searches_are_passed_over(record: object, machine: str, console: Console) -> None:
    write("train.py", PROGRAM, head="from torch.utils.data import DataLoader, Dataset\n")
    leave(record, machine)
    assert console("advise", "--output-format", "json").loader["tuned"] is None


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "-1", "true", '"1"', "null", "9" * 400])
def test_figures_that_cannot_be_are_passed_over(value: str, console: Console) -> None:
    write("train.py", PROGRAM, head="from torch.utils.data import DataLoader, Dataset\n")
    plain = console("advise", "--output-format", "json").loader["facts"]
    record = json.dumps(found_before(workload=dict.fromkeys(("batch_size", "size", "cpu_s", "variation"), "?")))
    step = json.dumps({"kind": "idle-wait", "s": "?"})
    whole = record.replace(json.dumps(found_before()["step"]), step).replace('"?"', value)
    leave(whole)
    loader = console("advise", "--output-format", "json").loader
    assert loader["tuned"] is not None
    assert loader["facts"] == plain
