"""What is run: the user's program stopped at its loader, the user's factory, or a stand-in, the nearest to hand.

``evidence`` says which, in the record and beside the verdict: a stand-in shows a mechanism, and only
the program shows what it is worth there.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dlcheck.measure import program
from dlcheck.measure.children import START_LIMIT_S, Child, Failed, Host, failed
from dlcheck.measure.record import Block, Evidence
from dlcheck.measure.runner import AGAIN, REPLAY, Config, Fed
from dlcheck.measure.template import AT_MOST, STEPS, Gauge


class Workload(Protocol):
    """Starts what holds the arms of a round."""

    @property
    def evidence(self) -> Evidence: ...

    @property
    def one_process(self) -> bool:
        """Whether all arms live in the same process."""
        ...

    def hosts(self, arms: Sequence[str]) -> Mapping[str, Host]:
        """A host for each arm, which the caller closes; raises Failed."""
        ...


@dataclass(frozen=True)
class InChildren:
    """Workers of ours, one for each arm: with the user's factory, or with a stand-in."""

    python: str
    request: Mapping[str, Any]
    dice: random.Random
    evidence: Evidence
    one_process: bool = False
    start_s: float = START_LIMIT_S
    ranks: Callable[[], Mapping[str, str]] = dict  # what the environment says of them, anew for each

    def hosts(self, arms: Sequence[str]) -> Mapping[str, Host]:
        return side_by_side(arms, lambda: self.start(self.ranks()))

    def start(self, ranks: Mapping[str, str]) -> Child:
        return Child(self.python, self.request, self.dice, ranks, self.start_s)


def side_by_side(arms: Sequence[str], start: Callable[[], Host]) -> Mapping[str, Host]:
    """A host for each arm, all of them ready; none is left where one fails."""
    started: dict[str, Host] = {}
    try:
        for arm in arms:
            started[arm] = start()
        for host in started.values():
            _ = host.ready
    except BaseException:
        for host in started.values():
            host.close()
        raise
    return started


def stand_in(python: str, dataset: Mapping[str, Any], dice: random.Random, seed: int) -> InChildren:
    return InChildren(python, {"dataset": dict(dataset), "loader": {}, "seed": seed}, dice, "synthetic")


@dataclass(frozen=True)
class OnDevice:
    """One worker that holds all arms: a context on the device costs seconds."""

    python: str
    request: Mapping[str, Any]
    dice: random.Random
    evidence: Evidence = "synthetic"
    one_process: bool = True

    def hosts(self, arms: Sequence[str]) -> Mapping[str, Host]:
        return dict.fromkeys(arms, Child(self.python, self.request, self.dice))


def on_device(python: str, experiment: str, arms: Mapping[str, Config], dice: random.Random, seed: int) -> OnDevice:
    settings = {arm: _settings(config) for arm, config in arms.items()}
    return OnDevice(python, {"experiment": experiment, "arms": settings, "seed": seed}, dice)


def _settings(config: Config) -> dict[str, Any]:
    """What an arm is on the device; how it is made in the user's own program is not part of it."""
    return {name: value for name, value in config.items() if name not in ("patch", "loader")}


def factory(
    python: str, name: str, folder: str, dice: random.Random, seed: int | None, start_s: float = START_LIMIT_S
) -> InChildren:
    request = {"factory": name, "folder": folder, "seed": seed}
    return InChildren(python, request, dice, "factory", start_s=start_s)


@dataclass(frozen=True)
class Command:
    """The user's program, as it was given, and the loader in it."""

    line: str
    loader: Mapping[str, Any] | None  # its construction, as the model describes it
    place: Mapping[str, Any]  # of the finding: what is patched there is no option of the loader
    audit: str
    environment: Mapping[str, str] = field(repr=False)
    on_effects: program.OnEffects = field(default=lambda told: None, repr=False)

    def spec(self, mode: str) -> dict[str, Any]:
        """What the shim is told."""
        site = dict(self.loader) if self.loader else None
        if site is not None and "file" in site:
            site["file"] = os.path.abspath(site["file"])
        return {"mode": mode, "site": site, "audit": self.audit}


@dataclass(frozen=True)
class AtItsLoader:
    """The user's program, run anew for each round and stopped where it first iterates the loader."""

    command: Command
    set_up_s: float
    evidence: Evidence = "extract"
    one_process: bool = True

    def hosts(self, arms: Sequence[str]) -> Mapping[str, Host]:
        return dict.fromkeys(arms, self.stopped())

    def stopped(self) -> program.Extracted:
        """The program at its loader; raises Failed, in one sentence, where it does not come there."""
        command = self.command
        spec = command.spec("extract")
        env, heard = command.environment, command.on_effects
        return program.extract(command.line, spec, env=env, set_up_s=self.set_up_s, on_effects=heard)


REPLAYED = 4  # batches: fewer would stay in the caches
# Batches that are timed before the other arm is on.  After a switch what the one arm's steps have left in memory is
# let go, and what the other's need is taken.
SEGMENTS: Mapping[Gauge, Mapping[str, int]] = {
    "": {"batches": 20},
    "memory": {"batches": 50, "skip": 10},
    "statement": {"batches": 41},
}
LEAST = 1 << 16  # bytes: less than this any program adds by itself


@dataclass(frozen=True)
class InItsLoop:
    """The user's program, whose own loop is fed from the arms in turn and stopped after some segments of each."""

    command: Command
    gauge: Gauge = ""
    evidence: Evidence = "in-vivo"

    def feed(self, arms: Mapping[str, Config], turns: int, number: int, left_s: float) -> Fed:
        """One run; an arm that breaks is a failure of that arm, all else one of what is written."""
        # Of a step and what is left of it without a statement the same steps tell.
        fed = dict(arms) if self.gauge != "statement" else {first: arms[first] for first in list(arms)[:1]}
        patches = [(arm, config["patch"]) for arm, config in fed.items() if "patch" in config]
        patches += [(arm, "timed") for arm in fed if self.gauge == "statement"]
        spec = {
            **self.command.spec("vivo"),
            "arms": {arm: _fed_arm(arm, config) for arm, config in fed.items()},
            "patches": [{**self.command.place, "kind": kind, "arm": arm} for arm, kind in patches],
            "segment": {"unit": "batch", "gauge": self.gauge, **SEGMENTS[self.gauge]},
            "stop": {"segments": turns * len(fed)},
        }
        started, reached = time.monotonic(), [0.0]

        def note(event: Mapping[str, Any]) -> None:
            if "reached" in event and not reached[0]:
                reached[0] = time.monotonic() - started

        limit = max(30.0, left_s)
        command = self.command
        env, heard = command.environment, command.on_effects
        found = program.run(command.line, spec, env=env, budget_s=limit, on_event=note, on_effects=heard)
        return Fed(
            blocks=_blocks(found, number, self.gauge),
            specs=_specs(found),
            failures=_failures(found, fed),
            ready=_ready(found),
            side_effects=found.side_effects,
            setup_s=reached[0],
        )


def _fed_arm(arm: str, config: Config) -> dict[str, Any]:
    if arm == AGAIN:
        return {"own": True}
    if arm == REPLAY:
        return {"replay": REPLAYED}
    return {} if arm == "A" else {name: config[name] for name in ("loader", "threads") if config.get(name)}


def _blocks(found: program.Outcome, number: int, gauge: Gauge) -> list[Block]:
    # A step that writes into its batch finds it changed when it comes again: then there is no ceiling to be had.
    void = {REPLAY} if any(told.get("mutated") for told in found.all("replay")) else set()
    segments = [one for one in found.all("segment") if one.get("t") is not None and one["arm"] not in void]
    return [
        Block(number, arm, position, t, wait=segment.get("wait"))
        for position, segment in enumerate(segments)
        for arm, t in _shown(segment, gauge)
    ]


def _shown(segment: Mapping[str, Any], gauge: Gauge) -> Iterator[tuple[str, float]]:
    """What a stretch of the loop shows, and of which arms."""
    if gauge == "memory":
        yield segment["arm"], max(segment["added"] * STEPS, float(LEAST))
    elif gauge == "statement":
        yield "A", segment["step"]
        yield "B", segment["outside"]
        yield AT_MOST, max(segment["step"] - segment["inside"], 1e-9)
    else:
        yield segment["arm"], segment["t"]


def _ready(found: program.Outcome) -> dict[str, Any]:
    """What the process said of itself that has the loop: the first is often a launcher."""
    reached = next((event for event in found.events if "reached" in event), {})
    known: dict[str, Any] = {}
    for event in found.events:
        if event.get("pid") == reached.get("pid") and event.keys() & {"hello", "torch"}:
            known.update(event if "hello" in event else {"torch": event["torch"]["version"]})
    return {**known, "start_method": reached["reached"]["start_method"]} if known else {}


def _specs(found: program.Outcome) -> dict[str, Any]:
    return {told["arm"]: told["structure"] for told in found.all("batch")}


def _failures(found: program.Outcome, arms: Mapping[str, Config]) -> dict[str, Failed]:
    if found.reason == "stopped":
        return {}
    if found.reason == "breaks":
        told = found.all("breaks")[0]
        return {told["arm"]: failed(told)}
    on = [told["arm"] for told in found.all("on")]
    changed = found.reason == "failed" and on and "patch" in arms[on[-1]]
    return {on[-1] if changed else next(iter(arms)): Failed("program", "", found.sentence)}
