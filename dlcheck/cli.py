"""The command line: the only module that prints or exits."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, time
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dlcheck import __version__, files, pages
from dlcheck.config import (
    FAIL_ON,
    KEYS,
    OUTPUT_FORMATS,
    PRE_COMMIT,
    Config,
    ConfigError,
    common_folder,
    load,
    suggestion,
)
from dlcheck.findings import CONFIDENCES, Finding, ReportError
from dlcheck.sections import Sectioned, section

if TYPE_CHECKING:
    from dlcheck.advise.env import Facts
    from dlcheck.advise.tuning.asking import Settings as Tuned
    from dlcheck.advise.tuning.result import Result
    from dlcheck.engine import Report
    from dlcheck.measure.command import Listener
    from dlcheck.measure.lockstep import Lockstep
    from dlcheck.measure.meeting import Place
    from dlcheck.measure.recording import Settings
    from dlcheck.pages import Page
    from dlcheck.warm import Warm

FORMAT_VARIABLE = "DLCHECK_OUTPUT_FORMAT"

# What is read under its name: configuration, and what a project declares.
READ_BY_NAME = ("dlcheck.toml", "pyproject.toml", "setup.cfg", "requirements*.txt", "requirements*.in", ".gitignore")


class Fault(click.ClickException):
    """Something that stops a run: one line, exit 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        complain(f"error: {self.message}")


def main() -> None:
    """The program ``dlcheck``."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 -- for as long as the process lives
    # Python warns of odd code whenever it reads some: that of others is for rules to judge.
    warnings.simplefilter("ignore", SyntaxWarning)
    for stream in (sys.stdout, sys.stderr):
        # A path or a message that the terminal's encoding lacks must not stop a report.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_status())


def _status() -> int:
    try:
        status = cli.main(prog_name="dlcheck", standalone_mode=False) or 0
        if not sys.stdout.closed:  # the language server has closed it
            sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (ConfigError, pages.PageError) as error:
        complain(f"error: {error}")
        return 2
    except (KeyboardInterrupt, click.Abort):
        complain("interrupted")
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter's own flush at exit must not complain either.
        _discard_output()
        return 141
    except OSError as error:  # the disk that standard output goes to is full, the current folder is gone
        complain(f"error: {error.filename + ': ' if error.filename else ''}{error.strerror or error}")
        _discard_output()
        return 2
    except Exception as error:  # noqa: BLE001 -- a fault of our own exits with 2, never with what means a finding
        from dlcheck.engine import internal_error

        complain(f"error: {internal_error(error)}")
        return 2
    return int(status)


def _show(error: click.ClickException) -> None:
    from dlcheck.harmless import harmless

    text = io.StringIO()
    error.show(text)  # of a Fault nothing is left to be said
    sys.stderr.write("\n".join(map(harmless, text.getvalue().split("\n"))))


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str, *, end: str = "\n") -> None:
    sys.stdout.write(text + end)


def tell(text: str) -> None:
    """A line for people, in which a name or a setting may hold anything."""
    from dlcheck.harmless import harmless

    say(harmless(text))


def complain(text: str) -> None:
    """A line on standard error; a name in it may hold anything, which must not reach a terminal."""
    from dlcheck.harmless import harmless

    sys.stderr.write(f"dlcheck: {harmless(text)}\n")


# The group


class Commands(click.Group):
    """Commands by name; anything else that can be meant for ``check`` goes there."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or self._is_for_check(args[0]):
            args = ["check", *args]
        return super().parse_args(ctx, args)

    def _is_for_check(self, word: str) -> bool:
        if word in self.commands or word in ("-h", "--help", "-V", "--version"):
            return False
        looks_like_a_path = "." in word or "/" in word or os.sep in word
        return word.startswith("-") or looks_like_a_path or os.path.lexists(word)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in self.commands:
            raise click.UsageError(f"no command and no file `{args[0]}`{suggestion(args[0], self.commands)}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="dlcheck %(version)s")
def cli() -> None:
    """Find what is slow, wrong or about to crash in PyTorch input pipelines.

    `dlcheck train.py` is `dlcheck check train.py`; without a path, the current folder is checked.
    """


# Options

Command = TypeVar("Command", bound=Callable[..., Any])


def _complete_rule(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
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
    return click.option(
        name, multiple=True, callback=_listed, metavar="RULES", help=text, shell_complete=_complete_rule
    )


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


_SECONDS = _Seconds(min=1)
_WORKLOAD = section(
    "What is run",
    click.option("--run", metavar="COMMAND", help="Your program: it is measured from inside, and saves nothing."),
    click.option("--extract", is_flag=True, help="Stop it at its loader, and measure the loader alone."),
    click.option("--factory", metavar="MODULE:FUNCTION", help="A function that returns a DataLoader, instead."),
    click.option("--python", metavar="PATH", help="The interpreter of the project, which has torch."),
    click.option(
        "--audit",
        type=click.Choice(("log", "keep", "deny")),
        default="log",
        help="Files that it writes are put back, and new ones removed; new ones stay; or it may write none.  [log]",
    ),
)
_TIME = section(
    "How long it may take",
    click.option(
        "--budget",
        type=_SECONDS,
        default=60.0,
        metavar="SECONDS",
        help="For a finding, and for the A/A of a kind.  [60]",
    ),
    click.option("--total", type=_SECONDS, default=600.0, metavar="SECONDS", help="For all findings.  [600]"),
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


def measuring(command: Command) -> Command:
    """The options of measuring."""
    return _WORKLOAD(_TIME(_FIGURES(command)))


def _load(paths: Sequence[str], options: Mapping[str, Any]) -> Config:
    given = {key: options[name] for key in KEYS if options.get(name := key.replace("-", "_")) is not None}
    origins = {key: f"--{key}" for key in given}
    variable = os.environ.get(FORMAT_VARIABLE)
    if variable and "output-format" not in given:
        if variable not in OUTPUT_FORMATS:
            raise Fault(f"{FORMAT_VARIABLE} must be one of {', '.join(OUTPUT_FORMATS)}, not `{variable}`")
        given["output-format"] = variable
        origins["output-format"] = FORMAT_VARIABLE
    config = load(
        common_folder(paths),
        given,
        isolated=options["isolated"],
        origins=origins,
        allow_extra_rules=options["allow_extra_rules"],
    )
    _load_extra_rules(config)
    config.rule_options(pages.load() if config.settings.get("rules") else {})
    for line in config.unknown_rules(pages.load):
        complain(f"warning: {line}")
    return config


def _load_extra_rules(config: Config) -> list[ReportError]:
    """Make the user's own rules known; what is wrong with them, which a run reports itself."""
    found = []
    for folder in config.extra_rules:
        from dlcheck import extra

        found.append(extra.load(folder))
    return [one for one in found if isinstance(one, ReportError)]


# check


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

_BASELINE = section(
    "Baseline",
    click.option("--update-baseline", is_flag=True, help="Write the findings of this run to the baseline."),
    click.option("--prune-baseline", is_flag=True, help="Take out of the baseline what is found no more."),
    click.option(
        "--error-stale-baseline", is_flag=True, help="Exit with 1 where the baseline holds what is found no more."
    ),
)

MEASURING = ("What is run", "How long it may take", "What comes of it")


@cli.command(cls=Sectioned, elsewhere=dict.fromkeys(MEASURING, "measure"))
@click.argument("paths", nargs=-1, type=click.Path(readable=False))
@configuring
@reporting
@fixing
@_BASELINE
@click.option("--stdin-filename", metavar="PATH", help="The file that standard input (`-`) stands for.")
@click.option("--show-files", is_flag=True, help="List the files that would be checked.")
@click.option("--measure", is_flag=True, help="Measure what is found, as `dlcheck measure` does.")
@measuring
def check(paths: tuple[str, ...], **options: Any) -> int:
    """Check files and folders; `-` reads standard input.

    Exit status: 0 where nothing is found, 1 where something is, 2 for faults of usage, of the
    configuration or of dlcheck itself.
    """
    stdin, paths = _stdin(paths, options["stdin_filename"])
    named = [stdin[0] if path == "-" and stdin and stdin[0] != "-" else path for path in paths]
    if options["fail_on_confirmed"] and options["isolated"]:
        raise click.UsageError("--fail-on-confirmed needs the measurements that --isolated ignores")
    _only_with_measure(options)
    fixes = _wants_fixes(options)
    if options["measure"] and not options["show_files"]:
        return _run_and_measure(paths, named, stdin, options)
    config = _load(named, options)
    _refuse_to_overwrite(named, config, options)
    if options["show_files"]:
        return _show_files(paths, config)
    if fixes:
        return _fix(paths, config, stdin, options)
    return _finish(_run(paths, config, stdin, options), config, options)


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
    for name in ("unsafe_fixes", "exit_non_zero_on_fix"):
        if options[name] and not wanted:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --fix or --diff")
    return bool(wanted)


def _only_with_measure(options: Mapping[str, Any]) -> None:
    given = [name for name in ("run", "extract", "factory", "python", "report", "quick") if options[name]]
    if given and not options["measure"]:
        raise click.UsageError(f"--{given[0]} goes with --measure")


def _refuse_to_overwrite(paths: Sequence[str], config: Config, options: Mapping[str, Any]) -> None:
    """Stop before anything is read where a result would take the place of what it is about."""
    inputs = _inputs(paths, config)
    known = [config.baseline] if config.baseline is not None else []
    for name in ("output_file", "report"):
        if options[name] is not None:
            _refuse_target(f"--{name.replace('_', '-')}", options[name], [*inputs, *known])
    if config.baseline is not None and (options["update_baseline"] or options["prune_baseline"]):
        _refuse_target("the baseline", config.baseline, inputs)


def _inputs(paths: Sequence[str], config: Config) -> list[str]:
    """Files that are read whatever they are called."""
    return [*paths, *([config.file] if config.file is not None else [])]


def _refuse_target(what: str, target: str, inputs: Sequence[str]) -> None:
    """What people have written is never written over: a mistyped command would lose it."""
    if not os.path.isfile(target):
        return
    real = os.path.realpath(target)
    ours = {os.path.realpath(path) for path in inputs}
    named = any(fnmatch(os.path.basename(real), pattern) for pattern in READ_BY_NAME)
    if real in ours or real.lower().endswith(files.SUFFIXES) or named:
        raise Fault(f"{what} would overwrite {files.shown(target)}, which is read: name another file")


def _finish(report: Report, config: Config, options: Mapping[str, Any]) -> int:
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
        complain(f"error: {_count(len(report.stale), 'finding')} of the baseline no longer there: --prune-baseline")
        return 1
    from dlcheck.engine import exceeds

    if options["fail_on_confirmed"] and exceeds(report.findings, config) and not any(map(_measured, report.findings)):
        # Else a folder that nobody committed would look like a success.
        complain("warning: --fail-on-confirmed: no measurement speaks of any finding")
    failed = exceeds(report.findings, config, confirmed=options["fail_on_confirmed"])
    return int(failed and not options["exit_zero"])


# fixes


def _fix(
    paths: Sequence[str],
    config: Config,
    stdin: tuple[str, bytes] | None,
    options: Mapping[str, Any],
    codes: Collection[str] | None = None,
) -> int:
    """Apply fixes, or show what they would change, of the rules in ``codes`` only, if given; the exit status."""
    from dlcheck.engine import stdin_file
    from dlcheck.fixing import fix
    from dlcheck.warm import Warm

    warm = Warm()  # a round changes a few files of many

    def check_again(after: Mapping[str, bytes]) -> Report:
        report = _run(paths, config, stdin, options, after, warm)
        if codes is not None:
            report.findings = [finding for finding in report.findings if finding.code in codes]
        return report

    fixed = fix(check_again, unsafe=options["unsafe_fixes"])
    report = fixed.report
    report.errors += fixed.errors
    if options["diff"]:
        diff = "".join(change.diff() for change in fixed.changes)
        _put(_shown_diff(diff) if options["output_file"] is None else diff, options["output_file"])
        _complain_of(report)
        return 2 if report.errors else int(bool(fixed.changes))
    given = stdin_file(stdin[0]) if stdin is not None else ""
    problems = {change: problem for change in fixed.changes if change.file != given and (problem := change.write())}
    if problems:  # what stands on the disk is not what was meant to
        kept = {change.file: change.after for change in fixed.changes if change.file == given}
        report = _run(paths, config, stdin, options, kept)
        report.errors += fixed.errors
    report.errors += [ReportError(change.path, 0, problem) for change, problem in problems.items()]
    report.fixed = fixed.number({change.file for change in problems})
    if stdin is not None:
        sys.stdout.buffer.write(next((one.after for one in fixed.changes if one.file == given), stdin[1]))
        sys.stdout.buffer.flush()
    if options["fix_only"]:
        _complain_of(report)
        return 2 if report.errors else int(options["exit_non_zero_on_fix"] and bool(fixed.changes))
    with contextlib.redirect_stdout(sys.stderr if stdin is not None else sys.stdout):
        status = _finish(report, config, options)
    return status or int(options["exit_non_zero_on_fix"] and bool(fixed.changes))


def _shown_diff(diff: str) -> str:
    """A diff as it is where a program reads it, which may apply it; at a terminal without what that would obey."""
    if not diff or not sys.stdout.isatty():
        return diff
    from dlcheck.harmless import printable

    return "".join(printable(line) + "\n" for line in diff.removesuffix("\n").split("\n"))


def _complain_of(report: Report) -> None:
    from dlcheck.report.common import error_line

    for error in report.errors:
        complain(error_line(error))


# measure


@cli.command(cls=Sectioned, elsewhere={"Rules and files": "check", "Report": "check"})
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
    return _run_and_measure(paths, paths, None, options)


def _run_and_measure(
    paths: Sequence[str], named: Sequence[str], stdin: tuple[str, bytes] | None, options: Mapping[str, Any]
) -> int:
    """Check files, measure what is found and report it; on further ranks do what the first one says."""
    from dlcheck.measure import meeting

    _refuse_to_measure(options)
    here = meeting.place(os.environ)
    try:
        if here is not None and not here.leads:
            return _follow(here, named, options)
        with _alone(named, options), _with_others(here) as lockstep:
            if here is not None and not here.first:
                return 0  # of several nodes one is measured: that which reports
            config = _load(named, options)
            _refuse_to_overwrite(named, config, options)
            _put_back(named)
            report = _run(paths, config, stdin, options)
            _refuse_page(options)
            interrupted = _measure(report, config, named, options, lockstep)
            status = _finish(report, config, options)
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
        with _alone(paths, {**options, "run": None}):
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
    if report.findings and not options["quiet"]:
        _announce(len(report.findings), settings, lockstep.place.size if lockstep is not None else 1)
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


@contextlib.contextmanager
def _alone(paths: Sequence[str], options: Mapping[str, Any]) -> Iterator[None]:
    """Let nobody come between: another run, or a second Ctrl-C.

    Two programs that run in one project would each take for the user's files what the other has made of them.
    """
    from dlcheck.measure import interruptions, leftovers, program

    with contextlib.ExitStack() as stack:
        stack.enter_context(interruptions.heeded(program.any_open))
        for root in leftovers.roots([os.getcwd(), common_folder(paths)]) if options["run"] else ():
            lock = leftovers.lock(root)
            if not stack.enter_context(lock):
                owner = f" (process {lock.owner()})" if lock.owner() else ""
                raise Fault(f"another `dlcheck measure`{owner} works in {files.shown(root)}: wait until it has ended")
        yield


def _put_back(paths: Sequence[str]) -> None:
    """Finish what a measurement has left that was killed; before any file is read."""
    from dlcheck.measure import interruptions, leftovers

    with interruptions.put_off():
        lines = leftovers.put_back([os.getcwd(), common_folder(paths)])
    for line in lines:
        complain(line)


# What `--run` lets the program do to files.
_POLICIES = {
    "log": "files are put back afterwards, new ones are removed",
    "keep": "files are put back afterwards, new ones stay",
    "deny": "it may write no file",
}


def _announce(number: int, settings: Settings, ranks: int) -> None:
    """What is about to be run, and how long it can take."""
    complain(_what_runs(settings))
    # As much again to time what is written against itself, which findings share that are measured alike.
    most = min(settings.total_s, 2 * number * settings.budget_s)
    each = f"{settings.budget_s:.0f} s for each, as many for its kind to tell noise (what is written, against itself)"
    whole = f"{most:.0f} s and what has begun by then (--budget, --total)"
    where = f" on {ranks} ranks" if ranks > 1 else ""
    complain(f"{_count(number, 'finding')} to measure{where}: {each}; {whole}")


def _what_runs(settings: Settings) -> str:
    if settings.run:
        return f"runs `{settings.run}` up to its loader and some batches; {_POLICIES[settings.audit]}"
    python = f"`{settings.python}`" if settings.python else "the Python of your project"
    if settings.factory:
        return f"runs {python}, which imports and calls `{settings.factory}`; what that does to files is not undone"
    return f"runs {python} with stand-ins of dlcheck's own, and nothing of your program"


def _forbidden(options: Mapping[str, Any]) -> str:
    """Why nothing is to be run here, else nothing."""
    if os.environ.get(PRE_COMMIT):
        return "nothing is measured under pre-commit: a hook must not run your program"
    if os.environ.get("CI", "").lower() not in ("", "0", "false") and not options["in_ci"]:
        return "nothing is measured where CI is set, unless you say so: --in-ci"
    return ""


def _refuse_to_measure(options: Mapping[str, Any]) -> None:
    if why := _forbidden(options):
        raise Fault(why)
    if options["run"] and options["factory"]:
        raise click.UsageError("--run and --factory are two ways to get at the loader: give one")
    if options["extract"] and not options["run"]:
        raise click.UsageError("--extract goes with --run")
    if options["audit"] != "log" and not options["run"]:
        raise click.UsageError("--audit goes with --run: a factory may do to files what it likes")
    if options["factory"] and ":" not in options["factory"]:
        raise click.UsageError(f"--factory is MODULE:FUNCTION, not `{options['factory']}`")
    if options["run"] is not None:
        _refuse_command(options["run"])
    if options["python"] is not None:
        import shutil

        if shutil.which(options["python"]) is None:
            raise Fault(f"{options['python']}: no program to run: name the Python of your project with --python")


def _refuse_page(options: Mapping[str, Any]) -> None:
    if options["report"]:
        try:
            open(options["report"], "ab").close()  # before an hour is spent on what cannot be written
        except OSError as error:
            raise Fault(f"{options['report']}: {error.strerror or error}") from None


def _refuse_command(command: str) -> None:
    import re
    import shlex

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--run: {str(error).lower()} in `{command}`") from None
    if all(re.fullmatch(r"[A-Za-z_]\w*=.*", word, re.DOTALL) for word in words):
        raise click.UsageError("--run is empty: give the command that starts your program")
    reader = shlex.shlex(command, posix=True, punctuation_chars=";<>|&")
    reader.whitespace_split = True
    operator = next((word for word in reader if word and not word.strip(";<>|&")), None)
    if operator is not None:
        plain = not set(command) & set("'\"$`\\")
        whole = f"\"bash -c '{command}'\"" if plain else '"bash FILE", with this in a file'
        raise click.UsageError(f"--run takes one command, and no shell reads its `{operator}`: give --run {whole}")


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
            lambda step: _tell(progress.line_of_json(step)), lambda record: _tell(progress.record_as_json(record))
        )
    if form == "lines" or not sys.stderr.isatty():
        return Listener(
            lambda step: _tell(harmless(progress.text(step))),
            lambda record: _tell(harmless(progress.record_as_text(record))),
        )
    import shutil

    width = shutil.get_terminal_size().columns
    clear = "\r\x1b[K"
    return Listener(
        lambda step: _tell(clear + harmless(progress.bar(step, width)), end=""),
        lambda record: _tell(clear + harmless(progress.record_as_text(record))),
    )


def _tell(text: str, *, end: str = "\n") -> None:
    sys.stderr.write(text + end)
    sys.stderr.flush()


# Parts of a run


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


def _run(
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


def _measured(finding: Finding) -> bool:
    return finding.measurement is not None


def _hide_refuted(report: Report) -> None:
    shown: list[Finding] = []
    for finding in report.findings:
        refuted = finding.measurement is not None and finding.measurement.refutes
        (report.refuted if refuted else shown).append(finding)
    report.findings = shown


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
        sys.stderr.write(_statistics(report))
    _put(inert(text, form) if target is None else text, target)
    if not people or target is not None or statistics:
        _complain_of(report)


def _put(text: str, target: str | None) -> None:
    """Write a report to a file, or to standard output."""
    if target is None:
        say(text, end="")
        return
    from dlcheck import writing

    try:
        writing.to_target(target, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise Fault(f"{target}: {error.strerror or error}") from None


def wants_color(choice: str) -> bool:
    """Whether to colour standard output; click honours neither NO_COLOR nor FORCE_COLOR."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _statistics(report: Report) -> str:
    counts: dict[tuple[str, str], int] = {}
    for finding in report.findings:
        rule = (finding.code, finding.rule)
        counts[rule] = counts.get(rule, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    width = max((len(str(count)) for count in counts.values()), default=0)
    return "".join(f"{count:>{width}}  {code}  {name}\n" for (code, name), count in ordered)


# env, advise

_FORM = click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text", help="[text]")
_PYTHON = click.option("--python", metavar="PATH", help="The interpreter of the project, which has torch.")


@cli.command()
@click.argument("path", default=".", type=click.Path(readable=False))
@_FORM
@_PYTHON
def env(path: str, form: str, python: str | None) -> None:
    """Show what this machine has for loaders, where each figure comes from, and which limits will bite.

    PATH is where the data lie. What nobody tells is unknown, and null in JSON.
    """
    from dlcheck.advise import render

    if files.is_missing(path):
        raise Fault(f"{path}: {files.MISSING}")
    found = _machine_facts(path, python)
    say(_json(render.env_as_json(found)) if form == "json" else render.env_as_text(found), end="")


def _machine_facts(path: str, python: str | None) -> Facts:
    from dlcheck.advise import env, interpreter
    from dlcheck.system import System

    folder = common_folder([path])
    known = interpreter.ask(python, files.root_of(folder) or folder)
    if python is not None and known.python is None:
        raise Fault(f"{known.problem}: name the Python of your project with --python")
    return env.facts(System(), os.path.realpath(path), known)


def _json(document: Mapping[str, Any]) -> str:
    import json

    return json.dumps(document, indent=2) + "\n"


@cli.command(cls=Sectioned, elsewhere={"Rules and files": "check"})
@click.argument("paths", nargs=-1, type=click.Path(readable=False))
@configuring
@_FORM
@_PYTHON
@click.option("--machine", metavar="FILE", help="Another machine, as `dlcheck env --output-format json` told of it.")
@click.option("--data", metavar="PATH", help="Where the data lie.  [the first of PATHS]")
@click.option("--ranks", type=click.IntRange(min=1), help="Processes that train on the machine, each with its workers.")
@click.option("--diff", is_flag=True, help="Show what --fix would change in loaders and copies, and write nothing.")
def advise(paths: tuple[str, ...], form: str, diff: bool, **options: Any) -> int:
    """Say what to set in each loader on this machine, and why.

    Where only a measurement can tell, it gives the bounds, and the command that measures.
    """
    from dlcheck.advise import command, machine, render

    paths = paths or (".",)
    config = _load(paths, options)
    if diff:
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
        say(_json(render.as_json(found.advice, found.machine)), end="")
    else:
        say(render.as_text(found.advice, found.in_short), end="")
    for line in found.problems:
        complain(line)
    return 2 if found.failed else 0


def _diff_of_advice(paths: Sequence[str], config: Config, form: str, rules: Collection[str]) -> int:
    if form != "text":
        raise click.UsageError(f"--diff prints a diff, and no {form}: leave out --output-format {form}")
    off = dict.fromkeys(("update_baseline", "prune_baseline", "error_stale_baseline", "measure", "no_cache"), False)
    return _fix(paths, config, None, {**off, "output_file": None, "diff": True, "unsafe_fixes": True}, rules)


# baseline, config, clean


@cli.command("baseline")
@click.argument("paths", nargs=-1, type=click.Path(readable=False))
@configuring
def baseline_command(paths: tuple[str, ...], **options: Any) -> int:
    """Record the findings of today, so that only new ones are reported.

    The file is the one that --baseline or the configuration names, else .dlcheck-baseline.json.
    """
    from dlcheck import baseline, engine
    from dlcheck.report.common import error_line

    paths = paths or (".",)
    config = _load(paths, options)
    file = config.baseline or os.path.join(config.root, baseline.DEFAULT)
    _refuse_target("the baseline", file, _inputs(paths, config))
    report = engine.check(paths, config)
    try:
        known = baseline.read(file) if os.path.exists(file) else []
        split = baseline.split(report.findings, known, file, report.checked)
        alive = [entry for entry in known if entry not in split.stale]
        entries = {*alive, *baseline.entries(report.findings, file)}
        baseline.write(file, entries)
    except baseline.BaselineError as error:
        raise Fault(str(error)) from None
    tell(f"Wrote {_count(len(entries), 'finding')} to {files.shown(file)}.")
    if config.baseline is None:
        name = os.path.relpath(file, config.root).replace(os.sep, "/")
        tell(f'To use it, add `baseline = "{name}"` to [tool.dlcheck], or pass `--baseline {files.shown(file)}`.')
    for fault in report.errors:
        complain(error_line(fault))
    return 2 if report.errors else 0


@cli.command("config")
@click.argument("path", default=".", type=click.Path(readable=False))
@configuring
@click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text")
def config_command(path: str, form: str, **options: Any) -> None:
    """Show the configuration that is in force for a file or folder, and where each setting comes from."""
    if files.is_missing(path):
        raise Fault(f"{path}: {files.MISSING}")
    config = _load([path], options)
    root = files.root_of(common_folder([path])) or config.root
    rows = {key: config.setting(key) for key in KEYS}
    codes = sorted(config.codes(pages.load()))
    targets = {what: config.target(root, what) for what in ("torch", "python")}
    if form == "json":
        import json

        table = {key: {"value": row.value, "origin": row.origin} for key, row in rows.items()}
        versions = {what: {"declared": told.text or None, "origin": told.origin} for what, told in targets.items()}
        whole = {"file": config.file and files.shown(config.file), "settings": table, "rules": codes}
        say(json.dumps({**whole, "targets": versions}, indent=2, default=str))  # TOML has dates, JSON has none
        return
    tell(f"file: {files.shown(config.file) if config.file else 'none'}")
    tell(f"project: {files.shown(root)}")
    for key, row in rows.items():
        if row.value is not None:
            tell(f"{key} = {_toml_value(row.value)}  # {row.origin}")
    for what, told in targets.items():
        tell(f"{what}: {told.text or ('current' if what == 'torch' else 'any')}  # {told.origin}")
    say(f"rules: {' '.join(codes) or 'none'}")


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (date, time)):  # also of an option of a rule of the user's own
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_value(key)} = {_toml_value(item)}" for key, item in value.items()) + " }"
    return "[" + ", ".join(_toml_value(item) for item in value) + "]"


@cli.command()
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False))
def clean(path: str) -> None:
    """Delete the cache of a project."""
    from dlcheck.cache import FOLDER, is_ours

    folder = os.path.abspath(path)
    cache = os.path.join(files.root_of(folder) or folder, FOLDER)
    if not is_ours(cache):
        say("Nothing to delete.")
        return
    import shutil

    try:
        shutil.rmtree(cache)
    except OSError as error:
        raise Fault(f"{files.shown(cache)}: {error.strerror or error}") from None
    tell(f"Deleted {files.shown(cache)}.")


# Rules


def _page(word: str) -> Page:
    word = f"DLC{word}" if word.isdigit() else word
    page = pages.find(word)
    if page is None:
        _own_rules()
        page = pages.find(word)
    if page is None:
        known = pages.load()
        words = [*known, *(page.name for page in known.values())]
        raise Fault(f"there is no rule `{word}`{suggestion(word, words)}")
    return page


def _own_rules() -> None:
    """Make the rules known that the configuration of the current folder names."""
    for problem in _load_extra_rules(load()):
        complain(f"warning: {problem.path}: {problem.message}")


@cli.command()
@click.argument("rule", metavar="CODE_OR_NAME", shell_complete=_complete_rule)
@click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text")
def rule(rule: str, form: str) -> None:
    """Show the page of a rule."""
    page = _page(rule)
    if form == "json":
        import json

        say(json.dumps(page.as_json(), indent=2, default=str))  # TOML has dates, JSON has none
        return
    by_default = "on by default" if page.default else "off by default"
    fix = "no fix" if page.fix == "none" else f"{page.fix} fix"
    say(f"# {page.name} ({page.code})\n")
    say(f"{page.summary}.\n")
    say(f"{page.severity}, {page.confidence} confidence, {by_default}, {fix}, since {page.since}\n")
    say(page.documentation, end="")
    if page.options:
        say(f"\n## Options\n\nIn `[tool.dlcheck.rules.{page.code}]`:\n")
        for option in page.options.values():
            say(f"- `{option.name}` (default {option.default!r}): {option.help}")
    if page.references:
        say("\n## References\n")
        say("\n".join(f"- {reference}" for reference in page.references))


@cli.command()
@click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text")
def rules(form: str) -> None:
    """List all rules."""
    _own_rules()
    known = pages.load().values()
    if form == "json":
        import json

        rows = [{key: value for key, value in page.as_json().items() if key != "documentation"} for page in known]
        say(json.dumps(rows, indent=2, default=str))
        return
    table = [("code", "name", "severity", "default", "fix", "summary")]
    for page in known:
        default = "on" if page.default else "off"
        table.append((page.code, page.name, page.severity, default, page.fix, page.summary))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@cli.command()
def lsp() -> None:
    """Speak the language server protocol on standard input and output, for editors.

    It needs pygls: `pip install "dlcheck[lsp]"`.
    """
    from dlcheck.lsp import serve

    try:
        serve()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise Fault('the language server needs pygls: `pip install "dlcheck[lsp]"`') from None


@cli.command("new-rule")
@click.argument("code")
@click.argument("name")
@click.option(
    "--directory", type=click.Path(file_okay=False), help="The folder of the pages; made where it is missing."
)
def new_rule(code: str, name: str, directory: str | None) -> None:
    """Write the stub of a rule's page, and say where its check goes."""
    import errno

    from dlcheck import writing

    if not pages.is_code(code):
        raise click.BadParameter(f"`{code}` is not three capitals and three digits")
    if not pages.is_name(name):
        raise click.BadParameter(f"`{name}` is not words joined by hyphens")
    taken = pages.find(code) or pages.find(name)
    if taken is not None:
        raise Fault(f"{taken.code} is {taken.name}")
    if directory is None and not code.startswith("DLC"):
        raise click.BadParameter(f"`{code}` is no code of dlcheck's own: say with --directory where your rules lie")
    folder = directory or str(pages.folder())
    file = os.path.join(folder, f"{code}-{name}.md")
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.lexists(file):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        writing.replace(file, pages.stub(code, name, __version__).encode())
    except OSError as error:
        raise Fault(f"{files.shown(file)}: {error.strerror or error}") from None
    say(f"Wrote {files.shown(file)}.")
    if not code.startswith("DLC"):
        say(f'Write its check in {files.shown(os.path.join(folder, "checks.py"))}, under @rule("{code}").')
        return
    say(f'Write its check in dlcheck/checks/, under @rule("{code}"); the tests are the blocks of the page:')
    say(f"    pytest tests/test_pages.py -k {code}")


# tune


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
    click.option("--python", metavar="PATH", help="The interpreter of the project, which has torch."),
    click.option(
        "--audit",
        type=click.Choice(("log", "keep", "deny")),
        default="log",
        help="Files that the program writes are put back, and new ones removed; new ones stay; or it may write none.",
    ),
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
    click.option("--budget", type=_SECONDS, default=180.0, metavar="SECONDS", help="For all of it.  [180]"),
)
_FOUND = section(
    "What comes of it",
    click.option("--output-format", "form", type=click.Choice(("text", "json")), default="text"),
    click.option("--report", type=click.Path(readable=False), help="Write a page with all figures to a file."),
    click.option("--no-records", is_flag=True, help="Keep nothing in `.dlcheck/tuning`."),
    click.option("--in-ci", is_flag=True, help="Search although this is CI (`CI=true`), which else runs nothing."),
    click.option("-q", "--quiet", is_flag=True, help="Say nothing on the way."),
)


@cli.command(cls=Sectioned)
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
        with _alone((".",), {**options, "run": options["run"] if leads else None}):
            if leads:
                _put_back((".",))
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
    _refuse_to_measure(options)
    _refuse_page(options)
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
            _tell(clear, end="")
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
        _tell(clear, end="")
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
    policy = f"; {_POLICIES[settings.audit]}" if settings.run else ""
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
    from dlcheck.advise.tuning import page

    try:
        with open(file, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            stream.write(page.render(found))
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
    return lambda shown: _tell(clear + progress.bar(shown, width), end=""), clear
