"""Whatever a file holds: a finding, or silence, or one line of error; the files beside it are checked all the same."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import endless
import forked
import pytest
import sources

FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")


def check(folder: Path, *words: str) -> dict[str, Any]:
    """The JSON report of a run that must not have failed, and must have checked ``good.py``."""
    (folder / "good.py").write_text(sources.GOOD, encoding="utf-8")
    done = forked.dlcheck("check", "--isolated", "--no-cache", "--output-format", "json", *words, cwd=folder)
    assert done.returncode == 1, (done.returncode, done.stdout[-500:], done.stderr[-1500:])
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["errors"] == []
    assert {"DLC101", "DLC202", "DLC601"} <= {one["code"] for one in report["findings"] if one["path"] == "good.py"}
    return report


def laid(folder: Path, inputs: Iterator[tuple[str, bytes]], suffix: str = ".py") -> dict[str, str]:
    """Write inputs to files; their names by their files."""
    names = {}
    for number, (name, data) in enumerate(inputs):
        file = f"odd{number}{suffix}"
        (folder / file).write_bytes(data)
        names[file] = name
    return names


def refused(report: dict[str, Any], names: dict[str, str]) -> set[str]:
    return {names[one["path"]] for one in report["findings"] if one["code"] == "DLC001"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def test_deep_and_long_ones(folder: Path) -> None:
    names = laid(folder, sources.texts(400))
    told = refused(check(folder, "."), names)
    assert {f"open {kind}" for kind in ("lists", "calls", "dicts")} < told
    assert {"nested lists", "nested calls", "nested subscripts", "deep blocks of if", "open f-strings"} < told
    assert not told & {"decorators", "parameters", "long name", "many lines", "num_workers of many digits"}


def test_odd_ones(folder: Path) -> None:
    names = laid(folder, sources.odd_bytes())
    told = refused(check(folder, "."), names)
    assert {"Python 2", "HTML", "NUL in a string", "not UTF-8", "cut UTF-8"} < told
    assert {"nonsense declared", "rot13 declared", "ascii declared", "latin-1 behind a mark"} < told
    assert not told & {"lone carriage returns ends of lines", "latin-1 declared", "odd escapes", "newer: type", "empty"}


def test_notebooks(folder: Path) -> None:
    names = laid(folder, sources.notebooks(200), ".ipynb")
    told = refused(check(folder, "."), names)
    assert {"cut", "two", "open JSON", "Python"} < told  # "deep JSON" is read by some Pythons
    assert not told & {"format 3", "a mark", "source of magics", "large output"}


def test_values_that_hold_themselves(folder: Path) -> None:
    names = laid(folder, endless.programs(*endless.FEW))
    assert refused(check(folder, "--extend-select", "ALL", "."), names) == set()


@pytest.mark.long
def test_more_values_that_hold_themselves(folder: Path) -> None:
    names = laid(folder, endless.programs(*endless.MORE))
    assert refused(check(folder, "--extend-select", "ALL", "."), names) == set()


def test_large_ones(folder: Path) -> None:
    names = laid(folder, (one for one in sources.large() if one[0] in ("large string", "large line", "large base64")))
    report = check(folder, ".")
    assert refused(report, names) == set()
    assert {one["path"] for one in report["findings"]} == {*names, "good.py"}


def test_fixing_them_changes_no_other_file(folder: Path) -> None:
    """What is fixed is Python as it was; what could not be read, or has no fix, keeps its bytes."""
    names = laid(folder, sources.odd_bytes())
    outside = folder.parent / "outside.py"
    outside.write_text(sources.GOOD, encoding="utf-8")
    (folder / "link.py").symlink_to(outside)
    known = check(folder, ".")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    done = forked.dlcheck(
        "check", "--isolated", "--no-cache", "--fix", "--unsafe-fixes", "--output-format", "json", ".", cwd=folder
    )
    report = json.loads(done.stdout)
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert after.keys() == before.keys()
    fixable = {one["path"] for one in known["findings"] if one["fix"]}
    changed = {name for name in before if before[name] != after[name]}
    assert "good.py" in changed <= fixable
    assert outside.read_text(encoding="utf-8") == sources.GOOD
    told = {names.get(one["path"], one["path"]): one["message"] for one in report["errors"]}
    assert told.pop("link.py").startswith(f"a link out of its project, to {outside}: left as it is")
    assert told == {"unicode_escape declared": "its encoding has several ways to write its text: left as it is"}
    assert done.returncode == 2
    unreadable = {one["path"] for one in known["findings"] if one["code"] == "DLC001"}
    assert {one["path"] for one in report["findings"] if one["code"] == "DLC001"} == unreadable


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX names such files")
@pytest.mark.parametrize("name", sources.FOLDERS)
def test_what_is_no_ordinary_file(name: str, tmp_path: Path) -> None:
    sources.FOLDERS[name](tmp_path)
    check(tmp_path, ".")
    odd = sorted(file.name for file in tmp_path.iterdir() if file.suffix in (".py", ".ipynb"))
    report = check(tmp_path, *odd)
    special = ("link to nothing", "link to itself", "links in a circle", "fifo", "link to a device", "socket", "giant")
    if name in special:
        told = {one["path"] for one in report["findings"] if one["code"] == "DLC001"}
        assert told == {*odd} - {"good.py"}
    if name == "unreadable":
        (tmp_path / "closed").chmod(0o700)  # for whoever tidies up


# What changes while it is read.

CHANGING = """
import os, sys
number = [0]
def hook(event, arguments):
    if event == "open" and str(arguments[0]).endswith("odd.py"):
        number[0] += 1
        if number[0] == {at}:
            {does}
sys.addaudithook(hook)
"""
DOES = {
    "it vanishes": "os.unlink(arguments[0])",
    "it grows": "os.truncate(arguments[0], 1 << 20)",
    "it is emptied": "os.truncate(arguments[0], 0)",
    "it becomes a pipe": "os.unlink(arguments[0]); os.mkfifo(arguments[0])",
    "it becomes a folder": "os.unlink(arguments[0]); os.mkdir(arguments[0])",
    "it becomes a link to itself": "os.unlink(arguments[0]); os.symlink('odd.py', arguments[0])",
    "its folder goes": "os.rename('inner', 'other')",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it needs a fork")
@pytest.mark.parametrize("fix", [(), ("--fix", "--unsafe-fixes")], ids=["check", "fix"])
@pytest.mark.parametrize("at", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", DOES)
def test_what_changes_meanwhile(name: str, at: int, fix: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "odd.py").write_text(sources.GOOD, encoding="utf-8")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "good.py").write_text(sources.GOOD, encoding="utf-8")
    first = CHANGING.format(at=at, does=DOES[name])
    done = forked.dlcheck("check", "--output-format", "json", *fix, ".", cwd=tmp_path, first=first)
    assert done.returncode in ((0, 1, 2) if fix else (1, 2))
    assert "internal error" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    if fix:
        assert "non_blocking=True" in (tmp_path / "good.py").read_text(encoding="utf-8")
    else:
        assert any(one["path"] == "good.py" for one in report["findings"])
    if fix and name == "it grows":  # its text is another's now: it is not written over
        assert (tmp_path / "inner" / "odd.py").stat().st_size == 1 << 20


# The long tier: each alone, larger.


def _alone() -> Iterator[tuple[str, str, bytes]]:
    for size in (1_000, 5_000):
        yield from ((f"{name} of {size}", "odd.py", data) for name, data in sources.texts(size) if len(data) < 8 << 20)
        yield from ((f"{name} of {size}", "odd.ipynb", data) for name, data in sources.notebooks(size))
    yield from ((name, "odd.py", data) for name, data in sources.odd_bytes())
    yield from ((name, "odd.py", data) for name, data in sources.large())


@pytest.mark.long
def test_each_alone(tmp_path: Path) -> None:
    """Each ends by itself within two minutes, which `forked` allows, in one format after the other."""
    number = 0
    for number, (name, file, data) in enumerate(_alone(), 1):
        (tmp_path / file).write_bytes(data)
        form = FORMATS[number % len(FORMATS)]
        done = forked.dlcheck("check", "--isolated", "--output-format", form, file, cwd=tmp_path)
        assert done.returncode in (0, 1), (name, done.returncode, done.stdout[-500:], done.stderr[-1500:])
        assert done.stderr == "", name
        (tmp_path / file).unlink()
    print(f"{number} inputs")
