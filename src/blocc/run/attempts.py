"""What can be tried where the judge objects to the end of a phase: other units, other methods, other places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blocc.judge.probe import DISTANCES, Value
from blocc.judge.responses import below_tolerance
from blocc.judge.verdict import Judge
from blocc.local.balance import Units
from blocc.local.derivatives import local
from blocc.options import Options
from blocc.outer.tolerances import Endpoint
from blocc.problem import BilevelProblem
from blocc.result import Status
from blocc.run.phase import Phase
from blocc.run.units import ones, units_of
from blocc.run.value_descent import LARGEST_DIMENSION, descend_value, refine

_HOPELESS = 1e7  #: a gamma at which the penalty should be closed
_CLOSE = 4.0  #: units within this factor of one are left alone in a later phase
_BY_VALUE = (Status.STALLED, "Reached by a descent of f(x, y(x)) itself.")
#: Random members of X, and points around x, that are tried where neither f nor y changes around x.
_LEAVES = 12
#: Attempts that cost as much as the descent before them, or more.
DEAR = ("penalty", "value", "fitting", "own")


class Attempts:
    """Ways to go on from a phase; ``phase(units, x)`` makes another one."""

    def __init__(
        self, problem: BilevelProblem, options: Options, phase: Callable[[Units | None, np.ndarray], Phase]
    ) -> None:
        self.problem, self.flat, self.options, self.phase = problem, problem.flat, options, phase

    def plan(self, phase: Phase) -> list[str]:
        """What to try in turn; a penalty that no gamma closes, or that took too long, leaves f(x, y(x)) itself."""
        if phase.run.finished:
            return ["leave", "follow", "refine", "penalty"]
        closed = phase.gamma < _HOPELESS or phase.run.tolerances.exact(phase.evaluation)
        if not closed or phase.run.exhausted:
            return ["leave", "follow", "refine", "value", "fitting", "own"]
        return ["leave", "follow", "refine", "fitting", "own", "value"]

    def attempt(self, kind: str, best: Phase, polish: bool = False) -> Phase | None:
        """Another phase from the best point known; None where this kind does not apply."""
        v = best.verdict
        assert v is not None
        at = v.value if v.probed.better is None else v.probed.better
        if kind == "leave":
            beyond = self._beyond_plateau(best) if v.probed.flat else None
            return None if beyond is None else self.phase(best.units, beyond)
        if best.success(self.problem) and not polish:
            return None  # flat, and nothing to gain from other units or methods
        if v.challenge.snapped is not None:
            return self._snapped(best, v.challenge.snapped) if kind == "follow" else None
        if kind == "penalty":
            return self.phase(best.units, at.x)
        if kind == "follow":
            return self._followed(best, at)
        if kind == "refine":
            return self._refined(best)
        if kind == "value":
            return self._by_value(best, at) if self.flat.n_x <= LARGEST_DIMENSION else None
        if best.scaling is None:
            return self.phase(None, at.x) if kind == "own" and v.probed.better is not None else None
        used = best.scaling.units
        units = ones(self.flat)
        if kind == "fitting":
            units = units_of(self.flat, at.x, at.y, _CLOSE) or units
        same = all(np.array_equal(one, other) for one, other in zip(units, used, strict=True))
        return None if same and v.probed.better is None else self.phase(units, at.x)

    def _beyond_plateau(self, phase: Phase) -> np.ndarray | None:
        """A point with a better value, where neither f nor the follower's answer changes around the end."""
        v = phase.verdict
        assert v is not None
        judge, generator = phase.judge(self.problem, self.options), np.random.default_rng(self.options.seed)
        here, along = v.value.x, list(v.probed.flat)
        size = np.maximum(1.0, np.abs(here))
        members = [self.flat.x_set.sample_flat(generator) for _ in range(_LEAVES)]
        members += [here + size * 2.0**k * generator.uniform(-1.0, 1.0, size.size) for k in range(-3, 4)]
        points = []
        for member in members:  # the coordinates that nothing depends on are moved alone, and with all others
            alone = here.copy()
            alone[along] = member[along]
            points += [alone, member] if len(along) < len(here) else [member]
        found = [value for point in points if (value := judge.ask(judge.project(point))) is not None]
        found = [value for value in found if value.violation <= below_tolerance(self.options.tolerance)]
        least = min(found, key=lambda value: value.upper, default=v.value)
        return least.x if least.upper < v.value.upper - self.options.tolerance * v.unit else None

    def _by_value(self, best: Phase, at: Value) -> Phase | None:
        """A descent of f(x, y(x)) itself from the best point known."""
        v = best.verdict
        assert v is not None
        if v.reply is None:
            return None
        judge, allowed = best.judge(self.problem, self.options), below_tolerance(self.options.tolerance)
        bounds = self.flat.x_set.bounds_flat() if self.flat.x_set.is_box else None
        noise = max(1e-12 * v.scale, 1e-15 * abs(v.value.upper))
        reached = descend_value(
            judge.ask, judge.project, bounds, at, v.reply.sizes.x, allowed, noise, self.options.seed
        )
        return self._moved(best, reached)

    def _snapped(self, best: Phase, x: np.ndarray) -> Phase | None:
        """The side of a tie beside x on which the follower does what the leader wants."""
        judge = best.judge(self.problem, self.options)
        reached = judge.ask(judge.project(x))
        return None if reached is None else self._moved(best, reached)

    def _followed(self, best: Phase, at: Value) -> Phase | None:
        """Newton steps on the pieces of f(x, y(x)) from the best point known, each to a lower value of it."""
        v = best.verdict
        assert v is not None
        if not v.below or v.reply is None:
            return None
        reached = best.judge(self.problem, self.options).follow(at)
        return None if reached is v.value else self._moved(best, reached)

    def _refined(self, best: Phase) -> Phase | None:
        """A few steps on the derivative of f(x, y(x))."""
        v = best.verdict
        assert v is not None
        if v.slope is None or v.reply is None or not v.below:
            return None
        reached = self._steps(best.judge(self.problem, self.options), v.value, v.slope.sizes, v.unit)
        return self._moved(best, reached)

    def _steps(self, judge: Judge, first: Value, sizes: np.ndarray, scale: float) -> Value:
        """A few steps on the derivative of f(x, y(x)), within X and the leader's own constraints."""
        n_x = self.flat.n_x

        def rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
            found = local(self.flat, x, first.y)
            return (
                found.x_inequality,
                found.x_inequality_jacobian[:, :n_x],
                found.x_equality,
                found.x_equality_jacobian[:, :n_x],
            )

        def constraint(value: Value) -> np.ndarray:
            return judge.values(value.x, value.y)[1]

        return refine(judge.gradient, rows, constraint, self.flat.x_set.bounds_flat(), first, sizes, scale)

    def _moved(self, best: Phase, reached: Value) -> Phase | None:
        """The phase as if it had ended at a point that was reached by other means; None where it gets no better."""
        if not np.any(reached.x != self.problem.x_set.ravel(best.result.x)) and best.by_value:
            return None
        evaluation = best.evaluate(reached.x)
        if not evaluation.usable:
            return None
        run = best.run
        end = Endpoint(evaluation, 0.0, DISTANCES[-1])
        result = run.conclude_at(end, *_BY_VALUE)
        result = result if best.scaling is None else best.scaling.restore(result)
        return Phase(run, best.scaling, result, end, by_value=True)
