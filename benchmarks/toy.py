"""The toy from 200 random starts at gamma = 5: blocc, one batch, beside a plain loop of Algorithm 1 + Algorithm 2.

    python benchmarks/toy.py [--starts 200] [--loop-starts 5]

The loop is what one writes from the paper: NumPy, one start after the other. It gets the same gamma, the same outer
step 0.01 as the paper's settings of blocc, the same tolerance on ||x - P(x - grad F)|| and warm starts; its inner loops
stop as soon as they are accurate enough for that tolerance. The paper does not give its inner step lengths, so the loop
runs twice: with 0.1 for both, a guess that one might start from, and with the longest ones that the theory calls safe
(1/L and alpha), worked out by hand for this very problem. It runs on a subset of the starts, because it takes long, and
is compared by time per start.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from blocc.problems import toy

GAMMA, STEP, TOLERANCE = 5.0, 0.01, 1e-5
#: An inner error is magnified by gamma and by the slopes of the toy on its way into grad F.
INNER_TOLERANCE = 1e-7


#: Inner step lengths (primal, dual) for the lower level and for the penalised problem. The lower level has curvature
#: 2 in y; the penalised one between 2 gamma and 2 gamma + exp(2).
PLAIN_STEPS = ((0.1, 0.1), (0.1, 0.1))
SAFE_STEPS = ((0.5, 2.0), (1.0 / (2.0 * GAMMA + np.exp(2.0)), 2.0 * GAMMA))


def _inner(slope, steps, x, y, price):
    """Algorithm 2, single loop: descend in y, ascend in the price of y <= x, until neither moves any more."""
    primal, dual = steps
    for _ in range(100_000):
        y_next = y - primal * (slope(x, y) + price)
        price_next = np.maximum(price + dual * (y_next - x), 0.0)
        move = np.maximum(np.abs(y_next - y) / primal, np.abs(price_next - price) / dual)
        y, price = y_next, price_next
        if np.max(move) <= INNER_TOLERANCE:
            break
    return y, price


def _slope_lower(x, y):
    return 2.0 * (y - 2.0 * x)


def _slope_penalised(x, y):
    return -np.exp(2.0 - y) / (2.0 + np.cos(6.0 * x)) + GAMMA * 2.0 * (y - 2.0 * x)


def _upper_x(x, y):
    wave = 2.0 + np.cos(6.0 * x)
    bend = 4.0 * x - 2.0
    return 6.0 * np.sin(6.0 * x) * np.exp(2.0 - y) / wave**2 + 4.0 * bend / (bend**2 + 1.0)


def algorithm_1(x, steps, max_iterations=10_000):
    """One start: x and the number of outer steps."""
    y_lower, y_penalised = x, x
    price_lower = price_penalised = np.zeros_like(x)
    for iteration in range(max_iterations):
        y_lower, price_lower = _inner(_slope_lower, steps[0], x, y_lower, price_lower)
        y_penalised, price_penalised = _inner(_slope_penalised, steps[1], x, y_penalised, price_penalised)
        gradient_v = -4.0 * (y_lower - 2.0 * x) - price_lower
        gradient = _upper_x(x, y_penalised) - 4.0 * GAMMA * (y_penalised - 2.0 * x) - price_penalised
        gradient = gradient - GAMMA * gradient_v
        if np.max(np.abs(x - np.clip(x - gradient, toy.LOWER, toy.UPPER))) <= TOLERANCE:
            return x, iteration
        x = np.clip(x - STEP * gradient, toy.LOWER, toy.UPPER)
    return x, max_iterations


def _loop(starts, inner_steps):
    begun = time.perf_counter()
    ends, steps = zip(*(algorithm_1(start, inner_steps) for start in starts), strict=True)
    seconds = (time.perf_counter() - begun) / len(starts)
    away = np.abs(np.concatenate(ends)[:, None] - toy.local_minimisers()).min(axis=1)
    return seconds, float(away.max()), float(np.mean(steps))


def _blocc(starts, preset, repetitions=5):
    """Seconds to compile, seconds for each start, the run, and what it warned of."""
    problem = toy.toy_problem()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", RuntimeWarning)
        compiling = toy.run_starts(starts, GAMMA, preset, problem=problem).results.seconds["compile"]
        best, run = np.inf, None
        for _ in range(repetitions):
            begun = time.perf_counter()
            run = toy.run_starts(starts, GAMMA, preset, problem=problem)
            best = min(best, time.perf_counter() - begun)
    return compiling, best / starts, run, sorted({str(warning.message) for warning in warned})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=200, help="starts of blocc's batch (default 200)")
    parser.add_argument("--loop-starts", type=int, default=5, help="starts of the plain loop (default 5)")
    options = parser.parse_args()

    starts = np.random.default_rng(0).uniform(toy.LOWER, toy.UPPER, size=(options.loop_starts, 1))
    loops = {
        "NumPy loop, inner steps of 0.1": _loop(starts, PLAIN_STEPS),
        "NumPy loop, longest safe steps": _loop(starts, SAFE_STEPS),
    }
    plain, safe = (seconds for seconds, _, _ in loops.values())
    print(f"toy, gamma = {GAMMA:g}, tolerance {TOLERANCE:g}, step of x {STEP:g} (loop and Algorithm 1)")
    print(f"the loop on {options.loop_starts} starts, blocc on {options.starts} starts in one call\n")
    print(f"{'':36}{'compile':>11}{'per start':>11}{'times the':>11}{'times the':>11}{'largest distance':>18}")
    print(f"{'':36}{'[s]':>11}{'[ms]':>11}{'0.1 loop':>11}{'safe loop':>11}{'to a minimiser':>18}")
    for name, (seconds, away, _) in loops.items():
        print(f"{name:36}{'':>11}{1e3 * seconds:11.3f}{plain / seconds:11.1f}{safe / seconds:11.2f}{away:18.1e}")
    remarks = []
    for preset, name in (("paper", "blocc, Algorithms 1 + 2, batch"), ("default", "blocc, its own methods, batch")):
        compiling, seconds, run, notes = _blocc(options.starts, preset)
        ratios = f"{plain / seconds:11.0f}{safe / seconds:11.0f}"
        print(f"{name:36}{compiling:11.2f}{1e3 * seconds:11.3f}{ratios}{run.largest_distance:18.1e}")
        remarks += [f"{name} says of the published step: {note}." for note in notes]
    print("\nOnly the first call compiles; 'per start' is the best of five later calls, certificates included.")
    for remark in remarks:
        print(remark)


if __name__ == "__main__":
    main()
