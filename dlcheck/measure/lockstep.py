"""The same processes on each rank of a node: started and asked at the same time, and the slowest answer counts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dlcheck.measure import meeting
from dlcheck.measure.children import BLOCK_LIMIT_S, START_LIMIT_S, Failed, Host

LEAST_S = 1.0  # that a process is given to answer, however little time is left
Answer = dict[str, Any]
Left = Callable[[], float]
Start = Callable[[int], Host]  # at this port its ranks may meet each other
Opened = Callable[[Mapping[str, Any], int], Host]  # of what the first rank says of it, and at which port
Done = Callable[[meeting.Message], Answer]


@dataclass
class Lockstep:
    """What this rank does, and all others of its node at the same time; ``left`` is how much time there is."""

    leader: meeting.Leader
    left: Left = lambda: math.inf
    _opened: int = field(default=0, init=False)

    @property
    def place(self) -> meeting.Place:
        return self.leader.place

    def do(self, message: Mapping[str, Any], own: Callable[[], Answer], limit_s: float) -> Answer:
        """What all say of it, as one answer; Failed where one fails, after all have answered.

        Raises Lost where a rank is not there any more.
        """
        self.leader.tell({**message, "limit": limit_s})
        failure: Failed | None = None
        answers: list[Answer] = []
        try:
            answers.append(own())
        except Failed as error:
            failure = error
        for line, said in zip(self.leader.others, self.leader.hear(limit_s + meeting.GRACE_S), strict=True):
            if "failed" in said:
                failure = failure or _of_another(said["failed"], line.rank)
            else:
                answers.append(said["answer"])
        if failure is not None:
            raise failure
        return meeting.merged(answers)

    def open(self, start: Start, what: Mapping[str, Any] | None = None) -> Together:
        """Start a process here and on every other rank; ``what`` tells those which.  None need be ready yet."""
        self._opened += 1
        host, port = Together(self, self._opened), meeting.free_port()
        try:
            message = {"do": "open", "host": host.number, "what": dict(what or {}), "port": port}
            self.do(message, lambda: host.start(start, port), self.patience)
        except BaseException:
            host.close()
            raise
        return host

    @property
    def patience(self) -> float:
        """Seconds that a start may take."""
        return max(LEAST_S, min(START_LIMIT_S, self.left()))


def _of_another(told: Mapping[str, Any], rank: int) -> Failed:
    return Failed(told["stage"], told["kind"], f"{told['message']} (rank {rank})", told["place"])


class Together:
    """A process of each rank, which answer as one does."""

    def __init__(self, ranks: Lockstep, number: int) -> None:
        self.number = number
        self._ranks = ranks
        self._own: Host | None = None

    def start(self, start: Start, port: int) -> Answer:
        self._own = start(port)
        return {}

    @property
    def _process(self) -> Host:
        assert self._own is not None
        return self._own

    @cached_property
    def ready(self) -> Mapping[str, Any]:
        """What this rank's own said of itself, when all of them are."""
        self._ranks.do({"do": "ready", "host": self.number}, self._is_ready, self._ranks.patience)
        return self._process.ready

    def _is_ready(self) -> Answer:
        _ = self._process.ready
        return {}

    @property
    def side_effects(self) -> Mapping[str, Any] | None:
        return getattr(self._own, "side_effects", None)

    def ask(self, request: Mapping[str, Any], limit_s: float = BLOCK_LIMIT_S) -> Answer:
        limit = max(LEAST_S, min(limit_s, self._ranks.left()))
        message = {"do": "ask", "host": self.number, "request": dict(request)}
        return self._ranks.do(message, lambda: self._process.ask(request, limit), limit)

    def close(self) -> None:
        """End all of them.  A rank that is lost has nothing to end; who needs it next hears of it."""
        try:
            if self._own is not None:
                self._own.close()
        finally:
            leader = self._ranks.leader
            with contextlib.suppress(meeting.Lost):
                leader.tell({"do": "close", "host": self.number})
                leader.hear(meeting.GRACE_S)


# On the other ranks


def follow(line: meeting.Line, opened: Opened, patience_s: float, also: Mapping[str, Done] | None = None) -> None:
    """Do what the first rank says, until it says that it is over.

    ``also`` are things to do besides starting, asking and closing processes.  Raises Lost where nothing is said any
    more, or not for ``patience_s``.
    """
    hosts: dict[int, Host] = {}
    try:
        while True:
            message = line.receive(patience_s)
            if message["do"] == "end":
                return
            line.send({**_done(message, hosts, opened, also or {}), "number": message["number"]})
    finally:
        for host in hosts.values():
            host.close()


def _done(message: meeting.Message, hosts: dict[int, Host], opened: Opened, also: Mapping[str, Done]) -> Answer:
    what, number = message["do"], message.get("host", 0)
    try:
        if what in also:
            return {"answer": also[what](message)}
        if what == "open":
            hosts[number] = opened(message["what"], message["port"])
        elif what == "close":
            if number in hosts:
                hosts.pop(number).close()
        elif number not in hosts:
            raise Failed("process", "", "its process could not be started")
        elif what == "ready":
            _ = hosts[number].ready
        else:
            return {"answer": hosts[number].ask(message["request"], message["limit"])}
        return {"answer": {}}
    except Failed as error:
        return {"failed": {"stage": error.stage, "kind": error.kind, "message": error.message, "place": error.place}}
