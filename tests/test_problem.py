"""A problem checks its parts when it is built, and every message names the part that does not fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import solve
from blocc._lib.compiled import compile_seconds
from blocc._lib.precision import double_precision
from blocc.errors import ProblemError
from blocc.problem import BilevelProblem
from blocc.sets import Box, Product, Reals
from blocc.simple_sets import Ball, Simplex


def build(**changes):
    parts = {
        "upper": lambda x, y: jnp.sum(x**2) + jnp.sum(y),
        "lower": lambda x, y: jnp.sum((y - x) ** 2),
        "x_set": Box(0.0, 1.0, shape=2),
        "y_set": Reals(2),
    }
    return BilevelProblem(**{**parts, **changes})


def fails(x, y):
    raise KeyError("no such key")


FUNCTIONS = ("upper", "lower", "inequality", "equality", "upper_inequality")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_misfits_of_every_function_are_named(name):
    with pytest.raises(
        ProblemError, match=rf"{name}\(x, y\) fails for x of shape \(2,\), y of shape \(2,\).*no such key"
    ):
        build(**{name: fails})
    with pytest.raises(ProblemError, match=rf"{name}\(x, y\) cannot be traced.*jax\.numpy"):
        build(**{name: lambda x, y: np.sin(y)})
    with pytest.raises(ProblemError, match=rf"{name}\(x, y\) cannot be traced.*branches"):
        build(**{name: lambda x, y: y[0] if y[0] > 0 else -y[0]})
    with pytest.raises(ProblemError, match=rf"{name}\(x, y\) must return real numbers, got dtype complex"):
        build(**{name: lambda x, y: jnp.sum(y) + 1j})
    with pytest.raises(ProblemError, match=rf"{name}\(x, y\) must return real numbers, got dtype bool"):
        build(**{name: lambda x, y: jnp.sum(y) > 0})
    with pytest.raises(ProblemError, match=rf"{name} must be a function of \(x, y\).*got float"):
        build(**{name: 3.0})
    with pytest.raises(ProblemError, match=rf"{name} must take \(x, y\), and it takes \(x\)$"):
        build(**{name: lambda x: jnp.sum(x)})
    with pytest.raises(ProblemError, match=rf"{name} must take \(x, y\), .* third argument give the problem data"):
        build(**{name: lambda x, y, data: jnp.sum(x)})
    with pytest.raises(ProblemError, match=r"upper must take \(x, y, data\), because the problem has data"):
        build(data=1.0)
    with pytest.raises(ProblemError, match=rf"{name}\(x, y\)"):
        build(**{name: lambda x, y: "text"})


@pytest.mark.parametrize("name", ["upper", "lower"])
def test_objectives_return_one_number(name):
    with pytest.raises(ProblemError, match=rf"{name}\(x, y\) must return one number.*\(2,\)"):
        build(**{name: lambda x, y: y})
    with pytest.raises(ProblemError, match=rf"{name}\(x, y\) must return one number.*\(1,\)"):
        build(**{name: lambda x, y: y[:1]})
    with pytest.raises(ProblemError, match=rf"{name}\(x, y\) must return one number"):
        build(**{name: lambda x, y: {"a": jnp.sum(y)}})
    with pytest.raises(ProblemError, match=rf"{name}\(x, y\) returns nothing; is a return missing"):
        build(**{name: lambda x, y: None})
    with pytest.raises(ProblemError, match=f"{name} must be a function"):
        build(**{name: None})


@pytest.mark.parametrize("name", ["inequality", "equality", "upper_inequality"])
def test_a_constraint_that_forgets_to_return_is_not_silently_dropped(name):
    with pytest.raises(ProblemError, match=name):
        build(**{name: lambda x, y: None})


def test_shapes_in_the_message_are_those_of_the_sets():
    with pytest.raises(ProblemError, match=r"lower\(x, y\) fails for x of shape \(2,\), y of shape \(3,\)"):
        build(y_set=Reals(3))
    with pytest.raises(ProblemError, match=r"y of shape \{'b': \(\), 'w': \(4,\)\}"):
        build(y_set=Product({"w": Reals(4), "b": Reals()}))


def test_the_name_is_checked():
    with pytest.raises(ProblemError, match="name must be a text, got int"):
        build(name=5)


@pytest.mark.parametrize("name", ["x_set", "y_set"])
def test_sets_are_checked(name):
    for wrong, kind in ((None, "NoneType"), (np.zeros(2), "ndarray"), (Box, "ABCMeta")):
        with pytest.raises(ProblemError, match=rf"{name} must be a set such as.*got {kind}"):
            build(**{name: wrong})
    for empty in (Reals(0), Box(np.zeros(0), 1.0)):
        with pytest.raises(ProblemError, match=f"{name} has no variable"):
            build(**{name: empty})
    with pytest.raises(TypeError, match="x_set"):
        BilevelProblem(upper=lambda x, y: 0.0, lower=lambda x, y: 0.0, y_set=Reals())


@pytest.fixture(scope="module")
def tree():
    return BilevelProblem(
        upper=lambda x, y: jnp.sum(x["a"] * y[0]) + x["b"][0] * y[1],
        lower=lambda x, y: jnp.sum((y[0] - x["a"]) ** 2) + y[1] ** 2,
        inequality=lambda x, y: {"rows": y[0] - 1.0, "one": y[1] - 2.0 * x["b"][0]},
        equality=lambda x, y: y[1] - 3.0,
        upper_inequality=lambda x, y: (x["a"][0, 0] - y[1], x["a"]),
        x_set=Product({"a": Box(0.0, 1.0, shape=(2, 2)), "b": [Ball(0.0)]}),
        y_set=Product((Reals((2, 2)), Reals())),
    )


def test_pytrees_become_flat_functions(tree):
    flat = tree.flat
    assert (flat.n_x, flat.n_y) == (5, 5)
    assert (flat.n_inequality, flat.n_equality, flat.n_upper_inequality) == (5, 1, 5)
    x, y = np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([1.0, 2.0, 3.0, 4.0, 6.0])
    with double_precision():
        at = jnp.asarray(x), jnp.asarray(y)
        assert float(flat.upper(*at)) == pytest.approx(0.1 + 0.4 + 0.9 + 1.6 + 3.0, abs=1e-14)
        assert float(flat.lower(*at)) == pytest.approx(np.sum((y[:4] - x[:4]) ** 2) + 36.0, abs=1e-13)
        # Dictionaries are flattened in the order of their sorted keys: "one" before "rows".
        np.testing.assert_allclose(flat.inequality(*at), [5.0, 0.0, 1.0, 2.0, 3.0], atol=1e-15)
        np.testing.assert_allclose(flat.equality(*at), [3.0])
        np.testing.assert_allclose(flat.upper_inequality(*at), [0.1 - 6.0, 0.1, 0.2, 0.3, 0.4])
        assert all(getattr(flat, name)(*at).dtype == jnp.float64 for name in FUNCTIONS)


def test_multipliers_have_the_structure_of_their_constraint(tree):
    found = tree.unravel_multipliers("inequality", np.arange(5.0))
    assert set(found) == {"rows", "one"}
    assert found["one"] == 0.0
    np.testing.assert_array_equal(found["rows"], [[1.0, 2.0], [3.0, 4.0]])
    equality = tree.unravel_multipliers("equality", np.array([7.0]))
    assert equality.shape == ()
    assert equality == 7.0
    assert build().unravel_multipliers("inequality", np.zeros(0)).shape == (0,)


def test_absent_constraints_are_empty_vectors():
    flat = build().flat
    assert (flat.n_inequality, flat.n_equality, flat.n_upper_inequality) == (0, 0, 0)
    with double_precision():
        assert flat.inequality(jnp.zeros(2), jnp.zeros(2)).shape == (0,)
    empty = build(inequality=lambda x, y: y[:0], equality=lambda x, y: ())
    assert (empty.flat.n_inequality, empty.flat.n_equality) == (0, 0)


@pytest.mark.filterwarnings("ignore:.*float32 numbers")
def test_integers_and_single_precision_become_double():
    data = np.array([1.0, 2.0], dtype=np.float32)
    problem = build(
        upper=lambda x, y: 3,
        lower=lambda x, y: jnp.sum((y - data) ** 2).astype(jnp.float32),
        inequality=lambda x, y: jnp.array([1, 2]),
        x_set=Box(np.zeros(2, dtype=np.int32), np.float32(1.0)),
        y_set=Simplex(2),
    )
    with double_precision():
        at = jnp.ones(2), jnp.ones(2)
        for name in FUNCTIONS:
            assert getattr(problem.flat, name)(*at).dtype == jnp.float64
        assert jax.grad(problem.flat.lower, argnums=1)(*at).dtype == jnp.float64
    for start in ([0, 1], np.array([0, 1], dtype=np.int8), jnp.array([0.0, 1.0], dtype=jnp.float32)):
        flat = problem.x_set.ravel(np.asarray(start))
        assert flat.dtype == np.float64


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_a_complex_point_is_refused():
    with pytest.raises(ProblemError, match="x0"):
        build().x_set.ravel(np.array([1j, 0.0]), "x0")


def test_functions_see_double_precision_while_building():
    seen = []

    def lower(x, y):
        seen.append((x.dtype, y.dtype))
        return jnp.sum(y**2)

    build(lower=lower)
    assert seen
    assert all(pair == (jnp.float64, jnp.float64) for pair in seen)


def test_building_leaves_the_configuration_of_jax_alone():
    before = jax.config.jax_enable_x64
    build().flat.upper(jnp.zeros(2), jnp.zeros(2))
    with pytest.raises(ProblemError):
        build(lower=fails)
    assert jax.config.jax_enable_x64 == before
    assert jnp.zeros(2).dtype == (jnp.float64 if before else jnp.float32)


def test_caches_are_not_shared():
    assert build().shared is not build().shared
    problem = build()
    assert problem.flat is problem.flat
    with pytest.raises(AttributeError):
        problem.name = "other"


# --- numbers that change ---------------------------------------------------------------------------------------------
def changing(numbers: dict[str, Any]) -> BilevelProblem:
    """The leader wants x at the goal; the follower copies it."""
    return BilevelProblem(
        upper=lambda x, y: jnp.sum((x - numbers["goal"]) ** 2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        inequality=lambda x, y: [y - wall for wall in numbers["walls"]],
        x_set=Box(-4.0, 4.0, shape=2),
        y_set=Reals(2),
    )


def test_a_changed_closure_is_noticed() -> None:
    numbers: dict[str, Any] = {"goal": np.array([1.0, 2.0]), "walls": [9.0]}
    problem = changing(numbers)
    np.testing.assert_allclose(solve(problem).x, [1.0, 2.0], atol=1e-4)
    kept, flat = problem.shared, problem.flat
    assert not problem.renew()
    assert problem.shared is kept
    assert problem.flat is flat
    numbers["goal"][1] = 3.0  # in place
    assert problem.renew()
    assert not problem.renew()
    np.testing.assert_allclose(solve(problem).x, [1.0, 3.0], atol=1e-4)
    numbers["goal"] = np.array([-1.0, 0.0])
    assert problem.renew()
    assert float(problem.flat.upper(numbers["goal"], np.zeros(2))) == 0.0
    numbers["walls"] = [8.0, 9.0]  # another number of constraints
    assert problem.renew()
    assert problem.flat.n_inequality == 4
    assert solve(problem).success


def test_a_change_that_does_not_fit_is_an_error() -> None:
    numbers: dict[str, Any] = {"goal": np.zeros(2), "walls": [9.0]}
    problem = changing(numbers)
    numbers["goal"] = np.zeros(3)
    with pytest.raises(ProblemError, match=r"upper\(x, y\) fails for x of shape"):
        problem.renew()


def test_looking_for_changes_traces_each_function_once_and_compiles_nothing() -> None:
    calls: Counter[str] = Counter()

    def counting(name: str, function: Any) -> Any:
        return lambda x, y: (calls.update([name]), function(x, y))[1]

    plain = changing({"goal": np.zeros(2), "walls": [9.0]})
    problem = replace(
        plain, **{name: counting(name, getattr(plain, name)) for name in ("upper", "lower", "inequality")}
    )
    problem.renew()
    calls.clear()
    before = compile_seconds()
    assert not problem.renew()
    assert calls == {"upper": 1, "lower": 1, "inequality": 1}
    assert compile_seconds() == before


def test_a_joint_projection_is_traced_too() -> None:
    shift = [1.0]
    problem = build(joint_projection=lambda x, y: (shift[0] * x, y))
    assert not problem.renew()
    shift[0] = 2.0
    assert problem.renew()
