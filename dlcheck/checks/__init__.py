"""The checks: one short generator per rule, over the model."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from dlcheck.checks import datasets, loading, sampling, transfer
from dlcheck.checks.registry import RULES, rule
from dlcheck.model.loaders import Loader
from dlcheck.model.loops import NextCall
from dlcheck.model.transfers import Transfer

if TYPE_CHECKING:
    from dlcheck.findings import Finding
    from dlcheck.model import Project

__all__ = ["FAMILIES", "RULES", "rule", "run"]

FAMILIES = (transfer, loading, datasets, sampling)

# The evaluator answers a question by asking others: deep, but bounded by its own limits.
_RECURSION = 5_000


def run(project: Project, codes: Collection[str]) -> list[Finding]:
    """The findings of the rules named by ``codes``, unsorted and not yet suppressed."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        found: list[Finding] = []
        for registered in RULES.values():
            if registered.code in codes:
                for fact in _facts(project, registered.fact):
                    project.evaluator.fresh()
                    found += registered.check(fact)
        return _distinct(found)
    finally:
        sys.setrecursionlimit(limit)


def _facts(project: Project, kind: type) -> Iterable[Loader] | Iterable[Transfer] | Iterable[NextCall]:
    if kind is Loader:
        return project.loaders
    if kind is Transfer:
        return project.transfers
    if kind is NextCall:
        return project.next_calls
    raise TypeError(f"no rule is called with {kind.__name__}")


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
