"""Problems with known answers, solved with no option set: from every listed start, and from random starts.

Prints one row a problem: dimensions, the known value, the worst error over its listed starts, evaluations, seconds;
then whether the first random start, and the best of ten, reach the known value, and how many of the ten do. The last
lines count what was solved. A run that claims success elsewhere may be right, and at another local minimum: only the
listed starts are chosen so that one answer is to be expected.

Usage: python benchmarks/known_answers.py [NAME ...] [--count N] [--first] [--starts N] [--seed S] [--seconds T]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from blocc import Result, solve
from blocc.problems.textbook import KnownProblem, known_problems
from blocc.problems.textbook.entry import TOLERANCE


def error_of(known: KnownProblem, result: Result) -> float:
    """Relative error of the upper value; a better value than a merely local answer is no error."""
    difference = result.upper_value - known.upper_value
    if "local" in known.tags and difference < 0:
        return 0.0
    return abs(difference) / (1.0 + abs(known.upper_value))


def is_solved(known: KnownProblem, result: Result) -> bool:
    """Whether a run has reached the known value, with a certificate."""
    return result.success and error_of(known, result) <= known.tolerance


def claims_elsewhere(known: KnownProblem, result: Result) -> bool:
    """Whether a run claims success at another value."""
    return result.success and not error_of(known, result) <= known.tolerance


class Listed(NamedTuple):
    """A problem from its listed starts."""

    results: list[Result]
    good: list[bool]
    false_claims: int


def from_listed_starts(known: KnownProblem, first_only: bool = False) -> Listed:
    """Solve from the starts that the collection lists."""
    results = [solve(known.problem, start) for start in known.starts[: 1 if first_only else None]]
    good = [is_solved(known, result) for result in results]
    return Listed(results, good, sum(claims_elsewhere(known, result) for result in results))


class Drawn(NamedTuple):
    """A problem from random starts."""

    runs: int
    solved: int  #: runs that reach the known value
    one: bool  #: whether the first of them does
    best: bool  #: whether the one with the best certified value does
    elsewhere: int  #: runs that claim success at another value
    best_elsewhere: bool  #: whether the best one does


def from_random_starts(known: KnownProblem, starts: int, seed: int, seconds: float) -> Drawn:
    """Solve from random points of X, until there are enough of them or the time is over."""
    generator, begun = np.random.default_rng(seed), time.perf_counter()
    results: list[Result] = []
    while len(results) < starts and (not results or time.perf_counter() - begun < seconds):
        results.append(solve(known.problem, known.problem.x_set.sample(generator)))
    certified = [result for result in results if result.success]
    best = min(certified, key=lambda result: result.upper_value, default=results[0])
    return Drawn(
        runs=len(results),
        solved=sum(is_solved(known, result) for result in results),
        one=is_solved(known, results[0]),
        best=is_solved(known, best),
        elsewhere=sum(claims_elsewhere(known, result) for result in results),
        best_elsewhere=claims_elsewhere(known, best),
    )


def row_of(known: KnownProblem, listed: Listed, drawn: Drawn | None) -> str:
    """One line of the table."""
    flat, results = known.problem.flat, listed.results
    worst = max(error_of(known, result) for result in results)
    run = sum(result.seconds["run"] for result in results) / len(results)
    text = (
        f"{known.name:<42} {flat.n_x:>5} {flat.n_y:>5} {flat.n_inequality + flat.n_equality:>5} "
        f"{known.upper_value:>13.7g} {worst:>8.1e} {max(r.counts['evaluations'] for r in results):>5} "
        f"{results[0].seconds['compile']:>7.2f}s {run:>7.3f}s"
    )
    if drawn is not None:
        yes = {True: "yes", False: "no"}
        text += f" {yes[drawn.one]:>4} {yes[drawn.best]:>4} {f'{drawn.solved}/{drawn.runs}':>6}"
    if not all(listed.good):
        failure = results[listed.good.index(False)].message
        text += f"   {sum(listed.good)} of {len(listed.good)}: {failure}"
    return text


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only problems whose name contains one of these")
    parser.add_argument("--count", type=int, help="only so many of them")
    parser.add_argument("--first", action="store_true", help="only the first of the listed starts of each problem")
    parser.add_argument("--starts", type=int, default=10, help="random starts of each problem; 0 for none")
    parser.add_argument("--seed", type=int, default=0, help="of the random starts")
    parser.add_argument("--seconds", type=float, default=15.0, help="after which no further random start is begun")
    given = parser.parse_args(words)
    chosen = [
        known for known in known_problems() if not given.names or any(name in known.name for name in given.names)
    ][: given.count]
    counts = f"{'x':>5} {'y':>5} {'gc+h':>5}"
    random = f" {'one':>4} {'best':>4} {'of':>6}" if given.starts > 0 else ""
    print(f"{'problem':<42} {counts} {'known f':>13} {'error':>8} {'eval':>5} {'compile':>8} {'run':>8}{random}")
    begun = time.perf_counter()
    all_listed: list[Listed] = []
    all_drawn: list[Drawn] = []
    for known in chosen:
        listed = from_listed_starts(known, given.first)
        drawn = from_random_starts(known, given.starts, given.seed, given.seconds) if given.starts > 0 else None
        all_listed.append(listed)
        all_drawn += [] if drawn is None else [drawn]
        print(row_of(known, listed, drawn), flush=True)
    solved, total = (sum(map(count, (found.good for found in all_listed))) for count in (sum, len))
    print(
        f"{solved} of {total} listed starts of {len(chosen)} problems reach the known value to {TOLERANCE:g} with a "
        f"certificate; {sum(found.false_claims for found in all_listed)} claim success elsewhere"
        + "".join(f"; {known.name} counts to {known.tolerance:g}" for known in chosen if known.tolerance != TOLERANCE)
    )
    if all_drawn:
        few = sum(drawn.runs < given.starts for drawn in all_drawn)
        print(
            f"from one random start {sum(drawn.one for drawn in all_drawn)} of {len(chosen)} problems are solved so, "
            f"from the best of {given.starts} {sum(drawn.best for drawn in all_drawn)}"
            + (f" ({few} of them from fewer, for want of time)" if few else "")
            + f"; {sum(drawn.elsewhere for drawn in all_drawn)} of {sum(drawn.runs for drawn in all_drawn)} runs claim "
            f"success elsewhere, {sum(drawn.best_elsewhere for drawn in all_drawn)} of the best do"
        )
    print(f"{time.perf_counter() - begun:.0f} s")
    return 0 if solved == total else 1


if __name__ == "__main__":
    sys.exit(main())
