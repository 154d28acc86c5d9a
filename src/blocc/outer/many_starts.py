"""Many starts at once: the spectral method with continuation in gamma, all starts in one compiled loop.

Every start keeps its own gamma. A round runs all unfinished starts to (loose) stationarity; those whose penalty is
closed are finished off at the full tolerance, the others go on with a larger gamma.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import Array, Bool, Float, Int, NDArray
from blocc.inner.protocol import InnerOracle
from blocc.outer import spectral
from blocc.outer.continuation import FACTOR, LARGEST_GAMMA
from blocc.outer.monitor import Monitor, Stop, StopReason
from blocc.outer.tolerances import Endpoint, Tolerances
from blocc.penalty import Evaluation, cold_pair, evaluate, evaluation_shapes, no_leader
from blocc.problem import FlatProblem

_ROUNDS = 30


class BatchOutcome(NamedTuple):
    """Where all starts ended."""

    ends: list[Endpoint]
    evaluations: Int[NDArray, " starts"]
    stopped: StopReason | None  #: why the batch ended before its time


class _Lane(NamedTuple):
    """One start inside the compiled loop."""

    search: spectral.SpectralState
    accepted: Evaluation  #: at the current point
    warm: Any
    evaluations: Int[Array, "*starts"]


class _Round(NamedTuple):
    """The numbers of one start during one round."""

    gamma: Float[Array, "*starts"]
    tolerance: Float[Array, "*starts"]
    accuracy: Float[Array, "*starts"]  #: of the inner solutions
    limit: Int[Array, "*starts"]  #: evaluations


def _round(flat: FlatProblem, oracle: InnerOracle, count: int, lanes: _Lane, numbers: _Round) -> _Lane:
    """Run each of ``count`` starts at its gamma until it is stationary, stuck or out of iterations."""
    leader = no_leader(flat)

    def one(lane: _Lane, at: _Round) -> _Lane:
        def running(lane: _Lane) -> Array:
            search = lane.search
            return (search.stationarity > at.tolerance) & ~search.failed & (lane.evaluations < at.limit)

        def step(lane: _Lane) -> _Lane:
            found = evaluate(flat, oracle, spectral.trial(lane.search), at.gamma, leader, lane.warm, at.accuracy)
            search = spectral.advance(flat, lane.search, found.value, found.gradient, found.usable)
            light = found._replace(warm=())
            accepted = jax.tree.map(lambda new, old: jnp.where(search.accepted, new, old), light, lane.accepted)
            warm = jax.tree.map(lambda new, old: jnp.where(found.usable, new, old), found.warm, lane.warm)
            return _Lane(search, accepted, warm, lane.evaluations + 1)

        fresh = lane._replace(search=spectral.start(lane.search.x), evaluations=jnp.asarray(0))
        return lax.while_loop(running, step, fresh)

    return jax.vmap(one)(lanes, numbers)


class _Progress(NamedTuple):
    """The batch between two rounds."""

    lanes: _Lane
    gamma: Float[NDArray, " starts"]
    final: Bool[NDArray, " starts"]  #: at the full tolerance
    done: Bool[NDArray, " starts"]
    evaluations: Int[NDArray, " starts"]
    scale: Float[NDArray, " starts"]  #: size of f
    rounds: int


def minimise(
    flat: FlatProblem,
    oracle: InnerOracle,
    monitor: Monitor,
    starts: Float[NDArray, "starts n_x"],
    tolerances: Tolerances,
    *,
    gamma: float | None,
    first_gamma: float,
) -> BatchOutcome:
    """Run all starts; ``gamma=None`` means continuation. A stop from outside ends the batch after the round it met."""
    count, none = len(starts), np.zeros(len(starts), dtype=bool)
    gammas = np.full(count, first_gamma if gamma is None else gamma)
    begun = _Progress(
        _start(flat, oracle, starts), gammas, none | (gamma is not None), none, np.zeros(count, int), np.ones(count), 0
    )
    now = monitor.begin("batch", begun)
    gammas, final, done, evaluations, scale = (np.array(array) for array in now[1:6])
    now = _Progress(now.lanes, gammas, final, done, evaluations, scale, int(now.rounds))
    stopped: StopReason | None = None
    while now.rounds < _ROUNDS and not now.done.all() and stopped is None:
        now = _one_round(flat, oracle, tolerances, now, fixed=gamma is not None)
        try:
            _report(monitor, now)
            monitor.check_time()
        except Stop as stop:
            stopped = stop.reason
        monitor.keep("batch", now)
    measures = np.asarray(now.lanes.search.stationarity)
    ends = [Endpoint(e, float(m), 0.0) for e, m in zip(_unstacked(now.lanes.accepted, count), measures, strict=True)]
    return BatchOutcome(ends, now.evaluations, stopped)


def _one_round(
    flat: FlatProblem, oracle: InnerOracle, tolerances: Tolerances, now: _Progress, fixed: bool
) -> _Progress:
    """All unfinished starts at their gamma, and which of them go on with a larger one."""
    count = len(now.gamma)
    wanted = np.where(
        now.final, tolerances.tolerance, np.maximum(tolerances.tolerance, 0.01 / np.maximum(now.gamma, 1.0))
    )
    wanted = wanted * now.scale
    numbers = _Round(
        jnp.asarray(now.gamma),
        jnp.asarray(np.minimum(wanted, np.sqrt(wanted / flat.n_x))),
        jnp.asarray([tolerances.inner(gamma) for gamma in now.gamma]),
        jnp.asarray(np.where(now.done, 0, 4 * tolerances.max_iterations)),  # a finished start does nothing
    )
    moved = flat.program(_round, oracle, count)(now.lanes, numbers)
    # Lanes that were done keep their state: their loop did not run, but their search was restarted.
    lanes = _choose(now.done, now.lanes, moved) if now.done.any() else moved
    found = _unstacked(lanes.accepted, count)
    exact = np.array([bool(e.usable) and tolerances.exact(e) for e in found])
    failed = np.asarray(~lanes.accepted.usable)
    done = now.done | failed | now.final & (exact | fixed) | (now.gamma >= LARGEST_GAMMA)
    return _Progress(
        lanes,
        np.where(~done & ~exact, now.gamma * FACTOR, now.gamma),
        np.where(done, now.final, exact),
        done,
        now.evaluations + np.where(now.done, 0, np.asarray(moved.evaluations)),
        np.array([tolerances.scale(e) if e.usable else 1.0 for e in found]),
        now.rounds + 1,
    )


def _start(flat: FlatProblem, oracle: InnerOracle, starts: Float[NDArray, "starts n_x"]) -> _Lane:
    """All lanes before their first evaluation."""
    count = len(starts)
    cold = cold_pair(flat, oracle)
    shapes = evaluation_shapes(flat, oracle)
    blank = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shapes)
    warm = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), cold)
    return _Lane(jax.vmap(spectral.start)(jnp.asarray(starts)), blank, warm, jnp.zeros(count, dtype=int))


def _choose(mask: Bool[NDArray, " starts"], chosen: _Lane, otherwise: _Lane) -> _Lane:
    """Lane by lane: ``chosen`` where the mask is set."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(jnp.asarray(mask).reshape(-1, *([1] * (a.ndim - 1))), a, b)

    return jax.tree.map(pick, chosen, otherwise)


def _unstacked(stacked: Evaluation, count: int) -> list[Evaluation]:
    """One evaluation for each lane, in NumPy."""
    leaves, structure = jax.tree.flatten(jax.device_get(stacked))
    return [jax.tree.unflatten(structure, [leaf[index] for leaf in leaves]) for index in range(count)]


def _report(monitor: Monitor, now: _Progress) -> None:
    """One row of history a round, of the best start so far."""
    found = _unstacked(now.lanes.accepted, len(now.gamma))
    usable = [index for index, e in enumerate(found) if e.usable]
    if usable:
        best = min(usable, key=lambda index: found[index].upper_value)
        monitor.consider(found[best])
        monitor.record(found[best], float(now.lanes.search.stationarity[best]), int(now.evaluations.sum()))
