"""Worker processes as the measuring side sees them: their answers, and every way in which they fail."""

from __future__ import annotations

import os
import random
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlcheck.measure.children import Child, Failed, interpreter, is_python
from dlcheck.measure.workload import factory

pytestmark = pytest.mark.slow

TENSORS = {"dataset": {"kind": "tensors", "size": 256, "shape": [4]}, "loader": {"batch_size": 16}}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    pytest.importorskip("torch")
    one = Child(sys.executable, TENSORS, random.Random(0))
    yield one
    one.close()


def block(child: Child, **config: Any) -> dict[str, Any]:
    config.setdefault("block", "epoch")
    return child.ask({"cmd": "block", "arm": "A", "config": config})


def test_it_says_what_it_is(child: Child) -> None:
    import torch

    assert child.ready["torch"] == torch.__version__
    assert child.ready["python"] == ".".join(map(str, sys.version_info[:3]))
    assert child.ready["evidence"] == "synthetic"
    assert os.path.samefile(child.ready["executable"], sys.executable)


@pytest.mark.parametrize("kind", ["epoch", "steady", "startup", "new-iterator", "one-iterator"])
@pytest.mark.parametrize("workers", [0, 2])
def test_blocks_give_seconds(child: Child, kind: str, workers: int) -> None:
    found = block(child, block=kind, loader={"num_workers": workers}, batches=4)
    assert 0 < found["t"] < 60
    assert found["spec"] == [["torch.float32", 16, 4], ["torch.int64", 16]]


def test_an_epoch_is_cut_to_its_batches(child: Child) -> None:
    assert block(child, batches=5)["n"] == 5
    assert block(child)["n"] == 16


def test_a_short_epoch_begins_again(child: Child) -> None:
    assert block(child, batches=40)["n"] == 40


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux")
def test_memory_that_is_kept_is_seen(child: Child) -> None:
    size = {"kind": "shaped", "size": 256, "shape": [64, 1024]}  # 256 KiB a sample
    kept = block(child, block="memory", dataset=size, keep=True)
    gone = block(child, block="memory", dataset=size)
    assert kept["t"] > 48 << 20
    assert gone["t"] < kept["t"] / 5
    assert kept["points"][0][0] == 0
    assert all(pss > 1 << 20 for _, pss in kept["points"])


def test_facts_are_measured(child: Child) -> None:
    found = child.ask({"cmd": "facts"})
    assert (found["size"], found["sample_bytes"]) == (256, 24)
    assert found["options"]["batch_size"] == 16
    assert found["cpu_s"] >= 0


@pytest.mark.parametrize(
    ("request_", "stage"),
    [
        ({"cmd": "dance"}, "request"),
        ({"cmd": "block", "arm": "A", "config": {"block": "nothing"}}, "block"),
        ({"cmd": "block", "arm": "A", "config": {}}, "build"),
        ({"cmd": "block", "arm": "A", "config": {"block": "epoch", "loader": {"batch_size": -1}}}, "block"),
        ({"cmd": "oracle", "name": "delphi"}, "oracle"),
    ],
)
def test_what_fails_is_told_and_the_child_lives(child: Child, request_: dict[str, Any], stage: str) -> None:
    with pytest.raises(Failed) as failed:
        child.ask(request_)
    assert failed.value.stage == stage
    assert block(child, batches=2)["n"] == 2


def test_nothing_is_left_running() -> None:
    one = Child(sys.executable, TENSORS, random.Random(0))
    one.ask({"cmd": "block", "arm": "A", "config": {
        "block": "epoch", "loader": {"num_workers": 2, "persistent_workers": True}}})  # fmt: skip
    pid = one._process.pid
    family = psutil.Process(pid).children(recursive=True)
    assert len(family) >= 2
    one.close()
    psutil.wait_procs(family, timeout=5)
    assert not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in family)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


# Interpreters that are none, or have no torch


def script(folder: Path, text: str) -> str:
    if os.name == "nt":
        pytest.skip("a script is no program there")
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo hello; cat > /dev/null", "answered with what is no JSON: 'hello'"),
        ("echo 17; cat > /dev/null", "answered with what is no object: '17'"),
        ("echo no such module >&2; exit 3", "ended with status 3: no such module"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("exit 0", "ended with status 0"),
    ],
)
def test_an_interpreter_that_is_none(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(Failed, match=said):
        _ = Child(script(tmp_path, text), TENSORS, random.Random(0)).ready


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="No such file"):
        Child(str(tmp_path / "python"), TENSORS, random.Random(0))


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    bare = script(tmp_path, f'exec "{sys.executable}" -I -S "$@"')
    with pytest.raises(Failed) as failed:
        _ = Child(bare, TENSORS, random.Random(0)).ready
    assert (failed.value.stage, failed.value.kind) == ("import", "ModuleNotFoundError")


def test_an_answer_that_never_comes(tmp_path: Path) -> None:
    silent = script(tmp_path, """read line; echo '{"ready": true}'; sleep 60""")
    one = Child(silent, TENSORS, random.Random(0))
    start = time.monotonic()
    with pytest.raises(Failed, match="no answer"):
        one.ask({"cmd": "facts"}, limit_s=0.5)
    one.close()
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_interpreter_of_the_project(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    root, active = tmp_path / "project", tmp_path / "active"
    assert interpreter(None, str(root)) is None
    for folder in (root / ".venv", active):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").touch()
    assert interpreter(None, str(root)) == str(root / ".venv" / "bin" / "python")
    monkeypatch.setenv(variable, str(active))
    assert interpreter(None, str(root)) == str(active / "bin" / "python")
    assert interpreter("/usr/bin/python3", str(root)) == "/usr/bin/python3"


# A user's factory


FACTORY = """
import torch
from torch.utils.data import DataLoader, TensorDataset
print("a print of the user's must not be read as an answer")
DATA = TensorDataset(torch.zeros(32, 3))
def loader(): return DataLoader(DATA, batch_size=8, shuffle=True)
def parts(): return {"dataset": DATA, "loader_kwargs": {"batch_size": 4}, "step": lambda batch: None}
def wrong(): return 17
def raises(): raise RuntimeError("no data")
def hangs():
    import time
    time.sleep(600)
"""


@pytest.mark.parametrize(("name", "batches"), [("loader", 4), ("parts", 8)])
def test_a_factory_gives_the_loader(name: str, batches: int, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FACTORY)
    one = Child(sys.executable, {"factory": f"mine:{name}", "folder": str(tmp_path)}, random.Random(0))
    try:
        assert one.ready["evidence"] == "factory"
        assert block(one)["n"] == batches
    finally:
        one.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine:wrong", "must return a DataLoader or a dict with `dataset`, not int"),
        ("mine:raises", "RuntimeError: no data"),
        ("mine:nothing", "AttributeError"),
        ("nothing:loader", "ModuleNotFoundError"),
        ("mine", "`mine` is not module:function"),
    ],
)
def test_a_factory_that_is_none(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FACTORY)
    with pytest.raises(Failed, match=said) as failed:
        _ = Child(sys.executable, {"factory": name, "folder": str(tmp_path)}, random.Random(0)).ready
    assert failed.value.stage == "source"


def test_a_factory_that_hangs_is_waited_for_as_long_as_it_was_said(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FACTORY)
    hosts = factory(sys.executable, "mine:hangs", str(tmp_path), random.Random(0), 0, start_s=1)
    with pytest.raises(Failed, match="Timeout: not ready after 1 s") as failed:
        hosts.hosts(["A"])
    assert failed.value.stage == "start"


def test_what_is_no_python(tmp_path: Path) -> None:
    assert is_python(sys.executable)
    assert not is_python(script(tmp_path, "exit 0"))
    assert not is_python(str(tmp_path / "nothing"))
