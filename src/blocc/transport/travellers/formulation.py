"""The design problem as a bilevel problem: in full, and with the flows of each origin added up.

    leader      minimise over x >= 0     sum c x - sum w m y
    travellers  minimise over y, flow    sum w t flow + sum w t_ext (1 - y) + sum w [y (ln y - 1) + (1-y)(ln(1-y) - 1)]
                subject to               conservation of every market's flow at every node
                                         sum over the markets of w flow <= x on every link

Everything is matrix-free: conservation gathers and scatters over the links. The multiplier of a link's capacity row is
its price: what one more unit of capacity saves the travellers, so the lower value v has dv/dx = -price.

The aggregated problem has an oracle of its own, the structured interior point. Minimising s f + gamma g over the
travellers' answers is the lower level again, with t_ext + (s / gamma) m in place of t_ext and everything else times
gamma.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, Int, NDArray
from blocc.errors import ProblemError
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerCode, InnerOracle, InnerSolution, finish
from blocc.lagrangian import Multipliers, Weights
from blocc.networks.paths import all_but, may_take
from blocc.problem import BilevelProblem
from blocc.sets import Box, ConvexSet, Product
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import AssignmentPoint, LowerLevel, cold, solve_lower_level
from blocc.transport.travellers.graph import Graph, graph_of

#: Below this share the entropy continues as a parabola.
SHARE_FLOOR = 1e-12


def full_problem(network: TransportNetwork, **options: Any) -> BilevelProblem:
    """The formulation of the paper: ``{"flow": (markets, links), "share": (markets,)}``, flows as parts of the demand.

    Capacities lie between 0 and ``upper_bound`` (by default unbounded) or in ``x_set``; ``name`` and ``oracle`` are
    those of :class:`BilevelProblem`. One of the nodes' rows of each market is the sum of the others; the origin's is
    left out, because a dependent row has no multiplier of its own. So there are (nodes - 1) x markets equality rows
    where :attr:`TransportNetwork.sizes` counts nodes x markets. The other multipliers are then the market's demand
    times the cheapest cost, prices included, from its origin.

    The general inner solvers are slow where links close, because prices there grow without limit. A least capacity such
    as ``x_set=Box(1e-4, np.inf, shape=network.n_links)`` spares them that, at a small loss of utility.
    """
    demand = network.demand
    # Where there is no demand, nothing would say which flow is best: nobody travels.
    travels = (demand > 0)[:, None] & may_take(network.through, network.tail, network.origin)
    flows = Box(0.0, np.where(travels, np.inf, 0.0))
    own_rows = _Rows(network.origin, np.arange(network.n_markets), np.ones_like(demand), lambda flow: demand @ flow)
    return _problem(network, own_rows, flows, "full formulation", **options)


def aggregated_problem(network: TransportNetwork, **options: Any) -> BilevelProblem:
    """The same problem, exactly, with far fewer variables: ``{"flow": (origins, links), "share": (markets,)}``.

    A flow is the number of passengers on a link who began at one origin; rows are in the order of
    ``network.by_origin``, and
    :func:`~blocc.transport.travellers.flows.market_flows` recovers the markets' own flows. The equality rows, one for
    each origin and every other node in ascending order, have as multipliers the cheapest costs, prices included, from
    the origin to the node. ``options`` are those of :func:`full_problem`; ``oracle`` may be an inner solver that knows
    this structure.
    """
    origins, row = network.by_origin
    flows = Box(0.0, np.where(may_take(network.through, network.tail, origins), np.inf, 0.0))
    rows = _Rows(origins, row, network.demand, lambda flow: jnp.sum(flow, axis=0))
    return _problem(network, rows, flows, "aggregated by origin", **options)


class _Rows(NamedTuple):
    """What the rows of a table of flows stand for."""

    begin: Int[NDArray, "rows"]  #: the node where each row begins
    of_market: Int[NDArray, "markets"]  #: the row of each market
    arriving: Float[NDArray, "markets"]  #: what of its row's flow arrives with each market, were its share 1
    total: Callable[[AnyArray], Any]  #: passengers of all rows together


def _problem(
    network: TransportNetwork,
    rows: _Rows,
    flows: Box,
    label: str,
    *,
    upper_bound: Any = None,
    x_set: ConvexSet | None = None,
    oracle: Any = None,
    name: str | None = None,
) -> BilevelProblem:
    shape = (len(rows.begin), network.n_nodes)
    other_nodes = all_but(rows.begin, network.n_nodes)

    def equality(x: AnyArray, y: dict[str, AnyArray]) -> Float[Array, "rows others"]:
        """What leaves a node less what enters it, and at the destinations those who have arrived."""
        net = jnp.zeros(shape).at[:, network.tail].add(y["flow"]).at[:, network.head].add(-y["flow"])
        net = net.at[rows.of_market, network.destination].add(rows.arriving * y["share"])
        return jnp.take_along_axis(net, other_nodes, axis=1)

    return BilevelProblem(
        upper=lambda x, y: _operator_loss(network, x, y["share"]),
        lower=lambda x, y: rows.total(y["flow"] @ network.time) + _choice_cost(network, y["share"]),
        inequality=lambda x, y: rows.total(y["flow"]) - x,
        equality=equality,
        x_set=_capacities(network, upper_bound, x_set),
        y_set=Product({"flow": flows, "share": _share_box(network)}),
        oracle=oracle,
        name=name or f"{network.name}, {label}",
    )


def extended_negative_entropy(share: Float[AnyArray, "*shape"]) -> Float[Array, "*shape"]:
    """``y ln y + (1 - y) ln(1 - y)``, with finite derivatives on the whole line.

    The true slope is infinite at 0 and 1, where projections put a share and where a closed network keeps it. Within
    ``SHARE_FLOOR`` of the ends, and beyond them, the function goes on as the parabola with the same value, slope and
    curvature. No share that is larger changes; the price of a link without capacity becomes large instead of infinite.
    """
    return _x_log_x(share) + _x_log_x(1.0 - share)


def _x_log_x(value: Float[AnyArray, "*shape"]) -> Float[Array, "*shape"]:
    inside = jnp.where(value > SHARE_FLOOR, value, SHARE_FLOOR)  # maximum() would split the derivative at a tie
    below = jnp.where(value > SHARE_FLOOR, 0.0, value - SHARE_FLOOR)
    logarithm = jnp.log(inside)
    return inside * logarithm + below * (1.0 + logarithm) + below**2 / (2.0 * SHARE_FLOOR)


def _operator_loss(
    network: TransportNetwork, x: Float[AnyArray, "links"], share: Float[AnyArray, "markets"]
) -> Float[Array, ""]:
    """Construction cost less revenue."""
    return jnp.dot(network.cost, x) - jnp.dot(network.demand * network.revenue, share)


def _choice_cost(network: TransportNetwork, share: Float[AnyArray, "markets"]) -> Float[Array, ""]:
    """Time of those who stay on the existing network, and the entropy that makes the choice a logit."""
    return jnp.dot(network.demand, network.alternative_time * (1.0 - share) + extended_negative_entropy(share) - 1.0)


def _share_box(network: TransportNetwork) -> Box:
    """Shares between 0 and 1; 0 where there is nobody who could travel, since any share would cost the same there."""
    return Box(0.0, np.where(network.demand > 0, 1.0, 0.0))


def _capacities(network: TransportNetwork, upper_bound: Any, x_set: ConvexSet | None) -> ConvexSet:
    if x_set is None:
        return Box(0.0, np.inf if upper_bound is None else upper_bound, shape=network.n_links)
    if upper_bound is not None:
        raise ProblemError("give either upper_bound or x_set, not both")
    if not isinstance(x_set, ConvexSet):
        raise ProblemError(f"x_set must be a set such as Box(0, 1), got {type(x_set).__name__}")
    if np.shape(x_set.template) != (network.n_links,):
        raise ProblemError(
            f"x_set must hold one capacity for each link, shape {(network.n_links,)}, got {np.shape(x_set.template)}"
        )
    return x_set


@dataclass(frozen=True, eq=False)
class OriginOracle(InnerOracle):
    """Solves the lower level of one network, its flows aggregated by origin."""

    network: TransportNetwork
    graph: Graph = field(init=False, repr=False)
    finest: float = 1e-11

    def __post_init__(self) -> None:
        object.__setattr__(self, "graph", graph_of(self.network))

    def cold(self, flat: FlatProblem) -> AssignmentPoint:
        """No information."""
        return cold(self.graph)

    def solve(
        self,
        flat: FlatProblem,
        x: Float[Array, "links"],
        weights: Weights,
        warm: AssignmentPoint,
        tolerance: float | Float[AnyArray, ""],
    ) -> InnerSolution:
        """Solve at capacities ``x`` for any weights."""
        graph = self.graph
        alternative = graph.alternative + weights.upper / weights.lower * graph.revenue
        found = solve_lower_level(graph, x, alternative, warm, tolerance)
        y, multipliers = pack(self.network, graph, found, x, alternative)
        scaled = Multipliers(weights.lower * multipliers.inequality, weights.lower * multipliers.equality)
        code = jnp.where(found.error <= tolerance, int(InnerCode.CONVERGED), int(InnerCode.STALLED))
        return finish(
            flat, x, y, scaled, weights, iterations=jnp.asarray(found.iterations), code=code, warm=found.point
        )


def pack(
    network: TransportNetwork,
    graph: Graph,
    found: LowerLevel,
    capacity: Float[Array, "links"],
    alternative: Float[AnyArray, "origins nodes"],
) -> tuple[Float[Array, "n_y"], Multipliers]:
    """A solution in the flat layout of ``aggregated_problem``: its variables, and its multipliers for weight 1 on g.

    Where nobody can be, the potential is so high that nobody would come; the price of a closed link is the least one
    that keeps it empty.
    """
    _, row = network.by_origin
    point = found.point
    n_nodes = graph.shape[1]
    home = np.eye(n_nodes, dtype=bool)[graph.origin]
    beyond = jnp.max(alternative) + 40.0
    potential = jnp.where(found.nodes | home, point.potential, beyond)
    saved = potential[:, graph.head] - potential[:, graph.tail] - graph.time
    saved = jnp.max(jnp.where(may_take(network.through, network.tail, np.asarray(graph.origin)), saved, 0.0), axis=0)
    price = jnp.where(capacity > 0.0, point.price, jnp.maximum(saved, 0.0))
    share = jnp.where(graph.demand > 0, point.share, 0.0)[row, network.destination]
    others = np.flatnonzero(~home.ravel())  # every node but the origin, row by row
    y = jnp.concatenate([point.flow.ravel(), share])
    return y, Multipliers(price, potential.ravel()[others])


def structured_problem(network: TransportNetwork, **options: Any) -> BilevelProblem:
    """The aggregated problem with its own oracle; ``options`` are those of ``aggregated_problem``."""
    return aggregated_problem(network, oracle=OriginOracle(network), **options)
