"""Lightning's trainer with its own checkpoints and logs."""

from __future__ import annotations

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 2)

    def training_step(self, batch, index):
        rows, labels = batch
        loss = nn.functional.cross_entropy(self.layer(rows), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val", self.training_step(batch, index))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def data(count: int) -> TensorDataset:
    return TensorDataset(torch.randn(count, 16), torch.randint(0, 2, (count,)))


def main() -> None:
    train = DataLoader(data(256), batch_size=8, shuffle=True)  # FLAGGED
    val = DataLoader(data(32), batch_size=8)
    trainer = lightning.Trainer(max_epochs=6, accelerator="cpu", enable_progress_bar=False, log_every_n_steps=5)
    trainer.fit(Model(), train, val)


if __name__ == "__main__":
    main()
