"""Algorithms 1 and 2 of the BLOCC paper in plain NumPy, line by line from its text; shares no code with blocc.

Numbers of equations and lines are those of the paper. Its text leaves open with which y and mu MaxMin begins at
t > 0; here, as its inputs are named y_{g,0} and mu_{g,0}, it begins where it ended at t - 1.

The problems are random: g strongly convex, gc convex in y and curved, not convex in (x, y), X and Y boxes so narrow
that steps in x and y are cut off, and rows of gc that hold with equality.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Vector = np.ndarray
Function = Callable[[Vector, Vector], np.ndarray]


# --- Algorithms 1 and 2 -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PaperProblem:
    """f, g and gc by their derivatives; Jacobians of gc have a row for each constraint."""

    f_x: Function
    f_y: Function
    g_x: Function
    g_y: Function
    gc: Function
    gc_x: Function
    gc_y: Function
    project_x: Callable[[Vector], Vector]
    project_y: Callable[[Vector], Vector]


class Inner(NamedTuple):
    """Steps and counters of MaxMin(T, T_y)."""

    eta_1: float
    eta_2: float
    T: int
    T_y: int
    accelerated: bool


class Step(NamedTuple):
    """What line 3 to 5 of Algorithm 1 compute at one t."""

    x: Vector  #: x_t
    y_g: Vector
    mu_g: Vector
    y_F: Vector
    mu_F: Vector
    gradient: Vector  #: g_{F,t}


def max_min(
    dL_dy: Callable[[Vector, Vector], Vector],
    dL_dmu: Callable[[Vector, Vector], Vector],
    project_y: Callable[[Vector], Vector],
    y_0: Vector,
    mu_0: Vector,
    how: Inner,
) -> tuple[Vector, Vector]:
    """Algorithm 2 for max over mu >= 0, min over y in Y of L(mu, y)."""
    y, mu, mu_before = y_0, mu_0, mu_0  # mu_{-1} = mu_0
    for t in range(how.T):
        mu_half = mu + (t - 1) / (t + 2) * (mu - mu_before) if how.accelerated else mu  # line 3, (8)
        for _ in range(how.T_y):  # lines 4 to 6, (9)
            y = project_y(y - how.eta_1 * dL_dy(mu_half, y))
        mu_before, mu = mu, np.maximum(mu_half + how.eta_2 * dL_dmu(mu_half, y), 0.0)  # line 7, (10)
    return y, mu


def algorithm_1(
    p: PaperProblem,
    x_0: Vector,
    starts: tuple[Vector, Vector, Vector, Vector],
    eta: float,
    gamma: float,
    inner_g: Inner,
    inner_F: Inner,
    T: int,
) -> list[Step]:
    """Lines 2 to 6 for t = 0, ..., T; the outputs (x_T, y_F at x_T) stand in the last entry.

    ``starts``: y_{g,0}, mu_{g,0}, y_{F,0}, mu_{F,0}.
    """
    x, (y_g, mu_g, y_F, mu_F) = x_0, starts
    steps = []
    for _ in range(T + 1):
        here = x

        def dLg_dy(mu: Vector, y: Vector, x: Vector = here) -> Vector:
            return p.g_y(x, y) + p.gc_y(x, y).T @ mu

        def dLF_dy(mu: Vector, y: Vector, x: Vector = here) -> Vector:
            return p.f_y(x, y) + gamma * p.g_y(x, y) + p.gc_y(x, y).T @ mu

        def dL_dmu(_: Vector, y: Vector, x: Vector = here) -> Vector:
            return p.gc(x, y)

        y_g, mu_g = max_min(dLg_dy, dL_dmu, p.project_y, y_g, mu_g, inner_g)
        y_F, mu_F = max_min(dLF_dy, dL_dmu, p.project_y, y_F, mu_F, inner_F)
        g_v = p.g_x(x, y_g) + p.gc_x(x, y_g).T @ mu_g
        g_F = p.f_x(x, y_F) + gamma * (p.g_x(x, y_F) - g_v) + p.gc_x(x, y_F).T @ mu_F
        steps.append(Step(x, y_g, mu_g, y_F, mu_F, g_F))
        x = p.project_x(x - eta * g_F)
    return steps


# --- random problems ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RandomData:
    """f = |x - a|^2 / 2 + q.y + sum sin(x_i) y_i,  g = y'Hy / 2 - (Bx + b).y,
    gc_i = |y - c_i|^2 / 2 + (d_i.x) (e_i.y) - r_i."""

    a: Vector
    q: Vector
    H: np.ndarray
    B: np.ndarray
    b: Vector
    c: np.ndarray
    d: np.ndarray
    e: np.ndarray
    r: Vector
    low_x: Vector
    high_x: Vector
    low_y: Vector
    high_y: Vector


def random_data(seed: int, n_x: int = 3, n_y: int = 3, rows: int = 2) -> RandomData:
    """Data of one problem: the boxes cut the way of a step, the balls hold what the follower would like beyond."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_y, n_y))
    return RandomData(
        a=2.0 * rng.normal(size=n_x),
        q=2.0 * rng.normal(size=n_y),
        H=root @ root.T / n_y + np.eye(n_y),
        B=rng.normal(size=(n_y, n_x)),
        b=3.0 * rng.normal(size=n_y),
        c=0.3 * rng.normal(size=(rows, n_y)),
        d=0.3 * rng.normal(size=(rows, n_x)),
        e=0.3 * rng.normal(size=(rows, n_y)),
        r=rng.uniform(0.3, 0.8, size=rows),
        low_x=-rng.uniform(0.2, 1.0, size=n_x),
        high_x=rng.uniform(0.2, 1.0, size=n_x),
        low_y=-rng.uniform(0.2, 0.9, size=n_y),
        high_y=rng.uniform(0.2, 0.9, size=n_y),
    )


def numpy_problem(o: RandomData) -> PaperProblem:
    """The derivatives of that problem, by hand."""
    n = min(o.a.size, o.q.size)

    def f_x(x: Vector, y: Vector) -> Vector:
        slope = x - o.a
        slope[:n] += np.cos(x[:n]) * y[:n]
        return slope

    def f_y(x: Vector, y: Vector) -> Vector:
        slope = o.q.copy()
        slope[:n] += np.sin(x[:n])
        return slope

    return PaperProblem(
        f_x=f_x,
        f_y=f_y,
        g_x=lambda x, y: -o.B.T @ y,
        g_y=lambda x, y: o.H @ y - o.B @ x - o.b,
        gc=lambda x, y: 0.5 * np.sum((y - o.c) ** 2, axis=1) + (o.d @ x) * (o.e @ y) - o.r,
        gc_x=lambda x, y: (o.e @ y)[:, None] * o.d,
        gc_y=lambda x, y: (y - o.c) + (o.d @ x)[:, None] * o.e,
        project_x=lambda x: np.clip(x, o.low_x, o.high_x),
        project_y=lambda y: np.clip(y, o.low_y, o.high_y),
    )
