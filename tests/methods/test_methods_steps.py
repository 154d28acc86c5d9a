"""The methods step by step against plain NumPy, and the NumPy side against derivatives it does not share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import root

import methods_reference as reference
from blocc._lib.precision import double_precision
from blocc.methods.gam import active_gradient, shortest_combination
from blocc.methods.registry import make_method
from blocc.problem import BilevelProblem
from bvfsm_reference import bvfsm
from methods_problems import BLOCC_PROBLEMS, NUMPY_PROBLEMS
from methods_reference import NumpyProblem
from selections import few

ITERATIONS = 10
SETTINGS = range(2)
TIGHT = 1e-10
Draw = Callable[[np.random.Generator], dict[str, float]]


def value_function_numbers(generator: np.random.Generator) -> dict[str, float]:
    """Of LV-HBA and BiC-GAFFA. Steps are long enough for ten of them to reach bounds and constraints."""
    return {
        "alpha": generator.uniform(0.02, 0.15),
        "beta": generator.uniform(0.05, 0.4),
        "eta": generator.uniform(0.05, 0.3),
        "gamma1": generator.uniform(0.5, 5.0),
        "gamma2": generator.uniform(0.5, 5.0),
        "c0": generator.uniform(0.5, 3.0),
        "p": generator.uniform(0.1, 0.6),
        "r": generator.choice([0.01, 0.04, 10.0]),
    }


def sflcb_numbers(generator: np.random.Generator) -> dict[str, float]:
    return {
        "eta": generator.uniform(0.02, 0.2),
        "delta": generator.uniform(0.05, 1.0),
        "rho1": generator.uniform(0.1, 3.0),
        "rho2": generator.uniform(0.1, 3.0),
    }


def aipod_numbers(generator: np.random.Generator) -> dict[str, float]:
    return {"alpha": generator.uniform(0.05, 0.4), "beta": generator.uniform(0.05, 0.4)}


def e_aipod_numbers(generator: np.random.Generator) -> dict[str, float]:
    return aipod_numbers(generator) | {"prob": generator.uniform(0.2, 0.9)}


def bvfsm_numbers(generator: np.random.Generator) -> dict[str, float]:
    return {
        "alpha": generator.uniform(0.02, 0.3),
        "step_y": generator.uniform(0.02, 0.2),
        "step_z": generator.uniform(0.02, 0.3),
        "mu0": generator.uniform(0.05, 1.0),
        "theta0": generator.uniform(0.05, 1.0),
        "sigma0": generator.uniform(0.05, 1.0),
        "rho0": generator.uniform(0.5, 4.0),
        "shift": generator.uniform(2.0, 5.0),
        "slope": generator.uniform(0.8, 2.0),
    }


def start_of(problem: NumpyProblem, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A point of X x Y that need not satisfy the coupled constraints."""
    return problem.P_X(generator.normal(size=problem.n)), problem.P_Y(generator.normal(size=problem.m))


@cache
def blocc_problem(name: str) -> BilevelProblem:
    return BLOCC_PROBLEMS[name]()


@cache
def compiled_step(method: str, problem: str, counts: tuple[tuple[str, int], ...] = ()) -> Any:
    """One compilation for all settings: the numbers are traced."""
    flat, made = blocc_problem(problem).flat, make_method(method, **dict(counts))
    return jax.jit(lambda numbers, state, k: made.step(flat, numbers, state, k))


def states_of(
    method: str, problem: str, numbers: dict[str, float], x: np.ndarray, y: np.ndarray, **counts: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(x, y) after each iteration, and the coins where the method throws any."""
    made = make_method(method, **numbers, **counts)
    assert made.given == pytest.approx(numbers, rel=0.0, abs=0.0)
    points, coins = [], []
    with double_precision():
        step = compiled_step(method, problem, tuple(sorted(counts.items())))
        state = made.start(blocc_problem(problem).flat, jnp.asarray(x), jnp.asarray(y))
        for k in range(ITERATIONS):
            if hasattr(made, "coins"):
                coins.append(np.asarray(made.coins(state, k, made.given.get("prob"))))
            state = step(made.given, state, k)
            points.append(np.concatenate([np.asarray(state.x), np.asarray(state.y)]))
    return points, coins


def assert_same(points: list[np.ndarray], states: list[reference.State], tolerance: float, moving: bool = True) -> None:
    assert len(points) == len(states) == ITERATIONS
    for k, (point, state) in enumerate(zip(points, states, strict=True)):
        expected = np.concatenate([state["x"], state["y"]])
        error = np.linalg.norm(point - expected) / np.linalg.norm(expected)
        assert error <= tolerance, f"iteration {k}: {point} instead of {expected} (relative error {error:.1e})"
    moves = [np.linalg.norm(after - before) for before, after in pairwise(points)]
    assert not moving or min(moves) > 1e-6, "a method that stands still is no test"


def drawn(problem: str, draw: Draw, seed: int) -> tuple[NumpyProblem, dict[str, float], np.ndarray, np.ndarray]:
    generator = np.random.default_rng([seed, *problem.encode()])
    plain = NUMPY_PROBLEMS[problem]()
    return plain, draw(generator), *start_of(plain, generator)


# --- the methods ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", SETTINGS)
@pytest.mark.parametrize(
    ("problem", "tolerance"),
    few(
        [("affine", 1e-6), ("affine, boxed", 1e-6), ("mixed", 1e-6), ("curved", 1e-6), ("half-space", 1e-9)],
        ("curved", 1e-6),
    ),
)
def test_lv_hba(problem: str, tolerance: float, seed: int) -> None:
    plain, numbers, x, y = drawn(problem, value_function_numbers, seed)
    points, _ = states_of("lv-hba", problem, numbers, x, y)
    assert_same(points, reference.lv_hba(plain, numbers, x, y, ITERATIONS), tolerance)


@pytest.mark.parametrize("seed", SETTINGS)
@pytest.mark.parametrize("problem", list(NUMPY_PROBLEMS))
def test_bic_gaffa(problem: str, seed: int) -> None:
    plain, numbers, x, y = drawn(problem, value_function_numbers, seed)
    points, _ = states_of("bic-gaffa", problem, numbers, x, y)
    assert_same(points, reference.bic_gaffa(plain, numbers, x, y, ITERATIONS), TIGHT)


@pytest.mark.parametrize("seed", SETTINGS)
@pytest.mark.parametrize("problem", ["affine", "affine, boxed", "mixed", "half-space"])
def test_sflcb(problem: str, seed: int) -> None:
    plain, numbers, x, y = drawn(problem, sflcb_numbers, seed)
    points, _ = states_of("sflcb", problem, numbers, x, y)
    assert_same(points, reference.sflcb(plain, numbers, x, y, ITERATIONS), TIGHT)


@pytest.mark.parametrize("seed", SETTINGS)
@pytest.mark.parametrize("steps", [1, 4])
def test_aipod(steps: int, seed: int) -> None:
    plain, numbers, x, y = drawn("equalities", aipod_numbers, seed)
    points, _ = states_of("aipod", "equalities", numbers, x, y, steps=steps)
    assert_same(points, reference.aipod(plain, numbers, x, y, ITERATIONS, steps), TIGHT)


@pytest.mark.parametrize("seed", SETTINGS)
@pytest.mark.parametrize("steps", [1, 4])
def test_e_aipod(steps: int, seed: int) -> None:
    plain, numbers, x, y = drawn("equalities", e_aipod_numbers, seed)
    points, coins = states_of("e-aipod", "equalities", numbers, x, y, steps=steps)
    assert np.shape(coins) == (ITERATIONS, steps)
    assert 0 < np.sum(coins) < np.size(coins)
    assert_same(points, reference.e_aipod(plain, numbers, x, y, coins), TIGHT)


@pytest.mark.parametrize(("hold", "safeguard"), [(1, 0), pytest.param(1, 1, marks=pytest.mark.slow), (4, 1)])
@pytest.mark.parametrize("seed", SETTINGS)
@pytest.mark.parametrize("problem", few(NUMPY_PROBLEMS, "mixed", "curved"))
def test_bvfsm(problem: str, seed: int, hold: int, safeguard: int) -> None:
    plain, numbers, x, y = drawn(problem, bvfsm_numbers, seed)
    if not safeguard:  # plain steps diverge when they are as long
        numbers |= {name: numbers[name] / 8.0 for name in ("alpha", "step_y", "step_z")}
    counts = {"steps_y": 3, "steps_z": 5, "hold": hold, "safeguard": safeguard}
    points, _ = states_of("bvfsm", problem, numbers, x, y, **counts)
    assert_same(points, bvfsm(plain, numbers, x, y, ITERATIONS, **counts), TIGHT)


@pytest.mark.parametrize("seed", SETTINGS)
def test_bvfsm_at_the_floor(seed: int) -> None:
    plain, numbers, x, y = drawn("half-space", bvfsm_numbers, seed)
    numbers |= {"shift": 0.01, "mu0": 0.001, "theta0": 0.01}
    counts = {"steps_y": 3, "steps_z": 40, "hold": 1, "safeguard": 1}
    points, _ = states_of("bvfsm", "half-space", numbers, x, y, **counts)
    states = bvfsm(plain, numbers, x, y, ITERATIONS, **counts)
    assert_same(points, states, TIGHT)


@pytest.mark.parametrize("seed", SETTINGS)
@pytest.mark.parametrize(
    ("problem", "active"),
    [
        pytest.param("affine", [True, False], marks=pytest.mark.slow),
        pytest.param("affine", [True, True], marks=pytest.mark.slow),
        pytest.param("affine", [False, False], marks=pytest.mark.slow),
        ("mixed", [True]),
        pytest.param("mixed", [False], marks=pytest.mark.slow),
        ("curved", [True, False]),
        pytest.param("curved", [False, True], marks=pytest.mark.slow),
        ("curved", [True, True]),
        ("equalities", []),
    ],
)
def test_gam_gradient(problem: str, active: list[bool], seed: int) -> None:
    """The formula is algebraic, so that it can be compared at points that are no lower-level answers."""
    generator = np.random.default_rng(seed)
    plain, mask = NUMPY_PROBLEMS[problem](), np.array(active, dtype=bool)
    x, y = start_of(plain, generator)
    mu = np.where(mask, generator.uniform(0.1, 2.0, size=len(mask)), 0.0)
    with double_precision():
        flat = blocc_problem(problem).flat
        arguments = (jnp.asarray(part) for part in (x, y, mu, np.zeros(flat.n_equality), mask))
        gradient = np.asarray(active_gradient(flat, *arguments))
    np.testing.assert_allclose(gradient, reference.gam_gradient(plain, x, y, mu, mask), rtol=TIGHT, atol=TIGHT)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("count", "size"), [(1, 3), (2, 1), (2, 4), (3, 2), (4, 2), (5, 3)])
def test_the_shortest_combination(count: int, size: int, seed: int) -> None:
    generator = np.random.default_rng([seed, count, size])
    gradients = 10.0 ** generator.integers(-2, 3) * (generator.normal(size=(count, size)) + generator.normal(size=size))
    expected = reference.min_norm_point(list(gradients))
    found = shortest_combination(gradients)
    np.testing.assert_allclose(found, expected, rtol=TIGHT, atol=TIGHT * np.abs(gradients).max())


# --- the reference itself ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("name", few(NUMPY_PROBLEMS, "mixed"))
def test_both_writings_of_a_problem_agree(name: str, seed: int) -> None:
    plain, problem = NUMPY_PROBLEMS[name](), blocc_problem(name)
    generator, flat = np.random.default_rng(seed), problem.flat
    x, y = generator.normal(size=plain.n), generator.normal(size=plain.m)

    def rows(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.concatenate([flat.inequality(a, b), flat.equality(a, b)])

    def rows_of_both(w: jax.Array) -> jax.Array:
        return rows(w[: plain.n], w[plain.n :])

    with double_precision():
        a, b = jnp.asarray(x), jnp.asarray(y)
        pairs = {
            "F": flat.upper(a, b),
            "dxF": jax.grad(flat.upper, 0)(a, b),
            "dyF": jax.grad(flat.upper, 1)(a, b),
            "f": flat.lower(a, b),
            "dxf": jax.grad(flat.lower, 0)(a, b),
            "dyf": jax.grad(flat.lower, 1)(a, b),
            "dyyf": jax.hessian(flat.lower, 1)(a, b),
            "dxyf": jax.jacobian(jax.grad(flat.lower, 0), 1)(a, b),
            "G": rows(a, b),
            "JxG": jax.jacobian(rows, 0)(a, b),
            "JyG": jax.jacobian(rows, 1)(a, b),
            "hessG": jax.hessian(rows_of_both)(jnp.concatenate([a, b])),
        }
        for label, value in pairs.items():
            np.testing.assert_allclose(getattr(plain, label)(x, y), value, rtol=1e-12, atol=1e-12, err_msg=label)
        np.testing.assert_allclose(plain.P_X(3.0 * x), flat.x_set.project_flat(3.0 * a), rtol=1e-15)
        np.testing.assert_allclose(plain.P_Y(3.0 * y), flat.y_set.project_flat(3.0 * b), rtol=1e-15)
    assert (plain.n_inequality, len(plain.G(x, y))) == (flat.n_inequality, flat.n_inequality + flat.n_equality)


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("name", ["affine", "affine, boxed", "mixed", "curved"])
def test_joint_projection_agrees_with_a_conic_solver(name: str, seed: int) -> None:
    plain = NUMPY_PROBLEMS[name]()
    generator = np.random.default_rng(seed)
    point = 2.0 * generator.normal(size=plain.n + plain.m)
    x, y = cp.Variable(plain.n), cp.Variable(plain.m)
    bounds = [
        side(variable, limit)
        for variable, pair in ((x, plain.x_bounds), (y, plain.y_bounds))
        for side, limit in zip((lambda v, low: v >= low, lambda v, high: v <= high), pair, strict=True)
        if np.isfinite(limit).all()
    ]
    if name == "curved":
        rows = [cp.sum_squares(y) - x[0] - 2.0 <= 0, 0.5 * cp.square(x[0] + y[0]) - y[1] - 0.4 <= 0]
    else:
        zero = plain.G(np.zeros(plain.n), np.zeros(plain.m))
        values = plain.JxG(point, point) @ x + plain.JyG(point, point) @ y + zero
        p = plain.n_inequality
        rows = [values[:p] <= 0, *([values[p:] == 0] if p < len(zero) else [])]
    distance = cp.sum_squares(cp.hstack([x, y]) - point)
    cp.Problem(cp.Minimize(distance), bounds + rows).solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12)
    found = reference.project_jointly(plain, point[: plain.n], point[plain.n :])
    np.testing.assert_allclose(np.concatenate(found), np.concatenate([x.value, y.value]), atol=1e-6)


def lower_answer(plain: NumpyProblem, x: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """y and the multipliers that solve the lower level's optimality conditions with these rows at zero."""

    def residual(both: np.ndarray) -> np.ndarray:
        y, multipliers = both[: plain.m], both[plain.m :]
        return np.concatenate([plain.dyf(x, y) + plain.JyG(x, y)[active].T @ multipliers, plain.G(x, y)[active]])

    start = np.concatenate([np.full(plain.m, 0.3), np.ones(active.sum())])
    found = root(residual, start, options={"xtol": 1e-13})
    assert np.abs(found.fun).max() < 1e-11
    return found.x[: plain.m], found.x[plain.m :]


@pytest.mark.parametrize(
    ("name", "active"),
    [("affine", [True, False]), ("mixed", [True, True]), ("curved", [True, False]), ("equalities", [True, True])],
)
def test_implicit_gradients_agree_with_differences(name: str, active: list[bool]) -> None:
    plain, rows, step = NUMPY_PROBLEMS[name](), np.array(active), 1e-5
    x = np.array([0.2, -0.3])[: plain.n]

    def value(at: np.ndarray) -> float:
        return float(plain.F(at, lower_answer(plain, at, rows)[0]))

    differences = [(value(x + step * e) - value(x - step * e)) / (2.0 * step) for e in np.eye(plain.n)]
    y, multipliers = lower_answer(plain, x, rows)
    mu = np.zeros(len(rows))
    mu[rows] = multipliers
    p = plain.n_inequality
    np.testing.assert_allclose(reference.gam_gradient(plain, x, y, mu[:p], rows[:p]), differences, rtol=1e-7)
    if p == 0:
        np.testing.assert_allclose(reference.equality_hypergradient(plain, x, y), differences, rtol=1e-7)


def test_the_settings_reach_every_branch() -> None:
    """Bounds, positive parts and the cut of the multipliers matter somewhere, and not always."""

    def gather(run: Callable[..., list[reference.State]], draw: Draw, problem: str) -> reference.State:
        states = []
        for seed in range(5):
            plain, numbers, x, y = drawn(problem, draw, seed)
            cut = {"r": np.asarray(numbers.get("r", np.inf))}
            states += [state | cut for state in run(plain, numbers, x, y, ITERATIONS)]
        return {key: np.stack([state[key] for state in states]) for key in states[0]}

    def sometimes(condition: np.ndarray) -> bool:
        return bool(0 < np.mean(condition) < 1)

    boxed = NUMPY_PROBLEMS["affine, boxed"]()
    for run in (reference.lv_hba, reference.bic_gaffa):
        values = gather(run, value_function_numbers, "affine, boxed")
        assert sometimes(values["lam"] > 0)
        assert sometimes(values["z"] == values["r"][:, None])
        assert sometimes((values["x"] == boxed.x_bounds[0]) | (values["x"] == boxed.x_bounds[1]))
        assert sometimes((values["y"] == boxed.y_bounds[0]) | (values["y"] == boxed.y_bounds[1]))
    slacks = gather(reference.sflcb, sflcb_numbers, "affine, boxed")
    assert sometimes(slacks["a"] < 0)
    assert sometimes(slacks["s"] < 0)
    free = gather(reference.bic_gaffa, value_function_numbers, "mixed")
    assert sometimes(free["z"][:, 1] < 0)
