"""What a user may write that is no function, or has no derivative: refused or named, and what looks like it is not."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
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


@pytest.mark.parametrize(
    "draw", [jax.random.normal, lambda key: jnp.sum(jnp.asarray(ROWS)[jax.random.randint(key, (10,), 0, 40)])]
)
def test_a_key_that_is_split_in_every_call_is_refused_by_name(draw: Callable[[Any], Any]) -> None:
    """JAX's natural mini-batch: what is kept is no number, but what JAX traced it as."""
    kept = [jax.random.PRNGKey(0)]

    def lower(x: jax.Array, y: jax.Array) -> jax.Array:
        kept[0], key = jax.random.split(kept[0])
        return jnp.sum((y - x) ** 2) + draw(key) * y[0]

    with pytest.raises(ProblemError, match=r"^lower\(x, y\) is no function of x and y.*earlier call.*mini-batch"):
        problem(lower=lower)


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


def called_back(of: Callable[[np.ndarray], float], rule: Any) -> Callable[..., jax.Array]:
    """A sum of squares that Python computes, with its derivative by one of JAX's kinds of rules."""

    def square(y: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct((), np.float64)
        return jax.pure_callback(lambda at: np.asarray(of(np.asarray(at))), shape, y, vmap_method="sequential")

    ruled = square if rule is None else rule(square)
    if rule is jax.custom_jvp:
        ruled.defjvp(lambda at, by: (ruled(*at), 2.0 * jnp.dot(at[0], by[0])))
    if rule is jax.custom_vjp:
        ruled.defvjp(lambda y: (ruled(y), y), lambda y, slope: (2.0 * slope * y,))
    return lambda x, y: ruled(y)


CALLBACKS = """
import jax
if {everywhere}:
    jax.config.update("jax_enable_x64", True)
from blocc import ProblemError, Status, solve
from test_functions import called_back, problem
import random
for of in (lambda y: float(y @ y), lambda y: float(y @ y) + random.random()):
    try:
        print(solve(problem(upper=called_back(of, jax.custom_jvp))).success)
    except ProblemError as error:
        print(str(error).split(",")[1])
"""


@pytest.mark.parametrize("everywhere", [True, False])
def test_callbacks_are_functions_too(everywhere: bool) -> None:
    """JAX hands over what Python returns in another thread, which knows the settings of the whole program alone."""
    ran = [sys.executable, "-c", CALLBACKS.format(everywhere=everywhere)]
    found = [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)]
    done = subprocess.run(ran, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(found)})
    rounded = " y) calls Python back"
    wanted = ["True", " y) is no function of x and y: evaluated twice at one point"] if everywhere else [rounded] * 2
    assert done.stdout.splitlines() == wanted, done.stderr


@pytest.mark.parametrize("rule", [None, jax.custom_vjp])
def test_callbacks_without_second_derivatives_are_refused(rule: Any) -> None:
    with pytest.raises(ProblemError, match=r"^upper\(x, y\) cannot be differentiated.*jax.custom_jvp"):
        problem(upper=called_back(lambda y: float(y @ y), rule))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rule", [jax.custom_jvp, jax.custom_vjp])
def test_loops_with_a_derivative_of_ones_own(rule: Any, name: str) -> None:
    halved = rule(lambda v: jax.lax.while_loop(lambda s: s > 1.0, lambda s: 0.5 * s, v))
    if rule is jax.custom_jvp:
        halved.defjvp(lambda at, by: (halved(*at), by[0] * halved(*at) / at[0]))
        problem(**{name: lambda x, y: halved(1.0 + y @ y)})
        return
    halved.defvjp(lambda v: (halved(v), v), lambda v, slope: (slope * halved(v) / v,))
    with pytest.raises(ProblemError, match=rf"^{name}\(x, y\) cannot be differentiated.*twice.*jax.custom_jvp"):
        problem(**{name: lambda x, y: halved(1.0 + y @ y)})


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
    "heaviside": lambda x, y: jnp.mean(jnp.heaviside(-LABELS * (ROWS @ y), 0.5)),
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
        lambda x, y: jnp.nansum(y**2) + jnp.sum(jnp.where(jnp.isnan(y), 0.0, y)),
    ],
)
def test_what_has_derivatives_is_not_named(upper: Callable[..., Any]) -> None:
    assert classified(upper).check()["derivatives"].ok is True
