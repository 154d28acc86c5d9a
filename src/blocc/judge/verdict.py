"""The verdict on an answer (x, y): what holds at both levels, in the user's own units.

What helped to find the answer is not asked: neither units nor tolerances nor multipliers of a run. The follower is
judged by :mod:`blocc.judge.lower_level`, the leader by :mod:`blocc.judge.value_slope` where phi has a derivative and by
:mod:`blocc.judge.probe` everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from blocc.flat_problem import FlatProblem
from blocc.inner.choice import general_oracles
from blocc.inner.elastic import violation
from blocc.judge.adjoint_slope import slope_without_matrices
from blocc.judge.derivatives import LARGEST, size_of
from blocc.judge.lower_level import Reply, polish, reply
from blocc.judge.probe import DISTANCES, FINE, NEAR, Probed, Probing, Value, falls_for_ever, probe
from blocc.judge.scales import row_sizes
from blocc.judge.tangent import RADII, look_around, tangent_directions
from blocc.judge.value_slope import Slope, slope_at
from blocc.lagrangian import figures, zero_multipliers
from blocc.problem import BilevelProblem

#: A probe is trusted where the follower's answer there is accurate to this ratio.
_TRUSTED = 1e-4
_FEASIBLE = 1e-9
#: A derivative below this ratio is not asked whether it belongs to a kink.
_SMALL_SLOPE = 1e-3
#: Variables up to which all probes are made.
_ALL_PROBES = 500
#: Variables of the leader up to which ways along kinks are looked for.
_ALONG_KINKS = 100


def below_tolerance(tolerance: float) -> float:
    """What the ratios of the follower and of the leader's own constraints may be: 1e-6 at the default tolerance."""
    return float(np.clip(0.1 * tolerance, 1e-9, 1e-3))


def whole_scale(judged: Reply) -> float:
    """What f changes by when x and y move by their sizes."""
    found, both = judged.wide, judged.sizes.both
    return float(np.abs(found.upper_gradient) @ both + 0.5 * both @ np.abs(found.upper_hessian) @ both) + 1e-300


class Verdict(NamedTuple):
    """What was found out about (x, y)."""

    value: Value  #: the answer, with y polished where that was possible
    reply: Reply | None  #: None where second derivatives are not to be had
    slope: Slope | None  #: None where phi has no derivative that could be computed
    probed: Probed
    below: bool  #: y is the follower's answer
    admissible: bool  #: the leader's own constraints hold
    first_order: bool | None  #: x is stationary by the derivative of phi; None where that says nothing
    unbounded: bool
    scale: float  #: what f changes by when x moves by its sizes
    unseen: bool = False  #: without a derivative, and the follower, though feasible, did not answer in some direction

    @property
    def unit(self) -> float:
        """The same, and on a plateau, where that is nothing, a little of what f changes by when y moves too."""
        return self.scale if self.reply is None else max(self.scale, 1e-6 * whole_scale(self.reply))

    @property
    def certified(self) -> bool:
        """Whether nothing speaks against the answer, and the derivative of phi for it."""
        return bool(self.holds and self.first_order)

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the answer."""
        at_rest = self.first_order is not False and self.probed.better is None and not self.unbounded
        return self.below and self.admissible and at_rest and not self.unseen

    def objection(self) -> str:
        """What speaks against the answer, in words."""
        r = self.reply
        if not self.below and r is not None:
            return (
                f"y is not shown to be the follower's answer: relative residuals {r.stationarity:.1e} (stationarity) "
                f"and {r.feasibility:.1e} (feasibility)"
            )
        if not self.below:
            return "y is not shown to be the follower's answer"
        if not self.admissible:
            return f"the leader's constraint is violated by {self.value.violation:.1e} of its size"
        if self.unbounded:
            return "the leader's objective keeps falling along a ray"
        if self.probed.better is not None:
            return f"f(x, y(x)) is lower by {self.probed.gain:.3g} right next to x"
        if self.first_order is False and self.slope is not None:
            return f"the derivative of f(x, y(x)) is {self.slope.stationarity:.1e} of its terms"
        if self.unseen:
            return "the follower's answers around x, which alone can tell, could not be found accurately"
        return ""


@dataclass(frozen=True)
class Judge:
    """Judges answers of one problem; ``answer(x)`` is asked for the follower's y (None where there is none)."""

    flat: FlatProblem
    answer: Callable[[np.ndarray], np.ndarray | None]
    project: Callable[[np.ndarray], np.ndarray]
    values: Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]  #: f and G
    tolerance: float = 1e-5
    seed: int = 0
    most_probes: int = 40

    @classmethod
    def of(
        cls,
        problem: BilevelProblem,
        answer: Callable[[np.ndarray], np.ndarray | None],
        tolerance: float = 1e-5,
        seed: int = 0,
    ) -> Judge:
        """A judge of a problem's answers; the number of probes is what its size allows."""
        return cls.over(problem.flat, answer, tolerance, seed)

    @classmethod
    def over(
        cls,
        flat: FlatProblem,
        answer: Callable[[np.ndarray], np.ndarray | None],
        tolerance: float = 1e-5,
        seed: int = 0,
    ) -> Judge:
        """The same over flat vectors."""
        nothing = zero_multipliers(flat)

        def values(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
            found = figures(flat, x, y, nothing)
            return float(found.upper), np.asarray(found.upper_inequality)

        most = 40 if flat.n_y + flat.n_x <= _ALL_PROBES else 4
        return cls(flat, answer, flat.project_x, values, tolerance, seed, most)

    @property
    def dense(self) -> bool:
        """Whether the problem is small enough for second derivatives, and has them."""
        return size_of(self.flat) <= LARGEST and self.flat.prox is None

    def ask(self, x: np.ndarray) -> Value | None:
        """What the leader gets at x."""
        y = self.answer(x)
        if y is None:
            return None
        judged = self.polished(x, y)
        # Beyond the edge of the follower's feasibility answers are a little infeasible, and may look better.
        if judged is not None and (judged.stationarity > _TRUSTED or judged.feasibility > _FEASIBLE):
            return None
        return self.value(x, y if judged is None else judged.y, judged)

    def polished(self, x: np.ndarray, y: np.ndarray) -> Reply | None:
        """The follower's answer judged, after Newton steps; None where second derivatives are not to be had."""
        if not self.dense:
            return None
        judged = reply(self.flat, x, y)
        return None if judged is None else polish(self.flat, judged)

    def as_given(self, x: np.ndarray, y: np.ndarray) -> Reply | None:
        """The same without improving y."""
        return reply(self.flat, x, y) if self.dense else None

    def value(self, x: np.ndarray, y: np.ndarray, judged: Reply | None = None) -> Value:
        """f and the relative violation of G at (x, y)."""
        upper, rows = self.values(x, y)
        if not len(rows):
            return Value(x, y, upper, 0.0)
        size = np.ones(len(rows))
        if judged is not None:
            size = row_sizes(judged.local.upper_inequality_jacobian, judged.sizes.both, np.concatenate([x, y]))
        return Value(x, y, upper, float(np.max(np.maximum(rows, 0.0) / np.maximum(size, 1e-300))))

    def examine(
        self,
        x: np.ndarray,
        y: np.ndarray,
        *,
        residual: float,
        downhill: np.ndarray | None,
        start: np.ndarray | None = None,
        probes: bool = True,
        polishing: bool = True,
    ) -> Verdict:
        """Judge (x, y). ``residual`` is the follower's relative residual where second derivatives are not to be had.

        ``downhill`` is a gradient that the probes may follow; ``start`` is where the run began. Without ``polishing``
        y is judged as it is.
        """
        allowed = below_tolerance(self.tolerance)
        judged = self.polished(x, y) if polishing else self.as_given(x, y)
        here = self.value(x, y if judged is None else judged.y, judged)
        below = residual <= 10.0 * allowed if judged is None else judged.worst <= allowed
        slope = self._slope(x, y, judged) if below else None
        first_order = None if slope is None else bool(slope.stationarity <= self.resolution(here.upper, slope))
        if first_order is False and slope is not None and probes and self._kink(here, slope):
            first_order, slope = None, None
        sizes = np.maximum(1.0, np.abs(x)) if judged is None else judged.sizes.x
        sizes = sizes if slope is None else slope.sizes
        scale = self._scale(here, judged, slope, downhill, sizes)
        nothing = Probed(None, 0.0, 0.0, (), 0)
        admissible = here.violation <= allowed
        if not (below and np.isfinite(here.upper)):
            return Verdict(here, judged, slope, nothing, below, admissible, first_order, False, scale)
        direction = slope.gradient if slope is not None else downhill
        probed = nothing
        if probes:
            whole = 0.0 if judged is None else whole_scale(judged)
            distances: tuple[float, ...] = DISTANCES if first_order or judged is None else FINE
            if first_order and judged is None:
                distances = NEAR  # answers of a large follower are dear, and the derivative has spoken already
            most = self.most_probes
            plan = Probing(sizes, scale, whole, self.tolerance, allowed, direction, self.seed, most, distances)
            probed = probe(self.ask, self.project, here, plan)
            if first_order is None and judged is not None and probed.better is None:
                probed = self._probe_along_kinks(here, plan, probed)
        # Where phi has no derivative probes alone can tell, and silence is no evidence.
        blind = first_order is None and judged is not None and probed.better is None
        unseen = blind and any(self._outward(point, _FEASIBLE) is None for point in probed.unanswered)
        unbounded = False
        moved = None if start is None else x - start
        suspicious = first_order is False or probed.better is not None
        for ray in (moved, None if direction is None else -direction):
            if unbounded or ray is None or not (suspicious or probes):
                continue
            low, high = self.flat.x_set.bounds_flat()
            if np.isfinite(low).all() and np.isfinite(high).all():
                continue
            floor = max(self.tolerance * scale, 1e-9 * abs(here.upper) * 1e-6)
            unbounded = falls_for_ever(self.ask, self.project, here, ray, sizes, floor)
        return Verdict(here, judged, slope, probed, below, admissible, first_order, unbounded, scale, unseen)

    def _probe_along_kinks(self, here: Value, plan: Probing, probed: Probed) -> Probed:
        """Probes along a kink or a boundary, for an x where phi has no derivative; what was known where none gains."""
        if here.x.size > _ALONG_KINKS:
            return probed
        generator = np.random.default_rng(self.seed)
        for radius in RADII:
            around = look_around(self._sides, self._outward, self.project, here.x, plan.sizes, radius, generator)
            ways = tuple(tangent_directions(around))
            # On a boundary f is known to the root of the follower's accuracy: a gain must be clear.
            clear = plan._replace(ways=ways, distances=FINE, tolerance=10.0 * plan.tolerance)
            found = probe(self.ask, self.project, here, clear) if ways else probed
            if found.better is not None:
                return found._replace(flat=(), asked=probed.asked + found.asked, unanswered=probed.unanswered)
        return probed

    def _sides(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The gradient of phi at x, and those of the leader's constraints that are active there."""
        found = self.gradient(x)
        if found is None:
            return None
        value, gradient, jacobian = found
        rows = self.values(value.x, value.y)[1]
        return gradient, jacobian[rows >= -1e-6 * (1.0 + np.abs(jacobian) @ np.abs(x))]

    def _outward(self, x: np.ndarray, least: float = 0.0) -> np.ndarray | None:
        """The direction in which the follower's violation grows, where that is more than ``least``."""
        if self.flat.n_inequality + self.flat.n_equality == 0:
            return None
        solve = self.flat.program(violation, general_oracles(self.flat)[0])
        middle = self.flat.y_set.interior_flat()
        found = solve(np.asarray(x), np.asarray(1e-9), middle, np.asarray(False))
        return np.asarray(found.gradient) if found.solved and found.value > least else None

    def _kink(self, here: Value, slope: Slope) -> bool:
        """Whether f does not fall as the derivative at x says: then x is at a kink, and the derivative says nothing.

        Looked for where the derivative is far from small, at a third of the distance that a curvature of the size of
        f's own would put the minimum at.
        """
        if slope.stationarity < _SMALL_SLOPE:
            return False
        size = slope.sizes
        weighted = -slope.left * size / slope.scale  # ratios, so that no entry exceeds slope.stationarity
        for share in (0.3, 0.03):
            found = self.ask(self.project(here.x + share * size * weighted))
            if found is None:
                continue
            predicted = float(-slope.gradient @ (found.x - here.x))
            if here.upper - found.upper > 0.1 * predicted:
                return False
        return True

    def resolution(self, upper: float, slope: Slope) -> float:
        """What the stationarity of x may be: the tolerance, or what rounding of a large f lets values tell."""
        rounding = 4e-16 * abs(upper) / float(np.max(slope.scale))
        return max(self.tolerance, min(2.0 * float(np.sqrt(rounding)), 1e-3))

    def _slope(self, x: np.ndarray, y: np.ndarray, judged: Reply | None) -> Slope | None:
        """The derivative of phi, with matrices or without."""
        return (
            slope_without_matrices(self.flat, x, y) if judged is None else slope_at(self.flat, judged, self.tolerance)
        )

    def gradient(self, x: np.ndarray) -> tuple[Value, np.ndarray, np.ndarray] | None:
        """f, its derivative and that of G along y(x), at x; None where y(x) has none."""
        y = self.answer(x)
        judged = None if y is None else self.polished(x, y)
        if judged is None or judged.worst > _TRUSTED:
            return None
        slope = slope_at(self.flat, judged, self.tolerance)
        return None if slope is None else (self.value(x, judged.y, judged), slope.gradient, slope.constraint)

    def _scale(
        self, here: Value, judged: Reply | None, slope: Slope | None, downhill: np.ndarray | None, sizes: np.ndarray
    ) -> float:
        """By what f changes when the variables move by their sizes."""
        if slope is not None:
            return float(np.max(slope.scale))
        if judged is not None:
            return whole_scale(judged)
        if downhill is not None:
            return float(np.max(np.abs(downhill) * sizes, initial=0.0)) + 1e-3 * (1.0 + abs(here.upper))
        return 1.0 + abs(here.upper)
