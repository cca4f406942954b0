"""What is asked of a user's own data: each fault is found, and each sound twin is not."""

from __future__ import annotations

import importlib
import itertools
import random
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import ABOUT, HEAD, PAIRS

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

Ask = Callable[..., dict[str, Any]]
_numbers = itertools.count()


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    from dlcheck_worker import oracles, sources

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def asked(code: str, oracle: str, about: dict[str, Any] | None = None, name: str = "") -> dict[str, Any]:
        name = name or f"mine_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(HEAD + textwrap.dedent(code))
        importlib.invalidate_caches()
        config = ABOUT.get(oracle, {}) if about is None else about
        found: dict[str, Any] = oracles.ask(oracle, sources.Factory(f"{name}:make", str(tmp_path)), config)
        return found

    return asked


@pytest.mark.parametrize("oracle", PAIRS)
def test_the_fault_is_found_and_its_absence_too(oracle: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, right = PAIRS[oracle]
    found = ask(wrong, oracle)  # a race is tried for seconds, or until it is lost
    assert found["violated"], found
    assert found["said"]
    monkeypatch.setattr("dlcheck_worker.oracles.asking.RACE_S", 0.2)
    sound = ask(right, oracle)
    assert not sound["violated"], sound


PICKY = """
import threading

class Locked(Dataset):
    def __init__(self):
        self.lock, self.make, self.size = threading.Lock(), lambda: 0, 4
    def __len__(self): return self.size
    def __getitem__(self, index): return torch.zeros(1)

class Leaves(Locked):
    def __getstate__(self): return {"size": self.size}

def make():
    DATASET
    return DataLoader(torch.utils.data.Subset(data, [0, 1]), num_workers=2)
"""


@pytest.mark.parametrize(
    ("dataset", "attribute", "violated", "said"),
    [
        ("data = Locked()", "lock", True, "`lock`: TypeError"),
        ("data = Locked()", "make", True, "`make`: "),
        ("data = Locked()", "size", False, "`size` can be pickled"),
        ("data = Leaves()", "lock", False, "leaves `lock` out"),
    ],
)
def test_one_attribute_is_not_found_at_fault_for_another(
    dataset: str, attribute: str, violated: bool, said: str, ask: Ask
) -> None:
    about = {"owner": "Locked", "attribute": attribute}
    found = ask(PICKY.replace("DATASET", dataset), "cannot-be-pickled", about)
    assert found["violated"] is violated
    assert said in found["said"]


def test_an_attribute_that_is_gone_when_a_worker_starts_decides_nothing(ask: Ask) -> None:
    code = PICKY.replace("DATASET", "data = Locked(); del data.lock")
    found = ask(code, "cannot-be-pickled", {"owner": "Locked", "attribute": "lock"})
    assert found == {"inapplicable": "when a worker starts, Locked has no `lock`"}


def test_an_unsharded_stream_of_random_samples_is_found_by_their_number(ask: Ask) -> None:
    code = """
    class Noise(IterableDataset):
        def __iter__(self): return (torch.randn(3) for _ in range(64))
    def make(): return DataLoader(Noise(), batch_size=4, num_workers=2)
    """
    found = ask(code, "copies-per-sample")
    assert found["violated"]
    assert (found["counts"]["alone"], found["counts"]["with_workers"]) == (64, 128)


def test_of_an_endless_stream_it_is_said_that_reading_was_cut_off(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcheck_worker.oracles.workers.STREAM", 20)
    code = """
    class Endless(IterableDataset):
        def __iter__(self): return (torch.tensor([number]) for number in itertools.count())
    def make(): return DataLoader(Endless(), batch_size=4, num_workers=2)
    """
    found = ask("import itertools\n" + textwrap.dedent(code), "copies-per-sample")
    assert found["violated"]
    assert found["said"] == "the first 20 samples without workers, the first 40 with 2: 20 come again"


@pytest.mark.parametrize("chance", [0.1, 0.5])
def test_what_agrees_by_chance_decides_nothing(chance: float, ask: Ask) -> None:
    code = f"""
    class Flipped(Items):
        def __getitem__(self, index): return torch.ones(3) * (-1 if torch.rand(()) < {chance} else 1)
    def make(): return DataLoader(Flipped(), batch_size=4)
    """
    assert "may agree by chance" in ask(code, "randomness-repeats")["inapplicable"]


@pytest.mark.parametrize(
    ("oracle", "said"),
    [
        ("copies-per-sample", "is no stream"),
        ("order-repeats", "has a SequentialSampler, which has no epochs to set"),
        ("samples-drawn-twice", "which fills nothing up"),
        ("draws-beyond-the-end", "which has no weights"),
    ],
)
def test_a_question_that_does_not_apply_gets_no_answer(oracle: str, said: str, ask: Ask) -> None:
    assert said in ask("def make(): return DataLoader(ROWS)", oracle)["inapplicable"]


def test_a_loop_within_a_loop_takes_its_batches(ask: Ask) -> None:
    """Persistent workers have one iterator; there is no sound twin of the same loader."""
    found = ask("def make(): return DataLoader(ROWS, batch_size=4, num_workers=2)", "nested-iteration")
    assert found["violated"]


def test_two_splits_without_a_seed_differ(ask: Ask) -> None:
    split = "def make(): return DataLoader(torch.utils.data.random_split(ROWS, [20, 13]{})[0])"
    free = [ask(split.format(""), "indices-of-split")["counts"] for _ in range(2)]
    fixed = split.format(", torch.Generator().manual_seed(1)")
    assert ask(fixed, "indices-of-split")["counts"] == ask(fixed, "indices-of-split")["counts"]
    assert free[0] != free[1]


# What persistent workers see


def persistent(body: str, make: str = "Turning()") -> str:
    return f"""
    from multiprocessing import Value
    from torch.utils.data import Subset
    class Turning(Items):
{textwrap.indent(textwrap.dedent(body), " " * 8)}
        def __getitem__(self, index): return index
    def make(): return DataLoader({make}, batch_size=2, num_workers=2, persistent_workers=True)
    """


PLAIN = "def __init__(self): self.turn = 0"
HARD = """
def __init__(self): self.turn = "easy"
def set_stage(self, stage): self.turn = {"easy": "easy", "hard": "hard"}[stage]
"""
BEHIND_A_PROPERTY = """
def __init__(self): self.shared = Value("i", 0)
@property
def turn(self): return self.shared.value
@turn.setter
def turn(self, turn): self.shared.value = turn
"""
SHARED_TENSOR = """
def __init__(self): self.turn = torch.zeros(1).share_memory_()
def set_turn(self, turn): self.turn.fill_(turn)
"""
TURN = {"owner": "Turning", "attributes": ["turn"]}
STAGE = {**TURN, "method": "set_stage", "arguments": [["stage", "hard"]]}
SETS = {**TURN, "method": "set_turn", "arguments": []}


@pytest.mark.parametrize(
    ("body", "about", "stale"),
    [(PLAIN, TURN, 2), (HARD, STAGE, 2), (BEHIND_A_PROPERTY, TURN, 0), (SHARED_TENSOR, SETS, 0)],
)
def test_workers_are_told_of_changes_or_not(body: str, about: dict[str, Any], stale: int, ask: Ask) -> None:
    found = ask(persistent(body), "stale-in-workers", about)
    assert found["counts"] == {"workers": 2, "stale": stale}


def test_what_was_changed_for_a_question_is_put_back(ask: Ask) -> None:
    ask(persistent(PLAIN, "globals().setdefault('kept', Turning())"), "stale-in-workers", TURN, "mine_kept")
    assert sys.modules["mine_kept"].kept.turn == 0


def test_a_dataset_inside_another_and_a_collate_function_are_found(ask: Ask) -> None:
    inside = ask(persistent(PLAIN, "Subset(Turning(), range(8))"), "stale-in-workers", TURN)
    assert inside["violated"]
    collates = """
    class Padding:
        length = 8
        def __call__(self, rows): return torch.stack(rows)[:, : self.length]
    def make(): return DataLoader(Items(), 2, num_workers=2, persistent_workers=True, collate_fn=Padding())
    """
    assert ask(collates, "stale-in-workers", {"owner": "Padding", "attributes": ["length"]})["violated"]


@pytest.mark.parametrize(
    ("body", "about", "said"),
    [
        (HARD, {**STAGE, "arguments": [["", None]]}, "`set_stage` cannot be called with numbers: KeyError"),
        (PLAIN + "\ndef set_turn(self, turn): pass", SETS, "`set_turn` was called, and `turn` is what it was"),
        (PLAIN, {"owner": "Other", "attributes": ["turn"]}, "run like this the loader has no Other"),
        (PLAIN, {}, "it is not known which attribute"),
    ],
)
def test_a_change_that_cannot_be_made_decides_nothing(body: str, about: dict[str, Any], said: str, ask: Ask) -> None:
    assert said in ask(persistent(body), "stale-in-workers", about)["inapplicable"]


def test_workers_that_start_anew_see_every_change(ask: Ask) -> None:
    code = persistent(PLAIN).replace(", persistent_workers=True", "")
    assert "no persistent workers" in ask(code, "stale-in-workers", TURN)["inapplicable"]


def counting(init: str, count: str, options: str = "num_workers=2") -> str:
    return f"""
    from multiprocessing import Value
    class Counted(Items):
        def __init__(self): {init}
        def __getitem__(self, index):
            {count}
            return index
    class Turned(IterableDataset):
        turn = 0
        def __iter__(self):
            self.turn += 1
            return iter(range(8))
    def make(): return DataLoader(Counted(), batch_size=2, {options})
    """


COUNTED = {"owner": "Counted", "attributes": ["seen"], "kind": "count"}


def test_a_count_is_lost_unless_it_is_shared(ask: Ask) -> None:
    lost = ask(counting("self.seen = 0", "self.seen += 1"), "state-lost", COUNTED)
    assert lost["counts"] == {"changed": 6, "batches": 6}
    shared = ask(counting("self.seen = Value('i', 0)", "self.seen.value += 1"), "state-lost", COUNTED)
    assert (shared["violated"], shared["counts"]["changed"]) == (False, 6)
    stays = counting("self.seen = 0", "self.seen += 1", "num_workers=2, persistent_workers=True")
    assert ask(stays, "state-lost", COUNTED)["violated"]  # the main process does not see it all the same


def test_a_turn_is_lost_with_its_worker(ask: Ask) -> None:
    code = counting("pass", "pass").replace("DataLoader(Counted()", "DataLoader(Turned()")
    about = {"owner": "Turned", "attributes": ["turn"], "kind": "turn"}
    assert ask(code, "state-lost", about)["violated"]
    kept = code.replace("num_workers=2", "num_workers=2, persistent_workers=True")
    assert "they keep it" in ask(kept, "state-lost", about)["inapplicable"]


@pytest.mark.parametrize(
    ("count", "options", "said"),
    [("pass", "num_workers=2", "no worker changes `seen`"), ("self.seen += 1", "num_workers=0", "has no workers")],
)
def test_state_that_stays_as_it_is_is_not_lost(count: str, options: str, said: str, ask: Ask) -> None:
    assert said in ask(counting("self.seen = 0", count, options), "state-lost", COUNTED)["inapplicable"]


# What begins with the same seed

NOISY = """
class Noisy(Items):
    def __getitem__(self, index): return random.random()
class Stream(IterableDataset):
    def __iter__(self): return (torch.rand(2) for _ in range(12))
"""


@pytest.mark.parametrize(
    ("loader", "generators", "repeats"),
    [
        ("DataLoader(ROWS, shuffle=True, num_workers=2, persistent_workers=True)", ["torch"], ["order", "samples"]),
        ("DataLoader(Stream())", ["torch"], ["samples"]),
        ("DataLoader(Noisy())", ["random"], ["samples"]),
        ("DataLoader(Noisy(), num_workers=1)", ["random"], []),
        ("DataLoader(Noisy(), num_workers=1)", ["numpy", "random", "torch"], ["samples"]),
        ("DataLoader(ROWS, shuffle=True, generator=torch.Generator())", ["own"], ["order", "samples"]),
    ],
)
def test_what_a_seed_decides_in_each_epoch(loader: str, generators: list[str], repeats: list[str], ask: Ask) -> None:
    code = textwrap.dedent(NOISY) + f"def make(): return {loader}"
    assert ask(code, "reseeding-repeats", {"generators": generators})["counts"]["repeats"] == repeats


def test_epochs_without_chance_have_nothing_to_repeat(ask: Ask) -> None:
    found = ask("def make(): return DataLoader(ROWS)", "reseeding-repeats")
    assert "alike without a seed" in found["inapplicable"]
    found = ask("def make(): return DataLoader(ROWS)", "reseeding-repeats", {"generators": ["own"]})
    assert "no generator of its own" in found["inapplicable"]


def test_a_question_leaves_the_generators_where_they_were(ask: Ask) -> None:
    import numpy as np
    import torch

    def states() -> tuple[Any, ...]:
        return random.getstate(), torch.random.get_rng_state().tolist(), np.random.get_state()[1].tolist()  # type: ignore[index]

    before = states()
    for oracle in ("reseeding-repeats", "sample-changes"):
        ask("def make(): return DataLoader(ROWS, shuffle=True, generator=torch.Generator())", oracle)
    assert states() == before


# Batches


def test_the_batches_of_a_stream_are_counted_as_they_come(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = """
    class Stream(IterableDataset):
        def __iter__(self): return iter(range({}))
    def make(): return DataLoader(Stream(), batch_size=4)
    """
    assert ask(stream.format(10), "batches-differ")["counts"]["sizes"] == {"4": 2, "2": 1}
    assert not ask(stream.format(8), "batches-differ")["violated"]
    assert ask(stream.format(9), "last-batch-is-one")["violated"]
    assert "goes on" in ask(stream.format(10**9), "batches-differ")["inapplicable"]
    whole = "def make(): return DataLoader(ROWS, batch_size=None)"
    assert "makes no batches" in ask(whole, "batches-differ")["inapplicable"]


@pytest.mark.parametrize(
    ("collate", "pinned", "tensors"),
    [
        ("lambda rows: {'x': torch.stack(rows), 'deep': [torch.ones(1), ('a', torch.ones(1))]}", 3, 3),
        ("lambda rows: Pair(torch.stack(rows), torch.ones(1))", 2, 2),
        ("lambda rows: (torch.stack(rows), Boxes(torch.ones(1)))", 1, 2),
        ("lambda rows: Slotted(torch.ones(1))", 0, 1),
    ],
)
def test_pinning_gets_to_what_it_knows(collate: str, pinned: int, tensors: int, ask: Ask) -> None:
    code = f"""
    from typing import NamedTuple
    class Pair(NamedTuple):
        first: object
        second: object
    class Boxes:
        def __init__(self, boxes): self.boxes, self.itself = boxes, self
    class Slotted:
        __slots__ = ("boxes",)
        def __init__(self, boxes): self.boxes = boxes
    def make(): return DataLoader(Items(), batch_size=4, collate_fn={collate})
    """
    found = ask(code, "tensors-not-pinned")
    assert found["counts"] == {"tensors": tensors, "pinned": pinned}
    assert found["violated"] == (pinned < tensors)


def test_a_batch_without_tensors_has_nothing_to_pin(ask: Ask) -> None:
    code = "def make(): return DataLoader(Items(), collate_fn=len)"
    assert "no tensors" in ask(code, "tensors-not-pinned")["inapplicable"]


# Parts of a split


def test_the_parts_that_are_left_are_compared(ask: Ask) -> None:
    alone = "def make(): return DataLoader(torch.utils.data.Subset(Items(), range(4)))"
    assert "no other part" in ask(alone, "parts-share-dataset")["inapplicable"]
    assert "is no part of a split" in ask("def make(): return DataLoader(ROWS)", "parts-share-dataset")["inapplicable"]
    three = """
    parts = torch.utils.data.random_split(Items(), [6, 3, 3])
    parts[2].dataset = Items()
    def make(): return DataLoader(parts[0])
    """
    assert ask(three, "parts-share-dataset")["counts"] == {"others": 2, "sharing": 1}


def test_an_attribute_of_the_part_itself_is_read_or_not(ask: Ask) -> None:
    code = """
    class Part(torch.utils.data.Subset):
        def __getitems__(self, indices): return [self.transform(self.dataset[index]) for index in indices]
    def make():
        part = {}(Items(), range(4))
        part.transform = torch.neg
        return DataLoader(part)
    """
    about = {"attribute": "transform", "through": False}
    assert ask(code.format("torch.utils.data.Subset"), "parts-share-dataset", about)["violated"]
    assert not ask(code.format("Part"), "parts-share-dataset", about)["violated"]


# Shared memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_named_files_stay_behind(ask: Ask) -> None:
    import torch.multiprocessing as mp

    strategy: Any = mp.set_sharing_strategy
    # Workers that start from nothing have the default strategy.
    code = "def make(): return DataLoader(ROWS, batch_size=4, num_workers=2, multiprocessing_context='fork')"
    assert "the sharing strategy is file_descriptor" in ask(code, "files-stay-behind")["inapplicable"]
    strategy("file_system")
    try:
        found = ask(code, "files-stay-behind")
    finally:
        strategy("file_descriptor")
    assert found["violated"]
    assert found["counts"] == {"files": 8, "batches": 8}


# Devices


@pytest.mark.parametrize("oracle", ["read-before-arrival", "source-reused-too-soon"])
@pytest.mark.parametrize("late", [False, True])
def test_copies_that_come_late_are_seen(oracle: str, late: bool, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    from dlcheck_worker.oracles import copying

    from devices import LateCopies

    for name, number in (("TIMES", 5), ("NUMBERS", 64), ("LOAD", 0)):
        monkeypatch.setattr(copying, name, number)
    if late:
        monkeypatch.setattr(copying, "Device", LateCopies)
    found = ask("def make(): return DataLoader(ROWS)", oracle, {"device": "cpu"})
    assert found["violated"] == late
    wrong, blocking, _ = found["counts"].values()
    assert (wrong, blocking) == (5 if late else 0, 0)


# All of them


def test_every_oracle_is_tried() -> None:
    from dlcheck_worker.oracles import ORACLES

    others = {"nested-iteration", "indices-of-split", "files-stay-behind", "read-before-arrival"}
    assert {*PAIRS, *others, "source-reused-too-soon", "share-of-a-rank"} == set(ORACLES)


def test_a_stream_that_knows_its_length_is_not_asked_for_samples(ask: Ask) -> None:
    from dlcheck_worker import facts, sources

    ask(
        """
        class Stream(IterableDataset):
            def __len__(self): return 5
            def __iter__(self): return iter(range(5))
        def make(): return DataLoader(Stream())
        """,
        "second-pass-is-empty",
        name="mine_stream",
    )
    found = facts.of(sources.Factory("mine_stream:make", "."), 0.1)
    assert (found["size"], "cpu_s" in found) == (5, False)
