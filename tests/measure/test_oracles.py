"""What is asked of a user's own data: each fault is found, and each sound twin is not."""

from __future__ import annotations

import importlib
import itertools
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

HEAD = """\
import random, itertools
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset
from torch.utils.data import WeightedRandomSampler, get_worker_info

ROWS = TensorDataset(torch.arange(33.0).reshape(33, 1))

class Items(Dataset):
    def __len__(self): return 12
    def __getitem__(self, index): return torch.tensor([float(index)])

def seeded(worker): torch.manual_seed(7); random.seed(7); np.random.seed(7)
"""

# The oracle, what is wrong, what is right.
PAIRS: dict[str, tuple[str, str]] = {
    "copies-per-sample": (
        """
        class Stream(IterableDataset):
            def __iter__(self): return iter(range(40))
        def make(): return DataLoader(Stream(), batch_size=4, num_workers=2)
        """,
        """
        class Stream(IterableDataset):
            def __iter__(self):
                info = get_worker_info()
                return iter(range(40)) if info is None else iter(range(info.id, 40, info.num_workers))
        def make(): return DataLoader(Stream(), batch_size=4, num_workers=2)
        """,
    ),
    "randomness-repeats": (
        """
        class Noisy(Items):
            def __init__(self): self.dice = np.random.default_rng(0)
            def __getitem__(self, index): return self.dice.random(3)
        def make(): return DataLoader(Noisy(), batch_size=4)
        """,
        """
        class Noisy(Items):
            def __getitem__(self, index): return torch.rand(3)
        def make(): return DataLoader(Noisy(), batch_size=4)
        """,
    ),
    "sample-never-varies": (
        """
        class Constant(Items):
            def __getitem__(self, index):
                torch.manual_seed(index)
                return torch.rand(3)
        def make(): return DataLoader(Constant(), batch_size=4)
        """,
        """
        class Flipped(Items):
            def __getitem__(self, index): return torch.ones(3) * (-1 if torch.rand(()) < 0.2 else 1)
        def make(): return DataLoader(Flipped(), batch_size=4)
        """,
    ),
    "worker-seeds": (
        "def make(): return DataLoader(ROWS, num_workers=2, worker_init_fn=seeded)",
        "def make(): return DataLoader(ROWS, num_workers=2)",
    ),
    "order-repeats": (
        "def make(): return DataLoader(ROWS, sampler=DistributedSampler(ROWS, 2, 0))",
        """
        class Turning(DistributedSampler):
            def __iter__(self):
                self.set_epoch(self.epoch + 1)
                return super().__iter__()
        def make(): return DataLoader(ROWS, sampler=Turning(ROWS, 2, 0))
        """,
    ),
    "samples-left-out": (
        "def make(): return DataLoader(ROWS, batch_size=8, drop_last=True)",
        "def make(): return DataLoader(ROWS, batch_size=8)",
    ),
    "samples-drawn-twice": (
        "def make(): return DataLoader(ROWS, sampler=DistributedSampler(ROWS, 2, 0))",
        "def make(): return DataLoader(ROWS, sampler=DistributedSampler(ROWS, 3, 0))",
    ),
    "order-is-fixed": (
        "def make(): return DataLoader(ROWS)",
        "def make(): return DataLoader(ROWS, shuffle=True)",
    ),
    "last-batch-is-one": (
        "def make(): return DataLoader(ROWS, batch_size=8)",
        "def make(): return DataLoader(ROWS, batch_size=11)",
    ),
    "epoch-ends-early": (
        """
        class Stopping:
            def __iter__(self): return iter(range(5))
            def __len__(self): return 12
        def make(): return DataLoader(Items(), batch_size=4, sampler=Stopping())
        """,
        "def make(): return DataLoader(Items(), batch_size=4)",
    ),
    "second-pass-is-empty": (
        """
        class Once(IterableDataset):
            def __init__(self): self.rows = iter(range(8))
            def __iter__(self): return self.rows
        def make(): return DataLoader(Once(), batch_size=4)
        """,
        """
        class Again(IterableDataset):
            def __iter__(self): return iter(range(8))
        def make(): return DataLoader(Again(), batch_size=4)
        """,
    ),
    "sample-changes": (
        """
        class Doubling(Items):
            def __init__(self): self.rows = torch.ones(12, 2)
            def __getitem__(self, index):
                row = self.rows[index]
                row *= 2
                return row
        def make(): return DataLoader(Doubling())
        """,
        """
        class Augmented(Items):
            def __getitem__(self, index): return torch.rand(2) + random.random() + np.random.random()
        def make(): return DataLoader(Augmented())
        """,
    ),
    "samples-share-memory": (
        """
        class Buffered(Items):
            def __init__(self): self.buffer = torch.zeros(2)
            def __getitem__(self, index): return self.buffer.fill_(index)
        def make(): return DataLoader(Buffered())
        """,
        "def make(): return DataLoader(Items())",
    ),
    "samples-are-missing": (
        """
        class Holes(Items):
            def __getitem__(self, index): return None if index == 7 else index
        def make(): return DataLoader(Holes())
        """,
        "def make(): return DataLoader(Items())",
    ),
    "samples-raise": (
        """
        class Flipped(Items):
            def __getitem__(self, index): return torch.from_numpy(np.ones(4)[::-1])
        def make(): return DataLoader(Flipped())
        """,
        "def make(): return DataLoader(Items())",
    ),
    "loader-ignores-dataset": (
        """
        class Odd(Items):
            def __getitems__(self, indices): return [torch.zeros(1) for _ in indices]
        def make(): return DataLoader(Odd())
        """,
        "def make(): return DataLoader(Items())",
    ),
    "cannot-be-pickled": (
        "def make(): return DataLoader(ROWS, collate_fn=lambda rows: rows)",
        "def make(): return DataLoader(ROWS)",
    ),
    "batch-cannot-be-sent": (
        """
        def collate(rows): return (lambda: rows)
        def make(): return DataLoader(ROWS, collate_fn=collate)
        """,
        "def make(): return DataLoader(ROWS)",
    ),
    "draws-beyond-the-end": (
        "def make(): return DataLoader(ROWS, sampler=WeightedRandomSampler([0.2, 0.8], 33))",
        "def make(): return DataLoader(ROWS, sampler=WeightedRandomSampler([1.0] * 33, 33))",
    ),
    "files-stay-open": (
        """
        class Opened(Items):
            def __getitem__(self, index): return open(__file__)
        def make(): return DataLoader(Opened())
        """,
        "def make(): return DataLoader(Items())",
    ),
    "order-changes": (
        "def make(): return DataLoader(ROWS, shuffle=True)",
        "def make(): return DataLoader(ROWS)",
    ),
    "workers-fail-to-start": (
        """
        def init(worker): np.random.seed(torch.initial_seed())
        def make(): return DataLoader(ROWS, num_workers=2, worker_init_fn=init)
        """,
        """
        def init(worker): np.random.seed(torch.initial_seed() % 2**32)
        def make(): return DataLoader(ROWS, num_workers=2, worker_init_fn=init)
        """,
    ),
    "same-with-workers": (
        """
        import tempfile, time
        class Shared(Items):
            def __init__(self):
                self.file = tempfile.TemporaryFile(buffering=0)
                self.file.write(b"".join(bytes([number]) * 4096 for number in range(200)))
            def __len__(self): return 200
            def __getitem__(self, index):
                self.file.seek(index * 4096)
                time.sleep(0)
                return self.file.read(4096)
        def make(): return DataLoader(Shared())
        """,
        "def make(): return DataLoader(Items())",
    ),
}

Ask = Callable[[str, str], dict[str, Any]]
_numbers = itertools.count()


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    from dlcheck_worker import oracles, sources

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def asked(code: str, oracle: str) -> dict[str, Any]:
        name = f"mine_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(HEAD + textwrap.dedent(code))
        importlib.invalidate_caches()
        found: dict[str, Any] = oracles.ask(oracle, sources.Factory(f"{name}:make", str(tmp_path)), {})
        return found

    return asked


@pytest.mark.parametrize("oracle", PAIRS)
def test_the_fault_is_found_and_its_absence_too(oracle: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, right = PAIRS[oracle]
    found = ask(wrong, oracle)  # a race is tried for seconds, or until it is lost
    assert found["violated"], found
    assert found["said"]
    monkeypatch.setattr("dlcheck_worker.oracles.RACE_S", 0.2)
    sound = ask(right, oracle)
    assert not sound["violated"], sound


def test_an_unsharded_stream_of_random_samples_is_found_by_their_number(ask: Ask) -> None:
    code = """
    class Noise(IterableDataset):
        def __iter__(self): return (torch.randn(3) for _ in range(64))
    def make(): return DataLoader(Noise(), batch_size=4, num_workers=2)
    """
    found = ask(code, "copies-per-sample")
    assert found["violated"]
    assert (found["counts"]["alone"], found["counts"]["with_workers"]) == (64, 128)


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


def test_every_oracle_is_tried() -> None:
    from dlcheck_worker.oracles import ORACLES

    assert {*PAIRS, "nested-iteration", "indices-of-split"} == set(ORACLES)
