"""A loop in the style of accelerate's examples; the loader that it iterates is built by the library."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(256, 16), torch.randint(0, 2, (256,)))
    loader = DataLoader(data, batch_size=8, shuffle=True)  # FLAGGED
    model = nn.Linear(16, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=len(loader) * 6)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(6):
        for rows, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(rows), labels)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {loss.item():.3f}")
        accelerator.save_state("state")


if __name__ == "__main__":
    main()
