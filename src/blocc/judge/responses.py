"""f(x, y(x)) by values: the follower's response at any x, judged, and what the leader gets there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np

from blocc._lib.arrays import AnyArray
from blocc._lib.rounding import EPS, SECOND_STEP, TINY
from blocc.flat_problem import FlatProblem
from blocc.judge.distance import undetermined
from blocc.judge.lower_level import LowerKKT, polish, preferred, reply
from blocc.judge.pieces import smooth_piece
from blocc.judge.probe import Value
from blocc.judge.ways import LeaderRows, row_multipliers, weigh
from blocc.lagrangian import Multipliers, figures, zero_multipliers
from blocc.local.derivatives import DENSE, size_of
from blocc.local.scales import Sizes, row_sizes

#: A response is trusted if it is accurate to this ratio.
_TRUSTED = 1e-4
FEASIBLE = 1e-9
#: Newton steps back to G(x, y(x)) <= 0 from a point on its tangent: each squares the violation.
_MENDS = 2


def below_tolerance(tolerance: float) -> float:
    """What the ratios of the follower and of the leader's own constraints may be: 1e-6 at the default tolerance."""
    return float(np.clip(0.1 * tolerance, 1e-9, 1e-3))


def _unwatched() -> None:
    """Nobody waits."""


class Standing(NamedTuple):
    """What a point is worth, exactly."""

    value: Value
    floor: float  #: what rounding and the accuracy of y may feign in f


@dataclass(frozen=True)
class Responses:
    """Asks for the follower's response: ``answer(x)`` finds y (None if there is none), its accuracy is judged here."""

    flat: FlatProblem
    answer: Callable[[np.ndarray], np.ndarray | None]
    project: Callable[[np.ndarray], np.ndarray]
    values: Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]  #: f and G
    tolerance: float = 1e-5
    seed: int = 0
    row_units: np.ndarray | None = None  #: what the rows of G change by with x, once that is known
    near: np.ndarray | None = None  #: the follower's response at a regular x, from which Newton's method begins
    normals: np.ndarray | None = None  #: Jacobian of G(x, y(x)) there
    sizes: np.ndarray | float = 1.0  #: of x
    natural: Sizes | None = None  #: of x and y
    watch: Callable[[], None] = _unwatched  #: called before everything that takes time; may raise to end the work

    @property
    def dense(self) -> bool:
        """Whether the problem is small enough for second derivatives, and has them."""
        return size_of(self.flat) <= DENSE and self.flat.prox is None

    def reduced_objective(self, x: np.ndarray) -> Value | None:
        """What the leader gets at x; if G is violated there, at a point nearby where a Newton step has mended that."""
        found = self._asked(x)
        for _ in range(_MENDS):
            if found is None or self.normals is None or found.violation <= below_tolerance(self.tolerance):
                break
            found = self._asked(self.mended(found)) or found
        return found

    def mended(self, value: Value) -> np.ndarray:
        """The point next to ``value.x`` at which its violated rows of G vanish to first order."""
        assert self.normals is not None
        rows = self.values(value.x, value.y)[1]
        violated = rows > 0.0
        step = np.linalg.lstsq(self.normals[violated] * self.sizes, -rows[violated], rcond=None)[0]
        return self.project(value.x + self.sizes * step)

    def _asked(self, x: np.ndarray) -> Value | None:
        self.watch()
        judged = self._from_near(x)
        if judged is not None:
            return self.value(x, judged.y, judged)
        y = self.answer(x)
        if y is None:
            return None
        judged = self.polished(x, y)
        # Beyond an edge of the follower's feasibility, or a tie, answers that are a little wrong may look better.
        if judged is not None and judged.worst > FEASIBLE:
            return None
        return self.value(x, y if judged is None else judged.y, judged)

    def _from_near(self, x: np.ndarray) -> LowerKKT | None:
        """The response by Newton steps from the one nearby; None where they do not lead to it."""
        if self.near is None:
            return None
        first = reply(self.flat, x, self.near, self.natural)
        judged = None if first is None else polish(self.flat, first)
        return judged if judged is not None and judged.worst <= FEASIBLE else None

    def polished(self, x: np.ndarray, y: np.ndarray) -> LowerKKT | None:
        """The follower's answer judged, after Newton steps; of many the one that suits the leader best.

        None where second derivatives are not to be had.
        """
        if not self.dense:
            return None
        judged = reply(self.flat, x, y)
        judged = None if judged is None else polish(self.flat, judged)
        if judged is None or judged.worst > _TRUSTED:
            return judged
        other = preferred(self.flat, judged)
        return judged if other is None or other.worst > max(judged.worst, FEASIBLE) else other

    def as_given(self, x: np.ndarray, y: np.ndarray) -> LowerKKT | None:
        """The same without improving y."""
        return reply(self.flat, x, y) if self.dense else None

    def value(self, x: np.ndarray, y: np.ndarray, judged: LowerKKT | None = None) -> Value:
        """f and the relative violation of G at (x, y); f is infinite if it has no value there."""
        upper, rows = self.values(x, y)
        upper = upper if np.isfinite(upper) else np.inf
        if not len(rows):
            return Value(x, y, upper, 0.0)
        size = self._row_sizes(x, y, judged, len(rows))
        return Value(x, y, upper, float(np.max(np.maximum(rows, 0.0) / np.maximum(size, TINY))))

    def _row_sizes(self, x: np.ndarray, y: np.ndarray, judged: LowerKKT | None, count: int) -> np.ndarray:
        """What each row of G may be measured by: what x changes it by, and no less than its rounding allows."""
        if judged is None:
            return np.ones(count) if self.row_units is None else self.row_units
        jacobian = judged.local.upper_inequality_jacobian
        terms = 4.0 * EPS * (x.size + y.size)  # of a sum of so many products (Higham 2002, section 3.1), and of y
        rounding = terms / below_tolerance(self.tolerance) * (np.abs(jacobian) @ np.abs(np.concatenate([x, y])))
        if self.row_units is not None:
            return np.maximum(self.row_units, rounding)
        return row_sizes(jacobian, judged.sizes.both, np.concatenate([x, y]))

    def residual_of(self, x: np.ndarray, y: np.ndarray, multipliers: Multipliers | None) -> float:
        """Largest residual of the follower's KKT conditions with the multipliers given, relative to the size of y.

        Large multipliers magnify rounding in the gradient of the Lagrangian; beyond 100 they count in the scale, as in
        Ipopt.
        """
        given = zero_multipliers(self.flat) if multipliers is None else multipliers
        found = figures(self.flat, x, y, given).residuals
        every = np.concatenate([np.abs(np.asarray(part)) for part in given])
        steep = max(1.0, float(every.mean()) / 100.0) if every.size else 1.0
        largest = max(float(found.stationarity) / steep, float(found.feasibility), float(found.complementarity))
        return largest / (1.0 + float(np.max(np.abs(y), initial=0.0)))

    def gradient(self, x: np.ndarray) -> tuple[Value, np.ndarray, np.ndarray] | None:
        """f, its derivative and that of G along y(x), at x; None where y(x) has none."""
        judged = self._from_near(x)
        if judged is None:
            y = self.answer(x)
            judged = None if y is None else self.polished(x, y)
        if judged is None or judged.worst > _TRUSTED:
            return None
        piece = smooth_piece(self.flat, judged)
        if piece is None:
            return None
        return self.value(x, judged.y, judged), piece.gradient, piece.jacobian[piece.leader]

    def standing(self, x: np.ndarray, y: np.ndarray, multipliers: Multipliers | None = None) -> Standing | None:
        """The exact value at x, by Newton steps from y; None if y is not shown to be a response, or G is violated.

        What f gains by a violation of G that is small enough is taken back, to first order: multipliers of 1e8 make
        such points look better than any that are admissible.
        """
        judged = self.polished(x, y)
        residual = self.residual_of(x, y, multipliers) if judged is None else judged.worst
        # Beyond an edge of the follower's feasibility, or a tie, answers that are a little wrong look better.
        if not residual <= (below_tolerance(self.tolerance) if judged is None else FEASIBLE):
            return None
        piece = None if judged is None else smooth_piece(self.flat, judged)
        judge = self
        if piece is not None and judged is not None:  # of points that cost a nearly flat follower the same, the least
            judged = reply(self.flat, x, piece.y, judged.sizes)
        if judged is not None and undetermined(self.flat, judged, self.tolerance):
            return None
        if piece is not None and judged is not None:
            judge = replace(self, row_units=np.abs(piece.jacobian[piece.leader]) @ judged.sizes.x)
        found = judge.value(x, y if judged is None else judged.y, judged)
        if not (found.violation <= below_tolerance(self.tolerance) and np.isfinite(found.upper)):
            return None
        floor = self.floor(found, judged, None if piece is None else piece.error, residual)
        if piece is None or judged is None or found.violation == 0.0:
            return Standing(found, floor)
        rows = LeaderRows(piece.rows, piece.jacobian, piece.equality_jacobian)
        priced = row_multipliers(weigh(self.flat, x, piece.gradient, judged.sizes.x, rows), rows)[piece.leader]
        gained = float(priced @ np.maximum(piece.rows[piece.leader], 0.0))
        return Standing(found._replace(upper=found.upper + gained), floor)

    def floor(self, here: Value, judged: LowerKKT | None, error: float | None, residual: float) -> float:
        """What rounding of x and y, and the accuracy of y, may feign in f: first-order terms of both.

        ``error`` is what a Newton step to the response changes f by, on a regular piece. Elsewhere every entry of y may
        be off by the ``residual`` of its conditions.
        """
        rounding = 4.0 * EPS * abs(here.upper)
        if judged is None:
            slope = np.abs(self.flat.program(_upper_slope)(here.x, here.y))
            return rounding + 2.0 * residual * (1.0 + float(np.max(np.abs(here.y), initial=0.0))) * float(slope.sum())
        gradient = np.abs(judged.local.upper_gradient)
        rounding += 4.0 * EPS * float(gradient @ np.abs(np.concatenate([here.x, here.y])))
        # Without a regular piece y is known as well as the residuals of its conditions say.
        unsure = judged.worst * float(gradient[self.flat.n_x :] @ judged.sizes.y) if error is None else error
        return rounding + 2.0 * unsure

    def underflows(self, here: Value, gradient: np.ndarray) -> bool:
        """Whether phi has no slope at x only because numbers cannot be as small as it is: exp(-x) has no minimum.

        Between the middle of X and x lies the point where the slope becomes exactly zero. That of a function which is
        flat from some point on goes to zero before it; one that underflows ends at the smallest number there is.
        """
        low, high = self.flat.x_set.bounds_flat()
        if np.any(gradient) or (np.isfinite(low).all() and np.isfinite(high).all()):
            return False
        middle, near, far, last = self.flat.x_set.interior_flat(), 0.0, 1.0, np.inf
        # As near to the point where it underflows as this, exp(-x) and exp(-x**2) have fallen by 300 decades already.
        for _ in range(60):
            if far - near <= SECOND_STEP * far:
                break
            half = 0.5 * (near + far)
            found = self.gradient(self.project(middle + half * (here.x - middle)))
            if found is not None and np.any(found[1]):
                near, last = half, float(np.max(np.abs(found[1])))
            else:
                far = half
        return last < 1e-200


def _upper_slope(flat: FlatProblem, x: AnyArray, y: AnyArray) -> AnyArray:
    return jax.grad(flat.upper, argnums=1)(x, y)
