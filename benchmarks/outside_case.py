"""What a problem of the outside stress set is: natural functions, units, and an independent follower.

Every family writes its problem in *natural* units: the features of f, g, the constraint rows and the sets that matter
are about 1 wide and 1 high. `build` then puts the problem into the units of a (careless) user: x and y are scaled and
shifted, f, g and every row are multiplied and f and g shifted. blocc sees only the user's problem. The judge works in
natural units, so that neither units nor shifts can hide or invent an error.

The formulas are written once, over an array module `m` (jax.numpy for blocc, NumPy for the judge). The follower's
answer is never computed by blocc: every case brings a function `follower(x)`, in closed form or by brute force.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc import Ball, BilevelProblem, Box, Reals, Simplex

Array = np.ndarray
Formula = Callable[[Any, Any, Any, Any], Any]  # (array module, x, y, data)


@dataclass(frozen=True)
class Region:
    """A box (perhaps unbounded), a ball or a simplex, with its own projection; shape () means one number."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    shape: tuple[int, ...]
    kind: str = "box"
    center: tuple[float, ...] = ()
    radius: float = 1.0  # of a ball; the total of a simplex

    @property
    def size(self) -> int:
        """How many numbers a member has."""
        return len(self.lower)

    def project(self, point: Array) -> Array:
        """Return the nearest member of a flat point."""
        if self.kind == "ball":
            step = point - np.array(self.center)
            length = np.linalg.norm(step)
            return point if length <= self.radius else np.array(self.center) + step * (self.radius / length)
        if self.kind == "simplex":
            return project_simplex(point, self.radius)
        return np.clip(point, self.lower, self.upper)

    def distance(self, point: Array) -> float:
        """Return how far a flat point is outside."""
        return float(np.max(np.abs(point - self.project(point)), initial=0.0))

    def placed(self, unit: Array, offset: Array) -> Region:
        """Return the region of all unit * v + offset."""
        move = lambda ends: tuple((unit * np.array(ends) + offset).tolist())  # noqa: E731
        center = move(self.center) if self.center else ()
        radius = self.radius * (1.0 if self.kind == "box" else float(unit[0]))
        return Region(move(self.lower), move(self.upper), self.shape, self.kind, center, radius)

    def blocc_set(self) -> Any:
        """Return the region as blocc wants it."""
        if self.kind == "ball":
            return Ball(np.array(self.center).reshape(self.shape), radius=self.radius)
        if self.kind == "simplex":
            return Simplex(self.size, total=self.radius)
        if all(map(math.isinf, self.lower + self.upper)):
            return Reals(self.shape)
        return Box(np.array(self.lower).reshape(self.shape), np.array(self.upper).reshape(self.shape))


def box(lower: Any, upper: Any, size: int | None = None) -> Region:
    """Return a box; without `size`, and with plain numbers, of one number of shape ()."""
    if size is None and np.ndim(lower) == 0 and np.ndim(upper) == 0:
        return Region((float(lower),), (float(upper),), ())
    count = size if size is not None else max(np.size(lower), np.size(upper))
    low, high = np.broadcast_to(lower, count), np.broadcast_to(upper, count)
    return Region(tuple(map(float, low)), tuple(map(float, high)), (count,))


def reals(size: int | None = None) -> Region:
    """Return all numbers, or all vectors of a size."""
    return box(-math.inf, math.inf, size)


def ball(center: Any, radius: float) -> Region:
    """Return a ball around a vector."""
    middle = np.asarray(center, dtype=float)
    return Region(tuple(middle - radius), tuple(middle + radius), middle.shape, "ball", tuple(middle), radius)


def simplex(size: int, total: float = 1.0) -> Region:
    """Return the nonnegative vectors with a given sum."""
    return Region((0.0,) * size, (total,) * size, (size,), "simplex", (), total)


def project_simplex(point: Array, total: float = 1.0) -> Array:
    """Return the nearest vector of the simplex, by sorting."""
    ordered = np.sort(point)[::-1]
    excess = np.cumsum(ordered) - total
    count = np.nonzero(ordered * np.arange(1, point.size + 1) > excess)[0][-1]
    return np.maximum(point - excess[count] / (count + 1), 0.0)


@dataclass(frozen=True, eq=False)
class Model:
    """The formulas of a family in natural units, and its sets; hashed by identity, so keep one for each template."""

    name: str
    upper: Formula
    lower: Formula
    x_set: Region
    y_set: Region
    inequality: Formula | None = None
    equality: Formula | None = None
    leader: Formula | None = None


@dataclass(frozen=True)
class Units:
    """The user's units: x = x_unit * natural + x_offset, f = f_unit * natural + f_shift, row i times row_units[i]."""

    x_unit: tuple[float, ...] = (1.0,)
    x_offset: tuple[float, ...] = (0.0,)
    y_unit: tuple[float, ...] = (1.0,)
    y_offset: tuple[float, ...] = (0.0,)
    f_unit: float = 1.0
    f_shift: float = 0.0
    g_unit: float = 1.0
    g_shift: float = 0.0
    row_units: float | tuple[float, ...] = 1.0
    equality_unit: float = 1.0
    leader_unit: float = 1.0


@dataclass(frozen=True)
class Case:
    """One problem with everything that is needed to judge a claim about it; see the module's first lines for units."""

    problem: BilevelProblem
    model: Model
    data: dict[str, Any]
    units: Units
    follower: Callable[[Any], Any]  # natural x to the follower's optimistic answer, None where it has none
    start: Array | None = None  # flat, in natural units
    options: dict[str, Any] = field(default_factory=dict)
    scan: tuple[Array, Array] = (np.zeros(0), np.zeros(0))  # natural bounds of the brute-force scan over x
    well_posed: bool = True  # a right solver must succeed; otherwise every refusal is honest
    honest_words: tuple[str, ...] = ()  # a refusal whose message has one of these is honest too
    falls: bool = False  # f(x, y(x)) falls without limit: every success is wrong
    best: float | None = None  # least natural value (or infimum) where it is known; else the scan finds it
    scale: float | None = None  # natural variation of f, where the neighbourhood of the best point cannot tell
    looseness: float = 1.0  # times the tolerance of f, where a square hides the follower's violation
    reduced: Callable[[Array], float] | None = (
        None  # f(x, y(x)) of a flat x without terms that cancel; inf: inadmissible
    )
    repair: Callable[[Array], Array] | None = None  # nearest (or some near) admissible x of a flat x in X
    solution: Array | None = None  # an x with the best value, flat
    rounding: float = 0.0  # size of the terms of f that cancel: their rounding is no fault of the solver
    strict_ties: bool = False  # y must be the response at x itself, not at an x within the tolerance

    @property
    def user_start(self) -> Array | None:
        """The start in the user's units and in the shape of X."""
        if self.start is None:
            return None
        unit, offset = np.array(self.units.x_unit), np.array(self.units.x_offset)
        return (unit * self.start + offset).reshape(self.model.x_set.shape)

    def shaped(self, x: Array) -> Any:
        """Return a flat natural x in the shape that the formulas expect: a number, or a vector."""
        return float(x[0]) if self.model.x_set.shape == () else x

    def natural(self, x: Any, y: Any) -> tuple[Array, Array]:
        """Return blocc's x and y, flat and in natural units."""
        units = self.units
        flat_x = (np.ravel(np.asarray(x, dtype=float)) - np.array(units.x_offset)) / np.array(units.x_unit)
        flat_y = (np.ravel(np.asarray(y, dtype=float)) - np.array(units.y_offset)) / np.array(units.y_unit)
        return flat_x, flat_y

    def evaluate(self, formula: Formula | None, x: Array, y: Array) -> Array:
        """Return a formula's value in NumPy, flat; empty where there is no formula."""
        if formula is None:
            return np.zeros(0)
        shaped_y = float(y[0]) if self.model.y_set.shape == () else y
        with np.errstate(all="ignore"):
            return np.atleast_1d(np.asarray(formula(np, self.shaped(x), shaped_y, self.data), dtype=float)).ravel()

    def answer(self, x: Array) -> tuple[Array, float] | None:
        """Return the follower's optimistic answer at a flat natural x and f there; None where it has no answer."""
        y = self.follower(self.shaped(x))
        if y is None:
            return None
        flat = np.atleast_1d(np.asarray(y, dtype=float))
        return flat, float(self.evaluate(self.model.upper, x, flat)[0])

    def value(self, x: Array, slack: float = 1e-9) -> float:
        """Return f(x, y(x)); infinite where the follower has no answer or the leader's constraint fails."""
        if self.reduced is not None:
            with np.errstate(all="ignore"):
                value = float(self.reduced(x))
            return math.inf if math.isnan(value) else value
        found = self.answer(x)
        if found is None or np.any(self.evaluate(self.model.leader, x, found[0]) > slack) or math.isnan(found[1]):
            return math.inf
        return found[1]


def _wrapped(formula: Formula | None, unit: str, shift: str | None) -> Callable[[Any, Any, Any], Any] | None:
    """Return the user's version of a natural formula: units are data, so that one compilation serves them all."""
    if formula is None:
        return None

    def user(x: Any, y: Any, data: Any) -> Any:
        units = data["units"]
        natural_x = (x - units["x_offset"]) / units["x_unit"]
        natural_y = (y - units["y_offset"]) / units["y_unit"]
        rows = formula(jnp, natural_x, natural_y, data["own"]) * units[unit]
        return rows if shift is None else rows + units[shift]

    return user


def _arguments(model: Model, x_set: Region, y_set: Region) -> dict[str, Any]:
    """Return the arguments of BilevelProblem but the data."""
    return {
        "upper": _wrapped(model.upper, "f_unit", "f_shift"),
        "lower": _wrapped(model.lower, "g_unit", "g_shift"),
        "inequality": _wrapped(model.inequality, "row_units", None),
        "equality": _wrapped(model.equality, "equality_unit", None),
        "upper_inequality": _wrapped(model.leader, "leader_unit", None),
        "x_set": x_set.blocc_set(),
        "y_set": y_set.blocc_set(),
        "name": model.name,
    }


_PROBLEMS: dict[Any, BilevelProblem] = {}  # the first problem of each template: later ones share what it compiled


def forget() -> None:
    """Let go of all compiled programs: they take some 20 MB each."""
    _PROBLEMS.clear()
    jax.clear_caches()
    gc.collect()


def build(
    model: Model, data: dict[str, Any], follower: Callable[[Any], Any], units: Units | None = None, **rest: Any
) -> Case:
    """Return a case: the user's problem of a model with its data and units, and the machinery to judge it."""
    units = units or Units()

    def full(values: tuple[float, ...], region: Region) -> tuple[float, ...]:
        return tuple(np.broadcast_to(values, region.size).tolist())

    units = Units(
        **{
            **units.__dict__,
            "x_unit": full(units.x_unit, model.x_set),
            "x_offset": full(units.x_offset, model.x_set),
            "y_unit": full(units.y_unit, model.y_set),
            "y_offset": full(units.y_offset, model.y_set),
        }
    )
    x_set = model.x_set.placed(np.array(units.x_unit), np.array(units.x_offset))
    y_set = model.y_set.placed(np.array(units.y_unit), np.array(units.y_offset))
    scales = {
        name: np.array(value).reshape(shape) if name.startswith(("x_", "y_")) else np.array(value)
        for name, value, shape in (
            (name, value, model.x_set.shape if name.startswith("x_") else model.y_set.shape)
            for name, value in units.__dict__.items()
        )
    }
    own = {name: np.asarray(value, dtype=float) for name, value in data.items()}
    everything = {"own": own, "units": scales}
    key = (model, x_set, y_set, tuple((name, value.shape) for name, value in (own | scales).items()))
    if key not in _PROBLEMS:
        _PROBLEMS[key] = BilevelProblem(**_arguments(model, x_set, y_set), data=everything)
    problem = _PROBLEMS[key].with_data(everything)
    if "scan" not in rest:
        rest["scan"] = (np.array(model.x_set.lower), np.array(model.x_set.upper))
    else:
        rest["scan"] = tuple(np.broadcast_to(np.asarray(end, dtype=float), model.x_set.size) for end in rest["scan"])
    if not np.all(np.isfinite(rest["scan"])):
        raise ValueError(f"{model.name}: the scan needs finite bounds")
    if rest.get("start") is not None:
        rest["start"] = model.x_set.project(np.atleast_1d(np.asarray(rest["start"], dtype=float)))
    return Case(problem=problem, model=model, data=data, units=units, follower=follower, **rest)
