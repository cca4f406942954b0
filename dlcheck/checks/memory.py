"""Rules about what a dataset keeps in memory, and what that costs in several workers."""

from __future__ import annotations
