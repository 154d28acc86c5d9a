"""Factors of sparse KKT matrices against dense linear algebra: solutions, curvature, and rows without slack."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp

from blocc.inner.kkt_pattern import SparseKKT
from blocc.inner.sparse_factor import Factoriser

N, N_C, N_E = 20, 30, 4


def matrices(seed, curvature=1.0):
    """A sparse H with eigenvalues from ``curvature`` on, J, E and the diagonal."""
    rng = np.random.default_rng(seed)
    off = sp.random_array((N, N), density=0.1, rng=rng).toarray()
    off = off + off.T
    hessian = off + np.eye(N) * (curvature - np.linalg.eigvalsh(off)[0])
    jacobian, equality = (
        sp.random_array((rows, N), density=0.2, rng=rng, data_sampler=rng.standard_normal).toarray()
        for rows in (N_C, N_E)
    )
    equality[np.arange(N_E), np.arange(N_E)] += 2.0
    diagonal = np.concatenate([rng.uniform(size=N), -(10.0 ** rng.uniform(-4.0, 4.0, N_C)), np.zeros(N_E)])
    return hessian, jacobian, equality, diagonal


def prepared(hessian, jacobian, equality, diagonal):
    """What computes with matrices of this pattern, their entries as it takes them, and the whole matrix."""
    pattern = SparseKKT.of(*(sp.csr_array(part != 0.0) for part in (hessian, jacobian, equality)), 10_000)
    parts = zip((hessian, jacobian, equality), (pattern.hessian, pattern.inequality, pattern.equality), strict=True)
    values = np.concatenate([*(part[where.rows, where.columns] for part, where in parts), diagonal])
    whole = np.zeros((diagonal.size, diagonal.size))
    whole[:N, :N], whole[N : N + N_C, :N], whole[N + N_C :, :N] = hessian, jacobian, equality
    whole[:N, N:] = whole[N:, :N].T
    return Factoriser(pattern), values, whole + np.diag(diagonal)


def test_solutions_for_several_matrices_of_one_pattern():
    hessian, jacobian, equality, diagonal = matrices(0)
    host, values, whole = prepared(hessian, jacobian, equality, diagonal)
    rng = np.random.default_rng(1)
    for factor in (1.0, 3.0, 1.0):
        rhs = rng.standard_normal(diagonal.size)
        assert host.factorise(factor * values, np.asarray(0.0), np.asarray(1e-9)) == (0.0, 0.0)
        found = host.solve(factor * values, np.asarray(0.0), rhs)
        np.testing.assert_allclose(found, np.linalg.solve(factor * whole, rhs), rtol=1e-8, atol=1e-10)
    # A matrix that was not factored last is factored again.
    host.factorise(2.0 * values, np.asarray(0.0), np.asarray(1e-9))
    np.testing.assert_allclose(host.solve(values, np.asarray(0.0), rhs), found, rtol=1e-8, atol=1e-10)


def test_active_rows_do_not_drown_the_hessian():
    """Rows with s/mu = 1e-16 are as good as equalities; H, a thousand times smaller than usual, still counts."""
    hessian, jacobian, equality, diagonal = matrices(2, curvature=1e-3)
    diagonal[:N] = 0.0
    diagonal[N : N + 6], diagonal[N + 6 : N + N_C] = -1e-16, -1e8
    host, values, whole = prepared(hessian, jacobian, equality, diagonal)
    rhs = np.random.default_rng(3).standard_normal(diagonal.size)
    rhs[N + 6 : N + N_C] = 0.0
    host.factorise(values, np.asarray(1e-14), np.asarray(1e-9))
    found = host.solve(values, np.asarray(1e-14), rhs)
    np.testing.assert_allclose(found[:N], np.linalg.solve(whole, rhs)[:N], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("lowest", [-0.1, 0.1])
def test_curvature(lowest):
    """A Hessian that bends down is noticed, and the matrix is shifted until it does not."""
    hessian, jacobian, equality, diagonal = matrices(4, curvature=lowest)
    jacobian[:], diagonal[:N] = 1e-3 * jacobian, 0.0
    host, values, whole = prepared(hessian, jacobian, equality, diagonal)
    shift, concave = host.factorise(values, np.asarray(1e-6), np.asarray(1e-9))
    assert bool(concave) == (lowest < 0.0)
    assert (shift > 1e-6) == (lowest < 0.0)
    whole[:N, :N] += shift * np.eye(N)
    assert (np.linalg.eigvalsh(whole) > 0.0).sum() == N


def test_numbers_that_are_not_finite():
    hessian, jacobian, equality, diagonal = matrices(5)
    host, values, _ = prepared(hessian, jacobian, equality, diagonal)
    values[3] = np.nan
    assert host.factorise(values, np.asarray(1e-8), np.asarray(1e-9)) == (1e-8, 0.0)
    assert np.isnan(host.solve(values, np.asarray(1e-8), np.ones(diagonal.size))).all()


def test_threads_do_not_disturb_each_other():
    hessian, jacobian, equality, diagonal = matrices(6)
    host, values, whole = prepared(hessian, jacobian, equality, diagonal)
    rhs = np.random.default_rng(7).standard_normal(diagonal.size)

    def solved(factor):
        host.factorise(factor * values, np.asarray(0.0), np.asarray(1e-9))
        return factor * host.solve(factor * values, np.asarray(0.0), rhs)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(solved, np.linspace(1.0, 2.0, 40)):
            np.testing.assert_allclose(found, np.linalg.solve(whole, rhs), rtol=1e-7, atol=1e-9)
