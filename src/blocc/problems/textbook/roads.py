"""Networks of roads of which the literature speaks most: drivers who choose their paths, and a planner who leads."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Float
from blocc.problems.textbook.entry import KnownProblem, known
from blocc.sets import Box
from blocc.simple_sets import Simplex


def _braess(name: str, demand: float, top: float, note: str) -> KnownProblem:
    # Times 10 v on the first and the last link, 50 + v on the two others of the outer paths, 10 + v on the bridge. With
    # z drivers on the bridge an outer path takes 50 + 5.5 demand + 4.5 z, that over the bridge 10 + 10 demand + 11 z
    # and the toll, so that z = (40 - 4.5 demand - x) / 6.5 while that is positive; and all drivers together take
    # 5.5 demand^2 + 50 demand + (9 demand - 40) z + 6.5 z^2.
    bridge = max(0.0, (40.0 - 9.0 * demand) / 13.0)
    toll = 40.0 - 4.5 * demand - 6.5 * bridge
    value = 5.5 * demand**2 + 50.0 * demand + (9.0 * demand - 40.0) * bridge + 6.5 * bridge**2
    outer = 0.5 * (demand - bridge)

    def ends(y: Float[AnyArray, "3"]) -> Any:
        """Volumes of the first and of the last link."""
        return y[0] + y[2], y[1] + y[2]

    def upper(x: AnyArray, y: Float[AnyArray, "3"]) -> Any:
        first, last = ends(y)
        return 10.0 * (first**2 + last**2) + 50.0 * (y[0] + y[1]) + 10.0 * y[2] + jnp.sum(y**2)

    def lower(x: AnyArray, y: Float[AnyArray, "3"]) -> Any:
        first, last = ends(y)
        return 5.0 * (first**2 + last**2) + 50.0 * (y[0] + y[1]) + (10.0 + x) * y[2] + 0.5 * jnp.sum(y**2)

    return known(
        name,
        "Braess (1968), Unternehmensforschung 12; the toll on the bridge is added",
        upper=upper,
        lower=lower,
        sets=(Box(0.0, top), Simplex(3, total=demand)),
        answer=(value, toll, [outer, outer, bridge]),
        starts=(0.0, 0.3 * toll, 0.8 * toll),
        tags="simplex-y" + ("" if bridge > 0.0 else " no-strict-complementarity"),
        note=note,
    )


#: Links of six nodes by their ends; free flow time, delay at capacity, capacity: from Suwansirikul, Friesz and Tobin
#: (1987), Transportation Science 21, who have the network from Harker and Friesz (1984).
_ENDS = np.array([12, 13, 21, 23, 24, 31, 32, 35, 42, 45, 46, 53, 54, 56, 64, 65])  # two nodes each
_FREE = np.array([1, 2, 3, 4, 5, 2, 1, 1, 2, 3, 9, 4, 4, 2, 5, 6.0])
_DELAY = np.array([10, 5, 3, 20, 50, 20, 10, 1, 8, 3, 2, 10, 25, 33, 5, 1.0])
_CAPACITY = np.array([3, 10, 9, 4, 3, 2, 1, 10, 45, 3, 2, 6, 44, 20, 1, 4.5])
_WIDENED, _COST = np.array([6, 15, 16]) - 1, np.array([1.0, 6.0, 1.0])
_TRIPS = {1: (6, 5.0), 6: (1, 10.0)}  #: origin: destination and drivers
#: The answer: expansions, drivers from 6 to 1 on each of their paths, and what all of it costs.
_EXPANSION = [5.194580264778, 0.0, 7.596207767344]
_DRIVERS = {(15, 9, 3): 1.015092784473, (16, 13, 9, 3): 5.053331324054, (16, 12, 6): 3.931575891473}
_VALUE = 199.625263907532


def _sixteen_links() -> KnownProblem:
    # Drivers from 1 to 6 take links 2, 8 and 14, those from 6 to 1 three paths. With these paths the planner's
    # derivative vanishes at the answer; it has no closed form, so that digits stand above.
    nodes = np.arange(1, 7)
    incidence = (nodes[:, None] == _ENDS // 10) * 1.0 - (nodes[:, None] == _ENDS % 10)
    wanted = np.zeros((2, 6))
    for row, (origin, (destination, drivers)) in enumerate(_TRIPS.items()):
        wanted[row, origin - 1], wanted[row, destination - 1] = drivers, -drivers
    rows = [0, 5]  # of each origin one row is the sum of the others

    def crowded(x: Float[AnyArray, "3"], y: Float[AnyArray, "2 16"]) -> Any:
        """What all drivers of each link wait for others."""
        volume = y[0] + y[1]
        room = jnp.asarray(_CAPACITY).at[_WIDENED].add(x)
        return volume, _DELAY * volume * (volume / room) ** 4

    def upper(x: Float[AnyArray, "3"], y: Float[AnyArray, "2 16"]) -> Any:
        volume, delay = crowded(x, y)
        return jnp.sum(_FREE * volume + delay) + jnp.sum(_COST * x)

    def lower(x: Float[AnyArray, "3"], y: Float[AnyArray, "2 16"]) -> Any:
        volume, delay = crowded(x, y)
        return jnp.sum(_FREE * volume + delay / 5.0)

    flow = np.zeros((2, 16))
    flow[0, np.array([2, 8, 14]) - 1] = 5.0
    for links, drivers in _DRIVERS.items():
        flow[1, np.array(links) - 1] += drivers
    return known(
        "sixteen_links",
        "Suwansirikul, Friesz and Tobin (1987), Transportation Science 21, the network of Harker and Friesz (1984)",
        upper=upper,
        lower=lower,
        equality=lambda x, y: jnp.stack([jnp.delete(incidence @ y[k] - wanted[k], rows[k]) for k in range(2)]),
        sets=(Box(0.0, 20.0, shape=3), Box(0.0, np.inf, shape=(2, 16))),
        answer=(_VALUE, _EXPANSION, flow),
        starts=([4.0, 0.0, 6.0], [7.0, 0.5, 9.0], [5.0, 0.2, 12.0]),
        tags="equality box-y merely-convex",
        note="Continuous network design: links 6, 15 and 16 may be widened, each by 20 at most.",
    )


PROBLEMS: tuple[KnownProblem, ...] = (
    _braess("braess_toll_4", 4.0, 30.0, "A toll of 20 keeps some drivers off the bridge, and all are better off."),
    _braess("braess_toll_6", 6.0, 13.0, "The toll at which nobody takes the bridge; it costs all drivers 54 if free."),
    _sixteen_links(),
)
