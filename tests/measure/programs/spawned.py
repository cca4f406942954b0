"""The training runs in a process that torch.multiprocessing started."""

from __future__ import annotations

import sys

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, TensorDataset


def work(rank: int) -> None:
    loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4)  # FLAGGED
    model = torch.nn.Linear(4, 1)
    for _ in range(20):
        for (rows,) in loader:
            model(rows).sum().backward()


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        context = torch.multiprocessing.get_context("fork")
        process = context.Process(target=work, args=(0,))
        process.start()
        process.join()
    else:
        torch.multiprocessing.spawn(work, nprocs=1)
