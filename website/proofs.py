"""Which test shows the fault of which rule, read from the tests themselves."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from pathlib import Path

from dlcheck.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "proofs"


@functools.cache
def proven() -> dict[str, tuple[str, ...]]:
    """The tests marked with `proves(CODE)`, by code: `tests/proofs/test_x.py::test_y`."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(FOLDER.glob("test_*.py")):
        for node in ast.parse(file.read_bytes()).body:
            if isinstance(node, ast.FunctionDef):
                for code in _codes(node):
                    found[code].append(f"{file.relative_to(ROOT).as_posix()}::{node.name}")
    return {code: tuple(names) for code, names in found.items()}


def _codes(function: ast.FunctionDef) -> list[str]:
    return [
        argument.value
        for mark in function.decorator_list
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute) and mark.func.attr == "proves"
        for argument in mark.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


@functools.cache
def not_on_a_cpu() -> dict[str, str]:
    """Why a rule has no proof, by code, as the test says that asks each rule for one."""
    for node in ast.parse((FOLDER / "test_complete.py").read_bytes()).body:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "NOT_ON_A_CPU" and node.value:
            reasons: dict[str, str] = ast.literal_eval(node.value)
            return reasons
    raise LookupError("tests/proofs/test_complete.py does not say which rules have no proof")


def markdown(known: dict[str, Page], name: dict[str, str]) -> str:
    """The page about them; ``name`` is where the page of each rule is."""
    shown, missing = proven(), not_on_a_cpu()
    tests = {test for some in shown.values() for test in some}
    lines = [
        "# Proofs by running",
        "",
        "A rule says that something is slow, wrong or about to crash. Before it may say so, a test makes it happen: a",
        "small form of the bad and the good example runs with real torch and real workers, and the fault has to be",
        "there in the one and absent in the other. No test asserts a time. How often the rules are right about code of",
        "others stands in [What dlcheck says of real repositories](ecosystem.md); how a figure on your own machine",
        "comes about, in [Measuring](measure.md).",
        "",
        f"{len(shown)} of {len(shown) + len(missing)} rules are shown so, by {len(tests)} tests. This table is read",
        "from the tests. `DLC001` and `DLC002`, which are about files and comments, need no program to run.",
        "",
        "| rule | shown by |",
        "| --- | --- |",
    ]
    for code in sorted(shown):
        cells = "<br>".join(f"`{test.removeprefix('tests/proofs/')}`" for test in shown[code])
        lines.append(f"| [{code} {known[code].name}]({name[code]}) | {cells} |")
    lines += [
        "",
        "## Not shown",
        "",
        "No machine with a GPU has run these tests. What only such a machine shows is open:",
        "",
    ]
    lines += ["| rule | why not |", "| --- | --- |"]
    lines += [f"| [{code} {known[code].name}]({name[code]}) | {why} |" for code, why in sorted(missing.items())]
    return "\n".join([*lines, ""])
