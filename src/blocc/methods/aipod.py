"""AiPOD and E-AiPOD: alternating projected steps for lower levels with equalities h(x) + A y = 0.

Xiao, Shen, Yin and Chen (AISTATS 2023). S projected gradient steps below, then the gradient of x -> F(x, y(x)) with the
follower's sensitivity from the null space of A. The formula of the sensitivity has two parts, what moves y within the
null space and what moves the affine set itself; both are here (the published code leaves the second one out). E-AiPOD
projects only now and then, with probability ``prob``, and keeps a correction term instead. Numbers: ``alpha`` (x),
``beta`` (y), ``prob``; the counts ``steps`` of y (the paper's S) and ``steps_x`` of x (T) in one iteration.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array, Bool, Float
from blocc.flat_problem import FlatProblem
from blocc.methods.base import Counter, Demand, Numbers, Scalar, Size, VectorX, VectorY
from blocc.methods.loop import Iteration


class AipodState(NamedTuple):
    """x, y and, for E-AiPOD, the correction of the skipped projections and the seed of the coins."""

    x: VectorX
    y: VectorY
    correction: VectorY
    key: Array  #: two words of 32 bits


def affine_set(flat: FlatProblem, y: VectorY) -> tuple[Float[Array, "n_y rows"], Float[Array, "n_y n_y"]]:
    """The pseudo-inverse of A, and the orthogonal projector on the null space of A."""
    matrix = jax.jacfwd(flat.equality, argnums=1)(jnp.asarray(flat.x_set.interior_flat()), y)
    inverse = jnp.linalg.pinv(matrix)
    return inverse, jnp.eye(flat.n_y) - inverse @ matrix


class Aipod(Iteration):
    """Exact sensitivities for equality constraints; needs second derivatives of the lower objective.

    To cite:

        @inproceedings{xiao2023alternating,
          title = {Alternating Projected {SGD} for Equality-constrained Bilevel Optimization},
          author = {Xiao, Quan and Shen, Han and Yin, Wotao and Chen, Tianyi},
          booktitle = {International Conference on Artificial Intelligence and Statistics}, year = {2023}}
    """

    name = "aipod"
    title = "AiPOD (Xiao, Shen, Yin, Chen, AISTATS 2023)"
    demands = (
        Demand.SOME_EQUALITY,
        Demand.NO_INEQUALITY,
        Demand.AFFINE_IN_Y,
        Demand.FREE_Y,
        Demand.NO_LEADER_CONSTRAINT,
    )
    names: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    default_counts: ClassVar = {"steps": 10, "steps_x": 1}
    #: The authors' synthetic experiment; their noise is left out.
    presets: ClassVar = {"paper": {"alpha": 0.02, "beta": 0.1, "steps": 5, "steps_x": 2}}
    automatic_extra: ClassVar[dict[str, float]] = {}
    skips = False  #: whether some lower steps go without a projection

    @property
    def calls(self) -> int:
        """Every lower step, and the sensitivity."""
        return self.count("steps") + self.count("steps_x")

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """1/L below; several lengths above."""
        curvature = size.upper * (1.0 + (size.mixed / max(size.lower_least, 1e-3)) ** 2) + 1e-3
        return [
            {"alpha": factor / curvature, "beta": 1.0 / max(size.lower, 1e-6), **self.automatic_extra, **self.given}
            for factor in (1.0, 0.3, 0.1, 0.03, 0.003)
        ]

    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> AipodState:
        """y is projected on the affine set of x."""
        inverse, _ = affine_set(flat, y)
        key = jax.random.key_data(jax.random.key(0))
        return AipodState(x, y - inverse @ flat.equality(x, y), jnp.zeros_like(y), key)

    def coins(self, state: AipodState, k: Counter, prob: Scalar | float) -> Bool[Array, "steps"]:
        """Whether each lower step of iteration k projects."""
        steps = self.count("steps")
        if not self.skips:
            return jnp.ones(steps, dtype=bool)
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), k)
        return jax.random.uniform(key, (steps,)) < prob

    def step(self, flat: FlatProblem, numbers: Numbers, state: AipodState, k: Counter) -> AipodState:
        """The lower steps, then those of x along the gradient of F(x, y(x))."""
        x, y, correction, key = state
        beta = numbers["beta"]
        inverse, tangent = affine_set(flat, y)
        prob = numbers["prob"] if self.skips else 1.0
        slope = jax.grad(flat.lower, argnums=1)
        coins = self.coins(state, k, prob)

        def lower_step(i: Counter, pair: tuple[VectorY, VectorY]) -> tuple[VectorY, VectorY]:
            y, correction = pair
            ahead = y - beta * (slope(x, y) - correction)
            target = ahead - beta / prob * correction
            projected = target - inverse @ flat.equality(x, target)
            if not self.skips:
                return projected, correction
            new = jnp.where(coins[i], projected, ahead)
            return new, correction + prob / beta * (new - ahead)

        y, correction = jax.lax.fori_loop(0, self.count("steps"), lower_step, (y, correction))

        def upper_step(_: Counter, x: VectorX) -> VectorX:
            upper_x, upper_y = jax.grad(flat.upper, argnums=(0, 1))(x, y)
            hessian = jax.hessian(flat.lower, argnums=1)(x, y)
            mixed = jax.jacfwd(jax.grad(flat.lower, argnums=0), argnums=1)(x, y)
            moving = jax.jacfwd(flat.equality, argnums=0)(x, y).T @ inverse.T  # how the affine set drags y along
            # V (V'HV)^-1 V' b without a basis: H on the null space, the identity off it.
            reduced = tangent @ hessian @ tangent + jnp.eye(flat.n_y) - tangent
            w = tangent @ jnp.linalg.solve(reduced, tangent @ upper_y)
            gradient = upper_x - moving @ upper_y + (moving @ hessian - mixed) @ w
            return flat.x_set.project_flat(x - numbers["alpha"] * gradient)

        return AipodState(jax.lax.fori_loop(0, self.count("steps_x"), upper_step, x), y, correction, key)


class EAipod(Aipod):
    """AiPOD with fewer projections.

    To cite:

        @inproceedings{xiao2023alternating,
          title = {Alternating Projected {SGD} for Equality-constrained Bilevel Optimization},
          author = {Xiao, Quan and Shen, Han and Yin, Wotao and Chen, Tianyi},
          booktitle = {International Conference on Artificial Intelligence and Statistics}, year = {2023}}
    """

    name = "e-aipod"
    title = "E-AiPOD (Xiao, Shen, Yin, Chen, AISTATS 2023)"
    names: ClassVar[tuple[str, ...]] = ("alpha", "beta", "prob")
    #: The authors' synthetic experiment, in which every lower step projects; and their two federated ones.
    presets: ClassVar = {
        "paper": {"alpha": 0.02, "beta": 0.1, "prob": 1.0, "steps": 5, "steps_x": 2},
        "representation": {"alpha": 0.01, "beta": 0.05, "prob": 0.1, "steps": 20, "steps_x": 1},
        "imbalance": {"alpha": 0.01, "beta": 0.04, "prob": 0.3, "steps": 20, "steps_x": 1},
    }
    automatic_extra: ClassVar = {"prob": 0.3}
    skips = True
