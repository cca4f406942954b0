"""Room for the evaluator, which answers a question by asking others: deep, but bounded by its own limits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_RECURSION = 5_000


@contextmanager
def deep_calls() -> Iterator[None]:
    """The recursion limit that whoever asks the model needs."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
