"""Support vector machines whose margins are chosen by bilevel optimization.

>>> from blocc.svm import BilevelSVC

``BilevelSVC``, LIBSVM files and built-in data sets need scikit-learn; the rest needs no more than blocc itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from blocc.svm.fitting import PRESETS
from blocc.svm.svm_problem import MarginOracle, svm_problem

if TYPE_CHECKING:
    from blocc.svm.estimator import BilevelSVC

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


def __getattr__(name: str) -> Any:
    if name != "BilevelSVC":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from blocc.svm.estimator import BilevelSVC
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise ImportError(
            'BilevelSVC needs scikit-learn, which is not installed; pip install "blocc[svm]"', name="sklearn"
        ) from error
    return BilevelSVC
