"""BVFSM in plain NumPy, written from its formulas alone; a second opinion that shares no code with blocc.

With F the upper and f the lower objective, g <= 0 and h = 0 the constraints, and p(x, y) = (|[g]+|^2 + |h|^2) / 2:

    V(x, z) = f(x, z) + mu |z|^2 + rho p(x, z)
    room(x, y) = V(x, z) - f(x, y) + shift
    phi(x, y) = F(x, y) + theta |y|^2 + rho p(x, y) - sigma log room(x, y)

One iteration descends V in z, then phi in y, then phi in x; z is held fixed in phi.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from methods_reference import NumpyProblem, Vector


@dataclass(frozen=True)
class Weights:
    """Weights of one iteration."""

    mu: float
    theta: float
    sigma: float
    rho: float


def weights_at(numbers: Mapping[str, float], k: int, hold: int) -> Weights:
    """Weights of iteration k: they change once in ``hold`` iterations."""
    s = float(k // hold + 1)
    return Weights(
        mu=numbers["mu0"] * s**-1.1,
        theta=numbers["theta0"] * s**-1.1,
        sigma=numbers["sigma0"] * s**-1.1,
        rho=numbers["rho0"] * s**0.5,
    )


def violation(problem: NumpyProblem, x: Vector, y: Vector) -> Vector:
    """Rows of [g]+, then those of h."""
    rows = np.array(problem.G(x, y), dtype=float)
    p = problem.n_inequality
    rows[:p] = np.maximum(rows[:p], 0.0)
    return rows


def penalty(problem: NumpyProblem, x: Vector, y: Vector, rho: float) -> float:
    """P(x, y) = rho/2 (|[g]+|^2 + |h|^2)."""
    return float(0.5 * rho * np.sum(violation(problem, x, y) ** 2))


def penalty_dx(problem: NumpyProblem, x: Vector, y: Vector, rho: float) -> Vector:
    """Gradient of P in its first argument."""
    return rho * (problem.JxG(x, y).T @ violation(problem, x, y))


def penalty_dy(problem: NumpyProblem, x: Vector, y: Vector, rho: float) -> Vector:
    """Gradient of P in its second argument."""
    return rho * (problem.JyG(x, y).T @ violation(problem, x, y))


def value(problem: NumpyProblem, w: Weights, x: Vector, z: Vector) -> float:
    """V(x, z), the regularised lower level."""
    return float(problem.f(x, z)) + w.mu * float(z @ z) + penalty(problem, x, z, w.rho)


def value_dx(problem: NumpyProblem, w: Weights, x: Vector, z: Vector) -> Vector:
    """Gradient of V in x."""
    return problem.dxf(x, z) + penalty_dx(problem, x, z, w.rho)


def value_dz(problem: NumpyProblem, w: Weights, x: Vector, z: Vector) -> Vector:
    """Gradient of V in z."""
    return problem.dyf(x, z) + 2.0 * w.mu * z + penalty_dy(problem, x, z, w.rho)


def room(problem: NumpyProblem, w: Weights, x: Vector, y: Vector, z: Vector, shift: float) -> float:
    """What stands in the logarithm."""
    return value(problem, w, x, z) - float(problem.f(x, y)) + shift


def room_dx(problem: NumpyProblem, w: Weights, x: Vector, y: Vector, z: Vector) -> Vector:
    """Gradient of the room in x, with z fixed."""
    return value_dx(problem, w, x, z) - problem.dxf(x, y)


def room_dy(problem: NumpyProblem, x: Vector, y: Vector) -> Vector:
    """Gradient of the room in y."""
    return -problem.dyf(x, y)


def phi_dx(problem: NumpyProblem, w: Weights, x: Vector, y: Vector, z: Vector, divisor: float) -> Vector:
    """Gradient of phi in x; ``divisor`` is the room, or what replaces it."""
    barrier = w.sigma / divisor * room_dx(problem, w, x, y, z)
    return problem.dxF(x, y) + penalty_dx(problem, x, y, w.rho) - barrier


def phi_dy(problem: NumpyProblem, w: Weights, x: Vector, y: Vector, divisor: float) -> Vector:
    """Gradient of phi in y; ``divisor`` is the room, or what replaces it."""
    barrier = w.sigma / divisor * room_dy(problem, x, y)
    return problem.dyF(x, y) + 2.0 * w.theta * y + penalty_dy(problem, x, y, w.rho) - barrier


def bvfsm(
    problem: NumpyProblem,
    numbers: Mapping[str, float],
    x: Vector,
    y: Vector,
    iterations: int,
    *,
    steps_y: int,
    steps_z: int,
    hold: int,
    safeguard: bool,
) -> list[dict[str, np.ndarray]]:
    """States x, y, z after each iteration; z starts at y.

    ``numbers`` holds alpha, step_y, step_z, mu0, theta0, sigma0, rho0, shift and slope. With ``safeguard`` the room
    has a positive floor wherever it divides, and every step is cut by a bound of the curvature.
    """
    x, y = np.array(x, dtype=float), np.array(y, dtype=float)
    z = y.copy()
    shift, slope = numbers["shift"], numbers["slope"]
    floor = 0.1 * shift + 1e-8

    def divisor_at(w: Weights, x: Vector, y: Vector, z: Vector) -> float:
        left = room(problem, w, x, y, z, shift)
        return max(left, floor) if safeguard else left

    def length(step: float, curvature: float) -> float:
        return step / (1.0 + step * curvature) if safeguard else step

    states = []
    for k in range(iterations):
        w = weights_at(numbers, k, hold)
        steep = w.rho * slope**2

        for _ in range(steps_z):
            z = problem.P_Y(z - length(numbers["step_z"], steep) * value_dz(problem, w, x, z))

        for _ in range(steps_y):
            divisor = divisor_at(w, x, y, z)
            bend = w.sigma * float(np.sum(room_dy(problem, x, y) ** 2)) / divisor**2
            y = problem.P_Y(y - length(numbers["step_y"], steep + bend) * phi_dy(problem, w, x, y, divisor))

        divisor = divisor_at(w, x, y, z)
        bend = w.sigma * float(np.sum(room_dx(problem, w, x, y, z) ** 2)) / divisor**2
        x = problem.P_X(x - length(numbers["alpha"], steep + bend) * phi_dx(problem, w, x, y, z, divisor))

        states.append({"x": x.copy(), "y": y.copy(), "z": z.copy()})
    return states
