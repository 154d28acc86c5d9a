"""What every inner oracle takes and returns.

An oracle answers "minimise s f(x, .) + gamma g(x, .) over y in Y with gc(x, y) <= 0 and h(x, y) == 0" with a primal
and a dual solution and their residuals. It is a hashable object whose :meth:`InnerOracle.solve` is a pure function of
arrays, so that one compilation serves every x, every weight and, through ``vmap``, every start at once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int
from blocc.flat_problem import FlatProblem
from blocc.lagrangian import Multipliers, Residuals, Weights, expand, residuals_of

WarmStart = Any  #: a tree of arrays, known to the oracle alone


class InnerCode(IntEnum):
    """How an inner solve ended (an integer, because it travels through compiled code)."""

    CONVERGED = 0  #: all residuals below the tolerance
    STALLED = 1  #: out of iterations or of precision; the residuals say how far it came
    INFEASIBLE = 2  #: no y satisfies the constraints at this x
    UNBOUNDED = 3  #: the objective falls without limit
    NOT_FINITE = 4  #: a function or a derivative returned NaN or infinity


class InnerSolution(NamedTuple):
    """A saddle point of the Lagrangian at one x, or the best approximation found."""

    y: Float[AnyArray, "*batch n_y"]
    multipliers: Multipliers
    value: Float[AnyArray, "*batch"]  #: the Lagrangian at (y, mu, nu): second-order accurate in the residuals
    objective: Float[AnyArray, "*batch"]  #: ``s f + gamma g`` at y
    gradient_x: Float[AnyArray, "*batch n_x"]  #: of the Lagrangian: by Danskin's rule that of the optimal value
    residuals: Residuals
    iterations: Int[AnyArray, "*batch"]
    code: Int[AnyArray, "*batch"]  #: an :class:`InnerCode`
    warm: WarmStart  #: whatever the oracle wants back at the next, nearby call
    concave: Bool[
        AnyArray, "*batch"
    ]  #: whether the oracle met negative curvature on its way (False where it cannot tell)
    derivatives: Int[AnyArray, "*batch"]  #: how often the Lagrangian was differentiated in y


class Adjoint(NamedTuple):
    """The derivative of ``f(x, y(x))``, or of another function in the place of f."""

    value: Float[Array, ""]  #: corrected to first order for what y is off
    gradient: Float[Array, "n_x"]
    regular: Bool[Array, ""]  #: whether the system could be solved: otherwise the gradient means nothing
    price: Float[Array, "n_y"]  #: what f loses by a unit of slope of g in each variable of the follower's
    shift: Float[Array, "n_y"]  #: what f gains by a unit that a simple term moves each of them
    products: Int[Array, ""]  #: Hessian-vector products
    warm: WarmStart | None = None  #: that of the solution, with what the next adjoint system starts from


@runtime_checkable
class InnerOracle(Protocol):
    """The protocol. Implementations are frozen dataclasses of their options (hashable, comparable).

    One that inherits from this class needs no more than :meth:`cold` and :meth:`solve`.
    """

    #: The best accuracy that is worth asking for.
    finest: float = 0.0
    #: Whether :meth:`differentiate` is offered.
    differentiates: bool = False

    def cold(self, flat: FlatProblem) -> WarmStart:
        """A warm start that carries no information, of the structure that :meth:`solve` returns."""
        ...

    def solve(self, flat: FlatProblem, x: Array, weights: Weights, warm: WarmStart, tolerance: Array) -> InnerSolution:
        """Solve at ``x``. Pure and traceable; ``tolerance`` bounds the residuals relative to the problem's scale."""
        ...

    def __hash__(self) -> int:
        return object.__hash__(self)

    def expects_unscaled(self) -> bool:
        """Whether this oracle wants f + gamma g as it is; the others get it divided by max(1, gamma)."""
        return False

    def begin_at(self, flat: FlatProblem, y: AnyArray) -> WarmStart | None:
        """A start at ``y`` with nothing known about the multipliers; None for an oracle that has no use for one."""
        return None

    def begin_with(self, flat: FlatProblem, y: AnyArray, multipliers: Multipliers) -> WarmStart | None:
        """A start at ``y`` with these multipliers; None for an oracle that has no use for one."""
        return None

    def differentiate(
        self, flat: FlatProblem, x: Array, solution: InnerSolution, weights: Weights, tolerance: Array
    ) -> Adjoint | None:
        """The derivative of f(x, y(x)) at an accurate solution of the follower's own problem. Pure and traceable."""
        return None


def finish(
    flat: FlatProblem,
    x: Array,
    y: Array,
    multipliers: Multipliers,
    w: Weights,
    *,
    iterations: Array | int,
    code: Array | InnerCode,
    warm: WarmStart,
    concave: Array | bool = False,
    derivatives: Array | int | None = None,
) -> InnerSolution:
    """Complete a solution with its Lagrangian value and its residuals, both from the problem's own functions.

    ``derivatives``: by default one for each iteration.
    """
    iterations = jnp.asarray(iterations)
    counted = iterations if derivatives is None else jnp.asarray(derivatives)
    code = jnp.asarray(int(code)) if isinstance(code, InnerCode) else code
    here = expand(flat, x, y, multipliers, w)
    found = residuals_of(flat, x, y, multipliers, w, here)
    finite = jnp.isfinite(jnp.stack([here.value, *jax.tree.leaves(found)])).all()
    solved = (code == InnerCode.CONVERGED) | (code == InnerCode.STALLED)
    code = jnp.where(solved & ~finite, int(InnerCode.NOT_FINITE), code)
    return InnerSolution(
        y=y,
        multipliers=multipliers,
        value=here.value,
        objective=here.objective,
        gradient_x=here.gradient_x,
        residuals=found,
        iterations=iterations,
        code=code,
        warm=warm,
        concave=jnp.asarray(concave),
        derivatives=counted,
    )
