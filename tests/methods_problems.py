"""Small bilevel problems, each written twice: in NumPy with derivatives by hand, and as a user of blocc writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, ConvexSet, Reals
from methods_reference import NumpyProblem, Vector

Array = jax.Array


@dataclass(frozen=True)
class Quadratic:
    """F = x'Px/2 + x'My + (y-t)'Q(y-t)/2, f = x'Dx/2 + x'Cy + y'Hy/2 + q'y, G = Bx + Ay - b."""

    P: np.ndarray
    M: np.ndarray
    Q: np.ndarray
    t: Vector
    D: np.ndarray
    C: np.ndarray
    H: np.ndarray
    q: Vector
    B: np.ndarray
    A: np.ndarray
    b: Vector
    n_inequality: int
    x_bounds: tuple[Vector, Vector]
    y_bounds: tuple[Vector, Vector]


INFINITE = (np.full(3, -np.inf), np.full(3, np.inf))

AFFINE = Quadratic(
    P=np.array([[1.0, 0.2], [0.2, 0.8]]),
    M=np.array([[0.3, -0.5, 0.1], [0.0, 0.4, -0.2]]),
    Q=np.array([[1.0, 0.1, 0.0], [0.1, 1.5, -0.3], [0.0, -0.3, 0.7]]),
    t=np.array([1.0, -0.5, 0.8]),
    D=np.array([[0.5, -0.1], [-0.1, 0.3]]),
    C=np.array([[0.7, -0.2, 0.4], [-0.3, 0.5, 0.6]]),
    H=np.array([[2.0, 0.3, -0.1], [0.3, 1.2, 0.2], [-0.1, 0.2, 1.6]]),
    q=np.array([-1.5, 0.4, -0.9]),
    B=np.array([[0.6, -0.3], [-0.2, 0.9]]),
    A=np.array([[1.0, 0.5, -0.2], [0.3, -0.7, 1.1]]),
    b=np.array([0.4, 0.3]),
    n_inequality=2,
    x_bounds=(np.array([-0.3, -0.25]), np.array([0.35, 0.3])),
    y_bounds=INFINITE,
)
AFFINE_BOX = replace(AFFINE, y_bounds=(np.array([-0.1, -0.6, -0.2]), np.array([0.55, 0.3, 0.6])))
MIXED = replace(AFFINE, n_inequality=1)
HALFSPACE = replace(
    AFFINE,
    B=AFFINE.B[:1],
    A=AFFINE.A[:1],
    b=np.array([0.1]),
    n_inequality=1,
    x_bounds=(np.full(2, -np.inf), np.full(2, np.inf)),
)


def numpy_quadratic(data: Quadratic) -> NumpyProblem:
    d = data
    n, m = len(d.P), len(d.H)
    whole = np.hstack([d.B, d.A])
    everywhere = all(np.isinf(bound).all() for bound in (*d.x_bounds, *d.y_bounds))

    def halfspace(x: Vector, y: Vector) -> Vector:
        w = np.concatenate([x, y])
        return w - max(0.0, (whole @ w - d.b)[0]) * whole[0] / np.sum(whole[0] ** 2)

    return NumpyProblem(
        F=lambda x, y: 0.5 * x @ d.P @ x + x @ d.M @ y + 0.5 * (y - d.t) @ d.Q @ (y - d.t),
        dxF=lambda x, y: d.P @ x + d.M @ y,
        dyF=lambda x, y: d.M.T @ x + d.Q @ (y - d.t),
        f=lambda x, y: 0.5 * x @ d.D @ x + x @ d.C @ y + 0.5 * y @ d.H @ y + d.q @ y,
        dxf=lambda x, y: d.D @ x + d.C @ y,
        dyf=lambda x, y: d.C.T @ x + d.H @ y + d.q,
        dyyf=lambda x, y: d.H,
        dxyf=lambda x, y: d.C,
        G=lambda x, y: d.B @ x + d.A @ y - d.b,
        JxG=lambda x, y: d.B,
        JyG=lambda x, y: d.A,
        hessG=lambda x, y: np.zeros((len(d.b), n + m, n + m)),
        n_inequality=d.n_inequality,
        x_bounds=d.x_bounds,
        y_bounds=d.y_bounds,
        joint_formula=halfspace if len(d.b) == d.n_inequality == 1 and everywhere else None,
    )


def numpy_curved() -> NumpyProblem:
    """One leader, two followers, and two rows of g that are convex in (x, y) but not affine.

    F = (x - 1/2)^2 / 2 + 0.4 x sin(y1) + (y2 - 1.2)^2 / 2,
    f = log cosh(y1 - 2 x) + exp(0.4 y2 - 0.3 x) - 1.5 y2 + 0.15 |y|^2,
    g = (y1^2 + y2^2 - x - 2, (x + y1)^2 / 2 - y2 - 0.4), with x between -1 and 0.6.
    """

    def growth(x: Vector, y: Vector) -> float:
        return float(np.exp(0.4 * y[1] - 0.3 * x[0]))

    def hessians(x: Vector, y: Vector) -> np.ndarray:
        ball = np.diag([0.0, 2.0, 2.0])
        valley = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
        return np.stack([ball, valley])

    def hyperbolic(x: Vector, y: Vector) -> tuple[float, float]:
        t = float(np.tanh(y[0] - 2.0 * x[0]))
        return t, 1.0 - t**2

    return NumpyProblem(
        F=lambda x, y: 0.5 * (x[0] - 0.5) ** 2 + 0.4 * x[0] * np.sin(y[0]) + 0.5 * (y[1] - 1.2) ** 2,
        dxF=lambda x, y: np.array([x[0] - 0.5 + 0.4 * np.sin(y[0])]),
        dyF=lambda x, y: np.array([0.4 * x[0] * np.cos(y[0]), y[1] - 1.2]),
        f=lambda x, y: np.log(np.cosh(y[0] - 2.0 * x[0])) + growth(x, y) - 1.5 * y[1] + 0.15 * (y @ y),
        dxf=lambda x, y: np.array([-2.0 * hyperbolic(x, y)[0] - 0.3 * growth(x, y)]),
        dyf=lambda x, y: np.array(
            [hyperbolic(x, y)[0] + 0.3 * y[0], 0.4 * growth(x, y) - 1.5 + 0.3 * y[1]],
        ),
        dyyf=lambda x, y: np.diag([hyperbolic(x, y)[1] + 0.3, 0.16 * growth(x, y) + 0.3]),
        dxyf=lambda x, y: np.array([[-2.0 * hyperbolic(x, y)[1], -0.12 * growth(x, y)]]),
        G=lambda x, y: np.array([y[0] ** 2 + y[1] ** 2 - x[0] - 2.0, 0.5 * (x[0] + y[0]) ** 2 - y[1] - 0.4]),
        JxG=lambda x, y: np.array([[-1.0], [x[0] + y[0]]]),
        JyG=lambda x, y: np.array([[2.0 * y[0], 2.0 * y[1]], [x[0] + y[0], -1.0]]),
        hessG=hessians,
        n_inequality=2,
        x_bounds=(np.array([-1.0]), np.array([0.6])),
        y_bounds=(np.full(2, -np.inf), np.full(2, np.inf)),
    )


EQUALITY_MATRIX = np.array([[1.0, 0.5, -0.3, 0.2], [0.2, -0.8, 0.6, 1.0]])
EQUALITY_COUPLING = np.array([[0.6, -0.4, 0.2, 0.1], [-0.3, 0.5, 0.3, -0.6]])
EQUALITY_CURVATURE = np.array([1.0, 0.6, 1.4, 0.8])
EQUALITY_TARGET = np.array([0.5, -1.0, 0.7, 0.3])


def numpy_equalities() -> NumpyProblem:
    """Two leaders, four followers, and two equalities that are affine in y and curved in x.

    F = |y - t|^2 / 2 + |x|^2 / 4 + 0.3 x1 y2 y3,
    f = sum(d y^2) / 2 + x'Cy + sum(log cosh y) / 2 + 0.4 sin(x2) y1^2,
    h = (sin(x1) + x2^2 / 2, x1 cos(x2) - 0.3) + Ay.
    """
    A, C, d, t = EQUALITY_MATRIX, EQUALITY_COUPLING, EQUALITY_CURVATURE, EQUALITY_TARGET

    def shift(x: Vector) -> Vector:
        return np.array([np.sin(x[0]) + 0.5 * x[1] ** 2, x[0] * np.cos(x[1]) - 0.3])

    def shift_jacobian(x: Vector) -> np.ndarray:
        return np.array([[np.cos(x[0]), x[1]], [np.cos(x[1]), -x[0] * np.sin(x[1])]])

    def hessians(x: Vector, y: Vector) -> np.ndarray:
        second = np.zeros((2, 6, 6))
        second[0, 0, 0], second[0, 1, 1] = -np.sin(x[0]), 1.0
        second[1, 0, 1] = second[1, 1, 0] = -np.sin(x[1])
        second[1, 1, 1] = -x[0] * np.cos(x[1])
        return second

    first = np.array([1.0, 0.0, 0.0, 0.0])
    return NumpyProblem(
        F=lambda x, y: 0.5 * np.sum((y - t) ** 2) + 0.25 * (x @ x) + 0.3 * x[0] * y[1] * y[2],
        dxF=lambda x, y: 0.5 * x + np.array([0.3 * y[1] * y[2], 0.0]),
        dyF=lambda x, y: y - t + 0.3 * x[0] * np.array([0.0, y[2], y[1], 0.0]),
        f=lambda x, y: (
            0.5 * np.sum(d * y**2) + x @ C @ y + 0.5 * np.sum(np.log(np.cosh(y))) + 0.4 * np.sin(x[1]) * y[0] ** 2
        ),
        dxf=lambda x, y: C @ y + np.array([0.0, 0.4 * np.cos(x[1]) * y[0] ** 2]),
        dyf=lambda x, y: d * y + C.T @ x + 0.5 * np.tanh(y) + 0.8 * np.sin(x[1]) * y[0] * first,
        dyyf=lambda x, y: np.diag(d + 0.5 * (1.0 - np.tanh(y) ** 2) + 0.8 * np.sin(x[1]) * first),
        dxyf=lambda x, y: C + np.outer([0.0, 1.0], 0.8 * np.cos(x[1]) * y[0] * first),
        G=lambda x, y: shift(x) + A @ y,
        JxG=lambda x, y: shift_jacobian(x),
        JyG=lambda x, y: A,
        hessG=hessians,
        n_inequality=0,
        x_bounds=(np.array([-0.8, -0.7]), np.array([0.9, 0.6])),
        y_bounds=(np.full(4, -np.inf), np.full(4, np.inf)),
    )


NUMPY_PROBLEMS: dict[str, Callable[[], NumpyProblem]] = {
    "affine": lambda: numpy_quadratic(AFFINE),
    "affine, boxed": lambda: numpy_quadratic(AFFINE_BOX),
    "mixed": lambda: numpy_quadratic(MIXED),
    "half-space": lambda: numpy_quadratic(HALFSPACE),
    "curved": numpy_curved,
    "equalities": numpy_equalities,
}


# --- the same for blocc: functions and sets alone ----------------------------------------------------------------
def box(bounds: tuple[np.ndarray, np.ndarray]) -> ConvexSet:
    return Reals(len(bounds[0])) if np.isinf(bounds[0]).all() else Box(*bounds)


def blocc_quadratic(data: Quadratic) -> BilevelProblem:
    p = data.n_inequality

    def upper(x: Array, y: Array) -> Array:
        return 0.5 * x @ data.P @ x + x @ data.M @ y + 0.5 * (y - data.t) @ data.Q @ (y - data.t)

    def lower(x: Array, y: Array) -> Array:
        return 0.5 * x @ data.D @ x + x @ data.C @ y + 0.5 * y @ data.H @ y + data.q @ y

    def inequality(x: Array, y: Array) -> Array:
        return data.B[:p] @ x + data.A[:p] @ y - data.b[:p]

    def equality(x: Array, y: Array) -> Array:
        return data.B[p:] @ x + data.A[p:] @ y - data.b[p:]

    return BilevelProblem(
        upper=upper,
        lower=lower,
        inequality=inequality,
        equality=equality if p < len(data.b) else None,
        x_set=box(data.x_bounds),
        y_set=box(data.y_bounds),
    )


def blocc_curved() -> BilevelProblem:
    def upper(x: Array, y: Array) -> Array:
        return 0.5 * (x[0] - 0.5) ** 2 + 0.4 * x[0] * jnp.sin(y[0]) + 0.5 * (y[1] - 1.2) ** 2

    def lower(x: Array, y: Array) -> Array:
        wave = jnp.log(jnp.cosh(y[0] - 2.0 * x[0]))
        return wave + jnp.exp(0.4 * y[1] - 0.3 * x[0]) - 1.5 * y[1] + 0.15 * jnp.sum(y**2)

    def inequality(x: Array, y: Array) -> Array:
        return jnp.stack([jnp.sum(y**2) - x[0] - 2.0, 0.5 * (x[0] + y[0]) ** 2 - y[1] - 0.4])

    return BilevelProblem(upper=upper, lower=lower, inequality=inequality, x_set=Box([-1.0], [0.6]), y_set=Reals(2))


def blocc_equalities() -> BilevelProblem:
    def upper(x: Array, y: Array) -> Array:
        return 0.5 * jnp.sum((y - EQUALITY_TARGET) ** 2) + 0.25 * jnp.sum(x**2) + 0.3 * x[0] * y[1] * y[2]

    def lower(x: Array, y: Array) -> Array:
        curvature = 0.5 * jnp.sum(EQUALITY_CURVATURE * y**2) + 0.5 * jnp.sum(jnp.log(jnp.cosh(y)))
        return curvature + x @ EQUALITY_COUPLING @ y + 0.4 * jnp.sin(x[1]) * y[0] ** 2

    def equality(x: Array, y: Array) -> Array:
        shift = jnp.stack([jnp.sin(x[0]) + 0.5 * x[1] ** 2, x[0] * jnp.cos(x[1]) - 0.3])
        return shift + EQUALITY_MATRIX @ y

    return BilevelProblem(
        upper=upper, lower=lower, equality=equality, x_set=Box([-0.8, -0.7], [0.9, 0.6]), y_set=Reals(4)
    )


BLOCC_PROBLEMS: dict[str, Callable[[], BilevelProblem]] = {
    "affine": lambda: blocc_quadratic(AFFINE),
    "affine, boxed": lambda: blocc_quadratic(AFFINE_BOX),
    "mixed": lambda: blocc_quadratic(MIXED),
    "half-space": lambda: blocc_quadratic(HALFSPACE),
    "curved": blocc_curved,
    "equalities": blocc_equalities,
}
