"""Rules about tensors made or moved in the training loop: needless, too early, or read too soon."""

from __future__ import annotations
