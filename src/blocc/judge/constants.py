"""The constants that the paper's theorems speak of, measured on a problem: at x0, around it, and on the way down.

Everything is taken at points: the curvature of g, f and of gc times the multipliers in y, the norm of the coupled
constraints' Jacobian, the multipliers themselves, the curvature of the dual functions, and l_F, the largest change of
F_gamma's gradient for each unit of x. Where a function is not quadratic, a constant is the largest (or smallest) seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray
from blocc._lib.rounding import HALF_DIGITS, PLACED, TINY
from blocc.corners import FUNCTIONS, all_sides
from blocc.errors import ProblemError
from blocc.flat_problem import FlatProblem
from blocc.inner.choice import choose_oracles
from blocc.judge.failures import name_nonfinite
from blocc.judge.iterations import rows, split
from blocc.lagrangian import Weights, gradient_x, lagrangian, weights
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.penalty import Evaluation, no_upper_multipliers
from blocc.problem import BilevelProblem

SAMPLED = 5  #: members of X around x0, and of Y around an answer, at which constants are measured
ON_THE_WAY = 8  #: points of the descent
STEPS_DOWN = 200  #: of the descent from x0 along which constants are measured, at most
LARGEST = 2_000  #: variables below: Hessians in y are dense
ACCURATE = 1e-11  #: tolerance of answers that others are compared with
_TOUCHING = 1e-8  #: slack below which a constraint is named among those that hold y
_NAMED = 6  #: dependent rows that a message lists
MANTISSA = 52  #: halvings of a segment after which its ends are neighbouring numbers
_APART = 1e-4  #: how far apart gradients are compared, relative to x


class Side(NamedTuple):
    """What Algorithm 2 meets on one of the two Lagrangians, L_g or L_F."""

    modulus: float  #: strong convexity in y: alpha_g, or that of f + gamma g
    smoothness: float  #: largest curvature in y, gc times the multipliers included
    jacobian: float  #: norm of the coupled constraints' Jacobian in y: l_gc,0
    multipliers: float  #: largest norm of the multipliers: B_g or B_F
    dual_convexity: float  #: C_delta, of the dual function around its maximiser; infinite without coupled constraints
    cross: float  #: largest change of the derivative in x for each unit of (y, multipliers)
    reach: float  #: largest distance of the answer to the middle of Y, where Algorithm 2 begins

    @property
    def dual_smoothness(self) -> float:
        """l_D of the dual function: l_gc,0^2 / modulus."""
        return self.jacobian**2 / self.modulus


@dataclass(frozen=True)
class Constants:
    """Constants of a problem at one gamma, the largest (of ``strong_convexity`` the smallest) at all points."""

    gamma: float
    strong_convexity: float  #: alpha_g
    slope: float  #: l_f,0: of f in y, at the follower's answers
    curvature: float  #: l_f,1: of f in y
    smoothness: float  #: l_F, of the gradient of F_gamma
    decrease: float  #: F_gamma(x0) less the smallest value seen
    follower: Side  #: of L_g
    penalised: Side  #: of L_F

    def distance(self, gamma: float) -> float:
        """A bound of |yF - yg|: (gamma alpha_g - l_f,1) |yF - yg| <= l_f,0 by the two optimality conditions."""
        modulus = gamma * self.strong_convexity - self.curvature
        return self.slope / modulus if modulus > 0.0 else np.inf

    def hidden(self, gamma: float) -> float:
        """A bound of f(x, yg) - F_gamma(x): l_f,0^2 / (2 (gamma alpha_g - l_f,1)), by strong convexity."""
        return 0.5 * self.slope * self.distance(gamma)


class Point(NamedTuple):
    """An x with both answers there, and their multipliers in one vector each."""

    x: Float[NDArray, "n_x"]
    found: Evaluation

    def answer(self, penalised: bool) -> tuple[NDArray, NDArray]:
        """(y, multipliers) of L_F or of L_g."""
        side = self.found.penalised if penalised else self.found.follower
        return np.asarray(side.y), np.concatenate([np.asarray(part).ravel() for part in side.multipliers])


class Measurement:
    """Measures constants of a problem around ``x``; every answer is solved to :data:`ACCURATE`."""

    def __init__(self, problem: BilevelProblem, x: Float[NDArray, "n_x"], seed: int) -> None:
        self.flat, self.seed = problem.flat, seed
        if self.flat.prox is not None:
            raise ProblemError("the theorems need a smooth lower level, and this one has simple terms")
        if self.flat.n_upper_inequality:
            raise ProblemError(
                "the theorems know no constraint of the leader but x_set, and this problem has upper_inequality: state "
                "what depends on x alone in x_set; solve() takes upper_inequality and needs no such numbers"
            )
        if self.flat.n_y > LARGEST:
            raise ProblemError(f"constants are measured up to {LARGEST:,} variables below, and y has {self.flat.n_y:,}")
        self.function = Evaluator(self.flat, choose_oracles(problem, "auto"), Monitor(problem.x_set.unravel), seed)
        generator = np.random.default_rng(seed)
        sampled = [self.flat.x_set.sample_flat(generator) for _ in range(SAMPLED)]
        self.start = np.asarray(self.function.project(x))
        self.around = [np.asarray(self.function.project(0.5 * (x + point))) for point in sampled]
        self.middle = np.asarray(self.flat.y_set.interior_flat())
        self._local, self._dual = self.flat.program(_local), self.flat.program(_dual_parts)

    def at(self, x: Float[NDArray, "n_x"], gamma: float) -> Point | None:
        """Both answers at ``x``; None where the follower has none."""
        found = self.function(x, gamma, no_upper_multipliers(self.flat), ACCURATE)
        return Point(np.asarray(x), found) if found.usable else None

    def around_start(self, gamma: float = 1.0) -> list[Point]:
        """x0, and members of X around it."""
        beside = self._beside(self.middle, 1.0 + float(np.linalg.norm(self.middle)))
        self._refuse_kinks([(x, y) for x in (self.start, *self.around) for y in beside])  # before any answer is asked
        start = self.at(self.start, gamma)
        if start is None:
            if cause := name_nonfinite(self.flat, self.start, self.middle):
                raise ProblemError(f"x0 must be a point at which all functions are smooth, but there {cause}")
            raise ProblemError("x0 must be a point at which the follower has an answer; none was found there")
        return [start, *(point for x in self.around if (point := self.at(x, gamma)) is not None)]

    def points(self, gamma: float) -> list[Point]:
        """The same, and the way down from x0 at this gamma."""
        found = self.around_start(gamma)
        way = self.descend(found[0], gamma)
        chosen = np.unique(np.linspace(0, len(way) - 1, ON_THE_WAY).astype(int))
        found += [way[place] for place in chosen if place > 0]
        self._refuse_kinks([(point.x, y) for point in found for y in self._beside(point.answer(False)[0], 0.0)])
        return found

    def descend(self, start: Point, gamma: float) -> list[Point]:
        """Projected gradient steps on F_gamma whose length is doubled, and halved where they do not pay."""
        way, step = [start], 1.0
        for _ in range(STEPS_DOWN):
            here, tried = way[-1], None
            slope, value = np.asarray(here.found.gradient), float(here.found.value)
            while step > 1e-12:
                x = np.asarray(self.function.project(here.x - step * slope))
                moved = float(np.linalg.norm(x - here.x))
                if moved <= PLACED * (1.0 + float(np.linalg.norm(x))):
                    return way
                tried = self.at(x, gamma)
                if tried is not None and float(tried.found.value) <= value - 0.25 * moved**2 / step:
                    break
                step, tried = 0.5 * step, None
            if tried is None:
                return way
            way.append(tried)
            step *= 2.0
        return way

    def _refuse_kinks(self, places: list[tuple[NDArray, NDArray]]) -> None:
        """No derivative may jump between the first of these (x, y) and the others.

        Next to a kink all curvatures are finite, and the l_f,1 and l_g,1 of the theorems are not. Where the argument of
        an ``abs`` or the like changes its sign, the derivative is compared on both sides: that of a squared hinge is
        continuous, and counts as smooth.
        """
        generator = np.random.default_rng(self.seed)
        for name in FUNCTIONS:
            sides = self.flat.program(all_sides, name)
            signs = [np.sign(sides(*place)) for place in places]
            for place, sign in zip(places, signs, strict=True):
                if len(changed := np.flatnonzero(sign != signs[0])):
                    entry = generator.choice(changed)
                    if bool(self.flat.program(_jumps, name)(*places[0], *place, entry)):
                        raise ProblemError(
                            f"the theorems need gradients that are Lipschitz continuous, and that of {name} jumps at a "
                            "kink (abs, maximum, minimum, where, or the largest entry of an array) near x0: replace "
                            "the kink by a smooth function; solve() takes kinks and needs no such numbers"
                        )

    @property
    def is_affine(self) -> bool:
        """Whether gc is affine in y, as far as its curvature around x0 tells, and Y is the whole space."""
        far = 1e6 * (1.0 + np.abs(self.middle))
        free = all(np.array_equal(self.flat.y_set.project_flat(jnp.asarray(y)), y) for y in (far, -far))
        places = self._beside(self.middle, 1.0)
        return free and not any(float(self.flat.program(_bend)(self.start, y)) > 0.0 for y in places)

    def slopes(self, points: list[Point]) -> tuple[float, float, float]:
        """alpha_g, l_f,0 and l_f,1 at the answers of these points, and around them."""
        least, steepest, bent = np.inf, 0.0, 0.0
        for point in points:
            y, mu = point.answer(False)
            for place in self._beside(y, 0.0):
                seen = self._local(point.x, place, mu, mu, weights(self.flat))
                least, bent = min(least, float(seen.low)), max(bent, float(seen.bent))
            steepest = max(steepest, float(self._local(point.x, y, mu, mu, weights(self.flat)).steep))
        return least, steepest, bent

    def constants(self, gamma: float, points: list[Point]) -> Constants:
        """All constants at these points, which are answers at this gamma."""
        least, steepest, bent = self.slopes(points)
        values = [float(point.found.value) for point in points]
        smoothness = max(smoothness_at(self.function, [point.x for point in points], gamma, self.seed)[0], 1e-12)
        slope = float(np.linalg.norm(points[0].found.gradient))
        return Constants(
            gamma=gamma,
            strong_convexity=least,
            slope=steepest,
            curvature=bent,
            smoothness=smoothness,
            decrease=max(values[0] - min(values), slope**2 / (2.0 * smoothness), 1e-12),
            follower=self._side(points, False, gamma),
            penalised=self._side(points, True, gamma),
        )

    def weights(self, penalised: bool, gamma: float) -> Weights:
        """Those of L_F, or of L_g."""
        return weights(self.flat, 1.0, gamma) if penalised else weights(self.flat)

    def _side(self, points: list[Point], penalised: bool, gamma: float) -> Side:
        w, found = self.weights(penalised, gamma), []
        for point in points:
            y, mu = point.answer(penalised)
            # From zero the multipliers of Algorithm 2 stay as close to the answer's as zero is: each may double.
            most = np.where(np.arange(mu.size) < self.flat.n_inequality, np.maximum(mu, 0.0) + np.linalg.norm(mu), mu)
            first = self._local(point.x, y, mu, most, w)
            modulus, norm = float(first.low), float(first.jacobian)
            radius = norm * float(np.linalg.norm(mu)) / max(modulus, TINY)  # |y(mu) - y(mu*)| for every such mu
            seen = [first, *(self._local(point.x, place, mu, most, w) for place in self._beside(y, radius))]
            least = min(float(one.low) for one in seen)
            found.append(
                Side(
                    modulus=least,
                    smoothness=max(float(one.high) for one in seen),
                    jacobian=max(float(one.jacobian) for one in seen),
                    multipliers=float(np.linalg.norm(mu)),
                    dual_convexity=self._dual_convexity(point.x, y, mu, w),
                    cross=float(first.cross),
                    reach=float(np.linalg.norm(y - self.middle)),
                )
            )
        smallest = ("modulus", "dual_convexity")
        return Side(**{n: (min if n in smallest else max)(getattr(one, n) for one in found) for n in Side._fields})

    def _beside(self, y: NDArray, radius: float) -> list[NDArray]:
        """The middle of Y, and members of Y as far from ``y`` as Algorithm 2 may go."""
        generator, size = np.random.default_rng(self.seed), max(radius, float(np.linalg.norm(y - self.middle)))
        away = generator.standard_normal((SAMPLED, y.size))
        away *= (size * generator.uniform(size=(SAMPLED, 1))) / np.linalg.norm(away, axis=1, keepdims=True)
        return [y, self.middle, *(np.asarray(self.flat.y_set.project_flat(jnp.asarray(y + one))) for one in away)]

    def _dual_convexity(self, x: NDArray, y: NDArray, mu: NDArray, w: Weights) -> float:
        """C with D* - D(mu) >= C/2 |mu - mu*|^2 around mu*.

        On rows that hold y the dual function has the curvature J H^-1 J', H that of the Lagrangian in the variables off
        the bounds of Y; a row with slack s loses s mu, which is more than C/2 mu^2 up to mu = 2 s / C. Rows are taken
        to the first kind by the size of their slack, as many as give the largest C.
        """
        if mu.size == 0:
            return np.inf
        hessian, jacobian, values, free = (np.asarray(part) for part in self._dual(x, y, mu, w))
        held = np.arange(mu.size) >= self.flat.n_inequality
        slack = np.where(held, 0.0, np.maximum(-values, 0.0))
        inner = jacobian[:, free] @ np.linalg.solve(hessian[np.ix_(free, free)], jacobian[:, free].T)
        scale = np.sqrt(np.diag(inner))
        scale = np.where(scale > 0.0, scale, 1.0)
        cosines = inner / np.outer(scale, scale)  # the same for constraints in other units
        if jacobian.any() and _least_curvature(cosines, slack / scale, mu * scale, held) <= ACCURATE:
            raise ProblemError(_dependence(self.flat, x, cosines, held | (mu > slack) | (slack <= _TOUCHING * scale)))
        return _least_curvature(inner, slack, mu, held)


def _least_curvature(inner: NDArray, slack: NDArray, mu: NDArray, held: NDArray) -> float:
    """The largest C of all divisions of the rows into those that hold y, by their slack, and the others."""
    order, size = np.argsort(slack, kind="stable"), max(float(np.linalg.norm(mu)), TINY)
    first = int((held | (mu > slack)).sum())
    return max(
        min(
            float(np.linalg.eigvalsh(inner[np.ix_(order[:k], order[:k])]).min(initial=np.inf)),
            2.0 * float(slack[order[k:]].min(initial=np.inf)) / size,
        )
        for k in range(first, mu.size + 1)
    )


def _dependence(flat: FlatProblem, x: NDArray, cosines: NDArray, active: NDArray) -> str:
    """What to tell of rows that hold y, and whose gradients are dependent at ``x``."""
    places = np.flatnonzero(active)
    shares = np.abs(np.linalg.eigh(cosines[np.ix_(places, places)])[1][:, 0])
    named = [
        f"inequality[{k}]" if k < flat.n_inequality else f"equality[{k - flat.n_inequality}]"
        for k in places[shares > 1e-3]
    ]
    more = ", ..." if len(named) > _NAMED else ""
    return (
        "the theorems need independent gradients of the constraints that hold the follower (LICQ), and those of "
        f"{', '.join(named[:_NAMED])}{more} are linearly dependent, bounds of y_set included, at x = "
        f"{np.array2string(x, precision=3, threshold=6)}: leave out rows that others imply; solve() needs no such "
        "numbers"
    )


class _Seen(NamedTuple):
    low: Array
    high: Array
    bent: Array
    steep: Array
    jacobian: Array
    cross: Array


def _local(flat: FlatProblem, x: AnyArray, y: AnyArray, mu: AnyArray, most: AnyArray, w: Weights) -> _Seen:
    """Curvatures of s f + gamma g alone and with the largest multipliers, of f; slopes; norms of Jacobians."""
    zero = split(flat, jnp.zeros_like(mu))
    bends = lambda prices: jnp.linalg.eigvalsh(jax.hessian(lambda z: lagrangian(flat, x, z, prices, w))(y))  # noqa: E731
    upper = jnp.linalg.eigvalsh(jax.hessian(lambda z: flat.upper(x, z))(y))
    sideways = jax.jacrev(lambda z, m: gradient_x(flat, x, z, split(flat, m), w), argnums=(0, 1))(y, mu)
    norm = lambda matrix: jnp.linalg.norm(matrix, 2) if matrix.size else jnp.zeros(())  # noqa: E731
    return _Seen(
        low=bends(zero)[0],
        high=bends(split(flat, most))[-1],
        bent=jnp.max(jnp.abs(upper)),
        steep=jnp.linalg.norm(jax.grad(lambda z: flat.upper(x, z))(y)),
        jacobian=norm(jax.jacrev(lambda z: rows(flat, x, z))(y)),
        cross=norm(jnp.concatenate(sideways, axis=1)),
    )


def _jumps(
    flat: FlatProblem, name: str, x: AnyArray, y: AnyArray, other_x: AnyArray, other_y: AnyArray, entry: Array
) -> Array:
    """Whether the derivative along a segment jumps where the side of a kink changes its sign, found by bisection."""
    at = lambda t: (x + t * (other_x - x), y + t * (other_y - y))  # noqa: E731
    sign = lambda t: jnp.sign(all_sides(flat, name, *at(t))[entry])  # noqa: E731
    begins = sign(jnp.asarray(0.0))

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        before = sign(middle) == begins
        return jnp.where(before, middle, ends[0]), jnp.where(before, ends[1], middle)

    ends = jax.lax.fori_loop(0, MANTISSA, halve, (jnp.asarray(0.0), jnp.asarray(1.0)))
    slope = lambda t: jax.jvp(lambda t: getattr(flat, name)(*at(t)), (t,), (jnp.ones(()),))[1]  # noqa: E731
    before, after, *others = (slope(t) for t in (*ends, jnp.asarray(0.0), jnp.asarray(1.0)))
    size = sum(jnp.abs(one) for one in (before, after, *others))  # next to the kink alone both may be rounding
    return jnp.max(jnp.abs(after - before)) > HALF_DIGITS * jnp.max(size)


def _bend(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Array:
    """The largest second derivative of any coupled constraint in y."""
    second = jax.hessian(lambda z: rows(flat, x, z))(y)
    return jnp.max(jnp.abs(second), initial=0.0)


def _dual_parts(flat: FlatProblem, x: AnyArray, y: AnyArray, mu: AnyArray, w: Weights) -> Any:
    """The Lagrangian's Hessian in y, the constraints' Jacobian and values, and which variables are off their bounds."""
    hessian = jax.hessian(lambda z: lagrangian(flat, x, z, split(flat, mu), w))(y)
    length = 1e-6 * (1.0 + jnp.max(jnp.abs(y)))
    moved = lambda sign: jax.vmap(  # noqa: E731
        lambda e: jnp.dot(e, flat.y_set.project_flat(y + sign * length * e) - y) * sign
    )(jnp.eye(flat.n_y))
    free = (moved(1.0) > 0.5 * length) & (moved(-1.0) > 0.5 * length)
    return hessian, jax.jacrev(lambda z: rows(flat, x, z))(y), rows(flat, x, y), free


def smoothness_at(
    function: Evaluator, points: list[Float[NDArray, "n_x"]], gamma: float, seed: int = 0
) -> tuple[float, list[Evaluation]]:
    """l_F: the largest ratio of a difference of gradients of F_gamma to that of points, and the evaluations.

    At every point the direction turns towards that in which the gradient changes most, as in power iterations.
    """
    generator, leader, largest, seen = np.random.default_rng(seed), no_upper_multipliers(function.flat), 0.0, []
    for point in points:
        here = function(point, gamma, leader, ACCURATE)
        if not here.usable:
            continue
        seen.append(here)
        size = _APART * (1.0 + float(np.abs(point).max(initial=0.0)))
        direction = generator.standard_normal(point.size)
        for _ in range(3):
            length = float(np.linalg.norm(direction))
            if length == 0.0:
                break
            beside = function.project(point + size * direction / length)
            away = float(np.linalg.norm(beside - point))
            there = function(beside, gamma, leader, ACCURATE)
            if away < 0.1 * size or not there.usable:
                direction = -direction
                continue
            change = np.asarray(there.gradient) - np.asarray(here.gradient)
            largest = max(largest, float(np.linalg.norm(change)) / away)
            direction = change
    return largest, seen
