"""Algorithm 1 of the BLOCC paper: projected gradient steps of length eta on F_gamma.

:func:`blocc.outer.published.minimise` repeats these lines for t = 0, 1, ..., T; its answer is (x_T, yF at x_T).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array, Float
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerOracle, WarmStart
from blocc.penalty import Case, UpperMultipliers, inner_solutions


class Numbers(NamedTuple):
    """The inputs beside the starts, the steps and counters of MaxMin, and T."""

    gamma: Float[Array, ""]
    eta: Float[Array, ""]
    leader: UpperMultipliers  #: of the leader's own constraints, which the paper has not
    accuracy: Float[Array, ""]  #: of an inner solver that stops by itself


class Lines(NamedTuple):
    """What lines 3 to 5 give at one t."""

    inner: Case  #: (y_g, mu_g) and (y_F, mu_F) in rows, with the starts of the next t
    gradient: Float[Array, "n_x"]  #: g_{F,t}
    x: Float[Array, "n_x"]  #: x_{t+1}


def iterate(
    flat: FlatProblem, max_min: InnerOracle, x: Float[Array, "n_x"], starts: WarmStart, numbers: Numbers
) -> Lines:
    """Lines 3 to 5 at x_t, with both inner solvers begun where they ended at t - 1."""
    gamma, eta, leader, accuracy = numbers
    # (y_g, mu_g) = MaxMin(T_g, T_y) on L_g,  (y_F, mu_F) = MaxMin(T_F, T_y) on L_F:
    inner = inner_solutions(flat, max_min, x, gamma, leader, starts, accuracy)
    g, F = (jax.tree.map(lambda leaf, row=row: leaf[row], inner.solution) for row in (0, 1))
    # g_v = d_x g + <mu_g, d_x gc> at y_g,  and at y_F  g_F = d_x f + gamma (d_x g - g_v) + <mu_F, d_x gc>:
    g_v = g.gradient_x
    g_F = F.gradient_x - gamma * g_v
    # x_{t+1} = Proj_X(x_t - eta g_F):
    return Lines(inner, g_F, jnp.asarray(flat.x_set.project_flat(x - eta * g_F)))
