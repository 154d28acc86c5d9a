"""Convex kinks of the follower's in epigraph form: exactly the same problem without a kink.

A row ``max(a, b) - c <= 0`` is the two rows ``a - c <= 0`` and ``b - c <= 0``. In the objective, and where a row has
several kinks, a further variable t of the follower's stands for ``max(a, b)``, with the rows ``a <= t`` and ``b <= t``:
where more t is never better, the follower keeps it as small as it can. ``abs(z)`` is the larger of z and -z, and in a
concave place ``min(a, b)`` is treated likewise. Nothing is rounded off, few variables still meet few others, and
multipliers of the problem itself are sums of those of its pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from blocc._lib.arrays import AnyArray, Array, Float, NDArray, PyTree
from blocc._lib.precision import double_precision
from blocc._lib.rounding import TINY
from blocc._lib.trees import flattened
from blocc.corners import kinks_of
from blocc.flat_problem import FlatProblem
from blocc.lagrangian import Multipliers, figures
from blocc.problem import BilevelProblem
from blocc.reformulate.kinked import Kinked, Raised, joined, rises, rows_to_split
from blocc.result import Result
from blocc.sets import Product, Reals

_REFORMULATED = ("lower", "inequality")
#: Pieces that differ by less, relative to the size of y, count as equal.
_TIED = 1e-7


@dataclass(frozen=True)
class EpigraphForm:
    """A problem without kinks in place of one with them, and the way back."""

    original: BilevelProblem
    problem: BilevelProblem  #: its y is (y, heights) where there are heights
    split: NDArray  #: rows of ``inequality`` that became two
    n_epigraph: int
    find: Callable[..., Array]  #: the heights at (x, y)

    def raised(self, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> Float[NDArray, " raised"]:
        """The follower's variables of the reformulated problem for a flat y: with the smallest heights."""
        if not self.n_epigraph:
            return y
        return np.concatenate([y, np.asarray(self.original.flat.program(_heights, self.find)(x, y))])

    def merged(self, inequality: Float[AnyArray, " rows"]) -> Float[AnyArray, "n_inequality"]:
        """Multipliers of the user's rows out of those of the reformulated ones."""
        count = self.original.flat.n_inequality
        own, second = inequality[:count], inequality[count : count + len(self.split)]
        if not isinstance(own, np.ndarray):  # JAX may be tracing it
            return own.at[self.split].add(second)
        own = own.copy()
        own[self.split] += second
        return own

    def priced(self, x: NDArray, raised: NDArray, prices: Multipliers) -> Multipliers:
        """Multipliers of the reformulated rows that add up to those of the user's rows: of all such the best ones.

        Where two pieces are equal, each share of a price gives a subgradient: those are chosen that leave least of the
        Lagrangian's derivative.
        """
        flat, count = self.problem.flat, self.original.flat.n_inequality
        mu, nu = (np.asarray(part, dtype=np.float64) for part in prices)
        start = np.concatenate([mu, np.zeros(flat.n_inequality - count)])
        at = flat.program(_products)(x, raised, start, nu, raised)
        tied = _TIED * (1.0 + float(np.max(np.abs(raised), initial=0.0)))
        first, second = self.split, count + np.arange(self.split.size)
        apart = at.rows[first] - at.rows[second]
        on_second = apart < -tied
        start[second[on_second]], start[first[on_second]] = mu[first[on_second]], 0.0
        shared = np.abs(apart) <= tied
        pieces = np.arange(count + first.size, flat.n_inequality)
        pieces = pieces[at.rows[pieces] >= -tied]
        if not (shared.any() or pieces.size):
            return Multipliers(start, nu)
        free = _Free(flat, x, raised, start, nu, (first[shared], second[shared], pieces))
        return Multipliers(free.best(mu[first[shared]], tied), nu)

    def invert(self, result: Result) -> Result:
        """A result of this form as one of the problem with kinks; residuals are by the best subgradient."""
        problem, target = self.original, self.problem
        visible = (lambda y: y[0]) if self.n_epigraph else (lambda y: y)
        y, y_penalty = visible(result.y), visible(result.y_penalty)
        x, at, at_penalty = problem.x_set.ravel(result.x), problem.y_set.ravel(y), problem.y_set.ravel(y_penalty)
        prices = Multipliers(
            self.merged(flattened(result.multipliers.inequality)), flattened(result.multipliers.equality)
        )
        with double_precision():
            raised = self.raised(x, at)
            told = figures(target.flat, x, raised, self.priced(x, raised, prices))
        found = told.residuals
        certificate = replace(
            result.certificate,
            stationarity=float(found.stationarity),
            feasibility=float(found.feasibility),
            complementarity=float(found.complementarity),
            distance=float(np.linalg.norm(at_penalty - at)),
        )
        return replace(
            result,
            y=y,
            y_penalty=y_penalty,
            multipliers=Multipliers(
                problem.unravel_multipliers("inequality", prices.inequality), result.multipliers.equality
            ),
            lower_value=float(told.lower),
            certificate=certificate,
        )


class _Free(NamedTuple):
    """Prices that may be chosen: shares of the second of two equal pieces, and those of the pieces of heights."""

    flat: FlatProblem
    x: NDArray
    raised: NDArray
    start: NDArray  #: all prices, where the free ones are zero
    equality: NDArray
    rows: tuple[NDArray, NDArray, NDArray]  #: first and second pieces with one price for both, pieces of heights

    def best(self, together: NDArray, tied: float) -> NDArray:
        """All prices, the free ones by least squares; ``together`` are the prices that are shared."""
        low, high = self.flat.y_set.bounds_flat()
        inside = (self.raised > low + tied) & (self.raised < high - tied)  # on bounds the slope may point outwards
        shape = (inside.size, together.size + self.rows[2].size)
        linear = scipy.sparse.linalg.LinearOperator(
            shape,
            matvec=lambda free: inside * self._multiplied(self.spread(np.ravel(free)), self.raised).pulled,
            rmatvec=lambda left: self.gathered(self._multiplied(self.start, inside * np.ravel(left)).pushed),
            dtype=np.float64,
        )
        base = self._multiplied(self.start, self.raised)
        most = np.concatenate([np.maximum(together, TINY), np.full(self.rows[2].size, np.inf)])
        found = scipy.optimize.lsq_linear(
            linear,
            inside * -(base.slope + base.pulled),
            (0.0, most),
            tol=1e-14,
            lsmr_tol=1e-14,
            lsmr_maxiter=4 * sum(shape),
        )
        return self.start + self.spread(np.clip(found.x, 0.0, most))

    def spread(self, free: NDArray) -> NDArray:
        """What the free prices change in all of them."""
        first, second, pieces = self.rows
        change = np.zeros_like(self.start)
        change[first], change[second], change[pieces] = -free[: first.size], free[: first.size], free[first.size :]
        return change

    def gathered(self, pushed: AnyArray) -> NDArray:
        """The transpose of :meth:`spread`."""
        first, second, pieces = self.rows
        return np.concatenate([pushed[second] - pushed[first], pushed[pieces]])

    def _multiplied(self, inequality: NDArray, direction: NDArray) -> _Products:
        return self.flat.program(_products)(self.x, self.raised, inequality, self.equality, direction)


class _Products(NamedTuple):
    """Products with derivatives of the follower's functions in y."""

    rows: AnyArray  #: the inequalities themselves
    slope: AnyArray  #: of the objective and the priced equalities
    pulled: AnyArray  #: the transposed Jacobian of the inequalities times their prices
    pushed: AnyArray  #: their Jacobian times the direction


def _products(flat: FlatProblem, x: Array, y: Array, inequality: Array, equality: Array, direction: Array) -> _Products:
    rows, pull = jax.vjp(lambda at: flat.inequality(x, at), y)
    pushed = jax.jvp(lambda at: flat.inequality(x, at), (y,), (direction,))[1]
    slope = jax.grad(lambda at: flat.lower(x, at) + jnp.dot(equality, flat.equality(x, at)))(y)
    return _Products(rows, slope, pull(inequality)[0], pushed)


def _heights(flat: FlatProblem, find: Callable[..., Array], x: Array, y: Array) -> Array:
    last = () if flat.rebind is None else (flat.data,)
    return find(flat.x_set.unravel(x), flat.y_set.unravel(y), *last)


def epigraph_form(problem: BilevelProblem) -> EpigraphForm | None:
    """The problem without kinks; None where it has none, or some that are not convex or not the follower's alone."""
    if not kinks_of(problem):
        return None
    found: EpigraphForm | None = problem.shared.store.get((EpigraphForm,), lambda: _unfold(problem))
    if found is None or problem.data is None or found.original is problem:
        return found
    return replace(found, original=problem, problem=found.problem.with_data(problem.data))


def _unfold(problem: BilevelProblem) -> EpigraphForm | None:
    kinks = kinks_of(problem)
    simple = set(kinks) <= set(_REFORMULATED) and "where" not in set().union(*kinks.values())
    if not simple or problem.lower_terms or problem.oracle is not None or not problem.y_set.is_box:
        return None
    functions = {name: Kinked(problem, name) for name in kinks}
    with double_precision():
        if not all(rises(problem, function) for function in functions.values()):
            return None
        split = rows_to_split(problem, functions["inequality"]) if "inequality" in functions else np.zeros(0, dtype=int)
    raised = {name: each for name, each in functions.items() if name == "lower" or split is None}
    rows = np.zeros(0, dtype=int) if split is None else split
    n_epigraph = sum(each.size for each in raised.values())

    def find(*arguments: PyTree) -> Array:
        return joined([each.heights(*arguments) for each in raised.values()])

    return EpigraphForm(problem, _built(problem, functions, raised, rows), rows, n_epigraph, find)


def _built(
    problem: BilevelProblem, functions: dict[str, Kinked], raised: dict[str, Kinked], split: NDArray
) -> BilevelProblem:
    """The problem over (y, heights), or over y where there are none."""
    ends = np.cumsum([0, *(each.size for each in raised.values())])
    places = {name: slice(a, b) for name, a, b in zip(raised, ends, ends[1:], strict=False)}

    def parts(y: PyTree) -> tuple[PyTree, Array]:
        return y if raised else (y, jnp.zeros(0))

    def seen(name: str) -> Callable[..., Any] | None:
        function = getattr(problem, name)
        return None if function is None else lambda x, y, *data: function(x, parts(y)[0], *data)

    def value(name: str, x: PyTree, y: PyTree, *data: PyTree) -> Raised:
        own, heights = parts(y)
        return raised[name].at_heights(heights[places[name]], x, own, *data)

    def inequality(x: PyTree, y: PyTree, *data: PyTree) -> PyTree:
        own, heights = parts(y)
        plain, second = seen("inequality"), jnp.zeros(0)
        rows: PyTree = () if plain is None else plain(x, y, *data)
        if "inequality" in raised:
            rows = value("inequality", x, y, *data).output
        elif "inequality" in functions:
            rows = functions["inequality"].on_piece(0, x, own, *data)
            second = joined(jax.tree.leaves(functions["inequality"].on_piece(1, x, own, *data)))[split]
        pieces = [
            piece - each.signs[a:b] * heights[places[name]][a:b]
            for name, each in raised.items()
            for (a, b), pair in zip(pairwise(each.ends), value(name, x, y, *data).pieces, strict=True)
            for piece in pair
        ]
        return rows, second, joined(pieces)

    def lower(x: PyTree, y: PyTree, *data: PyTree) -> Any:
        return value("lower", x, y, *data).output

    return BilevelProblem(
        upper=lambda x, y, *data: problem.upper(x, parts(y)[0], *data),
        lower=lower if "lower" in raised else lambda x, y, *data: problem.lower(x, parts(y)[0], *data),
        inequality=inequality,
        equality=seen("equality"),
        upper_inequality=seen("upper_inequality"),
        x_set=problem.x_set,
        y_set=Product((problem.y_set, Reals(int(ends[-1])))) if raised else problem.y_set,
        data=problem.data,
        name=problem.name,
    )
