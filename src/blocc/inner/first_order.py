"""What the first-order oracles share: constants that set step lengths, and the verdict on an iterate.

Everything is matrix-free: Hessians and Jacobians are only ever applied to vectors. Inequalities and equalities are
stacked, ``G = (gc, h)``, and so are their multipliers; only the projection on the multipliers' cone tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array
from blocc._lib.rounding import KEPT
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerCode
from blocc.lagrangian import Multipliers, Weights, exactly, objective

#: A ray is followed this far (times the size of y) before a problem is called unbounded or infeasible.
HORIZON = 1e6


# --- stacked constraints ------------------------------------------------------------------------------------------
def constraints(flat: FlatProblem, x: Array, y: Array) -> Array:
    """``G(y) = (gc(x, y), h(x, y))``."""
    return jnp.concatenate([flat.inequality(x, y), flat.equality(x, y)])


def stack(multipliers: Multipliers) -> Array:
    """Both kinds of multipliers as one vector, in the order of :func:`constraints`."""
    return jnp.concatenate([multipliers.inequality, multipliers.equality])


def unstack(flat: FlatProblem, prices: Array) -> Multipliers:
    """The inverse of :func:`stack`."""
    return Multipliers(prices[: flat.n_inequality], prices[flat.n_inequality :])


def project_cone(flat: FlatProblem, prices: Array) -> Array:
    """Nearest admissible multipliers: nonnegative for inequalities, unchanged for equalities."""
    inequality, equality = unstack(flat, prices)
    return jnp.concatenate([jnp.maximum(inequality, 0.0), equality])


# --- constants ----------------------------------------------------------------------------------------------------
class Constants(NamedTuple):
    """Local constants of the Lagrangian in y, as estimated by a few operator products."""

    lipschitz: Array  #: Lipschitz constant of the derivative of L in y: the Hessian's largest eigenvalue
    strong_convexity: Array  #: the Hessian's smallest eigenvalue, zero at least
    jacobian_norm: Array  #: spectral norm of the Jacobian of (gc, h) in y


def flat_spectrum_vector(size: int) -> Array:
    """A fixed vector with a flat spectrum, so that no structured operator has its eigenvectors orthogonal to it."""
    return jnp.cos(jnp.arange(1, size + 1, dtype=jnp.float64) ** 2)


def dominant_eigenvalue(
    operator: Callable[[Array], Array], size: int, iterations: int = 60, accuracy: float = 1e-2
) -> Array:
    """Eigenvalue of largest modulus of a symmetric operator, by power iteration.

    Stops when the vector is an eigenvector up to ``accuracy`` (a Rayleigh quotient that has stopped moving is no proof:
    it lingers at the second eigenvalue). The estimate errs towards zero.
    """
    start = flat_spectrum_vector(size)

    def go_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, value, residual, count = carry
        return (count < iterations) & ~(residual <= accuracy * jnp.abs(value))

    def multiply(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        vector, _, _, count = carry
        image = exactly(operator(vector))
        norm = jnp.linalg.norm(image)
        value = jnp.dot(vector, image)
        residual = jnp.linalg.norm(image - value * vector)
        # A zero image leaves the vector as it is: value and residual are then zero and the loop ends.
        following = jnp.where(norm > 0.0, image / jnp.where(norm > 0.0, norm, 1.0), vector)
        return following, value, residual, count + 1

    first = (start / jnp.linalg.norm(start), jnp.zeros(()), jnp.asarray(jnp.inf), jnp.asarray(0))
    return jax.lax.while_loop(go_on, multiply, first)[1]


def estimate_constants(
    flat: FlatProblem, x: Array, y: Array, multipliers: Multipliers, w: Weights, iterations: int = 60
) -> Constants:
    """Estimate the constants at ``(x, y, multipliers)`` from Hessian-vector and Jacobian-vector products.

    The Lipschitz constant and the Jacobian's norm come out slightly low and the strong convexity slightly high, so
    step lengths made of them need a margin or a safeguard.
    """
    prices = stack(multipliers)

    def gradient(point: Array) -> Array:
        _, pull = jax.vjp(lambda v: (objective(flat, x, v, w), constraints(flat, x, v)), point)
        return pull((jnp.ones(()), prices))[0]

    # Linearising once means that the user's functions are traced once, however many products follow.
    _, hessian = jax.linearize(gradient, y)

    def search(shift: Array, _: None) -> tuple[Array, Array]:
        value = dominant_eigenvalue(lambda v: shift * v - hessian(v), flat.n_y, iterations)
        return jnp.abs(value), value

    # Shift zero finds the largest eigenvalue; shifting by it turns the smallest one into the dominant one.
    _, (negative_largest, gap) = jax.lax.scan(search, jnp.zeros(()), None, length=2)
    largest = jnp.abs(negative_largest)
    return Constants(largest, jnp.clip(largest - gap, 0.0, largest), jacobian_norm(flat, x, y, iterations))


def jacobian_norm(flat: FlatProblem, x: Array, y: Array, iterations: int = 60) -> Array:
    """Spectral norm of the Jacobian of (gc, h) in y, by power iteration on J^T J."""
    if flat.n_inequality + flat.n_equality == 0:
        return jnp.zeros(())
    _, push = jax.linearize(lambda v: constraints(flat, x, v), y)
    pull = jax.linear_transpose(push, y)
    square = dominant_eigenvalue(lambda v: pull(push(v))[0], flat.n_y, iterations)
    return jnp.sqrt(jnp.maximum(square, 0.0))


def row_norms(flat: FlatProblem, x: Array, y: Array, probes: int = 16) -> Array:
    """Norms of the rows of the Jacobian, from products with random vectors; one where a row vanishes.

    Dividing each constraint by the norm of its gradient spares the method constraints of very different units.
    """
    if flat.n_inequality + flat.n_equality == 0:
        return jnp.ones(0)
    _, push = jax.linearize(lambda v: constraints(flat, x, v), y)
    seed, unit = jax.random.key(0), 3.0**0.5  # the uniform law on [-unit, unit] has variance one

    def probe(i: Array, total: Array) -> Array:
        vector = jax.random.uniform(jax.random.fold_in(seed, i), y.shape, y.dtype, -unit, unit)
        return total + push(vector) ** 2 / probes

    # Sixteen probes: with fewer, a row of few entries could by chance look much shorter than it is.
    square = jax.lax.fori_loop(0, probes, probe, jnp.zeros(flat.n_inequality + flat.n_equality))
    norms = jnp.sqrt(jnp.where(jnp.isfinite(square), square, 0.0))
    floored = jnp.maximum(norms, 1e-3 * jnp.max(norms, initial=0.0))
    return jnp.where(floored > 0.0, floored, 1.0)


# --- verdict on an iterate ----------------------------------------------------------------------------------------
class Assessment(NamedTuple):
    """The problem's functions at one (y, multipliers), and how far that is from a saddle point."""

    value: Array  #: phi = s f + gamma g
    gradient: Array  #: d phi / dy
    constraint: Array  #: G(y)
    pull: Array  #: J(y)^T prices
    error: Array  #: largest KKT residual, each relative to its scale; infinite where something is not finite


def evaluate(flat: FlatProblem, x: Array, w: Weights, y: Array, prices: Array) -> Assessment:
    """Evaluate every function once at (y, prices)."""
    value, gradient = jax.value_and_grad(lambda v: objective(flat, x, v, w))(y)
    constraint, transpose = jax.vjp(lambda v: constraints(flat, x, v), y)
    gradient, constraint, pull = exactly(gradient), exactly(constraint), exactly(transpose(prices)[0])
    largest = lambda vector: jnp.max(jnp.abs(vector), initial=0.0)  # noqa: E731
    inequality, equality = constraint[: flat.n_inequality], constraint[flat.n_inequality :]
    mu = prices[: flat.n_inequality]
    inside = flat.y_set.project_flat(y)
    step = inside - flat.y_set.project_flat(inside - gradient - pull)
    # A huge y swallows the gradient in rounding; what it may have swallowed counts as residual.
    stationarity = largest(step) + 2e-16 * largest(y)
    feasibility = jnp.maximum(jnp.max(inequality, initial=0.0), largest(equality))
    complementarity = largest(jnp.minimum(mu, jnp.maximum(-inequality, 0.0)))
    error = jnp.maximum(
        stationarity / (1.0 + largest(gradient)),
        jnp.maximum(feasibility / (1.0 + largest(y)), complementarity / (1.0 + largest(mu))),
    )
    finite = jnp.isfinite(value) & jnp.isfinite(error)
    return Assessment(value, gradient, constraint, pull, jnp.where(finite, error, jnp.inf))


class Rays(NamedTuple):
    """Directions in which the iterates run, candidates for certificates."""

    y: Array  #: unit vector, or zero
    prices: Array  #: in the multipliers' cone, largest entry one, or zero
    length: Array  #: how far along ``y`` the objective is looked at


def rays(flat: FlatProblem, y: Array, prices: Array, last_y: Array, last_prices: Array) -> Rays:
    """Directions from the last iterate to the present one."""
    direction = y - last_y
    norm = jnp.linalg.norm(direction)
    trend = project_cone(flat, prices - last_prices)
    top = jnp.max(jnp.abs(trend), initial=0.0)
    return Rays(
        direction / jnp.where(norm > 0.0, norm, 1.0),
        trend / jnp.where(top > 0.0, top, 1.0),
        HORIZON * (1.0 + jnp.linalg.norm(y)),
    )


def is_unbounded(flat: FlatProblem, y: Array, ray: Rays, near: Assessment, far: Assessment) -> Array:
    """Whether the objective falls at a steady slope along a ray that stays feasible up to the horizon.

    ``near`` is the evaluation at y, ``far`` the one at ``y + length * ray``. The slope must not fade (an objective
    like exp(-y) has no minimiser but is not unbounded).
    """
    slope = jnp.dot(near.gradient, ray.y)
    falls = (slope < -KEPT * jnp.linalg.norm(near.gradient)) & (far.value <= near.value + 0.5 * ray.length * slope)
    inequality, equality = unstack(flat, far.constraint)
    violation = jnp.maximum(jnp.max(inequality, initial=0.0), jnp.max(jnp.abs(equality), initial=0.0))
    end = y + ray.length * ray.y
    outside = jnp.max(jnp.abs(end - flat.y_set.project_flat(end)), initial=0.0)
    return falls & (jnp.maximum(violation, outside) <= KEPT * ray.length)


def is_infeasible(flat: FlatProblem, y: Array, ray: Rays, priced: Assessment) -> Array:
    """Whether ``ray.prices`` is a Farkas-type certificate: <prices, G> is positive and y minimises it over Y.

    ``priced`` is the evaluation at (y, ray.prices). By convexity no feasible point then lies within the horizon of y.
    """
    support = jnp.dot(ray.prices, priced.constraint)
    residual = y - flat.y_set.project_flat(y - priced.pull)
    size = jnp.linalg.norm(y)
    lost = jnp.linalg.norm(residual) + 1e-15 * size
    return (support > 0.0) & (lost * HORIZON * (1.0 + size + jnp.linalg.norm(priced.pull)) <= support)


def verdict(converged: Array, infeasible: Array, unbounded: Array, broken: Array) -> Array:
    """The code of a solve that stops for the first of these reasons; STALLED when none holds."""
    code = jnp.asarray(int(InnerCode.STALLED))
    for reason, holds in (
        (InnerCode.NOT_FINITE, broken),
        (InnerCode.UNBOUNDED, unbounded),
        (InnerCode.INFEASIBLE, infeasible),
        (InnerCode.CONVERGED, converged),
    ):
        code = jnp.where(holds, int(reason), code)
    return code
