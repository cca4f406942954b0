"""Facts of a text after an edit are those of the text, whatever was kept of the one before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcheck.facts import Unreadable, extract
from dlcheck.facts.forms import ModuleFacts
from dlcheck.facts.pieces import Pieces
from dlcheck.source import Source

ROOT = Path(__file__).resolve().parent.parent
FILES = [
    ROOT / "examples" / "faulty" / "train.py",
    ROOT / "dlcheck" / "warm.py",
    ROOT / "dlcheck" / "edits.py",
    ROOT / "dlcheck" / "model" / "values.py",
    ROOT / "dlcheck" / "facts" / "walk.py",
]
PROGRAM = '''\
"""Words."""
import torch; import numpy as np

@decorated
@twice(1)
class Samples(Dataset):
    """Rows."""

    size: int = 3  # so many

    @property
    def rows(self):
        return [1, 2]

    def __getitem__(self, index):
        value = """
of several lines
"""
        return value


    # a comment at the end
# and one outside

class Empty: pass

if __name__ == "__main__":
    for batch in loader:
        print(batch)
'''
# What the forms of node numbers are called; everything else in a form is said by the text.
NUMBERS = {"at", "head", "name_at"}


def spelled(form: Any, facts: ModuleFacts) -> Any:
    """A form with the spans of its nodes in place of their numbers."""
    if isinstance(form, tuple) and hasattr(form, "_fields"):
        named: Any = form
        parts = zip(named._fields, form, strict=True)
        return type(form).__name__, [facts.span(x) if name in NUMBERS else spelled(x, facts) for name, x in parts]
    return [spelled(part, facts) for part in form] if isinstance(form, tuple) else form


def numbers(form: Any) -> Iterator[int]:
    if isinstance(form, tuple):
        if "at" in getattr(form, "_fields", ()):
            yield form.at  # type: ignore[attr-defined]
        for part in form:
            yield from numbers(part)


def whole(text: str) -> ModuleFacts:
    return extract(Source("x.py", "/x.py", text))


def assert_same(pieces: Pieces, text: str) -> None:
    facts = whole(text)
    assert pieces.text == text
    assert spelled(pieces.facts.body, pieces.facts) == spelled(facts.body, facts)
    tops = [stmt.at for stmt in pieces.facts.body]
    assert tops == sorted(tops)
    assert len(set(numbers(pieces.facts.body))) == len(set(numbers(facts.body)))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_pieces_say_what_the_whole_says(file: Path) -> None:
    text = file.read_text()
    assert_same(Pieces.of(text), text)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("return [1, 2]", "return [1, 2, 3]", True),
        ("return value\n", "return value\n\n    def more(self):\n        pass\n", True),
        ("size: int = 3", "size: int = 30", True),
        ("print(batch)", "print(batch, 1)", True),
        ("# and one outside", "", True),
        ('"""Words."""', '"""Other words."""', True),
        ("import torch; ", "", True),
        ("class Samples(Dataset)", "class Rows(Dataset, object)", True),
        ("\nclass Empty: pass\n", "", True),
        ("        print(batch)\n", "        print(batch)", True),
        ("    @property\n    def rows", "  @property\n  def rows", False),  # another indentation
        ("of several lines", '""" + """', True),
        ('value = """', "value = '''", False),  # opens a string
        ("return [1, 2]", "return [1, 2", False),
        ("@twice(1)\n", "", True),
        ("\nclass Empty", "    \\\nclass Empty", False),
        ("class Empty: pass\n", "class Empty: pass\n@dangling\n", False),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_edits(old: str, new: str, kept: bool, end: str) -> None:
    before = PROGRAM.replace("\n", end)
    after = PROGRAM.replace(old, new, 1).replace("\n", end)
    assert before != after
    found = Pieces.of(before).after(after)
    assert (found is not None) == kept
    if found is not None:
        assert_same(found, after)


def test_long_tables_are_cut_here_too() -> None:
    table = "words = {" + ", ".join(f"'w{number}': {number}" for number in range(2000)) + "}\n"
    text = PROGRAM + table
    pieces = Pieces.of(text)
    assert_same(pieces, text)
    for old, new in (("'w3': 3", "'w3': 33"), ("size: int = 3", f"size = {list(range(1500))}")):
        edited = text.replace(old, new)
        found = pieces.after(edited)
        assert found is not None
        assert_same(found, edited)


def test_numbers_run_out() -> None:
    text, pieces = PROGRAM, Pieces.of(PROGRAM)
    for number in range(200):
        text = text.replace("[1", f"[1, {number}", 1)
        found = pieces.after(text)
        if found is None:
            assert number > 10
            break
        pieces = found
        assert_same(pieces, text)
    else:
        pytest.fail("there is always more room")


def typed(dice: random.Random, text: str) -> str:
    """A text after an edit such as people make, or do not."""
    lines = text.splitlines(keepends=True)
    at = dice.randrange(len(lines))
    match dice.randrange(8):
        case 0:
            del lines[at : at + dice.randrange(1, 4)]
        case 1:
            lines.insert(at, dice.choice(lines))
        case 2:
            lines[at] = "    " + lines[at]
        case 3:
            lines[at] = lines[at].removeprefix("    ")
        case 4:
            a, b = sorted((at, dice.randrange(len(lines))))
            lines[a:b] = []
        case 5:
            lines.insert(
                at,
                dice.choice(["x = 1\n", "    y = 2\n", "@a\n", "'''\n", "# c\n", "\n", "class A:\n", "\\\n", "\f\n"]),
            )
        case _:
            line = lines[at]
            place = dice.randrange(len(line))
            put = dice.choice(["", "a", "(", ")", ".", "\n", "\n    ", '"', "#", ",", "=1", " ", ";", "\r"])
            lines[at] = line[:place] + put + line[place + dice.randrange(2) :]
    return "".join(lines)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("file", [*FILES[:4], None], ids=lambda path: path.name if path else "program")
def test_a_session_of_edits(file: Path | None, seed: int) -> None:
    dice = random.Random(seed)
    text = PROGRAM if file is None else file.read_text()
    pieces = Pieces.of(text)
    kept = 0
    for _ in range(25):
        edited = typed(dice, text)
        try:
            whole(edited)
        except Unreadable:
            assert pieces.after(edited) is None
            continue
        found = pieces.after(edited)
        if found is not None:
            kept += 1
            assert_same(found, edited)
        text, pieces = edited, found or Pieces.of(edited)
        if len(text) < 200:
            break
    assert kept
