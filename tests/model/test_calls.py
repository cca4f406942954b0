"""Which functions of a project a call can mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from snippets import deep, project

from dlcheck.facts import forms
from dlcheck.model.loops import called_scopes

TRAINER = """
class Trainer:
    def push_on(self, batch):
        batch.backward()

    def run(self, loader):
        for batch in loader:
            self.push_on(batch)
            batch.sum()
"""


def called(root: Path, name: str, ignored: str = "") -> dict[str, list[str]]:
    (root / ".git").mkdir()
    (root / ".gitignore").write_text(ignored)
    found = project(root, {name: TRAINER})
    with deep():
        return {
            site.expr.func.name: [scope.qualified for scope in called_scopes(found, site)]
            for module in found.named_modules
            for site in module.calls
            if isinstance(site.expr, forms.Call) and isinstance(site.expr.func, forms.Attr)
        }


@pytest.mark.parametrize(
    ("name", "ignored"),
    [("train.py", ""), ("train.pyw", ""), ("train.py", "train.py")],
    ids=["listed", "another suffix", "ignored by git"],
)
def test_methods_are_found_wherever_they_are(name: str, ignored: str, tmp_path: Path) -> None:
    """What no file gives a meaning is not asked for; a named module need not be among the project's files."""
    assert called(tmp_path, name, ignored) == {"backward": [], "push_on": ["Trainer.push_on"], "sum": []}


RECURSIVE = """
def selected(data, index):
    if isinstance(index, slice):
        return selected(data, range(index))
    if isinstance(index, list):
        return [selected(data, one) for one in index]
    if index.dtype == "long":
        return selected(data, index.tolist())
    if index.dtype == "bool":
        return selected(data, selected(data, index.nonzero()))
    return selected(data, index.ravel())

def main(data):
    for loader in selected([DataLoader(data)], 0):
        print(loader)
"""


def test_calls_of_a_function_by_itself_do_not_double(tmp_path: Path) -> None:
    found = project(tmp_path, RECURSIVE)
    with deep():
        assert list(found.loops) == []
    assert found.evaluator.total_steps < 300


PACKAGE = {
    "steps/__init__.py": "from .training import train\n",
    "steps/training.py": """
        def train(model, batches):
            for batch in batches:
                model(batch).sum().backward()
        """,
}
CALLERS = {
    "named": "loader = DataLoader(data)\n    train(model, loader)",
    "of any name": "dl = DataLoader(data)\n    train(model, batches=dl)",
    "built in the call": "train(model, DataLoader(data))",
}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("named", ["main.py", "steps/training.py"])
def test_a_loop_behind_a_package_is_found_from_both_ends(named: str, caller: str, tmp_path: Path) -> None:
    """Its ``__init__`` hands the function on: who calls it names neither its module nor the other way round."""
    main = f"""from torch.utils.data import DataLoader
from steps import train

def main(model, data):
    {CALLERS[caller]}
"""
    found = project(tmp_path, {**PACKAGE, "main.py": main}, [named])
    with deep():
        assert [loop.module.name for loop in found.loops] == ["steps.training"]
