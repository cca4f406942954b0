"""The program as a whole: how its workers start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlcheck.facts import forms
from dlcheck.model.scopes import last_name

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

FORKSERVER_SINCE = (3, 14)  # the default start method of Python on Linux


def copies_to_workers(loader: Loader) -> bool:
    """Whether workers are proven to start by spawn or forkserver, which pickle the dataset."""
    if loader.spawns():
        return True
    targets = loader.project.targets
    if targets.python_min is not None and targets.python_min >= FORKSERVER_SINCE:
        return True
    return _start_method(loader.project) in ("spawn", "forkserver")


def _start_method(project: Project) -> str | None:
    """What ``set_start_method("...")`` of the project says, where all calls agree."""
    said = set()
    for module in project.loaded():
        for site in module.calls:
            call = site.expr
            assert isinstance(call, forms.Call)
            if last_name(call.func) == "set_start_method" and call.args:
                value = call.args[0].value
                said.add(value.value if isinstance(value, forms.Const) else None)
    return str(said.pop()) if len(said) == 1 and None not in said else None
