"""The problem's slopes and curvatures at the start; automatic numbers are made of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc.problem import BilevelProblem

Array = Any


@dataclass(frozen=True)
class Size:
    """Sizes of derivatives at one point."""

    lower: float  #: largest eigenvalue of the lower objective's Hessian in y
    lower_least: float  #: smallest
    upper: float  #: largest curvature of the upper objective in (x, y)
    coupling: float  #: largest singular value of the Jacobian of the coupled constraints in (x, y)
    coupling_y: float  #: in y alone
    mixed: float  #: of the lower objective's mixed derivative
    gradient: float  #: length of the upper objective's gradient
    x: float  #: 1 + |x|


def measure_size(problem: BilevelProblem, x: np.ndarray, y: np.ndarray) -> Size:
    """Slopes and curvatures at a point, by dense derivatives."""
    flat = problem.flat
    n = flat.n_x

    def derivatives(both: Array) -> tuple[Array, ...]:
        upper = lambda z: flat.upper(z[:n], z[n:])  # noqa: E731
        below = lambda z: flat.lower(z[:n], z[n:])  # noqa: E731
        curved = jax.hessian(below)(both)
        jacobian = jax.jacfwd(lambda z: jnp.concatenate([flat.inequality(z[:n], z[n:]), flat.equality(z[:n], z[n:])]))(
            both
        )
        return jax.hessian(upper)(both), curved[n:, n:], curved[n:, :n], jacobian, jax.grad(upper)(both)

    both = jnp.concatenate([jnp.asarray(x), jnp.asarray(y)])
    if "size" not in problem.cache:
        problem.cache["size"] = jax.jit(derivatives)
    upper, hessian, mixed, jacobian, gradient = (np.asarray(part) for part in problem.cache["size"](both))
    lower = np.linalg.eigvalsh(hessian)
    norm = lambda matrix: float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0  # noqa: E731
    return Size(
        lower=float(np.abs(lower).max()),
        lower_least=float(lower.min()),
        upper=norm(upper),
        coupling=norm(jacobian),
        coupling_y=norm(jacobian[:, n:]),
        mixed=norm(mixed),
        gradient=float(np.linalg.norm(gradient)),
        x=1.0 + float(np.linalg.norm(x)),
    )
