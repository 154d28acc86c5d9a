"""One step on a piece: the quadratic program of its model, in sizes of x, and what its multipliers say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.rounding import TINY
from blocc.local.fit import lengths_of
from blocc.local.quadratic import SOLVED, Program, Solution, solve
from blocc.pieces.derivatives import Model, bend
from blocc.pieces.kinks import Kinks
from blocc.pieces.piece import Followers

#: Rises of the price of G's violation in one step, each tenfold: from 1 to what double precision still tells apart.
_RISES = 10
#: Share of the decrease of the violation that is attainable within the radius, which the price must bring about (Byrd,
#: Nocedal and Waltz, Steering exact penalty methods for nonlinear programming, 2008).
_STEERED = 0.1


class Multipliers(NamedTuple):
    """Multipliers of the rows of any piece, in the units of :class:`~blocc.pieces.derivatives.Model`."""

    free: Float[NDArray, "rows"]  #: of ``c_i <= 0``
    held: Float[NDArray, "rows"]  #: of ``mu_i >= 0``
    others: Float[NDArray, "others"]  #: of G and X
    kinks: Float[NDArray, "all"]  #: of rows for kinks of the leader's functions
    signs: Float[NDArray, "all"]  #: on which side of them

    def on(self, model: Model) -> Float[NDArray, "rows"]:
        """Those of the rows of one model."""
        return np.concatenate([self.free[model.free], self.held[model.piece.held], self.others])

    def on_kinks(self, model: Model) -> Float[NDArray, "kinks"]:
        """Those of its kinks: on the other side of one, what was left of its cost."""
        kinks, sums = model.kinks, np.zeros(model.kinks.sites.heights)
        np.add.at(sums, kinks.sites.columns, self.kinks)
        same = self.signs[kinks.among] == kinks.signs[kinks.among]
        left = kinks.cost - sums[kinks.columns]
        return np.clip(np.where(same, self.kinks[kinks.among], left), 0.0, kinks.cost)


@dataclass(frozen=True)
class Step:
    """A step in sizes of x."""

    step: Float[NDArray, "n_x"]
    promised: float  #: decrease of the merit function by the model
    multipliers: Multipliers
    price: float
    hessian: Float[NDArray, "n_x n_x"]  #: of the Lagrangian, not convexified, in sizes of x
    program: Program
    near: Bool[NDArray, "rows"]  #: those of the model's rows that the step could meet
    solution: Solution
    kinks: Kinks  #: those that it could meet

    @property
    def length(self) -> float:
        """The largest entry."""
        return float(np.max(np.abs(self.step), initial=0.0))

    def on(self, model: Model) -> Float[NDArray, "rows"]:
        """The multipliers of the rows of a model."""
        return self.multipliers.on(model)

    def corrected(self, after: Model) -> Step | None:
        """The step with the rows and kinks as they were found at its end (a second-order correction)."""
        limits, count = self.program.limits.copy(), int(self.near.sum())
        kinked = after.kinks.seen_from(self.kinks)[self.kinks.among] / self.kinks.units
        crossed = self.solution.step[self.step.size :][self.program.corners]
        bent = self.program.rows @ self.solution.step - np.concatenate([after.value[self.near], kinked - crossed])
        limits[:count], limits[count:] = np.minimum(bent[:count], limits[:count]), bent[count:]
        again = solve(self.program._replace(limits=limits))
        return replace(self, step=again.step[: self.step.size], solution=again) if again.solved else None


def step_of(
    followers: Followers,
    model: Model,
    multipliers: Multipliers | None,
    radius: float,
    price: float,
    violation: float,
    across: bool = False,
) -> Step | None:
    """The minimiser of the model within a radius, in sizes of x; None if there is none.

    :param across: whether the step may leave the piece
    """
    size, rows = followers.sizes.x, model.jacobian * followers.sizes.x
    kinks = model.kinks
    carried = np.zeros(len(model.value)) if multipliers is None else multipliers.on(model)
    kinked = np.zeros(len(kinks.among)) if multipliers is None else multipliers.on_kinks(model)
    hessian = bend(followers, model, carried, kinked) * size[:, None] * size
    gradient = model.gradient * size
    if not (np.isfinite(hessian).all() and np.isfinite(rows).all()):
        return None
    unit = max(float(np.max(np.abs(gradient), initial=0.0)), float(np.max(np.abs(hessian), initial=0.0)), TINY)
    corners = kinks.jacobian * size
    convex = convexified(hessian / unit, np.concatenate([rows[carried > 0.0], corners[kinked > 0.0]]))
    low, high = followers.flat.x_set.bounds_flat()
    elastic = np.zeros(len(model.value))
    elastic[model.n_own : model.n_own + model.n_leader] = 1.0
    least = np.maximum(-radius, np.minimum((low - model.piece.x) / size, 0.0))
    most = np.minimum(radius, np.maximum((high - model.piece.x) / size, 0.0))
    near = (elastic > 0.0) | (model.value + np.maximum(rows, 0.0) @ most + np.minimum(rows, 0.0) @ least >= 0.0)
    near[: model.n_own] &= not across
    rows, elastic = rows[near], elastic[near]
    equalities = model.equality_jacobian * size
    program = Program(
        gradient / unit,
        convex,
        rows,
        -model.value[near],
        elastic,
        equalities,
        -model.equality,
        least,
        most,
        price / unit,
    )
    met = kinks.value + np.maximum(corners, 0.0) @ most + np.minimum(corners, 0.0) @ least >= 0.0
    near_kinks = kinks._replace(among=kinks.among[met], units=kinks.units[met])
    if met.any():
        _, first, columns = np.unique(kinks.columns[met], return_index=True, return_inverse=True)
        grown = np.zeros((len(near), len(first)))
        grown[model.n_own : model.n_own + model.n_leader] = kinks.leader[:, met][:, first]
        cost = kinks.cost[met][first] / unit
        program = _with_corners(program, -kinks.value[met], corners[met], cost, grown[near], columns)
        elastic = program.elastic
    attainable = np.nan  #: violation, whatever its price
    for _ in range(_RISES):
        solution = solve(program)
        if not solution.solved:  # a row that is violated may leave no room
            program = program._replace(limits=np.where(elastic > 0.0, program.limits, np.maximum(program.limits, 0.0)))
            solution = solve(program)
        if not solution.solved:
            return None
        needed = 2.0 * float(solution.rows @ elastic) * unit
        short = solution.violation > followers.settings.admissible and solution.violation > 0.9 * violation
        if short and np.isnan(attainable):
            attainable = solve(program._replace(price=program.price * 10.0**_RISES)).violation
        if not short or violation - solution.violation >= _STEERED * (violation - attainable):
            break
        price *= 10.0
        program = program._replace(price=price / unit)
    price = max(price, needed)

    def promise(found: Solution) -> float:
        t = found.step
        return -unit * float(program.gradient @ t + 0.5 * t @ program.hessian @ t) + price * (
            violation - found.violation
        )

    decrease = promise(solution)
    if decrease <= SOLVED * unit and (finer := _finely(program)) is not None and promise(finer) > decrease:
        solution, decrease = finer, promise(finer)
    every, over = np.zeros(len(near)), np.zeros(len(kinks.signs))
    every[near] = solution.rows[: int(near.sum())] * unit
    over[near_kinks.among] = solution.rows[int(near.sum()) :] * unit
    count = len(model.piece.mu)
    free, held = np.zeros(count), np.zeros(count)
    free[model.free] = every[: len(model.free)]
    held[model.piece.held] = every[len(model.free) : model.n_own]
    found = Multipliers(free, held, every[model.n_own :], over, kinks.signs)
    return Step(solution.step[: len(size)], decrease, found, price, hessian, program, near, solution, near_kinks)


def _with_corners(
    p: Program, limits: np.ndarray, rows: np.ndarray, cost: np.ndarray, grown: np.ndarray, columns: np.ndarray
) -> Program:
    """The program with further variables: by how much kinks are crossed; ``grown`` are rows by them."""
    n, count = p.gradient.size, len(cost)
    hessian, crossed = np.zeros((n + count, n + count)), np.zeros((len(limits), count))
    hessian[:n, :n], crossed[np.arange(len(limits)), columns] = p.hessian, -1.0
    return Program(
        np.concatenate([p.gradient, cost]),
        hessian,
        np.block([[p.rows, grown], [rows, crossed]]),
        np.concatenate([p.limits, limits]),
        np.concatenate([p.elastic, np.zeros(len(limits))]),
        np.pad(p.equalities, ((0, 0), (0, count))),
        p.targets,
        np.concatenate([p.low, np.zeros(count)]),
        np.concatenate([p.high, np.full(count, np.inf)]),
        p.price,
        columns,
    )


def _finely(p: Program) -> Solution | None:
    """The solution in units of the step that the derivatives suggest: one as short drowns in the accuracy of others."""
    steepest, bend = (float(np.max(np.abs(part), initial=0.0)) for part in (p.gradient, p.hessian))
    if not 0.0 < steepest < bend:
        return None
    length = steepest / bend
    found = solve(
        p._replace(
            gradient=p.gradient / steepest,
            hessian=p.hessian / bend,
            limits=p.limits / length,
            targets=p.targets / length,
            low=p.low / length,
            high=p.high / length,
            price=p.price / steepest,
        )
    )
    if not found.solved:
        return None
    rows, low, high = (steepest * part for part in (found.rows, found.low, found.high))
    return Solution(length * found.step, rows, low, high, length * found.violation, True)


def convexified(hessian: np.ndarray, active: np.ndarray) -> Float[NDArray, "n n"]:
    """A positive definite matrix that agrees with the Hessian along rows that stay active, if that is so there.

    Elsewhere eigenvalues are turned to their absolute values.
    """
    values, vectors = np.linalg.eigh(hessian)
    largest = float(np.max(np.abs(values), initial=0.0)) + TINY
    least = np.finfo(float).eps ** 0.5 * largest
    if values[0] > least:
        return hessian
    if len(active):
        normals = active / np.maximum(lengths_of(active), TINY)[:, None]
        stiff = hessian + 10.0 * largest * normals.T @ normals
        if np.linalg.eigvalsh(stiff)[0] > least:
            return np.asarray(stiff)
    return np.asarray((vectors * np.maximum(np.abs(values), least)) @ vectors.T)


def bent_direction(followers: Followers, model: Model, step: Step) -> tuple[np.ndarray, float] | None:
    """A direction along the active rows in which f bends down, with its curvature; None if there is none."""
    found, n = step.solution, step.step.size
    held = np.concatenate(
        [
            step.program.rows[found.rows > 0.0, :n],
            step.program.equalities[:, :n],
            np.eye(n)[((found.low > 0.0) | (found.high > 0.0) | (step.program.low == step.program.high))[:n]],
        ]
    )
    basis = np.eye(n)
    if len(held):
        lengths = np.maximum(lengths_of(held), TINY)
        _, singular, right = np.linalg.svd(held / lengths[:, None])
        basis = right[int((singular > np.finfo(float).eps ** 0.5 * singular[0]).sum()) :].T
    if basis.shape[1] == 0:
        return None
    values, vectors = np.linalg.eigh(basis.T @ step.hessian @ basis)
    floor = followers.settings.difference * float(np.max(np.abs(step.hessian), initial=0.0))
    if not values[0] < -floor:
        return None
    direction = basis @ vectors[:, 0]
    largest = float(np.max(np.abs(direction)))
    return direction / largest, float(values[0]) / largest**2
