"""``dlcheck env`` and ``dlcheck advise``."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from dlcheck import files
from dlcheck.cli.options import FORM, PYTHON, configuring, given_of
from dlcheck.cli.settings import configured
from dlcheck.cli.speaking import Fault, as_json, complain, say
from dlcheck.config import Config, common_folder
from dlcheck.sections import Sectioned

if TYPE_CHECKING:
    from dlcheck.advise.env import Facts


@click.command()
@click.argument("path", default=".", type=click.Path(readable=False))
@FORM
@PYTHON
def env(path: str, form: str, python: str | None) -> None:
    """Show what this machine has for loaders, where each figure comes from, and which limits will bite.

    PATH is where the data lie. What nobody tells is unknown, and null in JSON.
    """
    from dlcheck.advise import render

    if files.is_missing(path):
        raise Fault(f"{path}: {files.MISSING}")
    found = _machine_facts(path, python)
    say(as_json(render.env_as_json(found)) if form == "json" else render.env_as_text(found), end="")


def _machine_facts(path: str, python: str | None) -> Facts:
    from dlcheck.advise import env, interpreter
    from dlcheck.system import System

    folder = common_folder([path])
    known = interpreter.ask(python, files.root_of(folder) or folder)
    if python is not None and known.python is None:
        raise Fault(f"{known.problem}: name the Python of your project with --python")
    return env.facts(System(), os.path.realpath(path), known)


@click.command(cls=Sectioned, elsewhere={"Rules and files": "check"})
@click.argument("paths", nargs=-1, type=click.Path(readable=False))
@configuring
@FORM
@PYTHON
@click.option("--machine", metavar="FILE", help="Another machine, as `dlcheck env --output-format json` told of it.")
@click.option("--data", metavar="PATH", help="Where the data lie.  [the first of PATHS]")
@click.option("--ranks", type=click.IntRange(min=1), help="Processes that train on the machine, each with its workers.")
@click.option(
    "--diff",
    is_flag=True,
    help="Show what --fix --unsafe-fixes would change in loaders and copies, on any machine; write nothing.",
)
def advise(paths: tuple[str, ...], form: str, diff: bool, **options: Any) -> int:
    """Say what to set in each loader on this machine, and why.

    Where only a measurement can tell, it gives the bounds, and the command that measures.
    """
    from dlcheck.advise import command, machine, render

    paths = paths or (".",)
    config = configured(paths, options)
    if diff:
        if others := given_of(("machine", "data", "ranks", "python")):
            raise click.UsageError(f"--diff is what --fix would do on any machine: leave out --{others[0]}")
        return _diff_of_advice(paths, config, form, command.RULES)
    for name in ("data", "python"):
        if options["machine"] and options[name]:
            raise click.UsageError(f"--{name} is about this machine: give it to `dlcheck env` on the other one")
    try:
        told = machine.read(options["machine"]) if options["machine"] else None
    except machine.MachineError as error:
        raise Fault(str(error)) from None
    data = options["data"] or paths[0]
    if files.is_missing(data) and (options["data"] or told is None):
        raise Fault(f"{data}: {files.MISSING}")
    facts = told if told is not None else _machine_facts(data, options["python"])
    found = command.advise(paths, config, facts, options["ranks"], options["target_python"])
    if form == "json":
        say(as_json(render.as_json(found.advice, found.machine)), end="")
    else:
        say(render.as_text(found.advice, found.in_short), end="")
    for line in found.problems:
        complain(line)
    return 2 if found.failed else 0


def _diff_of_advice(paths: Sequence[str], config: Config, form: str, rules: Collection[str]) -> int:
    from dlcheck.cli.fixing import fix_files

    if form != "text":
        raise click.UsageError(f"--diff prints a diff, and no {form}: leave out --output-format {form}")
    off = dict.fromkeys(("update_baseline", "prune_baseline", "error_stale_baseline", "measure", "no_cache"), False)
    return fix_files(
        paths, config, None, {**off, "output_file": None, "exit_zero": False, "diff": True, "unsafe_fixes": True}, rules
    )
