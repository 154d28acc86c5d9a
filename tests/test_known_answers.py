"""Problems with known answers, solved with no option set.

Compiling a problem takes longer than solving it, so the tests take a selection in which every tag occurs, twice where
it can; benchmarks/known_answers.py solves all of them from all their starts and from random ones, and prints the table.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from blocc import solve
from blocc.problems.textbook import KnownProblem, known_problem, known_problems
from selections import few

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import known_answers


def selection(times: int) -> list[KnownProblem]:
    """Problem by problem, the one whose tags are wanted most; small ones first."""
    remaining = sorted(known_problems(), key=lambda known: (known.problem.flat.n_y, known.name))
    have = {tag: sum(tag in known.tags for known in remaining) for known in remaining for tag in known.tags}
    wanted = {tag: min(times, count) for tag, count in have.items()}
    chosen: list[KnownProblem] = []
    while any(count > 0 for count in wanted.values()):
        best = max(remaining, key=lambda known: sum(wanted[tag] > 0 for tag in known.tags))
        remaining.remove(best)
        chosen.append(best)
        for tag in best.tags:
            wanted[tag] -= 1
    return chosen


#: Every tag twice. The benchmark takes all problems.
NAMES = dict.fromkeys(known.name for known in selection(1) + selection(2))


#: Two variables of the leader; the textbook's tests hold the others, and the slow tests run the benchmark on them.
@pytest.mark.parametrize("name", few(NAMES, "outrata_1990_example_1a"))
def test_reaches_the_known_value(name: str) -> None:
    known = known_problem(name)
    result = solve(known.problem, known.starts[0])  # one start each; the benchmark takes them all
    assert result.success, result.message
    error = result.upper_value - known.upper_value
    if "local" in known.tags:  # a better value than a local minimum is welcome
        error = max(error, 0.0)
    assert abs(error) <= known.tolerance * (1.0 + abs(known.upper_value))
    assert result.certificate.feasibility <= 1e-5


def test_the_collection_is_broad() -> None:
    tags = set().union(*(known.tags for known in known_problems()))
    assert tags == set().union(*(known.tags for known in selection(2)))
    wanted = {"unconstrained", "affine-coupled", "nonlinear-coupled", "equality", "box-y", "simplex-y", "merely-convex"}
    assert wanted <= tags
    sizes = {known.problem.flat.n_y for known in known_problems()}
    assert min(sizes) == 1
    assert max(sizes) >= 10_000
    assert len(known_problems()) >= 25


# --- the benchmark ---------------------------------------------------------------------------------------------------
def test_the_benchmark_prints_its_scores(capsys: pytest.CaptureFixture[str]) -> None:
    assert known_answers.main(["blocc_toy", "--first", "--starts", "4"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^blocc_toy .* (yes|no) +(yes|no) +\d/4$", printed, re.MULTILINE)
    assert "1 of 1 listed starts of 1 problems reach the known value to 0.0001 with a certificate; 0 claim" in printed
    # The toy has several local minima: some starts end at another one, and say so.
    scores = re.search(r"from one random start (\d) of 1 .* best of 4 (\d); (\d) of 4 runs claim success", printed)
    assert scores is not None
    assert scores[2] == "1"
    assert int(scores[3]) > 0


def test_random_starts_end_with_the_time_and_other_values_count_as_claims() -> None:
    known = known_problem("quadratic_tracking")
    drawn = known_answers.from_random_starts(known, starts=10, seed=0, seconds=0.0)
    assert drawn == known_answers.Drawn(1, 1, one=True, best=True, elsewhere=0, best_elsewhere=False)
    wrong = replace(known, upper_value=known.upper_value + 1.0)
    drawn = known_answers.from_random_starts(wrong, starts=2, seed=0, seconds=60.0)
    assert drawn == known_answers.Drawn(2, 0, one=False, best=False, elsewhere=2, best_elsewhere=True)
