"""Mini-batches: how they are drawn, the steps against NumPy, known answers, and what is claimed at the end."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from blocc import Batches, BilevelProblem, Box, OptionError, ProblemError, Product, Reals, Result, Status, solve, verify
from blocc.methods import Sampled, steps_of
from blocc.methods.stochastic import Stochastic

N, M, D = 60, 24, 3


class _State(NamedTuple):
    x: jax.Array
    y: jax.Array


def _samples() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    truth = generator.standard_normal(D)
    A, B = generator.standard_normal((N, D)), generator.standard_normal((M, D))
    t = A @ truth + 0.5 * generator.standard_normal(N)
    return {"A": A, "t": t, "B": B, "s": B @ truth + 0.5 * generator.standard_normal(M)}


DATA = _samples()
LENGTHS = {"alpha": 0.05, "eta": 0.1, "beta": 0.3, "gamma": 4.0, "growth": 0.25, "horizon": 0.0}


def upper(x: Any, y: Any, d: Any) -> Any:
    return 0.5 * jnp.mean((d["B"] @ y - d["s"]) ** 2) + 0.05 * jnp.sum(x**2)


def ridge(x: Any, y: Any, d: Any) -> Any:
    return 0.5 * jnp.mean((d["A"] @ y - d["t"]) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


@pytest.fixture(scope="module")
def plain() -> BilevelProblem:
    return BilevelProblem(upper=upper, lower=ridge, x_set=Box(-np.ones(D), np.ones(D)), y_set=Reals(D), data=DATA)


@pytest.fixture(scope="module")
def coupled() -> BilevelProblem:
    """A budget on the follower's weights that the leader sets, and a difference that it fixes."""
    return BilevelProblem(
        upper=upper,
        lower=lambda x, y, d: 0.5 * jnp.mean((d["A"] @ y - d["t"]) ** 2) + 0.05 * jnp.sum(y**2),
        inequality=lambda x, y, d: jnp.sum(y) - x[0],
        equality=lambda x, y, d: y[0] - y[1] - x[1],
        x_set=Box(-np.ones(2), np.ones(2)),
        y_set=Box(-2 * np.ones(D), 2 * np.ones(D)),
        data=DATA,
    )


# --- drawing ---------------------------------------------------------------------------------------------------------
def _epoch(batches: Batches, epoch: int) -> list[Any]:
    plan, key = batches.plan, jax.random.key(batches.seed)
    with jax.enable_x64(True):
        orders = plan.order(key, epoch)
        return [jax.tree.map(np.asarray, plan.take(batches.data, orders, step)) for step in range(plan.steps)]


def test_an_epoch_shows_every_sample_once_and_pairs_stay_pairs() -> None:
    data = {"a": np.arange(12), "b": np.arange(12) * 10, "short": np.arange(5), "tiny": np.arange(3.0), "rate": 0.5}
    batches = Batches(data, size=4, seed=3)
    first, second = _epoch(batches, 0), _epoch(batches, 1)
    seen = np.concatenate([part["a"] for part in first])
    assert sorted(seen) == list(range(12))
    assert list(seen) != list(np.concatenate([part["a"] for part in second]))
    for part in first:
        np.testing.assert_array_equal(part["b"], 10 * part["a"])
        np.testing.assert_array_equal(part["tiny"], data["tiny"])  # fewer than a batch: all of them
        assert float(part["rate"]) == 0.5
        assert part["short"].shape == (4,)
    short = np.concatenate([part["short"] for part in first])
    assert sorted(short[:5]) == list(range(5))  # begins anew when it is through
    assert [list(part["a"]) for part in _epoch(batches, 0)] == [list(part["a"]) for part in first]


def test_what_is_whole_stays_whole() -> None:
    data = {"a": np.arange(12.0), "matrix": np.eye(6)}
    assert _epoch(Batches(data, size=4, whole=("matrix",)), 0)[0]["matrix"].shape == (6, 6)
    assert _epoch(Batches(data, size=4), 0)[0]["matrix"].shape == (4, 6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": 0}, "size must be a whole number, at least 1"),
        ({"size": 2.5}, "size must be a whole number"),
        ({"size": 61}, "size must be at most 60"),
        ({"seed": -1}, "seed must be a whole number, at least 0"),
        ({"whole": ("C",)}, "whole names 'C'"),
        ({"data": {"a": 1.0}}, "no array whose first axis counts samples"),
    ],
)
def test_bad_batches_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Batches(**{"data": DATA, "size": 10, **change})


# --- the steps -------------------------------------------------------------------------------------------------------
def _ridge_slope(d: Any, v: np.ndarray) -> np.ndarray:
    return d["A"].T @ (d["A"] @ v - d["t"]) / len(d["t"]) + 0.1 * v


def _rows(x: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.array([v.sum() - x[0], v[0] - v[1] - x[1]])


def _numpy_steps(count: int, size: int | None, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """The scheme of the module's head in plain NumPy, for ``coupled``."""
    x, y = np.array([0.3, -0.2]), np.array([0.5, -0.5, 0.25])
    z, m_y, m_z = y.copy(), np.zeros(2), np.zeros(2)
    J_x, J_y = np.array([[-1.0, 0.0], [0.0, -1.0]]), np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0]])
    alpha, eta, beta = (LENGTHS[name] for name in ("alpha", "eta", "beta"))
    batches = Batches.all(DATA) if size is None else Batches(DATA, size=size, seed=seed)
    period = batches.plan.steps
    drawing, _ = jax.random.split(jax.random.key(seed))
    states = []
    for k in range(count):
        orders = batches.plan.order(drawing, k // period)
        d = {name: np.asarray(part) for name, part in batches.plan.take(DATA, orders, k % period).items()}
        gamma = LENGTHS["gamma"] * (1.0 + k // period) ** LENGTHS["growth"]
        f_y = d["B"].T @ (d["B"] @ y - d["s"]) / len(d["s"])
        g_at = partial(_ridge_slope, d)
        c_at = partial(_rows, x)
        new_y = np.clip(y - eta * (f_y / gamma + g_at(y) + J_y.T @ m_y), -2, 2)
        new_z = np.clip(z - eta * (g_at(z) + J_y.T @ m_z), -2, 2)
        slope = 0.1 * x + gamma * J_x.T @ (m_y - m_z)
        m_y = m_y + beta * (2 * c_at(new_y) - c_at(y))
        m_z = m_z + beta * (2 * c_at(new_z) - c_at(z))
        m_y[0], m_z[0] = max(m_y[0], 0.0), max(m_z[0], 0.0)
        x, y, z = np.clip(x - alpha * slope, -1, 1), new_y, new_z
        states.append({"x": x, "y": y, "z": z, "prices_y": m_y.copy(), "prices_z": m_z.copy()})
    return states


@pytest.mark.parametrize("size", [None, 10])
def test_every_step_is_that_of_the_formulas(coupled: BilevelProblem, size: int | None) -> None:
    with jax.enable_x64(True):
        expected = _numpy_steps(25, size, seed=7 if size else 0)
    batches = None if size is None else Batches(DATA, size=size, seed=7)
    method = Stochastic(LENGTHS, batches=batches)
    found = steps_of(coupled, method, np.array([0.3, -0.2]), np.array([0.5, -0.5, 0.25]), 25)
    for one, other in zip(found, expected, strict=True):
        for name, value in other.items():
            np.testing.assert_allclose(getattr(one, name), value, rtol=1e-11, atol=1e-12, err_msg=name)


def test_sampled_steps_are_the_full_one_on_average(plain: BilevelProblem) -> None:
    data = {**DATA, "B": np.tile(DATA["B"], (5, 1))[:N], "s": np.tile(DATA["s"], 5)[:N]}
    problem = plain.__class__(upper=upper, lower=ridge, x_set=plain.x_set, y_set=plain.y_set, data=data)
    x, y = np.array([0.1, 0.2, -0.3]), np.array([1.0, 0.5, -1.0])
    full = steps_of(problem, Stochastic(LENGTHS), x, y, 1)[0]
    batches = Batches(data, size=20, seed=1)
    method = Stochastic(LENGTHS, batches=batches)
    moved = []
    with jax.enable_x64(True):
        drawing, _ = jax.random.split(jax.random.key(1))
        for step in range(3):
            flat = problem.flat.bind(batches.plan.take(data, batches.plan.order(drawing, 0), step))
            moved.append(method.step(flat, LENGTHS, method.start(flat, jnp.asarray(x), jnp.asarray(y)), 0))
    for name in ("x", "y", "z"):
        np.testing.assert_allclose(np.mean([getattr(s, name) for s in moved], axis=0), getattr(full, name), atol=1e-14)


def test_the_step_of_x_follows_the_slope_of_the_penalty_function(coupled: BilevelProblem) -> None:
    """At both saddle points the step of x is alpha times the gradient of F_gamma, here by differences of values."""
    numbers = {**LENGTHS, "alpha": 1e-9, "growth": 0.0}
    gamma, h = numbers["gamma"], 1e-3

    def settled(x: np.ndarray) -> Any:
        return steps_of(coupled, Stochastic({**numbers, "alpha": 0.0}), x, np.zeros(D), 4000)[-1]

    def penalty(x: np.ndarray) -> float:
        state, (f, g) = settled(x), (lambda y: upper(x, y, DATA), lambda y: coupled.lower(x, y, DATA))
        return float(f(state.y) + gamma * (g(state.y) - g(state.z)))

    at = np.array([0.2, 0.1])
    state = settled(at)
    with jax.enable_x64(True):
        slopes = [(penalty(at + h * e) - penalty(at - h * e)) / (2 * h) for e in np.eye(2)]
        moved = Stochastic(numbers).step(coupled.flat, numbers, jax.tree.map(jnp.asarray, state), 0)
    np.testing.assert_allclose((state.x - np.asarray(moved.x)) / 1e-9, slopes, rtol=1e-5, atol=1e-5)


def test_an_optimiser_of_optax_takes_the_place_of_the_length(plain: BilevelProblem) -> None:
    adam = optax.adam(0.05)
    with pytest.raises(OptionError, match="either alpha or the optimiser of 'x'"):
        Stochastic(LENGTHS, optimisers={"x": adam})
    run = lambda **own: solve(plain, 0.5 * np.ones(D), method="stochastic", max_iterations=30, gamma=4.0, **own)  # noqa: E731
    by_object, by_number = run(optimisers={"x": adam}), run(optimisers={"x": 0.05})
    np.testing.assert_array_equal(by_object.x, by_number.x)
    assert not np.array_equal(run().x, by_number.x)
    first = run(optimisers={"x": adam}, judge_every=1).history.step[0]
    np.testing.assert_allclose(first, 0.05 * np.sqrt(D), rtol=1e-6)  # Adam begins with its rate


def test_without_optax_the_extra_is_named(plain: BilevelProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(OptionError, match=r"needs optax: pip install 'blocc\[stochastic\]'"):
        solve(plain, method="stochastic", optimisers={"x": 1e-2})
    assert solve(plain, method="stochastic", max_iterations=10).counts["iterations"] == 10


# --- answers ---------------------------------------------------------------------------------------------------------
def test_all_data_reach_the_known_answer() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: (x - 3) ** 2 + (y - 1) ** 2,
        lower=lambda x, y: (y - 2 * x) ** 2,
        inequality=lambda x, y: y - x,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
    )
    result = solve(problem, 0.5, method="stochastic", max_iterations=5000)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose([result.x, result.y], 2.0, atol=1e-3)
    assert verify(problem, result, tolerance=1e-3).ok


def test_batches_come_close_and_one_definition_serves_all(plain: BilevelProblem) -> None:
    exact = solve(plain)
    result = solve(plain, method="stochastic", batches=Batches(DATA, size=12), epochs=400)
    assert result.upper_value <= exact.upper_value + 1e-3
    assert result.counts["iterations"] == 400 * (N // 12)
    np.testing.assert_allclose(result.y, solve_follower(result.x), atol=1e-6)  # the exact answer, not the method's own
    everything = solve(plain, method="stochastic", batches=Batches.all(DATA), max_iterations=50)
    np.testing.assert_array_equal(everything.x, solve(plain, method="stochastic", max_iterations=50).x)
    assert solve(plain, batches=None).success


def solve_follower(x: np.ndarray) -> np.ndarray:
    return np.linalg.solve(DATA["A"].T @ DATA["A"] / N + np.diag(np.exp(x)), DATA["A"].T @ DATA["t"] / N)


def test_coupled_rows_and_single_precision(coupled: BilevelProblem) -> None:
    exact = solve(coupled)
    numbers = {"method": "stochastic", "batches": Batches(DATA, size=12, seed=2), "epochs": 300}
    for precision in ("double", "single"):
        result = solve(coupled, precision=precision, **numbers)
        assert result.upper_value <= exact.upper_value + 2e-3, precision
        assert result.certificate.exact
    narrow = steps_of(coupled, Stochastic(LENGTHS, precision="single"), np.zeros(2), np.ones(D), 5)[-1]
    wide = steps_of(coupled, Stochastic(LENGTHS), np.zeros(2), np.ones(D), 5)[-1]
    for one, other in zip(narrow[:5], wide[:5], strict=True):
        assert (one.dtype, other.dtype) == (np.float32, np.float64)
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_network_is_said_to_be_stationary_and_no_more(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((80, 2))
    data = {"X": inputs, "t": np.sin(inputs[:, 0]), "V": inputs[::2], "v": np.sin(inputs[::2, 0])}

    def net(w: Any, inputs: Any) -> Any:
        return jnp.tanh(inputs @ w["in"]) @ w["out"]

    problem = BilevelProblem(
        upper=lambda x, w, d: jnp.mean((net(w, d["V"]) - d["v"]) ** 2),
        lower=lambda x, w, d: (
            jnp.mean((net(w, d["X"]) - d["t"]) ** 2) + jnp.exp(x) * sum(jnp.sum(part**2) for part in w.values())
        ),
        x_set=Box(-6.0, 0.0),
        y_set=Product({"in": Reals((2, 4)), "out": Reals(4)}),
        data=data,
    )
    start = {"in": 0.5 * generator.standard_normal((2, 4)), "out": 0.5 * generator.standard_normal(4)}
    options: dict[str, Any] = {"method": "stochastic", "y0": start, "tolerance": 1e-2}
    ended = solve(problem, -3.0, max_iterations=20_000, **options)
    assert ended.status is Status.STATIONARY, ended.message
    assert not ended.success
    checked = verify(problem, ended)
    assert checked.ok, checked
    assert not checked.claims_success
    assert not verify(problem, replace(ended, upper_value=0.9 * ended.upper_value)).ok
    again = Result.load(ended.save(tmp_path / "network"))
    assert again.status is Status.STATIONARY
    np.testing.assert_array_equal(again.y["in"], ended.y["in"])
    assert "lower(x, y) is not convex in y" in ended.message
    assert set(ended.y) == {"in", "out"}
    assert ended.upper_value < 0.1
    short = solve(problem, -3.0, batches=Batches(data, size=20), epochs=2, **options)
    assert short.status is Status.ITERATION_LIMIT
    slope = jax.grad(lambda w: problem.lower(ended.x, w, data))(ended.y)
    largest = max(float(jnp.max(jnp.abs(part))) for part in jax.tree.leaves(slope))
    np.testing.assert_allclose(ended.certificate.stationarity, largest, rtol=1e-3, atol=1e-6)


def test_a_large_network_is_not_taken_for_convex() -> None:
    """Its values along random directions look convex; its curvatures do not. A large convex follower is none."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((60, 20))
    data = {"X": inputs, "t": np.sign(inputs[:, 0] * inputs[:, 1])}
    shape = {"in": (20, 40), "out": (40,)}

    def problem(net: Any) -> BilevelProblem:
        def loss(w: Any, d: Any) -> Any:
            return jnp.mean(jnp.logaddexp(0.0, -d["t"] * net(w, d["X"])))

        return BilevelProblem(
            upper=lambda x, w, d: loss(w, d),
            lower=lambda x, w, d: loss(w, d) + jnp.exp(x) * sum(jnp.sum(part**2) for part in w.values()),
            x_set=Box(-6.0, 0.0),
            y_set=Product({name: Reals(part) for name, part in shape.items()}),
            data=data,
        )

    start = {name: generator.standard_normal(part) / np.sqrt(part[-1]) for name, part in shape.items()}
    options: dict[str, Any] = {"method": "stochastic", "y0": start, "batches": Batches(data, size=20), "epochs": 5}
    ended = solve(problem(lambda w, X: jnp.maximum(X @ w["in"], 0.0) @ w["out"]), -3.0, **options)
    assert "lower(x, y) is not convex in y" in ended.message
    options["tolerance"] = 0.09  # so loose that any stationary point will do
    own = solve(problem(lambda w, X: jnp.maximum(X @ w["in"], 0.0) @ w["out"]), -3.0, **{**options, "method": Noisy})
    assert own.status is Status.NOT_CONVEX
    linear = solve(problem(lambda w, X: X @ w["in"] @ np.ones(40) + jnp.sum(w["out"])), -3.0, **options)
    assert linear.certificate.exact


# --- around it -------------------------------------------------------------------------------------------------------
def test_a_run_goes_on_bit_by_bit(coupled: BilevelProblem, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "method": "stochastic",
        "batches": Batches(DATA, size=10, seed=4),
        "epochs": 60,
        "judge_every": 7,  # rows in the middle of an epoch
        "optimisers": {"x": 1e-2},
    }
    for stop, options["precision"] in ((1, "double"), (5, "single")):
        undisturbed = solve(coupled, **options)
        file = tmp_path / f"{stop}.npz"
        stopped = solve(coupled, callback=lambda s, stop=stop: s.iteration >= stop, checkpoint=file, **options)
        assert stopped.status is Status.STOPPED
        resumed = solve(coupled, resume=file, **options)
        for name in ("x", "y", "y_penalty"):
            np.testing.assert_array_equal(getattr(resumed, name), getattr(undisturbed, name))
        for column in set(undisturbed.history.columns) - {"time"}:
            np.testing.assert_array_equal(getattr(resumed.history, column), getattr(undisturbed.history, column))
    for change in ({"batches": Batches(DATA, size=10, seed=5)}, {"optimisers": {"x": 2e-2}}, {"y0": np.ones(D)}):
        with pytest.raises(ValueError, match="belongs to a run with"):
            solve(coupled, resume=file, **{**options, **change})


class Noisy(Sampled):
    """Descends f(x, y) along one gradient step of the follower, with noise of its own."""

    name = "noisy"
    names = ("alpha",)

    def automatic(self, size: Any) -> list[dict[str, float]]:
        return [{"alpha": 0.05, **self.given}]

    def start(self, flat: Any, x: Any, y: Any) -> _State:
        return _State(x, y)

    def step(self, flat: Any, numbers: Any, state: Any, k: Any, key: Any = None) -> _State:
        y = state.y - 0.3 * jax.grad(flat.lower, argnums=1)(state.x, state.y)
        slope = jax.grad(flat.upper, argnums=0)(state.x, y) + 1e-3 * jax.random.normal(key, state.x.shape)
        return _State(flat.x_set.project_flat(state.x - numbers["alpha"] * slope), y)


def test_a_method_of_ones_own_gets_a_batch_and_a_key(plain: BilevelProblem) -> None:
    run = lambda seed, size: solve(  # noqa: E731
        plain, np.ones(D), method=Noisy, batches=Batches(DATA, size=size, seed=seed), epochs=50, judge_every=10
    )
    one = run(0, 12)
    np.testing.assert_array_equal(one.x, run(0, 12).x)
    assert not np.array_equal(one.x, run(1, 12).x)
    assert one.counts["iterations"] == 250
    assert not np.array_equal(run(0, N).x, run(1, N).x)  # all data: the key alone differs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "blocc", "batches": Batches(DATA, size=5)}, "batches is for method='stochastic'"),
        ({"method": "sflcb", "batches": Batches(DATA, size=5)}, "batches is for method='stochastic'"),
        ({"batches": 5}, "batches must be a Batches"),
        ({"batches": Batches({**DATA, "t": DATA["t"] + 1}, size=5)}, "batches are of other data"),
        ({"precision": "half"}, "precision must be 'double' or 'single'"),
        ({"optimisers": {"w": 1e-2}}, "optimisers are for 'x', 'y', 'multipliers', got 'w'"),
        ({"optimisers": {"x": "adam"}}, "must be an optimiser of optax"),
        ({"optimisers": 3}, "optimisers must be a dictionary"),
        ({"epochs": -1}, "epochs must be a whole number"),
        ({"y0": np.ones(D + 1)}, "y0 has shape"),
        ({"alhpa": 1.0}, "unknown option 'alhpa'"),
    ],
)
def test_bad_options_are_named(plain: BilevelProblem, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        solve(plain, **{"method": "stochastic", **options})


def test_a_problem_without_data_and_rows_that_are_drawn_are_named(plain: BilevelProblem) -> None:
    bare = BilevelProblem(upper=lambda x, y: y**2, lower=lambda x, y: (y - x) ** 2, x_set=Box(0.0, 1.0), y_set=Reals())
    with pytest.raises(OptionError, match="needs a problem with data"):
        solve(bare, method="stochastic", batches=Batches(DATA, size=5))
    rows = BilevelProblem(
        upper=upper,
        lower=ridge,
        inequality=lambda x, y, d: d["B"] @ y - 9.0,
        x_set=plain.x_set,
        y_set=plain.y_set,
        data=DATA,
    )
    with pytest.raises(ProblemError, match=r"returns 5 rows on a batch and 24 on all data"):
        solve(rows, method="stochastic", batches=Batches(DATA, size=5))


def test_sums_in_the_place_of_means_are_named(plain: BilevelProblem) -> None:
    sums = BilevelProblem(
        upper=upper,
        lower=lambda x, y, d: jnp.sum((d["A"] @ y - d["t"]) ** 2),
        x_set=plain.x_set,
        y_set=plain.y_set,
        data=DATA,
    )
    with pytest.warns(UserWarning, match=r"lower is .* on average over batches.*jnp\.mean"):
        solve(sums, method="stochastic", batches=Batches(DATA, size=12), epochs=1)


def test_drawing_inside_a_function_is_refused_and_the_page_is_named() -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(ProblemError, match=r"blocc\.Batches.*docs/methods\.md#mini-batches"):
        BilevelProblem(
            upper=lambda x, y: y**2,
            lower=lambda x, y: (y - x * generator.standard_normal()) ** 2,
            x_set=Box(0.0, 1.0),
            y_set=Reals(),
        )
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    assert "\n## Mini-batches\n" in page
