"""The loaders of train.py."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from data import TileArchive, TileFolder


def make_loader(dataset: Dataset, args: argparse.Namespace, **options: Any) -> DataLoader:
    return DataLoader(dataset, batch_size=args.batch_size, pin_memory=torch.cuda.is_available(), **options)


def train_loader(args: argparse.Namespace) -> DataLoader:
    dataset = TileArchive(args.data / "train.zip", args.data / "train.csv")
    options = {"num_workers": args.workers, "persistent_workers": args.workers > 0, "drop_last": True}
    if args.distributed:
        options["sampler"] = DistributedSampler(dataset)
    else:
        options["shuffle"] = True
    return make_loader(dataset, args, **options)


def val_loader(args: argparse.Namespace) -> DataLoader:
    dataset = TileFolder(args.data / "val", args.data / "val.csv")
    workers = args.eval_workers
    options = {"num_workers": workers, "persistent_workers": workers > 0, "prefetch_factor": 4 if workers else None}
    return make_loader(dataset, args, **options)
