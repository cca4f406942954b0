"""Programs after `--fix --unsafe-fixes`, for proofs of what they do then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dlcheck.config import Config
from dlcheck.engine import check
from dlcheck.fixing import fix


def mended(codes: Sequence[str], place: Path, patch: pytest.MonkeyPatch, text: str) -> str:
    """The text of a program after the fixes of some rules, which must have changed it and left nothing to be found."""
    (place / "train.py").write_text(text, encoding="utf-8")
    patch.chdir(place)
    config = Config(isolated=True, overrides={"select": list(codes)})
    done = fix(lambda after: check(["."], config, overlays=after), unsafe=True)
    assert [change.path for change in done.changes] == ["train.py"]
    assert not done.report.findings
    return done.changes[0].after.decode()
