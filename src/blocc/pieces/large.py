"""Pieces of large followers: sparse KKT matrices where variables meet few others, or none and few rows eliminated.

With matrices the KKT system of a piece is factored by SuperLU. Without, bounds that are held leave the system with
their variables, and the few rows left by a Schur complement: conjugate gradients solve

    [H + N' R N] [v  W] = [r + N' R b  N'],   (N W) p = N v - b,   u = v - W p

for H u + N' p = r, N u = b. What the rows add to H changes no solution, and makes the matrix definite where H is so
only on their null space (Hestenes 1969).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sparse_linalg

from blocc._lib.arrays import Array, Float, NDArray
from blocc._lib.rounding import HALF_DIGITS, TINY
from blocc.flat_problem import FlatProblem
from blocc.inner.augmented import MOST_ROWS
from blocc.inner.colouring import Coloured
from blocc.inner.conjugate_gradients import Scales, conjugate_gradients, scales_of
from blocc.inner.sparse_interior_point import cheap_pattern
from blocc.local.derivatives import TOGETHER, Local, equalities, inequalities, priced
from blocc.local.follower import Rows
from blocc.local.scales import Sizes, reach
from blocc.pieces.piece import Followers, Piece, Solve
from blocc.pieces.settings import SETTINGS, Settings

#: Products of conjugate gradients for one system, and the residual that they end at, relative to the right side.
_PRODUCTS, _ACCURACY = 2000, 1e-13


class Wide(NamedTuple):
    """All functions at one point: the names of :class:`~blocc.local.derivatives.Local`, Jacobians dense or sparse.

    Of second derivatives there are those of the follower's Lagrangian in y alone, where they are sparse, and its slopes
    in x.
    """

    upper: NDArray
    upper_gradient: NDArray
    lower: NDArray
    lower_gradient: NDArray
    inequality: NDArray
    equality: NDArray
    upper_inequality: NDArray
    upper_inequality_jacobian: NDArray
    x_inequality: NDArray
    x_inequality_jacobian: NDArray
    x_equality: NDArray
    x_equality_jacobian: NDArray
    by_x: Float[NDArray, "n_y+rows n_x"]  #: of dL/dy, the inequalities and the equalities
    inequality_jacobian: sp.csr_array
    equality_jacobian: sp.csr_array
    hessian: sp.csr_array | None  #: of L in y
    bent: bool = True

    @property
    def finite(self) -> bool:
        """Whether every number is finite."""
        dense = [np.isfinite(part).all() for part in self[:13]]
        sparse = [np.isfinite(part.data).all() for part in self[13:16] if part is not None]
        return bool(all(dense) and all(sparse))


class Patterns(NamedTuple):
    """Which entries the follower's matrices have; None for a Hessian that is only applied to vectors."""

    hessian: Coloured | None
    inequality: Coloured | None
    equality: Coloured | None


@dataclass(frozen=True)
class LargeFollowers(Followers):
    """The pieces of a large follower of few leaders."""

    patterns: Patterns | None = None
    scales: Scales | None = None  #: of the Hessian, where there is no matrix

    @property
    def is_large(self) -> bool:
        """Whether pieces may be so many that f(x, y(x)) looks smooth across them."""
        return True

    @classmethod
    def around(cls, flat: FlatProblem, x: np.ndarray, y: np.ndarray, settings: Settings) -> LargeFollowers | None:
        """None where a model in x costs more than a quasi-Newton method, or the follower is neither sparse nor loose.

        One solution of the system for each variable and row of the leader's is what a step costs.
        """
        if flat.n_x + flat.n_upper_inequality > MOST_ROWS or not flat.y_set.is_smooth:
            return None
        patterns = flat.once(_patterns)
        if patterns is None:
            return None
        sizes = Sizes(reach(*flat.x_set.bounds_flat(), x), reach(*flat.y_set.bounds_flat(), y))
        made = cls(flat, sizes, settings, patterns)
        found = made.derivatives(x, y)
        if not found.finite:
            return None
        scales = None if found.hessian is not None else flat.program(_scales)(x, y)
        return cls(flat, sizes, settings, patterns, scales)

    def derivatives(  # type: ignore[override]
        self, x: np.ndarray, y: np.ndarray, mu: np.ndarray | None = None, nu: np.ndarray | None = None
    ) -> Wide:
        """All functions at one point, with multipliers of the general rows."""
        flat, patterns = self.flat, self.patterns
        assert patterns is not None
        prices = [np.zeros(n) if p is None else p for n, p in zip(flat.follower_rows, (mu, nu), strict=True)]
        found: Any = flat.program(_wide, *patterns)(x, y, *prices)
        *dense, inequality, equality, hessian = found
        by_x, (general, _) = dense[-1], flat.follower_rows
        rows = by_x[flat.n_y :]
        sparse = (
            _joined(rows[:general], _matrix(patterns.inequality, inequality)),
            _joined(rows[general:], _matrix(patterns.equality, equality)),
            None if patterns.hessian is None else _matrix(patterns.hessian, hessian),
        )
        return Wide._make((*dense, *sparse, True))

    def cross(self, found: Local | Wide) -> Float[NDArray, "n_y n_x"]:
        """The derivative of dL/dy in x."""
        assert isinstance(found, Wide)
        return found.by_x[: self.flat.n_y]

    def rows(self, found: Local | Wide, y: np.ndarray) -> Rows:
        """All inequalities of the follower; their Jacobian is sparse."""
        n_x, n_y = self.flat.n_x, self.flat.n_y
        low, high = self.flat.y_set.bounds_flat()
        below, above = np.isfinite(low), np.isfinite(high)
        identity = sp.eye_array(n_y, n_x + n_y, k=n_x, format="csr")
        jacobian = sp.csr_array(sp.vstack([found.inequality_jacobian, -identity[below], identity[above]]))
        value = np.concatenate([found.inequality, (low - y)[below], (y - high)[above]])
        return Rows(value, jacobian, abs(jacobian) @ self.sizes.both)

    def slopes(self, found: Local | Wide) -> Float[NDArray, "n_y"]:
        """The scale of dg/dy, times the sizes of y."""
        assert isinstance(found, Wide)
        own = np.abs(found.lower_gradient[self.flat.n_x :]) + np.abs(self.cross(found)) @ self.sizes.x
        if found.hessian is not None:
            own = own + abs(found.hessian) @ self.sizes.y
        elif self.scales is not None:
            own = own + float(self.scales.largest) * self.sizes.y
        steepest = float(np.max(own * self.sizes.y, initial=TINY))
        return np.full(len(own), steepest)

    def exchanged(self, piece: Piece, row: int) -> None:
        """Rows that depend on others are left to the oracle."""

    def identified(self, x: np.ndarray, y: np.ndarray) -> Piece | None:
        """The piece of all rows that an answer touches; its own multipliers tell which of them leave."""
        found = self.derivatives(x, y)
        if not found.finite:
            return None
        rows = self.rows(found, y)
        touched = np.flatnonzero(rows.value >= -self.settings.touched * np.maximum(rows.size, TINY))
        return self.respond(x, y, touched, np.zeros(len(rows.value)), np.zeros(len(found.equality)))

    def _system(self, x: np.ndarray, y: np.ndarray, held: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> Piece | None:
        """The system of the rows ``held``; None if it is singular."""
        n_x, n_y, (general, _) = self.flat.n_x, self.flat.n_y, self.flat.follower_rows
        found = self.derivatives(x, y, mu[:general], nu)
        if not found.finite:
            return None
        rows = self.rows(found, y)
        normals = sp.csr_array(sp.vstack([rows.jacobian[held], found.equality_jacobian]))[:, n_x:]
        lengths = np.sqrt(np.asarray(normals.multiply(normals).sum(axis=1)).ravel())
        if normals.shape[0] > n_y or not (lengths > 0.0).all():
            return None
        slopes = self.slopes(found)
        steep = float(np.max(slopes))
        at = Piece(x, y, held, mu, nu, found, rows, steep, _nothing, self)  # type: ignore[arg-type]
        solve = _factored(found.hessian, normals, lengths) if found.hessian is not None else self._free(at, normals)
        return None if solve is None else at._replace(solve=solve)

    def _free(self, at: Piece, normals: sp.csr_array) -> Solve | None:
        """Solutions of the system by conjugate gradients, among the variables that no bound holds."""
        flat, (general, _) = self.flat, self.flat.follower_rows
        bound = at.held >= general
        few, ends = np.flatnonzero(np.append(~bound, np.ones(len(at.nu), bool))), np.flatnonzero(bound)
        where, signs = normals[ends].indices, normals[ends].data
        if len(np.unique(where)) < len(where) or len(few) > MOST_ROWS:
            return None
        free = np.ones(flat.n_y)
        free[where] = 0.0
        rows, at_y = normals[few].toarray(), (at.x, at.y, at.mu[:general], at.nu)

        def solved(right: np.ndarray) -> np.ndarray:
            sides = right if right.ndim == 2 else right[:, None]
            top, bottom = sides[: flat.n_y], sides[flat.n_y :]
            fixed = np.zeros_like(top)
            fixed[where] = signs[:, None] * bottom[ends]
            solve = flat.program(_without_matrix, sides.shape[1], len(few))  # compiled for each number of systems
            u, prices, image, good = solve(*at_y, self.scales, free, rows, top.T, bottom[few].T, fixed.T)
            found = np.full_like(sides, np.nan)
            if good:
                found[: flat.n_y], found[flat.n_y + few] = u.T, prices.T
                found[flat.n_y + ends] = signs[:, None] * (top - image.T)[where]
            return found if right.ndim == 2 else found[:, 0]

        return solved


def _nothing(right: np.ndarray) -> np.ndarray:
    """The solution of no system."""
    return np.full_like(right, np.nan)


def _factored(hessian: sp.csr_array, normals: sp.csr_array, lengths: NDArray) -> Solve | None:
    """Solutions by the factors of the whole matrix, in balanced variables."""
    curvature = max(float(np.max(np.abs(hessian.data), initial=0.0)), TINY) ** 0.5
    unit = np.concatenate([np.full(hessian.shape[0], 1.0 / curvature), curvature / lengths])
    whole = sp.block_array([[hessian, normals.T], [normals, None]]) if len(lengths) else hessian
    matrix = sp.csc_array(sp.diags_array(unit) @ whole @ sp.diags_array(unit))
    try:
        # Pivots on the diagonal keep the order of a symmetric matrix; others are taken where they are ten times larger.
        factor = sparse_linalg.splu(
            sp.csc_matrix(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.1, options={"SymmetricMode": True}
        )
    except RuntimeError:  # exactly singular
        return None
    turned = sparse_linalg.LinearOperator(matrix.shape, factor.solve, lambda v: factor.solve(v, "T"), dtype=np.float64)
    inverse = float(sparse_linalg.onenormest(turned, t=1))  # with one column no random numbers are drawn
    if not inverse * float(abs(matrix).sum(axis=0).max()) * SETTINGS.regular < 1.0:
        return None

    def solve(right: np.ndarray) -> np.ndarray:
        units = unit if right.ndim == 1 else unit[:, None]
        return np.asarray(units * factor.solve(units * right))

    return solve


def _joined(by_x: NDArray, by_y: sp.csr_array) -> sp.csr_array:
    return sp.csr_array(sp.hstack([sp.csr_array(by_x), by_y]))


def _matrix(where: Coloured | None, entries: NDArray) -> sp.csr_array:
    return sp.csr_array(entries) if where is None else sp.csr_array((entries, (where.rows, where.columns)), where.shape)


# --- compiled programs --------------------------------------------------------------------------------------------
def _patterns(flat: FlatProblem) -> Patterns | None:
    pattern = cheap_pattern(flat)
    if pattern is not None:
        return Patterns(pattern.hessian, pattern.inequality, pattern.equality)
    return Patterns(None, None, None) if sum(flat.follower_rows) <= MOST_ROWS else None


def _lagrangian(flat: FlatProblem, x: Array, mu: Array, nu: Array) -> Callable[[Array], Array]:
    return lambda y: flat.lower(x, y) + priced(flat, x, y, mu, nu)


def _wide(
    flat: FlatProblem,
    hessian: Coloured | None,
    inequality: Coloured | None,
    equality: Coloured | None,
    x: Array,
    y: Array,
    mu: Array,
    nu: Array,
) -> list[Array]:
    """The fields of :class:`Wide`; of sparse matrices their entries."""
    n_x = x.size

    def objective(function: Callable[[Array, Array], Array]) -> list[Array]:
        value, slopes = jax.value_and_grad(function, argnums=(0, 1))(x, y)
        return [value, jnp.concatenate(slopes)]

    def jacobian(function: Callable[[Array], Array], where: Coloured | None) -> Array:
        return jax.jacrev(function)(y) if where is None else where.entries(function, y)

    def system(a: Array) -> Array:
        slope = jax.grad(_lagrangian(flat, a, mu, nu))(y)
        return jnp.concatenate([slope, inequalities(flat, a, y), equalities(flat, a, y)])

    rows = [inequalities(flat, x, y), equalities(flat, x, y)]
    leader = [jnp.zeros(0), jnp.zeros((0, n_x + y.size))]
    if flat.n_upper_inequality:
        leader = [flat.upper_inequality(x, y), jnp.hstack(jax.jacrev(flat.upper_inequality, argnums=(0, 1))(x, y))]
    above: list[Array] = []
    for function in (flat.x_set.inequality_flat, flat.x_set.equality_flat):
        above += [jnp.zeros(0), jnp.zeros((0, n_x))] if flat.x_set.is_box else [function(x), jax.jacfwd(function)(x)]
    _, push = jax.linearize(system, x)
    by_x = jax.lax.map(push, jnp.eye(n_x), batch_size=TOGETHER).T
    bend = jnp.zeros(0)
    if hessian is not None:
        bend = hessian.entries(jax.grad(_lagrangian(flat, x, mu, nu)), y)
    first = jacobian(lambda b: inequalities(flat, x, b), inequality)
    second = jacobian(lambda b: equalities(flat, x, b), equality)
    return [*objective(flat.upper), *objective(flat.lower), *rows, *leader, *above, by_x, first, second, bend]


def _scales(flat: FlatProblem, x: Array, y: Array) -> Scales:
    _, hessian = jax.linearize(jax.grad(lambda b: flat.lower(x, b)), y)
    return scales_of(hessian, y.size)


def _without_matrix(
    flat: FlatProblem,
    sides: int,
    count: int,
    x: Array,
    y: Array,
    mu: Array,
    nu: Array,
    scales: Scales,
    free: Array,
    rows: Array,
    top: Array,
    bottom: Array,
    fixed: Array,
) -> tuple[Array, Array, Array, Array]:
    """Solutions u and p for several right-hand sides, ``H u + N' p``, and whether they are solutions.

    :param free: one for variables that no bound holds; ``fixed`` are the moves of the others
    """
    _, product = jax.linearize(jax.grad(_lagrangian(flat, x, mu, nu)), y)
    normals = rows * free
    squares = jnp.sum(normals**2, axis=1)
    weights = scales.largest / jnp.where(squares > 0.0, squares, 1.0)

    def operator(v: Array) -> Array:
        return free * product(free * v) + (weights * (normals @ v)) @ normals + (1.0 - free) * v

    several = jax.vmap(product)
    bottom = bottom - fixed @ rows.T
    right = jnp.concatenate([free * (top - several(fixed)) + (weights * bottom) @ normals, normals])
    sizes = jnp.linalg.norm(right, axis=1)
    solved = jax.vmap(
        lambda side, size: conjugate_gradients(operator, side, scales.preconditioner, _ACCURACY * size, _PRODUCTS)
    )(right, sizes)
    u, across = solved.solution[:sides], solved.solution[sides:]
    prices = jnp.zeros((sides, count))
    if count:
        prices = jnp.linalg.solve(across @ normals.T, (u @ normals.T - bottom).T).T
        u = u - prices @ across
    u = u + fixed
    image = several(u) + prices @ rows
    good = (jnp.linalg.norm(solved.residual, axis=1) <= HALF_DIGITS * sizes).all() & ~solved.concave.any()
    return u, prices, image, good & jnp.isfinite(image).all()
