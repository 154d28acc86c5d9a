"""Samples of every kind that ``BilevelSVC`` takes: weighted, sparse, of many classes; and limited time for them."""

from __future__ import annotations

import tracemalloc
from itertools import count
from typing import Any

import cvxpy
import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, csr_matrix, random_array
from sklearn.datasets import make_blobs, make_circles
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils.class_weight import compute_sample_weight

from blocc import Status
from blocc.svm import BilevelSVC, padded, svm_problem
from blocc.svm.copies import Distinct, split_distinct
from blocc.svm.kernels import FeatureSpace
from blocc.svm.margins import SampleWeights, scaled_problem
from blocc.svm.padded import Solvers, TimeLimitReached
from clocks import counted


def overlapping(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(n_samples=n, centers=[(-1.0, 0.0), (1.0, 0.5)], cluster_std=1.2, random_state=seed)


def three_clouds(n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(n_samples=n, centers=[(-3.0, 0.0), (3.0, 0.0), (0.0, 4.0)], cluster_std=1.5, random_state=0)


@pytest.fixture(scope="module")
def weighted() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = overlapping()
    return X, y, np.random.default_rng(0).integers(0, 4, len(y)).astype(float)


# --- weights -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("c_penalty", ["sum", "squared", "norm"])
def test_weights_are_copies(weighted: tuple[np.ndarray, np.ndarray, np.ndarray], c_penalty: str) -> None:
    X, y, weight = weighted
    copies = weight.astype(int)
    options: dict[str, Any] = {"c_penalty": c_penalty, "c_weight": 2.0}
    few = BilevelSVC(**options).fit(X, y, sample_weight=weight)
    many = BilevelSVC(**options).fit(X.repeat(copies, axis=0), y.repeat(copies))
    np.testing.assert_array_equal(few.decision_function(X), many.decision_function(X))
    assert few.result_.success
    assert not set(np.flatnonzero(weight == 0.0)) & {*few.training_indices_, *few.validation_indices_}
    # Copies share what the weighted sample has: its margin is each one's, its multiplier is theirs together.
    train = few.training_indices_
    original = np.arange(len(y)).repeat(copies)[many.training_indices_]
    margins = dict(zip(train, few.margins_, strict=True))
    np.testing.assert_array_equal(many.margins_, [margins[index] for index in original])
    assert many.dual_coef_.sum() == pytest.approx(few.dual_coef_.sum(), abs=1e-9)
    np.testing.assert_allclose(many.dual_coef_ @ many.support_vectors_, few.coef_, atol=1e-6)


@pytest.mark.parametrize("c_penalty", ["sum", "squared", "norm"])
def test_weights_count_in_both_levels_against_clarabel(c_penalty: str) -> None:
    """The leader's convex relaxation, which is exact where classes overlap, written down once more."""
    X, y = overlapping(60, seed=3)
    generator = np.random.default_rng(1)
    prices, losses = generator.uniform(0.2, 3.0, 40), generator.uniform(0.2, 3.0, 20)
    model = BilevelSVC(c_penalty=c_penalty, c_weight=2.0)
    model.fit(X[:40], y[:40], X[40:], y[40:], sample_weight=prices, sample_weight_val=losses)
    assert model.is_global_
    signs = 2.0 * y - 1.0
    w, b = cvxpy.Variable(2), cvxpy.Variable()
    margins = cvxpy.multiply(signs, X @ w + b)
    forgiven = cvxpy.pos(1.0 - margins[:40])
    price = {
        "sum": prices @ forgiven,
        "squared": 0.5 * prices @ cvxpy.square(forgiven),
        "norm": cvxpy.norm(cvxpy.multiply(np.sqrt(prices), forgiven)),
    }[c_penalty]
    problem = cvxpy.Problem(cvxpy.Minimize(losses @ cvxpy.exp(1.0 - margins[40:]) + 2.0 * price))
    problem.solve(solver="CLARABEL")
    assert model.result_.upper_value == pytest.approx(problem.value, rel=1e-6)
    np.testing.assert_allclose(model.coef_[0], w.value, atol=1e-4)
    assert model.validation_loss_ == pytest.approx(losses @ np.exp(1.0 - margins.value[40:]), rel=1e-4)


def test_weights_in_the_problem_for_other_methods() -> None:
    X, y = overlapping(30)
    signs = 2.0 * y - 1.0
    copies = np.arange(20) % 3 + 1
    problem = svm_problem(
        X[:20], signs[:20], X[20:], signs[20:], sample_weight=copies, sample_weight_val=np.full(10, 2)
    )
    again = svm_problem(
        X[:20].repeat(copies, axis=0), signs[:20].repeat(copies), X[20:].repeat(2, axis=0), signs[20:].repeat(2)
    )
    c, classifier = np.linspace(0.0, 2.0, 20), np.array([0.3, -0.2, 0.1])
    assert problem.upper(c, classifier) == pytest.approx(float(again.upper(c.repeat(copies), classifier)))
    with pytest.raises(ValueError, match="sample_weight_val must hold a positive number for each of the 10"):
        svm_problem(X[:20], signs[:20], X[20:], signs[20:], sample_weight_val=np.zeros(10))


def test_class_weights(weighted: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, y, weight = weighted
    by_class = BilevelSVC(class_weight={0: 3.0, 1: 0.5}).fit(X, y)
    by_sample = BilevelSVC().fit(X, y, sample_weight=np.where(y == 0, 3.0, 0.5))
    np.testing.assert_allclose(by_class.decision_function(X), by_sample.decision_function(X), atol=1e-9)
    assert (by_class.predict(X) == 0).sum() > (BilevelSVC().fit(X, y).predict(X) == 0).sum()
    rare = np.append(np.flatnonzero(y == 0)[:8], np.flatnonzero(y == 1))
    even = BilevelSVC(class_weight="balanced").fit(X[rare], y[rare])
    same = BilevelSVC().fit(X[rare], y[rare], sample_weight=compute_sample_weight("balanced", y[rare]))
    np.testing.assert_allclose(even.decision_function(X), same.decision_function(X), atol=1e-6)
    copies = weight.astype(int)
    few = BilevelSVC(class_weight="balanced").fit(X, y, sample_weight=weight)
    many = BilevelSVC(class_weight="balanced").fit(X.repeat(copies, axis=0), y.repeat(copies))
    np.testing.assert_allclose(few.decision_function(X), many.decision_function(X), atol=1e-9)


def test_bad_weights() -> None:
    X, y = overlapping()
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        BilevelSVC().fit(X, y, sample_weight=np.full(60, -1.0))
    with pytest.raises(ValueError, match="one class has no sample of positive weight"):
        BilevelSVC().fit(X, y, sample_weight=(y == 1) * 1.0)
    with pytest.raises(ValueError, match="sample_weight_val with them"):
        BilevelSVC().fit(X, y, sample_weight_val=np.ones(60))


def test_copies_stay_together() -> None:
    X, y = overlapping(40)
    twice, classes = np.vstack([X, X]), np.append(y, y)
    distinct = Distinct.of(twice, classes)
    assert len(distinct.first) == 40
    train, held_out = split_distinct(distinct, classes, 0.25, np.random.RandomState(0))
    assert len(held_out) == 20
    assert not {tuple(row) for row in twice[train]} & {tuple(row) for row in twice[held_out]}
    assert classes[held_out].mean() == pytest.approx(classes.mean(), abs=0.06)
    other = np.random.default_rng(0).permutation(80)
    again = Distinct.of(csr_array(twice[other]), classes[other])
    np.testing.assert_array_equal(twice[other][again.first], twice[distinct.first])
    np.testing.assert_array_equal(distinct.total(np.ones(80)), np.full(40, 2.0))
    # The same features in two classes are two samples.
    assert len(Distinct.of(np.zeros((4, 2)), np.array([0, 0, 1, 1])).first) == 2


# --- sparse --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [csr_matrix, csr_array, csc_array])
@pytest.mark.parametrize("features", [6, 150])
def test_sparse_is_dense(kind: Any, features: int) -> None:
    generator = np.random.default_rng(0)
    table = random_array((80, features), density=0.3, rng=generator, format="csr").toarray()
    table[:, 2] = 0.0  # a feature that no sample has
    y = (table[:, 0] - table[:, 1] + 0.2 * generator.standard_normal(80) > 0.0).astype(int)
    dense, sparse = BilevelSVC().fit(table, y), BilevelSVC().fit(kind(table), y)
    np.testing.assert_array_equal(sparse.training_indices_, dense.training_indices_)
    assert sparse.result_.upper_value == pytest.approx(dense.result_.upper_value, rel=1e-5)
    np.testing.assert_allclose(sparse.decision_function(kind(table)), dense.decision_function(table), atol=2e-4)
    np.testing.assert_allclose(sparse.decision_function(table), sparse.decision_function(kind(table)), atol=1e-12)
    np.testing.assert_array_equal(list(sparse.staged_predict(kind(table)))[-1], sparse.predict(table))
    assert isinstance(sparse.coef_, np.ndarray)
    assert sparse.coef_[0, 2] == 0.0
    np.testing.assert_allclose(sparse.dual_coef_ @ sparse.support_vectors_.toarray(), sparse.coef_, atol=1e-5)


def test_sparse_validation_sets_and_kernels() -> None:
    X, y = make_circles(n_samples=80, noise=0.1, factor=0.4, random_state=0)
    for options in ({"kernel": "rbf"}, {"kernel": "poly", "degree": 2, "coef0": 1.0}):
        dense = BilevelSVC(**options).fit(X[:60], y[:60], X[60:], y[60:])  # type: ignore[arg-type]
        sparse = BilevelSVC(**options).fit(csr_array(X[:60]), y[:60], csr_array(X[60:]), y[60:])  # type: ignore[arg-type]
        np.testing.assert_allclose(sparse.decision_function(csr_array(X)), dense.decision_function(X), atol=1e-4)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        BilevelSVC(kernel="precomputed").fit(csr_array(X @ X.T), y)


def test_wide_sparse_samples_are_never_dense() -> None:
    generator = np.random.default_rng(0)
    n, features = 60, 200_000
    X = random_array((n, features), density=2e-4, rng=generator, format="csr")
    y = np.arange(n) % 2
    X = csr_array(X + csr_array((np.where(y, 1.0, -1.0), (np.arange(n), np.zeros(n, int))), shape=X.shape))
    BilevelSVC().fit(X, y)  # compiled
    tracemalloc.start()
    model = BilevelSVC().fit(X, y)
    accuracy = model.score(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert accuracy == 1.0
    assert model.coef_.shape == (1, features)
    assert peak < 0.25 * 8 * n * features


def test_sparse_coordinates_lose_nothing() -> None:
    samples = random_array((20, 300), density=0.1, rng=np.random.default_rng(3), format="csr")
    space = FeatureSpace.linear(samples)
    coordinates = space.coordinates(samples)
    assert coordinates.shape[1] <= 20
    np.testing.assert_allclose(coordinates @ coordinates.T, (samples @ samples.T).toarray(), atol=1e-9)
    w = np.random.default_rng(4).standard_normal(coordinates.shape[1])
    np.testing.assert_allclose(samples @ space.weights(w, 300), coordinates @ w, atol=1e-9)


# --- many classes --------------------------------------------------------------------------------------------------
def test_many_classes_are_one_against_the_rest_each() -> None:
    X, y = three_clouds()
    names = np.array(["ash", "elm", "oak"])[y]
    model = BilevelSVC().fit(X[:60], names[:60], X[60:], names[60:])
    values = model.decision_function(X)
    assert values.shape == (90, 3)
    assert list(model.classes_) == ["ash", "elm", "oak"]
    for index, name in enumerate(model.classes_):
        alone = BilevelSVC().fit(X[:60], names[:60] == name, X[60:], names[60:] == name)
        np.testing.assert_allclose(values[:, index], alone.decision_function(X), atol=1e-6)
        np.testing.assert_allclose(model.margins_[index], alone.margins_, atol=1e-6)
        assert model.results_[index].upper_value == pytest.approx(alone.result_.upper_value)
    np.testing.assert_array_equal(model.predict(X), model.classes_[values.argmax(axis=1)])
    assert model.score(X, names) > 0.8
    assert (model.coef_.shape, model.intercept_.shape, model.margins_.shape) == ((3, 2), (3,), (3, 60))
    np.testing.assert_allclose(model.dual_coef_ @ model.support_vectors_, model.coef_, atol=1e-5)
    assert model.penalised_decision_function(X).shape == (90, 3)
    assert not hasattr(model, "result_")
    with pytest.raises(ValueError, match="two classes only"):
        model.staged_predict(X)


@pytest.mark.slow
def test_many_classes_as_scikit_learn_wraps_them() -> None:
    X, y = three_clouds()
    model = BilevelSVC(kernel="rbf").fit(X, y)
    wrapped = OneVsRestClassifier(BilevelSVC(kernel="rbf")).fit(X, y)
    assert model.score(X, y) > 0.85
    assert np.mean(model.predict(X) == wrapped.predict(X)) > 0.9  # their validation parts differ


def test_the_most_forgiven_of_many_classes_are_mislabelled() -> None:
    X, y = make_blobs(n_samples=120, centers=[(-4.0, 0.0), (4.0, 0.0), (0.0, 6.0)], random_state=0)
    wrong = np.arange(0, 80, 10)
    noisy = y.copy()
    noisy[wrong] = (noisy[wrong] + 1) % 3
    model = BilevelSVC().fit(X[:80], noisy[:80], X[80:], y[80:])
    assert set(model.most_forgiven(len(wrong))) == set(wrong)


def test_balanced_classes_weigh_both_sides_the_same() -> None:
    X, y = three_clouds()
    keep = np.flatnonzero((y != 2) | (np.arange(90) % 5 == 0))
    model = BilevelSVC(class_weight="balanced").fit(X[keep], y[keep], X, y)
    side = (y[keep] == 2).astype(int)
    weight = compute_sample_weight("balanced", side)
    theirs = np.where(y == 2, weight[side == 1][0], weight[side == 0][0])
    alone = BilevelSVC().fit(X[keep], side, X, (y == 2) * 1, sample_weight=weight, sample_weight_val=theirs)
    np.testing.assert_allclose(model.decision_function(X)[:, 2], alone.decision_function(X), atol=1e-6)


# --- time ----------------------------------------------------------------------------------------------------------
def test_a_solve_stops_before_the_step_that_would_pass_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = overlapping(40)
    samples = X[:30], 2.0 * y[:30] - 1.0, X[30:], 2.0 * y[30:] - 1.0
    scaled, _ = scaled_problem(samples, weights=SampleWeights.equal(30, 10))
    free = Solvers(scaled).follower(np.full(30, 1.5))
    assert free.iterations > 4
    pieces = Solvers(scaled, deadline=np.inf).follower(np.full(30, 1.5))  # stops for the clock, finds the same
    np.testing.assert_array_equal(pieces.y, free.y)
    assert pieces.iterations == free.iterations
    ticks = count()
    monkeypatch.setattr(padded, "clock", lambda: float(next(ticks)))
    solvers = Solvers(scaled, deadline=3.5)
    solvers._paces = SlowSteps()
    with pytest.raises(TimeLimitReached) as reached:
        solvers.follower(np.full(30, 1.5))
    assert next(ticks) == 5
    assert reached.value.y is not None
    with pytest.raises(TimeLimitReached):  # and nothing is begun afterwards
        solvers.leader(charge=np.ones(30))


class SlowSteps(dict[str, float]):
    """Every Newton step takes 0.3 s, whatever is measured: so steps are made one at a time."""

    def get(self, name: str, default: Any = None) -> float:  # type: ignore[override]
        return 0.3


@pytest.mark.parametrize("options", [{}, {"method": "pgd"}], ids=["exact", "pgd"])
def test_the_time_limit_is_kept(options: dict[str, Any]) -> None:
    X, y = make_circles(n_samples=120, noise=0.3, factor=0.7, random_state=0)
    with counted(step=0.01) as clock, pytest.warns(ConvergenceWarning, match="time limit"):
        model = BilevelSVC(kernel="rbf", time_limit=0.5, **options).fit(X, y)
    assert clock.passed < 0.8
    assert model.result_.status is Status.TIME_LIMIT
    assert "time limit" in model.result_.message
    assert np.isfinite(model.decision_function(X)).all()


def test_classes_share_the_time() -> None:
    X, y = make_blobs(n_samples=120, centers=3, cluster_std=4.0, random_state=0)
    with counted(step=0.01) as clock, pytest.warns(ConvergenceWarning, match="time limit"):
        model = BilevelSVC(kernel="rbf", time_limit=0.6).fit(X, y)
    assert clock.passed < 0.9
    assert all(result.seconds["run"] > 0.1 for result in model.results_)
    assert model.predict(X).shape == (120,)


def test_no_time_at_all_gives_a_constant_and_says_so() -> None:
    X, y = overlapping()
    with pytest.warns(ConvergenceWarning, match="not yet the follower's answer"):
        model = BilevelSVC(time_limit=1e-9).fit(X[y >= 0], y)
    np.testing.assert_array_equal(model.coef_, np.zeros((1, 2)))
    assert np.isnan(model.result_.certificate.penalty_gap)


def test_where_no_set_can_be_solved_the_follower_still_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = make_blobs(n_samples=60, centers=[(-3.0, 0.0), (3.0, 0.5)], cluster_std=0.8, random_state=0)
    monkeypatch.setattr("blocc.svm.support_sets.follower_residual", lambda *_: 1.0)  # nothing is trusted
    with pytest.warns(ConvergenceWarning, match="stalled: y is the follower's answer"):
        model = BilevelSVC().fit(X, y)
    certificate = model.result_.certificate
    assert max(certificate.stationarity, certificate.feasibility, certificate.complementarity) < 1e-6
    assert model.score(X, y) == 1.0
