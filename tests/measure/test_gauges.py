"""The time inside of one statement, told from that of its step; no torch is needed for it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlcheck.measure.shim.dlcheck_shim.gauges import Statement, Tracing, Unreadable
from dlcheck.measure.shim.dlcheck_shim.spec import Site

HERE = Path(__file__)
STEPS = 12


def line(mark: str) -> int:
    lines = HERE.read_text(encoding="utf-8").splitlines()
    return next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {mark}"))


def idle(seconds: float) -> int:
    time.sleep(seconds)  # no work: what is measured is the time that passes
    return 1


def helper() -> list[int]:
    idle(0.0002)
    found = [idle(0.01) for _ in range(2)]  # COMPREHENSION
    found.append(sum(idle(0.0002) for _ in range(2)))
    return found


def often() -> int:
    total = 0
    for _ in range(4):
        total += idle(0.005)  # OFTEN
        total += idle(0.0002)
    return total


def seen(statement: Statement, step: Callable[[], Any]) -> dict[str, float]:
    """What a loop of some steps shows, of which this function is the one that asks for batches."""
    statement.begin()
    for _ in range(STEPS):
        statement.given()
        step()
    statement.given()
    statement.hold()
    return statement.told(STEPS)


def of(mark: str) -> Statement:
    return Statement(Site({"file": str(HERE), "line": line(mark)}), "/")


@pytest.fixture(autouse=True)
def untraced() -> Any:
    """Coverage traces these tests, and a program that is traced is not measured: until the end it is not."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    if hasattr(sys, "monitoring"):
        for tool in (3, 4):
            if sys.monitoring.get_tool(tool) == "dlcheck":
                sys.monitoring.free_tool_id(tool)
    sys.settrace(before)


@pytest.mark.parametrize(("mark", "step"), [("COMPREHENSION", helper), ("OFTEN", often)])
def test_seconds_inside_are_the_statements(mark: str, step: Callable[[], Any]) -> None:
    found = seen(of(mark), step)
    assert found["inside"] > 0.02
    assert found["outside"] < found["inside"] / 5
    assert found["step"] > 0.02


def test_the_loop_that_asks_may_hold_the_statement_itself() -> None:
    statement = of("ITSELF")
    statement.begin()
    for _ in range(STEPS):
        statement.given()
        idle(0.01)  # ITSELF
        idle(0.0002)
    statement.hold()
    found = statement.told(STEPS)
    assert found["inside"] > 0.01
    assert found["outside"] < found["inside"] / 5


def test_a_statement_that_nothing_comes_by_is_said() -> None:
    with pytest.raises(Unreadable, match="do not come by the statement"):
        seen(of("OFTEN"), helper)


def test_a_second_stretch_is_counted_by_itself() -> None:
    statement = of("OFTEN")
    first, second = seen(statement, often), seen(statement, often)
    assert second["inside"] < 5 * first["inside"]
    with pytest.raises(Unreadable):
        seen(statement, helper)


def test_nobody_is_left_watching() -> None:
    statement = of("OFTEN")
    seen(statement, often)
    assert sys.gettrace() is None
    before = statement._spent
    often()
    assert statement._spent == before


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="watching costs nothing there")
def test_every_second_step_is_left_alone() -> None:
    traced = []

    def step() -> None:
        traced.append(sys.gettrace() is not None)
        often()

    seen(of("OFTEN"), step)
    assert traced == [True, False] * (STEPS // 2)


def test_a_program_that_is_traced_is_left_alone() -> None:
    statement = of("OFTEN")
    sys.settrace(lambda *_: None)
    with pytest.raises(Unreadable, match="traced already"):
        Tracing(statement)
