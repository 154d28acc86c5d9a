"""A support vector machine whose slacks have weights: the formulation that GAM was published with.

Xu and Zhu (AAAI 2023). The leader chooses c, one logarithm of a weight for each training sample; the follower
minimises |w|^2 / 2 + sum(exp(c) xi^2) / 2 under label (w . z + b) >= 1 - xi. Its answer exists for every c, and no
set bounds y. The leader's loss sees signed distances from the separating plane: 2 sigmoid(-5 distance) - 1 for each
validation sample, what is negative (a sample on its own side) counted a hundredth.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array, Float
from blocc.errors import ProblemError
from blocc.problem import BilevelProblem
from blocc.sets import Reals
from blocc.svm.svm_problem import checked_samples

#: Of the loss: how steep it is, and what a sample on its own side counts.
STEEPNESS, RIGHT_SIDE = 5.0, 0.01


def slack_weight_problem(X: Any, labels: Any, X_val: Any, labels_val: Any) -> BilevelProblem:
    """Weights of the slacks of a linear SVM; x holds their logarithms c, and y = (w, b, xi).

    ``X`` and ``X_val`` are tables with a row for each sample, ``labels`` and ``labels_val`` are -1 and 1.
    """
    table, signs = checked_samples("X", X, "labels", labels)
    table_val, signs_val = checked_samples("X_val", X_val, "labels_val", labels_val)
    if table.shape[1] != table_val.shape[1]:
        raise ProblemError(f"X has {table.shape[1]} features and X_val has {table_val.shape[1]}")
    count, features = table.shape

    def upper(c: Float[Array, "samples"], y: Float[Array, "n_y"]) -> Float[Array, ""]:
        w, b = y[:features], y[features]
        distance = signs_val * (table_val @ w + b) / jnp.linalg.norm(w)
        return jnp.sum(jax.nn.leaky_relu(2.0 * jax.nn.sigmoid(-STEEPNESS * distance) - 1.0, RIGHT_SIDE))

    def lower(c: Float[Array, "samples"], y: Float[Array, "n_y"]) -> Float[Array, ""]:
        return 0.5 * jnp.sum(y[:features] ** 2) + 0.5 * jnp.sum(jnp.exp(c) * y[features + 1 :] ** 2)

    def inequality(c: Float[Array, "samples"], y: Float[Array, "n_y"]) -> Float[Array, "samples"]:
        return 1.0 - y[features + 1 :] - signs * (table @ y[:features] + y[features])

    return BilevelProblem(
        upper=upper,
        lower=lower,
        inequality=inequality,
        x_set=Reals(count),
        y_set=Reals(features + 1 + count),
        name="SVM weights of slacks",
    )
