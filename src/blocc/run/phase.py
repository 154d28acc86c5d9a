"""One phase of a run: where it ended, in which units it was made, and what the judge says about that."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from blocc.judge.examine import Judge
from blocc.judge.verdict import Verdict
from blocc.local.balance import Units
from blocc.options import Options
from blocc.outer.tolerances import Endpoint
from blocc.penalty import Evaluation, UpperMultipliers, answer_of, no_upper_multipliers
from blocc.problem import BilevelProblem
from blocc.reformulate.units import Scaling
from blocc.result import Result, Status
from blocc.run.single import Run

#: Statuses of a phase whose end is worth judging; every other one has a reason that no further phase removes.
OPEN = (Status.CONVERGED, Status.STALLED, Status.ITERATION_LIMIT, Status.PENALTY_OPEN, Status.INFEASIBLE)
#: Statuses of a phase that was ended from outside.
ENDED = (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED)


@dataclass
class Phase:
    """One phase: its run, the units it was made in, its result in the user's, and the verdict on that."""

    run: Run
    scaling: Scaling | None
    result: Result
    end: Endpoint
    verdict: Verdict | None = None
    by_value: bool = False  #: the end was reached, or confirmed, by descents from it

    def evaluate(self, x: np.ndarray, sloped: bool = True) -> Evaluation:
        """F_gamma and both answers at a flat x of the user's, at the gamma where the phase ended."""
        run, inward = self.run, x if self.scaling is None else self.scaling.inward(x)
        inner = run.tolerances.inner(self.gamma, final=True)
        return run.exact(inward, self.gamma, self.leader, inner, sloped or np.isfinite(self.gamma))

    @property
    def units(self) -> Units | None:
        """None for the user's own."""
        return None if self.scaling is None else self.scaling.units

    @property
    def evaluation(self) -> Evaluation:
        """Where the phase ended, in its own units."""
        return self.end.evaluation

    @property
    def gamma(self) -> float:
        """The last one, in the units of the phase."""
        return float(self.evaluation.gamma)

    @property
    def leader(self) -> UpperMultipliers:
        """Multipliers of the leader's constraints at the end."""
        return no_upper_multipliers(self.run.problem.flat) if self.run.leader is None else self.run.leader

    @property
    def flat(self) -> tuple[int, ...]:
        """Entries of x that neither f nor the follower's answer depends on around the end."""
        return () if self.verdict is None else self.verdict.probed.flat

    def gradient(self) -> np.ndarray:
        """Of F_gamma at the end, in the user's units."""
        slope = np.asarray(self.evaluation.gradient)
        return slope if self.scaling is None else slope / (self.scaling.units.x * float(self.scaling.units.upper))

    def answer(self, x: np.ndarray) -> np.ndarray | None:
        """The follower's answer at a flat x, in the user's units."""
        found = answer_of(self.evaluate(x, sloped=False))
        return None if found is None else found * (1.0 if self.scaling is None else self.scaling.units.y)

    def judge(self, problem: BilevelProblem, options: Options) -> Judge:
        """A judge who asks this phase's oracles for the follower's answers, for each once."""
        known: dict[bytes, np.ndarray | None] = {}

        def answer(x: np.ndarray) -> np.ndarray | None:
            key = x.tobytes()
            if key not in known:
                known[key] = self.answer(x)
            return known[key]

        return replace(Judge.of(problem, answer, options.tolerance, options.seed), watch=self.run.monitor.check_time)

    def success(self, problem: BilevelProblem) -> bool:
        """Whether the answer may be called one."""
        v = self.verdict
        if v is None or not v.holds:
            return False
        return v.first_order is True or self.by_value or self.result.status is Status.CONVERGED
