"""What a design run returns: the network to build, who travels on it, and the proof."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.notebook import Shown
from blocc.result import Certificate, History, Status
from blocc.transport.design.design_text import design_text
from blocc.transport.design.indicators import Indicators, indicators
from blocc.transport.network.network import TransportNetwork

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
