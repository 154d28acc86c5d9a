"""Runs of Algorithm 1: all T steps of :mod:`blocc.outer.algorithm_1`, watched, recorded and counted.

The loop is compiled in chunks, so that a run of 10^6 steps costs no Python, can report progress and can be stopped;
``vmap`` runs many starts in the same loop. There is no stopping test unless one is asked for; that one is

    ||x_t - x_{t+1}||_inf / eta + max(1, gamma) (largest KKT residual of both inner solutions) <= stop

because a short step says nothing while the inner solutions are far off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int
from blocc._lib.rounding import PLACED
from blocc.errors import OptionError
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerCode, InnerOracle, WarmStart
from blocc.lagrangian import InnerPairs, Multipliers
from blocc.outer import algorithm_1
from blocc.outer.algorithm_1 import Numbers
from blocc.outer.monitor import GRACE, Monitor
from blocc.penalty import Evaluation, assembled, cold_pair, evaluation_shapes, unstack
from blocc.result import HistoryRow

_CHUNK = 128  #: steps of one compiled call, at most
#: Under a time limit, which is looked at between calls: steps of the first one, and seconds that one is to take.
_FIRST, _SECONDS = 2, 0.5 * GRACE[0]
#: Share of a change of the gradient that may be an error of the inner solutions, where l_F is read off it: l_F is then
#: known to within this share.
_ERROR = 0.1


class Settings(NamedTuple):
    """The numbers of a run."""

    numbers: Numbers
    iterations: Int[AnyArray, ""]  #: T
    stop: Float[AnyArray, ""]  #: of the stopping test; negative: none


class StartState(NamedTuple):
    """One start, after some steps."""

    x: Float[AnyArray, "*starts n_x"]  #: x_t
    warm: Any
    last: Evaluation  #: the last good evaluation: at x_T at the end, or where the run stopped
    stationarity: Float[AnyArray, "*starts"]  #: of x at that evaluation
    iteration: Int[AnyArray, "*starts"]  #: t
    smoothness: Float[AnyArray, "*starts"]  #: largest change of the gradient so far, for each unit that x moved
    over: Bool[AnyArray, "*starts"]  #: at x_T, or stopped by the test
    broken: Bool[AnyArray, "*starts"]  #: no inner solution: the follower has no answer, or a value is not finite
    inner_iterations: Int[AnyArray, "*starts"]
    derivatives: Int[AnyArray, "*starts"]


class _Columns(NamedTuple):
    """What the history keeps of every step of a chunk."""

    upper_value: Float[AnyArray, "*steps"]
    upper_value_penalty: Float[AnyArray, "*steps"]
    lower_value: Float[AnyArray, "*steps"]
    penalty_value: Float[AnyArray, "*steps"]
    stationarity: Float[AnyArray, "*steps"]
    inner_residual: Float[AnyArray, "*steps"]
    distance: Float[AnyArray, "*steps"]
    step: Float[AnyArray, "*steps"]


def _step(flat: FlatProblem, oracle: InnerOracle, state: StartState, settings: Settings) -> tuple[StartState, _Columns]:
    """One iteration from ``state.x``, and its row of the history."""
    numbers, project = settings.numbers, flat.x_set.project_flat
    x = jnp.asarray(state.x)
    lines = algorithm_1.iterate(flat, oracle, x, state.warm, numbers)
    found = unstack(assembled(flat, x, numbers.gamma, numbers.leader, lines.inner))
    # The published scheme steps on whatever its fixed number of inner steps returns, as long as it is a number.
    impossible = (found.follower.code == InnerCode.INFEASIBLE) | (found.penalised.code == InnerCode.INFEASIBLE)
    broken = impossible | ~jnp.isfinite(lines.gradient).all()
    left = state.x - project(state.x - lines.gradient)
    measure = jnp.maximum(jnp.max(jnp.abs(left), initial=0.0), jnp.dot(lines.gradient - left, left))
    residual = jnp.max(jnp.stack([*found.follower.residuals, *found.penalised.residuals]))
    length = jnp.max(jnp.abs(state.x - lines.x), initial=0.0) / numbers.eta
    scale = jnp.maximum(1.0, numbers.gamma)
    stopped = length + scale * residual <= settings.stop
    over = (state.iteration >= settings.iterations) | stopped
    moved = jnp.where(broken | over, state.x, lines.x)
    row = _Columns(
        found.upper_follower,
        found.upper_penalised,
        found.lower_follower,
        found.value,
        measure,
        residual,
        jnp.linalg.norm(found.penalised.y - found.follower.y),
        jnp.linalg.norm(moved - state.x),
    )
    # What l_F must at least be; moves near rounding tell nothing.
    away = jnp.linalg.norm(state.x - state.last.x)
    told = (state.iteration > 0) & ~broken & (away > PLACED * (1.0 + jnp.linalg.norm(state.x)))
    change = jnp.linalg.norm(lines.gradient - state.last.gradient)
    earlier = jnp.max(jnp.stack([*state.last.follower.residuals, *state.last.penalised.residuals]))
    told &= scale * (residual + earlier) <= _ERROR * change  # otherwise it may be one of the inner solutions alone
    ratio = change / jnp.where(told, away, 1.0)
    # A step to where the follower has no answer ends the run one step before; at the start there is nothing before.
    retreat = broken & (state.iteration > 0)
    measure = jnp.where(broken, jnp.inf, measure)
    following = StartState(
        x=moved,
        warm=lines.inner.solution.warm,
        last=jax.tree.map(partial(jnp.where, retreat), state.last, found._replace(warm=())),
        stationarity=jnp.where(retreat, state.stationarity, measure),
        iteration=state.iteration + ~(broken | over),
        smoothness=jnp.where(told, jnp.maximum(state.smoothness, ratio), state.smoothness),
        over=over & ~broken,
        broken=broken,
        inner_iterations=state.inner_iterations + found.follower.iterations + found.penalised.iterations,
        derivatives=state.derivatives + found.follower.derivatives + found.penalised.derivatives,
    )
    return following, row


def _chunk(
    flat: FlatProblem, oracle: InnerOracle, count: int, states: StartState, settings: Settings, length: Int[Array, ""]
) -> tuple[StartState, _Columns, Int[Array, " starts"]]:
    """Up to ``length`` steps for each of ``count`` starts: their states, rows, and how many rows each made."""

    def one(first: StartState) -> tuple[StartState, _Columns, Array]:
        def running(carry: tuple[StartState, _Columns, Array]) -> Array:
            state, _, made = carry
            return (made < length) & ~state.over & ~state.broken

        def step(carry: tuple[StartState, _Columns, Array]) -> tuple[StartState, _Columns, Array]:
            state, rows, made = carry
            following, row = _step(flat, oracle, state, settings)
            rows = jax.tree.map(lambda column, entry: column.at[made].set(entry), rows, row)
            return following, rows, made + ~following.broken

        blank = _Columns(*(jnp.full(_CHUNK, jnp.nan) for _ in _Columns._fields))
        return lax.while_loop(running, step, (first, blank, jnp.asarray(0)))

    return jax.vmap(one)(states)


def minimise(
    flat: FlatProblem,
    oracle: InnerOracle,
    monitor: Monitor,
    starts: Float[AnyArray, "starts n_x"],
    settings: Settings,
    inner_start: InnerPairs | None = None,
    watch: Callable[[StartState], None] | None = None,
) -> StartState:
    """Run every row of ``starts``; the monitor records the first start.

    :param inner_start: y_{g,0}, mu_{g,0}, y_{F,0}, mu_{F,0}, flat; by default where the oracle begins by itself
    :param watch: called after every chunk, before anything can end the run
    """
    count = len(starts)
    blank = evaluation_shapes(flat, oracle)
    gamma = float(settings.numbers.gamma)
    warm = cold_pair(flat, oracle) if inner_start is None else _begun(flat, oracle, inner_start, gamma)
    none = np.zeros(count, dtype=bool)
    nothing = np.zeros(count, dtype=int)
    states = StartState(
        x=np.asarray(starts),
        warm=jax.tree.map(lambda leaf: np.broadcast_to(leaf, (count, *leaf.shape)), warm),
        last=jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape), leaf.dtype), blank),
        stationarity=np.full(count, np.inf),
        iteration=nothing,
        smoothness=np.zeros(count),
        over=none,
        broken=none,
        inner_iterations=nothing,
        derivatives=nothing,
    )
    states = monitor.begin("algorithm 1", states)
    # A callback is shown every step; otherwise only the end of a chunk is looked at.
    length = 1 if monitor.callback is not None else _CHUNK if monitor.time_limit is None else _FIRST
    advance = flat.program(_chunk, oracle, count, is_loop=True)
    while True:
        monitor.check_time()  # also before the first one, which is compiled
        began = monitor.elapsed() - monitor.compiling()
        states, rows, steps = advance(states, settings, np.asarray(length))
        seen, made = jax.device_get((states._replace(warm=()), steps))
        if monitor.time_limit is not None and monitor.callback is None:
            seconds = max(monitor.elapsed() - monitor.compiling() - began, 1e-6)
            length = int(np.clip(length * _SECONDS / seconds, 1, min(8 * length, _CHUNK)))
        if watch is not None:
            watch(seen)
        _record(monitor, seen, rows, int(made[0]), gamma)
        monitor.keep("algorithm 1", states)
        if (seen.over | seen.broken).all():
            return seen


def _begun(flat: FlatProblem, oracle: InnerOracle, given: InnerPairs, gamma: float) -> WarmStart:
    """Warm starts of both inner problems out of given points."""
    norm = 1.0 if oracle.expects_unscaled() else max(1.0, gamma)  # by which the oracle sees L_F divided
    mu_F = Multipliers(*(np.asarray(part) / norm for part in given.mu_F))
    begun = [oracle.begin_with(flat, y, mu) for y, mu in ((given.y_g, given.mu_g), (given.y_F, mu_F))]
    if begun[0] is None:
        raise OptionError(f"inner_start is for inner=MaxMin(...); {type(oracle).__name__} begins by itself")
    return jax.tree.map(lambda *leaves: np.stack(jax.device_get(leaves)), *begun)


def _record(monitor: Monitor, states: StartState, rows: _Columns, made: int, gamma: float) -> None:
    """Hand the rows of the first start to the monitor; within a chunk neither time nor x is known one by one."""
    columns = jax.tree.map(lambda column: column[0, :made], jax.device_get(rows))
    x = np.asarray(states.last.x)[0]
    before = int(states.iteration[0]) + int(states.over[0]) - made
    for index in range(made):
        numbers = {name: float(getattr(columns, name)[index]) for name in _Columns._fields}
        monitor.append(HistoryRow(time=monitor.elapsed(), gamma=gamma, evaluations=before + index + 1, **numbers), x)
