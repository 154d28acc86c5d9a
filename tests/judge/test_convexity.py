"""Jensen's inequality on pairs of points finds what bends down, also in a corner, and leaves alone what does not."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Status, solve
from blocc._lib.precision import double_precision
from blocc.judge.convexity import jensen
from selections import few

SIZE = 8
AT = np.zeros(1)


def quadratic(bends: np.ndarray, seed: int = 0, **parts: Any) -> BilevelProblem:
    """A lower level with these eigenvalues in a random basis."""
    basis, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((SIZE, SIZE)))
    matrix = (basis * bends) @ basis.T
    settings: dict[str, Any] = {"x_set": Reals(1), "y_set": Reals(SIZE), **parts}
    return BilevelProblem(upper=lambda x, y: x[0], lower=lambda x, y: 0.5 * y @ (matrix @ y), **settings)


def failure(problem: BilevelProblem, y: np.ndarray) -> str | None:
    with double_precision():
        return jensen(problem.flat, AT, y).failure()


ONE_DOWN = np.array([-0.3, *np.linspace(0.5, 3.0, SIZE - 1)])
UP = np.abs(ONE_DOWN)


@pytest.mark.parametrize("seed", few(range(5), 1))
@pytest.mark.parametrize("width", [0.1, 1.0])
def test_one_direction_down_is_found_in_a_corner(width: float, seed: int) -> None:
    """One of eight directions bends down, and y sits in a corner of a small box: a random pair is never feasible."""
    corner = width * np.sign(np.random.default_rng(seed).standard_normal(SIZE))
    rows = {"inequality": lambda x, y: jnp.concatenate([y - width, -width - y])}
    bounds = {"y_set": Box(-width, width, shape=SIZE)}
    for parts in (rows, bounds):
        assert "not convex" in str(failure(quadratic(ONE_DOWN, seed, **parts), corner))
        assert failure(quadratic(UP, seed, **parts), corner) is None


def test_what_bends_down_across_the_equalities_alone_is_convex() -> None:
    """Indefinite, but convex on the follower's set: an equality takes the one bad direction away, open or hidden."""
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((SIZE, SIZE)))
    normal = basis[:, 0]
    open_rule: dict[str, Any] = {"equality": lambda x, y: jnp.reshape(normal @ y, (1,))}
    hidden: dict[str, Any] = {"inequality": lambda x, y: jnp.stack([normal @ y, -normal @ y])}
    for parts in (open_rule, hidden):
        assert failure(quadratic(ONE_DOWN, **parts), np.zeros(SIZE)) is None
    # Another direction's equality does not help.
    other: dict[str, Any] = {"equality": lambda x, y: jnp.reshape(basis[:, 1] @ y, (1,))}
    assert "not convex" in str(failure(quadratic(ONE_DOWN, **other), np.zeros(SIZE)))


def test_constraints_are_tested_too() -> None:
    outside: dict[str, Any] = {"inequality": lambda x, y: jnp.reshape(1.0 - y @ y, (1,))}
    assert failure(quadratic(UP, **outside), np.eye(SIZE)[0]) == "inequality(x, y) is not convex in y"
    curved: dict[str, Any] = {"equality": lambda x, y: jnp.reshape(y @ y - 1.0, (1,))}
    assert failure(quadratic(UP, **curved), np.eye(SIZE)[0]) == "equality(x, y) is not affine in y"


def test_a_bend_that_is_not_finite_shows_nothing() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: x[0],
        lower=lambda x, y: jnp.sum(y**1.5),  # its second derivative is infinite at zero
        x_set=Reals(1),
        y_set=Box.nonnegative(3),
    )
    assert failure(problem, np.zeros(3)) is None


OFFSETS = (0.0, 1e9, 1e10, 1e16)


@pytest.mark.parametrize("offset", few(OFFSETS, 1e10, 1e16))
@pytest.mark.parametrize("seed", range(2))
def test_a_constant_in_lower_changes_nothing(offset: float, seed: int) -> None:
    """Where the variation of values drowns in their rounding, second derivatives decide."""
    generator = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(generator.standard_normal((SIZE, SIZE)))
    slope, middle = generator.standard_normal(SIZE), generator.uniform(-1.0, 1.0, size=SIZE)
    for bends, expected in ((ONE_DOWN, True), (UP, False)):
        matrix = (basis * bends) @ basis.T

        def lower(x: jnp.ndarray, y: jnp.ndarray, matrix: np.ndarray = matrix) -> jnp.ndarray:
            return offset + 0.5 * y @ (matrix @ y) + slope @ y * x[0] + jnp.sum(jnp.abs(y - middle))

        box = Box(-5.0, 5.0, shape=SIZE)
        problem = BilevelProblem(upper=lambda x, y: x[0], lower=lower, x_set=Reals(1), y_set=box)
        assert (failure(problem, middle + 0.1) is not None) is expected


@pytest.mark.parametrize(("size", "width"), [(1, 0.1), (1, 1.0), (2, 1.0)])
@pytest.mark.parametrize("seed", range(3))
def test_a_second_well_is_found_anywhere_in_a_box(size: int, width: float, seed: int) -> None:
    well = np.random.default_rng(seed).uniform(-4.0, 4.0, size=size)

    def lower(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        return 0.1 * jnp.sum(y**2) - 5.0 * jnp.exp(-jnp.sum((y - well) ** 2) / width**2)

    box = Box(-5.0, 5.0, shape=size)
    problem = BilevelProblem(upper=lambda x, y: x[0], lower=lower, x_set=Reals(1), y_set=box)
    assert failure(problem, np.zeros(size)) is not None


@pytest.mark.parametrize("offset", [1e9, 1e10])
def test_solve_does_not_claim_what_an_offset_hides(offset: float) -> None:
    """However the end was found: descents of f(x, y(x)) itself are asked too."""

    def answered(bend: float) -> Status:
        return solve(
            BilevelProblem(
                upper=lambda x, y: jnp.sum((y - 0.5) ** 2) + x[0] ** 2,
                lower=lambda x, y: offset + 0.5 * bend * (y[0] - 0.1 * x[0]) ** 2 + (y[1] - x[0]) ** 2,
                x_set=Box(-1.0, 1.0, shape=1),
                y_set=Box(-3.0, 3.0, shape=2),
            ),
            np.array([0.4]),
        ).status

    assert answered(-1.0) is Status.NOT_CONVEX
    assert answered(1.0) is Status.CONVERGED
