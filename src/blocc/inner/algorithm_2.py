"""Algorithm 2 of the BLOCC paper, MaxMin(T, T_y): max over mu >= 0, min over y in Y of L(mu, y) at one x.

:class:`blocc.inner.maxmin.MaxMin` runs these lines; its ``primal_update`` and ``dual_update`` replace the two below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax

from blocc._lib.arrays import Array


class InnerLagrangian(NamedTuple):
    """L_g or L_F; mu holds the multipliers of gc and, behind them and free in sign, those of h."""

    gradient_y: Callable[[Array, Array], Array]  #: of (y, mu)
    gradient_mu: Callable[[Array], Array]  #: of y: the constraints (gc, h)
    project_y: Callable[[Array], Array]  #: on Y
    project_mu: Callable[[Array], Array]  #: on mu >= 0 for the multipliers of gc


class Iterate(NamedTuple):
    """What the loop of line 2 holds at t."""

    y: Array
    mu: Array
    mu_before: Array  #: mu_{t-1}; at t = 0 that is mu_0
    t: Array


def extrapolate(now: Iterate) -> Array:
    """Line 3 with acceleration: mu_{t+1/2}. Without, it is mu_t."""
    return now.mu + (now.t - 1.0) / (now.t + 2.0) * (now.mu - now.mu_before)


def primal_update(lagrangian: InnerLagrangian, y: Array, mu_half: Array, eta_1: Array) -> Array:
    """Line 5: the next y_{t, t_y}."""
    return lagrangian.project_y(y - eta_1 * lagrangian.gradient_y(y, mu_half))


def dual_update(lagrangian: InnerLagrangian, now: Iterate, mu_half: Array, y: Array, eta_2: Array) -> Array:
    """Line 7: mu_{t+1} from y = y_{t+1}; ``now`` has y_t and mu_t."""
    return lagrangian.project_mu(mu_half + eta_2 * lagrangian.gradient_mu(y))


def iterate(
    lagrangian: InnerLagrangian, now: Iterate, eta_1: Array, eta_2: Array, T_y: Array, *, accelerated: bool = True,
    primal: Callable[..., Array] = primal_update, dual: Callable[..., Array] = dual_update,
) -> Iterate:  # fmt: skip
    """Lines 3 to 7. MaxMin(T, T_y) is T of them from ``Iterate(y_0, mu_0, mu_0, 0)``."""
    mu_half = extrapolate(now) if accelerated else now.mu
    y = jax.lax.fori_loop(0, T_y, lambda _, y: primal(lagrangian, y, mu_half, eta_1), now.y)
    return Iterate(y, dual(lagrangian, now, mu_half, y, eta_2), now.mu, now.t + 1)
