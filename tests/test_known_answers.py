"""Problems with known answers, solved with no option set; the whole table is printed by benchmarks/known_answers.py."""

from __future__ import annotations

import pytest

from blocc import solve
from blocc.applications.textbook import KnownProblem, known_problems


@pytest.mark.parametrize("known", known_problems(), ids=lambda known: known.name)
def test_reaches_the_known_value(known: KnownProblem) -> None:
    result = solve(known.problem, known.starts[0])  # one start each; the benchmark takes them all
    assert result.success, result.message
    error = result.upper_value - known.upper_value
    if "local" in known.tags:  # a better value than a local minimum is welcome
        error = max(error, 0.0)
    assert abs(error) <= 1e-4 * (1.0 + abs(known.upper_value))
    assert result.certificate.feasibility <= 1e-5


def test_the_collection_is_broad() -> None:
    tags = set().union(*(known.tags for known in known_problems()))
    wanted = {"unconstrained", "affine-coupled", "nonlinear-coupled", "equality", "box-y", "simplex-y", "merely-convex"}
    assert wanted <= tags
    sizes = {known.problem.flat.n_y for known in known_problems()}
    assert min(sizes) == 1
    assert max(sizes) >= 10_000
    assert len(known_problems()) >= 25
