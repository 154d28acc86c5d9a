"""The bilevel problem of the margins, in numbers: samples, validation samples, and the leader's price of forgiving.

    minimise over c >= 0   sum_j e_j exp(1 - v_j . y) + phi(c)
    where y = (w, b)       minimises ||w||^2 / 2 + beta b^2 / 2  subject to  d_i . y >= 1 - c_i

with phi(c) = weight sum s_i c_i, weight sum s_i c_i^2 / 2 or weight sqrt(sum s_i c_i^2). d_i = l_i (z_i, 1) and v_j
likewise, with labels l = -1 or 1. c_i is what training sample i is forgiven. e_j and s_i are the samples' weights, as
if a sample was there so many times. (The follower has no loss that they could weigh, and copies of a constraint change
nothing for it; but they make it more expensive for the leader to forgive the sample.) Arrays have n training samples, m
validation samples, d features and p = d + 1 entries of y.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal, NamedTuple

import numpy as np

from blocc._lib.arrays import AnyArray, Float, NDArray
from blocc._lib.rounding import TINY
from blocc.errors import OptionError

CPenalty = Literal["sum", "squared", "norm"]
C_PENALTIES: tuple[str, ...] = ("sum", "squared", "norm")
#: Training features and labels (-1 or 1), then those of the validation set.
Samples = tuple[Float[NDArray, "n d"], Float[NDArray, "n"], Float[NDArray, "m d"], Float[NDArray, "m"]]
Y = Float[NDArray, "p"]
Margins = Float[NDArray, "n"]


def is_number(value: object) -> bool:
    """Whether this is a finite real number (and not True or False)."""
    return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))


def check_price(c_penalty: str, c_weight: float, intercept_weight: float) -> None:
    """Refuse prices of c and weights of b that make no sense."""
    if c_penalty not in C_PENALTIES:
        raise OptionError(f"c_penalty must be 'sum', 'squared' or 'norm', got {c_penalty!r}")
    if not is_number(c_weight) or c_weight <= 0.0:
        raise OptionError(f"c_weight must be a positive number, got {c_weight!r}")
    if not is_number(intercept_weight) or intercept_weight < 0.0:
        raise OptionError(f"intercept_weight must be a nonnegative number, got {intercept_weight!r}")


def signed_rows(features: Float[NDArray, "n d"], labels: Float[NDArray, "n"]) -> Float[NDArray, "n p"]:
    """l_i (z_i, 1) for every sample: its product with y is the sample's margin."""
    return np.ascontiguousarray(labels[:, None] * np.column_stack([features, np.ones(len(labels))]))


def exponential_loss(rows: Float[NDArray, "n p"], y: Y, weight: Float[NDArray, "n"]) -> float:
    """Weighted sum of exp(1 - margin) over the samples (inf where it overflows)."""
    with np.errstate(over="ignore"):
        return float(weight @ np.exp(1.0 - rows @ y))


class SampleWeights(NamedTuple):
    """How often each sample counts."""

    training: Float[NDArray, "n"]  #: s_i
    validation: Float[NDArray, "m"]  #: e_j

    @classmethod
    def equal(cls, training: int, validation: int) -> SampleWeights:
        """Every sample once."""
        return cls(np.ones(training), np.ones(validation))


@dataclass(frozen=True, eq=False)
class MarginProblem:
    """Signed rows and weights."""

    rows: Float[NDArray, "n p"]  #: d_i; the last column belongs to b
    validation: Float[NDArray, "m p"]  #: v_j
    weights: SampleWeights
    c_penalty: CPenalty = "sum"
    c_weight: float = 10.0
    intercept_weight: float = 0.0  #: beta: 0 leaves b free, as the paper does; the published code has 1

    def __post_init__(self) -> None:
        check_price(self.c_penalty, self.c_weight, self.intercept_weight)

    @classmethod
    def of(
        cls,
        samples: Samples,
        c_penalty: CPenalty = "sum",
        c_weight: float = 10.0,
        intercept_weight: float = 0.0,
        weights: SampleWeights | None = None,
    ) -> MarginProblem:
        """The problem in the samples' own units."""
        rows, validation = signed_rows(*samples[:2]), signed_rows(*samples[2:])
        weights = weights or SampleWeights.equal(len(rows), len(validation))
        return cls(rows, validation, weights, c_penalty, c_weight, intercept_weight)

    @property
    def ridge(self) -> Y:
        """The diagonal of the lower objective's Hessian."""
        ridge = np.ones(self.rows.shape[1])
        ridge[-1] = self.intercept_weight
        return ridge

    def validation_loss(self, y: Y) -> float:
        """:func:`exponential_loss` of the validation samples."""
        return exponential_loss(self.validation, y, self.weights.validation)

    def price(self, c: Float[AnyArray, "n"]) -> Float[AnyArray, ""] | float:
        """phi(c), of arrays of NumPy and of JAX alike."""
        weighted = self.weights.training * c
        if self.c_penalty == "sum":
            return self.c_weight * weighted.sum()
        if self.c_penalty == "squared":
            return 0.5 * self.c_weight * (weighted @ c)
        # The norm has no gradient at c = 0; the usual trick keeps derivatives finite there.
        return self.c_weight * (weighted @ c + TINY) ** 0.5

    def upper(self, c: Margins, y: Y) -> float:
        """The leader's objective."""
        return self.validation_loss(y) + float(self.price(c))

    def lower(self, y: Y) -> float:
        """The follower's objective."""
        return float(0.5 * (self.ridge * y) @ y)

    def forgiven(self, y: Y) -> Margins:
        """The least margins c that let ``y`` pass."""
        return np.maximum(1.0 - self.rows @ y, 0.0)

    def price_slope(self, c: Margins) -> Margins:
        """The gradient of phi (for the norm at c = 0: zero, one of its subgradients)."""
        each = self.c_weight * self.weights.training
        if self.c_penalty == "sum":
            return each
        if self.c_penalty == "squared":
            return each * c
        length = self.length(c)
        return each * c / length if length > 0.0 else np.zeros_like(c)

    def length(self, c: Margins) -> float:
        """The weighted norm of c."""
        return float(np.sqrt((self.weights.training * c) @ c))

    def validation_slope(self, y: Y) -> Y:
        """The gradient of the validation loss in y."""
        return -self.validation.T @ (self.weights.validation * np.exp(np.minimum(1.0 - self.validation @ y, 700.0)))


@dataclass(frozen=True, eq=False)
class FeatureUnits:
    """Features are centred and divided by one number: y and the multipliers change, the problem does not."""

    centre: Float[NDArray, "d"]
    unit: float

    @classmethod
    def of(cls, features: Float[NDArray, "n d"], centred: bool) -> FeatureUnits:
        """Centre at the mean (only where b is free) and measure in root mean squares of the rows."""
        centre = features.mean(axis=0) if centred else np.zeros(features.shape[1])
        unit = float(np.sqrt(np.mean(np.sum((features - centre) ** 2, axis=1))))
        return cls(centre, unit if np.isfinite(unit) and unit > 0.0 else 1.0)

    def scaled(self, features: Float[NDArray, "n d"]) -> Float[NDArray, "n d"]:
        """Features in these units."""
        return (features - self.centre) / self.unit

    def back(self, y: Y) -> Y:
        """(w, b) for the original features."""
        w = y[:-1] / self.unit
        return np.append(w, y[-1] - w @ self.centre)


def scaled_problem(
    samples: Samples,
    c_penalty: CPenalty = "sum",
    c_weight: float = 10.0,
    intercept_weight: float = 0.0,
    weights: SampleWeights | None = None,
) -> tuple[MarginProblem, FeatureUnits]:
    """The same problem over centred features of unit size, and the way back."""
    features, labels, validation, validation_labels = samples
    units = FeatureUnits.of(features, centred=intercept_weight == 0.0)
    scaled = units.scaled(features), labels, units.scaled(validation), validation_labels
    return MarginProblem.of(scaled, c_penalty, c_weight, intercept_weight * units.unit**2, weights), units
