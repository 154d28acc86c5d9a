"""Units in which all numbers of a problem are of order one, so that tolerances mean the same for every problem.

A user's units may differ by many powers of ten: metres beside kilometres, a cost in millions. Every first and second
derivative at the start is a product of such units; taking logarithms, the units that bring all of them close to one
solve a linear least-squares problem. Where they are far from one, the problem is solved in those units, and the result
is given back in the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc.compilation import compile_ahead
from blocc.lagrangian import Multipliers, Weights, residuals
from blocc.outer.monitor import HistoryRow, State
from blocc.precision import double_precision
from blocc.problem import BilevelProblem, FlatProblem
from blocc.result import History, Result
from blocc.sets import Box

Array = Any
PyTree = Any

LARGEST = 200  #: variables and constraints together, beyond which dense second derivatives cost too much
_ROOM = 100.0  #: units within this factor of one are left alone
_PULL = 0.1  #: weight of the wish that a unit be one, for what the derivatives leave open


class Units(NamedTuple):
    """``x = units.x * z``, ``y = units.y * w``; functions are multiplied by theirs. All are powers of two."""

    x: np.ndarray
    y: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    inequality: np.ndarray
    equality: np.ndarray
    upper_inequality: np.ndarray


_ROWS = ("inequality", "equality", "upper_inequality")


def _derivatives(problem: FlatProblem, data: PyTree, x: Array, y: Array) -> dict[str, tuple[Array, ...]]:
    """Gradients and Hessians of the objectives, Jacobians of the constraints, in (x, y) together."""
    flat, both = problem.bind(data), jnp.concatenate([x, y])

    def joint(name: str) -> Callable[[Array], Array]:
        function = getattr(flat, name)
        return lambda z: function(z[: x.size], z[x.size :])

    found: dict[str, tuple[Array, ...]] = {
        name: (jax.grad(joint(name))(both), jax.hessian(joint(name))(both)) for name in ("upper", "lower")
    }
    return found | {name: (jax.jacfwd(joint(name))(both),) for name in _ROWS}


def units_of(flat: FlatProblem, x: np.ndarray) -> Units | None:
    """Units for the problem around ``x``; None where the user's own are good, or where none can be found."""
    rows = {"inequality": flat.n_inequality, "equality": flat.n_equality, "upper_inequality": flat.n_upper_inequality}
    if flat.n_x + flat.n_y + sum(rows.values()) > LARGEST:
        return None
    arguments = (flat.data, jnp.asarray(x), jnp.asarray(flat.y_set.interior_flat()))
    if "derivatives" not in flat.shared:
        flat.shared["derivatives"], _ = compile_ahead(partial(_derivatives, flat), *arguments)
    found = jax.device_get(flat.shared["derivatives"](*arguments))
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found)):
        return None
    logarithms = _balance(found, flat.n_x, flat.n_y)
    if np.max(np.abs(np.concatenate([np.ravel(part) for part in logarithms]))) < np.log2(_ROOM):
        return None
    if abs(float(logarithms.upper)) < np.log2(_ROOM):  # tolerances are relative to it, and the user's must not grow
        logarithms = logarithms._replace(upper=np.zeros_like(logarithms.upper))
    return Units(*(np.exp2(np.round(part)) for part in logarithms))


def _noise(*parts: np.ndarray) -> float:
    """Derivatives of one function below this size are zero up to rounding."""
    return 1e-14 * max(float(np.max(np.abs(part), initial=0.0)) for part in parts)


def _balance(found: dict[str, tuple[np.ndarray, ...]], n_x: int, n_y: int) -> Units:
    """Base-two logarithms of the units that bring the derivatives closest to one, in least squares."""
    n = n_x + n_y
    counts = [len(found[name][0]) for name in _ROWS]
    total = n + 2 + sum(counts)
    lines: list[np.ndarray] = [_PULL * np.eye(total)]
    sizes: list[np.ndarray] = [np.zeros(total)]

    def add(
        function: int, entries: np.ndarray, smallest: float, first: np.ndarray, second: np.ndarray | None = None
    ) -> None:
        """One equation for every entry beyond rounding: log|entry| + log units = 0."""
        entries = np.abs(entries)
        keep = entries > smallest
        line = np.zeros((int(keep.sum()), total))
        position = np.arange(len(line))
        line[position, function] += 1.0
        line[position, first[keep]] += 1.0
        if second is not None:
            line[position, second[keep]] += 1.0
        # All entries of one function together weigh as much as those of any other.
        weight = 1.0 / np.sqrt(max(1.0, len(line) / n))
        lines.append(weight * line)
        sizes.append(-weight * np.log2(entries[keep]))

    variables = np.arange(n)
    for place, name in ((n, "upper"), (n + 1, "lower")):
        slope, bend = found[name]
        if name == "lower":  # what only depends on x means nothing to the follower
            slope, bend = np.where(variables < n_x, 0.0, slope), bend.copy()
            bend[:n_x, :n_x] = 0.0
        rounding = _noise(slope, bend)
        # Close to a stationary point slopes are small by chance: they say nothing about units.
        slope = np.where(np.abs(slope) >= 1e-3 * np.max(np.abs(bend), axis=1, initial=0.0), slope, 0.0)
        add(place, slope, rounding, variables)
        add(place, bend.ravel(), rounding, np.repeat(variables, n), np.tile(variables, n))
    row = n + 2
    for name in _ROWS:
        for gradient in found[name][0]:
            add(row, gradient, _noise(gradient), variables)
            row += 1
    solved = np.linalg.lstsq(np.concatenate(lines), np.concatenate(sizes), rcond=None)[0]
    cuts = np.cumsum([n_x, n_y, 1, 1, *counts])[:-1]
    x, y, upper, lower, *rest = np.split(solved, cuts)
    return Units(x, y, upper[0], lower[0], *rest)


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
        number = jnp.asarray
        weights = Weights(number(0.0), number(1.0), jnp.zeros(flat.n_upper_inequality), number(1.0))
        prices = Multipliers(number(inequality), number(equality))
        found = residuals(flat, number(x), number(y), prices, weights)
        certificate = replace(
            result.certificate,
            stationarity=float(found.stationarity),
            feasibility=float(found.feasibility),
            complementarity=float(found.complementarity),
            penalty_gap=result.certificate.penalty_gap / f,
            distance=float(np.linalg.norm(y_penalty - y)),
            stationarity_x=result.certificate.stationarity_x * slope_ratio(result.upper_value, u),
            leader_violation=float(np.max(np.asarray(flat.upper_inequality(number(x), number(y))), initial=0.0)),
        )
        # Without the units no one could check the stationarity of x.
        units = {name: np.asarray(part).tolist() for name, part in u._asdict().items()}
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
            message=f"{result.message} (Computed in other units, in which all derivatives are of order one.)",
            name=self.original.name,
            settings={**result.settings, "units": units},
        )


def slope_ratio(value: float, units: Units) -> float:
    """By which a slope of the run's is multiplied for the user: it keeps its share of the tolerance.

    ``value`` is the upper value of the run; tolerances are relative to one more than its size.
    """
    return (1.0 + abs(value / float(units.upper))) / (1.0 + abs(value))


def scaling_of(problem: BilevelProblem, x: np.ndarray) -> Scaling | None:
    """The problem in good units, or None where its own are good (or X, Y are no boxes, or it has its own oracle)."""
    flat = problem.flat
    if problem.oracle is not None or not flat.x_set.is_box or not flat.y_set.is_box:
        return None
    with double_precision():
        units = units_of(flat, x)
    return None if units is None else Scaling(problem, _in_units(problem, units), units)


def _in_units(problem: BilevelProblem, units: Units) -> BilevelProblem:
    """The problem over flat vectors in the given units; what was compiled for one set of units serves the next."""
    flat = problem.flat

    def scaled(name: str) -> Callable[[Array, Array, tuple[PyTree, Units]], Array]:
        def function(x: Array, y: Array, data: tuple[PyTree, Units]) -> Array:
            given, u = data
            return getattr(flat.bind(given), name)(u.x * x, u.y * y) * getattr(u, name)

        return function

    bounds = [
        Box(low / unit, high / unit)
        for (low, high), unit in ((flat.x_set.bounds_flat(), units.x), (flat.y_set.bounds_flat(), units.y))
    ]
    key = ("in units", *(end.tobytes() for box in bounds for end in box.bounds_flat()))
    if key not in flat.shared:
        flat.shared[key] = BilevelProblem(
            upper=scaled("upper"),
            lower=scaled("lower"),
            inequality=scaled("inequality") if flat.n_inequality else None,
            equality=scaled("equality") if flat.n_equality else None,
            upper_inequality=scaled("upper_inequality") if flat.n_upper_inequality else None,
            x_set=bounds[0],
            y_set=bounds[1],
            data=(flat.data, units),
            name=problem.name,
        )
    return flat.shared[key].with_data((flat.data, units))
