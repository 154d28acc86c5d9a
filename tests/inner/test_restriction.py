"""Functions of few entries of a long vector: the same numbers as the functions themselves, and few columns of data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import L1, BilevelProblem, Box, Product, Reals
from blocc._lib.precision import double_precision
from blocc.inner.restriction import Restriction, few_places, restricted_to

RNG = np.random.default_rng(0)
N = 40
DATA = {"A": RNG.normal(size=(15, N)), "b": RNG.normal(size=15), "c": RNG.uniform(size=N)}


def plain(x, y, d):
    return 0.5 * jnp.mean((d["A"] @ y - d["b"]) ** 2) + 0.5 * jnp.exp(x[0]) * jnp.sum(d["c"] * y**2)


def branching(x, y, d):
    """Operations that need whole vectors beside others."""
    rounded = jnp.where(y["w"] > x[1], jnp.cosh(y["w"]), 1.0 + y["w"])
    rows = jnp.logaddexp(0.0, y["w"] @ d["A"].T + y["b"])
    return jnp.sum(rows**2) + jnp.sum(rounded) + jnp.dot(y["w"], y["w"]) + jnp.sum(jnp.cumsum(y["w"]) ** 2)


PROBLEMS = {
    "plain": (plain, Reals(N), {}),
    "bounded": (plain, Box(-0.5, 0.5, shape=N), {}),
    "branching": (branching, Product({"w": Box(-1.0, 1.0, shape=N), "b": Reals()}), {"of": "w"}),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_numbers_are_those_of_the_whole_function(name):
    lower, y_set, of = PROBLEMS[name]
    problem = BilevelProblem(
        upper=lower,
        lower=lower,
        lower_terms=[L1(lambda x, d: jnp.exp(x[1]), **of)],
        x_set=Box(-1.0, 1.0, shape=2),
        y_set=y_set,
        data=DATA,
    )
    flat = problem.flat
    few = Restriction(jnp.asarray([0, 3, 7, 20, flat.n_y - 1, flat.n_y, flat.n_y]), flat.n_y)

    def told(of, x, y):
        value, slopes = jax.value_and_grad(of.lower, argnums=(0, 1))(x, y)
        curved = jax.jvp(lambda v: jax.grad(of.lower, argnums=1)(x, v), (y,), (y,))[1]
        return [value, slopes[0], of.upper(x, y)], [slopes[1], curved, of.backward(x, y, 0.3), of.catch(y, -y)]

    def both(x, values):
        numbers, vectors = told(flat, x, few.put(values))
        return told(restricted_to(flat, few), x, values), (numbers, [few.take(each) for each in vectors])

    with double_precision():
        for x in RNG.normal(size=(2, 2)):
            found, wanted = jax.jit(both)(x, jnp.asarray([0.1, -2.0, 0.3, 0.0, -0.1, 0.0, 0.0]))
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, wanted)


def test_only_few_columns_of_the_data_are_used():
    """Numbers that are not finite in all other columns are never met."""
    with double_precision():
        places = jnp.asarray([2, 5, N])
        matrix = np.full((15, N), np.nan)
        matrix[:, [2, 5]] = DATA["A"][:, [2, 5]]
        few = Restriction(places, N)
        vector = jax.ShapeDtypeStruct((N,), np.float64)
        function = few.of(lambda x, y: jnp.sum((matrix @ y) ** 2), vector, vector)
        value = function(np.zeros(N), jnp.asarray([1.0, -2.0, 9.0]))
    np.testing.assert_allclose(value, np.sum((matrix[:, 2] - 2.0 * matrix[:, 5]) ** 2))


def test_places_are_those_kept_and_the_largest_wanted():
    kept = jnp.zeros(9).at[4].set(1e-9)
    wanted = jnp.asarray([0.0, 8.0, 0.0, 1.0, 0.0, 4.0, 0.0, 0.1, 0.0])
    assert few_places(kept, wanted, 6).tolist() == [1, 3, 4, 5, 7, 9]
    assert few_places(kept, wanted, 3).tolist() == [1, 4, 5]
