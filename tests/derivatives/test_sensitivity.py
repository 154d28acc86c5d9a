"""Derivatives of the whole answer in the data, against closed forms and finite differences of new solves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import (
    BilevelProblem,
    Box,
    OptionError,
    ProblemError,
    Product,
    Reals,
    Result,
    SensitivityError,
    Simplex,
    solve,
    solve_differentiable,
)


def linear(**changes: Any) -> BilevelProblem:
    """y = slope x, so that x = goal / (1 + slope^2) and f = goal^2 slope^2 / (1 + slope^2)."""
    parts: dict[str, Any] = {
        "upper": lambda x, y, d: (x - d["goal"]) ** 2 + y**2,
        "lower": lambda x, y, d: (y - d["slope"] * x) ** 2,
        "x_set": Box(-4.0, 4.0),
        "y_set": Reals(),
        "data": {"goal": 2.0, "slope": 0.5},
        "name": "linear",
    }
    return BilevelProblem(**(parts | changes))


@pytest.fixture(scope="module")
def problem() -> BilevelProblem:
    return linear()


@pytest.fixture(scope="module")
def result(problem: BilevelProblem) -> Result:
    return solve(problem)


GOAL, SLOPE = 2.0, 0.5
BELOW = 1.0 + SLOPE**2
#: Derivatives of x, y and the value in goal and slope.
CLOSED = {
    "x": (1.0 / BELOW, -2.0 * SLOPE * GOAL / BELOW**2),
    "y": (SLOPE / BELOW, GOAL * (1.0 - SLOPE**2) / BELOW**2),
    "value": (2.0 * GOAL * SLOPE**2 / BELOW, 2.0 * GOAL**2 * SLOPE / BELOW**2),
}


def test_the_closed_form(problem: BilevelProblem, result: Result) -> None:
    found = result.sensitivity(problem)
    for name, (of_goal, of_slope) in CLOSED.items():
        part = getattr(found, name)
        assert part["goal"].shape == part["slope"].shape == ()
        assert part["goal"] == pytest.approx(of_goal, rel=1e-9)
        assert part["slope"] == pytest.approx(of_slope, rel=1e-9)
    assert "d x / d data['goal']  0.8" in repr(found)


def coupled() -> BilevelProblem:
    """Two levels with structure: the leader's own constraint and a bound hold x, a coupled row and a bound hold y."""

    def lower(x: Any, y: Any, d: Any) -> Any:
        pull = y["q"] @ (d["price"] - x["tax"] * np.array([1.0, 0.2, 0.0]))
        return 0.5 * y["q"] @ y["q"] - pull + 0.1 * jnp.sum(y["q"] ** 4) + jnp.exp(y["r"] - x["size"][0])

    return BilevelProblem(
        upper=lambda x, y, d: (
            jnp.sum((y["q"] - d["wish"]) ** 2) + 0.3 * x["tax"] ** 2 + jnp.sum((x["size"] - 1.0) ** 2) + 0.2 * y["r"]
        ),
        lower=lower,
        inequality=lambda x, y, d: jnp.sum(y["q"]) - d["room"] * x["size"][0],
        upper_inequality=lambda x, y, d: x["size"][0] + 0.1 * y["q"][0] ** 2 - d["limit"],
        x_set=Product({"tax": Box(-2.0, 2.0), "size": Box(0.1, [3.0, 0.7])}),
        y_set=Product({"q": Box.nonnegative(3), "r": Box(-1.0, 1.0)}),
        data={
            "price": np.array([2.0, 1.5, -0.5]),
            "wish": np.array([1.0, 0.8, 0.1]),
            "room": 1.3,
            "limit": 1.0,
            "unused": np.array([1, 2]),
        },
    )


@pytest.mark.slow
def test_everything_at_once_against_new_solves() -> None:
    problem = coupled()
    result = solve(problem)
    found = result.sensitivity(problem)
    assert found.x["size"]["price"].shape == (2, 3)
    assert found.y["q"]["wish"].shape == (3, 3)
    assert found.value["room"].shape == ()
    assert found.x["tax"]["unused"] is None
    assert (found.x["size"]["price"][1] == 0.0).all()  # at its bound
    assert (np.abs(found.x["size"]["limit"][0]) > 0.1).all()  # the leader's constraint is active
    generator, step = np.random.default_rng(0), 1e-4
    direction = {
        name: generator.normal(size=np.shape(problem.data[name])) for name in ("price", "wish", "room", "limit")
    }

    def solved(sign: float) -> Any:
        moved = {name: problem.data[name] + sign * step * change for name, change in direction.items()}
        return solve_differentiable(problem, {**problem.data, **moved}, result.x)  # refined to full accuracy

    def along(tree: Any) -> Any:
        return sum(np.tensordot(tree[name], change, np.ndim(change)) for name, change in direction.items())

    plus, minus = solved(1.0), solved(-1.0)
    for name in ("x", "y"):
        for key, part in getattr(found, name).items():
            expected = (getattr(plus, name)[key] - getattr(minus, name)[key]) / (2 * step)
            np.testing.assert_allclose(along(part), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(along(found.value), (plus.value - minus.value) / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_set_of_x_that_is_no_box() -> None:
    """x is the projection of ``d`` on a simplex: its derivative is that projection's."""
    problem = BilevelProblem(
        upper=lambda x, y, d: jnp.sum((x - d) ** 2) + jnp.sum((y - x) ** 2),
        lower=lambda x, y, d: jnp.sum((y - x) ** 2),
        x_set=Simplex(3),
        y_set=Reals(3),
        data=np.array([0.7, 0.5, -1.0]),
    )
    found = solve(problem).sensitivity(problem)
    np.testing.assert_allclose(found.x, [[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]], atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param(
            {"data": {"goal": 4.0, "slope": 0.0}}, "leader touches a bound .* without a price", marks=pytest.mark.slow
        ),
        pytest.param(
            {"upper": lambda x, y, d: (y - d["goal"]) ** 2, "data": {"goal": 1.0, "slope": 0.0}},
            "flat",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"inequality": lambda x, y, d: y - 0.5 * d["goal"], "data": {"goal": 1.0, "slope": 0.5}},
            None,
            marks=pytest.mark.slow,
        ),
        (
            {
                "upper": lambda x, y, d: (x - d["goal"]) ** 2,
                "inequality": lambda x, y, d: y - d["slope"] * d["goal"],
            },
            "follower touches a constraint without a price",
        ),
        pytest.param(
            {
                "upper": lambda x, y, d: (x - d["goal"]) ** 2 + y[0] ** 2,
                "lower": lambda x, y, d: (y[0] - d["slope"] * x) ** 2,
                "y_set": Reals(2),
            },
            "no curvature",
            marks=pytest.mark.slow,
        ),
        ({"data": None, "upper": lambda x, y: (x - 1) ** 2 + y, "lower": lambda x, y: (y - x) ** 2}, "no real numbers"),
    ],
    ids=["leader's bound", "flat leader", "slack row", "kink", "flat follower", "no data"],
)
def test_where_there_is_none_a_sentence_says_why(changes: dict[str, Any], sentence: str | None) -> None:
    problem = linear(**changes)
    result = solve(problem)
    if sentence is None:
        assert result.sensitivity(problem).x["goal"] == pytest.approx(1.0 / BELOW, rel=1e-9)
        return
    with pytest.raises(SensitivityError, match=sentence):
        result.sensitivity(problem)


def test_another_problem_is_noticed(problem: BilevelProblem, result: Result) -> None:
    with pytest.raises(SensitivityError, match="not the problem that was solved, or it has other data: upper"):
        result.sensitivity(problem.with_data({**problem.data, "goal": 7.0}))


def test_more_derivatives_than_memory_holds_are_refused(
    problem: BilevelProblem, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blocc.derivatives.sensitivity._MOST_NUMBERS", 2)
    with pytest.raises(SensitivityError, match="give as data only what you want derivatives in"):
        result.sensitivity(problem)


def test_a_run_that_failed_has_no_derivatives(problem: BilevelProblem) -> None:
    stopped = solve(problem, 3.0, callback=lambda state: True)
    with pytest.raises(SensitivityError, match="did not converge"):
        stopped.sensitivity(problem)


def test_solve_differentiable_in_a_larger_program(problem: BilevelProblem) -> None:
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, problem.data)

        @jax.jit
        def both(data: Any) -> Any:
            loss = lambda data: jnp.sin(solve_differentiable(problem, data).x) * data["goal"]  # noqa: E731
            return jax.value_and_grad(loss)(data)

        value, slope = both(data)
    x = GOAL / BELOW
    assert value == pytest.approx(np.sin(x) * GOAL, rel=1e-9)
    assert slope["goal"] == pytest.approx(np.sin(x) + np.cos(x) * GOAL * CLOSED["x"][0], rel=1e-9)
    assert slope["slope"] == pytest.approx(np.cos(x) * GOAL * CLOSED["x"][1], rel=1e-9)


def test_no_digit_is_lost_on_the_way_out_of_a_compiled_program(problem: BilevelProblem) -> None:
    """Where the program is run without 64-bit floats enabled, what it calls back does not know of them either."""
    with jax.enable_x64(True):
        goal = jnp.asarray(2.0 / 3.0)
        program = jax.jit(lambda goal: solve_differentiable(problem, {"goal": goal, "slope": SLOPE}).x)
        compiled = program.lower(goal).compile()
    assert float(compiled(goal)) == pytest.approx(2.0 / 3.0 / BELOW, rel=1e-12)


@pytest.mark.slow
def test_solve_differentiable_forward_and_in_batches(problem: BilevelProblem) -> None:
    with jax.enable_x64(True):
        goals = jnp.asarray([1.0, 2.0, 3.0])
        answer = lambda goal: solve_differentiable(problem, {"goal": goal, "slope": SLOPE})  # noqa: E731
        np.testing.assert_allclose(jax.vmap(lambda goal: answer(goal).x)(goals), goals / BELOW, rtol=1e-9)
        slopes = jax.jacfwd(answer)(goals[1])
        assert [slopes.x, slopes.y, slopes.value] == pytest.approx([CLOSED[name][0] for name in CLOSED], rel=1e-9)
        bend = jax.grad(jax.grad(lambda goal: answer(goal).value))(goals[1])
        assert bend == pytest.approx(2.0 * SLOPE**2 / BELOW, rel=1e-9)


@pytest.mark.slow
def test_solve_differentiable_shows_what_it_could_not_do() -> None:
    kink = linear(data={"goal": 4.0, "slope": 0.0})
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(lambda goal: solve_differentiable(kink, {"goal": goal, "slope": 0.0}).x)(4.0)
        assert value == pytest.approx(4.0)
        assert np.isnan(slope)
    with pytest.warns(RuntimeWarning, match="returns NaN"):
        found = solve_differentiable(kink, {"goal": 1.0, "slope": 3.0}, 3.0, callback=lambda state: True)
    assert np.isnan([found.x, found.y, found.value]).all()


def test_solve_itself_refuses_to_be_traced(problem: BilevelProblem) -> None:
    with pytest.raises(ProblemError, match=r"solve_differentiable\(problem, data\)"):
        jax.grad(lambda goal: solve(problem.with_data({"goal": goal, "slope": 1.0})).upper_value)(2.0)
    with pytest.raises(ProblemError, match=r"solve_differentiable\(problem, data\)"):
        jax.jit(lambda goal: linear(data={"goal": goal, "slope": 1.0}))(2.0)
    with pytest.raises(ProblemError, match=r"numbers from its surroundings .* blocc.solve_differentiable"):
        jax.grad(lambda goal: solve(linear(lower=lambda x, y, d: (y - goal * x) ** 2)).upper_value)(2.0)
    with pytest.raises(OptionError, match=r"solve_differentiable\(problem, data\)"):
        jax.grad(lambda start: solve(problem, start).upper_value)(2.0)
    with pytest.raises(OptionError, match="while JAX traces"):
        jax.jit(lambda number: number * solve(problem).x)(2.0)
    with pytest.raises(OptionError, match="64-bit floats"):
        jax.grad(lambda goal: solve_differentiable(problem, {"goal": goal, "slope": 1.0}).value)(2.0)
