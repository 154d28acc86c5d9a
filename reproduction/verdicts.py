"""What samples can tell: confidence intervals over seeds, differences on the same seeds, and verdicts that stay open.

A verdict is True or False only where the 95% interval of the mean difference lies on one side. Fewer than
:data:`FEWEST` seeds tell nothing, nor does an interval that holds zero: the answer is then None, "inconclusive".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from blocc._lib.arrays import Float, NDArray
from blocc.studies.study import Row, select
from reproduction.summary import column, values

CONFIDENCE = 0.95
FEWEST = 5  #: seeds below which nothing is said

#: Who says so: the paper, in a table or figure; or we, about the emulated programs and our own methods.
OURS = "our statement"


def paper(place: str) -> str:
    """The source of a statement that the paper makes, at this place of it."""
    return f"the paper, {place}"


class Interval(NamedTuple):
    """A mean over seeds, with half the width of its confidence interval."""

    mean: float
    half: float
    samples: int

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half

    def __str__(self) -> str:
        if not self.samples:
            return "no sample"
        return (
            f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"
            if self.samples > 1
            else f"{self.mean:.3g} [one sample]"
        )


def interval(samples: Sequence[float] | Float[NDArray, "samples"]) -> Interval:
    """The mean with Student's interval; infinitely wide for one sample."""
    found = np.asarray(samples, dtype=np.float64)
    found = found[np.isfinite(found)]
    if not len(found):
        return Interval(float("nan"), float("inf"), 0)
    if len(found) == 1:
        return Interval(float(found[0]), float("inf"), 1)
    quantile = float(scipy.special.stdtrit(len(found) - 1, 0.5 + 0.5 * CONFIDENCE))
    return Interval(float(found.mean()), quantile * float(found.std(ddof=1)) / float(np.sqrt(len(found))), len(found))


def exceeds(samples: Sequence[float] | Float[NDArray, "samples"], bound: float = 0.0) -> bool | None:
    """Whether the mean is larger than ``bound``; None where the samples do not tell."""
    found = interval(samples)
    if found.samples < FEWEST:
        return None
    if found.low > bound or (found.half == 0.0 and found.mean > bound):
        return True
    return False if found.high <= bound else None


def within(samples: Sequence[float] | Float[NDArray, "samples"], bound: float) -> bool | None:
    """Whether the size of the mean is at most ``bound``; None where the samples do not tell."""
    found = interval(samples)
    if found.samples < FEWEST:
        return None
    if -bound <= found.low and found.high <= bound:
        return True
    return False if found.low > bound or found.high < -bound else None


def differences(rows: Iterable[Row], others: Iterable[Row], name: str, other: str = "") -> Float[NDArray, "seeds"]:
    """By how much a column is larger than another one, seed by seed, where both have the seed."""
    theirs = {row["seed"]: row[other or name] for row in others if row.get(other or name) is not None}
    mine = {row["seed"]: row[name] for row in rows if row.get(name) is not None}
    return np.array([mine[seed] - theirs[seed] for seed in mine if seed in theirs], dtype=np.float64)


def falls(rows: Sequence[Row], parameter: str, name: str, sign: float = 1.0) -> bool | None:
    """Whether a column falls as a parameter grows (rises for ``sign`` -1), on the same seeds.

    It must fall from the smallest value to the largest, and rise nowhere between two neighbours.
    """
    places = sorted(values(rows, parameter))
    if len(places) < 2:
        return None
    groups = [list(select(rows, **{parameter: value})) for value in places]
    steps = [sign * differences(first, second, name) for first, second in itertools.pairwise(groups)]
    if any(exceeds(-step) for step in steps):
        return False
    whole = sign * differences(groups[0], groups[-1], name)
    return exceeds(whole)


def told(rows: Sequence[Row], parameter: str, name: str) -> str:
    """``2: 0.51 [0.50, 0.52]; 3: ...``: the means with their intervals, by the values of a parameter."""
    found = {value: interval(column(select(rows, **{parameter: value}), name)) for value in values(rows, parameter)}
    return listed_intervals(found)


def listed_intervals(found: Mapping[Any, Interval]) -> str:
    """The same from intervals."""
    return "; ".join(f"{key}: {one}" for key, one in found.items())
