"""Checks the outside stress set itself: followers against a second method, the judge against made-up claims; no blocc.

    python benchmarks/outside_check.py --count 3 --points 4

For random x of every family: the answer is feasible; no other y does better below (a fine scan for one y, SLSQP from
several starts for more); where the follower is indifferent, no other of its answers suits the leader better; where it
is said to have no answer, none is found. Best values that a family states are compared with points of X. And the judge
must call the best point right, a point beside it not right, and the best x with another y wrong.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from types import SimpleNamespace

import numpy as np
from scipy.optimize import minimize

from outside import draw
from outside_case import Array, Case
from outside_families import FAMILIES
from outside_judge import judge, search, variation

TIED = ("ties", "indifferent", "toll_routes", "bottomless_part")
BOTTOMLESS = ("bottomless", "bottomless_part")


def rows(case: Case, x: Array, y: Array) -> Array:
    """Return all rows that must not be positive, those of Y's bounds included."""
    region = case.model.y_set
    parts = [case.evaluate(case.model.inequality, x, y), case.evaluate(case.model.equality, x, y)]
    parts += [-parts[1], np.array([region.distance(y)])]
    return np.concatenate(parts)


def other_answers(case: Case, x: Array, around: Array, objective: str) -> list[Array]:
    """Return candidates for the follower's answer by a second method, feasible to 1e-8 (1e-10 in one dimension)."""
    formula = getattr(case.model, objective)
    if around.size == 1:
        steps = np.concatenate([np.linspace(-10, 10, 4001), np.geomspace(1e-8, 1, 60), -np.geomspace(1e-8, 1, 60)])
        points = [around + step for step in steps]
    else:
        region, generator = case.model.y_set, np.random.default_rng(5)
        constraints = [
            {"type": kind, "fun": lambda y, formula=rule, sign=sign: sign * case.evaluate(formula, x, y)}
            for kind, rule, sign in (("ineq", case.model.inequality, -1.0), ("eq", case.model.equality, 1.0))
            if rule is not None
        ]
        if kindred(case):  # duplicated equalities break SLSQP: one of them is enough
            constraints[1]["fun"] = lambda y: case.evaluate(case.model.equality, x, y)[:1]
        if region.kind == "ball":
            constraints.append({"type": "ineq", "fun": lambda y: region.radius**2 - np.sum((y - region.center) ** 2)})
        if region.kind == "simplex":
            constraints.append({"type": "eq", "fun": lambda y: np.sum(y) - region.radius})
        least = np.maximum(region.lower, 1e-12) if "entropic" in case.model.name else region.lower  # log y
        bounds = list(zip(least, region.upper, strict=True))
        points = []
        for spread in (1e-3, 0.3, 1.0):
            start = region.project(around + spread * generator.standard_normal(around.size))
            with np.errstate(all="ignore"):
                found = minimize(
                    lambda y: case.evaluate(formula, x, y)[0],
                    start,
                    bounds=bounds,
                    constraints=constraints,
                    method="SLSQP",
                    options={"ftol": 1e-14, "maxiter": 300},
                )
            points.append(found.x)
    slack = 1e-10 if around.size == 1 else 1e-8
    return [point for point in points if np.max(rows(case, x, point)) <= slack]


def kindred(case: Case) -> bool:
    """Return whether the case states its equalities twice."""
    return case.model.equality is not None and case.model.inequality is not None


def faults(family: str, case: Case, x: Array) -> list[str]:
    """Return what is wrong with the follower of a case at x."""
    found = case.answer(x)
    if found is None:
        if family in BOTTOMLESS:
            return []
        generator = np.random.default_rng(3)
        tries = [
            minimize(
                lambda y: np.sum(np.maximum(rows(case, x, y), 0) ** 2), generator.standard_normal(case.model.y_set.size)
            )
            for _ in range(3)
        ]
        least = min(np.max(rows(case, x, attempt.x)) for attempt in tries)
        return [f"says no answer, but rows hold to {least:.1e}"] if least < 1e-8 else []
    y, value = found
    said = []
    if np.max(rows(case, x, y)) > 1e-9 * (1 + np.max(np.abs(y))):
        said.append(f"answer breaks rows by {np.max(rows(case, x, y)):.1e}")
    lower = case.evaluate(case.model.lower, x, y)[0]
    for other in other_answers(case, x, y, "lower"):
        gain = lower - case.evaluate(case.model.lower, x, other)[0]
        if gain > 1e-7 * (1 + abs(lower)):
            said.append(f"g falls by {gain:.1e} at {other} from {y}")
    if family in TIED:
        for other in other_answers(case, x, y, "upper"):
            loss = case.evaluate(case.model.lower, x, other)[0] - lower
            if loss < 1e-10 and case.evaluate(case.model.upper, x, other)[0] < value - 1e-6:
                said.append(f"not the optimistic answer: {other} suits the leader better than {y}")
    return said


def claim(case: Case, x: Array, y: Array) -> SimpleNamespace:
    """Return what a solver might say: success at natural x and y, told in the user's units."""
    units = case.units
    return SimpleNamespace(
        x=np.array(units.x_unit) * x + np.array(units.x_offset),
        y=np.array(units.y_unit) * y + np.array(units.y_offset),
        success=True,
        status=SimpleNamespace(value="converged"),
        message="",
    )


def judge_faults(case: Case) -> list[str]:
    """Return where the judge is wrong about claims that are made up."""
    best_x, best = search(case, case.model.x_set.project(0.5 * (case.scan[0] + case.scan[1])))
    if case.falls or best_x is None:
        return []
    y, said = case.answer(best_x)[0], []
    verdict = judge(case, claim(case, best_x, y))
    if verdict.kind != "right" and (case.best is None or case.value(best_x) <= case.best + 1e-6):
        said.append(f"the best point is called {verdict.kind}: {verdict.words}")
    scale = case.scale or variation(case, best_x)
    for step in (0.2, -0.2, 0.03):
        x = case.model.x_set.project(best_x + step)
        value = case.value(x)
        if math.isfinite(value) and value > best + 1e-3 * scale * case.looseness:
            verdict = judge(case, claim(case, x, case.answer(x)[0]))
            if verdict.kind != "wrong":
                said.append(f"x = {x} is called {verdict.kind} beside {best_x}: {verdict.words}")
    for step in (0.05, -0.05):
        other = y + step
        change = abs(case.evaluate(case.model.upper, best_x, other)[0] - case.value(best_x))
        if change > 1e-3 * scale * case.looseness and judge(case, claim(case, best_x, other)).kind != "wrong":
            said.append(f"y = {other} passes where {y} is right")
    return said


def main() -> int:
    """Check all families and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3, help="problems of each family")
    parser.add_argument("--points", type=int, default=4, help="random x of each problem")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES))
    arguments = parser.parse_args()
    bad = 0
    for family, index in itertools.product(arguments.family or FAMILIES, range(arguments.count)):
        case = draw(family, arguments.seed, index)
        generator = np.random.default_rng([arguments.seed, index])
        lower, upper = case.scan
        stated = case.reduced is not None  # tests/test_outside_new.py has made-up claims about these
        if stated and case.model.y_set.size > 12:
            continue
        for words in [] if stated else judge_faults(case):
            bad += 1
            print(f"{family} {index}, judge: {words}", flush=True)
        for _ in range(arguments.points):
            x = case.model.x_set.project(lower + (upper - lower) * generator.random(lower.size))
            said = faults(family, case, x)
            if case.best is not None and math.isfinite(case.best) and case.value(x) < case.best - 1e-9:
                said.append(f"f = {case.value(x):.8g} is below the stated best {case.best:.8g}")
            for words in said:
                bad += 1
                print(f"{family} {index} at x = {x}: {words}", flush=True)
    print(f"{bad} faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
