"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from dlcheck import pages
from dlcheck.config import FAIL_ON, OUTPUT_FORMATS
from dlcheck.findings import CONFIDENCES
from dlcheck.sections import section

Command = TypeVar("Command", bound=Callable[..., Any])


def complete_rule(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    start, comma, word = incomplete.rpartition(",")
    rules = pages.load().values()
    return [start + comma + text for page in rules for text in (page.code, page.name) if text.startswith(word)]


def _listed(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...] | None:
    words = tuple(word.strip() for value in values for word in value.split(",") if word.strip())
    return words or None


def _per_file(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    table: dict[str, tuple[str, ...]] = {}
    for value in values:
        pattern, colon, codes = value.rpartition(":")
        if not colon or not pattern:
            raise click.BadParameter(f"`{value}` is not PATTERN:RULES")
        table[pattern] = (*table.get(pattern, ()), *(code.strip() for code in codes.split(",") if code.strip()))
    return table or None


def _rules_option(name: str, text: str) -> Callable[[Command], Command]:
    return click.option(name, multiple=True, callback=_listed, metavar="RULES", help=text, shell_complete=complete_rule)


def _patterns_option(name: str, text: str) -> Callable[[Command], Command]:
    return click.option(name, multiple=True, callback=_listed, metavar="PATTERNS", help=text)


_CONFIGURING = (
    _rules_option("--select", "Rules to check: codes, prefixes, names or ALL, separated by commas."),
    _rules_option("--extend-select", "Rules to check besides the selected ones."),
    _rules_option("--ignore", "Rules to leave out."),
    _rules_option("--extend-ignore", "Rules to leave out besides the ignored ones."),
    click.option(
        "--per-file-ignores",
        multiple=True,
        callback=_per_file,
        metavar="PATTERN:RULES",
        help="Rules to leave out in the files that a pattern names.",
    ),
    click.option("--min-confidence", type=click.Choice(CONFIDENCES), help="Report nothing less certain.  [medium]"),
    _patterns_option("--exclude", "Files and folders to leave out, instead of the default ones."),
    _patterns_option("--extend-exclude", "Files and folders to leave out besides the excluded ones."),
    click.option(
        "--force-exclude/--no-force-exclude", default=None, help="Leave out excluded files even where they are named."
    ),
    click.option("--target-torch", metavar="VERSION", help="The version of torch that the code is for."),
    click.option("--target-python", metavar="VERSION", help="The version of Python that the code is for."),
    click.option("--baseline", metavar="FILE", help="Known findings, which are not reported."),
    click.option("--isolated", is_flag=True, help="Ignore configuration files, their baseline, and measurements."),
    click.option(
        "--allow-extra-rules",
        is_flag=True,
        help="Load the rules of your own that the configuration names, also when isolated or under pre-commit.",
    ),
)
# The options that stand for keys of the configuration.
configuring = section("Rules and files", *_CONFIGURING)
# The options that say how a report is given, and when it fails.
reporting = section(
    "Report",
    click.option("--fail-on", type=click.Choice(FAIL_ON), help="Exit with 1 from this severity on.  [warning]"),
    click.option("--output-format", type=click.Choice(OUTPUT_FORMATS), help="[full]"),
    click.option("--output-file", type=click.Path(readable=False), help="Write the report to a file."),
    click.option("--statistics", is_flag=True, help="Count the findings of each rule."),
    click.option("--hide-refuted", is_flag=True, help="Leave out findings that measuring on this machine has refuted."),
    click.option(
        "--fail-on-confirmed",
        is_flag=True,
        help="Of the findings that --fail-on names, let only those count that a measurement has confirmed.",
    ),
    click.option("--exit-zero", is_flag=True, help="Exit with 0 whatever is found."),
    click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto", help="[auto]"),
    click.option("--no-cache", is_flag=True, help="Neither read nor write the cache."),
    click.option("-q", "--quiet", is_flag=True, help="Print findings only."),
    click.option("-v", "--verbose", is_flag=True, help="Say what is read, and what is left out."),
)
# The options that change files.
fixing = section(
    "Fixes",
    click.option("--fix", is_flag=True, help="Apply the fixes that are safe."),
    click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: those as well that may change results."),
    click.option("--diff", is_flag=True, help="Show what --fix would change, and write nothing."),
    click.option("--fix-only", is_flag=True, help="Apply fixes, and report nothing of what is left."),
    click.option("--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 where something was fixed."),
)
baselining = section(
    "Baseline",
    click.option("--update-baseline", is_flag=True, help="Write the findings of this run to the baseline."),
    click.option("--prune-baseline", is_flag=True, help="Take out of the baseline what is found no more."),
    click.option(
        "--error-stale-baseline", is_flag=True, help="Exit with 1 where the baseline holds what is found no more."
    ),
)


class _Seconds(click.FloatRange):
    def _describe_range(self) -> str:
        return ""  # that they are positive goes without saying

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        import math

        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"`{value}` is no number of seconds", param, ctx)
        if not 1 <= seconds < math.inf:
            self.fail(f"`{value}`: it takes a second at least, and a number of them", param, ctx)
        return seconds


SECONDS = _Seconds(min=1)
FORM = click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text", help="[text]")
PYTHON = click.option("--python", metavar="PATH", help="The interpreter of the project, which has torch.")

AUDIT = click.option(
    "--audit",
    type=click.Choice(("log", "keep", "deny")),
    default="log",
    help="Files that it writes are put back, and new ones removed; new ones stay; or it may write none.  [log]",
)

_WORKLOAD = section(
    "What is run",
    click.option("--run", metavar="COMMAND", help="Your program: it is measured from inside, and saves nothing."),
    click.option("--extract", is_flag=True, help="Stop it at its loader, and measure the loader alone."),
    click.option("--factory", metavar="MODULE:FUNCTION", help="A function that returns a DataLoader, instead."),
    PYTHON,
    AUDIT,
)
_TIME = section(
    "How long it may take",
    click.option(
        "--budget",
        type=SECONDS,
        default=60.0,
        metavar="SECONDS",
        help="For a finding, and for the A/A of a kind.  [60]",
    ),
    click.option("--total", type=SECONDS, default=600.0, metavar="SECONDS", help="For all findings.  [600]"),
    click.option(
        "--quick", is_flag=True, help="Stop after four rounds, or when --budget is used up: shows large effects only."
    ),
)
_FIGURES = section(
    "What comes of it",
    click.option("--report", type=click.Path(readable=False), help="Write a page with all figures to a file."),
    click.option("--progress", type=click.Choice(("auto", "lines", "json", "none")), default="auto", help="[auto]"),
    click.option("--no-records", is_flag=True, help="Keep nothing in `.dlcheck/measurements`."),
    click.option("--in-ci", is_flag=True, help="Measure although this is CI (`CI=true`), which else runs nothing."),
    click.option("--seed", type=int, default=0, help="Of the order in which things are measured.  [0]"),
)


def given_of(names: Iterable[str]) -> list[str]:
    """Of some options of the running command those that the command line has, as they are written there."""
    found = click.get_current_context().get_parameter_source
    return [name.replace("_", "-") for name in names if found(name) is ParameterSource.COMMANDLINE]


def measuring(command: Command) -> Command:
    """The options of measuring."""
    return _WORKLOAD(_TIME(_FIGURES(command)))


MEASURING_OPTIONS = (
    "run", "extract", "factory", "python", "audit", "budget", "total", "quick", "report", "progress", "no_records",
    "in_ci", "seed",
)  # fmt: skip
MEASURING = ("What is run", "How long it may take", "What comes of it")
