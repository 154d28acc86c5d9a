"""What the theorems bound, beside what is measured: on a problem with closed forms."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import L1, BilevelProblem, Box, ProblemError, Reals, Theory, theory
from blocc.judge.theory import Curve


@pytest.fixture(scope="module")
def found() -> Theory:
    """v(x) = |x|^2 / 2 above a cap that holds y: y = x (1, 1), mu = x (1, 1) per row."""
    problem = BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum((y - 2.0) ** 2) + 0.5 * x**2,
        lower=lambda x, y: 0.5 * jnp.sum((y - 2.0 * x) ** 2),
        inequality=lambda x, y: y - x,
        x_set=Box(0.5, 1.0),
        y_set=Reals(2),
    )
    return theory(problem, 0.75, epsilon=0.5)


def test_constants_are_those_of_the_closed_form(found: Theory) -> None:
    constants = found.constants
    assert constants.strong_convexity == pytest.approx(1.0)
    assert constants.curvature == pytest.approx(1.0)
    assert constants.follower.jacobian == pytest.approx(1.0)
    assert constants.follower.dual_convexity == pytest.approx(1.0)
    assert constants.penalised.modulus == pytest.approx(1.0 + found.suggestion.gamma)
    assert constants.penalised.dual_convexity == pytest.approx(1.0 / (1.0 + found.suggestion.gamma))
    assert constants.slope == pytest.approx(np.sqrt(2.0) * (2.0 - 0.5), rel=0.2)
    assert constants.slope <= np.sqrt(2.0) * 1.5 + 1e-9


def test_every_curve_keeps_its_bound(found: Theory) -> None:
    names = {"growth", "distance", "hidden", "outer"}
    names |= {f"{kind}-{side}" for kind in ("accelerated", "plain") for side in ("follower", "penalised")}
    assert set(found.curves) == names
    assert all(curve.holds for curve in found.curves.values()), str(found)
    text = str(found)
    assert "Theorem 2, mean of |G|^2: bound kept" in text
    assert text.count("bound kept") == len(names)


def test_a_broken_bound_is_said(found: Theory) -> None:
    growth = found.curves["growth"]
    broken = replace(growth, measured=2.1 * growth.bound)
    assert not broken.holds
    assert "Lemma 1: BOUND BROKEN" in str(replace(found, curves={"growth": broken}))


def test_a_curve_knows_its_power() -> None:
    at = np.geomspace(1.0, 1e3, 30)
    assert Curve("", "t", at, 3.0 * at**-2, at).power == pytest.approx(-2.0)
    assert np.isnan(Curve("", "t", at, np.zeros(30), at).power)


def test_simple_terms_are_refused() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(y**2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        lower_terms=[L1(0.1)],
        x_set=Box(-1.0, 1.0),
        y_set=Reals(2),
    )
    with pytest.raises(ProblemError, match="smooth lower level"):
        theory(problem, 0.0, epsilon=0.1)
