"""All functions of a problem with their first and second derivatives at one point, dense, in the user's own units.

One compiled program serves everyone who wants to look at a point closely: the choice of units for a run, and the judge
at its end. It is meant for small and medium problems; beyond ``LARGEST`` variables and rows nobody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.compiled import compile_ahead
from blocc.problem import FlatProblem

Array = Any
PyTree = Any

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
        return all(np.isfinite(part).all() for part in self)


def size_of(flat: FlatProblem) -> int:
    """Variables and constraints together."""
    return flat.n_x + flat.n_y + flat.n_inequality + flat.n_equality + flat.n_upper_inequality


def row_counts(flat: FlatProblem) -> tuple[int, int]:
    """Number of inequalities and equalities of the follower, those of Y that are no bounds included."""
    if "row counts" not in flat.shared:
        point = jax.ShapeDtypeStruct((flat.n_y,), jnp.float64)
        n_set = jax.eval_shape(flat.y_set.inequality_flat, point).shape[0]
        n_affine = jax.eval_shape(flat.y_set.equality_flat, point).shape[0]
        flat.shared["row counts"] = flat.n_inequality + n_set, flat.n_equality + n_affine
    found: tuple[int, int] = flat.shared["row counts"]
    return found


def _local(problem: FlatProblem, data: PyTree, x: Array, y: Array, mu: Array, nu: Array) -> Local:
    flat, both, n_x = problem.bind(data), jnp.concatenate([x, y]), x.size

    def joint(function: Callable[[Array, Array], Array]) -> Callable[[Array], Array]:
        return lambda z: function(z[:n_x], z[n_x:])

    def inequality(a: Array, b: Array) -> Array:
        return jnp.concatenate([flat.inequality(a, b), flat.y_set.inequality_flat(b)])

    def equality(a: Array, b: Array) -> Array:
        return jnp.concatenate([flat.equality(a, b), flat.y_set.equality_flat(b)])

    def priced(a: Array, b: Array) -> Array:
        return jnp.dot(mu, inequality(a, b)) + jnp.dot(nu, equality(a, b))

    found: list[Any] = []
    for function in (flat.upper, flat.lower):
        value, slope = jax.value_and_grad(joint(function))(both)
        found += [value, slope, jax.hessian(joint(function))(both)]
    rows = (
        inequality,
        equality,
        flat.upper_inequality,
        lambda a, b: flat.x_set.inequality_flat(a),
        lambda a, b: flat.x_set.equality_flat(a),
    )
    for function in rows:
        found += [function(x, y), jax.jacfwd(joint(function))(both)]
    bend = jax.hessian(joint(priced))(both) if mu.size + nu.size else jnp.zeros((both.size, both.size))
    return Local._make([*found, bend])


def wide(flat: FlatProblem, x: np.ndarray, y: np.ndarray) -> Local:
    """Derivatives to measure by: those of the easiest problem that leads to this one (corners rounded widely)."""
    return local(flat, x, y, data=flat.data if flat.easier is None else flat.easier(flat.data)[0])


def local(
    flat: FlatProblem,
    x: np.ndarray,
    y: np.ndarray,
    mu: np.ndarray | None = None,
    nu: np.ndarray | None = None,
    data: PyTree | None = None,
) -> Local:
    """Derivatives at (x, y), with ``mu`` and ``nu`` (default: zero) as weights of the constraints' Hessian."""
    n_inequality, n_equality = row_counts(flat)
    prices = [
        jnp.zeros(size) if given is None else jnp.asarray(given)
        for given, size in ((mu, n_inequality), (nu, n_equality))
    ]
    arguments = (flat.data if data is None else data, jnp.asarray(x), jnp.asarray(y), *prices)
    if "local" not in flat.shared:
        flat.shared["local"], _ = compile_ahead(partial(_local, flat), *arguments)
    return jax.device_get(flat.shared["local"](*arguments))
