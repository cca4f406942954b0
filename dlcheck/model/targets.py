"""The versions that the linted project runs on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Targets:
    """Declared versions; None where the project does not say.

    ``python_min`` and ``python_max`` bound the Python versions, both inclusive.
    """

    torch: tuple[int, int] | None = None
    python_min: tuple[int, int] | None = None
    python_max: tuple[int, int] | None = None
