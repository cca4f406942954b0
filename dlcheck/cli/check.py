"""``dlcheck check``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dlcheck import files
from dlcheck.cli.options import (
    MEASURING,
    MEASURING_OPTIONS,
    baselining,
    configuring,
    fixing,
    given_of,
    measuring,
    reporting,
)
from dlcheck.cli.running import finish, run
from dlcheck.cli.settings import configured, refuse_to_overwrite
from dlcheck.cli.speaking import Fault, complain, tell
from dlcheck.config import Config
from dlcheck.sections import Sectioned


@click.command(cls=Sectioned, elsewhere=dict.fromkeys(MEASURING, "measure"))
@click.argument("paths", nargs=-1, type=click.Path(readable=False))
@configuring
@reporting
@fixing
@baselining
@click.option("--stdin-filename", metavar="PATH", help="The file that standard input (`-`) stands for.")
@click.option("--show-files", is_flag=True, help="List the files that would be checked.")
@click.option("--measure", is_flag=True, help="Measure what is found, as `dlcheck measure` does.")
@measuring
def check(paths: tuple[str, ...], **options: Any) -> int:
    """Check files and folders; `-` reads standard input.

    Exit status: 1 where something of severity warning or error is found (--fail-on moves the line), 2 for faults
    of usage, of the configuration or of dlcheck itself, else 0.
    """
    stdin, paths = _stdin(paths, options["stdin_filename"])
    named = [stdin[0] if path == "-" and stdin and stdin[0] != "-" else path for path in paths]
    if options["fail_on_confirmed"] and options["isolated"]:
        raise click.UsageError("--fail-on-confirmed needs the measurements that --isolated ignores")
    _only_with_measure(options)
    if options["show_files"] and (others := given_of(_NOT_WITH_FILES)):
        raise click.UsageError(f"--show-files checks nothing: leave out --{others[0]}")
    fixes = _wants_fixes(options)
    if options["measure"]:
        from dlcheck.cli.measuring import run_and_measure

        return run_and_measure(paths, named, stdin, options)
    config = configured(named, options)
    refuse_to_overwrite(named, config, options)
    if options["show_files"]:
        return _show_files(paths, config)
    if fixes:
        from dlcheck.cli.fixing import fix_files

        return fix_files(paths, config, stdin, options)
    return finish(run(paths, config, stdin, options), config, options)


_NOT_WITH_FILES = ("output_file", "fix", "fix_only", "diff", "measure", "update_baseline", "prune_baseline")


def _wants_fixes(options: Mapping[str, Any]) -> bool:
    """Whether files are to be changed, or a change to be shown."""
    from dlcheck.report import FOR_PEOPLE

    wanted = options["fix"] or options["fix_only"] or options["diff"]
    form = options["output_format"]
    if options["diff"] and form is not None and form not in FOR_PEOPLE:
        raise click.UsageError(f"--diff prints a diff, and no {form}: leave out --output-format {form}")
    if wanted and options["measure"]:
        raise click.UsageError("--fix and --measure do not go together: measure first what is found")
    for name in ("update_baseline", "prune_baseline"):
        if wanted and options[name]:
            raise click.UsageError(f"--fix and --{name.replace('_', '-')} do not go together: one after the other")
    if (options["diff"] or options["fix_only"]) and options["statistics"]:
        raise click.UsageError("--statistics goes with a report, which --diff and --fix-only do not give")
    if options["fix_only"] and not options["diff"] and options["output_file"]:
        raise click.UsageError("--output-file goes with a report, which --fix-only does not give")
    for name in ("unsafe_fixes", "exit_non_zero_on_fix"):
        if options[name] and not wanted:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --fix or --diff")
    return bool(wanted)


def _only_with_measure(options: Mapping[str, Any]) -> None:
    given = given_of(MEASURING_OPTIONS)
    if given and not options["measure"]:
        raise click.UsageError(f"--{given[0]} goes with --measure")


def _stdin(paths: tuple[str, ...], name: str | None) -> tuple[tuple[str, bytes] | None, tuple[str, ...]]:
    if name is not None and not paths:
        paths = ("-",)
    if "-" not in paths:
        if name is not None:
            raise click.UsageError("--stdin-filename goes with `-`")
        return None, paths or (".",)
    if sys.stdin is None:
        raise Fault("standard input is closed")
    return (name or "-", sys.stdin.buffer.read()), paths


def _show_files(paths: Sequence[str], config: Config) -> int:
    from dlcheck.engine import discover

    lost = sorted({path for path in paths if path != "-" and files.is_missing(path)})
    for named in discover([path for path in paths if path != "-" and path not in lost], config):
        if named.problem:
            complain(f"{files.shown(named.file)}: {named.problem}")
        else:
            tell(files.shown(named.file))
    for path in lost:
        complain(f"error: {path}: {files.MISSING}")
    return 2 if lost else 0
