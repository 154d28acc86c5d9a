"""Data sets by name: one that scikit-learn ships, and two that it downloads from openml.org."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np

from blocc.problems.loading import InputError

Table = tuple[np.ndarray, np.ndarray, tuple[str, ...]]  #: features, labels, names of the features

FEATURES = {"diabetes": 8, "fourclass": 2}
# What identifies each set on OpenML, tried in this order. The number of fourclass is not known to us, so the oldest
# active set of that name is asked for, then the name that LIBSVM gives to its scaled file.
QUERIES: dict[str, tuple[dict[str, Any], ...]] = {
    "diabetes": ({"data_id": 37},),
    "fourclass": ({"name": "fourclass", "version": "active"}, {"name": "fourclass_scale", "version": "active"}),
}
SECONDS = 30.0
INSTEAD = "give the data set as a CSV or LIBSVM file instead, or use breast_cancer, which works offline"


def load_breast_cancer() -> Table:
    """The breast cancer data that scikit-learn ships: 569 samples, 30 unscaled features, label 0 for malignant."""
    bunch = _sklearn_datasets("breast_cancer").load_breast_cancer()
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


def _sklearn_datasets(name: str) -> Any:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise InputError(
            f'the data set {name} is read with scikit-learn, which is not installed; pip install "blocc[svm]"'
        ) from error
    return datasets


def _fetch(name: str, cache: str | Path | None) -> Any:
    """What scikit-learn makes of the data set, or an error in one sentence."""
    datasets = _sklearn_datasets(name)
    folder = None if cache is None else str(cache)
    try:
        with _patience():
            *others, last = QUERIES[name]
            for query in others:
                try:
                    return _ask(datasets, query, folder)
                except ValueError as error:
                    if not _unknown(error):
                        raise
            return _ask(datasets, last, folder)
    except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
        raise InputError(
            f"there is no connection to openml.org, where {name} would come from ({_reason(error)}); {INSTEAD}"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise InputError(
                f"cache: {name} from openml.org cannot be kept in {str(error.filename)!r} "
                f"({error.strerror or error}); choose a folder that can be written"
            ) from error
        # Whatever else the fetcher and its parser raise, they raise because of what they were sent.
        where = "scikit-learn's data folder" if folder is None else repr(folder)
        raise InputError(
            f"what openml.org sent for {name} cannot be read ({_reason(error)}); delete the folder openml in {where} "
            f"and try again, or {INSTEAD}"
        ) from error


def _ask(datasets: Any, query: dict[str, Any], folder: str | None) -> Any:
    # This parser needs no pandas.
    return datasets.fetch_openml(**query, data_home=folder, cache=True, as_frame=False, parser="liac-arff")


@contextmanager
def _patience() -> Iterator[None]:
    """An end to waiting for a silent server, and no warnings about each attempt: the error at the end says it all."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SECONDS if before is None else before)  # the fetcher takes no timeout of its own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        socket.setdefaulttimeout(before)


def _unknown(error: ValueError) -> bool:
    """Whether OpenML answered that it has no such data set."""
    return type(error).__name__ == "OpenMLError"


def _reason(error: Exception) -> str:
    text = " ".join(str(getattr(error, "reason", None) or error).split())
    return text[:200] or type(error).__name__


def _check(name: str, features: np.ndarray, labels: np.ndarray) -> None:
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


def _scaled(features: np.ndarray) -> np.ndarray:
    """Each column moved and stretched to [-1, 1]; a constant column becomes zero."""
    low, high = features.min(axis=0), features.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    return np.where(high > low, 2.0 * (features - low) / width - 1.0, 0.0)
