"""The follower's interior point against Clarabel, and its optimality conditions from scratch."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.svm.follower import FollowerData, solve_follower
from blocc.svm.margins import MarginProblem, SampleWeights
from blocc.svm.padded import FollowerSolution, Solvers, padded
from svm_reference import overlapping, solve_lower_level


def margin_problem(seed: int, intercept_weight: float = 0.0, **sizes: float) -> MarginProblem:
    return MarginProblem.of(overlapping(seed, **sizes), intercept_weight=intercept_weight)


def some_margins(problem: MarginProblem, seed: int, width: float = 1.0) -> np.ndarray:
    """Margins that some random classifier meets, with room to spare for width > 0."""
    generator = np.random.default_rng(1000 + seed)
    y = generator.standard_normal(problem.rows.shape[1])
    return np.maximum(1.0 - problem.rows @ y, 0.0) + width * generator.uniform(size=len(problem.rows))


def assert_solves(problem: MarginProblem, c: np.ndarray, found: FollowerSolution, tolerance: float = 1e-7) -> None:
    """The KKT conditions of the lower level, from the data alone."""
    y, price, gap = found.y, found.price, problem.rows @ found.y - 1.0 + c
    size = 1.0 + price.max()
    assert not found.infeasible
    assert price.min() >= 0.0
    assert gap.min() >= -tolerance * (1.0 + np.abs(y).max())
    ridge = np.append(np.ones(len(y) - 1), problem.intercept_weight)
    np.testing.assert_allclose(ridge * y, problem.rows.T @ price, atol=tolerance * size)
    assert np.abs(np.maximum(gap, 0.0) * price).max() <= tolerance * size


def assert_agrees(problem: MarginProblem, c: np.ndarray, found: FollowerSolution, tolerance: float = 1e-6) -> None:
    """Clarabel's objective and w; b too where it is unique, as two samples of either class on their margin make it."""
    expected = solve_lower_level(problem.rows, problem.ridge, c)
    assert expected is not None
    value, y, _ = expected
    assert problem.lower(found.y) == pytest.approx(value, abs=tolerance * (1.0 + value))
    np.testing.assert_allclose(found.y[:-1], y[:-1], atol=tolerance * (1.0 + np.abs(y).max()))
    signs = problem.rows[:, -1]
    carrying = found.price > 1e-5
    if problem.intercept_weight > 0.0 or {-1.0, 1.0} <= set(signs[carrying]):
        assert found.y[-1] == pytest.approx(y[-1], abs=tolerance * (1.0 + np.abs(y).max()))


@pytest.mark.parametrize("intercept_weight", [0.0, 1.0, 1e-3])
@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_clarabel(seed: int, intercept_weight: float) -> None:
    sizes = {"n": 10 + 5 * seed, "features": 1 + seed, "m": 5, "distance": float(seed % 3)}
    problem = margin_problem(seed, intercept_weight, **sizes)
    c = some_margins(problem, seed, width=[1.0, 0.1, 0.01][seed % 3])
    found = Solvers(problem).follower(c)
    assert found.error <= 1e-9
    assert_solves(problem, c, found)
    assert_agrees(problem, c, found)


@pytest.mark.parametrize("intercept_weight", [0.0, 1.0])
def test_a_margin_of_one_forgives_everything(intercept_weight: float) -> None:
    problem = margin_problem(3, intercept_weight)
    for c in (np.full(20, 1.0), np.full(20, 5.0), 1.0 + np.random.default_rng(0).uniform(0.0, 4.0, 20)):
        found = Solvers(problem).follower(c)
        assert_solves(problem, c, found)
        np.testing.assert_allclose(found.y[:-1], 0.0, atol=1e-5)
        assert problem.lower(found.y) <= 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_without_an_interior(seed: int) -> None:
    """Where the classes overlap, the classifier that was forgiven exactly is the only one that is feasible."""
    problem = margin_problem(seed, n=40, distance=0.2)
    y = 2.0 * np.random.default_rng(seed).standard_normal(3)
    c = problem.forgiven(y)
    found = Solvers(problem).follower(c)
    assert not found.infeasible
    assert_agrees(problem, c, found, tolerance=2e-5)
    assert (problem.rows @ found.y - 1.0 + c).min() >= -1e-7
    np.testing.assert_allclose(problem.rows.T @ found.price, problem.ridge * found.y, atol=1e-5)


def test_duplicated_samples_change_nothing() -> None:
    problem = margin_problem(5, n=15)
    c = some_margins(problem, 5, 0.2)
    weights = SampleWeights.equal(2 * len(c), len(problem.validation))
    twice = MarginProblem(np.vstack([problem.rows, problem.rows]), problem.validation, weights)
    found, again = Solvers(problem).follower(c), Solvers(twice).follower(np.append(c, c))
    assert_solves(twice, np.append(c, c), again)
    np.testing.assert_allclose(again.y, found.y, atol=1e-7)


@pytest.mark.parametrize("constant", [0.0, 1.0, -30.0])
def test_constant_features(constant: float) -> None:
    features, labels, validation, validation_labels = overlapping(6, n=15)
    features = np.column_stack([features, np.full(15, constant)])
    validation = np.column_stack([validation, np.full(len(validation), constant)])
    problem = MarginProblem.of((features, labels, validation, validation_labels))
    c = some_margins(margin_problem(6, n=15), 6, 0.2)
    found = Solvers(problem).follower(c)
    assert_solves(problem, c, found)
    assert_agrees(problem, c, found)
    assert found.y[2] == pytest.approx(0.0, abs=1e-7)  # b does the same for nothing


@pytest.mark.parametrize("c", [0.0, 0.3])
def test_more_features_than_samples(c: float) -> None:
    problem = margin_problem(7, n=6, features=12, m=4)
    found = Solvers(problem).follower(np.full(6, c))
    assert_solves(problem, np.full(6, c), found)
    assert_agrees(problem, np.full(6, c), found)


@pytest.mark.parametrize("seed", range(8))
def test_margins_that_no_classifier_meets(seed: int) -> None:
    problem = margin_problem(seed, n=30, features=2, distance=0.2)
    c = np.full(30, [0.0, 0.5][seed % 2])
    assert solve_lower_level(problem.rows, problem.ridge, c) is None
    for gamma in (None, 10.0):
        found = Solvers(problem).follower(c, gamma=gamma)
        assert found.infeasible
        assert found.error > 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_the_edge_of_feasibility(seed: int) -> None:
    """A little above the least margins the answer is found, a little below it is refused."""
    problem = margin_problem(seed, n=30, distance=0.2)
    ratio = np.random.default_rng(seed).uniform(0.5, 2.0, 30)
    columns = np.column_stack([-problem.rows, -ratio])
    least = linprog([0, 0, 0, 1], columns, np.full(30, -1.0), bounds=[(None, None)] * 4).x[-1]
    above, below = (Solvers(problem).follower((least + shift) * ratio) for shift in (1e-4, -1e-4))
    assert_solves(problem, (least + 1e-4) * ratio, above, tolerance=1e-6)
    assert below.infeasible
    assert below.error > 1e-7


@pytest.mark.parametrize("intercept_weight", [0.0, 1.0])
@pytest.mark.parametrize("gamma", [0.5, 12.0, 1e4])
def test_the_penalised_follower(gamma: float, intercept_weight: float) -> None:
    for seed in range(3):
        problem = margin_problem(seed, intercept_weight, n=20, features=2 + seed)
        c = some_margins(problem, seed, 0.3)
        found = Solvers(problem).follower(c, gamma=gamma)
        expected = solve_lower_level(problem.rows, problem.ridge, c, problem.validation, gamma)
        assert expected is not None
        y, price = found.y, gamma * found.price
        value = np.exp(1.0 - problem.validation @ y).sum() + gamma * problem.lower(y)
        assert not found.infeasible
        assert found.error <= 1e-9
        assert value == pytest.approx(expected[0], rel=1e-6)
        np.testing.assert_allclose(y, expected[1], atol=1e-5)
        slope = gamma * problem.ridge * y - problem.validation.T @ np.exp(1.0 - problem.validation @ y)
        np.testing.assert_allclose(slope, problem.rows.T @ price, atol=1e-7 * gamma * (1.0 + found.price.max()))
        assert price.min() >= 0.0
        assert (problem.rows @ y - 1.0 + c).min() >= -1e-8


def test_far_away_validation_samples_do_not_overflow() -> None:
    features, labels, validation, validation_labels = overlapping(4)
    problem = MarginProblem.of((features, labels, 100.0 * validation, validation_labels))
    c = np.full(20, 3.0)
    found = Solvers(problem).follower(c, gamma=1.0)
    expected = solve_lower_level(problem.rows, problem.ridge, c, problem.validation, 1.0)
    assert expected is not None
    value = problem.validation_loss(found.y) + problem.lower(found.y)
    assert value == pytest.approx(expected[0], rel=1e-6)


@pytest.mark.parametrize("gamma", [None, 12.0])
def test_padding_changes_nothing(gamma: float | None) -> None:
    """The same arrays without padding, through the solver itself."""
    problem = margin_problem(2, n=20, features=3, m=7)
    c = some_margins(problem, 2, 0.3)
    found = Solvers(problem).follower(c, gamma=gamma)
    with double_precision():
        weight = jnp.zeros(7) if gamma is None else jnp.full(7, 1.0 / gamma)
        arrays = (problem.rows, 1.0 - c, problem.validation, weight, problem.ridge)
        data = FollowerData(*(jnp.asarray(array) for array in arrays))
        compiled, _ = compile_ahead(solve_follower, data, jnp.asarray(1e-11))
        plain = compiled(data, jnp.asarray(1e-11))
    np.testing.assert_allclose(found.y, plain.point.y, atol=1e-8)
    np.testing.assert_allclose(found.price, plain.point.price, atol=1e-7)
    assert found.slack.shape == (20,)


def test_sizes_in_use() -> None:
    assert [padded(size) for size in (1, 64, 65, 256, 257, 320, 321, 1000)] == [64, 64, 128, 256, 320, 320, 384, 1024]
    assert all(padded(size) >= size and padded(padded(size)) == padded(size) for size in range(1, 3000))
