"""A bilevel problem as numbers, where its functions are recognised: matrices of both levels.

What is not of a form that the search can prove anything about is refused with a sentence that names the term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from blocc._lib.arrays import Array, Float, Int, NDArray
from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem
from blocc.global_search.degree import degree_of
from blocc.sets import Box, ConvexSet, Product
from blocc.simple_sets import AffineSubspace, Ball, Halfspace, Simplex

#: Variables, and numbers in one function's second derivatives, up to which they are formed.
LARGEST = 400
_MOST_NUMBERS = 3e7
#: Eigenvalues above minus this share of the largest one are rounding.
ROUNDING = 1e-10
#: Bounds of y between the inverse of this and this are as good as 1.
_ORDINARY = 1e3
_FUNCTIONS = ("upper", "lower", "inequality", "equality", "upper_inequality", "x_inequality", "x_equality")
_KNOWN_SETS = (Box, Ball, Simplex, Halfspace, AffineSubspace)


class NotRecognised(Exception):
    """The problem has no form that this search can prove anything about; the text says which term stands in the way."""


class NotConvex(NotRecognised):
    """The follower's objective is quadratic and not convex: no search helps."""


class Quadratics(NamedTuple):
    """Rows ``constant + <linear, z> + 1/2 <z, hessian z>`` of z = (x, y)."""

    constant: Float[NDArray, " rows"]
    linear: Float[NDArray, " rows n"]
    hessian: Float[NDArray, " rows n n"]

    @property
    def curved(self) -> NDArray:
        """Which rows are not affine."""
        return np.asarray((self.hessian != 0.0).any(axis=(1, 2)))

    def in_units(self) -> Quadratics:
        """Every row divided by a power of two, so exactly, that puts 1 in the middle of its coefficients.

        Tolerances of linear programs are absolute, and HiGHS drops coefficients below 1e-9.
        """
        size = _middle(
            np.concatenate([self.linear, self.hessian.reshape(len(self.linear), self.linear.shape[1] ** 2)], axis=1)
        )
        return Quadratics(self.constant / size, self.linear / size[:, None], self.hessian / size[:, None, None])

    def of_units(self, unit: Float[NDArray, " n"]) -> Quadratics:
        """The same rows of variables that are counted in these units."""
        return Quadratics(self.constant, self.linear * unit, self.hessian * np.outer(unit, unit))

    def pick(self, rows: NDArray) -> Quadratics:
        """Some of the rows."""
        return Quadratics(self.constant[rows], self.linear[rows], self.hessian[rows])


@dataclass(frozen=True)
class Constraints:
    """Everything but the follower's objective. Affine rows are ``matrix z <= right`` (or ``==``), with z = (x, y)."""

    n_x: int
    n_y: int
    objective: Quadratics  #: one row: the leader's
    x_low: Float[NDArray, "n_x"]
    x_high: Float[NDArray, "n_x"]
    leader_rows: Quadratics  #: X beyond its bounds, and the leader's own constraints: each <= 0, affine or convex
    leader_equalities: Quadratics
    rows: Float[NDArray, "m n"]  #: the follower's inequalities, bounds included
    right: Float[NDArray, "m"]
    equalities: Float[NDArray, "p n"]
    equal: Float[NDArray, "p"]
    unit: Float[NDArray, "n_y"]  #: what one of each y is in the user's units


@dataclass(frozen=True)
class Follower:
    """The follower's objective ``1/2 <y, hessian y> + <linear + coupling x, y>``, up to what y does not change."""

    hessian: Float[NDArray, "n_y n_y"]
    coupling: Float[NDArray, "n_y n_x"]
    linear: Float[NDArray, "n_y"]


def _middle(coefficients: Float[NDArray, "rows k"]) -> Float[NDArray, " rows"]:
    """For each row a power of two between its smallest and its largest coefficient, as far from both.

    What is rounding beside the largest one does not count.
    """
    size = np.abs(coefficients)
    most = size.max(axis=1, initial=0.0)
    counted = size > float(np.finfo(np.float64).eps) * most[:, None]
    least = np.where(counted, size, np.inf).min(axis=1, initial=np.inf)
    return power_of_two(np.where(most > 0.0, np.sqrt(np.where(most > 0.0, least, 1.0)) * np.sqrt(most), 1.0))


def power_of_two(size: Float[NDArray, " *k"]) -> Float[NDArray, " *k"]:
    """The nearest powers of two, by which numbers are divided without rounding."""
    return np.asarray(np.exp2(np.round(np.log2(size))))


def _function(flat: FlatProblem, name: str) -> Any:
    """One of the functions of (x, y), those of the sets included."""
    if name == "inequality":
        return lambda x, y: jnp.concatenate([flat.inequality(x, y), flat.y_set.inequality_flat(y)])
    if name == "equality":
        return lambda x, y: jnp.concatenate([flat.equality(x, y), flat.y_set.equality_flat(y)])
    if name == "x_inequality":
        return lambda x, y: flat.x_set.inequality_flat(x)
    if name == "x_equality":
        return lambda x, y: flat.x_set.equality_flat(x)
    if name in ("upper", "lower"):
        scalar = getattr(flat, name)
        return lambda x, y: jnp.reshape(scalar(x, y), (1,))
    return getattr(flat, name)


def _coefficients(flat: FlatProblem, name: str, curved: bool) -> tuple[Array, Array, Array]:
    """Value, gradient and Hessian at zero, which are the coefficients of a polynomial of degree two."""
    n_x, n = flat.n_x, flat.n_x + flat.n_y
    function = lambda z: _function(flat, name)(z[:n_x], z[n_x:])  # noqa: E731
    origin = jnp.zeros(n)
    value, slope = function(origin), jax.jacrev(function)(origin)
    return value, slope, jax.jacfwd(jax.jacrev(function))(origin) if curved else jnp.zeros((len(value), n, n))


def _arguments(flat: FlatProblem) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct((size,), np.float64) for size in (flat.n_x, flat.n_y))


def _quadratics(flat: FlatProblem, name: str) -> Quadratics:
    """The coefficients of one function; refused where it is no polynomial of degree two at most."""
    found = degree_of(_function(flat, name), flat.n_x, flat.n_y)
    shown = {"x_inequality": "x_set", "x_equality": "x_set"}.get(name, name)
    if found.degree == np.inf:
        raise NotRecognised(f"{shown} uses {', '.join(found.culprits)} of the variables, which is no polynomial")
    if found.degree > 2:
        raise NotRecognised(f"{shown} is a polynomial of degree {found.degree:g}; up to 2 is handled")
    rows, n = jax.eval_shape(_function(flat, name), *_arguments(flat)).shape[0], flat.n_x + flat.n_y
    if rows * n * n > _MOST_NUMBERS:
        raise NotRecognised(f"{shown} has {rows} rows of {n} variables, too many for matrices of second derivatives")
    told = flat.program(_coefficients, name, found.degree > 1)()
    form = Quadratics(*(np.asarray(part, dtype=np.float64) for part in told))
    if not all(np.isfinite(part).all() for part in form):
        raise NotRecognised(f"{shown} has coefficients that are not finite")
    return form


def _check_sets(flat: FlatProblem) -> None:
    def known(convex_set: ConvexSet) -> bool:
        if isinstance(convex_set, Product):
            return all(map(known, convex_set._parts))
        return type(convex_set).__module__.startswith("blocc.") and isinstance(convex_set, _KNOWN_SETS)

    if not known(flat.x_set):
        raise NotRecognised(
            f"x_set is a {type(flat.x_set).__name__}, of which only the projection is known for certain"
        )


def units_of(flat: FlatProblem) -> Float[NDArray, "n_y"]:
    """Units of y, powers of two: 1, but for those whose bounds are very far apart or very close.

    Tolerances of linear programs are absolute. A slope of 1e-9 is nothing to them, and all to a follower who buys 1e9.
    """
    low, high = (np.asarray(bound, dtype=np.float64) for bound in flat.y_set.bounds_flat())
    size = np.maximum(np.abs(low), np.abs(high))
    odd = np.isfinite(size) & ((size > _ORDINARY) | (size < 1.0 / _ORDINARY)) & (size > 0.0)
    return power_of_two(np.where(odd, size, 1.0))


def constraints_of(flat: FlatProblem) -> Constraints:
    """The leader's problem and the follower's constraints, or a refusal."""
    n_x, n_y = flat.n_x, flat.n_y
    if n_x + n_y > LARGEST:
        raise NotRecognised(f"there are {n_x + n_y} variables; up to {LARGEST} are handled")
    _check_sets(flat)
    unit_y = units_of(flat)
    units = np.concatenate([np.ones(n_x), unit_y])
    form = {name: _quadratics(flat, name).of_units(units) for name in _FUNCTIONS if name != "lower"}
    for name, what in (("inequality", "inequality"), ("equality", "equality")):
        for row in np.flatnonzero(form[name].curved).tolist():
            raise NotRecognised(
                f"row {row} of the follower's {what} is not affine: it has {named_term(form[name], row, n_x)}"
            )
    leader = Quadratics(*map(np.concatenate, zip(form["x_inequality"], form["upper_inequality"], strict=True)))
    low, high = (np.asarray(bound, dtype=np.float64) / unit_y for bound in flat.y_set.bounds_flat())
    fixed = low == high
    below, above = np.isfinite(low) & ~fixed, np.isfinite(high) & ~fixed
    unit = np.concatenate([np.zeros((n_y, n_x)), np.eye(n_y)], axis=1)
    x_low, x_high = (np.asarray(bound, dtype=np.float64) for bound in flat.x_set.bounds_flat())
    inequality, equality = form["inequality"].in_units(), form["equality"].in_units()
    return Constraints(
        n_x=n_x,
        n_y=n_y,
        objective=form["upper"],
        x_low=x_low,
        x_high=x_high,
        leader_rows=leader,
        leader_equalities=form["x_equality"],
        rows=np.concatenate([inequality.linear, -unit[below], unit[above]]),
        right=np.concatenate([-inequality.constant, -low[below], high[above]]),
        equalities=np.concatenate([equality.linear, unit[fixed]]),
        equal=np.concatenate([-equality.constant, low[fixed]]),
        unit=unit_y,
    )


def follower_of(flat: FlatProblem) -> Follower:
    """The follower's objective, convex and of degree two, or a refusal."""
    n_x = flat.n_x
    form = _quadratics(flat, "lower").of_units(np.concatenate([np.ones(n_x), units_of(flat)]))
    hessian = form.hessian[0]
    if least_curvature(hessian[n_x:, n_x:]) < 0.0:
        # Equalities may keep y out of the directions in which it bends downwards.
        kind = NotRecognised if flat.n_equality or flat.y_set.equality_flat(np.zeros(flat.n_y)).size else NotConvex
        below = Quadratics(form.constant, form.linear, hessian[None] * np.outer(*[np.arange(len(hessian)) >= n_x] * 2))
        raise kind(f"lower is not convex in y: it has {named_term(below, 0, n_x)}")
    parts = hessian[n_x:, n_x:], hessian[n_x:, :n_x], form.linear[0, n_x:]
    size = power_of_two(np.array(max(float(np.abs(part).max(initial=0.0)) for part in parts) or 1.0))
    return Follower(*(part / size for part in parts))  # the same answers, in units for absolute tolerances


class Substituted(NamedTuple):
    """The leader's objective with products of x and y exchanged by strong duality."""

    objective: Quadratics
    row_weights: Float[NDArray, "m"]  #: of ``<right, prices>``, which the caller takes off
    equality_weights: Float[NDArray, "p"]


def substituted(constraints: Constraints, follower: Follower) -> Substituted:
    """The leader's objective, made convex if possible by taking products of x and y out of it.

    At the follower's answers ``<x, coupling' y> = -<y, hessian y> - <linear, y> - <right, prices>`` by strong duality,
    where x is in none of the follower's constraints. That holds for each part of a follower that falls into parts with
    nothing in common (travellers who do not meet), so each part has a weight of its own with which both sides are
    exchanged in the objective.
    """
    c, n_x, objective = constraints, constraints.n_x, constraints.objective
    whole = objective.hessian[0]
    label, row_label, equality_label = _parts(c, follower)
    count = int(label.max(initial=-1)) + 1
    coupled = np.zeros(count + 1, dtype=bool)  # the last one stands for rows without y
    coupled[row_label[c.rows[:, :n_x].any(axis=1)]] = True
    coupled[equality_label[c.equalities[:, :n_x].any(axis=1)]] = True
    nothing = Substituted(objective, np.zeros(len(c.right)), np.zeros(len(c.equal)))
    coupling = np.where(coupled[label][:, None], 0.0, follower.coupling)
    if least_curvature(whole) >= 0.0 or not coupling.any():
        return nothing
    cross, changes = whole[n_x:, :n_x], np.zeros((count, *whole.shape))
    for part in range(count):
        mine = (label == part).astype(float)
        changes[part, n_x:, n_x:] = 2.0 * follower.hessian * mine
        changes[part, n_x:, :n_x] = coupling * mine[:, None]
        changes[part, :n_x, n_x:] = changes[part, n_x:, :n_x].T
    squares = (changes[:, n_x:, :n_x] ** 2).sum(axis=(1, 2))
    exact = (changes[:, n_x:, :n_x] * cross).sum(axis=(1, 2)) / np.where(squares > 0.0, squares, 1.0)
    joint = np.where(squares > 0.0, 1.0, 0.0)
    size = float(np.abs(whole).max()) / float(np.abs(coupling).max())
    changed = lambda weights: _clean(whole - np.tensordot(weights, changes, 1), whole)  # noqa: E731
    worst = lambda weight: -float(np.linalg.eigvalsh(changed(weight * joint))[0])  # noqa: E731
    searched = float(scipy.optimize.minimize_scalar(worst, bounds=(-4.0 * size, 4.0 * size), method="bounded").x)
    weights = min((0.0 * joint, exact, searched * joint), key=lambda at: -least_curvature(changed(at)))
    slope, weights = objective.linear.copy(), np.append(weights, 0.0)
    slope[0, n_x:] -= weights[label] * follower.linear
    taken = Quadratics(objective.constant, slope, changed(weights[:-1])[None])
    return Substituted(taken, weights[row_label], weights[equality_label])


def _parts(c: Constraints, follower: Follower) -> tuple[Int[NDArray, "n_y"], Int[NDArray, "m"], Int[NDArray, "p"]]:
    """The parts of a follower that have nothing in common: of each variable, inequality and equality; -1 without y."""
    rows, equalities = c.rows[:, c.n_x :] != 0.0, c.equalities[:, c.n_x :] != 0.0
    both = np.concatenate([rows, equalities]).astype(float)
    meet = both.T @ both + (follower.hessian != 0.0)
    label = np.asarray(scipy.sparse.csgraph.connected_components(meet, directed=False)[1])
    of = lambda held: np.where(held.any(axis=1), label[held.argmax(axis=1)], -1)  # noqa: E731
    return label, of(rows), of(equalities)


def _clean(matrix: Float[NDArray, "n n"], beside: Float[NDArray, "n n"]) -> Float[NDArray, "n n"]:
    """Without what rounding has left of numbers as large as those of ``beside``."""
    return np.where(np.abs(matrix) <= 1e-13 * np.abs(beside).max(initial=0.0), 0.0, matrix)


def least_curvature(hessian: Float[NDArray, "n n"]) -> float:
    """The least eigenvalue, or zero where that is negative by rounding alone."""
    if not hessian.size:
        return 0.0
    values = np.linalg.eigvalsh(0.5 * (hessian + hessian.T))
    return 0.0 if values[0] >= -ROUNDING * max(float(np.abs(values).max()), TINY) else float(values[0])


def named_term(form: Quadratics, row: int, n_x: int) -> str:
    """The largest offending product of a row, in words."""
    hessian = form.hessian[row]
    diagonal = np.diag(hessian)
    off = np.abs(hessian - np.diag(diagonal))
    name = lambda i: f"x[{i}]" if i < n_x else f"y[{i - n_x}]"  # noqa: E731
    if diagonal.size and diagonal.min() < 0.0 and -diagonal.min() >= off.max(initial=0.0):
        at = int(diagonal.argmin())
        return f"{0.5 * diagonal[at]:.3g} {name(at)}^2"
    if off.any():
        i, j = np.unravel_index(int(off.argmax()), off.shape)
        return f"the product {hessian[i, j]:.3g} {name(min(i, j))} {name(max(i, j))}"
    at = int(np.abs(diagonal).argmax())
    return f"{0.5 * diagonal[at]:.3g} {name(at)}^2"
