"""The measuring worker's package, which a program that was stopped at its loader answers with.

Its folder goes to the end of the path, and stays there: what the loader's own workers are sent may be of it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "worker")


def serve(channel: Any, source: Any, started: float) -> None:
    if FOLDER not in sys.path:
        sys.path.append(FOLDER)
    from dlcheck_worker.serve import serve as answer

    answer(channel, source, started)
