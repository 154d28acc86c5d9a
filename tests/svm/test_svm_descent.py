"""The chosen margins against enumeration of all sets of support vectors, and what is promised about every answer."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from blocc.errors import OptionError
from blocc.result import HistoryRow, Status
from blocc.svm.fitting import FitOptions, MarginFit, _judge, fit_margins
from blocc.svm.margins import FeatureUnits, scaled_problem, signed_rows
from blocc.svm.padded import LeaderSolution, Solvers
from blocc.svm.support_sets import Descent
from selections import few
from svm_reference import Branch, Margins, all_branches, margins_of, overlapping, solve_lower_level

PENALTIES = ("sum", "squared", "norm")
SEEDS = range(20)


class Case(NamedTuple):
    """A small problem, everything that can be known about it, and our answer."""

    problem: Margins
    branches: list[Branch]
    best: float
    fit: MarginFit
    close: float  #: what counts as equal


@cache
def case(c_penalty: str, seed: int, whole: bool = False) -> Case:
    samples = overlapping(seed, 5 + seed % 3, 1 + seed % 2, 3 + seed % 2, [0.5, 1.0, 2.0, 4.0][seed % 4])
    if whole:  # ties and duplicates
        samples = (np.round(samples[0]), samples[1], np.round(samples[2]), samples[3])
    prices: dict[str, Any] = {"c_penalty": c_penalty, "c_weight": [0.3, 1.0, 10.0][seed % 3]}
    prices["intercept_weight"] = [0.0, 0.0, 1.0][seed // 3 % 3]
    problem = margins_of(samples, **prices)
    branches = all_branches(problem)
    best = min(branch.value for branch in branches)
    return Case(problem, branches, best, fit_margins(samples, FitOptions(**prices)), 1e-6 * (1.0 + best))


def neighbours(problem: Margins, fit: MarginFit) -> list[tuple[bool, ...]]:
    """Every set of held samples for which the answer is feasible."""
    support, c = fit.result.multipliers.inequality, fit.result.x
    busy = (support > 1e-5 * (1.0 + support.max())) | (c > 1e-6)
    holds = problem.rows @ fit.result.y + c - 1.0 < 1e-6
    sides = [[True] * int(hold) + [False] * int(not work) for hold, work in zip(holds, busy, strict=True)]
    return list(itertools.product(*sides))


@pytest.mark.parametrize("seed", few(SEEDS, *range(0, 20, 5)))
@pytest.mark.parametrize("c_penalty", PENALTIES)
def test_against_enumeration(c_penalty: str, seed: int) -> None:
    problem, branches, best, fit, close = case(c_penalty, seed)
    value = fit.result.upper_value
    assert value == pytest.approx(problem.upper(fit.result.x, fit.result.y), rel=1e-9)
    assert value >= best - 2.0 * close
    assert fit.bound <= best + close
    if fit.is_global:
        assert value == pytest.approx(best, abs=close)
        assert fit.bound == pytest.approx(best, abs=close)
    if fit.result.success:
        assert min(abs(branch.value - value) for branch in branches) <= close
        around = set(neighbours(problem, fit))
        assert value <= min(branch.value for branch in branches if branch.held in around) + close


@pytest.mark.parametrize("c_penalty", few(PENALTIES, "squared"))
def test_most_answers_are_global(c_penalty: str) -> None:
    cases = [case(c_penalty, seed) for seed in SEEDS]
    assert sum(c.fit.result.upper_value <= c.best + c.close for c in cases) >= 0.8 * len(cases)
    assert sum(c.fit.is_global for c in cases) >= 0.1 * len(cases)
    assert sum(c.fit.result.success for c in cases) >= 0.8 * len(cases)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("c_penalty", PENALTIES)
def test_the_answer_is_the_followers(c_penalty: str, seed: int) -> None:
    problem, _, _, fit, _ = case(c_penalty, seed)
    if not fit.result.success:
        return
    expected = solve_lower_level(problem.rows, problem.ridge, fit.result.x)
    assert expected is not None
    y = fit.result.y
    size = 1.0 + np.abs(y).max()
    assert fit.result.lower_value == pytest.approx(expected[0], abs=2e-5 * size**2)
    np.testing.assert_allclose((problem.ridge * y)[:-1], (problem.ridge * expected[1])[:-1], atol=1e-4 * size)


@pytest.mark.parametrize("seed", [13, 106])
def test_the_norm_settles_where_multipliers_are_not_unique(seed: int) -> None:
    assert case("norm", seed).fit.result.success


def test_the_norm_at_margins_of_zero() -> None:
    found = case("norm", 149)
    assert found.fit.result.upper_value == pytest.approx(found.best, abs=found.close)
    np.testing.assert_allclose(found.fit.result.x, 0.0, atol=1e-9)
    assert found.fit.result.success


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.slow), 93])
@pytest.mark.parametrize("c_penalty", PENALTIES)
def test_with_ties_no_value_is_below_the_optimum(c_penalty: str, seed: int) -> None:
    _, _, best, fit, close = case(c_penalty, seed, whole=True)
    assert fit.result.upper_value >= best - 2.0 * close


def test_no_sample_gains_by_changing_sides_alone() -> None:
    """Holding the sample at 1 beside the three at 0 gains 4, holding everything at once gains nothing."""
    problem, branches, _, fit, close = case("sum", 14, whole=True)
    around = set(neighbours(problem, fit))
    least = min(branch.value for branch in branches if branch.held in around)
    assert not fit.result.success or fit.result.upper_value <= least + close


# --- the certificate ------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept_weight", [0.0, 1.0])
@pytest.mark.parametrize("c_penalty", PENALTIES)
def test_certificate_from_scratch(c_penalty: str, intercept_weight: float) -> None:
    samples = overlapping(3, 16, 2, 12, 1.5)
    options = FitOptions(c_penalty=c_penalty, c_weight=2.0, intercept_weight=intercept_weight)
    result = fit_margins(samples, options).result
    problem = margins_of(samples, c_penalty, 2.0, intercept_weight)
    y, c, support, stored = result.y, result.x, result.multipliers.inequality, result.certificate
    slack = problem.rows @ y + c - 1.0
    assert stored.stationarity == pytest.approx(np.abs(problem.ridge * y - problem.rows.T @ support).max(), abs=1e-12)
    assert stored.feasibility == pytest.approx(max(-slack.min(), 0.0), abs=1e-12)
    products = max(np.minimum(np.maximum(slack, 0.0), support).max(), -support.min(), 0.0)
    assert stored.complementarity == pytest.approx(products, abs=1e-12)
    assert max(stored.stationarity, stored.feasibility, stored.complementarity) <= 1e-6 * (1.0 + np.abs(y).max())
    assert result.lower_value == pytest.approx(0.5 * np.sum(problem.ridge * y**2))
    assert result.upper_value == pytest.approx(problem.upper(c, y))
    assert result.upper_value_penalty == pytest.approx(problem.upper(c, result.y_penalty))
    assert stored.distance == pytest.approx(np.linalg.norm(result.y_penalty - y))
    penalised = solve_lower_level(problem.rows, problem.ridge, c, problem.validation, result.gamma)
    assert penalised is not None
    hidden = result.upper_value - (penalised[0] + problem.price(c) - result.gamma * result.lower_value)
    assert stored.penalty_gap == pytest.approx(hidden, abs=1e-5 * (1.0 + result.gamma * result.lower_value))
    assert stored.penalty_gap >= -1e-6 * (1.0 + result.upper_value)
    assert result.success
    assert stored.stationarity_x <= options.tolerance


@pytest.mark.parametrize("part", ["y", "c", "support"])
def test_large_residuals_are_no_success(part: str) -> None:
    scaled, _ = scaled_problem(overlapping(5, 30, 2, 12, 0.0))
    choice = Descent(Solvers(scaled)).run(None, 12.0)
    assert _judge(choice, scaled) == (Status.CONVERGED, choice.message)
    assert choice.best is not None
    spoilt = {part: getattr(choice.best, part) - 1e-4}
    choice.best = replace(choice.best, **spoilt)
    status, message = _judge(choice, scaled)
    assert status is Status.STALLED
    assert "solved only to" in message


@pytest.mark.parametrize("distance", [0.0, 3.0], ids=["by the relaxation", "by the descent"])
def test_spoilt_multipliers_are_no_success(distance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = overlapping(5, 30, 2, 12, distance)
    options = FitOptions(c_weight=1.0)
    good = fit_margins(samples, options)
    assert good.result.success
    assert good.is_global is (distance == 0.0)
    follower, leader = Solvers.follower, Solvers.leader

    def spoil(answer: Any, name: str) -> Any:
        return answer._replace(**{name: getattr(answer, name) + 0.01})

    monkeypatch.setattr(Solvers, "follower", lambda *args, **more: spoil(follower(*args, **more), "price"))
    monkeypatch.setattr(Solvers, "leader", lambda *args, **more: spoil(leader(*args, **more), "support"))
    result = fit_margins(samples, options).result
    if result.success:  # repaired: then it must be the follower's answer after all
        problem = margins_of(samples, c_weight=1.0)
        expected = solve_lower_level(problem.rows, problem.ridge, result.x)
        assert expected is not None
        assert result.lower_value == pytest.approx(expected[0], rel=1e-5)
        slope = problem.ridge * result.y - problem.rows.T @ result.multipliers.inequality
        assert np.abs(slope).max() <= 1e-6


def test_a_spoilt_classifier_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Solvers.leader

    def spoilt(*args: Any, **more: Any) -> LeaderSolution:
        answer = leader(*args, **more)
        return answer._replace(coupling_price=answer.coupling_price + 0.01, margin_price=answer.margin_price + 0.01)

    monkeypatch.setattr(Solvers, "leader", spoilt)
    for distance in (0.0, 3.0):
        assert not fit_margins(overlapping(5, 30, 2, 12, distance), FitOptions(c_weight=1.0)).result.success


# --- starts, limits and interruptions -------------------------------------------------------------------
DESCENDS = overlapping(5, 30, 2, 12, 3.0)  #: the relaxation does not solve it


@pytest.mark.parametrize("c_penalty", PENALTIES)
@pytest.mark.parametrize("kind", ["one", "uniform"])
def test_leaves_margins_that_forgive_everything(kind: str, c_penalty: str) -> None:
    """From margins that forgive everything w = 0 answers, and no small change of c changes that."""
    for distance in (0.5, 1.5, 3.0):
        samples = overlapping(11, 20, 2, 12, distance)
        start = np.ones(20) if kind == "one" else np.random.default_rng(0).uniform(1.0, 5.0, 20)
        options = FitOptions(c_penalty=c_penalty, c_weight=1.0)
        result = fit_margins(samples, options, start).result
        problem = margins_of(samples, c_penalty, 1.0)
        assert np.linalg.norm(result.y[:-1]) > 1e-3
        assert result.upper_value < problem.price(np.ones(20)) + 12.0 * np.e
        assert result.history.upper_value[0] == pytest.approx(problem.upper(start, np.zeros(3)), rel=0.5)


def test_starts_reach_similar_values() -> None:
    free = fit_margins(DESCENDS, FitOptions(c_weight=1.0)).result
    generator = np.random.default_rng(0)
    for start in (np.zeros(30), np.ones(30), generator.uniform(1.0, 5.0, 30)):
        result = fit_margins(DESCENDS, FitOptions(c_weight=1.0), start).result
        assert result.success
        assert result.upper_value <= 1.2 * free.upper_value


@pytest.mark.parametrize(
    "start", [np.ones(29), np.ones((30, 1)), np.full(30, -1e-3), np.full(30, np.nan), np.full(30, np.inf)]
)
@pytest.mark.parametrize("method", ["exact", "pgd"])
def test_bad_starts(method: str, start: np.ndarray) -> None:
    with pytest.raises(OptionError, match="start"):
        fit_margins(DESCENDS, FitOptions(method=method), start)


def test_time_limit() -> None:
    fit = fit_margins(DESCENDS, FitOptions(c_weight=1.0, time_limit=1e-9))
    assert fit.result.status is Status.TIME_LIMIT
    assert "time limit" in fit.result.message
    assert not fit.is_global
    assert np.isfinite(fit.result.upper_value)
    assert fit.result.upper_value >= fit.bound
    assert len(fit.path) == len(fit.result.history)
    assert fit.result.certificate.stationarity <= 1e-6


def test_interruption_keeps_the_best() -> None:
    seen: list[float] = []

    def report(iteration: int, row: HistoryRow) -> None:
        seen.append(row.upper_value)
        if iteration == 2:
            raise KeyboardInterrupt

    result = fit_margins(DESCENDS, FitOptions(c_weight=1.0), report=report).result
    assert result.status is Status.INTERRUPTED
    assert len(seen) == 2
    assert result.upper_value == pytest.approx(min(seen), rel=1e-6)
    assert result.certificate.stationarity <= 1e-6
    assert result.certificate.complementarity <= 1e-6


def test_interruption_before_any_answer_keeps_the_classifier_on_the_way() -> None:
    def report(iteration: int, row: HistoryRow) -> None:
        if iteration == 1:
            raise KeyboardInterrupt

    result = fit_margins(DESCENDS, FitOptions(c_weight=1.0), np.ones(30), report).result
    assert result.status is Status.INTERRUPTED
    assert "before the lower level was solved" in result.message
    assert np.isfinite(result.upper_value)


def test_history_and_path_belong_together() -> None:
    samples, options = DESCENDS, FitOptions(c_weight=1.0)
    rows: list[tuple[int, HistoryRow]] = []
    start = np.full(30, 2.0)
    fit = fit_margins(samples, options, start, lambda iteration, row: rows.append((iteration, row)))
    history, problem = fit.result.history, margins_of(samples, c_weight=1.0)
    assert [iteration for iteration, _ in rows] == list(range(1, len(history) + 1))
    np.testing.assert_array_equal(fit.path_rows, np.arange(len(history)))
    for k, y in enumerate(fit.path):
        c = start if k == 0 else np.maximum(1.0 - problem.rows @ y, 0.0)
        assert history.upper_value[k] == pytest.approx(problem.upper(c, y), rel=1e-6)
        assert history.lower_value[k] == pytest.approx(0.5 * y[:-1] @ y[:-1], rel=1e-6, abs=1e-9)
    # Steps of a descent never climb.
    assert (np.diff(history.upper_value[1:]) <= 1e-6 * history.upper_value[1:-1]).all()
    assert fit.result.upper_value == pytest.approx(history.upper_value.min(), rel=1e-8)


BAD = {
    "c_penalty": ["l1", "", None],
    "c_weight": [0.0, -1.0, np.nan, np.inf],
    "intercept_weight": [-1e-9, np.nan, np.inf],
    "gamma": ["big", 0.0, -1.0, np.nan, np.inf],
    "tolerance": [0.0, -1.0, np.nan, np.inf],
    "method": ["newton", "", None],
    "step": [0.0, -1.0, np.nan, np.inf],
    "max_iterations": [0, -3],
    "time_limit": [0.0, -1.0, np.nan, np.inf],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_options(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=name):
        FitOptions(**{name: value})


# --- units ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("distance", [0.5, 3.0])
@pytest.mark.parametrize("factor", [1e-3, pytest.param(1e3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("c_penalty", PENALTIES)
def test_units_of_the_features_do_not_matter(c_penalty: str, factor: float, distance: float) -> None:
    samples = overlapping(7, 25, 2, 12, distance)
    options = FitOptions(c_penalty=c_penalty, c_weight=1.0)
    shift, new = np.array([3.0, -7.0]), np.random.default_rng(1).standard_normal((50, 2))

    def moved(features: np.ndarray) -> np.ndarray:
        return factor * (features + shift)

    plain = fit_margins(samples, options).result
    other = fit_margins((moved(samples[0]), samples[1], moved(samples[2]), samples[3]), options).result
    decision, same = new @ plain.y[:-1] + plain.y[-1], moved(new) @ other.y[:-1] + other.y[-1]
    np.testing.assert_allclose(same, decision, atol=1e-5 * (1.0 + np.abs(decision).max()))
    np.testing.assert_allclose(other.x, plain.x, atol=1e-5 * (1.0 + plain.x.max()))
    assert other.status is plain.status
    assert other.upper_value == pytest.approx(plain.upper_value, rel=1e-6)


def test_units_and_back() -> None:
    generator = np.random.default_rng(0)
    features, labels = 5.0 + generator.standard_normal((9, 3)), np.where(np.arange(9) % 2, 1.0, -1.0)
    units = FeatureUnits.of(features, centred=True)
    rows, y = signed_rows(units.scaled(features), labels), generator.standard_normal(4)
    raw = units.back(y)
    np.testing.assert_allclose(rows @ y, labels * (features @ raw[:-1] + raw[-1]), atol=1e-12)
    np.testing.assert_allclose(rows[:, :-1].T @ labels, 0.0, atol=1e-12)
    assert FeatureUnits.of(np.ones((4, 2)), centred=True).unit == 1.0


def test_a_run_can_be_repeated() -> None:
    first, again = (fit_margins(DESCENDS, FitOptions(c_weight=1.0)).result for _ in range(2))
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.y, again.y)


def test_descent_without_features_that_matter() -> None:
    """All samples alike: no classifier does better than the best constant."""
    samples = (np.ones((8, 2)), np.tile([-1.0, 1.0], 4), np.ones((4, 2)), np.array([1.0, 1.0, 1.0, -1.0]))
    result = fit_margins(samples, FitOptions(c_weight=1.0)).result
    problem = margins_of(samples, c_weight=1.0)
    constants = np.linspace(-3.0, 3.0, 6001)
    least = min(problem.upper(np.maximum(1.0 - b * problem.rows[:, 2], 0.0), np.array([0, 0, b])) for b in constants)
    assert result.upper_value == pytest.approx(least, rel=1e-5)


def test_a_descent_on_its_own() -> None:
    choice = Descent(Solvers(scaled_problem(DESCENDS, c_weight=1.0)[0])).run(None, 12.0)
    assert choice.best is not None
    assert choice.status is Status.CONVERGED
    assert choice.branches >= 1
    assert choice.newton_steps > 0
    assert choice.bound <= choice.best.value
