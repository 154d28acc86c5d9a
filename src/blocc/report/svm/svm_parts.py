"""A data set cut into training, validation and test samples, and how well a classifier does on each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc.errors import ProblemError
from blocc.svm.data.samples import LabelledData

if TYPE_CHECKING:
    from blocc.svm.estimator import BilevelSVC

PARTS = ("train", "validation", "test")
#: A sample is forgiven when its margin is larger than this.
FORGIVEN = 1e-9


@dataclass(frozen=True, eq=False)
class SplitData:
    """Samples by the part they belong to; any part but the training set may be empty.

    With ``standardize`` every feature gets zero mean and unit variance over the training samples (a feature that is
    constant there is only centred).
    """

    data: LabelledData
    #: Numbers of the samples, counted from 0, in the order in which the classifier is given them.
    train: Int[NDArray, "train"]
    validation: Int[NDArray, "validation"]
    test: Int[NDArray, "test"]
    standardize: bool = True
    centre: Float[NDArray, "features"] = field(init=False)
    scale: Float[NDArray, "features"] = field(init=False)
    features: Float[NDArray, "samples features"] = field(init=False)  #: all samples, as the classifier sees them

    def __post_init__(self) -> None:
        for part in PARTS:
            object.__setattr__(self, part, np.asarray(getattr(self, part), dtype=np.int64))
        if not len(self.train):
            raise ProblemError("train must hold at least one sample")
        centre, scale = np.zeros(self.data.n_features), np.ones(self.data.n_features)
        features = self.data.X
        if self.standardize:
            from sklearn.preprocessing import StandardScaler

            with np.errstate(over="ignore", invalid="ignore"):
                scaler = StandardScaler().fit(features[self.train])
                centre, scale, features = scaler.mean_, scaler.scale_, scaler.transform(features)
            if not (np.isfinite(scale).all() and np.isfinite(features).all()):
                raise ProblemError("X has features too large to standardise; scale them first")
        for name, value in (("centre", centre), ("scale", scale), ("features", features)):
            object.__setattr__(self, name, value)

    @property
    def names(self) -> tuple[str, ...]:
        """The parts that hold samples."""
        return tuple(part for part in PARTS if len(self.indices(part)))

    def indices(self, part: str) -> Int[NDArray, "part"]:
        """Which samples of the data belong to a part."""
        return np.asarray(getattr(self, part))

    def X(self, part: str) -> Float[NDArray, "part features"]:
        """Features of a part, as the classifier sees them."""
        return self.features[self.indices(part)]

    def y(self, part: str) -> NDArray:
        """Labels of a part."""
        return self.data.y[self.indices(part)]


def accuracies(model: BilevelSVC, parts: SplitData) -> dict[str, dict[str, float]]:
    """Share of samples that are classified rightly by y (``exact``) and by yF (``penalised``), part by part."""
    table = {}
    for part in parts.names:
        X, labels = parts.X(part), parts.y(part)
        penalised = model.classes_[(model.penalised_decision_function(X) > 0.0).astype(int)]
        table[part] = {"exact": _share(model.predict(X) == labels), "penalised": _share(penalised == labels)}
    return table


class Stages(NamedTuple):
    """The classifiers on the way: what each does with the samples."""

    rows: Int[NDArray, "stages"]  #: their rows in the history
    accuracy: dict[str, Float[NDArray, "stages"]]  #: for each part
    validation_loss: Float[NDArray, "stages"]  #: NaN where there is no validation set


def stages(model: BilevelSVC, parts: SplitData) -> Stages:
    """Follow the classifier through the history of its fit, where it was kept."""
    # Two stages may belong to one row, when the answer is not the last point: the first is the row's own.
    rows, first = np.unique(np.asarray(model.stage_rows_, dtype=np.int64), return_index=True)
    first = first[rows < len(model.result_.history)]
    rows = rows[rows < len(model.result_.history)]
    accuracy: dict[str, NDArray] = {}
    loss = np.full(len(rows), np.nan)
    for part in parts.names:
        labels = parts.y(part)
        staged = list(model.staged_decision_function(parts.X(part)))
        values = [staged[index] for index in first]
        predicted = [model.classes_[(value > 0.0).astype(int)] for value in values]
        accuracy[part] = np.array([_share(guess == labels) for guess in predicted])
        if part == "validation":
            loss = np.array([exponential_loss(model, value, labels) for value in values])
    return Stages(rows, accuracy, loss)


def exponential_loss(model: BilevelSVC, decisions: Float[NDArray, "part"], labels: NDArray) -> float:
    """Sum of exp(1 - margin)."""
    with np.errstate(over="ignore"):
        return float(np.exp(1.0 - signs(model, labels) * decisions).sum())


def signs(model: BilevelSVC, labels: NDArray) -> Float[NDArray, "part"]:
    """Labels as -1 and 1."""
    return np.where(labels == model.classes_[1], 1.0, -1.0)


def order_of_margins(model: BilevelSVC, parts: SplitData) -> Int[NDArray, "train"]:
    """Positions in ``parts.train`` of the training samples, most forgiven first."""
    if len(model.margins_) != len(parts.train):
        raise ProblemError(
            f"the classifier was fitted to {len(model.margins_)} training samples, but train has {len(parts.train)}"
        )
    return np.argsort(-model.margins_, kind="stable")


def running_seconds(model: BilevelSVC) -> tuple[Float[NDArray, "iterations"], str]:
    """When each row of the history was reached, and in words what that includes.

    Where everything was compiled before the first row, the time for it is left out.
    """
    times = model.result_.history.time
    compiled = model.result_.seconds.get("compile", 0.0)
    if not len(times) or compiled <= times[0]:
        return times - compiled, "without compilation"
    return times, f"of which {compiled:.2g} for compilation"


def descents(model: BilevelSVC) -> Int[NDArray, "starts"]:
    """Rows of the history where a new descent begins.

    The exact method descends from several starts, one after the other; within a descent the upper value never rises.
    """
    values = model.result_.history.upper_value
    begins = np.zeros(len(values), dtype=bool)
    begins[:1] = True
    if model.result_.settings.get("method") == "exact":
        with np.errstate(invalid="ignore"):
            begins[1:] = values[1:] > values[:-1] + 1e-6 * np.abs(values[:-1])
    return np.flatnonzero(begins)


def answer_row(model: BilevelSVC) -> int | None:
    """The row of the history with the upper value of the answer; it need not be the last row."""
    value = model.result_.upper_value
    away = np.nan_to_num(np.abs(model.result_.history.upper_value - value), nan=np.inf)
    return int(np.argmin(away)) if np.min(away, initial=np.inf) <= 1e-6 * (1.0 + abs(value)) else None


def scalar(value: Any) -> Any:
    """A label as a value of Python's own."""
    return value.item() if hasattr(value, "item") else value


def _share(right: Bool[NDArray, "part"]) -> float:
    return float(np.mean(right))
