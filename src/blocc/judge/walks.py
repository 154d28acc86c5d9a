"""Along a way by values of phi: how far it falls, and whether it bends down by less than values near x resolve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from blocc.judge.probe import ALL_COORDINATES, DISTANCES, NOTHING, Probed, Probing, Value, merged, probe
from blocc.judge.responses import Responses
from blocc.judge.ways import Way

#: Shares of a step that are tried in turn, and of the promised gain that must be seen (Nocedal and Wright, 2006, 3.1).
_SHARES, _ARMIJO = (1.0, 0.25, 0.25**2, 0.25**3, 0.25**5, 0.25**7, 0.25**9), 1e-4
_TURNS = 12  #: derivatives on the sphere for one start: angles of 45 degrees, halved where phi does not fall
_STARTS = 4  #: directions that are turned, each both ways
_DOUBLINGS = 60  #: of a distance: from the rounding of a number to one, and from one to its inverse


@dataclass(frozen=True)
class Walks(Responses):
    """Follows ways by values of f(x, y(x))."""

    def onto(self, way: Way) -> Callable[[np.ndarray], np.ndarray]:
        """Members of X, on the curved rows that a way keeps."""
        hold = way.hold
        return self.project if hold is None else lambda x: self.project(hold(x))

    def descended(self, here: Value, way: Way, plan: Probing) -> Value | None:
        """The first point along a way that is lower by a share of what the model promises (Armijo's rule)."""
        bent = way.curvature < 0.0 and not way.falls(plan.tolerance, plan.floor)
        reach = max(way.lengths, default=way.length)
        for share in _SHARES:
            for sign in (1.0, -1.0) if bent else (1.0,):
                length = sign * share * (1.0 if bent else reach)
                found = self.reduced_objective(self.onto(way)(here.x + length * way.direction))
                if found is None or found.violation > max(plan.allowed_violation, here.violation):
                    continue
                promised = -0.5 * way.curvature * length**2 if bent else way.slope * length
                if here.upper - found.upper > max(plan.floor, _ARMIJO * promised):
                    return self._farther(way, length, found, plan) if share == 1.0 else found
        return None

    def _farther(self, way: Way, length: float, first: Value, plan: Probing) -> Value:
        """The lowest point along a way at twice the distance, and again, as long as f falls."""
        best, project, base = first, self.onto(way), first.x - length * way.direction
        for power in range(1, _DOUBLINGS):
            found = self.reduced_objective(project(base + 2.0**power * length * way.direction))
            violated = found is not None and found.violation > max(plan.allowed_violation, best.violation)
            if found is None or violated or not found.upper < best.upper - plan.floor:
                break
            best = found
        return best

    def outwards(self, here: Value, way: Way, plan: Probing) -> Value | None:
        """A lower point along a way that bends down by less than values resolve: at twice the distance, and again.

        A variable at zero has no size of its own: what a unit of it means shows only where f changes.
        """
        for sign in (1.0, -1.0):
            last = here
            for power in range(_DOUBLINGS):
                point = self.project(here.x + sign * 2.0**power * way.direction)
                found = self.reduced_objective(point) if np.any(point != last.x) else None
                if found is None or found.violation > plan.allowed_violation or found.upper > last.upper + plan.floor:
                    break
                last = found
                if here.upper - found.upper > 2.0 * plan.floor:
                    return found
        return None

    def uncurved(self, here: Value, ways: Sequence[Way], plan: Probing) -> Probed:
        """Probes where second derivatives do not decide: along null spaces, bent.

        Whether a quartic form is nonnegative is NP-hard to tell (Murty and Kabadi, Mathematical Programming 39, 1987):
        descents on the sphere from a few directions find what they find.
        """
        null = [way for way in ways if way.null]
        plan, seen = plan._replace(distances=DISTANCES), [NOTHING]
        for way in null[:ALL_COORDINATES]:
            seen.append(probe(self.reduced_objective, self.onto(way), here, [way.direction], plan))
            if seen[-1].better is not None:
                break
        columns = np.array([way.direction for way in null]).T
        # Eigenvectors may be stationary on the sphere, as the axes of a symmetric phi: descents begin between them.
        begins = np.linalg.qr(np.random.default_rng(self.seed).standard_normal((len(null), len(null))))[0]
        for index, way in enumerate(null[:_STARTS] if len(null) > 1 else ()):
            for sign in (1.0, -1.0):
                if any(one.better is not None for one in seen):
                    break
                turned = columns @ self._turned(here, sign * begins[index], columns, self.onto(way), plan.floor)
                turned /= float(np.max(np.abs(turned) / plan.sizes))
                seen.append(probe(self.reduced_objective, self.onto(way), here, [turned], plan, both=False))
        return merged([one._replace(flat=()) for one in seen])

    def _turned(
        self,
        here: Value,
        first: np.ndarray,
        columns: np.ndarray,
        project: Callable[[np.ndarray], np.ndarray],
        floor: float,
    ) -> np.ndarray:
        """Steepest descent of phi on a sphere around x within the span of ``columns``; where it has come to."""
        radius = DISTANCES[0]

        def at(unit: np.ndarray) -> tuple[float, np.ndarray] | None:
            found = self.gradient(project(here.x + radius * columns @ unit))
            return None if found is None else (found[0].upper, columns.T @ found[1])

        unit = first / float(np.linalg.norm(first))
        last, angle = at(unit), np.pi / 4.0
        for _ in range(_TURNS):
            if last is None or last[0] < here.upper - floor:
                break
            left = last[1] - (last[1] @ unit) * unit
            length = float(np.linalg.norm(left))
            if not radius * length > floor:
                break
            trial = np.cos(angle) * unit - np.sin(angle) * left / length
            trial /= float(np.linalg.norm(trial))
            found = at(trial)
            if found is not None and found[0] < last[0]:
                unit, last = trial, found
            else:
                angle *= 0.5
        return unit
