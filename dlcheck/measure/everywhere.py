"""A workload on all ranks of a node, as training has it there: their workers compete for the cores.

The first rank says what is started; the others know nothing of findings and plans.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcheck.measure import lockstep, meeting
from dlcheck.measure.children import BLOCK_LIMIT_S, START_LIMIT_S, Child, Host
from dlcheck.measure.lockstep import Lockstep
from dlcheck.measure.machine import System
from dlcheck.measure.record import Evidence
from dlcheck.measure.template import Template
from dlcheck.measure.workload import InChildren, side_by_side

RANKS = "ranks"  # in a record's workload: how many took part, where it was more than one
# Beyond --total: until what has begun is finished, and files are read.  A first rank that has ended is noticed at once.
PATIENCE_S = 2 * (START_LIMIT_S + BLOCK_LIMIT_S)


def suits(template: Template) -> bool:
    """Whether other ranks have a say in what is measured: in how long loading takes, and not in what it holds."""
    return template.loads and not template.device and template.metric.kind != "memory"


@dataclass(frozen=True)
class OnAllRanks:
    """Workers of ours, one for each arm and rank."""

    own: InChildren
    ranks: Lockstep
    one_process: bool = False

    @property
    def evidence(self) -> Evidence:
        return self.own.evidence

    def hosts(self, arms: Sequence[str]) -> Mapping[str, Host]:
        return side_by_side(arms, self._open)

    def _open(self) -> Host:
        own, place = self.own, self.ranks.place
        what = {"python": own.python, "request": dict(own.request), "start_s": own.start_s}
        return self.ranks.open(lambda port: own.start(meeting.among(place, port)), what)


def follow(place: meeting.Place, seed: int, total_s: float) -> None:
    """On a further rank: start and ask what the first one says; raises Lost where it says nothing any more."""
    dice = random.Random(seed + place.local)

    def opened(what: Mapping[str, Any], port: int) -> Child:
        return Child(what["python"], what["request"], dice, meeting.among(place, port), what["start_s"])

    line = meeting.join(place, cpus=System().affinity())
    try:
        lockstep.follow(line, opened, total_s + PATIENCE_S)
    finally:
        line.close()
