"""GAM's own formulation of an SVM: the follower against SciPy, the leader's loss by hand, gradients by differences."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import blocc
from blocc._lib.precision import double_precision
from blocc.errors import ProblemError
from blocc.methods.gam import active_gradient
from blocc.svm.slack_weights import slack_weight_problem


def samples(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(count, 2))
    return X, np.where(X[:, 0] + 0.8 * generator.normal(size=count) > 0.0, 1.0, -1.0)


def answer(X: np.ndarray, labels: np.ndarray, c: np.ndarray) -> np.ndarray:
    """(w, b) by SciPy, the slacks put in: a smooth function without constraints."""

    def value(v: np.ndarray) -> float:
        slack = np.maximum(1.0 - labels * (X @ v[:-1] + v[-1]), 0.0)
        return float(0.5 * v[:-1] @ v[:-1] + 0.5 * np.exp(c) @ slack**2)

    def slope(v: np.ndarray) -> np.ndarray:
        pull = np.exp(c) * np.maximum(1.0 - labels * (X @ v[:-1] + v[-1]), 0.0) * labels
        return np.append(v[:-1] - pull @ X, -pull.sum())

    return minimize(value, np.zeros(3), jac=slope, method="BFGS", options={"gtol": 1e-11}).x


def loss(X: np.ndarray, labels: np.ndarray, v: np.ndarray) -> float:
    distance = labels * (X @ v[:-1] + v[-1]) / np.linalg.norm(v[:-1])
    terms = 2.0 / (1.0 + np.exp(5.0 * distance)) - 1.0
    return float(np.sum(np.where(terms > 0.0, terms, 0.01 * terms)))


@pytest.mark.slow
def test_follower_loss_and_gradient() -> None:
    (X, labels), validation = samples(0, 12), samples(1, 9)
    problem = slack_weight_problem(X, labels, *validation)
    c = np.random.default_rng(2).uniform(-2.0, 0.0, 12)
    reply = blocc.lower_level(problem, c)
    expected = answer(X, labels, c)
    y = np.asarray(reply.y)
    np.testing.assert_allclose(y[:3], expected, atol=1e-6)
    slack = 1.0 - labels * (X @ y[:2] + y[2])
    np.testing.assert_allclose(y[3:], np.maximum(slack, 0.0), atol=1e-6)
    assert float(problem.upper(c, jnp.asarray(y))) == pytest.approx(loss(*validation, expected), rel=1e-5)
    prices = np.exp(c) * np.maximum(slack, 0.0)
    with double_precision():
        arguments = (jnp.asarray(part) for part in (c, y, prices, np.zeros(0), slack > 0.0))
        gradient = np.asarray(active_gradient(problem.flat, *arguments))
    step = 1e-3
    differences = [
        (loss(*validation, answer(X, labels, c + step * e)) - loss(*validation, answer(X, labels, c - step * e)))
        / (2.0 * step)
        for e in np.eye(12)
    ]
    np.testing.assert_allclose(gradient, differences, atol=1e-4)


@pytest.mark.slow
def test_gam_as_published_lowers_the_loss() -> None:
    (X, labels), validation = samples(3, 12), samples(4, 9)
    problem = slack_weight_problem(X, labels, *validation)
    start = np.full(12, -3.0)
    result = blocc.solve(problem, start, method="gam", preset="paper", max_iterations=15, progress=False)
    assert result.settings["numbers"]["alpha"] == 0.05
    assert result.settings["counts"] == {"search": 0}
    before = loss(*validation, answer(X, labels, start))
    after = loss(*validation, answer(X, labels, np.asarray(result.x)))
    assert after < before
    assert result.upper_value == pytest.approx(after, abs=1e-4)


def test_bad_samples() -> None:
    X, labels = samples(0, 5)
    with pytest.raises(ProblemError, match="X has 2 features and X_val has 1"):
        slack_weight_problem(X, labels, X[:, :1], labels)
    with pytest.raises(ProblemError, match="labels must be -1 or 1"):
        slack_weight_problem(X, labels + 1.0, X, labels)
