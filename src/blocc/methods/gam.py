"""GAM: gradients of the follower's exact answer, with every doubtful constraint counted both ways.

Xu and Zhu (AAAI 2023). At each x the lower level is solved exactly and differentiated through its KKT system with the
active constraints. A constraint near the boundary of activity (a multiplier or a slack that a step of length epsilon
could bring to zero) is split both ways; the step follows the shortest vector in the convex hull of all these gradients,
by a line search, and epsilon shrinks when that vector is short. A singular KKT matrix ends the run and is reported.
Numbers: ``alpha`` (first trial step), ``epsilon`` (first radius), ``shrink``. Without ``search`` every step has the
length ``alpha``, and epsilon stays as it is: so do the authors' programs.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, NDArray
from blocc.flat_problem import FlatProblem
from blocc.methods.base import Demand, Iterate, Method, Size, VectorX, VectorY, constraints, lagrangian_slope

Inequalities = Float[Array, "inequalities"]
Equalities = Float[Array, "equalities"]
ActiveSet = Bool[Array, "inequalities"]

#: At most so many constraints are split both ways; further ones keep the side they are on.
MOST_SPLITS = 6
#: Condition number from which a KKT matrix counts as singular.
SINGULAR = 1e12


class KKT(NamedTuple):
    """The follower's KKT conditions, linearised at a solution with a given active set: ``matrix moves = right``."""

    matrix: Float[Array, "kkt kkt"]
    right: Float[Array, "kkt n_x"]
    in_y: Float[Array, "rows n_y"]  #: Jacobian of the constraints in y
    in_x: Float[Array, "rows n_x"]  #: the same in x


def kkt_system(
    flat: FlatProblem, x: VectorX, y: VectorY, inequality: Inequalities, equality: Equalities, active: ActiveSet
) -> KKT:
    """What the answer's derivative solves. An inactive row says that its multiplier does not move."""
    multipliers = jnp.concatenate([inequality, equality])
    mixed, hessian = jax.jacfwd(lambda a, b: lagrangian_slope(flat, a, b, multipliers)[1], argnums=(0, 1))(x, y)
    in_x, in_y = jax.jacfwd(lambda a, b: constraints(flat, a, b), argnums=(0, 1))(x, y)
    counts = jnp.concatenate([active, jnp.ones(flat.n_equality, dtype=bool)]).astype(hessian.dtype)
    held = counts[:, None] * in_y
    matrix = jnp.block([[hessian, held.T], [held, jnp.diag(1.0 - counts)]])
    return KKT(matrix, -jnp.concatenate([mixed, counts[:, None] * in_x]), in_y, in_x)


class Sensitivity(NamedTuple):
    """How the follower's answer moves with x while the active set stays as it is."""

    y: Float[AnyArray, "n_y n_x"]
    multipliers: Float[AnyArray, "rows n_x"]
    constraints: Float[AnyArray, "rows n_x"]
    matrix: Float[AnyArray, "kkt kkt"]  #: of the KKT system


def kkt_sensitivity(
    flat: FlatProblem, x: VectorX, y: VectorY, inequality: Inequalities, equality: Equalities, active: ActiveSet
) -> Sensitivity:
    """The derivatives of the follower's answer for a given active set."""
    system = kkt_system(flat, x, y, inequality, equality, active)
    moves = jnp.linalg.solve(system.matrix, system.right)
    in_y, in_multipliers = moves[: flat.n_y], moves[flat.n_y :]
    return Sensitivity(in_y, in_multipliers, system.in_x + system.in_y @ in_y, system.matrix)


def active_gradient(
    flat: FlatProblem, x: VectorX, y: VectorY, inequality: Inequalities, equality: Equalities, active: ActiveSet
) -> VectorX:
    """The gradient of x -> F(x, y(x)) if exactly these inequalities stay active.

    By the adjoint: one linear system, however many entries x has.
    """
    system = kkt_system(flat, x, y, inequality, equality, active)
    upper_x, upper_y = jax.grad(flat.upper, argnums=(0, 1))(x, y)
    none = jnp.zeros(flat.n_inequality + flat.n_equality)
    return upper_x + system.right.T @ jnp.linalg.solve(system.matrix.T, jnp.concatenate([upper_y, none]))


def splits(sure: Bool[NDArray, "inequalities"], doubtful: Int[NDArray, "doubtful"]) -> list[np.ndarray]:
    """All active sets: the sure ones, with every combination of the doubtful ones."""
    found = []
    for sides in itertools.product((False, True), repeat=len(doubtful)):
        active = sure.copy()
        active[doubtful] = sides
        found.append(active)
    return found


class GamState(NamedTuple):
    """What a run is in the midst of; kept, and enough to go on from here."""

    x: Float[NDArray, "n_x"]
    epsilon: float
    k: int
    calls: int
    last: Iterate


class Gam(Method):
    """Exact solutions and second derivatives; for lower levels without other sets than their constraints.

    To cite:

        @inproceedings{xu2023efficient,
          title = {Efficient Gradient Approximation Method for Constrained Bilevel Optimization},
          author = {Xu, Siyuan and Zhu, Minghui},
          booktitle = {AAAI Conference on Artificial Intelligence}, year = {2023}}
    """

    name = "gam"
    title = "GAM (Xu, Zhu, AAAI 2023)"
    demands = (Demand.FREE_Y, Demand.NO_LEADER_CONSTRAINT)
    names = ("alpha", "epsilon", "shrink")
    default_counts: ClassVar = {"search": 1}
    switches = ("search",)
    #: "paper": alpha and epsilon of the BLOCC paper's text, fixed steps (its program leaves epsilon unused); "svm": the
    #: authors' program with 8 features, no splits; "cleaning": with splits and one test of the step.
    presets: ClassVar = {
        "paper": {"alpha": 0.05, "epsilon": 0.005, "shrink": 0.5, "search": 0},
        "svm": {"alpha": 0.03, "epsilon": 0.0, "shrink": 0.5, "search": 0},
        "cleaning": {"alpha": 0.05, "epsilon": 0.3, "shrink": 0.3, "search": 1},
    }

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """A line search needs no tuning."""
        return [{"alpha": 1.0, "epsilon": 0.1 * size.x, "shrink": 0.25, **self.given}]

    def drive(self, run: Any, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> Iterate:
        """All iterations; ``run``, a :class:`~blocc.methods.execute.MethodRun` or its like, solves, records, stops."""
        numbers = run.numbers = run.candidates(x, y)[0]
        least = 1e-2 * run.options.tolerance
        x, epsilon, run.iterations, run.calls, run.last = _begin(run, GamState(x, numbers["epsilon"], 0, 0, run.last))
        for k in range(run.iterations, run.options.max_iterations):
            run.monitor.check_time()
            run.monitor.keep("gam", GamState(x, epsilon, k, run.calls, run.last))
            # A search ends where it has asked last, also in a run that was continued from a file.
            answer = run.follower(x) if k and self.count("search") else run.ask(x)
            y = np.asarray(answer.y)
            run.iterations = k + 1
            step = float(np.linalg.norm(x - run.last[0]))
            run.last = (x, y)
            run.record(x, y, step)
            direction = _direction(run, x, answer, epsilon)
            if direction is None:
                return x, y
            if not self.count("search"):
                moved = np.asarray(run.evaluator.project(x - numbers["alpha"] * direction))
                if np.abs(moved - x).max(initial=0.0) <= 1e-2 * least * (1.0 + np.abs(x).max(initial=0.0)):
                    return x, y
                x = moved
                continue
            value = run.upper(x, y)
            short = float(np.abs(x - run.evaluator.project(x - direction)).max(initial=0.0))
            found: np.ndarray | None = None
            if short > max(least, epsilon * 1e-3) * (1.0 + abs(value)):
                found = _search(run, x, value, direction, numbers["alpha"])
            if found is not None:
                x = found
                continue
            epsilon *= numbers["shrink"]
            if epsilon < least:
                return x, y
        return run.last


def _direction(run: Any, x: Float[NDArray, "n_x"], answer: Any, epsilon: float) -> Float[NDArray, "n_x"] | None:
    """The shortest combination of the gradients for all active sets; None, and trouble, where there is no gradient."""
    sensitivity, gradient = run.flat.program(kkt_sensitivity), run.flat.program(active_gradient)
    y, inequality, equality = (np.asarray(part) for part in (answer.y, *answer.multipliers))
    slack = -np.asarray(run.flat.inequality(jnp.asarray(x), jnp.asarray(y)))
    active = inequality > slack
    moves = Sensitivity(*(np.asarray(part) for part in sensitivity(x, y, inequality, equality, active)))
    condition = np.linalg.cond(moves.matrix) if np.isfinite(moves.matrix).all() else np.inf
    if condition > SINGULAR:
        run.trouble = f"the KKT matrix of the lower level is singular there (condition {condition:.0e})"
        return None
    # By how much a step of length epsilon could bring a constraint to the other side.
    count = len(slack)
    reach = np.where(
        active,
        epsilon * np.linalg.norm(moves.multipliers[:count], axis=1) - inequality,
        epsilon * np.linalg.norm(moves.constraints[:count], axis=1) - slack,
    )
    nearest = np.argsort(-reach)[:MOST_SPLITS]
    sides = splits(active, nearest[reach[nearest] > 0.0])
    gradients = [np.asarray(gradient(x, y, inequality, equality, side)) for side in sides]
    gradients = [vector for vector in gradients if np.isfinite(vector).all()]
    if not gradients:
        run.trouble = "the KKT matrix of the lower level is singular for every choice of active constraints"
        return None
    return shortest_combination(np.array(gradients))


def shortest_combination(gradients: np.ndarray) -> np.ndarray:
    """The shortest vector ``G' a`` with a in the unit simplex.

    The nonnegative least-squares problem ``|G' u|^2 + (sum u - 1)^2`` has the same solution up to scale.
    """
    scale = float(np.max(np.linalg.norm(gradients, axis=1)))
    if scale == 0.0:
        return gradients[0]
    columns = np.vstack([gradients.T / scale, np.ones(len(gradients))])
    target = np.zeros(len(columns))
    target[-1] = 1.0
    try:
        weights, _ = scipy.optimize.nnls(columns, target, maxiter=20 * len(gradients) + 100)
    except RuntimeError:  # too many steps: one gradient alone claims least
        return gradients[0]
    total = float(weights.sum())
    return scale * (columns[:-1] @ weights) / total if total > 0.0 else gradients[0]


def _search(
    run: Any, x: Float[NDArray, "n_x"], value: float, direction: Float[NDArray, "n_x"], step: float
) -> Float[NDArray, "n_x"] | None:
    """Armijo's rule along the projected direction; None where nothing is gained."""
    for _ in range(40):
        candidate = np.asarray(run.evaluator.project(x - step * direction))
        answer = run.ask(candidate)
        # A violation that passes for rounding here would carry x over the edge of the follower's feasibility.
        solved = float(np.max(np.stack(answer.residuals))) < 1e-7
        if solved and run.upper(candidate, np.asarray(answer.y)) <= value - 1e-4 * direction @ (x - candidate):
            return candidate if np.abs(candidate - x).max(initial=0.0) > 0.0 else None
        step *= 0.5
    return None


def _begin(run: Any, first: GamState) -> GamState:
    """Nothing done yet, or where an earlier run left off."""
    found = run.monitor.begin("gam", first)
    x, y = found.last
    counters = int(found.k), int(found.calls)
    return GamState(np.asarray(found.x), float(found.epsilon), *counters, (np.asarray(x), np.asarray(y)))
