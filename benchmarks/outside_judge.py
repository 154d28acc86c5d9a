"""Judges what blocc says about a case, by brute force and in the case's natural units.

Tolerances. A claim is wrong if f can be improved by more than 1e-4 of V, where V is what f(x, y(x)) varies within one
natural unit of the best point. |f| itself would let a shift hide every error, and the range over X would let the far
end of a wide box do so (exp(40) beside a minimum of 2); the neighbourhood of the best point knows neither. 1e-4 is ten
times the solver's default tolerance of 1e-5: enough for an honest solver, and a relative error in x of 1e-2 at a
smooth minimum. Rows and g are measured against what they vary for one natural unit of y (the least one over the
coordinates for g, so that a large block cannot hide a small one); 1e-5 of that, the default tolerance, is allowed.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from outside_case import Array, Case

GAIN = 1e-4  # of V: an improvement of f that makes a claim wrong
ROW = 1e-5  # of a row's own variation: allowed violation
LOWER = 1e-5  # of g's own variation: allowed loss of the follower
MEMBER = 1e-6  # natural units: allowed distance from X and Y
RISE = 1e-6  # of V: a path that rises by more has crossed a barrier
NEAR = 5e-2  # natural units: a better point within this radius is right next to the answer, barrier or not
FLAT = 1e-2  # natural units: a way down that starts with a level stretch of this length begins on a plateau
NUDGES = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)  # natural units of x by which y may belong to a neighbour (jumps and edges)


@dataclass(frozen=True)
class Verdict:
    """`kind` is right, local, missed, honest or wrong; `words` say why, where it is not right."""

    kind: str
    words: str = ""


def judge(case: Case, result: Any) -> Verdict:
    """Judge one result of `blocc.solve`."""
    status, message = result.status.value, result.message
    if not result.success:
        named = any(word in message.lower() for word in case.honest_words)
        kind = "honest" if named or not case.well_posed else "missed"
        return Verdict(kind, f"{status}: {message}")
    x, y = case.natural(result.x, result.y)
    where = f"x = {np.array2string(x, precision=6)}, y = {np.array2string(y, precision=6)} (natural units)"
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        return Verdict("wrong", f"not finite: {where}")
    if case.falls:
        return Verdict("wrong", f"f falls for ever, claimed {where}")
    if case.model.x_set.distance(x) > MEMBER:
        return Verdict("wrong", f"x is not in X: {where}")
    x = case.model.x_set.project(x)
    best_x, best = search(case, x)
    if best_x is None:
        return Verdict("wrong", f"no x has a follower's answer, claimed {where}")
    scale = case.scale or variation(case, best_x)
    allowed = GAIN * scale * case.looseness
    claimed = float(case.evaluate(case.model.upper, x, y)[0])
    fault = follower_fault(case, x, y, claimed, allowed, best_x)
    if fault:
        return Verdict("wrong", f"{fault}: {where}")
    if claimed <= best + allowed:
        return Verdict("right")
    better = f"f = {claimed:.8g} (natural), {best:.8g} at x = {np.array2string(best_x, precision=6)}"
    kind, reason = neighbourhood(case, x, best_x, claimed, scale, allowed)
    if kind == "flat":
        kind = "local" if "flat" in f"{status} {message}".lower() else "wrong"
        reason = "f is flat here" + (", and blocc says so" if kind == "local" else f", and nothing says so; {reason}")
    return Verdict(kind, f"{reason}: {where}; {better}")


def variation(case: Case, x: Array) -> float:
    """Return what f(x, y(x)) varies within one natural unit of x."""
    values = [case.value(x)]
    for direction in directions(x.size, 16):
        for length in (0.25, 0.5, 1.0, -0.25, -0.5, -1.0):
            values.append(case.value(case.model.x_set.project(x + length * direction)))
    finite = [value for value in values if math.isfinite(value)]
    spread = max(finite) - min(finite) if finite else 0.0
    return spread if spread > 0 else 1.0


def directions(size: int, count: int) -> list[Array]:
    """Return the coordinate directions and, beyond one dimension, others spread over half of the sphere."""
    found = list(np.eye(size))
    if size == 2:
        angles = np.pi * (np.arange(count) + 0.5) / count
        found += [np.array([np.cos(angle), np.sin(angle)]) for angle in angles]
    elif size > 2:
        points = np.random.default_rng(7).standard_normal((2 * count, size))
        found += list(points / np.linalg.norm(points, axis=1, keepdims=True))
    return found


def search(case: Case, claimed: Array) -> tuple[Array | None, float]:
    """Return the best x known: of a grid, refined, of points around the claim at all scales, and of the case itself."""
    lower, upper = case.scan
    region = case.model.x_set
    points = [region.project(np.array(point)) for point in grid(lower, upper)]
    points += [claimed, 0.5 * (lower + upper)]
    if case.start is not None:
        points.append(case.start)
    for length in 10.0 ** np.arange(-6, 1):
        for direction in directions(claimed.size, 8):
            points += [region.project(claimed + length * direction), region.project(claimed - length * direction)]
    values = np.array([case.value(point) for point in points])
    if not np.any(np.isfinite(values)):
        return None, math.inf
    order = np.argsort(values, kind="stable")
    best_x, best = points[order[0]], float(values[order[0]])
    for index in order[: 6 if claimed.size == 1 else 3]:
        if math.isfinite(values[index]):
            x, value = refined(case, points[index], (upper - lower) / cells(lower.size))
            if value < best:
                best_x, best = x, value
    if case.best is not None:
        best = min(best, case.best)
    return best_x, best


def cells(size: int) -> int:
    """Return how many cells the grid has in each direction."""
    return {1: 2000, 2: 60}.get(size, 2)


def grid(lower: Array, upper: Array) -> Any:
    """Return the points of the scan; in more than two dimensions only a few (such cases bring their best value)."""
    count = cells(lower.size)
    if lower.size <= 2:
        return itertools.product(*(np.linspace(low, high, count + 1) for low, high in zip(lower, upper, strict=True)))
    generator = np.random.default_rng(11)
    return iter(lower + (upper - lower) * generator.random((400, lower.size)))


def refined(case: Case, x: Array, step: Array) -> tuple[Array, float]:
    """Return the end of a local search from x: golden section in its cells, or Nelder and Mead."""
    region = case.model.x_set
    if x.size == 1:
        best_x, best = x, case.value(x)
        for low, high in ((x[0] - step[0], x[0]), (x[0], x[0] + step[0]), (x[0] - step[0], x[0] + step[0])):
            ends = np.clip([low, high], region.lower[0], region.upper[0])
            if ends[1] > ends[0]:
                found = minimize_scalar(
                    lambda t: clipped(case.value(np.array([t]))),
                    bounds=tuple(ends),
                    method="bounded",
                    options={"xatol": 1e-10 * (1 + abs(x[0]))},
                )
                if found.fun < best:
                    best_x, best = np.array([found.x]), float(found.fun)
        return best_x, best
    size = np.maximum(np.minimum(step, 1.0), 1e-3)
    corners = np.vstack([x, x + np.diag(size)])
    found = minimize(
        lambda t: clipped(case.value(region.project(t))),
        x,
        method="Nelder-Mead",
        options={"initial_simplex": corners, "maxfev": 150 * x.size, "xatol": 1e-9, "fatol": 1e-14},
    )
    return region.project(found.x), float(found.fun)


def clipped(value: float) -> float:
    """Return a finite number for scipy."""
    return value if math.isfinite(value) else 1e300


def follower_fault(case: Case, x: Array, y: Array, claimed: float, allowed: float, best_x: Array) -> str:
    """Return why y is not the follower's (optimistic) answer at x, or why G fails; empty where all holds."""
    model = case.model
    if model.y_set.distance(y) > MEMBER:
        return "y is not in Y"
    rows = np.concatenate([case.evaluate(model.inequality, x, y), np.abs(case.evaluate(model.equality, x, y))])
    spread = np.concatenate(
        [steps(case, model.inequality, x, y).max(axis=0), steps(case, model.equality, x, y).max(axis=0)]
    )
    if np.any(rows > ROW * np.where(spread > 0, spread, 1.0)):
        return f"y breaks the follower's rows by {np.max(rows):.2e}"
    leader = case.evaluate(model.leader, x, y)
    if np.any(leader > ROW * np.maximum(steps(case, model.leader, x, y).max(axis=0), 1.0)):
        return f"G is broken by {np.max(leader):.2e}"
    lower = float(case.evaluate(model.lower, x, y)[0])
    spread_g = steps(case, model.lower, x, y).ravel()
    unit_g = np.min(spread_g[spread_g > 0], initial=math.inf)
    nudged = [x]
    for length in NUDGES:
        for direction in np.eye(x.size):
            nudged += [model.x_set.project(x + length * direction), model.x_set.project(x - length * direction)]
    if np.max(np.abs(best_x - x)) < 1e-4 * case.looseness:
        nudged.append(best_x)
    faults = []
    for near in nudged:
        found = case.answer(near)
        if found is None:
            faults.append("the follower has no answer there")
            continue
        loss = lower - float(case.evaluate(model.lower, near, found[0])[0])
        if math.isfinite(unit_g) and loss > LOWER * unit_g:
            faults.append(f"y costs the follower {loss:.2e} more than {np.array2string(found[0], precision=6)}")
        elif abs(found[1] - claimed) > allowed:
            faults.append(f"f at the follower's answer {np.array2string(found[0], precision=6)} is {found[1]:.8g}")
        else:
            return ""
    return faults[0]


def steps(case: Case, formula: Any, x: Array, y: Array) -> Array:
    """Return what the entries of a formula vary for a natural unit of each coordinate of y: (coordinates, entries)."""
    here = case.evaluate(formula, x, y)
    both = []
    for direction in np.eye(y.size):
        ahead, back = (case.evaluate(formula, x, y + sign * direction) for sign in (1.0, -1.0))
        moves = np.abs(np.stack([ahead - here, back - here]))
        both.append(np.max(np.where(np.isfinite(moves), moves, 0.0), axis=0))
    return np.array(both)


def neighbourhood(case: Case, x: Array, best_x: Array, claimed: float, scale: float, allowed: float) -> tuple[str, str]:
    """Return local, flat or wrong (and why) for a claim that is not the best: is there a way down without a barrier?"""
    region = case.model.x_set
    reach = float(np.max(case.scan[1] - case.scan[0]))
    lengths = np.concatenate([np.geomspace(1e-6, reach, 120), np.linspace(0, reach, 400 if x.size == 1 else 100)[1:]])
    lengths.sort()
    ways = [sign * direction for direction in directions(x.size, 24) for sign in (1.0, -1.0)]
    toward = best_x - x
    ways.append(toward / max(np.linalg.norm(toward), 1e-300))
    fall, plateau = "", ""
    for way in ways:
        level = True  # f is constant on the first stretch of this way
        for length in lengths:
            value = case.value(region.project(x + length * way))
            if length <= FLAT and abs(value - claimed) > 1e-9 * scale:
                level = False
            if value > claimed + RISE * scale:
                break
            if value < claimed - allowed:
                words = f"f falls to {value:.8g} without a barrier, {length:.2e} away"
                fall, plateau = (fall, plateau or words) if level and length > FLAT else (fall or words, plateau)
                break
    if not fall and x.size > 1:
        fall = ball_search(case, x, claimed, allowed)
    if fall:
        return "wrong", fall
    return ("flat", plateau) if plateau else ("local", "a better one is far away")


def ball_search(case: Case, x: Array, claimed: float, allowed: float) -> str:
    """Look for a better point right next to x off the rays (narrow valleys along kinks); empty where there is none."""
    region = case.model.x_set
    generator = np.random.default_rng(13)

    def inside(point: Array) -> float:
        near = region.project(point)
        return clipped(case.value(near)) if np.linalg.norm(near - x) <= NEAR else 1e300

    for length in (1e-3, 1e-2, NEAR / 2):
        corners = np.vstack([x, x + length * generator.standard_normal((x.size, x.size))])
        found = minimize(
            inside,
            x,
            method="Nelder-Mead",
            options={"initial_simplex": corners, "maxfev": 120 * x.size, "xatol": 1e-9, "fatol": 1e-14},
        )
        if found.fun < claimed - allowed:
            distance = np.linalg.norm(region.project(found.x) - x)
            return f"f falls to {found.fun:.8g} right next to it, {distance:.2e} away"
    return ""
