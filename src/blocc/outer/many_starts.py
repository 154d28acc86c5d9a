"""Many starts at once: the spectral method with continuation in gamma, all starts in one compiled loop.

Every start keeps its own gamma. A round runs all unfinished starts to (loose) stationarity; those whose penalty is
closed are finished off at the full tolerance, the others go on with a larger gamma.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.compiled import compile_ahead
from blocc.inner.protocol import InnerOracle
from blocc.outer import spectral
from blocc.outer.continuation import FACTOR, LARGEST_GAMMA, Goal
from blocc.outer.monitor import Monitor, Stop, StopReason
from blocc.outer.stage import Outcome
from blocc.penalty import Evaluation, Leader, cold_pair, evaluate, evaluation_shapes, no_leader
from blocc.problem import FlatProblem

Array = Any

_ROUNDS = 30


class BatchOutcome(NamedTuple):
    """Where all starts ended."""

    outcomes: list[Outcome]
    evaluations: np.ndarray  #: of each start
    compile_seconds: float
    stopped: StopReason | None  #: why the batch ended before its time


class _Lane(NamedTuple):
    """One start inside the compiled loop."""

    search: spectral.SpectralState
    accepted: Evaluation  #: at the current point
    warm: Any
    evaluations: Array


def _round(
    flat: FlatProblem,
    oracle: InnerOracle,
    lane: _Lane,
    gamma: Array,
    tolerance: Array,
    accuracy: Array,
    leader: Leader,
    limit: Array,
) -> _Lane:
    """Run one start at one gamma until it is stationary, stuck or out of iterations."""

    def running(lane: _Lane) -> Array:
        search = lane.search
        return (search.stationarity > tolerance) & ~search.failed & (lane.evaluations < limit)

    def step(lane: _Lane) -> _Lane:
        found = evaluate(flat, oracle, spectral.trial(lane.search), gamma, leader, lane.warm, accuracy)
        search = spectral.advance(flat, lane.search, found.value, found.gradient, found.usable)
        light = found._replace(warm=())
        accepted = jax.tree.map(lambda new, old: jnp.where(search.accepted, new, old), light, lane.accepted)
        warm = jax.tree.map(lambda new, old: jnp.where(found.usable, new, old), found.warm, lane.warm)
        return _Lane(search, accepted, warm, lane.evaluations + 1)

    fresh = lane._replace(search=spectral.start(lane.search.x), evaluations=jnp.asarray(0))
    return lax.while_loop(running, step, fresh)


def minimise(
    flat: FlatProblem,
    oracle: InnerOracle,
    cache: dict[Any, Any],
    monitor: Monitor,
    starts: np.ndarray,
    goal: Goal,
    *,
    gamma: float | None,
    first_gamma: float,
) -> BatchOutcome:
    """Run all starts; ``gamma=None`` means continuation. A stop from outside ends the batch after the round it met."""
    count = len(starts)
    lanes = _start(flat, oracle, cache, starts)
    gammas = np.full(count, first_gamma if gamma is None else gamma)
    final = np.full(count, gamma is not None)  # at the full tolerance
    done = np.zeros(count, dtype=bool)
    evaluations = np.zeros(count, dtype=int)
    seconds = 0.0
    scale = np.ones(count)
    stopped: StopReason | None = None
    rounds = 0
    if (kept := monitor.journal.kept("batch", (lanes, gammas, final, done, evaluations, scale, rounds))) is not None:
        (lanes, *arrays, rounds), log = kept
        gammas, final, done, evaluations, scale = (np.array(array) for array in arrays)
        rounds = int(rounds)
        monitor.restore(log)
    while rounds < _ROUNDS and not done.all():
        wanted = np.where(final, goal.tolerance, np.maximum(goal.tolerance, 0.01 / np.maximum(gammas, 1.0)))
        accuracy = np.array([goal.inner(g) for g in gammas])
        limit = np.where(done, 0, 4 * goal.max_iterations)  # a finished start does nothing
        arguments = (
            lanes,
            jnp.asarray(gammas),
            jnp.asarray(np.minimum(wanted * scale, np.sqrt(wanted * scale / flat.n_x))),
            jnp.asarray(accuracy),
            no_leader(flat),
            jnp.asarray(limit),
        )
        key = ("batch", oracle, count)
        if key not in cache:
            function = jax.vmap(partial(_round, flat, oracle), in_axes=(0, 0, 0, 0, None, 0))
            cache[key], compile_seconds = compile_ahead(function, *arguments)
            seconds += compile_seconds
        moved = cache[key](*arguments)
        # Lanes that were done keep their state: their loop did not run, but their search was restarted.
        lanes = _choose(done, lanes, moved) if done.any() else moved
        evaluations += np.where(done, 0, np.asarray(moved.evaluations))
        found = _lanes(lanes.accepted, count)
        scale = np.array([goal.scale(e) if e.usable else 1.0 for e in found])
        exact = np.array([bool(e.usable) and goal.exact(e) for e in found])
        failed = np.asarray(~lanes.accepted.usable)
        done |= failed | final & (exact | (gamma is not None)) | (gammas >= LARGEST_GAMMA)
        grow = ~done & ~exact
        gammas, final = np.where(grow, gammas * FACTOR, gammas), np.where(done, final, exact)
        rounds += 1
        try:
            _report(monitor, found, np.asarray(lanes.search.stationarity), int(evaluations.sum()))
            monitor.check_time()
        except Stop as stop:
            stopped = stop.reason
        monitor.journal.keep("batch", (lanes, gammas, final, done, evaluations, scale, rounds), monitor.log())
        if stopped is not None:
            break
    found = _lanes(lanes.accepted, count)
    measures = np.asarray(lanes.search.stationarity)
    outcomes = [Outcome(e, float(m), 0.0) for e, m in zip(found, measures, strict=True)]
    return BatchOutcome(outcomes, evaluations, seconds, stopped)


def _start(flat: FlatProblem, oracle: InnerOracle, cache: dict[Any, Any], starts: np.ndarray) -> _Lane:
    """All lanes before their first evaluation."""
    count = len(starts)
    cold = cold_pair(flat, oracle)
    shapes = evaluation_shapes(flat, oracle, cache)
    blank = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shapes)
    warm = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), cold)
    return _Lane(jax.vmap(spectral.start)(jnp.asarray(starts)), blank, warm, jnp.zeros(count, dtype=int))


def _choose(mask: np.ndarray, chosen: _Lane, otherwise: _Lane) -> _Lane:
    """Lane by lane: ``chosen`` where the mask is set."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(jnp.asarray(mask).reshape(-1, *([1] * (a.ndim - 1))), a, b)

    return jax.tree.map(pick, chosen, otherwise)


def _lanes(stacked: Evaluation, count: int) -> list[Evaluation]:
    """One evaluation for each lane, in NumPy."""
    leaves, structure = jax.tree.flatten(jax.device_get(stacked))
    return [jax.tree.unflatten(structure, [leaf[index] for leaf in leaves]) for index in range(count)]


def _report(monitor: Monitor, found: list[Evaluation], measures: np.ndarray, evaluations: int) -> None:
    """One row of history a round, of the best start so far."""
    usable = [index for index, e in enumerate(found) if e.usable]
    if usable:
        best = min(usable, key=lambda index: found[index].upper_value)
        monitor.consider(found[best])
        monitor.record(found[best], float(measures[best]), evaluations)
