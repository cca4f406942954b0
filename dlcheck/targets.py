"""The versions and systems that the linted project runs on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Targets:
    """Declared versions; None where the project does not say.

    ``torch_min`` and ``torch`` bound the torch versions, ``python_min`` and ``python_max`` the Python versions, all
    inclusive.  ``linux_only`` is whether the project's classifiers name Linux and no other system.
    """

    torch: tuple[int, int] | None = None
    python_min: tuple[int, int] | None = None
    python_max: tuple[int, int] | None = None
    torch_min: tuple[int, int] | None = None
    linux_only: bool = False
