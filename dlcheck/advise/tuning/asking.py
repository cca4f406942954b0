"""What was asked of a search, and who hears of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dlcheck import files
from dlcheck.advise.tuning.grid import Wanted
from dlcheck.advise.tuning.result import Row
from dlcheck.measure.recording import Audit


@dataclass(frozen=True)
class Settings:
    """What the command line asks for; ``root`` is the project's top, ``loader`` a file and line of the program."""

    root: str
    factory: str | None = None
    run: str | None = None
    extract: bool = False
    loader: tuple[str, int] | None = None
    python: str | None = None
    budget_s: float = 180.0
    wanted: Wanted = field(default_factory=Wanted)
    step_s: float | None = None
    full: bool = False
    audit: Audit = "log"
    seed: int = 0
    most_memory: int | None = None  # bytes of a rank

    @property
    def what(self) -> str:
        return f"`{self.run or self.factory}`"


@dataclass(frozen=True)
class Shown:
    """Where a search is: what it does, how many of how many, the best so far, and seconds that it may still take."""

    doing: str
    done: int
    of: int
    best: Row | None
    left_s: float


@dataclass(frozen=True)
class Listener:
    """Who hears of it: ``line`` what stays, ``shown`` what is only true now."""

    line: Callable[[str], None] = lambda text: None
    shown: Callable[[Shown], None] = lambda shown: None


def asked(settings: Settings) -> dict[str, Any]:
    """The command line's options, for the record."""
    wanted = settings.wanted
    return {
        "factory": settings.factory,
        "run": settings.run,
        "extract": settings.extract,
        "loader": _from_the_top(settings.root, *settings.loader) if settings.loader else None,
        "workers": list(wanted.workers) if wanted.workers is not None else None,
        "prefetch": list(wanted.prefetch) if wanted.prefetch is not None else None,
        "pin": wanted.pin,
        "persistent": wanted.persistent,
        "start_methods": list(wanted.methods) if wanted.methods is not None else None,
        "full": settings.full,
        "budget_s": settings.budget_s,
        "seed": settings.seed,
    }


def _from_the_top(root: str, file: str, line: int) -> str:
    """A line of a file, from the project's top: who reads the record may be in another folder."""
    try:
        path = os.path.relpath(os.path.realpath(file), os.path.realpath(root))
    except ValueError:  # on another drive
        path = os.path.abspath(file)
    return f"{path.replace(os.sep, '/')}:{line}"


def rerun(settings: Settings) -> str:
    """The command that searches again."""
    words = ["dlcheck", "tune"]
    words += ["--run", settings.run] if settings.run else ["--factory", settings.factory or ""]
    words += ["--extract"] if settings.extract else []
    words += ["--loader", f"{files.shown(settings.loader[0])}:{settings.loader[1]}"] if settings.loader else []
    wanted = settings.wanted
    for name, numbers in (("workers", wanted.workers), ("prefetch", wanted.prefetch)):
        words += [f"--{name}", ",".join(map(str, numbers))] if numbers is not None else []
    words += ["--start-methods", ",".join(wanted.methods)] if wanted.methods else []
    words += ["--pin", wanted.pin] if wanted.pin != "auto" else []
    words += ["--persistent", wanted.persistent] if wanted.persistent != "auto" else []
    words += ["--step-seconds", str(settings.step_s)] if settings.step_s is not None else []
    words += ["--full"] if settings.full else []
    words += ["--budget", f"{settings.budget_s:g}"]
    return shlex.join(words)
