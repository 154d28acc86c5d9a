"""One classifier of two sides, fitted: what an estimator keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.compiled import clock
from blocc.lagrangian import Multipliers
from blocc.result import Result
from blocc.svm.copies import Distinct
from blocc.svm.fitting import FitOptions, MarginFit, Report, fit_margins
from blocc.svm.margins import SampleWeights, exponential_loss, signed_rows

OverFeatures = Callable[[Float[NDArray, "e"]], Float[NDArray, "_"]]  #: from weights of coordinates to prediction's


class Part(NamedTuple):
    """Training or validation samples: coordinates of the distinct ones, and of every sample its class and weight."""

    coordinates: Float[NDArray, "distinct e"]
    distinct: Distinct
    codes: Int[NDArray, "n"]
    weight: Float[NDArray, "n"]


class Linear(NamedTuple):
    """A linear function of what prediction sees."""

    weights: Float[NDArray, "_"]
    intercept: float

    def __call__(self, seen: Any) -> Float[NDArray, "n"]:
        """Its values at samples, which may be sparse."""
        return np.asarray(seen @ self.weights + self.intercept)


@dataclass(frozen=True, eq=False)
class Machine:
    """A fitted classifier: one class against the rest."""

    result: Result  #: with an entry of x for every training sample, copies included
    decision: Linear
    penalised: Linear  #: what yF says
    path: tuple[Linear, ...]  #: the classifiers on the way, over coordinates
    path_rows: Int[NDArray, "stages"]  #: their rows in the history
    support: Float[NDArray, "train"]  #: multipliers times labels
    bound: float
    is_global: bool
    training_loss: float
    validation_loss: float

    @classmethod
    def fit(
        cls,
        over_features: OverFeatures,
        parts: tuple[Part, Part],
        positive: int,
        fit: Callable[..., MarginFit],
        start: Float[NDArray, "train"] | None,
    ) -> Machine:
        """Tell the class ``positive`` from the rest.

        ``parts`` are to train and to validate with, ``fit`` is :func:`~blocc.svm.fitting.fit_margins` with its options,
        and ``over_features`` turns weights of coordinates into what prediction needs.
        """
        train, _ = parts
        signs = [np.where(part.codes[part.distinct.first] == positive, 1.0, -1.0) for part in parts]
        weights = SampleWeights(*(part.distinct.total(part.weight) for part in parts))
        samples = parts[0].coordinates, signs[0], parts[1].coordinates, signs[1]
        found = fit(samples, start=None if start is None else start[train.distinct.first], weights=weights)
        y, prices = found.result.y, np.asarray(found.result.multipliers.inequality)
        support = train.distinct.share(prices, train.weight)
        result = replace(
            found.result,
            x=np.asarray(found.result.x)[train.distinct.copy_of],
            multipliers=Multipliers(support, np.zeros(0)),
        )
        return cls(
            result,
            Linear(over_features(y[:-1]), float(y[-1])),
            Linear(over_features(result.y_penalty[:-1]), float(result.y_penalty[-1])),
            tuple(Linear(point[:-1], float(point[-1])) for point in found.path),
            found.path_rows,
            support * np.where(train.codes == positive, 1.0, -1.0),
            found.bound,
            found.is_global,
            exponential_loss(signed_rows(*samples[:2]), y, weights.training),
            exponential_loss(signed_rows(*samples[2:]), y, weights.validation),
        )


def fit_machines(
    over_features: OverFeatures,
    parts: tuple[Part, Part],
    factors: Float[NDArray, "classes 2"],
    start: Float[NDArray, "train"] | None,
    options: FitOptions,
    begun: float,
    report: Report | None = None,
) -> list[Machine]:
    """For two classes the second against the first, for more each against the rest, in equal shares of the time.

    ``factors`` multiply the weights of the two sides of each class: the rest, and the class itself. The time limit
    counts from ``begun``.
    """
    count = len(factors)
    positives = [1] if count == 2 else list(range(count))
    machines: list[Machine] = []
    for positive in positives:
        train, validation = (
            part._replace(weight=part.weight * factors[positive][(part.codes == positive).astype(int)])
            for part in parts
        )
        own = options
        if options.time_limit is not None:
            passed = clock() - begun
            own = replace(
                options, time_limit=passed + max(options.time_limit - passed, 1e-9) / (len(positives) - len(machines))
            )
        margins = partial(fit_margins, options=own, report=report, begun=begun)
        machines.append(Machine.fit(over_features, (train, validation), positive, margins, start))
    return machines
