"""Patterns never miss an entry, are exact where nothing cancels, and few sweeps recover the Jacobian."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from blocc._lib.precision import double_precision
from blocc.inner.colouring import Coloured, SparseRows, columns_coloured
from blocc.inner.dependencies import TooDense
from blocc.inner.sparsity import jacobian_pattern
from selections import few

SIZE = 12
_rng = np.random.default_rng(0)
PERMUTATION = _rng.permutation(SIZE)
PAIRS = _rng.integers(0, SIZE, (2, 7))
SPARSE = np.where(_rng.uniform(size=(5, SIZE)) < 0.2, 1.0, 0.0)
MASK = _rng.uniform(size=SIZE) < 0.5

#: Functions from SIZE numbers to a vector. Those in the first table are followed exactly.
EXACT = {
    "square": lambda y: y**2,
    "differences": lambda y: jnp.exp(y[1:]) * jnp.sin(y[:-1]),
    "stride": lambda y: y[::3] - y[1::3],
    "gather": lambda y: y[PAIRS[0]] * y[PAIRS[1]],
    "negative index": lambda y: y[np.array([-1, -3])] ** 3,
    "permutation": lambda y: jnp.tanh(y[PERMUTATION]),
    "blocks": lambda y: jnp.sum(y.reshape(4, 3) ** 2, axis=1),
    "transposed": lambda y: jnp.sum(jnp.log(2.0 + y.reshape(4, 3).T ** 2), axis=1),
    "matrix": lambda y: SPARSE @ y,
    "matrix of y": lambda y: (SPARSE @ y) * y[:5],
    "mask": lambda y: jnp.where(MASK, y**2, 1.0),
    "factor": lambda y: MASK * jnp.sin(y),
    "scatter": lambda y: jnp.zeros(5).at[np.array([0, 2, 2])].add(y[:3] ** 2),
    "set": lambda y: jnp.ones(4).at[np.array([1, 3])].set(y[4:6] * y[6:8]),
    "segment sum": lambda y: jax.ops.segment_sum(y**2, np.arange(SIZE) // 4, 3),
    "roll": lambda y: jnp.roll(y, 2) * y,
    "pad": lambda y: jnp.pad(y[2:5] ** 2, (1, 2)),
    "flip": lambda y: y[::-1] * y,
    "cumsum": lambda y: jnp.cumsum(y[:4] ** 2),
    "cumsum back": lambda y: lax.cumsum(y[:4] ** 2, reverse=True),
    "outer": lambda y: jnp.outer(y[:2], y[2:5]).ravel(),
    "batched": lambda y: jnp.einsum("bij,bj->bi", y[:8].reshape(2, 2, 2), y[8:].reshape(2, 2)).ravel(),
    "shared": lambda y: y * jnp.sum(y[:2]),
    "sign": lambda y: jnp.sign(y) + y[0] * jnp.ones(SIZE),
    "stopped": lambda y: lax.stop_gradient(y) * y[::-1],
    "unrolled": lambda y: lax.scan(lambda c, v: (c * v, c + v), jnp.ones(()), y[:4])[1],
    "gradient": lambda y: jax.grad(lambda z: jnp.sum((z[1:] - z[:-1]) ** 4) + jnp.sum(z[PAIRS[0]] * z[PAIRS[1]]))(y),
    "jit": lambda y: jax.jit(lambda z: jnp.maximum(z, 0.1)[:3])(y),
    "constant": lambda y: jnp.ones(3),
    "softplus": lambda y: jax.nn.softplus(y[2:4]),
}
SAFE = {
    "sort": lambda y: jnp.sort(y),
    "unknown place": lambda y: lax.dynamic_slice(y, (jnp.argmax(y),), (2,)),
    "branches": lambda y: lax.cond(y[0] > 0.0, lambda: y[:2] ** 2, lambda: jnp.sin(y[2:4])),
    "repeated": lambda y: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * jnp.roll(y, 1)), (0, y))[1],
    "long loop": lambda y: lax.fori_loop(0, 100, lambda i, z: 0.9 * z + 0.1 * jnp.roll(z, 1), y),
    "largest": lambda y: jnp.max(y.reshape(4, 3), axis=1),
    "factor of a matrix": lambda y: jnp.linalg.solve(jnp.eye(3) * 4.0 + y[:9].reshape(3, 3), y[9:]),
    "norm": lambda y: jnp.linalg.norm(y.reshape(4, 3), axis=1),
    "product": lambda y: jnp.cumprod(y[:4]),
    "convolution": lambda y: jnp.convolve(y, jnp.array([1.0, -2.0, 1.0])),
}


def union_of_jacobians(function):
    """Where the Jacobian is not zero at any of several random points."""
    points = np.random.default_rng(1).normal(size=(20, SIZE))
    return (np.asarray(jax.jit(jax.vmap(jax.jacfwd(function)))(points)) != 0.0).any(axis=0)


@pytest.mark.parametrize("name", [*EXACT, *SAFE])
def test_pattern_against_dense_jacobians(name):
    with double_precision():
        function = {**EXACT, **SAFE}[name]
        found, seen = jacobian_pattern(function, SIZE, 10_000).toarray(), union_of_jacobians(function)
    assert found.shape == seen.shape
    assert not (seen & ~found).any()
    if name in EXACT:
        assert (found == seen).all()


PIECES = [EXACT[name] for name in ("gather", "matrix of y", "scatter", "roll", "blocks", "mask", "gradient")]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(range(len(PIECES))), min_size=1, max_size=3), st.integers(0, 2**31 - 1))
def test_compositions_never_miss_an_entry(chosen, seed):
    mixing = np.random.default_rng(seed).integers(0, 3, SIZE)

    def function(y):
        for piece in chosen:
            part = PIECES[piece](y)
            y = jnp.concatenate([part, part])[mixing] + y[PERMUTATION] * MASK
        return y

    with double_precision():
        found, seen = jacobian_pattern(function, SIZE, 10_000).toarray(), union_of_jacobians(function)
    assert not (seen & ~found).any()


def test_too_many_entries_are_refused():
    for function in (lambda y: jnp.cumsum(y), lambda y: jnp.ones((1000, 1000)) @ y, jnp.sort, lambda y: y * jnp.sum(y)):
        with double_precision(), pytest.raises(TooDense):
            jacobian_pattern(function, 1000, 20_000)


@pytest.mark.parametrize("seed", few(range(4), 0))
def test_coloured_sweeps_recover_every_entry(seed):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.uniform(size=(15, 10)) < 0.2, rng.normal(size=(15, 10)), 0.0)
    dense[3], dense[:, 2] = rng.normal(size=10), rng.normal(size=15)  # one long row, one long column
    pattern = sp.csr_array(dense != 0.0)
    where = Coloured.of(pattern, 10_000)
    assert where.long_rows.tolist() == [3]
    assert where.sweeps < 10
    with double_precision():
        rows = SparseRows(where, where.entries(lambda y: jnp.asarray(dense) @ jnp.sin(y), jnp.zeros(10)))
        found = sp.coo_array((np.asarray(rows.entries), (where.rows, where.columns)), shape=dense.shape).toarray()
        vector, other = rng.normal(size=10), rng.normal(size=15)
        np.testing.assert_allclose(found, dense)
        np.testing.assert_allclose(rows.times(jnp.asarray(vector)), dense @ vector)
        np.testing.assert_allclose(rows.transposed_times(jnp.asarray(other)), dense.T @ other)
        np.testing.assert_allclose(rows.largest(), np.abs(dense).max(axis=1))
        np.testing.assert_allclose(rows.scaled(jnp.asarray(other)).sums(), np.abs(other) * np.abs(dense).sum(axis=1))


def test_bands_need_no_more_colours_than_they_are_wide():
    band = sp.csr_array(sp.diags_array([np.ones(99), np.ones(100), np.ones(99)], offsets=[-1, 0, 1]) != 0)
    assert columns_coloured(band).max() == 2
