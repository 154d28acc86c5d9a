"""A run in better units: those in which all derivatives are of order one, and the way back to the user's.

Units help the descent, and nothing else: what a run in other units returns is given back in the user's, and judged
there. They are chosen at the start of a phase of the run, from the derivatives at that point
(:mod:`blocc.local.balance`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, PyTree
from blocc._lib.precision import double_precision
from blocc.flat_problem import FlatProblem
from blocc.lagrangian import Multipliers, figures
from blocc.local.balance import Units, balance
from blocc.local.derivatives import LARGEST, Local, size_of, wide
from blocc.outer.monitor import State
from blocc.problem import BilevelProblem
from blocc.reformulate.moving_box import MovingBox
from blocc.result import History, HistoryRow, Result
from blocc.sets import Box, ConvexSet

_ROOM = 100.0  #: units within this factor of one are left alone at the start
_FARTHEST = 60.0  #: powers of two; derivatives that vanish at the point would ask for any unit


def units_of(flat: FlatProblem, x: np.ndarray, y: np.ndarray | None = None, room: float = _ROOM) -> Units | None:
    """Units around (x, y), y being the middle of Y by default; None where the user's are good, or none can be found.

    All are powers of two. Where X or Y is no box, its variables keep their units.
    """
    found = _found(flat, x, y)
    if found is None:
        return None
    logarithms = balance(flat, found)
    logarithms = logarithms._replace(
        x=logarithms.x if flat.x_set.is_box else np.zeros(flat.n_x),
        y=logarithms.y if flat.y_set.is_box else np.zeros(flat.n_y),
    )
    if not (flat.x_set.is_box and flat.y_set.is_box):
        return _of_functions(flat, found, np.exp2(np.round(logarithms.x)), np.exp2(np.round(logarithms.y)), room)
    away = float(np.max(np.abs(np.concatenate([np.ravel(part) for part in logarithms]))))
    if not np.log2(room) <= away <= _FARTHEST:
        return None
    return Units(*(np.exp2(np.round(part)) for part in logarithms))


def _found(flat: FlatProblem, x: np.ndarray, y: np.ndarray | None) -> Local | None:
    if size_of(flat) > LARGEST or flat.prox is not None:
        return None
    found = wide(flat, x, flat.y_set.interior_flat() if y is None else y)
    return found if found.finite else None


def _of_functions(flat: FlatProblem, found: Local, x: np.ndarray, y: np.ndarray, room: float) -> Units | None:
    """Units of the functions that bring their largest derivative to one; None where all are within ``room``."""
    both, n_x = np.concatenate([x, y]), flat.n_x

    def unit(sizes: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp2(-np.round(np.log2(np.where(sizes > 0.0, sizes, 1.0)))))

    def objective(gradient: np.ndarray, hessian: np.ndarray, first: int) -> np.ndarray:
        slope = np.max(np.abs(gradient[first:]) * both[first:], initial=0.0)
        bend = np.max(np.abs(hessian[first:, first:]) * both[first:, None] * both[first:], initial=0.0)
        return unit(np.asarray(max(slope, bend)))

    units = Units(
        x,
        y,
        objective(found.upper_gradient, found.upper_hessian, 0),
        objective(found.lower_gradient, found.lower_hessian, n_x),
        *(
            unit(np.max(np.abs(jacobian) * both, axis=1, initial=0.0))
            for jacobian in (
                found.inequality_jacobian[: flat.n_inequality],
                found.equality_jacobian[: flat.n_equality],
                found.upper_inequality_jacobian,
            )
        ),
    )
    away = max(float(np.max(np.abs(np.log2(part)), initial=0.0)) for part in units)
    return units if np.log2(room) <= away <= _FARTHEST else None


class _Report:
    """Live progress in the user's units."""

    def __init__(self, report: Any, row: Callable[[HistoryRow], HistoryRow]) -> None:
        self._report, self._row = report, row
        self.close = getattr(report, "close", lambda: None)

    def __call__(self, iteration: int, row: HistoryRow) -> None:
        self._report(iteration, self._row(row))


@dataclass(frozen=True)
class Scaling:
    """A problem in good units, and the way back."""

    original: BilevelProblem
    problem: BilevelProblem
    units: Units

    def inward(self, x: np.ndarray) -> np.ndarray:
        """A flat point of the leader's set in the good units."""
        return x / self.units.x

    def callback(self, callback: Callable[[State], Any] | None) -> Callable[[State], Any] | None:
        """A callback that is shown the user's units."""
        if callback is None:
            return None
        to_user = self.original.x_set.unravel
        return lambda state: callback(
            State(to_user(np.asarray(state.x) * self.units.x), state.iteration, self.row(state.row))
        )

    def report(self, report: Any) -> Any:
        """Live progress in the user's units."""
        return None if report is None else _Report(report, self.row)

    def row(self, row: HistoryRow) -> HistoryRow:
        """One iteration in the user's units. Residuals, distances and steps stay relative to the size of things."""
        f, g = float(self.units.upper), float(self.units.lower)
        return row._replace(
            gamma=row.gamma * g / f,
            upper_value=row.upper_value / f,
            upper_value_penalty=row.upper_value_penalty / f,
            lower_value=row.lower_value / g,
            penalty_value=row.penalty_value / f,
        )

    def restore(self, result: Result) -> Result:
        """The result in the user's units and structures, its residuals computed again from the user's functions."""
        flat, u = self.original.flat, self.units
        f, g = float(u.upper), float(u.lower)
        x, y, y_penalty = np.asarray(result.x) * u.x, np.asarray(result.y) * u.y, np.asarray(result.y_penalty) * u.y
        inequality = np.asarray(result.multipliers.inequality) * u.inequality / g
        equality = np.asarray(result.multipliers.equality) * u.equality / g
        told = figures(flat, x, y, Multipliers(inequality, equality))
        found = told.residuals
        certificate = replace(
            result.certificate,
            stationarity=float(found.stationarity),
            feasibility=float(found.feasibility),
            complementarity=float(found.complementarity),
            penalty_gap=result.certificate.penalty_gap / f,
            distance=float(np.linalg.norm(y_penalty - y)),
            stationarity_x=result.certificate.stationarity_x / f,
            leader_violation=float(np.max(told.upper_inequality, initial=0.0)),
        )
        to_y = lambda point: jax.tree.map(np.asarray, self.original.y_set.unravel(point))  # noqa: E731
        return replace(
            result,
            x=jax.tree.map(np.asarray, self.original.x_set.unravel(x)),
            y=to_y(y),
            y_penalty=to_y(y_penalty),
            multipliers=Multipliers(
                self.original.unravel_multipliers("inequality", inequality),
                self.original.unravel_multipliers("equality", equality),
            ),
            upper_value=result.upper_value / f,
            lower_value=result.lower_value / g,
            upper_value_penalty=result.upper_value_penalty / f,
            gamma=result.gamma * g / f,
            certificate=certificate,
            history=History([self.row(row) for row in result.history.rows()]),
            name=self.original.name,
        )


def scaling_of(problem: BilevelProblem, units: Units | None) -> Scaling | None:
    """The problem in the given units; None where there are none."""
    return None if units is None else Scaling(problem, _in_units(problem, units), units)


def first_units(problem: BilevelProblem, x: np.ndarray) -> Units | None:
    """Units to begin with; None for a problem that is too large or has an oracle of its own: it keeps the user's.

    Where the user's are good, all are one: a later phase of the same run may then change those of the functions without
    compiling anything again.
    """
    if not takes_units(problem):
        return None
    with double_precision():
        return units_of(problem.flat, x) or ones(problem.flat)


def takes_units(problem: BilevelProblem) -> bool:
    """Whether a problem is run in units other than the user's, where those are better."""
    return problem.oracle is None and problem.flat.prox is None and size_of(problem.flat) <= LARGEST


def ones(flat: FlatProblem) -> Units:
    """The user's own units."""
    rows = (flat.n_inequality, flat.n_equality, flat.n_upper_inequality)
    number = np.ones(())
    return Units(np.ones(flat.n_x), np.ones(flat.n_y), number, number, *(np.ones(count) for count in rows))


class _FlatSet(ConvexSet):
    """A set over flat vectors: the same members, without their structure."""

    def __init__(self, within: ConvexSet) -> None:
        self._within, self.size, self.template = within, within.size, np.zeros(within.size)

    def __repr__(self) -> str:
        return repr(self._within)

    @property
    def is_smooth(self) -> bool:
        """Whether the inequalities have derivatives all over the set."""
        return self._within.is_smooth

    def project_flat(self, point: AnyArray) -> Array:
        """Nearest member."""
        return self._within.project_flat(point)

    def interior_flat(self) -> np.ndarray:
        """A point in the relative interior."""
        return self._within.interior_flat()

    def sample_flat(self, generator: np.random.Generator) -> np.ndarray:
        """A random member."""
        return self._within.sample_flat(generator)

    def bounds_flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the coordinates."""
        return self._within.bounds_flat()

    def inequality_flat(self, point: AnyArray) -> Array:
        """What must not be positive."""
        return self._within.inequality_flat(point)

    def equality_flat(self, point: AnyArray) -> Array:
        """What must vanish."""
        return self._within.equality_flat(point)


class _Data(NamedTuple):
    """Everything that one compiled program takes as an argument, so that no change of units compiles another."""

    given: PyTree  #: the user's own data
    units: Units
    bounds: tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]  #: of X and Y, in these units


@dataclass(frozen=True, kw_only=True, eq=False)
class _InUnits(BilevelProblem):
    """A problem over flat vectors whose sets, where they are boxes, are part of its data."""

    within: FlatProblem | None = None  #: the same in the user's units

    def _flat_over(self, data: PyTree) -> FlatProblem:
        moved = [
            MovingBox(low, high, within.bounded_flat()) if within.is_box else within
            for within, (low, high) in zip((self.x_set, self.y_set), data.bounds, strict=True)
        ]
        easier = self.within.easier if self.within is not None else None
        leading = None if easier is None else lambda now: [now._replace(given=given) for given in easier(now.given)]
        return replace(super()._flat_over(data), x_set=moved[0], y_set=moved[1], easier=leading)


def _in_units(problem: BilevelProblem, units: Units) -> BilevelProblem:
    """The problem over flat vectors in the given units; what was compiled for one set of units serves the next."""
    flat = problem.flat
    ends = [
        tuple(end / unit for end in convex_set.bounds_flat())
        for convex_set, unit in ((flat.x_set, units.x), (flat.y_set, units.y))
    ]
    data = _Data(flat.data, units, (ends[0], ends[1]))
    made: BilevelProblem = flat.store.get((_InUnits,), lambda: _over_units(flat, problem.name, data))
    return made.with_data(data)


def _over_units(flat: FlatProblem, name: str, data: _Data) -> BilevelProblem:
    def scaled(part: str) -> Callable[[Array, Array, _Data], Array]:
        def function(x: Array, y: Array, data: _Data) -> Array:
            u = data.units
            found = getattr(flat.bind(data.given), part)(lax.mul(u.x, x), lax.mul(u.y, y))
            return lax.mul(found, getattr(u, part))  # traced dozens of times: JAX's own product takes a fifth of *

        return function

    sets = [
        Box(*convex_set.bounds_flat()) if convex_set.is_box else _FlatSet(convex_set)
        for convex_set in (flat.x_set, flat.y_set)
    ]
    return _InUnits(
        upper=scaled("upper"),
        lower=scaled("lower"),
        inequality=scaled("inequality") if flat.n_inequality else None,
        equality=scaled("equality") if flat.n_equality else None,
        upper_inequality=scaled("upper_inequality") if flat.n_upper_inequality else None,
        x_set=sets[0],
        y_set=sets[1],
        data=data,
        name=name,
        within=flat,
    )
