"""The Lagrangians of the lower level at a fixed x, as one family.

``L(y, mu, nu; x) = s f + gamma g + <mu, gc> + <nu, h>``. With weights (s, gamma) = (0, 1) this is the follower's own
Lagrangian L_g, with (1, gamma) the penalised one L_F without its constant ``-gamma v(x)``. The weights are traced
numbers, so one compilation serves both.

A leader's constraint ``G(x, y) <= 0`` enters through f: f is then the augmented Lagrangian
``f + (|[lambda + rho G]_+|^2 - |lambda|^2) / (2 rho)``, and (lambda, rho) travel with the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Float
from blocc._lib.operations import largest, largest_positive
from blocc.flat_problem import FlatProblem


class Weights(NamedTuple):
    """Which member of the family: ``s f + gamma g``, and the state of the leader's augmented Lagrangian."""

    upper: Float[AnyArray, "*batch"]  #: s
    lower: Float[AnyArray, "*batch"]  #: gamma
    leader_multipliers: Float[AnyArray, "*batch n_upper"]  #: lambda, one for each component of G
    leader_penalty: Float[AnyArray, "*batch"]  #: rho


class Multipliers(NamedTuple):
    """Multipliers of the coupled constraints ``gc <= 0`` (nonnegative) and ``h == 0`` (free)."""

    inequality: Float[AnyArray, "*batch n_inequality"]
    equality: Float[AnyArray, "*batch n_equality"]


class InnerPairs(NamedTuple):
    """Points of both inner problems: of L_g and of L_F, with the multipliers of each; what is left out is None."""

    y_g: Any = None
    mu_g: Any = None
    y_F: Any = None
    mu_F: Any = None


def weights(flat: FlatProblem, upper: float = 0.0, lower: float = 1.0) -> Weights:
    """Weights without any leader's multiplier yet."""
    return Weights(np.asarray(upper), np.asarray(lower), np.zeros(flat.n_upper_inequality), np.asarray(1.0))


def zero_multipliers(flat: FlatProblem) -> Multipliers:
    """No price on any constraint."""
    return Multipliers(np.zeros(flat.n_inequality), np.zeros(flat.n_equality))


def leader_value(
    flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"], w: Weights
) -> Float[Array, ""]:
    """f, with the leader's own constraints (if any) as an augmented Lagrangian."""
    value = flat.upper(x, y)
    if flat.n_upper_inequality:
        shifted = jnp.maximum(w.leader_multipliers + w.leader_penalty * flat.upper_inequality(x, y), 0.0)
        value = value + (jnp.sum(shifted**2) - jnp.sum(w.leader_multipliers**2)) / (2.0 * w.leader_penalty)
    return value


def objective(flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"], w: Weights) -> Float[Array, ""]:
    """``s f(x, y) + gamma g(x, y)``.

    Where s = 0, f is not evaluated: a NaN of f at a point that only g visits does not count. Where s is 0 already while
    this is traced, f is not even compiled.
    """
    if isinstance(w.upper, np.ndarray) and not w.upper.any():
        return jnp.asarray(w.lower * flat.lower(x, y))
    zero = jnp.zeros((), dtype=y.dtype)
    upper = lax.cond(w.upper == 0.0, lambda: zero, lambda: w.upper * leader_value(flat, x, y, w))
    return upper + w.lower * flat.lower(x, y)


def objective_with_gradient(
    flat: FlatProblem,
    x: Float[AnyArray, "n_x"],
    y: Float[AnyArray, "n_y"],
    w: Weights,
    argnums: int | tuple[int, ...] = 1,
) -> tuple[Float[Array, ""], Any]:
    """The same with its gradient in y, or in (x, y) for ``argnums=(0, 1)``.

    Less to compile than the derivative of :func:`objective`, which leads through the choice whether f is evaluated.
    """

    def slopes(function: Callable[[Array, Array], Any]) -> tuple[Array, Any]:
        return jax.value_and_grad(function, argnums=argnums)(jnp.asarray(x), jnp.asarray(y))

    lower = slopes(lambda a, b: w.lower * flat.lower(a, b))
    if isinstance(w.upper, np.ndarray) and not w.upper.any():
        return lower
    upper = lax.cond(
        w.upper == 0.0,
        lambda: jax.tree.map(jnp.zeros_like, lower),
        lambda: slopes(lambda a, b: w.upper * leader_value(flat, a, b, w)),
    )
    value, gradient = jax.tree.map(lambda one, other: one + other, upper, lower)
    return value, gradient


def lagrangian(
    flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"], multipliers: Multipliers, w: Weights
) -> Float[Array, ""]:
    """``s f + gamma g + <mu, gc> + <nu, h>``."""
    total = objective(flat, x, y, w)
    if flat.n_inequality:
        total = total + jnp.dot(multipliers.inequality, flat.inequality(x, y))
    if flat.n_equality:
        total = total + jnp.dot(multipliers.equality, flat.equality(x, y))
    return total


def exactly(vector: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The same numbers, kept apart from the reductions that follow.

    XLA for CPUs (jaxlib 0.10.2) fuses a reduction with the pads in the gradient of sliced constraints and then sums
    wrongly for vectors of 3e4 entries or more. Rounding a float64 to float64 changes nothing and prevents the fusion.
    """
    return lax.reduce_precision(vector, exponent_bits=11, mantissa_bits=52)


def gradient_x(
    flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"], multipliers: Multipliers, w: Weights
) -> Float[Array, "n_x"]:
    """Derivative of the Lagrangian in x with y and the multipliers held fixed (Danskin's rule at a saddle point)."""
    return exactly(jax.grad(lagrangian, argnums=1)(flat, x, y, multipliers, w))


def gradient_y(
    flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"], multipliers: Multipliers, w: Weights
) -> Float[Array, "n_y"]:
    """Derivative of the Lagrangian in y: one reverse sweep, no Jacobian is ever formed."""
    return exactly(jax.grad(lagrangian, argnums=2)(flat, x, y, multipliers, w))


class Residuals(NamedTuple):
    """How far (y, mu, nu) is from a saddle point; each is the largest absolute entry."""

    stationarity: Float[AnyArray, "*batch"]  #: ``y - P_Y(y - dL/dy)``
    feasibility: Float[AnyArray, "*batch"]  #: ``[gc]_+``, ``|h|`` and the distance of y to Y
    complementarity: Float[AnyArray, "*batch"]  #: ``min(mu, -gc)`` where gc <= 0, and ``[-mu]_+``


class Expansion(NamedTuple):
    """The Lagrangian at one point with its first derivatives, out of one sweep over the problem's functions."""

    value: Float[Array, ""]
    objective: Float[Array, ""]  #: ``s f + gamma g`` alone
    inequality: Float[Array, "n_inequality"]
    equality: Float[Array, "n_equality"]
    gradient_x: Float[Array, "n_x"]
    gradient_y: Float[Array, "n_y"]


def expand(
    flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"], multipliers: Multipliers, w: Weights
) -> Expansion:
    """Value and first derivatives together: less to compile than each for itself."""
    at_x, at_y = jnp.asarray(x), jnp.asarray(y)
    value, slopes = objective_with_gradient(flat, at_x, at_y, w, (0, 1))
    total, rows = value, []
    for function, count, price in zip(
        (flat.inequality, flat.equality), (flat.n_inequality, flat.n_equality), multipliers, strict=True
    ):
        if count == 0:  # nothing is compiled for rows that are not there
            rows.append(jnp.zeros(0, at_y.dtype))
            continue
        row, pull = jax.vjp(function, at_x, at_y)
        rows.append(row)
        total = total + jnp.dot(price, row)
        slopes = [slope + priced for slope, priced in zip(slopes, pull(jnp.asarray(price)), strict=True)]
    return Expansion(total, value, *rows, *(exactly(slope) for slope in slopes))


def residuals(
    flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"], multipliers: Multipliers, w: Weights
) -> Residuals:
    """KKT residuals of a candidate saddle point, from the problem's functions alone."""
    return residuals_of(flat, x, y, multipliers, w, expand(flat, x, y, multipliers, w))


def residuals_of(
    flat: FlatProblem,
    x: Float[AnyArray, "n_x"],
    y: Float[AnyArray, "n_y"],
    multipliers: Multipliers,
    w: Weights,
    here: Expansion,
) -> Residuals:
    """The same where the Lagrangian's derivatives are known."""
    inside = flat.y_set.project_flat(y)
    step = inside - flat.backward(x, inside - here.gradient_y, w.lower)
    feasibility = jnp.maximum(largest_positive(here.inequality), largest(inside - y))
    if flat.n_equality:
        feasibility = jnp.maximum(feasibility, largest(here.equality))
    complementarity = jnp.zeros_like(feasibility)
    if flat.n_inequality:
        # min(mu, slack) is a length that survives a large multiplier on a constraint that is active to rounding.
        slack = jnp.maximum(-here.inequality, 0.0)
        least = largest(jnp.minimum(multipliers.inequality, slack))
        complementarity = jnp.maximum(least, largest_positive(-multipliers.inequality))
    # At an astronomic y the step is lost in rounding, and a diverging point must not pass for stationary.
    rounding = 2e-16 * largest(y)
    return Residuals(largest(step) + rounding, feasibility, complementarity)


class Figures(NamedTuple):
    """What a certificate tells about (x, y) and the follower's multipliers."""

    upper: Float[AnyArray, ""]
    lower: Float[AnyArray, ""]
    upper_inequality: Float[AnyArray, "n_upper"]
    residuals: Residuals


def _figures(
    flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"], multipliers: Multipliers
) -> Figures:
    found = residuals(flat, x, y, multipliers, weights(flat))
    return Figures(flat.upper(x, y), flat.lower(x, y), flat.upper_inequality(x, y), found)


def figures(
    flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"], multipliers: Multipliers
) -> Figures:
    """Values and residuals of the follower's problem at one point, compiled once for each problem."""
    at_x, at_y, *prices = (np.asarray(part, dtype=np.float64) for part in (x, y, *multipliers))
    found: Figures = flat.program(_figures)(at_x, at_y, Multipliers(*prices))
    return found
