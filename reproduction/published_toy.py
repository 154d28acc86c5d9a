"""The loops of the published program for the toy, emulated: inner loops that stop by themselves, cold multipliers.

One step of x solves both inner problems by single-loop iterations in which y and the multiplier move at the same time,
each from the old pair, with steps of 0.1. A loop is over where the signed changes of both, added up, are small; it
returns the pair before the last change. The follower's loop begins at its last y with the multiplier 0.1, the
penalised one at the follower's fresh y with the multiplier that the run has drawn, at every step of x again.

Many runs advance together. In one tick every run makes one inner iteration of its own current loop, and moves x when
both are over, so that no run waits for another.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, Int, NDArray
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.problems.toy import LOWER, UPPER

INNER_STEP = 0.1  #: of y and of the multiplier, in both loops
INNER_STOP = OUTER_STOP = 1e-4
COLD_MULTIPLIER = 0.1  #: where the follower's loop begins, at every step of x
MAX_STEPS = 500  #: of x
#: Ranges that x, y and the multiplier of the penalised loop are drawn from; x is then put into X.
RANGES = ((0.0, 3.5), (-5.0, 8.5), (0.0, 10.0))
#: The program has no limit of inner iterations; a batch ends here.
MAX_TICKS = 3_000_000
_CHUNK = 20_000


class ToyRun(NamedTuple):
    """One run, or several of them, stacked."""

    x: Float[AnyArray, "*runs"]
    y: Float[AnyArray, "*runs"]  #: of the loop that is going on
    multiplier: Float[AnyArray, "*runs"]
    follower_y: Float[AnyArray, "*runs"]  #: where the follower's loop ended last; at first its start
    before_y: Float[AnyArray, "*runs"]  #: the same one step of x earlier
    follower_multiplier: Float[AnyArray, "*runs"]
    drawn: Float[AnyArray, "*runs"]  #: where the penalised loop begins
    penalised: Int[AnyArray, "*runs"]  #: 1 while the penalised loop is going on
    steps: Int[AnyArray, "*runs"]  #: of x
    inner: Int[AnyArray, "*runs"]  #: inner iterations
    over: Int[AnyArray, "*runs"]  #: 1 where the run has ended: x and y are its answer
    settled: Int[AnyArray, "*runs"]  #: 1 where it ended by its own rule


def draw_starts(seeds: list[int]) -> Float[NDArray, "runs 3"]:
    """x, y and the multiplier that a seed stands for."""
    lows, highs = np.array(RANGES).T
    drawn = np.stack([np.random.default_rng(seed).uniform(lows, highs) for seed in seeds])
    drawn[:, 0] = np.clip(drawn[:, 0], LOWER, UPPER)
    return drawn


def begin(starts: Float[NDArray, "runs 3"]) -> ToyRun:
    """Runs that have not moved yet."""
    x, y, drawn = np.asarray(starts, dtype=np.float64).T
    zero = np.zeros(len(x), dtype=np.int64)
    cold = np.full(len(x), COLD_MULTIPLIER)
    return ToyRun(x, y, cold, y, y, cold, drawn, zero, zero, zero, zero, zero)


def _tick(gamma: Float[Array, ""], eta: Float[Array, ""], limit: Int[Array, ""], run: ToyRun) -> ToyRun:
    """One inner iteration; where it was the last of the penalised loop, a step of x."""
    x, y, multiplier = run.x, run.y, run.multiplier
    penalised, going = run.penalised == 1, run.over == 0
    wave = 2.0 + jnp.cos(6.0 * x)
    pull = jnp.exp(2.0 - y) / wave  # -f_y
    slope = jnp.where(penalised, gamma * 2.0 * (y - 2.0 * x) - pull, 2.0 * (y - 2.0 * x)) + multiplier
    next_y = y - INNER_STEP * slope
    next_multiplier = jnp.maximum(0.0, multiplier + INNER_STEP * (y - x))
    done = jnp.abs((multiplier - next_multiplier) + (y - next_y)) / INNER_STEP <= INNER_STOP
    to_penalised, stepping = going & done & ~penalised, going & done & penalised
    # A step of x. The constraint is y - x <= 0, so each multiplier enters with the sign of -1.
    f_x = pull * 6.0 * jnp.sin(6.0 * x) / wave + 4.0 * (4.0 * x - 2.0) / ((4.0 * x - 2.0) ** 2 + 1.0)
    difference = -4.0 * (y - 2.0 * x) + 4.0 * (run.follower_y - 2.0 * x)  # g_x(x, yF) - g_x(x, yg)
    slope_x = f_x + gamma * (difference + run.follower_multiplier) - multiplier
    moved = jnp.clip(x - eta * slope_x, LOWER, UPPER)
    change = jnp.sqrt((x - moved) ** 2 + (run.before_y - run.follower_y) ** 2) / eta
    settled = stepping & (change <= OUTER_STOP)
    steps = run.steps + stepping
    ending = settled | (stepping & (steps >= limit)) | (going & ~jnp.isfinite(next_y + next_multiplier))
    on = stepping & ~ending

    def choose(stay: AnyArray, inner: AnyArray, penalise: AnyArray, step: AnyArray) -> Array:
        """What a run keeps: as it is, after an inner iteration, at the change of loops, after a step of x."""
        chosen = jnp.where(going & ~done, inner, stay)
        return jnp.where(on, step, jnp.where(to_penalised, penalise, chosen))

    return ToyRun(
        x=jnp.where(on, moved, x),
        y=choose(y, next_y, y, run.follower_y),
        multiplier=choose(multiplier, next_multiplier, run.drawn, jnp.full_like(x, COLD_MULTIPLIER)),
        follower_y=jnp.where(to_penalised, y, run.follower_y),
        before_y=jnp.where(to_penalised, run.follower_y, run.before_y),
        follower_multiplier=jnp.where(to_penalised, multiplier, run.follower_multiplier),
        drawn=run.drawn,
        penalised=jnp.where(to_penalised, 1, jnp.where(on, 0, run.penalised)),
        steps=steps,
        inner=run.inner + going,
        over=run.over | ending,
        settled=run.settled | settled,
    )


def run_published_toy(
    starts: Float[NDArray, "runs 3"], gamma: float, eta: float, max_steps: int = MAX_STEPS
) -> tuple[ToyRun, float]:
    """All starts at one gamma and eta; where they ended, and the seconds of the batch without compilation."""
    with double_precision():
        state = jax.tree.map(jnp.asarray, begin(starts))
        numbers = (jnp.asarray(gamma, jnp.float64), jnp.asarray(eta, jnp.float64), jnp.asarray(max_steps))
        advance, _ = compile_ahead(_advance, *numbers, state)
        began, ticks = time.perf_counter(), 0
        while ticks < MAX_TICKS:
            state, ticks = advance(*numbers, state), ticks + _CHUNK
            if bool((state.over == 1).all()):
                break
        return jax.device_get(state), time.perf_counter() - began


def _advance(gamma: Float[Array, ""], eta: Float[Array, ""], limit: Int[Array, ""], state: ToyRun) -> ToyRun:
    return jax.lax.fori_loop(0, _CHUNK, lambda _, now: partial(_tick, gamma, eta, limit)(now), state)
