"""Rules about how a dataset reads its files and tables."""

from __future__ import annotations
