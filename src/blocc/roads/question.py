"""A question that a leader asks about roads: what is decided, what drivers pay then, and what it is worth.

Every question is asked through the same two assignments; what makes it one of its own are its costs and derivatives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.roads.equilibrium import Pairs
from blocc.roads.link_costs import LinkCosts, power_costs
from blocc.roads.network import RoadNetwork

#: gamma of the continuation; the last is so large that what it hides is beyond the tolerance.
GAMMAS = (0.0, 10.0, 100.0, 1e3, 1e4)


@dataclass(frozen=True, eq=False)
class Question(ABC):
    """What a leader decides about, and what it is worth: total travel time, unless a question says otherwise."""

    network: RoadNetwork
    candidates: Int[NDArray, "n"]  #: links, or pairs, that the decision is about
    lower: Float[NDArray, "n"]
    upper: Float[NDArray, "n"]

    def capacity(self, x: Float[NDArray, "n"]) -> Float[NDArray, "links"]:
        """The capacity of every link."""
        return self.network.capacity

    def toll(self, x: Float[NDArray, "n"]) -> Float[NDArray, "links"]:
        """The toll of every link."""
        return self.network.toll

    def pairs(self, x: Float[NDArray, "n"]) -> Pairs:
        """The trips."""
        return self.network.pairs

    def demand_slope(self, x: Float[NDArray, "n"], per_trip: Float[NDArray, "pairs"]) -> Float[NDArray, "n"]:
        """The sum over pairs of ``per_trip`` times the derivative of the trips in x."""
        return np.zeros(len(x))

    @property
    def sizes(self) -> Float[NDArray, "n sizes"] | None:
        """The decisions that are possible, ascending in each row, infinite where it has fewer; None: all."""
        return None

    @property
    def is_about_links(self) -> bool:
        """Whether a decision may be worth much of itself and nothing of a little: a link's, not a trip's."""
        return True

    @property
    def present(self) -> Float[NDArray, "n"]:
        """The decision that leaves everything as it is."""
        return self.lower

    @property
    def units(self) -> Float[NDArray, "n"]:
        """By what each decision is measured in descents: how much of it is something, whatever it is written in."""
        return np.ones(len(self.candidates))

    def size(self, value: float) -> float:
        """What gains are compared with at a value: all of it, since time that is lost is never below zero."""
        return abs(value)

    @property
    def gammas(self) -> tuple[float, ...]:
        """The continuation; infinite stands for the exact value."""
        return GAMMAS

    def accuracy(self, gamma: float) -> float:
        """A descent ends when a step gains less than this, relatively; large gammas make assignments' errors large."""
        return max(1e-9, 1e-12 * gamma) if gamma > 0.0 else 1e-12

    def own(self, x: Float[NDArray, "n"]) -> tuple[float, Float[NDArray, "n"]]:
        """The part of f that has no flows in it, with its gradient."""
        return 0.0, np.zeros(len(x))

    @abstractmethod
    def direct(self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> Float[NDArray, "n"]:
        """Derivative of the total travel time in x, at these volumes."""

    @abstractmethod
    def turned(
        self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"], per_cost: Float[NDArray, "links"]
    ) -> Float[NDArray, "n"]:
        """The sum over links of ``per_cost`` times the derivative of what drivers pay in x."""

    @abstractmethod
    def integral_slope(
        self, x: Float[NDArray, "n"], gamma: float, volume: Float[NDArray, "links"]
    ) -> Float[NDArray, "n"]:
        """The derivative of the penalised objective in x at these volumes; with gamma infinite, of Beckmann's."""

    def follower_costs(self, x: Float[NDArray, "n"]) -> LinkCosts:
        """What drivers pay: time and toll."""
        found = self.network.bpr(self.capacity(x))
        return found._replace(constant=found.constant + self.toll(x))

    def penalised_costs(self, x: Float[NDArray, "n"], gamma: float) -> LinkCosts:
        """The derivative of f + gamma g in the volumes: BPR times once more, with another b."""
        found = self.network.bpr(self.capacity(x), 1.0 + self.network.power / (1.0 + gamma))
        constant = (1.0 + gamma) * found.constant + gamma * self.toll(x)
        return power_costs(constant, (1.0 + gamma) * found.coefficient, found.power)

    def worth(self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> float:
        """The part of f that has flows in it: the total travel time."""
        return float(self.network.travel_times(volume, self.capacity(x)) @ volume)

    def marginal(self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """What one more driver on each link adds to it."""
        return self.network.bpr(self.capacity(x), 1.0 + self.network.power).at(volume)


def unit_of(size: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
    """The same, with 1 where there is no size."""
    return np.where(size > 0.0, size, 1.0)
