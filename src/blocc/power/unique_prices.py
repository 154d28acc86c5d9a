"""Which buses' prices the market determines, and which are one choice among several.

Prices are an energy price and what the lines at their limits add. Whoever is inside of its limits sets its bus's price
to its own marginal cost; these are the equations. Where there are fewer of them than unknowns (nobody generates, a
demand equals what cheap generators give, a bus behind a full line has neither), some prices are not unique.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc._lib.rounding import EXACT
from blocc.power.case import PowerCase

if TYPE_CHECKING:
    from blocc.power.dispatch import Dispatch

#: Prices of two solvers agree to this, relative to the highest.
SAME_PRICE = 1e-4
#: Consumers set a price where they are served in part: this far from both ends, relative to their demand.
_MARGIN = 1e-6
#: What counts as being at a limit, relative to the limit's size.
_AT = 1e-6
#: What of a direction may be left over where equations determine it.
_LEFT = 1e-7


class PriceGap(NamedTuple):
    """By how much the prices of two dispatches differ where there is one alone."""

    largest: float
    size: float  #: what that is relative to
    unique: Bool[NDArray, " buses"]

    @property
    def agrees(self) -> bool:
        """Whether two solvers may differ by as much."""
        return self.largest <= SAME_PRICE * self.size


def price_gap(case: PowerCase, claimed: Dispatch, found: Dispatch, elastic: Iterable[int]) -> PriceGap:
    """The prices of ``claimed`` held against those of ``found``; at ``elastic`` buses consumers buy less of more."""
    setting = (found.shed > _MARGIN * (1.0 + found.demand)) & (found.served > _MARGIN * (1.0 + found.demand))
    setting |= np.isin(np.arange(case.n_buses), list(elastic)) & (found.demand > _MARGIN)
    unique = unique_prices(case, found.output, found.flow, found.capacity, setting)
    largest = float(np.max(np.abs(claimed.price - found.price)[unique], initial=0.0))
    return PriceGap(largest, 1.0 + float(np.max(np.abs(found.price))), unique)


def unique_prices(
    case: PowerCase,
    output: Float[NDArray, " generators"],
    flow: Float[NDArray, " lines"],
    capacity: Float[NDArray, " lines"],
    setting: Bool[NDArray, " buses"],
) -> Bool[NDArray, " buses"]:
    """For each bus whether its price is determined.

    :param setting: buses whose consumers set a price: they buy some, and not all of what they might
    """
    full = _full_lines(case, flow, capacity)
    unknowns = np.column_stack([np.ones(case.n_buses), _factors(case, full).T])  # buses by unknowns
    inside = (output > case.output_min + _room(case)) & (output < case.output_max - _room(case))
    for place, one in case.segments.items():  # between two slopes a generator sets no price
        heights = np.sort(np.asarray(one.slope) * output[place] + np.asarray(one.intercept))
        inside[place] &= len(heights) < 2 or heights[-1] - heights[-2] > _AT * (1.0 + abs(heights[-1]))
    rows = unknowns[np.unique(np.concatenate([case.generator_bus[inside], np.flatnonzero(setting)]))]
    if not len(rows):
        return np.zeros(case.n_buses, dtype=bool)
    _, sizes, axes = np.linalg.svd(rows, full_matrices=False)
    known = axes[sizes > EXACT * sizes[0]]
    left = unknowns - unknowns @ known.T @ known
    return np.asarray(np.linalg.norm(left, axis=1) <= _LEFT * np.linalg.norm(unknowns, axis=1))


def _room(case: PowerCase) -> Float[NDArray, " generators"]:
    return _AT * (1.0 + case.output_max - case.output_min)


def _full_lines(case: PowerCase, flow: NDArray, capacity: NDArray) -> Int[NDArray, " full"]:
    """Lines at a limit of their flow, or of the angle over them."""
    with np.errstate(invalid="ignore"):
        angle = flow / case.susceptance + case.shift
    full = np.abs(flow) >= capacity - _AT * (1.0 + np.where(np.isfinite(capacity), capacity, 0.0))
    full |= (angle >= case.angle_max - _AT) | (angle <= case.angle_min + _AT)
    return np.flatnonzero(full)


def _factors(case: PowerCase, lines: Int[NDArray, " chosen"]) -> Float[NDArray, "chosen buses"]:
    """Flow of some lines for a MW fed in at each bus."""
    import scipy.sparse.linalg

    found = np.zeros((len(lines), case.n_buses))
    if not len(lines):
        return found
    weighted = sp.diags_array(case.susceptance) @ case.incidence
    keep = np.delete(np.arange(case.n_buses), case.reference)
    laplacian = sp.csc_matrix(sp.csr_array(case.incidence.T @ weighted)[keep][:, keep])
    solver = scipy.sparse.linalg.splu(laplacian)
    found[:, keep] = solver.solve(sp.csr_array(weighted)[lines][:, keep].toarray().T, "T").T
    return found
