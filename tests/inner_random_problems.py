"""Random lower-level problems for the tests of the inner oracles, with exact answers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.precision import double_precision
from blocc.flat_problem import FlatProblem
from blocc.lagrangian import weights
from blocc.problem import BilevelProblem
from blocc.sets import Box, ConvexSet, Reals
from blocc.simple_sets import Simplex


@dataclass(frozen=True)
class RandomProblem:
    """Quadratic f and g, affine and/or convex quadratic gc, affine h; feasible by construction at x = 0.

    g = y'Hy/2 + (c + C x)'y, f = |y - target|^2 / 2, gc = (A y - b, |y - d_j|^2 - r_j^2), h = E y - e.
    """

    hessian: np.ndarray
    cost: np.ndarray
    target: np.ndarray
    affine: np.ndarray
    affine_rhs: np.ndarray
    centers: np.ndarray
    radii: np.ndarray
    equality: np.ndarray
    equality_rhs: np.ndarray
    y_set: ConvexSet
    shift: np.ndarray

    @property
    def flat(self) -> FlatProblem:
        """The problem as the oracles see it."""

        def inequality(x, y):
            balls = jnp.sum((y - self.centers) ** 2, axis=1) - self.radii**2
            return jnp.concatenate([self.affine @ y - self.affine_rhs, balls])

        return BilevelProblem(
            upper=lambda x, y: 0.5 * jnp.sum((y - self.target) ** 2),
            lower=lambda x, y: 0.5 * y @ self.hessian @ y + (self.cost + self.shift @ x) @ y,
            inequality=inequality if len(self.affine_rhs) + len(self.radii) else None,
            equality=(lambda x, y: self.equality @ y - self.equality_rhs) if len(self.equality_rhs) else None,
            x_set=Reals(self.shift.shape[1]),
            y_set=self.y_set,
        ).flat

    def reference(self, upper: float = 0.0, lower: float = 1.0, x: np.ndarray | None = None) -> np.ndarray:
        """The exact answer: Clarabel tells which rows hold, Newton's method solves their equations to the last digit.

        How far Clarabel comes depends on the processor. Its answer is a first guess here; what is returned has been
        checked against the optimality conditions, which determine a strictly convex program's answer.
        """
        x = np.zeros(self.shift.shape[1]) if x is None else x
        size = len(self.cost)
        curved = lower * self.hessian + upper * np.eye(size)
        slope = lower * (self.cost + self.shift @ x) - upper * self.target
        low, high = self.y_set.bounds_flat()
        rows = np.vstack([self.affine, -np.eye(size)[np.isfinite(low)], np.eye(size)[np.isfinite(high)]])
        right = np.concatenate([self.affine_rhs, -low[np.isfinite(low)], high[np.isfinite(high)]])
        equal, level = self.equality, self.equality_rhs
        if isinstance(self.y_set, Simplex):
            equal, level = np.vstack([equal, np.ones(size)]), np.append(level, self.y_set.total)

        def inequality(y):
            """Values and gradients of all inequalities, balls last."""
            balls = ((y - self.centers) ** 2).sum(axis=1) - self.radii**2
            return np.append(rows @ y - right, balls), np.vstack([rows, 2.0 * (y - self.centers)])

        y = cp.Variable(size)
        rules = [rows @ y <= right] if len(right) else []
        rules += [cp.sum_squares(y - d) <= r**2 for d, r in zip(self.centers, self.radii, strict=True)]
        rules += [equal @ y == level] if len(level) else []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")
            goal = cp.Minimize(0.5 * cp.quad_form(y, cp.psd_wrap(curved)) + slope @ y)
            cp.Problem(goal, rules).solve(solver=cp.CLARABEL)
        at, duals = np.asarray(y.value), [np.ravel(rule.dual_value) for rule in rules]
        parts = np.concatenate([*duals, np.zeros(0)])
        prices, nu = parts[: len(parts) - len(level)], parts[len(parts) - len(level) :]
        held = prices > -inequality(at)[0]
        count, prices = int(held.sum()), prices * held
        for _ in range(20):
            value, gradients = inequality(at)
            normals = np.vstack([gradients[held], equal])
            bent = curved + 2.0 * prices[len(right) :].sum() * np.eye(size)
            residual = np.concatenate([curved @ at + slope + gradients.T @ prices + equal.T @ nu, value[held]])
            residual = np.append(residual, equal @ at - level)
            system = np.block([[bent, normals.T], [normals, np.zeros((len(normals), len(normals)))]])
            step = np.linalg.solve(system, -residual)
            at, nu = at + step[:size], nu + step[size + count :]
            prices[held] += step[size : size + count]
        assert np.abs(residual).max() < 1e-10
        assert inequality(at)[0].max(initial=0.0) < 1e-10
        assert prices.min(initial=0.0) >= 0.0
        return at


def random_problem(
    seed: int,
    size: int = 8,
    n_affine: int = 0,
    n_balls: int = 0,
    n_equality: int = 0,
    kind: str = "reals",
    condition: float = 10.0,
) -> RandomProblem:
    """A random problem with a point that satisfies all constraints strictly, and several active at the solution."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((size, size)))
    hessian = basis @ np.diag(np.geomspace(1.0, condition, size)) @ basis.T
    y_set = {"reals": Reals(size), "box": Box(-0.3, 1.0, shape=size), "simplex": Simplex(size)}[kind]
    inside = y_set.interior_flat() + (0.1 * rng.uniform(-1.0, 1.0, size) if kind != "simplex" else 0.0)
    affine = rng.standard_normal((n_affine, size))
    equality = rng.standard_normal((n_equality, size))
    centers = inside + 0.3 * rng.standard_normal((n_balls, size))
    return RandomProblem(
        hessian=0.5 * (hessian + hessian.T),
        cost=3.0 * rng.standard_normal(size),
        target=rng.standard_normal(size),
        affine=affine,
        affine_rhs=affine @ inside + rng.uniform(0.05, 0.3, n_affine),
        centers=centers,
        radii=np.linalg.norm(inside - centers, axis=1) + 0.1,
        equality=equality,
        equality_rhs=equality @ inside,
        y_set=y_set,
        shift=rng.standard_normal((size, 2)),
    )


def solver(flat: FlatProblem, oracle):
    """A compiled ``solve(x, upper, lower, warm, tolerance)`` of one oracle for one problem."""

    @jax.jit
    def compiled(x, upper, lower, warm, tolerance):
        w = weights(flat)._replace(upper=upper, lower=lower)
        return oracle.solve(flat, x, w, warm, tolerance)

    def call(x=None, upper=0.0, lower=1.0, warm=None, tolerance=1e-9):
        with double_precision():
            x = np.zeros(flat.n_x) if x is None else np.asarray(x, dtype=float)
            found = compiled(
                jnp.asarray(x),
                jnp.asarray(float(upper)),
                jnp.asarray(float(lower)),
                oracle.cold(flat) if warm is None else warm,
                jnp.asarray(float(tolerance)),
            )
            return jax.tree.map(np.asarray, found)

    return call


#: Options of :func:`random_problem` that together cover affine and nonlinear gc, equalities, boxes and simplices.
FAMILIES = {
    "free": {},
    "box": {"kind": "box"},
    "affine": {"n_affine": 5},
    "affine-equality": {"n_affine": 4, "n_equality": 2},
    "nonlinear": {"n_balls": 2},
    "everything": {"n_affine": 4, "n_balls": 2, "n_equality": 2, "kind": "box", "size": 10},
    "simplex": {"kind": "simplex", "n_affine": 2, "n_equality": 1, "size": 10},
}


def lower_level(lower, y_set: ConvexSet, inequality=None, equality=None) -> FlatProblem:
    """A follower's problem with a plain leader, for tests that only look at the follower."""
    return BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum(y**2),
        lower=lower,
        inequality=inequality,
        equality=equality,
        x_set=Reals(1),
        y_set=y_set,
    ).flat


def infeasible_problems() -> dict[str, FlatProblem]:
    """Follower's problems without any feasible point."""

    def near_one(x, y):
        return 0.5 * jnp.sum((y - 1.0) ** 2)

    total = jnp.sum
    return {
        "affine": lower_level(near_one, Reals(5), lambda x, y: jnp.stack([total(y) + 1.0, 1.0 - total(y)])),
        "box": lower_level(near_one, Box(0.0, 0.2, shape=5), lambda x, y: jnp.stack([1.5 - total(y)])),
        "ball": lower_level(near_one, Reals(5), lambda x, y: jnp.stack([total(y**2) - 1.0, 4.0 - total(y)])),
        "equality": lower_level(near_one, Reals(5), None, lambda x, y: jnp.stack([total(y) - 1.0, total(y) - 2.0])),
    }


def unbounded_problems() -> dict[str, FlatProblem]:
    """Follower's problems whose objective falls without limit."""
    return {
        "linear": lower_level(lambda x, y: jnp.sum(y), Reals(4)),
        "mixed": lower_level(lambda x, y: 0.5 * y[0] ** 2 - jnp.sum(y), Box.nonnegative(5), lambda x, y: y[1:3] - 1.0),
    }


def smoothing_problem(size: int) -> FlatProblem:
    """Blocks of ten whose sums are bounded, in a box, with curvatures from 1 to 10: a large, sparse lower level."""
    data = np.random.default_rng(1).standard_normal(size)
    curvature = np.linspace(1.0, 10.0, size)
    return lower_level(
        lambda x, y: 0.5 * jnp.sum(curvature * (y - data - x[0]) ** 2),
        Box(-1.0, 1.0, shape=size),
        lambda x, y: jnp.sum(y.reshape(-1, 10), axis=1) - 0.1,
    )


def chain_problem(size: int) -> FlatProblem:
    """Noisy data made smooth: neighbours differ by at most 0.1. Large, sparse, with a badly conditioned dual."""
    data = np.random.default_rng(1).standard_normal(size)
    return lower_level(
        lambda x, y: 0.5 * jnp.sum((y - data) ** 2),
        Reals(size),
        lambda x, y: jnp.concatenate([jnp.diff(y) - 0.1, -jnp.diff(y) - 0.1]),
    )
