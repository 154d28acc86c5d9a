"""Published bilevel methods in plain NumPy, line by line from their papers; shares no code with blocc.

Every method is a function that returns its states after each iteration, as dictionaries of arrays with at least
``x`` and ``y``. Derivatives come by hand with the problem (see ``methods_problems.py``), and linear algebra is dense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import minimize

Vector = np.ndarray
Numbers = dict[str, float]
State = dict[str, np.ndarray]
Function = Callable[[Vector, Vector], np.ndarray]


@dataclass(frozen=True)
class NumpyProblem:
    """minimise F over x where y minimises f over Y subject to g <= 0 and h = 0; the rows of G are those of g, then h.

    X and Y are boxes. ``dxyf`` has a row for each x and a column for each y; ``hessG`` has one matrix over (x, y)
    for each row of G.
    """

    F: Function
    dxF: Function
    dyF: Function
    f: Function
    dxf: Function
    dyf: Function
    dyyf: Function
    dxyf: Function
    G: Function
    JxG: Function
    JyG: Function
    hessG: Function
    n_inequality: int
    x_bounds: tuple[Vector, Vector]
    y_bounds: tuple[Vector, Vector]
    #: Projection of (x, y) onto X x Y and the constraints, where there is a formula for it.
    joint_formula: Function | None = None

    @property
    def n(self) -> int:
        return len(self.x_bounds[0])

    @property
    def m(self) -> int:
        return len(self.y_bounds[0])

    def P_X(self, x: Vector) -> Vector:
        return np.minimum(np.maximum(x, self.x_bounds[0]), self.x_bounds[1])

    def P_Y(self, y: Vector) -> Vector:
        return np.minimum(np.maximum(y, self.y_bounds[0]), self.y_bounds[1])

    def dual_cone(self, multipliers: Vector) -> Vector:
        """Positive part of the multipliers of g; those of h as they are."""
        p = self.n_inequality
        return np.concatenate([np.maximum(multipliers[:p], 0.0), multipliers[p:]])

    def dual_ball(self, multipliers: Vector, radius: float) -> Vector:
        """Multipliers of g cut to [0, radius], those of h to [-radius, radius]."""
        p = self.n_inequality
        return np.concatenate([np.clip(multipliers[:p], 0.0, radius), np.clip(multipliers[p:], -radius, radius)])

    def slack_cone(self, slacks: Vector) -> Vector:
        """Negative part of the slacks of g; those of h are zero."""
        p = self.n_inequality
        return np.concatenate([np.minimum(slacks[:p], 0.0), np.zeros(len(slacks) - p)])


def project_jointly(problem: NumpyProblem, x: Vector, y: Vector) -> tuple[Vector, Vector]:
    """Nearest (x, y) in X x Y with g <= 0 and h = 0.

    SLSQP finds which rows and bounds hold with equality, Newton's method on those solves the optimality conditions
    to rounding, and rows whose multiplier has the wrong sign are let go.
    """
    n = problem.n
    if problem.joint_formula is not None:
        w = problem.joint_formula(x, y)
        return w[:n], w[n:]
    point = np.concatenate([x, y])
    low, high = (np.concatenate(pair) for pair in zip(problem.x_bounds, problem.y_bounds, strict=True))
    p = problem.n_inequality

    def rows(w: Vector) -> Vector:
        return problem.G(w[:n], w[n:])

    def jacobian(w: Vector) -> np.ndarray:
        return np.hstack([problem.JxG(w[:n], w[n:]), problem.JyG(w[:n], w[n:])])

    start = np.clip(point, low, high)
    total = len(rows(start))
    constraints = []
    if p:
        constraints.append({"type": "ineq", "fun": lambda w: -rows(w)[:p], "jac": lambda w: -jacobian(w)[:p]})
    if p < total:
        constraints.append({"type": "eq", "fun": lambda w: rows(w)[p:], "jac": lambda w: jacobian(w)[p:]})
    found = minimize(
        lambda w: 0.5 * np.sum((w - point) ** 2),
        start,
        jac=lambda w: w - point,
        bounds=list(zip(low, high, strict=True)),
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    ).x
    held = (np.arange(total) >= p) | (rows(found) > -1e-6)
    at_low, at_high = found < low + 1e-6, found > high - 1e-6
    for _ in range(20):
        w = np.where(at_low, low, np.where(at_high, high, found))
        free, multipliers = ~(at_low | at_high), np.zeros(int(held.sum()))
        for _ in range(20):
            J = jacobian(w)[held]
            curvature = np.eye(len(w)) + np.tensordot(multipliers, problem.hessG(w[:n], w[n:])[held], axes=1)
            residual = np.concatenate([(w - point + J.T @ multipliers)[free], rows(w)[held]])
            zeros = np.zeros((len(J), len(J)))
            kkt = np.block([[curvature[np.ix_(free, free)], J[:, free].T], [J[:, free], zeros]])
            step = np.linalg.lstsq(kkt, -residual, rcond=None)[0]
            w[free] += step[: free.sum()]
            multipliers += step[free.sum() :]
            if np.abs(step).max(initial=0.0) < 1e-14 * (1.0 + np.abs(w).max()):
                break
        gradient = w - point + jacobian(w)[held].T @ multipliers
        price = np.zeros(total)
        price[held] = multipliers
        wrong_rows = held & (np.arange(total) < p) & (price < -1e-12)
        wrong_low, wrong_high = at_low & (gradient < -1e-12), at_high & (gradient > 1e-12)
        if not (wrong_rows.any() or wrong_low.any() or wrong_high.any()):
            break
        held, at_low, at_high = held & ~wrong_rows, at_low & ~wrong_low, at_high & ~wrong_high
    assert np.all(rows(w)[:p] < 1e-11), "the projection is not feasible"
    assert np.abs(rows(w)[p:]).max(initial=0.0) < 1e-11, "the projection is not feasible"
    assert np.all(w > low - 1e-11), "the projection is not feasible"
    assert np.all(w < high + 1e-11), "the projection is not feasible"
    assert np.abs(gradient[free]).max(initial=0.0) < 1e-11, "the projection is not optimal"
    return w[:n], w[n:]


def penalty_weight(numbers: Numbers, k: int) -> float:
    return numbers["c0"] * (k + 1) ** numbers["p"]


def lv_hba(problem: NumpyProblem, numbers: Numbers, x: Vector, y: Vector, iterations: int) -> list[State]:
    """Steps on the regularised Lagrangian value function, with a projection onto the joint constraints."""
    alpha, beta, eta = numbers["alpha"], numbers["beta"], numbers["eta"]
    gamma1, gamma2, radius = numbers["gamma1"], numbers["gamma2"], numbers["r"]
    q = problem
    theta, lam, z, states = y, np.zeros(len(q.G(x, y))), np.zeros(len(q.G(x, y))), []
    for k in range(iterations):
        c = penalty_weight(numbers, k)
        theta_new = q.P_Y(theta - eta * (q.dyf(x, theta) + q.JyG(x, theta).T @ lam + (theta - y) / gamma1))
        lam_new = q.dual_cone(lam - eta * (-q.G(x, theta) + (lam - z) / gamma2))
        dx = q.dxF(x, y) / c + q.dxf(x, y) - q.dxf(x, theta_new) - q.JxG(x, theta_new).T @ lam_new
        dy = q.dyF(x, y) / c + q.dyf(x, y) - (y - theta_new) / gamma1
        z = q.dual_ball(z + beta * (lam_new - z) / gamma2, radius)
        x, y = project_jointly(q, x - alpha * dx, y - alpha * dy)
        theta, lam = theta_new, lam_new
        states.append({"x": x, "y": y, "theta": theta, "lam": lam, "z": z})
    return states


def bic_gaffa(problem: NumpyProblem, numbers: Numbers, x: Vector, y: Vector, iterations: int) -> list[State]:
    """Steps on the doubly regularised gap function; projections onto X and Y alone."""
    alpha, beta, eta = numbers["alpha"], numbers["beta"], numbers["eta"]
    gamma1, gamma2, radius = numbers["gamma1"], numbers["gamma2"], numbers["r"]
    q = problem
    theta, z, states = y, np.zeros(len(q.G(x, y))), []
    for k in range(iterations):
        c = penalty_weight(numbers, k)
        theta_new = q.P_Y(theta - eta * (q.dyf(x, theta) + q.JyG(x, theta).T @ z + (theta - y) / gamma1))
        lam = q.dual_cone(z + gamma2 * q.G(x, y))
        dx = q.dxF(x, y) / c + q.dxf(x, y) + q.JxG(x, y).T @ lam
        dx = dx - q.dxf(x, theta_new) - q.JxG(x, theta_new).T @ z
        dy = q.dyF(x, y) / c + q.dyf(x, y) + q.JyG(x, y).T @ lam - (y - theta_new) / gamma1
        z_new = q.dual_ball(z + beta * ((z - lam) / gamma2 + q.G(x, theta_new)), radius)
        x, y, theta, z = q.P_X(x - alpha * dx), q.P_Y(y - alpha * dy), theta_new, z_new
        states.append({"x": x, "y": y, "theta": theta, "lam": lam, "z": z})
    return states


def sflcb(problem: NumpyProblem, numbers: Numbers, x: Vector, y: Vector, iterations: int) -> list[State]:
    """One loop over two augmented Lagrangians with slacks; all rows of G are affine."""
    eta, delta, rho1, rho2 = numbers["eta"], numbers["delta"], numbers["rho1"], numbers["rho2"]
    q = problem
    B, A = q.JxG(x, y), q.JyG(x, y)
    z, u, v = y, np.zeros(len(B)), np.zeros(len(B))
    a = s = q.slack_cone(q.G(x, y))
    states = []
    for _ in range(iterations):
        gap_y, gap_z = q.G(x, y) - a, q.G(x, z) - s
        u, v = u + eta * gap_y, v + eta * gap_z
        force_y, force_z = u + rho1 * gap_y, v + rho2 * gap_z
        dx = delta * q.dxF(x, y) + q.dxf(x, y) - q.dxf(x, z) + B.T @ force_y - B.T @ force_z
        dy = delta * q.dyF(x, y) + q.dyf(x, y) + A.T @ force_y
        dz = q.dyf(x, z) + A.T @ force_z
        x, y, z = q.P_X(x - eta * dx), q.P_Y(y - eta * dy), q.P_Y(z - eta * dz)
        a, s = q.slack_cone(a + eta * force_y), q.slack_cone(s + eta * force_z)
        states.append({"x": x, "y": y, "z": z, "u": u, "v": v, "a": a, "s": s})
    return states


def project_affine(problem: NumpyProblem, x: Vector, y: Vector) -> Vector:
    """Nearest y with h(x) + A y = 0."""
    return y - np.linalg.pinv(problem.JyG(x, y)) @ problem.G(x, y)


def equality_hypergradient(problem: NumpyProblem, x: Vector, y: Vector) -> Vector:
    """Derivative of F(x, y(x)) at y = y(x), where y(x) minimises f subject to h(x) + A y = 0 alone."""
    A, Jh = problem.JyG(x, y), problem.JxG(x, y)
    pseudo, V, H, dyF = np.linalg.pinv(A), null_space(A), problem.dyyf(x, y), problem.dyF(x, y)
    w = V @ np.linalg.solve(V.T @ H @ V, V.T @ dyF)
    return problem.dxF(x, y) - Jh.T @ pseudo.T @ dyF + (Jh.T @ pseudo.T @ H - problem.dxyf(x, y)) @ w


def aipod(
    problem: NumpyProblem, numbers: Numbers, x: Vector, y: Vector, iterations: int, inner_steps: int
) -> list[State]:
    """Alternating projected steps of the follower and implicit-gradient steps of the leader; equalities only."""
    states = []
    y = project_affine(problem, x, y)
    for _ in range(iterations):
        for _ in range(inner_steps):
            y = project_affine(problem, x, y - numbers["beta"] * problem.dyf(x, y))
        x = problem.P_X(x - numbers["alpha"] * equality_hypergradient(problem, x, y))
        states.append({"x": x, "y": y})
    return states


def e_aipod(
    problem: NumpyProblem, numbers: Numbers, x: Vector, y: Vector, coins: Sequence[Sequence[bool]]
) -> list[State]:
    """AiPOD whose follower projects only when the coin says so; one row of coins for each iteration."""
    beta, prob = numbers["beta"], numbers["prob"]
    states = []
    y = project_affine(problem, x, y)
    r = np.zeros(len(y))
    for row in coins:
        for coin in row:
            y_hat = y - beta * (problem.dyf(x, y) - r)
            y = project_affine(problem, x, y_hat - (beta / prob) * r) if coin else y_hat
            r = r + (prob / beta) * (y - y_hat)
        x = problem.P_X(x - numbers["alpha"] * equality_hypergradient(problem, x, y))
        states.append({"x": x, "y": y, "r": r})
    return states


def gam_gradient(problem: NumpyProblem, x: Vector, y: Vector, mu: Vector, active: np.ndarray) -> Vector:
    """Derivative of F(x, y(x)) where y(x) keeps the active rows of g, and all of h, at zero.

    ``mu`` and ``active`` are those of g. The rows of h are affine in y with a constant matrix, so that they do not
    enter the second derivatives of the Lagrangian.
    """
    n, p = problem.n, problem.n_inequality
    held = np.concatenate([np.flatnonzero(active), np.arange(p, len(problem.G(x, y)))]).astype(int)
    second = np.tensordot(mu, problem.hessG(x, y)[:p], axes=1)
    L_yy = problem.dyyf(x, y) + second[n:, n:]
    L_yx = problem.dxyf(x, y).T + second[n:, :n]
    J = problem.JyG(x, y)[held]
    K = np.block([[L_yy, J.T], [J, np.zeros((len(held), len(held)))]])
    slopes = np.linalg.solve(K, -np.vstack([L_yx, problem.JxG(x, y)[held]]))
    return problem.dxF(x, y) + slopes[: problem.m].T @ problem.dyF(x, y)


def min_norm_point(gradients: Sequence[Vector]) -> Vector:
    """Shortest point of the convex hull: the shortest over all faces whose affine hull has it with weights >= 0."""
    points = np.stack(gradients)
    candidates = list(points)
    for count in range(2, len(points) + 1):
        for chosen in combinations(range(len(points)), count):
            corner, edges = points[chosen[0]], points[list(chosen[1:])] - points[chosen[0]]
            weights = np.linalg.lstsq(edges.T, -corner, rcond=None)[0]
            if weights.min() >= 0.0 and weights.sum() <= 1.0:
                candidates.append(corner + edges.T @ weights)
    return min(candidates, key=np.linalg.norm)
