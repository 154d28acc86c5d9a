"""LV-HBA: a Lagrangian value function regularised in y and in the multipliers, with a joint projection.

Yao, Yu, Zeng and Zhang (ICLR 2024). x and y move together and are projected on the coupled set, which must therefore be
jointly convex. Numbers: ``alpha`` (x, y), ``beta`` (z), ``eta`` (theta, lambda), ``gamma1``, ``gamma2``, penalty
c_k = ``c0`` (k+1)^``p``, and ``r``, the bound of z. ``projection.py`` computes the joint projection.
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
from blocc.methods.projection import AffineRows, project, projector
from blocc.problem import FlatProblem


class HbaState(NamedTuple):
    """Variables of both levels, the proximal answer theta with its multipliers, and their centre z."""

    x: VectorX
    y: VectorY
    theta: VectorY
    multipliers: Multipliers
    z: Multipliers
    carried: AffineRows | None  #: from one joint projection to the next


class LvHba(Iteration):
    """Single loop with a joint projection."""

    name = "lv-hba"
    title = "LV-HBA (Yao, Yu, Zeng, Zhang, ICLR 2024)"
    demands = (Demand.JOINTLY_CONVEX, Demand.NO_LEADER_CONSTRAINT)
    names = ("alpha", "beta", "eta", "gamma1", "gamma2", "c0", "p", "r")
    presets: ClassVar = {
        "paper": {"alpha": 0.01, "beta": 0.01, "eta": 1e-3, "gamma1": 0.1, "gamma2": 0.1, "c0": 1.0, "p": 0.3, "r": 1.0}
    }

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """Step lengths from the curvatures, the longest first."""
        gamma2 = 1.0
        found = []
        # A long proximal term (large gamma1) makes the penalty act from afar, a short one allows longer steps.
        for gamma1 in (1.0 / max(size.lower, 0.1), 100.0 / max(size.lower, 0.1)):
            eta = 1.0 / (size.lower + 1.0 / gamma1 + 1.0 / gamma2 + 2.0 * size.coupling_y)
            curvature = size.upper + 2.0 * size.lower + size.mixed + 2.0 / gamma1
            common = {"eta": eta, "gamma1": gamma1, "gamma2": gamma2, "p": 0.49, "r": 1e6}
            found += [
                {"alpha": factor / curvature, "beta": min(factor, 0.5) * gamma2, "c0": c0, **common, **self.given}
                for factor in (1.0, 0.2, 0.04)
                for c0 in (1.0, 0.1)
            ]
        return found

    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> HbaState:
        """theta = y, no multipliers."""
        none = jnp.zeros(flat.n_inequality + flat.n_equality)
        return HbaState(x, y, y, none, none, projector(flat, x, y))

    def step(self, flat: FlatProblem, numbers: Numbers, state: HbaState, k: Counter) -> HbaState:
        """theta and its multipliers, then x and y together, then z."""
        x, y, theta, multipliers, z, carried = state
        gamma1, gamma2, eta = numbers["gamma1"], numbers["gamma2"], numbers["eta"]
        penalty = penalty_weight(numbers, k)
        slope_theta = lagrangian_slope(flat, x, theta, multipliers)[1] + (theta - y) / gamma1
        rise = (multipliers - z) / gamma2 - constraints(flat, x, theta)
        theta = flat.y_set.project_flat(theta - eta * slope_theta)
        multipliers = positive_part(flat, multipliers - eta * rise)
        upper_x, upper_y = jax.grad(flat.upper, argnums=(0, 1))(x, y)
        lower_x, lower_y = jax.grad(flat.lower, argnums=(0, 1))(x, y)
        there_x, _ = lagrangian_slope(flat, x, theta, multipliers)
        change_x = upper_x / penalty + lower_x - there_x
        change_y = upper_y / penalty + lower_y - (y - theta) / gamma1
        target = jnp.concatenate([x, y]) - numbers["alpha"] * jnp.concatenate([change_x, change_y])
        new, carried = project(flat, target, carried)
        z = clipped(flat, z + numbers["beta"] * (multipliers - z) / gamma2, numbers["r"])
        return HbaState(new[: flat.n_x], new[flat.n_x :], theta, multipliers, z, carried)
