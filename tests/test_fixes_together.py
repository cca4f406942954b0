"""Fixes of several rules in one run: none rests on an option that another has changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from dlcheck.config import Config
from dlcheck.engine import Report, check
from dlcheck.findings import Edit, Finding, Fix
from dlcheck.fixing import Fixed, fix
from dlcheck.source import Source

EVALUATION = """\
import torch
from torch.utils.data import DataLoader

OPTIONS = {DROPS}


def evaluate(model, val, size=32):
    loader = LOADER
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()
    return correct / LENGTH
"""
IN_THE_CALL = "DataLoader(val, batch_size=size, drop_last=True)"
IN_A_DICT = "DataLoader(val, batch_size=size, **OPTIONS)"


def program(loader: str, length: str = "len(loader.dataset)") -> str:
    drops = '"drop_last": True' if loader is IN_A_DICT else ""
    return EVALUATION.replace("DROPS", drops).replace("LOADER", loader).replace("LENGTH", length)


def fixed(place: Path, monkeypatch: pytest.MonkeyPatch, text: str, *codes: str) -> tuple[str, Fixed]:
    """A program after the fixes of some rules, of all by default, and what became of the run."""
    (place / "train.py").write_text(text, encoding="utf-8")
    (place / "pyproject.toml").touch()
    monkeypatch.chdir(place)
    config = Config(isolated=True, overrides={"select": list(codes)} if codes else {})
    done = fix(lambda after: check(["."], config, overlays=after), unsafe=True)
    assert not done.errors
    return (done.changes[0].after.decode() if done.changes else text), done


@pytest.mark.parametrize(("loader", "set_to"), [(IN_THE_CALL, "drop_last={}"), (IN_A_DICT, '"drop_last": {}')])
def test_a_sum_is_not_divided_by_full_batches_of_a_loader_that_keeps_the_last(
    loader: str, set_to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = program(loader)
    after, done = fixed(tmp_path, monkeypatch, text)
    assert after == text.replace(set_to.format(True), set_to.format(False))
    assert done.applied == {"DLC415": 1}
    assert not done.report.findings


@pytest.mark.parametrize("length", ["(len(loader) * size)", "(loader.batch_size * len(loader))", "number"])
def test_what_counts_full_batches_keeps_them_full(length: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = program(IN_THE_CALL, length).replace("    model.eval", "    number = len(loader) * size\n    model.eval")
    text = text if length == "number" else text.replace("    number = len(loader) * size\n", "")
    after, done = fixed(tmp_path, monkeypatch, text)
    assert after == text
    (left,) = done.report.findings
    assert left.code == "DLC415"
    assert left.unfixed.endswith("counts full batches, which the last one need not be")


def test_one_of_the_two_rules_after_the_other_leaves_a_right_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, _ = fixed(tmp_path, monkeypatch, program(IN_THE_CALL), "DLC413")
    assert counted == program(IN_THE_CALL, "(len(loader) * loader.batch_size)")
    assert fixed(tmp_path, monkeypatch, counted)[0] == counted


def test_workers_are_not_kept_where_a_constant_takes_them_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = dedent(
        """\
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        OPTIONS = {
            "num_workers": 4,
        }


        def train(model, number):
            data = TensorDataset(torch.zeros(number, 3))
            loader = DataLoader(data, batch_size=8, shuffle=True, **OPTIONS)
            for epoch in range(9):
                for (x,) in loader:
                    model(x).sum().backward()
        """
    )
    after, _ = fixed(tmp_path, monkeypatch, text, "DLC202", "DLC204")
    assert after == text.replace('": 4', '": 0')


def test_files_come_in_the_order_of_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = "    for x in loader:\n        model(x.cuda()).backward()\n"
    pinned = (
        "from torch.utils.data import DataLoader\n\n\ndef train(model, data):\n    loader = DataLoader(data, OPTIONS)\n"
    )
    (tmp_path / "a.py").write_text(pinned.replace("OPTIONS", "num_workers=4, pin_memory=True") + loop)
    (tmp_path / "b.py").write_text(pinned.replace("OPTIONS", "num_workers=4") + loop)
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    done = fix(lambda after: check(["."], Config(isolated=True), overlays=after), unsafe=True)
    # The second file changes first: its options.
    assert done.fixes[0].code == "DLC103"
    assert [change.path for change in done.changes] == ["a.py", "b.py"]


def test_what_changes_options_goes_first_and_by_itself() -> None:
    source = Source("a.py", "/a.py", "import torch\none(1)\ntwo(2)\nsix(6)\n")

    def finding(code: str, text: str, alters: bool) -> Finding:
        start = source.text.index(text)
        place = source.place(start, start + 1)
        edit = Edit(place, "9")
        lines = (place.line, place.end_line)
        return Finding(
            code, "rule", "warning", "high", place, "", fix=Fix("safe", "", (edit,), alters), statement_lines=lines
        )

    findings = [finding("DLC101", "1", False), finding("DLC102", "2", True), finding("DLC103", "6", True)]
    seen: list[str] = []

    def check_text(after: Mapping[str, bytes]) -> Report:
        text = after.get("/a.py", source.data).decode()
        seen.append(text)
        left = [one for one in findings if source.line(one.place.line) in text]
        return Report(left, [], 1, {"a.py": Source("a.py", "/a.py", text)}, frozenset({"/a.py"}))

    fix(check_text, unsafe=False)
    assert [[line for line in text.splitlines() if "9" in line] for text in seen] == [
        [], ["two(9)"], ["two(9)", "six(9)"], ["one(9)", "two(9)", "six(9)"],
    ]  # fmt: skip
