"""The program as a whole: how its workers start, and what a script does when it is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dlcheck.facts import forms
from dlcheck.model import calling
from dlcheck.model.loops import BatchLoop, NextCall, callers_in
from dlcheck.model.scopes import Link, Module, Scope, Site, dotted
from dlcheck.model.values import Const, Made, Value
from dlcheck.model.worlds import World

if TYPE_CHECKING:
    from dlcheck.model.loaders import Loader
    from dlcheck.model.project import Project

FORKSERVER_SINCE = (3, 14)  # the default start method of Python on Linux
MAX_CHAIN = 6


# -- how workers start


def copies_to_workers(loader: Loader) -> bool:
    """Whether workers are proven to start by spawn or forkserver, which pickle the dataset."""
    chosen = [chosen_method(loader.project, option.value) for option in loader.option("multiprocessing_context")]
    if any(method in ("spawn", "forkserver") for method in chosen):
        return True
    targets = loader.project.targets
    if targets.python_min is not None and targets.python_min >= FORKSERVER_SINCE:
        return not forks(loader)
    return start_method(loader.project) in ("spawn", "forkserver")


def forks(loader: Loader) -> bool:
    """Whether the program chooses fork for the workers of a loader."""
    chosen = [chosen_method(loader.project, option.value) for option in loader.option("multiprocessing_context")]
    if any(method is not None for method in chosen):
        return all(method == "fork" for method in chosen)
    return start_method(loader.project) == "fork"


def only_forks(project: Project) -> bool:
    """Whether the project declares that it runs where fork is the default: Linux, and Python before 3.14."""
    targets = project.targets
    return targets.linux_only and targets.python_max is not None and targets.python_max < FORKSERVER_SINCE


def chosen_method(project: Project, value: Value) -> object:
    """The start method that ``multiprocessing_context=`` names; "" for one that is not known."""
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Made) and value.path.endswith("get_context") and value.args is not None:
        given = calling.argument(value.args, "method", 0)
        for alt in project.evaluator.force(given) if given is not None else ():
            return alt.value.value if isinstance(alt.value, Const) else ""
    return ""


def start_method(project: Project, within: Collection[Module] | None = None) -> str | None:
    """What ``set_start_method("...")`` of the project says, or of some modules of it, where all calls agree."""
    if within is not None:
        return _find_start_method(site for site in project.calls_named("set_start_method") if site.module in within)
    return project.once("start method", lambda: _find_start_method(project.calls_named("set_start_method")))


def _find_start_method(sites: Iterable[Site]) -> str | None:
    said = set()
    for site in sites:
        call = site.expr
        assert isinstance(call, forms.Call)
        if call.args:
            value = call.args[0].value
            said.add(value.value if isinstance(value, forms.Const) else None)
    return str(said.pop()) if len(said) == 1 and None not in said else None


# -- what runs when a script is imported


class BareRun(NamedTuple):
    """A loader iterated by the bare statements of a script: importing the file starts its workers.

    ``link`` is the statement of the script, ``use`` what iterates, there or in what it calls.
    """

    link: Link
    use: BatchLoop | NextCall
    world: World


@dataclass(frozen=True, eq=False)
class Script:
    """A file that is run, and the loaders that it iterates outside of any main guard."""

    project: Project
    module: Module
    runs: list[BareRun]


def scripts(project: Project) -> Iterator[Script]:
    """The scripts that iterate loaders when they are imported."""
    found: dict[Module, list[BareRun]] = {}
    uses: list[BatchLoop | NextCall] = [loop for loop in project.loops if loop.direct]
    for use in [*uses, *project.next_calls]:
        start = use.link if isinstance(use, BatchLoop) else use.site.link
        for link in _statements_of_scripts(project, start, use.world, 0, ()):
            found.setdefault(link.scope.module, []).append(BareRun(link, use, use.world))
    for module, runs in found.items():
        if module.named and _is_script(project, module):
            # What always runs, before what a condition may skip.
            yield Script(project, module, sorted(runs, key=lambda run: (run.link.parent is not None, run.link.stmt.at)))


def _statements_of_scripts(
    project: Project, link: Link, world: World, depth: int, seen: tuple[Scope, ...]
) -> Iterator[Link]:
    """The outermost statement of a module, conditions aside, that runs ``link``, itself or through calls, unguarded."""
    scope = link.scope
    if scope.kind == "module":
        if not is_main_guarded(link):
            outer = [here for here in link.outer() if not isinstance(here.stmt, (forms.If, forms.Try))]
            yield outer[-1] if outer else link  # which is a condition itself where that iterates
    elif scope.kind == "function" and depth < MAX_CHAIN and scope not in seen:
        for point in callers_in(project, scope, world):
            yield from _statements_of_scripts(project, point.link, world, depth + 1, (*seen, scope))


def is_main_guarded(link: Link) -> bool:
    """Whether a statement of a module lies under ``if __name__ == "__main__":``."""
    return any(isinstance(outer.stmt, forms.If) and is_main_test(outer.stmt.test) for outer in link.outer())


def is_main_test(test: forms.Expr) -> bool:
    """``__name__ == "__main__"``, also as a part of a longer condition."""
    if isinstance(test, forms.Bool):
        return is_main_test(test.left) or is_main_test(test.right)
    if not isinstance(test, forms.Compare):
        return False
    sides = (test.left, *test.rights)
    return any(dotted(side) == "__name__" for side in sides) and any(
        isinstance(side, forms.Const) and side.value == "__main__" for side in sides
    )


_CELL = re.compile(r"^# ?%%", re.MULTILINE)


def _is_script(project: Project, module: Module) -> bool:
    """Whether a file is run rather than imported: no notebook, and no file of the project imports it."""
    if module.source.cells or _CELL.search(module.source.text) or "get_ipython" in module.source.text:
        return False
    return not module.is_package and not is_imported(project, module)


_IMPORT = re.compile(
    rb"^[ \t]*(?:import[ \t]+([\w.]+)|from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*\(?([\w \t,]*))", re.MULTILINE
)


def is_imported(project: Project, module: Module) -> bool:
    """Whether a file of the project imports a module, by name."""
    stem = os.path.splitext(os.path.basename(module.source.file))[0]
    for file in project.mentioning(stem):
        data = project.workspace.read(file) if file != module.source.file else None
        for match in _IMPORT.finditer(data) if data is not None else ():
            plain, dots, origin, names = (os.fsdecode(group or b"") for group in match.groups())
            wanted = [plain or origin, *(f"{origin}.{name}" for name in re.findall(r"\w+", names))]
            if any(_names_file(name, len(dots), file, module.source.file) for name in wanted):
                return True
    return False


def _names_file(name: str, level: int, importer: str, file: str) -> bool:
    """Whether an import of ``name`` in the file ``importer`` can mean ``file``."""
    parts = name.strip(".").split(".")
    if not file.endswith(os.sep + os.path.join(*parts) + ".py"):
        return False
    base = file[: -len(os.path.join(*parts)) - 4]
    folder = os.path.dirname(importer)
    if level:
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        return base == folder
    # A script finds its neighbours; whoever names a package may have any folder above it on its path.
    return base == folder or len(parts) > 1 or folder.startswith(base + os.sep)
