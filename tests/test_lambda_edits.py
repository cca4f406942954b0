"""Lambdas that become functions: what they say stays the same to the last blank, and so do their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlcheck.checks import mending
from dlcheck.config import Config
from dlcheck.engine import check
from dlcheck.fixing import fix

HEAD = """\
import functools
from torch.utils.data import DataLoader

ds = list(range(9))
n = 5
"""
LAYOUT = "the lambda is laid out in a way that cannot be changed with certainty"
PLACE = "what its names mean depends on where it stands"


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)


def mended(text: str, unsafe: bool = True, head: str = HEAD) -> tuple[str, str]:
    """A program after its fixes, and why the first of its findings has none."""
    Path("train.py").write_text(head + text, encoding="utf-8")
    config = Config(isolated=True, overrides={"select": ["DLC602"]})
    done = fix(lambda after: check(["."], config, overlays=after), unsafe=unsafe)
    assert not done.errors
    after = done.changes[0].after.decode().removeprefix(head) if done.changes else ""
    return after, next((finding.unfixed for finding in done.report.findings), "")


def loader(function: str) -> str:
    return f"\n\ndef build(k, __w=1):\n    return DataLoader(ds, num_workers=2, collate_fn={function})\n"


@pytest.mark.parametrize(
    ("function", "body"),
    [
        ("lambda b: (\n        [str(x) for x in b], f'a  {b}'\n        )", "return [str(x) for x in b], f'a  {b}'"),
        ("lambda b: b\n        [0]", "return b[0]"),
        ("lambda b: print(\n        'a  b',\n        b,\n    )", "return print('a  b', b)"),
        ("lambda b: (\n        b,\n    )", "return b,"),
        ("lambda b: (c := b)", "return (c := b)"),
        ("lambda b: (yield b)", "return (yield b)"),
        ("lambda b: (x for x in b)", "return (x for x in b)"),
        ("lambda b: (b[0]) + (b[1])", "return (b[0]) + (b[1])"),
        ("lambda b, f=None: b if f else None", "return b if f else None"),
        ("lambda b: lambda c: b", "return lambda c: b"),
        ("lambda b: 'é  ' + b[0]", "return 'é  ' + b[0]"),
        ("lambda b: [n for n in b][:n]", "return [n for n in b][:n]"),
    ],
)
def test_a_function_says_what_the_lambda_said(function: str, body: str) -> None:
    after, reason = mended(loader(function), unsafe=False)
    assert not reason
    assert f"    {body}\n" in after


def test_a_long_lambda_keeps_its_lines() -> None:
    items = ["    " * 3 + f"'a rather long text, number  {n}'," for n in range(4)]
    text = loader("\n".join(("lambda b: [", *items, "        ]")))
    after, _ = mended(text, unsafe=False)
    assert all(f"\n        {item.strip()}\n" in after for item in items)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("lambda b: (__class__, b)", PLACE),
        ("lambda b: (__w, b)", PLACE),
        ("lambda b: super().x", PLACE),
        ("lambda b: locals()", PLACE),
        ("lambda b: [  # rows\n    b]", LAYOUT),
        ("lambda b: '''a\n  b'''", LAYOUT),
    ],
)
def test_what_would_mean_something_else_is_refused(function: str, reason: str) -> None:
    assert mended(loader(function)) == ("", reason)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("a = [DataLoader(ds, num_workers=2, collate_fn=lambda b: b[:n]) for n in (1, 2)]\n", "collate_batch, n=n"),
        ("f = lambda n: DataLoader(ds, num_workers=2, collate_fn=lambda b: b[:n])\nf(2)\n", "collate_batch, n=n"),
        (loader("lambda b, f=2: b[:k]"), "collate_batch, k=k"),
    ],
)
def test_what_is_around_it_is_bound(text: str, call: str) -> None:
    assert mended(text, unsafe=False)[0] == ""
    after, _ = mended(text)
    assert f"functools.partial({call})" in after
    compile(after, "train.py", "exec")


def test_functions_stand_in_the_order_of_their_lambdas() -> None:
    text = "".join(loader(f"lambda b: b[{n}]").replace("build", f"build_{n}") for n in range(3))
    after, _ = mended(text, unsafe=False)
    places = [after.index(f"def {name}(") for name in ("collate_batch", "collate_batch_2", "collate_batch_3")]
    assert places == sorted(places)
    assert places[-1] < after.index("def build_0")


def test_functions_that_differ_in_a_text_are_two() -> None:
    text = loader("lambda b: 'a  b'") + loader("lambda b: 'a b'").replace("build", "other")
    after, _ = mended(text, unsafe=False)
    assert "def collate_batch_2" in after
    assert after.count("a  b") == after.count("a b") == 1


def test_the_same_lambda_is_one_function() -> None:
    text = loader("lambda b: b[0]") + loader("lambda b:   b[0]").replace("build", "other")
    after, _ = mended(text, unsafe=False)
    assert after.count("def collate_batch") == 1


def test_a_name_from_anywhere_is_not_taken() -> None:
    head = f"from helpers import *\n{HEAD}"
    after, _ = mended(loader("lambda b: b[0]") + "print(collate_batch)\n", head=head)
    assert "def collate_batch_2" in after


def test_a_notebook_has_no_functions_for_workers() -> None:
    code = HEAD + "for x in DataLoader(ds, num_workers=2, collate_fn=lambda b: b):\n    print(x)"
    cell: dict[str, Any] = {"cell_type": "code", "source": code, "execution_count": None, "metadata": {}, "outputs": []}
    whole = {"cells": [cell], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    Path("train.ipynb").write_text(json.dumps(whole), encoding="utf-8")
    (found,) = check(["."], Config(isolated=True, overrides={"select": ["DLC602"]})).findings
    assert found.unfixed == "workers cannot import what a notebook defines: it has to become a function of a module"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("f(\n  'a  b',\n  c\n)", "f('a  b', c)"),
        ("f(\n  a,\n)", "f(a)"),
        ("(\n  a,\n)", "(a,)"),
        ("a + \\\n  b", "a + b"),
        ("a  +  b", "a  +  b"),
        ("a\n.b\n(c)\n[d]", "a.b(c)[d]"),
        ("a if b\nelse (c)", "a if b else (c)"),
        ("f(  # why\n a)", None),
        ("'''a\nb'''", None),
    ],
)
def test_an_expression_on_one_line(text: str, line: str | None) -> None:
    assert mending.one_line(text) == line
