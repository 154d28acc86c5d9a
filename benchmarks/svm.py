"""The published SVM experiment, against the paper and against what a scikit-learn user would do instead.

    python -m benchmarks.svm [--splits 50] [--growth]

For each data set that can be had (`reproduction/data_sets.py` says from where) the same random splits are given to
BilevelSVC with gamma = 12 and the published starts c ~ U(1, 5), and to a grid search over C for LinearSVC and for SVC
with an RBF kernel (5 folds on training and validation samples together). Accuracy is on the test samples. The
follower's answer at the chosen margins is checked by Clarabel through CVXPY. --growth measures how the time of one fit
grows with the number of samples, at 100 features.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import cvxpy
import numpy as np
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC, LinearSVC

from blocc.errors import BloccError
from blocc.svm import (
    BilevelSVC,
    LabelledData,
    expand_data,
    proportional_sizes,
    split_indices,
)
from reproduction.data_sets import load_data

PUBLISHED = {"diabetes": (0.767, 0.039, 1.73), "fourclass": (0.761, 0.014, 1.92)}  # accuracy, deviation, seconds
GRID = {"C": np.logspace(-3, 3, 7)}
Split = tuple[np.ndarray, np.ndarray, np.ndarray]


def samples(name: str) -> LabelledData | None:
    """A data set; None, and a sentence, where it cannot be had."""
    try:
        return load_data(name)
    except BloccError as error:
        print(f"{name} is left out: {error}")
        return None


def splits(data: LabelledData, count: int) -> Iterator[tuple[int, Split]]:
    train, validation = proportional_sizes(data.n_samples)
    for seed in range(count):
        yield seed, split_indices(data.n_samples, train=train, validation=validation, seed=seed)


def verify(model: BilevelSVC, X: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Constraint violation at our answer, and its lower value above Clarabel's optimum, relative."""
    w, b = cvxpy.Variable(X.shape[1]), cvxpy.Variable()
    problem = cvxpy.Problem(
        cvxpy.Minimize(0.5 * cvxpy.sum_squares(w) + 0.5 * model.intercept_weight * b**2),
        [cvxpy.multiply(labels, X @ w + b) >= 1.0 - model.margins_],
    )
    problem.solve(solver="CLARABEL")
    violation = np.max(1.0 - model.margins_ - labels * model.decision_function(X))
    best = float(problem.value)
    return max(float(violation), 0.0), abs(model.result_.lower_value - best) / (1.0 + best)


def bilevel(data: LabelledData, count: int, **options: Any) -> dict[str, Any]:
    """Fit every split; accuracy at y and at yF, the upper value by the paper's formula, seconds after compilation."""
    rows, checks, failures = [], [], Counter()
    positive = data.y == data.classes[1]
    for seed, (train, validation, test) in splits(data, count):
        model = BilevelSVC(**{"gamma": 12.0, "start": "uniform", "random_state": seed, **options})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # counted below
            model.fit(data.X[train], data.y[train], data.X[validation], data.y[validation])
        penalised = np.mean((model.penalised_decision_function(data.X[test]) > 0.0) == positive[test])
        paper_value = model.validation_loss_ + 0.5 * float(model.margins_ @ model.margins_)
        seconds = model.result_.seconds["run"]
        rows.append((model.score(data.X[test], data.y[test]), penalised, paper_value, seconds, model.is_global_))
        if seed < 5 and model.kernel == "linear":
            checks.append(verify(model, data.X[train], np.where(positive[train], 1.0, -1.0)))
        if not model.result_.success:
            failures[model.result_.status.value] += 1
    accuracy, penalised, values, seconds, proved = np.array(rows, dtype=float).T
    return {
        "accuracy": accuracy,
        "penalised": penalised,
        "value": values,
        "seconds": seconds,
        "global": proved,
        "failures": failures,
        "checks": np.max(checks, axis=0) if checks else None,
    }


def peer(data: LabelledData, count: int, make: Callable[[], Any]) -> tuple[np.ndarray, np.ndarray]:
    """Grid search over C on training and validation samples together."""
    accuracy, seconds = [], []
    for _, (train, validation, test) in splits(data, count):
        both = np.concatenate([train, validation])
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            search = GridSearchCV(make(), GRID, cv=5).fit(data.X[both], data.y[both])
        seconds.append(time.perf_counter() - begun)
        accuracy.append(search.score(data.X[test], data.y[test]))
    return np.array(accuracy), np.array(seconds)


def report(name: str, found: dict[str, Any]) -> None:
    checks = found["checks"]
    failures = "".join(f"; {count} {status}" for status, count in found["failures"].items())
    proof = f"violation {checks[0]:.0e}, excess {checks[1]:.0e}" if checks is not None else "-"
    print(
        f"  {name:<34} {found['accuracy'].mean():.3f} +- {found['accuracy'].std():.3f}   "
        f"{found['penalised'].mean():.3f}   {found['value'].mean():8.1f}   {np.median(found['seconds']):8.4f} s   "
        f"{found['global'].mean():4.0%}   {proof}{failures}"
    )


def experiment(data: LabelledData, count: int) -> None:
    accuracy, deviation, seconds = PUBLISHED[data.name]
    train, validation = proportional_sizes(data.n_samples)
    print(
        f"\n{data.name}: {data.n_samples} samples, {data.n_features} features; {count} splits of {train} training, "
        f"{validation} validation and {data.n_samples - train - validation} test samples"
    )
    print(f"  {'':<34} {'accuracy at y':<17} at yF    paper's f   {'per split':<11} proved {'Clarabel (5 splits)':<20}")
    print(f"  {'paper (accuracy of yF)':<34} {'':<17} {accuracy:.3f} +- {deviation:.3f}     {seconds:.2f} s")
    ours = bilevel(data, count)
    report("BilevelSVC, defaults", ours)
    report("BilevelSVC, the paper's price of c", bilevel(data, count, c_penalty="squared", c_weight=1.0))
    report(
        "BilevelSVC, published code's price", bilevel(data, count, c_penalty="norm", c_weight=1.0, intercept_weight=1.0)
    )
    wide = expand_data(data)
    report(f"BilevelSVC, quadratic: {wide.n_features} columns", bilevel(wide, count))
    few = max(count // 5, 1)
    report(f"BilevelSVC, RBF ({few} splits)", bilevel(data, few, kernel="rbf", start="auto"))
    for name, make in (("GridSearchCV, LinearSVC", LinearSVC), ("GridSearchCV, SVC (RBF)", lambda: SVC(kernel="rbf"))):
        scores, times = peer(data, count, make)
        ratio = np.median(times) / np.median(ours["seconds"])
        print(
            f"  {name:<34} {scores.mean():.3f} +- {scores.std():.3f}   {'':<19}   {np.median(times):8.4f} s   "
            f"{ratio:.1f} times our defaults"
        )


def growth() -> None:
    print("\nOne fit with 100 features; a quarter of the samples validates")
    print(f"{'samples':>8} {'classes':>12} {'run s':>8} {'compile s':>10} {'Newton steps':>13}  status")
    for label, options in (
        ("overlapping", {"class_sep": 1.0, "flip_y": 0.05}),
        ("separated", {"class_sep": 3.0, "flip_y": 0.0}),
    ):
        previous = None
        for samples in (1_250, 5_000, 20_000):
            X, y = make_classification(n_samples=samples, n_features=100, n_informative=20, random_state=0, **options)
            model = BilevelSVC().fit(X, y)
            result = model.result_
            run = result.seconds["run"]
            grown = "" if previous is None else f"  {run / previous:.1f} times the row above"
            print(
                f"{samples:>8} {label:>12} {run:>8.2f} {result.seconds['compile']:>10.2f} "
                f"{result.counts['newton_steps']:>13}  {result.status.value}"
                f"{', global' if model.is_global_ else ''}{grown}"
            )
            previous = run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--growth", action="store_true", help="only the growth with the number of samples")
    arguments = parser.parse_args()
    if not arguments.growth:
        for name in PUBLISHED:
            data = samples(name)
            if data is not None:
                experiment(data, arguments.splits)
    growth()


if __name__ == "__main__":
    main()
