"""Support vector machines whose margins are chosen by bilevel optimization (needs scikit-learn).

>>> from blocc.svm import BilevelSVC
"""

from __future__ import annotations

try:
    import sklearn  # noqa: F401
except ImportError as error:  # pragma: no cover - the tests install it
    raise ImportError('blocc.svm needs scikit-learn: pip install "blocc[svm]"') from error

from blocc.svm.data.samples import (
    LabelledData,
    expand_data,
    expand_quadratic,
    proportional_sizes,
    read_csv,
    read_libsvm,
    read_samples,
    split_indices,
)
from blocc.svm.estimator import PRESETS, BilevelSVC
from blocc.svm.svm_problem import MarginOracle, svm_problem

__all__ = [
    "PRESETS",
    "BilevelSVC",
    "LabelledData",
    "MarginOracle",
    "expand_data",
    "expand_quadratic",
    "proportional_sizes",
    "read_csv",
    "read_libsvm",
    "read_samples",
    "split_indices",
    "svm_problem",
]
