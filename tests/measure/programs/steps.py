"""A training loop whose statements are the faults: work of the host in the loop, and a total with its graph."""

from __future__ import annotations

import argparse
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index))


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def prepared(batch: torch.Tensor, seconds: float) -> torch.Tensor:
    spin(seconds)
    return batch / 64


def step(net: nn.Module, rows: torch.Tensor, seconds: float) -> torch.Tensor:
    spin(seconds)
    parts = [part for part in rows if spin(seconds / 4) is None]  # HELPER
    loss = net(torch.stack(parts)).mean()
    loss.backward()
    return loss


def never() -> None:
    spin(1.0)  # NEVER


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--work", type=float, default=0.0)
    parser.add_argument("--step", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--traced", action="store_true")
    parser.add_argument("--anew", action="store_true", help="a new total in each epoch")
    parser.add_argument("--less", action="store_true", help="losses are taken from the total")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.traced:
        sys.settrace(lambda *_: None)
    loader = DataLoader(Rows(), 4)  # FLAGGED
    net = nn.Sequential(*(part for _ in range(args.layers) for part in (nn.Linear(16, 16), nn.Tanh())))
    total = torch.zeros(())
    for _ in range(args.epochs):
        if args.anew:
            total = torch.zeros(())
        for batch in loader:
            rows = prepared(batch, args.work)  # WORK
            loss = step(net, rows, args.step)
            if args.less:
                total -= loss  # LESS  # dlcheck: ignore[DLC503] what is measured
                continue
            total += loss  # SUM  # dlcheck: ignore[DLC503] what is measured
    print(float(total))


if __name__ == "__main__":
    main()
