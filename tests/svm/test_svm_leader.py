"""The leader's convex problems against Clarabel: the relaxation, and branches with held samples."""

from __future__ import annotations

import numpy as np
import pytest

from blocc.svm.margins import MarginProblem
from blocc.svm.padded import LeaderSolution, Solvers
from svm_reference import overlapping, solve_upper_level


def margin_problem(seed: int, intercept_weight: float = 0.0, **sizes: float) -> MarginProblem:
    return MarginProblem.of(overlapping(seed, **sizes), intercept_weight=intercept_weight)


def objective(
    problem: MarginProblem, found: LeaderSolution, ridge: np.ndarray, c_weight: float, charge: np.ndarray
) -> float:
    y, c = found.y, found.c
    price = 0.5 * c_weight * c @ c + charge @ c
    return float(np.exp(1.0 - problem.validation @ y).sum() + 0.5 * (ridge * y) @ y + price)


def assert_optimal(
    problem: MarginProblem,
    found: LeaderSolution,
    ridge: np.ndarray,
    c_weight: float,
    charge: np.ndarray,
    held: np.ndarray,
    coupled: bool,
    tolerance: float = 1e-7,
) -> None:
    """All KKT conditions with the signs that the documentation states."""
    rows, y, c, nu = problem.rows, found.y, found.c, found.margin_price
    loss = np.exp(1.0 - problem.validation @ y)
    close = tolerance * (1.0 + max(np.abs(nu).max(), np.abs(problem.validation.T @ loss).max()))
    slack = rows @ y + c - 1.0
    pi = found.coupling_price if coupled else np.zeros_like(y)
    slope = ridge * y - problem.validation.T @ loss
    np.testing.assert_allclose(slope, rows.T @ nu + problem.ridge * pi, atol=close)
    assert c.min() >= 0.0
    assert slack.min() >= -tolerance * (1.0 + np.abs(y).max())
    assert nu[~held].min(initial=0.0) >= 0.0
    np.testing.assert_allclose((slack * nu)[~held], 0.0, atol=close)
    np.testing.assert_allclose(slack[held], 0.0, atol=tolerance * (1.0 + np.abs(y).max()))
    excess = c_weight * c + charge - nu
    assert excess.min() >= -close
    np.testing.assert_allclose(excess * c, 0.0, atol=close)
    if coupled:
        support, pull = found.support, rows @ pi
        strongest = 1.0 + support.max()
        assert support.min() >= 0.0
        np.testing.assert_array_equal(support[~held], 0.0)
        np.testing.assert_allclose(problem.ridge * y, rows.T @ support, atol=tolerance * strongest)
        assert pull[held].min(initial=0.0) >= -close
        np.testing.assert_allclose((pull * support)[held], 0.0, atol=close * strongest)


CASES = [
    pytest.param(1.0, 0.0, 0.0, id="squares"),
    pytest.param(0.0, 5.0, 0.0, id="sum"),
    pytest.param(0.3, 2.0, 0.5, id="squares, sum and ridge"),
    pytest.param(10.0, 0.0, 3.0, id="large weight of squares and ridge"),
]


@pytest.mark.parametrize("intercept_weight", [0.0, 1.0])
@pytest.mark.parametrize(("c_weight", "charge", "ridge"), CASES)
def test_the_relaxation(c_weight: float, charge: float, ridge: float, intercept_weight: float) -> None:
    for seed in range(3):
        problem = margin_problem(seed, intercept_weight, n=15, features=2 + seed, m=10)
        charges = charge * np.random.default_rng(seed).uniform(0.5, 1.5, 15)
        ridges = ridge * problem.ridge
        found = Solvers(problem).leader(ridge=ridge, charge=charges, c_weight=c_weight)
        expected = solve_upper_level(problem.rows, problem.validation, ridge=ridges, c_weight=c_weight, charge=charges)
        assert expected is not None
        assert found.error <= 1e-9
        value = objective(problem, found, ridges, c_weight, charges)
        assert value == pytest.approx(expected[0], rel=1e-6)
        np.testing.assert_allclose(found.y, expected[1], atol=1e-4 * (1.0 + np.abs(expected[1]).max()))
        none = np.zeros(15, dtype=bool)
        assert_optimal(problem, found, ridges, c_weight, charges, none, coupled=False)


@pytest.mark.parametrize("intercept_weight", [0.0, 1.0])
@pytest.mark.parametrize(("c_weight", "charge", "ridge"), CASES)
def test_branches(c_weight: float, charge: float, ridge: float, intercept_weight: float) -> None:
    for seed in range(6):
        problem = margin_problem(seed, intercept_weight, n=12, features=1 + seed % 3, m=8, distance=1.5)
        generator = np.random.default_rng(seed)
        charges = charge * generator.uniform(0.5, 1.5, 12)
        held = generator.uniform(size=12) < [0.3, 0.6, 0.9][seed % 3]
        ridges = ridge * problem.ridge
        found = Solvers(problem).leader(held=held, ridge=ridge, charge=charges, c_weight=c_weight, tolerance=1e-10)
        expected = solve_upper_level(
            problem.rows, problem.validation, ridge=ridges, c_weight=c_weight, charge=charges, held=held,
            coupling=problem.ridge,
        )  # fmt: skip
        assert expected is not None
        assert found.error <= 1e-8
        value = objective(problem, found, ridges, c_weight, charges)
        assert value == pytest.approx(expected[0], rel=1e-6)
        assert_optimal(problem, found, ridges, c_weight, charges, held, coupled=True, tolerance=1e-6)


def test_a_branch_does_not_depend_on_its_start() -> None:
    problem = margin_problem(1, n=12, m=8, distance=1.5)
    generator = np.random.default_rng(1)
    held = generator.uniform(size=12) < 0.6
    charge = np.full(12, 3.0)
    values = []
    for size in (0.0, 1.0, 5.0):
        y, support = size * generator.standard_normal(3), size * generator.uniform(size=12)
        found = Solvers(problem).leader(held=held, y=y, support=support, charge=charge, c_weight=0.0)
        values.append(objective(problem, found, np.zeros(3), 0.0, charge))
    np.testing.assert_allclose(values, values[0], rtol=1e-8)


@pytest.mark.parametrize("all_of_them", [False, True])
def test_no_sample_and_every_sample_held(all_of_them: bool) -> None:
    """No sample held: w is zero. Every sample held: c is what the classifier lacks, and w any combination."""
    problem = margin_problem(2, n=10, m=8)
    held = np.full(10, all_of_them)
    charge = np.full(10, 2.0)
    found = Solvers(problem).leader(held=held, charge=charge, c_weight=0.0)
    assert_optimal(problem, found, np.zeros(3), 0.0, charge, held, coupled=True, tolerance=1e-6)
    if not all_of_them:
        np.testing.assert_allclose(found.y[:-1], 0.0, atol=1e-8)


def test_the_relaxation_is_below_every_branch() -> None:
    problem = margin_problem(4, n=10, m=8, distance=2.0)
    charge = np.full(10, 4.0)
    bound = objective(problem, Solvers(problem).leader(charge=charge, c_weight=0.0), np.zeros(3), 0.0, charge)
    generator = np.random.default_rng(4)
    for _ in range(10):
        held = generator.uniform(size=10) < 0.5
        found = Solvers(problem).leader(held=held, charge=charge, c_weight=0.0)
        assert objective(problem, found, np.zeros(3), 0.0, charge) >= bound - 1e-8 * bound


def test_the_path_ends_at_the_answer() -> None:
    found = Solvers(margin_problem(0)).leader(charge=np.full(20, 2.0), c_weight=0.0)
    assert found.path.shape == (found.iterations + 1, 3)
    np.testing.assert_array_equal(found.path[0], 0.0)
    np.testing.assert_allclose(found.path[-1], found.y, atol=1e-6)
