"""Algorithm 1 of the paper: projected gradient steps of fixed length eta on F_gamma.

    for t = 0, 1, ..., T - 1:
        (yg, mu_g) = MaxMin on L_g(.; x_t)                  inner solution of the follower's problem
        (yF, mu_F) = MaxMin on L_F(.; x_t)                  inner solution of the penalised problem
        grad F(x_t) by Danskin's rule from both
        x_{t+1} = Proj_X(x_t - eta grad F(x_t))

The first three lines are :func:`blocc.penalty.evaluate`; which MaxMin is the oracle's matter (Algorithm 2 as published
is :mod:`blocc.inner.algorithm_2`). The loop is compiled in chunks, so that a run of 10^6 steps costs no Python, can
report progress and can be stopped; ``vmap`` runs many starts in the same loop.
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
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerCode, InnerOracle
from blocc.outer.monitor import Monitor
from blocc.penalty import Evaluation, Leader, cold_pair, evaluate, evaluation_shapes
from blocc.result import HistoryRow

_CHUNK = 128  #: steps of one compiled call


class Settings(NamedTuple):
    """The numbers of the algorithm."""

    gamma: Float[Array, ""]
    step_size: Float[Array, ""]  #: eta
    leader: Leader
    tolerance: Float[Array, ""]  #: of the stationarity of x; the paper makes all T steps
    inner_tolerance: Float[Array, ""]
    max_iterations: Int[Array, ""]  #: T


class StartState(NamedTuple):
    """One start, after some steps."""

    x: Float[Array, "*starts n_x"]
    warm: Any
    last: Evaluation  #: the last good evaluation: at x where the run stopped by itself, one step before otherwise
    stationarity: Float[Array, "*starts"]  #: of x at that evaluation
    iteration: Int[Array, "*starts"]
    smoothness: Float[Array, "*starts"]  #: largest change of the gradient so far, for each unit that x moved
    broken: Bool[Array, "*starts"]  #: no inner solution: the follower has no answer, or a value is not finite


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
    project = flat.x_set.project_flat
    s = settings
    found = evaluate(flat, oracle, state.x, s.gamma, s.leader, state.warm, s.inner_tolerance)
    # The published scheme steps on whatever its fixed number of inner steps returns, as long as it is a number.
    impossible = (found.follower.code == InnerCode.INFEASIBLE) | (found.penalised.code == InnerCode.INFEASIBLE)
    broken = impossible | ~jnp.isfinite(found.gradient).all()
    left = state.x - project(state.x - found.gradient)
    measure = jnp.maximum(jnp.max(jnp.abs(left), initial=0.0), jnp.dot(found.gradient - left, left))
    moved = project(state.x - s.step_size * found.gradient)
    moved = jnp.where(broken | (measure <= s.tolerance), state.x, moved)
    row = _Columns(
        found.upper_follower,
        found.upper_penalised,
        found.lower_follower,
        found.value,
        measure,
        jnp.max(jnp.stack([*found.follower.residuals, *found.penalised.residuals])),
        jnp.linalg.norm(found.penalised.y - found.follower.y),
        jnp.linalg.norm(moved - state.x),
    )
    # What l_F must at least be; moves near rounding tell nothing.
    away = jnp.linalg.norm(state.x - state.last.x)
    told = (state.iteration > 0) & ~broken & (away > 1e-7 * (1.0 + jnp.linalg.norm(state.x)))
    ratio = jnp.linalg.norm(found.gradient - state.last.gradient) / jnp.where(told, away, 1.0)
    smoothness = jnp.where(told, jnp.maximum(state.smoothness, ratio), state.smoothness)
    # A step to where the follower has no answer ends the run one step before; at the start there is nothing before.
    retreat = broken & (state.iteration > 0)
    last = jax.tree.map(partial(jnp.where, retreat), state.last, found._replace(warm=()))
    measure = jnp.where(retreat, state.stationarity, jnp.where(broken, jnp.inf, measure))
    return StartState(moved, found.warm, last, measure, state.iteration + ~broken, smoothness, broken), row


def _chunk(
    flat: FlatProblem, oracle: InnerOracle, count: int, states: StartState, settings: Settings, length: Int[Array, ""]
) -> tuple[StartState, _Columns, Int[Array, " starts"]]:
    """Up to ``length`` steps for each of ``count`` starts: their states, rows, and how many steps each made."""

    def one(first: StartState) -> tuple[StartState, _Columns, Array]:
        def running(carry: tuple[StartState, _Columns, Array]) -> Array:
            state, _, made = carry
            go = (made < length) & (state.iteration < settings.max_iterations)
            return go & ~state.broken & (state.stationarity > settings.tolerance)

        def step(carry: tuple[StartState, _Columns, Array]) -> tuple[StartState, _Columns, Array]:
            state, rows, made = carry
            following, row = _step(flat, oracle, state, settings)
            rows = jax.tree.map(lambda column, entry: column.at[made].set(entry), rows, row)
            return following, rows, made + ~following.broken

        blank = _Columns(*(jnp.full(_CHUNK, jnp.nan) for _ in _Columns._fields))
        return lax.while_loop(running, step, (first, blank, jnp.asarray(0)))

    return jax.vmap(one)(states)


def minimise(
    flat: FlatProblem, oracle: InnerOracle, monitor: Monitor, starts: Float[AnyArray, "starts n_x"], settings: Settings
) -> StartState:
    """Run every row of ``starts``; the monitor records the first start."""
    count = len(starts)
    blank = evaluation_shapes(flat, oracle)
    number: Callable[[Any], Any] = np.asarray
    states = StartState(
        number(starts),
        jax.tree.map(lambda leaf: np.broadcast_to(leaf, (count, *leaf.shape)), cold_pair(flat, oracle)),
        jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape), leaf.dtype), blank),
        number(np.full(count, np.inf)),
        number(np.zeros(count, dtype=int)),
        number(np.zeros(count)),
        number(np.zeros(count, dtype=bool)),
    )
    states = monitor.begin("algorithm 1", states)
    # A callback is shown every step; otherwise only the end of a chunk is looked at.
    length = np.asarray(1 if monitor.callback is not None else _CHUNK)
    advance = flat.program(_chunk, oracle, count, is_loop=True)
    while True:
        monitor.check_time()  # also before the first one, which is compiled
        states, rows, steps = advance(states, settings, length)
        seen, made = jax.device_get((states._replace(warm=()), steps))
        _record(monitor, seen, rows, int(made[0]), float(settings.gamma))
        monitor.keep("algorithm 1", states)
        over = (seen.stationarity <= settings.tolerance) | seen.broken
        over |= (seen.iteration >= settings.max_iterations) | (made == 0)
        if over.all():
            return seen


def _record(monitor: Monitor, states: StartState, rows: _Columns, made: int, gamma: float) -> None:
    """Hand the rows of the first start to the monitor; within a chunk neither time nor x is known one by one."""
    columns = jax.tree.map(lambda column: column[0, :made], jax.device_get(rows))
    x, done = np.asarray(states.last.x)[0], int(states.iteration[0]) - made
    for index in range(made):
        numbers = {name: float(getattr(columns, name)[index]) for name in _Columns._fields}
        monitor.append(HistoryRow(time=monitor.elapsed(), gamma=gamma, evaluations=done + index + 1, **numbers), x)
