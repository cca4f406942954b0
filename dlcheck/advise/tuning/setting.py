"""A setting: the options of a loader that a search may change, and nothing of what it loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

METHODS = ("fork", "forkserver", "spawn")
PREFETCH = 2  # what torch takes where nobody says


@dataclass(frozen=True, slots=True)
class Setting:
    """``prefetch`` and ``method`` are None without workers, where they mean nothing."""

    workers: int
    prefetch: int | None = None
    pin: bool = False
    persistent: bool = False
    method: str | None = None

    @property
    def cost(self) -> tuple[int, int, bool, bool, str]:
        """What it takes from the machine: fewer workers first, then fewer batches in hand, then no pinned memory."""
        return self.workers, self.prefetch or 0, self.pin, self.persistent, self.method or ""

    @property
    def ahead(self) -> int:
        """Batches that its workers may have in hand."""
        return self.workers * (self.prefetch or 0)

    @property
    def options(self) -> dict[str, Any]:
        """As DataLoader takes them; what only workers take is taken back where there are none."""
        if not self.workers:
            neutral = {"prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None}
            return {"num_workers": 0, "pin_memory": self.pin, "timeout": 0, **neutral}
        return {
            "num_workers": self.workers,
            "prefetch_factor": self.prefetch,
            "pin_memory": self.pin,
            "persistent_workers": self.persistent,
            "multiprocessing_context": self.method,
        }

    @property
    def words(self) -> str:
        """``4 workers, prefetch 2, pinned``"""
        number = {0: "no workers", 1: "1 worker"}.get(self.workers, f"{self.workers} workers")
        return ", ".join(filter(None, (
            number,
            f"prefetch {self.prefetch}" if self.prefetch is not None else "",
            "pinned" if self.pin else "",
            "persistent" if self.persistent else "",
            self.method or "",
        )))  # fmt: skip

    @property
    def short(self) -> str:
        """The same without how workers are started and kept."""
        return made(self.workers, self.prefetch, self.pin).words

    def as_code(self, like: Setting) -> str:
        """Arguments to write; the start method only where it is another than that of ``like``."""
        parts = [f"num_workers={self.workers}"]
        if self.workers:
            parts.append(f"prefetch_factor={self.prefetch}")
            parts.append(f"persistent_workers={self.persistent}")
        parts.append(f"pin_memory={self.pin}")
        if self.method and like.method and self.method != like.method:
            parts.append(f'multiprocessing_context="{self.method}"')
        return ", ".join(parts)


def made(workers: int, prefetch: int | None, pin: bool, persistent: bool = False, method: str | None = None) -> Setting:
    """A setting without what means nothing in it."""
    if not workers:
        return Setting(0, None, pin)
    return Setting(workers, prefetch or PREFETCH, pin, persistent, method)


def present(options: Mapping[str, Any], method: str) -> Setting:
    """What a loader has now, as a worker describes it; ``method`` is that of the interpreter."""
    return made(
        int(options.get("num_workers") or 0),
        options.get("prefetch_factor"),
        bool(options.get("pin_memory")),
        bool(options.get("persistent_workers")),
        options.get("start_method") or method,
    )
