"""Algorithm 1 as published: projected gradient steps of fixed length on F_gamma.

The loop is compiled in chunks, so that a run of 10^6 steps costs no Python, can report progress and can be stopped;
``vmap`` runs many starts in the same loop.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.compiled import compile_ahead
from blocc.inner.protocol import InnerCode, InnerOracle
from blocc.outer.monitor import HistoryRow, Monitor
from blocc.penalty import Evaluation, Leader, cold_pair, evaluate, evaluation_shapes
from blocc.problem import FlatProblem

Array = Any

_CHUNK = 128


class PgdState(NamedTuple):
    """One start."""

    x: Array
    warm: Any
    last: Evaluation  #: the last good evaluation: at x where the run stopped by itself, one step before otherwise
    stationarity: Array  #: of x at that evaluation
    iteration: Array
    broken: Array  #: no inner solution was returned: the follower has no answer, or a value is not finite


class _Row(NamedTuple):
    upper_value: Array
    upper_value_penalty: Array
    lower_value: Array
    penalty_value: Array
    stationarity: Array
    inner_residual: Array
    distance: Array
    step: Array


def _chunk(
    flat: FlatProblem,
    oracle: InnerOracle,
    state: PgdState,
    gamma: Array,
    step_size: Array,
    leader: Leader,
    tolerances: tuple[Array, Array],
    limits: tuple[Array, Array],
) -> tuple[PgdState, _Row, Array]:
    """Some steps for one start; returns the state, the rows of the steps made and how many there are.

    ``limits`` are the steps of the whole run and those of this chunk (at most ``_CHUNK``).
    """
    project = flat.x_set.project_flat
    tolerance, inner_tolerance = tolerances
    limit, chunk = limits
    rows = _Row(*(jnp.full(_CHUNK, jnp.nan) for _ in _Row._fields))

    def running(carry: tuple[PgdState, _Row, Array]) -> Array:
        state, _, count = carry
        go = (count < chunk) & (state.iteration < limit)
        return go & ~state.broken & (state.stationarity > tolerance)

    def step(carry: tuple[PgdState, _Row, Array]) -> tuple[PgdState, _Row, Array]:
        state, rows, count = carry
        found = evaluate(flat, oracle, state.x, gamma, leader, state.warm, inner_tolerance)
        # The published scheme steps on whatever its fixed number of inner steps returns, as long as it is a number.
        impossible = (found.follower.code == InnerCode.INFEASIBLE) | (found.penalised.code == InnerCode.INFEASIBLE)
        broken = impossible | ~jnp.isfinite(found.gradient).all()
        left = state.x - project(state.x - found.gradient)
        measure = jnp.maximum(jnp.max(jnp.abs(left), initial=0.0), jnp.dot(found.gradient - left, left))
        moved = jnp.where(broken | (measure <= tolerance), state.x, project(state.x - step_size * found.gradient))
        residual = jnp.max(jnp.stack([*found.follower.residuals, *found.penalised.residuals]))
        row = _Row(
            found.upper_follower,
            found.upper_penalised,
            found.lower_follower,
            found.value,
            measure,
            residual,
            jnp.linalg.norm(found.penalised.y - found.follower.y),
            jnp.linalg.norm(moved - state.x),
        )
        rows = jax.tree.map(lambda column, entry: column.at[count].set(entry), rows, row)
        # A step into the wall ends the run one step before it; at the very start there is nothing before.
        retreat = broken & (state.iteration > 0)
        last = jax.tree.map(partial(jnp.where, retreat), state.last, found._replace(warm=()))
        measure = jnp.where(retreat, state.stationarity, jnp.where(broken, jnp.inf, measure))
        following = PgdState(moved, found.warm, last, measure, state.iteration + ~broken, broken)
        return following, rows, count + ~broken

    return lax.while_loop(running, step, (state, rows, jnp.asarray(0)))


def minimise(
    flat: FlatProblem,
    oracle: InnerOracle,
    cache: dict[Any, Any],
    monitor: Monitor,
    starts: np.ndarray,
    *,
    gamma: float,
    step_size: float,
    leader: Leader,
    tolerance: float,
    inner_tolerance: float,
    max_iterations: int,
) -> tuple[PgdState, float]:
    """Run every row of ``starts``; the monitor records the first start. Returns the states and compile seconds."""
    count = len(starts)
    shapes = evaluation_shapes(flat, oracle, cache)
    states = PgdState(
        jnp.asarray(starts),
        jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), cold_pair(flat, oracle)),
        jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shapes),
        jnp.full(count, jnp.inf),
        jnp.zeros(count, dtype=int),
        jnp.zeros(count, dtype=bool),
    )
    if (kept := monitor.journal.kept("pgd", states)) is not None:
        states, log = kept
        monitor.restore(log)
    number = partial(jnp.asarray, dtype=jnp.float64)
    numbers = (number(gamma), number(step_size), jax.tree.map(jnp.asarray, leader))
    # A callback wants to see every step; otherwise only the end of a chunk is looked at.
    chunk = 1 if monitor.callback is not None else _CHUNK
    limits = (jnp.asarray(max_iterations), jnp.asarray(chunk))
    arguments = (states, *numbers, (number(tolerance), number(inner_tolerance)), limits)
    key, seconds = ("pgd", oracle, count), 0.0
    if key not in cache:
        function = jax.vmap(partial(_chunk, flat, oracle), in_axes=(0, None, None, None, None, None))
        cache[key], seconds = compile_ahead(function, *arguments)
    while True:
        states, rows, made = cache[key](states, *arguments[1:])
        _record(monitor, states, rows, int(made[0]), gamma)
        monitor.journal.keep("pgd", states, monitor.log())
        idle = np.asarray(made) == 0
        finished = np.asarray((states.stationarity <= tolerance) | states.broken | (states.iteration >= max_iterations))
        if (idle | finished).all():
            return jax.device_get(states), seconds
        monitor.check_time()


def _record(monitor: Monitor, states: PgdState, rows: _Row, made: int, gamma: float) -> None:
    """Hand the rows of the first start to the monitor; within a chunk neither time nor x is known one by one."""
    columns = jax.device_get(jax.tree.map(lambda column: column[0, :made], rows))
    x, done = np.asarray(states.last.x[0]), int(states.iteration[0]) - made
    for index in range(made):
        numbers = {name: float(getattr(columns, name)[index]) for name in _Row._fields}
        monitor.append(HistoryRow(time=monitor.elapsed(), gamma=gamma, evaluations=done + index + 1, **numbers), x)
