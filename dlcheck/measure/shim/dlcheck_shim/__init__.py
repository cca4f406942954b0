"""Measures inside a program that knows nothing of it.

It is found through PYTHONPATH, waits until the program imports torch, and then stands between its loop and
its loaders.  Only the standard library is imported here: what the program has, and has not, stays its own affair.
"""

from __future__ import annotations

from .session import Session, start

__all__ = ["Session", "install"]


def install(role: str) -> None:
    """Take a place in this process; the parent says in the environment what is wanted."""
    start(role)
