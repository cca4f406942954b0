"""Rules about what a training framework leaves to its user."""

from __future__ import annotations
