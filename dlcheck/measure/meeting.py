"""How the ranks of a node find each other, whoever started them: the first writes down where it listens.

Nothing of torch's is used for it.  The port is the system's, and stands with a token in a file that only this user can
read, named after what the launcher has given all ranks alike.  A rank that dies closes its line: the others hear that
at once, and end with one sentence.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COME_S = 60.0  # that ranks may come one after the other
GRACE_S = 10.0  # that an answer may take longer than it was given: the process that gives it has to be ended
_BATCH_STEP = 4294967290  # SLURM's numbers from here on are no steps that `srun` has started
Message = dict[str, Any]


class Lost(Exception):
    """A rank that is not there, or not any more; one line for people."""


@dataclass(frozen=True)
class Place:
    """Which of the processes of a node this is; ``first`` is the one of all nodes that reports."""

    local: int
    size: int
    first: bool
    job: str

    @property
    def leads(self) -> bool:
        return self.local == 0

    @property
    def launch(self) -> str:
        """What stands before a command that is to run as these ranks again."""
        if self.job.startswith("slurm:"):
            return f"srun --ntasks {self.size}"
        return f"torchrun --nproc-per-node {self.size} -m --"

    @property
    def file(self) -> str:
        """Where the first rank of this node writes down where it listens."""
        user = os.getuid() if hasattr(os, "getuid") else 0
        digest = hashlib.blake2b(self.job.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
        return os.path.join(tempfile.gettempdir(), f"dlcheck-ranks-{user}-{digest}")


def place(environment: Mapping[str, str]) -> Place | None:
    """This process's place as torchrun or SLURM tell it; None where it is alone on its node."""
    known = _of_torchrun(environment) or _of_slurm(environment)
    return known if known is not None and known.size > 1 and known.local < known.size else None


def _of_torchrun(environment: Mapping[str, str]) -> Place | None:
    local, size = _number(environment, "LOCAL_RANK"), _number(environment, "LOCAL_WORLD_SIZE")
    if local is None or size is None:
        return None
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "GROUP_RANK")
    job = ":".join(["torchrun", *(environment.get(name, "") for name in names)])
    return Place(local, size, _number(environment, "RANK") in (0, None), job)


def _of_slurm(environment: Mapping[str, str]) -> Place | None:
    """Only of a step that ``srun`` has started: a batch script has the variables as well, and is alone."""
    local, step = _number(environment, "SLURM_LOCALID"), _number(environment, "SLURM_STEP_ID")
    if local is None or step is None or step >= _BATCH_STEP:
        return None
    node = _number(environment, "SLURM_NODEID") or 0
    sizes = _per_node(environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    job = ":".join(["slurm", environment.get("SLURM_JOB_ID", ""), str(step), str(node)])
    return Place(local, sizes[node] if node < len(sizes) else 1, _number(environment, "SLURM_PROCID") == 0, job)


def _per_node(text: str) -> list[int]:
    """``4(x2),3`` is [4, 4, 3]."""
    found: list[int] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(number)] * min(int(times or 1), 100_000)
    return found


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


class Line:
    """JSON lines to one other rank."""

    def __init__(self, stream: socket.socket, rank: int) -> None:
        self.rank = rank
        self._stream = stream
        self._rest = b""

    def send(self, message: Mapping[str, Any]) -> None:
        try:
            self._stream.settimeout(GRACE_S)
            self._stream.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise Lost(f"rank {self.rank} has ended") from None

    def receive(self, limit_s: float) -> Message:
        """The next message; Lost where none comes in time, or the rank has ended."""
        until = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            try:
                self._stream.settimeout(max(0.05, until - time.monotonic()))
                some = self._stream.recv(65536)
            except TimeoutError:
                raise Lost(f"rank {self.rank} does not answer in time") from None
            except OSError:
                some = b""
            if not some:
                raise Lost(f"rank {self.rank} has ended")
            self._rest += some
        line, self._rest = self._rest.split(b"\n", 1)
        message: Message = json.loads(line)
        return message

    def end(self, limit_s: float) -> None:
        """Say that it is over, and close when the other rank has: an answer that nobody has read would take it back."""
        with contextlib.suppress(OSError, Lost):
            self.send({"do": "end"})
            self._stream.shutdown(socket.SHUT_WR)
            until = time.monotonic() + limit_s
            self._stream.settimeout(max(0.05, limit_s))
            while self._stream.recv(65536) and time.monotonic() < until:
                self._stream.settimeout(max(0.05, until - time.monotonic()))
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()


class Leader:
    """The rank that decides; a context, which tells all others to end."""

    def __init__(self, own: Place, limit_s: float = COME_S) -> None:
        self.place = own
        self.others: list[Line] = []
        self.cpus: set[int] = set()  # that any of the others may run on
        self._told = 0
        self._file = own.file
        self._server = socket.create_server(("127.0.0.1", 0))
        token = secrets.token_hex(16)
        try:
            _write(self._file, {"port": self._server.getsockname()[1], "token": token})
            self._gather(set(range(1, own.size)), token, limit_s)
        except BaseException:
            self.close()
            raise

    def _gather(self, missing: set[int], token: str, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        while missing:
            self._server.settimeout(max(0.05, until - time.monotonic()))
            try:
                stream, _ = self._server.accept()
            except TimeoutError:
                names = ", ".join(map(str, sorted(missing)))
                raise Lost(f"rank {names} of this node has not come within {limit_s:.0f} s") from None
            line = Line(stream, -1)
            with contextlib.suppress(Lost, ValueError, KeyError, TypeError):
                said = line.receive(GRACE_S)
                if secrets.compare_digest(str(said["token"]), token) and said["rank"] in missing:
                    line.rank = said["rank"]
                    self.cpus.update(said["cpus"])
                    missing.remove(line.rank)
                    self.others.append(line)
                    continue
            line.close()  # somebody else, or somebody twice
        self.others.sort(key=lambda line: line.rank)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send all of them a message, which has a number: an answer names it."""
        self._told += 1
        for line in self.others:
            line.send({**message, "number": self._told})

    def hear(self, limit_s: float) -> list[Message]:
        """What each answers to the latest message, in the order of ranks; they have the same time, all of them."""
        until = time.monotonic() + limit_s
        return [self._answer(line, until) for line in self.others]

    def _answer(self, line: Line, until: float) -> Message:
        while True:
            said = line.receive(max(0.05, until - time.monotonic()))
            if said.get("number") == self._told:  # an earlier one comes late: nobody waits for it any more
                return said

    def close(self) -> None:
        until = time.monotonic() + GRACE_S
        for line in self.others:
            line.end(until - time.monotonic())
        self._server.close()
        with contextlib.suppress(OSError):
            os.unlink(self._file)

    def __enter__(self) -> Leader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def join(own: Place, limit_s: float = COME_S, cpus: Collection[int] = ()) -> Line:
    """A line to the first rank of this node, which is told where this one may run; Lost where there is none in time."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        # One that is left of an earlier run leads nowhere, until the first rank has written its own.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = _read(own.file)
            stream = socket.create_connection(("127.0.0.1", int(known["port"])), timeout=GRACE_S)
            line = Line(stream, 0)
            with contextlib.suppress(Lost):
                line.send({"token": known["token"], "rank": own.local, "cpus": sorted(cpus)})
                return line
        time.sleep(0.1)
    raise Lost(f"rank 0 of this node has not come within {limit_s:.0f} s")


def _write(file: str, facts: Mapping[str, Any]) -> None:
    beside = f"{file}.{secrets.token_hex(4)}"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as stream:
        json.dump(facts, stream)
    os.replace(beside, file)


def _read(file: str) -> Mapping[str, Any]:
    with open(file, encoding="utf-8") as stream:
        if hasattr(os, "getuid") and os.fstat(stream.fileno()).st_uid != os.getuid():
            raise OSError("somebody else's")
        found = json.load(stream)
    return found if isinstance(found, dict) else {}


# What processes of ours are told of their ranks


def environment(rank: int, port: int, world: int) -> dict[str, str]:
    """What torchrun tells a process of one of ``world`` on this machine, who meet at ``port``.

    Where the meeting place of a launcher of ours would be used again, they would find what an earlier start has left.
    """
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def alone() -> dict[str, str]:
    """What makes a process one that has no others, whatever a launcher has told us."""
    return environment(0, free_port(), 1)


def among(own: Place | None, port: int) -> dict[str, str]:
    """What a process of a rank has in its environment: the ranks of this node are all there are, and meet anew."""
    return environment(own.local, port, own.size) if own is not None else {}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


# What they say together


def cores(usable: float, own: Collection[int], others: Collection[int], ranks: int) -> float:
    """How many of the usable cores a rank has for itself: all, where each is bound to its own, else its share."""
    if not own or ranks < 2:
        return usable
    return usable * min(1.0, len({*own, *others}) / (ranks * len(own)))


def merged(answers: Sequence[Message]) -> Message:
    """One answer of what all ranks said of a block: the slowest decides, and memory adds up."""
    slowest = max(answers, key=lambda one: float(one.get("t", 0.0)))
    found = {**slowest, "spec": answers[0].get("spec")}
    if "first" in slowest:
        found["first"] = max(one["first"] for one in answers)
    if "memory" in slowest:
        held = [one["memory"] for one in answers]
        found["memory"] = {
            # /dev/shm is one for all of them: each has seen what all have taken.
            name: max(one[name] for one in held) if name == "shm" else _total([one[name] for one in held])
            for name in held[0]
        }
    return found


def _total(values: Sequence[int | None]) -> int | None:
    known = [one for one in values if one is not None]
    return sum(known) if len(known) == len(values) else None
