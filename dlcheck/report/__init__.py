"""What a run found, in the form that a person or a program asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from dlcheck.engine import Report
    from dlcheck.pages import Page

FORMATS: tuple[str, ...] = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")
FOR_PEOPLE: tuple[str, ...] = ("full", "concise")


def inert(text: str, format: str) -> str:  # noqa: A002
    """A report for standard output: where that is a log of GitHub Actions, nothing in it is a command to the runner.

    What programs read says the same as before, and what is in a file needs none of this.
    """
    import os

    if format == "github" or not os.environ.get("GITHUB_ACTIONS"):
        return text
    if format in FOR_PEOPLE:
        from dlcheck.harmless import no_command

        return "\n".join(map(no_command, text.split("\n")))
    return text.replace("##[", "##&#91;" if format == "junit" else "##\\u005b")


def render(
    report: Report,
    format: str,  # noqa: A002
    *,
    pages: Mapping[str, Page],
    color: bool,
    quiet: bool = False,
) -> str:
    """The report as text that ends in a newline.

    ``color`` and ``quiet`` matter to the formats that people read: a quiet report ends with the
    findings.  Under GitHub Actions, ``github`` also appends a table to the step's summary.
    """
    from importlib import import_module

    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}")
    module = import_module(f"dlcheck.report.{'json_' if format == 'json' else format}")
    further = {"quiet": quiet} if format in FOR_PEOPLE else {}
    return cast(str, module.render(report, pages=pages, color=color, **further))
