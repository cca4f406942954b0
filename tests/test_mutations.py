"""The changes that benchmarks/mutants.py makes: they parse, each changes one thing, and words for people stay."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def mutations() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutations", ROOT / "benchmarks" / "mutations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutations"] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    return module


SAMPLE = '''\
"""Not this."""
import os
LIMIT = 3

@rule("DLC101")
def check(loader: "Loader", deep=False):
    """Nor this."""
    assert loader is not None
    for one in loader.all:
        if one.given and not one.free:
            yield found(one, "said to people", "word")
            continue
        seen.add(f"{one} {LIMIT}")
    return [one for one in loader if one == 1]
'''


def test_what_is_changed(mutations: ModuleType) -> None:
    found = {(one.line, one.old, one.new) for one in mutations.of(SAMPLE.encode(), "sample.py")}
    assert found == {
        (3, "3", "4"),
        (6, "False", "True"),
        (10, "one.given and not one.free", "True"),
        (10, "one.given and not one.free", "False"),
        (10, "one.given and not one.free", "(one.given or not one.free)"),
        (10, "one.given and not one.free", "(one.given)"),
        (10, "one.given and not one.free", "(not one.free)"),
        (10, "not one.free", "(one.free)"),
        (11, 'yield found(one, "said to people", "word")', "False and ((yield found(one, 'said to people', 'word')))"),
        (11, '"word"', "'XXword'"),
        (12, "continue", "break"),
        (13, 'seen.add(f"{one} {LIMIT}")', "pass"),
        (14, "return [one for one in loader if one == 1]", "return None"),
        (14, "one == 1", "True"),
        (14, "one == 1", "(one != 1)"),
        (14, "1", "2"),
    }


def test_which_lines_have_to_run(mutations: ModuleType) -> None:
    told = {one.new: (one.first, one.last, one.at_import) for one in mutations.of(SAMPLE.encode(), "sample.py")}
    assert told["4"] == (3, 3, True)
    assert told["(one.free)"] == (10, 10, False)
    assert told["break"] == (12, 12, False)


@pytest.mark.parametrize("name", ["checks/steps.py", "model/values.py"])
def test_every_mutant_is_another_program(name: str, mutations: ModuleType) -> None:
    text = (ROOT / "dlcheck" / name).read_bytes()
    found = mutations.of(text, name)
    assert len(found) > 50
    assert len({one.key for one in found}) == len(found)
    whole = ast.dump(ast.parse(text))
    for one in found[::5]:
        assert ast.dump(ast.parse(one.applied(text))) != whole, str(one)
