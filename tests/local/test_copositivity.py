"""Forms on cones, against a sufficient condition, planted directions, and enumeration of faces."""

from itertools import combinations

import numpy as np
import pytest

from blocc.local.copositivity import curved_down

HORN = np.array([[1, -1, 1, 1, -1], [-1, 1, -1, 1, 1], [1, -1, 1, -1, 1], [1, 1, -1, 1, -1], [-1, 1, 1, -1, 1]], float)
RESOLUTION = 1e-4


def is_copositive(form):
    """Kaplan's criterion: no principal submatrix has a positive eigenvector of a negative eigenvalue."""
    for size in range(1, len(form) + 1):
        for rows in combinations(range(len(form)), size):
            values, vectors = np.linalg.eigh(form[np.ix_(rows, rows)])
            for value, vector in zip(values, vectors.T, strict=True):
                if value < -1e-9 and (np.all(vector > 0.0) or np.all(vector < 0.0)):
                    return False
    return True


@pytest.mark.parametrize("seed", range(8))
def test_random_forms_on_simplicial_cones(seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(2, 7))
    form = generator.standard_normal((n, n))
    form = 0.5 * (form + form.T) + generator.uniform(0.0, 1.5) * np.sqrt(n) * np.eye(n)
    to = generator.standard_normal((n, n)) + 2.0 * np.eye(n)  # rows of the cone: to @ v >= 0
    found = curved_down(to.T @ form @ to, -to, RESOLUTION)
    assert found.decided
    assert (found.down is None) == is_copositive(form)
    if found.down is not None:
        assert np.all(to @ found.down >= -1e-9)
        assert (to @ found.down) @ form @ (to @ found.down) < 0.0


@pytest.mark.parametrize("n", [5, 15, 30])
def test_horns_form_beside_free_directions(n):
    """Five rows, and directions that couple with them and are minimised out."""
    generator = np.random.default_rng(n)
    more = n - 5
    couple = generator.standard_normal((5, more))
    for excess, falls in ((0.02, True), (-0.02, False)):
        own = HORN - excess * np.eye(5) + couple @ couple.T
        form = np.block([[own, couple], [couple.T, np.eye(more)]])
        found = curved_down(form, -np.eye(5, n), RESOLUTION / n)
        assert found.decided
        assert (found.down is not None) == falls


def test_of_a_pair_of_rows_one_stays_zero():
    form = np.array([[1.0, -2.0], [-2.0, 1.0]])  # negative where both rows move alone
    assert curved_down(form, -np.eye(2), RESOLUTION).down is not None
    found = curved_down(form, -np.eye(2), RESOLUTION, [(0, 1)])
    assert found.decided
    assert found.down is None


def test_dependent_rows_are_not_decided():
    form, rows = -np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert not curved_down(form + 3.0 * np.ones((2, 2)), rows, RESOLUTION).decided
