"""Known findings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dlcheck import baseline
from dlcheck.baseline import BaselineError
from dlcheck.findings import Finding, Place


def finding(path: str, line: int, statement: str, code: str = "DLC203") -> Finding:
    return Finding(code, "rule", "warning", "high", Place(path, line, 1, line, 5), "words", statement=statement)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("a.py", "sub/b.py"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_lines_may_move(project: Path) -> None:
    file = str(project / "known.json")
    entries = baseline.entries([finding("a.py", 3, "x = f()")], file)
    split = baseline.split([finding("a.py", 30, "x  =  f( )")], entries, file, {str(project / "a.py")})
    assert (len(split.new), len(split.known), len(split.stale)) == (0, 1, 0)


def test_a_further_equal_statement_is_new(project: Path) -> None:
    file = str(project / "known.json")
    entries = baseline.entries([finding("a.py", 3, "x = f()")], file)
    split = baseline.split([finding("a.py", 3, "x = f()"), finding("a.py", 9, "x = f()")], entries, file, set())
    assert [one.place.line for one in split.new] == [9]


def test_a_changed_statement_is_new_and_the_old_one_stale(project: Path) -> None:
    file = str(project / "known.json")
    entries = baseline.entries([finding("a.py", 3, "x = f()")], file)
    split = baseline.split([finding("a.py", 3, "x = g()")], entries, file, {str(project / "a.py")})
    assert (len(split.new), len(split.known), split.stale) == (1, 0, entries)


def test_files_that_were_not_checked_are_not_stale(project: Path) -> None:
    file = str(project / "known.json")
    entries = baseline.entries([finding("a.py", 3, "x = f()"), finding("gone.py", 3, "x = f()")], file)
    split = baseline.split([], entries, file, {str(project / "sub" / "b.py")})
    assert [entry.path for entry in split.stale] == ["gone.py"]


def test_the_current_folder_does_not_matter(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(project / "known.json")
    entries = baseline.entries([finding("sub/b.py", 3, "x = f()"), finding("a.py", 1, "y = f()")], file)
    monkeypatch.chdir(project / "sub")
    found = [finding("b.py", 3, "x = f()"), finding("../a.py", 1, "y = f()")]
    assert not baseline.split(found, entries, file, set()).new


def test_unreadable_files_are_never_known(project: Path) -> None:
    file = str(project / "known.json")
    broken = finding("a.py", 1, "", code="DLC001")
    assert baseline.entries([broken], file) == []
    assert baseline.split([broken], [], file, set()).new == [broken]


def test_written_and_read(project: Path) -> None:
    file = str(project / "known.json")
    entries = baseline.entries([finding("sub/b.py", 3, "x = f()"), finding("a.py", 1, "y = f()")], file)
    baseline.write(file, entries)
    first = Path(file).read_bytes()
    assert sorted(baseline.read(file), key=repr) == sorted(entries, key=repr)
    baseline.write(file, reversed(entries))
    assert Path(file).read_bytes() == first
    assert sorted(path.name for path in project.iterdir()) == ["a.py", "known.json", "sub"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("{", "not a baseline"),
        ("[]", "not a baseline of this version"),
        ('{"schema": "dlcheck.baseline/9", "findings": []}', "not a baseline of this version"),
        ('{"schema": "dlcheck.baseline/1", "findings": [{}]}', "an entry lacks"),
        ('{"schema": "dlcheck.baseline/1"}', "an entry lacks"),
        ("[" * 100_000, "not a baseline"),
    ],
)
def test_what_is_no_baseline(text: str | None, words: str, project: Path) -> None:
    file = project / "known.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BaselineError, match=words):
        baseline.read(str(file))


def test_a_folder_that_is_not_there(project: Path) -> None:
    with pytest.raises(BaselineError, match="No such file"):
        baseline.write(str(project / "none" / "known.json"), [])


def test_the_number_among_equals_does_not_depend_on_other_files(project: Path) -> None:
    file = str(project / "known.json")
    one = finding("sub/b.py", 3, "x = f()")
    others = [finding("a.py", 3, "x = f()"), replace(one, code="DLC101")]
    alone = baseline.entries([one], file)
    assert set(alone) <= set(baseline.entries([*others, one], file))
    baseline.write(file, alone)
    assert json.loads(Path(file).read_text())["findings"][0]["path"] == "sub/b.py"
