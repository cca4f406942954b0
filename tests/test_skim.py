"""What is read off a file's bytes must not be less than what Python would find there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dlcheck.skim import Skim

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = sorted((ROOT / "dlcheck").rglob("*.py")) + sorted((ROOT / "tests").glob("*.py"))


@pytest.mark.parametrize(
    "text",
    [
        "import wanted",
        "import a, wanted as b",
        "import a.wanted.c",
        "from wanted import x",
        "from .a.wanted import (x,\n  y)",
        "from a import (x,  # why\n    wanted,\n)",
        "from a import x, \\\n    wanted",
        "try: from a import wanted\nexcept ImportError: pass",
        "x = 1; import wanted",
        "def f():\n\tfrom . import wanted",
        "from a import *",
        "m = __import__(name)",
        "m = importlib.import_module(f'a.{name}')",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_imports_in_every_layout(text: str, end: str) -> None:
    assert Skim(text.replace("\n", end).encode()).may_import(b"wanted")


def test_words_elsewhere_are_no_imports() -> None:
    assert not Skim(b"import a\nwanted(wanted.b)\n# the wanted one\n").may_import(b"wanted")


@pytest.mark.parametrize(
    "text",
    [
        "def wanted(x): ...",
        "async  def wanted(): ...",
        "class wanted(Base): ...",
        "class A:\n    wanted: int",
        "class A:\n    wanted = staticmethod(f)",
        "self.wanted = f",
        "self.wanted: T = f",
        "self.a, self.wanted = f, g",
        "(self.wanted) = f",
        "from a import f as wanted",
        "setattr(a, 'wanted', f)",
        "T = namedtuple('T', ['wanted', 'b'])",
    ],
)
def test_what_gives_a_word_its_meaning(text: str) -> None:
    assert b"wanted" in Skim(text.encode()).given


def test_calls_give_no_meaning() -> None:
    assert b"wanted" not in Skim(b"x = a.wanted(1)\nb.wanted(x).c\n").given


@pytest.mark.parametrize("file", PACKAGE, ids=lambda path: path.name)
def test_no_less_than_python_finds(file: Path) -> None:
    data = file.read_bytes()
    found = Skim(data)
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            words = [word for alias in node.names for word in alias.name.split(".")]
            words += (getattr(node, "module", None) or "").split(".")
            missing = [word for word in words if word and not found.may_import(word.encode())]
            assert not missing, f"line {node.lineno}"
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            assert node.name.encode() in found.given
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            assert node.attr.encode() in found.given, f"line {node.lineno}"


def test_options_and_words_of_any_letters() -> None:
    said = Skim("add('--batch-size', '--größe', '--x_y'); größe.näher(a1)\n".encode())
    assert said.options == {b"batch-size", "größe".encode(), b"x_y"}
    assert said.words >= {b"add", "größe".encode(), "näher".encode(), b"a1"}
    assert b"1" not in said.words
