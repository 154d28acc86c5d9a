"""F_gamma by sampled gradients: one loop, first-order, with multipliers of the follower's constraints.

F_gamma(x) is the difference of two inner values: min over y in Y of f + gamma g + <mu, gc> + <nu, h>, and gamma times
the same with g alone. Each step moves everything once, on one batch of the data. With the multipliers m of the first
Lagrangian divided by gamma, so that both are of one size, and c = (gc, h):

    z <- P_Y(z - eta_k (d_y g(x, z) + m_z c'(x, z)))                               the follower, yg
    y <- P_Y(y - eta_k (d_y f(x, y) / gamma_k + d_y g(x, y) + m_y c'(x, y)))       penalised, yF
    m <- [m + beta_k (2 c(x, new) - c(x, old))], clipped at 0 for inequalities, for (z, m_z) and (y, m_y)
    x <- P_X(x - alpha_k (d_x f(x, y) + gamma_k (d_x (g + m_y c)(x, y) - d_x (g + m_z c)(x, z))))

all derivatives at the old points. Both Lagrangians see the same batch, so that gamma multiplies a difference, whose
noise shrinks with y - z. Without constraints this is F2SA (Kwon, Kwon, Wright, Nowak, ICML 2023) in the simultaneous
order of SOBA (Dagreou, Ablin, Vaiter, Moreau, NeurIPS 2022); the steps of (y, m) are those of Condat (2013) and Vu
(2013), who show that 1 / eta - beta |c'|^2 >= L / 2 is enough. gamma grows with the epochs e = 1, 2, ... by the
exponent 1/3 of F2SA without noise, for the reason just given. Where batches are drawn, alpha, eta and beta fall
linearly to zero over the run, the schedule that is best for the last point (Zamani and Glineur 2023; Defazio et al.
2023); with all data in every step they stay. F2CSA (Kornowski et al., 2024) is the same idea for linear constraints,
with an inner loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, NDArray
from blocc._lib.tracing import trace
from blocc.errors import OptionError
from blocc.flat_problem import FlatProblem
from blocc.judge.convexity import JensenTest
from blocc.judge.curvature import bends_down
from blocc.lagrangian import Multipliers as Rows
from blocc.lagrangian import Residuals, Weights, gradient_x, residuals, weights
from blocc.methods.base import (
    Counter,
    Demand,
    Iterate,
    Multipliers,
    Numbers,
    Scalar,
    Size,
    VectorX,
    VectorY,
    constraints,
    implicit_length,
    least_curvature,
    positive_part,
)
from blocc.methods.execute import MethodRun
from blocc.methods.sampled import Sampled, over_batches
from blocc.result import HistoryRow, Result

#: What an optimiser may be given for, and the length that it takes the place of.
MOVED = {"x": "alpha", "y": "eta", "multipliers": "beta"}
_GROWTH = 1 / 3  #: exponent by which gamma grows with the epochs in F2SA without noise
_POWERS = 20  #: iterations of the power method; ten show a norm within a few per cent (Kuczynski, Wozniakowski 1992)


class StochasticState(NamedTuple):
    """Both levels' variables, the multipliers of both Lagrangians, and what the optimisers carry."""

    x: VectorX
    y: VectorY  #: penalised, yF
    z: VectorY  #: the follower's, yg
    prices_y: Multipliers  #: divided by gamma
    prices_z: Multipliers
    carried: tuple[Any, ...]  #: of x, y, z, prices_y, prices_z


@dataclass(frozen=True)
class Stochastic(Sampled):
    """Single-loop primal-dual penalty method with sampled gradients.

    :param optimisers: for "x", "y" (both Lagrangians) and "multipliers": an ``optax`` optimiser, which takes the place
        of alpha, eta or beta, or a number, the learning rate of ``optax.adam``. Where one is left out, gradient steps
        are made, as long as curvatures at the start allow

    To cite:

        @inproceedings{kwon2023fully,
          title = {A Fully First-Order Method for Stochastic Bilevel Optimization},
          author = {Kwon, Jeongyeol and Kwon, Dohyun and Wright, Stephen and Nowak, Robert},
          booktitle = {International Conference on Machine Learning}, year = {2023}}
    """

    optimisers: Any = ()

    name = "stochastic"
    title = "F_gamma by sampled gradients (after F2SA: Kwon, Kwon, Wright, Nowak, ICML 2023)"
    demands = (Demand.NO_LEADER_CONSTRAINT,)
    names = ("alpha", "eta", "beta", "gamma", "growth", "horizon")
    lengths = ("alpha", "eta", "beta")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.optimisers, (Mapping, tuple)):
            raise OptionError(f"optimisers must be a dictionary of {', '.join(MOVED)}, got {self.optimisers!r}")
        found = dict(self.optimisers)
        for name, given in found.items():
            if name not in MOVED:
                raise OptionError(f"optimisers are for {', '.join(map(repr, MOVED))}, got {name!r}")
            if MOVED[name] in self.given:
                raise OptionError(f"give either {MOVED[name]} or the optimiser of {name!r}, not both")
            _optimiser(name, given)
        object.__setattr__(self, "optimisers", tuple(sorted(found.items())))

    @property
    def described(self) -> dict[str, Any]:
        """The optimisers by the program of an update."""
        three = np.ones(3)
        made = {name: _optimiser(name, given) for name, given in self.optimisers}
        programs = {
            name: trace(lambda g, one=one: one.update(g, one.init(g), g)[0], three) for name, one in made.items()
        }
        return {**super().described, "optimisers": {name: found.digest for name, found in programs.items()}}

    @property
    def calls(self) -> int:
        """At y and at z, on a batch each."""
        return 2

    # --- numbers -----------------------------------------------------------------------------------------------------
    def settings(self, run: MethodRun, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> list[dict[str, float]]:
        """Nothing is measured where optimisers and numbers leave nothing open."""
        replaced = {MOVED[name]: 0.0 for name, _ in self.optimisers}
        rows = run.flat.n_inequality + run.flat.n_equality
        horizon = float(self.limit(run)) if self.is_sampled else 0.0
        fixed = {**replaced, "growth": _GROWTH, "horizon": horizon, **self.given}
        if rows == 0:
            fixed.setdefault("beta", 0.0)
        if set(self.names) <= set(fixed):
            return [fixed]
        found = run.flat.program(_size, self.plan)(np.asarray(self.traced["seed"]), x, y)
        return [{**self.automatic(Size(*(float(part) for part in found)))[0], **fixed}]

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """Lengths by the curvatures; x moves as much slower as the follower's flattest direction contracts slowly."""
        gamma = max(1.0, 2.0 * size.upper / least_curvature(size))
        eta = 1.0 / (size.lower + size.upper / gamma)
        return [
            {
                "alpha": min(1.0, eta * least_curvature(size)) * implicit_length(size),
                "eta": eta,
                "beta": 0.5 / (eta * max(size.coupling_y, 1e-3) ** 2),
                "gamma": gamma,
                **self.given,
            }
        ]

    def now(self, numbers: Numbers, k: Counter) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """alpha, eta, beta and gamma at step k."""
        epoch, horizon = 1.0 + jnp.asarray(k // self.period, self.kind), numbers["horizon"]
        left = jnp.where(
            horizon > 0.0, jnp.maximum(1.0 - jnp.asarray(k, self.kind) / jnp.maximum(horizon, 1.0), 0.0), 1.0
        )
        alpha, eta, beta = (numbers[name] * left for name in self.lengths)
        return alpha, eta, beta, numbers["gamma"] * epoch ** numbers["growth"]

    # --- the iteration -----------------------------------------------------------------------------------------------
    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> StochasticState:
        """z = y, no multipliers."""
        none = jnp.zeros(flat.n_inequality + flat.n_equality)
        made = {name: _optimiser(name, given) for name, given in self.optimisers}
        points = zip(("x", "y", "y", "multipliers", "multipliers"), (x, y, y, none, none), strict=True)
        carried = tuple(made[name].init(point.astype(self.kind)) if name in made else () for name, point in points)
        return StochasticState(x, y, y, none, none, carried)

    def step(
        self, flat: FlatProblem, numbers: Numbers, state: StochasticState, k: Counter, key: Array | None = None
    ) -> StochasticState:
        """Everything at once, on one batch."""
        x, y, z, prices_y, prices_z, (of_x, of_y, of_z, of_prices_y, of_prices_z) = state
        alpha, eta, beta, gamma = self.now(numbers, k)

        def penalised(a: VectorX, b: VectorY) -> tuple[Scalar, Multipliers]:
            rows = constraints(flat, a, b)
            return flat.upper(a, b) / gamma + flat.lower(a, b) + prices_y @ rows, rows

        def follower(a: VectorX, b: VectorY) -> tuple[Scalar, Multipliers]:
            rows = constraints(flat, a, b)
            return flat.lower(a, b) + prices_z @ rows, rows

        (first_x, first_y), rows_y = jax.grad(penalised, argnums=(0, 1), has_aux=True)(x, y)
        (second_x, second_z), rows_z = jax.grad(follower, argnums=(0, 1), has_aux=True)(x, z)
        new_y, of_y = self._moved("y", eta, first_y, of_y, y)
        new_z, of_z = self._moved("y", eta, second_z, of_z, z)
        new_y, new_z = flat.y_set.project_flat(new_y), flat.y_set.project_flat(new_z)
        if rows_y.size:
            rise_y, rise_z = (2.0 * constraints(flat, x, new) - old for new, old in ((new_y, rows_y), (new_z, rows_z)))
            prices_y, of_prices_y = self._moved("multipliers", beta, -rise_y, of_prices_y, prices_y)
            prices_z, of_prices_z = self._moved("multipliers", beta, -rise_z, of_prices_z, prices_z)
            prices_y, prices_z = positive_part(flat, prices_y), positive_part(flat, prices_z)
        new_x, of_x = self._moved("x", alpha, gamma * (first_x - second_x), of_x, x)
        carried = (of_x, of_y, of_z, of_prices_y, of_prices_z)
        return StochasticState(flat.x_set.project_flat(new_x), new_y, new_z, prices_y, prices_z, carried)

    def _moved(self, name: str, length: Scalar, slope: Array, carried: Any, point: Array) -> tuple[Array, Any]:
        given = dict(self.optimisers)
        if name not in given:
            return point - length * slope, carried
        change, carried = _optimiser(name, given[name]).update(slope, carried, point)
        return point + change, carried

    # --- what all data say -------------------------------------------------------------------------------------------
    def figures(self, run: MethodRun) -> StochasticFigures:
        """Both levels' residuals at the run's state, on all data and in double precision."""
        if run.known is None or run.known[0] != run.iterations:
            gamma = self.now(run.numbers, max(run.iterations - 1, 0))[3]
            points = [np.asarray(part, np.float64) for part in run.state[:5]]
            run.known = run.iterations, run.flat.program(_figures)(np.asarray(gamma, np.float64), *points)
        found: StochasticFigures = run.known[1]
        return found

    def row(self, run: MethodRun, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"], step: float) -> HistoryRow:
        """Both levels' residuals on all data; the lower level is not solved for it."""
        found = self.figures(run)
        return HistoryRow(
            time=run.monitor.elapsed(),
            gamma=float(found.gamma),
            upper_value=float(found.upper_follower),
            upper_value_penalty=float(found.upper_penalised),
            lower_value=float(found.lower),
            penalty_value=float(found.upper_follower - found.gap),
            stationarity=float(found.stationarity),
            inner_residual=float(max(np.max(np.stack(found.follower)), np.max(np.stack(found.penalised)))),
            distance=float(found.distance),
            step=step,
            evaluations=run.calls,
        )

    def settled(self, run: MethodRun, before: Iterate, now: Iterate) -> bool:
        """Whether all residuals on all data, and what the penalty hides, are below a hundredth of the tolerance."""
        return self.figures(run).worst <= 1e-2 * run.options.tolerance

    def conclude(self, run: MethodRun, end: Iterate, stop: Any) -> Result:
        """Judged as every answer is where the follower is convex; its own status where it is not."""
        from blocc.methods.stationary import stationary_result

        if run.state is not None and not run.diverged:
            z = np.asarray(run.state.z, np.float64)
            rules = JensenTest(run.flat, run.options.seed)(end[0], z)
            if rules.failure() is not None or bends_down(run.flat, end[0], [z, self.start_y(run.flat)]):
                return stationary_result(run, self.figures(run), stop)
        return super().conclude(run, end, stop)


class StochasticFigures(NamedTuple):
    """Both Lagrangians at one state, on all data."""

    gamma: Scalar
    follower: Residuals  #: of z, for L_g
    penalised: Residuals  #: of y, for L_F / gamma
    stationarity: Scalar  #: ``||x - P_X(x - grad F)||_inf``
    upper_follower: Scalar
    upper_penalised: Scalar
    lower: Scalar
    gap: Scalar  #: f(x, z) - F_gamma
    distance: Scalar
    size: Scalar  #: 1 + the largest entry of y and z

    @property
    def worst(self) -> float:
        """The largest of all, relative to the sizes of y and of f."""
        lower = max(float(np.max(np.stack(part))) for part in (self.follower, self.penalised)) / float(self.size)
        upper = max(float(self.stationarity), abs(float(self.gap))) / (1.0 + abs(float(self.upper_follower)))
        return max(lower, upper)


def _figures(
    flat: FlatProblem,
    gamma: Scalar,
    x: VectorX,
    y: VectorY,
    z: VectorY,
    prices_y: Multipliers,
    prices_z: Multipliers,
) -> StochasticFigures:
    at_y, at_z = (Rows(prices[: flat.n_inequality], prices[flat.n_inequality :]) for prices in (prices_y, prices_z))
    plain = weights(flat)
    both = Weights(1.0 / gamma, jnp.ones(()), *plain[2:])
    slope = gamma * (gradient_x(flat, x, y, at_y, both) - gradient_x(flat, x, z, at_z, plain))
    upper_y, upper_z, lower_y, lower_z = flat.upper(x, y), flat.upper(x, z), flat.lower(x, y), flat.lower(x, z)
    largest = lambda vector: jnp.max(jnp.abs(vector))  # noqa: E731
    return StochasticFigures(
        gamma,
        residuals(flat, x, z, at_z, plain),
        residuals(flat, x, y, at_y, both),
        largest(x - flat.x_set.project_flat(x - slope)),
        upper_z,
        upper_y,
        lower_z,
        upper_z - upper_y - gamma * (lower_y - lower_z),
        jnp.linalg.norm(y - z),
        1.0 + jnp.maximum(largest(y), largest(z)),
    )


def _optimiser(name: str, given: Any) -> Any:
    """An optimiser of optax, or its Adam with a learning rate."""
    if hasattr(given, "init") and hasattr(given, "update"):
        return given
    if isinstance(given, bool) or not isinstance(given, (int, float, np.floating)) or not given > 0.0:
        raise OptionError(
            f"optimisers: {name!r} must be an optimiser of optax, such as optax.adam(1e-3), or a learning rate, got "
            f"{given!r}"
        )
    try:
        import optax
    except ImportError as error:
        raise OptionError(f"optimisers: {name!r} needs optax: pip install 'blocc[stochastic]'") from error
    return optax.adam(float(given))


def _size(flat: FlatProblem, plan: Any, seed: Array, x: VectorX, y: VectorY) -> tuple[Array, ...]:
    """The fields of a :class:`Size` at a point, without matrices: the largest (the least) over some batches."""

    def powers(product: Any, n: int) -> Scalar:
        """Largest absolute eigenvalue of a symmetric operator."""

        def turn(_: Counter, carried: tuple[Array, Scalar]) -> tuple[Array, Scalar]:
            image = product(carried[0])
            length = jnp.linalg.norm(image)
            return image / jnp.maximum(length, 1e-300), length

        first = jax.random.normal(jax.random.key(0), (n,))
        return jax.lax.fori_loop(0, _POWERS, turn, (first / jnp.linalg.norm(first), jnp.zeros(())))[1]

    def one(over: FlatProblem) -> tuple[Any, ...]:
        n = flat.n_x
        both = jnp.concatenate([x, y])
        upper = jax.grad(lambda v: over.upper(v[:n], v[n:]))
        slope = lambda a, b: jax.grad(over.lower, argnums=1)(a, b)  # noqa: E731
        curve = lambda v: jax.jvp(lambda b: slope(x, b), (y,), (v,))[1]  # noqa: E731
        largest = powers(curve, flat.n_y)
        _, pull_x = jax.vjp(lambda a: slope(a, y), x)
        mixed = lambda v: jax.jvp(lambda a: slope(a, y), (x,), (pull_x(v)[0],))[1]  # noqa: E731
        coupling = jnp.zeros(())
        if flat.n_inequality + flat.n_equality:
            rows, pull = jax.vjp(lambda b: constraints(over, x, b), y)
            push = lambda v: jax.jvp(lambda b: constraints(over, x, b), (y,), (pull(v)[0],))[1]  # noqa: E731
            coupling = jnp.sqrt(powers(push, rows.size))
        return (
            largest,
            largest - powers(lambda v: largest * v - curve(v), flat.n_y),
            powers(lambda v: jax.jvp(upper, (both,), (v,))[1], both.size),
            coupling,
            coupling,
            jnp.sqrt(powers(mixed, flat.n_y)),
            jnp.linalg.norm(upper(both)),
            1.0 + jnp.linalg.norm(x),
        )

    found = over_batches(flat, plan, seed, one)
    return tuple(jnp.min(part) if index == 1 else jnp.max(part) for index, part in enumerate(found))
