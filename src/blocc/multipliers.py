"""The follower's multipliers as a part of its answer, for leaders who look at prices.

Where the follower is a linear or a convex quadratic program in y, an answer and its multipliers are the pairs (y, mu,
nu) that are feasible, stationary and without a gap of duality:

    gc(x, y) <= 0,  h(x, y) = 0,  mu >= 0,  g_y + mu'gc_y + nu'h_y = 0,  gap = y'g_y - mu'gc(x, 0) - nu'h(x, 0) = 0

The gap is never negative, and convex in the pair. So "minimise the gap" is a follower whose value function is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, PyTree
from blocc._lib.precision import double_precision
from blocc._lib.rounding import PLACED
from blocc.errors import ProblemError
from blocc.problem import BilevelProblem
from blocc.sets import Box, ConvexSet, Product

#: Random points at which the follower is held against a quadratic program.
_TRIALS = 4


def with_multipliers(
    problem: BilevelProblem,
    upper: Callable[[PyTree, dict[str, Any]], Any],
    upper_inequality: Callable[[PyTree, dict[str, Any]], Any] | None = None,
) -> BilevelProblem:
    """The problem of a leader whose objective ``upper(x, pair)`` knows the follower's multipliers.

    The follower must be a linear or convex quadratic program in y over a box, with constraints that are affine in y.
    It becomes a dict of ``y`` and its multipliers, as is the result's ``y``: ``inequality`` and ``equality`` (flat
    vectors, in the order of the constraints), ``low`` and ``high`` for the finite bounds of y; only those that
    there are. The Lagrangian is ``lower + inequality'gc + equality'h``. The leader's functions must be convex in the
    pair. Where multipliers are not unique, those that suit the leader are taken, as among several answers.

    :param upper_inequality: the leader's own constraints, of x and the pair; those of ``problem`` are left out
    :raises ProblemError: where the follower is of another kind
    """
    if not isinstance(problem, BilevelProblem):
        raise ProblemError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    if not problem.y_set.is_box:
        raise ProblemError("y_set must be a box or all reals, to know its multipliers: write other sets as constraints")
    if problem.lower_terms:
        raise ProblemError("lower_terms: norms have no multipliers here; write them by variables and constraints")
    pairs = _Pairs(problem)
    with double_precision():
        pairs.check()
    return BilevelProblem(
        upper=upper,
        lower=pairs.gap,
        x_set=problem.x_set,
        y_set=pairs.set,
        inequality=pairs.inequality if problem.inequality is not None else None,
        equality=pairs.equality,
        upper_inequality=upper_inequality,
        name=problem.name,
    )


def _flat(tree: PyTree) -> Float[Array, " n"]:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


class _Pairs:
    """The follower's quadratic program over flat vectors, and pairs of its answer and multipliers."""

    def __init__(self, problem: BilevelProblem) -> None:
        self.flat = flat = problem.flat
        low, high = problem.y_set.bounds_flat()
        self.below, self.above = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
        self.low, self.high = np.asarray(low)[self.below], np.asarray(high)[self.above]
        sizes = {"inequality": flat.n_inequality, "low": len(self.below), "high": len(self.above)}
        parts: dict[str, ConvexSet] = {"y": problem.y_set}
        if flat.n_equality:
            parts["equality"] = Box(np.full(flat.n_equality, -np.inf), np.full(flat.n_equality, np.inf))
        parts |= {name: Box(np.zeros(size), np.full(size, np.inf)) for name, size in sizes.items() if size}
        self.set = Product(parts)

    def check(self) -> None:
        """Hold the functions against models that are exact for quadratic programs, at random points."""
        flat, generator = self.flat, np.random.default_rng(0)
        for _ in range(_TRIALS):
            x = jnp.asarray(flat.x_set.sample_flat(generator))
            y, step = (jnp.asarray(generator.standard_normal(flat.n_y)) for _ in range(2))
            self._demand(partial(self._slope, x), y, step, "lower must be quadratic in y")
            self._demand(partial(flat.inequality, x), y, step, "inequality must be affine in y")
            self._demand(partial(flat.equality, x), y, step, "equality must be affine in y")

    @staticmethod
    def _demand(function: Callable[[Any], Any], y: Any, step: Any, words: str) -> None:
        here = function(y)
        bent = function(y + step) - 2.0 * here + function(y - step)
        size = 1.0 + float(jnp.max(jnp.abs(here), initial=0.0))
        if not float(jnp.max(jnp.abs(bent), initial=0.0)) <= PLACED * size:
            raise ProblemError(f"{words}: multipliers are known for linear and quadratic programs alone")

    def _slope(self, x: Any, y: Any) -> Any:
        return jax.grad(lambda at: self.flat.lower(x, at))(y)

    def gap(self, x: PyTree, pair: dict[str, Any]) -> Any:
        """The gap of duality."""
        at, y = _flat(x), _flat(pair["y"])
        zero = jnp.zeros_like(y)
        found = y @ self._slope(at, y)
        if "inequality" in pair:
            found = found - pair["inequality"] @ self.flat.inequality(at, zero)
        if "equality" in pair:
            found = found - pair["equality"] @ self.flat.equality(at, zero)
        if "low" in pair:
            found = found - pair["low"] @ self.low
        return found + pair["high"] @ self.high if "high" in pair else found

    def inequality(self, x: PyTree, pair: dict[str, Any]) -> Any:
        """The follower's own."""
        return self.flat.inequality(_flat(x), _flat(pair["y"]))

    def equality(self, x: PyTree, pair: dict[str, Any]) -> Any:
        """The stationarity of y, and the follower's own."""
        at, y = _flat(x), _flat(pair["y"])
        found = self._slope(at, y)
        for name, rows in (("inequality", self.flat.inequality), ("equality", self.flat.equality)):
            if name in pair:
                _, pull = jax.vjp(partial(rows, at), jnp.zeros_like(y))
                found = found + pull(pair[name])[0]
        if "low" in pair:
            found = found.at[self.below].add(-pair["low"])
        if "high" in pair:
            found = found.at[self.above].add(pair["high"])
        return jnp.concatenate([found, self.flat.equality(at, y)])
