"""Single-loop methods of first order: LV-HBA, BiC-GAFFA and SFLCB.

LV-HBA, Yao, Yu, Zeng and Zhang (ICLR 2024): a Lagrangian value function, regularised in y and in the multipliers. x and
y move together and are projected on the coupled set (``projection.py``), which must therefore be jointly convex.
Numbers: ``alpha`` (x, y), ``beta`` (z), ``eta`` (theta, lambda), ``gamma1``, ``gamma2``, penalty
c_k = ``c0`` (k+1)^``p``, and ``r``, the bound of z.

BiC-GAFFA, Yao, Yin, Zeng and Zhang (2024): the gap function of the lower level, regularised in y and in the
multipliers, is penalised; its maximisers theta and lambda are followed by a gradient step and by a closed form, without
a projection on the coupled set. Numbers: those of LV-HBA, with ``eta`` for theta alone.

SFLCB (NeurIPS 2025), for affine coupled constraints: two augmented Lagrangians with slacks, one for the penalised
problem in y, one for the lower level in z; everything moves at once. Numbers: ``eta`` (all steps), ``delta`` (weight of
the upper objective), ``rho1``, ``rho2``.
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
    is_inequality,
    lagrangian_slope,
    positive_part,
)
from blocc.methods.loop import Iteration
from blocc.methods.projection import AffineRows, project, projector


def _numbers(**numbers: float) -> dict[str, float]:
    return numbers


def _clipped(flat: FlatProblem, multipliers: Multipliers, largest: Scalar | float) -> Multipliers:
    """Multipliers within [0, largest], those of equalities within [-largest, largest]."""
    least = jnp.where(is_inequality(flat), 0.0, -largest)
    return jnp.clip(multipliers, least, largest)


def _penalty_weight(numbers: Numbers, k: Counter) -> Scalar | float:
    """c_k = c0 (k + 1)^p."""
    return numbers["c0"] * (k + 1.0) ** numbers["p"]


class HbaState(NamedTuple):
    """Variables of both levels, the proximal answer theta with its multipliers, and their centre z."""

    x: VectorX
    y: VectorY
    theta: VectorY
    multipliers: Multipliers
    z: Multipliers
    carried: AffineRows | None  #: from one joint projection to the next


class LvHba(Iteration):
    """Single loop with a joint projection.

    To cite:

        @inproceedings{yao2024constrained,
          title = {Constrained Bi-Level Optimization: Proximal {L}agrangian Value Function Approach and
            {H}essian-free Algorithm},
          author = {Yao, Wei and Yu, Chengming and Zeng, Shangzhi and Zhang, Jin},
          booktitle = {International Conference on Learning Representations}, year = {2024}}
    """

    name = "lv-hba"
    title = "LV-HBA (Yao, Yu, Zeng, Zhang, ICLR 2024)"
    demands = (Demand.JOINTLY_CONVEX, Demand.NO_LEADER_CONSTRAINT)
    names = ("alpha", "beta", "eta", "gamma1", "gamma2", "c0", "p", "r")
    #: "paper": the SVM experiment of the BLOCC paper, whose program multiplies by 0.1 where the scheme divides by
    #: gamma1 and gamma2, and leaves z as it is; "three": its network of three nodes; "toy" and "toy-strong": the
    #: authors' synthetic problems with a convex and a strongly convex follower.
    presets: ClassVar = {
        "paper": _numbers(alpha=0.01, beta=0.0, eta=1e-3, gamma1=10.0, gamma2=10.0, c0=1.0, p=0.5, r=1.0),
        "three": _numbers(alpha=0.01, beta=0.02, eta=0.01, gamma1=5.0, gamma2=5.0, c0=0.1, p=0.4, r=1e3),
        "toy": _numbers(alpha=0.008, beta=0.02, eta=0.01, gamma1=10.0, gamma2=10.0, c0=0.025, p=0.3, r=1e3),
        "toy-strong": _numbers(alpha=0.02, beta=0.001, eta=0.1, gamma1=1.0, gamma2=1.0, c0=1.0, p=0.3, r=1e3),
    }

    @property
    def calls(self) -> int:
        """At theta, at y, and at the new theta."""
        return 3

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
        penalty = _penalty_weight(numbers, k)
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
        z = _clipped(flat, z + numbers["beta"] * (multipliers - z) / gamma2, numbers["r"])
        return HbaState(new[: flat.n_x], new[flat.n_x :], theta, multipliers, z, carried)


class GapState(NamedTuple):
    """Variables of both levels, the proximal answer theta, and the proximal centre z of the multipliers."""

    x: VectorX
    y: VectorY
    theta: VectorY
    z: Multipliers


class BicGaffa(Iteration):
    """Single loop, first-order, for coupled constraints of any form.

    To cite:

        @inproceedings{yao2025overcoming,
          title = {Overcoming Lower-Level Constraints in Bilevel Optimization: A Novel Approach with
            Regularized Gap Functions},
          author = {Yao, Wei and Yin, Haian and Zeng, Shangzhi and Zhang, Jin},
          booktitle = {International Conference on Learning Representations}, year = {2025}}
    """

    name = "bic-gaffa"
    title = "BiC-GAFFA (Yao, Yin, Zeng, Zhang 2024)"
    demands = (Demand.NO_LEADER_CONSTRAINT,)
    names = ("alpha", "beta", "eta", "gamma1", "gamma2", "c0", "p", "r")
    #: "paper": the authors' synthetic problem (their program also holds c_k at 10 from about 2,200 iterations on);
    #: "svm" and "cleaning" of data: their experiments with GAM's lower level.
    presets: ClassVar = {
        "paper": _numbers(alpha=1e-3, beta=1e-3, eta=0.01, gamma1=10.0, gamma2=1.0, c0=1.0, p=0.3, r=1.0),
        "svm": _numbers(alpha=1e-3, beta=1e-3, eta=0.01, gamma1=10.0, gamma2=0.01, c0=10.0, p=0.3, r=10.0),
        "cleaning": _numbers(alpha=1e-4, beta=1e-4, eta=1e-3, gamma1=10.0, gamma2=0.1, c0=1.0, p=0.3, r=10.0),
    }

    @property
    def calls(self) -> int:
        """At theta, at y, and at the new theta."""
        return 3

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
        penalty = _penalty_weight(numbers, k)
        slope_theta = lagrangian_slope(flat, x, theta, z)[1] + (theta - y) / gamma1
        theta = flat.y_set.project_flat(theta - numbers["eta"] * slope_theta)
        multipliers = positive_part(flat, z + gamma2 * constraints(flat, x, y))
        upper_x, upper_y = jax.grad(flat.upper, argnums=(0, 1))(x, y)
        here_x, here_y = lagrangian_slope(flat, x, y, multipliers)
        there_x, _ = lagrangian_slope(flat, x, theta, z)
        new_x = flat.x_set.project_flat(x - alpha * (upper_x / penalty + here_x - there_x))
        new_y = flat.y_set.project_flat(y - alpha * (upper_y / penalty + here_y - (y - theta) / gamma1))
        away = (z - multipliers) / gamma2 + constraints(flat, x, theta)
        return GapState(new_x, new_y, theta, _clipped(flat, z + numbers["beta"] * away, numbers["r"]))


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
    """Single loop, for constraints affine in x and y.

    To cite:

        @inproceedings{shen2025single,
          title = {A Single-Loop First-Order Algorithm for Linearly Constrained Bilevel Optimization},
          author = {Shen, Wei and Zhang, Jiawei and Huang, Minhui and Shen, Cong},
          booktitle = {Advances in Neural Information Processing Systems}, year = {2025}}
    """

    name = "sflcb"
    title = "SFLCB (NeurIPS 2025)"
    demands = (Demand.AFFINE, Demand.NO_LEADER_CONSTRAINT)
    names = ("eta", "delta", "rho1", "rho2")
    meant: ClassVar = {"gamma": "delta, which is 1 / gamma,"}
    #: "paper": the authors' run on the toy of the BLOCC paper; "svm" on diabetes, "three" and "nine" on its networks.
    presets: ClassVar = {
        "paper": _numbers(eta=0.01, delta=0.1, rho1=1.0, rho2=1.0),
        "svm": _numbers(eta=1e-3, delta=0.01, rho1=0.01, rho2=0.01),
        "three": _numbers(eta=3e-4, delta=0.1, rho1=1e3, rho2=1e3),
        "nine": _numbers(eta=3e-5, delta=0.25, rho1=50.0, rho2=50.0),
    }

    @property
    def calls(self) -> int:
        """At y and at z."""
        return 2

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
