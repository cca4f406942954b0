"""The configuration of a run, and the files that it may write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import click

from dlcheck import files, pages
from dlcheck.cli.speaking import Fault, complain
from dlcheck.config import KEYS, OUTPUT_FORMATS, Config, common_folder, load
from dlcheck.findings import ReportError

FORMAT_VARIABLE = "DLCHECK_OUTPUT_FORMAT"

# What is read under its name: configuration, and what a project declares.
READ_BY_NAME = ("dlcheck.toml", "pyproject.toml", "setup.cfg", "requirements*.txt", "requirements*.in", ".gitignore")


def configured(paths: Sequence[str], options: Mapping[str, Any]) -> Config:
    """The configuration for paths, with what the command line says of it; the user's own rules are known then."""
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
    load_extra_rules(config)
    config.rule_options(pages.load() if config.settings.get("rules") else {})
    for line in config.unknown_rules(pages.load):
        complain(f"warning: {line}")
    return config


def load_extra_rules(config: Config) -> list[ReportError]:
    """Make the user's own rules known; what is wrong with them, which a run reports itself."""
    found = []
    for folder in config.extra_rules:
        from dlcheck import extra

        found.append(extra.load(folder))
    return [one for one in found if isinstance(one, ReportError)]


def refuse_to_overwrite(paths: Sequence[str], config: Config, options: Mapping[str, Any]) -> None:
    """Stop before anything is read where a result would take the place of what it is about."""
    report, page = options["output_file"], options["report"]
    if report and page and os.path.realpath(report) == os.path.realpath(page):
        raise click.UsageError(f"--report and --output-file both name {files.shown(page)}: they are two files")
    inputs = inputs_of(paths, config)
    known = [config.baseline] if config.baseline is not None else []
    for name in ("output_file", "report"):
        if options[name] is not None:
            refuse_target(f"--{name.replace('_', '-')}", options[name], [*inputs, *known])
    if config.baseline is not None and (options["update_baseline"] or options["prune_baseline"]):
        refuse_target("the baseline", config.baseline, inputs)


def inputs_of(paths: Sequence[str], config: Config) -> list[str]:
    """Files that are read whatever they are called."""
    return [*paths, *([config.file] if config.file is not None else [])]


def refuse_target(what: str, target: str, inputs: Sequence[str]) -> None:
    """What people have written is never written over: a mistyped command would lose it."""
    if not os.path.isfile(target):
        return
    real = os.path.realpath(target)
    ours = {os.path.realpath(path) for path in inputs}
    named = any(fnmatch(os.path.basename(real), pattern) for pattern in READ_BY_NAME)
    same = any(os.path.exists(path) and os.path.samefile(path, target) for path in inputs)  # by a hard link
    if same or real in ours or real.lower().endswith(files.SUFFIXES) or named:
        raise Fault(f"{what} would overwrite {files.shown(target)}, which is read: name another file")
