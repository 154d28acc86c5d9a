"""What a user may write that is no function, or has no derivative: refused or named, and what looks like it is not."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, ProblemError, Status, solve

NAMES = ("upper", "lower", "inequality", "equality", "upper_inequality")
GENERATOR = np.random.default_rng(5)
COUNT = itertools.count()
ROWS = np.random.default_rng(0).normal(size=(40, 3))
LABELS = np.sign(ROWS @ np.ones(3) + 0.5 * np.random.default_rng(1).normal(size=40))

CHANGING: dict[str, Callable[[], Any]] = {
    "numpy.random": np.random.normal,
    "a generator": GENERATOR.normal,
    "random": random.random,
    "time": time.perf_counter,
    "a counter": lambda: next(COUNT),
    "a mini-batch": lambda: ROWS[np.random.choice(40, 10)].sum(),  # noqa: NPY002 - what users write
    "a key that changes": lambda: jax.random.normal(jax.random.key(next(COUNT))),
}


def problem(**functions: Any) -> BilevelProblem:
    return BilevelProblem(
        **{
            "upper": lambda x, y: jnp.sum((y - 1.0) ** 2),
            "lower": lambda x, y: jnp.sum((y - x) ** 2),
            "x_set": Box(-2.0, 2.0, shape=3),
            "y_set": Box(-2.0, 2.0, shape=3),
            **functions,
        }
    )


@pytest.mark.parametrize("kind", CHANGING)
@pytest.mark.parametrize("name", NAMES)
def test_what_changes_from_call_to_call_is_refused_by_name(name: str, kind: str) -> None:
    draw = CHANGING[kind]
    with pytest.raises(ProblemError, match=rf"^{name}\(x, y\) is no function of x and y.*mini-batch"):
        problem(**{name: lambda x, y: jnp.sum(y**2) * draw() + x[0]})


def test_what_begins_to_change_is_refused_when_it_is_solved() -> None:
    settings = {"draws": False}

    def lower(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.sum((y - x) ** 2) + (random.random() if settings["draws"] else 0.0) * y[0]

    built = problem(lower=lower)
    settings["draws"] = True
    with pytest.raises(ProblemError, match=r"lower.*is no function"):
        solve(built)
    with pytest.raises(ProblemError, match=r"lower.*is no function"):
        built.check()


def test_numbers_that_stay_until_they_are_changed_are_allowed() -> None:
    weights = np.random.default_rng(3).uniform(1.0, 2.0, size=3)
    built = problem(lower=lambda x, y: jnp.sum(weights * (y - x) ** 2) + jax.random.normal(jax.random.key(0)) * y[0])
    assert not built.renew()
    weights[:] = 3.0
    assert built.renew()
    assert not built.renew()


def called_back(of: Callable[[np.ndarray], float], ruled: bool) -> Callable[..., jax.Array]:
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda at: np.asarray(of(at)), jax.ShapeDtypeStruct((), np.float64), y)

    with_rule = jax.custom_vjp(function)
    with_rule.defvjp(lambda x, y: (function(x, y), (x, y)), lambda at, slope: (0.0 * at[0], 2.0 * slope * at[1]))
    return with_rule if ruled else function


def test_callbacks_are_functions_too() -> None:
    built = problem(upper=called_back(lambda y: float(y @ y), ruled=True))
    assert built.renew() is False
    with pytest.raises(ProblemError, match=r"upper.*evaluated twice"):
        problem(upper=called_back(lambda y: float(y @ y) + random.random(), ruled=True))
    with pytest.raises(ProblemError, match=r"upper.*cannot be differentiated"):
        problem(upper=called_back(lambda y: float(y @ y), ruled=False))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_loops_without_gradients_are_refused(name: str, start: float) -> None:
    def halved(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda v: v > 1.0, lambda v: 0.5 * v, start + y[0] ** 2 + x[0])

    with pytest.raises(ProblemError, match=rf"^{name}\(x, y\) cannot be differentiated.*lax.fori_loop.*lax.scan"):
        problem(**{name: halved})


def test_loops_that_have_gradients_or_need_none_are_allowed() -> None:
    def upper(x: jax.Array, y: jax.Array) -> jax.Array:
        power = jax.lax.fori_loop(0, 3, lambda _, value: value * y[0], y[1])
        steps = jax.lax.while_loop(lambda k: k < 3, lambda k: k + 1, 0)  # of no variable
        return jnp.sum((y - 1.0) ** 2) + 1e-3 * power + steps

    assert solve(problem(upper=upper)).success


ERRORS: dict[str, Callable[..., Any]] = {
    "sign": lambda x, y: jnp.mean(jnp.sign(ROWS @ y) != LABELS),
    "where": lambda x, y: jnp.mean(jnp.where(LABELS * (ROWS @ y) > 0.0, 0.0, 1.0)),
    "argmax": lambda x, y: jnp.mean(jnp.argmax(jnp.stack([ROWS @ y, -ROWS @ y]), axis=0) != (LABELS < 0.0)),
    "round": lambda x, y: jnp.sum(jnp.round(y) ** 2),
    "inside jit": jax.jit(lambda x, y: jnp.mean(LABELS * (ROWS @ y) < 0.0)),
    "cond": lambda x, y: jax.lax.cond(y[0] > 0.0, lambda: 1.0, lambda: 2.0),
}


def classified(upper: Callable[..., Any]) -> BilevelProblem:
    return BilevelProblem(
        upper=upper,
        lower=lambda x, y: jnp.mean(jnp.logaddexp(0.0, -LABELS * (ROWS @ y))) + jnp.exp(x[0]) * y @ y,
        x_set=Box(-5.0, 3.0, shape=1),
        y_set=Box(-20.0, 20.0, shape=3),
    )


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_that_are_counted_are_named(kind: str) -> None:
    built = classified(ERRORS[kind])
    finding = built.check()["derivatives"]
    assert finding.ok is False
    assert "upper varies with y in jumps alone" in finding.words


def test_a_counted_error_never_ends_as_converged() -> None:
    result = solve(classified(ERRORS["sign"]))
    assert result.status is Status.STALLED
    assert "upper varies with y in jumps alone" in result.message
    assert "logistic" in result.message


def test_beside_a_smooth_term_it_is_named_all_the_same() -> None:
    result = solve(classified(lambda x, y: ERRORS["sign"](x, y) + 0.1 * x[0] ** 2))
    assert "in jumps alone" in result.message


@pytest.mark.parametrize(
    "upper",
    [
        lambda x, y: jnp.mean(jax.nn.relu(1.0 - LABELS * (ROWS @ y))),
        lambda x, y: jnp.sum(jnp.where(y > 0.0, y, 0.0)) + jnp.sum(jnp.abs(y)),
        lambda x, y: jnp.sort(ROWS @ y)[-3] + x[0],
        lambda x, y: jax.lax.cond(y[0] > 0.0, lambda v: v @ v, lambda v: 2.0 * (v @ v), y),
        lambda x, y: jax.lax.scan(lambda carry, row: (carry + row @ y, None), 0.0, ROWS)[0],
        lambda x, y: 3.0 * x[0],
    ],
)
def test_what_has_derivatives_is_not_named(upper: Callable[..., Any]) -> None:
    assert classified(upper).check()["derivatives"].ok is True
