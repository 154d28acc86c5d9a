"""Descent of the penalty function with the two levels decoupled: ALT-PBGD and PBGD-Free.

Jiang, Xiao, Chen and Chen (2025, arXiv 2511.16796), by authors of BLOCC. For a given x let y minimise f / gamma + g
and z minimise g alone, both over the follower's constraints. ALT-PBGD alternates: some steps of Algorithm 2's kind on
each of these two problems, from where they ended last, then one step of x along the gradient of the penalty function,

    f_x(x, y) + gamma (g_x(x, y) + <mu_y, c_x(x, y)> - g_x(x, z) - <mu_z, c_x(x, z)>).

As a function of x alone the penalty function is smooth whatever gamma is, so that the length of that step need not
shrink with 1 / gamma; so much is new against descents in (x, y) together. PBGD-Free leaves the second part of that
gradient out: it needs no z, and moves x along f_x(x, y) alone. What it leaves out vanishes only where the leader's
objective is flat in y at the follower's answer; elsewhere PBGD-Free ends at another point, as its authors' own example
shows, and the certificate says so.

Numbers: ``alpha`` (x), ``step_y``, ``step_dual`` (multipliers), ``gamma``; the counts ``steps`` of the multipliers in
one iteration and ``steps_y`` of y before each of them.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from blocc.flat_problem import FlatProblem
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
    implicit_length,
    lagrangian_slope,
    positive_part,
)
from blocc.methods.loop import Iteration


class PbgdState(NamedTuple):
    """x, the penalised y and the follower's own z, with their multipliers (those of f / gamma + g, and of g)."""

    x: VectorX
    y: VectorY
    z: VectorY
    multipliers_y: Multipliers
    multipliers_z: Multipliers


class AltPbgd(Iteration):
    """Alternating descent of the penalty function; first-order, inner steps warm-started.

    To cite:

        @article{jiang2025efficient,
          title = {Efficient Penalty-Based Bilevel Methods: Improved Analysis, Novel Updates, and Flatness Condition},
          author = {Jiang, Liuyuan and Xiao, Quan and Chen, Lisha and Chen, Tianyi},
          journal = {arXiv:2511.16796}, year = {2025}}
    """

    name = "alt-pbgd"
    title = "ALT-PBGD (Jiang, Xiao, Chen, Chen 2025)"
    demands = (Demand.NO_LEADER_CONSTRAINT,)
    names = ("alpha", "step_y", "step_dual", "gamma")
    lengths = ("alpha", "step_y", "step_dual")
    default_counts: ClassVar = {"steps": 10, "steps_y": 3}
    #: "paper": the authors' SVM; "toy": their example in one dimension.
    presets: ClassVar = {
        "paper": {"alpha": 5e-3, "step_y": 5e-3, "step_dual": 1e-3, "gamma": 15.0, "steps": 20, "steps_y": 20},
        "toy": {"alpha": 0.01, "step_y": 0.01, "step_dual": 0.01, "gamma": 15.0, "steps": 1, "steps_y": 100},
    }
    follows_value = True  #: whether the value function is part of the step

    @property
    def calls(self) -> int:
        """Every step of y and, where it is followed, of z; and that of x."""
        return (1 + self.follows_value) * (self.count("steps") * self.count("steps_y") + 1)

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """Lengths from the curvatures; a large gamma is exact, and asks more of the inner steps."""
        least = max(size.lower_least, 0.05 * size.lower, 1e-3)
        return [
            {
                "alpha": factor * implicit_length(size),
                "step_y": 1.0 / (max(size.lower, 0.1 * size.coupling_y) + size.upper / gamma + 1e-6),
                "step_dual": least / max(size.coupling_y, 1e-3) ** 2,
                "gamma": gamma,
                **self.given,
            }
            for factor in (1.0, 0.2, 0.04, 0.005)
            for gamma in (100.0, 1000.0)
        ]

    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> PbgdState:
        """z = y, no multipliers."""
        none = jnp.zeros(flat.n_inequality + flat.n_equality)
        return PbgdState(x, y, y, none, none)

    def step(self, flat: FlatProblem, numbers: Numbers, state: PbgdState, k: Counter) -> PbgdState:
        """Both inner problems, then x."""
        x, y, z, multipliers_y, multipliers_z = state
        gamma = numbers["gamma"]
        y, multipliers_y = self._inner(flat, numbers, x, (y, multipliers_y), 1.0 / gamma)
        slope = jax.grad(flat.upper, argnums=0)(x, y)
        if self.follows_value:
            z, multipliers_z = self._inner(flat, numbers, x, (z, multipliers_z), 0.0)
            penalised, _ = lagrangian_slope(flat, x, y, multipliers_y)
            value, _ = lagrangian_slope(flat, x, z, multipliers_z)
            slope = slope + gamma * (penalised - value)
        return PbgdState(flat.x_set.project_flat(x - numbers["alpha"] * slope), y, z, multipliers_y, multipliers_z)

    def _inner(
        self,
        flat: FlatProblem,
        numbers: Numbers,
        x: VectorX,
        pair: tuple[VectorY, Multipliers],
        weight: Scalar | float,
    ) -> tuple[VectorY, Multipliers]:
        """Steps towards the saddle point of weight f + g + <mu, c>: several of y, then one of mu, and again."""

        def lagrangian(b: VectorY, multipliers: Multipliers) -> Scalar:
            return weight * flat.upper(x, b) + flat.lower(x, b) + multipliers @ constraints(flat, x, b)

        def outer(_: Counter, pair: tuple[VectorY, Multipliers]) -> tuple[VectorY, Multipliers]:
            b, multipliers = pair
            descend = lambda _, b: flat.y_set.project_flat(b - numbers["step_y"] * jax.grad(lagrangian)(b, multipliers))  # noqa: E731
            b = jax.lax.fori_loop(0, self.count("steps_y"), descend, b)
            return b, positive_part(flat, multipliers + numbers["step_dual"] * constraints(flat, x, b))

        return jax.lax.fori_loop(0, self.count("steps"), outer, pair)


class PbgdFree(AltPbgd):
    """Without the value function; right where the leader's objective is flat in the follower's answer.

    To cite:

        @article{jiang2025efficient,
          title = {Efficient Penalty-Based Bilevel Methods: Improved Analysis, Novel Updates, and Flatness Condition},
          author = {Jiang, Liuyuan and Xiao, Quan and Chen, Lisha and Chen, Tianyi},
          journal = {arXiv:2511.16796}, year = {2025}}
    """

    name = "pbgd-free"
    title = "PBGD-Free (Jiang, Xiao, Chen, Chen 2025)"
    presets: ClassVar = {
        "paper": {"alpha": 5e-3, "step_y": 5e-3, "step_dual": 1e-3, "gamma": 15.0, "steps": 10, "steps_y": 5},
        "toy": {"alpha": 0.01, "step_y": 0.01, "step_dual": 0.01, "gamma": 15.0, "steps": 1, "steps_y": 100},
    }
    follows_value = False
