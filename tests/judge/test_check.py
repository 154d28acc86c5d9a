"""``problem.check()``: each finding is made to fail by a problem that breaks just that assumption."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc.errors import OptionError, ProblemError
from blocc.inner.interior_point import InteriorPoint
from blocc.judge.check import CheckReport, Finding, check
from blocc.problem import BilevelProblem
from blocc.sets import Box, Product, Reals
from blocc.solve import solve

THIRD = np.full(3, 1.0 / 3.0, np.float32)


def build(**changes):
    """y = argmin |y - shift|^2 with y_0 <= 1 and y_0 + y_1 + y_2 = 1, and knobs in x that break one assumption each."""
    parts = {
        "upper": lambda x, y: jnp.sum((y - 1.0) ** 2) - x["concave"] * jnp.sum(y**2),
        "lower": lambda x, y: jnp.sum((y - x["shift"]) ** 2) - x["well"] * jnp.cos(3.0 * y[1]),
        "inequality": lambda x, y: jnp.stack(
            [y[0] - 1.0 - x["dent"] * y[1] ** 2, 2.0 * y[0] - 2.0 - 10.0 * (1.0 - x["copy"]), x["floor"] - y[0]]
        ),
        "equality": lambda x, y: jnp.sum(y) - 1.0 + x["bend"] * y[1] ** 2,
        "x_set": Product({"shift": Box(-3.0, 3.0, shape=3)} | {name: Reals() for name in KNOBS}),
        "y_set": Reals(3),
        "name": "test problem",
        "oracle": InteriorPoint(),
    }
    return BilevelProblem(**{**parts, **changes})


KNOBS = {"concave": 0.0, "well": 0.0, "dent": 0.0, "copy": 0.0, "floor": -10.0, "bend": 0.0}


def at(shift=(2.5, 0.0, 0.0), **knobs):
    """A point x: everything holds at the default one."""
    return {"shift": np.array(shift)} | {name: np.array(value) for name, value in (KNOBS | knobs).items()}


@pytest.fixture(scope="module")
def problem():
    """One problem for all knobs, compiled once."""
    return build()


@pytest.fixture(scope="module")
def good(problem):
    return problem.check(at())


def test_a_well_behaved_problem_passes(good):
    assert good.ok
    assert all(finding.ok for finding in good.findings)
    assert good["strongly convex"].value == pytest.approx(2.0, rel=1e-6)
    assert "1 of 3 inequalities are active" in good["strict complementarity"].words
    assert "any gamma" in good["gamma for convexity"].words
    assert "9 variables above, 3 below; 3 inequalities, 1 equalities, 0 of the leader" in good["shapes"].words


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
    """Arrays and numbers made outside double precision: 0.1 is then off by 1.5e-9."""
    with jax.enable_x64(False):
        data, number = jnp.asarray([0.1, 0.2, 0.3]), jnp.asarray(0.1)
    with pytest.warns(UserWarning, match="upper, lower use float32"):
        problem = build(
            lower=lambda x, y: jnp.sum((y - x["shift"] - data) ** 2),
            upper=lambda x, y: jnp.sum(number * y**2),
            y_set=Box(-3.0, 1.0, shape=3),
        )
    report = problem.check(at())
    finding = report["dtypes"]
    assert finding.ok is False
    assert "upper, lower use float32" in finding.words
    assert "equality" not in finding.words
    # The bound y_0 <= 1 repeats the inequality: bounds of Y count among the active gradients.
    assert report["LICQ"].ok is False


SINGLE: dict[str, dict[str, Any]] = {
    "inside jit": {"lower": jax.jit(lambda x, y: jnp.sum((y - x) ** 2 * jnp.asarray(THIRD)))},
    "cast": {"upper": lambda x, y: jnp.sum(y.astype(jnp.float32) ** 2)},
    "half": {"upper": lambda x, y: jnp.sum((y - 0.1).astype(jnp.float16) ** 2)},
    "a kink of few digits": {"lower": lambda x, y: jnp.sum((y - x) ** 2 + jax.nn.relu(y.astype(jnp.float32)))},
}


@pytest.mark.parametrize("kind", SINGLE)
def test_single_precision_anywhere_in_a_program_is_named_by_check_and_solve(kind: str) -> None:
    given = {"upper": lambda x, y: jnp.sum((y - 1.0) ** 2), "lower": lambda x, y: jnp.sum((y - x) ** 2)}
    words = f"{'lower' if 'lower' in SINGLE[kind] else 'upper'} use float"
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        one = BilevelProblem(**given | SINGLE[kind], x_set=Box(-1.0, 1.0, shape=3), y_set=Reals(3))
    assert [words in str(warning.message) for warning in seen] == [True] * (kind == "inside jit")  # what it captures
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert words in one.check()["dtypes"].words
        assert words in solve(one, max_iterations=2, progress=False).message


def test_x_outside_its_set(problem):
    finding = fails(problem.check(at((5.0, 0.0, 0.0))), "x in X")
    assert finding.value == pytest.approx(2.0)
    assert "2 away from x_set" in finding.words


def test_x_of_the_wrong_shape(problem):
    with pytest.raises(ProblemError, match="x has shape"):
        problem.check(at(np.zeros(4)))
    with pytest.raises(ProblemError, match="x has the structure"):
        problem.check(np.zeros(9))


def test_arguments_of_the_wrong_kind(problem):
    with pytest.raises(OptionError, match="problem must be a BilevelProblem, got str"):
        check("a")
    with pytest.raises(OptionError, match="seed must be a nonnegative whole number, got 'a'"):
        check(problem, seed="a")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lower": lambda x, y: jnp.sum(jnp.log(y - 1.0))}, r"lower\(x, y\) returns nan"),
        ({"upper": lambda x, y: jnp.sum(y) / y[0]}, r"upper\(x, y\) returns"),
        ({"inequality": lambda x, y: 1.0 / y}, r"inequality\(x, y\) returns inf"),
        ({"lower": lambda x, y: jnp.sqrt(jnp.sum(y**2))}, r"derivative of lower\(x, y\) in y"),
        ({"equality": lambda x, y: jnp.sum(y) + jnp.sqrt(x["well"])}, r"derivative of equality\(x, y\) in x"),
    ],
)
def test_functions_that_are_not_finite(changes, words):
    report = build(**changes).check(at())
    finding = fails(report, "finite")
    assert re.search(words, finding.words)
    assert report.findings[-1] is finding


def test_an_infeasible_lower_level(problem):
    finding = fails(problem.check(at(floor=3.0)), "lower level solvable")
    assert "infeasible" in finding.words
    assert finding.value == pytest.approx(1.0, rel=1e-5)


def test_an_unbounded_lower_level():
    finding = fails(
        build(lower=lambda x, y: jnp.arange(3.0) @ y, inequality=None, equality=None).check(at()),
        "lower level solvable",
    )
    assert "unbounded" in finding.words


def test_a_lower_level_that_is_not_convex(problem):
    report = problem.check(at(well=3.0))
    assert report["lower convex in y"].ok is False
    assert report["lower convex in y"].value < -1.0
    assert "curvature" in report["lower convex in y"].words
    assert report["strongly convex"].ok is None


def test_a_constraint_that_is_not_convex(problem):
    finding = fails(problem.check(at(dent=0.3)), "inequality convex in y")
    assert "Jensen" in finding.words
    assert finding.value > 1e-3


def test_an_equality_that_is_not_affine(problem):
    finding = fails(problem.check(at(bend=0.1)), "equality affine in y")
    assert "midpoint" in finding.words
    assert finding.value > 1e-3


def test_dependent_active_gradients(problem):
    finding = fails(problem.check(at(copy=1.0)), "LICQ")
    assert "multipliers are not unique" in finding.words
    assert finding.value == pytest.approx(0.0, abs=1e-6)


def test_complementarity_that_is_not_strict(problem):
    """With the shift at (1, 0, 0) the follower touches y_0 <= 1 without being pushed against it."""
    finding = fails(problem.check(at((1.0, 0.0, 0.0))), "strict complementarity")
    assert "max(mu, -gc)" in finding.words
    assert finding.value < 1e-5


def test_a_gamma_that_tames_a_concave_leader(problem):
    report = problem.check(at(concave=4.0))
    assert report.ok
    assert report["gamma for convexity"].value == pytest.approx(3.0, rel=1e-6)
    assert "gamma > 3" in report["gamma for convexity"].words


def test_a_flat_direction_is_no_failure_but_may_be_hopeless():
    report = build(
        lower=lambda x, y: (y[0] + y[1] - x["shift"][0]) ** 2,
        upper=lambda x, y: -x["concave"] * jnp.sum(y**2),
        y_set=Box(-4.0, 4.0, shape=3),
        inequality=None,
        equality=None,
    ).check(at(concave=1e-3))
    assert report["lower convex in y"].ok
    assert report["strongly convex"].ok is None
    assert "not strongly convex" in report["strongly convex"].words
    assert "may not be unique" in report["strongly convex"].words
    assert report["gamma for convexity"].ok is None
    assert "no gamma" in report["gamma for convexity"].words
    for name in ("LICQ", "strict complementarity", "inequality convex in y", "equality affine in y"):
        assert report[name].ok
        assert "there is no" in report[name].words


def test_the_configuration_of_jax_stays(good):
    assert good.ok
    assert jnp.zeros(1).dtype == (jnp.float64 if jax.config.jax_enable_x64 else jnp.float32)


@pytest.mark.slow
def test_a_fourth_power_is_not_strongly_convex() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: x**2 + y**2, lower=lambda x, y: (y - x) ** 4, x_set=Box(-5.0, 5.0), y_set=Reals()
    )
    finding = problem.check(2.0)["strongly convex"]
    assert finding.ok is None
    assert "vanishes" in finding.words


@pytest.mark.slow
def test_a_missing_slater_point_is_worded_as_such() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: x**2 + y,
        lower=lambda x, y: (y - 1.0) ** 2,
        inequality=lambda x, y: y**2,
        x_set=Box(-2.0, 2.0),
        y_set=Reals(),
    )
    finding = problem.check(0.5)["lower level solvable"]
    assert finding.ok or "Slater" in finding.words


def test_a_well_far_from_the_answer_is_named() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(y),
        lower=lambda x, y: 0.1 * jnp.sum(y**2) - 5.0 * jnp.exp(-((y[0] - 3.7) ** 2) / 0.01),
        x_set=Box(-1.0, 1.0, shape=1),
        y_set=Box(-5.0, 5.0, shape=1),
    )
    assert problem.check()["lower convex in y"].ok is False
