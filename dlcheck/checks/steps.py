"""Rules about what a training step does besides training."""

from __future__ import annotations
