"""Which oracle for which lower level: ``inner="auto"`` and the other names."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from blocc.errors import OptionError
from blocc.flat_problem import FlatProblem
from blocc.inner.augmented import MOST_ROWS
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.maxmin import MaxMin
from blocc.inner.newton_cg import NewtonCG
from blocc.inner.pdhg import PrimalDualHybridGradient
from blocc.inner.protocol import InnerOracle
from blocc.local.derivatives import DENSE, size_of
from blocc.problem import BilevelProblem

#: Up to this many variables and constraints dense Newton systems are the first choice, up to the second the last.
DENSE_FIRST = 500
DENSE_LAST = 2500
#: Products in one dense Newton step up to which larger followers whose matrices are full are left to it, too.
DENSE_WORK = 3e7
#: From this many variables on, a follower without coupled constraints is solved without matrices.
MATRIX_FREE = 200

#: Algorithm 2 with fixed steps: those of the published program for the toy, on L_g and on L_F alike. That program stops
#: by a rule of its own; warm-started, so many iterations leave less behind.
PUBLISHED = MaxMin.single_loop(iterations=100, primal_step=0.1, dual_step=0.1)

NAMES: dict[str, Callable[[], InnerOracle]] = {
    "interior-point": lambda: InteriorPoint(),
    "sparse-interior-point": lambda: _sparse().SparseInteriorPoint(),
    "maxmin": lambda: MaxMin(),
    "single-loop": lambda: MaxMin.single_loop(),
    "published": lambda: PUBLISHED,
    "pdhg": lambda: PrimalDualHybridGradient(),
    "newton-cg": lambda: NewtonCG(),
}


def _sparse() -> ModuleType:
    """The interior point with sparse matrices; only large followers wait for SciPy's sparse matrices to be loaded."""
    from blocc.inner import sparse_interior_point

    return sparse_interior_point


def general_oracles(flat: FlatProblem) -> tuple[InnerOracle, ...]:
    """The oracles for a problem without known structure, best first, by size."""
    size = flat.n_y + flat.n_inequality + flat.n_equality
    if flat.prox is not None:
        return (NewtonCG(),)
    if flat.n_y >= MATRIX_FREE and size == flat.n_y:
        return (NewtonCG(), PrimalDualHybridGradient())
    if not flat.y_set.is_smooth:  # Newton's method goes astray at the tips of cones, where groups are zero
        return (PrimalDualHybridGradient(), InteriorPoint()) if size <= DENSE_LAST else (PrimalDualHybridGradient(),)
    if size <= DENSE_FIRST and size_of(flat) <= DENSE:
        return (InteriorPoint(), PrimalDualHybridGradient())
    if size <= DENSE_FIRST:  # many variables of the leader's: f(x, y(x)) descends by its derivative
        first = (_sparse().SparseInteriorPoint(),) if _sparse().is_possible(flat) else ()
        return (*first, InteriorPoint(), PrimalDualHybridGradient())
    is_sparse = _sparse().is_sparse(flat)
    step = (flat.n_y + flat.n_equality) ** 2 * size
    if step <= DENSE_WORK and not (is_sparse and _sparse().is_thin(flat)):  # many rows of few variables
        return (InteriorPoint(), PrimalDualHybridGradient())
    if is_sparse:
        return (_sparse().SparseInteriorPoint(), PrimalDualHybridGradient())
    if flat.n_inequality + flat.n_equality <= MOST_ROWS:
        return (NewtonCG(), PrimalDualHybridGradient())
    return (PrimalDualHybridGradient(), InteriorPoint()) if size <= DENSE_LAST else (PrimalDualHybridGradient(),)


def reformulated_for(problem: BilevelProblem, inner: Any) -> BilevelProblem:
    """The problem as the oracle takes it: only Newton's method by conjugate gradients knows norms by their names."""
    by_name = isinstance(inner, NewtonCG) or (isinstance(inner, str) and inner in ("auto", "newton-cg"))
    return problem if by_name else problem.lifted


def choose_oracles(problem: BilevelProblem, inner: Any) -> tuple[InnerOracle, ...]:
    """The oracle to use and, for ``"auto"``, those to fall back on when it fails."""
    if isinstance(inner, str) and inner == "auto":
        if problem.oracle is not None:
            return (problem.oracle,)
        return general_oracles(problem.flat)
    if problem is not reformulated_for(problem, inner):
        raise OptionError(f"inner={inner!r} knows nothing of lower_terms: it takes problem.lifted")
    if isinstance(inner, str):
        if inner not in NAMES:
            raise OptionError(f"inner must be 'auto', {', '.join(map(repr, NAMES))} or an oracle, got {inner!r}")
        return (NAMES[inner](),)
    if not isinstance(inner, InnerOracle):
        raise OptionError(
            f"inner must be 'auto', {', '.join(map(repr, NAMES))} or an oracle (a subclass of blocc.InnerOracle), "
            f"got {type(inner).__name__}"
        )
    return (inner,)
