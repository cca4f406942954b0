"""The search over landscapes that are known: what it chooses, what it costs, and what it must not exceed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from landscapes import NUMBERS, Landscape, Trial, landscapes, large, product, small

from dlcheck.advise.tuning.choice import MARGIN, choose, interval, spread_of, usable
from dlcheck.advise.tuning.search import MOST, PASSES, SMALL, Race
from dlcheck.advise.tuning.setting import Setting, made


def searched(trial: Trial, grid: Sequence[Setting], budget: float = math.inf, seed: int = 0, **more: bool) -> Race:
    race = Race(grid, trial, lambda: budget - trial.now, random.Random(seed), grid[0])
    race.sweep() if more.get("sweep") else race.run()
    return race


def chosen(race: Race) -> Setting:
    found = choose(race.trials)
    assert found is not None
    return found.setting


@settings(max_examples=100, deadline=None)
@given(landscapes, st.one_of(small, large), st.integers(0, 3))
def test_without_noise_the_choice_is_within_the_margin_of_the_best(
    landscape: Landscape, grid: list[Setting], seed: int
) -> None:
    best = min(map(landscape.seconds, grid))
    assert landscape.seconds(chosen(searched(Trial(landscape), grid, seed=seed))) <= best * (1 + MARGIN)


@settings(max_examples=100, deadline=None)
@given(landscapes, st.one_of(small, large))
def test_the_choice_is_the_cheapest_of_those_as_good(landscape: Landscape, grid: list[Setting]) -> None:
    race = searched(Trial(landscape), grid)
    found = chosen(race)
    known = usable(race.trials)
    cheaper = [one for one in known if one.cost < found.cost]
    assert all(known[one] > min(known.values()) * 1.03 for one in cheaper)


@settings(max_examples=100, deadline=None)
@given(landscapes, large, st.integers(0, 2))
def test_a_large_grid_takes_at_most_a_third_of_a_sweep(landscape: Landscape, grid: list[Setting], seed: int) -> None:
    assert len(grid) > 50
    search, sweep = Trial(landscape), Trial(landscape)
    searched(search, grid, seed=seed)
    searched(sweep, grid, seed=seed, sweep=True)
    assert sweep.looks == PASSES * len(grid)
    assert search.now <= sweep.now / 3


@settings(max_examples=100, deadline=None)
@given(landscapes, st.one_of(small, large), st.floats(0.5, 60), st.floats(0, 0.3))
def test_the_budget_is_kept_to_a_block(landscape: Landscape, grid: list[Setting], budget: float, noise: float) -> None:
    trial = Trial(landscape, noise=noise)
    race = searched(trial, grid, budget)
    assert trial.now <= budget + trial.longest
    assert race.trials  # what the loader has now is known whatever the time
    assert race.narrowed or race.stopped
    assert not race.narrowed or len(grid) > SMALL or set(race.trials) == set(grid)


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_with_noise_the_regret_is_small_as_a_rule(noise: float) -> None:
    dice = random.Random(1)
    missed = 0
    for seed in range(100):
        landscape = Landscape(
            cpu=dice.uniform(0.005, 0.2),
            wait=dice.choice([0.0, dice.uniform(0, 0.3)]),
            hand=0.002,
            step=dice.choice([0.0, dice.uniform(0.01, 0.1)]),
            cores=dice.choice([2, 8, 16]),
            copy=dice.choice([0.0, 0.01]),
        )
        grid = product(NUMBERS[: dice.choice([4, 8, 11])], (2, 4, 8), (False, True))
        found = chosen(searched(Trial(landscape, noise=noise, seed=seed), grid, seed=seed))
        missed += landscape.seconds(found) > min(map(landscape.seconds, grid)) * (1 + MARGIN)
    assert missed <= {0.02: 2, 0.05: 4}[noise]


@settings(max_examples=100, deadline=None)
@given(landscapes, st.one_of(small, large), st.floats(0, 0.3), st.integers(0, 3))
def test_what_the_choice_costs_is_looked_at_until_it_is_clear(
    landscape: Landscape, grid: list[Setting], noise: float, seed: int
) -> None:
    race = searched(Trial(landscape, noise=noise, seed=seed), grid, seed=seed)
    found = choose(race.trials)
    assert found is not None
    assert found.clear or MOST in (len(race.trials[found.setting]), len(race.trials[found.best]))
    assert all(len(blocks) <= MOST for blocks in race.trials.values())


@settings(max_examples=100, deadline=None)
@given(landscapes, st.one_of(small, large), st.sets(st.integers(1, 48), max_size=4))
def test_what_fails_is_no_end_and_no_choice(landscape: Landscape, grid: list[Setting], broken: set[int]) -> None:
    trial = Trial(landscape)
    race = Race(
        grid,
        lambda one: math.inf if one.workers in broken else trial(one),
        lambda: math.inf,
        random.Random(0),
        grid[-1],
    )
    race.run()
    assert chosen(race).workers not in broken


def test_nothing_that_runs_is_nothing_to_choose() -> None:
    grid = product(NUMBERS, (2, 4, 8), (False, True))
    race = Race(grid, lambda one: math.inf, lambda: math.inf, random.Random(0))
    race.run()
    assert set(race.trials) == set(grid)
    assert choose(race.trials) is None


def test_the_number_that_is_likely_is_tried_first() -> None:
    trial = Trial(Landscape(0.1, 0, 0.001, 0.01, 16))
    grid = product(NUMBERS, (2, 4, 8), (False, True))
    race = Race(grid, trial, lambda: 5.0 - trial.now, random.Random(0), grid[0], hint=12)
    race.run()
    assert [one.workers for one in race.trials][:3] == [0, 12, 12]


def test_small_grids_are_tried_whole() -> None:
    grid = product(NUMBERS[:5], (2, 4), (False, True))
    assert len(grid) <= SMALL
    race = searched(Trial(Landscape(0.1, 0, 0.001, 0, 2)), grid)
    assert set(race.trials) == set(grid)


def test_what_cannot_win_is_tried_once() -> None:
    race = searched(Trial(Landscape(0.1, 0, 0.0001, 0.0, 16)), product((0, 1, 2, 16), (2,), (False,)))
    assert {one.workers: len(blocks) for one, blocks in race.trials.items()} == {0: 1, 1: 1, 2: 1, 16: 1}


# The knee


@example(0.02)
@settings(max_examples=100, deadline=None)
@given(st.floats(0, 0.029))
def test_eight_workers_that_are_hardly_faster_are_not_worth_it(gain: float) -> None:
    four, eight = made(4, 2, False, method="fork"), made(8, 2, False, method="fork")
    found = choose({four: [1.0 + gain] * 4, eight: [1.0] * 4})
    assert found is not None
    assert found.setting == four
    assert "cheaper" in found.reason or gain == 0


def test_a_clear_gain_is_worth_workers() -> None:
    four, eight = made(4, 2, False), made(8, 2, False)
    found = choose({four: [1.2, 1.21, 1.19], eight: [1.0, 1.01, 0.99]})
    assert found is not None
    assert found.setting == eight


@pytest.mark.parametrize(("spread", "taken"), [(0.001, 8), (0.05, 4)])
def test_what_noise_hides_is_no_gain(spread: float, taken: int) -> None:
    def blocks(middle: float) -> list[float]:
        return [middle * (1 - spread), middle, middle * (1 + spread)]

    found = choose({made(4, 2, False): blocks(1.04), made(8, 2, False): blocks(1.0)})
    assert found is not None
    assert found.setting.workers == taken


def test_fewer_workers_then_less_prefetch_then_no_pin() -> None:
    every = [made(2, 4, True), made(2, 2, True), made(4, 2, False), made(2, 2, False)]
    found = choose({one: [1.0, 1.0] for one in every})
    assert found is not None
    assert found.setting == made(2, 2, False)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.5, 2), min_size=2, max_size=6))
def test_an_interval_holds_its_middle(blocks: list[float]) -> None:
    known = interval(blocks, spread_of({made(1, 2, False): blocks}))
    assert known is not None
    assert known[0] <= sorted(blocks)[len(blocks) // 2] * (1 + 1e-9)
    assert known[1] >= sorted(blocks)[(len(blocks) - 1) // 2] * (1 - 1e-9)


def test_a_single_block_says_nothing_of_its_spread() -> None:
    assert interval([1.0], spread_of({made(1, 2, False): [1.0]})) is None
