"""What `dlcheck tune` has found out on this machine about a loader of the program, for later advice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dlcheck.advise.known import DatasetFacts, is_amount, with_measured

FOLDER = os.path.join(".dlcheck", "tuning")
SCHEMA = "dlcheck.tuning/1"
_MOST_BYTES = 4 << 20
_TIMED = ("idle-wait", "cpu-spin")  # kinds of step whose seconds are those of the program, or were told


@dataclass(frozen=True, slots=True)
class Tuned:
    """A search: ``chosen`` in words, ``advice`` is "take", "keep" or "perhaps".

    ``workload`` is what it has learnt of the loader, ``step_s`` the seconds of a step, where it knew them.
    """

    id: str
    date: str
    chosen: str
    advice: str
    workload: Mapping[str, Any]
    step_s: float | None

    def applied(self, dataset: DatasetFacts) -> DatasetFacts:
        found = with_measured(dataset, self.workload)
        return replace(found, step_s=self.step_s) if self.step_s is not None else found

    @property
    def words(self) -> str:
        return f"`dlcheck tune` chose {self.chosen} here on {self.date[:10]} ({self.advice}; record {self.id})"


def latest(root: str, file: str, lines: tuple[int, int]) -> Tuned | None:
    """The latest search on this machine for the loader of a file and its lines; what is no record is passed over."""
    fitting = [record for record in _records(root) if _is_about(record, root, file, lines)]
    record = max(fitting, key=lambda one: str(one["date"]), default=None)
    return _tuned(record) if record is not None else None


def _records(root: str) -> Iterator[Mapping[str, Any]]:
    from dlcheck.measure import identity

    folder = os.path.join(root, FOLDER)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return
    here = f"-{identity.fingerprint(identity.identity())}.json"
    for name in names:
        if name.endswith(here):
            try:
                with open(os.path.join(folder, name), "rb") as stream:
                    record = json.loads(stream.read(_MOST_BYTES))
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(record, dict) and record.get("schema") == SCHEMA and isinstance(record.get("date"), str):
                yield record


def _is_about(record: Mapping[str, Any], root: str, file: str, lines: tuple[int, int]) -> bool:
    asked = record.get("asked")
    place = asked.get("loader") if isinstance(asked, Mapping) else None
    name, _, line = place.rpartition(":") if isinstance(place, str) else ("", "", "")
    if not line.isdecimal() or not lines[0] <= int(line) <= lines[1]:
        return False
    return os.path.realpath(os.path.join(root, name)) == os.path.realpath(os.path.join(root, file))


def _tuned(record: Mapping[str, Any]) -> Tuned | None:
    chosen, workload, step = (record.get(name) for name in ("chosen", "workload", "step"))
    if not isinstance(chosen, Mapping) or not isinstance(workload, Mapping):
        return None
    words = f"num_workers={chosen.get('num_workers')}"
    words += f", prefetch_factor={chosen['prefetch_factor']}" if chosen.get("prefetch_factor") else ""
    return Tuned(str(record.get("id")), record["date"], words, str(record.get("advice")), workload, _seconds(step))


def _seconds(step: object) -> float | None:
    if not isinstance(step, Mapping) or step.get("kind") not in _TIMED:
        return None
    seconds = step.get("s")
    return float(seconds) if is_amount(seconds) else None
