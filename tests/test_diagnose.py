"""``problem.check()``: each finding is made to fail by a problem that breaks just that assumption."""

from __future__ import annotations

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc.diagnose import CheckReport, Finding
from blocc.errors import ProblemError
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals


def build(**changes):
    """y = argmin |y - x|^2 with y_0 <= 1 and y_0 + y_1 + y_2 = 1: everything holds at x = (2, 0, 0)."""
    parts = {
        "upper": lambda x, y: jnp.sum((y - 1.0) ** 2),
        "lower": lambda x, y: jnp.sum((y - x) ** 2),
        "inequality": lambda x, y: y[0] - 1.0,
        "equality": lambda x, y: jnp.sum(y) - 1.0,
        "x_set": Box(-3.0, 3.0, shape=3),
        "y_set": Reals(3),
        "name": "test problem",
    }
    return BilevelProblem(**{**parts, **changes})


X = np.array([2.5, 0.0, 0.0])


@pytest.fixture(scope="module")
def good():
    return build().check(X)


def test_a_well_behaved_problem_passes(good):
    assert good.ok
    assert all(finding.ok for finding in good.findings)
    assert good["strongly convex"].value == pytest.approx(2.0, rel=1e-6)
    assert "1 of 1 inequalities are active" in good["strict complementarity"].words
    assert "any gamma" in good["gamma for convexity"].words
    assert "3 variables above, 3 below; 1 inequalities, 1 equalities, 0 of the leader" in good["shapes"].words


def test_a_report_can_be_read_and_stored(good):
    text = str(good)
    assert text.startswith("test problem: all checked assumptions hold here")
    assert all(finding.name in text and finding.words in text for finding in good.findings)
    assert "FAIL" not in text
    plain = json.loads(json.dumps(good.to_dict(), allow_nan=False))
    assert plain["ok"] is True
    assert plain["problem"] == "test problem"
    assert [finding["name"] for finding in plain["findings"]] == [finding.name for finding in good.findings]
    with pytest.raises(KeyError):
        good["no such finding"]


def test_only_a_seen_failure_makes_a_report_fail():
    unknown = CheckReport("p", (Finding("a", True, ""), Finding("b", None, "not known")))
    assert unknown.ok
    assert "?" in str(unknown)
    failed = CheckReport("p", (Finding("a", True, ""), Finding("b", False, "broken")))
    assert not failed.ok
    assert "FAIL" in str(failed)
    assert "an assumption fails here" in repr(failed)


def fails(report, name):
    """The one finding that fails, which must be ``name``; the report stays serialisable."""
    assert not report.ok
    assert [finding.name for finding in report.findings if finding.ok is False] == [name]
    json.dumps(report.to_dict(), allow_nan=False)
    return report[name]


def test_single_precision_data():
    with jax.enable_x64(False):
        data = jnp.asarray([0.1, 0.2, 0.3])
    report = build(lower=lambda x, y: jnp.sum((y - x - data) ** 2)).check(X)
    finding = fails(report, "dtypes")
    assert "lower" in finding.words
    assert "float32" in finding.words
    assert "upper" not in finding.words


def test_single_precision_numbers():
    """A float32 scalar is as inexact as a float32 array: 0.1 is off by 1.5e-9."""
    with jax.enable_x64(False):
        number = jnp.asarray(0.1)
    finding = fails(build(lower=lambda x, y: jnp.sum((y - x - number) ** 2)).check(X), "dtypes")
    assert "lower" in finding.words


def test_x_outside_its_set():
    finding = fails(build().check(np.array([5.0, 0.0, 0.0])), "x in X")
    assert finding.value == pytest.approx(2.0)
    assert "2 away from x_set" in finding.words


def test_x_of_the_wrong_shape():
    with pytest.raises(ProblemError, match="x has shape"):
        build().check(np.zeros(4))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lower": lambda x, y: jnp.sum(jnp.log(y - 1.0))}, r"lower\(x, y\) returns nan"),
        ({"upper": lambda x, y: jnp.sum(y) / y[0]}, r"upper\(x, y\) returns"),
        ({"inequality": lambda x, y: 1.0 / y}, r"inequality\(x, y\) returns inf"),
        ({"lower": lambda x, y: jnp.sqrt(jnp.sum(y**2))}, r"derivative of lower\(x, y\) in y"),
        ({"equality": lambda x, y: jnp.sum(y) + jnp.sqrt(x[1])}, r"derivative of equality\(x, y\) in x"),
    ],
)
def test_functions_that_are_not_finite(changes, words):
    report = build(**changes).check(X)
    finding = fails(report, "finite")
    assert re.search(words, finding.words)
    assert report.findings[-1] is finding


def test_an_infeasible_lower_level():
    report = build(inequality=lambda x, y: jnp.stack([y[0] - 1.0, 3.0 - y[0]])).check(X)
    finding = fails(report, "lower level solvable")
    assert "infeasible" in finding.words
    assert finding.value == pytest.approx(1.0, rel=1e-5)


def test_an_unbounded_lower_level():
    finding = fails(build(lower=lambda x, y: jnp.sum(y * jnp.array([1.0, 2.0, 3.0]))).check(X), "lower level solvable")
    assert "unbounded" in finding.words


def test_a_lower_level_that_is_not_convex():
    report = build(
        lower=lambda x, y: jnp.sum((y - x) ** 2) - 3.0 * jnp.cos(3.0 * y[1]), y_set=Box(-4.0, 4.0, shape=3)
    ).check(X)
    assert report["lower convex in y"].ok is False
    assert report["lower convex in y"].value < -1.0
    assert "curvature" in report["lower convex in y"].words
    assert report["strongly convex"].ok is None


def test_a_flat_direction_is_no_failure():
    report = build(lower=lambda x, y: (y[0] + y[1] - x[0]) ** 2, equality=None, y_set=Box(-4.0, 4.0, shape=3)).check(X)
    assert report["lower convex in y"].ok
    assert report["strongly convex"].ok is None
    assert "not strongly convex" in report["strongly convex"].words
    assert "may not be unique" in report["strongly convex"].words


def test_a_constraint_that_is_not_convex():
    report = build(inequality=lambda x, y: 0.5 - (y[0] - 1.5) ** 2 + y[1] ** 2, equality=None).check(X)
    assert report["inequality convex in y"].ok is False
    assert "Jensen" in report["inequality convex in y"].words


def test_an_equality_that_is_not_affine():
    report = build(inequality=None, equality=lambda x, y: y[0] + 0.1 * y[1] ** 2 - 1.0).check(X)
    assert report["equality affine in y"].ok is False
    assert report["inequality convex in y"].ok
    assert "no inequality" in report["inequality convex in y"].words


def test_dependent_active_gradients():
    finding = fails(build(inequality=lambda x, y: jnp.stack([y[0] - 1.0, 2.0 * y[0] - 2.0])).check(X), "LICQ")
    assert "multipliers are not unique" in finding.words
    assert finding.value == pytest.approx(0.0, abs=1e-6)


def test_an_active_bound_counts_among_the_active_gradients():
    report = build(y_set=Box(-3.0, 1.0, shape=3)).check(X)
    assert report["LICQ"].ok is False


def test_complementarity_that_is_not_strict():
    """At x = (1, 0, 0) the follower touches y_0 <= 1 without being pushed against it."""
    finding = fails(build().check(np.array([1.0, 0.0, 0.0])), "strict complementarity")
    assert "max(mu, -gc)" in finding.words
    assert finding.value < 1e-5


def test_a_gamma_that_tames_a_concave_leader():
    report = build(upper=lambda x, y: -3.0 * jnp.sum(y**2)).check(X)
    assert report.ok
    assert report["gamma for convexity"].value == pytest.approx(3.0, rel=1e-6)
    assert "gamma > 3" in report["gamma for convexity"].words
    hopeless = build(
        upper=lambda x, y: -jnp.sum(y**2), lower=lambda x, y: (y[0] - x[0]) ** 2, y_set=Box(-4.0, 4.0, shape=3)
    ).check(X)
    assert hopeless["gamma for convexity"].ok is None
    assert "no gamma" in hopeless["gamma for convexity"].words


def test_problems_without_constraints_and_the_default_point():
    report = build(inequality=None, equality=None).check()
    assert report.ok
    for name in ("LICQ", "strict complementarity", "inequality convex in y", "equality affine in y"):
        assert "no " in report[name].words


def test_a_linear_lower_level_of_many_variables():
    """Beyond 300 variables curvatures come from an iteration, which must cope with a Hessian of zeros."""
    size = 320
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum((y - 0.5) ** 2),
        lower=lambda x, y: x * jnp.sum(y),
        x_set=Box(1.0, 2.0),
        y_set=Box(0.0, 1.0, shape=size),
    )
    report = problem.check()
    assert report.ok
    assert report["lower convex in y"].ok
    assert report["strongly convex"].ok is None


def test_the_configuration_of_jax_stays(good):
    assert good.ok
    assert jnp.zeros(1).dtype == (jnp.float64 if jax.config.jax_enable_x64 else jnp.float32)
