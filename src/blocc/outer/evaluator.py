"""F_gamma as the outer methods see it: a compiled function that keeps warm starts and never crashes.

An infinite gamma asks for f(x, y(x)) itself and its derivative; only oracles that differentiate their answers know it.

A point where the lower level has no solution comes back with ``usable`` false. Before that, a failed evaluation is
repeated from other starts, and then by the next oracle in line (:mod:`blocc.outer.recovery`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray
from blocc.flat_problem import FlatProblem
from blocc.inner.choice import general_oracles
from blocc.inner.elastic import Violation, violation
from blocc.inner.protocol import InnerOracle, WarmStart
from blocc.outer import recovery, spectral
from blocc.outer.monitor import Monitor
from blocc.penalty import Evaluation, UpperMultipliers, cold_pair, evaluate_both, evaluate_exactly, unstack

#: After so many fallbacks in a row that came to nothing no other oracle is tried: the points have no answer below.
_MOST_FUTILE = 2
#: After so many evaluations in a row that another oracle had to answer, that one is asked first.
_LEARNED = 3


def stationarity(
    project: Callable[[AnyArray], NDArray], x: Float[AnyArray, "n_x"], gradient: Float[AnyArray, "n_x"]
) -> float:
    """Zero exactly where no feasible direction descends: the projected step, or what X cut off from its promise.

    The step is ``d = x - P_X(x - gradient)``. Close to a bound d is short however steep the slope towards it; then
    ``<gradient, d> - |d|^2``, which vanishes inside X, still tells that the bound should be reached.
    """
    step = x - project(x - gradient)
    return max(float(np.max(np.abs(step), initial=0.0)), float((gradient - step) @ step))


class Boundary(NamedTuple):
    """Where the follower's feasibility ends, seen from a point beyond."""

    normal: Float[NDArray, "n_x"]  #: of length 1: the direction in which the follower's violation grows
    depth: float  #: how far beyond the boundary the point is, along the normal


class Evaluator:
    """Evaluates F_gamma at one x with the first oracle that manages to."""

    def __init__(self, flat: FlatProblem, oracles: Sequence[InnerOracle], monitor: Monitor, seed: int = 0) -> None:
        self.flat, self.oracles, self.monitor = flat, tuple(oracles), monitor
        self.seed = seed  #: for every random probe of the run
        self.project = flat.project_x
        self.evaluations = self.inner_iterations = self.derivatives = self.fallbacks = 0
        self.start_size = np.inf  #: 1 + |x| at the first evaluation
        self.warm: dict[InnerOracle, WarmStart] = {}  #: of the last usable evaluation, by oracle
        self.futile = 0  #: fallbacks in a row that came to nothing
        self.first = 0  #: which oracle is asked first
        self.replaced = 0  #: evaluations in a row that another one had to answer
        self._violation: tuple[NDArray, Violation] | None = None

    def __call__(
        self,
        x: Float[AnyArray, "n_x"],
        gamma: float,
        leader: UpperMultipliers,
        tolerance: float,
        sloped: bool = True,
    ) -> Evaluation:
        """Evaluate at ``x``; the warm starts come from the last usable evaluation.

        Without ``sloped`` the follower's answer alone is wanted; such a point is no candidate for the best one.
        """
        self.monitor.spend()
        if self.evaluations == 0:
            self.start_size = 1.0 + float(np.max(np.abs(x), initial=0.0))
        self.evaluations += 1
        found = self.compute(recovery.Question(x, gamma, leader, tolerance, sloped))
        if sloped:
            self.monitor.consider(found)
        return found

    def compute(self, question: recovery.Question) -> Evaluation:
        """The first usable evaluation, or the first of all where none is."""
        first: Evaluation | None = None
        order = [*self.oracles[self.first :], *self.oracles[: self.first]]
        oracles = [one for one in order if one.differentiates] if np.isinf(question.gamma) else order
        for position, oracle in enumerate(oracles):
            if position > 0 and self.futile >= _MOST_FUTILE:
                break
            found = self._by(oracle, question)
            if found.usable:
                self.warm[oracle] = found.warm
                self._learn(oracle, position)
                return found
            first = first or found
            self.futile += position > 0
            if recovery.is_final(self, oracle, found):
                return found
        assert first is not None
        return first

    def _learn(self, oracle: InnerOracle, position: int) -> None:
        """Ask the oracle first that has answered again and again where the one before it could not."""
        self.fallbacks += position > 0
        self.futile = 0 if position > 0 else self.futile
        self.replaced = self.replaced + 1 if position > 0 else 0
        if self.replaced >= _LEARNED:
            self.first, self.replaced = self.oracles.index(oracle), 0

    def _by(self, oracle: InnerOracle, question: recovery.Question) -> Evaluation:
        """An evaluation by one oracle, from one start after the other until one serves."""
        warm = self.warm.get(oracle)
        found = self.attempt(oracle, question, cold_pair(self.flat, oracle) if warm is None else warm)
        if found.usable:
            return found
        if warm is not None:
            if recovery.is_infeasible(self, oracle, found):
                return found  # cheaper to find out than to solve again, or by another oracle
            found = self.attempt(oracle, question, cold_pair(self.flat, oracle))
        for begin in recovery.STARTS:
            if found.usable:
                break
            if (start := begin(self, oracle, found)) is not None:
                found = self.attempt(oracle, question, start)
        return found

    def attempt(self, oracle: InnerOracle, question: recovery.Question, warm: WarmStart) -> Evaluation:
        """One evaluation by one oracle from one start."""
        number = partial(np.asarray, dtype=np.float64)
        x, gamma, leader = number(question.x), number(question.gamma), UpperMultipliers(*map(number, question.leader))
        accuracy = number(max(question.tolerance, oracle.finest))
        easier = () if self.flat.easier is None else self.flat.easier(self.flat.data)
        if np.isinf(question.gamma):
            return self._counted(
                self.flat.program(evaluate_exactly, oracle)(x, leader, warm, accuracy, np.asarray(question.sloped))
            )
        for data in easier:  # leads to the problem proper: its answer is where that one begins
            warm = self.flat.bind(data).program(evaluate_both, oracle)(x, gamma, leader, warm, accuracy).warm
        both = self.flat.program(evaluate_both, oracle)(x, gamma, leader, warm, accuracy)
        return self._counted(unstack(both))

    def _counted(self, found: Evaluation) -> Evaluation:
        self.inner_iterations += int(found.follower.iterations) + int(found.penalised.iterations)
        self.derivatives += int(found.follower.derivatives) + int(found.penalised.derivatives)
        return found

    def violation(self, x: Float[AnyArray, "n_x"]) -> Violation:
        """The smallest violation of the coupled constraints that the follower can reach at ``x``, and its gradient."""
        if self._violation is not None and np.array_equal(self._violation[0], x):
            return self._violation[1]  # a point that is found infeasible is asked for its boundary next
        self.monitor.spend()
        oracle = general_oracles(self.flat)[0]  # a problem's own oracle knows nothing of the elastic problem
        solve = self.flat.program(violation, oracle)
        at, accuracy = np.asarray(x), np.asarray(1e-9)
        found = solve(at, accuracy, self.flat.y_set.interior_flat(), np.asarray(False))
        if not found.solved and oracle.begin_at(self.flat, self.flat.y_set.interior_flat()) is not None:
            # A function may have no derivative in the middle of Y.
            found = solve(at, accuracy, recovery.beside_the_middle(self.flat), np.asarray(True))
        self._violation = np.array(x), found
        return found

    def boundary(self, x: Float[AnyArray, "n_x"]) -> Boundary | None:
        """The boundary before an ``x`` where the follower has no answer, by the violation's linear model."""
        if self.flat.n_inequality + self.flat.n_equality == 0:
            return None
        found = self.violation(x)
        length = float(np.linalg.norm(found.gradient))
        if not found.solved or found.value <= 0.0 or length < 1e-12:
            return None
        return Boundary(np.asarray(found.gradient) / length, float(found.value) / length)

    @property
    def advance(self) -> Callable[..., spectral.SpectralState]:
        """One compiled step of the spectral method's state machine over X; its states are in NumPy."""
        return self.flat.program(spectral.advance)

    def leader_constraint(self, x: Float[AnyArray, "n_x"], y: Any) -> Float[NDArray, "n_upper"]:
        """The leader's own constraint G(x, y), flat."""
        return np.asarray(self.flat.program(_leader_constraint)(np.asarray(x), np.asarray(y)))


def _leader_constraint(flat: FlatProblem, x: Float[Array, "n_x"], y: Float[Array, "n_y"]) -> Float[Array, "n_upper"]:
    return flat.upper_inequality(x, y)
