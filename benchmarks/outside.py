"""The outside stress set: random problems from people who never saw the solver, every claim re-checked by brute force.

    python benchmarks/outside.py                          # 2000 problems, seed from the clock
    python benchmarks/outside.py --family toll_routes --seed 7 --index 3 --verbose

Every problem is known by seed, family and index alone. Exit code 0: no wrong claim and no crash, and at least 97 % of
the well-posed problems right or local.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections import Counter, defaultdict

import numpy as np

from blocc import solve, verify
from outside_case import Case, forget
from outside_families import FAMILIES
from outside_judge import Verdict
from outside_truth import judge, short

KINDS = ("right", "local", "missed", "honest", "refused", "wrong", "crash")
TIME_LIMIT = 60.0  # seconds for one problem, compilation included
LEAST = 0.97  # of the well-posed problems must be right or local


def draw(family: str, seed: int, index: int) -> Case:
    """Return one problem, from its seed, family and index."""
    return FAMILIES[family](np.random.default_rng([seed, zlib.crc32(family.encode()), index]))


def attempt(case: Case, limit: float = TIME_LIMIT, verified: bool = False) -> tuple[Verdict, float, str]:
    """Solve and judge one case: verdict, seconds without compilation, and what blocc said in short.

    Where ``verified``, a success that `verify` does not confirm is "refused": there is one judge and one strictness.
    """
    started = time.perf_counter()
    try:
        result = solve(case.problem, case.user_start, progress=False, **{"time_limit": limit, **case.options})
    except Exception as error:  # a crash is a finding, not the end of the run
        return Verdict("crash", f"{type(error).__name__}: {error}"), time.perf_counter() - started, "crash"
    seconds = time.perf_counter() - started - result.seconds["compile"]
    points = f"x = {short(np.ravel(result.x))}, y = {short(np.ravel(result.y))}"
    said = f"{result.status.value}, {points}, f = {result.upper_value:.10g}"
    verdict = judge(case, result)
    if verified and result.success and verdict.kind != "wrong":
        found = verify(case.problem, result)
        against = [f"{check.name}: {check.recomputed}" for check in found.checks if check.ok is False]
        verdict = verdict if found.ok else Verdict("refused", f"verify: {'; '.join(against)}")
    return verdict, seconds, said


def main() -> int:
    """Run the set and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="problems in all, spread over the families")
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock, and printed")
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="only these; may be repeated")
    parser.add_argument("--index", type=int, default=None, help="only this problem of each family")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--limit", type=float, default=TIME_LIMIT, help="seconds for one problem")
    parser.add_argument("--verify", action="store_true", help="ask verify about every success, too")
    parser.add_argument("--verbose", action="store_true", help="print every problem, not only the bad ones")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 2**32
    families = arguments.family or list(FAMILIES)
    print(f"seed {seed}, {len(families)} families", flush=True)
    rounds = range(-(-arguments.count // len(families))) if arguments.index is None else [arguments.index]
    jobs = [(family, index) for family in families for index in rounds]
    if arguments.index is None:
        jobs = jobs[: arguments.count]
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    times: dict[str, list[float]] = defaultdict(list)
    posed: Counter[bool] = Counter()  # well-posed problems: solved or not; refusals that name the fault are left out
    started = time.perf_counter()
    module = ""
    for family, index in jobs:
        if FAMILIES[family].__module__ != module:  # families of one module share templates
            module = FAMILIES[family].__module__
            forget()
        if time.perf_counter() - started > arguments.seconds:
            print("out of time: the rest is left out")
            break
        case = draw(family, seed, index)
        verdict, seconds, said = attempt(case, arguments.limit, arguments.verify)
        kinds[family][verdict.kind] += 1
        times[family].append(seconds)
        if case.well_posed and verdict.kind != "honest":
            posed[verdict.kind in ("right", "local")] += 1
        if arguments.verbose or verdict.kind in ("wrong", "refused", "missed", "crash"):
            print(f"{verdict.kind.upper():7s} --family {family} --seed {seed} --index {index}: {verdict.words}")
            print(f"        {case.model.name}; blocc: {said}", flush=True)
    return report(kinds, times, posed, time.perf_counter() - started)


def report(kinds: dict[str, Counter[str]], times: dict[str, list[float]], posed: Counter[bool], seconds: float) -> int:
    """Print the table of all families and the totals, and return the exit code."""
    print(f"\n{'family':20s}{'problems':>9s}" + "".join(f"{kind:>8s}" for kind in KINDS) + f"{'seconds':>9s}")
    total: Counter[str] = Counter()
    for family, counts in kinds.items():
        total += counts
        row = "".join(f"{counts[kind]:8d}" for kind in KINDS)
        print(f"{family:20s}{sum(counts.values()):9d}{row}{np.median(times[family]):9.3f}")
    everything = [value for values in times.values() for value in values]
    row = "".join(f"{total[kind]:8d}" for kind in KINDS)
    print(f"{'all':20s}{total.total():9d}{row}{np.median(everything) if everything else 0:9.3f}")
    solved = posed[True] / posed.total() if posed.total() else 1.0
    bad = total["wrong"] + total["refused"]
    print(f"{posed.total()} well-posed: {solved:.1%} right or local; {bad} wrong claims; {seconds:.0f} s")
    return 0 if bad + total["crash"] == 0 and solved >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
