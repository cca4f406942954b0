"""What the ranks of a distributed program are given: real processes, with real collectives, at their loaders."""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlcheck.measure import ranks
from dlcheck.measure.children import Failed
from dlcheck.measure.ranks import Judged
from dlcheck.measure.workload import Command

PROGRAM = Path(__file__).resolve().parent / "programs" / "ranked.py"
SHARE = {"cmd": "oracle", "name": "share-of-a-rank"}
LIMIT_S = 60.0

# What two ranks say


def share(keys: range, **more: Any) -> dict[str, Any]:
    known = {"world": 2, "number": len(keys), "distinct": len(keys), "ended": True, "same": True, "apart": 1}
    return {**known, "keys": [str(key) for key in keys], **more}


ALL = range(100)
HALVES = (range(50), range(50, 100))


@pytest.mark.parametrize(
    ("first", "second", "verdict", "said"),
    [
        (share(ALL), share(ALL), "confirmed", "100 and 100 samples, and they are the same"),
        (share(HALVES[0]), share(HALVES[1]), "refuted-no-effect", "none of them in common"),
        # Filled up, so that both have as many.
        (share(range(51)), share(range(50, 100)), "refuted-no-effect", "2% of them in common"),
        (share(range(8)), share(range(7, 15)), "refuted-no-effect", "12% of them in common"),
        (share(range(60)), share(range(30, 90)), "inconclusive", "50% of them in common: neither a share nor all"),
        (share(ALL, world=1), share(ALL, world=1), "not-measurable-here", "does not initialise torch.distributed"),
        (share(ALL, ended=False), share(ALL, ended=False), "confirmed", "and they are the same"),
        (share(HALVES[0], ended=False), share(HALVES[1]), "inconclusive", "there are more to come"),
        (share(HALVES[0], same=False), share(HALVES[1]), "inconclusive", "neither a share nor all of them"),
        (share(range(10), number=100), share(range(10), number=100), "inconclusive", "which may agree by chance"),
        (share(range(0)), share(range(0)), "inconclusive", "which may agree by chance"),
    ],
)
def test_what_ranks_have_in_common_decides(first: Any, second: Any, verdict: str, said: str) -> None:
    found = ranks.compared([first, second], None)
    assert found.verdict == verdict
    assert said in found.reason


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ((100, 100), "confirmed"),
        ((50, 50), "refuted-no-effect"),
        ((50, 51), "refuted-no-effect"),
        ((80, 60), "inconclusive"),
    ],
)
def test_numbers_decide_where_samples_are_never_the_same(numbers: tuple[int, int], verdict: str) -> None:
    shares = [share(range(n * 1000, n * 1000 + size), same=False) for n, size in enumerate(numbers)]
    found = ranks.compared(shares, {"number": 100, "ended": True})
    assert (found.verdict, found.counts["alone"]) == (verdict, 100)
    assert ranks.compared(shares, {"number": 100, "ended": False}).verdict == "inconclusive"


def test_samples_that_were_chosen_more_sparsely_by_one_rank_are_compared() -> None:
    import zlib

    sparse = share(ALL, apart=4)
    sparse["keys"] = [key for key in sparse["keys"] if zlib.crc32(key.encode()) % 4 == 0]
    assert 10 < len(sparse["keys"]) < 50
    assert ranks.compared([share(ALL), sparse], None).verdict == "confirmed"


def test_several_ranks_are_compared_with_each_other() -> None:
    quarters = [share(range(25 * n, 25 * n + 25), world=4) for n in range(4)]
    assert ranks.compared(quarters, None).verdict == "refuted-no-effect"
    assert ranks.compared([share(ALL, world=4)] * 4, None).verdict == "confirmed"


# Real ones


def processes() -> list[int]:
    """Those that run the program still."""
    known = psutil.process_iter(["pid", "cmdline", "status"])
    alive = [one.info for one in known if one.info["status"] != psutil.STATUS_ZOMBIE]
    return [one["pid"] for one in alive if str(PROGRAM) in (one["cmdline"] or ())]


Start = Callable[..., Judged]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def run(mode: str, *words: str, world: int = 1, limit_s: float = LIMIT_S, by: str = "") -> Judged:
        line = " ".join([f"'{sys.executable}' {by} '{PROGRAM}' '{mode}'", *words])
        held = ranks.of_program(Command(line, None, {}, "log", environment), world, limit_s)
        try:
            assert held.ready["evidence"] == "extract"
            return ranks.compared([one["share"] for one in held.ask(SHARE, LIMIT_S)], None)
        finally:
            held.close()

    yield run
    assert processes() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "verdict", "samples"),
    [
        ("split stream", "refuted-no-effect", [20, 20]),
        ("split rows", "refuted-no-effect", [17, 17]),
        ("apart", "not-measurable-here", [40, 40]),
    ],
)
def test_each_rank_is_asked_at_its_loader(mode: str, verdict: str, samples: list[int], start: Start) -> None:
    found = start(mode)
    assert (found.verdict, found.counts["samples"]) == (verdict, samples)


def port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.mark.long
def test_ranks_that_the_program_starts_itself_are_asked(start: Start) -> None:
    assert start("spawned", port(), world=2).verdict == "confirmed"


@pytest.mark.long
def test_ranks_that_torchrun_starts_are_asked(start: Start) -> None:
    launcher = "-m torch.distributed.run --standalone --nproc_per_node=2"
    assert start("split rows", world=2, by=launcher).verdict == "refuted-no-effect"


def test_a_rank_that_fails_ends_them_all(start: Start) -> None:
    with pytest.raises(Failed) as told:
        start("dies")
    assert "status 1 before it iterated a DataLoader: RuntimeError: no room for another one" in str(told.value)


@pytest.mark.slow
def test_ranks_that_wait_for_each_other_are_not_waited_for(start: Start) -> None:
    began = time.monotonic()
    with pytest.raises(Failed, match="within 6 s"):
        start("hangs", limit_s=6)
    assert time.monotonic() - began < 60


def test_a_command_without_python_is_told_of(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command("sleep 600", None, {}, "log", dict(os.environ))
    with pytest.raises(Failed, match="no Python took up the shim"):
        ranks.of_program(command, 1, 2.0)


FACTORY = """\
import os, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ROWS = TensorDataset(torch.arange(32.0))

def split():
    dist.init_process_group("gloo")
    return DataLoader(ROWS, sampler=DistributedSampler(ROWS))

def waits():
    time.sleep(600 if os.environ["RANK"] == "1" else 0)
    return DataLoader(ROWS)
"""


def asked(folder: Path, function: str, limit_s: float = LIMIT_S) -> Judged:
    (folder / "mine.py").write_text(FACTORY)
    request = {"factory": f"mine:{function}", "folder": str(folder), "seed": None}
    children = ranks.Children(sys.executable, request, random.Random(1), limit_s)
    try:
        return ranks.compared([one["share"] for one in children.ask(SHARE, LIMIT_S)], None)
    finally:
        children.close()


@pytest.mark.slow
def test_a_factory_is_called_in_each_rank(tmp_path: Path) -> None:
    assert asked(tmp_path, "split").verdict == "refuted-no-effect"


@pytest.mark.long
def test_factories_that_wait_for_each_other_are_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no answer for 4 s"):
        asked(tmp_path, "waits", 4)
