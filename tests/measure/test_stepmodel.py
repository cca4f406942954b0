"""The step model against figures worked out by hand, and against what no transfer can do."""

from __future__ import annotations

import itertools
import random

import pytest

from dlcheck.measure.stepmodel import (
    SyncTerms,
    Terms,
    Transfer,
    error,
    gain_of_non_blocking,
    is_impossible,
    is_impossible_rate,
    largest_gain,
    largest_share_of_syncs,
    least,
    predicted,
    predictions,
    synced,
)

ARMS = {
    "pageable": {},
    "pageable_nb": {"non_blocking": True},
    "pinned": {"pinned": True},
    "pinned_nb": {"pinned": True, "non_blocking": True},
    "pinned_nb_side": {"pinned": True, "non_blocking": True, "side_stream": True},
    "pin_and_copy": {"pin_and_copy": True, "non_blocking": True},
}


# Milliseconds: copy 1, pageable 6, pin 5; then compute and host by row.
@pytest.mark.parametrize(
    ("compute", "host", "golden"),
    [
        (4.0, 0.0, [10, 10, 5, 5, 4, 5]),  # the device is the longer side: non_blocking alone gains nothing
        (4.0, 5.0, [11, 11, 6, 5, 5, 10]),  # the host is: it gains a whole copy
        (4.0, 4.5, [10.5, 10.5, 5.5, 5, 4.5, 9.5]),
        (0.25, 0.0, [6.25, 6.25, 1.25, 1.25, 1, 5]),
        (100.0, 0.0, [106, 106, 101, 101, 100, 101]),
    ],
)
def test_golden_steps(compute: float, host: float, golden: list[float]) -> None:
    terms = Terms(compute=compute, copy=1.0, pageable=6.0, host=host, pin=5.0)
    assert list(predictions(terms, ARMS).values()) == pytest.approx(golden)


def test_launches_count_for_the_host() -> None:
    terms = Terms(compute=4.0, copy=1.0, pageable=6.0, host=3.0, launch=2.5)
    assert predicted(terms, Transfer(pinned=True, non_blocking=True)) == pytest.approx(5.5)


def test_a_pin_thread_may_be_the_longest_term() -> None:
    terms = Terms(compute=1.0, copy=1.0, pageable=6.0, pin=5.0)
    assert predicted(terms, Transfer(pinned=True, non_blocking=True)) == pytest.approx(2.0)
    assert predicted(terms, Transfer(pinned=True, non_blocking=True, pin_thread=True)) == pytest.approx(5.0)


def some_terms() -> list[Terms]:
    dice = random.Random(4)
    made = []
    for _ in range(300):
        compute, copy, host, launch, pin = (10 ** dice.uniform(-5, -1) for _ in range(5))
        made.append(Terms(compute, copy, copy * dice.uniform(1, 8), host, launch, pin))
    return made


def test_no_transfer_is_better_than_what_is_left_to_do() -> None:
    for terms, arm in itertools.product(some_terms(), ARMS.values()):
        assert predicted(terms, Transfer.of(arm)) >= least(terms) * (1 - 1e-12)
        assert largest_gain(terms) >= predicted(terms, Transfer()) / predicted(terms, Transfer.of(arm)) * (1 - 1e-12)


def test_largest_gain_without_work_of_the_host() -> None:
    for terms in some_terms():
        idle = Terms(terms.compute, terms.copy, terms.pageable)
        expected = (terms.pageable + terms.compute) / max(terms.compute, terms.copy)
        assert largest_gain(idle) == pytest.approx(expected)


def test_non_blocking_gains_what_the_host_is_late_and_at_most_a_copy() -> None:
    for terms in some_terms():
        late = max(0.0, terms.prepared - terms.compute)
        assert gain_of_non_blocking(terms) == pytest.approx(min(terms.copy, late), abs=1e-12)


def test_impossible_figures() -> None:
    assert not is_impossible(0.96, limit=1.0)
    assert is_impossible(0.94, limit=1.0)
    assert not is_impossible_rate(66.0, limit=63.0)
    assert is_impossible_rate(66.2, limit=63.0)


def test_error_has_a_sign() -> None:
    assert error(measured=2.0, prediction=2.5) == pytest.approx(0.25)
    assert error(measured=2.0, prediction=1.0) == pytest.approx(-0.5)


# Milliseconds: work 4, launches 1.
@pytest.mark.parametrize(
    ("host", "every", "golden"),
    [
        (0.0, 1, 4.1),  # launches and work overlap within a step: only the asking is lost
        (2.0, 1, 6.1),  # the device idles while the host does its share
        (2.0, 10, 4.21),
        (2.0, 0, 4.0),
        (8.0, 1, 12.1),
        (8.0, 0, 9.0),
    ],
)
def test_golden_waits(host: float, every: int, golden: float) -> None:
    assert synced(SyncTerms(compute=4.0, launch=1.0, host=host, sync=0.1), every) == pytest.approx(golden)


def test_a_wait_costs_at_most_the_shorter_side() -> None:
    dice = random.Random(5)
    for _ in range(300):
        terms = SyncTerms(*(10 ** dice.uniform(-5, -2) for _ in range(4)))
        waiting, free = synced(terms, 1), synced(terms, 0)
        assert free <= waiting
        assert (waiting - free) / waiting <= largest_share_of_syncs(terms) + 1e-9


def test_terms_of_a_worker_may_be_more_than_the_model_knows() -> None:
    told = {"compute": 1.0, "copy": 2.0, "pageable": 3.0, "kernel": 9.0}
    assert Terms.of(told) == Terms(compute=1.0, copy=2.0, pageable=3.0)
    assert Transfer.of({"pinned": True, "wait_event": False}) == Transfer(pinned=True)
