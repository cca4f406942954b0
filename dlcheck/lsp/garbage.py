"""When Python looks for garbage: while nobody waits for an answer.

What a check leaves behind (modules whose statements know each other) is found only by walking all that is alive, which
for a large project takes longer than the check of one file.
"""

from __future__ import annotations

import asyncio
import gc

IDLE_S = 1.0
MOST_CHECKS = 50  # of somebody who never pauses: then memory goes before speed


class Garbage:
    """Used from the server's own thread."""

    def __init__(self) -> None:
        self._checks = 0
        self._frozen = False
        self._timer: asyncio.TimerHandle | None = None

    def before_check(self) -> None:
        gc.disable()
        if self._timer is not None:
            self._timer.cancel()
        self._checks += 1
        if self._checks > MOST_CHECKS:
            self._collect()

    def after_checks(self) -> None:
        """Nothing is waiting to be checked."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._collect)

    def _collect(self) -> None:
        if not self._checks:
            return
        self._checks = 0
        gc.collect()
        if not self._frozen:
            # What the first check has read is most of what will be alive as long as the server.
            gc.freeze()
            self._frozen = True
