"""All functions of a problem with their first and second derivatives at one point, dense, in the user's own units.

One compiled program serves everyone who wants to look at a point closely: the choice of units for a run, and the judge
at its end. It is meant for small and medium problems, of up to ``LARGEST`` variables and rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array
from blocc._lib.operations import joined
from blocc.flat_problem import FlatProblem

#: Variables and constraints up to which matrices are dense: one factorisation takes some hundredths of a second there.
DENSE = 600
TOGETHER = 16  #: directional derivatives that are computed at a time
LARGEST = 200  #: variables and constraints together, beyond which dense second derivatives cost too much


class Local(NamedTuple):
    """Values, gradients, Jacobians and Hessians at (x, y); derivatives are in (x, y) together, x first.

    ``inequality`` and ``equality`` hold the coupled constraints first and then those of Y that are no bounds;
    ``x_inequality`` and ``x_equality`` are those of X that are no bounds.
    """

    upper: np.ndarray
    upper_gradient: np.ndarray
    upper_hessian: np.ndarray
    lower: np.ndarray
    lower_gradient: np.ndarray
    lower_hessian: np.ndarray
    inequality: np.ndarray
    inequality_jacobian: np.ndarray
    equality: np.ndarray
    equality_jacobian: np.ndarray
    upper_inequality: np.ndarray
    upper_inequality_jacobian: np.ndarray
    x_inequality: np.ndarray
    x_inequality_jacobian: np.ndarray
    x_equality: np.ndarray
    x_equality_jacobian: np.ndarray
    constraint_hessian: np.ndarray  #: of ``mu @ inequality + nu @ equality``

    @property
    def finite(self) -> bool:
        """Whether every number is finite."""
        return bool(np.isfinite(np.concatenate([np.ravel(part) for part in self])).all())

    @property
    def bent(self) -> bool:
        """Whether multipliers enter the second derivatives."""
        return bool(self.constraint_hessian.any())


def size_of(flat: FlatProblem) -> int:
    """Variables and constraints together."""
    return flat.n_x + flat.n_y + flat.n_inequality + flat.n_equality + flat.n_upper_inequality


def inequalities(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Array:
    """The general rows of the follower: gc, and those of Y that are no bounds."""
    return joined(flat.inequality(x, y), flat.y_set.inequality_flat(y))


def equalities(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Array:
    """h, and the equations of Y."""
    return joined(flat.equality(x, y), flat.y_set.equality_flat(y))


def priced(flat: FlatProblem, x: AnyArray, y: AnyArray, mu: AnyArray, nu: AnyArray) -> Array:
    """``mu @ inequalities + nu @ equalities``."""
    total = jnp.zeros(())
    if mu.size:
        total = total + jnp.dot(mu, inequalities(flat, x, y))
    if nu.size:
        total = total + jnp.dot(nu, equalities(flat, x, y))
    return total


def _local(flat: FlatProblem, x: Array, y: Array, mu: Array, nu: Array) -> Local:
    both, n_x = jnp.concatenate([x, y]), x.size

    def joint(function: Callable[[Array, Array], Array]) -> Callable[[Array], Array]:
        return lambda z: function(z[:n_x], z[n_x:])

    inequality, equality = partial(inequalities, flat), partial(equalities, flat)

    # Each function is traced, and compiled, once for all of its derivatives.
    found: list[Any] = []
    for objective in (flat.upper, flat.lower):
        found += _second_order(joint(objective), both)
    rows: tuple[tuple[Callable[[Array, Array], Array], int], ...] = (
        (inequality, mu.size),
        (equality, nu.size),
        (flat.upper_inequality, flat.n_upper_inequality),
        (lambda a, b: flat.x_set.inequality_flat(a), -1),
        (lambda a, b: flat.x_set.equality_flat(a), -1),
    )
    for function, count in rows:
        is_none = count == 0 or (count < 0 and flat.x_set.is_box)
        found += _row_and_jacobian(joint(function), both) if not is_none else [jnp.zeros(0), jnp.zeros((0, both.size))]
    bend = (
        jax.hessian(joint(lambda a, b: priced(flat, a, b, mu, nu)))(both)
        if mu.size + nu.size
        else jnp.zeros((both.size, both.size))
    )
    return Local._make([*found, bend])


def _second_order(function: Callable[[Array], Array], point: Array) -> list[Array]:
    """Value, gradient and Hessian."""

    def slope_and_value(z: Array) -> tuple[Array, tuple[Array, Array]]:
        value, slope = jax.value_and_grad(function)(z)
        return slope, (value, slope)

    hessian, (value, slope) = jax.jacfwd(slope_and_value, has_aux=True)(point)
    return [value, slope, hessian]


def _row_and_jacobian(function: Callable[[Array], Array], point: Array) -> list[Array]:
    jacobian, row = jax.jacfwd(lambda z: (value := function(z), value), has_aux=True)(point)
    return [row, jacobian]


def wide(flat: FlatProblem, x: np.ndarray, y: np.ndarray) -> Local:
    """Derivatives to measure by: those of the easiest problem that leads to this one (corners rounded widely)."""
    return local(flat if flat.easier is None else flat.bind(flat.easier(flat.data)[0]), x, y)


def local(
    flat: FlatProblem,
    x: np.ndarray,
    y: np.ndarray,
    mu: np.ndarray | None = None,
    nu: np.ndarray | None = None,
) -> Local:
    """Derivatives at (x, y), with ``mu`` and ``nu`` (default: zero) as weights of the constraints' Hessian."""
    n_inequality, n_equality = flat.follower_rows
    prices = [
        np.zeros(size) if given is None else np.asarray(given) for given, size in ((mu, n_inequality), (nu, n_equality))
    ]
    return flat.program(_local)(np.asarray(x), np.asarray(y), *prices)
