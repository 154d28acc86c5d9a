"""Labelled samples: read from CSV and LIBSVM files or by name, expanded and split."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.tables import csv_records
from blocc.errors import InputError, ProblemError
from blocc.svm.data.openml import fetch_scaled, load_breast_cancer, sklearn_datasets
from blocc.svm.data.text import (
    LIBSVM_LINE,
    ArgumentError,
    LibsvmLines,
    checked_path,
    column_title,
    feature_cells,
    find_delimiter,
    find_label,
    finite_number,
    label_cell,
    lines_of,
    looks_like_libsvm,
)

BUILT_IN = ("breast_cancer", "diabetes", "fourclass")
MAX_CELLS = 5 * 10**8  # 4 GB of numbers
MAX_LABEL_LETTERS = 5 * 10**8  # 2 GB of text
CSV_SUFFIXES = (".csv", ".tsv")
LIBSVM_SUFFIXES = (".libsvm", ".svm", ".svmlight")
Indices = Int[NDArray, "_"]


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Samples in the rows of ``X``, and the label of each in ``y``.

    Labels become int64 where all are whole numbers (also if written as text), otherwise float64 or str.
    """

    X: Float[NDArray, "n d"]
    y: NDArray  #: of n integers, floats or texts
    feature_names: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        features, labels = _as_matrix(self.X), _as_labels(self.y)
        if len(labels) != len(features):
            raise ProblemError(f"X has {len(features)} rows, but y has {len(labels)} labels; they must be as many")
        names = tuple(self.feature_names)
        if len(names) != features.shape[1]:
            raise ProblemError(f"X has {features.shape[1]} columns, but feature_names has {len(names)} names")
        for field, value in (("X", features), ("y", labels), ("feature_names", names)):
            object.__setattr__(self, field, value)

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """How many features a sample has."""
        return int(self.X.shape[1])

    @property
    def classes(self) -> NDArray:
        """The different labels, sorted."""
        return np.unique(self.y)


def read_samples(
    source: str | Path, *, label: str | int | None = None, cache: str | Path | None = None
) -> LabelledData:
    """Samples by the name of a built-in data set, or from a CSV or LIBSVM file.

    The ending of the file says which format it has. With any other ending (``.txt`` as well) its first lines do.
    A built-in name wins over a file of the same name: write ``./diabetes`` or pass a ``Path`` for the file.

    ``breast_cancer`` comes with scikit-learn. ``diabetes`` and ``fourclass`` are downloaded from openml.org once and
    kept in ``cache`` (default: scikit-learn's data folder). Their features are scaled linearly to [-1, 1], as in the
    LIBSVM files of the published experiment.

    ``label`` is for CSV files alone, see :func:`read_csv`.
    """
    if isinstance(source, str) and source in BUILT_IN:
        if label is not None:
            raise ArgumentError(f"label cannot be chosen for the built-in data set {source}; leave it out")
        return _built_in(source, cache)
    path = checked_path(source, f", or a built-in name: {', '.join(BUILT_IN)}")
    suffix = path.suffix.lower()
    if suffix in LIBSVM_SUFFIXES or (suffix not in CSV_SUFFIXES and looks_like_libsvm(path)):
        if label is not None:
            raise ArgumentError(
                f"label is for CSV files; {path.name} is a LIBSVM file, whose lines begin with the label"
            )
        return read_libsvm(path)
    return read_csv(path, label=label)


def read_csv(path: str | Path, *, label: str | int | None = None) -> LabelledData:
    """Samples from a CSV file: comma, semicolon or tab; with or without a line of headings.

    ``label`` is the heading of the column with the labels, or its position: 0 is the first, -1 the last. By default
    it is the column called label, target, class or y (in upper or lower case), otherwise the last.
    """
    path = checked_path(path)
    records = csv_records(lines_of(path), path.name, InputError, find_delimiter(path))
    first_line, first = next(records, (0, []))
    if not first:
        raise InputError(f"{path.name} is empty; it must have a row for each sample")
    width = len(first)
    if width < 2:
        raise InputError(
            f"{path.name} line {first_line}: has one column, but a label and at least one feature are needed; "
            "separate the columns by commas, semicolons or tabs"
        )
    column, has_header = find_label(path.name, first, label)
    headings = [cell.strip() if has_header else "" for cell in first]
    titles = [column_title(position, heading) for position, heading in enumerate(headings)]
    label_title = titles.pop(column)
    del headings[column]
    values = array("d")
    labels: list[str] = []
    longest = 0
    for line, cells in records if has_header else chain([(first_line, first)], records):
        place = f"{path.name} line {line}"
        if len(cells) != width:
            raise InputError(f"{place}: has {len(cells)} columns, but line {first_line} has {width}")
        _check_cells(len(labels) + 1, width, place)
        labels.append(label_cell(cells.pop(column), f"{place}, {label_title}"))
        longest = max(longest, len(labels[-1]))
        if longest * len(labels) > MAX_LABEL_LETTERS:  # an array gives every label the width of the longest
            raise InputError(
                f"{place}: {len(labels):,} labels of up to {longest} characters are too many; shorten them"
            )
        values.extend(feature_cells(cells, place, titles))
    if not labels:
        raise InputError(f"{path.name} has headings, but no samples below them")
    matrix = np.frombuffer(values).reshape(len(labels), width - 1)
    return LabelledData(matrix, np.array(labels), _names(headings), path.stem)


def read_libsvm(path: str | Path) -> LabelledData:
    """Samples from a LIBSVM (svmlight) file; features that a line leaves out are zero."""
    path = checked_path(path)
    lines = LibsvmLines(path)
    try:
        sparse, labels = sklearn_datasets(path.name).load_svmlight_file(lines, zero_based=False)
    except InputError:
        raise
    except ValueError as error:
        raise lines.complaint() from error
    if not len(labels):
        raise InputError(f"{path.name} is empty; {LIBSVM_LINE}")
    if sparse.nnz == 0:
        raise InputError(f"{path.name} has labels, but no features; {LIBSVM_LINE}")
    rows, width = sparse.shape
    _check_cells(rows, width, lines.place())
    matrix = sparse.toarray()
    overflowing = ~(np.isfinite(matrix).all(axis=1) & np.isfinite(labels))
    if overflowing.any():
        raise InputError(f"{lines.place(int(overflowing.argmax()))}: a number is too large")
    return LabelledData(matrix, labels, _names([""] * width), path.stem)


def expand_quadratic(X: Any) -> Float[NDArray, "n e"]:
    """A constant, all features, all squares and all products of two features: 8 columns become 45.

    The quadratic part is ordered x1 x1, x1 x2, ..., x1 xd, x2 x2, ...
    """
    matrix = _as_matrix(X)
    rows, width = matrix.shape
    first, second = np.triu_indices(width)
    if rows * (1 + width + len(first)) > MAX_CELLS:
        raise ProblemError(
            f"X with {rows} rows and {width} columns is too large for a quadratic expansion: it would have "
            f"{1 + width + len(first):,} columns, and {MAX_CELLS:,} numbers are the limit"
        )
    with np.errstate(over="ignore"):
        expanded = np.hstack([np.ones((rows, 1)), matrix, matrix[:, first] * matrix[:, second]])
    if not np.isfinite(expanded).all():
        raise ProblemError("X has values whose products overflow; scale the features first")
    return expanded


def expand_data(data: LabelledData) -> LabelledData:
    """The same samples after :func:`expand_quadratic`, with names such as ``1``, ``a``, ``a^2`` and ``a*b``."""
    names = data.feature_names
    pairs = zip(*np.triu_indices(len(names)), strict=True)
    products = [f"{names[i]}^2" if i == j else f"{names[i]}*{names[j]}" for i, j in pairs]
    return LabelledData(expand_quadratic(data.X), data.y, ("1", *names, *products), data.name)


def split_indices(n: int, *, train: int, validation: int, seed: int) -> tuple[Indices, Indices, Indices]:
    """Indices of the training, validation and test samples, drawn at random; the test set is what remains."""
    n, train, validation = _whole("n", n, 3), _whole("train", train, 1), _whole("validation", validation, 1)
    if train + validation >= n:
        raise InputError(
            f"train = {train} and validation = {validation} leave no test samples; their sum must be below n = {n}"
        )
    order = np.random.default_rng(_whole("seed", seed, 0)).permutation(n)
    return order[:train], order[train : train + validation], order[train + validation :]


def proportional_sizes(n: int, *, reference: Sequence[float] = (500, 150, 118)) -> tuple[int, int]:
    """Sizes of the training and validation sets in the proportions of ``reference`` (train, validation, test).

    Each of the three sets gets at least one sample. The default is the split of the published experiment.
    """
    n = _whole("n", n, 3)
    try:
        parts = np.asarray(reference, dtype=np.float64)
    except (TypeError, ValueError):
        parts = np.zeros(0)
    if parts.shape != (3,) or not np.isfinite(parts).all() or (parts <= 0).any():
        raise InputError(f"reference must be three positive numbers (train, validation, test), got {reference!r}")
    shares = parts / parts.sum()
    train = min(max(round(n * shares[0]), 1), n - 2)
    return train, min(max(round(n * shares[1]), 1), n - train - 1)


def _built_in(name: str, cache: str | Path | None) -> LabelledData:
    features, labels, names = load_breast_cancer() if name == "breast_cancer" else fetch_scaled(name, cache)
    return LabelledData(features, labels, names, name)


# --- arrays and arguments ------------------------------------------------------------------------------------------
def _as_matrix(value: Any) -> Float[NDArray, "n d"]:
    """A C-contiguous float64 matrix; copied only where it is something else, since it may be large."""
    try:
        if np.iscomplexobj(value):
            raise TypeError
        matrix = np.ascontiguousarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ProblemError("X must be a matrix of real numbers, a row for each sample") from error
    if np.ndim(value) != 2 or 0 in matrix.shape:
        raise ProblemError(f"X must be a matrix with rows and columns, got the shape {np.shape(value)}")
    if not np.isfinite(matrix).all():
        raise ProblemError("X contains NaN or infinite values; all features must be finite numbers")
    return matrix


def _as_labels(values: Any) -> NDArray:
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise ProblemError(f"y must be a vector with one label for each sample, got the shape {labels.shape}")
    if labels.dtype.kind in "biu":
        return labels.astype(np.int64)
    if labels.dtype.kind != "f":
        texts = [str(value) for value in labels]
        numbers = [finite_number(text) for text in texts]
        if any(number is None for number in numbers):
            return np.array(texts, dtype=np.str_)
        labels = np.array(numbers, dtype=np.float64)
    if not np.isfinite(labels).all():
        raise ProblemError("y contains NaN or infinite values; every sample needs a label")
    labels = labels.astype(np.float64)
    is_whole = (labels == np.rint(labels)).all() and (np.abs(labels) < 2**53).all()
    return labels.astype(np.int64) if is_whole else labels


def _whole(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return number


def _check_cells(rows: int, columns: int, place: str) -> None:
    if rows * columns > MAX_CELLS:
        raise InputError(
            f"{place}: {rows:,} rows with {columns:,} columns are too many; {MAX_CELLS:,} numbers are the limit"
        )


def _names(headings: list[str]) -> tuple[str, ...]:
    return tuple(heading or f"x{position}" for position, heading in enumerate(headings, 1))
