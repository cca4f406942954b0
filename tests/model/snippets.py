"""Small projects for the tests of the model, and short words for what it resolves."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from dlcheck.checks.report import joint
from dlcheck.config import Config
from dlcheck.facts import extract
from dlcheck.files.finder import Finder
from dlcheck.files.workspace import Workspace
from dlcheck.model import Project, Targets
from dlcheck.model.loaders import Loader, OptionAlt
from dlcheck.model.transfers import Transfer
from dlcheck.model.values import Const, Made, Unknown, Value

HEAD = """\
import argparse
import os
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
a, args, b, device_name, ds, flag, kwargs, mode, more, n, x = os.environ["X"]
"""

Files = str | Mapping[str, str]


@contextmanager
def deep() -> Iterator[None]:
    """The recursion limit that checks run under."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 5_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def project(root: Path, files: Files, named: Iterable[str] | None = None) -> Project:
    """A project of these files; a text alone is train.py, after the usual imports.

    ``named`` are the files that findings are asked for, all by default.
    """
    texts = {"train.py": HEAD + textwrap.dedent(files)} if isinstance(files, str) else files
    (root / "pyproject.toml").touch()
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text), encoding="utf-8")
    config = Config()
    workspace = Workspace(str(root), Finder(lambda _folder: config.exclude))
    sources = [workspace.source(str(root / name)) for name in (texts if named is None else named)]
    return Project(workspace, [(source, extract(source)) for source in sources if source is not None], Targets())


def word(value: Value) -> object:
    """A value in short: the constant, ``<path>`` of what a library makes, or "?"."""
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Made):
        return f"<{value.path}>"
    return "?" if isinstance(value, Unknown) else type(value).__name__


def loaders(of: Project) -> list[Loader]:
    """The loaders in the order in which they are written, each constructor call once."""
    of.evaluator.fresh()
    first: dict[tuple[str, int], Loader] = {}
    for loader in of.loaders:
        first.setdefault(loader.constructor, loader)
    return [first[key] for key in sorted(first)]


def only(of: Project) -> Loader:
    (loader,) = loaders(of)
    return loader


def option(loader: Loader, name: str) -> set[object]:
    """The values that an option can have."""
    loader.project.evaluator.fresh()
    return {word(alt.value) for alt in loader.option(name)}


def together(loader: Loader, *names: str) -> set[tuple[object, ...]]:
    """The values that options can have at the same time."""
    alts: list[list[OptionAlt]] = []
    for name in names:
        loader.project.evaluator.fresh()
        alts.append(loader.option(name))
    return {
        tuple(word(alt.value) for alt in chosen)
        for chosen in product(*alts)
        if joint(*([alt.world] for alt in chosen), loader.worlds())
    }


def transfers(of: Project) -> list[Transfer]:
    return sorted(of.transfers, key=lambda transfer: (transfer.module.name, transfer.call.at))


def blocks(transfer: Transfer) -> set[bool]:
    return {blocking for blocking, _ in transfer.blocking}


def devices(transfer: Transfer) -> set[str]:
    return {kind for kind, _ in transfer.devices}


def cases(of: Mapping[str, tuple[Any, ...]], failing: Mapping[str, str] = MappingProxyType({})) -> list[Any]:
    """Parameters for pytest: those that fail, and why, are expected to."""
    return [
        pytest.param(
            *values, id=name, marks=[pytest.mark.xfail(strict=True, reason=failing[name])] if name in failing else []
        )
        for name, values in of.items()
    ]
