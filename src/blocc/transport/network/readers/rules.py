"""How figures that a file leaves out are filled in: explicit rules, and the network they make of raw rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from blocc._lib.arrays import Bool, NDArray
from blocc.errors import OptionError, ProblemError
from blocc.networks.checked_rows import LARGEST, NetworkError, Table, finite, identifier, is_blank
from blocc.networks.line_geometry import looks_geographic
from blocc.networks.model import HOURS, Units
from blocc.networks.readers.raw import RawNetwork, Row, check_rows
from blocc.transport.network.network import TransportNetwork

#: Time on the existing network over that of the shortest path, where nobody says.
ALTERNATIVE_FACTOR = 1.5


@dataclass(frozen=True)
class FillRules:
    """What to put where a file has no figure; figures in the file always win.

    The two factors come first and apply to every figure read: the rules below see times and demand after them.
    """

    time_factor: float = 1.0  #: multiplies all times: turns minutes into a disutility
    demand_factor: float = 1.0  #: multiplies demand (and a start range, which shares its unit)
    cost_per_length: float | None = None  #: construction cost of a unit of capacity, for a unit of length ...
    cost_per_time: float | None = None  #: ... and for a unit of time; with both, their sum
    revenue_flat: float | None = None  #: revenue of one passenger, whatever the way ...
    revenue_per_time: float | None = None  #: ... and for a unit of time on the shortest path; with both, their sum
    alternative_factor: float | None = None  #: time on the existing network over the shortest path's; None: 1.5
    geographic: bool | None = None  #: coordinates are longitude and latitude; None: as the file says, or as they look
    drop_unreachable: bool = False  #: leave out markets that no path serves, in place of refusing the network
    time_unit: str | None = None  #: of the times in the file: h, min or s
    length_unit: str | None = None
    money_unit: str | None = None

    def __post_init__(self) -> None:
        for rule in fields(self):
            value = getattr(self, rule.name)
            if rule.name in ("geographic", "drop_unreachable"):
                if value not in (rule.default, True, False):
                    raise OptionError(f"{rule.name} must be True, False or {rule.default}, got {value!r}")
                continue
            if value is None and rule.default is None:
                continue
            if rule.name.endswith("_unit"):
                self._check_unit(rule.name, value)
                continue
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            least_is_open = rule.name in ("time_factor", "demand_factor")
            if not number or not math.isfinite(value) or value < 0 or (least_is_open and value == 0):
                bound = "above 0" if least_is_open else "not below 0"
                raise OptionError(f"{rule.name} must be a finite number {bound}, got {value!r}")

    @staticmethod
    def _check_unit(name: str, value: object) -> None:
        known = not name.startswith("time") or str(value).strip().lower() in HOURS
        if not isinstance(value, str) or not value.strip() or not known:
            raise OptionError(f"{name} must be {'h, min or s' if not known else 'a text'}, got {value!r}")


def complete(raw: RawNetwork, rules: FillRules | None = None) -> TransportNetwork:
    """The network that raw rows and rules make; every complaint names its row."""
    rules = rules or FillRules()
    if raw.markets is None:
        raise ProblemError(
            f"network {raw.name!r} has no demand: expected {raw.demand_expected}, or an OMX file (demand_omx)"
        )
    for what, rows in (("nodes", raw.nodes), ("links", raw.links), ("markets", raw.markets)):
        check_rows(len(rows), f"{raw.name}: {what}")
    filling = _Filling(raw, rules)
    network = filling.checked()
    with np.errstate(over="ignore", invalid="ignore"):
        filled = filling.filled(network)
    for name in ("time", "cost", "demand", "revenue", "alternative_time"):
        if not (getattr(filled, name) <= LARGEST).all():  # what overflows is not below either
            raise ProblemError(f"network {raw.name!r}: the rules make {name} overflow {LARGEST:g}; choose another unit")
    filled.check_text()
    return filled


class _Filling:
    """One network while it is filled: which figures are missing, and what they become."""

    def __init__(self, raw: RawNetwork, rules: FillRules) -> None:
        self.raw, self.rules = raw, rules
        self.links = Table("links", raw.links)
        self.no_time = self._missing(raw.links, "time")
        self.no_cost = self._missing(raw.links, "cost")
        self.no_revenue = self._missing(raw.markets or (), "revenue")
        self.no_alternative = self._missing(raw.markets or (), "alternative_time")
        self.length = np.zeros(len(raw.links))
        self.assumptions: list[str] = []
        self.geographic = self._is_geographic()

    @staticmethod
    def _missing(rows: Sequence[Row], column: str) -> Bool[NDArray, "rows"]:
        return np.array([is_blank(row.get(column)) for row in rows], dtype=bool)

    def checked(self) -> TransportNetwork:
        """The network with zeros for what will be filled, once every row has been checked."""
        raw = self.raw
        links = [self._link(row, dict(record)) for row, record in enumerate(raw.links)]
        markets = [
            {**record, **{column: 0.0 for column in ("revenue", "alternative_time") if is_blank(record.get(column))}}
            for record in raw.markets or ()
        ]
        complaints = self.links.lines() + self._rules_missing()
        try:
            network = TransportNetwork.from_tables(
                [self._node(row) for row in raw.nodes],
                links,
                markets,
                name=raw.name,
                start_range=raw.start_range,
                notes=raw.notes,
                crs=raw.crs if self.rules.geographic is None else "EPSG:4326" if self.rules.geographic else "",
                drop_unreachable=self.rules.drop_unreachable,
            )
        except NetworkError as error:
            raise NetworkError(raw.name, [*complaints, *error.complaints]) from None
        if complaints:
            raise NetworkError(raw.name, complaints)
        self._forget_dropped(network)
        return network

    def _forget_dropped(self, network: TransportNetwork) -> None:
        """Keep what is known about the markets that are left, where some were dropped."""
        if network.n_markets == len(self.no_revenue):
            return
        row = {(identifier(m["origin"]), identifier(m["destination"])): k for k, m in enumerate(self.raw.markets or ())}
        ends = zip(network.origin.tolist(), network.destination.tolist(), strict=True)
        kept = [row[network.nodes[i], network.nodes[j]] for i, j in ends]
        self.no_revenue, self.no_alternative = self.no_revenue[kept], self.no_alternative[kept]

    def filled(self, network: TransportNetwork) -> TransportNetwork:
        """The factors and the rules applied to a checked network."""
        rules = self.rules
        time = network.time * rules.time_factor
        shortest = network.free_flow_times * rules.time_factor
        cost = (rules.cost_per_length or 0.0) * self.length + (rules.cost_per_time or 0.0) * time
        revenue = (rules.revenue_flat or 0.0) + (rules.revenue_per_time or 0.0) * shortest
        usual = self.alternative_factor * shortest
        alternative = np.where(self.no_alternative, usual, network.alternative_time * rules.time_factor)
        starts = network.start_range
        told = (*self.raw.assumptions, *network.assumptions, *self.assumptions, *self._sentences(network))
        return replace(
            network,
            time=time,
            cost=np.where(self.no_cost, cost, network.cost),
            demand=network.demand * rules.demand_factor,
            revenue=np.where(self.no_revenue, revenue, network.revenue),
            alternative_time=alternative,
            start_range=None if starts is None else (starts[0] * rules.demand_factor, starts[1] * rules.demand_factor),
            units=self._units(),
            assumptions=tuple(dict.fromkeys(told)),  # a network that is read again says the same once
        )

    @property
    def alternative_factor(self) -> float:
        """Of the rules, or the usual one."""
        return ALTERNATIVE_FACTOR if self.rules.alternative_factor is None else self.rules.alternative_factor

    def _units(self) -> Units:
        """The units that the file and the rules name."""
        units, rules = self.raw.units, self.rules
        given = {"time": rules.time_unit, "length": rules.length_unit, "money": rules.money_unit}
        named = {name: unit.strip() for name, unit in given.items() if unit is not None}
        return units._replace(time_factor=units.time_factor * rules.time_factor, **named)

    def _is_geographic(self) -> bool | None:
        """Whether coordinates are longitude and latitude, if the rules say so or they look so; None: as in the file."""
        if self.rules.geographic is not None or self.raw.says_coordinates:
            return self.rules.geographic
        places = [[finite(row.get(axis)) for axis in ("x", "y")] for row in self.raw.nodes]
        if any(None in place for place in places) or not looks_geographic(np.array(places, dtype=float)):
            return None
        self.assumptions.append("Coordinates look like longitude and latitude, and were taken as such.")
        return True

    def _node(self, row: Row) -> Row:
        """The node with its coordinates under the names that say what they are."""
        if self.geographic is None:
            return row
        names = {"x": "lon", "y": "lat"} if self.geographic else {"lon": "x", "lat": "y"}
        return {names.get(key, key): value for key, value in row.items()}

    def _link(self, row: int, record: dict[str, Any]) -> dict[str, Any]:
        if self.no_cost[row]:
            record["cost"] = 0.0
            if self.rules.cost_per_length:
                self.length[row] = self.links.number(row, "length", least=0.0)
        if self.no_time[row]:
            if is_blank(record.get("length")) or is_blank(record.get("free_speed")):
                self.links.complain(row, "time", "is missing: give it, or length and free_speed")
                record["time"] = 0.0
            else:
                length, speed = (self.links.number(row, column) for column in ("length", "free_speed"))
                if length < 0:
                    self.links.complain(row, "length", "is below 0")
                if speed <= 0:
                    self.links.complain(row, "free_speed", "must be above 0")
                record["time"] = length / speed if length >= 0 and speed > 0 else 0.0
        return record

    def _rules_missing(self) -> list[str]:
        """Complaints about figures that are neither in the file nor in the rules, and about rules without a use."""
        rules, raw = self.rules, self.raw
        lines = []
        for table, column, missing, names in (
            ("link", "cost", self.no_cost, ("cost_per_length", "cost_per_time")),
            ("market", "revenue", self.no_revenue, ("revenue_flat", "revenue_per_time")),
            ("market", "alternative_time", self.no_alternative, ("alternative_factor",)),
        ):
            given = [name for name in names if getattr(rules, name) is not None]
            if given and not missing.any():
                lines.append(
                    f"{given[0]} fills in what a file leaves out, but every {table} has its {column}; leave it out"
                )
        for table, column, missing, names in (
            ("links", "cost", self.no_cost, ("cost_per_length", "cost_per_time")),
            ("markets", "revenue", self.no_revenue, ("revenue_flat", "revenue_per_time")),
        ):
            if missing.any() and all(getattr(rules, name) is None for name in names):
                first = int(np.flatnonzero(missing)[0])
                place = Table(table, getattr(raw, table)).places[first]
                count = f"{int(missing.sum())} of {len(missing)} {table} have no {column}"
                lines.append(f"{place}: {count}, from here on; give {names[0]} or {names[1]}")
        return lines

    def _sentences(self, network: TransportNetwork) -> list[str]:
        """What was multiplied and filled in, for the people who read the network later."""
        rules, lines = self.rules, []

        def note(missing: Bool[NDArray, "rows"], what: str, how: str) -> None:
            if missing.any():
                lines.append(f"Filled in: {what} of {int(missing.sum())} {how}.")

        parallel = network.n_links - len(set(zip(network.tail.tolist(), network.head.tolist(), strict=True)))
        if parallel:
            lines.append(f"Parallel links: {parallel} beside another from the same node to the same node.")
        if rules.time_factor != 1:
            lines.append(f"Times were multiplied by {rules.time_factor:g}.")
        if rules.demand_factor != 1:
            lines.append(f"Demand was multiplied by {rules.demand_factor:g}.")
        note(self.no_time, "time", "links, length over free_speed, in the unit that these two make")
        note(self.no_cost, "cost", f"links, {_sum(rules.cost_per_length, 'length', rules.cost_per_time, 'time')}")
        shortest = "time of the shortest path"
        note(self.no_revenue, "revenue", f"markets, {_sum(rules.revenue_flat, '', rules.revenue_per_time, shortest)}")
        note(self.no_alternative, "alternative_time", f"markets, {self.alternative_factor:g} * {shortest}")
        return lines


def _sum(first: float | None, of: str, second: float | None, of_second: str) -> str:
    """The sum of two rates in words: "2 * length + 0.5 * time"."""
    terms = ((first, of), (second, of_second))
    return " + ".join(f"{rate:g} * {what}" if what else f"{rate:g}" for rate, what in terms if rate is not None)
