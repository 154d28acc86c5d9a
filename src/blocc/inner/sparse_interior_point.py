"""The interior point with sparse matrices: the accurate oracle for large lower levels whose variables meet few others.

Its rules are those of :mod:`blocc.inner.interior_point`. Which entries its matrices have is read from the program of
the follower's functions (:mod:`blocc.inner.sparsity`), few directional derivatives recover them
(:mod:`blocc.inner.colouring`), and QDLDL factors the whole KKT matrix (:mod:`blocc.inner.sparse_factor`). One more
system with such a matrix gives the derivative of f(x, y(x)) (:mod:`blocc.inner.sparse_adjoint`).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Array
from blocc._lib.precision import double_precision
from blocc.errors import ProblemError
from blocc.flat_problem import FlatProblem
from blocc.inner.dependencies import TooDense
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.kkt_pattern import SparseKKT
from blocc.inner.newton_system import Matrices
from blocc.inner.protocol import Adjoint, InnerSolution
from blocc.inner.sparse_adjoint import adjoint
from blocc.inner.sparse_factor import Factoriser
from blocc.inner.sparse_newton import SparseMatrices
from blocc.inner.sparsity import jacobian_pattern
from blocc.lagrangian import Weights, leader_value, weights

#: Entries of the factor for each variable and row, and sweeps for all matrices at one point, up to which a follower
#: counts as sparse.
_SPARSE_FILL, _SPARSE_SWEEPS = 100, 150
#: Share of all entries up to which matrices are better held by their entries, whatever their size.
_THIN = 0.25
#: Entries for each variable and row, and in all, beyond which the method is refused.
_MOST_FOR_EACH, _MOST = 200, 1_000_000


@dataclass(frozen=True)
class SparseInteriorPoint(InteriorPoint):
    """Options of the sparse interior-point oracle; the defaults need no tuning.

    They mean the same as those of :class:`~blocc.InteriorPoint`, but a warm start is pushed further back: among many
    rows some change from slack to held with every x. It is for followers in which every variable meets few
    others, in the constraints and in the second derivatives of both objectives; a few rows may use all of them. Which
    ones meet must not depend on the problem's ``data``: index arrays and sparse matrices belong into the functions.
    """

    warm_margin: float = 1e-1

    differentiates = True
    #: Products of slacks and prices are asked to be smaller still, and rounding in long sums sets in.
    finest = 1e-10

    def differentiate(
        self, flat: FlatProblem, x: Array, solution: InnerSolution, weights: Weights, tolerance: Array
    ) -> Adjoint:
        """The derivative of f(x, y(x)) by one more system."""
        matrices = self._matrices(flat)
        assert isinstance(matrices, SparseMatrices)
        found = adjoint(flat, x, jnp.asarray(solution.y), solution.warm.point, weights, matrices, self.proximal)
        return found._replace(warm=solution.warm)

    def _matrices(self, flat: FlatProblem) -> Matrices:
        pattern = sparse_pattern(flat)
        if pattern is None:
            raise ProblemError(
                "inner='sparse-interior-point' needs a follower in which every variable meets few others; here the "
                "matrices of its second derivatives and constraints, or their factors, are too full. Use inner='pdhg'"
            )
        return SparseMatrices(pattern, flat.once(_factoriser))


def _factoriser(flat: FlatProblem) -> Factoriser:
    pattern = sparse_pattern(flat)
    assert pattern is not None
    return Factoriser(pattern)


def is_possible(flat: FlatProblem) -> bool:
    """Whether the sparse method can be used, whatever it costs."""
    return find_spec("qdldl") is not None and sparse_pattern(flat) is not None


def is_sparse(flat: FlatProblem) -> bool:
    """Whether the sparse method can be used and is worth it: few sweeps, and factors with few entries."""
    return find_spec("qdldl") is not None and _is_cheap(sparse_pattern(flat))


def _is_cheap(pattern: SparseKKT | None) -> bool:
    return (
        pattern is not None and pattern.sweeps <= _SPARSE_SWEEPS and pattern.fill <= _SPARSE_FILL * sum(pattern.sizes)
    )


def cheap_pattern(flat: FlatProblem) -> SparseKKT | None:
    """The pattern of the follower's KKT matrix where it is cheap, of its own Lagrangian where f fills it."""
    for pattern in (sparse_pattern, _own_pattern):
        found: SparseKKT | None = flat.once(pattern)
        if _is_cheap(found):
            return found
    return None


def is_thin(flat: FlatProblem) -> bool:
    """Whether most entries of the follower's matrices are zero."""
    pattern = sparse_pattern(flat)
    return pattern is not None and pattern.density <= _THIN


def sparse_pattern(flat: FlatProblem) -> SparseKKT | None:
    """The pattern of the follower's KKT matrix, whatever the data; None where it is far too full."""
    return flat.once(_sparse_pattern)


def _own_pattern(flat: FlatProblem) -> SparseKKT | None:
    return _sparse_pattern(flat, leader=False)


def _sparse_pattern(flat: FlatProblem, leader: bool = True) -> SparseKKT | None:
    n_c, n_e = flat.follower_rows
    size = flat.n_y + n_c + n_e
    limit = max(_MOST, _MOST_FOR_EACH * size)

    def patterns(data: object, x: Array, inequality: Array) -> None:
        here = flat.bind(data)

        def rows(y: Array) -> Array:
            return jnp.concatenate([here.inequality(x, y), here.y_set.inequality_flat(y)])

        def equalities(y: Array) -> Array:
            return jnp.concatenate([here.equality(x, y), here.y_set.equality_flat(y)])

        def lagrangian(y: Array) -> Array:
            total = here.lower(x, y) + (leader_value(here, x, y, weights(here)) if leader else 0.0)
            return total + (jnp.dot(inequality, rows(y)) if n_c else 0.0)

        found.extend(jacobian_pattern(of, flat.n_y, limit) for of in (jax.grad(lagrangian), rows, equalities))

    found: list[sp.csr_array] = []
    vector = lambda count: jax.ShapeDtypeStruct((count,), np.float64)  # noqa: E731
    try:
        with double_precision():
            # Traced, so that neither the data nor x nor the multipliers are numbers from which zeros could be read.
            jax.eval_shape(patterns, flat.data, vector(flat.n_x), vector(n_c))
        return SparseKKT.of(found[0], found[1], found[2], limit)
    except TooDense:
        return None
