"""When the language server lets Python look for garbage."""

from __future__ import annotations

import asyncio
import gc

import pytest

from dlcheck.lsp import garbage
from dlcheck.lsp.garbage import MOST_CHECKS, Garbage


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the collector, which is left alone: other tests need it."""
    asked: list[str] = []
    for name in ("disable", "collect", "freeze"):
        monkeypatch.setattr(gc, name, lambda name=name: asked.append(name))
    return asked


@pytest.mark.asyncio
async def test_a_pause_is_used_once(done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "IDLE_S", 0)
    kept = Garbage()
    kept.before_check()
    kept.after_checks()
    kept.before_check()  # somebody types on: not now
    await asyncio.sleep(0.05)
    assert set(done) == {"disable"}
    kept.after_checks()
    await asyncio.sleep(0.05)
    assert done[2:] == ["collect", "freeze"]
    kept.after_checks()  # nothing was checked since
    await asyncio.sleep(0.05)
    assert done.count("collect") == 1


def test_who_never_pauses_waits_for_it(done: list[str]) -> None:
    kept = Garbage()
    for _ in range(2 * MOST_CHECKS + 2):
        kept.before_check()
    assert (done.count("collect"), done.count("freeze")) == (2, 1)
