"""The ranks of a program that trains on several devices: each stopped at its loader, all asked at the same time."""

from __future__ import annotations

import json
import random
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

from dlcheck.measure.children import WORKER, Child, Failed, checked, failed
from dlcheck.measure.endings import last_line
from dlcheck.measure.program import Connection, Event, Program, Reason, assignments, words
from dlcheck.measure.record import Verdict
from dlcheck.measure.workload import Command

WORLD = 2
LAUNCH = WORKER / "launch.py"
MOST = 0.9  # of the samples in common: they all read everything
FEW = 0.05  # in common: what fills up the last batches


class Ranks(Protocol):
    """Processes that train together, and answer as one process does."""

    @property
    def ready(self) -> Mapping[str, Any]:
        """What the first said of itself."""
        ...

    def ask(self, request: Mapping[str, Any], limit_s: float) -> list[dict[str, Any]]: ...

    def close(self) -> None: ...


def environment(rank: int, port: int, world: int = WORLD) -> dict[str, str]:
    """What torchrun tells a process of one of ``world`` on this machine, who meet at ``port``."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


# The user's program


class Stopped:
    """The processes of one program, all at their loaders."""

    def __init__(self, program: Program, world: int, limit_s: float) -> None:
        self._program = program
        self._world = world
        self._connections: list[Connection] = []
        program.__enter__()
        try:
            self._gather(program.started + limit_s)
        except BaseException:
            program.close()
            raise

    def _gather(self, until: float) -> None:
        """Wait until each rank has come to its loader, and is ready to answer."""
        reached: dict[Connection, int] = {}
        answers: dict[Connection, Event] = {}
        while len(answers) < self._world:
            connection, event = self._hear(until, len(reached))
            if "reached" in event:
                reached[connection] = event["reached"]["rank"]
            elif "answer" in event:
                answers[connection] = event["answer"]
        if len(set(reached.values())) < len(reached):
            raise Failed("program", "", "several of its processes say that they are the same rank")
        self._connections = sorted(answers, key=lambda one: reached[one])
        self.ready: Mapping[str, Any] = checked(answers[self._connections[0]])

    def ask(self, request: Mapping[str, Any], limit_s: float) -> list[dict[str, Any]]:
        """The answers to one request, in the order of the ranks."""
        until = time.monotonic() + limit_s
        for connection in self._connections:
            connection.send(request)
        answers: dict[Connection, Event] = {}
        while len(answers) < len(self._connections):
            connection, event = self._hear(until, self._world)
            if "answer" in event:
                answers[connection] = event["answer"]
        return [checked(answers[connection]) for connection in self._connections]

    def _hear(self, until: float, reached: int) -> tuple[Connection, Event]:
        """What some rank says next; Failed where the program has ended, or time is over."""
        program = self._program
        while (said := program.next(min(1.0, until - time.monotonic()))) is None:
            if program.ended or time.monotonic() >= until:
                raise Failed("program", "", self._why_not(until - program.started, reached))
        connection, event = said
        if "answer" in event:
            program.events.pop()  # what is measured is kept by those who asked
        elif "trouble" in event and event["trouble"]["what"] == "serve":
            raise failed(event["trouble"], "process")
        return connection, event

    def _why_not(self, limit_s: float, reached: int) -> str:
        program = self._program
        if not program.connections:
            return f"no Python took up the shim: {last_line(program.output) or 'none has started'}"
        if not reached:
            reason: Reason = "set-up-limit"
            if program.ended:
                reason = "failed" if program.status else "ended"
            return program.sentence(reason, limit_s)
        raised = next((event["raised"] for event in program.events if "raised" in event), None)
        error = f": {raised['type']}: {raised['message']}" if raised else ""
        if reached == self._world:
            return f"they {'ended before they answered' if program.ended else 'do not answer in time'}{error}"
        when = "" if program.ended else f" within {limit_s:.0f} s"
        return f"only {reached} of {self._world} ranks came to the loader{when}{error}"

    def close(self) -> None:
        self._program.close()


def of_program(command: Command, world: int, limit_s: float) -> Stopped:
    """The user's program, which starts its ranks itself where one process of it was one of several already."""
    assigned, line = assignments(words(command.line))
    if world < WORLD:
        port = free_port()
        own = json.dumps([environment(rank, port) for rank in range(WORLD)])
        line = [sys.executable, "-I", "-S", str(LAUNCH), own, *line]
    spec = {**command.spec("extract"), "every_rank": True}
    program = Program(line, spec, env={**command.environment, **assigned}, on_effects=command.on_effects)
    return Stopped(program, max(world, WORLD), limit_s)


# The user's factory


class Children:
    """Workers of ours with the user's factory, each told that it is one of several."""

    def __init__(self, python: str, request: Mapping[str, Any], dice: random.Random, limit_s: float) -> None:
        self._children: list[Child] = []
        self._pool = ThreadPoolExecutor(WORLD)
        port = free_port()
        try:
            for rank in range(WORLD):
                self._children.append(Child(python, request, dice, environment(rank, port)))
            self.ready: Mapping[str, Any] = self._all(lambda child: child.ready, limit_s)[0]
        except BaseException:
            self.close()
            raise

    def ask(self, request: Mapping[str, Any], limit_s: float) -> list[dict[str, Any]]:
        return self._all(lambda child: child.ask(request, limit_s), limit_s)

    def _all(self, what: Callable[[Child], Any], limit_s: float) -> list[Any]:
        """Of each child, at the same time: they may wait for each other."""
        asked = [self._pool.submit(what, child) for child in self._children]
        done, waiting = wait(asked, limit_s, FIRST_EXCEPTION)
        for one in done:
            one.result()
        if waiting:
            raise Failed("block", "Timeout", f"no answer for {limit_s:.0f} s")
        return [one.result() for one in asked]

    def close(self) -> None:
        for child in self._children:
            child.close()
        self._pool.shutdown(wait=False)


# What their answers say


class Judged(NamedTuple):
    verdict: Verdict
    reason: str
    counts: Mapping[str, Any]


def compared(shares: Sequence[Mapping[str, Any]], alone: Mapping[str, Any] | None) -> Judged:
    """Whether each of several ranks is given all samples; ``alone`` is what one process is given that has no others."""
    numbers, common = [share["number"] for share in shares], _common(shares)
    counts = {"samples": numbers, "in_common": round(common, 3), **({"alone": alone["number"]} if alone else {})}
    verdict, reason = _judged(shares, numbers, common, alone)
    return Judged(verdict, reason, counts)


def _judged(
    shares: Sequence[Mapping[str, Any]], numbers: Sequence[int], common: float, alone: Mapping[str, Any] | None
) -> tuple[Verdict, str]:
    said = f"{len(shares)} ranks are given {' and '.join(map(str, numbers))} samples"
    ended, same = (all(share[name] for share in shares) for name in ("ended", "same"))
    if not all(numbers) or any(2 * share["distinct"] < share["number"] for share in shares):
        return "inconclusive", f"{said}, few of them different, which may agree by chance"
    if common >= MOST:
        return _all_of_them(shares, f"{said}, and they are the same")
    if same and ended and common <= max(FEW, 1 / min(numbers)):
        return "refuted-no-effect", f"{said}, {f'{common:.0%}' if common else 'none'} of them in common"
    if same and not ended:
        return "inconclusive", f"the first {said}, {common:.0%} of them in common; there are more to come"
    if ended and not same and alone is not None and alone["ended"]:
        said += f" that are never twice the same, one process alone is given {alone['number']}"
        return _by_number(shares, numbers, alone["number"], said)
    return "inconclusive", f"{said}, {common:.0%} of them in common: neither a share nor all of them"


def _all_of_them(shares: Sequence[Mapping[str, Any]], said: str) -> tuple[Verdict, str]:
    """Each is given everything: a fault if they train together, and no wonder if they do not know of each other."""
    if all(share["world"] == len(shares) for share in shares):
        return "confirmed", said
    told = f"started as {len(shares)} ranks the program does not initialise torch.distributed before its loader"
    return "not-measurable-here", told


def _by_number(
    shares: Sequence[Mapping[str, Any]], numbers: Sequence[int], alone: int, said: str
) -> tuple[Verdict, str]:
    """Each rank has as many as one process, or all of them together have."""
    if min(numbers) >= MOST * alone:
        return _all_of_them(shares, said)
    return ("refuted-no-effect" if sum(numbers) <= (1 + FEW) * alone + len(numbers) else "inconclusive"), said


def _common(shares: Sequence[Mapping[str, Any]]) -> float:
    """How much of what ranks are given is given to others as well: 1 where all have all, 0 where each has its own."""
    apart = max(share["apart"] for share in shares)
    given = [{key for key in share["keys"] if zlib.crc32(key.encode()) % apart == 0} for share in shares]
    total, distinct = sum(map(len, given)), len(set().union(*given))
    return (total - distinct) / (total - total / len(given)) if total else 0.0
