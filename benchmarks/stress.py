"""Random bilevel problems with a known right end, solved with no option set.

Well-posed problems must end converged at the known optimal value; ill-posed ones with the status that names what is
wrong. A run that claims success elsewhere is the one thing that must never happen.
Usage: python benchmarks/stress.py [--count 1000] [--seed 0] [--family NAME] [--seconds S] [--verbose]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np

from blocc import Result, solve
from stress_designs import Redraw
from stress_families import FAMILIES
from stress_templates import Case

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Verdict:
    """What a run was worth."""

    case: Case
    result: Result
    seconds: float
    error: float  #: of the upper value, relative to the size of the upper objective; NaN for ill-posed problems
    fault: str  #: what is wrong with the answer, whatever the status; empty if nothing is

    @property
    def right(self) -> bool:
        """Solved, or refused for the right reason."""
        return self.result.status in self.case.statuses and not self.fault

    @property
    def wrong_claim(self) -> bool:
        """Success claimed where there is none."""
        return self.result.success and not self.right


def draw(count: int, seed: int = 0, families: list[str] | None = None) -> list[Case]:
    """Random problems, the families in turn; the same seed draws the same problems."""
    names = list(FAMILIES) if families is None else families
    made = []
    for index in range(count):
        generator = np.random.default_rng((seed, index))
        while True:
            try:
                made.append(FAMILIES[names[index % len(names)]](generator))
                break
            except Redraw:
                continue
    return made


def fault_of(case: Case, result: Result) -> tuple[float, str]:
    """Relative error of the upper value, and in words what is wrong with x and y (empty if nothing is)."""
    if not case.well_posed:
        return np.nan, ""
    error = abs(result.upper_value - case.value) / max(abs(case.value), case.unit)
    y = (np.ravel(result.y) - case.y) / case.y_unit
    x = (np.ravel(result.x) - case.x) / case.x_unit
    if not error <= TOLERANCE:
        return error, f"upper value off by {error:.1e}"
    # The value is flat around the optimum: points agree to the root of its accuracy.
    size = 1.0 + float(np.max(np.abs(case.y / case.y_unit)))
    if not max(np.max(np.abs(x)), np.max(np.abs(y))) <= 5.0 * np.sqrt(TOLERANCE) * size:
        return error, f"x off by {np.max(np.abs(x)):.1e}, y by {np.max(np.abs(y)):.1e}"
    return error, ""


def judge(case: Case) -> Verdict:
    """Solve one problem and compare with what is known."""
    begun = time.perf_counter()
    result = solve(case.problem, case.start)
    return Verdict(case, result, time.perf_counter() - begun, *fault_of(case, result))


def main() -> int:
    """Solve them all and print a row for each family."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=np.inf, help="draw no further problem after this time")
    parser.add_argument("--verbose", action="store_true", help="a line for each problem that went wrong or took long")
    given = parser.parse_args()
    begun = time.perf_counter()
    verdicts = []
    for index, case in enumerate(draw(given.count, given.seed, given.family)):
        if time.perf_counter() - begun > given.seconds:
            break
        verdicts.append(found := judge(case))
        if given.verbose and (not found.right or found.seconds > 20.0):
            size = f"x {case.problem.flat.n_x}, y {case.problem.flat.n_y}"
            claim = "WRONG CLAIM " if found.wrong_claim else ""
            end = f"{found.result.status.value}: {found.fault or found.result.message}"
            print(
                f"{claim}{case.family} #{index} ({size}) {end} [error {found.error:.1e}, {found.seconds:.1f} s]",
                flush=True,
            )
    print(f"{'family':<18} {'problems':>8} {'right':>6} {'wrong claims':>13} {'worst error':>12} {'seconds each':>13}")
    for name in given.family or FAMILIES:
        rows = [v for v in verdicts if v.case.family == name]
        if rows:
            errors = [v.error for v in rows if v.right and v.case.well_posed]
            worst = f"{max(errors):.1e}" if errors else "-"
            each = float(np.median([v.seconds for v in rows]))
            right, claims = sum(v.right for v in rows), sum(v.wrong_claim for v in rows)
            print(f"{name:<18} {len(rows):>8} {right:>6} {claims:>13} {worst:>12} {each:>13.3f}")
    claims = sum(v.wrong_claim for v in verdicts)
    shares = []
    for label, kind in (("well-posed problems solved", True), ("ill-posed problems named rightly", False)):
        rows = [v for v in verdicts if v.case.well_posed is kind]
        if rows:
            right = sum(v.right for v in rows)
            shares.append(right / len(rows))
            print(f"{label}: {right} of {len(rows)} ({100.0 * right / len(rows):.1f} %)")
    print(f"wrong claims of success: {claims}; {time.perf_counter() - begun:.0f} s")
    return 0 if claims == 0 and min(shares) >= 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
