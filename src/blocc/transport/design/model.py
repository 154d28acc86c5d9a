"""A network made ready for design: the penalty function in capacities and in prices, by one of three engines.

The engine on links has everything as dense arrays over origins, nodes and links, in compiled programs that also run on
accelerators. The engine on paths keeps what is used alone, and is the one for networks of cities. Where there is an
accelerator, it searches in prices, and the exact answers are found on paths. All answer the same questions, and what
they find is judged by the same equations.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Bool, Float, NDArray
from blocc._lib.compiled import Program
from blocc._lib.precision import double_precision
from blocc._lib.threads import thread_count
from blocc.errors import OptionError
from blocc.lagrangian import Multipliers, Residuals, residuals, weights
from blocc.transport.design.forecast import chosen_engine, is_large
from blocc.transport.design.prices import PricePenalty, evaluate_prices
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import AssignmentPoint, LowerLevel, cold, solve_lower_level
from blocc.transport.travellers.formulation import pack, structured_problem
from blocc.transport.travellers.graph import Figures, Graph, graph_of, is_on_accelerator, usable

#: Relative accuracy to which the lower level is solved.
TOLERANCE = 1e-11


def never() -> bool:
    """Where nothing may stop the work."""
    return False


class CapacityPenalty(NamedTuple):
    """F_gamma at one vector of capacities, out of both saddle points."""

    value: Float[AnyArray, ""]  #: c x + gamma (V(x; t_ext + m / gamma) - V(x; t_ext)) - sum w m
    gradient: Float[AnyArray, "links"]  #: c - gamma (penalised prices - follower's prices)
    utility: Float[AnyArray, ""]  #: the operator's, at the follower's answer
    utility_penalised: Float[AnyArray, ""]
    follower: LowerLevel
    penalised: LowerLevel
    warm: Any  #: what the engine's next evaluation nearby begins with

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


class Engine(Protocol):
    """Evaluates the penalty function of one network."""

    def prices(
        self,
        values: Float[NDArray, "links"],
        gamma: float,
        is_open: Bool[NDArray, "links"],
        temperature: float,
        cost: Float[NDArray, "links"],
    ) -> PricePenalty:
        """The penalty function in the prices."""
        ...

    def capacities(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: Any, stop: Callable[[], bool]
    ) -> CapacityPenalty:
        """The penalty function in the capacities, with both answers."""
        ...

    def travellers(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: Any, stop: Callable[[], bool]
    ) -> LowerLevel:
        """The follower's answer alone."""
        ...

    def near(self, prices: Float[NDArray, "links"], gamma: float) -> Any:
        """What an evaluation in the capacities may begin with where these are about the travellers' prices."""
        ...


class _Programs:
    """What is compiled for a network, whatever its figures are."""

    def __init__(self, graph: Graph) -> None:
        def penalty_of_prices(figures: Figures, given: Any, is_open: Any, ways: Any = None) -> PricePenalty:
            prices, cost, (gamma, temperature) = jnp.split(given, (len(graph.time), 2 * len(graph.time)))
            own = graph.with_figures(figures._replace(cost=cost))
            found = evaluate_prices(own, prices, gamma, is_open, temperature, ways)
            follower, penalised = (side._replace(potential=None) for side in (found.follower, found.penalised))
            return found._replace(follower=follower, penalised=penalised)  # nobody asks for what is left out

        def penalty_of_capacities(figures: Figures, x: Any, gamma: Any, warm: Any) -> CapacityPenalty:
            return evaluate_capacities(graph.with_figures(figures), x, gamma, warm, TOLERANCE)

        # On an accelerator every array that comes or goes counts: numbers go there in one row, and come back in one.
        self.prices = Program(penalty_of_prices, to_host=True)
        self.capacities = Program(penalty_of_capacities)
        self.usable = Program(lambda is_open: usable(graph, is_open))


#: Programs of the networks that were used last, by where their links lead and by the device that they run on.
_made: OrderedDict[tuple[Any, ...], _Programs] = OrderedDict()
_MOST_KEPT, _making = 16, threading.Lock()


def _programs_for(graph: Graph) -> _Programs:
    """Programs for all networks with these links: other times, demands or costs compile nothing again."""
    places = (graph.tail, graph.head, graph.origin, graph.through)
    key = (graph.shape, str(jax.config.jax_default_device), *(np.asarray(part).tobytes() for part in places))  # type: ignore[attr-defined]
    with _making:
        found = _made.pop(key, None) or _Programs(graph)
        _made[key] = found
        while len(_made) > _MOST_KEPT:
            _made.popitem(last=False)
    return found


class DenseEngine:
    """Origins in rows, nodes and links in columns, one compiled program for each question."""

    def __init__(self, graph: Graph) -> None:
        self._programs = _programs_for(graph)
        self._known_ways: tuple[bytes, Any, Any] = b"", None, None  #: of the open links that were asked for last
        with double_precision():
            self._figures: Figures = jax.device_put(graph.figures)
            self._cold = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), cold(graph))

    def prices(
        self,
        values: Float[NDArray, "links"],
        gamma: float,
        is_open: Bool[NDArray, "links"],
        temperature: float,
        cost: Float[NDArray, "links"],
    ) -> PricePenalty:
        """The penalty function in the prices."""
        given = np.concatenate([values, cost, (gamma, temperature)])
        with double_precision():
            if not is_on_accelerator():
                return self._programs.prices(self._figures, given, is_open)
            key, able, ways = self._known_ways  # there every sweep counts
            if key != is_open.tobytes():
                able, ways = jnp.asarray(is_open), self._programs.usable(is_open)
                self._known_ways = is_open.tobytes(), able, ways
            return self._programs.prices(self._figures, given, able, ways)

    def capacities(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: Any, stop: Callable[[], bool]
    ) -> CapacityPenalty:
        """The penalty function in the capacities; both answers, one above the other, are the next one's warm start.

        Nothing stops it on the way: it takes no longer than a look at the clock may wait.
        """
        with double_precision():
            start = self._cold if warm is None else warm
            return self._programs.capacities(self._figures, capacity, float(gamma), start)

    def travellers(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: Any, stop: Callable[[], bool]
    ) -> LowerLevel:
        """The follower's answer; the other one comes with it, out of the same compiled program."""
        return self.capacities(capacity, gamma, warm, stop).follower

    def near(self, prices: Float[NDArray, "links"], gamma: float) -> None:
        """Prices alone are no start for the interior point."""


class MixedEngine:
    """The search in prices by compiled programs on an accelerator, exact answers by the processor on paths."""

    def __init__(self, searching: Engine, answering: Engine) -> None:
        self.prices, self.near = searching.prices, answering.near
        self.capacities, self.travellers = answering.capacities, answering.travellers


def _processor() -> Any:
    """The device of the host, where JAX knows it."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None


class DesignModel:
    """One network, ready for design; build it once, design many times, also in several threads at once.

    :param engine: "dense", "paths", "mixed", or "auto": by the size of the network and the devices that there are
    """

    def __init__(self, network: TransportNetwork, engine: str = "auto") -> None:
        self.network = network
        self.graph = graph = graph_of(network)
        self.engine = chosen_engine(network, engine)
        #: Small arrays wait for an accelerator longer than a processor computes.
        self._place = _processor() if engine == "auto" and is_on_accelerator() and not is_large(network) else None
        with self._placed():
            self._engine = self._made()
        flat = structured_problem(network).flat

        def lower_residuals(x: Any, found: LowerLevel) -> tuple[Residuals, Float[Array, ""]]:
            y, multipliers = pack(network, graph, found, x, graph.alternative)
            return residuals(flat, x, y, multipliers, weights(flat)), jnp.max(jnp.abs(y))

        self._residuals = Program(lower_residuals)
        self._unpacked = Program(lambda x, found, alternative: pack(network, graph, found, x, alternative))

    def _placed(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._place is None else jax.default_device(self._place)

    def _made(self) -> Engine:
        if self.engine == "dense":
            return DenseEngine(self.graph)
        try:
            from blocc.transport.design.path_engine import PathEngine  # needs Numba, and takes a second to import
        except ImportError as error:
            raise OptionError(f"engine={self.engine!r} needs Numba ({error}): pip install 'blocc[city]'") from error
        paths = PathEngine(self.network)
        return paths if self.engine == "paths" else MixedEngine(DenseEngine(self.graph), paths)

    @cached_property
    def earnings(self) -> Float[NDArray, "origins nodes"]:
        """What markets would pay if everybody travelled."""
        return np.asarray(self.graph.demand * self.graph.revenue)

    @property
    def time_unit(self) -> float:
        """A typical time of a link, or 1 (the unit of the logit) where that is shorter."""
        positive = self.network.time[self.network.time > 0]
        return min(1.0, float(np.median(positive))) if len(positive) else 1.0

    @property
    def lowest_temperature(self) -> float:
        """Flows at this temperature lie on cheapest paths, as exactly as answers are computed."""
        return 1e-9 * self.time_unit

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
        with self._placed():
            return self._engine.prices(values, float(gamma), is_open, float(temperature), cost)

    def capacities(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: Any = None, stop: Callable[[], bool] = never
    ) -> CapacityPenalty:
        """The penalty function in the capacities, with both answers.

        :param warm: that of an evaluation nearby
        :param stop: asked now and then whether to end with what is there; the errors then say how far that is
        """
        with self._placed():
            return self._engine.capacities(capacity, float(gamma), warm, stop)

    def travellers(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: Any = None, stop: Callable[[], bool] = never
    ) -> LowerLevel:
        """The follower's answer alone."""
        with self._placed():
            return self._engine.travellers(capacity, float(gamma), warm, stop)

    def travellers_each(
        self, capacities: list[Float[NDArray, "links"]], gamma: float, warm: Any, stop: Callable[[], bool]
    ) -> list[LowerLevel]:
        """The follower's answers to several capacities; of those that ``stop`` left time for.

        Kernels on paths run side by side. Compiled programs do not: several at once can wait for each other for ever.
        """

        def answer(capacity: Float[NDArray, "links"]) -> LowerLevel | None:
            return None if stop() else self.travellers(capacity, gamma, warm, stop)

        if self.engine == "dense" or len(capacities) < 2:
            found = [answer(capacity) for capacity in capacities]
        else:
            with ThreadPoolExecutor(min(len(capacities), thread_count()), thread_name_prefix="blocc-answers") as pool:
                found = list(pool.map(answer, capacities))
        return [each for each in found if each is not None]

    def near(self, prices: Float[NDArray, "links"], gamma: float) -> Any:
        """What an evaluation in the capacities may begin with where these are about the travellers' prices."""
        return self._engine.near(prices, float(gamma))

    def lower_residuals(self, capacity: Float[NDArray, "links"], found: LowerLevel) -> tuple[Residuals, float]:
        """KKT residuals of the follower's answer from the problem's own functions, and the answer's size."""
        with double_precision(), self._placed():
            lower, size = jax.device_get(self._residuals(capacity, found))
        return lower, float(size)

    def unpacked(
        self, capacity: Float[NDArray, "links"], found: LowerLevel, alternative: Float[AnyArray, "origins nodes"]
    ) -> tuple[Float[NDArray, "n_y"], Multipliers]:
        """A solution in the layout of the aggregated problem."""
        with double_precision(), self._placed():
            return jax.device_get(self._unpacked(capacity, found, alternative))
