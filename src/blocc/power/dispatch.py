"""An answer of the market: who generates what, what flows where, and at which prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc._lib.notebook import Shown
from blocc._lib.rounding import KEPT
from blocc.power.case import PowerCase, number_list
from blocc.power.unique_prices import unique_prices

#: A line is congested where one more MW of capacity is worth this share of the highest price.
_CONGESTED = 1e-5


@dataclass(frozen=True, eq=False)
class Dispatch(Shown):
    """What generators, lines and consumers do, per hour."""

    case: PowerCase
    output: Float[NDArray, " generators"]  #: MW
    flow: Float[NDArray, " lines"]  #: MW, from the line's first bus to its second
    demand: Float[NDArray, " buses"]  #: MW
    shed: Float[NDArray, " buses"]  #: MW of demand that is not served
    price: Float[NDArray, " buses"]  #: per MWh
    flow_price: Float[NDArray, " lines"]  #: per MWh: what one more MW of capacity would save, signed like the flow
    capacity: Float[NDArray, " lines"]  #: MW
    value: float  #: what the market minimises: cost as it is offered, less the consumers' benefit

    @property
    def cost(self) -> float:
        """Cost of generation as the case has it, per hour."""
        return float(self.case.cost(self.output).sum())

    @property
    def served(self) -> Float[NDArray, " buses"]:
        """What consumers get, MW."""
        return self.demand - self.shed

    @property
    def congested(self) -> Int[NDArray, " k"]:
        """Places of lines whose capacity has a price."""
        return np.flatnonzero(np.abs(self.flow_price) > _CONGESTED * max(1.0, float(np.max(np.abs(self.price)))))

    @property
    def payments(self) -> float:
        """What consumers pay for energy, per hour."""
        return float(self.price @ self.served)

    @property
    def congestion_rent(self) -> float:
        """What consumers pay beyond what generators receive, per hour."""
        return self.payments - float(self.price[self.case.generator_bus] @ self.output)

    def profit(self, generators: Int[NDArray, " chosen"] | None = None) -> Float[NDArray, " chosen"]:
        """What each generator (of the places given) earns at the price of its bus, less its cost, per hour."""
        each = self.price[self.case.generator_bus] * self.output - self.case.cost(self.output)
        return each if generators is None else each[generators]

    @property
    def price_is_unique(self) -> Bool[NDArray, " buses"]:
        """For each bus whether its price is the only one; where nobody generates or buys at the margin, it is not.

        Of elastic consumers nothing is known here, so it is for demand as a case has it.
        """
        setting = (self.shed > KEPT * (1.0 + self.demand)) & (self.served > KEPT * (1.0 + self.demand))
        return unique_prices(self.case, self.output, self.flow, self.capacity, setting)

    @property
    def imbalance(self) -> float:
        """The largest power that is lost or invented at a bus, MW."""
        case = self.case
        leaving = case.incidence.T @ self.flow
        return float(np.max(np.abs(self.served + leaving - case.at_bus @ self.output), initial=0.0))

    @property
    def overload(self) -> float:
        """The largest violation of a limit of a generator or of a line, MW."""
        case = self.case
        excess = [
            self.output - case.output_max,
            case.output_min - self.output,
            np.abs(self.flow) - self.capacity,
            -self.shed,
        ]
        return max(0.0, *(float(np.max(one, initial=0.0)) for one in excess))

    def __repr__(self) -> str:
        low, high = float(self.price.min()), float(self.price.max())
        lines = [
            f"{self.case.name}: dispatch of {self.output.sum():.6g} MW",
            f"  cost of generation  {self.cost:.8g} per hour",
            f"  prices              {low:.6g} to {high:.6g} per MWh",
            f"  congested lines     {len(self.congested)} of {self.case.n_lines}, "
            f"rent {self.congestion_rent:.6g} per hour",
        ]
        loose = self.case.bus_number[~self.price_is_unique]
        if len(loose):
            where = "any bus" if len(loose) == self.case.n_buses else f"the buses {number_list(loose)}"
            lines.insert(3, f"  not unique          prices at {where}: others would do as well")
        if self.shed.sum() > KEPT:
            lines.append(f"  not served          {self.shed.sum():.6g} MW")
        return "\n".join([*lines, *(f"  assumed: {one}" for one in self.case.assumptions)])
