"""A leader's objective that is a plain function: convex quadratics above it, one after the other.

    f(x, y) <= f(x, y0) + f_y(x, y0)'(y - y0) + L |y - y0|^2 / 2

The right side is an expression of CVXPY's with parameters for its slope and its curvature L, so that the leader's cone
program is made once. L grows where it turns out to be too small, and shrinks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.precision import double_precision
from blocc.errors import ProblemError

Vector = Float[NDArray, " n"]


class Slopes(NamedTuple):
    """A plain function at one point."""

    value: float
    x: Vector  #: in the order of the leader's entries
    y: Vector  #: of all variables one after the other, column by column


class PlainObjective:
    """A function ``f(x, y)`` of arrays by name, written in ``jax.numpy``, to be minimised."""

    def __init__(
        self,
        function: Callable[[dict[str, Any], dict[str, Any]], Any],
        x: Sequence[cp.Parameter],
        y: Sequence[cp.Variable],
    ) -> None:
        self.function, self._x, self._y = function, list(x), list(y)
        names = [one.name() for one in self._y]
        if len(set(names)) < len(names):
            raise ProblemError(f"follower: two variables have one name ({', '.join(names)}); give each its own")
        self.slope = [cp.Parameter(one.shape, value=np.zeros(one.shape)) for one in self._y]
        self.curvature = cp.Parameter(nonneg=True, value=1.0)
        terms = [cp.sum(cp.multiply(a, one)) for a, one in zip(self.slope, self._y, strict=True)]
        terms += [self.curvature * cp.sum_squares(one) / 2 for one in self._y]
        self.expression: cp.Expression = sum(terms[1:], start=terms[0])
        with double_precision():
            self._compiled = jax.jit(jax.value_and_grad(self._called, argnums=(0, 1)))
            self._check()

    def _called(self, x: list[Any], y: list[Any]) -> Any:
        named = {one.name(): part for one, part in zip(self._x, x, strict=True)}
        return self.function(named, {one.name(): part for one, part in zip(self._y, y, strict=True)})

    def _check(self) -> None:
        shapes = [[jax.ShapeDtypeStruct(one.shape, jnp.float64) for one in part] for part in (self._x, self._y)]
        try:
            found = jax.eval_shape(self._called, *shapes)
        except Exception as error:  # the user's own code: its message is the one that helps
            raise ProblemError(
                f"objective: the function fails on arrays of jax.numpy: {type(error).__name__}: {error}"
            ) from error
        if getattr(found, "shape", None) != ():
            raise ProblemError("objective: the function must return one number")

    def at(self, x: Sequence[Any], y: Sequence[Any]) -> Slopes:
        """Value and derivatives at values of the leader's parameters and of the variables."""
        plain = [
            [np.asarray(part, dtype=np.float64).reshape(one.shape) for part, one in zip(given, of, strict=True)]
            for given, of in ((x, self._x), (y, self._y))
        ]
        with double_precision():
            value, (in_x, in_y) = self._compiled(*plain)
        return Slopes(
            float(value),
            np.concatenate([np.asarray(part).ravel() for part in in_x]),
            np.concatenate([np.asarray(part).ravel(order="F") for part in in_y]),
        )

    def set(self, slope: Vector, curvature: float) -> None:
        """Take a quadratic as the leader's objective."""
        at = 0
        for one in self.slope:
            one.save_value(slope[at : at + one.size].reshape(one.shape, order="F"))
            at += one.size
        self.curvature.save_value(curvature)
