"""ALT-PBGD, PBGD-Free, the log-barrier and the sequential convex methods step by step against plain NumPy."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import successors_reference as reference
from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.lagrangian import weights
from blocc.methods import steps_of
from blocc.methods.registry import make_method
from blocc.problem import BilevelProblem
from methods_problems import AFFINE, BLOCC_PROBLEMS, NUMPY_PROBLEMS, blocc_quadratic, numpy_quadratic
from methods_reference import NumpyProblem, State

ITERATIONS = 6
#: The same with a lower level that is convex in x and y together, as VF-iDCA demands.
FULLY_CONVEX = replace(AFFINE, D=AFFINE.D + np.eye(2), P=AFFINE.P + np.eye(2))


def assert_same(points: list[np.ndarray], states: list[State], tolerance: float) -> None:
    assert len(points) == len(states)
    for k, (point, state) in enumerate(zip(points, states, strict=True)):
        expected = np.concatenate([state["x"], state["y"]])
        np.testing.assert_allclose(point, expected, rtol=tolerance, atol=tolerance, err_msg=f"iteration {k}")
    assert np.linalg.norm(points[-1] - points[0]) > 1e-3, "a method that stands still is no test"


@pytest.mark.parametrize("method", ["alt-pbgd", "pbgd-free"])
@pytest.mark.parametrize("name", ["affine, boxed", "mixed", "curved"])
def test_alt_pbgd_and_pbgd_free(name: str, method: str) -> None:
    plain, generator = NUMPY_PROBLEMS[name](), np.random.default_rng(3)
    numbers = {"alpha": 0.04, "step_y": 0.2, "step_dual": 0.3, "gamma": 6.0}
    x, y = plain.P_X(generator.normal(size=plain.n)), plain.P_Y(generator.normal(size=plain.m))
    counts = {"steps": 3, "steps_y": 2}
    states = steps_of(BLOCC_PROBLEMS[name](), make_method(method, **numbers, **counts), x, y, ITERATIONS)
    expected = reference.alt_pbgd(plain, numbers, x, y, ITERATIONS, free=method == "pbgd-free", **counts)
    assert_same([np.concatenate([state.x, state.y]) for state in states], expected, 1e-10)


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("name", ["affine, boxed", pytest.param("curved", marks=pytest.mark.slow)])
def test_log_barrier(name: str, p: float) -> None:
    plain = NUMPY_PROBLEMS[name]()
    numbers = {"alpha": 0.1, "t": 0.05, "p": p}
    x = plain.P_X(np.array([0.2, -0.1])[: plain.n])
    states = steps_of(BLOCC_PROBLEMS[name](), make_method("log-barrier", **numbers), x, np.zeros(plain.m), ITERATIONS)
    assert_same(
        [np.concatenate([s.x, s.y]) for s in states], reference.log_barrier(plain, numbers, x, ITERATIONS), 1e-7
    )
    assert all(int(after.calls) > int(before.calls) for before, after in pairwise(states))


def test_the_barriers_gradient_agrees_with_differences() -> None:
    plain, t, step = NUMPY_PROBLEMS["curved"](), 0.05, 1e-5
    x = np.array([0.1])
    values = [plain.F(x + d, reference.barrier_minimiser(plain, t, x + d)) for d in (step, -step)]
    gradient = reference.barrier_gradient(plain, t, x, reference.barrier_minimiser(plain, t, x))
    np.testing.assert_allclose(gradient, (values[0] - values[1]) / (2.0 * step), rtol=1e-6)


def driven(method: str, problem: BilevelProblem, numbers: dict[str, float], x: Any, y: Any) -> list[np.ndarray]:
    """The points that a method records in a few iterations, without a judge."""
    points: list[np.ndarray] = []
    oracle, flat = InteriorPoint(), problem.flat

    @jax.jit
    def ask(x: jax.Array) -> Any:
        return oracle.solve(flat, x, weights(flat), oracle.cold(flat), jnp.asarray(1e-10))

    run = SimpleNamespace(
        candidates=lambda x, y: [numbers],
        monitor=SimpleNamespace(begin=lambda name, state: state, keep=lambda *a: None, check_time=lambda: None),
        options=SimpleNamespace(max_iterations=4, tolerance=1e-3),
        record=lambda x, y, step: points.append(np.concatenate([x, y])),
        flat=flat,
        ask=ask,
        last=(x, y),
        calls=0,
        trouble="",
    )
    with double_precision():
        make_method(method, **numbers).drive(run, x, y)
    assert not run.trouble
    assert run.calls > 0
    return points


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "further"),
    [pytest.param("vf-idca", {}, marks=pytest.mark.slow), ("ip-dwca", {"gamma": 2.0, "weak": 0.8})],
    ids=["vf-idca", "ip-dwca"],
)
def test_sequential_convex_programs(method: str, further: dict[str, float]) -> None:
    data = FULLY_CONVEX if method == "vf-idca" else AFFINE
    plain: NumpyProblem = numpy_quadratic(data)
    numbers = {"rho": 0.6, "beta": 0.5, "growth": 2.0, "patience": 3.0, "epsilon": 1e-3, **further}
    x, y = np.array([0.3, -0.2]), np.array([0.2, -0.3, 0.1])
    expected = reference.sequential_convex(plain, numbers, x, y, 4)
    assert expected[-1]["beta"] > expected[0]["beta"], "the penalty never grew"
    assert_same(driven(method, blocc_quadratic(data), numbers, x, y), expected, 2e-5)
