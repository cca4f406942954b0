"""What `dlcheck advise` does: it reads the program and gives advice about its loaders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from dlcheck import engine
from dlcheck.advise.advice import Advice, advice
from dlcheck.advise.env import Facts
from dlcheck.advise.known import MachineFacts
from dlcheck.advise.machine import Assumed, in_short, machine_of
from dlcheck.advise.survey import survey
from dlcheck.config import Config, common_folder
from dlcheck.report.common import error_line, unread_line

# The rules about options of loaders and about copies to the device, whose fixes `--diff` shows.
RULES = (
    "DLC101", "DLC102", "DLC103", "DLC104", "DLC105", "DLC106", "DLC107", "DLC108", "DLC110", "DLC112",
    "DLC201", "DLC202", "DLC203", "DLC204", "DLC205", "DLC206", "DLC210",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """``problems`` are lines about what could not be read; ``failed``: nothing could be said because of them."""

    advice: list[Advice]
    machine: MachineFacts
    in_short: str
    problems: tuple[str, ...]
    failed: bool


def advise(paths: Sequence[str], config: Config, facts: Facts, ranks: int | None, target_python: str | None) -> Found:
    """Advice about the loaders of files and folders; raises ConfigError where a configuration file is wrong."""
    report = engine.check(paths, config, with_subjects=True, survey=survey)
    machine = machine_of(facts, Assumed(ranks, _version(target_python)))
    root = None if config.isolated else os.path.abspath(common_folder(paths))
    given = advice(report.surveyed, machine, report.findings, root)
    unread = list(map(unread_line, report.unread))
    problems = [*map(error_line, report.errors), *unread]
    if not given and not problems:
        problems.append(f"no DataLoader is built or used in {', '.join(paths)}")
    failed = bool(report.errors) or bool(unread) and not given
    return Found(given, machine, in_short(facts, machine), tuple(problems), failed)


def _version(text: str | None) -> tuple[int, int] | None:
    major, _, minor = (text or "").partition(".")
    minor = minor.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None
