"""What success promises (docs/method.md), checked with derivatives and answers of the test's own.

Nothing of :mod:`blocc.judge` is used but the sizes of the variables, which are part of the definition. Derivatives are
central differences, multipliers come from SciPy's least squares, and the follower's answers are closed forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from blocc import BilevelProblem, Box, Reals, solve
from blocc._lib.precision import double_precision
from blocc.local.derivatives import wide
from blocc.local.scales import sizes_at
from selections import few

TOLERANCE = 1e-5


class Known(NamedTuple):
    """A problem, and the follower's answer in closed form."""

    problem: BilevelProblem
    answer: Callable[[np.ndarray], np.ndarray]


def scalar(answer: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.atleast_1d(answer(float(np.ravel(x)[0])))


def tracking(**changes: Any) -> BilevelProblem:
    parts = {
        "upper": lambda x, y: (x - 1.0) ** 2 + y**2,
        "lower": lambda x, y: (y - x) ** 2,
        "x_set": Box(-5.0, 5.0),
        "y_set": Reals(),
    }
    return BilevelProblem(**{**parts, **changes})


CASES: dict[str, Known] = {
    "smooth": Known(tracking(), scalar(lambda x: x)),
    "stiff": Known(
        tracking(upper=lambda x, y: (x - 1.0) ** 2 + y**2 + jnp.exp(x), x_set=Box(0.0, 40.0)), scalar(lambda x: x)
    ),
    "sixth power": Known(
        tracking(upper=lambda x, y: (x - 1.0) ** 6 / 6.0 + y**2, x_set=Box(-30.0, 30.0)), scalar(lambda x: x)
    ),
    "shifted": Known(tracking(upper=lambda x, y: 1e6 + (x - 1.0) ** 2 + (y - 1.0) ** 2), scalar(lambda x: x)),
    "small": Known(
        tracking(upper=lambda x, y: 1e-6 * ((x - 1.0) ** 2 + y**2), lower=lambda x, y: 1e-8 * (y - x) ** 2),
        scalar(lambda x: x),
    ),
    "held": Known(
        tracking(lower=lambda x, y: (y - 2.0 * x) ** 2, inequality=lambda x, y: y - x, x_set=Box(0.5, 3.0)),
        scalar(lambda x: min(2.0 * x, x)),
    ),
    "row times a million": Known(
        tracking(lower=lambda x, y: (y - 3.0) ** 2, inequality=lambda x, y: 1e6 * (y - x)),
        scalar(lambda x: min(3.0, x)),
    ),
    "leader's constraint": Known(
        tracking(upper=lambda x, y: (x - 3.0) ** 2 + y, upper_inequality=lambda x, y: x + y - 3.0), scalar(lambda x: x)
    ),
    "large offset": Known(
        tracking(
            upper=lambda x, y: (x - 1.0) ** 2 + y[0],
            lower=lambda x, y: 0.01 * (y[0] - x) ** 2 + (y[1] - 1e4) ** 2,
            inequality=lambda x, y: y[0] - x,
            y_set=Reals(2),
        ),
        lambda x: np.array([float(x[0]), 1e4]),
    ),
    "kink": Known(tracking(lower=lambda x, y: jnp.abs(y - x) + 0.05 * y**2), scalar(lambda x: x)),
}


def gradient(function: Callable[[np.ndarray], Any], z: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Central differences, one row for each value of the function."""
    columns = []
    for index, size in enumerate(sizes):
        step = np.zeros_like(z)
        step[index] = 1e-5 * size
        columns.append((np.ravel(function(z + step)) - np.ravel(function(z - step))) / (2e-5 * size))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("name", few(CASES, "shifted", "held", "row times a million", "leader's constraint"))
def test_success_keeps_its_promises(name: str) -> None:
    problem, answer = CASES[name]
    result = solve(problem, 1.7 if name == "shifted" else None, progress=False)
    assert result.success, result.message
    assert result.certificate.exact
    with double_precision():
        check(problem, answer, np.ravel(result.x), np.ravel(result.y), kinked=name == "kink")


def check(
    problem: BilevelProblem, answer: Callable[[np.ndarray], np.ndarray], x: np.ndarray, y: np.ndarray, kinked: bool
) -> None:
    flat, n_x = problem.flat, x.size
    z = np.concatenate([x, y])
    sizes = sizes_at(flat, wide(flat, x, y), x, y).both
    assert (sizes <= np.maximum(1.0, np.abs(z)) * (1 + 1e-12)).all()
    function = {
        part: lambda at, part=part: np.asarray(getattr(flat, part)(jnp.asarray(at[:n_x]), jnp.asarray(at[n_x:])))
        for part in ("upper", "lower", "inequality", "equality", "upper_inequality")
    }
    # 1 and 2: members, and rows relative to their sizes.
    assert problem.x_set.contains(problem.x_set.unravel(x), 1e-9)
    assert problem.y_set.contains(problem.y_set.unravel(y), 1e-9)
    allowed = 0.1 * TOLERANCE
    jacobians = {}
    for part in ("inequality", "equality", "upper_inequality"):
        rows = np.ravel(function[part](z))
        jacobians[part] = gradient(function[part], z, sizes) if rows.size else np.zeros((0, z.size))
        row_sizes = np.abs(jacobians[part]) @ sizes
        violated = np.abs(rows) if part == "equality" else np.maximum(rows, 0.0)
        assert (violated <= 1.01 * allowed * row_sizes + 1e-12).all()
    # 3: multipliers on touched rows that leave hardly anything of dg/dy. At a kink g has no derivative.
    slope = gradient(function["lower"], z, sizes)[0, n_x:]
    size_y = sizes[n_x:]
    if not kinked:
        bend = np.stack(
            [
                gradient(lambda at: gradient(function["lower"], at, sizes)[0, n_x:], z, 100.0 * sizes)[:, n_x + index]
                for index in range(y.size)
            ],
            axis=1,
        )
        scale = (np.abs(slope) + np.abs(bend) @ size_y) * size_y
        rows = np.ravel(function["inequality"](z))
        touched = rows >= -1e-6 * np.abs(jacobians["inequality"]) @ sizes
        matrix = jacobians["inequality"][touched][:, n_x:].T
        left = slope
        if matrix.size:
            unit = np.linalg.norm(matrix, axis=0)
            left = slope + matrix / unit @ lsq_linear(matrix / unit, -slope, bounds=(0.0, np.inf), tol=1e-14).x
        assert (np.abs(left) * size_y <= allowed * scale + 1e-8 * scale.max()).all()
    # The follower's answer itself, in closed form.
    np.testing.assert_allclose(y / size_y, answer(x) / size_y, atol=1e-5)

    def value(at: np.ndarray) -> tuple[float, bool]:
        there = np.concatenate([at, answer(at)])
        rows = np.ravel(function["upper_inequality"](there))
        return float(function["upper"](there)), bool((rows <= 1e-9).all())

    # 4 and 5: nothing right next to x is better.
    slopes = np.abs(gradient(function["upper"], z, sizes)[0])
    scale_f = float(slopes @ sizes)
    here = value(x)[0]
    around = [value(np.clip(x + side * sizes[:n_x], *problem.x_set.bounds_flat()))[0] for side in (1.0, -1.0)]
    scale_f = max(scale_f, *(abs(other - here) for other in around))
    for distance in (1e-1, 1e-2, 1e-3):
        for side in (1.0, -1.0):
            for index in range(n_x):
                step = np.zeros(n_x)
                step[index] = side * distance * sizes[index]
                point = np.clip(x + step, *problem.x_set.bounds_flat())
                other, admissible = value(point)
                if admissible:
                    assert other >= here - max(TOLERANCE * distance, 1e-9) * scale_f - 1e-9 * abs(here)
