"""What a design run returns: the network to build, who travels on it, and the proof."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.notebook import Shown
from blocc.kit.checks import check_lines
from blocc.result import Certificate, History, Status
from blocc.transport.design.checks import certificate_checks, withheld
from blocc.transport.network.network import TransportNetwork
from blocc.transport.network.plausibility import doubts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Indicators(NamedTuple):
    """Sums over all markets, in one period of demand."""

    passengers: float  #: who travel on the new network
    passenger_time_saved: float  #: their time on the existing network less that on the new one, in units of time
    passenger_hours_saved: float  #: the same in hours; NaN where the unit of time is not known
    consumer_surplus: float  #: what the new network is worth to all travellers, in units of time
    revenue_cost_ratio: float  #: revenue over construction cost; NaN where nothing was paid for


def indicators(design: Design) -> Indicators:
    """The figures of a design, at the travellers' own answer."""
    network, follower = design.network, design.follower
    saved = float(np.sum(time_saved(design)))
    cost = follower.construction_cost
    return Indicators(
        passengers=float(network.demand @ follower.share),
        passenger_time_saved=saved,
        passenger_hours_saved=saved * network.units.hours,
        consumer_surplus=float(np.sum(consumer_surplus(design))),
        revenue_cost_ratio=follower.revenue / cost if cost > 0 else np.nan,
    )


def time_saved(design: Design) -> Float[NDArray, "markets"]:
    """What the passengers of each market save together; some choose the new network although it is slower."""
    network, follower = design.network, design.follower
    saved = network.demand * follower.share * (network.alternative_time - follower.travel_time)
    return np.where(np.isfinite(follower.travel_time), saved, 0.0)


def consumer_surplus(design: Design) -> Float[NDArray, "markets"]:
    """The logit's measure of what a market gains by having the choice: demand times ln(1 + exp(alternative - cost)).

    The cost is that of the cheapest path with prices: what a full link costs its passengers in waiting counts.
    """
    network = design.network
    return network.demand * np.logaddexp(0.0, network.alternative_time - design.follower.path_cost)


class Assignment(NamedTuple):
    """Where the travellers go when the capacities stand: the lower level's solution, in the network's own units."""

    flow: Float[NDArray, "links"]  #: passengers on each link
    #: Multiplier of each link's capacity: what one more unit would save the travellers. For a link that is not built,
    #: what they save per unit when ``Design.price_unit`` is added, on the links that promise most; else NaN.
    price: Float[NDArray, "links"]
    share: Float[NDArray, "markets"]  #: of each market, between 0 (nobody takes the new network) and 1
    path_cost: Float[NDArray, "markets"]  #: cheapest time of each, prices included; infinite where there is no path
    travel_time: Float[NDArray, "markets"]  #: mean time of its passengers, without prices; NaN where nobody travels
    utility: float  #: the operator's: revenue less construction cost
    revenue: float
    construction_cost: float
    market_flow: csr_array  #: flow of each market (row) on each link (column), as a fraction of the market's demand


class WhatIf(NamedTuple):
    """One row of the table that shows what another gamma would have given (each continued from the one before)."""

    gamma: float
    utility: float  #: at yg, the travellers' own answer
    utility_penalised: float  #: at yF, the penalised answer
    distance: float  #: ``||yF - yg||`` over the shares
    links_built: int
    seconds: float


class Start(NamedTuple):
    """One random start and where it ended."""

    utility: float
    status: Status
    links_built: int
    evaluations: int
    seconds: float


@dataclass(frozen=True)
class Design(Shown):
    """A designed network. ``print(design)`` explains it; :func:`blocc.transport.write_design` writes it to files."""

    network: TransportNetwork
    capacity: Float[NDArray, "links"]  #: of each link; 0 means not built
    follower: Assignment  #: yg: what really happens
    penalised: Assignment  #: yF: the penalised answer
    gamma: float
    status: Status
    message: str
    certificate: Certificate
    history: History
    what_if: tuple[WhatIf, ...]
    starts: tuple[Start, ...]
    seconds: dict[str, float]  #: ``compile`` and ``run``
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    lower_level_error: float = 0.0  #: largest residual of the travellers' answer, relative to the answer's size
    price_unit: float = 0.0  #: capacity with which prices of links that are not built were measured; 0: none was

    @property
    def success(self) -> bool:
        """Whether the run converged; nothing else counts as success."""
        return self.status is Status.CONVERGED

    @property
    def utility(self) -> float:
        """Revenue less construction cost, at the travellers' exact answer."""
        return self.follower.utility

    @property
    def built(self) -> Bool[NDArray, "links"]:
        """Which links are built."""
        return self.capacity > 0

    @property
    def utilisation(self) -> Float[NDArray, "links"]:
        """Flow over capacity of each link; NaN where nothing is built."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.built, self.follower.flow / self.capacity, np.nan)

    @property
    def indicators(self) -> Indicators:
        """Passengers, time saved, consumer surplus, and revenue over cost."""
        return indicators(self)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the network: width shows capacity, colour use, price or flow, dotted what is not built.

        Needs ``blocc[plot]``. Written when ``path`` is given (.png, .pdf, .svg).
        """
        from blocc.report.transport.design_charts import plot_map  # that room stands on this one

        return plot_map(self, path)

    def __repr__(self) -> str:
        return design_text(self)


def design_text(design: Design) -> str:
    """Status, money, passengers, the certificate with its verdicts, and what was assumed."""
    network, count = design.network, len(design.starts)
    missing = withheld(design)
    lines = [
        f"{network.name}: {design.status.value}",
        f"  {design.message}",
        *([f"  NOT CERTIFIED: {missing}"] if missing else []),
        f"  utility      {design.utility:.6f}   (revenue {design.follower.revenue:.6f}, "
        f"construction {design.follower.construction_cost:.6f}; at yF: {design.penalised.utility:.6f})",
        f"  links built  {int(design.built.sum())} of {network.n_links}, capacity {design.capacity.sum():.6g} in all",
        *([] if missing else _travellers(design)),
        f"  gamma        {design.gamma:g}",
        "  certificate",
        *check_lines(certificate_checks(design)),
        f"  {count} {'start' if count == 1 else 'starts'}, {sum(s.evaluations for s in design.starts)} evaluations, "
        f"{design.seconds.get('run', 0.0):.3g} s (and {design.seconds.get('compile', 0.0):.3g} s to compile)",
    ]
    for heading, sentences in (("why nothing is built", _reasons(design)), ("assumed", network.assumptions)):
        if sentences:
            lines += [f"  {heading}", *(f"    {sentence}" for sentence in sentences)]
    return "\n".join(lines)


def _travellers(design: Design) -> list[str]:
    total, found = float(design.network.demand.sum()), indicators(design)
    share = found.passengers / total if total else 0.0
    saved = f"{found.passenger_time_saved:.6g} (disutility)"
    if math.isfinite(found.passenger_hours_saved):
        saved = f"{found.passenger_hours_saved:.6g} passenger-hours"
    ratio = (
        f"{found.revenue_cost_ratio:.4g}" if math.isfinite(found.revenue_cost_ratio) else "none, nothing was paid for"
    )
    return [
        f"  demand       {found.passengers:.6g} of {total:.6g} travel on the new network ({share:.1%})",
        f"  time saved   {saved}; consumer surplus {found.consumer_surplus:.6g} (disutility)",
        f"  revenue/cost {ratio}",
    ]


def _reasons(design: Design) -> list[str]:
    return [] if design.built.any() else doubts(design.network)
