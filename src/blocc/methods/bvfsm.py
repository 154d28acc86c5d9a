"""BVFSM: sequential minimisation with a barrier on the value function.

Liu, Liu, Zeng, Zhang and Zhang (2023). The regularised value of the lower level is estimated by a few gradient steps on
z; then y and x descend the upper objective with a logarithmic barrier on "f(x, y) is not above that value", and a
quadratic penalty on the coupled constraints. Numbers: ``alpha`` (x), ``step_y``, ``step_z``; the sequences mu_k,
theta_k and sigma_k start at ``mu0``, ``theta0``, ``sigma0`` and fall like (k+1)^-1.1; the penalty starts at ``rho0``
and grows like (k+1)^0.5; ``shift`` keeps the barrier finite. The penalty is part of the lower level's value too, as in
the paper.

Plain gradient steps of a fixed length leave the barrier's domain unless they are tiny. With ``safeguard`` (the default;
``preset="paper"`` goes without) each step is as short as the barrier and the penalty are curved, the latter through
``slope``, the size of the constraints' Jacobian; below a tenth of the shift the barrier goes on as a straight line; and
k counts stages of ``hold`` steps.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array, Float
from blocc.flat_problem import FlatProblem
from blocc.methods.base import (
    Counter,
    Demand,
    Numbers,
    Scalar,
    Size,
    VectorX,
    VectorY,
    constraints,
    positive_part,
)
from blocc.methods.loop import Iteration


class BvfsmState(NamedTuple):
    """x, y and the minimiser z of the regularised lower level."""

    x: VectorX
    y: VectorY
    z: VectorY


class Bvfsm(Iteration):
    """First-order, for lower levels without unique answers too.

    To cite:

        @article{liu2023value,
          title = {Value-Function-Based Sequential Minimization for Bi-Level Optimization},
          author = {Liu, Risheng and Liu, Xuan and Zeng, Shangzhi and Zhang, Jin and Zhang, Yixuan},
          journal = {IEEE Transactions on Pattern Analysis and Machine Intelligence}, year = {2023}}
    """

    name = "bvfsm"
    title = "BVFSM (Liu, Liu, Zeng, Zhang, Zhang 2023)"
    demands = (Demand.NO_LEADER_CONSTRAINT,)
    names = ("alpha", "step_y", "step_z", "mu0", "theta0", "sigma0", "rho0", "shift", "slope")
    default_counts: ClassVar = {"steps_y": 20, "steps_z": 20, "hold": 200, "safeguard": 1}
    lengths = ("alpha", "step_y", "step_z")
    switches = ("safeguard",)
    presets: ClassVar = {
        "paper": {
            **{"alpha": 0.01, "step_y": 0.01, "step_z": 0.01, "mu0": 0.01, "theta0": 0.01, "sigma0": 0.001},
            **{"rho0": 1.0, "shift": 1e-2, "slope": 1.0, "steps_z": 50, "steps_y": 25, "hold": 1, "safeguard": 0},
        }
    }

    @property
    def calls(self) -> int:
        """Every step of y and z, and that of x."""
        return self.count("steps_y") + self.count("steps_z") + 1

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """Step lengths from the curvatures, the longest first."""
        curvature = size.upper + size.lower + 1e-3
        common = {
            **{"step_y": 0.5 / curvature, "step_z": 1.0 / (size.lower + 1e-3), "mu0": 0.1, "theta0": 0.1},
            **{"rho0": 10.0 * (1.0 + size.lower), "shift": 1e-3, "slope": max(size.coupling, 1e-3)},
        }
        return [
            {"alpha": factor / (curvature + size.mixed), "sigma0": sigma0, **common, **self.given}
            for factor in (0.5, 0.1, 0.02)
            for sigma0 in (1.0, 0.1)
        ]

    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> BvfsmState:
        """z = y."""
        return BvfsmState(x, y, y)

    def step(self, flat: FlatProblem, numbers: Numbers, state: BvfsmState, k: Counter) -> BvfsmState:
        """z, then y, then x."""
        x, y, z = state
        stage = k // self.count("hold") + 1.0
        mu, theta, sigma = (numbers[name] * stage**-1.1 for name in ("mu0", "theta0", "sigma0"))
        rho = numbers["rho0"] * stage**0.5
        safe = self.count("safeguard") != 0

        def length(name: str, curvature: Scalar | float) -> Scalar | float:
            stiffness = rho * numbers["slope"] ** 2 + curvature
            return numbers[name] / (1.0 + numbers[name] * stiffness) if safe else numbers[name]

        def penalty(a: VectorX, b: VectorY) -> Scalar:
            return 0.5 * rho * jnp.sum(positive_part(flat, constraints(flat, a, b)) ** 2)

        def regularised(a: VectorX, b: VectorY) -> Scalar:
            return flat.lower(a, b) + mu * jnp.sum(b**2) + penalty(a, b)

        def step_z(_: Counter, b: VectorY) -> VectorY:
            return flat.y_set.project_flat(b - length("step_z", 0.0) * jax.grad(regularised, argnums=1)(x, b))

        z = jax.lax.fori_loop(0, self.count("steps_z"), step_z, z)

        def excess(a: VectorX, b: VectorY) -> Scalar:
            return flat.lower(a, b) - regularised(a, z)

        def smooth_part(a: VectorX, b: VectorY) -> Scalar:
            return flat.upper(a, b) + theta * jnp.sum(b**2) + penalty(a, b)

        def barrier_step(name: str, argument: int, a: VectorX, b: VectorY) -> Float[Array, "n"]:
            """How far the barrier function moves x (argument 0) or y (argument 1)."""
            room = numbers["shift"] - excess(a, b)
            room = jnp.maximum(room, 0.1 * numbers["shift"] + 1e-8) if safe else room
            towards = jax.grad(excess, argnums=argument)(a, b)
            slope = jax.grad(smooth_part, argnums=argument)(a, b) + sigma / room * towards
            return length(name, sigma * jnp.sum((towards / room) ** 2)) * slope

        def step_y(_: Counter, b: VectorY) -> VectorY:
            return flat.y_set.project_flat(b - barrier_step("step_y", 1, x, b))

        y = jax.lax.fori_loop(0, self.count("steps_y"), step_y, y)
        return BvfsmState(flat.x_set.project_flat(x - barrier_step("alpha", 0, x, y)), y, z)
