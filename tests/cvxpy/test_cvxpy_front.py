"""The programs that followers in CVXPY are compared with."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "cvxpy_front.py"


@pytest.fixture
def front() -> Any:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("cvxpy_front", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_binaries_find_the_best_of_a_grid_and_the_front_end_beats_it(front: Any) -> None:
    levels = np.linspace(0, 1, 3)
    best = min(front.checked(front.ties, [a, b]) for a in levels for b in levels)
    found, _ = front.by_big_m(levels=3)
    np.testing.assert_allclose(found, best, atol=1e-5)
    answer, _ = front.by_blocc(front.ties)
    assert answer["status"] == "converged"
    assert front.checked(front.ties, answer["x"]) <= best + 1e-5


@pytest.mark.parametrize(
    ("name", "value"),  # of the best x, by a fine grid in one variable; of the 24 prices, what another package found
    [("quadratic", 2.0), ("ridge", 0.270667), ("carbon_tax", 0.014357), ("demand_response", 1.897602)],
)
def test_examples_of_the_gallery_converge_within_few_evaluations(front: Any, name: str, value: float) -> None:
    answer, _ = front.by_blocc(front.PROBLEMS[name])
    assert answer["status"] == "converged"
    assert front.checked(front.PROBLEMS[name], answer["x"]) <= value + 2e-6
