"""What is shown of a search while it runs, on one line of a terminal."""

from __future__ import annotations

from dlcheck.advise.tuning.asking import Shown
from dlcheck.advise.tuning.text import ms
from dlcheck.measure.progress import BAR


def bar(shown: Shown, width: int) -> str:
    """``####........ 4/13 2 workers, prefetch 4  best so far 20.1 ms/step (2 workers, prefetch 2)  54 s left``"""
    done = min(BAR, round(BAR * shown.done / max(1, shown.of)))
    parts = [f"{'#' * done}{'.' * (BAR - done)} {shown.done}/{shown.of} {shown.doing}"]
    if shown.best is not None and shown.best.step_s is not None:
        parts.append(f"best so far {ms(shown.best.step_s)} ms/step ({shown.best.setting.short})")
    parts.append(f"{shown.left_s:.0f} s left at most")
    return "  ".join(parts)[: max(1, width - 1)]
