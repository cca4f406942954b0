"""Datasets and loaders with a fault, and sound twins of them, by the oracle that tells them apart."""

from __future__ import annotations

from typing import Any

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
    "batches-differ": (
        "def make(): return DataLoader(ROWS, batch_size=8)",
        "def make(): return DataLoader(ROWS, batch_size=8, drop_last=True)",
    ),
    "reseeding-repeats": (
        "def make(): return DataLoader(ROWS, batch_size=8, shuffle=True)",
        "def make(): return DataLoader(ROWS, batch_size=8, shuffle=True, generator=torch.Generator())",
    ),
    "stale-in-workers": (
        """
        class Turning(Items):
            def __init__(self): self.turn = 0
            def set_turn(self, turn): self.turn = turn
            def __getitem__(self, index): return index + self.turn
        def make(): return DataLoader(Turning(), batch_size=2, num_workers=2, persistent_workers=True)
        """,
        """
        from multiprocessing import Value
        class Turning(Items):
            def __init__(self): self.turn = Value("i", 0)
            def set_turn(self, turn): self.turn.value = turn
            def __getitem__(self, index): return index + self.turn.value
        def make(): return DataLoader(Turning(), batch_size=2, num_workers=2, persistent_workers=True)
        """,
    ),
    "state-lost": (
        """
        class Cached(Items):
            def __init__(self): self.cache = {}
            def __getitem__(self, index): return self.cache.setdefault(index, torch.ones(2) * index)
        def make(): return DataLoader(Cached(), batch_size=2, num_workers=2)
        """,
        """
        from multiprocessing import Manager
        class Cached(Items):
            def __init__(self): self.cache = Manager().dict()
            def __getitem__(self, index):
                self.cache[index] = float(index)
                return self.cache[index]
        def make(): return DataLoader(Cached(), batch_size=2, num_workers=2)
        """,
    ),
    "parts-share-dataset": (
        """
        from torch.utils.data import random_split
        def make():
            global other
            part, other = random_split(Items(), [8, 4])
            return DataLoader(part)
        """,
        """
        import copy
        from torch.utils.data import random_split
        def make():
            global other
            part, other = random_split(Items(), [8, 4])
            other.dataset = copy.copy(other.dataset)
            return DataLoader(part)
        """,
    ),
    "tensors-not-pinned": (
        """
        class Pair:
            def __init__(self, rows): self.first, self.second = torch.stack(rows), {"size": torch.tensor(len(rows))}
        def make(): return DataLoader(Items(), batch_size=4, collate_fn=Pair)
        """,
        """
        class Pair:
            def __init__(self, rows): self.first, self.second = torch.stack(rows), {"size": torch.tensor(len(rows))}
            def pin_memory(self):
                self.first, self.second = self.first.pin_memory(), {"size": self.second["size"].pin_memory()}
                return self
        def make(): return DataLoader(Items(), batch_size=4, collate_fn=Pair)
        """,
    ),
}
# What the finding knows of it.
ABOUT: dict[str, dict[str, Any]] = {
    "stale-in-workers": {"owner": "Turning", "attributes": ["turn"], "method": "set_turn", "arguments": [["", None]]},
    "state-lost": {"owner": "Cached", "attributes": ["cache"], "kind": "cache"},
    "parts-share-dataset": {"attribute": "transform", "through": True},
}
