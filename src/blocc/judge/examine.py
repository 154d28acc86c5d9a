"""Who examines an answer (x, y): what holds at both levels, in the user's own units.

What helped to find the answer is not asked: neither units nor tolerances nor multipliers of a run. The follower is
judged by :mod:`blocc.judge.lower_level`, the leader by the first- and second-order conditions of the pieces of phi
(:mod:`blocc.judge.value_slope`) where they are regular, and by values of phi everywhere (:mod:`blocc.judge.probe`).
Every way in which a model of phi falls is followed by values before it counts against x, and every yardstick is what
phi varies by, never the size of terms that may cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from blocc._lib.rounding import KEPT
from blocc.flat_problem import FlatProblem
from blocc.inner.choice import general_oracles
from blocc.inner.elastic import violation
from blocc.judge.adjoint_slope import slope_without_matrices
from blocc.judge.challenge import challenge
from blocc.judge.distance import undetermined
from blocc.judge.kinks import on_kink
from blocc.judge.lower_level import LowerKKT
from blocc.judge.probe import (
    ALL_COORDINATES,
    DISTANCES,
    FINE,
    NEAR,
    NOTHING,
    PAIR,
    Line,
    Probed,
    Probing,
    Value,
    lines,
    merged,
    probe,
    unbounded_along,
)
from blocc.judge.responses import FEASIBLE, below_tolerance
from blocc.judge.tangent import RADII, look_around, tangent_directions
from blocc.judge.value_slope import Hypergradient, slope_at
from blocc.judge.verdict import Verdict
from blocc.judge.walks import Walks
from blocc.lagrangian import Multipliers, figures, zero_multipliers
from blocc.local.derivatives import LARGEST
from blocc.local.scales import reach
from blocc.problem import BilevelProblem

_STEPS = 30  #: Newton steps at most; where they converge they are fewer than ten
#: Variables up to which all probes are made.
_ALL_PROBES = 500
#: Variables of the leader up to which ways along kinks are looked for.
_ALONG_KINKS = 100


@dataclass(frozen=True)
class Judge(Walks):
    """Judges answers of one problem."""

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
        return cls(flat, answer, flat.project_x, values, tolerance, seed, most_probes=most)

    def examine(
        self,
        x: np.ndarray,
        y: np.ndarray,
        *,
        multipliers: Multipliers | None = None,
        downhill: np.ndarray | None = None,
        start: np.ndarray | None = None,
        probes: bool = True,
        polishing: bool = True,
    ) -> Verdict:
        """Judge (x, y).

        ``multipliers`` are claimed to prove y where second derivatives are not to be had; the proof is checked.
        ``downhill`` is a gradient that the probes may follow; ``start`` is where the run began. Without ``polishing``
        y is judged as it is.
        """
        found, judge, plan = self._at(x, y, multipliers, polishing)
        if not (found.lower_optimal and np.isfinite(found.value.upper)):
            return found
        first_order, probed, blocked = judge._first_order(found.value, found.slope or found.partly, plan, probes)
        found = found._replace(first_order=first_order, probed=probed, scale=probed.variation, blocked=blocked)
        found = judge._probed(found, plan, downhill, start) if probes else found
        if probes and (0.0 if found.slope is None else found.slope.worth) > max(
            self.tolerance * found.unit, plan.floor
        ):
            found = found._replace(admissible=False)  # f gains more by violating G than it may be wrong by
        if (
            probes
            and found.slope is not None
            and any(
                way.length > self.tolerance
                and self.tolerance * found.scale < 0.5 * way.slope * way.length <= plan.floor
                for way in found.slope.ways
            )
        ):
            found = found._replace(first_order=False)  # what f falls by there drowns in the rounding of its value
        if probes and found.first_order is None and found.slope is not None:
            # Derivatives that promise a gain which no value of phi shows are not those of phi: values alone count.
            found = found._replace(slope=None, partly=found.slope)
        if not (probes and found.holds and found.reply is not None):
            return found
        least = max(self.tolerance * found.unit, plan.floor)
        return found._replace(challenge=challenge(self.flat, found.reply, plan.allowed_violation, least))

    def measure(self, x: np.ndarray, y: np.ndarray, multipliers: Multipliers | None, polishing: bool) -> Verdict:
        """The figures of (x, y): nothing is looked for around x."""
        return self._at(x, y, multipliers, polishing, ways=False)[0]

    def step(self, x: np.ndarray, y: np.ndarray) -> Value | None:
        """A better point than x: feasible for G if x is not, or lower along a way that derivatives show."""
        found, judge, plan = self._at(x, y, None, True)
        here = found.value
        slope = found.slope or found.partly
        if not found.lower_optimal or slope is None:
            return None
        worth = slope.worth
        if judge.normals is not None and (not found.admissible or worth > plan.floor) and here.violation > 0.0:
            mended = judge.reduced_objective(judge.mended(here))
            return mended if mended is not None and mended.violation < here.violation else None
        for way in slope.ways:
            if way.matters(0.0, plan.floor) and (lower := judge.descended(here, way, plan)) is not None:
                return lower
        return None

    def follow(self, first: Value) -> Value:
        """Newton steps on the pieces of phi, as long as each leads to a lower value of phi itself."""
        at = first
        for _ in range(_STEPS):
            better = self.step(at.x, at.y)
            if better is None:
                break
            at = better
        return at

    def _at(
        self, x: np.ndarray, y: np.ndarray, multipliers: Multipliers | None, polishing: bool, ways: bool = True
    ) -> tuple[Verdict, Judge, Probing]:
        """What derivatives say about (x, y), a judge who knows it, and how to look around."""
        allowed = below_tolerance(self.tolerance)
        judged = self.polished(x, y) if polishing else self.as_given(x, y)
        residual = self.residual_of(x, y, multipliers) if judged is None else judged.worst
        lower_optimal = residual <= (allowed if judged is not None else 10.0 * allowed)
        y = y if judged is None else judged.y
        slope = self._slope(x, y, judged, multipliers, ways) if lower_optimal else None
        sizes = np.maximum(1.0, np.abs(x)) if judged is None else judged.sizes.x
        sizes = sizes if slope is None else slope.sizes
        judge = replace(self, sizes=sizes)
        if slope is not None:
            judge = replace(judge, row_units=slope.row_units, normals=slope.constraint)
            if judged is not None:
                judge = replace(judge, near=y, natural=judged.sizes)
        here = judge.value(x, y, judged)
        # Without a regular piece a row of the follower holds to that ratio of its terms in all variables, and so x.
        blur = 2.0 * FEASIBLE * (self.flat.n_x + self.flat.n_y) if slope is None else 0.0
        plan = Probing(
            sizes,
            judge.floor(here, judged, None if slope is None else slope.error, residual),
            self.tolerance,
            allowed,
            blur,
        )
        if slope is not None and judged is not None and slope.moved > self.tolerance:
            lower_optimal = False  # small residuals of an ill-conditioned follower are no small distance
        unsure = undetermined(self.flat, judged, self.tolerance) if lower_optimal and judged is not None else ""
        whole = slope is None or slope.whole
        found = Verdict(
            here,
            judged,
            slope if whole else None,
            NOTHING,
            lower_optimal=lower_optimal and not unsure,
            admissible=here.violation <= allowed,
            first_order=None,
            unbounded=False,
            scale=0.0,
            row_units=judge.row_units,
            residual=residual,
            partly=None if whole else slope,
            undetermined=unsure,
        )
        return found, judge, plan

    def _first_order(
        self, here: Value, slope: Hypergradient | None, plan: Probing, probes: bool
    ) -> tuple[bool | None, Probed, bool]:
        """Whether x is stationary by the pieces of phi, each way down followed by values of phi.

        And whether G blocks one of them however near to x, although its derivatives hold along the way: they do not
        describe where G <= 0 is then (no constraint qualification), and nothing tells whether phi falls there.
        """
        if slope is None:
            return None, NOTHING, False
        seen: list[Probed] = []
        widest = reach(*self.flat.x_set.bounds_flat(), here.x)
        ways = [way.lengthened(plan.floor, widest) for way in slope.ways]
        open_ways = [way for way in ways if not way.null and way.matters(plan.tolerance, plan.floor)]
        if not probes:
            return (None if open_ways or not slope.whole else True), NOTHING, False
        kinked, blocked = False, False
        for way in open_ways:
            project = self.onto(way)
            line = Line(self.reduced_objective, project, here, way.direction, plan.sizes)
            variation = line.variation((1.0, *DISTANCES))  # near enough that a curved valley looks straight
            if not way.curvature < 0.0 and way.slope <= self.tolerance * variation:
                continue
            distances = tuple(sorted({*FINE, *(far for end in way.lengths for far in (end, 2.0 * end))}, reverse=True))
            both = way.curvature < 0.0 and not way.falls(plan.tolerance, plan.floor)
            along = plan._replace(distances=distances)
            found = probe(self.reduced_objective, project, here, [way.direction], along, both)
            seen.append(found._replace(flat=()))
            if found.better is None and way.falls(plan.tolerance, plan.floor):
                kinked = True
                blocked |= bool(len(slope.row_units)) and _is_blocked(line, FINE, plan)
        probed = merged(seen)
        bent = min(slope.ways, key=lambda way: np.nan_to_num(way.curvature, nan=0.0), default=None)
        if probed.better is None and bent is not None and bent.curvature < 0.0:
            lower = self.outwards(here, bent, plan)
            if lower is not None:
                gain, far = here.upper - lower.upper, float(np.linalg.norm(lower.x - here.x))
                probed = merged([probed, Probed(lower, gain, gain / far, (), 1)])
        if probed.better is None:
            probed = merged([probed, self.uncurved(here, slope.ways, plan)])
        if probed.better is not None:
            return False, probed, False
        # Derivatives that promise a gain which no value of phi shows belong to a kink that is no row of the follower.
        return (None if kinked or not slope.whole else True), probed, blocked

    def _probed(self, found: Verdict, plan: Probing, downhill: np.ndarray | None, start: np.ndarray | None) -> Verdict:
        """What values of phi around x say, on top of its derivatives."""
        here, judged, slope, first_order = found.value, found.reply, found.slope, found.first_order
        direction = slope.left if slope is not None else downhill
        # Responses of a large follower are expensive, and the derivative has spoken already.
        distances: tuple[float, ...] = FINE if first_order is not True and judged is not None else DISTANCES[:2]
        plan = plan._replace(distances=NEAR if first_order and judged is None else distances)
        generator = np.random.default_rng(self.seed)
        # Where phi has no derivative, few coordinates out of many would leave the others unseen.
        every = first_order is None and judged is not None and ALL_COORDINATES < here.x.size <= LARGEST
        plan = plan._replace(distances=PAIR) if every else plan
        ways = lines(here.x.size, plan.sizes, direction, generator, self.most_probes, every)
        around = probe(self.reduced_objective, self.project, here, ways, plan)
        probed = merged([found.probed, around])
        if first_order is None and judged is not None and probed.better is None:
            probed = self._probe_along_kinks(here, plan, probed)
        # Where phi has no derivative probes alone can tell, and silence is no evidence.
        blind = first_order is None and judged is not None and probed.better is None
        inconclusive = blind and any(self._outward(point, FEASIBLE) is None for point in probed.unanswered)
        # Of a large follower nothing but values along a few lines: without a gradient they tell nothing of the others.
        inconclusive |= first_order is None and direction is None and not every and here.x.size > ALL_COORDINATES
        scale = probed.variation
        unbounded = False
        moved = None if start is None else here.x - start
        for ray in (moved, None if direction is None else -direction):
            if unbounded or ray is None:
                continue
            low, high = self.flat.x_set.bounds_flat()
            if np.isfinite(low).all() and np.isfinite(high).all():
                continue
            unbounded = unbounded_along(self.reduced_objective, self.project, here, ray, plan.floor)
        unbounded = unbounded or (slope is not None and self.underflows(here, slope.gradient))
        jump = None if probed.better is not None else self._jump(here, slope or found.partly, plan, scale)
        return found._replace(probed=probed, scale=scale, inconclusive=inconclusive, unbounded=unbounded, jump=jump)

    def _jump(self, here: Value, slope: Hypergradient | None, plan: Probing, scale: float) -> float | None:
        """f beyond a row of the piece that ends within the tolerance of x, if the follower's response jumps there.

        Over a distance of ``tolerance`` a continuous f changes by about that share of what it varies by, a jump is a
        share of about one: the geometric mean tells them apart.
        """
        for across in () if slope is None else slope.across:
            found = self.reduced_objective(self.project(across))
            if found is not None and abs(found.upper - here.upper) > np.sqrt(self.tolerance) * scale + plan.floor:
                return found.upper
        return None

    def _probe_along_kinks(self, here: Value, plan: Probing, probed: Probed) -> Probed:
        """Probes along a kink or a boundary, for an x where phi has no derivative; what was known where none gains."""
        if here.x.size > _ALONG_KINKS:
            return probed
        generator = np.random.default_rng(self.seed)
        for radius in RADII:
            around = look_around(self._sides, self._outward, self.project, here.x, plan.sizes, radius, generator)
            ways = [plan.sizes * way for way in tangent_directions(around)]
            # On a boundary f is known to the root of the follower's accuracy: a gain must be clear.
            clear = plan._replace(distances=FINE, tolerance=10.0 * plan.tolerance)
            found = probe(self.reduced_objective, self.project, here, ways, clear)
            if found.better is not None:
                return merged([probed, found._replace(unanswered=())])
        return probed

    def _sides(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The gradient of phi at x, and those of the leader's constraints that are active there."""
        found = self.gradient(x)
        if found is None:
            return None
        value, gradient, jacobian = found
        rows = self.values(value.x, value.y)[1]
        return gradient, jacobian[rows >= -KEPT * (1.0 + np.abs(jacobian) @ np.abs(x))]

    def _outward(self, x: np.ndarray, least: float = 0.0) -> np.ndarray | None:
        """The direction in which the follower's violation grows, where that is more than ``least``."""
        if not self.flat.n_inequality + self.flat.n_equality:
            return None
        solve = self.flat.program(violation, general_oracles(self.flat)[0])
        middle = self.flat.y_set.interior_flat()
        found = solve(np.asarray(x), np.asarray(1e-9), middle, np.asarray(False))
        return np.asarray(found.gradient) if found.solved and found.value > least else None

    def _slope(
        self, x: np.ndarray, y: np.ndarray, judged: LowerKKT | None, multipliers: Multipliers | None, ways: bool
    ) -> Hypergradient | None:
        """The derivative of phi, with matrices or without."""
        if judged is None:
            return slope_without_matrices(self.flat, x, y, multipliers)
        return None if on_kink(self.flat, judged) else slope_at(self.flat, judged, self.tolerance, self.watch, ways)


def _is_blocked(line: Line, distances: Sequence[float], plan: Probing) -> bool:
    """Whether phi falls along a line, and at points alone that violate G, however near."""
    near = [found for distance in distances if (found := line.at(distance)[0]) is not None]
    lower = [found for found in near if line.here.upper - found.upper > plan.floor]
    return bool(lower) and all(found.violation > plan.allowed_violation for found in lower)
