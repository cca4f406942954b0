"""Small convolutional networks for tiles."""

from __future__ import annotations

from torch import nn


def encoder(width: int = 16) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, stride=2, padding=1),
        nn.ReLU(),
    )


def classifier(classes: int, width: int = 16) -> nn.Sequential:
    return nn.Sequential(encoder(width), nn.Flatten(), nn.LazyLinear(classes))


def autoencoder(width: int = 16) -> nn.Sequential:
    return nn.Sequential(
        encoder(width),
        nn.ConvTranspose2d(width, width, 2, stride=2),
        nn.ReLU(),
        nn.ConvTranspose2d(width, 3, 2, stride=2),
    )
