"""F_gamma for a follower written in CVXPY: two calls of a cone solver, and Danskin's rule along CVXPY's own maps.

The outer methods see the same interface as elsewhere. An infinite gamma asks for f(x, y(x)) itself, whose derivative
comes from the conditions of the followers' optima (``exact.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Float
from blocc._lib.rounding import TINY
from blocc._lib.threads import thread_count
from blocc.cvxpy.cone_program import ConeProgram, Numbers
from blocc.cvxpy.elastic import least_violation
from blocc.cvxpy.exact import ExactPoint, exact_point
from blocc.cvxpy.implicit import Pair, polished
from blocc.cvxpy.joint import solve_joint
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.penalised import Weighted
from blocc.cvxpy.solvers import ConeAnswer, Outcome, SolverName, solve
from blocc.inner.elastic import Violation
from blocc.inner.protocol import InnerCode, InnerSolution
from blocc.lagrangian import Multipliers, Residuals
from blocc.outer import spectral
from blocc.outer.evaluator import Boundary, Evaluator
from blocc.outer.monitor import Monitor
from blocc.outer.recovery import Question
from blocc.penalty import Evaluation

_FINEST = 1e-11
_CODES = {
    Outcome.SOLVED: InnerCode.CONVERGED,
    Outcome.INACCURATE: InnerCode.STALLED,
    Outcome.INFEASIBLE: InnerCode.INFEASIBLE,
    Outcome.UNBOUNDED: InnerCode.UNBOUNDED,
    Outcome.FAILED: InnerCode.STALLED,
}


class Units(NamedTuple):
    """Sizes of the two objectives: what the outer methods see is divided by them."""

    upper: float = 1.0
    lower: float = 1.0


class ConicEvaluator(Evaluator):
    """Evaluates F_gamma at one x by a cone solver."""

    def __init__(self, model: Model, monitor: Monitor, solver: SolverName, units: Units, seed: int = 0) -> None:
        super().__init__(model, (), monitor, seed)  # type: ignore[arg-type]
        self.model, self.solver, self.units = model, solver, units
        self.proposed: list[Pair] | None = (
            None  #: pairs to begin with at the next x, each on a piece that may hold there
        )
        self._last: tuple[bytes, ExactPoint | None] | None = None

    @property
    def state(self) -> list[float]:
        """Numbers that an evaluation depends on beside its question: of the leader's constraints, softened."""
        return [float(self.model.soft.price.value)]

    def below(self, x: Vector, tolerance: float, *, vertices: bool = False) -> list[ConeAnswer]:
        """The followers' own answers: several of them on as many threads as there are cores.

        :param vertices: of linear ones; close to a tie nothing else is exact
        """

        def answer(program: ConeProgram, theta: Vector) -> ConeAnswer:
            linear = program.cones.is_linear and not program.quadratic.rows.size
            return solve(program.at(theta), program.cones, tolerance, "highs" if vertices and linear else self.solver)

        programs, thetas = [one.program for one in self.model.followers], self.model.follower_thetas(x)
        if len(programs) == 1:
            return [answer(programs[0], thetas[0])]
        with ThreadPoolExecutor(min(len(programs), thread_count())) as pool:  # the solvers let go of Python's lock
            return list(pool.map(answer, programs, thetas))

    def compute(self, question: Question) -> Evaluation:
        """F_gamma and its gradient, or why there is none."""
        x, tolerance = np.asarray(question.x, dtype=np.float64), max(float(question.tolerance), _FINEST)
        if np.isinf(question.gamma):
            return self._exactly(x)
        followers = self.below(x, tolerance)
        if not all(one.is_usable for one in followers):
            return self._unusable(x, question.gamma, followers)
        return self._penalised(x, float(question.gamma), followers, tolerance)

    def _penalised(self, x: Vector, gamma: float, followers: list[ConeAnswer], tolerance: float) -> Evaluation:
        model, units = self.model, self.units
        norm = max(1.0, gamma)
        thetas = model.follower_thetas(x)
        at = Weighted(1.0 / (norm * units.upper), gamma / (norm * units.lower), model.leader_theta(x), thetas)
        joint = solve_joint(model, x, at, followers, tolerance)
        found = joint.answer
        if not found.is_usable:
            return self._unusable(x, gamma, followers, found)
        upper, lower = model.penalised.slopes(joint.at, found.z, found.prices)
        value, gradient = norm * (found.value + joint.constant), norm * model.slope_in_x(upper, lower)
        weight = gamma / units.lower
        for index, (one, follower) in enumerate(zip(followers, model.followers, strict=True)):
            if model.penalised.has_prices(index):
                continue  # the gap of duality needs no value below
            value -= weight * one.value
            slope = follower.program.slope(one.z, weight * one.prices, weight)
            lone = [slope if k == index else None for k in range(len(followers))]
            gradient -= model.slope_in_x(None, lone)
        own, own_slope = model.own.value_and_slope(model.values(x))
        value, gradient = value + own / units.upper, gradient + (own_slope + joint.slope) / units.upper
        answers, prices = model.penalised.answers(found.z), model.penalised.multipliers(found.z)
        e = self._evaluation(x, gamma, value, gradient, followers, found, answers, prices)
        return e._replace(penalised=e.penalised._replace(concave=np.asarray(joint.is_bent)))

    def _evaluation(
        self,
        x: Vector,
        gamma: float,
        value: float,
        gradient: Vector,
        followers: list[ConeAnswer],
        found: ConeAnswer,
        answers: Sequence[Vector],
        prices: Sequence[Vector | None],
    ) -> Evaluation:
        model, units = self.model, self.units
        own = [one.z for one in followers]
        own_prices = [one.prices for one in followers]
        upper_own, violation_own = model.upper(x, own, own_prices)
        upper_other, violation_other = model.upper(x, answers, prices)
        thetas = model.follower_thetas(x)
        excess, lower_other = 0.0, 0.0
        for one, follower, theta, z, pair in zip(followers, model.followers, thetas, answers, prices, strict=True):
            numbers = follower.program.at(theta)
            lower_other += float(numbers.linear @ z + 0.5 * z @ (numbers.quadratic @ z) + numbers.constant)
            excess = max(excess, _excess(numbers, one, z, follower.program.cones.is_linear))
            if pair is not None:
                excess = max(excess, _gap(numbers, z, pair))
        self.inner_iterations += sum(one.iterations for one in followers) + found.iterations
        residuals = _residuals(followers)
        lower_own = sum(one.value for one in followers)
        number = np.asarray
        return Evaluation(
            x=x,
            gamma=number(gamma),
            value=number(value),
            gradient=gradient,
            follower=_solution(model.seen(own, own_prices), followers, residuals, lower_own / units.lower),
            penalised=_solution(model.seen(answers, prices), [found], _residuals([found]), value),
            upper_follower=number(upper_own / units.upper),
            upper_penalised=number(upper_other / units.upper),
            lower_follower=number(lower_own / units.lower),
            lower_penalised=number(lower_other / units.lower),
            violation_follower=number(violation_own),
            violation_penalised=number(violation_other),
            cross=residuals,
            excess=number(excess),
            usable=number(bool(np.isfinite(value) and np.isfinite(gradient).all())),
            warm=(),
        )

    def _exactly(self, x: Vector) -> Evaluation:
        """f(x, y(x)), with what violations of the leader's constraints cost, and its derivative."""
        pairs, self.proposed = self.proposed, None
        point, followers = None if pairs is None else self._on_pieces(x, pairs), list[ConeAnswer]()
        if point is None:
            followers = self.below(x, _FINEST, vertices=True)
            if all(one.is_usable for one in followers):
                point = self._on_pieces(x, followers)
        self._last = self._key(x), point
        if point is None:
            return self._unusable(x, np.inf, followers)
        model, units, infinite = self.model, self.units, np.asarray(np.inf)
        own = [one.answer for one in point.responses]
        prices = [one.prices for one in own]
        upper, violation = model.upper(x, [one.z for one in own], prices)
        lower = np.asarray(sum(one.value for one in own) / units.lower)
        self.inner_iterations += sum(one.iterations for one in own)
        residuals = _residuals(own)
        solution = _solution(model.seen([one.z for one in own], prices), own, residuals, float(lower))
        return self.blank(x)._replace(
            gamma=infinite,
            value=np.asarray(point.value / units.upper),
            gradient=point.gradient / units.upper,
            follower=solution,
            penalised=solution,
            upper_follower=np.asarray(upper / units.upper),
            upper_penalised=np.asarray(upper / units.upper),
            lower_follower=lower,
            lower_penalised=lower,
            violation_follower=np.asarray(violation),
            violation_penalised=np.asarray(violation),
            cross=residuals,
            usable=np.asarray(True),
        )

    def _on_pieces(self, x: Vector, begins: Sequence[Pair | ConeAnswer]) -> ExactPoint | None:
        """The point at x on the pieces of given pairs, if these hold there; on those of solvers' answers."""
        pairs = []
        for one, theta, begin in zip(self.model.followers, self.model.follower_thetas(x), begins, strict=True):
            free = begin.free if isinstance(begin, Pair) else None
            found = polished(one.program.at(theta), one.program.cones, begin, free)
            if found is None:
                return None
            pairs.append(found)
        point = exact_point(self.model, x, pairs)
        return point if point is not None and (point.is_true or not isinstance(begins[0], Pair)) else None

    def _key(self, x: Vector) -> bytes:
        return x.tobytes() + np.asarray(self.state).tobytes()

    def point(self, x: Vector) -> ExactPoint | None:
        """Both levels at x, as the last evaluation at an infinite gamma there found them."""
        if self._last is None or self._last[0] != self._key(x):
            self._exactly(x)
        assert self._last is not None
        return self._last[1]

    def _unusable(
        self, x: Vector, gamma: float, followers: list[ConeAnswer], penalised: ConeAnswer | None = None
    ) -> Evaluation:
        blank = self.blank(x)
        codes = [
            np.asarray(max(int(_CODES[one.outcome]) for one in answers))
            for answers in (followers, [penalised] if penalised else followers)
        ]
        return blank._replace(
            gamma=np.asarray(float(gamma)),
            follower=blank.follower._replace(code=codes[0]),
            penalised=blank.penalised._replace(code=codes[1]),
        )

    def blank(self, x: Vector) -> Evaluation:
        """An evaluation without numbers."""
        lost, infinite, nothing = np.asarray(np.nan), np.asarray(np.inf), np.full(self.model.n_seen, np.nan)
        residuals = Residuals(*(infinite for _ in Residuals._fields))
        solution = _solution(nothing, [], residuals, np.nan)
        return Evaluation(
            x=x,
            gamma=lost,
            value=lost,
            gradient=np.full(len(x), np.nan),
            follower=solution,
            penalised=solution,
            upper_follower=lost,
            upper_penalised=lost,
            lower_follower=lost,
            lower_penalised=lost,
            violation_follower=infinite,
            violation_penalised=infinite,
            cross=residuals,
            excess=infinite,
            usable=np.asarray(False),
            warm=(),
        )

    def violation(self, x: Float[AnyArray, "n_x"]) -> Violation:
        """The smallest violation of their constraints that the followers can reach at ``x``, and its gradient."""
        self.monitor.spend()
        model, point = self.model, np.asarray(x, dtype=np.float64)
        each = [
            least_violation(one.program, theta)
            for one, theta in zip(model.followers, model.follower_thetas(point), strict=True)
        ]
        worst = int(np.argmax([one.value for one in each]))
        slopes = [one.slope if index == worst else None for index, one in enumerate(each)]
        solved = all(one.solved for one in each)
        return Violation(
            np.asarray(each[worst].value), model.slope_in_x(None, slopes), np.asarray(solved), np.zeros(model.n_seen)
        )

    def boundary(self, x: Float[AnyArray, "n_x"]) -> Boundary | None:
        """The boundary before an ``x`` where a follower has no answer, by the violation's linear model."""
        found = self.violation(x)
        length = float(np.linalg.norm(found.gradient))
        if not found.solved or float(found.value) <= 0.0 or length < 1e-12:
            return None
        return Boundary(np.asarray(found.gradient) / length, float(found.value) / length)

    @property
    def advance(self) -> Callable[..., spectral.SpectralState]:
        """One step of the spectral method's state machine over X."""

        def step(state: spectral.SpectralState, *evaluation: Any) -> spectral.SpectralState:
            state = state._replace(recent=jnp.asarray(state.recent))
            found: Any = spectral.advance(self.model, state, *evaluation)  # type: ignore[arg-type]
            known: Any = [np.asarray(part) for part in found]
            return spectral.SpectralState(*known)

        return step


def _residuals(answers: Sequence[ConeAnswer]) -> Residuals:
    worst = [max(getattr(one, name) for one in answers) for name in ("stationarity", "feasibility", "complementarity")]
    return Residuals(*(np.asarray(number) for number in worst))


def _solution(y: Vector, answers: Sequence[ConeAnswer], residuals: Residuals, value: float) -> InnerSolution:
    worst = max((int(_CODES[one.outcome]) for one in answers), default=int(InnerCode.STALLED))
    return InnerSolution(
        y=y,
        multipliers=Multipliers(np.zeros(0), np.zeros(0)),  # nobody asks for them on the way
        value=np.asarray(value),
        objective=np.asarray(value),
        gradient_x=np.zeros(0),
        residuals=residuals,
        iterations=np.asarray(sum(one.iterations for one in answers)),
        derivatives=np.asarray(sum(one.iterations for one in answers)),
        code=np.asarray(worst),
        warm=(),
        concave=np.asarray(False),
    )


def _gap(numbers: Numbers, z: Vector, prices: Vector) -> float:
    """The gap of duality of a pair, relative to its terms."""
    terms = (numbers.linear @ z, z @ (numbers.quadratic @ z), numbers.offset @ prices)
    return abs(float(sum(terms))) / (TINY + max(abs(float(term)) for term in terms))


def _excess(numbers: Numbers, own: ConeAnswer, z: Vector, is_linear: bool) -> float:
    """How far z is from optimal below: the slope that the follower's prices leave, and what they would earn at z.

    Beyond linear cones what they earn grows with the square of the distance.
    """
    pull = numbers.matrix.T @ own.prices
    slope = numbers.linear + numbers.quadratic @ z - pull
    forces = TINY + max(np.max(np.abs(numbers.linear), initial=0.0), np.max(np.abs(pull), initial=0.0))
    slack = numbers.matrix @ z + numbers.offset
    earned = abs(float(slack @ own.prices)) / (forces * (1.0 + float(np.linalg.norm(z))))
    left = float(np.max(np.abs(slope), initial=0.0)) / forces
    return max(left, earned if is_linear else max(earned, 0.01 * float(np.sqrt(earned))))
