"""Processes that hold the user's loader: opened anew, asked within bounds, and on several ranks all at once."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from dlcheck.advise.tuning import meeting
from dlcheck.advise.tuning.bounds import PASSED, Bounds, Watch
from dlcheck.measure import program, ranks
from dlcheck.measure.children import BLOCK_LIMIT_S, START_LIMIT_S, Child, Failed, Host
from dlcheck.measure.program import SET_UP_S
from dlcheck.measure.record import Evidence
from dlcheck.measure.workload import Command

LEAST_S = 1.0  # that a process is given to answer, however little time is left
STEPS = 10  # of the user's loop, in a stretch of which its step is timed
STRETCHES = 3
Left = Callable[[], float]
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


def among(place: meeting.Place | None, port: int) -> dict[str, str]:
    """What a process of a rank has in its environment: the ranks of this node are all there are, and meet anew.

    Where the launcher's own meeting place would be used again, they would find what an earlier start has left there.
    """
    if place is None:
        return {}
    return {**ranks.environment(place.local, port, place.size), "TORCHELASTIC_USE_AGENT_STORE": "False"}


class Together:
    """The same host on each rank of this node: asked at the same time, and the slowest answer counts."""

    def __init__(self, own: Host, number: int, leader: meeting.Leader, left: Left) -> None:
        self._own = own
        self._number = number
        self._leader = leader
        self._left = left

    @property
    def ready(self) -> Mapping[str, Any]:
        return self._own.ready

    @property
    def side_effects(self) -> Mapping[str, Any] | None:
        return getattr(self._own, "side_effects", None)

    def ask(self, request: Mapping[str, Any], limit_s: float = BLOCK_LIMIT_S) -> dict[str, Any]:
        limit = max(LEAST_S, min(limit_s, self._left()))
        self._leader.tell({"do": "ask", "host": self._number, "request": request, "limit": limit})
        return _all(self._leader, lambda: self._own.ask(request, limit), limit)

    def close(self) -> None:
        try:
            self._own.close()
        finally:
            self._leader.tell({"do": "close", "host": self._number})
            self._leader.hear(meeting.GRACE_S)


@dataclass
class OnAllRanks:
    """Opens what the leader opens on every other rank as well."""

    own: Opener
    leader: meeting.Leader
    left: Left
    _opened: int = field(default=0, init=False)

    @property
    def evidence(self) -> Evidence:
        return self.own.evidence

    @property
    def one_process(self) -> bool:
        return self.own.one_process

    def open(self, port: int = 0) -> Together:
        self._opened += 1
        number, limit, port = self._opened, max(LEAST_S, self.left()), port or ranks.free_port()
        self.leader.tell({"do": "open", "host": number, "limit": limit, "port": port})
        opened: list[Host] = []

        def start() -> dict[str, Any]:
            opened.append(self.own.open(port))
            return {"ready": dict(opened[0].ready)}

        try:
            _all(self.leader, start, limit)
        except BaseException:
            for host in opened:
                host.close()
            raise
        return Together(opened[0], number, self.leader, self.left)

    def step(self, limit_s: float, port: int = 0) -> float:
        port = port or ranks.free_port()
        self.leader.tell({"do": "step", "limit": limit_s, "port": port})
        found: float = _all(self.leader, lambda: {"t": self.own.step(limit_s, port)}, limit_s)["t"]
        return found


def _all(leader: meeting.Leader, own: Callable[[], dict[str, Any]], limit_s: float) -> dict[str, Any]:
    """What this rank and all others say, as one answer; Failed where one fails, after all have answered."""
    failure: Failed | None = None
    answers: list[dict[str, Any]] = []
    try:
        answers.append(own())
    except Failed as error:
        failure = error
    for line, said in zip(leader.others, leader.hear(limit_s + meeting.GRACE_S), strict=True):
        if "failed" in said:
            told = said["failed"]
            failure = failure or Failed(told["stage"], told["kind"], f"{told['message']} (rank {line.rank})")
        else:
            answers.append(said["answer"])
    if failure is not None:
        raise failure
    return meeting.merged(answers)


def follow(line: meeting.Line, opener: Opener, budget_s: float) -> None:
    """Do what the first rank says, until it says that it is over.  Raises Lost where it says nothing any more."""
    hosts: dict[int, Host] = {}
    try:
        while True:
            # It measures by itself in between, at most as long as all may take.
            message = line.receive(budget_s + meeting.COME_S)
            if message["do"] == "end":
                return
            line.send(_done(message, hosts, opener))
    finally:
        for host in hosts.values():
            host.close()


def _done(message: meeting.Message, hosts: dict[int, Host], opener: Opener) -> meeting.Message:
    number, limit, port = (message.get(name, 0) for name in ("host", "limit", "port"))
    try:
        if message["do"] == "open":
            hosts[number] = opener.open(port)
            return {"answer": {"ready": bool(hosts[number].ready)}}
        if message["do"] == "ask":
            if number not in hosts:
                raise Failed("process", "", "its process could not be started")
            return {"answer": hosts[number].ask(message["request"], limit)}
        if message["do"] == "step":
            return {"answer": {"t": opener.step(limit, port)}}
        if number in hosts:
            hosts.pop(number).close()
        return {"answer": {}}
    except Failed as error:
        if message["do"] == "open" and number in hosts:
            hosts.pop(number).close()
        return {"failed": {"stage": error.stage, "kind": error.kind, "message": error.message}}
