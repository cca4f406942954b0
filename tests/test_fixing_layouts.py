"""A property of `--fix`: whatever the layout of a call, its arguments are the old ones plus what the rules change."""

from __future__ import annotations

import ast
import io
import os
import tokenize
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from dlcheck.config import Config
from dlcheck.edits import LOADER_ORDER
from dlcheck.engine import check
from dlcheck.fixing import Fixed, fix

BLANK = st.sampled_from(["", "", "", " ", "\n        ", "\n", " # why (\n        ", "  # why\n\n        ", " \\\n  "])
SAMPLER = "torch.utils.data.RandomSampler(dataset)"
VALUES = {
    "batch_size": ["8", "(4)", "2 * 4", "size"],
    "shuffle": ["True", "False"],
    "num_workers": ["2", "0", "(4)", "workers", "min(4, 8)"],
    "collate_fn": ["None", "'),('", "lambda x: x"],
    "pin_memory": ["True", "False", "pinned"],
    "drop_last": ["True", "(False)"],
    "persistent_workers": ["True", "False"],
    "prefetch_factor": ["2", "64"],
    "sampler": [SAMPLER],
}
# What a rule may change in the call of a loader, and in that of a transfer.
OPTIONS = {
    "DLC101": {"non_blocking"},
    "DLC102": {"pin_memory", "non_blocking"},
    "DLC103": {"pin_memory", "non_blocking"},
    "DLC202": {"persistent_workers"},
    "DLC203": {"persistent_workers", "prefetch_factor", "timeout", "num_workers"},
    "DLC210": {"prefetch_factor"},
    "DLC411": {"shuffle", "drop_last", "sampler"},
    "DLC417": {"shuffle"},
    "DLC602": {"collate_fn"},
}
PROGRAM = """\
import torch
from torch.utils.data import DataLoader


def main(dataset: torch.utils.data.Dataset, net, optimizer, workers, size, pinned, options):
    loader = DataLoader({loader})  # built once
    for epoch in range(9):
        for x, y in loader:
            optimizer.zero_grad()
            x = x.to({transfer})
            net(x).sum().backward()
            optimizer.step()
"""


@st.composite
def layouts(draw: st.DrawFn, args: list[str]) -> str:
    parts = [draw(BLANK)]
    for number, arg in enumerate(args):
        comma = "," if number < len(args) - 1 or draw(st.booleans()) else ""
        parts += arg, draw(BLANK), comma, draw(BLANK)
    return "".join(parts)


@st.composite
def programs(draw: st.DrawFn) -> str:
    defaults = {"sampler": "None", "batch_sampler": "None"}
    positional = ["dataset", *(defaults.get(name) or draw(st.sampled_from(VALUES[name])) for name in LOADER_ORDER[1:8])]
    placed = draw(st.sampled_from([1, 1, 2, 3, 6, 8]))
    args = positional[:placed]
    free = [name for name in VALUES if name not in LOADER_ORDER[:placed]]
    for name in draw(st.lists(st.sampled_from(free), unique=True, max_size=5)):
        args.append(f"{name}{draw(BLANK)}={draw(BLANK)}{draw(st.sampled_from(VALUES[name]))}")
    if draw(st.integers(0, 3)) == 0:
        args.append(draw(st.sampled_from(["**options", "**{'timeout': 5}", "**{'timeout': 5, **options}"])))
    moved = ["'cuda'"]
    if draw(st.booleans()):
        moved.append("non_blocking=" + draw(st.sampled_from(["True", "False", "(True)"])))
    text = PROGRAM.format(loader=draw(layouts(args)), transfer=draw(layouts(moved)).replace("\n", "\n    "))
    return text.replace("\n", draw(st.sampled_from(["\n", "\n", "\r\n"])))


@pytest.fixture(scope="module", autouse=True)
def _project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A project with nobody else in it."""
    folder = tmp_path_factory.mktemp("layouts")
    (folder / "pyproject.toml").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


def fixed(text: str) -> Fixed:
    file = os.path.abspath("train.py")
    config = Config(isolated=True, overrides={"select": list(OPTIONS)})
    return fix(lambda after: check(["train.py"], config, overlays={file: text.encode(), **after}), unsafe=True)


def options(text: str, name: str) -> dict[str | None, str]:
    """The arguments of a call by name, those given by their place too."""
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    call = next(node for node in found if ast.unparse(node.func) == name)
    order = LOADER_ORDER if name == "DataLoader" else ("device",)
    out: dict[str | None, str] = {order[n]: ast.unparse(arg) for n, arg in enumerate(call.args)}
    for word in call.keywords:
        spread = word.value if word.arg is None and isinstance(word.value, ast.Dict) else None
        given = zip(spread.keys, spread.values, strict=True) if spread else [(word.arg, word.value)]
        for key, value in given:
            one = str(key.value) if isinstance(key, ast.Constant) else key if isinstance(key, str) else None
            assert one not in out
            out[one] = ast.unparse(value)
    return out


def comments(text: str) -> list[str]:
    lines = io.StringIO(text).readline
    return [token.string for token in tokenize.generate_tokens(lines) if token.type == tokenize.COMMENT]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_arguments_are_the_old_ones_plus_what_rules_change(text: str) -> None:
    done = fixed(text)
    after = done.changes[0].after.decode() if done.changes else text
    note(after)
    assert not done.errors
    assert (after == text) == (not done.applied)
    assert comments(after) == comments(text)
    assert ("\r\n" in after, "\r\n" in text) in ((True, True), (False, False))
    allowed = set[str | None]().union(*(OPTIONS[code] for code in done.applied))
    for name in ("DataLoader", "x.to"):
        before, now = options(text, name), options(after, name)
        assert {one: value for one, value in now.items() if one not in allowed} == {
            one: value for one, value in before.items() if one not in allowed
        }
        assert now.keys() - before.keys() <= allowed
    assert not fixed(after).changes
