"""Pre-train the encoder to remove noise from unlabelled tiles: `python pretrain.py`."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader

import make_data
from config import build_parser
from data import TileStream
from devices import pick_device
from model import autoencoder


def main() -> None:
    args = build_parser().parse_args()
    torch.manual_seed(0)
    make_data.ensure(args.data)

    tiles = TileStream(args.data / "unlabelled")
    loader = DataLoader(
        tiles,
        args.batch_size,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        pin_memory=torch.cuda.is_available(),
    )
    device = pick_device()
    model = autoencoder().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(args.epochs):
        steps, total = 0, torch.zeros((), device=device)
        for clean in loader:
            clean = clean.to(device, non_blocking=True)
            noisy = clean + 0.1 * torch.randn_like(clean)
            loss = nn.functional.mse_loss(model(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            steps += 1
        print(f"epoch {epoch}: {steps} steps, loss {total.item() / steps:.4f}")


if __name__ == "__main__":
    main()
