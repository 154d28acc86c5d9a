"""The margins' problem as a :class:`BilevelProblem`, with its structured oracle, for every method of blocc."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, NDArray
from blocc._lib.rounding import PLACED
from blocc.errors import ProblemError
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerCode, InnerOracle, InnerSolution, finish
from blocc.lagrangian import Multipliers, Weights
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from blocc.svm.follower import FollowerData, solve_follower
from blocc.svm.leader import project_margins
from blocc.svm.margins import CPenalty, FeatureUnits, MarginProblem, SampleWeights, scaled_problem


@dataclass(frozen=True, eq=False)
class MarginOracle(InnerOracle):
    """Minimises s f(c, .) + gamma g over (w, b) with every demand met: Newton's matrices in the features alone."""

    units: FeatureUnits
    scaled: MarginProblem = field(repr=False)

    def cold(self, flat: FlatProblem) -> Float[Array, ""]:
        """The interior point needs no warm start; its cold one takes about ten steps."""
        return jnp.zeros(())

    def solve(
        self, flat: FlatProblem, x: Float[Array, "n"], weights: Weights, warm: Float[Array, ""], tolerance: Array
    ) -> InnerSolution:
        """Solve at margins ``x`` for any weights."""
        problem, unit = self.scaled, self.units.unit
        loss = weights.upper / weights.lower * unit**2
        data = FollowerData(
            jnp.asarray(problem.rows),
            1.0 - x,
            jnp.asarray(problem.validation),
            jnp.asarray(loss * problem.weights.validation),
            jnp.asarray(problem.ridge),
        )
        found = solve_follower(data, jnp.minimum(tolerance, 1e-10))
        w = found.point.y[:-1] / unit
        y = jnp.append(w, found.point.y[-1] - w @ self.units.centre)
        prices = weights.lower * found.point.price / unit**2
        solved = jnp.where(
            found.error <= jnp.maximum(tolerance, 1e-9), int(InnerCode.CONVERGED), int(InnerCode.STALLED)
        )
        code = jnp.where(found.infeasible & (found.error > PLACED), int(InnerCode.INFEASIBLE), solved)
        multipliers = Multipliers(prices, jnp.zeros(0))
        return finish(flat, x, y, multipliers, weights, iterations=found.iterations, code=code, warm=warm)


def svm_problem(
    X: Any,
    labels: Any,
    X_val: Any,
    labels_val: Any,
    *,
    c_penalty: CPenalty = "sum",
    c_weight: float = 10.0,
    intercept_weight: float = 0.0,
    sample_weight: Any = None,
    sample_weight_val: Any = None,
) -> BilevelProblem:
    """Hyperparameter selection for a linear SVM; x holds the margins c, and y = (w, b).

    ``X`` and ``X_val`` are tables with a row for each sample, ``labels`` and ``labels_val`` are -1 and 1.
    Weights say how often a sample counts: a training sample in the price of its margin, a validation sample in the
    loss.
    """
    samples = checked_samples("X", X, "labels", labels)
    validation = checked_samples("X_val", X_val, "labels_val", labels_val)
    if samples[0].shape[1] != validation[0].shape[1]:
        raise ProblemError(f"X has {samples[0].shape[1]} features and X_val has {validation[0].shape[1]}")
    both = (*samples, *validation)
    weights = SampleWeights(
        _weights("sample_weight", sample_weight, len(samples[1])),
        _weights("sample_weight_val", sample_weight_val, len(validation[1])),
    )
    raw = MarginProblem.of(both, c_penalty, c_weight, intercept_weight, weights)
    scaled, units = scaled_problem(both, c_penalty, c_weight, intercept_weight, weights)
    ridge = raw.ridge

    return BilevelProblem(
        upper=lambda c, y: raw.weights.validation @ jnp.exp(1.0 - raw.validation @ y) + raw.price(c),
        lower=lambda c, y: 0.5 * jnp.sum(ridge * y**2),
        inequality=lambda c, y: 1.0 - c - raw.rows @ y,
        x_set=Box.nonnegative(len(raw.rows)),
        y_set=Reals(raw.rows.shape[1]),
        oracle=MarginOracle(units, scaled),
        joint_projection=lambda c, y: project_margins(raw.rows, c, y),
        name="SVM margins",
    )


def checked_samples(
    name: str, X: Any, label_name: str, labels: Any
) -> tuple[Float[NDArray, "n d"], Float[NDArray, "n"]]:
    """Features and labels, checked."""
    table = np.asarray(X, dtype=np.float64)
    signs = np.asarray(labels, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise ProblemError(f"{name} must be a table with one row for each sample, got shape {table.shape}")
    if signs.shape != (len(table),):
        raise ProblemError(f"{label_name} must have one label for each of the {len(table)} rows, got {signs.shape}")
    if not np.isfinite(table).all():
        raise ProblemError(f"{name} must hold finite numbers only")
    if not np.isin(signs, (-1.0, 1.0)).all():
        raise ProblemError(f"{label_name} must be -1 or 1, got {np.unique(signs)[:5]}")
    return table, signs


def _weights(name: str, given: Any, count: int) -> Float[NDArray, "n"]:
    """Weights of samples, 1 by default, checked."""
    weights = np.ones(count) if given is None else np.asarray(given, dtype=np.float64)
    if weights.shape != (count,) or not np.isfinite(weights).all() or (weights <= 0.0).any():
        raise ProblemError(f"{name} must hold a positive number for each of the {count} samples")
    return weights
