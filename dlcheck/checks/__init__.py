"""The checks: one short generator per rule, over the model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlcheck.checks import (
    copies,
    datasets,
    frameworks,
    hazards,
    loading,
    memory,
    portability,
    randomness,
    reading,
    samples,
    sampling,
    splits,
    steps,
    transfer,
    workers,
)
from dlcheck.checks.registry import RULES, SOURCES, Rule, facts, rule
from dlcheck.findings import Finding
from dlcheck.model.depth import deep_calls
from dlcheck.model.loaders import Loader
from dlcheck.model.loops import BatchLoop, NextCall, first_rounds
from dlcheck.model.transfers import Transfer

if TYPE_CHECKING:
    from dlcheck.model import Project

__all__ = ["FAMILIES", "RULES", "rule", "run"]

FAMILIES = (
    transfer, copies, loading, workers, hazards, datasets, reading, memory, samples, sampling, splits, randomness,
    steps, portability, frameworks,
)  # fmt: skip

facts(Loader, lambda project: project.loaders)
facts(Transfer, lambda project: project.transfers)
facts(NextCall, lambda project: [*project.next_calls, *first_rounds(project)])
facts(BatchLoop, lambda project: project.loops)


def run(
    project: Project,
    codes: Collection[str],
    failed: Callable[[str, BaseException], None] | None = None,
    describe: Callable[[Any], dict[str, Any]] | None = None,
) -> list[Finding]:
    """The findings of the rules named by ``codes``, unsorted and not yet suppressed.

    ``failed`` is told of a rule of the user's own that raises; the others go on.
    ``describe`` says of what a rule was called with what those who measure its findings need to know.
    """
    with deep_calls():
        found: list[Finding] = []
        known: dict[type, list[Any]] = {}
        for registered in RULES.values():
            if registered.code not in codes:
                continue
            try:
                if registered.fact not in SOURCES:
                    raise TypeError(f"nothing says how each {registered.fact.__name__} is found")
                if registered.fact not in known:
                    known[registered.fact] = list(SOURCES[registered.fact](project))
                for fact in _concerned(project, registered, known[registered.fact]):
                    project.evaluator.fresh()
                    given = registered.check(fact)
                    if not registered.code.startswith("DLC"):
                        given = _only_findings(given)
                    found += given if describe is None else _described(given, fact, describe)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # what a user's rule raises may be anything, SystemExit as well
                if failed is None or registered.code.startswith("DLC"):
                    raise
                failed(registered.code, error)
        return _distinct(found)


def _concerned(project: Project, registered: Rule, known: list[Any]) -> list[Any]:
    """The facts of which a rule may have something to say that was asked for."""
    return [fact for fact in known if project.is_asked(fact.module)] if registered.at_fact else known


def _described(given: Iterable[Finding], fact: Any, describe: Callable[[Any], dict[str, Any]]) -> Iterator[Finding]:
    """Findings with what they are about."""
    findings = list(given)
    subject = describe(fact) if findings else {}
    for finding in findings:
        yield replace(finding, measure={**subject, **finding.measure})


def _only_findings(given: Iterable[Any]) -> Iterator[Finding]:
    """What a rule of the user's own yields, which nobody has checked."""
    for one in given:
        if not isinstance(one, Finding):
            raise TypeError(f"a check yields findings, not {type(one).__name__}")
        yield one


_RANK = {"error": 0, "warning": 1, "info": 2}


def _distinct(findings: list[Finding]) -> list[Finding]:
    """One finding for a rule and a place: several worlds and callers say the same; the gravest speaks."""
    best: dict[object, Finding] = {}
    for finding in findings:
        key = (finding.code, finding.place)
        known = best.get(key)
        if known is None or _RANK[finding.severity] < _RANK[known.severity]:
            best[key] = finding
    return list(best.values())
