"""The spectral projected gradient machine on quadratics with known answers, and its behaviour at boundaries."""

from __future__ import annotations

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blocc._lib.precision import double_precision
from blocc.outer import spectral
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from blocc.simple_sets import Ball, Simplex
from inner_random_problems import RandomProblem

SIZE = 5
SETS = {
    "reals": Reals(SIZE),
    "box": Box(-0.3, 0.5, shape=SIZE),
    "ball": Ball(0.2 * np.ones(SIZE), 0.8),
    "simplex": Simplex(SIZE),
}


@cache
def machine(name):
    """One compiled step over a set; the functions of the problem play no part in it."""
    flat = BilevelProblem(upper=lambda x, y: 0.0, lower=lambda x, y: 0.0, x_set=SETS[name], y_set=Reals()).flat
    return jax.jit(partial(spectral.advance, flat))


def minimise(name, function, x, iterations=2000, tolerance=1e-10, usable=lambda x: True):
    """Drive the machine; returns the last state and all trial points."""
    trials, state = [], spectral.start(jnp.asarray(x))
    for _ in range(iterations):
        point = np.asarray(spectral.trial(state))
        trials.append(point)
        if usable(point):
            value, gradient = function(point)
            state = machine(name)(state, jnp.asarray(value), jnp.asarray(gradient), jnp.asarray(True))
        else:
            nothing = jnp.asarray(np.nan), jnp.full(point.size, np.nan), jnp.asarray(False)
            state = machine(name)(state, *nothing)
        if float(state.stationarity) <= tolerance or bool(state.failed):
            break
    return state, np.array(trials)


def quadratic(seed, condition):
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))
    hessian = basis @ np.diag(np.geomspace(1.0, condition, SIZE)) @ basis.T
    cost = rng.standard_normal(SIZE)
    return hessian, cost, lambda x: (0.5 * x @ hessian @ x + cost @ x, hessian @ x + cost)


def exact(name, hessian, cost):
    none, balls = np.zeros((0, SIZE)), int(name == "ball")
    return RandomProblem(
        hessian=hessian,
        cost=cost,
        target=np.zeros(SIZE),
        affine=none,
        affine_rhs=none[:, 0],
        centers=np.full((balls, SIZE), 0.2),
        radii=np.full(balls, 0.8),
        equality=none,
        equality_rhs=none[:, 0],
        y_set=Reals(SIZE) if balls else SETS[name],
        shift=np.zeros((SIZE, 1)),
    ).reference()


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e4])
@pytest.mark.parametrize("name", SETS)
def test_quadratics_with_known_minimisers(name, condition):
    hessian, cost, function = quadratic(3, condition)
    with double_precision():
        # The line search compares values: with curvature 1e4 their last digit hides gradients below about 1e-6.
        tolerance = 1e-9 if condition < 1e3 else 1e-6
        state, trials = minimise(name, function, SETS[name].interior_flat(), tolerance=tolerance)
    assert float(state.stationarity) <= tolerance
    assert not state.failed
    np.testing.assert_allclose(state.x, exact(name, hessian, cost), atol=2e-6)
    assert len(trials) <= (100 if condition < 1e3 else 2000)
    assert all(SETS[name].contains(trial) for trial in trials)


@pytest.mark.parametrize("name", ["box", "simplex"])
@given(
    cost=arrays(np.float64, SIZE, elements=st.floats(-5.0, 5.0, allow_subnormal=False)),
    start=arrays(np.float64, SIZE, elements=st.floats(-1.0, 1.0, allow_subnormal=False)),
)
@settings(deadline=None, derandomize=True, max_examples=15)
def test_projections_are_found_from_anywhere(name, cost, start):
    """min |x - c|^2 / 2 over a set is the projection of c."""
    with double_precision():
        exact = SETS[name].project(cost)
        state, _ = minimise(name, lambda x: (0.5 * np.sum((x - cost) ** 2), x - cost), SETS[name].project(start))
    np.testing.assert_allclose(state.x, exact, atol=1e-8)


def test_the_first_step_is_short():
    with double_precision():
        state, trials = minimise("reals", lambda x: (1e6 * np.sum(x), np.full(SIZE, 1e6)), np.zeros(SIZE), 2)
    assert np.abs(trials[1] - trials[0]).max() == pytest.approx(0.1)
    assert int(state.iteration) == 1


def test_accepted_values_stay_below_the_recent_ones():
    _, _, function = quadratic(5, 1e4)
    with double_precision():
        values, state = [], spectral.start(jnp.ones(SIZE))
        for _ in range(100):
            value, gradient = function(np.asarray(spectral.trial(state)))
            state = machine("reals")(state, jnp.asarray(value), jnp.asarray(gradient), jnp.asarray(True))
            if bool(state.accepted):
                assert not values or value <= max(values[-10:]) + 1e-12
                values.append(value)
    assert len(values) > 30


def test_walls_shorten_the_step():
    """No answer where x_0 > 0.25: trials back off to a quarter each time, and the accepted points stay before it."""
    cost = np.zeros(SIZE)
    cost[0] = -1.0
    boundary = lambda x: x[0] <= 0.25  # noqa: E731
    with double_precision():
        state, trials = minimise("box", lambda x: (cost @ x, cost), np.zeros(SIZE), 60, usable=boundary)
    beyond = [i for i, trial in enumerate(trials) if not boundary(trial)]
    assert beyond
    for i in beyond[:-1]:
        if i + 1 in beyond or i + 1 < len(trials):
            previous = trials[: i + 1]
            accepted = max(trial[0] for trial in previous if boundary(trial))
            np.testing.assert_allclose(trials[i + 1][0] - accepted, 0.25 * (trials[i][0] - accepted), rtol=1e-9)
    assert boundary(np.asarray(state.x))
    assert float(state.x[0]) > 0.249
    assert np.isfinite(float(state.value))
    assert np.isfinite(np.asarray(state.gradient)).all()


def test_fails_when_the_first_evaluation_or_every_step_is_unusable():
    with double_precision():
        nowhere, _ = minimise("box", None, np.zeros(SIZE), 5, usable=lambda x: False)
        assert nowhere.failed
        only_start = lambda x: bool((x == 0.0).all())  # noqa: E731
        stuck, trials = minimise("box", lambda x: (x.sum(), np.ones(SIZE)), np.zeros(SIZE), 200, usable=only_start)
        assert stuck.failed
        assert len(trials) < 100
        np.testing.assert_array_equal(stuck.x, np.zeros(SIZE))
        assert int(stuck.iteration) == 0


def test_a_value_that_is_too_good_from_a_wrong_gradient_still_ends():
    """A gradient of the wrong sign: no step descends, so the line search must give up instead of looping."""
    with double_precision():
        state, trials = minimise("reals", lambda x: (np.sum(x**2), -2.0 * x - 1.0), np.zeros(SIZE), 500)
    assert state.failed
    assert len(trials) < 100


def test_many_starts_at_once():
    """The machine is a pure function of arrays: vmap gives the same steps as one start at a time."""
    hessian, cost, function = quadratic(3, 10.0)
    starts = 0.1 * np.random.default_rng(0).standard_normal((3, SIZE))
    with double_precision():
        step = jax.jit(jax.vmap(lambda s, v, g: machine("ball").__wrapped__(s, v, g, jnp.asarray(True))))
        state = jax.vmap(spectral.start)(jnp.asarray(starts))
        for _ in range(8):
            points = jax.vmap(spectral.trial)(state)
            values = 0.5 * jnp.einsum("ki,ij,kj->k", points, hessian, points) + points @ cost
            state = step(state, values, points @ hessian + cost)
        for i, x in enumerate(starts):
            alone, _ = minimise("ball", function, x, 8, tolerance=0.0)
            np.testing.assert_allclose(state.x[i], alone.x, atol=1e-10)
