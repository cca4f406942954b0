"""argparse, spawned workers, a log file, and a checkpoint that is written beside and then moved into place."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"wave": torch.sin(torch.arange(64) * float(index)), "label": torch.tensor(index % 2)}


def checkpoint(model: nn.Module, out: Path, best: bool) -> None:
    part = out / "last.pt.part"
    torch.save(model.state_dict(), part)
    os.replace(part, out / "last.pt")
    if best:
        shutil.copyfile(out / "last.pt", out / "best.pt")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--start-method", default="spawn")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=args.out / "train.log", filemode="w", level=logging.INFO)
    logging.info("begins")

    loader = DataLoader(  # FLAGGED
        Waves(),
        batch_size=4,
        shuffle=True,
        num_workers=args.workers,
        multiprocessing_context=args.start_method if args.workers else None,
        persistent_workers=args.workers > 0,
    )
    model = nn.Linear(64, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["wave"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        logging.info("epoch %d: %.3f", epoch, loss.item())
        checkpoint(model, args.out, best=True)


if __name__ == "__main__":
    main()
