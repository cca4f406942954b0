"""The arrows of the house: who may import whom, who may print, and what nobody imports."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dlcheck"
MODULES = sorted(PACKAGE.rglob("*.py"))

# What each part may import of dlcheck besides itself: facts -> model -> checks -> findings.
# Parts that are not named here stand above the rules and may use them all, but not the programs.
MAY_IMPORT: dict[str, set[str]] = {
    "findings": set(),
    "source": {"findings"},
    "facts": {"findings", "source"},
    "gitignore": set(),
    "harmless": set(),
    "sections": set(),
    "system": set(),
    "writing": set(),
    "targets": set(),
    "skim": set(),
    "searching": {"skim"},
    "cells": {"source"},
    "notebook": {"cells", "facts", "findings", "source"},
    "files": {"findings", "gitignore", "notebook", "searching", "skim", "source"},
    "model": {"facts", "files", "findings", "skim", "source", "targets"},
    "edits": {"facts", "findings", "source"},
    "pages": {"findings"},
    "checks": {"edits", "facts", "findings", "model", "pages", "source"},
}
PROGRAMS = {"cli", "lsp", "__main__"}
WITHOUT_CLICK = {"facts", "model", "checks"}
# Each of these costs more than the parse of a large file: see "what to avoid" of the design.
DEAR = ("libcst.codemod", "libcst.matchers", "libcst.metadata")


# Run in the interpreter of the user's project: nothing of dlcheck is installed there.
ELSEWHERE = (PACKAGE / "measure" / "worker", PACKAGE / "measure" / "shim")
# What they may look at where it is there, besides the standard library and torch.
OPTIONAL = {"PIL", "cv2", "datasets", "numpy", "pandas", "torchvision"}


def runs_elsewhere(module: Path) -> bool:
    return any(folder in module.parents for folder in ELSEWHERE)


def part(module: Path) -> str:
    """The first name below dlcheck: `model` for dlcheck/model/values.py."""
    return module.relative_to(PACKAGE).with_suffix("").parts[0]


@functools.cache
def nodes(module: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(module.read_bytes())))


def imports(module: Path) -> Iterator[str]:
    return imported_names(nodes(module), ("dlcheck", *module.relative_to(PACKAGE).parent.parts))


def imported_names(nodes: Iterable[ast.AST], package: tuple[str, ...]) -> Iterator[str]:
    """Absolute dotted names that a module imports, at any depth; of `from a import b` both `a` and `a.b`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def own_parts(module: Path) -> set[str]:
    """The parts of dlcheck that a module imports."""
    names = (name.split(".") for name in imports(module))
    known = {part(other) for other in MODULES}
    return {name[1] for name in names if name[0] == "dlcheck" and len(name) > 1 and name[1] in known}


def belongs(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.fixture(params=MODULES, ids=[str(module.relative_to(ROOT)) for module in MODULES])
def module(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_arrows_point_one_way(module: Path) -> None:
    if part(module) == "__init__":
        assert own_parts(module) <= {"__init__"}
        return
    used = own_parts(module) - {part(module)}
    if part(module) in MAY_IMPORT:
        assert used <= MAY_IMPORT[part(module)]
    elif part(module) not in PROGRAMS:
        assert not used & PROGRAMS


def drawn_floors() -> dict[str, int]:
    """The parts in the drawing of docs/architecture.md, each with its floor."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = [row.split() for row in re.findall(r"^ ?\d+  .*$", text, re.MULTILINE)]
    return {name: int(floor) for floor, *names in rows for name in names}


def test_the_drawing_shows_what_imports_what() -> None:
    floors = drawn_floors()
    inside = [module for module in MODULES if not runs_elsewhere(module) and not part(module).startswith("__")]
    assert set(floors) == {part(module) for module in inside}
    upwards = {
        (part(module), other)
        for module in inside
        for other in own_parts(module) - {part(module)}
        if not other.startswith("__") and floors[other] >= floors[part(module)]
    }
    assert not upwards
    assert sorted(set(floors.values())) == list(range(1, max(floors.values()) + 1))


def test_the_text_names_every_part() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = "\n".join(row.split("|")[1] for row in re.findall(r"^\| `.*$", text, re.MULTILINE))
    assert set(drawn_floors()) <= set(re.findall(r"`(\w+)`", table))


def test_analysis_knows_neither_click_nor_torch(module: Path) -> None:
    if part(module) in WITHOUT_CLICK:
        assert not [name for name in imports(module) if belongs(name, "click") or belongs(name, "torch")]


def test_linter_never_imports_torch(module: Path) -> None:
    if not runs_elsewhere(module):
        assert not [name for name in imports(module) if belongs(name, "torch")]


def test_what_runs_elsewhere_needs_only_torch(module: Path) -> None:
    if not runs_elsewhere(module):
        return
    siblings = {other.stem for folder in ELSEWHERE for other in folder.iterdir()}
    known = {*sys.stdlib_module_names, *siblings, *OPTIONAL, "torch"}
    names = {
        name
        for node in nodes(module)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    assert {name.split(".")[0] for name in names} - {""} <= known


def test_dear_parts_of_libcst_are_not_imported(module: Path) -> None:
    assert not [name for name in imports(module) if any(belongs(name, dear) for dear in DEAR)]


def test_relative_and_nested_imports_are_seen() -> None:
    text = "from ..model import values\nfrom . import forms\ndef f():\n    import click\n"
    names = set(imported_names(ast.walk(ast.parse(text)), ("dlcheck", "facts")))
    assert names == {"dlcheck.model", "dlcheck.model.values", "dlcheck.facts", "dlcheck.facts.forms", "click"}


# `cli` prints and exits, and nobody else; `python -m dlcheck` may hand on its status.
def test_only_cli_prints_or_exits(module: Path) -> None:
    if part(module) in PROGRAMS or runs_elsewhere(module):
        return
    offenders = []
    for node in nodes(module):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            writes = called.startswith(("sys.stdout.", "sys.stderr.", "click.echo", "click.secho", "click.get_current"))
            if writes or called in {"print", "exit", "quit", "sys.exit", "os._exit", "SystemExit"}:
                offenders.append(f"line {node.lineno}: {called}")
        elif isinstance(node, ast.Raise) and node.exc is not None and "SystemExit" in ast.unparse(node.exc):
            offenders.append(f"line {node.lineno}: raise SystemExit")
    assert offenders == []


def test_running_the_linter_imports_neither_torch_nor_dear_parts(tmp_path: Path) -> None:
    sample = tmp_path / "train.py"
    sample.write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader([1, 2], prefetch_factor=2)\n")
    code = (
        "import sys\n"
        "from dlcheck.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    pass\n"
        "sys.stderr.write(' '.join(sys.modules))\n"
    )
    command = [sys.executable, "-c", code, "check", "--isolated", "--no-cache", "--output-format", "json", str(sample)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(run.stderr.split())
    assert "libcst" in loaded
    assert not loaded & {"torch", "libcst.codemod", "libcst.matchers"}
