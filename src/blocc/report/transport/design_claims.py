"""A ``design.json``, figure by figure: what follows from the tables that were verified is made anew and compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.judge.verification import Check, Verification
from blocc.kit.claims import FileVerification, consistent, of_file
from blocc.kit.storage import is_without_digest
from blocc.report.transport.design_tables import DIGEST_FROM, design_document
from blocc.result import Certificate, History, Status
from blocc.transport.design.design_result import Assignment, Design
from blocc.transport.network.network import TransportNetwork

#: What is in the file and no check is about, and why.
UNCHECKED = {
    "version": "of the format",
    "summary.seconds": "of the run",
    "summary.settings": "the question: limits and options are believed as they are stated",
    "summary.versions": "of the run",
    "summary.assumptions": "words",
    "starts": "of the run",
    "what_if": "of the run, at other values of gamma",
    "history": "of the run",
}
#: Held within a limit, since no other run leaves the same rounding; or against more than one right answer.
BOUNDED = {
    "summary.certificate.stationarity": "held within its limit",
    "summary.certificate.feasibility": "held within its limit",
    "summary.certificate.complementarity": "held within its limit",
    "summary.certificate.stationarity_x": "held within its limit",
    "summary.gamma": "a choice of the run: what is told at it is recomputed",
    "links.price": "of links that are not built: an estimate of the run",
}
#: A limit that is relative to the size of the verifier's own answer.
_LOOSE = {"summary.checks.limit": 1e-3}
#: Mean times and totals of passengers agree to this, relative.
_SAME = 1e-5


def with_file(
    found: Verification, document: Mapping[str, Any], network: TransportNetwork, own: Assignment, size: float
) -> FileVerification:
    """A verification of capacities, flows, shares and prices, and the rest of their file.

    :param own: the verifier's own answer of the travellers
    :param size: of that answer, which residuals are relative to
    """
    checks = [Check("digest", "of the file", "not there: saved by an older version", True)] * is_without_digest(
        document, DIGEST_FROM
    )
    claimed = _claimed(document, network, own, size)
    checks.append(_times(claimed, network, own))
    checks.append(consistent(document, design_document(claimed), UNCHECKED, _LOOSE))
    return of_file(found, UNCHECKED | BOUNDED, *checks)


def _claimed(document: Mapping[str, Any], network: TransportNetwork, own: Assignment, size: float) -> Design:
    """The design that a document tells, out of its tables; every other figure is computed from those."""
    summary, links, markets = (document[name] for name in ("summary", "links", "markets"))
    capacity, flow, price = (_column(links, name) for name in ("capacity", "flow", "price"))
    share, time = (_column(markets, name) for name in ("share", "time"))
    existing = summary["settings"].get("existing_capacity")
    existing = network.existing_capacity if existing is None else np.broadcast_to(existing, capacity.shape)
    revenue, cost = float(network.demand * network.revenue @ share), float(network.cost @ (capacity - existing))
    follower = Assignment(
        flow=flow,
        price=price,
        share=share,
        path_cost=network.path_costs(network.time + price, capacity > 0),
        travel_time=time,
        utility=revenue - cost,
        revenue=revenue,
        construction_cost=cost,
        market_flow=own.market_flow,
    )
    told = {name: _number(value) for name, value in summary["certificate"].items()}
    certificate = Certificate(**(told | {"radius": 0.0, "leader_violation": 0.0, "exact": False}))  # no design has them
    residuals = (certificate.stationarity, certificate.feasibility, certificate.complementarity)
    penalised = follower._replace(utility=_number(summary["utility_penalised"]))
    return Design(
        network=network,
        capacity=capacity,
        follower=follower,
        penalised=penalised,
        gamma=_number(summary["gamma"]),
        status=Status(summary["status"]),
        message=str(summary["message"]),
        certificate=certificate,
        history=History([]),
        what_if=(),
        starts=(),
        seconds={},
        settings=dict(summary["settings"]),
        lower_level_error=max(residuals) / size,
    )


def _times(claimed: Design, network: TransportNetwork, own: Assignment) -> Check:
    """Mean times of markets: those of the verifier's paths, or of others that are as cheap.

    Where paths cost the same and take different times, the split between them is not determined: then each time lies
    between the least and the cost of the cheapest path, and all passengers together spend what the flows say.
    """
    said, travelled = claimed.follower.travel_time, claimed.follower.share * network.demand
    if not np.array_equal(np.isfinite(said), np.isfinite(own.travel_time) & (travelled > 0.0)):
        return Check("times of markets", "where somebody travels", "elsewhere", False)
    known = np.isfinite(said)
    off = np.abs(said - own.travel_time)[known] * travelled[known]
    total, spent = float(said[known] @ travelled[known]), float(claimed.follower.flow @ network.time)
    worst = float(np.max(off, initial=0.0)) / (1e-300 + spent)
    least = network.path_costs(network.time, claimed.built)
    slack = _SAME * (1.0 + claimed.follower.path_cost)
    with np.errstate(invalid="ignore"):  # there is no path, or nobody on it
        between = (said >= least - slack) & (said <= claimed.follower.path_cost + slack)
    right = abs(total - spent) <= _SAME * spent and bool(between[known].all())
    return Check("times of markets", "the travellers' own", f"{worst:.1e} away", right, "or of paths as cheap")


def _column(rows: Any, name: str) -> Float[NDArray, "rows"]:
    return np.array([_number(row[name]) for row in rows])


def _number(value: Any) -> Any:
    return np.nan if value is None else value
