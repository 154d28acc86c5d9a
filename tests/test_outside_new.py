"""Families that state f(x, y(x)) themselves agree with themselves: value, answer, start, and what is no better."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import outside_blocks
import outside_cancelling
import outside_cones
import outside_curved
import outside_hostile
import outside_responses
import outside_saddles
from outside import draw
from outside_check import claim
from outside_families import FAMILIES
from outside_truth import judge, natural_start

OURS = [
    name
    for name, family in FAMILIES.items()
    if family.__module__
    in {
        m.__name__
        for m in (
            outside_blocks,
            outside_cancelling,
            outside_cones,
            outside_curved,
            outside_hostile,
            outside_responses,
            outside_saddles,
        )
    }
]


@pytest.mark.parametrize("family", OURS)
def test_a_family_agrees_with_itself(family):
    for index in range(3):
        case = draw(family, 20261118, index)
        start = natural_start(case)
        assert start is not None
        assert case.model.x_set.distance(start) <= 1e-9
        if case.repair is None:
            assert math.isfinite(case.value(start)) or family in ("half_finite", "impossible_leader")
        generator = np.random.default_rng(index)
        points = [start, *(np.array(case.scan[0]) + (case.scan[1] - case.scan[0]) * generator.random((4, start.size)))]
        if case.solution is not None:
            assert case.model.x_set.distance(case.solution) <= 1e-9
            points.append(case.solution)
        for x in points:
            x = x if case.repair is None else case.repair(case.model.x_set.project(x))
            value, found = case.value(x), case.answer(x)
            assert found is not None
            y, seen = found
            assert case.model.y_set.distance(y) <= 1e-9
            rows = np.concatenate(
                [case.evaluate(case.model.inequality, x, y), np.abs(case.evaluate(case.model.equality, x, y))]
            )
            assert np.max(rows, initial=0.0) <= 1e-8 * max(1.0, case.rounding)
            if math.isfinite(value) and not case.strict_ties:
                assert abs(seen - value) <= 1e-8 * max(1.0, abs(value)) + 256 * np.finfo(float).eps * case.rounding * (
                    1 + x.size
                )
            if case.best is not None:
                assert value >= case.best - 1e-9 * max(1.0, abs(case.best))
        if case.best is not None and case.solution is not None:
            assert case.value(case.solution) <= case.best + 2e-3 * max(1.0, abs(case.best))


@pytest.mark.parametrize("family", OURS)
def test_the_judge_knows_the_best_point_and_points_beside_it(family):
    for index in range(6):
        case = draw(family, 7, index)
        if case.solution is None or case.solution.size > 8 or case.best is None:
            continue
        y = np.atleast_1d(case.follower(case.shaped(case.solution)))
        if case.value(case.solution) <= case.best + 1e-6:
            verdict = judge(case, claim(case, case.solution, y))
            assert verdict.kind == "right", verdict.words
        beside = case.model.x_set.project(case.solution + 0.2 * np.sign(case.solution))
        beside = beside if case.repair is None else case.repair(beside)
        response = np.atleast_1d(case.follower(case.shaped(beside)))
        if case.value(beside) > case.best + 1e-2 * (case.scale or 1.0) * (1 + abs(case.best)):
            kind = judge(case, claim(case, beside, response)).kind
            assert kind == "wrong" or (kind == "local" and family in ("tolls_at_ties", "jumping_ties"))
        return


@pytest.mark.parametrize(
    "family", ["saddle_direction", "saddle_cancelling", "saddle_across", "saddle_response", "saddle_bounds"]
)
def test_the_judge_knows_a_saddle(family):
    case = draw(family, 3, 0)
    x = np.array(case.data["t"])
    verdict = judge(case, claim(case, x, np.atleast_1d(case.follower(x))))
    assert verdict.kind == "wrong", verdict.words
