"""``dlcheck measure``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dlcheck import files, pages
from dlcheck.cli.options import configuring, measuring, reporting
from dlcheck.cli.programs import POLICIES, alone, put_back, refuse_page, refuse_to_measure
from dlcheck.cli.running import finish, run
from dlcheck.cli.settings import configured, refuse_to_overwrite
from dlcheck.cli.speaking import Fault, complain, count, tell_now
from dlcheck.config import Config, common_folder
from dlcheck.findings import ReportError
from dlcheck.sections import Sectioned

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.measure.command import Listener
    from dlcheck.measure.lockstep import Lockstep
    from dlcheck.measure.meeting import Place
    from dlcheck.measure.recording import Settings


@click.command(cls=Sectioned, elsewhere={"Rules and files": "check", "Report": "check"})
@click.argument("paths", nargs=-1, type=click.Path(readable=False))
@measuring
@configuring
@reporting
def measure(paths: tuple[str, ...], **options: Any) -> int:
    """Confirm each finding by running it: as it is written, against what is suggested.

    \b
    dlcheck measure train.py --run "python train.py --epochs 1"
    dlcheck measure train.py --factory data:make_loader --report page.html
    dlcheck measure . --quick
    torchrun --nproc-per-node 2 -m dlcheck measure . --factory data:make_loader

    Without --run or --factory a stand-in is measured, which shows what a fault costs, and not what it
    costs you.
    """
    off = {"update_baseline": False, "prune_baseline": False, "error_stale_baseline": False, "measure": True}
    options = {**options, **off}
    paths = paths or (".",)
    return run_and_measure(paths, paths, None, options)


def run_and_measure(
    paths: Sequence[str], named: Sequence[str], stdin: tuple[str, bytes] | None, options: Mapping[str, Any]
) -> int:
    """Check files, measure what is found and report it; on further ranks do what the first one says."""
    from dlcheck.measure import meeting

    refuse_to_measure(options)
    here = meeting.place(os.environ)
    try:
        if here is not None and not here.leads:
            return _follow(here, named, options)
        with alone(named, options), _with_others(here) as lockstep:
            if here is not None and not here.first:
                return 0  # of several nodes one is measured: that which reports
            config = configured(named, options)
            refuse_to_overwrite(named, config, options)
            put_back(named)
            report = run(paths, config, stdin, options)
            refuse_page(options)
            interrupted = _measure(report, config, named, options, lockstep)
            status = finish(report, config, options)
    except meeting.Lost as error:
        raise Fault(str(error)) from None
    return 130 if interrupted else status


@contextlib.contextmanager
def _with_others(here: Place | None) -> Iterator[Lockstep | None]:
    """The other ranks of this node, who end when this is over."""
    if here is None:
        yield None
        return
    from dlcheck.measure import meeting
    from dlcheck.measure.lockstep import Lockstep

    with meeting.Leader(here) as leader:
        yield Lockstep(leader)


def _follow(here: Place, paths: Sequence[str], options: Mapping[str, Any]) -> int:
    """What a further rank does, without a word."""
    from dlcheck.measure import everywhere

    try:
        with alone(paths, {**options, "run": None}):
            everywhere.follow(here, options["seed"], options["total"])
    except KeyboardInterrupt:  # the first rank says it
        return 130
    return 0


def _measure(
    report: Report, config: Config, paths: Sequence[str], options: Mapping[str, Any], lockstep: Lockstep | None
) -> bool:
    """Measure the findings of a report, and let them say what came out; whether it was interrupted."""
    from dlcheck.measure import command, leftovers
    from dlcheck.measure.recording import Settings
    from dlcheck.measure.session import Unusable

    names = ("python", "run", "extract", "factory", "quick", "audit", "seed")
    settings = Settings(
        root=os.path.abspath(common_folder(paths)),
        budget_s=options["budget"],
        total_s=options["total"],
        **{name: options[name] for name in names},
    )
    if not options["quiet"]:
        if report.findings:
            _announce(len(report.findings), settings, lockstep.place.size if lockstep is not None else 1)
        elif not report.errors:
            complain(f"nothing to measure: no finding in {_named(paths)}")
    listener = _listener(options)
    try:
        found = command.measure(report.findings, settings, listener, keep=not options["no_records"], lockstep=lockstep)
    except Unusable as error:
        raise Fault(str(error)) from None
    if not options["no_records"]:
        everything = [*report.findings, *report.known]
        command.forget(everything, report.checked, config.codes(pages.load()), found)
    report.findings = command.attached(report.findings, found)
    report.warnings += found.problems
    if command.measured_nothing(found) and (given := _program(options)):
        report.errors.append(ReportError("", 0, f"nothing could be measured with `{given}`"))
    if options["report"]:
        try:
            command.write_page(options["report"], found)
        except OSError as error:
            raise Fault(f"{options['report']}: {error.strerror or error}") from None
    for line in leftovers.said_of(found.effects):
        complain(line)
    if found.interrupted:
        complain("interrupted: what was measured until then is kept")
    return found.interrupted


def _program(options: Mapping[str, Any]) -> str:
    """What was named to be run."""
    return next((f"--{name} {options[name]}" for name in ("run", "factory") if options[name]), "")


def _named(paths: Sequence[str]) -> str:
    """What was named, and what else could be: a program's findings mostly stand in the files that it imports."""
    named = files.shown(paths[0]) if len(paths) == 1 else "what was named"
    return named if any(map(os.path.isdir, paths)) else f"{named}; `dlcheck measure .` takes in the other files"


def _announce(number: int, settings: Settings, ranks: int) -> None:
    """What is about to be run, and how long it can take."""
    complain(_what_runs(settings))
    # As much again to time what is written against itself, which findings share that are measured alike.
    most = min(settings.total_s, 2 * number * settings.budget_s)
    each = f"{settings.budget_s:.0f} s for each, as many for its kind to tell noise (what is written, against itself)"
    whole = f"{most:.0f} s and what has begun by then (--budget, --total)"
    where = f" on {ranks} ranks" if ranks > 1 else ""
    complain(f"{count(number, 'finding')} to measure{where}: {each}; {whole}")


def _what_runs(settings: Settings) -> str:
    if settings.run:
        return f"runs `{settings.run}` up to its loader and some batches; {POLICIES[settings.audit]}"
    python = f"`{settings.python}`" if settings.python else "the Python of your project"
    if settings.factory:
        return f"runs {python}, which imports and calls `{settings.factory}`; what that does to files is not undone"
    return f"runs {python} with stand-ins of dlcheck's own, and nothing of your program"


def _listener(options: Mapping[str, Any]) -> Listener:
    """Progress on standard error: one line that changes where that is a terminal, else a line each time."""
    from dlcheck.harmless import harmless
    from dlcheck.measure import progress
    from dlcheck.measure.command import Listener

    form = options["progress"]
    if options["quiet"] or form == "none":
        return Listener(lambda step: None, lambda record: None)
    if form == "json":
        return Listener(
            lambda step: tell_now(progress.line_of_json(step)), lambda record: tell_now(progress.record_as_json(record))
        )
    if form == "lines" or not sys.stderr.isatty():
        return Listener(
            lambda step: tell_now(harmless(progress.text(step))),
            lambda record: tell_now(harmless(progress.record_as_text(record))),
        )
    import shutil

    width = shutil.get_terminal_size().columns
    clear = "\r\x1b[K"
    return Listener(
        lambda step: tell_now(clear + harmless(progress.bar(step, width)), end=""),
        lambda record: tell_now(clear + harmless(progress.record_as_text(record))),
    )
