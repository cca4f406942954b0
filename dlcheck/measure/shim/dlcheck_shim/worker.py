"""The measuring worker's package, which a program that was stopped at its loader answers with.

Its folder goes to the end of the path, and stays there: what the loader's own workers are sent may be of it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "worker")


def _find() -> None:
    if FOLDER not in sys.path:
        sys.path.append(FOLDER)


def serve(channel: Any, source: Any, started: float) -> None:
    _find()
    from dlcheck_worker.serve import serve as answer

    answer(channel, source, started)


def told(error: BaseException) -> dict[str, Any]:
    """An error in a few words."""
    _find()
    from dlcheck_worker.errors import told as words

    return words(error)


def frames(error: BaseException) -> list[dict[str, Any]]:
    _find()
    from dlcheck_worker.errors import frames as lines

    return lines(error)


def allocated(torch: Any) -> Any:
    """Memory in use, to be read."""
    _find()
    from dlcheck_worker.memory import Allocated

    return Allocated(torch)
