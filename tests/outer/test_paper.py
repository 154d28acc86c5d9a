"""Algorithms 1 and 2 against their transcription from the paper's text, step by step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, InnerPairs, MaxMin, OptionError, Reals, Result, Status, solve, solve_many
from blocc.inner import algorithm_2
from blocc.lagrangian import Multipliers
from blocc.outer import algorithm_1, monitor
from blocc.problems.toy import local_minimisers, toy_problem
from paper_reference import Inner, RandomData, Step, numpy_problem, random_data
from paper_reference import algorithm_1 as transcription
from selections import few

GAMMA, ETA, T = 6.0, 0.04, 8
PGD = {"outer": "pgd", "gamma": 1.0, "inner": MaxMin()}


def blocc_problem(o: RandomData) -> BilevelProblem:
    """The random problem of the reference by its functions alone: JAX takes the derivatives."""
    n = min(o.a.size, o.q.size)
    return BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum((x - o.a) ** 2) + o.q @ y + jnp.sum(jnp.sin(x[:n]) * y[:n]),
        lower=lambda x, y: 0.5 * y @ o.H @ y - (o.B @ x + o.b) @ y,
        inequality=lambda x, y: 0.5 * jnp.sum((y - o.c) ** 2, axis=1) + (o.d @ x) * (o.e @ y) - o.r,
        x_set=Box(o.low_x, o.high_x),
        y_set=Box(o.low_y, o.high_y),
    )


def inner_numbers(accelerated: bool) -> tuple[Inner, Inner]:
    """Other counters and steps for L_g than for L_F; the version without acceleration with one step in y."""
    T_y = (4, 6) if accelerated else (1, 1)
    return Inner(0.1, 0.2, 9, T_y[0], accelerated), Inner(0.02, 0.5, 13, T_y[1], accelerated)


def oracle(g: Inner, F: Inner) -> MaxMin:
    return MaxMin(
        accelerated=g.accelerated,
        iterations=(g.T, F.T),
        steps_y=(g.T_y, F.T_y),
        primal_step=(g.eta_1, F.eta_1),
        dual_step=(g.eta_2, F.eta_2),
    )


def start_of(data: RandomData, seed: int) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """x_0 in X, and y_{g,0}, mu_{g,0}, y_{F,0}, mu_{F,0}, drawn."""
    rng = np.random.default_rng([seed, 1])
    x = rng.uniform(data.low_x, data.high_x)
    y_g, y_F = rng.uniform(data.low_y, data.high_y), rng.uniform(data.low_y, data.high_y)
    return x, (y_g, rng.uniform(0.0, 2.0, data.r.size), y_F, rng.uniform(0.0, 4.0, data.r.size))


def transcribed(data: RandomData, seed: int, accelerated: bool, steps: int = T) -> list[Step]:
    x, starts = start_of(data, seed)
    return transcription(numpy_problem(data), x, starts, ETA, GAMMA, *inner_numbers(accelerated), steps)


def ours(data: RandomData, seed: int, accelerated: bool, steps: int = T) -> Result:
    x, starts = start_of(data, seed)
    given = InnerPairs(starts[0], starts[1], starts[2], starts[3])
    numbers = {"gamma": GAMMA, "step": ETA, "max_iterations": steps, "inner_start": given, "progress": False}
    return solve(blocc_problem(data), x, outer="pgd", inner=oracle(*inner_numbers(accelerated)), **numbers)


def cuts(data: RandomData, steps: list[Step]) -> tuple[bool, bool, bool]:
    """Whether Proj_X, Proj_Y and the multipliers of gc were active on the way."""
    at_x = any(((s.x == data.low_x) | (s.x == data.high_x)).any() for s in steps)
    at_y = any(((y == data.low_y) | (y == data.high_y)).any() for s in steps for y in (s.y_g, s.y_F))
    return at_x, at_y, any((mu > 0.0).any() for s in steps for mu in (s.mu_g, s.mu_F))


@pytest.mark.filterwarnings("ignore:step=")
@pytest.mark.parametrize("accelerated", [True, False], ids=["accelerated", "single loop"])
@pytest.mark.parametrize("seed", few(range(6), 0, 1))
def test_every_step_is_the_papers(seed, accelerated):
    data = random_data(seed)
    wanted = transcribed(data, seed, accelerated)
    for t in (0, 1, T):  # T steps from x_0: (x_T, y_F at x_T)
        result = ours(data, seed, accelerated, t) if t else ours(data, seed, accelerated, 1)
        step = wanted[max(t, 1)]
        np.testing.assert_allclose(result.x, step.x, rtol=0, atol=1e-11)
        assert result.inner is not None
        found = result.inner
        for mine, theirs in (
            (found.y_g, step.y_g),
            (found.mu_g.inequality, step.mu_g),
            (found.y_F, step.y_F),
            (found.mu_F.inequality, step.mu_F),
            (result.y_penalty, step.y_F),
        ):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)
    moves = [np.linalg.norm(b.x - a.x) for a, b in pairwise(wanted)]
    np.testing.assert_allclose(result.history.step[:-1], moves, rtol=0, atol=1e-11)


@pytest.mark.filterwarnings("ignore:step=")
@pytest.mark.parametrize("accelerated", [True, False], ids=["accelerated", "single loop"])
@pytest.mark.parametrize("room", [1.0, -0.5], ids=["feasible", "infeasible"])
@pytest.mark.parametrize("seed", few(range(60, 66), 60))
def test_sizes_and_numbers_may_be_any(seed, room, accelerated):
    """Sizes, gamma, steps and counters drawn as well; and from an x_0 at which the follower has no answer."""
    rng = np.random.default_rng([seed, 2])
    data = random_data(seed, *(int(n) for n in rng.integers(1, 6, 3)))
    data = replace(data, r=data.r if room > 0.0 else np.full_like(data.r, room))
    gamma, eta, T = float(rng.uniform(1.0, 12.0)), float(rng.uniform(0.005, 0.1)), int(rng.integers(1, 9))
    counts = (int(n) for n in rng.integers(1, 12, 4))
    g, F = (
        Inner(float(rng.uniform(0.02, 0.2)) / w, w * float(rng.uniform(0.1, 0.8)), next(counts), T_y, accelerated)
        for w, T_y in zip((1.0, gamma), (next(counts), next(counts)) if accelerated else (1, 1), strict=True)
    )
    x, starts = start_of(data, seed)
    wanted = transcription(numpy_problem(data), x, starts, eta, gamma, g, F, T)
    numbers = {"gamma": gamma, "step": eta, "max_iterations": T, "inner_start": InnerPairs(*starts), "progress": False}
    seen: list[np.ndarray] = []
    options = numbers | {"outer": "pgd", "inner": oracle(g, F), "callback": lambda state: seen.append(state.x)}
    result, step = solve(blocc_problem(data), x, **options), wanted[-1]
    np.testing.assert_allclose(seen, [one.x for one in wanted], rtol=0, atol=1e-11)
    np.testing.assert_allclose(result.x, step.x, rtol=0, atol=1e-11)
    found = result.inner
    pairs = ((found.y_g, step.y_g), (found.mu_g.inequality, step.mu_g), (found.y_F, step.y_F))
    for mine, theirs in (*pairs, (found.mu_F.inequality, step.mu_F)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-10)
    assert room > 0.0 or result.status is Status.INFEASIBLE


def test_projections_cut_x_and_y_while_gc_holds_with_equality():
    """What the comparison above goes through, on both of its seeds' versions."""
    for seed in (2, 3):
        data = random_data(seed)
        for accelerated in (True, False):
            assert cuts(data, transcribed(data, seed, accelerated)) == (True, True, True)


@pytest.mark.filterwarnings("ignore:step=")
def test_a_run_goes_on_from_its_last_inner_solutions():
    """S steps more from x_T, with what MaxMin left there; it runs at x_T once more first."""
    seed = 2
    data = random_data(seed)
    problem, inner = blocc_problem(data), oracle(*inner_numbers(False))
    numbers = {"outer": "pgd", "inner": inner, "gamma": GAMMA, "step": ETA, "progress": False}
    x, starts = start_of(data, seed)
    first = transcribed(data, seed, False, 3)
    after = transcription(numpy_problem(data), first[-1].x, first[-1][1:5], ETA, GAMMA, *inner_numbers(False), 4)
    one = solve(problem, x, max_iterations=3, inner_start=InnerPairs(*starts), **numbers)
    two = solve(problem, one.x, max_iterations=4, inner_start=one.inner, **numbers)
    np.testing.assert_allclose(two.x, after[-1].x, rtol=0, atol=1e-11)
    assert two.inner is not None
    np.testing.assert_allclose(two.inner.mu_F.inequality, after[-1].mu_F, rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:step=")
def test_many_starts_begin_alike():
    data = random_data(2)
    problem, numbers = blocc_problem(data), {"outer": "pgd", "gamma": GAMMA, "step": ETA, "max_iterations": 5}
    x, starts = start_of(data, 2)
    numbers |= {"inner": oracle(*inner_numbers(True)), "inner_start": InnerPairs(*starts), "progress": False}
    together = solve_many(problem, [x, 0.5 * x], **numbers)
    for result, start in zip(together.results, (x, 0.5 * x), strict=True):
        alone = solve(problem, start, **numbers)
        np.testing.assert_allclose(result.x, alone.x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(result.inner.mu_F.inequality, alone.inner.mu_F.inequality, rtol=0, atol=1e-12)


def test_what_is_left_out_begins_where_the_oracle_would():
    data = random_data(0)
    problem = blocc_problem(data)
    numbers = {"outer": "pgd", "inner": oracle(*inner_numbers(False)), "gamma": GAMMA, "max_iterations": 2}
    plain = solve(problem, **numbers)
    for given in (InnerPairs(), InnerPairs(mu_F=Multipliers(np.zeros(2), np.zeros(0)))):
        np.testing.assert_array_equal(solve(problem, **numbers, inner_start=given).x, plain.x)
    assert not np.allclose(solve(problem, **numbers, inner_start=InnerPairs(y_F=data.high_y)).x, plain.x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner_start": InnerPairs()}, "inner_start is of outer='pgd' alone"),
        ({"stop": 1e-3}, "stop is of outer='pgd' alone"),
        ({"outer": "pgd", "gamma": 1.0, "inner_start": (0.0, 0.0)}, "must be an InnerPairs"),
        ({"outer": "pgd", "gamma": 1.0, "inner_start": InnerPairs()}, "InteriorPoint begins by itself"),
        (
            {"outer": "pgd", "gamma": 1.0, "inner": MaxMin(), "inner_start": InnerPairs(mu_g=np.ones(3))},
            "2 multipliers",
        ),
        (
            {"outer": "pgd", "gamma": 1.0, "inner": MaxMin(), "inner_start": InnerPairs(mu_F=-np.ones(2))},
            "not negative",
        ),
        (
            {"outer": "pgd", "gamma": 1.0, "inner": MaxMin(), "inner_start": InnerPairs(y_g=np.full(3, np.inf))},
            "finite",
        ),
        (
            {"outer": "pgd", "gamma": 1.0, "inner": MaxMin(), "inner_start": InnerPairs(y_F=np.full(3, 9.0))},
            r"inner_start\.y_F must be in y_set; its nearest member is",
        ),
        ({"outer": "pgd", "gamma": 1.0, "stop": -1.0}, "stop must be positive"),
    ],
    ids=str,
)
def test_what_makes_no_start(options, message):
    with pytest.raises(OptionError, match=message):
        solve(blocc_problem(random_data(0)), **options)


def test_inner_solutions_are_saved_with_a_result(tmp_path):
    data = random_data(0)
    result = solve(blocc_problem(data), outer="pgd", inner=oracle(*inner_numbers(False)), gamma=GAMMA, max_iterations=2)
    loaded = Result.load(result.save(tmp_path / "run"))
    assert isinstance(loaded.inner, InnerPairs)
    assert isinstance(loaded.inner.mu_F, Multipliers)
    np.testing.assert_array_equal(loaded.inner.y_g, result.inner.y_g)
    np.testing.assert_array_equal(loaded.inner.mu_F.inequality, result.inner.mu_F.inequality)


def test_all_steps_are_made_and_counted():
    """No stop test where none was asked for, not even where nothing moves; T + 1 inner solutions of each kind."""
    data = random_data(0)
    g, F = inner_numbers(True)
    numbers = {"outer": "pgd", "inner": oracle(g, F), "gamma": GAMMA, "step": 1e-12, "tolerance": 0.09}
    result = solve(blocc_problem(data), max_iterations=150, **numbers)
    assert len(result.history) == result.counts["evaluations"] == 151
    assert result.counts["inner_iterations"] == 151 * (g.T + F.T)
    assert result.counts["derivatives"] == 151 * (g.T * g.T_y + F.T * F.T_y)
    assert result.history.evaluations[-1] == 151


def test_the_stop_test_waits_for_the_inner_solutions():
    """At a bound of x no step is made from the start on; it stops once the inner solutions are as good as asked for."""
    problem = BilevelProblem(
        upper=lambda x, y: 4.0 * x + (y - 1.0) ** 2,
        lower=lambda x, y: (y - x) ** 2,
        x_set=Box(0.0, 1.0),
        y_set=Box(-2.0, 2.0),
    )
    slow = MaxMin.single_loop(iterations=1, primal_step=0.01, dual_step=0.1)
    numbers = {
        "outer": "pgd",
        "inner": slow,
        "gamma": 2.0,
        "step": 1.0,
        "inner_start": InnerPairs(2.0, None, 2.0, None),
    }
    result = solve(problem, 0.0, stop=1e-4, max_iterations=5000, **numbers)
    assert len(result.history) < 5001
    assert 2.0 * result.history.inner_residual[-1] <= 1e-4 < 2.0 * result.history.inner_residual[-2]
    assert (result.history.step[-3:] == 0.0).all()


@pytest.mark.parametrize("module", [algorithm_1, algorithm_2])
def test_the_lines_of_the_paper_stand_alone(module):
    text = Path(module.__file__).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert "History" not in text


def test_starts_at_bounds_reach_minimisers():
    """The paper's toy with its gamma and eta: also from the starts that U(0, 3.5) puts on the bound."""
    inner = MaxMin.single_loop(iterations=100, primal_step=0.1, dual_step=0.1)
    numbers = {"outer": "pgd", "inner": inner, "gamma": 5.0, "step": 0.01, "max_iterations": 500}
    found = solve_many(toy_problem(), [3.0, 2.85, 0.0, 1.4, 2.6], progress=False, **numbers)
    away = np.abs(np.asarray(found.x)[:, None] - local_minimisers()).min(axis=1)
    assert (away < 1e-3).all()
    assert {result.status for result in found.results} == {Status.CONVERGED}
    assert float(found.results[0].x) == pytest.approx(2.990774, abs=1e-6)


def test_inner_steps_that_are_too_long_are_named():
    result = solve(toy_problem(), 1.0, preset="toy", gamma=30.0)
    assert result.status is Status.STALLED
    assert "its steps are too long for L_g, or for L_F at gamma = 30" in result.message


def test_ends_where_the_follower_has_no_answer_are_named():
    """Inner solvers with fixed steps go on where gc cannot be met."""
    problem = BilevelProblem(
        upper=lambda x, y: x + y**2,
        lower=lambda x, y: y**2,
        inequality=lambda x, y: jnp.stack([1.0 - x - y, y - x]),
        x_set=Box(0.0, 3.0),
        y_set=Box(-5.0, 5.0),
    )
    inner = MaxMin.single_loop(iterations=1, primal_step=1e-4, dual_step=1e-4)
    result = solve(problem, 1.0, outer="pgd", inner=inner, gamma=2.0, step=0.01, max_iterations=90)
    assert result.status is Status.INFEASIBLE
    assert "ended at an x where the follower cannot meet its constraints" in result.message


def test_a_run_that_is_stopped_has_counted_its_inner_iterations():
    g, F = inner_numbers(True)
    numbers = {"outer": "pgd", "inner": oracle(g, F), "gamma": GAMMA, "step": 1e-6, "max_iterations": 50}
    result = solve(blocc_problem(random_data(0)), callback=lambda state: state.iteration == 7, **numbers)
    assert result.status is Status.STOPPED
    assert result.counts["inner_iterations"] == 7 * (g.T + F.T)
    assert result.counts["derivatives"] == 7 * (g.T * g.T_y + F.T * F.T_y)


LIMITED = BilevelProblem(
    upper=lambda x, y: (x - 1.0) ** 2 + (y - 0.5) ** 2,
    lower=lambda x, y: (y - x) ** 2,
    inequality=lambda x, y: y - 0.3,
    upper_inequality=lambda x, y: x - y - 0.1,
    x_set=Box(-1.0, 1.0),
    y_set=Reals(),
)


@pytest.mark.parametrize("front_door", [solve, lambda problem, x, **named: solve_many(problem, [x], **named)])
@pytest.mark.parametrize("options", [{"preset": "paper"}, {"outer": "pgd", "gamma": 5.0}], ids=str)
def test_constraints_of_the_leader_are_refused(front_door, options):
    """No line of Algorithm 1 looks at G."""
    with pytest.raises(OptionError, match=r"knows no upper_inequality.*outer='auto'.*x_set"):
        front_door(LIMITED, 0.0, **options)
    assert solve(LIMITED, 0.0, gamma=5.0).certificate.leader_violation <= 1e-6


@pytest.mark.parametrize(("stop", "status"), [(1e-6, Status.CONVERGED), (0.1, Status.STALLED)])
def test_the_stop_test_is_named(stop, status):
    result = solve(toy_problem(), 1.3, preset="paper", stop=stop, max_iterations=5000)
    assert len(result.history) < 5001
    assert result.message.startswith(f"The stopping test stop={stop:g} was met. ")
    assert result.status is status
    unmet = solve(toy_problem(), 1.3, preset="paper", stop=stop, max_iterations=3)
    assert unmet.status is Status.ITERATION_LIMIT
    assert "stopping test" not in unmet.message


def test_iterations_are_those_made_not_those_kept(monkeypatch):
    monkeypatch.setattr(monitor, "_MOST_ROWS", 40)
    result = solve(toy_problem(), 1.3, preset="paper", max_iterations=59)
    assert len(result.history) < 60
    assert result.counts["iterations"] == result.counts["evaluations"] == 60
    assert "60 evaluations, 60 iterations" in repr(result)


def test_a_time_limit_that_is_not_reached_changes_no_digit():
    """Compiled calls are shorter then."""
    data = random_data(2)
    numbers = {"outer": "pgd", "inner": oracle(*inner_numbers(True)), "gamma": GAMMA, "step": ETA, "max_iterations": 40}
    free = solve(blocc_problem(data), **numbers)
    limited = solve(blocc_problem(data), time_limit=1e6, **numbers)
    np.testing.assert_array_equal(limited.x, free.x)
    np.testing.assert_array_equal(limited.history.upper_value, free.history.upper_value)
