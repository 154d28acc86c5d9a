"""The problems of the stress set before their numbers are filled in: one template for each shape.

A template takes its numbers as data, so all problems of one shape share their compiled solvers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, Reals, Status

Data = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One problem with the right end of a run: a known answer, or the statuses that name what is wrong with it."""

    family: str
    problem: BilevelProblem
    start: np.ndarray
    value: float = np.nan  #: the optimal value of the leader
    unit: float = 1.0  #: the size of the upper objective
    x: np.ndarray = field(default_factory=lambda: np.zeros(0))
    y: np.ndarray = field(default_factory=lambda: np.zeros(0))
    x_unit: np.ndarray | float = 1.0  #: the size of each variable
    y_unit: np.ndarray | float = 1.0
    statuses: frozenset[Status] = frozenset({Status.CONVERGED})

    @property
    def well_posed(self) -> bool:
        """Whether there is an answer to find."""
        return Status.CONVERGED in self.statuses


@cache
def quadratic(nx: int, ny: int, m: int, p: int, scalar: bool = False) -> BilevelProblem:
    """g = y'Hy/2 + (c + Cx)'y, gc = Ay + Bx - b, h = Ey + Fx - e; f a distance from (xs, t) plus q'x.

    ``scalar`` gives x and y the shape () instead of (1,).
    """

    def upper(x: Any, y: Any, d: Data) -> Any:
        dx, dy = jnp.ravel(x) - d["xs"], jnp.ravel(y) - d["t"]
        return d["f0"] + 0.5 * jnp.sum(d["W"] * dx**2) + d["q"] @ dx + 0.5 * jnp.sum(d["V"] * dy**2)

    def lower(x: Any, y: Any, d: Data) -> Any:
        x, y = jnp.ravel(x), jnp.ravel(y)
        return 0.5 * y @ d["H"] @ y + (d["c"] + d["C"] @ x) @ y

    def inequality(x: Any, y: Any, d: Data) -> Any:
        return d["A"] @ jnp.ravel(y) + d["B"] @ jnp.ravel(x) - d["b"]

    def equality(x: Any, y: Any, d: Data) -> Any:
        return d["E"] @ jnp.ravel(y) + d["F"] @ jnp.ravel(x) - d["e"]

    return BilevelProblem(
        upper=upper,
        lower=lower,
        inequality=inequality if m else None,
        equality=equality if p else None,
        x_set=Reals(() if scalar else nx),
        y_set=Reals(() if scalar else ny),
        data=empty(nx, ny, m, p),
    )


def empty(nx: int, ny: int, m: int, p: int) -> Data:
    """All numbers of :func:`quadratic`, zero."""
    shapes: dict[str, tuple[int, ...]] = {
        **{"f0": (), "xs": (nx,), "W": (nx,), "q": (nx,), "t": (ny,), "V": (ny,)},
        **{"H": (ny, ny), "c": (ny,), "C": (ny, nx), "A": (m, ny), "B": (m, nx), "b": (m,)},
        **{"E": (p, ny), "F": (p, nx), "e": (p,)},
    }
    return {name: np.zeros(shape) for name, shape in shapes.items()}


@cache
def ball(nx: int, ny: int) -> BilevelProblem:
    """The follower projects c on a ball whose centre moves with x."""

    def upper(x: Any, y: Any, d: Data) -> Any:
        dx = x - d["xs"]
        return d["f0"] + 0.5 * d["W"] * dx @ dx + d["q"] @ dx + 0.5 * jnp.sum((y - d["t"]) ** 2)

    return BilevelProblem(
        upper=upper,
        lower=lambda x, y, d: 0.5 * jnp.sum((y - d["c"]) ** 2),
        inequality=lambda x, y, d: jnp.sum((y - d["D"] @ x - d["e"]) ** 2) - d["r"] ** 2,
        x_set=Box(-10.0, 10.0, shape=nx),
        y_set=Reals(ny),
        data={
            **{"f0": 0.0, "W": 0.0, "r": 1.0, "xs": np.zeros(nx), "q": np.zeros(nx)},
            **{"t": np.zeros(ny), "c": np.zeros(ny), "D": np.zeros((ny, nx)), "e": np.zeros(ny)},
        },
    )


@cache
def toll(n: int) -> BilevelProblem:
    """A price x_i (as a share of the highest one that sells) for each of n goods with linear demand and a capacity."""
    return BilevelProblem(
        upper=lambda x, y, d: d["f0"] - jnp.sum(d["top"] * x * y),
        lower=lambda x, y, d: jnp.sum(0.5 * d["slope"] * y**2 - d["top"] * (1.0 - x) * y),
        inequality=lambda x, y, d: y - d["capacity"],
        x_set=Box(0.0, 1.0, shape=n),
        y_set=Box(0.0, np.inf, shape=n),
        data={"f0": 0.0, "top": np.ones(n), "slope": np.ones(n), "capacity": np.ones(n)},
    )


@cache
def logit(nx: int, ny: int) -> BilevelProblem:
    """Travellers, whose number grows with x, spread over alternatives by a logit model."""

    def upper(x: Any, y: Any, d: Data) -> Any:
        dx = x - d["xs"]
        return d["f0"] + 0.5 * d["W"] * dx @ dx + d["q"] @ dx + 0.5 * jnp.sum((y - d["t"]) ** 2)

    return BilevelProblem(
        upper=upper,
        lower=lambda x, y, d: jnp.sum(y * (jnp.log(y) - 1.0)) - (d["u"] + d["M"] @ x) @ y,
        equality=lambda x, y, d: jnp.sum(y) - 1.0 - d["rho"] @ x,
        x_set=Box(-1.0, 1.0, shape=nx),
        y_set=Box(0.0, np.inf, shape=ny),
        data={
            **{"f0": 0.0, "W": 0.0, "xs": np.zeros(nx), "q": np.zeros(nx), "t": np.zeros(ny)},
            **{"u": np.zeros(ny), "M": np.zeros((ny, nx)), "rho": np.zeros(nx)},
        },
    )


@cache
def broken(kind: str, nx: int, ny: int) -> BilevelProblem:
    """A function that is NaN everywhere, or has a NaN derivative; or a constraint that is not convex."""

    def bad(x: Any, d: Data) -> Any:
        if kind == "slope":
            return jnp.sqrt(0.0 * jnp.sum(x**2))
        return jnp.log(-d["s"] - jnp.sum(x**2))

    where = {"upper": "upper", "slope": "upper", "lower": "lower", "inequality": "inequality", "bent": ""}[kind]

    def upper(x: Any, y: Any, d: Data) -> Any:
        return jnp.sum((x - d["a"]) ** 2) + jnp.sum(y**2) + (bad(x, d) if where == "upper" else 0.0)

    def lower(x: Any, y: Any, d: Data) -> Any:
        return jnp.sum((y - jnp.sum(x)) ** 2) + (bad(x, d) * jnp.sum(y) if where == "lower" else 0.0)

    def inequality(x: Any, y: Any, d: Data) -> Any:
        if kind == "bent":  # the outside of a ball
            return d["s"] - jnp.sum((y - jnp.sum(x)) ** 2)
        return jnp.sum(y) - 10.0 + (bad(x, d) if where == "inequality" else 0.0)

    return BilevelProblem(
        upper=upper,
        lower=lower,
        inequality=inequality,
        x_set=Box(-2.0, 2.0, shape=nx),
        y_set=Box(-5.0, 5.0, shape=ny),
        data={"s": 1.0, "a": np.zeros(nx)},
    )
