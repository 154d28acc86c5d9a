"""A scikit-learn classifier whose margins are chosen by bilevel optimization."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import train_test_split
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, check_is_fitted, check_random_state, validate_data

from blocc._lib.arrays import Float, Int, NDArray
from blocc.errors import OptionError
from blocc.result import Result, Status
from blocc.svm.fitting import PRESETS, UNIFORM, FitOptions, MarginFit, fit_margins
from blocc.svm.kernels import KERNELS, FeatureMap, scale_gamma
from blocc.svm.margins import exponential_loss, signed_rows

#: The options of a fit that are arguments of the estimator too.
FIT_NAMES = tuple(field.name for field in fields(FitOptions))
Labels = Float[NDArray, "n"]
Features = Float[NDArray, "n d"]


class BilevelSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector classification with a margin chosen for every training sample by a validation set.

    The leader chooses margins c >= 0 to minimise ``sum exp(1 - l (w.z + b))`` over the validation samples plus a price
    of c; the follower answers with the smallest ``||w||^2 / 2`` such that training sample i has margin at least
    ``1 - c_i``. A large c_i means that the model chose to forgive sample i. Two classes; wrap it in
    ``sklearn.multiclass.OneVsRestClassifier`` for more. Features of very different size should be standardised first.

    Parameters
    ----------
    kernel : "linear", "rbf", "poly" or "precomputed"
    kernel_gamma, degree, coef0 : of the kernel, as in ``sklearn.svm.SVC`` (where the first is called gamma)
    n_components : int or None
        At most so many directions of a kernel matrix; None keeps all of them.
    validation_fraction : float
        Share of the samples that ``fit`` sets aside (stratified) when no validation set is given.
    random_state : int, RandomState or None
        Seed of that split, and of ``start="uniform"``.
    c_penalty : "sum", "squared" or "norm"
        The price of c: ``c_weight sum(c)``, which forgives few samples much, ``c_weight ||c||^2 / 2`` as in the paper,
        which forgives many a little, or ``c_weight ||c||`` as in its published code.
    c_weight : float
    intercept_weight : float
        Adds ``intercept_weight b^2 / 2`` to the follower's objective; 0 leaves b free.
    gamma : float or "auto"
        The penalty constant. It shapes the first step from a given start, and the certificate's yF.
    tolerance : float
        Of the conditions of an optimum, relative to the leader's gradient.
    start : "auto", "uniform" or array
        Margins to start from; "uniform" draws them from [1, 5], the published start. Where the classes overlap the
        answer is a global optimum and does not depend on it.
    method : "exact" or "pgd"
        "pgd" is Algorithm 1 of the paper with steps of length ``step``.
    step, max_iterations : for "pgd"
    time_limit : float or None
        Seconds; the best classifier so far is kept.
    preset : "default", "paper" or "published"
        Named settings; what a preset names overrides the arguments above.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
    coef_ : array of shape (1, n_features), for the linear kernel
    intercept_ : array of shape (1,)
    dual_coef_, support_, support_vectors_
        Weights, indices (into the X of ``fit``) and rows of the support vectors.
    margins_ : array
        c, one entry for each training sample.
    training_indices_, validation_indices_ : arrays
        Which rows of X were used for which purpose (None for a validation set of its own).
    training_loss_, validation_loss_ : float
        Sums of exp(1 - margin).
    bound_ : float
        No margins have a smaller upper value than this.
    is_global_ : bool
        Whether the answer is proved to be a global optimum.
    result_ : blocc.Result
        The bilevel result with its certificate.
    n_iter_ : int
    """

    result_: Result

    def __init__(
        self,
        *,
        kernel: str = "linear",
        kernel_gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        n_components: int | None = None,
        validation_fraction: float = 0.25,
        random_state: Any = 0,
        c_penalty: str = "sum",
        c_weight: float = 10.0,
        intercept_weight: float = 0.0,
        gamma: float | str = "auto",
        tolerance: float = 1e-5,
        start: Any = "auto",
        method: str = "exact",
        step: float = 0.01,
        max_iterations: int | None = None,
        time_limit: float | None = None,
        preset: str = "default",
    ) -> None:
        self.kernel = kernel
        self.kernel_gamma = kernel_gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_components = n_components
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.c_penalty = c_penalty
        self.c_weight = c_weight
        self.intercept_weight = intercept_weight
        self.gamma = gamma
        self.tolerance = tolerance
        self.start = start
        self.method = method
        self.step = step
        self.max_iterations = max_iterations
        self.time_limit = time_limit
        self.preset = preset

    def __sklearn_tags__(self) -> Any:
        """Two classes only; a precomputed kernel is pairwise."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None, *, report: Any = None) -> BilevelSVC:
        """Fit to samples X with labels y; validate on (X_val, y_val), or on a part of X.

        For a precomputed kernel X holds kernels between all samples, and X_val those of the validation samples with
        them. ``report(iteration, row)`` is called with every row of the history.
        """
        options, start = self.fit_options()
        X, y = validate_data(self, X, y, dtype=np.float64)
        labels = self._signs(y)
        if self.kernel == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"Precomputed matrix must be a square matrix. Input is a {X.shape[0]}x{X.shape[1]} matrix."
            )
        generator = check_random_state(self.random_state)
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val must be given together")
        if X_val is None:
            train, held_out = self._split(labels, generator)
            X_val, val_labels = X[held_out], labels[held_out]
        else:
            train, held_out = np.arange(len(X)), None
            X_val, val_labels = self._validation(X_val, y_val)
        self.training_indices_, self.validation_indices_ = train, held_out
        features, val_features = self._features(X, train, X_val)
        samples = features, labels[train], val_features, val_labels
        if isinstance(start, str):
            start = None if start == "auto" else generator.uniform(*UNIFORM, size=len(train))
        fit = fit_margins(samples, options, start, report)
        self._keep(fit, X, labels, train)
        self.training_loss_ = exponential_loss(signed_rows(*samples[:2]), fit.result.y, np.ones(len(samples[1])))
        self.validation_loss_ = exponential_loss(signed_rows(*samples[2:]), fit.result.y, np.ones(len(samples[3])))
        status = fit.result.status
        if status is not Status.CONVERGED:
            warnings.warn(f"{status.value}: {fit.result.message}", ConvergenceWarning, stacklevel=2)
        return self

    def decision_function(self, X: Any) -> Float[NDArray, "n"]:
        """Signed distance to the margin: positive for ``classes_[1]``."""
        check_is_fitted(self)
        return np.asarray(self._similarities(X) @ self._weights + self.intercept_[0])

    def predict(self, X: Any) -> NDArray:
        """The class of each sample."""
        positive = self.decision_function(X) > 0.0
        return np.asarray(self.classes_[positive.astype(int)])

    def staged_decision_function(self, X: Any) -> Iterator[Float[NDArray, "n"]]:
        """:meth:`decision_function` after each stage of the fit; ``stage_rows_`` tells their rows in the history."""
        check_is_fitted(self)
        similarities = self._similarities(X)
        for weights, intercept in zip(self._stage_weights, self._stage_intercepts, strict=True):
            yield similarities @ weights + intercept

    def staged_predict(self, X: Any) -> Iterator[NDArray]:
        """:meth:`predict` after each stage of the fit."""
        for values in self.staged_decision_function(X):
            yield self.classes_[(values > 0.0).astype(int)]

    def penalised_decision_function(self, X: Any) -> Float[NDArray, "n"]:
        """What the penalised answer yF says: the published figures belong to it. It may break the constraints."""
        similarities = self._similarities(X)
        return np.asarray(similarities @ self._penalised[:-1] + self._penalised[-1])

    def most_forgiven(self, count: int = 10) -> Int[NDArray, "count"]:
        """Indices (into the X of ``fit``) of the training samples with the largest margins, largest first."""
        check_is_fitted(self)
        order = np.argsort(-self.margins_, kind="stable")[:count]
        return np.asarray(self.training_indices_[order[self.margins_[order] > 1e-9]])

    def fit_options(self) -> tuple[FitOptions, Any]:
        """The options of a fit and its start, presets applied; raises an ``OptionError`` for an unfit argument."""
        if self.preset not in PRESETS:
            raise OptionError(f"preset must be {', '.join(map(repr, PRESETS))}, got {self.preset!r}")
        if self.kernel not in KERNELS:
            raise OptionError(f"kernel must be one of {', '.join(map(repr, KERNELS))}, got {self.kernel!r}")
        if not isinstance(self.validation_fraction, Real) or not 0.0 < self.validation_fraction < 1.0:
            raise OptionError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction!r}")
        if self.n_components is not None and (not isinstance(self.n_components, Integral) or self.n_components < 1):
            raise OptionError(f"n_components must be a positive whole number or None, got {self.n_components!r}")
        if not isinstance(self.degree, Integral) or self.degree < 1:
            raise OptionError(f"degree must be a positive whole number, got {self.degree!r}")
        number = isinstance(self.kernel_gamma, Real) and np.isfinite(self.kernel_gamma) and self.kernel_gamma > 0
        if not number and self.kernel_gamma not in ("scale", "auto"):
            raise OptionError(f"kernel_gamma must be 'scale', 'auto' or a positive number, got {self.kernel_gamma!r}")
        settings = {name: getattr(self, name) for name in (*FIT_NAMES, "start")} | PRESETS[self.preset]
        start = settings.pop("start")
        if isinstance(start, str) and start not in ("auto", "uniform"):
            raise OptionError(f"start must be 'auto', 'uniform' or an array of margins, got {start!r}")
        return FitOptions(**settings), start

    def _signs(self, y: NDArray) -> Labels:
        """Labels as -1 and 1; sets ``classes_``."""
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(y)}: wrap BilevelSVC in sklearn.multiclass.OneVsRestClassifier."
            )
        if len(self.classes_) < 2:
            raise ValueError(
                f"BilevelSVC needs samples of two classes, but the data has one class: {self.classes_[0]!r}"
            )
        return 2.0 * codes - 1.0

    def _validation(self, X_val: Any, y_val: Any) -> tuple[Features, Labels]:
        """A validation set of the user's own."""
        X_val = validate_data(self, X_val, dtype=np.float64, reset=False)
        y_val = check_array(y_val, ensure_2d=False, dtype=None, input_name="y_val")
        if len(X_val) != len(y_val):
            raise ValueError(f"X_val and y_val have inconsistent numbers of samples: {len(X_val)} and {len(y_val)}")
        unknown = np.setdiff1d(y_val, self.classes_)
        if len(unknown):
            raise ValueError(f"y_val contains labels that are not in y: {unknown[:5]}")
        labels = np.where(y_val == self.classes_[1], 1.0, -1.0)
        if len(np.unique(labels)) < 2:
            warnings.warn("the validation set has one class only", UserWarning, stacklevel=3)
        return X_val, labels

    def _split(self, labels: Labels, generator: Any) -> tuple[Int[NDArray, "train"], Int[NDArray, "held_out"]]:
        """Set a stratified part aside; a class with a single sample stays in the training set."""
        n = len(labels)
        counts = {sign: int((labels == sign).sum()) for sign in (-1.0, 1.0)}
        if n < 4:
            raise ValueError(f"BilevelSVC needs at least 4 samples to set a validation part aside, got n_samples = {n}")
        size = min(max(round(n * self.validation_fraction), 2), n - 2)
        everything = np.arange(n)
        if min(counts.values()) >= 2:
            train, held_out = train_test_split(everything, test_size=size, stratify=labels, random_state=generator)
        else:
            rare = np.flatnonzero(labels == min(counts, key=lambda sign: counts[sign]))
            others = np.setdiff1d(everything, rare)
            train, held_out = train_test_split(others, test_size=min(size, len(others) - 1), random_state=generator)
            train = np.append(train, rare)
        return np.sort(train), np.sort(held_out)

    def _features(
        self, X: Features, train: Int[NDArray, "train"], X_val: Float[NDArray, "m d"]
    ) -> tuple[Float[NDArray, "train e"], Float[NDArray, "m e"]]:
        """Features of both sets, and what prediction needs to compute them."""
        samples = X[train]
        if self.kernel == "linear":
            self._map = FeatureMap.of_samples(samples)
            return self._map(samples), self._map(X_val)
        if self.kernel == "precomputed":
            matrix, cross = samples[:, train], X_val[:, train]
        else:
            gamma = scale_gamma(samples, self.kernel_gamma)
            parameters = {"gamma": gamma, "degree": int(self.degree), "coef0": self.coef0}
            self._kernel = partial(pairwise_kernels, Y=samples, metric=self.kernel, filter_params=True, **parameters)
            matrix, cross = self._kernel(samples), self._kernel(X_val)
        self._map = FeatureMap.of_kernel(matrix, self.n_components)
        return self._map(matrix), self._map(cross)

    def _keep(self, fit: MarginFit, X: Features, labels: Labels, train: Int[NDArray, "train"]) -> None:
        """Set the attributes that scikit-learn's users expect."""
        result = fit.result
        self.result_, self.bound_, self.is_global_ = result, fit.bound, fit.is_global
        self.margins_ = np.asarray(result.x)
        self.n_iter_ = max(len(result.history), 1)
        support = np.asarray(result.multipliers.inequality)
        strong = support > 1e-9 * (1.0 + float(support.max(initial=0.0)))
        self.support_ = train[strong]
        self.dual_coef_ = (support * labels[train])[strong][None]
        self.support_vectors_ = X[self.support_] if self.kernel != "precomputed" else np.empty((0, 0))
        self.intercept_ = np.array([result.y[-1]])
        self._weights = self._map.back(result.y[:-1])
        if self.kernel == "linear":
            self.coef_ = self._weights[None].copy()
        self._penalised = np.append(self._map.back(result.y_penalty[:-1]), result.y_penalty[-1])
        self._stage_weights = [self._map.back(point[:-1]) for point in fit.path]
        self._stage_intercepts = [float(point[-1]) for point in fit.path]
        self.stage_rows_ = fit.path_rows

    def _similarities(self, X: Any) -> Float[NDArray, "n _"]:
        """Linear features, or kernels with the training samples."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if self.kernel == "linear":
            return X
        return X[:, self.training_indices_] if self.kernel == "precomputed" else self._kernel(X)
