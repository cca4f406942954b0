"""Notebooks with a cell that does not parse: it is left out, and the others are checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dlcheck.config import Config
from dlcheck.engine import Report, check
from dlcheck.findings import Edit
from dlcheck.fixing import fix
from dlcheck.pages import load
from dlcheck.report import render

IMPORTS = "import torch\nfrom torch.utils.data import DataLoader"
LOOP = """\
%%time
loader = DataLoader(dataset, num_workers=4, pin_memory=True)
!nvidia-smi
for x in loader:
    x = x.cuda()
    model(x).sum().backward()"""
BAD = "DataLoader(dataset, num_workers=workers, prefetch_factor=4)"


def write(place: Path, monkeypatch: pytest.MonkeyPatch, *cells: str) -> None:
    rows = [{"cell_type": "code", "source": cell, "outputs": []} for cell in cells]
    (place / "nb.ipynb").write_text(json.dumps({"cells": rows, "metadata": {}, "nbformat": 4}), encoding="utf-8")
    (place / "pyproject.toml").touch()
    monkeypatch.chdir(place)


def checked(place: Path, monkeypatch: pytest.MonkeyPatch, *cells: str) -> Report:
    write(place, monkeypatch, *cells)
    report = check(["nb.ipynb"], Config(isolated=True))
    assert not report.errors
    return report


def told(report: Report) -> list[tuple[int | None, int, int, str]]:
    return [(one.place.cell, one.place.line, one.place.column, one.code) for one in report.findings]


@pytest.mark.parametrize(
    "cell", ["x?", "x??", "?x", "x.y?", "import os; os?", "for x in y:\n    x?", "%time?", "x = !ls\nx", "/f 1"]
)
def test_what_ipython_takes_is_no_fault(cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(checked(tmp_path, monkeypatch, IMPORTS, cell, LOOP)) == [(3, 5, 9, "DLC101")]


@pytest.mark.parametrize(
    ("cell", "line", "column"),
    [("dataset = Images(", 1, 17), ("x = 1\nx = )", 2, 5), ("f(1)?", 1, 5), ("!ls\nfor x in", 2, 9)],
)
def test_the_cells_around_a_broken_one_are_checked(
    cell: str, line: int, column: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = checked(tmp_path, monkeypatch, IMPORTS, cell, LOOP)
    assert told(report) == [(2, line, column, "DLC001"), (3, 5, 9, "DLC101")]
    # Silence about a file of which a part was not read says nothing of what a baseline holds.
    assert not report.checked
    assert [Path(file).name for file in report.partly] == ["nb.ipynb"]


def test_a_broken_cell_has_no_findings_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = checked(tmp_path, monkeypatch, IMPORTS, f"{LOOP.partition(chr(10))[2]}\nx = (")
    assert [code for *_, code in told(report)] == ["DLC001"]


@pytest.mark.parametrize("cell", ["workers = 4 +", "for workers in", "x, workers = f(", "from x import (workers"])
def test_a_name_that_a_broken_cell_binds_is_unknown(cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = f"{IMPORTS}\nworkers = 0"
    assert [code for *_, code in told(checked(tmp_path, monkeypatch, first, "other = 4 +", BAD))] == [
        "DLC001",
        "DLC203",
    ]
    assert [code for *_, code in told(checked(tmp_path, monkeypatch, first, cell, BAD))] == ["DLC001"]


def test_a_name_that_a_command_binds_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = f"{IMPORTS}\nworkers = 0"
    assert [code for *_, code in told(checked(tmp_path, monkeypatch, first, "other = !nproc", BAD))] == ["DLC203"]
    assert told(checked(tmp_path, monkeypatch, first, "workers = !nproc", BAD)) == []


def test_the_loader_of_a_broken_cell_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, _, loop = LOOP.partition("\n!nvidia-smi\n")
    again = "loader = other(\n"
    assert [code for *_, code in told(checked(tmp_path, monkeypatch, IMPORTS, head, again, loop))] == ["DLC001"]


def test_imports_of_a_broken_cell_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = checked(tmp_path, monkeypatch, f"{IMPORTS}\ndataset = Images(", LOOP)
    assert [code for *_, code in told(report)] == ["DLC001", "DLC101"]


def test_no_fix_is_safe_where_a_cell_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, IMPORTS, "x = (", LOOP)
    before = (tmp_path / "nb.ipynb").read_bytes()

    def fixed(unsafe: bool) -> bytes:
        done = fix(lambda after: check(["nb.ipynb"], Config(isolated=True), overlays=after), unsafe=unsafe)
        assert not done.errors
        return done.changes[0].after if done.changes else before

    assert fixed(unsafe=False) == before
    assert fixed(unsafe=True) == before.replace(b"x.cuda()", b"x.cuda(non_blocking=True)")


def test_a_broken_cell_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = "options = {'num_workers': 4, 'pin_memory': False}"
    loop = "for x in DataLoader(dataset, **options):\n    model(x.cuda(non_blocking=True)).backward()"
    (found,) = checked(tmp_path, monkeypatch, f"{IMPORTS}\n{options}", loop).findings
    assert found.fix is not None
    _, found = checked(tmp_path, monkeypatch, f"{IMPORTS}\n{options}\nx = (", loop).findings
    assert (found.code, found.fix, found.unfixed) == ("DLC102", None, "a cell does not parse that would have to change")


def test_a_report_shows_cells_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LOOP.replace("!nvidia-smi\n", "").replace("    x = ", "    !nvidia-smi\n    x = ")
    report = checked(tmp_path, monkeypatch, IMPORTS, loop)
    assert "\n4 |     !nvidia-smi\n5 |     x = x.cuda()\n" in render(report, "full", pages=load(), color=False)


def test_a_diff_shows_cells_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, IMPORTS, LOOP)
    done = fix(lambda after: check(["nb.ipynb"], Config(isolated=True), overlays=after), unsafe=True)
    assert done.changes[0].diff().splitlines() == [
        "--- a/nb.ipynb:cell 2",
        "+++ b/nb.ipynb:cell 2",
        "@@ -2,5 +2,5 @@",
        " loader = DataLoader(dataset, num_workers=4, pin_memory=True)",
        " !nvidia-smi",
        " for x in loader:",
        "-    x = x.cuda()",
        "+    x = x.cuda(non_blocking=True)",
        "     model(x).sum().backward()",
    ]


def test_a_fix_that_would_change_a_magic_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, IMPORTS, LOOP)

    def check_it(after: Mapping[str, bytes]) -> Report:
        report = check(["nb.ipynb"], Config(isolated=True), overlays=after)
        (finding,) = report.findings
        assert finding.fix is not None
        at = replace(finding.place, line=3, column=1, end_line=4, end_column=1)  # the whole line of `!nvidia-smi`
        report.findings = [replace(finding, fix=replace(finding.fix, edits=(*finding.fix.edits, Edit(at, ""))))]
        return report

    done = fix(check_it, unsafe=True)
    assert (done.changes, done.errors) == ([], [])
    (kept,) = done.report.findings
    assert (kept.fix, kept.unfixed) == (None, "that would change line 3 of cell 2, which is no Python")
