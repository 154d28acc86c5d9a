"""A network made ready for design: its compiled functions, and the penalty function in capacities and in prices."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Bool, Float, NDArray
from blocc._lib.compiled import Program
from blocc._lib.precision import double_precision
from blocc.lagrangian import Multipliers, Residuals, residuals, weights
from blocc.transport.design.prices import PricePenalty, evaluate_prices
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import AssignmentPoint, LowerLevel, cold, solve_lower_level
from blocc.transport.travellers.formulation import pack, structured_problem
from blocc.transport.travellers.graph import Graph, graph_of

#: Relative accuracy to which the lower level is solved.
TOLERANCE = 1e-11


class CapacityPenalty(NamedTuple):
    """F_gamma at one vector of capacities, out of both saddle points."""

    value: Float[AnyArray, ""]  #: c x + gamma (V(x; t_ext + m / gamma) - V(x; t_ext)) - sum w m
    gradient: Float[AnyArray, "links"]  #: c - gamma (penalised prices - follower's prices)
    utility: Float[AnyArray, ""]  #: the operator's, at the follower's answer
    utility_penalised: Float[AnyArray, ""]
    follower: LowerLevel
    penalised: LowerLevel
    warm: AssignmentPoint  #: both solutions, one above the other, for the next evaluation nearby

    @property
    def error(self) -> float:
        """How well both lower levels are solved."""
        return float(max(self.follower.error, self.penalised.error))

    @property
    def distance(self) -> float:
        """``||yF - yg||`` over the shares."""
        return float(np.linalg.norm(np.asarray(self.penalised.point.share) - np.asarray(self.follower.point.share)))


def evaluate_capacities(
    graph: Graph, capacity: Float[Array, "links"], gamma: Float[Array, ""], warm: AssignmentPoint, tolerance: float
) -> CapacityPenalty:
    """Both saddle points in one call: the penalised one is the lower level with t_ext + m / gamma."""
    alternatives = jnp.stack([graph.alternative, graph.alternative + graph.revenue / gamma])
    both = jax.lax.map(
        lambda case: solve_lower_level(graph, capacity, case[0], case[1], tolerance), (alternatives, warm)
    )
    follower, penalised = (jax.tree.map(lambda leaf, i=i: leaf[i], both) for i in (0, 1))
    earned = graph.demand * graph.revenue
    spent = jnp.dot(graph.cost, capacity)
    # Primal and dual values err in opposite directions.
    worth = [0.5 * (side.value + side.bound) for side in (follower, penalised)]
    return CapacityPenalty(
        value=spent + gamma * (worth[1] - worth[0]) - jnp.sum(earned),
        gradient=graph.cost - gamma * (penalised.point.price - follower.point.price),
        utility=jnp.sum(earned * follower.point.share) - spent,
        utility_penalised=jnp.sum(earned * penalised.point.share) - spent,
        follower=follower,
        penalised=penalised,
        warm=both.point,
    )


class DesignModel:
    """The compiled functions of one network; build it once, design many times, also in several threads at once."""

    def __init__(self, network: TransportNetwork) -> None:
        self.network = network
        self.graph = graph = graph_of(network)
        flat = structured_problem(network).flat

        def penalty_of_prices(p: Any, gamma: Any, is_open: Any, temperature: Any, cost: Any) -> PricePenalty:
            return evaluate_prices(graph._replace(cost=cost), p, gamma, is_open, temperature)

        def lower_residuals(x: Any, found: LowerLevel) -> tuple[Residuals, Float[Array, ""]]:
            y, multipliers = pack(network, graph, found, x, graph.alternative)
            return residuals(flat, x, y, multipliers, weights(flat)), jnp.max(jnp.abs(y))

        self._prices = Program(penalty_of_prices)
        self._capacities = Program(lambda x, gamma, warm: evaluate_capacities(graph, x, gamma, warm, TOLERANCE))
        self._residuals = Program(lower_residuals)
        self._unpacked = Program(lambda x, found, alternative: pack(network, graph, found, x, alternative))
        with double_precision():
            self._cold = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), cold(graph))

    @property
    def time_unit(self) -> float:
        """A typical time of a link, or 1 (the unit of the logit) where that is shorter."""
        positive = self.network.time[self.network.time > 0]
        return min(1.0, float(np.median(positive))) if len(positive) else 1.0

    @property
    def ceiling(self) -> float:
        """A price at which nobody takes a link."""
        return float(np.max(self.network.alternative_time) + np.max(self.network.revenue)) + 10.0

    @property
    def threshold(self) -> float:
        """Less flow than this on a link is none."""
        return 1e-6 * (1.0 + float(np.mean(self.network.demand)))

    def prices(
        self,
        values: Float[NDArray, "links"],
        gamma: float,
        is_open: Bool[NDArray, "links"],
        temperature: float,
        cost: Float[NDArray, "links"],
    ) -> PricePenalty:
        """The penalty function in the prices.

        :param cost: what the leader pays for a unit of capacity, the multipliers of limits included
        """
        with double_precision():
            return jax.device_get(self._prices(values, float(gamma), is_open, temperature, cost))

    def capacities(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: AssignmentPoint | None = None
    ) -> CapacityPenalty:
        """The penalty function in the capacities, with both answers."""
        with double_precision():
            return self._capacities(capacity, float(gamma), self._cold if warm is None else warm)

    def lower_residuals(self, capacity: Float[NDArray, "links"], found: LowerLevel) -> tuple[Residuals, float]:
        """KKT residuals of the follower's answer from the problem's own functions, and the answer's size."""
        with double_precision():
            lower, size = jax.device_get(self._residuals(capacity, found))
        return lower, float(size)

    def unpacked(
        self, capacity: Float[NDArray, "links"], found: LowerLevel, alternative: Float[AnyArray, "origins nodes"]
    ) -> tuple[Float[NDArray, "n_y"], Multipliers]:
        """A solution in the layout of the aggregated problem."""
        with double_precision():
            return jax.device_get(self._unpacked(capacity, found, alternative))
