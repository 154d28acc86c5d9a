"""Where the capacities may lie: between bounds for each link, within a budget, equal in both directions."""

from __future__ import annotations

from copy import copy
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, NDArray
from blocc._lib.rounding import ROUNDED
from blocc.errors import OptionError
from blocc.kit.arguments import one_each
from blocc.networks.checked_rows import LARGEST
from blocc.sets import ConvexSet
from blocc.transport.network.network import TransportNetwork

#: A budget with room left is drawn in to this part of what a design costs.
SQUEEZED = 0.86


class CapacitySet(ConvexSet):
    """``{x : least <= x <= limit, <cost, x - existing> <= budget, x_ij = x_ji where both directions exist}``.

    ``limit``, ``minimum`` and ``existing`` are a number or one number for each link. What exists cannot be taken away
    and costs nothing, so ``least`` is the larger of ``existing`` and ``minimum``. The bounds of the network's own
    columns hold as well; ``existing`` replaces its column. ``budget`` caps the cost of what is built, and ``symmetric``
    ties the two directions of a link. Without any of them it is the nonnegative orthant.
    """

    def __init__(
        self,
        network: TransportNetwork,
        *,
        limit: Any = None,
        minimum: Any = None,
        existing: Any = None,
        budget: float | None = None,
        symmetric: bool = False,
    ) -> None:
        count = network.n_links
        self.template, self.size = np.zeros(count), count
        self.cost = network.cost
        self.symmetric = bool(symmetric)
        own = np.arange(count)
        self.partner = np.where(network.reverse >= 0, network.reverse, own) if symmetric else own
        #: Links that are built together: the smaller index of each pair.
        self.group = np.minimum(own, self.partner)
        bounds = {"max_capacity": (limit, np.inf), "min_capacity": (minimum, 0.0), "existing_capacity": (existing, 0.0)}
        given = {name: _bounds(name, value, usual, count) for name, (value, usual) in bounds.items()}
        self.existing = network.existing_capacity if existing is None else given["existing_capacity"]
        most = np.minimum(given["max_capacity"], network.max_capacity)
        least = np.maximum(np.maximum(given["min_capacity"], network.min_capacity), self.existing)
        self.limit, self.least = np.minimum(most, most[self.partner]), np.maximum(least, least[self.partner])
        #: What all capacity may cost, were the existing one not free.
        self.allowance = _budget(budget) + self.refund
        self._check(network, given, has_existing=existing is not None)
        if self.spendable <= 0.0:
            self.limit = np.where(self.cost + self.cost[self.partner] > 0.0, self.least, self.limit)

    def _check(
        self, network: TransportNetwork, given: dict[str, Float[NDArray, "links"]], *, has_existing: bool
    ) -> None:
        """Refuse an empty set, and say which figures contradict each other: options, or columns of the network."""

        def least_named(link: int) -> str:
            options = {"min_capacity": given["min_capacity"][link]}
            columns = {"min_capacity": network.min_capacity[link]}
            (options if has_existing else columns)["existing_capacity"] = self.existing[link]
            named = [(value, name) for name, value in options.items()]
            named += [(value, _column(name)) for name, value in columns.items()]
            return max(named, key=lambda pair: pair[0])[1]

        def most_named(link: int) -> str:
            is_column = network.max_capacity[link] < given["max_capacity"][link]
            return _column("max_capacity") if is_column else "max_capacity"

        def link_named(link: int) -> str:
            return f"link {network.nodes[network.tail[link]]} -> {network.nodes[network.head[link]]}"

        if len(wrong := np.flatnonzero(self.least > self.limit)):
            pair = [int(wrong[0]), int(self.partner[wrong[0]])]
            low = min(pair, key=lambda a: min(given["max_capacity"][a], network.max_capacity[a]))
            high = max(pair, key=lambda a: max(given["min_capacity"][a], network.min_capacity[a], self.existing[a]))
            there = "it" if low == high else f"its other direction, {link_named(high)},"
            raise OptionError(
                f"{most_named(low)} of {link_named(low)} is {self.limit[low]:g}, less than the {self.least[high]:g} "
                f"{there} must have ({least_named(high)})"
            )
        if (needed := float(self.cost @ self.least)) > self.allowance * (1.0 + ROUNDED):
            name = "min_capacity" if (given["min_capacity"] > network.min_capacity).any() else _column("min_capacity")
            raise OptionError(
                f"budget must be at least {needed - self.refund:g}, which {name} costs; got {self.budget:g}"
            )

    def __repr__(self) -> str:
        return f"CapacitySet({self.size} links, budget={self.budget:g}, symmetric={self.symmetric})"

    @property
    def refund(self) -> float:
        """What the existing capacity would cost."""
        return float(self.cost @ self.existing)

    @property
    def budget(self) -> float:
        """The most that construction may cost; infinite where nothing limits it."""
        return self.allowance - self.refund

    @property
    def has_budget(self) -> bool:
        """Whether construction may cost only so much."""
        return bool(np.isfinite(self.allowance))

    @property
    def spendable(self) -> float:
        """What may be spent on more than the least capacities."""
        return self.allowance - float(self.cost @ self.least)

    @property
    def is_box(self) -> bool:
        return not self.has_budget and bool((self.partner == np.arange(self.size)).all())

    @property
    def is_orthant(self) -> bool:
        """Whether nothing but x >= 0 is asked for."""
        return self.is_box and bool(np.isinf(self.limit).all() and (self.least == 0.0).all())

    @property
    def is_simple(self) -> bool:
        """Whether nothing but x >= 0 and a budget is asked for, which takes one multiplier."""
        plain = copy(self)
        plain.allowance = np.inf
        return plain.is_orthant

    def without_ceilings(self) -> CapacitySet:
        """The same set with neither a budget nor ties nor limits; what may not be built at all stays forbidden."""
        wider = copy(self)
        wider.limit, wider.allowance, wider.symmetric = np.where(self.limit > 0.0, np.inf, 0.0), np.inf, False
        wider.partner = wider.group = np.arange(self.size)
        return wider

    def held(self, links: Bool[NDArray, "links"]) -> CapacitySet:
        """The same set with these links at their least capacity."""
        if not links.any():
            return self
        narrower = copy(self)
        narrower.limit = np.where(links, self.least, self.limit)
        return narrower

    def contracted(self, wide: Float[NDArray, "links"]) -> list[CapacitySet]:
        """Sets from one that just holds ``wide`` to this one, in steps of about a tenth; ties hold in all of them.

        A budget that leaves ``wide`` room is first drawn in further than it is: what a design gives up then is often
        better spent elsewhere when the money is back.
        """
        wide = np.maximum(wide, wide[self.partner])
        over = np.where(
            (wide > self.limit) & (self.limit > 0.0), wide / np.where(self.limit > 0.0, self.limit, 1.0), 1.0
        )
        needed = float(self.cost @ self.least)
        limited = self.has_budget and self.spendable > 0.0
        over_budget = (float(self.cost @ wide) - needed) / self.spendable if limited else 0.0
        count = int(np.clip(np.ceil(10.0 * np.log(max(over_budget, float(np.max(over, initial=1.0))))), 1, 20))
        parts = [(over**part, over_budget**part) for part in np.linspace(1.0, 0.0, count + 1)[1:]]
        if 0.0 < over_budget <= 1.0:
            parts = [(np.ones(self.size), part * over_budget) for part in (0.93, SQUEEZED)] + parts
        steps = []
        for higher, more in parts:
            step = copy(self)
            step.limit = self.limit * higher
            if self.has_budget:
                step.allowance = needed + self.spendable * more
            steps.append(step)
        return steps

    def bounds_flat(self) -> tuple[Float[NDArray, "links"], Float[NDArray, "links"]]:
        return self.least.copy(), self.limit.copy()

    def inequality_flat(self, point: Float[AnyArray, "links"]) -> Float[Array, "rows"]:
        if not self.has_budget:
            return jnp.zeros(0)
        scale = float(np.linalg.norm(self.cost)) or 1.0
        return jnp.reshape((jnp.dot(self.cost, point) - self.allowance) / scale, (1,))

    def equality_flat(self, point: Float[AnyArray, "links"]) -> Float[Array, "pairs"]:
        first = np.flatnonzero(np.arange(self.size) < self.partner)
        values = jnp.asarray(point)
        return values[first] - values[self.partner[first]]

    def project_flat(self, point: Float[AnyArray, "links"]) -> Float[Array, "links"]:
        # Tied links move together, so their mean and the mean of their costs are all that counts.
        mean = 0.5 * (point + point[self.partner])
        cost = 0.5 * (self.cost + self.cost[self.partner])

        def at(multiplier: Float[Array, ""]) -> Float[Array, "links"]:
            return jnp.clip(mean - multiplier * cost, self.least, self.limit)

        if not self.has_budget:
            return at(jnp.zeros(()))

        def narrow(_: Int[Array, ""], interval: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = interval
            middle = 0.5 * (low + high)
            too_much = jnp.dot(cost, at(middle)) > self.allowance
            return jnp.where(too_much, middle, low), jnp.where(too_much, high, middle)

        # At the largest ratio everything that costs anything has come down to its least.
        above = jnp.abs(mean - self.least)
        most = jnp.max(jnp.where(cost > 0, above / np.where(cost > 0, cost, 1.0), 0.0)) + 1.0
        within = jnp.dot(cost, at(jnp.zeros(()))) <= self.allowance
        _, found = lax.fori_loop(0, 100, narrow, (jnp.zeros(()), most))
        return at(jnp.where(within, 0.0, found))

    def interior_flat(self) -> Float[NDArray, "links"]:
        top = self._top()
        extra = float(self.cost @ (top - self.least))
        share = 0.5 if extra <= self.spendable or extra == 0 else 0.5 * self.spendable / extra
        return self.least + share * (top - self.least)

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, "links"]:
        share = generator.uniform(0.0, 1.0, self.size)[self.group]
        return self._affordable(self.least + share * (self._top() - self.least))

    def _top(self) -> Float[NDArray, "links"]:
        return np.where(np.isfinite(self.limit), self.limit, self.least + 2.0)

    def cover(self, flow: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """The smallest member that carries ``flow``, cut down to the limits and, in proportion, to the budget."""
        return self._affordable(np.clip(np.maximum(flow, flow[self.partner]), self.least, self.limit))

    def _affordable(self, point: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """What stands above the least capacities, in proportion less, until it fits the budget."""
        above = point - self.least
        spent = float(self.cost @ above)
        return point if spent <= self.spendable else self.least + above * (max(self.spendable, 0.0) / spent)

    def spend(self, point: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """A member with more of what stands above the least capacities, in proportion, until the budget is spent."""
        above = point - self.least

        def at(factor: float) -> Float[NDArray, "links"]:
            return np.minimum(self.least + factor * above, self.limit)

        low, high = 1.0, 2.0
        if not self.has_budget or float(self.cost @ above) <= 0.0 or float(self.cost @ at(1e6)) < self.allowance:
            return point
        while float(self.cost @ at(high)) < self.allowance:
            low, high = high, 2.0 * high
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if float(self.cost @ at(middle)) <= self.allowance else (low, middle)
        return at(low)


def _column(name: str) -> str:
    """What a sentence calls a column of the network, in difference to an option of the same name."""
    return f'the column "{name}"'


def _bounds(name: str, value: Any, usual: float, count: int) -> Float[NDArray, "links"]:
    if value is None:
        return np.full(count, usual)
    values = one_each(name, value, count, "links", finite=name != "max_capacity")
    if name != "max_capacity" and (values > LARGEST).any():
        raise OptionError(f"{name} is beyond {LARGEST:g}; choose a larger unit")
    return values


def _budget(budget: float | None) -> float:
    if budget is None:
        return float("inf")
    try:
        value = float(budget)
    except (TypeError, ValueError):
        raise OptionError(f"budget must be a number, got {budget!r}") from None
    if not value >= 0:
        raise OptionError(f"budget must be a number >= 0, the most that construction may cost, got {budget!r}")
    return value
