"""A small training loop, whose form the command line decides."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Rows(Dataset):
    def __init__(self, count: int, cost: float = 0.0) -> None:
        self.count, self.cost = count, cost

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.cost:
            time.sleep(self.cost)
        return torch.full((4,), float(index)), index


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(64):
            yield torch.full((4,), float(index)), index


class Unsendable(Rows):
    """What it holds cannot be pickled."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.change = lambda value: value


class Named(DataLoader):
    """A subclass with a signature of its own."""

    def __init__(self, dataset: Dataset, size: int, label: str = "named") -> None:
        super().__init__(dataset, size, num_workers=0)
        self.label = label


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", choices=["rows", "stream", "unsendable"], default="rows")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--cost", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--method", default=None)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--loader", choices=["plain", "named", "rebuilt", "fresh"], default="plain")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--break-after", type=int, default=0)
    parser.add_argument("--write-into", action="store_true", help="the step changes its batch in place")
    parser.add_argument("--save", default=None)
    parser.add_argument("--fail", choices=["never", "before", "during"], default="never")
    parser.add_argument("--other", action="store_true", help="iterate only a loader that nobody asked about")
    parser.add_argument("--count-file", default=None)
    parser.add_argument("--copy", action="store_true", help="copy to a device that every torch has")
    parser.add_argument("--values", default=None, help="a file for each step's loss")
    parser.add_argument("--after", default=None, help="a file that is written in a `finally:`")
    return parser.parse_args()


def make(args: argparse.Namespace, dataset: Dataset) -> DataLoader:
    if args.loader == "named":
        return Named(dataset, 4)
    options = {"persistent_workers": args.persistent} if args.workers else {}
    return DataLoader(dataset, 4, num_workers=args.workers, multiprocessing_context=args.method, **options)  # FLAGGED


def step(batch, model, args) -> None:
    rows = batch[0]
    if args.write_into:
        rows.mul_(0.5)
    if args.copy:
        rows.to("meta")  # COPY
    loss = model(rows).sum()
    loss.backward()
    if args.values:
        value = loss.item()  # ITEM
        with open(args.values, "a") as file:
            file.write(f"{value}\n")


def main() -> None:
    args = parse()
    dataset = {"rows": lambda: Rows(args.count, args.cost), "stream": Stream, "unsendable": lambda: Unsendable(64)}[
        args.data
    ]()
    if args.fail == "before":
        raise RuntimeError("no data here")
    model = torch.nn.Linear(4, 1)
    if args.other:
        for batch in DataLoader(dataset, 8):
            step(batch, model, args)
        return
    loader = make(args, dataset)
    steps = 0
    try:
        for epoch in range(args.epochs):
            if args.loader == "rebuilt" and epoch:
                loader = make(args, dataset)
            for batch in loader:
                step(batch, model, args)
                steps += 1
                if args.fail == "during" and steps == 3:
                    raise RuntimeError("the step fails")
                if args.break_after and steps % args.break_after == 0:
                    break
            if args.save:
                torch.save(model.state_dict(), args.save)
            if args.count_file:
                with open(args.count_file, "a") as file:
                    file.write(f"{epoch} {steps}\n")
    finally:
        if args.after:
            with open(args.after, "w") as file:
                file.write("finally\n")
    print(f"done {steps} {multiprocessing.get_start_method()} {os.getpid()}")


if __name__ == "__main__":
    main()
