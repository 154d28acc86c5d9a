"""Network design as a bilevel problem like any other, for `blocc.solve`, `compare` and the other methods.

    leader    minimise over expansions x    total travel time + sum cost x^exponent
    drivers   minimise over flows y         Beckmann's objective of the volumes, sum over the origins of y
              subject to                    conservation of every origin's flow at every node

y has one row for each origin and one column for each link. Minimising s f + gamma g over the flows is an assignment
with BPR times again, so the oracle of the problem is the assignment engine. It is meant for small networks: it begins
anew at every call. `expand_network` answers the same question faster, and with a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray
from blocc._lib.callbacks import call_back
from blocc._lib.rounding import ROUNDED
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerCode, InnerOracle, InnerSolution, WarmStart, finish
from blocc.kit.arguments import check_positive
from blocc.lagrangian import Multipliers, Weights
from blocc.networks.paths import all_but, may_take
from blocc.networks.shortest_paths import shortest_trees
from blocc.problem import BilevelProblem
from blocc.roads.assign import assign, check_network
from blocc.roads.equilibrium import assign_paths
from blocc.roads.expand_network import expansion_figures, expansion_limits
from blocc.roads.expansion import Expansion
from blocc.roads.link_costs import power_costs
from blocc.roads.network import RoadNetwork
from blocc.sets import Box

#: Relative gap of the assignments: far below every tolerance, because it takes a few iterations more at most.
GAP = 1e-14


def road_problem(
    network: RoadNetwork,
    *,
    candidates: Any = None,
    cost: Any = 1.0,
    exponent: Any = 1.0,
    max_expansion: Any = None,
    budget: float | None = None,
    oracle: Any = "assignment",
) -> BilevelProblem:
    """The question of :func:`blocc.roads.expand_network`, with the same arguments, as a :class:`BilevelProblem`.

    :param oracle: "assignment", or None for a problem that is left to the general inner solvers
    """
    check_network(network)
    chosen, figures = expansion_figures(network, candidates, cost, exponent)
    check_positive("budget", budget, optional=True, or_zero=True)
    total = assign(network).total_travel_time if max_expansion is None else np.inf
    upper, _ = expansion_limits(network, total, chosen, figures, max_expansion, None, budget)
    question = Expansion(network, chosen, np.zeros(len(chosen)), upper, **figures)
    times = _Times(question)
    origins, row = np.unique(network.origin, return_inverse=True)
    others = all_but(origins, network.n_nodes)
    arriving = np.zeros((len(origins), network.n_nodes))
    arriving[row, network.destination] = network.demand

    def construction(x: AnyArray) -> Float[Array, ""]:
        return jnp.sum(figures["cost"] * x ** figures["exponent"])

    def equality(x: AnyArray, y: AnyArray) -> Float[Array, "origins others"]:
        """What leaves a node less what enters it, and those who have arrived."""
        net = jnp.asarray(arriving).at[:, network.tail].add(y).at[:, network.head].add(-y)
        return jnp.take_along_axis(net, others, axis=1)

    return BilevelProblem(
        upper=lambda x, y: times.total(x, y.sum(axis=0)) + construction(x),
        lower=lambda x, y: times.beckmann(x, y.sum(axis=0)),
        equality=equality,
        upper_inequality=(lambda x, y: construction(x) / budget - 1.0) if budget else None,
        x_set=Box(0.0, upper),
        y_set=Box(0.0, np.where(may_take(network.through, network.tail, origins), np.inf, 0.0)),
        oracle=AssignmentOracle(question) if oracle == "assignment" else oracle,
        name=f"{network.name}, expansion",
    )


class _Times:
    """BPR times as functions that JAX can differentiate."""

    def __init__(self, question: Expansion) -> None:
        network = question.network
        grows = network.b > 0.0
        self.question, self.power = question, np.where(grows, network.power, 1.0)
        self.free, self.toll = network.free_flow_time, network.toll
        self.rate, self.room = np.where(grows, self.free * network.b, 0.0), np.where(grows, network.capacity, 1.0)

    def _grown(self, x: AnyArray, volume: AnyArray) -> Float[Array, "links"]:
        """The volume times that part of the time that grows with it."""
        room = jnp.asarray(self.room).at[self.question.candidates].add(x)
        volume = jnp.where(volume > 0.0, volume, 0.0)
        return jnp.asarray(self.rate) * volume * (volume / room) ** self.power

    def total(self, x: AnyArray, volume: AnyArray) -> Float[Array, ""]:
        return jnp.sum(self.free * volume + self._grown(x, volume))

    def beckmann(self, x: AnyArray, volume: AnyArray) -> Float[Array, ""]:
        return jnp.sum((self.free + self.toll) * volume + self._grown(x, volume) / (self.power + 1.0))


@dataclass(frozen=True, eq=False)
class AssignmentOracle(InnerOracle):
    """Answers for any weights of leader and drivers with one assignment."""

    question: Expansion
    finest: float = field(default=1e-11)

    def cold(self, flat: FlatProblem) -> WarmStart:
        """Nothing: every assignment begins anew, so that the same x always has the same answer."""
        return ()

    def solve(
        self, flat: FlatProblem, x: Array, weights: Weights, warm: WarmStart, tolerance: float | AnyArray
    ) -> InnerSolution:
        """Assign at expansions ``x``."""
        network = self.question.network
        origins = len(network.streets.origin)
        shapes = (
            jax.ShapeDtypeStruct((origins, network.n_links), np.float64),
            jax.ShapeDtypeStruct((origins, network.n_nodes - 1), np.float64),
            jax.ShapeDtypeStruct((2,), np.float64),
        )
        upper, lower = (jnp.asarray(weight, dtype=jnp.float64) for weight in (weights.upper, weights.lower))
        flow, potential, (gap, iterations) = call_back(self._assigned, shapes, x, upper, lower)
        code = jnp.where(gap <= jnp.maximum(tolerance, ROUNDED), int(InnerCode.CONVERGED), int(InnerCode.STALLED))
        multipliers = Multipliers(jnp.zeros(0), potential.ravel())
        return finish(
            flat, x, flow.ravel(), multipliers, weights, iterations=iterations.astype(int), code=code, warm=warm
        )

    def _assigned(
        self, x: Float[NDArray, "n"], upper: Float[NDArray, ""], lower: Float[NDArray, ""]
    ) -> tuple[Float[NDArray, "origins links"], Float[NDArray, "origins others"], Float[NDArray, "2"]]:
        """Flows by origin, potentials of all nodes but the origin, the relative gap and the iterations."""
        network = self.question.network
        both = float(upper) + float(lower)
        grown = network.bpr(self.question.capacity(x), both + float(upper) * network.power)
        costs = power_costs(both * grown.constant + float(lower) * network.toll, grown.coefficient, grown.power)
        found = assign_paths(network.streets, network.pairs, costs, gap=GAP)
        columns, flow = found.paths
        by_origin = np.zeros((len(network.streets.origin), network.n_links))
        lengths = np.diff(columns.first)
        rows = np.repeat(network.pairs.row[columns.market], lengths)
        np.add.at(by_origin, (rows, columns.links), np.repeat(flow, lengths))
        potential = shortest_trees(network.streets, found.cost).cost
        # Where nobody can be, the potential is so high that nobody would come.
        potential = np.where(np.isfinite(potential), potential, 2.0 * potential[np.isfinite(potential)].max())
        others = all_but(network.streets.origin, network.n_nodes)
        taken = np.take_along_axis(potential, others, axis=1)
        return by_origin, taken, np.array([found.relative_gap, found.iterations])
