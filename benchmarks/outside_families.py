"""All families of the outside stress set, by name."""

from __future__ import annotations

import types
from collections.abc import Callable

import numpy as np

import outside_blocks
import outside_cancelling
import outside_cones
import outside_curved
import outside_edges
import outside_followers
import outside_hostile
import outside_incumbents
import outside_kinks
import outside_leader
import outside_pricing
import outside_responses
import outside_saddles
import outside_scaled
import outside_smooth
import outside_unbounded
from outside_case import Case

Family = Callable[[np.random.Generator], Case]

MODULES = (
    outside_smooth,
    outside_scaled,
    outside_unbounded,
    outside_followers,
    outside_edges,
    outside_kinks,
    outside_leader,
    outside_pricing,
    outside_cancelling,
    outside_saddles,
    outside_blocks,
    outside_responses,
    outside_curved,
    outside_hostile,
    outside_incumbents,
    outside_cones,
)


def _families(module: types.ModuleType) -> dict[str, Family]:
    """Return the functions of a module that its own text says make a case."""
    return {
        name: function
        for name, function in vars(module).items()
        if isinstance(function, types.FunctionType)
        and function.__module__ == module.__name__
        and function.__annotations__.get("return") == "Case"
        and not name.startswith("_")
    }


FAMILIES: dict[str, Family] = {name: family for module in MODULES for name, family in _families(module).items()}
