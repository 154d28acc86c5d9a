"""Where the least value of a program has a derivative in a parameter although its minimiser has none.

By Danskin's rule the value changes like the Lagrangian at any minimiser with any multipliers, so it has a derivative
where that is the same for all of them. Minimisers differ from one another along directions in which the Lagrangian is
flat and no priced row is left, multipliers by combinations of touched rows that cancel.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import Array, Bool, PyTree
from blocc._lib.rounding import TINY
from blocc.derivatives.implicit import STRICT, KKTPoint, ParametricProgram, expand, gradient_of, spoil

#: Singular values below this, of matrices whose rows are in units of their size, count as zero.
_RANK = 1e-5
#: What the derivative may differ by, in units of the value and the parameter.
_SAME = 1e-6
#: Random combinations of all differences: if they vanish, so does each.
_PROBES = 3


def spoil_unsettled(program: ParametricProgram, point: KKTPoint, p: PyTree, regular: Bool[Array, ""]) -> PyTree:
    """``p`` for the Lagrangian at ``point``: derivatives are NaN in numbers where they are not the same for all."""
    leaves, structure = jax.tree.flatten(p)
    real = [index for index, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    changes = _differences(program, *lax.stop_gradient((point, p)), real)
    for index, change in zip(real, changes, strict=True):
        same = (change * jnp.maximum(1.0, jnp.abs(lax.stop_gradient(leaves[index]))) <= _SAME) | regular
        leaves[index] = spoil(leaves[index], same, zero_is_safe=True)
    return jax.tree.unflatten(structure, leaves)


def _differences(program: ParametricProgram, point: KKTPoint, p: PyTree, real: list[int]) -> list[Array]:
    """For each real number of p: how much derivatives of the Lagrangian in it differ, in units of its terms."""
    here, z = expand(program, point, p), point.z
    largest = jnp.max(here.slope, initial=TINY)
    touched = (here.inequality >= -STRICT * here.row_size).astype(z.dtype)
    away = (z - program.low > STRICT * here.size) & (program.high - z > STRICT * here.size)
    size = jnp.concatenate([here.row_size, here.equality_size])
    normals = jnp.concatenate([here.jacobian, here.equality_jacobian]) * here.size / size[:, None]
    kept = jnp.concatenate([touched, jnp.ones_like(here.equality)])
    among = normals * kept[:, None] * away
    cancel = _null_projector(among @ among.T) * kept
    priced = jnp.concatenate([touched * (point.inequality * here.row_size > STRICT * largest), kept[touched.size :]])
    free = (away | (jnp.abs(here.gradient) * here.size <= STRICT * largest)).astype(z.dtype)
    bend = here.hessian * here.size * here.size[:, None] / largest
    held = jnp.concatenate([bend, normals * priced[:, None]]) * free
    flat = _null_projector(held.T @ held) * free
    probes = np.random.default_rng(0).normal(size=(_PROBES, size.size + z.size))
    leaves, structure = jax.tree.flatten(p)

    def combined(numbers: list[Array], probe: Array) -> Array:
        full = list(leaves)
        for index, number in zip(real, numbers, strict=True):
            full[index] = number
        there = jax.tree.unflatten(structure, full)
        rows = jnp.concatenate([program.inequality(z, there), program.equality(z, there)]) / size
        slope = gradient_of(program, point, there) * here.size / largest
        return jnp.dot(probe, jnp.concatenate([cancel @ rows, flat @ slope]))

    changes = jax.vmap(jax.grad(combined), in_axes=(None, 0))([leaves[index] for index in real], jnp.asarray(probes))
    return [jnp.max(jnp.abs(change), axis=0) for change in changes]


def _null_projector(matrix: Array) -> Array:
    """Onto the vectors that a matrix ``A'A`` sends to zero."""
    if not matrix.size:
        return matrix
    values, basis = jnp.linalg.eigh(matrix)
    return (basis * (values <= _RANK**2)) @ basis.T
