"""BiC-GAFFA: gradients of a regularised gap function, one loop, no projection on the coupled set.

Yao, Yin, Zeng and Zhang (2024). The gap function of the lower level, regularised in y and in the multipliers, is
penalised; its maximisers theta and lambda are followed by a gradient step and by a closed form. Numbers: step lengths
``alpha`` (x, y), ``beta`` (z), ``eta`` (theta); proximal weights ``gamma1``, ``gamma2``; penalty
c_k = ``c0`` (k+1)^``p``; multipliers are kept below ``r``.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from blocc.methods.base import (
    Counter,
    Demand,
    Multipliers,
    Numbers,
    Size,
    VectorX,
    VectorY,
    clipped,
    constraints,
    lagrangian_slope,
    penalty_weight,
    positive_part,
)
from blocc.methods.loop import Iteration
from blocc.problem import FlatProblem


class GapState(NamedTuple):
    """Variables of both levels, the proximal answer theta, and the proximal centre z of the multipliers."""

    x: VectorX
    y: VectorY
    theta: VectorY
    z: Multipliers


class BicGaffa(Iteration):
    """Single loop, first-order, for coupled constraints of any form."""

    name = "bic-gaffa"
    title = "BiC-GAFFA (Yao, Yin, Zeng, Zhang 2024)"
    demands = (Demand.NO_LEADER_CONSTRAINT,)
    names = ("alpha", "beta", "eta", "gamma1", "gamma2", "c0", "p", "r")
    presets: ClassVar = {
        "paper": {"alpha": 1e-3, "beta": 1e-3, "eta": 0.01, "gamma1": 1.0, "gamma2": 1.0, "c0": 1.0, "p": 0.2, "r": 1.0}
    }

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """Step lengths from the curvatures, the longest first."""
        gamma1 = 1.0 / max(size.lower, 0.1)
        gamma2 = 1.0 / max(size.coupling_y**2 * gamma1, 0.1)
        eta = 1.0 / (size.lower + 1.0 / gamma1)
        curvature = size.upper + size.lower + size.mixed + gamma2 * size.coupling**2 + 1.0 / gamma1
        common = {"eta": eta, "gamma1": gamma1, "gamma2": gamma2, "p": 0.3, "r": 1e6}
        return [
            {"alpha": factor / curvature, "beta": factor * gamma2, "c0": c0, **common, **self.given}
            for factor in (0.5, 0.1, 0.02)
            for c0 in (1.0, 0.1)
        ]

    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> GapState:
        """theta = y, z = 0."""
        return GapState(x, y, y, jnp.zeros(flat.n_inequality + flat.n_equality))

    def step(self, flat: FlatProblem, numbers: Numbers, state: GapState, k: Counter) -> GapState:
        """theta, then x and y, then z."""
        x, y, theta, z = state
        alpha, gamma1, gamma2 = numbers["alpha"], numbers["gamma1"], numbers["gamma2"]
        penalty = penalty_weight(numbers, k)
        slope_theta = lagrangian_slope(flat, x, theta, z)[1] + (theta - y) / gamma1
        theta = flat.y_set.project_flat(theta - numbers["eta"] * slope_theta)
        multipliers = positive_part(flat, z + gamma2 * constraints(flat, x, y))
        upper_x, upper_y = jax.grad(flat.upper, argnums=(0, 1))(x, y)
        here_x, here_y = lagrangian_slope(flat, x, y, multipliers)
        there_x, _ = lagrangian_slope(flat, x, theta, z)
        new_x = flat.x_set.project_flat(x - alpha * (upper_x / penalty + here_x - there_x))
        new_y = flat.y_set.project_flat(y - alpha * (upper_y / penalty + here_y - (y - theta) / gamma1))
        away = (z - multipliers) / gamma2 + constraints(flat, x, theta)
        return GapState(new_x, new_y, theta, clipped(flat, z + numbers["beta"] * away, numbers["r"]))
