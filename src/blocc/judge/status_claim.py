"""A status other than ``CONVERGED`` is a claim too: what at (x, y) speaks against it.

``INFEASIBLE``, ``UNBOUNDED``, ``NOT_CONVEX``, ``NOT_FINITE`` and ``PENALTY_OPEN`` say something about the problem, and
are held against it. The others say how a run ended, which no point can contradict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from blocc._lib.rounding import PLACED
from blocc.flat_problem import FlatProblem
from blocc.judge.convexity import jensen
from blocc.judge.curvature import curvature_of, feasible_samples
from blocc.judge.examine import Judge
from blocc.judge.failures import name_nonfinite
from blocc.judge.responses import below_tolerance
from blocc.judge.second_opinion import SecondOpinion
from blocc.judge.verdict import Verdict
from blocc.outer.recovery import beside_the_middle
from blocc.result import Result, Status

#: Statuses that say something about the problem.
ABOUT_THE_PROBLEM = (
    Status.INFEASIBLE,
    Status.UNBOUNDED,
    Status.NOT_CONVEX,
    Status.NOT_FINITE,
    Status.PENALTY_OPEN,
)
#: Of these, the ones that probes around x can speak against.
PROBED = (Status.UNBOUNDED, Status.NOT_CONVEX)
#: Statuses of runs without an answer: what they tell about x and the penalty belongs to an unfinished descent, or to
#: one among many answers of a follower that is not convex.
WITHOUT_ANSWER = (Status.INFEASIBLE, Status.UNBOUNDED, Status.NOT_CONVEX, Status.NOT_FINITE, Status.STATIONARY)

_FEASIBLE = 1e-9  #: violation, relative to 1 + the largest entry of y, below which a point satisfies the constraints
_FAR = 1e5  #: an x beyond this has run away, whatever its derivative says there
_SEEDS = 3  #: of the pairs that convexity is tested on
_CLOSED = 1e-3  #: share of the tolerance below which a penalty is closed beyond doubt


class Claim(NamedTuple):
    """A result's status with what was found out at its (x, y)."""

    flat: FlatProblem
    result: Result
    x: np.ndarray
    y: np.ndarray
    y_penalty: np.ndarray
    verdict: Verdict
    second: SecondOpinion
    tolerance: float

    def contradiction(self) -> str:
        """What speaks against the status, in words; empty where nothing does."""
        found = {
            Status.INFEASIBLE: self._infeasible,
            Status.UNBOUNDED: self._unbounded,
            Status.NOT_CONVEX: self._not_convex,
            Status.NOT_FINITE: self._not_finite,
            Status.PENALTY_OPEN: self._penalty_open,
        }.get(self.result.status)
        return "" if found is None else found()

    @property
    def _method(self) -> str | None:
        method = self.result.settings.get("method")
        return method if isinstance(method, str) else None

    def _infeasible(self) -> str:
        """An answer of the follower at x that satisfies everything."""
        y = self.y
        if not self.verdict.lower_optimal:
            found = self.second.best(self.x)
            if found is None or found.violation > _FEASIBLE * (1.0 + float(np.max(np.abs(found.y), initial=0.0))):
                return ""
            y = found.y
        judge = Judge.over(self.flat, self.second.answer, self.tolerance)
        violation = judge.value(self.x, y, judge.as_given(self.x, y)).violation
        if violation > below_tolerance(self.tolerance):
            return ""
        return "the follower has an answer at x" + (", and G(x, y) <= 0 holds" if self.flat.n_upper_inequality else "")

    def _unbounded(self) -> str:
        """A bounded y_set where no answer of the follower is told, or a stationary x."""
        bounded = [np.isfinite(within.bounds_flat()).all() for within in (self.flat.x_set, self.flat.y_set)]
        if all(bounded):
            return "x_set and y_set are bounded"
        if not self.verdict.lower_optimal and bounded[1]:
            return "y_set is bounded, and so is what the follower can gain"  # a convex function has affine minorants
        if self._method == "global" or np.max(np.abs(self.x), initial=0.0) > _FAR:
            return ""  # a search of all of X may know more than what is seen around one x
        return "y answers x, and around x f(x, y(x)) does not fall" if self.verdict.holds else ""

    def _not_convex(self) -> str:
        """No pair of points and no curvature that shows it, at an x and y that hold."""
        if not self.verdict.holds:
            return ""
        gamma = self.result.gamma if 0.0 < self.result.gamma < np.inf else 1.0
        for seed in range(_SEEDS):
            found = jensen(self.flat, self.x, self.y, gamma, seed)
            if found.failure() or found.penalised_bends():
                return ""
        samples = feasible_samples(self.flat, self.x, self.y, 8, 0)
        for share in (0.0, 1.0):
            ends = np.array([self._curvature(share, gamma)(point) for point in samples])
            if not np.isfinite(ends).all() or ends[:, 0].min() < -PLACED * (1.0 + np.abs(ends).max()):
                return ""
        return "(x, y) holds, and nothing bends downwards around it"

    def _curvature(self, share: float, gamma: float) -> Callable[[np.ndarray], tuple[float, float]]:
        """Of ``share f + gamma g`` in y."""
        flat, x = self.flat, jnp.asarray(self.x)
        return curvature_of(lambda y: share * flat.upper(x, y) + gamma * flat.lower(x, y))

    def _not_finite(self) -> str:
        """Finite values and derivatives wherever a run looks first, and an answer of the follower."""
        if self._method is not None or not self.verdict.lower_optimal:
            return ""  # other methods say so of iterates that diverge
        points = (self.y, self.y_penalty, self.flat.y_set.interior_flat(), beside_the_middle(self.flat))
        if any(name_nonfinite(self.flat, self.x, point) for point in points):
            return ""
        return "y answers x, and all functions are finite there"

    def _penalty_open(self) -> str:
        """A penalty that hides nothing, or that the run was free to close."""
        if self._method is None and self.result.settings.get("gamma") == "auto":
            return "gamma was not given by hand"
        gap, distance = self.result.certificate.penalty_gap, float(np.linalg.norm(self.y_penalty - self.y))
        size = 1.0 + float(np.linalg.norm(self.y))
        closed = abs(gap) <= _CLOSED * self.tolerance * self.verdict.unit
        return "the penalty hides nothing" if closed and distance <= _CLOSED * self.tolerance * size else ""
