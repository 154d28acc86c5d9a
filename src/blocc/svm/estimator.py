"""A scikit-learn classifier whose margins are chosen by bilevel optimization."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    check_random_state,
    validate_data,
)

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.compiled import clock
from blocc._lib.rounding import EXACT, TINY
from blocc.errors import OptionError
from blocc.outer.monitor import StopRequest, interruptible
from blocc.presets import check_preset
from blocc.result import Result
from blocc.svm.copies import Distinct, split_distinct
from blocc.svm.fitting import PRESETS, UNIFORM, FitOptions, worst_result
from blocc.svm.kernels import KERNELS, FeatureSpace, scale_gamma
from blocc.svm.machine import Linear, Part, fit_machines

#: The options of a fit that are arguments of the estimator too.
FIT_NAMES = tuple(field.name for field in fields(FitOptions) if field.name != "inner")  # which presets alone choose
Codes = Int[NDArray, "_"]  #: positions in ``classes_``
Weights = Float[NDArray, "..."]


class BilevelSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector classification with a margin chosen for every training sample by a validation set.

    The leader chooses margins c >= 0 to minimise ``sum exp(1 - l (w.z + b))`` over the validation samples plus a price
    of c; the follower answers with the smallest ``||w||^2 / 2`` such that training sample i has margin at least
    ``1 - c_i``. A large c_i means that the model chose to forgive sample i. More than two classes are told apart by one
    such classifier for each, against the rest. X may be sparse. Features of very different size should be standardised
    first.

    Parameters
    ----------
    kernel : "linear", "rbf", "poly" or "precomputed"
    kernel_gamma, degree, coef0 : of the kernel, as in ``sklearn.svm.SVC`` (where the first is called gamma)
    n_components : int or None
        At most so many directions of a kernel matrix; None keeps all of them.
    validation_fraction : float
        Share of the samples that ``fit`` sets aside when no validation set is given: stratified, and copies of a
        sample stay together.
    random_state : int, RandomState or None
        Seed of that split, and of ``start="uniform"``.
    c_penalty : "sum", "squared" or "norm"
        The price of c: ``c_weight sum(c)``, which forgives few samples much, ``c_weight ||c||^2 / 2`` as in the paper,
        which forgives many a little, or ``c_weight ||c||`` as in its published code.
    c_weight : float
    class_weight : None, "balanced" or dict
        Factors of the samples' weights by class, as in ``sklearn.svm.SVC``; "balanced" lets both sides of every
        classifier weigh the same.
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
        Seconds, compilation included; the best classifier so far is kept.
    preset : "default", "paper" (the text's problem) or "svm" (its program's)
        Named settings; what a preset names overrides the arguments above.

    Attributes
    ----------
    With more than two classes, K of them, those of a single classifier have an entry or a row for each class.

    classes_, n_features_in_, feature_names_in_
    coef_ : array of shape (1, n_features) or (K, n_features), for the linear kernel
    intercept_ : array of shape (1,) or (K,)
    dual_coef_, support_, support_vectors_
        Weights (a row for each classifier), indices (into the X of ``fit``) and rows of the support vectors.
    margins_ : array of shape (n_training,) or (K, n_training)
        c, one entry for each training sample.
    training_indices_, validation_indices_ : arrays
        Which rows of X were used for which purpose (None for a validation set of its own).
    training_loss_, validation_loss_ : float or array
        Weighted sums of exp(1 - margin).
    bound_ : float or array
        No margins have a smaller upper value than this.
    is_global_ : bool or array
        Whether the answer is proved to be a global optimum.
    results_ : tuple of blocc.Result
        The bilevel results with their certificates; for two classes there is one, which is also ``result_``.
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
        class_weight: Any = None,
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
        self.class_weight = class_weight
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
        """Sparse features are welcome; a precomputed kernel is pairwise."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        X_val: Any = None,
        y_val: Any = None,
        *,
        sample_weight: Any = None,
        sample_weight_val: Any = None,
        report: Any = None,
    ) -> BilevelSVC:
        """Fit to samples X with labels y; validate on (X_val, y_val), or on a part of X.

        For a precomputed kernel X holds kernels between all samples, and X_val those of the validation samples with
        them. A sample of weight 3 counts like three copies of it, one of weight 0 is left out: the weight of a training
        sample multiplies the price of its margin, that of a validation sample its loss. ``report(iteration, row)`` is
        called with every row of the history.
        """
        begun = clock()
        options, start = self.fit_options()
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse=self._sparse_format)
        codes = self._codes(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.kernel == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"Precomputed matrix must be a square matrix. Input is a {X.shape[0]}x{X.shape[1]} matrix."
            )
        if (X_val is None) != (y_val is None) or (X_val is None and sample_weight_val is not None):
            raise ValueError("X_val and y_val must be given together, and sample_weight_val with them")
        factors = self._class_factors(y, codes, weight)
        weight = weight * factors[0][codes]
        generator = check_random_state(self.random_state)
        counted = np.flatnonzero(weight > 0.0)
        if len(np.unique(codes[counted])) < len(self.classes_):
            raise ValueError("BilevelSVC needs samples of every class, but one class has no sample of positive weight")
        distinct = self._distinct(X[counted], codes[counted])
        if X_val is None:
            train, held_out = split_distinct(distinct, codes[counted], self.validation_fraction, generator)
            train, held_out = counted[train], counted[held_out]
            validation = X[held_out], codes[held_out], weight[held_out]
        else:
            train, held_out = counted, None
            validation = self._validation(X_val, y_val, sample_weight_val, factors[0])
        self.training_indices_, self.validation_indices_ = train, held_out
        parts = self._parts((X[train], codes[train], weight[train]), validation)
        if isinstance(start, str):
            start = None if start == "auto" else generator.uniform(*UNIFORM, size=len(train))
        over_features = partial(self._space.weights, features=self.n_features_in_)
        margins = self._start(start, len(train))
        with interruptible(StopRequest()):  # the classes that are left end at once
            self._machines = fit_machines(over_features, parts, factors[1], margins, options, begun, report)
            self._keep(X)
        worst = worst_result(self.results_)
        if not worst.success:
            warnings.warn(f"{worst.status.value}: {worst.message}", ConvergenceWarning, stacklevel=2)
        return self

    def decision_function(self, X: Any) -> Float[NDArray, "n ..."]:
        """Distance to the margin: positive for ``classes_[1]``; with more classes, a column for each of them."""
        return self._values(self._seen(X), [machine.decision for machine in self._machines])

    def predict(self, X: Any) -> NDArray:
        """The class of each sample."""
        return self._classes_of(self.decision_function(X))

    def staged_decision_function(self, X: Any) -> Iterator[Float[NDArray, "n"]]:
        """:meth:`decision_function` after each stage of the fit; ``stage_rows_`` tells their rows in the history.

        For two classes.
        """
        check_is_fitted(self)
        if len(self._machines) > 1:
            raise ValueError("stages are followed for two classes only; results_ has a history for each class")
        coordinates = self._space.coordinates(self._checked(X))
        return (stage(coordinates) for stage in self._machines[0].path)

    def staged_predict(self, X: Any) -> Iterator[NDArray]:
        """:meth:`predict` after each stage of the fit."""
        return (self._classes_of(values) for values in self.staged_decision_function(X))

    def penalised_decision_function(self, X: Any) -> Float[NDArray, "n ..."]:
        """What the penalised answer yF says: the published figures belong to it. It may break the constraints."""
        return self._values(self._seen(X), [machine.penalised for machine in self._machines])

    def most_forgiven(self, count: int = 10) -> Int[NDArray, "count"]:
        """Indices (into the X of ``fit``) of the training samples with the largest margins, largest first.

        With more than two classes, the margins of all classifiers together.
        """
        check_is_fitted(self)
        margins = np.atleast_2d(self.margins_).sum(axis=0)
        order = np.argsort(-margins, kind="stable")[:count]
        return np.asarray(self.training_indices_[order[margins[order] > EXACT]])

    def fit_options(self) -> tuple[FitOptions, Any]:
        """The options of a fit and its start, presets applied; raises an ``OptionError`` for an unfit argument."""
        check_preset(self.preset, PRESETS)
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
        if not (self.class_weight is None or self.class_weight == "balanced" or isinstance(self.class_weight, Mapping)):
            raise OptionError(f"class_weight must be None, 'balanced' or a dict, got {self.class_weight!r}")
        if isinstance(self.class_weight, Mapping):
            for label, factor in self.class_weight.items():
                if not isinstance(factor, (int, float, np.number)) or not 0.0 <= factor < np.inf:
                    raise OptionError(f"class_weight must hold nonnegative numbers, got {factor!r} for {label!r}")
        settings = {name: getattr(self, name) for name in (*FIT_NAMES, "start")} | PRESETS[self.preset]
        start = settings.pop("start")
        if isinstance(start, str) and start not in ("auto", "uniform"):
            raise OptionError(f"start must be 'auto', 'uniform' or an array of margins, got {start!r}")
        return FitOptions(**settings), start

    @property
    def _sparse_format(self) -> str | bool:
        return False if self.kernel == "precomputed" else "csr"

    def _codes(self, y: NDArray) -> Codes:
        """Labels as positions in ``classes_``, which it sets."""
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"BilevelSVC needs samples of two classes, but the data has one class: {self.classes_[0]!r}"
            )
        return np.asarray(codes, dtype=np.int64)

    def _class_factors(self, y: NDArray, codes: Codes, weight: Weights) -> tuple[Weights, Weights]:
        """By ``class_weight``: a factor for each class, and for the two sides of each class against the rest."""
        if not isinstance(self.class_weight, str):
            return compute_class_weight(self.class_weight, classes=self.classes_, y=y), np.ones((len(self.classes_), 2))
        heavy = np.bincount(codes, weights=weight, minlength=len(self.classes_))
        share = np.maximum(heavy / heavy.sum(), TINY)
        return np.ones(len(self.classes_)), 0.5 / np.column_stack([np.maximum(1.0 - share, TINY), share])

    def _distinct(self, X: Any, codes: Codes) -> Distinct:
        """Copies are found by their features, which a precomputed kernel does not tell."""
        return Distinct.all(len(codes)) if self.kernel == "precomputed" else Distinct.of(X, codes)

    def _validation(self, X_val: Any, y_val: Any, weight: Any, factors: Weights) -> tuple[Any, Codes, Weights]:
        """A validation set of the user's own."""
        try:
            X_val = validate_data(self, X_val, dtype=np.float64, reset=False, accept_sparse=self._sparse_format)
        except ValueError as error:  # scikit-learn says X
            raise ValueError(f"X_val does not fit: {error}") from error
        y_val = check_array(y_val, ensure_2d=False, dtype=None, input_name="y_val")
        if X_val.shape[0] != len(y_val):
            raise ValueError(f"X_val and y_val have inconsistent numbers of samples: {X_val.shape[0]} and {len(y_val)}")
        unknown = np.setdiff1d(y_val, self.classes_)
        if len(unknown):
            raise ValueError(f"y_val contains labels that are not in y: {unknown[:5]}")
        codes = np.searchsorted(self.classes_, y_val)
        weight = _check_sample_weight(weight, X_val, dtype=np.float64, ensure_non_negative=True) * factors[codes]
        counted = np.flatnonzero(weight > 0.0)
        if len(np.unique(codes[counted])) < 2:
            warnings.warn("the validation set has one class only", UserWarning, stacklevel=3)
        return X_val[counted], codes[counted], weight[counted]

    def _parts(self, training: tuple[Any, Codes, Weights], validation: tuple[Any, Codes, Weights]) -> tuple[Part, Part]:
        """Both sets in coordinates; sets what prediction needs to compute them."""
        distinct = self._distinct(training[0], training[1])
        samples = training[0][distinct.first]
        if self.kernel == "linear":
            self._space = FeatureSpace.linear(samples)
        else:
            self._space = FeatureSpace.of_kernel(samples, self._kernel(samples), self.n_components)
        others = self._distinct(validation[0], validation[1])
        return (
            Part(self._space.coordinates(samples), distinct, *training[1:]),
            Part(self._space.coordinates(validation[0][others.first]), others, *validation[1:]),
        )

    def _kernel(self, samples: Any) -> Any:
        """The kernel with the training samples, as a function that can be stored."""
        if self.kernel == "precomputed":
            return partial(np.take, indices=self.training_indices_, axis=1)
        gamma = scale_gamma(samples, self.kernel_gamma)
        parameters = {"gamma": gamma, "degree": int(self.degree), "coef0": self.coef0}
        return partial(pairwise_kernels, Y=samples, metric=self.kernel, filter_params=True, **parameters)

    @staticmethod
    def _start(start: Any, count: int) -> Float[NDArray, "train"] | None:
        if start is None:
            return None
        margins = np.asarray(start, dtype=np.float64)
        if margins.shape != (count,) or not np.isfinite(margins).all() or (margins < 0).any():
            raise OptionError(f"start must hold a nonnegative margin for each of the {count} training samples")
        return margins

    def _keep(self, X: Any) -> None:
        """Set the attributes that scikit-learn's users expect."""
        machines, single = self._machines, len(self._machines) == 1
        self.results_ = tuple(machine.result for machine in machines)
        names = {"bound_": "bound", "is_global_": "is_global"}
        names |= {"training_loss_": "training_loss", "validation_loss_": "validation_loss"}
        for attribute, name in names.items():
            values = [getattr(machine, name) for machine in machines]
            setattr(self, attribute, values[0] if single else np.array(values))
        margins = np.array([result.x for result in self.results_])
        self.margins_ = margins[0] if single else margins
        if single:
            self.result_, self.stage_rows_ = self.results_[0], machines[0].path_rows
        self.n_iter_ = max(1, *(len(result.history) for result in self.results_))
        support = np.array([machine.support for machine in machines])
        strong = (np.abs(support) > EXACT * (1.0 + np.abs(support).max(axis=1, initial=0.0, keepdims=True))).any(axis=0)
        self.support_ = self.training_indices_[strong]
        self.dual_coef_ = support[:, strong]
        self.support_vectors_ = X[self.support_] if self.kernel != "precomputed" else np.empty((0, 0))
        self.intercept_ = np.array([machine.decision.intercept for machine in machines])
        if self.kernel == "linear":
            self.coef_ = np.array([machine.decision.weights for machine in machines])

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False, accept_sparse=self._sparse_format)

    def _seen(self, X: Any) -> Any:
        """Linear features, or kernels with the training samples."""
        X = self._checked(X)
        return self._space.seen(X)

    @staticmethod
    def _values(seen: Any, functions: list[Linear]) -> Float[NDArray, "n ..."]:
        values = [function(seen) for function in functions]
        return values[0] if len(values) == 1 else np.column_stack(values)

    def _classes_of(self, values: Float[NDArray, "n ..."]) -> NDArray:
        chosen = (values > 0.0).astype(int) if values.ndim == 1 else values.argmax(axis=1)
        return np.asarray(self.classes_[chosen])
