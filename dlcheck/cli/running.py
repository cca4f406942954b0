"""A run: what is found, less what is known; and its report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dlcheck import files, pages
from dlcheck.cli.speaking import complain, count, put, tell_now, wants_color
from dlcheck.config import Config
from dlcheck.findings import Finding, ReportError

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.warm import Warm


def run(
    paths: Sequence[str],
    config: Config,
    stdin: tuple[str, bytes] | None,
    options: Mapping[str, Any],
    overlays: Mapping[str, bytes] | None = None,
    warm: Warm | None = None,
) -> Report:
    import gc

    from dlcheck import engine

    # Syntax trees hold no cycles: the collector would walk millions of nodes and free none.
    gc.disable()
    report = engine.check(
        paths,
        config,
        stdin=stdin,
        overlays=overlays,
        with_subjects=options["measure"],
        warm=warm,
        cached=not options["no_cache"],
    )
    if options["update_baseline"] and options["prune_baseline"]:
        raise click.UsageError("--update-baseline prunes, too: leave out --prune-baseline")
    wanted = options["update_baseline"] or options["prune_baseline"] or options["error_stale_baseline"]
    if config.baseline is not None:
        _apply_baseline(report, config.baseline, options)
    elif wanted:
        raise click.UsageError("there is no baseline: name it with --baseline or in the configuration")
    return report


def _apply_baseline(report: Report, file: str, options: Mapping[str, Any]) -> None:
    from dlcheck import baseline

    try:
        fresh = options["update_baseline"] and not os.path.exists(file)
        entries = [] if fresh else baseline.read(file)
        split = baseline.split(report.findings, entries, file, report.checked)
        alive = [entry for entry in entries if entry not in split.stale]
        if options["update_baseline"]:
            baseline.write(file, [*alive, *baseline.entries(split.new, file)])
            split = baseline.Split([one for one in split.new if one.code in baseline.NEVER], report.findings, [])
        elif options["prune_baseline"] and split.stale:
            baseline.write(file, alive)
            split = baseline.Split(split.new, split.known, [])
    except baseline.BaselineError as error:
        report.errors.append(ReportError(error.path, 0, error.message))
    else:
        report.findings, report.known, report.stale = split.new, split.known, split.stale


def finish(report: Report, config: Config, options: Mapping[str, Any]) -> int:
    """Print the report; the exit status."""
    if options["hide_refuted"]:
        _hide_refuted(report)
    config_file = files.shown(config.file) if config.file else "none"
    if options["verbose"]:
        complain(f"configuration: {config_file}; {report.files} files; {len(report.known)} findings in the baseline")
    for line in report.warnings:
        complain(f"warning: {line}")
    _write(report, config, options)
    if report.errors:
        return 2
    if report.stale and options.get("error_stale_baseline"):
        complain(f"error: {count(len(report.stale), 'finding')} of the baseline no longer there: --prune-baseline")
        return int(not options["exit_zero"])
    from dlcheck.engine import exceeds

    if options["fail_on_confirmed"] and exceeds(report.findings, config) and not any(map(_measured, report.findings)):
        # Else a folder that nobody committed would look like a success.
        complain("warning: --fail-on-confirmed: no measurement speaks of any finding")
    failed = exceeds(report.findings, config, confirmed=options["fail_on_confirmed"])
    return int(failed and not options["exit_zero"])


def _measured(finding: Finding) -> bool:
    return finding.measurement is not None


def _hide_refuted(report: Report) -> None:
    shown: list[Finding] = []
    for finding in report.findings:
        refuted = finding.measurement is not None and finding.measurement.refutes
        (report.refuted if refuted else shown).append(finding)
    report.findings = shown


def _write(report: Report, config: Config, options: Mapping[str, Any]) -> None:
    from dlcheck.report import FOR_PEOPLE, inert, render

    target, form, statistics = options["output_file"], config.output_format, options["statistics"]
    color = wants_color(options["color"]) if target is None else options["color"] == "always"
    people = form in FOR_PEOPLE
    known = {} if people and not report.findings else pages.load()
    text = render(report, form, pages=known, color=color, quiet=options["quiet"])
    if statistics and people:
        text = _statistics(report)
    elif statistics:
        tell_now(_statistics(report), end="")
    put(inert(text, form) if target is None else text, target)
    if not people or target is not None or statistics:
        complain_of(report)


def _statistics(report: Report) -> str:
    counts: dict[tuple[str, str], int] = {}
    for finding in report.findings:
        rule = (finding.code, finding.rule)
        counts[rule] = counts.get(rule, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    width = max((len(str(count)) for count in counts.values()), default=0)
    return "".join(f"{count:>{width}}  {code}  {name}\n" for (code, name), count in ordered)


def complain_of(report: Report) -> None:
    from dlcheck.report.common import error_line

    for error in report.errors:
        complain(error_line(error))


def complain_of_unread(report: Report) -> bool:
    """Name the files that nothing could be said of, where no report does; whether there are any."""
    from dlcheck.report.common import unread_line

    for finding in report.unread:
        complain(unread_line(finding))
    return bool(report.unread)
