"""What an estimate of trips returns: trips by pair, volumes at the counts with their residuals, and the proof."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.notebook import Shown
from blocc.kit.checks import assumed_lines, check_lines
from blocc.kit.documents import rows_of
from blocc.kit.records import Step
from blocc.result import Status
from blocc.roads.assign import RoadAssignment
from blocc.roads.checks import answer_checks
from blocc.roads.network import RoadNetwork

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What GEH should stay below at a count of one hour, by the usual rule.
GOOD_GEH = 5.0


@dataclass(frozen=True, eq=False)
class DemandEstimate(Shown):
    """Trips that explain counts. ``print`` explains it; ``network`` carries them, ready to be assigned or widened."""

    network: RoadNetwork  #: the roads with the estimated trips
    prior: RoadNetwork  #: the roads with the trips that were given
    counted: Int[NDArray, "counts"]  #: positions of the counted links
    count: Float[NDArray, "counts"]
    objective: float  #: the two distances together
    prior_distance: float  #: sum of prior_weight (trips - prior)^2 / prior
    count_distance: float  #: sum of count_weight (volume - count)^2 / count
    before: RoadAssignment  #: of the prior
    after: RoadAssignment  #: of the estimate, with its certificate
    status: Status
    message: str
    stationarity: float  #: what exact values at points around the answer still gained
    history: tuple[Step, ...]
    evaluations: int
    seconds: float
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def success(self) -> bool:
        """Whether the run converged; nothing else counts as success."""
        return self.status is Status.CONVERGED

    @property
    def size(self) -> float:
        """What gains are compared with: the objective, and 1 since that may be zero."""
        return 1.0 + abs(self.objective)

    @property
    def demand(self) -> Float[NDArray, "pairs"]:
        """The estimated trips of each pair, in the order of the network's pairs."""
        return self.network.demand

    @property
    def fitted(self) -> Float[NDArray, "counts"]:
        """The volumes of the counted links."""
        return self.after.flow[self.counted]

    @property
    def fitted_before(self) -> Float[NDArray, "counts"]:
        """The same with the prior trips."""
        return self.before.flow[self.counted]

    @property
    def residual(self) -> Float[NDArray, "counts"]:
        """Volume less count."""
        return self.fitted - self.count

    @property
    def geh(self) -> Float[NDArray, "counts"]:
        """The GEH statistic of each count, made for volumes of one hour: below 5 is a good fit."""
        return geh(self.fitted, self.count)

    @property
    def relative_gap(self) -> float:
        """Of the drivers' equilibrium in the answer."""
        return self.after.relative_gap

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Of the network, and of the estimate."""
        return self.network.assumptions

    @property
    def bound(self) -> None:
        """None: nothing is proven about what other trips could reach."""

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw counted against modelled volumes, prior against estimated trips, residuals, and the way to the answer.

        Needs ``blocc[plot]``. Written when ``path`` is given (.png, .pdf, .svg).
        """
        from blocc.report.estimate_report import plot_estimate  # that room stands on this one

        return plot_estimate(self, path)

    @staticmethod
    def load(path: str | Path) -> DemandEstimate:
        """Read back what :func:`blocc.roads.write_demand_estimate` wrote: its folder, or ``estimate.json``."""
        from blocc.roads.documents import ESTIMATE  # which stands on this module

        return ESTIMATE.load(path)

    def demand_rows(self) -> list[dict[str, Any]]:
        """Origin, destination, estimated and prior trips of every pair, and what its cheapest path costs with both."""
        from blocc.roads.documents import ESTIMATE_TRIPS

        return rows_of(self, ESTIMATE_TRIPS)

    def count_rows(self) -> list[dict[str, Any]]:
        """Every count: link, volume counted, of the prior, and of the estimate, residual and GEH."""
        from blocc.roads.documents import COUNTS

        return rows_of(self, COUNTS)

    def __repr__(self) -> str:
        was, now = geh(self.fitted_before, self.count), self.geh
        lines = [
            f"{self.network.name}: {self.status.value}",
            f"  {self.message}",
            f"  objective          {self.objective:.10g} (prior {self.prior_distance:.6g}, "
            f"counts {self.count_distance:.6g})",
            f"  trips              {self.prior.demand.sum():.8g} before, {self.demand.sum():.8g} estimated",
            f"  {len(self.count)} counts         GEH at most {was.max():.3g} before, {now.max():.3g} after; "
            f"below {GOOD_GEH:g}: {int((was < GOOD_GEH).sum())} before, {int((now < GOOD_GEH).sum())} after",
            "  certificate",
            *check_lines(answer_checks(self)),
            "  no bound is known for estimates: other trips may explain the counts as well",
            f"  {self.evaluations} evaluations, {self.seconds:.3g} s",
            *assumed_lines(self.assumptions),
        ]
        return "\n".join(lines)


def geh(volume: Float[NDArray, "counts"], count: Float[NDArray, "counts"]) -> Float[NDArray, "counts"]:
    """sqrt(2 (volume - count)^2 / (volume + count)); zero where both are."""
    together = volume + count
    return np.abs(volume - count) * np.sqrt(2.0 / np.where(together > 0.0, together, 1.0))
