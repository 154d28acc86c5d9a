"""The loops of the published program for the toy, emulated: inner loops that stop by themselves, cold multipliers.

One step of x solves both inner problems by single-loop iterations in which y and the multiplier move at the same time,
each from the old pair, with steps of 0.1. A loop is over where the signed changes of both, added up, are small; it
returns the pair before the last change. The follower's loop begins at its last y with the multiplier 0.1, the
penalised one at the follower's fresh y with the multiplier that the run has drawn, at every step of x again.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.networks.kernels import kernel
from blocc.problems.toy import LOWER, UPPER

INNER_STEP = 0.1  #: of y and of the multiplier, in both loops
INNER_STOP = OUTER_STOP = 1e-4
COLD_MULTIPLIER = 0.1  #: where the follower's loop begins, at every step of x
MAX_STEPS = 500  #: of x
#: Ranges that x, y and the multiplier of the penalised loop are drawn from; x is then put into X.
RANGES = ((0.0, 3.5), (-5.0, 8.5), (0.0, 10.0))
MOST_INNER = 3_000_000  #: inner iterations of a run; the program has no limit


class ToyRuns(NamedTuple):
    """Where runs ended, start by start."""

    x: Float[NDArray, "runs"]
    y: Float[NDArray, "runs"]  #: yF
    steps: Int[NDArray, "runs"]  #: of x
    inner: Int[NDArray, "runs"]  #: inner iterations
    settled: NDArray  #: whether it ended by its own rule


def draw_starts(seeds: list[int]) -> Float[NDArray, "runs 3"]:
    """x, y and the multiplier that a seed stands for."""
    lows, highs = np.array(RANGES).T
    drawn = np.stack([np.random.default_rng(seed).uniform(lows, highs) for seed in seeds])
    drawn[:, 0] = np.clip(drawn[:, 0], LOWER, UPPER)
    return drawn


@kernel
def _inner_loop(
    x: float, y: float, multiplier: float, gamma: float, penalised: bool, most: int
) -> tuple[float, float, int]:
    """The pair before the last change, and how many iterations were made; a loop that overflows ends there."""
    wave, made = 2.0 + np.cos(6.0 * x), 0
    while made < most:
        made += 1
        slope = 2.0 * (y - 2.0 * x)
        if penalised:
            slope = gamma * slope - np.exp(2.0 - y) / wave
        next_y = y - INNER_STEP * (slope + multiplier)
        next_multiplier = max(0.0, multiplier + INNER_STEP * (y - x))
        if abs((multiplier - next_multiplier) + (y - next_y)) / INNER_STEP <= INNER_STOP:
            return y, multiplier, made
        if not np.isfinite(next_y + next_multiplier):
            return y, multiplier, most
        y, multiplier = next_y, next_multiplier
    return y, multiplier, made


@kernel
def _run(
    x: float, follower_y: float, drawn: float, gamma: float, eta: float, limit: int
) -> tuple[float, float, int, int, bool]:
    inner, y = 0, follower_y
    for step in range(1, limit + 1):
        before = follower_y
        follower_y, follower_multiplier, made = _inner_loop(x, follower_y, COLD_MULTIPLIER, gamma, False, MOST_INNER)
        inner += made
        y, multiplier, made = _inner_loop(x, follower_y, drawn, gamma, True, MOST_INNER)
        inner += made
        # A step of x. The constraint is y - x <= 0, so each multiplier enters with the sign of -1.
        wave = 2.0 + np.cos(6.0 * x)
        f_x = np.exp(2.0 - y) * 6.0 * np.sin(6.0 * x) / wave**2
        f_x += 4.0 * (4.0 * x - 2.0) / ((4.0 * x - 2.0) ** 2 + 1.0)
        difference = -4.0 * (y - 2.0 * x) + 4.0 * (follower_y - 2.0 * x)  # g_x(x, yF) - g_x(x, yg)
        slope_x = f_x + gamma * (difference + follower_multiplier) - multiplier
        moved = min(max(x - eta * slope_x, LOWER), UPPER)
        settled = np.hypot(x - moved, before - follower_y) / eta <= OUTER_STOP
        if settled or step == limit or inner >= MOST_INNER:
            return x, y, step, inner, settled
        x = moved
    return x, y, 0, inner, False


def run_published_toy(
    starts: Float[NDArray, "runs 3"], gamma: float, eta: float, max_steps: int = MAX_STEPS
) -> tuple[ToyRuns, float]:
    """All starts at one gamma and eta; where they ended, and the seconds of all without compilation."""
    runs = np.asarray(starts, dtype=np.float64)
    x, y, drawn = runs[0]
    _run(x, y, drawn, gamma, eta, 0)  # compiles
    began = time.perf_counter()
    ended = [_run(x, y, drawn, gamma, eta, max_steps) for x, y, drawn in runs]
    seconds = time.perf_counter() - began
    return ToyRuns(*(np.array(values) for values in zip(*ended, strict=True))), seconds
