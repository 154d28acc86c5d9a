"""Runs that can be continued: evaluations out of a recording while it lasts, and by what a problem is recognised.

Cone solvers begin every program anew, so nothing but the evaluations has to be kept.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.cvxpy.cone_program import ConeProgram
from blocc.cvxpy.evaluator import ConicEvaluator
from blocc.cvxpy.exact import exact_point
from blocc.cvxpy.implicit import Pair
from blocc.cvxpy.incumbent import MET
from blocc.cvxpy.model import Model
from blocc.outer.recovery import Question
from blocc.penalty import Evaluation
from blocc.result import HistoryRow
from blocc.resume.fingerprint import Fingerprint, fingerprint_of_arrays
from blocc.resume.recorded import RecordedMonitor
from blocc.resume.recording import CheckpointError, Recording


class ConicMonitor(RecordedMonitor):
    """Reports in the user's units and signs."""

    factors: tuple[float, float] = (1.0, 1.0)  #: of the leader's values and of the follower's
    lowest: Evaluation | None = None  #: the best value among points at which the leader's constraints are met

    def consider(self, evaluation: Evaluation) -> None:
        """Keep the best points: that of all, and that of those which gain nothing by violating constraints."""
        super().consider(evaluation)
        size = max(1.0, float(np.max(np.abs(evaluation.x), initial=0.0)))
        met = bool(evaluation.usable) and evaluation.violation <= MET * size
        if met and (self.lowest is None or evaluation.upper_value < self.lowest.upper_value):
            self.lowest = evaluation

    def append(self, row: HistoryRow, x: np.ndarray) -> None:
        """Append a row in the user's units."""
        upper, lower = self.factors
        row = row._replace(
            upper_value=upper * row.upper_value,
            upper_value_penalty=upper * row.upper_value_penalty,
            penalty_value=upper * row.penalty_value,
            lower_value=lower * row.lower_value,
        )
        super().append(row, x)


class RecordedConicEvaluator(ConicEvaluator):
    """An evaluator whose answers are recorded."""

    def __init__(self, recording: Recording, *given: Any) -> None:
        super().__init__(*given)
        self.recording = recording
        self._name = recording.register(self)

    def compute(self, question: Question) -> Evaluation:
        """The recorded answer, or a new one, which is recorded."""
        inputs = np.append(question.x, [question.gamma, question.tolerance, *self.units, *self.state])
        if (answer := self.recording.recall(self._name, inputs)) is not None:
            self.proposed = None
            return self._unpacked(answer)
        found = super().compute(question)
        if self.recording.active:
            leaves = [np.ravel(np.asarray(leaf, dtype=np.float64)) for leaf in jax.tree.leaves(found)]
            point = self.point(np.asarray(found.x)) if np.isinf(question.gamma) and found.usable else None
            pairs = [] if point is None else [np.concatenate([one.z, one.prices, one.free]) for one in point.pairs]
            self.recording.note(self._name, inputs, np.concatenate([[self.inner_iterations], *leaves, *pairs]))
        return found

    def warm_leaves(self) -> list[np.ndarray] | None:
        """No warm starts: every cone program is solved from nothing."""
        return []

    def _unpacked(self, answer: Float[NDArray, " numbers"]) -> Evaluation:
        leaves, structure = jax.tree.flatten(self.blank(np.zeros(self.model.n_x)))
        known = 1 + sum(leaf.size for leaf in leaves)
        sizes = [(one.program.n, one.program.m, one.program.cones.nonnegative) for one in self.model.followers]
        if answer.size not in (known, known + sum(map(sum, sizes))):
            raise CheckpointError("the checkpoint does not fit this version of blocc: an evaluation has another form")
        self.inner_iterations, start, found = int(answer[0]), 1, []
        for leaf in leaves:
            found.append(answer[start : start + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        restored: Evaluation = jax.tree.unflatten(structure, found)
        if answer.size > known:
            parts = iter(np.split(answer[known:], np.cumsum(sizes)[:-1]))
            pairs = [Pair(next(parts), next(parts), next(parts) > 0.0) for _ in sizes]
            x = np.asarray(restored.x)
            self._last = self._key(x), exact_point(self.model, x, pairs)
        return restored


def model_fingerprint(model: Model) -> Fingerprint:
    """By what a problem of CVXPY's is recognised: the numbers of its cone programs."""
    figures = {"the leader's set": _figures(model.x_set.program, np.zeros(0))}
    figures["the leader's problem"] = _figures(model.leader, model.leader_theta(np.zeros(model.n_x)))
    for index, (one, theta) in enumerate(zip(model.followers, model.follower_thetas(np.zeros(model.n_x)), strict=True)):
        figures[f"follower {index}"] = _figures(one.program, theta)
    return fingerprint_of_arrays(figures)


def _figures(program: ConeProgram, theta: Float[NDArray, " parameters"]) -> Float[NDArray, " numbers"]:
    maps = (program.quadratic.map, program.objective, program.constraint.map)
    places = (program.quadratic.rows, program.quadratic.columns, program.constraint.rows, program.constraint.columns)
    return np.concatenate([*(one.data for one in maps), *places, program.cones.kinds, theta]).astype(np.float64)
