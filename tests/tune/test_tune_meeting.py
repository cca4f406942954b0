"""Ranks that meet, answer together, and notice who is missing."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dlcheck.advise.tuning import meeting
from dlcheck.advise.tuning.hosts import OnAllRanks, follow
from dlcheck.advise.tuning.meeting import Leader, Lost, Place, join, merged, place
from dlcheck.measure.children import Failed

TORCHRUN = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7"}


def test_places() -> None:
    assert place({}) is None
    assert place({**TORCHRUN, "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}) is None
    found = place(TORCHRUN)
    assert found is not None
    assert (found.local, found.size, found.leads, found.first) == (1, 2, False, False)
    other = place({**TORCHRUN, "LOCAL_RANK": "0", "RANK": "0"})
    assert other is not None
    assert other.leads
    assert other.first
    assert other.file == found.file
    elsewhere = place({**TORCHRUN, "MASTER_PORT": "29501"})
    assert elsewhere is not None
    assert elsewhere.file != found.file


def test_places_of_slurm() -> None:
    found = place({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "4(x2),3"})
    assert found is not None
    assert (found.local, found.size) == (1, 4)
    assert place(SLURM) is None  # how many there are is not said
    batch = {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": "0"}
    assert place({name: value for name, value in batch.items() if name != "SLURM_STEP_ID"}) is None
    assert place({**batch, "SLURM_STEP_ID": "4294967291"}) is None


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "٣"])
def test_odd_values_are_none(value: str) -> None:
    assert place({**TORCHRUN, "LOCAL_RANK": value}) is None


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return [Place(rank, 3, rank == 0, "job") for rank in range(3)]


def aside(what: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=what, daemon=True)
    thread.start()
    return thread


def echo(own: Place) -> None:
    line = join(own, 20, [own.local, 7])
    with contextlib.suppress(Lost):  # sent away, or the leader has missed another
        while (said := line.receive(20))["do"] != "end":
            line.send({"rank": own.local, "heard": said["do"]})
    line.close()


def test_ranks_meet_and_end(places: list[Place]) -> None:
    threads = [aside(partial(echo, own)) for own in places[1:]]
    with Leader(places[0], 20) as leader:
        assert os.stat(places[0].file).st_mode & 0o077 == 0
        leader.tell({"do": "this"})
        assert leader.hear(20) == [{"rank": 1, "heard": "this"}, {"rank": 2, "heard": "this"}]
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert not os.path.exists(places[0].file)


def test_a_rank_that_does_not_come_is_named(places: list[Place]) -> None:
    aside(lambda: echo(places[2]))
    with pytest.raises(Lost, match="rank 1 of this node has not come within 1 s"):
        Leader(places[0], 1)
    with pytest.raises(Lost, match="rank 0 of this node has not come"):
        join(places[1], 0.3)


def test_a_rank_that_dies_is_named(places: list[Place]) -> None:
    def dies() -> None:
        line = join(places[1], 20)
        line.receive(20)
        line.close()

    aside(lambda: echo(places[2]))
    aside(dies)
    with Leader(places[0], 20) as leader:
        leader.tell({"do": "this"})
        with pytest.raises(Lost, match="rank 1 has ended"):
            leader.hear(20)


def test_strangers_are_sent_away(places: list[Place]) -> None:
    def knocks() -> None:
        while not os.path.exists(places[0].file):
            time.sleep(0.01)
        port = meeting._read(places[0].file)["port"]
        for words in (b"GET / HTTP/1.1\r\n\r\n", b'{"token": "no", "rank": 1}\n', b"[]\n", b""):
            with socket.create_connection(("127.0.0.1", port)) as stream:
                stream.sendall(words)
        for own in places[1:]:
            aside(partial(echo, own))

    aside(knocks)
    with Leader(places[0], 20) as leader:
        assert [line.rank for line in leader.others] == [1, 2]
        assert leader.cpus == {1, 2, 7}


def test_a_file_of_an_earlier_run_leads_nowhere(places: list[Place]) -> None:
    meeting._write(places[0].file, {"port": 1, "token": "old"})
    threads = [aside(partial(echo, own)) for own in places[1:]]
    time.sleep(0.3)
    with Leader(places[0], 20) as leader:
        assert len(leader.others) == 2
    for thread in threads:
        thread.join(20)


def test_the_slowest_rank_decides_and_memory_adds_up() -> None:
    def one(t: float, pss: int | None, shm: int) -> dict[str, Any]:
        return {"t": t, "wait": t / 2, "first": 1 - t, "spec": ["x"], "memory": {"pss": pss, "shm": shm}}

    found = merged([one(0.1, 10, 5), one(0.3, 20, 4)])
    assert (found["t"], found["wait"], found["first"], found["memory"]) == (0.3, 0.15, 0.9, {"pss": 30, "shm": 5})
    assert merged([one(0.1, None, 5), one(0.3, 20, 4)])["memory"]["pss"] is None


def test_cores_are_shared_unless_each_rank_has_its_own() -> None:
    assert meeting.cores(8, range(8), range(8), 1) == 8
    assert meeting.cores(8, range(8), range(8), 4) == 2
    assert meeting.cores(2, range(2), range(2, 8), 4) == 2
    assert meeting.cores(2, range(4), range(4, 8), 2) == 2  # two threads on each core
    assert meeting.cores(8, (), (), 4) == 8


# What ranks do together


class Host:
    def __init__(self, seconds: float, fails: bool) -> None:
        self.ready = {"setup_s": 0.0}
        self.seconds, self.fails = seconds, fails
        self.closed = False

    def ask(self, request: Any, limit_s: float = 1.0) -> dict[str, Any]:
        if self.fails:
            raise Failed("block", "OSError", "no such file")
        return {"t": self.seconds, "wait": 0.0}

    def close(self) -> None:
        self.closed = True


class Opener:
    evidence: Any = "factory"
    one_process = False

    def __init__(self, seconds: float, fails: bool = False) -> None:
        self.seconds, self.fails = seconds, fails
        self.hosts: list[Host] = []
        self.ports: list[int] = []

    def open(self, port: int = 0) -> Host:
        self.ports.append(port)
        self.hosts.append(Host(self.seconds, self.fails))
        return self.hosts[-1]

    def step(self, limit_s: float, port: int = 0) -> float:
        return self.seconds


def following(own: Place, opener: Opener) -> None:
    follow(join(own, 20), opener, 60)


@pytest.fixture
def together(places: list[Place]) -> Iterator[Callable[..., tuple[OnAllRanks, list[Opener]]]]:
    leaders: list[Leader] = []

    def make(*openers: Opener) -> tuple[OnAllRanks, list[Opener]]:
        for own, opener in zip(places[1:], openers[1:], strict=True):
            aside(partial(following, own, opener))
        leaders.append(Leader(places[0], 20))
        return OnAllRanks(openers[0], leaders[0], lambda: 60.0), list(openers)

    yield make
    for leader in leaders:
        leader.close()


def test_all_ranks_are_asked(together: Callable[..., tuple[OnAllRanks, list[Opener]]]) -> None:
    every, openers = together(Opener(0.1), Opener(0.3), Opener(0.2))
    host = every.open()
    assert host.ask({"cmd": "block"})["t"] == 0.3
    assert every.step(5) == 0.3
    every.open().close()
    assert openers[0].ports == openers[1].ports == openers[2].ports
    assert len(set(openers[0].ports)) == 2  # each start meets anew
    host.close()
    assert all(opener.hosts[0].closed for opener in openers)


def test_one_rank_that_fails_fails_all_and_they_go_on(
    together: Callable[..., tuple[OnAllRanks, list[Opener]]],
) -> None:
    every, openers = together(Opener(0.1), Opener(0.3, fails=True), Opener(0.2))
    host = every.open()
    with pytest.raises(Failed, match=r"no such file \(rank 1\)"):
        host.ask({"cmd": "block"})
    openers[1].hosts[0].fails = False
    assert host.ask({"cmd": "block"})["t"] == 0.3
