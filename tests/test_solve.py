"""The front door: statuses, options, stopping, batches, and answers that hold up."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import (
    BilevelProblem,
    Box,
    InteriorPoint,
    OptionError,
    ProblemError,
    Reals,
    Simplex,
    Status,
    solve,
    solve_many,
)
from blocc.flat_problem import FlatProblem
from blocc.problems.toy import toy_problem


def problem(**changes: Any) -> BilevelProblem:
    """y follows x; the leader wants y at (1, 1) and x small. Answer: x = 2/3."""
    parts: dict[str, Any] = {
        "upper": lambda x, y: jnp.sum((y - 1.0) ** 2) + x**2,
        "lower": lambda x, y: jnp.sum((y - x) ** 2),
        "x_set": Box(-3.0, 3.0),
        "y_set": Reals(2),
    }
    return BilevelProblem(**{**parts, **changes})


@pytest.fixture(scope="module")
def toy() -> BilevelProblem:
    return toy_problem()


@pytest.fixture(scope="module")
def plain() -> BilevelProblem:
    return problem()


@pytest.fixture(scope="module")
def constrained() -> BilevelProblem:
    return problem(inequality=lambda x, y: y[0] + y[1] - 1.0)


def test_solves_without_any_option(plain: BilevelProblem) -> None:
    result = solve(plain)
    assert result.success
    assert result.status is Status.CONVERGED
    assert result.x == pytest.approx(2.0 / 3.0, abs=1e-4)
    assert result.upper_value == pytest.approx(2.0 / 3.0, abs=1e-4)
    np.testing.assert_allclose(result.y, result.x, atol=1e-8)
    certificate = result.certificate
    for name in ("stationarity", "feasibility", "complementarity", "penalty_gap", "distance", "stationarity_x"):
        assert abs(getattr(certificate, name)) < 1e-4, name
    assert result.seconds["compile"] > 0
    assert result.counts["evaluations"] > 0
    assert np.all(np.diff(result.history.time) >= 0)


def test_repr_tells_the_story(plain: BilevelProblem) -> None:
    text = repr(solve(plain))
    for word in ("converged", "upper value", "certificate", "stationarity of x", "evaluations"):
        assert word in text


@pytest.mark.parametrize(
    ("changes", "options", "status", "words"),
    [
        pytest.param(
            {"inequality": lambda x, y: jnp.stack([y[0] - 1.0, 2.0 - y[0]])},
            {},
            Status.INFEASIBLE,
            "violation",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"equality": lambda x, y: y[0] - 5.0, "y_set": Box(0.0, 1.0, 2)},
            {},
            Status.INFEASIBLE,
            "y_set",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"lower": lambda x, y: jnp.sum(y) * (1.0 + x**2)},
            {},
            Status.UNBOUNDED,
            "lower level is unbounded",
            marks=pytest.mark.slow,
        ),
        ({"upper": lambda x, y: jnp.sum(y), "x_set": Reals()}, {}, Status.UNBOUNDED, "leader's objective"),
        pytest.param(
            {"lower": lambda x, y: -jnp.sum((y - x) ** 2), "y_set": Box(-1.0, 1.0, 2)},
            {},
            Status.NOT_CONVEX,
            "lower",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"lower": lambda x, y: jnp.sum(jnp.sin(3.0 * y) + 0.01 * y**2)},
            {},
            Status.NOT_CONVEX,
            "lower",
            marks=pytest.mark.slow,
        ),
        ({"inequality": lambda x, y: 1.0 - jnp.sum(y**2)}, {}, Status.NOT_CONVEX, "inequality"),
        pytest.param(
            {"lower": lambda x, y: jnp.sum(jnp.sqrt(y - 10.0))},
            {},
            Status.NOT_FINITE,
            "lower(x, y) returns nan",
            marks=pytest.mark.slow,
        ),
        ({"upper": lambda x, y: jnp.log(x - 10.0) + y[0]}, {}, Status.NOT_FINITE, "upper(x, y) returns nan"),
        ({"upper": lambda x, y: x**2 - 5.0 * jnp.sum(y**2)}, {"gamma": 0.5}, Status.NOT_CONVEX, "must exceed 5"),
        ({"upper_inequality": lambda x, y: jnp.stack([x - 1.0, 2.0 - x])}, {}, Status.INFEASIBLE, "upper_inequality"),
    ],
    ids=["rows", "box", "below", "above", "concave", "wavy", "reverse", "nan-g", "nan-f", "small-gamma", "leader"],
)
def test_failure_is_named(changes: dict, options: dict, status: Status, words: str) -> None:
    result = solve(problem(**changes), **options)
    assert result.status is status, result.message
    assert not result.success
    assert words in result.message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gama": 1.0}, "unknown option 'gama'"),
        ({"step": 0.1}, "step is of outer='pgd' alone"),
        ({"gamma": "big"}, "gamma must be 'auto' or a positive number"),
        ({"gamma": -1.0}, "gamma must be positive"),
        ({"gamma": float("nan")}, "gamma must be positive"),
        ({"inner": "magic"}, "inner must be 'auto'"),
        ({"inner": 3}, "got int"),
        ({"outer": "newton"}, "outer must be"),
        ({"outer": "pgd"}, "needs a fixed gamma"),
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"tolerance": 2.0}, "tolerance must be below 0.1"),
        ({"tolerance": 1e-300}, "tolerance must be at least 1e-15"),
        ({"inner_tolerance": 1e-16}, "inner_tolerance must be at least 1e-15"),
        ({"max_iterations": True}, "max_iterations must be a positive number"),
        ({"time_limit": -3}, "time_limit must be positive"),
        ({"max_iterations": 2.5}, "max_iterations must be a whole number"),
        ({"seed": -1}, "seed must be a nonnegative whole number"),
        ({"seed": None}, "seed must be a nonnegative whole number"),
        ({"preset": "mine"}, "preset must be one of"),
        ({"progress": "yes"}, "progress must be True, False, None or a function"),
    ],
)
def test_bad_options_are_named(plain: BilevelProblem, options: dict, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        solve(plain, **options)


def test_bad_starts_are_named(plain: BilevelProblem) -> None:
    with pytest.raises(OptionError, match="x0 lies outside x_set, 2 away"):
        solve(plain, 5.0)
    with pytest.raises(ProblemError, match=r"x0 has shape \(3,\), expected \(\)"):
        solve(plain, np.zeros(3))
    with pytest.raises(ProblemError, match="x0 contains NaN"):
        solve(plain, float("nan"))
    with pytest.raises(OptionError, match=r"x0s\[1\] lies outside"):
        solve_many(plain, [0.0, 9.0])
    with pytest.raises(ProblemError, match="x0 must be a real number"):
        solve(plain, "1.0")
    with pytest.raises(OptionError, match="starts must be a positive integer, got True"):
        solve_many(plain, starts=True)
    with pytest.raises(OptionError, match="either x0s"):
        solve_many(plain)
    with pytest.raises(OptionError, match="starts must be a positive integer"):
        solve_many(plain, starts=0)
    with pytest.raises(ProblemError, match="x0 holds an integer that is too large"):
        solve(plain, 10**400)
    with pytest.raises(OptionError, match="x0s must be a sequence of starts"):
        solve_many(plain, x0s=3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="callback must be a function"):
        solve(plain, callback=3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="x0s is empty"):
        solve_many(plain, [])
    with pytest.raises(OptionError, match="must be a BilevelProblem"):
        solve(lambda x: x)  # type: ignore[arg-type]


@pytest.mark.slow
def test_infeasible_start_is_left_behind() -> None:
    """At x = -2 the follower has no answer; x >= 1 is needed, and x = 1 is best."""
    result = solve(problem(inequality=lambda x, y: jnp.stack([y[0] - x, 1.0 - y[0]])), -2.0)
    assert result.success, result.message
    assert result.x == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
def test_a_maximum_is_not_an_answer() -> None:
    """x = 0, the middle of X, is stationary: the top of a hill."""
    result = solve(problem(upper=lambda x, y: -10.0 * jnp.sum(y**2)))
    assert result.success
    assert abs(float(result.x)) == pytest.approx(3.0)


@pytest.mark.slow
def test_leader_constraint_is_respected() -> None:
    limited = problem(
        upper=lambda x, y: (x - 5.0) ** 2 + jnp.sum((y - 5.0) ** 2),
        upper_inequality=lambda x, y: x + y[0] - 4.0,
        x_set=Reals(),
    )
    result = solve(limited)
    assert result.success, result.message
    assert result.x == pytest.approx(2.0, abs=1e-4)
    assert result.certificate.leader_violation <= 3e-5


def test_callback_sees_and_stops(toy: BilevelProblem) -> None:
    seen: list[Any] = []
    result = solve(toy, 0.3, callback=lambda state: seen.append(state) or len(seen) == 2)
    assert result.status is Status.STOPPED
    assert [state.iteration for state in seen] == [1, 2]
    assert np.shape(seen[0].x) == ()
    assert result.upper_value <= max(state.row.upper_value for state in seen) + 1e-12


@pytest.mark.slow
def test_pgd_callback_keeps_its_progress(toy: BilevelProblem) -> None:
    positions: list[float] = []
    result = solve(
        toy,
        1.3,
        outer="pgd",
        gamma=5.0,
        inner="interior-point",
        callback=lambda state: positions.append(float(state.x)) or len(positions) == 20,
    )
    assert result.status is Status.STOPPED
    assert len(set(positions)) == 20  # every step is seen with its own x
    assert float(result.x) == pytest.approx(positions[-1])


def test_time_limit_returns_the_best_so_far(toy: BilevelProblem) -> None:
    solve(toy, 0.3)  # compiled
    result = solve(toy, 0.3, time_limit=1e-6)
    assert result.status is Status.TIME_LIMIT
    assert np.isfinite(result.upper_value)


def test_time_limit_counts_compilation_and_says_so() -> None:
    fresh = BilevelProblem(
        upper=lambda x, y: (x - 1.0) ** 2 + y**2, lower=lambda x, y: (y - x) ** 2, x_set=Box(-2.0, 2.0), y_set=Reals()
    )
    result = solve(fresh, time_limit=1e-3)
    assert result.status is Status.TIME_LIMIT
    told = re.search(r"Of (\S+) s, (\S+) s were compilation\.", result.message)
    assert told is not None
    assert 0.0 < float(told[2]) <= float(told[1])
    assert float(told[2]) <= 1.01 * result.seconds["compile"]
    assert "compilation" not in solve(fresh, time_limit=1e-3).message  # all is compiled now


def test_ctrl_c_returns_the_best_so_far(toy: BilevelProblem) -> None:
    before = signal.getsignal(signal.SIGINT)
    result = solve(toy, 0.3, callback=lambda state: signal.raise_signal(signal.SIGINT))
    assert result.status is Status.INTERRUPTED
    assert np.isfinite(result.upper_value)
    assert signal.getsignal(signal.SIGINT) is before


def test_progress_is_reported(toy: BilevelProblem) -> None:
    rows: list[tuple[int, float]] = []
    solve(toy, 0.3, progress=lambda iteration, row: rows.append((iteration, row.upper_value)))
    assert [iteration for iteration, _ in rows] == list(range(1, len(rows) + 1))
    assert rows


def test_batch_agrees_with_single_starts(toy: BilevelProblem) -> None:
    starts = np.linspace(0.1, 2.9, 7)
    many = solve_many(toy, starts)
    assert all(result.success for result in many.results)
    from blocc.problems.toy import local_minimisers

    minimisers = local_minimisers()
    for x in many.x:
        assert np.min(np.abs(x - minimisers)) < 1e-4
    assert many.best.upper_value == min(many.upper_values)
    assert "7 starts, 7 converged" in repr(many)
    assert len(many) == 7


def test_a_stopped_batch_keeps_every_start(toy: BilevelProblem) -> None:
    many = solve_many(toy, np.linspace(0.1, 2.9, 7), callback=lambda state: True)
    assert len(many) == 7
    assert {result.status for result in many.results} <= {Status.STOPPED, Status.CONVERGED}
    assert Status.STOPPED in {result.status for result in many.results}


LED = BilevelProblem(
    upper=lambda x, y: (x - 2.0) ** 2 + y**2,
    lower=lambda x, y: (y - x) ** 2,
    upper_inequality=lambda x, y: x + y - 1.0,
    x_set=Box(-3.0, 3.0),
    y_set=Reals(),
)


@pytest.mark.parametrize(
    ("stop", "status"),
    [(lambda: True, Status.STOPPED), (lambda: signal.raise_signal(signal.SIGINT), Status.INTERRUPTED)],
    ids=["callback", "ctrl-c"],
)
def test_a_wish_to_stop_ends_all_starts_that_run_one_by_one(stop: Callable[[], Any], status: Status) -> None:
    """Leaders with constraints of their own take one start after the other; the wish comes during the second."""
    calls, last = 0, np.inf

    def watch(state: Any) -> Any:
        nonlocal calls
        calls += 1
        return stop() if calls == last else False

    solve(LED, -1.0, callback=watch)
    calls, last = 0, calls + 2
    many = solve_many(LED, [-1.0, 0.0, 2.0, -2.0], callback=watch)
    assert [result.status for result in many.results] == [Status.CONVERGED, status, status, status]
    assert calls == last
    np.testing.assert_allclose([result.x for result in many.results[2:]], [2.0, -2.0])


def test_a_batch_that_never_began_has_every_start_too(toy: BilevelProblem) -> None:
    many = solve_many(toy, [0.2, 1.0, 2.5], time_limit=1e-6)
    assert [result.status for result in many.results] == [Status.TIME_LIMIT] * 3
    np.testing.assert_allclose(many.x, [0.2, 1.0, 2.5])


@pytest.mark.slow
def test_a_batch_does_not_stop_where_multipliers_are_arbitrary() -> None:
    """At capacity 0 the follower has one feasible point; a slightly larger capacity pays at once."""
    cable = BilevelProblem(
        upper=lambda x, y: x[1] ** 2 - x[0] * y,
        lower=lambda x, y: (y - 4.0 + x[0]) ** 2,
        inequality=lambda x, y: jnp.stack([y - x[1], -y]),
        x_set=Box([0.0, 0.0], [6.0, 6.0]),
        y_set=Reals(),
    )
    single = solve(cable, [2.0, 1.0])
    many = solve_many(cable, starts=12, seed=1)
    assert single.success
    for result in many.results:
        assert result.success, result.message
        if 0.1 < result.x[0] < 3.9:  # where the follower wants something at all
            assert result.upper_value == pytest.approx(single.upper_value, abs=1e-3)


def test_own_oracle_meets_an_infeasible_start() -> None:
    """The elastic problem has another shape than the oracle knows; it must not be handed to it."""

    class Rigid(InteriorPoint):
        def solve(self, flat: FlatProblem, *arguments: Any) -> Any:
            assert flat.n_y == 2
            return super().solve(flat, *arguments)

    own = problem(inequality=lambda x, y: jnp.stack([y[0] - x, 1.0 - y[0]]), oracle=Rigid())
    result = solve(own, -2.0)
    assert result.success, result.message


def test_optimistic_answer_serves_the_leaders_constraint() -> None:
    """The follower does not care about y[1]; the leader needs it at 0.5 or more."""
    free = BilevelProblem(
        upper=lambda x, y: (x - 0.3) ** 2 + y[1] ** 2,
        lower=lambda x, y: (y[0] - x) ** 2,
        upper_inequality=lambda x, y: 0.5 - y[1],
        x_set=Box(-1.0, 1.0),
        y_set=Box(-1.0, 1.0, 2),
    )
    result = solve(free)
    assert result.success, result.message
    np.testing.assert_allclose(result.y, [0.3, 0.5], atol=1e-3)


def test_iteration_limit_is_a_limit(toy: BilevelProblem) -> None:
    result = solve(toy, 0.6, max_iterations=1)
    assert result.status is Status.ITERATION_LIMIT
    assert result.certificate.radius == 0.0


def test_fixed_gamma_says_what_it_hides(plain: BilevelProblem) -> None:
    """An open penalty is a status of its own, and no success."""
    result = solve(plain, gamma=1.0)
    assert result.status is Status.PENALTY_OPEN
    assert not result.success
    assert "it hides" in result.message
    assert "closes it" in result.message


@pytest.mark.slow
def test_batch_over_a_simplex_with_continuation() -> None:
    """X is no box and the penalty closes only for a large gamma."""
    wish = np.array([0.7, 0.5, -0.2])
    split = BilevelProblem(
        upper=lambda x, y: jnp.sum((y - wish) ** 2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Simplex(3),
        y_set=Reals(3),
    )
    many = solve_many(split, starts=5, seed=3)
    assert all(result.success for result in many.results), [result.message for result in many.results]
    for result in many.results:
        np.testing.assert_allclose(result.x, [0.6, 0.4, 0.0], atol=1e-4)


def test_seed_fixes_the_result(toy: BilevelProblem) -> None:
    one, two = (solve_many(toy, starts=4, seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(solve(toy, 0.4).x, solve(toy, 0.4).x)


def test_published_scheme_is_algorithm_one(toy: BilevelProblem) -> None:
    """Ten steps of outer='pgd' equal ten projected gradient steps on F written out here."""
    eta, gamma = 0.02, 5.0
    result = solve(
        toy, 1.3, outer="pgd", gamma=gamma, step=eta, inner="interior-point", max_iterations=10, tolerance=1e-12
    )
    assert result.status is Status.ITERATION_LIMIT

    def gradient(x: float) -> float:  # y = x at both answers; mu_g = 2x, mu_F = gamma mu_g - df/dy
        df_dx = np.exp(2.0 - x) * 6.0 * np.sin(6.0 * x) / (2.0 + np.cos(6.0 * x)) ** 2
        df_dx += 4.0 * (4.0 * x - 2.0) / ((4.0 * x - 2.0) ** 2 + 1.0)
        df_dy = -np.exp(2.0 - x) / (2.0 + np.cos(6.0 * x))
        return df_dx + df_dy

    x = 1.3
    for _ in range(10):
        x = float(np.clip(x - eta * gradient(x), 0.0, 3.0))
    assert float(result.x) == pytest.approx(x, abs=1e-7)
    assert len(result.history) == 11  # at x_0, ..., x_10
    assert "Judged" not in result.message  # nothing is claimed, and no witness against it is looked for


def test_compiles_once() -> None:
    traces = 0

    def lower(x: Any, y: Any) -> Any:
        nonlocal traces
        traces += 1
        return jnp.sum((y - x) ** 2)

    again = problem(lower=lower)
    solve(again, 0.5)
    solve(again, 0.5, gamma=3.0)  # a gamma by hand is meant in the user's own units: another program
    before = traces
    solve(again, -1.5, gamma=4.0, tolerance=1e-4)
    solve(again, 2.5)
    assert traces <= before + 3  # looking whether the functions have changed
    assert solve(again, 1.0).seconds["compile"] == 0.0


def test_a_problem_brings_its_own_oracle() -> None:
    calls: list[int] = []

    class Counting(InteriorPoint):
        def solve(self, flat: FlatProblem, *arguments: Any) -> Any:
            calls.append(1)
            return super().solve(flat, *arguments)

    result = solve(problem(oracle=Counting()))
    assert result.success
    assert calls


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param("interior-point", marks=pytest.mark.slow),
        pytest.param("pdhg", marks=pytest.mark.slow),
        "maxmin",
        pytest.param("single-loop", marks=pytest.mark.slow),
    ],
)
def test_every_oracle_can_drive_the_outer_loop(constrained: BilevelProblem, inner: str) -> None:
    result = solve(constrained, 1.5, inner=inner, gamma=20.0, tolerance=1e-4)
    exact = solve(constrained, 1.5, gamma=20.0)
    assert result.status is exact.status is Status.PENALTY_OPEN, result.message
    assert result.upper_value == pytest.approx(exact.upper_value, abs=1e-3)


def test_oracles_fall_back() -> None:
    """The first oracle gives up at once; the answer comes from the next one and is counted as such."""
    from blocc._lib.precision import double_precision
    from blocc.outer.evaluator import Evaluator
    from blocc.outer.monitor import Monitor
    from blocc.penalty import no_upper_multipliers

    class Failing(InteriorPoint):
        def solve(self, *arguments: Any) -> Any:
            return super().solve(*arguments)._replace(code=jnp.asarray(1), value=jnp.asarray(jnp.nan))

    target = problem()
    with double_precision():
        leader = jax.device_get(no_upper_multipliers(target.flat))
        alone = Evaluator(target.flat, (Failing(),), Monitor(target.x_set.unravel))
        assert not alone(np.array([0.4]), 1.0, leader, 1e-10).usable
        function = Evaluator(target.flat, (Failing(), InteriorPoint()), Monitor(target.x_set.unravel))
        found = function(np.array([0.4]), 1.0, leader, 1e-10)
    assert found.usable
    assert function.fallbacks == 1
    np.testing.assert_allclose(found.follower.y, 0.4, atol=1e-7)


def test_threads_and_host_settings(toy: BilevelProblem) -> None:
    """Two solves in threads give the same answers, and JAX's precision flag is the host's own afterwards."""
    flag = jax.config.jax_enable_x64
    answers: dict[float, float] = {}

    def work(x0: float) -> None:
        answers[x0] = float(solve(toy, x0).x)

    threads = [threading.Thread(target=work, args=(x0,)) for x0 in (0.9, 2.1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers[0.9] == pytest.approx(0.98622482, abs=1e-4)
    assert answers[2.1] == pytest.approx(2.0197, abs=1e-3)
    assert jax.config.jax_enable_x64 is flag
    assert jnp.ones(1).dtype == (jnp.float64 if flag else jnp.float32)


def test_long_histories_are_thinned() -> None:
    from blocc.outer.monitor import _MOST_ROWS, Monitor
    from blocc.result import HistoryRow

    monitor = Monitor(lambda x: x)
    for index in range(3 * _MOST_ROWS):
        monitor.append(HistoryRow(*([float(index)] * len(HistoryRow._fields))), np.zeros(1))
    assert len(monitor.rows) < _MOST_ROWS
    assert monitor.iterations == 3 * _MOST_ROWS
    gaps = np.diff([row.time for row in monitor.rows])
    assert np.all(gaps == gaps[0])


def test_solves_quickly_once_compiled(toy: BilevelProblem) -> None:
    solve(toy, 0.4)
    begun = time.perf_counter()
    result = solve(toy, 0.5)
    assert result.seconds["compile"] == 0.0
    assert result.seconds["run"] <= time.perf_counter() - begun
