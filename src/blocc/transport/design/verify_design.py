"""Is a design true? What it claims is recomputed from the network and the capacities alone, and compared.

The travellers' answers are solved again, from a cold start or from the prices that are stated. Residuals are those of
the problem's own functions: they prove an answer wherever its solution began. A descent of the penalty function looks
for better capacities. Nothing else in the design is believed; its limits (budget, symmetry, most capacity) are those
that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc.errors import BloccError, OptionError
from blocc.judge.verification import Check, Verification
from blocc.outer.monitor import Monitor
from blocc.result import Status
from blocc.transport.design.capacity_descent import evaluate
from blocc.transport.design.certificate import assignment, certify, remaining_gain
from blocc.transport.design.design_result import Assignment, Design
from blocc.transport.design.model import CapacityPenalty, DesignModel
from blocc.transport.design.options import DesignOptions
from blocc.transport.design.search import Search
from blocc.transport.network.network import TransportNetwork

#: What may remain to be gained, relative to 1 + |utility|, whatever the design was made with.
TOLERANCE = DesignOptions.tolerance
#: Flows, shares and money agree to this, relative to their size.
_SAME = 1e-5
_MONEY = ("utility", "revenue", "construction_cost", "utility_penalised")
_RESIDUALS = ("stationarity", "feasibility", "complementarity")
_CERTIFICATE = (*_RESIDUALS, "penalty_gap", "distance", "stationarity_x")
#: The lower level counts as solved below this relative residual.
_SOLVED = 1e-6


def verify_design(
    network: TransportNetwork, design: Design | Mapping[str, Any], tolerance: float = TOLERANCE
) -> Verification:
    """Recompute what ``design`` claims about ``network``, and say which claims hold.

    :param design: a :class:`Design`, or the content of its ``design.json``
    :param tolerance: what the capacities may leave to be gained, relative to 1 + |utility|; never the design's own
    """
    if not isinstance(network, TransportNetwork):
        raise OptionError(f"network must be a TransportNetwork, got {type(network).__name__}")
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0.0 < tolerance < np.inf:
        raise OptionError(f"tolerance must be a positive number, got {tolerance!r}")
    if not isinstance(design, (Design, Mapping)):
        raise OptionError(f"design must be a Design or the content of design.json, got {type(design).__name__}")
    try:
        claims = _of_design(design) if isinstance(design, Design) else _of_document(design)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OptionError(f"design is damaged: {type(error).__name__}: {error!s:.200}") from error
    with double_precision(), single_blas_thread():
        verifier = _Verifier(network, claims, float(tolerance))
        found = verifier.run()
        if isinstance(design, Design) or verifier.answer is None:
            return found
        from blocc.report.transport.design_claims import with_file  # what a file says, that room knows

        try:
            return with_file(found, design, network, *verifier.answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OptionError(f"design is damaged: {type(error).__name__}: {error!s:.200}") from error


class Claims(NamedTuple):
    """What a design says, as plain numbers."""

    links: list[tuple[Any, Any]]  #: the nodes of each link
    markets: list[tuple[Any, Any]]
    capacity: Float[NDArray, "links"]
    flow: Float[NDArray, "links"]
    price: Float[NDArray, "links"]
    share: Float[NDArray, "markets"]
    money: dict[str, float]  #: utility, revenue, construction_cost, utility_penalised
    certificate: dict[str, float]
    gamma: float
    status: Status
    settings: Mapping[str, Any]


def _of_design(design: Design) -> Claims:
    follower, (links, markets) = design.follower, _names(design.network)
    money = {name: float(getattr(follower, name)) for name in ("utility", "revenue", "construction_cost")}
    return Claims(
        links=links,
        markets=markets,
        capacity=np.asarray(design.capacity, dtype=float),
        flow=np.asarray(follower.flow, dtype=float),
        price=np.asarray(follower.price, dtype=float),
        share=np.asarray(follower.share, dtype=float),
        money=money | {"utility_penalised": float(design.penalised.utility)},
        certificate=asdict(design.certificate),
        gamma=float(design.gamma),
        status=design.status,
        settings=design.settings,
    )


def _of_document(document: Mapping[str, Any]) -> Claims:
    summary, links, markets = (document[name] for name in ("summary", "links", "markets"))

    def number(value: Any) -> float:
        return np.nan if value is None else float(value)

    def column(rows: Any, name: str) -> Float[NDArray, "rows"]:
        return np.array([number(row[name]) for row in rows])

    return Claims(
        links=[(row["from"], row["to"]) for row in links],
        markets=[(row["origin"], row["destination"]) for row in markets],
        capacity=column(links, "capacity"),
        flow=column(links, "flow"),
        price=column(links, "price"),
        share=column(markets, "share"),
        money={name: number(summary[name]) for name in _MONEY},
        certificate={name: number(summary["certificate"][name]) for name in _CERTIFICATE},
        gamma=number(summary["gamma"]),
        status=Status(summary["status"]),
        settings=dict(summary["settings"]),
    )


def _names(network: TransportNetwork) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
    """The nodes of links and markets, as files tell them."""
    links = [(row["from"], row["to"]) for row in network.link_rows()]
    return links, [(row["origin"], row["destination"]) for row in network.market_rows()]


class _Verifier:
    """Collects the checks of one design."""

    def __init__(self, network: TransportNetwork, claims: Claims, tolerance: float) -> None:
        self.network, self.claims, self.tolerance = network, claims, tolerance
        self.converged = claims.status is Status.CONVERGED
        self.checks: list[Check] = []
        self.answer: tuple[Assignment, float] | None = None  #: the travellers' own, and its size
        self.way = "from a cold start"  #: how the travellers' answers were found

    def run(self) -> Verification:
        if self._fits() and self._admissible():
            self._numbers()
        if self.converged:
            wrong = [check.name for check in self.checks if not check.ok]
            self._add("status", "converged", f"not: {', '.join(wrong)}" if wrong else "converged", not wrong)
        return Verification(self.network.name, self.tolerance, tuple(self.checks), self.converged)

    def _add(self, name: str, claimed: float | str, recomputed: float | str, ok: bool, note: str = "") -> None:
        self.checks.append(Check(name, claimed, recomputed, bool(ok), note))

    def _fits(self) -> bool:
        """Whether it is a design of this network at all."""
        links, markets = _names(self.network)
        same = (self.claims.links, self.claims.markets) == (links, markets)
        self._add("network", "links and markets", "the same" if same else "others", same)
        return same

    def _admissible(self) -> bool:
        """Capacities, within the limits that the design names, and a gamma."""
        c = self.claims
        numbers = bool(np.isfinite(c.capacity).all() and (c.capacity >= 0.0).all())
        self._add("capacities", "finite, not negative", "so they are" if numbers else "not so", numbers)
        sound = 0.0 < c.gamma < np.inf
        self._add("gamma", c.gamma, "possible" if sound else "impossible", sound)
        bounds = ("max_capacity", "min_capacity", "existing_capacity")
        names = (*bounds, "budget", "symmetric", "method", "gamma")
        try:
            options = DesignOptions.from_names({name: c.settings[name] for name in names if name in c.settings})
            self.limits = options.capacity_set(self.network)
        except BloccError as error:
            self._add("limits", "possible", str(error), False)
            return False
        self.options = options
        if numbers:
            away = float(np.max(np.abs(np.asarray(self.limits.project_flat(c.capacity)) - c.capacity), initial=0.0))
            within = away <= 1e-7 * (1.0 + float(np.max(c.capacity, initial=0.0)))
            self._add("limits", "kept", f"{away:.1e} away", within)
        return numbers and sound

    def _numbers(self) -> None:
        c = self.claims
        model, found = self._answered()
        follower = assignment(model, found.follower, c.capacity, model.graph.alternative, self.limits.existing)
        money = {
            "utility": follower.utility,
            "revenue": follower.revenue,
            "construction_cost": follower.construction_cost,
            "utility_penalised": float(found.utility_penalised),
        }
        size = 1.0 + abs(follower.revenue) + abs(follower.construction_cost)
        for name, value in money.items():
            label = name.replace("_penalised", " at yF").replace("_", " ")
            is_right = abs(c.money[name] - value) <= _SAME * size
            self._add(label, c.money[name], value, is_right or (name == "utility_penalised" and self._is_unmeasured()))
        self._flows(follower, float(found.follower.value))
        told, relative = certify(model, c.capacity, found, 0.0)
        largest = max(told.stationarity, told.feasibility, told.complementarity)
        self.answer = follower, largest / relative if relative else 1.0
        self._add("lower level solved", f"within {_SOLVED:.0e}", relative, relative <= _SOLVED, self.way)
        # Relative to the flows, as what the design itself was judged by: they may be millions of passengers.
        most = 10.0 * _SOLVED * (1.0 + float(np.max(follower.flow, initial=0.0))) if self.converged else np.inf
        for name in _RESIDUALS:
            value = c.certificate[name]
            sound = np.isfinite(value) and 0.0 <= value <= most
            self._add(f"lower level: {name}", value, getattr(told, name), bool(sound))
        scale = 1.0 + abs(follower.utility)
        # gamma magnifies what both answers leave over.
        gap, allowed = c.certificate["penalty_gap"], _SAME * scale + c.gamma * _SOLVED * 1e-2 * scale
        open_gap = self.converged and not self.options.has_fixed_gamma and told.penalty_gap > self.tolerance * scale
        right = (abs(gap - told.penalty_gap) <= allowed and not open_gap) or self._is_unmeasured()
        self._add("penalty gap", gap, told.penalty_gap, right, "too large" if open_gap else "")
        apart = c.certificate["distance"]
        near = _SAME * (1.0 + told.distance) + 4.0 * self._share_accuracy(scale)  # of yF and y, there and here
        is_right = abs(apart - told.distance) <= near or self._is_unmeasured()
        self._add("||yF - y||", apart, told.distance, is_right)
        self._stationary(model, scale)

    def _is_unmeasured(self) -> bool:
        """Whether the run was stopped before yF was known, and claims nothing about it."""
        c = self.claims
        claimed = (c.certificate["penalty_gap"], c.certificate["distance"], c.money["utility_penalised"])
        return not self.converged and bool(np.isnan(claimed).all())

    def _answered(self) -> tuple[DesignModel, CapacityPenalty]:
        """The answers to the capacities; where one engine does not solve them, by the other.

        On paths the stated prices are tried first. Where they are the travellers' own, the flows on cheapest paths at
        them leave no residual, which is a proof whoever names them. Otherwise the answers are solved from a cold start.
        """
        c, model = self.claims, DesignModel(self.network)
        if model.engine == "dense":
            found = evaluate(model, self.limits, c.capacity, c.gamma)
            if self._is_solved(model, found) or not find_spec("numba"):
                return model, found
            model = DesignModel(self.network, "paths")
        built = c.capacity > 0
        if np.isfinite(c.price[built]).all() and (c.price[built] >= 0.0).all():
            near = model.near(np.where(built, c.price, 0.0), c.gamma)
            found = evaluate(model, self.limits, c.capacity, c.gamma, near)
            if self._is_solved(model, found):
                self.way = "from the stated prices"
                return model, found
        return model, evaluate(model, self.limits, c.capacity, c.gamma)

    def _is_solved(self, model: DesignModel, found: CapacityPenalty) -> bool:
        told, relative = certify(model, self.claims.capacity, found, 0.0)
        is_other = found.penalised.error <= 1e-2 * _SOLVED and bool(np.isfinite(told.penalty_gap))
        return relative <= _SOLVED and (is_other or self._is_unmeasured())

    def _share_accuracy(self, scale: float) -> float:
        """How far shares may be apart whose objectives agree: the entropy of w passengers curves by at least 4 w."""
        demand = self.network.demand[self.network.demand > 0.0]
        return float(np.sqrt(_SOLVED * 1e-2 * scale / (2.0 * np.min(demand)))) if len(demand) else 0.0

    def _flows(self, follower: Assignment, value: float) -> None:
        """Passengers and shares of the travellers' own answer."""
        c, size = self.claims, 1.0 + float(np.max(self.network.demand, initial=0.0))
        parts = (("flows", c.flow, follower.flow, size), ("shares", c.share, follower.share, 1.0))
        for name, claimed, own, unit in parts:
            away = float(np.max(np.abs(claimed - own), initial=0.0))
            self._add(name, "the travellers' own", f"{away:.1e} away", away <= _SAME * unit)
        known = np.isfinite(follower.price) & (c.capacity > 0)
        worst = float(np.max(np.abs(c.price - follower.price)[known], initial=0.0))
        unit = 1.0 + float(np.max(np.abs(follower.price[known]), initial=0.0))
        is_right = worst <= 1e2 * _SAME * unit or self._proves(value)
        self._add("prices of built links", "the travellers' own", f"{worst:.1e} away", is_right)

    def _proves(self, value: float) -> bool:
        """Whether the prices prove that nothing costs travellers less: where they are not unique, all such are right.

        That is, whether the dual objective at them is the travellers' cost.
        """
        c, network = self.claims, self.network
        built = c.capacity > 0
        if not (c.price[built] >= -1e-9).all():
            return False
        cost = network.path_costs(network.time + np.where(built, c.price, 0.0), built)
        better = np.where(np.isfinite(cost), network.alternative_time - cost, -np.inf)
        each = network.alternative_time - 1.0 - np.logaddexp(0.0, better)
        dual = float(network.demand @ each - c.price[built] @ c.capacity[built])
        return abs(dual - value) <= 1e-2 * _SAME * (1.0 + abs(value))

    def _stationary(self, model: DesignModel, scale: float) -> None:
        """What a descent of F_gamma from the capacities still gains."""
        claimed = self.claims.certificate["stationarity_x"]
        sound = claimed >= 0.0 or (not self.converged and bool(np.isnan(claimed)))  # not measured after a stop
        if not self.converged:
            self._add("gain left", claimed, "a gain" if sound else "no gain", sound)
            return
        search = Search(model, self.limits, self.claims.gamma, Monitor(lambda x: x))
        search.state.best = self.claims.capacity
        gain = remaining_gain(search, False, 0.0).gain
        allowed = self.tolerance * scale
        self._add("gain left", claimed, gain, sound and claimed <= allowed and gain <= allowed, "descent of F_gamma")
