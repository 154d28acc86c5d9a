"""Problems with known answers, solved from every listed start with no option set.

Prints one row a problem: dimensions, the known value, the worst error over its starts, evaluations, seconds. The last
lines count what was solved. Usage: python benchmarks/known_answers.py [NAME ...] [--first]
"""

from __future__ import annotations

import argparse
import sys
import time

from blocc import Result, solve
from blocc.applications.textbook import KnownProblem, known_problems

TOLERANCE = 1e-4


def error_of(known: KnownProblem, result: Result) -> float:
    """Relative error of the upper value; a better value than a merely local answer is no error."""
    difference = result.upper_value - known.upper_value
    if "local" in known.tags and difference < 0:
        return 0.0
    return abs(difference) / (1.0 + abs(known.upper_value))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only problems whose name contains one of these")
    parser.add_argument("--first", action="store_true", help="only the first start of each problem")
    given = parser.parse_args()
    counts = f"{'x':>5} {'y':>5} {'gc+h':>5}"
    print(f"{'problem':<42} {counts} {'known f':>13} {'error':>8} {'eval':>5} {'compile':>8} {'run':>8}")
    solved = total = problems = false_claims = 0
    begun = time.perf_counter()
    for known in known_problems():
        if given.names and not any(name in known.name for name in given.names):
            continue
        flat = known.problem.flat
        starts = known.starts[:1] if given.first else known.starts
        results = [solve(known.problem, start) for start in starts]
        errors = [error_of(known, result) for result in results]
        good = [result.success and error <= TOLERANCE for result, error in zip(results, errors, strict=True)]
        solved, total, problems = solved + sum(good), total + len(good), problems + 1
        false_claims += sum(r.success and e > TOLERANCE for r, e in zip(results, errors, strict=True))
        run = sum(result.seconds["run"] for result in results) / len(results)
        print(
            f"{known.name:<42} {flat.n_x:>5} {flat.n_y:>5} {flat.n_inequality + flat.n_equality:>5} "
            f"{known.upper_value:>13.7g} {max(errors):>8.1e} {max(r.counts['evaluations'] for r in results):>5} "
            f"{results[0].seconds['compile']:>7.2f}s {run:>7.3f}s"
            + ("" if all(good) else f"   {sum(good)} of {len(good)}: {results[good.index(False)].message}"),
            flush=True,
        )
    print(
        f"{solved} of {total} starts of {problems} problems reach the known value to {TOLERANCE:g} with a certificate; "
        f"{false_claims} claim success elsewhere; {time.perf_counter() - begun:.0f} s"
    )
    return 0 if solved == total else 1


if __name__ == "__main__":
    sys.exit(main())
