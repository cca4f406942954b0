"""A second run finds what the first one did, and never what no longer holds."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcheck import cache, engine
from dlcheck.cache import FOLDER
from dlcheck.config import load
from dlcheck.files.workspace import Workspace

FAULTY = """from torch.utils.data import DataLoader

from settings import WORKERS


def load(data):
    return DataLoader(data, num_workers=WORKERS, persistent_workers=True)
"""
SILENCED = "from torch.utils.data import DataLoader\n\nloader = DataLoader([1], prefetch_factor=2)  # dlcheck: ignore\n"
CELLS = ("from torch.utils.data import DataLoader\n", "x = (\n", "DataLoader([1], timeout=2)\n")
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": [cell]}
        for cell in CELLS
    ],
    "metadata": {"kernelspec": {"name": "python3", "language": "python", "display_name": ""}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'sample'\nversion = '1'\n")
    (tmp_path / "settings.py").write_text("WORKERS = 0\n")
    (tmp_path / "train.py").write_text(FAULTY)
    (tmp_path / "silenced.py").write_text(SILENCED)
    (tmp_path / "broken.py").write_text("import torch.utils.data\nx = (\n")
    (tmp_path / "notes.ipynb").write_text(json.dumps(NOTEBOOK))
    monkeypatch.chdir(tmp_path)
    settle(tmp_path)
    return tmp_path


def settle(folder: Path) -> None:
    """Give all files times that are long past, as if nobody had touched them for a day."""
    past = time.time() - 86_400
    for file in folder.rglob("*"):
        if FOLDER not in file.parts:
            os.utime(file, (past, past))


def check(*, cached: bool) -> engine.Report:
    return engine.check(["."], load(os.getcwd(), {}), cached=cached)


def said(report: engine.Report) -> tuple[Any, ...]:
    sources = {path: source.text for path, source in report.sources.items()}
    return report.findings, report.errors, report.files, sources, report.checked, report.partly


def entries(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob("*.json"))


@pytest.fixture(params=[True, False])
def times_count(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the times of files are believed, however young these are."""
    if request.param:
        monkeypatch.setattr(cache, "_RACY_NS", -(10**19))
    return bool(request.param)


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on nothing may be analysed, and the times of files are believed."""

    def forbid() -> None:
        def judge(*_: Any) -> Any:
            raise AssertionError("it was analysed again")

        monkeypatch.setattr(engine._Run, "_judge", judge)

    return forbid


def test_a_second_run_says_the_same_and_analyses_nothing(project: Path, untouched: Callable[[], None]) -> None:
    truth = said(check(cached=False))
    assert not (project / FOLDER).exists()
    assert said(check(cached=True)) == truth
    assert {finding.code for finding in truth[0]} >= {"DLC203", "DLC001"}
    assert truth[5]  # a notebook with a broken cell
    untouched()
    assert said(check(cached=True)) == truth


def test_times_alone_do_not_matter(project: Path, untouched: Callable[[], None]) -> None:
    truth = said(check(cached=True))
    untouched()
    for file in project.glob("*.py"):
        file.write_bytes(file.read_bytes())
    assert said(check(cached=True)) == truth


@pytest.mark.usefixtures("times_count")
def test_an_edit_that_keeps_size_and_time(project: Path) -> None:
    check(cached=True)
    time.sleep(0.02)
    stat = (project / "settings.py").stat()
    (project / "settings.py").write_text("WORKERS = 4\n")
    os.utime(project / "settings.py", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert said(check(cached=True)) == said(check(cached=False))
    assert "train.py" not in {finding.place.path for finding in check(cached=True).findings}


def test_files_whose_times_are_old_are_not_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = said(check(cached=True))
    monkeypatch.setattr(cache, "_RACY_NS", -(10**19))
    read: list[str] = []
    bytes_of = Workspace.bytes_of

    def told(workspace: Workspace, file: str) -> bytes:
        read.append(os.path.basename(file))
        return bytes_of(workspace, file)

    monkeypatch.setattr(Workspace, "bytes_of", told)
    assert said(check(cached=True)) == truth
    assert "settings.py" not in read  # those are that findings name, and that comments silence


def test_a_fresh_checkout_with_the_same_files(project: Path, untouched: Callable[[], None]) -> None:
    truth = said(check(cached=True))
    untouched()
    for file in [found for found in project.iterdir() if found.is_file()]:
        data = file.read_bytes()
        file.unlink()
        file.write_bytes(data)
    assert said(check(cached=True)) == truth


def test_another_program_reads_nothing_of_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(cached=True)
    monkeypatch.setattr(cache, "_program", lambda: ("9.9",))
    check(cached=True)
    assert len(entries(project)) == 2


def steps(folder: Path, chance: random.Random) -> Iterator[str]:
    """Changes of a project, one after the other."""
    names = ["settings.py", "train.py", "extra.py", "pkg/__init__.py", "pkg/settings.py", "silenced.py"]
    user = "import train\nfor x in train.load([1]): pass\n"
    plain, loud = FAULTY.replace("persistent_workers=True", "drop_last=True"), SILENCED.replace("# dlcheck: ignore", "")
    moved = "from pkg.settings import WORKERS\n"
    texts = [FAULTY, plain, SILENCED, loud, user, moved, "WORKERS = 0\n", "WORKERS = 4\n", "", "x = (\n"]
    while True:
        kind = chance.choice(["write", "write", "write", "touch", "delete", "rename", "config", "ignore", "nothing"])
        file = folder / chance.choice(names)
        file.parent.mkdir(exist_ok=True)
        if kind == "write":
            file.write_text(chance.choice(texts))
        elif kind == "touch" and file.exists():
            os.utime(file)
        elif kind == "delete":
            file.unlink(missing_ok=True)
        elif kind == "rename" and file.exists():
            file.rename(folder / chance.choice(names[:3]))
        elif kind == "config":
            (folder / "pyproject.toml").write_text(chance.choice(["", "[tool.dlcheck]\nignore = ['DLC203']\n"]))
        elif kind == "ignore":
            (folder / ".gitignore").write_text(chance.choice(["", "extra.py\n", "pkg\n"]))
        if chance.random() < 0.5:
            settle(folder)
        yield kind


@pytest.mark.usefixtures("times_count")
@pytest.mark.parametrize("seed", range(2))
def test_it_is_never_out_of_date(project: Path, seed: int) -> None:
    chance = random.Random(seed)
    changes = steps(project, chance)
    for _ in range(40):
        time.sleep(0.02)  # the times of files have steps
        done = [next(changes) for _ in range(chance.choice([1, 1, 2]))]
        assert said(check(cached=True)) == said(check(cached=False)), done


DAMAGED = ["", "{}", "[]", "null", "{" * 100_000, '{"form": 1}', '{"form": 1, "listed": 3}', "\0", "Ω", '{"form": "x"}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_entry_is_no_entry(project: Path, text: str) -> None:
    truth = said(check(cached=True))
    (entry,) = entries(project)
    entry.write_text(text, encoding="utf-8")
    assert said(check(cached=True)) == truth
    assert entries(project) == [entry]


def test_parts_of_an_entry_may_be_anything(project: Path) -> None:
    truth = said(check(cached=True))
    (entry,) = entries(project)
    whole = json.loads(entry.read_text())
    for part in whole:
        for other in (None, [], {}, 7, "x", [["x"]], {"x": [1]}):
            entry.write_text(json.dumps({**whole, part: other}))
            found = check(cached=True)
            assert not found.errors
            if part not in ("findings", "members", "sources", "files", "names"):  # what it says is believed
                assert said(found) == truth


def test_folders_of_others_are_left_alone(project: Path) -> None:
    (project / FOLDER).mkdir()
    (project / FOLDER / "mine.txt").write_text("mine")
    check(cached=True)
    assert [file.name for file in (project / FOLDER).iterdir()] == ["mine.txt"]


def test_a_folder_without_a_tag_is_taken_when_it_is_empty(project: Path) -> None:
    (project / FOLDER).mkdir()  # of a run that was killed at once
    check(cached=True)
    assert len(entries(project)) == 1


def test_a_link_leads_to_what_is_not_ours(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "CACHEDIR.TAG").write_bytes(cache.TAG + b"\n")
    (project / FOLDER).symlink_to(other, target_is_directory=True)
    check(cached=True)
    assert [file.name for file in other.iterdir()] == ["CACHEDIR.TAG"]


@pytest.mark.skipif(sys.platform == "win32", reason="FIFOs of POSIX")
@pytest.mark.parametrize("which", ["tag", "entry"])
def test_nobody_waits_for_a_fifo(project: Path, which: str) -> None:
    truth = said(check(cached=True))
    file = project / FOLDER / "CACHEDIR.TAG" if which == "tag" else entries(project)[0]
    file.unlink()
    os.mkfifo(file)
    assert said(check(cached=True)) == truth


def test_forged_entries_of_the_right_shape(project: Path) -> None:
    truth = said(check(cached=True))
    (entry,) = entries(project)
    whole = json.loads(entry.read_text())

    def forged(change: Callable[[dict[str, Any]], Any]) -> None:
        other = json.loads(json.dumps(whole))
        change(other)
        entry.write_text(json.dumps(other))
        assert said(check(cached=True)) == truth

    forged(lambda other: other["findings"][0].update(severity=""))
    forged(lambda other: other["findings"][0].update(place={"Place": ["\ud800", 1, 1, 1, 1, None, ""]}))
    forged(lambda other: other["members"][0].__setitem__(1, ""))
    forged(lambda other: other["members"].pop())


def test_what_cannot_be_read_is_tried_again(project: Path) -> None:
    (project / "late.py").symlink_to("nowhere.py")
    assert said(check(cached=True)) == said(check(cached=False))
    (project / "nowhere.py").write_text(SILENCED.replace("# dlcheck: ignore", ""))
    assert said(check(cached=True)) == said(check(cached=False))


def test_several_projects_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding of one project in a file of another, which is asked for in some runs only."""
    monkeypatch.chdir(tmp_path)
    for name in ("a_lib", "b_main"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "setup.py").write_text("")
    (tmp_path / "a_lib" / "step.py").write_text("import torch\ndef run(batch):\n    return batch.cuda()\n")
    (tmp_path / "b_main" / "train.py").write_text(
        "import sys\nsys.path.append('../a_lib')\nfrom step import run\nfrom torch.utils.data import DataLoader\n"
        "loader = DataLoader([1], num_workers=4, pin_memory=True)\nfor batch in loader:\n    run(batch)\n"
    )

    def codes(paths: list[str], *, cached: bool) -> list[str]:
        return [finding.code for finding in engine.check(paths, load(os.getcwd(), {}), cached=cached).findings]

    for paths in (["b_main"], ["a_lib", "b_main"], ["a_lib"]) * 2:
        assert codes(paths, cached=True) == codes(paths, cached=False)
    assert "DLC101" in codes(["a_lib", "b_main"], cached=True)


def test_a_comment_in_a_file_that_does_not_name_torch(project: Path) -> None:
    (project / "settings.py").write_text("OPTIONS = dict(num_workers=0, persistent_workers=True)  # noqa: DLC203\n")
    plain = "from torch.utils.data import DataLoader\nfrom settings import OPTIONS\nDataLoader([1], **OPTIONS)\n"
    (project / "train.py").write_text(plain)
    first, second = said(check(cached=True)), said(check(cached=True))
    assert first == second == said(check(cached=False))
    assert "DLC203" not in {finding.code for finding in first[0] if finding.place.path in ("train.py", "settings.py")}


def test_a_faulty_configuration_that_concerns_no_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "pyproject.toml").write_text("[tool.dlcheck]\nselect = 5\n")
    (project / "sub").mkdir()
    (project / "sub" / "dlcheck.toml").write_text("")
    (project / "sub" / "a.py").write_text("x = 1\n")
    monkeypatch.chdir(project / "sub")
    for cached in (False, True):
        assert not engine.check(["a.py"], load(os.getcwd(), {}), cached=cached).findings


def test_it_is_bounded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_ENTRIES", 3)
    for number in range(5):
        monkeypatch.setattr(cache, "_program", lambda number=number: (number,))
        check(cached=True)
        assert len(entries(project)) == min(number + 1, 3)
    monkeypatch.setattr(cache, "MOST_BYTES", 1)
    monkeypatch.setattr(cache, "_program", lambda: ("last",))
    check(cached=True)
    assert len(entries(project)) == 1


def test_no_cache_and_clean(project: Path) -> None:
    command = [sys.executable, "-m", "dlcheck", "check", "--output-format", "concise"]
    first = subprocess.run([*command, "--no-cache"], capture_output=True, text=True, check=False)
    assert not (project / FOLDER).exists()
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    third = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (first.stdout, first.returncode) == (second.stdout, second.returncode) == (third.stdout, third.returncode)
    assert (project / FOLDER / "CACHEDIR.TAG").exists()
    assert (project / FOLDER / ".gitignore").read_text() == "*\n"
    subprocess.run([sys.executable, "-m", "dlcheck", "clean"], check=True, capture_output=True)
    assert not (project / FOLDER).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_runs_at_once_and_runs_that_are_killed(project: Path) -> None:
    command = [sys.executable, "-m", "dlcheck", "check", "--output-format", "concise"]
    truth = subprocess.run([*command, "--no-cache"], capture_output=True, text=True, check=False).stdout
    chance = random.Random(1)
    for _ in range(3):
        (project / "settings.py").write_text("WORKERS = 0\n")
        runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        time.sleep(chance.random())
        runs[0].send_signal(signal.SIGKILL)
        outputs = [run.communicate() for run in runs]
        assert [output for output, _ in outputs[1:]] == [truth, truth]
        assert not any(errors for _, errors in outputs[1:])
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == truth
    for entry in entries(project):
        json.loads(entry.read_text())
