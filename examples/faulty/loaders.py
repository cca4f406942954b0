"""The loaders of train.py."""

from __future__ import annotations

import argparse
from typing import Any

from torch.utils.data import DataLoader, Dataset, DistributedSampler

from data import TileArchive, TileFolder


def make_loader(dataset: Dataset, args: argparse.Namespace, **options: Any) -> DataLoader:
    return DataLoader(dataset, batch_size=args.batch_size, **options)  # DLC202


def train_loader(args: argparse.Namespace) -> DataLoader:
    dataset = TileArchive(args.data / "train.zip", args.data / "train.csv")
    options: dict[str, Any] = {"num_workers": args.workers, "pin_memory": True, "drop_last": True}
    if args.distributed:
        options["sampler"] = DistributedSampler(dataset)  # DLC410
    else:
        options["shuffle"] = True
    return make_loader(dataset, args, **options)


def val_loader(args: argparse.Namespace) -> DataLoader:
    dataset = TileFolder(args.data / "val", args.data / "val.csv")
    options = {"num_workers": args.eval_workers, "prefetch_factor": 4}  # DLC203
    return make_loader(dataset, args, **options)
