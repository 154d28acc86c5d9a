"""Random problems that meet the assumptions of the paper's theorems, drawn by a seed.

g is a strongly convex quadratic of y around C x, f = |y - t|^2 / 2 + sum cos(2 x) / 2, which is not convex in x.
"affine" has affine coupled rows and the whole space for y, as in Theorem 4; "curved" has rows
A y - B x + q |y|^2 <= room and a box for y, as in Theorem 3.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals

KINDS = ("curved", "affine")


class Family(NamedTuple):
    """A random problem, where it begins, and the constants that are known of it."""

    problem: BilevelProblem
    start: Float[NDArray, "n_x"]
    strong_convexity: float  #: alpha_g
    target: Float[NDArray, "n_y"]  #: t: the slope of f in y is y - t, its curvature 1


def draw(kind: str, seed: int, n_x: int = 2, n_y: int = 4, rows: int = 2) -> Family:
    """The problem of this kind that a seed stands for; y = 0 keeps all rows at every x."""
    generator = np.random.default_rng([seed, KINDS.index(kind)])
    root = generator.standard_normal((n_y, n_y))
    hessian = root @ root.T / n_y + generator.uniform(0.5, 2.0) * np.eye(n_y)
    C, A = generator.standard_normal((n_y, n_x)), generator.standard_normal((rows, n_y))
    B, target = 0.3 * generator.standard_normal((rows, n_x)), generator.standard_normal(n_y)
    room = np.abs(B).sum(axis=1) + generator.uniform(0.0, 0.3, rows)
    bend = generator.uniform(0.2, 1.0, rows) if kind == "curved" else np.zeros(rows)
    problem = BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum((y - target) ** 2) + 0.5 * jnp.sum(jnp.cos(2.0 * x)),
        lower=lambda x, y: 0.5 * (y - C @ x) @ hessian @ (y - C @ x),
        inequality=lambda x, y: A @ y - B @ x - room + bend * jnp.sum(y**2),
        x_set=Box(-1.0, 1.0, (n_x,)),
        y_set=Box(-2.0, 2.0, (n_y,)) if kind == "curved" else Reals(n_y),
    )
    start = generator.uniform(-1.0, 1.0, n_x)
    return Family(problem, start, float(np.linalg.eigvalsh(hessian)[0]), target)
