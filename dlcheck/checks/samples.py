"""Rules about what ``__getitem__`` gives: of the wrong kind, shared, or None."""

from __future__ import annotations
