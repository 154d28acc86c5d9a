"""The stress set of people who never saw the solver: no claim of success is wrong, and `verify` confirms each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from outside import attempt, draw
from outside_families import FAMILIES
from selections import few

#: One family for each way in which claims were wrong once.
FEW = (
    "stiff_exp",
    "shifted_upper",
    "scaled_lower",
    "falls_2d",
    "flat_power",
    "kink_lower",
    "leader_smooth",
    "toll_plateau",
    "meeting_kinks",
)


@pytest.mark.parametrize(
    "family",
    few(
        FEW,
        *(
            name
            for name in FEW
            if name not in ("flat_power", "falls_2d", "stiff_exp", "shifted_upper", "leader_smooth", "kink_lower")
        ),
    ),
)
def test_claims_are_true(family: str) -> None:
    verdict, _, said = attempt(draw(family, 2024, 0), verified=True)
    assert verdict.kind in ("right", "local", "honest"), f"{verdict.words}; {said}"


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_no_family_is_claimed_wrongly(family: str) -> None:
    verdict, _, said = attempt(draw(family, 7, 0), verified=True)
    assert verdict.kind not in ("wrong", "refused", "crash"), f"{verdict.words}; {said}"
