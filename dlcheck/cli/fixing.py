"""Fixes: applied, or shown as a diff."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlcheck.cli.running import complain_of, complain_of_unread, finish, run
from dlcheck.cli.speaking import put
from dlcheck.config import Config
from dlcheck.findings import ReportError

if TYPE_CHECKING:
    from dlcheck.engine import Report


def fix_files(
    paths: Sequence[str],
    config: Config,
    stdin: tuple[str, bytes] | None,
    options: Mapping[str, Any],
    codes: Collection[str] | None = None,
) -> int:
    """Apply fixes, or show what they would change, of the rules in ``codes`` only, if given; the exit status."""
    from dlcheck.engine import UNREADABLE, stdin_file
    from dlcheck.fixing import fix
    from dlcheck.warm import Warm

    warm = Warm()  # a round changes a few files of many

    def check_again(after: Mapping[str, bytes]) -> Report:
        report = run(paths, config, stdin, options, after, warm)
        if codes is not None:
            report.findings = [finding for finding in report.findings if finding.code in (*codes, UNREADABLE)]
        return report

    fixed = fix(check_again, unsafe=options["unsafe_fixes"])
    report = fixed.report
    report.errors += fixed.errors
    if options["diff"]:
        diff = "".join(change.diff() for change in fixed.changes)
        put(_shown_diff(diff) if options["output_file"] is None else diff, options["output_file"])
        return _status(report, bool(fixed.changes), options)
    given = stdin_file(stdin[0]) if stdin is not None else ""
    problems = {change: problem for change in fixed.changes if change.file != given and (problem := change.write())}
    if problems:  # what stands on the disk is not what was meant to
        kept = {change.file: change.after for change in fixed.changes if change.file == given}
        report = run(paths, config, stdin, options, kept)
        report.errors += fixed.errors
    report.errors += [ReportError(change.path, 0, problem) for change, problem in problems.items()]
    report.fixed = fixed.number({change.file for change in problems})
    if stdin is not None:
        sys.stdout.buffer.write(next((one.after for one in fixed.changes if one.file == given), stdin[1]))
        sys.stdout.buffer.flush()
    changed = options["exit_non_zero_on_fix"] and bool(fixed.changes)
    if options["fix_only"]:
        return _status(report, changed, options)
    with contextlib.redirect_stdout(sys.stderr if stdin is not None else sys.stdout):
        status = finish(report, config, options)
    return status or int(changed and not options["exit_zero"])


def _status(report: Report, changed: bool, options: Mapping[str, Any]) -> int:
    """The exit status where no report is given; what went wrong is told."""
    complain_of(report)
    unread = complain_of_unread(report)
    return 2 if report.errors else int((changed or unread) and not options["exit_zero"])


def _shown_diff(diff: str) -> str:
    """A diff as it is where a program reads it, which may apply it; at a terminal without what that would obey."""
    if not diff or not sys.stdout.isatty():
        return diff
    from dlcheck.harmless import printable

    return "".join(printable(line) + "\n" for line in diff.removesuffix("\n").split("\n"))
