"""Stand-ins for steps: memory that stays, memory that is held, and samples out of columns."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from dlcheck_worker import datasets, memory, training
from dlcheck_worker.blocks import Arm

MB = 1 << 20


def block(kind: str, **config: Any) -> dict[str, Any]:
    return Arm(None, {"block": kind, **config}).block()


def test_graphs_stay_where_losses_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "STEPS", 50)
    kept, cut = block("summed-losses"), block("summed-losses", detached=True)
    assert kept["t"] > 4 * MB
    assert kept["t"] > 20 * cut["t"]


def test_what_an_evaluation_keeps_of_its_outputs() -> None:
    sizes = {keeps: block("kept-outputs", keeps=keeps)["t"] for keeps in training.KEPT}
    outputs = training.BATCHES * 4096 * training.WIDTH * 4
    assert sizes["output"] == pytest.approx(outputs, rel=0.05)
    assert sizes["graph"] > 5 * sizes["output"]
    if not torch.cuda.is_available():  # on the host a copy to the host is none
        assert sizes["copy"] == pytest.approx(outputs, rel=0.05)


def test_what_else_could_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to keep called `all`"):
        block("kept-outputs", keeps="all")


def test_a_forward_pass_holds_all_layers_or_the_largest() -> None:
    recorded, plain = block("recorded-evaluation"), block("recorded-evaluation", no_grad=True)
    layer = 16384 * training.WIDTH * 4
    assert recorded["t"] > 20 * layer
    assert layer < plain["t"] < 4 * layer
    assert recorded["compute"] > 0


def test_memory_that_is_asked_for_and_given_back() -> None:
    try:
        allocated = memory.Allocated(torch)
    except OSError as why:
        pytest.skip(str(why))
    before = allocated.read()
    held = torch.empty(32 * MB, dtype=torch.uint8)
    assert allocated.read() - before == pytest.approx(held.numel(), rel=0.05)
    del held
    assert abs(allocated.read() - before) < MB


def test_a_library_that_does_not_count_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with pytest.raises(OSError, match="does not tell how much memory"):
        memory.Allocated(torch)


def test_memory_of_another_allocator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.Allocated, "read", lambda self: 1)
    with pytest.raises(OSError, match=r"not taken from the C library|does not tell"):
        memory.Allocated(torch)


def test_items_of_columns_and_of_rows_are_the_same() -> None:
    pytest.importorskip("datasets")
    columns, rows = datasets.make({"kind": "column-first"}), datasets.make({"kind": "row-first"})
    assert len(columns) == len(rows) == 256
    for index in (0, 17, 255):
        assert all(torch.equal(one, other) for one, other in zip(columns[index], rows[index], strict=True))
    assert columns[17][0].tolist() == [17.0] * 16
