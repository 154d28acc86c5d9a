"""Judges claims about cases that state f(x, y(x)) themselves, in any dimension, and every result against its start.

Such a case has `reduced`: the reduced objective in natural units, free of the terms that cancel. Gains are measured
against what it varies by over one natural unit along the coordinates concerned. Coordinates along which it varies by
very different amounts are judged apart: an error in a cheap one is not small because another one is expensive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

import outside_judge
from outside_case import Array, Case
from outside_judge import GAIN, MEMBER, RISE, ROW, Verdict, clipped

RADII = (0.01, 0.05)  # natural units: a better point within the larger one is right next to the claim
DECADE = 10.0  # coordinates whose variations differ by more are judged apart
EPS = float(np.finfo(float).eps)
FALSE = ("infeasible", "unbounded")  # statuses that claim something: false where an admissible x is known
TIED = ("tie", "jump", "indifferent")  # words that tell the user that the response jumps within the tolerance of x


def judge(case: Case, result: Any) -> Verdict:
    """Judge one result of `blocc.solve`: what it claims, and whether it is worse than its start."""
    verdict = (judge_reduced if case.reduced is not None else outside_judge.judge)(case, result)
    if verdict.kind in ("right", "wrong") or (result.status.value == "not convex" and verdict.kind == "honest"):
        return verdict  # where the follower is not convex nobody knows f(x, y(x)) at the start either
    if "gamma" in case.options and result.status.value == "penalty open":
        return verdict  # a gamma by hand asks for the minimiser of F_gamma
    worse = worse_than_start(case, result)
    return Verdict("wrong", f"{worse} ({verdict.kind}: {verdict.words})") if worse else verdict


def natural_start(case: Case) -> Array | None:
    """Return the start, by default the middle of X as the reference says; None where that is not known."""
    if case.start is not None:
        return case.start
    region = case.model.x_set
    lower, upper = np.array(region.lower), np.array(region.upper)
    if region.kind == "ball":
        return np.array(region.center)
    if region.kind == "simplex":
        return np.full(region.size, region.radius / region.size)
    if np.all(np.isfinite(lower) & np.isfinite(upper)):
        return 0.5 * (lower + upper)
    if np.all(np.isinf(lower) & np.isinf(upper)):
        return -np.array(case.units.x_offset) / np.array(case.units.x_unit)
    return None


def worse_than_start(case: Case, result: Any) -> str:
    """Return why f(x, y(x)) at the result is worse than at the start, whatever the status; empty where it is not."""
    start = natural_start(case)
    if start is None or case.falls:
        return ""
    before = case.value(start)
    if not math.isfinite(before):
        return ""
    x, _ = case.natural(result.x, result.y)
    if not np.all(np.isfinite(x)):
        return "worse than its start: x is not finite"
    x = case.model.x_set.project(x)
    after = near_value(case, x)
    if after <= before + 1e-9 * (1 + abs(before)):
        return ""
    spread = variations(case, start)
    slack = RISE * np.min(spread[spread > 0], initial=1.0) + 64 * EPS * abs(before)
    if after <= before + slack:
        return ""
    return f"worse than its start: f(x, y(x)) = {after:.8g} at the result, {before:.8g} at the start"


def near_value(case: Case, x: Array) -> float:
    """Return the least f(x, y(x)) within the tolerance of x: at x, beside it, and where it is repaired."""
    values = [case.value(x, slack=1e-6)]
    if case.repair is not None:
        near = case.repair(x)
        if np.max(np.abs(near - x)) <= ROW:
            values.append(case.value(near, slack=1e-6))
    if x.size <= 12:
        for length in (1e-9, 1e-7, 1e-6):
            for way in np.eye(x.size):
                values += [case.value(case.model.x_set.project(x + sign * length * way)) for sign in (1.0, -1.0)]
    return min(values)


def judge_reduced(case: Case, result: Any) -> Verdict:
    """Judge a claim about a case that states its reduced objective."""
    status, message = result.status.value, result.message
    if not result.success:
        known = [point for point in (natural_start(case), case.solution) if point is not None]
        if status in FALSE and not case.falls and any(math.isfinite(case.value(point)) for point in known):
            return Verdict("wrong", f"false claim '{status}', an admissible x is known: {message}")
        named = any(word in message.lower() for word in case.honest_words)
        return Verdict("honest" if named or not case.well_posed else "missed", f"{status}: {message}")
    x, y = case.natural(result.x, result.y)
    where = f"x = {short(x)}, y = {short(y)} (natural units)"
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        return Verdict("wrong", f"not finite: {where}")
    if case.falls:
        return Verdict("wrong", f"f falls for ever, claimed {where}")
    if case.model.x_set.distance(x) > MEMBER:
        return Verdict("wrong", f"x is not in X: {where}")
    x = case.model.x_set.project(x)
    value = near_value(case, x)
    if not math.isfinite(value):
        return Verdict("wrong", f"x is not admissible: {where}")
    best = case.best if case.best is not None else best_value(case, x)
    spread = variations(case, case.solution if case.solution is not None else x)
    if case.scale is not None:
        spread = np.minimum(spread, case.scale)
    total = float(np.max(spread)) or 1.0
    fault = response_fault(case, x, y, value, GAIN * total, message)
    if fault:
        return Verdict("wrong", f"{fault}: {where}")
    least = float(np.min(spread[spread > 0], initial=total))
    if value <= best + GAIN * least + 64 * EPS * abs(best):
        return Verdict("right")
    better = f"f = {value:.8g} (natural), best {best:.8g}"
    for block in blocks(spread):
        if not np.max(spread[block]):
            continue  # f does not depend on them at all here
        fall = lowered(case, x, block, value, float(np.max(spread[block])))
        if fall is None:
            continue
        words = (
            f"f falls by {fall.gain:.3g} {fall.how} in {block.size} of {x.size} coordinates, {fall.distance:.2g} away"
        )
        if "flat" in f"{status} {message}".lower() and fall.distance > outside_judge.FLAT:
            return Verdict("local", f"{words}, and blocc says that it is flat: {where}; {better}")
        return Verdict("wrong", f"{words}: {where}; {better}")
    if value <= best + GAIN * total:
        return Verdict("right")
    return Verdict("local", f"a better one is far away: {where}; {better}")


def short(point: Array) -> str:
    """Return a point in words, shortened."""
    return np.array2string(point, precision=6, threshold=12, edgeitems=5).replace("\n", "")


def variations(case: Case, x: Array) -> Array:
    """Return what f(x, y(x)) varies by along every coordinate over one natural unit; 0 where it does not."""
    found = np.zeros(x.size)
    for index in range(x.size):
        values = [case.value(x)]
        for length in (0.25, 0.5, 1.0, -0.25, -0.5, -1.0):
            other = x.copy()
            other[index] += length
            other = case.model.x_set.project(other)
            values.append(case.value(other if case.repair is None else case.repair(other)))
        finite = [value for value in values if math.isfinite(value)]
        found[index] = max(finite) - min(finite) if finite else 0.0
    found[found <= 64 * EPS * abs(case.value(x))] = 0.0
    return found


def blocks(spread: Array) -> list[Array]:
    """Return nested sets of coordinates, the cheapest first, cut where the variation grows by more than a decade."""
    order = np.argsort(spread, kind="stable")
    found = []
    for count in range(1, spread.size + 1):
        last = spread[order[count - 1]]
        if count == spread.size or spread[order[count]] > DECADE * max(last, 1e-300):
            found.append(order[:count])
    return found


def best_value(case: Case, x: Array) -> float:
    """Return the best value known without a stated one: of descents from x, from the start and from random points."""
    generator = np.random.default_rng(17)
    lower, upper = case.scan
    points = [x, *(lower + (upper - lower) * generator.random((6 if x.size > 12 else 24, x.size)))]
    if case.start is not None:
        points.append(case.start)
    everything = np.arange(x.size)
    return min(descended(case, admitted(case, point), everything, math.inf)[0] for point in points)


def admitted(case: Case, x: Array) -> Array:
    """Return an admissible point near x."""
    near = case.model.x_set.project(x)
    return near if case.repair is None else case.repair(near)


@dataclass(frozen=True)
class Fall:
    """A better point beside a claim, and how it was found."""

    gain: float
    distance: float
    how: str


def lowered(case: Case, x: Array, block: Array, value: float, spread: float) -> Fall | None:
    """Return a better point near x (or far, without a barrier) whose gain counts; None where there is none."""
    generator = np.random.default_rng(19)
    for radius in RADII:
        for shift in (0.0, 0.1, 0.6):
            start = x.copy()
            start[block] += shift * radius * generator.uniform(-1, 1, block.size)
            found, point = descended(case, start, block, radius, x)
            way = admitted(case, point) - x
            distance = float(np.linalg.norm(way))
            near = 0 < distance <= 3 * radius * math.sqrt(block.size)
            if near and counts(case, x, way / distance, value, value - found, spread):
                return Fall(value - found, distance, "right next to it")
    return far_fall(case, x, block, value, spread)


def counts(case: Case, x: Array, way: Array, value: float, gain: float, spread: float) -> bool:
    """Return whether a gain matters, against what f varies by over a natural unit along the block, or along the way."""
    if gain <= 64 * EPS * abs(value):
        return False
    values = [case.value(admitted(case, x + length * way)) for length in (0.25, 0.5, 1.0, -0.25, -0.5, -1.0)]
    finite = [value, *(there for there in values if math.isfinite(there))]
    return gain > GAIN * min(spread, max(finite) - min(finite))


def descended(
    case: Case, start: Array, block: Array, radius: float, around: Array | None = None
) -> tuple[float, Array]:
    """Return the value and the end of a descent of f in a block of coordinates, within a box around a point."""
    center = start if around is None else around
    lower = np.maximum(np.array(case.model.x_set.lower), center - radius)[block]
    upper = np.minimum(np.array(case.model.x_set.upper), center + radius)[block]

    def whole(part: Array) -> Array:
        point = start.copy()
        point[block] = part
        return admitted(case, point)

    def objective(part: Array) -> float:
        return clipped(case.value(whole(part)))

    begin = np.clip(start[block], lower, upper)
    step = 1e-7 if not math.isfinite(radius) else 1e-5 * radius
    bounds = list(zip(lower, np.maximum(upper, lower), strict=True))
    ends = [begin]
    found = minimize(objective, begin, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200, "eps": step})
    ends.append(np.clip(found.x, lower, upper))
    if block.size <= 12:  # kinks stop the former
        width = radius if math.isfinite(radius) else 0.5
        corners = np.vstack([ends[-1], ends[-1] + np.diag(0.3 * width * np.ones(block.size))])
        found = minimize(
            lambda part: objective(np.clip(part, lower, upper)),
            ends[-1],
            method="Nelder-Mead",
            options={"initial_simplex": corners, "maxfev": 100 * block.size, "xatol": 1e-10, "fatol": 1e-15},
        )
        ends.append(np.clip(found.x, lower, upper))
    else:
        ends.append(compass(objective, ends[-1], lower, upper, 0.5 * radius if math.isfinite(radius) else 0.5))
    values = [objective(end) for end in ends]
    least = int(np.argmin(values))
    return values[least], whole(ends[least])


def compass(objective: Callable[[Array], float], point: Array, lower: Array, upper: Array, length: float) -> Array:
    """Return the end of a descent along coordinates with falling lengths, for kinks in many dimensions."""
    point, value = point.copy(), objective(point)
    for _ in range(6):
        for index in range(point.size):
            for sign in (1.0, -1.0):
                other = point.copy()
                other[index] = np.clip(other[index] + sign * length, lower[index], upper[index])
                there = objective(other)
                if there < value:
                    point, value = other, there
        length *= 0.3
    return point


def far_fall(case: Case, x: Array, block: Array, value: float, spread: float) -> Fall | None:
    """Return a fall of f along a ray from x without a barrier on the way: coordinates, random ways, to the best x."""
    generator = np.random.default_rng(23)
    reach = float(np.max(case.scan[1] - case.scan[0]))
    count = 120 if x.size <= 12 else 24
    lengths = np.sort(np.concatenate([np.geomspace(1e-6, reach, count), np.linspace(0, reach, count)[1:]]))
    ways = [sign * way for way in np.eye(x.size)[block] for sign in (1.0, -1.0)]
    if case.solution is not None and block.size == x.size:
        ways.append((case.solution - x) / max(np.linalg.norm(case.solution - x), 1e-300))
    for _ in range(12):
        way = np.zeros(x.size)
        way[block] = generator.standard_normal(block.size)
        ways.append(way / np.linalg.norm(way))
    for way in ways:
        gain, distance = 0.0, 0.0
        for length in lengths:
            there = case.value(admitted(case, x + length * way))
            if there > value + RISE * spread:
                break
            if value - there > gain:
                gain, distance = value - there, float(length)
        if counts(case, x, way, value, gain, spread):
            return Fall(gain, distance, "without a barrier")
    return None


def response_fault(case: Case, x: Array, y: Array, value: float, allowed: float, message: str) -> str:
    """Return why y is not the response at x, by g and by f at y; empty where it is."""
    claimed = float(case.evaluate(case.model.upper, x, y)[0])
    allowed = allowed * case.looseness + 256 * EPS * case.rounding + 64 * EPS * abs(claimed)
    if case.strict_ties and abs(claimed - value) > allowed and not any(word in message.lower() for word in TIED):
        strict = [case.value(x), *(case.value(x + step) for step in (1e-8, -1e-8))]
        if min(abs(claimed - there) for there in strict) > allowed:
            return f"f = {claimed:.8g} at its y, but {case.value(x):.8g} at the response to this very x"
    fault = outside_judge.follower_fault(case, x, y, claimed, allowed, x)
    if fault:
        return fault
    if case.strict_ties or abs(claimed - value) <= allowed:
        return ""
    return f"f = {claimed:.8g} at its y, but f(x, y(x)) = {value:.8g}"
