"""Many starts: what each would get alone, the places they end in, and where random ones come from."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, MultiResult, Options, Reals, Simplex, Status, solve, solve_many
from blocc.errors import OptionError
from blocc.problems.toy import local_minimisers, toy_problem
from blocc.solve_many import _random_start
from clocks import counted


@pytest.fixture(scope="module")
def road() -> BilevelProblem:
    """A toll x on a road; beyond 3 everybody goes the other way, and f is flat there."""
    return BilevelProblem(
        upper=lambda x, y: -x * y,
        lower=lambda x, y: x * y + 3.0 * (1.0 - y) + 0.01 * y**2,
        x_set=Box(0.0, 10.0),
        y_set=Box(0.0, 1.0),
        name="road",
    )


@pytest.fixture(scope="module")
def many(road: BilevelProblem) -> MultiResult:
    return solve_many(road, np.array([0.5, 2.0, 9.5]))


def test_every_start_gets_what_solve_gives(road: BilevelProblem, many: MultiResult) -> None:
    for start, result in zip((0.5, 9.5), (many[0], many[2]), strict=True):
        alone = solve(road, start)
        assert result.status is alone.status
        assert result.upper_value == pytest.approx(alone.upper_value, abs=1e-6)
    assert many.best.upper_value == pytest.approx(-2.98, abs=1e-4)  # the largest toll that leaves the road full


def test_starts_that_end_in_one_place_are_judged_once(many: MultiResult) -> None:
    best = many.basins[0]
    assert best.value == many.best.upper_value
    assert sum(len(basin) for basin in many.basins) == 3
    assert sorted(index for basin in many.basins for index in basin.starts) == list(range(3))
    merged = [many[index] for index in best.starts[1:]]
    assert merged
    assert all(np.array_equal(result.x, best.result.x) for result in merged if result.counts["phases"] == 1)
    assert f"ends in {len(many.basins)} place" in repr(many)


def test_ends_without_an_answer_are_no_places(many: MultiResult) -> None:
    lost = replace(many[0], status=Status.INFEASIBLE, certificate=replace(many[0].certificate, exact=False))
    mixed = replace(many, results=(lost, *many.results[1:]))
    assert sorted(index for basin in mixed.basins for index in basin.starts) == [1, 2]
    assert (mixed.counts["unanswered"], many.counts["unanswered"]) == (1, 0)
    assert "1 without an answer of the follower" in repr(mixed)
    nowhere = replace(many, results=(lost, lost))
    assert nowhere.basins == []
    assert "ends in 0 places; 2 without an answer" in repr(nowhere)


def test_every_start_gets_what_solve_gives_it() -> None:
    starts = np.linspace(0.05, 2.95, 36)
    many = solve_many(toy_problem(), starts, Options(seed=1))
    assert all(result.success for result in many.results)
    minimisers = local_minimisers()
    assert max(float(np.min(np.abs(x - minimisers))) for x in np.ravel(many.x)) < 1e-4
    for index in (0, 17, 35):
        alone = solve(toy_problem(), starts[index], Options(seed=1))
        np.testing.assert_array_equal(alone.x, many[index].x)
        assert alone.counts == many[index].counts


def test_the_time_limit_is_for_all_starts_together(road: BilevelProblem) -> None:
    with counted(step=0.1) as clock:
        found = solve_many(road, starts=500, time_limit=1.0)
    assert clock.looks < 10 + 3 * 500  # afterwards a start costs a look or two, not a descent
    assert len(found) == 500
    assert any(result.status.value == "time limit" for result in found.results)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"starts": 10**12}, "starts must be at most 1,000,000"),
        ({"starts": 2, "executor": 3}, "executor must be one of serial, processes, dask"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(road: BilevelProblem, options: dict, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        solve_many(road, **options)


def test_random_starts_come_from_several_scales_where_nothing_bounds_them() -> None:
    generator = np.random.default_rng(0)
    free = np.array([_random_start(Reals(2), generator, index) for index in range(400)])
    assert (np.abs(free) > 10.0).mean() > 0.1
    assert (np.abs(free) < 1.0).mean() > 0.1
    boxed = np.array([_random_start(Box(0.0, 2.0), generator, index) for index in range(50)])
    assert ((boxed >= 0.0) & (boxed <= 2.0)).all()
    half = np.array([_random_start(Box(1.0, np.inf), generator, index) for index in range(50)])
    assert (half >= 1.0).all()
    assert half.max() > 10.0
    assert _random_start(Simplex(3), generator, 3).sum() == pytest.approx(1.0)
    assert jnp.isfinite(free).all()
