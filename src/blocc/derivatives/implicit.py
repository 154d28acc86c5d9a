"""The minimiser of a smooth program as a function of its parameters, by the implicit function theorem.

    z(p) = argmin over low <= z <= high of objective(z, p)   subject to   inequality(z, p) <= 0, equality(z, p) = 0

Where z is regular, the rows that hold it stay the same when p moves a little, and the KKT conditions on these rows are
a system of equations with an invertible matrix. Rows that do not hold z, and coordinates at a bound, are masked and not
taken out, so that shapes never change and everything can be compiled, batched and differentiated in both modes and any
number of times. Follower and leader are both programs of this kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, PyTree
from blocc._lib.rounding import ROUNDED, TINY

#: A row is neither held nor slack where both its price and its slack are below this, relative to their sizes.
STRICT = 1e-6
#: Largest condition number of a KKT matrix, in balanced variables, that is called regular.
_CONDITION = 1e9
#: Largest residual, relative to the terms it is made of, of a point that counts as a minimiser.
SOLVED = 1e-7

Function = Callable[[Array, PyTree], Array]


@dataclass(frozen=True, eq=False)
class ParametricProgram:
    """Functions of (z, p), and bounds that do not depend on p."""

    objective: Function
    inequality: Function
    equality: Function
    low: Float[AnyArray, "n"]
    high: Float[AnyArray, "n"]


class KKTPoint(NamedTuple):
    """A candidate: z and the multipliers of its rows. Those of bounds follow from the gradient of the Lagrangian."""

    z: Float[Array, "*batch n"]
    inequality: Float[Array, "*batch n_inequality"]
    equality: Float[Array, "*batch n_equality"]


class ActiveSet(NamedTuple):
    """What holds z: masks of ones and zeros, in floats because they travel with what is differentiated."""

    held: Float[Array, "*batch n_inequality"]
    free: Float[Array, "*batch n"]  #: coordinates that are not held by a bound
    regular: Float[Array, "*batch"]  #: 0 where z(p) has no derivative


class Finding(IntEnum):
    """Whether z(p) has a derivative at p, or the first reason why not."""

    REGULAR = 0
    NOT_SOLVED = 1  #: z is no minimiser, by its residuals
    NOT_STRICT = 2  #: a row or a bound is touched without a price: z(p) may have a kink
    DEPENDENT = 3  #: normals of the rows that hold z are linearly dependent: multipliers are not unique
    NOT_CURVED = 4  #: the objective has no curvature in a direction in which z is free


class Local(NamedTuple):
    """A program at one point, with derivatives and the sizes to measure by."""

    gradient: Array  #: of the Lagrangian
    hessian: Array
    inequality: Array
    jacobian: Array
    equality: Array
    equality_jacobian: Array
    size: Array  #: of the variables
    slope: Array  #: of each variable: the terms that the gradient is made of, times its size
    row_size: Array
    equality_size: Array


def lagrangian(program: ParametricProgram, point: KKTPoint, p: PyTree) -> Array:
    """Objective and priced rows."""
    value = program.objective(point.z, p) + jnp.dot(point.inequality, program.inequality(point.z, p))
    return value + jnp.dot(point.equality, program.equality(point.z, p))


def gradient_of(program: ParametricProgram, point: KKTPoint, p: PyTree) -> Array:
    """Of the Lagrangian in z."""
    return jax.grad(lambda z: lagrangian(program, point._replace(z=z), p))(point.z)


def expand(program: ParametricProgram, point: KKTPoint, p: PyTree) -> Local:
    """Everything of a program at one point."""
    z = point.z
    gradient = gradient_of(program, point, p)
    hessian = jax.jacfwd(lambda w: gradient_of(program, point._replace(z=w), p))(z)
    inequality, jacobian = program.inequality(z, p), jax.jacfwd(program.inequality)(z, p)
    equality, equality_jacobian = program.equality(z, p), jax.jacfwd(program.equality)(z, p)
    size = jnp.maximum(1.0, jnp.abs(z))
    terms = jnp.abs(jax.grad(program.objective)(z, p)) + jnp.abs(hessian) @ size
    slope = jnp.maximum(terms * size, ROUNDED * jnp.max(terms * size, initial=0.0)) + TINY
    row_size = jnp.maximum(jnp.abs(jacobian) @ size, TINY)
    equality_size = jnp.maximum(jnp.abs(equality_jacobian) @ size, TINY)
    return Local(
        gradient,
        hessian,
        inequality,
        jacobian,
        equality,
        equality_jacobian,
        size,
        slope,
        row_size,
        equality_size,
    )


def fit_multipliers(
    program: ParametricProgram, z: Float[AnyArray, "n"], p: PyTree, rows: tuple[int, int], touched: float
) -> KKTPoint:
    """Multipliers at z alone: the least-squares fit of the gradient by the rows with a slack of at most ``touched``."""
    z = jnp.asarray(z)
    here = expand(program, KKTPoint(z, *(jnp.zeros(count) for count in rows)), p)
    near = (here.inequality >= -touched * here.row_size).astype(z.dtype)
    away = (z - program.low > touched * here.size) & (program.high - z > touched * here.size)
    normals = jnp.concatenate([here.jacobian * near[:, None], here.equality_jacobian]) * away
    if not normals.shape[0]:
        return KKTPoint(z, *(jnp.zeros(count) for count in rows))
    prices = jnp.linalg.lstsq(normals.T, -here.gradient * away)[0]
    return KKTPoint(z, prices[: rows[0]] * near, prices[rows[0] :])


def _identify(program: ParametricProgram, point: KKTPoint, here: Local) -> tuple[ActiveSet, Bool[Array, ""]]:
    """Rows and bounds whose price exceeds their slack hold z; and whether it is clear for each of them which it is."""
    largest = jnp.max(here.slope, initial=TINY)
    price, slack = point.inequality * here.row_size / largest, -here.inequality / here.row_size
    held = price > slack
    slope = here.gradient * here.size / largest
    below, above = (point.z - program.low) / here.size, (program.high - point.z) / here.size
    fixed = jnp.asarray(program.low == program.high)
    bound = (slope > below) | (-slope > above) | fixed
    sure = (jnp.maximum(price, slack) > STRICT).all()
    sure &= (fixed | ((jnp.maximum(slope, below) > STRICT) & (jnp.maximum(-slope, above) > STRICT))).all()
    masks = held.astype(point.z.dtype), 1.0 - bound.astype(point.z.dtype)
    return ActiveSet(*masks, regular=jnp.ones((), point.z.dtype)), sure


def _matrix(active: ActiveSet, here: Local) -> Array:
    """The KKT matrix of the rows that hold z, with minus one and one in the diagonal for what is masked."""
    rows = jnp.concatenate([here.jacobian * active.held[:, None], here.equality_jacobian]) * active.free
    masked = jnp.concatenate([1.0 - active.held, jnp.zeros_like(here.equality)])
    corner = here.hessian * active.free * active.free[:, None] + jnp.diag(1.0 - active.free)
    return jnp.block([[corner, rows.T], [rows, -jnp.diag(masked)]])


def _residual(program: ParametricProgram, point: KKTPoint, active: ActiveSet, p: PyTree) -> Array:
    """What must vanish: the rows of the KKT conditions in the order of the matrix."""
    return jnp.concatenate(
        [
            active.free * gradient_of(program, point, p),
            active.held * program.inequality(point.z, p) - (1.0 - active.held) * point.inequality,
            program.equality(point.z, p),
        ]
    )


def _split(point: KKTPoint, vector: Array) -> KKTPoint:
    """A vector in the order of the matrix, in parts."""
    n, m = point.z.size, point.z.size + point.inequality.size
    return KKTPoint(vector[:n], vector[n:m], vector[m:])


def newton_step(program: ParametricProgram, point: KKTPoint, p: PyTree) -> KKTPoint:
    """One Newton step on the rows that hold z; the point itself where the matrix is singular."""
    here = expand(program, point, p)
    active, _ = _identify(program, point, here)
    step = jnp.linalg.solve(_matrix(active, here), -_residual(program, point, active, p))
    # Coordinates that a bound holds go to the bound: the smaller distance is the one that is held.
    nearest = jnp.where(point.z - program.low < program.high - point.z, program.low, program.high)
    moved = KKTPoint(*(old + change for old, change in zip(point, _split(point, step), strict=True)))
    z = jnp.where(active.free > 0.0, jnp.clip(moved.z, program.low, program.high), nearest)
    moved = moved._replace(z=z, inequality=moved.inequality * active.held)
    return jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(step).all(), new, old), moved, point)


class Examined(NamedTuple):
    """A point, what holds it, and whether z(p) has a derivative there."""

    point: KKTPoint
    active: ActiveSet
    finding: Int[Array, ""]  #: a :class:`Finding`
    error: Float[Array, ""]  #: largest residual, relative to the terms it is made of


def examine(program: ParametricProgram, point: KKTPoint, p: PyTree) -> Examined:
    """Measure a point: a minimiser, strictly complementary, with independent rows, curved where it is free?"""
    here = expand(program, point, p)
    active, sure = _identify(program, point, here)
    error = _error(active, point, here)
    # Balanced: variables by their sizes over the root of the slope, rows by their lengths.
    unit = jnp.where(active.free > 0.0, here.size / jnp.sqrt(here.slope), 1.0)
    normals = jnp.concatenate([here.jacobian, here.equality_jacobian]) * active.free * unit
    lengths = jnp.linalg.norm(normals, axis=1)
    kept = jnp.concatenate([active.held, jnp.ones_like(here.equality)])
    row_unit = jnp.where((kept > 0.0) & (lengths > 0.0), 1.0 / jnp.where(lengths > 0.0, lengths, 1.0), 1.0)
    scale = jnp.concatenate([unit, row_unit])
    values = jnp.linalg.eigvalsh(_matrix(active, here) * scale * scale[:, None])
    balanced = normals * (row_unit * kept)[:, None]
    spread = jnp.linalg.eigvalsh(balanced @ balanced.T + jnp.diag(1.0 - kept)) if kept.size else jnp.ones(1)
    # A minimum on the held rows: as many negative eigenvalues as there are rows, and none near zero.
    curved = (jnp.min(jnp.abs(values)) * _CONDITION > jnp.max(jnp.abs(values))) & (jnp.sum(values < 0.0) == kept.size)
    finding = jnp.asarray(int(Finding.REGULAR))
    for holds, otherwise in (
        (curved, Finding.NOT_CURVED),
        (spread[0] * _CONDITION > spread[-1], Finding.DEPENDENT),
        (sure, Finding.NOT_STRICT),
        (error <= SOLVED, Finding.NOT_SOLVED),
    ):
        finding = jnp.where(holds, finding, int(otherwise))
    regular = (finding == int(Finding.REGULAR)).astype(point.z.dtype)
    return Examined(point, active._replace(regular=regular), finding, error)


def _error(active: ActiveSet, point: KKTPoint, here: Local) -> Array:
    """The largest residual, each relative to what it is made of."""
    largest = jnp.max(here.slope, initial=TINY)
    terms = here.slope + here.size * (
        jnp.abs(here.jacobian).T @ jnp.abs(point.inequality)
        + jnp.abs(here.equality_jacobian).T @ jnp.abs(point.equality)
    )
    parts = [
        active.free * jnp.abs(here.gradient) * here.size / terms,
        jnp.maximum(here.inequality, active.held * jnp.abs(here.inequality)) / here.row_size,
        -point.inequality * here.row_size / largest,
        jnp.abs(here.equality) / here.equality_size,
    ]
    return jnp.max(jnp.concatenate(parts), initial=0.0)


def follow(program: ParametricProgram, point: KKTPoint, active: ActiveSet, p: PyTree) -> KKTPoint:
    """``point``, the answer at p, as a differentiable function of p alone; of derivative zero where it is not regular.

    ``program`` must close over nothing that is traced: whatever may be traced belongs to p.
    """

    @jax.custom_jvp
    def answer(p: PyTree, point: KKTPoint, active: ActiveSet) -> KKTPoint:
        return point

    @answer.defjvp
    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[KKTPoint, KKTPoint]:
        p, point, active = primals
        point = answer(p, point, active)  # and not its value alone: the rule itself may be differentiated
        matrix = _matrix(active, expand(program, point, p))
        matrix = jnp.where(active.regular > 0.0, matrix, jnp.eye(matrix.shape[0]))
        right = jax.jvp(lambda q: _residual(program, point, active, q), (p,), (tangents[0],))[1]
        return point, _split(point, jnp.linalg.solve(matrix, -active.regular * right))

    return answer(p, *lax.stop_gradient((point, active)))


def spoil(tree: PyTree, usable: Bool[Array, "*shape"], zero_is_safe: bool = False) -> PyTree:
    """The same numbers, with NaN for all their derivatives where they are not usable.

    ``zero_is_safe``: numbers that do not move spoil nothing.
    """

    @jax.custom_jvp
    def same(tree: PyTree, usable: Array) -> PyTree:
        return tree

    @same.defjvp
    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[PyTree, PyTree]:
        factor = jnp.where(primals[1], 1.0, jnp.nan)
        # Backwards, a part that nobody asks for must not spoil the others: zero times NaN would.
        # A linear solve is the one operation of JAX whose transpose can be given.
        always = lambda _, tree: jax.tree.map(lambda part: factor * part, tree)  # noqa: E731
        moved = lambda _, tree: jax.tree.map(lambda part: jnp.where(part == 0.0, 0.0, factor * part), tree)  # noqa: E731
        changes = lax.custom_linear_solve(
            lambda tree: jax.tree.map(lambda part: part / factor, tree),
            tangents[0],
            moved if zero_is_safe else always,
            moved,
        )
        return same(*primals), changes

    return same(tree, usable)
