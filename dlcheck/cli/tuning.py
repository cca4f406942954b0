"""``dlcheck tune``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from dlcheck import files
from dlcheck.cli.options import AUDIT, PYTHON, SECONDS
from dlcheck.cli.programs import POLICIES, alone, put_back, refuse_page, refuse_to_measure
from dlcheck.cli.settings import refuse_target
from dlcheck.cli.speaking import Fault, complain, say, tell_now
from dlcheck.sections import Sectioned, section

if TYPE_CHECKING:
    from dlcheck.advise.tuning.asking import Settings as Tuned
    from dlcheck.advise.tuning.result import Result
    from dlcheck.measure.meeting import Place


class _Numbers(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Whole numbers with commas between them: ``0,1,2,4``."""

    name = "numbers"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isascii() and word.isdigit() and self._least <= int(word) <= 1024 for word in words):
            self.fail(f"`{value}`: give numbers from {self._least} to 1024, such as {self._least},2,4", param, ctx)
        return tuple(sorted(set(map(int, words))))


_TUNED = section(
    "What is run",
    click.option("--factory", metavar="MODULE:FUNCTION", help="A function that returns a DataLoader."),
    click.option("--run", metavar="COMMAND", help="Your program, whose loader is caught; it saves nothing."),
    click.option("--extract", is_flag=True, help="Do not run its steps: time the loader by itself."),
    click.option("--loader", metavar="FILE:LINE", help="Where the loader is built, if it is not the first to be used."),
    click.option("--step-seconds", type=click.FloatRange(0, 3600), help="A training step, which is waited for."),
    PYTHON,
    AUDIT,
)
_GRID = section(
    "What is tried",
    click.option("--workers", type=_Numbers(0), metavar="0,1,2,4", help="[as the cores allow]"),
    click.option("--prefetch", type=_Numbers(1), metavar="2,4", help="Batches ahead of each worker.  [2,4]"),
    click.option("--pin", type=click.Choice(("auto", "both", "on", "off")), default="auto", help="[auto]"),
    click.option("--start-methods", metavar="fork,spawn", help="[all that the system has]"),
    click.option("--persistent", type=click.Choice(("auto", "on", "off")), default="auto", help="[auto]"),
    click.option("--full", is_flag=True, help="Everything, four times, with all starts: a sweep instead of a search."),
    click.option("--max-memory", type=click.IntRange(1), metavar="MB", help="For a rank and its workers."),
    click.option("--seed", type=int, default=0, help="Of the order in which things are tried.  [0]"),
    click.option("--budget", type=SECONDS, default=180.0, metavar="SECONDS", help="For all of it.  [180]"),
)
_FOUND = section(
    "What comes of it",
    click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text"),
    click.option("--report", type=click.Path(readable=False), help="Write a page with all figures to a file."),
    click.option("--no-records", is_flag=True, help="Keep nothing in `.dlcheck/tuning`."),
    click.option("--in-ci", is_flag=True, help="Search although this is CI (`CI=true`), which else runs nothing."),
    click.option("-q", "--quiet", is_flag=True, help="Say nothing on the way."),
)


@click.command(cls=Sectioned)
@_TUNED
@_GRID
@_FOUND
def tune(**options: Any) -> int:
    """Search for the loader options that are worth having, and prove them against those of now.

    \b
    dlcheck tune --factory data:make_loader
    dlcheck tune --run "python train.py" --budget 300 --report page.html
    torchrun --nproc-per-node 2 -m dlcheck tune --factory data:make_loader

    Nothing is written into your files.
    """
    from dlcheck.measure import meeting

    settings = _tune_settings(options)
    here = meeting.place(os.environ)
    leads = here is None or here.leads
    if here is not None and settings.run and settings.audit != "deny":
        if leads:
            raise Fault(_ONE_BY_ONE)
        return 2
    try:
        with alone((".",), {**options, "run": options["run"] if leads else None}):
            if leads:
                put_back((".",))
            return _tune(settings, here, options)
    except meeting.Lost as error:
        raise Fault(str(error)) from None


# Each rank would put back what it has found itself, which another may have changed by then.
_ONE_BY_ONE = (
    "--run on several ranks cannot put back what they write to the same files: with `--audit deny` the program may "
    "write none, or tune a --factory"
)


def _tune_settings(options: Mapping[str, Any]) -> Tuned:
    """What was asked for, once it is known to make sense."""
    from dlcheck.advise.tuning.asking import Settings
    from dlcheck.advise.tuning.grid import Wanted
    from dlcheck.advise.tuning.setting import METHODS

    if not options["run"] and not options["factory"]:
        raise click.UsageError("give --factory MODULE:FUNCTION or --run COMMAND: a search needs your loader")
    refuse_to_measure(options)
    if options["report"]:
        refuse_target("--report", options["report"], ())
    refuse_page(options)
    if options["loader"] and not options["run"]:
        raise click.UsageError("--loader goes with --run: a factory returns the loader")
    methods = tuple(word.strip() for word in options["start_methods"].split(",")) if options["start_methods"] else None
    for word in methods or ():
        if word not in METHODS:
            raise click.UsageError(f"--start-methods: `{word}` is none of {', '.join(METHODS)}")
    wanted = Wanted(options["workers"], options["prefetch"], options["pin"], methods, options["persistent"])
    return Settings(
        root=os.path.abspath(files.root_of(os.getcwd()) or os.getcwd()),
        loader=_loader_at(options["loader"]) if options["loader"] else None,
        budget_s=options["budget"],
        wanted=wanted,
        step_s=options["step_seconds"],
        most_memory=options["max_memory"] * 1_000_000 if options["max_memory"] else None,
        **{name: options[name] for name in ("factory", "run", "extract", "python", "full", "audit", "seed")},
    )


def _loader_at(text: str) -> tuple[str, int]:
    file, _, line = text.rpartition(":")
    if not file or not (line.isascii() and line.isdigit()):
        raise click.UsageError(f"--loader is FILE:LINE, not `{text}`")
    if not os.path.isfile(file):
        raise Fault(f"{file}: no such file (--loader)")
    return file, int(line)


def _tune(settings: Tuned, here: Place | None, options: Mapping[str, Any]) -> int:
    """Search, or on further ranks do what the first one says."""
    from dlcheck.advise.tuning import result as results
    from dlcheck.advise.tuning import text
    from dlcheck.advise.tuning.asking import Listener
    from dlcheck.advise.tuning.tune import Tuning
    from dlcheck.measure import leftovers
    from dlcheck.measure.session import Unusable

    reports = here is None or here.leads and here.first
    quiet = options["quiet"] or not reports
    shown, clear = _tuning_bar(quiet)

    def line(said: str) -> None:
        if not quiet:
            tell_now(clear, end="")
            complain(said)

    tuning = Tuning(settings, Listener(line, shown), here)
    if here is not None and not here.leads:
        try:
            tuning.follow()
        except KeyboardInterrupt:  # the first rank says it
            return 130
        return 0
    if not quiet:
        _announce_tuning(settings, here)
    try:
        found = tuning.run()
    except Unusable as error:
        raise Fault(str(error)) from None
    finally:
        tell_now(clear, end="")
    if not reports:
        return 0
    for said in leftovers.said_of(found.effects):
        complain(said)
    kept = "" if options["no_records"] else _kept(settings.root, found)
    if options["form"] == "json":
        import json

        say(json.dumps(results.to_json(found), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        say(text.render(found))
        if kept:
            say(f"kept in {files.shown(kept)}")
    if options["report"]:
        _tuning_page(options["report"], found)
    if found.status == "interrupted":
        complain("interrupted: what was found until then is reported")
        return 130
    return 2 if found.choice is None or found.status == "stopped" else 0


def _announce_tuning(settings: Tuned, here: Place | None) -> None:
    """What is about to be run, and how long it can take."""
    steps = "" if settings.extract or settings.step_s is not None else "some steps, then "
    what = f"`{settings.run}`, {steps}stopped at its loader" if settings.run else f"`{settings.factory}`"
    each = f" on each of {here.size} ranks" if here is not None else ""
    policy = f"; {POLICIES[settings.audit]}" if settings.run else ""
    complain(f"runs {what}{each} again and again, for {settings.budget_s:.0f} s at most (--budget){policy}")


def _kept(root: str, found: Result) -> str:
    from dlcheck.advise import tuned
    from dlcheck.advise.tuning import result as results

    if not any(row.ran for row in found.rows):
        return ""
    try:
        return results.save(root, found)
    except OSError as error:
        complain(f"{files.shown(os.path.join(root, tuned.FOLDER))}: it is not kept: {error.strerror or error}")
        return ""


def _tuning_page(file: str, found: Result) -> None:
    from dlcheck import writing
    from dlcheck.advise.tuning import page

    try:
        writing.to_target(file, page.render(found).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise Fault(f"{file}: {error.strerror or error}") from None


def _tuning_bar(quiet: bool) -> tuple[Callable[[Any], None], str]:
    """What shows where a search is, and what clears the line that it is shown on."""
    if quiet or not sys.stderr.isatty():
        return lambda shown: None, ""
    import shutil

    from dlcheck.advise.tuning import progress

    width = shutil.get_terminal_size().columns
    clear = "\r\x1b[K"
    return lambda shown: tell_now(clear + progress.bar(shown, width), end=""), clear
