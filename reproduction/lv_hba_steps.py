"""Steps of this package's LV-HBA, as many as are asked for."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array, Float, Int
from blocc.flat_problem import FlatProblem
from blocc.methods.single_loop import HbaState, LvHba


def advance_lv_hba(
    flat: FlatProblem,
    numbers: Mapping[str, Float[Array, ""]],
    state: HbaState,
    first: Int[Array, ""],
    count: Int[Array, ""],
) -> tuple[HbaState, Float[Array, ""]]:
    """``count`` steps from the step ``first`` on; and how much the last one changed the upper objective."""
    method = LvHba()

    def step(i: Int[Array, ""], carried: tuple[HbaState, Float[Array, ""]]) -> tuple[HbaState, Float[Array, ""]]:
        before, _ = carried
        after = method.step(flat, numbers, before, first + i)
        return after, jnp.abs(flat.upper(after.x, after.y) - flat.upper(before.x, before.y))

    return jax.lax.fori_loop(0, count, step, (state, jnp.asarray(jnp.inf)))
