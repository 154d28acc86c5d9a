"""Data sets by name: one that scikit-learn ships, and two that it downloads from openml.org."""

from __future__ import annotations

import warnings
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.threads import call_within
from blocc.errors import InputError
from blocc.svm.data.text import ArgumentError

Table = tuple[Float[NDArray, "n d"], NDArray, tuple[str, ...]]  #: features, labels, names of the features

FEATURES = {"diabetes": 8, "fourclass": 2}
# What identifies each set on OpenML, tried in this order. The number of fourclass is not known to us, so the oldest
# active set of that name is asked for, then the name that LIBSVM gives to its scaled file.
QUERIES: dict[str, tuple[dict[str, Any], ...]] = {
    "diabetes": ({"data_id": 37},),
    "fourclass": ({"name": "fourclass", "version": "active"}, {"name": "fourclass_scale", "version": "active"}),
}
#: For one data set, all attempts together.
SECONDS = 60.0
INSTEAD = "give the data set as a CSV or LIBSVM file instead, or use breast_cancer, which works offline"


def load_breast_cancer() -> Table:
    """The breast cancer data that scikit-learn ships: 569 samples, 30 unscaled features, label 0 for malignant."""
    bunch = sklearn_datasets("breast_cancer").load_breast_cancer()
    return bunch.data, bunch.target, tuple(str(name) for name in bunch.feature_names)


def fetch_scaled(name: str, cache: str | Path | None) -> Table:
    """A data set from openml.org, or from ``cache`` if it is there, its features scaled to [-1, 1].

    OpenML keeps the original values. LIBSVM's files of the same names, on which the published experiment ran, are
    scaled feature by feature from the least value at -1 to the greatest at 1, and so are these. No sample is dropped.
    """
    bunch = _fetch(name, cache)
    features = bunch.data.toarray() if hasattr(bunch.data, "toarray") else bunch.data
    features, labels = np.asarray(features, dtype=np.float64), np.asarray(bunch.target)
    _check(name, features, labels)
    return _scaled(features), labels, tuple(str(heading) for heading in bunch.feature_names)


def sklearn_datasets(name: str) -> Any:
    """scikit-learn's readers, for the samples called ``name``."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise InputError(
            f'{name} is read with scikit-learn, which is not installed; pip install "blocc[svm]"'
        ) from error
    return datasets


def _fetch(name: str, cache: str | Path | None) -> Any:
    """What scikit-learn makes of the data set, or an error in one sentence."""
    datasets = sklearn_datasets(name)
    folder = None if cache is None else str(cache)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about each attempt: the error at the end says it all
            # The fetcher knows no limit of time, and a server may never answer.
            return call_within(SECONDS, lambda: _ask(datasets, QUERIES[name], folder))
    except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
        raise InputError(
            f"there is no connection to openml.org, where {name} would come from ({_reason(error)}); {INSTEAD}"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise ArgumentError(
                f"cache: {name} from openml.org cannot be kept in {str(error.filename)!r} "
                f"({error.strerror or error}); choose a folder that can be written"
            ) from error
        # Whatever else the fetcher and its parser raise, they raise because of what they were sent.
        where = "scikit-learn's data folder" if folder is None else repr(folder)
        raise InputError(
            f"what openml.org sent for {name} cannot be read ({_reason(error)}); delete the folder openml in {where} "
            f"and try again, or {INSTEAD}"
        ) from error


def _ask(datasets: Any, queries: tuple[dict[str, Any], ...], folder: str | None) -> Any:
    """The answer to the first query that OpenML knows."""
    for query in queries:
        try:
            # This parser needs no pandas.
            return datasets.fetch_openml(**query, data_home=folder, cache=True, as_frame=False, parser="liac-arff")
        except ValueError as error:
            if not _unknown(error) or query is queries[-1]:
                raise
    raise AssertionError("unreachable: the last query returns or raises")


def _unknown(error: ValueError) -> bool:
    """Whether OpenML answered that it has no such data set."""
    return type(error).__name__ == "OpenMLError"


def _reason(error: Exception) -> str:
    text = " ".join(str(getattr(error, "reason", None) or error).split())
    return text[:200] or type(error).__name__


def _check(name: str, features: Float[NDArray, "..."], labels: NDArray) -> None:
    """Raise where OpenML has something else under the name."""
    expected = FEATURES[name]
    if features.ndim != 2 or features.shape[1] != expected or labels.shape != features.shape[:1]:
        found = f"features of shape {features.shape} and labels of shape {labels.shape}"
    elif len(set(labels.tolist())) != 2:
        found = f"{len(set(labels.tolist()))} classes"
    elif not np.isfinite(features).all():
        found = "missing values"
    else:
        return
    raise InputError(
        f"what openml.org calls {name} is another data set: it has {found}, where {expected} features and 2 classes "
        f"without missing values were expected; {INSTEAD}"
    )


def _scaled(features: Float[NDArray, "n d"]) -> Float[NDArray, "n d"]:
    """Each column moved and stretched to [-1, 1]; a constant column becomes zero."""
    low, high = features.min(axis=0), features.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    return np.where(high > low, 2.0 * (features - low) / width - 1.0, 0.0)
