"""How far is the lower level from having a feasible point? The elastic problem.

``t(x) = min over y in Y and t of t  subject to  gc(x, y) <= t, |h(x, y)| <= t``. It always has a solution, so it tells
an infeasible lower level from a solver in trouble, and by Danskin's rule its multipliers give the derivative of t: the
direction in which the leader must move to make the lower level feasible again.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Bool, Float
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerOracle
from blocc.lagrangian import weights
from blocc.sets import Box, Product


class Violation(NamedTuple):
    """The smallest constraint violation that the follower can reach at one x."""

    value: Float[AnyArray, ""]  #: t(x): positive where the lower level is infeasible, bounded below by -1
    gradient: Float[AnyArray, "n_x"]  #: derivative of t(x)
    solved: Bool[AnyArray, ""]  #: whether the elastic problem itself was solved
    y: Float[AnyArray, "n_y"]  #: a point that attains it


def elastic(flat: FlatProblem) -> FlatProblem:
    """The elastic problem of ``flat`` as a lower level with one more variable."""

    def inequality(x: AnyArray, extended: AnyArray) -> Array:
        y, t = extended[:-1], extended[-1]
        equality = flat.equality(x, y)
        return jnp.concatenate([flat.inequality(x, y) - t, equality - t, -equality - t])

    return FlatProblem(
        upper=lambda x, extended: jnp.zeros((), extended.dtype),
        lower=lambda x, extended: extended[-1],
        inequality=inequality,
        equality=lambda x, extended: jnp.zeros(0, extended.dtype),
        upper_inequality=lambda x, extended: jnp.zeros(0, extended.dtype),
        x_set=flat.x_set,
        y_set=Product((flat.y_set, Box(-1.0, np.inf))),
        n_inequality=flat.n_inequality + 2 * flat.n_equality,
        n_equality=0,
        n_upper_inequality=0,
    )


def violation(
    flat: FlatProblem, oracle: InnerOracle, x: Array, tolerance: Array, begin: Array, known: Array
) -> Violation:
    """Solve the elastic problem at ``x``, from y = ``begin`` where ``known``. Pure and traceable."""
    extended = elastic(flat)
    w = weights(extended)
    start = oracle.cold(extended)
    worst = jnp.max(flat.inequality(x, begin), initial=0.0) + jnp.max(jnp.abs(flat.equality(x, begin)), initial=0.0)
    if (other := oracle.begin_at(extended, jnp.append(begin, 1.0 + worst))) is not None:
        start = jax.tree.map(lambda new, old: jnp.where(known, new, old), other, start)
    solution = oracle.solve(extended, x, w, start, tolerance)
    r = solution.residuals
    solved = jnp.maximum(r.stationarity, jnp.maximum(r.feasibility, r.complementarity)) <= 1e-5
    return Violation(solution.y[-1], solution.gradient_x, solved, solution.y[:-1])
