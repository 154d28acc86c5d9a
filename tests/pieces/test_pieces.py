"""Pieces of f(x, y(x)): their derivatives against differences, their programs against a reference, their finish."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from blocc import Ball, BilevelProblem, Box, Reals, solve
from blocc._lib.precision import double_precision
from blocc.local.quadratic import Program
from blocc.local.quadratic import solve as solve_program
from blocc.pieces.derivatives import bend, model_of
from blocc.pieces.finish import Asked, Finish, Finished
from blocc.pieces.piece import Followers, Piece
from blocc.problems.textbook import known_problem


def curved() -> BilevelProblem:
    """A follower with a curved row, an equality that x moves, a bound, and third derivatives everywhere."""
    return BilevelProblem(
        upper=lambda x, y: jnp.sum((y - 1.0) ** 2 * jnp.array([1.0, 2.0, 3.0])) + x[0] * x[1] ** 2,
        lower=lambda x, y: jnp.sum(jnp.exp(0.3 * y) - x[0] * y) + 0.5 * jnp.sum((y - x[1]) ** 2),
        inequality=lambda x, y: jnp.sum(y[:2] ** 2) * (1.0 + 0.1 * x[0]) - 1.0,
        equality=lambda x, y: y[0] - 0.2 * y[1] - 0.3 * x[1] ** 2,
        upper_inequality=lambda x, y: y[1] ** 2 * x[0] - 2.0,
        x_set=Box(-3.0, 3.0, shape=2),
        y_set=Box(-0.5, np.inf, shape=3),
    )


def followers_of(problem: BilevelProblem, x: np.ndarray, y: np.ndarray) -> Followers:
    found = Followers.of(problem.flat, x, y)
    assert found is not None
    return found


def piece_of(problem: BilevelProblem, x: np.ndarray, near: np.ndarray) -> tuple[Followers, Piece]:
    """The piece at the follower's answer, found by SciPy from a point nearby."""
    flat = problem.flat
    with double_precision():
        solved = scipy.optimize.minimize(
            lambda y: float(flat.lower(x, y)),
            near,
            method="SLSQP",
            bounds=list(zip(*flat.y_set.bounds_flat(), strict=True)),
            constraints=[
                {"type": "ineq", "fun": lambda y: -np.asarray(flat.inequality(x, y))},
                {"type": "eq", "fun": lambda y: np.asarray(flat.equality(x, y))},
            ],
            options={"ftol": 1e-15},
        )
        followers = followers_of(problem, x, solved.x)
        piece = followers.identified(x, solved.x)
    assert piece is not None
    return followers, piece


def test_derivatives_of_a_piece_are_those_of_its_values() -> None:
    x = np.array([1.2, 0.7])
    followers, piece = piece_of(curved(), x, np.array([0.3, 0.5, 0.5]))
    assert len(piece.held) == 1  # the curved row
    with double_precision():
        model = model_of(followers, piece)
        multipliers = np.linspace(0.1, 0.7, len(model.value))
        hessian = bend(followers, model, multipliers)
        step, slopes, rows = 1e-5, [], []
        for direction in np.eye(2):
            ends = []
            for sign in (1.0, -1.0):
                moved = followers.respond(x + sign * step * direction, piece.y, piece.held, piece.mu, piece.nu)
                assert moved is not None
                np.testing.assert_array_equal(moved.held, piece.held)
                at = model_of(followers, moved)
                weights = multipliers / model.units
                values, jacobian = at.value * at.units, at.jacobian * at.units[:, None]
                ends.append((values, at.gradient + weights @ jacobian, at.upper))
            rows.append((ends[0][0] - ends[1][0]) / (2.0 * step))
            slopes.append([(ends[0][2] - ends[1][2]) / (2.0 * step), *(ends[0][1] - ends[1][1]) / (2.0 * step)])
    np.testing.assert_allclose(model.jacobian * model.units[:, None], np.transpose(rows), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.gradient, np.array(slopes)[:, 0], rtol=1e-6)
    np.testing.assert_allclose(hessian, np.array(slopes)[:, 1:], rtol=1e-5, atol=1e-6)


def test_rows_that_depend_on_each_other_make_no_piece() -> None:
    twice = BilevelProblem(
        upper=lambda x, y: y,
        lower=lambda x, y: y**2,
        inequality=lambda x, y: jnp.stack([x - y, 2.0 * (x - y)]),
        x_set=Box(1.0, 2.0),
        y_set=Reals(),
    )
    with double_precision():
        followers = followers_of(twice, np.array([1.5]), np.array([1.5]))
        both = followers.newton(np.array([1.5]), np.array([1.5]), np.array([0, 1]), np.zeros(2), np.zeros(0))
        one = followers.identified(np.array([1.5]), np.array([1.5]))
    assert both is None
    assert one is not None  # a multiplier on one of them explains the answer
    assert len(one.held) == 1


@pytest.mark.parametrize("seed", range(4))
def test_programs_are_solved_to_the_last_digits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m, k = 6, 5, seed % 3
    root = rng.standard_normal((n, n))
    rows, equalities = rng.standard_normal((m, n)), rng.standard_normal((k, n))
    program = Program(
        rng.standard_normal(n),
        root @ root.T + 0.1 * np.eye(n),
        rows,
        rng.uniform(0.0, 1.0, m),
        np.zeros(m),
        equalities,
        np.zeros(k),
        np.full(n, -0.5),
        np.full(n, 0.7),
        1.0,
    )
    found = solve_program(program)
    assert found.solved
    left = program.gradient + program.hessian @ found.step + rows.T @ found.rows - found.low + found.high
    price = np.linalg.lstsq(equalities.T, -left, rcond=None)[0]
    np.testing.assert_allclose(left + equalities.T @ price, 0.0, atol=1e-11)
    slack = program.limits - rows @ found.step
    assert slack.min() >= -1e-11
    assert min(found.rows.min(), found.low.min(), found.high.min()) >= 0.0
    np.testing.assert_allclose(found.rows * slack, 0.0, atol=1e-11)


def test_a_program_without_room_is_violated_at_its_price_or_refused() -> None:
    program = Program(
        np.array([1.0]),
        np.eye(1),
        np.array([[1.0], [-1.0]]),
        np.array([-1.0, -2.0]),  # t <= -1 and t >= 2
        np.array([1.0, 0.0]),
        np.zeros((0, 1)),
        np.zeros(0),
        np.array([-5.0]),
        np.array([5.0]),
        10.0,
    )
    found = solve_program(program)
    assert found.solved
    assert found.step == pytest.approx([2.0])
    assert found.violation == pytest.approx(3.0)
    assert not solve_program(program._replace(elastic=np.zeros(2))).solved


def finish(problem: BilevelProblem, x: np.ndarray, y: np.ndarray) -> tuple[Finished, int]:
    """The finish from a point at which the follower's answer is known; and how many values it asked for."""
    asked: list[Asked] = []
    count = [0]

    def spend() -> None:
        count[0] += 1

    with double_precision():
        descent = Finish(followers_of(problem, x, y), lambda x: None, spend, lambda at, slope: asked.append(at))
        start = descent.start(x, y)
        assert start is not None
        return descent.run(start), count[0]


def test_the_finish_crosses_to_a_neighbouring_piece_from_a_kink() -> None:
    """At x = 0 the response max(x, 0) has a kink; from the left the model sees no way down."""
    kinked = BilevelProblem(
        upper=lambda x, y: 0.5 * x**2 - 2.0 * y,
        lower=lambda x, y: 0.5 * (y - x) ** 2,
        x_set=Box(-3.0, 3.0),
        y_set=Box(0.0, np.inf),
    )
    found, count = finish(kinked, np.zeros(1), np.zeros(1))
    assert found.stationary
    assert found.best.x == pytest.approx([2.0], abs=1e-12)
    assert count <= 4


def test_the_finish_leaves_a_saddle() -> None:
    saddle = BilevelProblem(
        upper=lambda x, y: jnp.sum(y[0] ** 2) + (x[1] ** 2 - 1.0) ** 2,
        lower=lambda x, y: 0.5 * jnp.sum((y - x) ** 2),
        x_set=Box(-3.0, 3.0, shape=2),
        y_set=Reals(2),
    )
    found, _ = finish(saddle, np.zeros(2), np.zeros(2))
    assert found.stationary
    assert found.best.upper == pytest.approx(0.0, abs=1e-14)


def test_the_finish_stops_at_a_jump_and_keeps_the_best_point() -> None:
    """The follower's vertex changes at x = 1, where f jumps up by 10."""
    jump = BilevelProblem(
        upper=lambda x, y: -x + 10.0 * y,
        lower=lambda x, y: (1.0 - x) * y,
        x_set=Box(0.0, 3.0),
        y_set=Box(0.0, 1.0),
    )
    found, _ = finish(jump, np.array([0.5]), np.zeros(1))
    assert found.best.upper <= -1.0 + 1e-6
    assert found.best.x <= 1.0 + 1e-12


def many_kinks(n: int) -> tuple[BilevelProblem, float]:
    """n variables with their common optimum at n kinks, and the value there."""
    rng = np.random.default_rng(1)
    kink, toll = rng.uniform(-1.0, 1.0, n), rng.uniform(1.0, 2.0, n)
    pull = 0.5 * toll
    problem = BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum((x - kink - pull) ** 2) + toll @ y,
        lower=lambda x, y: 0.5 * jnp.sum((y - x + kink) ** 2),
        x_set=Box(-3.0, 3.0, shape=n),
        y_set=Box(0.0, np.inf, shape=n),
    )
    return problem, float(0.5 * pull @ pull)


def test_a_hundred_kinks_are_found_exactly() -> None:
    problem, value = many_kinks(100)
    result = solve(problem)
    assert result.success, result.message
    assert result.upper_value == pytest.approx(value, rel=1e-12)
    assert result.counts["evaluations"] <= 150
    assert np.isinf(result.gamma)


def test_the_leaders_set_and_its_constraint_bend() -> None:
    """X is a ball and G a disc of y: both end the way to the target, at a corner that is known."""
    bent = BilevelProblem(
        upper=lambda x, y: jnp.sum((y - jnp.array([2.0, 1.0])) ** 2),
        lower=lambda x, y: 0.5 * jnp.sum((y - x) ** 2),
        upper_inequality=lambda x, y: (y[0] + 0.5) ** 2 + y[1] ** 2 - 1.0,
        x_set=Ball(np.zeros(2), 1.0),
        y_set=Reals(2),
    )
    result = solve(bent, np.array([0.1, 0.0]))
    assert result.success, result.message
    reference = scipy.optimize.minimize(
        lambda x: np.sum((x - [2.0, 1.0]) ** 2),
        [0.1, 0.1],
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda x: 1.0 - x @ x},
            {"type": "ineq", "fun": lambda x: 1.0 - (x[0] + 0.5) ** 2 - x[1] ** 2},
        ],
        options={"ftol": 1e-15},
    )
    np.testing.assert_allclose(result.x, reference.x, atol=1e-6)


def test_pieces_reach_the_edge_where_multipliers_are_unbounded() -> None:
    """The follower's lens of two discs shrinks to a point at x = 1, and its multipliers grow like 1 / sqrt(1 - x)."""
    problem = known_problem("tangent_discs").problem
    with double_precision():
        followers = followers_of(problem, np.array([0.5]), np.array([0.0, 0.6]))
        for left in (1e-2, 1e-4, 1e-6, 1e-7):
            x = np.array([1.0 - left])
            lowest = np.array([0.0, 1.0 + x[0] - np.sqrt(1.0 - x[0] ** 2)])
            piece = followers.identified(x, lowest)
            assert piece is not None, left
            np.testing.assert_allclose(piece.y, lowest, atol=1e-9)
