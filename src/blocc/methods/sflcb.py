"""SFLCB: a single-loop, first-order method for affine coupled constraints (NeurIPS 2025).

Two augmented Lagrangians with slacks, one for the penalised problem in y, one for the lower level in z; everything
moves at once. Numbers: ``eta`` (all steps), ``delta`` (weight of the upper objective), ``rho1``, ``rho2``.
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
    Scalar,
    Size,
    VectorX,
    VectorY,
    constraints,
    is_inequality,
)
from blocc.methods.loop import Iteration
from blocc.problem import FlatProblem


class SflcbState(NamedTuple):
    """x, the penalised y and the lower level's own z, with their multipliers and slacks."""

    x: VectorX
    y: VectorY
    z: VectorY
    u: Multipliers
    v: Multipliers
    slack_y: Multipliers
    slack_z: Multipliers


class Sflcb(Iteration):
    """Single loop, for constraints affine in x and y."""

    name = "sflcb"
    title = "SFLCB (NeurIPS 2025)"
    demands = (Demand.AFFINE, Demand.NO_LEADER_CONSTRAINT)
    names = ("eta", "delta", "rho1", "rho2")
    presets: ClassVar = {"paper": {"eta": 0.001, "delta": 0.1, "rho1": 0.1, "rho2": 0.1}}

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """Step lengths from the curvatures; small weights of the upper objective are exact but slow."""
        rho = 1.0
        curvature = size.upper + 2.0 * size.lower + size.mixed + 2.0 * rho * size.coupling**2 + size.coupling
        return [
            {"eta": factor / curvature, "delta": delta, "rho1": rho, "rho2": rho, **self.given}
            for factor in (0.5, 0.15)
            for delta in (0.1, 0.01, 0.003)
        ]

    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> SflcbState:
        """z = y, no multipliers, slacks that fit."""
        slack = jnp.where(is_inequality(flat), jnp.minimum(constraints(flat, x, y), 0.0), 0.0)
        none = jnp.zeros_like(slack)
        return SflcbState(x, y, y, none, none, slack, slack)

    def step(self, flat: FlatProblem, numbers: Numbers, state: SflcbState, k: Counter) -> SflcbState:
        """Multipliers first, then everything else at once."""
        x, y, z, u, v, slack_y, slack_z = state
        eta, delta = numbers["eta"], numbers["delta"]
        left_y = constraints(flat, x, y) - slack_y
        left_z = constraints(flat, x, z) - slack_z
        u, v = u + eta * left_y, v + eta * left_z
        price_y, price_z = u + numbers["rho1"] * left_y, v + numbers["rho2"] * left_z

        def penalised(a: VectorX, b: VectorY) -> Scalar:
            return delta * flat.upper(a, b) + flat.lower(a, b) + price_y @ constraints(flat, a, b)

        def follower(a: VectorX, b: VectorY) -> Scalar:
            return flat.lower(a, b) + price_z @ constraints(flat, a, b)

        first_x, first_y = jax.grad(penalised, argnums=(0, 1))(x, y)
        second_x, second_z = jax.grad(follower, argnums=(0, 1))(x, z)
        free = is_inequality(flat)
        return SflcbState(
            flat.x_set.project_flat(x - eta * (first_x - second_x)),
            flat.y_set.project_flat(y - eta * first_y),
            flat.y_set.project_flat(z - eta * second_z),
            u,
            v,
            jnp.where(free, jnp.minimum(slack_y + eta * price_y, 0.0), 0.0),
            jnp.where(free, jnp.minimum(slack_z + eta * price_z, 0.0), 0.0),
        )
