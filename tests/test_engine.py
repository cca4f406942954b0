"""A run: what reaches the rules, what is silenced, and what happens when something breaks.

The rules here are a stand-in: every line that says BAD is a finding of DLC203.
"""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from dlcheck import engine, pages
from dlcheck.config import Config, ConfigError, load
from dlcheck.engine import Report
from dlcheck.findings import Confidence, Finding, Place
from dlcheck.source import Source

HEAD = "import torch  # DataLoader\n"
PAGES = pages.load()


class FakeProject:
    """Knows the named files, and one that it reads by itself."""

    def __init__(self, workspace: Any, named: Any, targets: Any, *_options: Any) -> None:
        self.workspace = workspace
        self.named = list(named)
        self.targets = targets
        for source, _facts in self.named:
            if "BREAK THE MODEL" in source.text:
                raise RecursionError("too deep")


def fake_run(project: FakeProject, codes: Collection[str], failed: Any = None, describe: Any = None) -> list[Finding]:
    sources: dict[str, Source] = {source.file: source for source, _facts in project.named}
    for file in project.workspace.mentions([b"READ TOO"]):
        sources[file] = project.workspace.source(file)
    return [
        finding(source, number, line)
        for source in sources.values()
        for number, line in enumerate(source.text.splitlines(), 1)
        if "BAD" in line
    ]


def finding(source: Source, number: int, line: str) -> Finding:
    start = source.offset(number, line.index("BAD") + 1)
    place = source.place(start, start + 3)
    confidence: Confidence = "low" if "LOW" in line else "high"
    code = "DLC101" if "DLC101" in line else "DLC203"
    return Finding(
        code, PAGES[code].name, "error", confidence, place, "bad", statement=line, statement_lines=(place.line,) * 2
    )


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = types.ModuleType("dlcheck.checks")
    checks.run = fake_run  # type: ignore[attr-defined]
    model = types.ModuleType("dlcheck.model")
    model.Project = FakeProject  # type: ignore[attr-defined]
    # Submodules, such as the targets, stay where they are.
    model.__path__ = [os.path.join(os.path.dirname(engine.__file__), "model")]
    monkeypatch.setitem(sys.modules, "dlcheck.checks", checks)
    monkeypatch.setitem(sys.modules, "dlcheck.model", model)


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()

    def write(**texts: str) -> None:
        for name, text in texts.items():
            file = tmp_path / (name.replace("__", "/") + ".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    return write


def check(*paths: str, stdin: tuple[str, bytes] | None = None, **overrides: Any) -> Report:
    settings = {name.replace("_", "-"): value for name, value in overrides.items()}
    return engine.check(paths or ["."], load(".", settings), stdin=stdin)


def told(report: Report) -> list[str]:
    return [f"{one.place.path}:{one.place.line} {one.code} {one.severity}" for one in report.findings]


def test_findings_of_named_files_only(plant: Callable[..., None]) -> None:
    plant(a=HEAD + "BAD\n", b=HEAD + "BAD  # READ TOO\n", c="BAD\n")
    assert told(check()) == ["a.py:2 DLC203 error", "b.py:2 DLC203 error"]
    report = check("a.py")
    assert told(report) == ["a.py:2 DLC203 error"]
    assert report.files == 1
    assert list(report.sources) == ["a.py"]
    assert report.findings[0].fingerprint


def test_files_without_triggers_are_reported_on_where_the_model_reads_them(plant: Callable[..., None]) -> None:
    plant(a=HEAD, b="BAD  # READ TOO\n")
    assert told(check()) == ["b.py:1 DLC203 error"]


def test_files_without_triggers_are_not_parsed(plant: Callable[..., None]) -> None:
    plant(a="def f(:\n    BAD\n")
    assert told(check()) == []
    assert check().files == 1


def test_unreadable_files_are_findings_and_the_rest_goes_on(plant: Callable[..., None], tmp_path: Path) -> None:
    plant(a=HEAD + "BAD\n", b=HEAD + "\ndef f(:\n", c="import torch\nprint 'x'\n")
    (tmp_path / "d.py").write_bytes("import torch".encode("utf-16"))
    os.mkfifo(tmp_path / "e.py")
    report = check(".", "d.py", "e.py", "gone.py")
    assert told(report) == [
        "a.py:2 DLC203 error",
        "b.py:3 DLC001 error",
        "c.py:2 DLC001 error",
        "d.py:1 DLC001 error",
        "e.py:1 DLC001 error",
    ]
    assert [(error.path, error.message) for error in report.errors] == [("gone.py", "no such file or folder")]
    assert "named pipe" in report.findings[4].message


@pytest.mark.parametrize("text", ["\n" * 3 + "x = (", "if True:\n", "x = '''\n\n", "\tx\n  y\n", "é = (\r\n\r\n"])
def test_places_of_syntax_errors_exist(text: str, plant: Callable[..., None]) -> None:
    plant(a=HEAD + text)
    (one,) = check().findings
    assert one.code == "DLC001"
    source = Source("a.py", "", HEAD + text)
    start, _ = source.span(one.place)
    assert 0 <= start <= len(source.text)


def test_unreadable_is_on_whatever_is_selected(plant: Callable[..., None]) -> None:
    plant(a=HEAD + "def f(:\n")
    assert told(check(select=["DLC101"])) == ["a.py:2 DLC001 error"]
    assert told(check(ignore=["DLC001"])) == []


def test_selection_and_confidence(plant: Callable[..., None]) -> None:
    plant(a=HEAD + "BAD\nBAD_DLC101\nBAD_LOW\n")
    assert told(check()) == ["a.py:2 DLC203 error", "a.py:3 DLC101 error"]
    assert told(check(select=["DLC1"])) == ["a.py:3 DLC101 error"]
    assert told(check(ignore=["DLC1"], min_confidence="low")) == ["a.py:2 DLC203 error", "a.py:4 DLC203 error"]


def test_per_file_ignores(plant: Callable[..., None], tmp_path: Path) -> None:
    plant(a=HEAD + "BAD\n", scripts__b=HEAD + "BAD\n")
    (tmp_path / "dlcheck.toml").write_text('[per-file-ignores]\n"scripts/*" = ["DLC203"]\n')
    assert told(check()) == ["a.py:2 DLC203 error"]


def test_each_folder_has_its_configuration(plant: Callable[..., None], tmp_path: Path) -> None:
    plant(a=HEAD + "BAD\n", sub__b=HEAD + "BAD\n")
    (tmp_path / "sub" / "dlcheck.toml").write_text('ignore = ["DLC203"]\n')
    assert told(check()) == ["a.py:2 DLC203 error"]
    assert told(engine.check(["."], Config())) == ["a.py:2 DLC203 error", "sub/b.py:2 DLC203 error"]


def test_wrong_configuration_of_folders_that_are_only_searched(plant: Callable[..., None], tmp_path: Path) -> None:
    plant(a__a=HEAD + "BAD\n", b__b=HEAD + "BAD\n")
    (tmp_path / "b" / "dlcheck.toml").write_text("nonsense = 1\n")
    assert told(check("a")) == ["a/a.py:2 DLC203 error"]
    with pytest.raises(ConfigError, match="unknown key `nonsense`"):
        check(".")


@pytest.mark.parametrize("name", ["tests__a", "x__test__a", "test_a", "a_test", "conftest"])
def test_findings_in_tests_are_infos(name: str, plant: Callable[..., None]) -> None:
    plant(**{name: HEAD + "BAD\n"})
    assert [one.severity for one in check().findings] == ["info"]


def test_folders_above_the_project_make_no_tests(
    plant: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tests__project__a=HEAD + "BAD\n", tests__project__setup="")
    monkeypatch.chdir(tmp_path / "tests" / "project")
    assert told(check()) == ["a.py:2 DLC203 error"]


def test_suppression(plant: Callable[..., None]) -> None:
    plant(
        a=HEAD + "BAD  # dlcheck: ignore[DLC203]\nBAD\n",
        b="x = 1  # dlcheck: ignore[DLC203]\n",
        c=HEAD + "BAD_LOW  # dlcheck: ignore[DLC203]\n",
    )
    assert told(check()) == ["a.py:3 DLC203 error", "b.py:1 DLC002 info"]
    assert told(check(ignore=["DLC002"])) == ["a.py:3 DLC203 error"]
    assert told(check(select=["DLC002"])) == []


def test_suppression_of_unreadable_files(plant: Callable[..., None]) -> None:
    plant(a="# dlcheck: file-ignore[DLC001] a template\n" + HEAD + "def f(:\n")
    assert told(check()) == []


def test_an_internal_error_in_one_file_leaves_the_others(
    plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(a=HEAD + "BAD\n", b=HEAD + "# BREAK THE MODEL  # dlcheck: ignore[DLC203]\n")
    report = check()
    assert told(report) == ["a.py:2 DLC203 error"]
    (error,) = report.errors
    assert error.path == "b.py"
    assert error.message.startswith("internal error: RecursionError: too deep at test_engine.py:")
    assert "\n" not in error.message
    monkeypatch.setenv("DLCHECK_DEBUG", "1")
    assert "Traceback" in check().errors[0].message


def test_an_internal_error_in_the_facts_leaves_the_others(
    plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dlcheck import facts

    def broken(source: Source) -> Any:
        if source.path == "b.py":
            raise KeyError("x")
        return None or object()

    monkeypatch.setattr(facts, "sketch", broken)
    plant(a=HEAD + "BAD\n", b=HEAD + "BAD\n")
    report = check()
    assert told(report) == ["a.py:2 DLC203 error"]
    assert [error.path for error in report.errors] == ["b.py"]


def test_an_error_of_the_whole_that_no_file_explains(
    plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(project: FakeProject, codes: Collection[str], failed: Any = None, describe: Any = None) -> list[Finding]:
        if len(project.named) > 1:
            raise ValueError("together")
        return fake_run(project, codes)

    monkeypatch.setattr(sys.modules["dlcheck.checks"], "run", run)
    plant(a=HEAD + "BAD\n", b=HEAD + "BAD\n")
    report = check()
    assert len(report.findings) == 2
    assert "together" in report.errors[0].message


def test_standard_input(plant: Callable[..., None]) -> None:
    plant(a=HEAD + "BAD\n", b=HEAD + "BAD\n")
    report = check("-", stdin=("a.py", (HEAD + "\nBAD\n").encode()))
    assert told(report) == ["a.py:3 DLC203 error"]
    assert report.sources["a.py"].text == HEAD + "\nBAD\n"
    assert told(check("-", stdin=("-", (HEAD + "BAD\n").encode()))) == ["-:2 DLC203 error"]
    assert told(check("-", "b.py", stdin=("new.py", (HEAD + "BAD\n").encode()))) == [
        "b.py:2 DLC203 error",
        "new.py:2 DLC203 error",
    ]


def test_excluded_files(plant: Callable[..., None]) -> None:
    plant(a=HEAD + "BAD\n", venv__b=HEAD + "BAD\n")
    assert told(check()) == ["a.py:2 DLC203 error"]
    assert told(check("venv/b.py")) == ["venv/b.py:2 DLC203 error"]
    assert told(check("venv/b.py", force_exclude=True)) == []
    assert told(check("-", stdin=("venv/b.py", b"torch loader\nBAD"), force_exclude=True)) == []


def test_notebooks(plant: Callable[..., None], tmp_path: Path) -> None:
    plant()
    cells = [HEAD + "x = 1", "%pip install x\n\nBAD", "BAD  # dlcheck: ignore[DLC203]"]
    document = {"cells": [{"cell_type": "code", "source": cell} for cell in cells]}
    (tmp_path / "nb.ipynb").write_text(json.dumps(document))
    (one,) = check().findings
    assert (one.place.cell, one.place.line, one.place.column) == (2, 3, 1)
    (tmp_path / "nb.ipynb").write_text(json.dumps(document)[:-9] + " torch")
    assert told(check()) == ["nb.ipynb:1 DLC001 error"]


def test_projects_are_apart(plant: Callable[..., None]) -> None:
    plant(a=HEAD + "BAD\n", inner__setup="", inner__b=HEAD + "# BREAK THE MODEL\n")
    report = check()
    assert told(report) == ["a.py:2 DLC203 error"]
    assert [error.path for error in report.errors] == ["inner/b.py"]


@pytest.mark.parametrize(
    ("fail_on", "severity", "expected"),
    [
        ("warning", "info", False),
        ("warning", "warning", True),
        ("warning", "error", True),
        ("error", "warning", False),
        ("info", "info", True),
        ("never", "error", False),
    ],
)
def test_fail_on(fail_on: str, severity: Any, expected: bool) -> None:
    one = Finding("DLC203", "rule", severity, "high", Place("a.py", 1, 1, 1, 1), "")
    assert engine.exceeds([one], Config(overrides={"fail-on": fail_on})) is expected
