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

from dlcheck.measure import meeting
from dlcheck.measure.children import Failed
from dlcheck.measure.lockstep import Lockstep, follow
from dlcheck.measure.meeting import Leader, Lost, Place, join, merged, place

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
            line.send({"rank": own.local, "heard": said["do"], "number": said["number"]})
    line.close()


def test_ranks_meet_and_end(places: list[Place]) -> None:
    threads = [aside(partial(echo, own)) for own in places[1:]]
    with Leader(places[0], 20) as leader:
        assert os.stat(places[0].file).st_mode & 0o077 == 0
        leader.tell({"do": "this"})
        assert leader.hear(20) == [{"rank": rank, "heard": "this", "number": 1} for rank in (1, 2)]
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


def test_an_answer_that_comes_late_is_no_answer_to_what_came_after(places: list[Place]) -> None:
    for own in places[1:]:
        aside(partial(echo, own))
    with Leader(places[0], 20) as leader:
        leader.tell({"do": "this"})  # and whoever asked has been interrupted
        leader.tell({"do": "that"})
        assert [said["heard"] for said in leader.hear(20)] == ["that", "that"]


def test_an_answer_that_comes_too_late_does_not_lose_the_end(places: list[Place]) -> None:
    heard: list[Any] = []

    def slow(own: Place) -> None:
        line = join(own, 20)
        said = line.receive(20)
        for _ in range(3):  # the first is thrown away when it comes, the next ones meet a closed line
            time.sleep(0.2)
            line.send({"number": said["number"]})
        heard.append(line.receive(20))
        line.close()

    threads = [aside(partial(slow, own)) for own in places[1:]]
    with Leader(places[0], 20) as leader:
        leader.tell({"do": "this"})  # and has no time to hear what they answer
    for thread in threads:
        thread.join(20)
    assert heard == [{"do": "end"}] * 2


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


def test_what_a_process_is_told_of_its_ranks() -> None:
    one, other = meeting.alone(), meeting.alone()
    assert (one["RANK"], one["WORLD_SIZE"], one["TORCHELASTIC_USE_AGENT_STORE"]) == ("0", "1", "False")
    assert one.keys() == other.keys()
    among = meeting.among(Place(1, 3, False, "job"), 4711)
    assert (among["RANK"], among["WORLD_SIZE"], among["MASTER_PORT"]) == ("1", "3", "4711")
    assert meeting.among(None, 4711) == {}


# What ranks do together


class Host:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.fails = self.never_ready = self.closed = False

    @property
    def ready(self) -> dict[str, Any]:
        if self.never_ready:
            raise Failed("start", "ValueError", "no such split", "data.py:3")
        return {"setup_s": self.seconds}

    def ask(self, request: Any, limit_s: float = 1.0) -> dict[str, Any]:
        if self.fails:
            raise Failed("block", "OSError", "no such file")
        return {"t": self.seconds, "wait": 0.0}

    def close(self) -> None:
        self.closed = True


class Starts:
    """What a rank starts."""

    def __init__(self, seconds: float, *, fails: bool = False, never_ready: bool = False) -> None:
        self.seconds, self.fails, self.never_ready = seconds, fails, never_ready
        self.hosts: list[Host] = []
        self.ports: list[int] = []
        self.told: list[Any] = []

    def start(self, port: int) -> Host:
        if self.fails:
            raise Failed("start", "", "no such program")
        self.ports.append(port)
        self.hosts.append(Host(self.seconds))
        self.hosts[-1].never_ready = self.never_ready
        return self.hosts[-1]

    def opened(self, what: Any, port: int) -> Host:
        self.told.append(what)
        return self.start(port)


Make = Callable[..., Lockstep]


@pytest.fixture
def lockstep(places: list[Place]) -> Iterator[Make]:
    leaders: list[Leader] = []

    def following(own: Place, starts: Starts) -> None:
        follow(join(own, 20), starts.opened, 60, {"step": lambda message: {"t": starts.seconds}})

    def make(*others: Starts) -> Lockstep:
        for own, starts in zip(places[1:], others, strict=True):
            aside(partial(following, own, starts))
        leaders.append(Leader(places[0], 20))
        return Lockstep(leaders[0], lambda: 60.0)

    yield make
    for leader in leaders:
        leader.close()


def test_all_ranks_are_asked(lockstep: Make) -> None:
    first, others = Starts(0.1), [Starts(0.3), Starts(0.2)]
    ranks = lockstep(*others)
    assert ranks.place.size == 3
    host = ranks.open(first.start, {"factory": "data:make"})
    assert host.ready == {"setup_s": 0.1}
    assert host.ask({"cmd": "block"})["t"] == 0.3
    assert ranks.do({"do": "step"}, lambda: {"t": 0.1}, 5)["t"] == 0.3
    ranks.open(first.start).close()
    assert [starts.told for starts in others] == [[{"factory": "data:make"}, {}]] * 2
    assert first.ports == others[0].ports == others[1].ports
    assert len(set(first.ports)) == 2  # each start meets anew
    host.close()
    assert all(starts.hosts[0].closed and starts.hosts[1].closed for starts in (first, *others))


def test_one_rank_that_fails_fails_all_and_they_go_on(lockstep: Make) -> None:
    first, others = Starts(0.1), [Starts(0.3), Starts(0.2)]
    host = lockstep(*others).open(first.start)
    others[0].hosts[0].fails = True
    with pytest.raises(Failed, match=r"no such file \(rank 1\)"):
        host.ask({"cmd": "block"})
    others[0].hosts[0].fails = False
    assert host.ask({"cmd": "block"})["t"] == 0.3


@pytest.mark.parametrize(("fails", "said"), [(0, "no such program$"), (1, r"no such program \(rank 1\)")])
def test_what_one_rank_cannot_start_is_ended_on_the_others(lockstep: Make, fails: int, said: str) -> None:
    every = [Starts(0.1, fails=fails == 0), Starts(0.3, fails=fails == 1), Starts(0.2)]
    with pytest.raises(Failed, match=said):
        lockstep(*every[1:]).open(every[0].start)
    assert [[host.closed for host in one.hosts] for one in every] == [[] if one.fails else [True] for one in every]


def test_a_process_that_gets_not_ready_names_its_rank_and_place(lockstep: Make) -> None:
    host = lockstep(Starts(0.3), Starts(0.2, never_ready=True)).open(Starts(0.1).start)
    with pytest.raises(Failed, match=r"^ValueError: no such split \(rank 2\) \(data.py:3\)$"):
        _ = host.ready
    host.close()
