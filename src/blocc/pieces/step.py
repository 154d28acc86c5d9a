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
from blocc.pieces.piece import Followers

#: Rises of the price of G's violation in one step, each tenfold: from 1 to what double precision still tells apart.
_RISES = 10


class Multipliers(NamedTuple):
    """Multipliers of the rows of any piece, in the units of :class:`~blocc.pieces.derivatives.Model`."""

    free: Float[NDArray, "rows"]  #: of ``c_i <= 0``
    held: Float[NDArray, "rows"]  #: of ``mu_i >= 0``
    others: Float[NDArray, "others"]  #: of G and X

    def on(self, model: Model) -> Float[NDArray, "rows"]:
        """Those of the rows of one model."""
        return np.concatenate([self.free[model.free], self.held[model.piece.held], self.others])


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

    @property
    def length(self) -> float:
        """The largest entry."""
        return float(np.max(np.abs(self.step), initial=0.0))

    def on(self, model: Model) -> Float[NDArray, "rows"]:
        """The multipliers of the rows of a model."""
        return self.multipliers.on(model)

    def corrected(self, model: Model, value: np.ndarray) -> Step | None:
        """The step with the rows as they were found at its end (a second-order correction)."""
        limits = self.program.rows @ self.step - value[self.near]
        again = solve(self.program._replace(limits=np.minimum(limits, self.program.limits)))
        return replace(self, step=again.step, solution=again) if again.solved else None


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
    carried = np.zeros(len(model.value)) if multipliers is None else multipliers.on(model)
    hessian = bend(followers, model, carried) * size[:, None] * size
    gradient = model.gradient * size
    if not (np.isfinite(hessian).all() and np.isfinite(rows).all()):
        return None
    unit = max(float(np.max(np.abs(gradient), initial=0.0)), float(np.max(np.abs(hessian), initial=0.0)), TINY)
    convex = convexified(hessian / unit, rows[carried > 0.0])
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
    for _ in range(_RISES):
        solution = solve(program)
        if not solution.solved:  # a row that is violated may leave no room
            program = program._replace(limits=np.where(elastic > 0.0, program.limits, np.maximum(program.limits, 0.0)))
            solution = solve(program)
        if not solution.solved:
            return None
        needed = 2.0 * float(solution.rows @ elastic) * unit
        short = solution.violation > followers.settings.admissible and solution.violation > 0.9 * violation
        if not short:
            break
        price *= 10.0
        program = program._replace(price=price / unit)
    price = max(price, needed)

    def promise(found: Solution) -> float:
        t = found.step
        return -unit * float(program.gradient @ t + 0.5 * t @ convex @ t) + price * (violation - found.violation)

    decrease = promise(solution)
    if decrease <= SOLVED * unit and (finer := _finely(program)) is not None and promise(finer) > decrease:
        solution, decrease = finer, promise(finer)
    t = solution.step
    every = np.zeros(len(near))
    every[near] = solution.rows * unit
    count = len(model.piece.mu)
    free, held = np.zeros(count), np.zeros(count)
    free[model.free] = every[: len(model.free)]
    held[model.piece.held] = every[len(model.free) : model.n_own]
    found = Multipliers(free, held, every[model.n_own :])
    return Step(t, decrease, found, price, hessian, program, near, solution)


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
            step.program.rows[found.rows > 0.0],
            step.program.equalities,
            np.eye(n)[(found.low > 0.0) | (found.high > 0.0) | (step.program.low == step.program.high)],
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
