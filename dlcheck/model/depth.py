"""Room for the evaluator, which answers a question by asking others: deep, but bounded by its own limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

_RECURSION = 5_000

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Other = TypeVar("Other")


@contextmanager
def deep_calls() -> Iterator[None]:
    """The recursion limit that whoever asks the model needs."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def unfolds(otherwise: Other) -> Callable[[Callable[Asked, Answer]], Callable[Asked, Answer | Other]]:
    """For a question about a value that is answered by asking it of what the value holds.

    A value can hold itself, as after ``device = torch.device(device)`` in a loop: asked again on the way to its own
    answer, it is ``otherwise``.  What is asked with must be hashable, and the answer no generator.
    """

    def decorate(ask: Callable[Asked, Answer]) -> Callable[Asked, Answer | Other]:
        being_asked: set[Hashable] = set()

        @wraps(ask)
        def once_at_a_time(*args: Asked.args, **kwargs: Asked.kwargs) -> Answer | Other:
            key = (args, tuple(kwargs.items()))
            if key in being_asked:
                return otherwise
            being_asked.add(key)
            try:
                return ask(*args, **kwargs)
            finally:
                being_asked.discard(key)

        return once_at_a_time

    return decorate
