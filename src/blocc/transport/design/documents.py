"""A design as files: tables, JSON and layers for other programs, a page and pictures for people.

Where the travellers' answer is not certified, whatever follows from it is left out (null in JSON, an empty cell in
tables), and a sentence says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from blocc._lib.arrays import Float, NDArray
from blocc.kit.documents import Column, Columns, Document, Rows, Summary, Tables, layer_files, rows_of
from blocc.kit.gis import Layers
from blocc.kit.records import column, number, picked
from blocc.result import Certificate, History, Status
from blocc.transport.design.checks import certificate_checks, withheld
from blocc.transport.design.design_result import Assignment, Design, consumer_surplus, indicators, time_saved
from blocc.transport.network.network import TransportNetwork
from blocc.transport.network.plausibility import doubts
from blocc.transport.network.readers import native

_MONEY = ("utility", "revenue", "construction_cost")


# --- what may be shown ---------------------------------------------------------------------------------------------
class Shown(NamedTuple):
    """What a design says about its travellers; NaN throughout where their answer is not certified."""

    flow: Float[NDArray, "links"]
    price: Float[NDArray, "links"]
    utilisation: Float[NDArray, "links"]
    share: Float[NDArray, "markets"]
    time: Float[NDArray, "markets"]
    path_cost: Float[NDArray, "markets"]
    time_saved: Float[NDArray, "markets"]
    consumer_surplus: Float[NDArray, "markets"]


def shown_answer(design: Design) -> Shown:
    """The travellers' answer as far as it may be shown."""
    follower = design.follower
    links = (follower.flow, follower.price, design.utilisation)
    markets = (follower.share, follower.travel_time, follower.path_cost, time_saved(design), consumer_surplus(design))
    figures = Shown(*links, *markets)
    return Shown(*(np.full_like(part, np.nan) for part in figures)) if withheld(design) else figures


def existing_capacity(design: Design) -> Float[NDArray, "links"]:
    """What each link had before the design: as the run was told, or as the network says."""
    given = design.settings.get("existing_capacity")
    return design.network.existing_capacity if given is None else np.broadcast_to(given, design.capacity.shape)


def hints(design: Design) -> list[str]:
    """Why nothing is built, where nothing is."""
    return [] if design.built.any() else doubts(design.network)


def totals(design: Design) -> dict[str, float]:
    """Demand of all markets, and the part of it that travels on the new network (NaN where that is not certified)."""
    demand = design.network.demand
    served = np.nan if withheld(design) else float(np.nansum(demand * design.follower.share))
    return {"demand": float(demand.sum()), "served": served}


# --- tables --------------------------------------------------------------------------------------------------------
def _ends(names: str, places: str) -> Callable[[Design], list[Any]]:
    """Nodes or zones at the places of links or markets."""
    return lambda design: [getattr(design.network, names)[place] for place in getattr(design.network, places)]


def _found(name: str) -> Callable[[Design], Any]:
    return lambda design: getattr(shown_answer(design), name)


_PASSENGERS, _DISUTILITY = "passengers per period", "disutility"
LINKS: Columns = {
    "link_id": Column("network.link_ids", "name of the link; its number in the table where the files have none"),
    "from": Column(_ends("nodes", "tail"), "node where it begins"),
    "to": Column(_ends("nodes", "head"), "node where it ends"),
    "length": Column("network.length", "as given; empty where it is not known", "{length}"),
    "capacity": Column("capacity", "of the design, with what exists; 0: not built", _PASSENGERS),
    "existing_capacity": Column(existing_capacity, "what it has today", _PASSENGERS),
    "new_capacity": Column(
        lambda design: np.maximum(design.capacity - existing_capacity(design), 0.0),
        "what the design adds, and pays for",
        _PASSENGERS,
    ),
    "flow": Column(_found("flow"), "passengers on it", _PASSENGERS),
    "price": Column(_found("price"), "what one more unit of capacity would save the travellers", _DISUTILITY),
    "utilisation": Column(_found("utilisation"), "flow over capacity; empty where nothing is built"),
    "time": Column("network.time", "as given", _DISUTILITY),
    "cost": Column("network.cost", "as given", "{money} per unit of capacity"),
}
MARKETS: Columns = {
    "origin": Column(_ends("nodes", "origin"), "node where it begins"),
    "destination": Column(_ends("nodes", "destination"), "node where it ends"),
    "origin_zone": Column(_ends("zone_ids", "origin"), "zone of the origin; empty where there is none"),
    "destination_zone": Column(_ends("zone_ids", "destination"), "zone of the destination; empty where there is none"),
    "demand": Column("network.demand", "as given", _PASSENGERS),
    "share": Column(_found("share"), "part of the demand that travels on the new network"),
    "served": Column(
        lambda design: design.network.demand * shown_answer(design).share, "passengers on the new network", _PASSENGERS
    ),
    "time": Column(_found("time"), "mean of those passengers, without prices; empty where nobody travels", _DISUTILITY),
    "alternative_time": Column("network.alternative_time", "on the existing network, as given", _DISUTILITY),
    "path_cost": Column(_found("path_cost"), "cheapest time with prices; empty where there is no path", _DISUTILITY),
    "time_saved": Column(
        _found("time_saved"), "by all of its passengers, against the existing network", f"passengers x {_DISUTILITY}"
    ),
    "consumer_surplus": Column(
        _found("consumer_surplus"), "demand x ln(1 + exp(alternative_time - path_cost))", f"passengers x {_DISUTILITY}"
    ),
    "revenue": Column(
        lambda design: design.network.demand * shown_answer(design).share * design.network.revenue,
        "what all of its passengers pay",
        "{money}",
    ),
    "revenue_per_passenger": Column("network.revenue", "as given", "{money} per passenger"),
}


def link_rows(design: Design) -> Rows:
    """Every candidate link; capacity 0 means that it is not built."""
    return rows_of(design, LINKS)


def market_rows(design: Design) -> Rows:
    """Every market; ``time`` is that of its passengers, ``revenue`` what all of them pay."""
    return rows_of(design, MARKETS)


def _units(design: Design) -> dict[str, str]:
    units = design.network.units
    return {"length": units.length or "as in the files", "money": units.money or "money"}


def _summary(design: Design) -> Summary:
    follower, found = design.follower, {} if withheld(design) else indicators(design)._asdict()
    units = {"passengers": _PASSENGERS, "passenger_hours_saved": "passenger-hours"}
    units |= dict.fromkeys(("passenger_time_saved", "consumer_surplus"), f"passengers x {_DISUTILITY}")
    units |= dict.fromkeys(_MONEY, _units(design)["money"])
    return Summary(
        figures=picked(follower, *_MONEY) | {"links_built": int(design.built.sum())} | found,
        checks=certificate_checks(design),
        sentences={"withheld": [withheld(design)], "hint": hints(design), "assumption": design.network.assumptions},
        units=units,
    )


# --- JSON ----------------------------------------------------------------------------------------------------------
#: No design has a radius, or a violation of its own.
_CERTIFICATE = ("stationarity", "feasibility", "complementarity", "penalty_gap", "distance", "stationarity_x")
_SAID = ("status", "message", "gamma", "seconds", "settings", "versions")


def _content(design: Design, summary: Summary) -> dict[str, Any]:
    network = design.network
    said = {
        "network": network.name,
        **picked(design.follower, *_MONEY),
        **picked(design, *_SAID),
        **totals(design),
        "links_built": int(design.built.sum()),
        "indicators": None if withheld(design) else indicators(design),
        "certificate": asdict(design.certificate),
        "checks": [check.row() for check in summary.checks],
        "withheld": withheld(design),
        "hints": hints(design),
        **picked(network, "assumptions", "units"),
        "utility_penalised": design.penalised.utility,
    }
    history = picked(design.history, *History.columns)
    return {"summary": said, **picked(design, "starts", "what_if"), "history": history}


def as_told(document: Mapping[str, Any], network: TransportNetwork) -> Design:
    """The design of a network that a document tells, with the figures that it tells; nothing is computed.

    :raises KeyError: (or a TypeError, a ValueError) where it is damaged
    """
    summary, links, markets = (document[name] for name in ("summary", "links", "markets"))
    money = {name: number(summary[name]) for name in (*_MONEY, "utility_penalised")}
    flow, share = column(links, "flow"), column(markets, "share")
    follower = Assignment(
        flow=flow,
        price=column(links, "price"),
        share=share,
        path_cost=column(markets, "path_cost"),
        travel_time=column(markets, "time"),
        market_flow=csr_array((len(share), len(flow))),
        **{name: money[name] for name in _MONEY},
    )
    residuals: dict[str, Any] = {name: number(summary["certificate"][name]) for name in _CERTIFICATE}
    return Design(
        network=network,
        capacity=column(links, "capacity"),
        follower=follower,
        penalised=follower._replace(utility=money["utility_penalised"]),
        gamma=number(summary["gamma"]),
        status=Status(summary["status"]),
        message=str(summary["message"]),
        certificate=Certificate(**residuals),
        history=History([]),
        what_if=(),
        starts=(),
        seconds={},
        settings=dict(summary["settings"]),
    )


# --- files ---------------------------------------------------------------------------------------------------------
def design_layers(design: Design, links: Rows | None = None) -> Layers:
    """What a GIS is told about a design."""
    network = design.network
    names = zip(network.nodes, network.labels, network.zone_ids, strict=True)
    nodes = [{"id": key, "name": label, "zone_id": zone} for key, label, zone in names]
    return network.layers(nodes, link_rows(design) if links is None else links)


def _files(design: Design, tables: Tables) -> dict[str, bytes]:
    from blocc.report.transport.design_charts import picture_files  # that room stands on this one
    from blocc.report.transport.design_page import report_page
    from blocc.report.transport.design_pdf import report_pdf

    return {
        "network.json": native.render(design.network),
        **layer_files("design", design_layers(design, tables["links"])),
        "report.html": report_page(design).encode(errors="replace"),
        **picture_files(design),
        "report.pdf": report_pdf(design),
    }


DESIGN: Document[Design] = Document(
    format="blocc-design",
    version=2,
    digest_from=2,
    stem="design",
    writer="write_design",
    tables={"links": LINKS, "markets": MARKETS},
    units=_units,
    summary=_summary,
    content=_content,
    parts={"history": dict, "starts": list, "what_if": list},
    further=_files,
    unchecked={
        "version": "of the format",
        "summary.settings": "the question: limits and options are believed as they are stated",
        "summary.assumptions": "words",
        "what_if": "of the run, at other values of gamma",
        **dict.fromkeys(("summary.seconds", "summary.versions", "starts", "history"), "of the run"),
    },
    # Since no other run leaves the same rounding; or since there is more than one right answer.
    bounded={
        **{
            f"summary.certificate.{name}": "held within its limit"
            for name in ("stationarity", "feasibility", "complementarity", "stationarity_x")
        },
        "summary.gamma": "a choice of the run: what is told at it is recomputed",
        "links.price": "of links that are not built: an estimate of the run",
    },
)


def read_design_json(path: str | Path) -> dict[str, Any]:
    """Read a ``design.json``: the document as it is, once its format, version, digest and parts were checked."""
    return DESIGN.read(path)
