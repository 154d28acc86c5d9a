"""A Newton oracle without matrices, for large smooth followers: semismooth Newton steps by conjugate gradients.

For ``min phi(y)`` over y in Y, with Y known by its projection P, the answer is the zero of

    R(y) = y - P(y - tau grad phi(y)).

With H the Hessian of phi at y and D the derivative of P, which is symmetric with eigenvalues between 0 and 1, a Newton
step on R is ``d = -R + D s``, where s solves the symmetric system ``[D (I - D) + tau D H D] s = D (tau H R - R)``. For
a box D keeps the free coordinates, and this is the primal-dual active set method; for a ball D is the tangent space,
shrunk by what the multiplier of the ball adds to the Hessian. H and D are only applied to vectors, so that memory grows
like the number of variables. Conjugate gradients solve the system as accurately as the last step deserved (Eisenstat
and Walker, 1996): a quadratic phi is solved by one system.

With ``n = P(y + d - tau (grad phi + H d))``, which is y + d unless that has left Y, a step is taken to
``a n + (1 - a) P(y - tau grad phi)`` for the first of a = 1, 1/2, 1/4, ..., 0 at which phi is low enough. With
a = 0 that is a step of the projected gradient method, and where even that fails tau was too long. Where full steps fail
the Hessian is damped as well. P may also be the proximal operator of simple terms (:mod:`blocc.terms`). Those make most
entries of y zero, and the same steps are then taken among few entries at first (:mod:`blocc.inner.restriction`): those
that are not zero, and those that a step of the gradient method would move from there. Again, until it would move none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import AnyArray, Array
from blocc._lib.rounding import TINY
from blocc.errors import OptionError, ProblemError
from blocc.flat_problem import FlatProblem
from blocc.inner.adjoint import adjoint
from blocc.inner.augmented import MOST_ROWS, Prices, coupled_adjoint, solve_with_rows
from blocc.inner.conjugate_gradients import Scales, conjugate_gradients, scales_of
from blocc.inner.first_order import Assessment, is_unbounded, rays
from blocc.inner.protocol import Adjoint, InnerCode, InnerOracle, InnerSolution, finish
from blocc.inner.restriction import Restriction, few_places, most_places, restricted_to
from blocc.lagrangian import Weights, exactly, leader_value, objective, zero_multipliers

_FORCING = 0.1  #: largest relative residual of a Newton system
_ADJOINT = 1e2  #: the same of an adjoint system, in units of the accuracy of y, whose error it multiplies
_DECREASE = 1e-4  #: share of the decrease promised by a gradient step that a step must bring
_HALVINGS = 12  #: of a before the gradient step itself is tried
_ROUNDING = 1e-13  #: of phi, relative: smaller changes say nothing
_DAMPING = 1e-6, 1e-3  #: smallest and first, in units of the curvature
_PATIENCE = 4  #: steps in a row without a smaller residual, after which it is rounding
_ROUNDS = 20  #: of steps among few entries


class NewtonWarm(NamedTuple):
    """What the next, nearby solve starts from."""

    y: Array
    preconditioner: Array  #: positive; zeros while unknown
    curvature: Array  #: 1 / tau; zero while unknown
    forcing: Array  #: how accurately the first Newton system is worth solving
    price: Array  #: solution of the last adjoint system
    rows: Prices  #: multipliers of the coupled rows, and their weights: zero while unknown


class _Point(NamedTuple):
    """phi at one y, with how far that is from the minimum."""

    y: Array
    value: Array
    gradient: Array
    error: Array  #: how far the projected gradient leads, relative; infinite where something is not finite


class _State(NamedTuple):
    here: _Point
    best: _Point
    previous: Array  #: the y before
    curvature: Array
    forcing: Array
    first_forcing: Array  #: what the first step of this solve has asked of the next
    damping: Array  #: added to the Hessian: zero unless full steps have failed
    idle: Array  #: steps in a row that brought no better error
    iterations: Array
    products: Array
    concave: Array
    running: Array


class _Round(NamedTuple):
    here: _Point
    number: Array
    running: Array


class _Trial(NamedTuple):
    point: _Point
    share: Array  #: a
    tried: Array
    accepted: Array


@dataclass(frozen=True)
class NewtonCG(InnerOracle):
    """Newton's method by Hessian-vector products, for followers with few coupled constraints or none.

    It needs Y to know its projection: all sets of this package do. Time and memory are those of a few hundred
    gradients, whatever the number of variables. Up to 50 rows of ``inequality`` and ``equality`` enter by an augmented
    Lagrangian.

    :param max_iterations: Newton steps before the solve ends as stalled
    :param max_products: Hessian-vector products in one Newton step
    """

    differentiates = True

    max_iterations: int = 200
    max_products: int = 2000

    def __post_init__(self) -> None:
        for name in ("max_iterations", "max_products"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise OptionError(f"{name} must be a positive integer, got {getattr(self, name)!r}")

    def cold(self, flat: FlatProblem) -> NewtonWarm:
        """The middle of Y, and nothing known about the curvature."""
        count = flat.n_inequality + flat.n_equality
        if count > MOST_ROWS or (count and flat.prox is not None):
            raise ProblemError(
                f"the oracle 'newton-cg' is for followers with up to {MOST_ROWS} rows of inequality and equality, and "
                "without simple terms if there are any; use inner='auto' for this one"
            )
        middle = jnp.asarray(flat.y_set.interior_flat(), dtype=jnp.float64)
        rows = Prices(jnp.zeros(count), jnp.zeros(count))
        return NewtonWarm(middle, jnp.zeros(flat.n_y), jnp.zeros(()), jnp.asarray(_FORCING), jnp.zeros(flat.n_y), rows)

    def begin_at(self, flat: FlatProblem, y: AnyArray) -> NewtonWarm:
        """A start at ``y``, with nothing known about the curvature."""
        return self.cold(flat)._replace(y=jnp.asarray(y))

    def solve(self, flat: FlatProblem, x: Array, weights: Weights, warm: NewtonWarm, tolerance: Array) -> InnerSolution:
        """Solve at ``x`` until the projected gradient is below ``tolerance`` relative to its scale."""
        if flat.n_inequality + flat.n_equality:
            return solve_with_rows(self, flat, x, weights, warm, tolerance)
        first = flat.y_set.project_flat(warm.y)
        _, hessian = jax.linearize(_Smooth(flat, x, weights, jnp.ones(())).gradient, first)
        preconditioner, curvature = jax.lax.cond(
            warm.curvature <= 0.0,
            lambda: tuple(scales_of(hessian, flat.n_y)),
            lambda: (warm.preconditioner, warm.curvature),
        )
        curvature = jnp.where(jnp.isfinite(curvature) & (curvature > 0.0), curvature, 1.0)
        problem = _Smooth(flat, x, weights, curvature)
        start, spent = problem.at(first), jnp.asarray(0)
        if most_places(flat):
            start, spent = self._among_few(problem, preconditioner, start, tolerance)
        end = self._steps(problem, preconditioner, start, warm.forcing, tolerance)
        best = end.best
        code = jnp.where(best.error <= tolerance, int(InnerCode.CONVERGED), int(InnerCode.STALLED))
        code = jnp.where(jnp.isfinite(best.error), code, int(InnerCode.NOT_FINITE))
        falls = jax.lax.cond(
            code == InnerCode.STALLED, lambda: problem.unbounded_along(end.here, end.previous), lambda: False
        )
        code = jnp.where(falls, int(InnerCode.UNBOUNDED), code)
        back = NewtonWarm(best.y, preconditioner, end.curvature, end.first_forcing, warm.price, warm.rows)
        keep = jnp.isfinite(best.error)
        back = jax.tree.map(lambda new, old: jnp.where(keep, new, old), back, warm)
        return finish(
            flat,
            x,
            best.y,
            zero_multipliers(flat),
            weights,
            iterations=spent + end.products + end.iterations,
            code=code,
            warm=back,
            concave=end.concave,
        )

    def differentiate(
        self, flat: FlatProblem, x: Array, solution: InnerSolution, weights: Weights, tolerance: Array
    ) -> Adjoint:
        """The derivative of f(x, y(x)) by one adjoint system, with the preconditioner of the solve."""
        scales = Scales(solution.warm.preconditioner, solution.warm.curvature)

        def upper(x: Array, y: Array) -> Array:
            return leader_value(flat, x, y, weights)

        accuracy = jnp.maximum(_ADJOINT * tolerance, 1e-12)
        warm, y = solution.warm, jnp.asarray(solution.y)
        if flat.n_inequality + flat.n_equality:
            prices = solution.multipliers
            return coupled_adjoint(flat, x, y, prices, upper, scales, accuracy, self.max_products)._replace(warm=warm)
        found = adjoint(flat, x, y, upper, scales, accuracy, self.max_products, warm.price)
        price = jnp.where(found.regular, found.price, warm.price)
        return found._replace(warm=warm._replace(price=price))

    def _steps(
        self, problem: _Smooth, preconditioner: Array, start: _Point, forcing: Array, tolerance: Array
    ) -> _State:
        """Newton steps until the tolerance is reached, or nothing more can be."""
        number, running = jnp.asarray(0), jnp.isfinite(start.error) & (start.error > tolerance)
        still, no = jnp.zeros(()), jnp.asarray(False)
        state = _State(
            start, start, start.y, problem.unit, forcing, forcing, still, number, number, number, no, running
        )
        return jax.lax.while_loop(
            lambda s: s.running, lambda s: self._iterate(problem, preconditioner, s, tolerance), state
        )

    def _among_few(
        self, problem: _Smooth, preconditioner: Array, start: _Point, tolerance: Array
    ) -> tuple[_Point, Array]:
        """A point reached by steps among few entries, and in how many rounds."""
        flat, tau = problem.flat, 1.0 / problem.unit
        most = most_places(flat)

        def advance(r: _Round) -> _Round:
            y = r.here.y
            few = Restriction(few_places(y, problem.backward(y - tau * r.here.gradient, tau), most), flat.n_y)
            part = problem._replace(flat=restricted_to(flat, few))
            weights = jnp.where(few.places < few.size, few.take(preconditioner), 1.0)
            end = self._steps(part, weights, part.at(few.take(y)), jnp.asarray(_FORCING), 0.3 * tolerance)
            here = problem.at(few.put(end.best.y))
            better = (here.value < r.here.value) | (here.error < r.here.error)
            here = jax.tree.map(lambda new, old: jnp.where(better, new, old), here, r.here)
            running = better & (here.error > tolerance) & (r.number < _ROUNDS)
            return _Round(here, r.number + 1, running)

        sparse = jnp.sum(start.y != 0.0) <= most
        first = _Round(start, jnp.asarray(0), sparse & jnp.isfinite(start.error) & (start.error > tolerance))
        end = jax.lax.while_loop(lambda r: r.running, advance, first)
        return end.here, end.number

    def _iterate(self, problem: _Smooth, preconditioner: Array, s: _State, tolerance: Array) -> _State:
        """One Newton step."""
        here, tau = s.here, 1.0 / s.curvature
        forward = here.y - tau * here.gradient
        backward, derivative = jax.linearize(lambda v: problem.backward(v, tau), forward)
        residual = here.y - backward
        _, bend = jax.linearize(problem.gradient, here.y)

        def hessian(v: Array) -> Array:
            return bend(v) + s.damping * v

        def operator(v: Array) -> Array:
            kept = derivative(v)
            return kept + derivative(tau * hessian(kept) - kept)

        size = jnp.linalg.norm(residual)
        # What the tolerance asks for, with a margin: the error is measured by the largest entry.
        needed = 0.3 * tolerance / jnp.maximum(here.error, TINY)
        forcing = jnp.clip(s.forcing, needed, _FORCING)
        right = derivative(tau * hessian(residual) - residual)
        solved = conjugate_gradients(operator, right, preconditioner, forcing * size, self.max_products)
        direction = derivative(solved.solution) - residual
        direction = jnp.where(jnp.isfinite(direction).all(), direction, -residual)
        # With the slopes that the step leads to, entries that crossed a kink are caught on it, or not far beyond.
        newton = problem.backward(here.y + direction - tau * (here.gradient + hessian(direction)), tau)
        newton = newton if problem.flat.catch is None else problem.flat.catch(newton, backward)
        promised = _DECREASE * size**2 * s.curvature
        end = problem.search(here, newton, backward, promised)
        moved = problem.residual(end.point, tau)
        # How far the linear model was off tells how accurately the next system is worth solving.
        off = jnp.abs(moved - jnp.linalg.norm(solved.residual)) / jnp.maximum(size, TINY)
        forcing = jnp.where(end.accepted & (end.share >= 1.0), jnp.clip(off, 1e-14, _FORCING), _FORCING)
        point = jax.tree.map(lambda new, old: jnp.where(end.accepted, new, old), end.point, here)
        better = point.error < 0.9 * s.best.error
        best = jax.tree.map(lambda new, old: jnp.where(point.error < s.best.error, new, old), point, s.best)
        idle = jnp.where(better, 0, s.idle + 1)
        # Steps that bring phi down are progress as well, whatever the error does.
        idle = jnp.where(point.value < here.value - _ROUNDING * (1.0 + jnp.abs(here.value)), 0, idle)
        iterations = s.iterations + 1
        curvature = jnp.where(end.accepted & (end.share > 0.0), s.curvature, 4.0 * s.curvature)
        curvature = jnp.where(end.accepted & (end.share <= 0.0), s.curvature, curvature)
        damping = jnp.where(end.share >= 1.0, 0.05, jnp.where(end.share >= 0.5, 1.0, 4.0)) * s.damping
        damping = jnp.where(end.share < 0.5, jnp.maximum(damping, _DAMPING[1] * s.curvature), damping)
        damping = jnp.where(damping < _DAMPING[0] * s.curvature, 0.0, jnp.minimum(damping, s.curvature))
        patience = jnp.where(end.accepted, _PATIENCE, 4 * _PATIENCE)  # tau needs a few trials to become short enough
        return _State(
            point,
            best,
            here.y,
            curvature,
            forcing,
            jnp.where(s.iterations == 0, forcing, s.first_forcing),
            damping,
            idle,
            iterations,
            s.products + solved.products + 1,
            s.concave | solved.concave,
            (best.error > tolerance) & (idle < patience) & (iterations < self.max_iterations),
        )


class _Smooth(NamedTuple):
    """phi over Y at one x."""

    flat: FlatProblem
    x: Array
    weights: Weights
    unit: Array  #: a curvature to measure by, so that no number times phi loosens anything

    def backward(self, point: Array, length: Array | float) -> Array:
        """P, or its counterpart for phi with simple terms."""
        return self.flat.backward(self.x, point, length * self.weights.lower)

    def gradient(self, y: Array) -> Array:
        """Of phi."""
        return exactly(jax.grad(lambda v: objective(self.flat, self.x, v, self.weights))(y))

    def at(self, y: Array) -> _Point:
        """phi at a member of Y."""
        value, gradient = jax.value_and_grad(lambda v: objective(self.flat, self.x, v, self.weights))(y)
        gradient = exactly(gradient)
        largest = lambda vector: jnp.max(jnp.abs(vector), initial=0.0)  # noqa: E731
        step = lambda length: largest(y - self.backward(y - length * gradient, length))  # noqa: E731
        error = jnp.maximum(step(1.0) / (1.0 + largest(gradient)), step(1.0 / self.unit) / (1.0 + largest(y)))
        finite = jnp.isfinite(value) & jnp.isfinite(error)
        return _Point(y, value, gradient, jnp.where(finite, error, jnp.inf))

    def residual(self, point: _Point, tau: Array) -> Array:
        """The norm of R."""
        return jnp.linalg.norm(point.y - self.backward(point.y - tau * point.gradient, tau))

    def search(self, here: _Point, newton: Array, backward: Array, promised: Array) -> _Trial:
        """The first point between a Newton step and a gradient step that is low enough."""
        floor = _ROUNDING * (1.0 + jnp.abs(here.value))

        def attempt(trial: _Trial) -> _Trial:
            share = jnp.where(trial.tried >= _HALVINGS, 0.0, 0.5 ** trial.tried.astype(newton.dtype))
            point = self.at(share * newton + (1.0 - share) * backward)
            low = point.value <= here.value - promised
            # Where the promise is less than rounding, the gradient decides.
            unclear = (promised <= floor) & (point.value <= here.value + floor)
            accepted = jnp.isfinite(point.error) & (low | (unclear & (point.error < here.error)))
            return _Trial(point, share, trial.tried + 1, accepted)

        first = _Trial(here, jnp.ones(()), jnp.asarray(0), jnp.asarray(False))
        return jax.lax.while_loop(lambda t: ~t.accepted & (t.tried <= _HALVINGS), attempt, first)

    def unbounded_along(self, here: _Point, previous: Array) -> Array:
        """Whether phi falls at a steady slope in the direction of the last step, as far as the horizon."""
        nothing = jnp.zeros(0)
        ray = rays(self.flat, here.y, nothing, previous, nothing)
        end = here.y + ray.length * ray.y
        far = objective(self.flat, self.x, end, self.weights)
        near = Assessment(here.value, here.gradient, nothing, nothing, here.error)
        return is_unbounded(self.flat, here.y, ray, near, near._replace(value=far))
