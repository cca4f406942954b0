"""Where CI is set dlcheck measures nothing unless it is told to: the tests are what tells it, wherever they run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_ci() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CI", raising=False)
        yield
