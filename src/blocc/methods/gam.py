"""GAM: gradients of the follower's exact answer, with every doubtful constraint counted both ways.

Xu and Zhu (AAAI 2023). At each x the lower level is solved exactly and differentiated through its KKT system with the
active constraints. A constraint near the boundary of activity (a multiplier or a slack that a step of length epsilon
could bring to zero) is split both ways; the step follows the shortest vector in the convex hull of all these gradients,
by a line search, and epsilon shrinks when that vector is short. A singular KKT matrix ends the run and is reported.
Numbers: ``alpha`` (first trial step), ``epsilon`` (first radius), ``shrink``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc.methods.base import Demand, Method
from blocc.methods.size import Size
from blocc.outer.nonsmooth.gradient_sampling import shortest_combination
from blocc.problem import FlatProblem

Array = Any

#: At most so many constraints are split both ways; further ones keep the side they are on.
MOST_SPLITS = 6
#: Condition number from which a KKT matrix counts as singular.
SINGULAR = 1e12


class KKT(NamedTuple):
    """The follower's KKT conditions, linearised at a solution with a given active set: ``matrix moves = right``."""

    matrix: Array
    right: Array  #: a column for each entry of x
    in_y: Array  #: Jacobian of the constraints in y
    in_x: Array  #: the same in x


def kkt_system(flat: FlatProblem, x: Array, y: Array, inequality: Array, equality: Array, active: Array) -> KKT:
    """What the answer's derivative solves. An inactive row says that its multiplier does not move."""

    def lagrangian(a: Array, b: Array) -> Array:
        return flat.lower(a, b) + inequality @ flat.inequality(a, b) + equality @ flat.equality(a, b)

    slope = jax.grad(lagrangian, argnums=1)
    hessian = jax.jacfwd(slope, argnums=1)(x, y)
    mixed = jax.jacfwd(slope, argnums=0)(x, y)
    stacked = lambda a, b: jnp.concatenate([flat.inequality(a, b), flat.equality(a, b)])  # noqa: E731
    in_y, in_x = jax.jacfwd(stacked, argnums=1)(x, y), jax.jacfwd(stacked, argnums=0)(x, y)
    counts = jnp.concatenate([active, jnp.ones(flat.n_equality, dtype=bool)]).astype(hessian.dtype)
    corner = jnp.diag(1.0 - counts)
    matrix = jnp.block([[hessian, (counts[:, None] * in_y).T], [counts[:, None] * in_y, corner]])
    return KKT(matrix, -jnp.concatenate([mixed, counts[:, None] * in_x]), in_y, in_x)


def kkt_sensitivity(flat: FlatProblem, x: Array, y: Array, inequality: Array, equality: Array, active: Array) -> Any:
    """dy/dx and dmu/dx of the follower's answer for a given active set, the KKT matrix, and the Jacobians."""
    system = kkt_system(flat, x, y, inequality, equality, active)
    moves = jnp.linalg.solve(system.matrix, system.right)
    return moves[: flat.n_y], moves[flat.n_y :], system.matrix, system.in_y, system.in_x


def active_gradient(
    flat: FlatProblem, x: Array, y: Array, inequality: Array, active: Array, equality: Array | None = None
) -> Array:
    """The gradient of x -> F(x, y(x)) if exactly these inequalities stay active.

    By the adjoint: one linear system, however many entries x has.
    """
    free = jnp.zeros(flat.n_equality) if equality is None else equality
    system = kkt_system(flat, x, y, inequality, free, active)
    upper_x, upper_y = jax.grad(flat.upper, argnums=(0, 1))(x, y)
    none = jnp.zeros(flat.n_inequality + flat.n_equality)
    return upper_x + system.right.T @ jnp.linalg.solve(system.matrix.T, jnp.concatenate([upper_y, none]))


def minimum_norm(gradients: np.ndarray) -> np.ndarray:
    """The shortest vector in the convex hull of the rows."""
    rows = np.atleast_2d(np.asarray(gradients, dtype=np.float64))
    return shortest_combination(rows, np.zeros((0, rows.shape[1])))


def splits(sure: np.ndarray, doubtful: np.ndarray) -> list[np.ndarray]:
    """All active sets: the sure ones, with every combination of the doubtful ones."""
    found = []
    for sides in itertools.product((False, True), repeat=len(doubtful)):
        active = sure.copy()
        active[doubtful] = sides
        found.append(active)
    return found


class Progress(NamedTuple):
    """What a run is in the midst of: enough to go on from here, and nothing else counts."""

    x: np.ndarray
    epsilon: float
    k: int
    last: tuple[np.ndarray, np.ndarray]


class Gam(Method):
    """Exact solutions and second derivatives; for lower levels without other sets than their constraints."""

    name = "gam"
    title = "GAM (Xu, Zhu, AAAI 2023)"
    demands = (Demand.FREE_Y, Demand.NO_LEADER_CONSTRAINT)
    names = ("alpha", "epsilon", "shrink")
    presets: ClassVar = {"paper": {"alpha": 0.05, "epsilon": 0.005, "shrink": 0.5}}

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """A line search needs no tuning."""
        return [{"alpha": 1.0, "epsilon": 0.1 * size.x, "shrink": 0.25, **self.given}]

    def drive(self, run: Any, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All iterations; ``run`` is the :class:`~blocc.methods.execute.MethodRun` that solves, records and stops."""
        flat = run.flat
        numbers = run.numbers = run.candidates(x, y)[0]
        sensitivity, gradient = _compiled(run)
        project = run.function.project
        least = 1e-2 * run.options.tolerance
        x, epsilon, begun, run.last = _begin(run, Progress(x, numbers["epsilon"], 0, run.last))
        run.iterations = begun
        for k in range(begun, run.options.max_iterations):
            run.monitor.check_time()
            run.monitor.journal.keep("gam", Progress(x, epsilon, k, run.last), run.monitor.log())
            answer = run.follower(x)
            y, prices, free = np.asarray(answer.y), *(np.asarray(part) for part in answer.multipliers)
            value = run.upper(x, y)
            run.iterations = k + 1
            step = float(np.linalg.norm(x - run.last[0]))
            run.last = (x, y)
            run.record(x, y, k + 1, step)
            slack = -np.asarray(flat.inequality(jnp.asarray(x), jnp.asarray(y)))
            active = prices > slack
            moves, price_moves, matrix, in_y, in_x = (
                np.asarray(part) for part in sensitivity(x, y, prices, free, active)
            )
            condition = np.linalg.cond(matrix) if np.isfinite(matrix).all() else np.inf
            if condition > SINGULAR:
                run.trouble = f"the KKT matrix of the lower level is singular there (condition {condition:.0e})"
                return x, y
            doubtful = self._doubtful(active, prices, slack, price_moves, in_x + in_y @ moves, epsilon)
            gradients = [np.asarray(gradient(x, y, prices, free, side)) for side in splits(active, doubtful)]
            gradients = [vector for vector in gradients if np.isfinite(vector).all()]
            if not gradients:
                run.trouble = "the KKT matrix of the lower level is singular for every choice of active constraints"
                return x, y
            direction = minimum_norm(np.array(gradients))
            short = float(np.abs(x - project(x - direction)).max(initial=0.0))
            moved = None
            if short > max(least, epsilon * 1e-3) * (1.0 + abs(value)):
                moved = self._search(run, project, x, value, direction, numbers["alpha"])
            if moved is None:
                epsilon *= numbers["shrink"]
                if epsilon < least:
                    return x, y
                continue
            x = moved
        return run.last

    @staticmethod
    def _doubtful(
        active: np.ndarray,
        prices: np.ndarray,
        slack: np.ndarray,
        price_moves: np.ndarray,
        slack_moves: np.ndarray,
        epsilon: float,
    ) -> np.ndarray:
        """Constraints that a step of length epsilon could bring to the other side; the nearest ones first."""
        count = len(prices)
        reach = np.where(
            active,
            epsilon * np.linalg.norm(price_moves[:count], axis=1) - prices,
            epsilon * np.linalg.norm(slack_moves[:count], axis=1) - slack,
        )
        order = np.argsort(-reach)[:MOST_SPLITS]
        return order[reach[order] > 0.0]

    @staticmethod
    def _search(
        run: Any, project: Any, x: np.ndarray, value: float, direction: np.ndarray, step: float
    ) -> np.ndarray | None:
        """Armijo's rule along the projected direction; None where nothing is gained."""
        for _ in range(40):
            candidate = project(x - step * direction)
            answer = run.follower(candidate)
            # A violation that passes for rounding here would carry x over the edge of the follower's feasibility.
            solved = float(np.max(np.stack(answer.residuals))) < 1e-7
            if solved and run.upper(candidate, np.asarray(answer.y)) <= value - 1e-4 * direction @ (x - candidate):
                return np.asarray(candidate) if np.abs(candidate - x).max(initial=0.0) > 0.0 else None
            step *= 0.5
        return None


def _begin(run: Any, first: Progress) -> Progress:
    """Nothing done yet, or where an earlier sitting left off."""
    if (kept := run.monitor.journal.kept("gam", first)) is None:
        return first
    found, log = kept
    run.monitor.restore(log)
    x, y = found.last
    return Progress(np.asarray(found.x), float(found.epsilon), int(found.k), (np.asarray(x), np.asarray(y)))


def _compiled(run: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Sensitivities and gradients for any active set, compiled once for the problem."""
    flat, cache = run.flat, run.problem.cache
    if "gam" not in cache:
        sensitivity = jax.jit(lambda x, y, mu, nu, active: kkt_sensitivity(flat, x, y, mu, nu, active))
        gradient = jax.jit(lambda x, y, mu, nu, active: active_gradient(flat, x, y, mu, active, nu))
        cache["gam"] = sensitivity, gradient
    return cache["gam"]
