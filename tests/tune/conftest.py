"""These tests are what is told to search; where CI is set, dlcheck would want to be told, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def _no_ci() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CI", raising=False)
        yield
