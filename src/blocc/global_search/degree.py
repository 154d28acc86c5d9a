"""The degree of a user's function as a polynomial, read from its program.

The degree is propagated through the operations that JAX traced, so no sample of points can mislead it: a function of
degree two has constant second derivatives, and they are its coefficients. The degree that comes out is an upper bound;
an operation that is not known to keep polynomials polynomials makes it infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from blocc._lib.arrays import AnyArray, Array
from blocc._lib.jaxprs import is_literal

#: Operations that are linear in all their operands together, or only move numbers.
_LINEAR = {
    *("add", "sub", "neg", "add_any", "reduce_sum", "cumsum", "copy", "copy_p", "real", "concatenate", "pad"),
    *("reshape", "broadcast_in_dim", "transpose", "squeeze", "expand_dims", "slice", "rev", "split", "stack"),
}
#: Operations that are linear in the operands of these places, where the others are constants.
_LINEAR_BESIDE_CONSTANTS: dict[str, Callable[[int], tuple[int, ...]]] = {
    "div": lambda count: (0,),
    "gather": lambda count: (0,),
    "dynamic_slice": lambda count: (0,),
    "dynamic_update_slice": lambda count: (0, 1),
    "scatter-add": lambda count: (0, 2),
    "scatter": lambda count: (0, 2),
    "select_n": lambda count: tuple(range(1, count)),
}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "remat2"}


class Degree(NamedTuple):
    """An upper bound for the degree of a function, and the operations that made it infinite."""

    degree: float
    culprits: tuple[str, ...]


def degree_of(function: Callable[[AnyArray, AnyArray], Array], n_x: int, n_y: int) -> Degree:
    """The degree of ``function(x, y)`` in all variables together."""
    shapes = (jax.ShapeDtypeStruct((n_x,), np.float64), jax.ShapeDtypeStruct((n_y,), np.float64))
    culprits: dict[str, None] = {}
    found = _propagate(jax.make_jaxpr(function)(*shapes), [1.0, 1.0], culprits)
    return Degree(max(found, default=0.0), tuple(culprits))


def _propagate(program: ClosedJaxpr | Jaxpr, given: list[float], culprits: dict[str, None]) -> list[float]:
    """Degrees of what a program returns, from those of its arguments."""
    inner: Any = getattr(program, "jaxpr", program)
    known: dict[Any, float] = dict.fromkeys(inner.constvars, 0.0) | dict(zip(inner.invars, given, strict=True))
    for equation in inner.eqns:
        degrees = [0.0 if is_literal(atom) else known[atom] for atom in equation.invars]
        name = equation.primitive.name
        if name in _CALLS and (body := equation.params.get("jaxpr", equation.params.get("call_jaxpr"))) is not None:
            found = _propagate(body, degrees, culprits)
        else:
            one = _of_operation(equation, name, degrees)
            if one == np.inf and max(degrees) < np.inf:
                culprits[name] = None
            found = [one] * len(equation.outvars)
        known |= dict(zip(equation.outvars, found, strict=True))
    return [0.0 if is_literal(atom) else known[atom] for atom in inner.outvars]


def _of_operation(equation: Any, name: str, degrees: list[float]) -> float:
    """The degree of what one operation returns."""
    most = max(degrees, default=0.0)
    if most == 0.0:
        return 0.0
    if name in _LINEAR:
        return most
    if name in ("mul", "dot_general"):
        return sum(degrees)
    if name == "square":
        return 2.0 * most
    if name == "integer_pow" and equation.params["y"] >= 0:
        return equation.params["y"] * most
    if name == "convert_element_type" and equation.params["new_dtype"] == np.float64:
        return most
    if name in _LINEAR_BESIDE_CONSTANTS:
        places = _LINEAR_BESIDE_CONSTANTS[name](len(degrees))
        if all(degree == 0.0 for place, degree in enumerate(degrees) if place not in places):
            return most
    return np.inf
