from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_circles
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from blocc import Result, Status
from blocc.errors import OptionError
from blocc.svm import PRESETS, BilevelSVC
from selections import few


def overlapping(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_blobs(n_samples=n, centers=[(-1.0, 0.0), (1.0, 0.5)], cluster_std=1.2, random_state=seed)
    return X, y


def separated(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(n_samples=n, centers=[(-3.0, 0.0), (3.0, 0.5)], cluster_std=0.8, random_state=seed)


@pytest.fixture(scope="module")
def fitted() -> BilevelSVC:
    return BilevelSVC().fit(*overlapping())


@pytest.mark.slow
def test_scikit_learn_accepts_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = check_estimator(BilevelSVC(), on_fail=None, on_skip=None)
    failed = [(check["check_name"], check["exception"]) for check in found if check["status"] == "failed"]
    assert not failed
    assert Counter(check["status"] for check in found)["passed"] >= 50


def test_attributes(fitted: BilevelSVC) -> None:
    X, y = overlapping()
    train = fitted.training_indices_
    assert isinstance(fitted.result_, Result)
    assert fitted.result_.status is Status.CONVERGED
    assert fitted.is_global_
    assert fitted.result_.upper_value == pytest.approx(fitted.bound_, rel=1e-6)
    assert fitted.coef_.shape == (1, 2)
    assert fitted.intercept_.shape == (1,)
    assert fitted.margins_.shape == train.shape
    assert fitted.n_iter_ >= 1
    assert sorted([*train, *fitted.validation_indices_]) == list(range(len(X)))
    labels = np.where(y == fitted.classes_[1], 1.0, -1.0)
    decision = fitted.decision_function(X)
    np.testing.assert_allclose(decision, X @ fitted.coef_[0] + fitted.intercept_[0])
    # Each sample has the margin that it was granted, and no more forgiveness than it needs.
    np.testing.assert_allclose(fitted.margins_, np.maximum(1.0 - (labels * decision)[train], 0.0), atol=1e-7)
    held_out = fitted.validation_indices_
    assert fitted.validation_loss_ == pytest.approx(np.exp(1.0 - (labels * decision)[held_out]).sum())
    assert fitted.training_loss_ == pytest.approx(np.exp(1.0 - (labels * decision)[train]).sum())
    assert fitted.result_.upper_value == pytest.approx(fitted.validation_loss_ + 10.0 * fitted.margins_.sum())


def test_w_is_a_combination_of_the_support_vectors(fitted: BilevelSVC) -> None:
    np.testing.assert_allclose(fitted.dual_coef_ @ fitted.support_vectors_, fitted.coef_, atol=1e-6)
    assert fitted.dual_coef_.sum() == pytest.approx(0.0, abs=1e-6)  # b is free


def test_most_forgiven(fitted: BilevelSVC) -> None:
    worst = fitted.most_forgiven(3)
    c = dict(zip(fitted.training_indices_, fitted.margins_, strict=True))
    assert [c[index] for index in worst] == sorted(c.values(), reverse=True)[:3]
    assert len(fitted.most_forgiven(10_000)) == (fitted.margins_ > 1e-9).sum()


def test_stages_end_at_the_answer(fitted: BilevelSVC) -> None:
    X, _ = overlapping()
    stages = list(fitted.staged_decision_function(X))
    assert len(stages) == len(fitted.stage_rows_) == len(fitted.result_.history)
    np.testing.assert_allclose(stages[-1], fitted.decision_function(X), atol=1e-6)
    np.testing.assert_array_equal(list(fitted.staged_predict(X))[-1], fitted.predict(X))


def test_penalised_answer_agrees_where_nothing_is_hidden(fitted: BilevelSVC) -> None:
    X, _ = overlapping()
    assert abs(fitted.result_.certificate.penalty_gap) < 1e-6
    np.testing.assert_allclose(fitted.penalised_decision_function(X), fitted.decision_function(X), atol=1e-5)


def test_a_validation_set_of_its_own() -> None:
    X, y = overlapping()
    inner = BilevelSVC(random_state=3).fit(X, y)
    train, held_out = inner.training_indices_, inner.validation_indices_
    outer = BilevelSVC().fit(X[train], y[train], X[held_out], y[held_out])
    assert outer.validation_indices_ is None
    np.testing.assert_allclose(outer.coef_, inner.coef_, atol=1e-9)


def test_seeds_make_splits() -> None:
    X, y = overlapping()
    first, again, other = (BilevelSVC(random_state=seed).fit(X, y) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert set(first.validation_indices_) != set(other.validation_indices_)
    assert np.mean(y[first.validation_indices_]) == pytest.approx(np.mean(y), abs=0.05)  # stratified
    half = BilevelSVC(validation_fraction=0.5).fit(X, y)
    assert len(half.validation_indices_) == 30


@pytest.mark.parametrize("start", ["uniform", np.full(45, 1.0), np.full(45, 4.0), np.zeros(45)])
def test_the_start_does_not_matter_where_classes_overlap(fitted: BilevelSVC, start: Any) -> None:
    X, y = overlapping()
    model = BilevelSVC(start=start, gamma=12.0).fit(X, y)
    assert model.is_global_
    np.testing.assert_allclose(model.coef_, fitted.coef_, atol=1e-6)
    assert np.linalg.norm(model.coef_) > 0.1  # never c = 1, w = 0, where the follower answers no small change of c


@pytest.mark.parametrize("c_penalty", ["sum", "squared", "norm"])
@pytest.mark.parametrize("intercept_weight", [0.0, 1.0])
@pytest.mark.parametrize("make", [overlapping, separated])
def test_every_price(c_penalty: str, intercept_weight: float, make: Any) -> None:
    X, y = make()
    model = BilevelSVC(c_penalty=c_penalty, c_weight=1.0, intercept_weight=intercept_weight).fit(X, y)
    assert model.result_.success
    assert model.score(X, y) > (0.7 if make is overlapping else 0.97)
    assert model.bound_ <= model.result_.upper_value * (1.0 + 1e-9)
    certificate = model.result_.certificate
    assert max(certificate.stationarity, certificate.feasibility, certificate.complementarity) < 1e-6


@pytest.mark.slow
def test_one_feature_many_features_and_duplicates() -> None:
    X, y = overlapping()
    assert BilevelSVC().fit(X[:, :1], y).result_.success
    generator = np.random.default_rng(0)
    wide = np.hstack([X, generator.normal(size=(60, 100))])
    model = BilevelSVC().fit(wide, y)
    assert model.result_.success
    assert model.coef_.shape == (1, 102)
    twice = BilevelSVC(random_state=0).fit(np.vstack([X, X]), np.append(y, y))
    assert twice.result_.success
    constant = BilevelSVC().fit(np.hstack([X, np.full((60, 1), 7.0)]), y)
    assert constant.result_.success
    assert constant.coef_[0, 2] == pytest.approx(0.0, abs=1e-9)


def test_labels_may_be_anything() -> None:
    X, y = overlapping()
    named = BilevelSVC().fit(X, np.where(y == 1, "yes", "no"))
    plain = BilevelSVC().fit(X, y)
    assert list(named.classes_) == ["no", "yes"]
    np.testing.assert_array_equal(named.predict(X) == "yes", plain.predict(X) == 1)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((6, 2)), np.zeros(6), "one class"),
        (np.ones((6, 2)), np.arange(6) % 2, "2 of them different"),
        (np.full((6, 2), np.nan), np.arange(6) % 2, "NaN"),
        (np.ones((6, 2)), np.linspace(0, 1, 6), "continuous"),
        (np.ones((3, 2)), np.array([0, 1, 1]), "n_samples = 3"),
        (np.ones((6, 2)), np.zeros(5), "inconsistent"),
    ],
)
def test_bad_samples(X: np.ndarray, y: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BilevelSVC().fit(X, y)


def test_bad_validation_sets() -> None:
    X, y = overlapping()
    with pytest.raises(ValueError, match="given together"):
        BilevelSVC().fit(X, y, X)
    with pytest.raises(ValueError, match="inconsistent"):
        BilevelSVC().fit(X, y, X[:5], y[:4])
    with pytest.raises(ValueError, match="not in y"):
        BilevelSVC().fit(X, y, X[:2], [0, 7])
    with pytest.raises(ValueError, match=r"X_val does not fit: .* features"):
        BilevelSVC().fit(X, y, X[:5, :1], y[:5])
    with pytest.warns(UserWarning, match="one class only"):
        model = BilevelSVC().fit(X, y, X[y == 1], y[y == 1])
    assert model.result_.success


def test_a_rare_class_stays_in_the_training_set() -> None:
    X, y = separated(20)
    rare = np.append(np.flatnonzero(y == 0)[:1], np.flatnonzero(y == 1))
    model = BilevelSVC().fit(X[rare], y[rare])
    assert 0 in model.training_indices_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "cosine"}, "kernel"),
        ({"preset": "mine"}, "preset"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"c_penalty": "cube"}, "c_penalty"),
        ({"c_weight": 0.0}, "c_weight"),
        ({"intercept_weight": -1.0}, "intercept_weight"),
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": "big"}, "gamma"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"method": "magic"}, "method"),
        ({"start": "zero"}, "start"),
        ({"start": np.ones(3)}, "start"),
        ({"start": np.full(45, -1.0)}, "start"),
        ({"degree": 0}, "degree"),
        ({"kernel_gamma": -1.0}, "kernel_gamma"),
        ({"n_components": 0}, "n_components"),
        ({"time_limit": 0.0}, "time_limit"),
        ({"class_weight": "even"}, "class_weight"),
        ({"class_weight": {0: -1.0, 1: 1.0}}, "class_weight must hold nonnegative numbers, got -1.0 for 0"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        BilevelSVC(**options).fit(*overlapping())


def test_not_fitted() -> None:
    with pytest.raises(NotFittedError):
        BilevelSVC().predict(np.zeros((2, 2)))
    with pytest.raises(NotFittedError):
        BilevelSVC().most_forgiven()


def test_in_pipelines_and_searches() -> None:
    X, y = overlapping(100)
    pipeline = make_pipeline(StandardScaler(), BilevelSVC())
    scores = cross_val_score(pipeline, X, y, cv=3)
    assert scores.min() > 0.6
    search = GridSearchCV(pipeline, {"bilevelsvc__c_weight": [1.0, 10.0]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.7
    copy = clone(BilevelSVC(c_weight=3.0, kernel="poly"))
    assert copy.get_params()["c_weight"] == 3.0


@pytest.fixture(scope="module")
def circles() -> tuple[np.ndarray, np.ndarray]:
    return make_circles(n_samples=80, noise=0.1, factor=0.4, random_state=0)


def test_kernels_find_what_lines_cannot(circles: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = circles
    assert BilevelSVC().fit(X, y).score(X, y) < 0.8
    for options in ({"kernel": "rbf"}, {"kernel": "poly", "degree": 2, "coef0": 1.0}):
        model = BilevelSVC(**options).fit(X, y)  # type: ignore[arg-type]
        assert model.result_.success
        assert model.score(X, y) > 0.95
        # The expansion in support vectors is the decision function.
        kernel = rbf_kernel if options["kernel"] == "rbf" else polynomial_kernel
        gamma = 1.0 / (2 * X[model.training_indices_].var())
        extra = {} if options["kernel"] == "rbf" else {"degree": 2, "coef0": 1.0}
        matrix = kernel(X, model.support_vectors_, gamma=gamma, **extra)
        np.testing.assert_allclose(
            matrix @ model.dual_coef_[0] + model.intercept_[0], model.decision_function(X), atol=1e-4
        )


def test_precomputed_is_the_same(circles: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = circles
    train, held_out = np.arange(60), np.arange(60, 80)
    direct = BilevelSVC(kernel="rbf", kernel_gamma=1.5).fit(X[train], y[train], X[held_out], y[held_out])
    matrix = rbf_kernel(X, X[train], gamma=1.5)
    given = BilevelSVC(kernel="precomputed").fit(matrix[train], y[train], matrix[held_out], y[held_out])
    np.testing.assert_allclose(given.decision_function(matrix), direct.decision_function(X), atol=1e-5)
    # A part set aside by itself: of the kernels with all samples those with the training samples count.
    alone = BilevelSVC(kernel="precomputed").fit(rbf_kernel(X, gamma=1.5), y)
    assert alone.score(rbf_kernel(X, gamma=1.5), y) > 0.95
    with pytest.raises(ValueError, match="square"):
        BilevelSVC(kernel="precomputed").fit(matrix[:, :50], y)


def test_a_linear_kernel_is_linear() -> None:
    X, y = overlapping()
    plain = BilevelSVC().fit(X, y)
    through = BilevelSVC(kernel="poly", degree=1, kernel_gamma=1.0).fit(X, y)
    np.testing.assert_allclose(through.decision_function(X), plain.decision_function(X), atol=1e-5)
    assert not hasattr(through, "coef_")


def test_few_components(circles: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = circles
    model = BilevelSVC(kernel="rbf", n_components=5).fit(X, y)
    assert model.result_.y.shape == (6,)
    assert model.score(X, y) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("preset", few(["paper", "svm"], "svm"))
def test_presets_run_algorithm_1(preset: str) -> None:
    X, y = overlapping()
    with pytest.warns(ConvergenceWarning, match="iteration limit|stalled"):  # a failure is never silent
        model = BilevelSVC(preset=preset, max_iterations=40, c_weight=77.0).fit(X, y)
    settings = model.result_.settings
    assert settings["outer"] == "pgd"
    assert settings["gamma"] == PRESETS[preset]["gamma"] == 12.0
    assert settings["step"] == 0.01
    first = model.result_.history.upper_value[0]
    assert model.result_.upper_value < first  # it moves, from c ~ U(1, 5)
    assert not model.is_global_
    assert len(list(model.staged_predict(X))) == len(model.stage_rows_)
