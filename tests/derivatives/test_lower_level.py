"""The follower's answer and its derivatives, against closed forms and finite differences of new solves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from blocc import (
    AffineSubspace,
    Ball,
    BilevelProblem,
    Box,
    Halfspace,
    InnerOracle,
    OptionError,
    ProblemError,
    Product,
    Reals,
    Simplex,
    lower_level,
)
from blocc.inner.protocol import InnerCode, finish
from blocc.lagrangian import Multipliers

STEP = 1e-5


def mixed() -> BilevelProblem:
    """All kinds of rows: a curved inequality, an equality, bounds; x and data in every function."""
    return BilevelProblem(
        upper=lambda x, y, d: jnp.sum(y["a"] ** 2) + jnp.sum(x**2),
        lower=lambda x, y, d: (
            jnp.sum((y["a"] - d["target"] * x[0]) ** 2)
            + jnp.exp(y["b"] * d["rate"])
            - y["b"] * x[1]
            + 0.1 * y["b"] ** 2
        ),
        inequality=lambda x, y, d: {"ball": jnp.sum(y["a"] ** 2) - x[1] ** 2 - d["rate"], "far": y["b"] - 9.0 * x[0]},
        equality=lambda x, y, d: y["a"][0] + y["b"] - x[0] * d["target"][1],
        x_set=Reals(2),
        y_set=Product({"a": Box([-5.0, -5.0, 0.3], 5.0), "b": Reals()}),
        data={"target": np.array([2.0, 1.0, -1.0]), "rate": 0.5, "unused": 3},
    )


@pytest.fixture(scope="module")
def problem() -> BilevelProblem:
    return mixed()


def outputs(problem: BilevelProblem, x: Any, data: Any) -> Any:
    found = lower_level(problem, x, data)
    return found.y, found.multipliers, found.value


def difference(function: Any, point: np.ndarray) -> Any:
    """Central differences of a tree of arrays, with the entries of ``point`` last."""
    columns = []
    for index in range(point.size):
        shift = np.zeros(point.size)
        shift[index] = STEP
        shift = shift.reshape(point.shape)
        columns.append(
            jax.tree.map(
                lambda a, b: (np.asarray(a) - np.asarray(b)) / (2 * STEP),
                function(point + shift),
                function(point - shift),
            )
        )
    return jax.tree.map(lambda *parts: np.stack(parts, axis=-1).reshape(parts[0].shape + point.shape), *columns)


def assert_close(found: Any, expected: Any, tolerance: float = 2e-7) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_both_modes_agree_with_finite_differences(problem: BilevelProblem) -> None:
    x, real = np.array([1.0, 1.2]), {name: problem.data[name] for name in ("target", "rate")}
    found = lower_level(problem, x)
    assert found.regular
    assert found.code == 0
    assert found.multipliers.inequality["ball"] > 0.1
    assert found.y["a"][2] == 0.3  # a bound holds it
    with jax.enable_x64(True):
        function = lambda x, real: outputs(problem, x, {**real, "unused": 3})  # noqa: E731
        reverse = jax.jacrev(function, argnums=(0, 1))(x, real)
        forward = jax.jacfwd(function, argnums=(0, 1))(x, real)
    assert_close(reverse, forward, 1e-11)
    per_x = jax.tree.map(lambda pair: pair[0], reverse, is_leaf=lambda node: type(node) is tuple and len(node) == 2)
    assert_close(per_x, difference(lambda at: function(at, real), x))
    for name, number in real.items():
        moved = difference(lambda at, name=name: function(x, {**real, name: at}), number)
        part = jax.tree.map(
            lambda pair, name=name: pair[1][name], reverse, is_leaf=lambda node: type(node) is tuple and len(node) == 2
        )
        assert_close(part, moved)


@pytest.mark.slow
def test_second_derivatives_are_right(problem: BilevelProblem) -> None:
    x = np.array([1.0, 1.2])
    with jax.enable_x64(True):
        slopes = jax.grad(lambda x: lower_level(problem, x).value)
        hessian = jax.hessian(lambda x: lower_level(problem, x).value)(x)
        assert_close(hessian, difference(slopes, x))
        bend = jax.hessian(lambda x: lower_level(problem, x).y["a"][1])(x)
        assert_close(bend, difference(jax.grad(lambda x: lower_level(problem, x).y["a"][1]), x))


@pytest.mark.slow
def test_many_points_at_once(problem: BilevelProblem) -> None:
    points = np.array([[1.0, 1.2], [0.5, 2.0], [2.0, 3.0]])
    with jax.enable_x64(True):
        batch = jax.jit(jax.vmap(lambda x: lower_level(problem, x)))(points)
    assert batch.regular.all()
    for index, x in enumerate(points):
        assert_close(jax.tree.map(lambda leaf, index=index: leaf[index], batch.y), lower_level(problem, x).y, 1e-9)


QUADRATIC = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 3.0]])


@pytest.mark.slow
@pytest.mark.parametrize(
    "y_set",
    [
        pytest.param(Ball(np.zeros(3), 0.5), marks=pytest.mark.slow),
        pytest.param(Simplex(3, total=2.0), marks=pytest.mark.slow),
        pytest.param(Halfspace(np.array([1.0, 2.0, -1.0]), 0.3), marks=pytest.mark.slow),
        pytest.param(AffineSubspace([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]], [1.0, 2.0]), marks=pytest.mark.slow),
        Box([-np.inf, 0.2, 1.0], [0.4, np.inf, 1.0]),
        pytest.param(Product((Ball(np.zeros(2), 0.5), Box(0.0, 0.1, shape=1))), marks=pytest.mark.slow),
    ],
    ids=lambda y_set: type(y_set).__name__,
)
def test_simple_sets(y_set: Any) -> None:
    flat = lambda y: jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(y)])  # noqa: E731
    problem = BilevelProblem(
        upper=lambda x, y: x[0] * flat(y)[0],
        lower=lambda x, y: 0.5 * flat(y) @ QUADRATIC @ flat(y) - flat(y) @ jnp.stack([x[0], x[1], x[0] * x[1]]),
        x_set=Reals(2),
        y_set=y_set,
    )
    x = np.array([1.5, 1.1])
    with jax.enable_x64(True):

        def function(x: Any) -> Any:
            found = lower_level(problem, x)
            return flat(found.y), found.value

        assert lower_level(problem, x).regular
        assert_close(jax.jacrev(function)(x), difference(function, x))


def simple(**changes: Any) -> BilevelProblem:
    """y = x by default."""
    parts: dict[str, Any] = {
        "upper": lambda x, y: x**2 + y**2,
        "lower": lambda x, y: (y - x) ** 2,
        "x_set": Reals(),
        "y_set": Reals(),
    }
    return BilevelProblem(**(parts | changes))


@pytest.mark.parametrize(
    ("problem", "x", "slope"),
    [
        (simple(inequality=lambda x, y: y - 1.0), 1.0, 0.0),  # touched without a price
        pytest.param(simple(y_set=Box(-1.0, 1.0)), 1.0, 0.0, marks=pytest.mark.slow),  # the same at a bound
        pytest.param(
            simple(inequality=lambda x, y: jnp.stack([y - x, 2.0 * (y - x)]), lower=lambda x, y: (y - 3.0) ** 2),
            1.0,
            -4.0,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            simple(lower=lambda x, y: (y[0] - x) ** 2, y_set=Reals(2), upper=lambda x, y: x * y[0]),
            1.0,
            0.0,
            marks=pytest.mark.slow,
        ),  # flat
    ],
    ids=["no price", "no price at a bound", "dependent rows", "no curvature"],
)
def test_where_there_is_no_derivative(problem: BilevelProblem, x: float, slope: float) -> None:
    found = lower_level(problem, x)
    assert not found.regular
    assert found.code == 0
    assert np.ravel(found.y)[0] == pytest.approx(1.0, abs=1e-5)
    with jax.enable_x64(True):

        def function(x: Any) -> Any:
            found = lower_level(problem, x)
            return found.y, found.value

        for mode in (jax.jacrev, jax.jacfwd):
            of_y, of_value = mode(function)(x)
            assert np.isnan(of_y).all()
            assert of_value == pytest.approx(slope, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "x"),
    [
        pytest.param(
            simple(lower=lambda x, y: x * y, y_set=Box(0.0, 1.0)), 0.0, marks=pytest.mark.slow
        ),  # min(x, 0): all y are answers
        (simple(lower=lambda x, y: (y - 2.0) ** 2, inequality=lambda x, y: jnp.stack([y - x, y - 2.0 * x + 1.0])), 1.0),
        pytest.param(
            simple(  # a vertex of the plane held by three rows, one of which stays
                upper=lambda x, y: x * y[0],
                lower=lambda x, y: -y[0] - y[1],
                inequality=lambda x, y: jnp.stack([y[0] - x, y[1] - x, y[0] + y[1] - 2.0]),
                y_set=Reals(2),
            ),
            1.0,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["many answers", "two prices", "vertex"],
)
def test_kinks_of_the_value_have_no_derivative(problem: BilevelProblem, x: float) -> None:
    with jax.enable_x64(True):
        value = lambda x: lower_level(problem, x).value  # noqa: E731
        assert np.isnan([jax.grad(value)(x), jax.jvp(value, (x,), (1.0,))[1]]).all()
        assert np.isfinite([value(x), jax.grad(value)(x - 0.1), jax.grad(value)(x + 0.1)]).all()


@pytest.mark.slow
def test_the_value_may_have_derivatives_in_some_numbers_only() -> None:
    """v = min(slope, 0) + level + times goal x: a kink in slope at 0, none in the others."""
    problem = simple(
        lower=lambda x, y, d: d["slope"] * y + d["level"] + d["times"] * d["goal"] * x,
        upper=lambda x, y, d: x * y,
        y_set=Box(0.0, 1.0),
        data={"slope": 0.0, "level": 2.0, "times": 3, "goal": np.array(0.5)},
    )
    with jax.enable_x64(True):
        value = lambda real: lower_level(problem, 2.0, {**real, "times": 3}).value  # noqa: E731
        real = {name: problem.data[name] for name in ("slope", "level", "goal")}
        for mode in (jax.jacrev, jax.jacfwd):
            found = mode(value)(real)
            assert np.isnan(found["slope"])
            assert (found["level"], found["goal"]) == (pytest.approx(1.0), pytest.approx(6.0))


def test_infeasible_followers_are_told_apart() -> None:
    """Rows that no y in a box satisfies, by HiGHS: the code is always 2, however the oracle got stuck."""
    generator = np.random.default_rng(0)
    draw = lambda: {  # noqa: E731
        "rows": generator.standard_normal((3, 4)),
        "right": generator.uniform(-3.0, -0.5, 3),
        "normal": generator.standard_normal((1, 4)),
    }
    problem = BilevelProblem(
        upper=lambda x, y, d: x + jnp.sum(y),
        lower=lambda x, y, d: 0.5 * y @ y + x * jnp.sum(y),
        inequality=lambda x, y, d: d["rows"] @ y - d["right"],
        equality=lambda x, y, d: d["normal"] @ y - 0.5,
        x_set=Box(-1.0, 1.0),
        y_set=Box(-1.0, 1.0, shape=4),
        data=draw(),
    )
    codes = {True: set(), False: set()}
    for _ in range(60):
        data = draw()
        found = linprog(np.zeros(4), data["rows"], data["right"], data["normal"], [0.5], bounds=(-1.0, 1.0))
        codes[found.status == 2].add(int(lower_level(problem, 0.3, data).code))
    assert codes == {True: {int(InnerCode.INFEASIBLE)}, False: {int(InnerCode.CONVERGED)}}


def test_no_answer_is_not_a_number() -> None:
    problem = simple(inequality=lambda x, y: jnp.stack([y - 1.0, 2.0 * x - 1.0 - y]))
    found = lower_level(problem, 3.0)
    assert found.code == InnerCode.INFEASIBLE
    assert np.isnan([found.y, found.value, *found.multipliers.inequality]).all()
    assert lower_level(problem, 0.5).y == pytest.approx(0.5)
    assert lower_level(problem, 0.3).regular


@pytest.mark.slow
def test_a_vertex_moves_with_its_rows() -> None:
    """A linear follower has no curvature, and needs none where its rows hold it in every direction."""
    problem = simple(
        upper=lambda x, y: x * y[0],
        lower=lambda x, y: -y[0] - y[1],
        inequality=lambda x, y: jnp.stack([y[0] - x, y[0] + 2.0 * y[1] - x**2]),
        y_set=Reals(2),
    )
    with jax.enable_x64(True):
        assert_close(jax.jacfwd(lambda x: lower_level(problem, x).y)(3.0), np.array([1.0, 2.5]), 1e-9)


def test_a_problems_own_oracle_is_used() -> None:
    class Known(InnerOracle):
        def cold(self, flat: Any) -> Any:
            return ()

        def solve(self, flat: Any, x: Any, weights: Any, warm: Any, tolerance: Any) -> Any:
            count, code = jnp.asarray(1), jnp.asarray(0)
            nothing = Multipliers(jnp.zeros(0), jnp.zeros(0))
            return finish(flat, x, jnp.clip(x, -1.0, 1.0), nothing, weights, iterations=count, code=code, warm=())

    problem = simple(y_set=Box(-1.0, 1.0), oracle=Known())
    with jax.enable_x64(True):
        slope = jax.grad(lambda x: lower_level(problem, x).y)
        assert [float(slope(x)) for x in (0.5, 2.0)] == [1.0, 0.0]


def test_misuse_is_explained() -> None:
    problem = simple()
    with pytest.raises(OptionError, match="64-bit floats"):
        jax.grad(lambda x: lower_level(problem, x).value)(1.0)
    with pytest.raises(ProblemError, match=r"x has shape \(2,\), expected \(\)"):
        lower_level(problem, np.zeros(2))
    with pytest.raises(ProblemError, match="x must hold real numbers, got 'a'"):
        lower_level(problem, "a")
    with pytest.raises(ProblemError, match=r"x has the structure \{'a': number\}, expected number"):
        lower_level(problem, {"a": 1.0})
    with pytest.raises(ProblemError, match="built with data"):
        lower_level(problem, 1.0, {"a": 1.0})


KINKED = simple(lower=lambda x, y: 0.5 * (y - 2.0 * x) ** 2 + jnp.abs(y))


@pytest.mark.slow
@pytest.mark.parametrize(("x", "y", "slope"), [(1.0, 1.0, 2.0), (0.2, 0.0, 0.0)], ids=["beside", "at"])
def test_convex_kinks_of_the_follower(x: float, y: float, slope: float) -> None:
    """Soft thresholding: y = sign(2x) max(|2x| - 1, 0)."""
    found = lower_level(KINKED, x)
    assert found.code == 0
    assert found.regular
    assert float(found.y) == pytest.approx(y, abs=1e-6)
    with jax.enable_x64(True):
        of_y, of_value = jax.jacrev(lambda x: lower_level(KINKED, x)[::2][:2])(x)
    assert float(of_y) == pytest.approx(slope, abs=1e-8)
    assert float(of_value) == pytest.approx(-2.0 * (y - 2.0 * x), abs=1e-5)


def test_an_answer_that_leaves_a_kink_has_no_derivative() -> None:
    assert not lower_level(KINKED, 0.5).regular
    with jax.enable_x64(True):
        assert np.isnan(jax.grad(lambda x: lower_level(KINKED, x).y)(0.5))


def test_kinks_that_bend_down_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"kinks.*lower \(abs\)"):
        lower_level(simple(lower=lambda x, y: (y - x) ** 2 - 0.1 * jnp.abs(y)), 0.0)


def test_what_is_no_problem_and_no_point_is_refused() -> None:
    with pytest.raises(OptionError, match="problem must be a BilevelProblem, got NoneType"):
        lower_level(None, 1.0)  # type: ignore[arg-type]
    goals = {"upper": lambda x, y: y, "lower": lambda x, y: (y - x) ** 2}
    problem = BilevelProblem(**goals, x_set=Box(0.0, 1.0), y_set=Reals())
    with pytest.raises(ProblemError, match="x must be finite"):
        lower_level(problem, np.nan)
