"""Where the capacities may lie: not below 0, under a limit for each link, within a budget, equal in both directions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Float, Int, NDArray
from blocc.errors import OptionError
from blocc.sets import ConvexSet
from blocc.transport.network.network import TransportNetwork


class CapacitySet(ConvexSet):
    """``{x : 0 <= x <= limit, <cost, x> <= budget, x_ij = x_ji where both directions exist}``.

    ``limit`` is a number or one number for each link, ``budget`` caps the total construction cost, and ``symmetric``
    ties the two directions of a link. Without any of them it is the nonnegative orthant.
    """

    def __init__(
        self, network: TransportNetwork, *, limit: Any = None, budget: float | None = None, symmetric: bool = False
    ) -> None:
        count = network.n_links
        self.template, self.size = np.zeros(count), count
        self.cost = network.cost
        self.budget = _budget(budget)
        self.symmetric = bool(symmetric)
        own = np.arange(count)
        self.partner = np.where(network.reverse >= 0, network.reverse, own) if symmetric else own
        #: Links that are built together: the smaller index of each pair.
        self.group = np.minimum(own, self.partner)
        limits = _limits(limit, count)
        self.limit = np.minimum(limits, limits[self.partner])

    def __repr__(self) -> str:
        return f"CapacitySet({self.size} links, budget={self.budget:g}, symmetric={self.symmetric})"

    @property
    def is_box(self) -> bool:
        return not np.isfinite(self.budget) and bool((self.partner == np.arange(self.size)).all())

    @property
    def is_orthant(self) -> bool:
        """Whether nothing but x >= 0 is asked for."""
        return self.is_box and bool(np.isinf(self.limit).all())

    def bounds_flat(self) -> tuple[Float[NDArray, "links"], Float[NDArray, "links"]]:
        return np.zeros(self.size), self.limit.copy()

    def inequality_flat(self, point: Float[AnyArray, "links"]) -> Float[Array, "rows"]:
        if not np.isfinite(self.budget):
            return jnp.zeros(0)
        scale = float(np.linalg.norm(self.cost)) or 1.0
        return jnp.reshape((jnp.dot(self.cost, point) - self.budget) / scale, (1,))

    def equality_flat(self, point: Float[AnyArray, "links"]) -> Float[Array, "pairs"]:
        first = np.flatnonzero(np.arange(self.size) < self.partner)
        values = jnp.asarray(point)
        return values[first] - values[self.partner[first]]

    def project_flat(self, point: Float[AnyArray, "links"]) -> Float[Array, "links"]:
        # Tied links move together, so their mean and the mean of their costs are all that counts.
        mean = 0.5 * (point + point[self.partner])
        cost = 0.5 * (self.cost + self.cost[self.partner])

        def at(multiplier: Float[Array, ""]) -> Float[Array, "links"]:
            return jnp.clip(mean - multiplier * cost, 0.0, self.limit)

        if not np.isfinite(self.budget):
            return at(jnp.zeros(()))

        def narrow(_: Int[Array, ""], interval: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = interval
            middle = 0.5 * (low + high)
            too_much = jnp.dot(cost, at(middle)) > self.budget
            return jnp.where(too_much, middle, low), jnp.where(too_much, high, middle)

        # At the largest ratio everything that costs anything has come down to zero.
        most = jnp.max(jnp.where(cost > 0, jnp.abs(mean) / np.where(cost > 0, cost, 1.0), 0.0)) + 1.0
        within = jnp.dot(cost, at(jnp.zeros(()))) <= self.budget
        _, found = lax.fori_loop(0, 100, narrow, (jnp.zeros(()), most))
        return at(jnp.where(within, 0.0, found))

    def interior_flat(self) -> Float[NDArray, "links"]:
        top = np.where(np.isfinite(self.limit), self.limit, 2.0)
        spent = float(self.cost @ top)
        share = 0.5 if spent <= self.budget or spent == 0 else 0.5 * self.budget / spent
        return share * top

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, "links"]:
        top = np.where(np.isfinite(self.limit), self.limit, 2.0)
        return self._affordable(generator.uniform(0.0, 1.0, self.size)[self.group] * top)

    def cover(self, flow: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """The smallest member that carries ``flow``, cut down to the limits and, in proportion, to the budget."""
        return self._affordable(np.minimum(np.maximum(flow, flow[self.partner]), self.limit))

    def _affordable(self, point: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        spent = float(self.cost @ point)
        return point if spent <= self.budget else point * (self.budget / spent)


def _limits(limit: Any, count: int) -> Float[NDArray, "links"]:
    if limit is None:
        return np.full(count, np.inf)
    try:
        values = np.broadcast_to(np.asarray(limit, dtype=np.float64), (count,)).copy()
    except (TypeError, ValueError):
        raise OptionError(
            f"max_capacity must be a number or one number for each of the {count} links, got {np.shape(limit)}"
        ) from None
    if np.isnan(values).any() or (values < 0).any():
        raise OptionError("max_capacity must not be negative or NaN")
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
