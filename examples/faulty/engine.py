"""One epoch of training, one of evaluation, and the loop around them."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader

from devices import to_device


def train_one_epoch(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device
) -> float:
    model.train()
    total = torch.zeros((), device=device)
    for batch in loader:
        batch = to_device(batch, device)
        loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    model.eval()
    right = torch.zeros((), device=device)
    seen = 0
    for batch in loader:
        batch = to_device(batch, device)
        right += (model(batch["image"]).argmax(1) == batch["label"]).sum()
        seen += len(batch["label"])
    return right.item() / seen


def fit(
    model: nn.Module,
    train: DataLoader,
    val: DataLoader,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    epochs: int,
) -> None:
    for epoch in range(epochs):
        loss = train_one_epoch(model, train, optimizer, device)
        accuracy = evaluate(model, val, device)
        brightness = next(iter(train))["image"].mean()  # DLC207
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.0%}, brightness {brightness:.2f}")
