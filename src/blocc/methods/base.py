"""What every method of this room is: numbers, what it demands of a problem, and a way to iterate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from blocc.methods.size import Size
from blocc.problem import FlatProblem

Array = Any
State = Any
Numbers = Mapping[str, Any]


class Demand(Enum):
    """What a method may demand of a problem."""

    NO_EQUALITY = "no equality constraints in the lower level"
    NO_INEQUALITY = "no inequality constraints in the lower level"
    SOME_EQUALITY = "equality constraints in the lower level"
    AFFINE = "coupled constraints that are affine in x and y together"
    AFFINE_IN_Y = "equality constraints of the form h(x) + A y = 0 with a constant matrix A"
    JOINTLY_CONVEX = "coupled inequalities that are convex in x and y together, and affine equalities"
    FREE_Y = "y_set to be the whole space (write bounds on y as inequality constraints)"
    NO_LEADER_CONSTRAINT = "no upper_inequality: the leader's only constraint is x_set"


@dataclass(frozen=True)
class Method(ABC):
    """The base: ``given`` numbers override the automatic ones."""

    given: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)  #: whole numbers, fixed at compilation

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""  #: authors and venue
    demands: ClassVar[tuple[Demand, ...]] = ()
    names: ClassVar[tuple[str, ...]] = ()  #: of the numbers
    default_counts: ClassVar[Mapping[str, int]] = {}
    switches: ClassVar[tuple[str, ...]] = ()  #: counts that may be 0, for "no"
    presets: ClassVar[Mapping[str, Mapping[str, float]]] = {}

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that were given."""
        return dict(self.given)

    def count(self, name: str) -> int:
        """A whole number: given, or the default."""
        return int(self.counts.get(name, self.default_counts[name]))

    @abstractmethod
    def automatic(self, size: Size) -> list[dict[str, float]]:
        """Settings to try, boldest first; numbers that were given replace their automatic values."""

    @abstractmethod
    def drive(self, run: Any, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All iterations; ``run`` is the :class:`~blocc.methods.execute.MethodRun` that solves, records and stops."""


def constraints(flat: FlatProblem, x: Array, y: Array) -> Array:
    """Inequalities and equalities in one vector."""
    return jnp.concatenate([flat.inequality(x, y), flat.equality(x, y)])


def lagrangian_slope(flat: FlatProblem, x: Array, y: Array, multipliers: Array) -> tuple[Array, Array]:
    """The gradients in x and y of the lower objective plus the constraints at these prices."""

    def lagrangian(a: Array, b: Array) -> Array:
        return flat.lower(a, b) + multipliers @ constraints(flat, a, b)

    return jax.grad(lagrangian, argnums=(0, 1))(x, y)


def is_inequality(flat: FlatProblem) -> Array:
    """Which entries of :func:`constraints` are inequalities."""
    return jnp.arange(flat.n_inequality + flat.n_equality) < flat.n_inequality


def positive_part(flat: FlatProblem, multipliers: Array) -> Array:
    """Multipliers of inequalities clipped at zero; those of equalities are free."""
    return jnp.where(is_inequality(flat), jnp.maximum(multipliers, 0.0), multipliers)


def clipped(flat: FlatProblem, multipliers: Array, largest: Array) -> Array:
    """Multipliers within [0, largest], those of equalities within [-largest, largest]."""
    least = jnp.where(is_inequality(flat), 0.0, -largest)
    return jnp.clip(multipliers, least, largest)


def schedule(numbers: Numbers, k: Array) -> Array:
    """c_k = c0 (k + 1)^p."""
    return numbers["c0"] * (k + 1.0) ** numbers["p"]
