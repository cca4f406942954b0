"""Train the classifier: `python train.py`, or `torchrun --nproc-per-node=8 train.py --distributed`."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

import make_data
from config import build_parser
from devices import pick_device
from engine import fit
from loaders import train_loader, val_loader
from model import classifier


def main() -> None:
    args = build_parser().parse_args()
    torch.manual_seed(0)
    make_data.ensure(args.data)
    if args.distributed:
        torch.distributed.init_process_group()

    train, val = train_loader(args), val_loader(args)
    device = pick_device()
    model = classifier(make_data.CLASSES).to(device)
    model(torch.zeros(1, 3, make_data.SIDE, make_data.SIDE, device=device))  # gives the lazy layer its size
    if args.distributed:
        model = DistributedDataParallel(model)

    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    fit(model, train, val, optimizer, device, args.epochs)


if __name__ == "__main__":
    main()
