"""A small sample of the stress set: no run may claim success where there is none.

``benchmarks/stress.py`` draws the full set. The sample keeps to one shape, so that little is compiled.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import stress

#: Few, since each compiles programs of its own; none that searches along a wall.
FAMILIES = ["linear vertex", "hidden equality", "switching", "never feasible", "not convex"]


def sample(count: int) -> list[stress.Case]:
    """Problems of many families with two variables above and below and four inequalities."""
    found = []
    for case in stress.draw(160, seed=1, families=FAMILIES):
        flat = case.problem.flat
        if (flat.n_x, flat.n_y, flat.n_inequality) == (2, 2, 4) and len(found) < count:
            found.append(case)
    return found


@pytest.mark.slow
def test_no_wrong_claim() -> None:
    cases = sample(12)
    assert len(cases) == 12
    assert len({case.family for case in cases}) >= 3
    found = [stress.judge(case) for case in cases]
    assert not [(v.case.family, v.fault) for v in found if v.wrong_claim]
    assert not [(v.case.family, v.result.message, v.fault) for v in found if not v.right]


def test_the_same_seed_draws_the_same_problems() -> None:
    first, again = (stress.draw(3, seed=5, families=["switching"]) for _ in range(2))
    assert [case.value for case in first] == [case.value for case in again]
