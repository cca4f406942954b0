"""Processes that hold the user's loader: opened anew, asked within bounds, and on several ranks all at once."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from dlcheck.advise.tuning.bounds import PASSED, Bounds, Watch
from dlcheck.measure import lockstep, meeting, program
from dlcheck.measure.children import BLOCK_LIMIT_S, START_LIMIT_S, Child, Failed, Host
from dlcheck.measure.lockstep import LEAST_S, Left, Lockstep, Together
from dlcheck.measure.meeting import among
from dlcheck.measure.program import SET_UP_S
from dlcheck.measure.record import Evidence
from dlcheck.measure.workload import Command

STEPS = 10  # of the user's loop, in a stretch of which its step is timed
STRETCHES = 3
_PIDS = re.compile(r" ?\(pid(?:\(s\))? [\d, ]+\)")


class Process(Host, Protocol):
    """A host that is one process of this machine, with its workers."""

    @property
    def pid(self) -> int: ...

    def close(self, patience_s: float = ...) -> None: ...


class Opener(Protocol):
    """What there is to be opened; ``one_process`` where the arms of a comparison share it."""

    @property
    def evidence(self) -> Evidence: ...

    @property
    def one_process(self) -> bool: ...

    def open(self, port: int = 0) -> Host:
        """A host, which the caller closes, and which may not be ready yet; raises Failed.

        ``port`` is where the ranks of this start meet each other, if there are several.
        """
        ...

    def step(self, limit_s: float, port: int = 0) -> float:
        """Seconds that a step of the user's own loop takes, without its loader; raises Failed."""
        ...


class Guarded:
    """A process that is asked for no longer than there is time, and ended when it takes too much."""

    def __init__(self, process: Process, limits: Bounds, left: Left) -> None:
        self._process = process
        self._limits = limits
        self._left = left
        self._hangs = False

    @property
    def ready(self) -> Mapping[str, Any]:
        return self._process.ready

    @property
    def side_effects(self) -> Mapping[str, Any] | None:
        return getattr(self._process, "side_effects", None)

    def ask(self, request: Mapping[str, Any], limit_s: float = BLOCK_LIMIT_S) -> dict[str, Any]:
        if (left := self._left()) <= 0:
            raise Failed("block", "Timeout", "the time was over")
        limit = max(LEAST_S, min(limit_s, left))
        with Watch(self._process.pid, self._limits) as watch:
            try:
                return self._process.ask(request, limit)
            except Failed as error:
                found = error
        self._hangs = found.kind == "Timeout"
        if watch.passed:
            raise Failed(PASSED, "", watch.passed)
        # Which worker it was is another one each time.
        raise Failed(found.stage, found.kind, _PIDS.sub("", found.message), found.place)

    def close(self) -> None:
        if self._hangs:
            self._process.close(0.0)
        else:
            self._process.close()


@dataclass(frozen=True)
class OfFactory:
    """The user's function, called in a process of ours."""

    python: str
    name: str
    folder: str
    seed: int
    dice: random.Random
    limits: Bounds
    left: Left
    place: meeting.Place | None = None
    evidence: Evidence = "factory"
    one_process: bool = False

    def open(self, port: int = 0) -> Guarded:
        request = {"factory": self.name, "folder": self.folder, "seed": self.seed}
        start_s = max(LEAST_S, min(START_LIMIT_S, self.left()))
        more = among(self.place, port)
        return Guarded(Child(self.python, request, self.dice, more, start_s), self.limits, self.left)

    def step(self, limit_s: float, port: int = 0) -> float:
        raise Failed("step", "", "a factory that returns no `step` has none")


@dataclass(frozen=True)
class OfProgram:
    """The user's program, stopped at its loader; or let run for some steps."""

    command: Command
    limits: Bounds
    left: Left
    place: meeting.Place | None = None
    evidence: Evidence = "extract"
    one_process: bool = True

    def open(self, port: int = 0) -> Guarded:
        command, limit = self.command, max(LEAST_S, min(SET_UP_S, self.left()))
        spec = {**command.spec("extract"), "every_rank": self.place is not None}
        env = {**command.environment, **among(self.place, port)}
        stopped = program.extract(command.line, spec, env=env, set_up_s=limit, on_effects=command.on_effects)
        return Guarded(stopped, self.limits, self.left)

    def step(self, limit_s: float, port: int = 0) -> float:
        command = self.command
        env = {**command.environment, **among(self.place, port)}
        spec = {
            **command.spec("vivo"),
            "every_rank": self.place is not None,
            "arms": {"A": {}},
            "segment": {"unit": "batch", "batches": STEPS},
            "stop": {"segments": STRETCHES},
        }
        found = program.run(command.line, spec, env=env, budget_s=limit_s, on_effects=command.on_effects)
        known = [one for one in found.all("segment") if one.get("t") is not None]
        if not known:
            raise Failed("step", "", found.sentence)
        return float(median(one["t"] * (1 - one.get("wait", 0.0)) for one in known))


# Several ranks


@dataclass(frozen=True)
class OnAllRanks:
    """Opens on every other rank as well what this one opens."""

    own: Opener
    ranks: Lockstep

    @property
    def evidence(self) -> Evidence:
        return self.own.evidence

    @property
    def one_process(self) -> bool:
        return self.own.one_process

    def open(self, port: int = 0) -> Together:
        return self.ranks.open(self.own.open)

    def step(self, limit_s: float, port: int = 0) -> float:
        port = port or meeting.free_port()
        message = {"do": "step", "port": port}
        found: float = self.ranks.do(message, lambda: {"t": self.own.step(limit_s, port)}, limit_s)["t"]
        return found


def follow(line: meeting.Line, opener: Opener, budget_s: float) -> None:
    """Do what the first rank says, until it says that it is over.  Raises Lost where it says nothing any more."""

    def step(message: meeting.Message) -> dict[str, Any]:
        return {"t": opener.step(message["limit"], message["port"])}

    # It measures by itself in between, at most as long as all may take.
    lockstep.follow(line, lambda _, port: opener.open(port), budget_s + meeting.COME_S, {"step": step})
