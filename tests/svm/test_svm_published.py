"""The published experiment on the real data sets, where they are at hand."""

from __future__ import annotations

import numpy as np
import pytest

from blocc.svm import BilevelSVC, proportional_sizes, split_indices
from svm_datasets import shared_dataset
from svm_reference import signed_rows, solve_lower_level

SPLITS = 50


@pytest.mark.parametrize(
    ("name", "published"), [pytest.param("diabetes", 0.767, marks=pytest.mark.slow), ("fourclass", 0.761)]
)
def test_at_least_as_accurate_as_published(name: str, published: float) -> None:
    data = shared_dataset(name)
    train_size, validation_size = proportional_sizes(data.n_samples)
    accuracy, values = [], []
    for seed in range(SPLITS):
        train, validation, test = split_indices(data.n_samples, train=train_size, validation=validation_size, seed=seed)
        model = BilevelSVC(gamma=12.0, start="uniform", random_state=seed)
        model.fit(data.X[train], data.y[train], data.X[validation], data.y[validation])
        assert model.result_.success
        assert model.is_global_
        accuracy.append(model.score(data.X[test], data.y[test]))
        values.append(model.validation_loss_ + 0.5 * float(model.margins_ @ model.margins_))
        if seed < 2:
            labels = np.where(data.y[train] == data.classes[1], 1.0, -1.0)
            rows = signed_rows(data.X[train], labels)
            answer = solve_lower_level(rows, np.append(np.ones(data.n_features), 0.0), model.margins_)
            assert answer is not None
            best, y, _ = answer
            assert (rows @ model.result_.y - 1.0 + model.margins_).min() > -1e-6
            assert model.result_.lower_value == pytest.approx(best, abs=1e-6)
            np.testing.assert_allclose(model.result_.y, y, atol=1e-5)
    assert np.mean(accuracy) >= published
    if name == "diabetes":
        assert np.mean(values) < 700.0


def test_the_papers_price_reaches_its_global_optimum() -> None:
    data = shared_dataset("diabetes")
    train, validation, _ = split_indices(768, train=500, validation=150, seed=0)
    model = BilevelSVC(c_penalty="squared", c_weight=1.0, gamma=12.0, start="uniform")
    model.fit(data.X[train], data.y[train], data.X[validation], data.y[validation])
    nothing_learned = 150 * np.e + 0.5 * 500  # c = 1, w = 0
    assert model.is_global_
    assert model.result_.upper_value < 0.8 * nothing_learned
