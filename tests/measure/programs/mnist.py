"""In the style of pytorch/examples: a small convolution net on generated digits, with a test set and a checkpoint."""

from __future__ import annotations

import argparse

import torch
from torch import nn, optim
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, 1)
        self.fc = nn.Linear(8 * 13 * 13, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.conv(x)), 2)
        return functional.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


class Digits(Dataset):
    def __init__(self, count: int) -> None:
        self.images = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8)
        self.labels = torch.randint(0, 10, (count,)).tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index].unsqueeze(0).float().div(255).sub(0.1307).div(0.3081), self.labels[index]


def train(args, model, device, train_loader, optimizer, epoch) -> None:
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = functional.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(
                f"Train Epoch: {epoch} [{batch_idx * len(data)}/{len(train_loader.dataset)}]\tLoss: {loss.item():.6f}"
            )


def test(model, device, test_loader) -> None:
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            correct += (model(data.to(device)).argmax(1) == target.to(device)).sum().item()
    print(f"Test set: {correct}/{len(test_loader.dataset)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--test-batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--save-model", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_kwargs = {"batch_size": args.batch_size, "shuffle": True}
    test_kwargs = {"batch_size": args.test_batch_size}
    train_loader = DataLoader(Digits(512), **train_kwargs)  # FLAGGED
    test_loader = DataLoader(Digits(64), **test_kwargs)
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
    if args.save_model:
        torch.save(model.state_dict(), "mnist_cnn.pt")


if __name__ == "__main__":
    main()
