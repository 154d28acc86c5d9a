"""The toy: every start ends at a local minimiser of f(x, x), with blocc's methods and with the published ones."""

from __future__ import annotations

import numpy as np
import pytest

from blocc import solve
from blocc.errors import OptionError
from blocc.problems import toy


@pytest.fixture(
    scope="module", params=["default", *(pytest.param(name, marks=pytest.mark.slow) for name in ("paper", "toy"))]
)
def run(request: pytest.FixtureRequest) -> toy.ToyRun:
    return toy.run_starts(200, gamma=5.0, preset=request.param, seed=0)


def grid_minimisers() -> np.ndarray:
    """Independent of the module: a grid so fine that its own minimisers are good to 1e-5."""
    x = np.linspace(0.0, 3.0, 300_001)
    value = np.exp(-x + 2) / (2 + np.cos(6 * x)) + 0.5 * np.log((4 * x - 2) ** 2 + 1)
    lower_than_left = np.concatenate([[True], value[1:] < value[:-1]])
    lower_than_right = np.concatenate([value[:-1] < value[1:], [True]])
    return x[lower_than_left & lower_than_right]


def test_local_minimisers_agree_with_a_fine_grid() -> None:
    np.testing.assert_allclose(toy.local_minimisers(), grid_minimisers(), atol=2e-5)


def test_minimisers_at_the_ends_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "true_value", lambda x: -((np.asarray(x) - 1.0) ** 2))
    np.testing.assert_array_equal(toy.local_minimisers(), [0.0, 3.0])


@pytest.mark.slow
def test_all_starts_end_at_a_local_minimiser(run: toy.ToyRun) -> None:
    ends = np.array([float(result.x) for result in run.results.results])
    away = np.abs(ends[:, None] - grid_minimisers()).min(axis=1)
    assert len(ends) == 200
    assert away.max() <= 1e-4
    assert run.converged == 200
    assert run.largest_distance <= 1e-4
    np.testing.assert_array_equal(run.end_points, ends)


@pytest.mark.parametrize("preset", ["paper", "toy"])
def test_algorithm_1_finds_minimisers_from_the_papers_starts(preset: str) -> None:
    starts = toy.draw_starts(24)
    assert (starts == 3.0).any()  # those of U(0, 3.5) beyond X
    run = toy.run_starts(24, preset=preset)
    assert run.found == run.converged == 24
    np.testing.assert_array_equal([float(r.history.step.size) for r in run.results.results][:1], [501])  # all T steps
    for settings in (result.settings for result in run.results.results):
        assert (settings["gamma"], settings["step"], settings["max_iterations"]) == (5.0, 0.01, 500)
    again = solve(toy.toy_problem(), float(starts[0]), preset=preset)  # the same preset under the same name
    assert float(again.x) == pytest.approx(float(run.end_points[0]), abs=1e-12)


@pytest.mark.slow
def test_every_minimiser_attracts_some_start(run: toy.ToyRun) -> None:
    assert run.counts.sum() == 200
    assert (run.counts > 0).all()


def test_the_follower_answers_x(run: toy.ToyRun) -> None:
    for result in run.results.results:
        assert abs(float(result.y) - float(result.x)) <= 1e-6
        assert abs(result.upper_value - float(toy.true_value(result.x))) <= 1e-6


def test_values_agree_with_the_problem() -> None:
    problem = toy.toy_problem()
    for x, y in [(0.0, 0.0), (0.7, 0.3), (3.0, 3.0)]:
        assert float(problem.upper(x, y)) == pytest.approx(float(toy.upper_value(x, y)), rel=1e-6)


def test_unknown_preset() -> None:
    with pytest.raises(OptionError, match="preset must be one of 'default', 'paper', 'toy', got 'fast'"):
        toy.run_starts(preset="fast")
