"""Many starts at once: the spectral method with continuation in gamma, all starts in one compiled loop.

Every start keeps its own gamma. A round runs all unfinished starts to (loose) stationarity; those whose penalty is
closed are finished off at the full tolerance, the others go on with a larger gamma.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, NDArray
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerOracle
from blocc.outer import spectral
from blocc.outer.continuation import FACTOR, LARGEST_GAMMA
from blocc.outer.monitor import Monitor, Stop, StopReason
from blocc.outer.tolerances import Endpoint, Tolerances
from blocc.penalty import Evaluation, cold_pair, evaluate, evaluation_shapes, no_upper_multipliers

_ROUNDS = 30
#: Evaluations of every start before the first look at the clock, and seconds to the next one.
_PACE, _LOOK = 1, 0.5


class BatchOutcome(NamedTuple):
    """Where all starts ended."""

    ends: list[Endpoint]
    evaluations: Int[NDArray, " starts"]
    lows: list[Evaluation]  #: the best that each has seen, its start included; not usable if it has seen none
    stopped: StopReason | None  #: why the batch ended before its time


class _Lane(NamedTuple):
    """One start inside the compiled loop."""

    search: spectral.SpectralState
    accepted: Evaluation  #: at the current point
    warm: Any
    evaluations: Int[AnyArray, "*starts"]
    low: Evaluation  #: the best one so far at the follower's response


class _Round(NamedTuple):
    """The numbers of one start during one round."""

    gamma: Float[AnyArray, "*starts"]
    tolerance: Float[AnyArray, "*starts"]
    accuracy: Float[AnyArray, "*starts"]  #: of the inner solutions
    limit: Int[AnyArray, "*starts"]  #: evaluations of the round until the next look at the clock
    fresh: Bool[AnyArray, "*starts"]  #: the round begins


def _round(flat: FlatProblem, oracle: InnerOracle, count: int, lanes: _Lane, numbers: _Round) -> _Lane:
    """Run each of ``count`` starts at its gamma until it is stationary, stuck or at its limit."""
    leader = no_upper_multipliers(flat)

    def one(lane: _Lane, at: _Round) -> _Lane:
        gamma, accuracy = jnp.asarray(at.gamma), jnp.asarray(at.accuracy)

        def running(lane: _Lane) -> Array:
            search = lane.search
            return (search.stationarity > at.tolerance) & ~search.failed & (lane.evaluations < at.limit)

        def step(lane: _Lane) -> _Lane:
            trial = jnp.asarray(spectral.trial(lane.search))
            found = evaluate(flat, oracle, trial, gamma, leader, lane.warm, accuracy)
            search = spectral.advance(flat, lane.search, found.value, found.gradient, found.usable)
            light = found._replace(warm=())
            accepted = jax.tree.map(lambda new, old: jnp.where(search.accepted, new, old), light, lane.accepted)
            warm = jax.tree.map(lambda new, old: jnp.where(found.usable, new, old), found.warm, lane.warm)
            lower = found.usable & (~lane.low.usable | (found.upper_follower < lane.low.upper_follower))
            low = jax.tree.map(lambda new, old: jnp.where(lower, new, old), light, lane.low)
            return _Lane(search, accepted, warm, lane.evaluations + 1, low)

        fresh = lane._replace(search=spectral.start(lane.search.x), evaluations=jnp.asarray(0))
        begun = jax.tree.map(lambda new, old: jnp.where(at.fresh, new, old), fresh, lane)
        return lax.while_loop(running, step, begun)

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
    """Run all starts; ``gamma=None`` means continuation. A stop from outside ends it within about a second."""
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
        lanes, stopped = _descend(flat, oracle, tolerances, monitor, now)
        if stopped is not None:  # in the middle of a round, which a continued run begins again
            now = now._replace(lanes=lanes, evaluations=_spent(now, lanes))
            break
        now = _next(tolerances, now, lanes, fixed=gamma is not None)
        try:
            _report(monitor, now)
            monitor.check_time()
        except Stop as stop:
            stopped = stop.reason
        monitor.keep("batch", now)
    measures = np.asarray(now.lanes.search.stationarity)
    ends = [Endpoint(e, float(m), 0.0) for e, m in zip(_unstacked(now.lanes.accepted, count), measures, strict=True)]
    return BatchOutcome(ends, now.evaluations, _unstacked(now.lanes.low, count), stopped)


def _descend(
    flat: FlatProblem, oracle: InnerOracle, tolerances: Tolerances, monitor: Monitor, now: _Progress
) -> tuple[_Lane, StopReason | None]:
    """All unfinished starts at their gamma, with a look at the clock about twice a second."""
    wanted = np.where(
        now.final, tolerances.tolerance, np.maximum(tolerances.tolerance, 0.01 / np.maximum(now.gamma, 1.0))
    )
    wanted = wanted * now.scale
    tolerance = np.minimum(wanted, np.sqrt(wanted / flat.n_x))
    accuracy = np.asarray([tolerances.inner(gamma) for gamma in now.gamma])
    program = flat.program(_round, oracle, len(now.gamma), is_loop=True)
    lanes, fresh, limit, pace, most = now.lanes, ~now.done, 0, _PACE, 4 * tolerances.max_iterations
    while True:
        limit, begun = min(limit + pace, most), time.perf_counter()
        # A finished start does nothing.
        lanes = program(lanes, _Round(now.gamma, tolerance, accuracy, np.where(now.done, 0, limit), fresh))
        measure, failed, spent = jax.device_get((lanes.search.stationarity, lanes.search.failed, lanes.evaluations))
        if limit == most or not (~now.done & (measure > tolerance) & ~failed & (spent >= limit)).any():
            return lanes, None
        try:
            monitor.check_time()
        except Stop as stop:
            return lanes, stop.reason
        fresh = np.zeros_like(fresh)
        took = time.perf_counter() - begun
        pace = max(1, min(4 * pace, int(pace * _LOOK / took)))


def _spent(now: _Progress, moved: _Lane) -> Int[NDArray, " starts"]:
    return now.evaluations + np.where(now.done, 0, np.asarray(moved.evaluations))


def _next(tolerances: Tolerances, now: _Progress, lanes: _Lane, fixed: bool) -> _Progress:
    """After a round: which starts are done, and which go on with a larger gamma."""
    found = _unstacked(lanes.accepted, len(now.gamma))
    exact = np.array([bool(e.usable) and tolerances.exact(e) for e in found])
    failed = np.asarray(~lanes.accepted.usable)
    done = now.done | failed | now.final & (exact | fixed) | (now.gamma >= LARGEST_GAMMA)
    return _Progress(
        lanes,
        np.where(~done & ~exact, now.gamma * FACTOR, now.gamma),
        np.where(done, now.final, exact),
        done,
        _spent(now, lanes),
        np.array([tolerances.scale(e) if e.usable else 1.0 for e in found]),
        now.rounds + 1,
    )


def _start(flat: FlatProblem, oracle: InnerOracle, starts: Float[NDArray, "starts n_x"]) -> _Lane:
    """All lanes before their first evaluation."""
    count = len(starts)
    blank = jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape), leaf.dtype), evaluation_shapes(flat, oracle))
    search, warm = jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (count, *np.shape(leaf))),
        (spectral.start(starts[0]), cold_pair(flat, oracle)),
    )
    return _Lane(search._replace(x=starts), blank, warm, np.zeros(count, dtype=int), blank)


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
