"""ALT-PBGD, PBGD-Free, the log-barrier method and the sequential convex methods in plain NumPy, from their papers.

Shares no code with blocc; see ``methods_reference.py`` for the problems. Convex programs are solved by SciPy's SLSQP,
and barriers are minimised by damped Newton steps from a strictly feasible point.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from methods_reference import Numbers, NumpyProblem, State, Vector


# --- ALT-PBGD and PBGD-Free --------------------------------------------------------------------------------------
def max_min(
    q: NumpyProblem, numbers: Numbers, x: Vector, y: Vector, mu: Vector, weight: float, steps: int, steps_y: int
) -> tuple[Vector, Vector]:
    """Gradient steps on y and mu towards the saddle point of weight F + f + <mu, G>."""
    for _ in range(steps):
        for _ in range(steps_y):
            slope = weight * q.dyF(x, y) + q.dyf(x, y) + q.JyG(x, y).T @ mu
            y = q.P_Y(y - numbers["step_y"] * slope)
        mu = q.dual_cone(mu + numbers["step_dual"] * q.G(x, y))
    return y, mu


def alt_pbgd(
    q: NumpyProblem, numbers: Numbers, x: Vector, y: Vector, iterations: int, *, steps: int, steps_y: int, free: bool
) -> list[State]:
    """Both inner problems from their last answers, then x along the penalty function's gradient, or F's alone."""
    gamma, z, states = numbers["gamma"], y, []
    mu_y = mu_z = np.zeros(len(q.G(x, y)))
    for _ in range(iterations):
        y, mu_y = max_min(q, numbers, x, y, mu_y, 1.0 / gamma, steps, steps_y)
        slope = q.dxF(x, y)
        if not free:
            z, mu_z = max_min(q, numbers, x, z, mu_z, 0.0, steps, steps_y)
            slope = slope + gamma * (q.dxf(x, y) + q.JxG(x, y).T @ mu_y - q.dxf(x, z) - q.JxG(x, z).T @ mu_z)
        x = q.P_X(x - numbers["alpha"] * slope)
        states.append({"x": x, "y": y})
    return states


# --- the log-barrier method --------------------------------------------------------------------------------------
def barrier_rows(q: NumpyProblem, x: Vector, y: Vector) -> tuple[Vector, np.ndarray, np.ndarray, np.ndarray]:
    """Inequalities and bounds of y: values, Jacobians in x and y, second derivatives over (x, y)."""
    n, m, (low, high) = q.n, q.m, q.y_bounds
    below, above = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    eye, extra = np.eye(m), len(below) + len(above)
    values = np.concatenate([q.G(x, y), low[below] - y[below], y[above] - high[above]])
    in_x = np.vstack([q.JxG(x, y), np.zeros((extra, n))])
    in_y = np.vstack([q.JyG(x, y), -eye[below], eye[above]])
    return values, in_x, in_y, np.concatenate([q.hessG(x, y), np.zeros((extra, n + m, n + m))])


def strictly_feasible(q: NumpyProblem, x: Vector) -> Vector:
    """y whose largest row is as small as can be, but no smaller than -1."""
    start = np.append(np.zeros(q.m), 5.0)
    room = {"type": "ineq", "fun": lambda v: v[-1] - barrier_rows(q, x, v[:-1])[0]}
    found = minimize(lambda v: v[-1], start, constraints=[room], bounds=[(None, None)] * q.m + [(-1.0, None)])
    assert found.x[-1] < 0.0, "no interior"
    return found.x[:-1]


def barrier_minimiser(q: NumpyProblem, t: float, x: Vector) -> Vector:
    """Damped Newton steps on f - t sum(ln(-rows))."""

    def value(y: Vector) -> float:
        rows = barrier_rows(q, x, y)[0]
        return float(q.f(x, y) - t * np.sum(np.log(-rows))) if (rows < 0.0).all() else np.inf

    y = strictly_feasible(q, x)
    for _ in range(200):
        rows, _, in_y, second = barrier_rows(q, x, y)
        slope = q.dyf(x, y) + in_y.T @ (t / -rows)
        matrix = (
            q.dyyf(x, y) + np.tensordot(t / -rows, second[:, q.n :, q.n :], axes=1) + (in_y.T * (t / rows**2)) @ in_y
        )
        step = -np.linalg.solve(matrix, slope)
        length = 1.0
        while value(y + length * step) > value(y) + 1e-15 and length > 1e-12:
            length *= 0.5
        y = y + length * step
        if np.abs(slope).max() < 1e-12:
            break
    return y


def barrier_gradient(q: NumpyProblem, t: float, x: Vector, y: Vector) -> Vector:
    """F_x - G_xy G_yy^-1 F_y of the follower with the barrier."""
    rows, in_x, in_y, second = barrier_rows(q, x, y)
    bent, n = np.tensordot(t / -rows, second, axes=1), q.n
    yy = q.dyyf(x, y) + bent[n:, n:] + (in_y.T * (t / rows**2)) @ in_y
    xy = q.dxyf(x, y) + bent[:n, n:] + (in_x.T * (t / rows**2)) @ in_y
    return q.dxF(x, y) - xy @ np.linalg.solve(yy, q.dyF(x, y))


def log_barrier(q: NumpyProblem, numbers: Numbers, x: Vector, iterations: int) -> list[State]:
    """The barrier's minimiser, then a step of x of length alpha / (k + 1)^p."""
    states = []
    for k in range(iterations):
        y = barrier_minimiser(q, numbers["t"], x)
        slope = barrier_gradient(q, numbers["t"], x, y)
        x = q.P_X(x - numbers["alpha"] / (k + 1) ** numbers["p"] * slope)
        states.append({"x": x, "y": y})
    return states


# --- sequential convex programs ----------------------------------------------------------------------------------
def solved(
    objective: Callable[[Vector], float],
    start: Vector,
    bounds: list[tuple[float, float]],
    rows: Callable[[Vector], Vector],
) -> Vector:
    """A small convex program with rows <= 0."""
    room = {"type": "ineq", "fun": lambda w: -rows(w)}
    found = minimize(
        objective, start, bounds=bounds, constraints=[room], method="SLSQP", options={"ftol": 1e-15, "maxiter": 1000}
    )
    return found.x


def envelope(q: NumpyProblem, x: Vector, y: Vector, proximal: float) -> tuple[float, Vector, Vector]:
    """min over theta of f(x, theta) + proximal |theta - y|^2 / 2 under the constraints; derivatives by differences."""
    bounds = list(zip(*q.y_bounds, strict=True))

    def value(x: Vector, y: Vector) -> float:
        whole = lambda theta: float(q.f(x, theta) + 0.5 * proximal * np.sum((theta - y) ** 2))  # noqa: E731
        return whole(solved(whole, y, bounds, lambda theta: q.G(x, theta)))

    step = 1e-4
    slope_x = [(value(x + step * e, y) - value(x - step * e, y)) / (2.0 * step) for e in np.eye(q.n)]
    slope_y = [(value(x, y + step * e) - value(x, y - step * e)) / (2.0 * step) for e in np.eye(q.m)]
    return value(x, y), np.array(slope_x), np.array(slope_y)


def sequential_convex(q: NumpyProblem, numbers: Numbers, x: Vector, y: Vector, iterations: int) -> list[State]:
    """Tangents of the value function, or of the Moreau envelope where ``gamma`` is given, and the penalty's rule."""
    beta, states = numbers["beta"], []
    moreau, weak = (1.0 / numbers["gamma"], numbers["weak"]) if "gamma" in numbers else (0.0, 0.0)
    boxes = [*zip(*q.x_bounds, strict=True), *zip(*q.y_bounds, strict=True), (0.0, np.inf)]
    n = q.n
    for _ in range(iterations):
        value, slope_x, slope_y = envelope(q, x, y, moreau)
        slope_y = slope_y if moreau else np.zeros(q.m)
        centre, proximal = np.concatenate([x, y]), numbers["rho"] + weak * beta
        tangent = np.concatenate([slope_x, slope_y])

        def objective(w: Vector, centre: Vector = centre, proximal: float = proximal, beta: float = beta) -> float:
            return float(q.F(w[:n], w[n:-1]) + 0.5 * proximal * np.sum((w[:-1] - centre) ** 2) + beta * w[-1])

        def rows(w: Vector, centre: Vector = centre, value: float = value, tangent: Vector = tangent) -> Vector:
            excess = q.f(w[:n], w[n:-1]) - value - tangent @ (w[:-1] - centre) - numbers["epsilon"] - w[-1]
            return np.append(q.G(w[:n], w[n:-1]), excess)

        w = solved(objective, np.append(centre, 0.1), boxes, rows)
        moved, violation = np.linalg.norm(w[:-1] - centre), max(w[-1], 0.0)
        x, y = w[:n], w[n:-1]
        states.append({"x": x, "y": y, "beta": np.asarray(beta)})
        if moved * max(beta, 1.0 / max(violation, 1e-300)) < numbers["patience"]:
            beta += numbers["growth"]
    return states
