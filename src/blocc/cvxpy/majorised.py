"""A leader's objective that is a plain function: convex quadratics in its place, one after the other.

    f(x, y)  ~  f(x, y0) + f_y(x, y0)'(y - y0) + (y - y0)'H(y - y0) / 2

H is the function's second derivative with its negative curvatures left out (beyond some hundred entries of y a
multiple of the identity), and grows where the answer turns out to be worse than y0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.precision import double_precision
from blocc.corners import has_kinks
from blocc.cvxpy.expressions import without_negative
from blocc.errors import ProblemError

Vector = Float[NDArray, " n"]
#: Entries of y up to which second derivatives are computed.
LARGEST_HESSIAN = 300


class Slopes(NamedTuple):
    """A plain function at one point."""

    value: float
    x: Vector  #: derivative in the order of the leader's entries
    y: Vector  #: in the columns of all variables, one after the other


class Seen(NamedTuple):
    """A variable, and how its entries depend on its columns in a cone program."""

    name: str
    shape: tuple[int, ...]
    size: int  #: columns
    spread: Float[NDArray, "entries columns"] | None  #: entries, column by column; None: the columns are the entries


class PlainObjective:
    """A function ``f(x, y)`` of arrays by name, written in ``jax.numpy``, to be minimised."""

    def __init__(
        self,
        function: Callable[[dict[str, Any], dict[str, Any]], Any],
        x: Sequence[cp.Parameter],
        y: Sequence[Seen],
    ) -> None:
        self.function, self._x, self._y = function, list(x), list(y)
        self.size = sum(one.size for one in self._y)
        with double_precision():
            self._compiled = jax.jit(jax.value_and_grad(self._called, argnums=(0, 1)))
            self._bends = jax.jit(jax.hessian(self._called, argnums=1))
            self._check()

    def _called(self, x: Any, y: Any) -> Any:
        """The function of flat vectors: x entry by entry in rows, y by columns of cone programs."""
        named, at = {}, 0
        for one in self._x:
            named[one.name()] = x[at : at + one.size].reshape(one.shape)
            at += one.size
        below, at = {}, 0
        for seen in self._y:
            columns = y[at : at + seen.size]
            entries = columns if seen.spread is None else seen.spread @ columns
            below[seen.name] = entries.reshape(seen.shape[::-1]).T
            at += seen.size
        return self.function(named, below)

    @cached_property
    def is_kinked(self) -> bool:
        """Whether there are operations in it whose derivative jumps."""
        with double_precision():
            return has_kinks(self._called, *self._shapes())

    def _shapes(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        below = jax.ShapeDtypeStruct((self.size,), jnp.float64)
        return jax.ShapeDtypeStruct((sum(one.size for one in self._x),), jnp.float64), below

    def _check(self) -> None:
        try:
            found = jax.eval_shape(self._called, *self._shapes())
        except Exception as error:  # the user's own code: its message is the one that helps
            raise ProblemError(
                f"objective: the function fails on arrays of jax.numpy: {type(error).__name__}: {error}"
            ) from error
        if getattr(found, "shape", None) != ():
            raise ProblemError("objective: the function must return one number")

    def at(self, x: Vector, y: Vector) -> Slopes:
        """Value and derivatives."""
        with double_precision():
            value, (in_x, in_y) = self._compiled(x, y)
        return Slopes(float(value), np.asarray(in_x), np.asarray(in_y))

    def bends(self, x: Vector, y: Vector) -> Float[NDArray, "n n"]:
        """The second derivative in y without its negative curvatures."""
        if self.size > LARGEST_HESSIAN:
            return np.zeros((0, 0))
        with double_precision():
            found = np.asarray(self._bends(x, y))
        return without_negative(np.where(np.isfinite(found), found, 0.0))
