"""Who travels where, as data for the page: links with their figures, and the ways of the markets that it lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blocc._lib.files import plain
from blocc.kit.text import shortened
from blocc.report.transport.design_charts import clear_prices
from blocc.transport.design.checks import withheld
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import shown_answer
from blocc.transport.travellers.flows import market_ways

MOST_LINKS = 1000  #: whose users are told, the busiest
MOST_USERS = 20  #: of a link
LEAST_PART = 1e-4  #: of a link's flow: who has less is no user


def flows_data(design: Design, markets: Sequence[int], link_rows: dict[str, Sequence[int]]) -> dict[str, Any] | None:
    """Columns of links with their largest users, and the ways of markets; None where flows are withheld or none are.

    :param markets: in the order of the rows of their table
    :param link_rows: for each table of links, by its id, the links in the order of its rows
    """
    if withheld(design) or not design.built.any():
        return None
    network, found = design.network, shown_answer(design)
    figures = {"time": network.time, "price": clear_prices(design), "flow": found.flow, "capacity": design.capacity}
    return {
        "nodes": [shortened(label, 60) for label in network.labels],
        "link": [shortened(str(name), 40) for name in network.link_ids],
        "tail": network.tail.tolist(),
        "head": network.head.tolist(),
        **{name: _rounded(values) for name, values in figures.items()},
        "rows": {name: [int(link) for link in links] for name, links in link_rows.items()},
        "markets": [_market(design, int(k)) for k in markets],
        "users": _users(design),
    }


def _market(design: Design, k: int) -> dict[str, Any]:
    network, follower = design.network, design.follower
    demand = float(network.demand[k])
    figures = _rounded([demand, demand * follower.share[k], network.alternative_time[k]])
    ways = market_ways(network, follower.market_flow, k)
    return {
        "ends": [int(network.origin[k]), int(network.destination[k])],
        **dict(zip(("demand", "served", "alternative"), figures, strict=True)),
        "ways": [[*_rounded([demand * way.part]), way.links] for way in ways],
    }


def _users(design: Design) -> dict[int, list[list[Any]]]:
    """Origin, destination and passengers of the markets that use each link most, whether they are listed or not."""
    network, flow = design.network, design.follower.flow
    by_link = design.follower.market_flow.tocsc()
    found: dict[int, list[list[Any]]] = {}
    for a in np.argsort(-flow, kind="stable")[:MOST_LINKS].tolist():
        column = slice(by_link.indptr[a], by_link.indptr[a + 1])
        markets = by_link.indices[column]
        passengers = by_link.data[column] * network.demand[markets]
        order = np.argsort(-passengers, kind="stable")[:MOST_USERS]
        order = order[passengers[order] > LEAST_PART * flow[a]]
        ends = zip(network.origin[markets[order]].tolist(), network.destination[markets[order]].tolist(), strict=True)
        found[a] = [[*pair, amount] for pair, amount in zip(ends, _rounded(passengers[order]), strict=True)]
    return {a: users for a, users in found.items() if users}


def _rounded(values: ArrayLike) -> list[float | None]:
    """Six digits are more than the page shows; what is not finite is null."""
    return list(plain([float(f"{value:.6g}") for value in np.asarray(values, dtype=float)]))
