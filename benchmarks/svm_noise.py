"""Where BilevelSVC wins and where it does not: wrong training labels beside a clean validation set, and clean labels.

    python -m benchmarks.svm_noise [--repeats 10] [--quick]

Every method sees the same training and validation samples, standardised by the training samples. scikit-learn's SVC
(RBF) and LinearSVC are tuned by GridSearchCV over C (and gamma) on that very split: its one fold are the validation
samples. They are fitted with the best parameters to the training samples, and, as rows of their own, to training and
validation samples together. The last row uses the validation samples alone (5 folds for C). Accuracy is on clean test
samples. As many suspects as there are mislabelled training samples are named by every method, those that it forgives
most or leaves furthest on the wrong side; the share of them that is mislabelled is printed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from blocc.svm import BilevelSVC

PRICES = np.logspace(-3, 3, 7)
WIDTHS = ["scale", 0.03, 0.1, 0.3, 1.0]


class Split(NamedTuple):
    """Training samples, validation samples and test samples; ``wrong`` are the mislabelled training samples."""

    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    wrong: np.ndarray


def cut(X: np.ndarray, y: np.ndarray, sizes: tuple[int, int], noise: float, one_sided: bool, seed: int) -> Split:
    """Cut at random, then turn the labels of a share of the training samples (of one class only, if one-sided)."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(y))
    train, validation, test = np.split(order, np.cumsum(sizes))
    labels = y[train].copy()
    candidates = np.flatnonzero(labels == 1) if one_sided else np.arange(len(labels))
    wrong = generator.choice(candidates, round(noise * len(candidates)), replace=False)
    labels[wrong] = 1 - labels[wrong]
    scaler = StandardScaler().fit(X[train])
    parts = [scaler.transform(X[part]) for part in (train, validation, test)]
    return Split(parts[0], labels, parts[1], y[validation], parts[2], y[test], wrong)


def cases(repeats: int) -> Iterator[tuple[str, list[Split]]]:
    """Named cases with a split for each seed."""

    def clouds(seed: int) -> tuple[np.ndarray, np.ndarray]:
        return make_classification(
            n_samples=2500, n_features=20, n_informative=6, flip_y=0.0, class_sep=1.0, random_state=seed
        )

    cancer = load_breast_cancer(return_X_y=True)
    for noise, one_sided in ((0.0, False), (0.2, False), (0.4, False), (0.4, True)):
        side = " of one class" if one_sided else ""
        splits = [cut(*clouds(seed), (300, 200), noise, one_sided, seed) for seed in range(repeats)]
        yield f"20 features, {noise:.0%} of the training labels{side} wrong", splits
    for noise, one_sided in ((0.0, False), (0.4, True)):
        side = " of one class" if one_sided else ""
        splits = [cut(*cancer, (250, 80), noise, one_sided, seed) for seed in range(repeats)]
        yield f"breast cancer (30 features), {noise:.0%} of the training labels{side} wrong", splits
    moons = [
        cut(*make_moons(2500, noise=0.25, random_state=seed), (300, 100), 0.0, False, seed) for seed in range(repeats)
    ]
    yield "two moons (2 features, curved border), clean labels", moons


def tuned(estimator: Any, grid: dict[str, Any], split: Split) -> GridSearchCV:
    """A grid search whose one fold is the validation set."""
    fold = PredefinedSplit(np.append(np.full(len(split.y), -1), np.zeros(len(split.y_val))))
    search = GridSearchCV(estimator, grid, cv=fold, refit=True)
    return search.fit(np.vstack([split.X, split.X_val]), np.append(split.y, split.y_val))


def on_training_samples(search: GridSearchCV, split: Split) -> Any:
    """The estimator that the search judged best, fitted to the training samples alone."""
    return search.best_estimator_.__class__(**search.best_estimator_.get_params()).fit(split.X, split.y)


def found_wrong(order: np.ndarray, split: Split) -> float:
    """Of as many suspects as there are mislabelled samples, the share that is mislabelled."""
    return float(np.isin(order[: len(split.wrong)], split.wrong).mean()) if len(split.wrong) else np.nan


Row = tuple[float, float, float]  #: accuracy, share of mislabelled samples among the suspects, seconds


def bilevel(split: Split, **options: Any) -> Row:
    """BilevelSVC as it comes."""
    began = time.perf_counter()
    model = BilevelSVC(**options).fit(split.X, split.y, split.X_val, split.y_val)
    seconds = time.perf_counter() - began - model.result_.seconds["compile"]
    return model.score(split.X_test, split.y_test), found_wrong(np.argsort(-model.margins_), split), seconds


def peer(split: Split, estimator: Any, grid: dict[str, Any], both: bool) -> Row:
    """A tuned machine of scikit-learn, fitted to the training samples, or to the validation samples as well."""
    began = time.perf_counter()
    search = tuned(estimator, grid, split)
    model = search if both else on_training_samples(search, split)
    seconds = time.perf_counter() - began
    margins = np.where(split.y == 1, 1.0, -1.0) * model.decision_function(split.X)
    return model.score(split.X_test, split.y_test), found_wrong(np.argsort(margins), split), seconds


def validation_alone(split: Split) -> Row:
    """A LinearSVC that ignores the training samples."""
    began = time.perf_counter()
    model = GridSearchCV(linear_machine(), {"C": PRICES}, cv=5).fit(split.X_val, split.y_val)
    seconds = time.perf_counter() - began
    margins = np.where(split.y == 1, 1.0, -1.0) * model.decision_function(split.X)
    return model.score(split.X_test, split.y_test), found_wrong(np.argsort(margins), split), seconds


def linear_machine() -> LinearSVC:
    return LinearSVC(dual="auto", max_iter=20_000, random_state=0)


def methods() -> dict[str, Callable[[Split], Row]]:
    """Name and fit of each method."""
    straight, curved = {"C": PRICES}, {"C": PRICES, "gamma": WIDTHS}
    return {
        "BilevelSVC": bilevel,
        "BilevelSVC, c_weight=1": lambda split: bilevel(split, c_weight=1.0),
        "BilevelSVC, RBF, 60 directions": lambda split: bilevel(split, kernel="rbf", n_components=60),
        "LinearSVC, training samples": lambda split: peer(split, linear_machine(), straight, both=False),
        "SVC (RBF), training samples": lambda split: peer(split, SVC(), curved, both=False),
        "LinearSVC, both together": lambda split: peer(split, linear_machine(), straight, both=True),
        "SVC (RBF), both together": lambda split: peer(split, SVC(), curved, both=True),
        "LinearSVC, validation samples alone": validation_alone,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="two repeats, without the RBF kernel")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    chosen = {name: fit for name, fit in methods().items() if not (arguments.quick and "RBF" in name)}
    for name, splits in cases(2 if arguments.quick else arguments.repeats):
        first = splits[0]
        print(f"\n{name}: {len(first.y)} to train, {len(first.y_val)} to validate, {len(splits)} splits")
        print(f"  {'':<36} {'test accuracy':<17} mislabelled among the suspects   seconds")
        for method, fit in chosen.items():
            accuracy, share, seconds = np.array([fit(split) for split in splits]).T
            suspects = "-" if np.isnan(share).all() else f"{share.mean():.0%}"
            print(
                f"  {method:<36} {accuracy.mean():.3f} +- {accuracy.std():.3f}   {suspects:<29}   "
                f"{np.median(seconds):7.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
