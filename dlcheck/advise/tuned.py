"""What `dlcheck tune` has found out on this machine about a loader of the program, for later advice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dlcheck.advise.known import DatasetFacts

FOLDER = os.path.join(".dlcheck", "tuning")
SCHEMA = "dlcheck.tuning/1"
_MOST_BYTES = 4 << 20
# Of the workload of a record what is a fact of the dataset, by its name there.
_FACTS: dict[str, tuple[str, type]] = {
    "batch_size": ("batch_size", int),
    "sample_bytes": ("sample_bytes", int),
    "size": ("samples", int),
    "cpu_s": ("cpu_s", float),
    "wait_s": ("wait_s", float),
}
_TIMED = ("idle-wait", "cpu-spin")  # kinds of step whose seconds are those of the program, or were told


@dataclass(frozen=True, slots=True)
class Tuned:
    """A search: ``chosen`` in words, ``advice`` is "take", "keep" or "perhaps"; ``facts`` are of the dataset."""

    id: str
    date: str
    chosen: str
    advice: str
    facts: Mapping[str, Any]

    def applied(self, dataset: DatasetFacts) -> DatasetFacts:
        return replace(dataset, **self.facts)

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
    facts: dict[str, Any] = {}
    for name, (ours, kind) in _FACTS.items():
        value = workload.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
            facts[ours] = kind(value)
    if isinstance(step, Mapping) and step.get("kind") in _TIMED and isinstance(step.get("s"), (int, float)):
        facts["step_s"] = float(step["s"])
    words = f"num_workers={chosen.get('num_workers')}"
    words += f", prefetch_factor={chosen['prefetch_factor']}" if chosen.get("prefetch_factor") else ""
    return Tuned(str(record.get("id")), record["date"], words, str(record.get("advice")), facts)
