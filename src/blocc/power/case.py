"""A power system for the DC approximation: buses, generators and lines as arrays, in MW and radians."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.rounding import EXACT
from blocc.errors import InputError, OptionError


@dataclass(frozen=True)
class Segments:
    """A convex cost that is the largest of some lines in the output: ``slope * p + intercept``, per hour."""

    slope: tuple[float, ...]
    intercept: tuple[float, ...]

    @property
    def lines(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Slopes and intercepts."""
        return self.slope, self.intercept

    def at(self, output: float) -> float:
        """The cost at an output."""
        return max(a * output + b for a, b in zip(self.slope, self.intercept, strict=True))


@dataclass(frozen=True, eq=False)
class PowerCase:
    """A power system. Buses, generators and lines have the numbers that they have in the file."""

    name: str
    base: float  #: MVA
    bus_number: Int[NDArray, " buses"]
    demand: Float[NDArray, " buses"]  #: MW, what shunts take at nominal voltage included
    reference: int  #: place of the bus whose angle is zero
    generator_number: Int[NDArray, " generators"]
    generator_bus: Int[NDArray, " generators"]  #: places of buses
    output_min: Float[NDArray, " generators"]  #: MW
    output_max: Float[NDArray, " generators"]
    cost_square: Float[NDArray, " generators"]  #: per MW^2 and hour
    cost_linear: Float[NDArray, " generators"]  #: per MWh
    cost_fixed: Float[NDArray, " generators"]  #: per hour
    segments: dict[int, Segments]  #: piecewise linear costs by the generator's place, on top of the others, which are 0
    line_number: Int[NDArray, " lines"]
    line_from: Int[NDArray, " lines"]  #: places of buses
    line_to: Int[NDArray, " lines"]
    susceptance: Float[NDArray, " lines"]  #: MW per radian
    shift: Float[NDArray, " lines"]  #: radians
    capacity: Float[NDArray, " lines"]  #: MW; infinite: no limit
    angle_min: Float[NDArray, " lines"]  #: least difference of angles over the line, radians
    angle_max: Float[NDArray, " lines"]
    assumptions: tuple[str, ...] = field(default=())

    @property
    def n_buses(self) -> int:
        """Number of buses."""
        return len(self.bus_number)

    @property
    def n_generators(self) -> int:
        """Number of generators in service."""
        return len(self.generator_number)

    @property
    def n_lines(self) -> int:
        """Number of lines and transformers in service."""
        return len(self.line_number)

    @property
    def incidence(self) -> sp.csr_array:
        """Lines by buses: 1 where a line begins, -1 where it ends."""
        rows = np.concatenate([np.arange(self.n_lines)] * 2)
        columns = np.concatenate([self.line_from, self.line_to])
        signs = np.concatenate([np.ones(self.n_lines), -np.ones(self.n_lines)])
        return sp.csr_array((signs, (rows, columns)), shape=(self.n_lines, self.n_buses))

    @property
    def at_bus(self) -> sp.csr_array:
        """Buses by generators: 1 where a generator feeds in."""
        places = (self.generator_bus, np.arange(self.n_generators))
        return sp.csr_array((np.ones(self.n_generators), places), shape=(self.n_buses, self.n_generators))

    @property
    def highest_marginal_cost(self) -> float:
        """What one more MWh costs at most, of all generators that have any, at their largest output."""
        return float(self.marginal_cost(self.output_max)[self.output_max > 0.0].max())

    def cost(self, output: Float[NDArray, " generators"]) -> Float[NDArray, " generators"]:
        """What each generator's output costs, per hour."""
        found = self.cost_square * output**2 + self.cost_linear * output + self.cost_fixed
        for place, one in self.segments.items():
            found[place] += one.at(float(output[place]))
        return np.asarray(found)

    def marginal_cost(self, output: Float[NDArray, " generators"]) -> Float[NDArray, " generators"]:
        """What one more MWh of each generator costs at an output."""
        found = self.cost_linear + 2.0 * self.cost_square * output
        for place, one in self.segments.items():
            active = max(range(len(one.slope)), key=lambda k: one.slope[k] * output[place] + one.intercept[k])
            found[place] += one.slope[active]
        return np.asarray(found)

    def with_demand(self, demand: Float[NDArray, " buses"]) -> PowerCase:
        """The same with another demand."""
        return replace(self, demand=np.asarray(demand, dtype=np.float64))

    def scaled(self, demand: float) -> PowerCase:
        """The same with all demand multiplied."""
        if demand == 1.0:
            return self
        note = f"all demand is multiplied by {demand:g}"
        found = replace(self, demand=demand * self.demand, assumptions=(*self.assumptions, note))
        check_supply(found)
        return found

    def places(self, what: str, numbers: object) -> Int[NDArray, " chosen"]:
        """Places of ``generators``, ``lines`` or ``buses`` by their numbers in the file."""
        known = {"generators": self.generator_number, "lines": self.line_number, "buses": self.bus_number}[what]
        if isinstance(numbers, str) and numbers == "all":
            return np.arange(len(known))
        found = {int(number): place for place, number in enumerate(known)}
        given = np.atleast_1d(np.asarray(numbers))
        if given.size == 0 or given.dtype.kind not in "iuf" or np.any(given != np.round(given)):
            raise OptionError(f"{what} must be 'all' or numbers of {what} of {self.name}, got {numbers!r}")
        chosen = [int(number) for number in given]
        for number in chosen:
            if number not in found:
                raise OptionError(f"{what}: {self.name} has no {number} in service; it has {number_list(known)}")
        if len(set(chosen)) < len(chosen):
            raise OptionError(f"{what}: a number is given twice in {numbers!r}")
        return np.array([found[number] for number in chosen])

    def __repr__(self) -> str:
        lines = [
            f"{self.name}: {self.n_buses} buses, {self.n_generators} generators, {self.n_lines} lines",
            f"  demand {self.demand.sum():.6g} MW, generators up to {self.output_max.sum():.6g} MW",
            *(f"  assumed: {one}" for one in self.assumptions),
        ]
        return "\n".join(lines)


def number_list(numbers: Int[NDArray, " n"]) -> str:
    """The first dozen of some numbers, in words."""
    shown = ", ".join(str(int(one)) for one in numbers[:12])
    return shown if len(numbers) <= 12 else f"{shown}, ... ({len(numbers)} in all)"


def check_connected(case: PowerCase) -> None:
    """Refuse a system in several parts: each would have prices of its own."""
    links = sp.csr_array((np.ones(case.n_lines), (case.line_from, case.line_to)), shape=(case.n_buses, case.n_buses))
    count, part = csgraph.connected_components(links, directed=False)
    if count > 1:
        sizes = np.bincount(part)
        small = int(np.argmin(sizes))
        members = number_list(case.bus_number[part == small])
        raise InputError(
            f"{case.name}: the lines in service leave {count} islands; the smallest has the buses {members}. "
            "Give every island a file of its own"
        )


def check_supply(case: PowerCase) -> None:
    """Refuse demand that the generators cannot meet even without lines' limits."""
    demand, most, least = case.demand.sum(), case.output_max.sum(), case.output_min.sum()
    if demand > most * (1.0 + EXACT) or demand < least * (1.0 - EXACT) - EXACT:
        raise InputError(
            f"{case.name}: demand is {demand:.6g} MW, and the generators give between {least:.6g} and {most:.6g} MW"
        )
