"""F_gamma(x) and its gradient, out of two inner solutions.

``F_gamma(x) = min over y in Y(x) of f(x, y) + gamma (g(x, y) - v(x))``. Both minimisations are the same inner problem
with other weights, so one compiled oracle serves both. Its gradient is Danskin's: differentiate both Lagrangians in x
at their saddle points, multiplier terms included.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Bool, Float, NDArray
from blocc._lib.operations import largest, largest_positive
from blocc._lib.rounding import KEPT, PLACED
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import Adjoint, InnerCode, InnerOracle, InnerSolution, WarmStart
from blocc.lagrangian import Expansion, Multipliers, Residuals, Weights, expand, leader_value, residuals_of


class UpperMultipliers(NamedTuple):
    """State of the augmented Lagrangian of the leader's own constraints."""

    multipliers: Float[AnyArray, "*batch n_upper"]
    penalty: Float[AnyArray, "*batch"]


class Evaluation(NamedTuple):
    """F_gamma at one x, with everything that was learned on the way."""

    x: Float[AnyArray, "*batch n_x"]
    gamma: Float[AnyArray, "*batch"]
    value: Float[AnyArray, "*batch"]  #: F_gamma(x)
    gradient: Float[AnyArray, "*batch n_x"]
    follower: InnerSolution  #: yg and its multipliers: the exact answer below
    penalised: InnerSolution  #: yF and its multipliers, those of L_F
    upper_follower: Float[AnyArray, "*batch"]  #: f(x, yg)
    upper_penalised: Float[AnyArray, "*batch"]  #: f(x, yF)
    lower_follower: Float[AnyArray, "*batch"]  #: g(x, yg)
    lower_penalised: Float[AnyArray, "*batch"]  #: g(x, yF)
    violation_follower: Float[AnyArray, "*batch"]  #: largest positive part of G(x, yg)
    violation_penalised: Float[AnyArray, "*batch"]  #: the same at yF
    cross: Residuals  #: of (yF, mu_g) as a solution of the lower level
    excess: Float[
        AnyArray, "*batch"
    ]  #: how far yF is from optimal below, relative to the slopes of g: no number times g changes it
    usable: Bool[AnyArray, "*batch"]  #: whether both inner solutions are good enough to step on
    warm: WarmStart  #: what the next, nearby evaluation wants

    @property
    def optimistic(self) -> bool:
        """Whether yF is itself optimal below to high accuracy and better for the leader than yg.

        That happens when the lower level has several minimisers (multipliers of one fit all of them): the penalised
        problem then picks among them in the leader's favour.
        """
        if not float(self.excess) <= PLACED:
            return False
        # The leader's own constraints come first, then what the leader wants.
        less = float(self.violation_follower) - float(self.violation_penalised)
        return less > KEPT or (less >= -KEPT and bool(self.upper_penalised < self.upper_follower))

    @property
    def answer(self) -> Float[AnyArray, "n_y"]:
        """The follower's answer: yg, or yF where that is optimal below as well."""
        return self.penalised.y if self.optimistic else self.follower.y

    @property
    def upper_value(self) -> float:
        """f at the follower's answer."""
        return float(self.upper_penalised if self.optimistic else self.upper_follower)

    @property
    def violation(self) -> float:
        """Largest positive part of G at the follower's answer."""
        return float(self.violation_penalised if self.optimistic else self.violation_follower)

    @property
    def distance(self) -> float:
        """Distance from yF to the follower's answer."""
        return float(np.linalg.norm(np.asarray(self.penalised.y) - np.asarray(self.answer)))

    @property
    def gap(self) -> float:
        """``f(x, answer) - F_gamma(x)``: what the penalty still hides (not negative, up to rounding)."""
        return self.upper_value - float(self.value)


def answer_of(evaluation: Evaluation) -> Float[NDArray, "n_y"] | None:
    """The follower's answer, also where the penalised problem could not be solved; None where there is none."""
    if evaluation.usable:
        return np.asarray(evaluation.answer)
    return np.asarray(evaluation.follower.y) if int(evaluation.follower.code) == InnerCode.CONVERGED else None


def follower_alone(evaluation: Evaluation) -> Evaluation | None:
    """The follower's case in the place of the penalised one, where L_F has no minimum in y; None if it has none either.

    ``-exp(y) + gamma (y - x)^2`` falls without limit for every gamma, and f(x, y(x)) = -exp(x) does not mind.
    """
    e = evaluation
    if int(e.follower.code) != InnerCode.CONVERGED or not np.isfinite(e.upper_follower):
        return None
    return e._replace(
        value=e.upper_follower,
        gradient=np.zeros_like(e.x),
        penalised=e.follower,
        upper_penalised=e.upper_follower,
        lower_penalised=e.lower_follower,
        violation_penalised=e.violation_follower,
        cross=e.follower.residuals,
        excess=np.asarray(np.inf),
        usable=np.asarray(True),
    )


def no_upper_multipliers(flat: FlatProblem) -> UpperMultipliers:
    """No multiplier on the leader's constraints yet."""
    return UpperMultipliers(np.zeros(flat.n_upper_inequality), np.asarray(10.0))


def paired(start: WarmStart) -> WarmStart:
    """The same start for the follower's and the penalised problem, stacked, in NumPy."""
    return jax.tree.map(lambda leaf: np.stack([leaf, leaf]), jax.device_get(start))


def cold_pair(flat: FlatProblem, oracle: InnerOracle) -> WarmStart:
    """Warm starts without information for the follower's and the penalised problem, stacked."""
    return paired(oracle.cold(flat))


def _solved(solution: InnerSolution) -> Bool[Array, ""]:
    """Converged, or stalled so close to the solution that a descent method can use the point.

    The objective must agree with the Lagrangian: beyond the edge of feasibility huge multipliers times a tiny violation
    would pass for a value otherwise.
    """
    r, value = solution.residuals, solution.objective
    size = 1.0 + largest(solution.y)
    close = (r.stationarity <= 1e-5 * (size + jnp.abs(value))) & (r.feasibility <= KEPT * size)
    close &= jnp.abs(solution.value - value) <= KEPT * (1.0 + jnp.abs(value))
    stalled_close = (solution.code == InnerCode.STALLED) & close
    return ((solution.code == InnerCode.CONVERGED) | stalled_close) & jnp.isfinite(solution.value)


def _excess(
    flat: FlatProblem, x: Float[Array, "n_x"], y: Float[Array, "n_y"], prices: Multipliers, here: Expansion
) -> Float[Array, ""]:
    """How far yF is from a minimiser of g over Y(x), given the follower's multipliers (``here``: L_g at yF with them).

    Lengths are relative to the size of y, slopes to the largest slope of g at yF and at points of Y around it.
    """
    size = 1.0 + largest(y)
    steps = size * (1.0 + np.arange(flat.n_y) % 7 / 10.0)
    beside = [flat.y_set.project_flat(y + steps), flat.y_set.project_flat(y - steps)]
    found = jax.vmap(jax.grad(lambda y: flat.lower(x, y)))(jnp.stack([y, *beside]))
    steepest = largest(jnp.where(jnp.isfinite(found), found, 0.0))
    unit = jnp.where(steepest > 0.0, steepest, 1.0)
    inside = flat.y_set.project_flat(y)
    length = size / unit
    step = largest(inside - flat.backward(x, inside - length * here.gradient_y, length))
    if flat.n_inequality:
        slack = jnp.maximum(-here.inequality, 0.0)
        step = jnp.maximum(step, jnp.dot(jnp.maximum(prices.inequality, 0.0), slack) / unit)
    return step / size


class Case(NamedTuple):
    """One of the two inner solutions, or both in rows, with what the leader sees of it."""

    solution: InnerSolution
    usable: Bool[AnyArray, "*batch"]
    upper: Float[AnyArray, "*batch"]
    lower: Float[AnyArray, "*batch"]
    violation: Float[AnyArray, "*batch"]


class BothCases(NamedTuple):
    """An :class:`Evaluation` with the follower's case and the penalised one in rows of the same arrays."""

    x: Float[AnyArray, "n_x"]
    gamma: Float[AnyArray, ""]
    value: Float[AnyArray, ""]
    gradient: Float[AnyArray, "n_x"]
    pair: Case
    cross: Residuals
    excess: Float[AnyArray, ""]
    warm: WarmStart


def unstack(both: BothCases) -> Evaluation:
    """The evaluation, with an array for each case: on the host, where rows cost nothing, or inside a program."""
    follower, penalised = (jax.tree.map(lambda leaf, i=i: leaf[i], both.pair.solution) for i in (0, 1))
    usable, upper, lower, violation = both.pair[1:]
    value, gradient = both.value, both.gradient
    xp: Any = np if isinstance(gradient, np.ndarray) else jnp
    return Evaluation(
        x=both.x,
        gamma=both.gamma,
        value=value,
        gradient=gradient,
        follower=follower,
        penalised=penalised,
        upper_follower=upper[0],
        upper_penalised=upper[1],
        lower_follower=lower[0],
        lower_penalised=lower[1],
        violation_follower=violation[0],
        violation_penalised=violation[1],
        cross=both.cross,
        excess=both.excess,
        usable=usable.all() & xp.isfinite(value) & xp.isfinite(gradient).all(),
        warm=both.warm,
    )


def evaluate(
    flat: FlatProblem,
    oracle: InnerOracle,
    x: Float[Array, "n_x"],
    gamma: Float[Array, ""],
    leader: UpperMultipliers,
    warm: WarmStart,
    tolerance: Float[Array, ""],
) -> Evaluation:
    """F_gamma(x), its gradient and both answers. Pure; ``warm`` is :func:`cold_pair` or an earlier evaluation's."""
    return unstack(evaluate_both(flat, oracle, x, gamma, leader, warm, tolerance))


def evaluate_both(
    flat: FlatProblem,
    oracle: InnerOracle,
    x: Float[Array, "n_x"],
    gamma: Float[Array, ""],
    leader: UpperMultipliers,
    warm: WarmStart,
    tolerance: Float[Array, ""],
) -> BothCases:
    """The same with both cases in the same arrays: the smaller program, for whoever takes them apart on the host."""
    return assembled(flat, x, gamma, leader, inner_solutions(flat, oracle, x, gamma, leader, warm, tolerance))


def inner_solutions(
    flat: FlatProblem,
    oracle: InnerOracle,
    x: Float[Array, "n_x"],
    gamma: Float[Array, ""],
    leader: UpperMultipliers,
    warm: WarmStart,
    tolerance: Float[Array, ""],
) -> Case:
    """Inner solutions of L_g and of L_F in rows; values, slopes in x and multipliers are those of both as written."""
    # The oracle never sees a large gamma: it solves (f + gamma g) / max(1, gamma), and the result is scaled back.
    # One whose step lengths were given by hand is the exception: they are steps on the Lagrangian as written.
    norm = jnp.ones_like(gamma) if oracle.expects_unscaled() else jnp.maximum(1.0, gamma)
    both = Weights(
        jnp.stack([jnp.zeros_like(gamma), 1.0 / norm]),
        jnp.stack([jnp.ones_like(gamma), gamma / norm]),
        jnp.stack([leader.multipliers, leader.multipliers]),
        jnp.stack([leader.penalty, leader.penalty]),
    )

    def solve(case: tuple[Weights, WarmStart, Array]) -> Case:
        found, scale = oracle.solve(flat, x, *case[:2], tolerance), case[2]
        usable = _solved(found)
        written = jax.tree.map(lambda leaf: scale * leaf, (found.value, found.gradient_x, found.multipliers))
        found = found._replace(value=written[0], gradient_x=written[1], multipliers=written[2])
        violation = largest_positive(flat.upper_inequality(x, found.y))
        return Case(found, usable, flat.upper(x, found.y), flat.lower(x, found.y), violation)

    # One after the other: a batch of two would make each wait for the slower one and compiles more slowly.
    scales = jnp.stack([jnp.ones_like(norm), norm])
    solved: Case = lax.map(solve, (both, warm, scales))
    return solved


def assembled(
    flat: FlatProblem, x: Float[Array, "n_x"], gamma: Float[Array, ""], leader: UpperMultipliers, pair: Case
) -> BothCases:
    """F_gamma and its gradient out of both inner solutions, and how far yF is from optimal below."""
    warm, pair = pair.solution.warm, pair._replace(solution=pair.solution._replace(warm=()))
    signed = jnp.stack([-gamma, jnp.ones_like(gamma)])
    prices, y = jax.tree.map(lambda leaf: leaf[0], pair.solution.multipliers), pair.solution.y[1]
    weights_g = Weights(np.zeros(()), np.ones(()), leader.multipliers, leader.penalty)  # f is no part of it
    below = expand(flat, x, y, prices, weights_g)
    cross = residuals_of(flat, x, y, prices, weights_g, below)
    return BothCases(
        x=x,
        gamma=gamma,
        value=signed @ pair.solution.value,
        gradient=signed @ pair.solution.gradient_x,
        pair=pair,
        cross=cross,
        excess=jnp.maximum(_excess(flat, x, y, prices, below), cross.feasibility / (1.0 + largest(y))),
        warm=warm,
    )


def evaluate_exactly(
    flat: FlatProblem,
    oracle: InnerOracle,
    x: Float[Array, "n_x"],
    leader: UpperMultipliers,
    warm: WarmStart,
    tolerance: Float[Array, ""],
    sloped: Bool[Array, ""] | bool = True,
) -> Evaluation:
    """The limit of F_gamma for an infinite gamma: f(x, y(x)), with its derivative by the oracle's adjoint system.

    yF is then the follower's answer, and the penalty hides nothing. Without ``sloped`` the derivative is zero.
    """
    number = jnp.asarray(jnp.inf, jnp.float64)
    weights = Weights(np.zeros(()), np.ones(()), leader.multipliers, leader.penalty)
    found = oracle.solve(flat, x, weights, jax.tree.map(lambda leaf: leaf[0], warm), tolerance)

    def differentiated() -> Adjoint:
        slope = oracle.differentiate(flat, x, found, weights, tolerance)
        assert slope is not None, "only for oracles that differentiate their answers"
        return slope._replace(warm=found.warm if slope.warm is None else slope.warm)

    def valued() -> Adjoint:
        none = jnp.zeros(flat.n_y)
        value = leader_value(flat, x, found.y, weights)
        return Adjoint(value, jnp.zeros(flat.n_x), jnp.asarray(True), none, none, jnp.asarray(0), found.warm)

    slope = lax.cond(sloped, differentiated, valued)
    following = slope.warm
    warm = jax.tree.map(lambda new, old: jnp.stack([new, old[1]]), following, warm)
    found = found._replace(
        warm=(), iterations=found.iterations + slope.products, derivatives=found.derivatives + slope.products
    )
    upper, lower = flat.upper(x, found.y), flat.lower(x, found.y)
    violation = largest_positive(flat.upper_inequality(x, found.y))
    return Evaluation(
        x=x,
        gamma=number,
        value=slope.value,
        gradient=slope.gradient,
        follower=found,
        penalised=found._replace(
            iterations=jnp.zeros_like(found.iterations), derivatives=jnp.zeros_like(found.derivatives)
        ),
        upper_follower=upper,
        upper_penalised=upper,
        lower_follower=lower,
        lower_penalised=lower,
        violation_follower=violation,
        violation_penalised=violation,
        cross=found.residuals,
        excess=number,  # nothing but the follower's own answer is known
        usable=_solved(found) & slope.regular & jnp.isfinite(slope.value),
        warm=warm,
    )


def _shapes(flat: FlatProblem, oracle: InnerOracle) -> Evaluation:
    number, cold = jnp.asarray(1.0, jnp.float64), cold_pair(flat, oracle)
    found: Evaluation = jax.eval_shape(
        lambda x: evaluate(flat, oracle, x, number, no_upper_multipliers(flat), cold, number)._replace(warm=()),
        jax.ShapeDtypeStruct((flat.n_x,), jnp.float64),
    )
    return found


def evaluation_shapes(flat: FlatProblem, oracle: InnerOracle) -> Evaluation:
    """Shapes and dtypes of an evaluation without its warm start, found by tracing once."""
    return flat.once(_shapes, oracle)
