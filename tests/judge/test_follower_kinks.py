"""Kinks of the follower's own functions at its response: derivatives on one side say nothing about the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Certificate, Reals, Result, Status, solve, verify
from blocc._lib.precision import double_precision
from blocc.judge.examine import Judge

HINGES: dict[str, Callable[[Any], Any]] = {
    "where": lambda z: jnp.where(z > 0.0, z, 0.0),
    "maximum": lambda z: jnp.maximum(z, 0.0),
}
STEEP = 300.0  #: of f, which falls beyond the kink for less than 1e-2


def drag(hinge: str, pull: float) -> BilevelProblem:
    """y = x up to the kink at s, and (x + k s) / (1 + k) beyond it, where f has the slope -pull k / (1 + k)."""
    return BilevelProblem(
        upper=lambda x, y, d: pull * d["q"] * (y - x) + STEEP * (x - d["s"]) ** 2,
        lower=lambda x, y, d: (y - x) ** 2 + d["k"] * HINGES[hinge](y - d["s"]) ** 2,
        x_set=Box(-4.0, 4.0),
        y_set=Reals(),
        data={"q": 1.0, "s": 0.0, "k": 1.0},
    )


def drawn(seed: int) -> dict[str, float]:
    generator = np.random.default_rng(seed)
    return {"q": generator.uniform(0.9, 1.5), "s": generator.uniform(-2.0, 2.0), "k": generator.uniform(1.0, 3.0)}


def told(problem: BilevelProblem, x: float, y: float) -> Result:
    """A perfect looking result at a point."""
    at = np.asarray(x), np.asarray(y)
    perfect = Certificate(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True)
    assert problem.data is not None
    f, g = (float(function(*at, problem.data)) for function in (problem.upper, problem.lower))
    return replace(
        solve(problem, x, max_iterations=1, progress=False),
        **{"x": at[0], "y": at[1], "y_penalty": at[1], "gamma": np.inf, "certificate": perfect},
        **{"upper_value": f, "upper_value_penalty": f, "lower_value": g, "status": Status.CONVERGED},
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_derivative_on_one_side_of_a_kink_certifies_nothing(seed: int) -> None:
    """y leaves the piece t + k / 2 of its follower at x = s: next to it Newton steps of that piece cross the kink."""
    generator = np.random.default_rng(seed)
    c, k, t = generator.uniform(0.4, 1.5) * generator.choice([-1.0, 1.0]), *generator.uniform(0.5, 2.0, 2)
    s, away = (t + 0.5 * k) / c, -np.sign(c) * 10.0 ** generator.uniform(-8, -7)
    best = s - np.sign(c)  # f falls from s over a distance of one
    problem = BilevelProblem(
        upper=lambda x, y: (x - best) ** 2 + (y - c * s + 1.0) ** 2,
        lower=lambda x, y: k * jnp.where(y - c * x > 0.0, y - c * x, 0.5 * (c * x - y)) + 0.5 * (y - t) ** 2,
        x_set=Box(-20.0, 20.0),
        y_set=Reals(),
    )

    def answer(x: np.ndarray) -> np.ndarray:
        return np.minimum(np.maximum(c * x, t - k), t + 0.5 * k)

    with double_precision():
        judge = Judge.of(problem, answer)
        for x in (np.array([s]), np.array([s + away])):
            verdict = judge.examine(x, answer(x), polishing=False)
            assert verdict.first_order is not True
            assert not verdict.holds


@pytest.mark.parametrize("hinge", HINGES)
@pytest.mark.parametrize("seed", range(2))
def test_a_fall_beyond_the_kink_is_seen(hinge: str, seed: int) -> None:
    d = drawn(seed)
    problem = drag(hinge, 1.0).with_data(d)
    assert not verify(problem, told(problem, d["s"], d["s"])).ok
    ahead = d["q"] * d["k"] / (1.0 + d["k"]) / (2.0 * STEEP)
    honest = verify(problem, told(problem, d["s"] + ahead, d["s"] + ahead / (1.0 + d["k"])))
    assert honest.ok, str(honest)


@pytest.mark.parametrize("hinge", HINGES)
@pytest.mark.parametrize("seed", range(2))
def test_an_answer_on_the_kink_is_accepted(hinge: str, seed: int) -> None:
    d = drawn(seed)
    problem = drag(hinge, -1.0).with_data(d)
    honest = verify(problem, told(problem, d["s"], d["s"]))
    assert honest.ok, str(honest)
