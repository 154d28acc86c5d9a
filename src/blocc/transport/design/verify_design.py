"""Is a design true? What it claims is recomputed from the network and the capacities alone, and compared.

The travellers' answers are solved again, from a cold start or from the prices that are stated. Residuals are those of
the problem's own functions: they prove an answer wherever its solution began. A descent of the penalty function looks
for better capacities. Nothing else in the design is believed; its limits (budget, symmetry, most capacity) are those
that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from blocc._lib.precision import double_precision
from blocc._lib.rounding import EXACT, PLACED, TINY
from blocc._lib.threads import single_blas_thread
from blocc.errors import BloccError, OptionError
from blocc.judge.verification import Check, Verification
from blocc.kit.claims import Claims, FileVerification, consistent, of_file
from blocc.kit.storage import is_without_digest
from blocc.outer.monitor import Monitor
from blocc.result import Status
from blocc.transport.design.capacity_descent import evaluate
from blocc.transport.design.certificate import assignment, certify, remaining_gain
from blocc.transport.design.design_result import Assignment, Design
from blocc.transport.design.documents import DESIGN, as_told, existing_capacity
from blocc.transport.design.model import CapacityPenalty, DesignModel
from blocc.transport.design.options import DesignOptions
from blocc.transport.design.search import Search
from blocc.transport.network.network import TransportNetwork

#: What may remain to be gained, relative to 1 + |utility|, whatever the design was made with.
TOLERANCE = DesignOptions.tolerance
#: Flows, shares and money agree to this, relative to their size.
_SAME = 1e-5
_MONEY = ("utility", "revenue", "construction_cost")
_RESIDUALS = ("stationarity", "feasibility", "complementarity")
#: A limit that is relative to the size of the verifier's own answer.
_LOOSE = {"summary.checks.limit": 1e-3}
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
    with double_precision(), single_blas_thread():
        if isinstance(design, Design):
            return _Verifier(network, design, float(tolerance), _names(design.network)).run()
        try:
            told, names = as_told(design, network), _names_told(design)
            verifier = _Verifier(network, told, float(tolerance), names)
            found = verifier.run()
            return found if verifier.answer is None else _with_file(found, design, told, *verifier.answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OptionError(f"design is damaged: {type(error).__name__}: {error!s:.200}") from error


_Names = tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]  #: the nodes of links and of markets


def _names(network: TransportNetwork) -> _Names:
    return _names_told({"links": network.link_rows(), "markets": network.market_rows()})


def _names_told(tables: Mapping[str, Any]) -> _Names:
    links = [(row["from"], row["to"]) for row in tables["links"]]
    return links, [(row["origin"], row["destination"]) for row in tables["markets"]]


class _Verifier(Claims):
    """The claims of one design."""

    def __init__(self, network: TransportNetwork, design: Design, tolerance: float, names: _Names) -> None:
        super().__init__(network.name, tolerance, design.status is Status.CONVERGED)
        self.network, self.design, self.names = network, design, names
        self.answer: tuple[Assignment, float] | None = None  #: the travellers' own, and its size
        self.way = "from a cold start"  #: how the travellers' answers were found

    def run(self) -> Verification:
        same = self.names == _names(self.network)
        self.holds("network", "links and markets", same, "others", "the same")
        if same and self._admissible():
            self._numbers()
        return self.concluded()

    def _admissible(self) -> bool:
        """Capacities, within the limits that the design names, and a gamma."""
        design, capacity = self.design, self.design.capacity
        numbers = bool(np.isfinite(capacity).all() and (capacity >= 0.0).all())
        self.holds("capacities", "finite, not negative", numbers, "not so")
        sound = 0.0 < design.gamma < np.inf
        self.add("gamma", design.gamma, "possible" if sound else "impossible", sound)
        bounds = ("max_capacity", "min_capacity", "existing_capacity")
        names = (*bounds, "budget", "symmetric", "method", "gamma")
        try:
            options = DesignOptions.from_names({one: design.settings[one] for one in names if one in design.settings})
            self.limits = options.capacity_set(self.network)
        except BloccError as error:
            self.add("limits", "possible", str(error), False)
            return False
        self.options = options
        if numbers:
            away = float(np.max(np.abs(np.asarray(self.limits.project_flat(capacity)) - capacity), initial=0.0))
            self.near("limits", "kept", away, PLACED * (1.0 + float(np.max(capacity, initial=0.0))))
        return numbers and sound

    def _numbers(self) -> None:
        design, claimed = self.design, self.design.certificate
        model, found = self._answered()
        follower = assignment(model, found.follower, design.capacity, model.graph.alternative, self.limits.existing)
        size = 1.0 + abs(follower.revenue) + abs(follower.construction_cost)
        for name in _MONEY:
            self.same(name.replace("_", " "), getattr(design.follower, name), getattr(follower, name), _SAME * size)
        self._unless_unmeasured("utility at yF", design.penalised.utility, float(found.utility_penalised), _SAME * size)
        self._flows(follower, float(found.follower.value))
        told, relative = certify(model, design.capacity, found, 0.0)
        largest = max(getattr(told, name) for name in _RESIDUALS)
        self.answer = follower, largest / relative if relative else 1.0
        self.add("lower level solved", f"within {_SOLVED:.0e}", relative, relative <= _SOLVED, self.way)
        # Relative to the flows, as what the design itself was judged by: they may be millions of passengers.
        most = 10.0 * _SOLVED * (1.0 + float(np.max(follower.flow, initial=0.0))) if self.success else np.inf
        for name in _RESIDUALS:
            value = getattr(claimed, name)
            self.add(f"lower level: {name}", value, getattr(told, name), np.isfinite(value) and 0.0 <= value <= most)
        scale = 1.0 + abs(follower.utility)
        # gamma magnifies what both answers leave over.
        allowed = _SAME * scale + design.gamma * _SOLVED * 1e-2 * scale
        is_open = self.success and not self.options.has_fixed_gamma and told.penalty_gap > self.tolerance * scale
        gaps = (claimed.penalty_gap, told.penalty_gap, -np.inf if is_open else allowed)
        self._unless_unmeasured("penalty gap", *gaps, "too large" if is_open else "")
        near = _SAME * (1.0 + told.distance) + 4.0 * self._share_accuracy(scale)  # of yF and y, there and here
        self._unless_unmeasured("||yF - y||", claimed.distance, told.distance, near)
        self._stationary(model, scale)

    def _unless_unmeasured(self, name: str, claimed: float, recomputed: float, allowed: float, note: str = "") -> None:
        """A figure about yF, which a run that was stopped before does not claim."""
        is_right = abs(claimed - recomputed) <= allowed or self._is_unmeasured()
        self.add(name, float(claimed), float(recomputed), is_right, note)

    def _is_unmeasured(self) -> bool:
        """Whether the run was stopped before yF was known, and claims nothing about it."""
        claimed = self.design.certificate
        figures = (claimed.penalty_gap, claimed.distance, self.design.penalised.utility)
        return not self.success and bool(np.isnan(figures).all())

    def _answered(self) -> tuple[DesignModel, CapacityPenalty]:
        """The answers to the capacities; where one engine does not solve them, by the other.

        On paths the stated prices are tried first. Where they are the travellers' own, the flows on cheapest paths at
        them leave no residual, which is a proof whoever names them. Otherwise the answers are solved from a cold start.
        """
        c, model = self.design, DesignModel(self.network)
        if model.engine == "dense":
            found = evaluate(model, self.limits, c.capacity, c.gamma)
            if self._is_solved(model, found) or not find_spec("numba"):
                return model, found
            model = DesignModel(self.network, "paths")
        price, built = c.follower.price, c.built
        if np.isfinite(price[built]).all() and (price[built] >= 0.0).all():
            near = model.near(np.where(built, price, 0.0), c.gamma)
            found = evaluate(model, self.limits, c.capacity, c.gamma, near)
            if self._is_solved(model, found):
                self.way = "from the stated prices"
                return model, found
        return model, evaluate(model, self.limits, c.capacity, c.gamma)

    def _is_solved(self, model: DesignModel, found: CapacityPenalty) -> bool:
        told, relative = certify(model, self.design.capacity, found, 0.0)
        is_other = found.penalised.error <= 1e-2 * _SOLVED and bool(np.isfinite(told.penalty_gap))
        return relative <= _SOLVED and (is_other or self._is_unmeasured())

    def _share_accuracy(self, scale: float) -> float:
        """How far shares may be apart whose objectives agree: the entropy of w passengers curves by at least 4 w."""
        demand = self.network.demand[self.network.demand > 0.0]
        return float(np.sqrt(_SOLVED * 1e-2 * scale / (2.0 * np.min(demand)))) if len(demand) else 0.0

    def _flows(self, follower: Assignment, value: float) -> None:
        """Passengers and shares of the travellers' own answer."""
        claimed, size = self.design.follower, 1.0 + float(np.max(self.network.demand, initial=0.0))
        parts = (("flows", claimed.flow, follower.flow, size), ("shares", claimed.share, follower.share, 1.0))
        for name, said, own, unit in parts:
            away = float(np.max(np.abs(said - own), initial=0.0))
            self.near(name, "the travellers' own", away, _SAME * unit)
        known = np.isfinite(follower.price) & self.design.built
        worst = float(np.max(np.abs(claimed.price - follower.price)[known], initial=0.0))
        unit = 1.0 + float(np.max(np.abs(follower.price[known]), initial=0.0))
        allowed = np.inf if self._proves(value) else 1e2 * _SAME * unit
        self.near("prices of built links", "the travellers' own", worst, allowed)

    def _proves(self, value: float) -> bool:
        """Whether the prices prove that nothing costs travellers less: where they are not unique, all such are right.

        That is, whether the dual objective at them is the travellers' cost.
        """
        network, built, price = self.network, self.design.built, self.design.follower.price
        if not (price[built] >= -EXACT).all():
            return False
        cost = network.path_costs(network.time + np.where(built, price, 0.0), built)
        better = np.where(np.isfinite(cost), network.alternative_time - cost, -np.inf)
        each = network.alternative_time - 1.0 - np.logaddexp(0.0, better)
        dual = float(network.demand @ each - price[built] @ self.design.capacity[built])
        return abs(dual - value) <= 1e-2 * _SAME * (1.0 + abs(value))

    def _stationary(self, model: DesignModel, scale: float) -> None:
        """What a descent of F_gamma from the capacities still gains."""
        claimed = self.design.certificate.stationarity_x
        sound = claimed >= 0.0 or (not self.success and bool(np.isnan(claimed)))  # not measured after a stop
        if not self.success:
            self.add("gain left", claimed, "a gain" if sound else "no gain", sound)
            return
        search = Search(model, self.limits, self.design.gamma, Monitor(lambda x: x))
        search.state.best = self.design.capacity
        gain = remaining_gain(search, False, 0.0).gain
        allowed = self.tolerance * scale
        self.add("gain left", claimed, gain, sound and claimed <= allowed and gain <= allowed, "descent of F_gamma")


# --- what a file says besides --------------------------------------------------------------------------------------
def _with_file(
    found: Verification, document: Mapping[str, Any], told: Design, own: Assignment, size: float
) -> FileVerification:
    """A verification of capacities, flows, shares and prices, and the rest of their file.

    :param own: the verifier's own answer of the travellers
    :param size: of that answer, which residuals are relative to
    """
    checks = []
    if is_without_digest(document, DESIGN.digest_from):
        checks.append(Check("digest", "of the file", "not there: saved by an older version", True))
    anew = _anew(told, own, size)
    checks.append(_times(anew, own))
    checks.append(consistent(document, DESIGN.document(anew), DESIGN.unchecked, _LOOSE))
    return of_file(found, {**DESIGN.unchecked, **DESIGN.bounded}, *checks)


def _anew(told: Design, own: Assignment, size: float) -> Design:
    """The design with money, path costs and the size of its residuals computed from its tables."""
    network, claimed, certificate = told.network, told.follower, told.certificate
    revenue = float(network.demand * network.revenue @ claimed.share)
    cost = float(network.cost @ (told.capacity - existing_capacity(told)))
    follower = claimed._replace(
        path_cost=network.path_costs(network.time + claimed.price, told.built),
        utility=revenue - cost,
        revenue=revenue,
        construction_cost=cost,
        market_flow=own.market_flow,
    )
    penalised = follower._replace(utility=told.penalised.utility)
    residual = max(getattr(certificate, name) for name in _RESIDUALS)
    return replace(told, follower=follower, penalised=penalised, lower_level_error=residual / size)


def _times(claimed: Design, own: Assignment) -> Check:
    """Mean times of markets: those of the verifier's paths, or of others that are as cheap.

    Where paths cost the same and take different times, the split between them is not determined: then each time lies
    between the least and the cost of the cheapest path, and all passengers together spend what the flows say.
    """
    network = claimed.network
    said, travelled = claimed.follower.travel_time, claimed.follower.share * network.demand
    if not np.array_equal(np.isfinite(said), np.isfinite(own.travel_time) & (travelled > 0.0)):
        return Check("times of markets", "where somebody travels", "elsewhere", False)
    known = np.isfinite(said)
    off = np.abs(said - own.travel_time)[known] * travelled[known]
    total, spent = float(said[known] @ travelled[known]), float(claimed.follower.flow @ network.time)
    worst = float(np.max(off, initial=0.0)) / (TINY + spent)
    least = network.path_costs(network.time, claimed.built)
    slack = _SAME * (1.0 + claimed.follower.path_cost)
    with np.errstate(invalid="ignore"):  # there is no path, or nobody on it
        between = (said >= least - slack) & (said <= claimed.follower.path_cost + slack)
    right = abs(total - spent) <= _SAME * spent and bool(between[known].all())
    return Check("times of markets", "the travellers' own", f"{worst:.1e} away", right, "or of paths as cheap")
