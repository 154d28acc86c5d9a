"""What a method is: its numbers, what it demands of a problem, and a way to iterate.

A method that is one step, repeated, extends :class:`~blocc.methods.loop.Iteration`; any other one implements
:meth:`Method.drive`. Arrays are flat: ``n_x`` and ``n_y`` entries of x and y, and ``rows`` of the follower's
constraints, inequalities before equalities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, NDArray
from blocc.errors import ProblemError
from blocc.flat_problem import FlatProblem
from blocc.inner.first_order import dominant_eigenvalue
from blocc.local.derivatives import LARGEST
from blocc.problem import BilevelProblem
from blocc.result import HistoryRow, Result

Scalar = Float[Array, ""]
VectorX = Float[Array, "n_x"]
VectorY = Float[Array, "n_y"]
Multipliers = Float[Array, "rows"]  #: or anything else with an entry for each constraint
Counter = Int[Array, ""] | int
Numbers = Mapping[str, Scalar | float]
#: x and y in NumPy, between two compiled calls.
Iterate = tuple[Float[NDArray, "n_x"], Float[NDArray, "n_y"]]

_COMMON_FIELDS = ("given", "counts")
SAMPLES = 12  #: pairs of points at which demands are checked
ROUNDING = 1e-7


class Demand(Enum):
    """What a method may demand of a problem."""

    NO_INEQUALITY = "no inequality constraints in the lower level"
    SOME_EQUALITY = "equality constraints in the lower level"
    AFFINE = "coupled constraints that are affine in x and y together"
    AFFINE_IN_Y = "equality constraints of the form h(x) + A y = 0 with a constant matrix A"
    JOINTLY_CONVEX = "coupled inequalities that are convex in x and y together, and affine equalities"
    CONVEX_LOWER = "a lower objective that is convex in x and y together"
    FREE_Y = "y_set to be the whole space (write bounds on y as inequality constraints)"
    NO_LEADER_CONSTRAINT = "no upper_inequality: the leader's only constraint is x_set"


class MethodDoesNotApply(ProblemError):
    """A problem is outside the assumptions of a method."""

    def __init__(self, method: str, missing: list[Demand]) -> None:
        super().__init__(method, missing)
        self.method, self.missing = method, missing

    @property
    def needs(self) -> str:
        """What the problem lacks."""
        return "needs " + "; ".join(demand.value for demand in self.missing)

    def __str__(self) -> str:
        return f"method {self.method!r} does not apply to this problem: it {self.needs}"


@dataclass(frozen=True)
class Size:
    """Slopes and curvatures at one point; automatic numbers are made of these."""

    lower: float  #: largest eigenvalue of the lower objective's Hessian in y
    lower_least: float  #: smallest
    upper: float  #: largest curvature of the upper objective in (x, y)
    coupling: float  #: largest singular value of the Jacobian of the coupled constraints in (x, y)
    coupling_y: float  #: in y alone
    mixed: float  #: of the lower objective's mixed derivative
    gradient: float  #: length of the upper objective's gradient
    x: float  #: 1 + |x|


def least_curvature(size: Size) -> float:
    """The follower's, and no less than a share of its largest, where the start shows next to none."""
    return max(size.lower_least, 0.05 * size.lower, 1e-3)


def implicit_length(size: Size) -> float:
    """A long step on f(x, y(x)): by its curvature, as far as the start tells, or by a share of x where it has none."""
    least = least_curvature(size)
    curvature = size.upper * (1.0 + (size.mixed / least) ** 2)
    return 1.0 / max(curvature, size.gradient / size.x, 1e-3)


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
    meant: ClassVar[Mapping[str, str]] = {}  #: for options of blocc's own method: which of its numbers stands for them

    def count(self, name: str) -> int:
        """A whole number: given, or the default."""
        return int(self.counts.get(name, self.default_counts[name]))

    @property
    def own_fields(self) -> tuple[tuple[str, Any], ...]:
        """What a subclass has beside its numbers and counts; compiled programs depend on it."""
        return tuple((one.name, getattr(self, one.name)) for one in fields(self) if one.name not in _COMMON_FIELDS)

    @abstractmethod
    def automatic(self, size: Size) -> list[dict[str, float]]:
        """Settings to try, the longest steps first; numbers that were given replace automatic ones."""

    @property
    def described(self) -> dict[str, Any]:
        """What a subclass has beside its numbers and counts, as plain values: a checkpoint is known by them."""
        return {}

    def begin(self, run: Any, x: Float[NDArray, "n_x"]) -> Float[NDArray, "n_y"]:
        """Where y begins: at the follower's exact answer, or in the middle of Y."""
        y = np.asarray(run.follower(x).y)
        return y if np.isfinite(y).all() else np.asarray(run.flat.y_set.interior_flat())

    def settings(self, run: Any, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> list[dict[str, float]]:
        """:meth:`automatic` with the sizes at the start."""
        return self.automatic(measure_size(run.problem, x, y))

    def row(self, run: Any, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"], step: float) -> HistoryRow:
        """One row of the history: judged at the exact lower level."""
        return run.judged(x, y, step)

    def conclude(self, run: Any, end: Iterate, stop: Any) -> Result:
        """The result: judged as every answer is."""
        from blocc.methods.certify import certified_result

        return certified_result(run, end, stop)

    @abstractmethod
    def drive(self, run: Any, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> Iterate:
        """All iterations; ``run``, a :class:`~blocc.methods.execute.MethodRun` or its like, solves, records, stops."""


# --- formulas that several methods share ---------------------------------------------------------------------------
def constraints(flat: FlatProblem, x: VectorX, y: VectorY) -> Multipliers:
    """Inequalities and equalities in one vector."""
    return jnp.concatenate([flat.inequality(x, y), flat.equality(x, y)])


def lagrangian_slope(flat: FlatProblem, x: VectorX, y: VectorY, multipliers: Multipliers) -> tuple[VectorX, VectorY]:
    """The gradients in x and y of the lower objective plus the constraints times their multipliers."""
    return jax.grad(lambda a, b: flat.lower(a, b) + multipliers @ constraints(flat, a, b), argnums=(0, 1))(x, y)


def is_inequality(flat: FlatProblem) -> Bool[Array, "rows"]:
    """Which entries of :func:`constraints` are inequalities."""
    return jnp.arange(flat.n_inequality + flat.n_equality) < flat.n_inequality


def positive_part(flat: FlatProblem, multipliers: Multipliers) -> Multipliers:
    """Multipliers of inequalities clipped at zero; those of equalities are free."""
    return jnp.where(is_inequality(flat), jnp.maximum(multipliers, 0.0), multipliers)


# --- sizes at the start --------------------------------------------------------------------------------------------
def _derivatives(flat: FlatProblem, both: Float[Array, "both"]) -> tuple[Array, ...]:
    n = flat.n_x
    upper = lambda z: flat.upper(z[:n], z[n:])  # noqa: E731
    lower_hessian = jax.hessian(lambda z: flat.lower(z[:n], z[n:]))(both)
    jacobian = jax.jacfwd(lambda z: constraints(flat, z[:n], z[n:]))(both)
    return jax.hessian(upper)(both), lower_hessian[n:, n:], lower_hessian[n:, :n], jacobian, jax.grad(upper)(both)


def _estimates(flat: FlatProblem, both: Float[Array, "both"]) -> dict[str, Array]:
    """The fields of a Size by power iterations, from products with derivatives alone."""
    n, gradient = flat.n_x, jax.grad(lambda z: flat.upper(z[: flat.n_x], z[flat.n_x :]))
    upper = jax.linearize(gradient, both)[1]
    lower = jax.linearize(jax.grad(lambda z: flat.lower(z[:n], z[n:])), both)[1]
    push = jax.linearize(lambda z: constraints(flat, z[:n], z[n:]), both)[1]
    pull = jax.linear_transpose(push, both)
    in_x, in_y = (lambda v: jnp.pad(v, (0, flat.n_y))), (lambda v: jnp.pad(v, (n, 0)))
    largest = lambda operator, size: jnp.abs(dominant_eigenvalue(operator, size))  # noqa: E731
    most, least = extreme_curvatures(lambda v: lower(in_y(v))[n:], flat.n_y)
    return {
        "lower": most,
        "lower_least": least,
        "upper": largest(upper, both.size),
        "coupling": jnp.sqrt(largest(lambda v: pull(push(v))[0], both.size)),
        "coupling_y": jnp.sqrt(largest(lambda v: pull(push(in_y(v)))[0][n:], flat.n_y)),
        "mixed": jnp.sqrt(largest(lambda v: lower(in_y(lower(in_x(v))[n:]))[:n], n)),
        "gradient": jnp.linalg.norm(gradient(both)),
    }


def extreme_curvatures(hessian: Callable[[Array], Array], size: int) -> tuple[Array, Array]:
    """The eigenvalue of largest modulus, and the least one, which comes out a little too large."""
    most = jnp.abs(dominant_eigenvalue(hessian, size))
    return most, most - dominant_eigenvalue(lambda v: most * v - hessian(v), size)


def measure_size(problem: BilevelProblem, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> Size:
    """Slopes and curvatures at a point, by dense derivatives where these are small."""
    n, both = problem.flat.n_x, jnp.concatenate([jnp.asarray(x), jnp.asarray(y)])
    if both.size > LARGEST:
        estimates = jax.device_get(problem.flat.program(_estimates)(both))
        return Size(x=1.0 + float(np.linalg.norm(x)), **{name: float(value) for name, value in estimates.items()})
    found = problem.flat.program(_derivatives)(both)
    upper, hessian, mixed, jacobian, gradient = (np.asarray(part) for part in found)
    eigenvalues = np.linalg.eigvalsh(hessian)
    norm = lambda matrix: float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0  # noqa: E731
    return Size(
        lower=float(np.abs(eigenvalues).max()),
        lower_least=float(eigenvalues.min()),
        upper=norm(upper),
        coupling=norm(jacobian),
        coupling_y=norm(jacobian[:, n:]),
        mixed=norm(mixed),
        gradient=float(np.linalg.norm(gradient)),
        x=1.0 + float(np.linalg.norm(x)),
    )


# --- does a problem meet a method's demands? By evaluating its functions -------------------------------------------
def require(flat: FlatProblem, method: Method, x: AnyArray, y: AnyArray, seed: int = 0) -> None:
    """Refuse a problem outside the method's assumptions."""
    missing = [demand for demand in method.demands if not meets(flat, demand, x, y, seed)]
    if missing:
        raise MethodDoesNotApply(method.name, missing)


def meets(flat: FlatProblem, demand: Demand, x: AnyArray, y: AnyArray, seed: int = 0) -> bool:
    """Whether a problem meets a demand, as far as points around (x, y) tell."""
    match demand:
        case Demand.NO_INEQUALITY:
            return flat.n_inequality == 0
        case Demand.SOME_EQUALITY:
            return flat.n_equality > 0
        case Demand.NO_LEADER_CONSTRAINT:
            return flat.n_upper_inequality == 0
        case Demand.FREE_Y:
            bounded = np.isfinite(flat.y_set.bounds_flat()).any()
            return not bounded and flat.y_set.inequality_flat(y).size == flat.y_set.equality_flat(y).size == 0
    points = _points(flat, np.asarray(x), np.asarray(y), seed)
    if demand is Demand.CONVEX_LOWER:
        least, largest = (np.asarray(part) for part in flat.program(_lower_curvatures)(points[:, 0]))
        return bool((least >= -ROUNDING * (1.0 + largest)).all())
    if demand is Demand.AFFINE_IN_Y:
        slopes = np.asarray(flat.program(_equality_slopes)(points[:, 0]))
        return bool((np.abs(slopes - slopes[0]) <= ROUNDING * (1.0 + np.abs(slopes[0]).max(initial=0.0))).all())
    inequality, equality = (np.asarray(part) for part in flat.program(_above_chords)(points))
    bends = np.abs(inequality) if demand is Demand.AFFINE else inequality
    return bool((bends <= ROUNDING).all() and (np.abs(equality) <= ROUNDING).all())


def _lower_curvatures(
    flat: FlatProblem, points: Float[Array, "points both"]
) -> tuple[Float[Array, "points"], Float[Array, "points"]]:
    """The extreme curvatures of the lower objective over (x, y); none where it has no value."""
    n = flat.n_x
    if points.shape[1] > LARGEST:
        gradient = jax.grad(lambda z: flat.lower(z[:n], z[n:]))
        found = jax.lax.map(lambda z: extreme_curvatures(jax.linearize(gradient, z)[1], z.size), points)
        most, least = (jnp.nan_to_num(part, nan=0.0, posinf=0.0, neginf=0.0) for part in found)
        return least, most
    hessians = jax.vmap(jax.hessian(lambda z: flat.lower(z[:n], z[n:])))(points)
    known = jnp.isfinite(hessians).all(axis=(1, 2), keepdims=True)
    values = jnp.linalg.eigvalsh(jnp.where(known, hessians, 0.0))
    return values[:, 0], jnp.abs(values).max(axis=1)


def _equality_slopes(flat: FlatProblem, points: Float[Array, "points both"]) -> Float[Array, "points rows n_y"]:
    n = flat.n_x
    return jax.vmap(lambda z: jax.jacfwd(flat.equality, argnums=1)(z[:n], z[n:]))(points)


def _above_chords(
    flat: FlatProblem, points: Float[Array, "pairs two both"]
) -> tuple[Float[Array, "pairs inequalities"], Float[Array, "pairs equalities"]]:
    """How far the constraints in the middle of each pair are above the mean of its ends, relative to that mean."""
    n = flat.n_x

    def above(function: Callable[..., Array]) -> Array:
        values = jax.vmap(jax.vmap(lambda z: function(z[:n], z[n:])))
        middle, mean = values(points.mean(axis=1, keepdims=True))[:, 0], values(points).mean(axis=1)
        # Outside its domain a function tells nothing.
        known = jnp.isfinite(middle).all(axis=1, keepdims=True) & jnp.isfinite(mean)
        return jnp.where(known, (middle - mean) / (1.0 + jnp.abs(mean)), 0.0)

    return above(flat.inequality), above(flat.equality)


def _points(
    flat: FlatProblem, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"], seed: int
) -> Float[Array, "pairs two both"]:
    """Pairs of points of X x Y: near the start, and further away; a little inside, where a logarithm is finite."""
    scales = np.repeat([0.1, 1.0, 3.0], SAMPLES // 3)[:, None, None]
    noise = np.random.default_rng(seed).standard_normal((SAMPLES, 2, len(x) + len(y)))
    drawn = np.concatenate([x, y]) + scales * noise
    inside = np.concatenate([flat.x_set.interior_flat(), flat.y_set.interior_flat()])
    return 0.95 * flat.program(_members)(drawn) + 0.05 * inside


def _members(flat: FlatProblem, points: Float[Array, "pairs two both"]) -> Float[Array, "pairs two both"]:
    n = flat.n_x
    nearest = lambda z: jnp.concatenate([flat.x_set.project_flat(z[:n]), flat.y_set.project_flat(z[n:])])  # noqa: E731
    return jax.vmap(jax.vmap(nearest))(points)
