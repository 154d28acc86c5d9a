"""Steps on the derivative of f(x, y(x)), close to a stationary point."""

from __future__ import annotations

import numpy as np

from blocc.judge.probe import Value
from blocc.run.value_descent import refine

KINK, TARGET = 0.5, np.array([1.0, -0.3])


def differentiate(x: np.ndarray) -> tuple[Value, np.ndarray, np.ndarray] | None:
    """f = |x - target|^2 under x0 + min(x0, k) <= 2 k, which has no derivative where it becomes active."""
    if abs(x[0] - KINK) < 1e-8:
        return None
    y = np.minimum(x[:1], KINK)
    slope = 2.0 if x[0] < KINK else 1.0
    upper = float(((x - TARGET) ** 2).sum())
    violation = max(0.0, float(x[0] + y[0] - 2.0 * KINK))
    return Value(x, y, upper, violation), 2.0 * (x - TARGET), np.array([[slope, 0.0]])


def refined(x: np.ndarray) -> Value:
    at = differentiate(x)
    assert at is not None
    nothing = (np.zeros(0), np.zeros((0, 2)), np.zeros(0), np.zeros((0, 2)))
    bounds = (np.full(2, -3.0), np.full(2, 3.0))
    return refine(
        differentiate,
        lambda x: nothing,
        lambda value: value.x[:1] + value.y - 2.0 * KINK,
        bounds,
        at[0],
        np.ones(2),
        1.0,
    )


def test_steps_along_a_constraint_that_is_active_at_a_kink() -> None:
    for side in (1e-6, -1e-7):
        found = refined(np.array([KINK + side, -0.2999]))
        np.testing.assert_allclose(found.x, [KINK + side, -0.3], atol=1e-8)


def test_a_point_without_a_derivative_is_left_as_it_is() -> None:
    at = Value(np.array([KINK, 0.0]), np.array([KINK]), 1.0, 0.0)
    nothing = (np.zeros(0), np.zeros((0, 2)), np.zeros(0), np.zeros((0, 2)))
    bounds = (np.full(2, -3.0), np.full(2, 3.0))
    found = refine(differentiate, lambda x: nothing, lambda value: np.zeros(1), bounds, at, np.ones(2), 1.0)
    assert found is at
