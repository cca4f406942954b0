"""``dlcheck baseline``."""

from __future__ import annotations

import os
from typing import Any

import click

from dlcheck import files
from dlcheck.cli.options import configuring
from dlcheck.cli.running import complain_of, complain_of_unread
from dlcheck.cli.settings import configured, inputs_of, refuse_target
from dlcheck.cli.speaking import Fault, count, tell


@click.command("baseline")
@click.argument("paths", nargs=-1, type=click.Path(readable=False))
@configuring
def baseline_command(paths: tuple[str, ...], **options: Any) -> int:
    """Record the findings of today, so that only new ones are reported.

    The file is the one that --baseline or the configuration names, else .dlcheck-baseline.json.
    """
    from dlcheck import baseline, engine

    paths = paths or (".",)
    config = configured(paths, options)
    file = config.baseline or os.path.join(config.root, baseline.DEFAULT)
    refuse_target("the baseline", file, inputs_of(paths, config))
    report = engine.check(paths, config)
    try:
        known = baseline.read(file) if os.path.exists(file) else []
        split = baseline.split(report.findings, known, file, report.checked)
        alive = [entry for entry in known if entry not in split.stale]
        entries = {*alive, *baseline.entries(report.findings, file)}
        baseline.write(file, entries)
    except baseline.BaselineError as error:
        raise Fault(str(error)) from None
    tell(f"Wrote {count(len(entries), 'finding')} to {files.shown(file)}.")
    if config.baseline is None:
        name = os.path.relpath(file, config.root).replace(os.sep, "/")
        tell(f'To use it, add `baseline = "{name}"` to [tool.dlcheck], or pass `--baseline {files.shown(file)}`.')
    complain_of(report)
    unread = complain_of_unread(report)
    return 2 if report.errors else int(unread)
