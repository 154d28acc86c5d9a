"""Followers with many best responses: the one that suits the leader best, and f(x, y(x)) with it, by brute force."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from blocc import BilevelProblem, Box, Reals, solve, verify
from blocc._lib.precision import double_precision
from blocc.local.selection import optimistic
from blocc.pieces.derivatives import bend, model_of
from blocc.pieces.piece import Followers
from blocc.pieces.selection import Selections, identified

UPPER = 2.0  #: bound of every variable of the follower's


class Flat:
    """A linear follower with a cost that ties, or a quadratic one that leaves directions free; both within a box."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 9))
        self.quadratic = bool(seed % 2)
        self.rows = -np.abs(rng.standard_normal((1, n)))  # a demand that x raises
        self.root = rng.standard_normal((int(rng.integers(1, n)), n)) if self.quadratic else np.zeros((1, n))
        self.goal = self.root @ rng.uniform(0.3, 1.5, n)
        self.moving = rng.standard_normal(len(self.root)) * self.quadratic
        self.cost = np.zeros(n) if self.quadratic else -self.rows[0]
        self.upper, self.upper_x, self.n = rng.standard_normal(n), rng.standard_normal(n), n

    def problem(self) -> BilevelProblem:
        j = jnp.asarray
        return BilevelProblem(
            upper=lambda x, y: (j(self.upper) + x * j(self.upper_x)) @ y + 0.5 * x**2,
            lower=lambda x, y: j(self.cost) @ y + jnp.sum((j(self.root) @ y - j(self.goal) - x * j(self.moving)) ** 2),
            inequality=lambda x, y: j(self.rows) @ y + 1.0 + 0.4 * x,
            x_set=Box(-1.0, 1.0),
            y_set=Box(0.0, UPPER, shape=self.n),
        )

    def response(self, x: float) -> np.ndarray | None:
        """Any response, by HiGHS: quadratic ones that reach their goal; None if there is none."""
        free = self.quadratic
        found = scipy.optimize.linprog(
            self.cost,
            A_ub=self.rows,
            b_ub=[-1.0 - 0.4 * x],
            A_eq=self.root if free else None,
            b_eq=self.goal + x * self.moving if free else None,
            bounds=(0.0, UPPER),
        )
        return found.x if found.success else None

    def value(self, x: float) -> float:
        """f at the best of all responses, by HiGHS again; nan if the goal is out of reach."""
        y = self.response(x)
        if y is None:
            return np.nan
        equal = self.root if self.quadratic else self.cost[None]
        found = scipy.optimize.linprog(
            self.upper + x * self.upper_x,
            A_ub=self.rows,
            b_ub=[-1.0 - 0.4 * x],
            A_eq=equal,
            b_eq=equal @ y,
            bounds=(0.0, UPPER),
        )
        return float(found.fun) + 0.5 * x**2


@pytest.mark.parametrize("seed", range(12))
def test_the_best_response_is_found_from_any(seed: int) -> None:
    case, x = Flat(seed), 0.2
    y = case.response(x)
    if y is None:
        return
    problem = case.problem()
    with double_precision():
        flat, at = problem.flat, np.array([x])
        best = optimistic(flat, at, y)
        best = y if best is None else best
        assert float(flat.upper(at, best)) == pytest.approx(case.value(x), abs=1e-8)
        assert float(flat.lower(at, best)) <= float(flat.lower(at, y)) + 1e-12
        assert max(np.max(flat.inequality(at, best)), np.max(-best), np.max(best - UPPER)) <= 1e-9


def test_a_follower_flatter_than_a_parabola_has_one_response_all_the_same() -> None:
    quartic = BilevelProblem(
        upper=lambda x, y: -jnp.sum(y),
        lower=lambda x, y: (y[0] - x) ** 4 + jnp.maximum(jnp.abs(y[1]) - 1.0, 0.0) ** 2 + (y[2] - x) ** 2,
        x_set=Box(-1.0, 1.0),
        y_set=Reals(3),
    )
    with double_precision():
        found = optimistic(quartic.flat, np.array([0.3]), np.array([0.3, 0.1, 0.3]))
    assert found is not None
    assert found[1] == pytest.approx(1.0, abs=1e-3)  # anything between -1 and 1 costs nothing
    assert found[0] == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("seed", range(6))
def test_derivatives_of_the_selection_are_those_of_its_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root, bent = rng.standard_normal((2, 4)), rng.standard_normal((4, 4))
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum((jnp.asarray(bent) @ y - x[0]) ** 2) + jnp.sin(y[0]) * x[1] + y[3] ** 4,
        lower=lambda x, y: jnp.sum((jnp.asarray(root) * (1.0 + 0.1 * x[0]) @ y - x) ** 2),
        equality=lambda x, y: y[0] - y[1] - x[1] ** 2,
        x_set=Box(-3.0, 3.0, shape=2),
        y_set=Box(-5.0, 5.0, shape=4),
    )
    x = rng.uniform(0.2, 0.8, 2)
    with double_precision():
        flat = problem.flat
        inner = jnp.asarray(np.concatenate([root * (1.0 + 0.1 * x[0]), [[1.0, -1.0, 0.0, 0.0]]]))
        y = np.linalg.lstsq(np.asarray(inner), np.append(x, x[1] ** 2), rcond=None)[0]
        followers = Followers.of(flat, x, y)
        assert followers is not None
        piece = identified(followers, x, y)
        assert piece is not None
        assert isinstance(piece.of, Selections)
        model = model_of(piece.of, piece)
        hessian = bend(piece.of, model, np.zeros(len(model.value)))
        step, slopes = 1e-5, []
        for direction in np.eye(2):
            ends = []
            for sign in (1.0, -1.0):
                moved = piece.of.respond(x + sign * step * direction, piece.y, piece.held, piece.mu, piece.nu)
                assert moved is not None
                at = model_of(moved.of, moved)
                ends.append(np.append(at.upper, at.gradient))
            slopes.append((ends[0] - ends[1]) / (2.0 * step))
    np.testing.assert_allclose(model.gradient, np.array(slopes)[:, 0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(hessian, np.array(slopes)[:, 1:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(3, 6))
def test_flat_followers_are_solved_to_the_truth(seed: int) -> None:
    case = Flat(seed)
    result = solve(case.problem(), 0.1)
    values = {x: case.value(x) for x in np.linspace(-1.0, 1.0, 101)}
    if np.isnan(list(values.values())).any():
        return  # a goal out of reach is another follower than the reference's
    at = float(result.x)
    assert result.success, result.message
    assert result.upper_value == pytest.approx(case.value(at), abs=1e-7)
    beside = [value for x, value in values.items() if abs(x - at) <= 0.05]
    assert result.upper_value <= min(beside) + 1e-7
    assert verify(case.problem(), result).ok


@pytest.mark.parametrize("start", [0.0, 2.0, -3.0, 3.5])
def test_a_face_that_ends_at_bounds_hides_no_slope(start: float) -> None:
    problem = BilevelProblem(
        upper=lambda x, y: (y[0] + 4.0) ** 2 + (y[1] - 2.5) ** 2 + 0.01 * (x + 0.6) ** 2,
        lower=lambda x, y: (y[0] + y[1] - 2.0 * x - 3.0) ** 2,
        x_set=Box(-4.0, 4.0),
        y_set=Box(0.0, 3.0, shape=2),
    )
    result = solve(problem, start)
    # y = (0, 2x + 3): the minimum of (2x + 1/2)^2 + (x + 3/5)^2 / 100, and 16
    x = -1.006 / 4.01
    assert result.success
    assert result.x == pytest.approx(x, abs=1e-8)
    assert result.upper_value == pytest.approx(16.0 + (2.0 * x + 0.5) ** 2 + 0.01 * (x + 0.6) ** 2, abs=1e-12)
