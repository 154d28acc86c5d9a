"""Followers written in CVXPY, beside BLVPY: values, times, sparse followers of growing size, overhead of an evaluation.

    python benchmarks/cvxpy_front.py                         # without BLVPY: linear ones by KKT conditions and big M
    python benchmarks/cvxpy_front.py --peer-python PYTHON    # an interpreter that can import blvpy (Python 3.12, Ipopt)
    python benchmarks/cvxpy_front.py --sizes 1000 10000 100000
    python benchmarks/cvxpy_front.py --examples              # evaluations of small problems, and of random ones
    python benchmarks/cvxpy_front.py --prices 10000          # four prices for so many customers

The problems are of the kinds that BLVPY's gallery shows, restated, with data of their own. Both packages start at the
same x. Values are the leader's at the follower's answer, solved once more by Clarabel at the x that a package returns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np

LIMIT, LARGE_LIMIT = 60.0, 1800.0  #: seconds for one solve by blocc; of a large follower
TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


class Written(NamedTuple):
    """A problem whose decisions ``x`` are what the package wants: parameters, or variables."""

    x: Any
    upper: cp.Expression  #: minimised
    lower: cp.Expression  #: minimised
    rules: list[cp.Constraint]
    low: Any
    high: Any
    start: Any


Make = Callable[[Callable[..., Any]], Written]


def quadratic(decision: Callable[..., Any]) -> Written:
    x, y = decision((), "x", True), cp.Variable(name="y")
    return Written(x, cp.square(x - 1.0) + cp.square(y + 1.0), cp.square(y - x), [], -1.0, 5.0, 2.0)


def ridge(decision: Callable[..., Any]) -> Written:
    generator = np.random.default_rng(7)
    true = generator.normal(size=10)
    train, test = generator.normal(size=(30, 10)), generator.normal(size=(100, 10))
    seen, wanted = train @ true + generator.normal(size=30), test @ true + 0.2 * generator.normal(size=100)
    weight, w = decision((), "weight", True), cp.Variable(10, name="w")
    lower = cp.sum_squares(train @ w - seen) / 30 + weight * cp.sum_squares(w)
    return Written(weight, cp.sum_squares(test @ w - wanted) / 100, lower, [], 1e-4, 10.0, 1.0)


def demand_response(decision: Callable[..., Any]) -> Written:
    hours = np.arange(24.0)
    wish = 1.0 + 0.6 * np.exp(-((hours - 8.0) ** 2) / 6.0) + 1.5 * np.exp(-((hours - 19.0) ** 2) / 8.0)
    price, load = decision(24, "price", True), cp.Variable(24, name="load")
    lower = price @ load + 0.5 * cp.sum_squares(load - wish)
    rules = [cp.sum(load) == wish.sum(), load >= 0.5, load <= 3.0]
    upper = cp.max(load) + 0.03 * cp.sum_squares(price) + 0.1 * cp.sum_squares(price[1:] - price[:-1])
    return Written(price, upper, lower, rules, 0.0, 0.8, np.full(24, 0.4))


def carbon_tax(decision: Callable[..., Any]) -> Written:
    emitted, cost, growth = np.array([3.0, 2.0, 1.0]), np.array([0.3, 0.2, 0.6]), np.array([0.9, 1.1, 0.7])
    tax, cut = decision((), "tax", True), cp.Variable(3, name="cut")
    lower = cost @ cp.exp(cp.multiply(growth, cut)) + tax * cp.sum(emitted - cut)
    upper = cp.square(cp.sum(emitted - cut) - 2.5) + 0.02 * cp.square(tax)
    return Written(tax, upper, lower, [cut >= 0, cut <= emitted], 0.05, 3.0, 0.8)


def ties(decision: Callable[..., Any]) -> Written:
    """A linear follower: the leader's price moves it from one vertex to another."""
    x, y = decision(2, "x", False), cp.Variable(3, name="y")
    lower = (1 + x[0]) * y[0] + (2 - x[1]) * y[1] + 1.5 * y[2]
    rules = [cp.sum(y) >= 2, y >= 0, y <= np.array([1.5, 1.0, 2.0])]
    upper = 2 * y[0] + y[1] - y[2] + 0.3 * x[0] + 0.2 * x[1]
    return Written(x, upper, lower, rules, 0.0, 1.0, np.array([0.1, 0.1]))


PROBLEMS: dict[str, Make] = {
    "quadratic": quadratic,
    "ridge": ridge,
    "demand_response": demand_response,
    "carbon_tax": carbon_tax,
    "ties (linear)": ties,
}


# --- who solves -------------------------------------------------------------------------------------------------------
def as_parameter(shape: Any, name: str, nonneg: bool) -> cp.Parameter:
    return cp.Parameter(shape, name=name)


def by_blocc(make: Make) -> tuple[Any, float]:
    from blocc.cvxpy import BilevelProblem

    one = make(lambda shape, name, nonneg: cp.Parameter(shape, name=name, nonneg=nonneg and make is ridge))
    begun = time.perf_counter()
    follower = cp.Problem(cp.Minimize(one.lower), one.rules)
    limits = [one.x >= one.low, one.x <= one.high]
    problem = BilevelProblem(cp.Minimize(one.upper), follower, one.x, limits)
    result = problem.solve(one.start, progress=False, time_limit=LIMIT)
    found = {"x": result.x[one.x.name()].tolist(), "status": result.status.value}
    return {**found, "evaluations": result.counts["evaluations"]}, time.perf_counter() - begun


def by_blvpy(make: Make) -> tuple[Any, float]:
    import blvpy

    one = make(lambda shape, name, nonneg: cp.Variable(shape, name=name, nonneg=nonneg and make is ridge))
    one.x.value = np.asarray(one.start)
    begun = time.perf_counter()
    lower = blvpy.LowerProblem(cp.Minimize(one.lower), one.rules, parameters=[one.x])
    limits = [one.x >= one.low, one.x <= one.high]
    problem = blvpy.BilevelProblem(cp.Minimize(one.upper), lower, upper_constraints=limits)
    try:
        result = problem.solve(verbose=False)
        status = str(result.status)
    except Exception as error:
        return {"x": None, "status": f"{type(error).__name__}: {error}"[:60]}, time.perf_counter() - begun
    return {"x": np.asarray(one.x.value).tolist(), "status": status}, time.perf_counter() - begun


def checked(make: Make, x: Any) -> float:
    """The leader's value at the follower's own answer; among several, the one that suits the leader."""
    one = make(as_parameter if make is not ridge else lambda s, n, p: cp.Parameter(s, name=n, nonneg=True))
    one.x.value = np.clip(np.asarray(x, dtype=float), one.low, one.high)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = cp.Problem(cp.Minimize(one.lower), one.rules).solve(solver=cp.CLARABEL, **TIGHT)
        if make is not ties:  # the answer is the only one
            return float(one.upper.value)
        best = [*one.rules, one.lower <= value + 1e-7 * (1 + abs(value))]
        return float(cp.Problem(cp.Minimize(one.upper), best).solve(solver=cp.CLARABEL))


def by_big_m(levels: int = 6) -> tuple[float, float]:
    """The linear one by its KKT conditions, with products of price and slack by binaries, and x on a grid of values."""
    begun, best = time.perf_counter(), np.inf
    for a in np.linspace(0, 1, levels):
        for b in np.linspace(0, 1, levels):
            one = ties(as_parameter)
            y = one.lower.variables()[0]
            cost = np.array([1 + a, 2 - b, 1.5])
            need, least, most = cp.Variable(nonneg=True), cp.Variable(3, nonneg=True), cp.Variable(3, nonneg=True)
            on, low, high = cp.Variable(boolean=True), cp.Variable(3, boolean=True), cp.Variable(3, boolean=True)
            top, big = np.array([1.5, 1.0, 2.0]), 10.0
            rules = [cp.sum(y) >= 2, y >= 0, y <= top, cost - need - least + most == 0]
            rules += [need <= big * on, cp.sum(y) - 2 <= big * (1 - on), least <= big * low, y <= big * (1 - low)]
            rules += [most <= big * high, top - y <= big * (1 - high)]
            upper = 2 * y[0] + y[1] - y[2] + 0.3 * a + 0.2 * b
            best = min(best, float(cp.Problem(cp.Minimize(upper), rules).solve(solver=cp.HIGHS)))
    return best, time.perf_counter() - begun


# --- what is printed --------------------------------------------------------------------------------------------------
def side_by_side(peer: str | None) -> None:
    told: dict[str, Any] = {}
    if peer is not None:
        done = subprocess.run([peer, __file__, "--as-peer"], capture_output=True, text=True, check=True)
        told = json.loads(done.stdout.splitlines()[-1])
    heads = f"{'problem':18} {'blocc':>11} {'s':>7} {'evaluations':>11}  {'status':14}"
    print(heads + f" {'BLVPY':>11} {'s':>7}  {'ratio':>6}  status")
    by_blocc(quadratic)  # what is imported once is no problem's
    for name, make in PROBLEMS.items():
        found, seconds = by_blocc(make)
        line = f"{name:18} {checked(make, found['x']):11.6f} {seconds:7.2f} {found['evaluations']:11}"
        line += f"  {found['status']:14}"
        if name in told:
            answer, other = told[name]
            value = np.nan if answer["x"] is None else checked(make, answer["x"])
            line += f" {value:11.6f} {other:7.2f}  {other / seconds:6.2f}  {answer['status']}"
        print(line, flush=True)
    if peer is None:
        value, seconds = by_big_m()
        print(f"ties (linear) by KKT, big M and HiGHS, x on a grid of 36: {value:.6f} in {seconds:.2f} s")


def examples(count: int) -> None:
    """Evaluations of small problems one by one, and of random ones (those of tests/cvxpy) in sum."""
    import cvxpy_examples

    print(f"{'example':24} {'evaluations':>11} {'s':>7}  {'status':12} value")
    for name, make in cvxpy_examples.EXAMPLES.items():
        _told(name, cvxpy_examples.evaluated(make(), LIMIT))
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cvxpy"))
    draw = importlib.import_module("test_cvxpy_stress").draw
    found = []
    for seed in range(count):
        one = draw(seed)
        start = np.random.default_rng(seed).uniform(-1, 1, size=one.x.size)
        found.append(cvxpy_examples.evaluated((one.problem, start), LIMIT))
    if found:
        taken = [one.evaluations for one in found]
        converged = sum(one.status == "converged" for one in found)
        print(
            f"{count} random ones: {converged} converged; evaluations: median {np.median(taken):.0f}, at most "
            f"{max(taken)}, {sum(taken)} in all; median {np.median([one.seconds for one in found]):.2f} s"
        )


def _told(name: str, one: Any) -> None:
    print(f"{name:24} {one.evaluations:11} {one.seconds:7.2f}  {one.status:12} {one.value:.9g}", flush=True)


def large(n: int) -> Any:
    """A follower of n variables with a sparse chain of constraints; the leader decides about ten numbers."""
    from blocc.cvxpy import BilevelProblem

    generator = np.random.default_rng(0)
    x, y = cp.Parameter(10, name="x", bounds=[0, 2]), cp.Variable(n, name="y")
    groups = np.arange(n) % 10
    pull = np.zeros((n, 10))
    pull[np.arange(n), groups] = 1.0
    import scipy.sparse as sp

    wish = sp.csr_array(pull) @ x + generator.normal(size=n)
    rules = [y[1:] - y[:-1] <= 1.0, y >= 0, cp.sum(y) <= 0.8 * n]
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - wish)), rules)
    return BilevelProblem(cp.Minimize(cp.sum_squares(y - 1) / n + 0.01 * cp.sum_squares(x)), follower, x)


def growth(sizes: list[int]) -> None:
    from blocc.cvxpy.run import ConicRun
    from blocc.cvxpy.run_options import RunOptions

    heads = ("canonical s", "evaluation s", "two solves s", "overhead", "solve s", "CPU s")
    print(f"\n{'variables':>9} " + " ".join(f"{head:>12}" for head in heads) + "  status")
    for n in sizes:
        begun = time.perf_counter()
        problem = large(n)
        built = time.perf_counter() - begun
        run = ConicRun(problem, RunOptions(progress=False))
        x = np.full(10, 0.5)
        run.evaluator(x, 10.0, run.leader, 1e-8)
        whole, inside = _timed(run, x)
        begun, worked = time.perf_counter(), time.process_time()
        result = problem.solve(x, progress=False, time_limit=LARGE_LIMIT)
        total, worked = time.perf_counter() - begun, time.process_time() - worked
        share = f"{100 * (whole / inside - 1):.0f} %"
        print(
            f"{n:9d} {built:11.2f} {whole:12.4f} {inside:12.4f} {share:>8} {total:8.1f} {worked:8.1f}  "
            f"{result.status.value}",
            flush=True,
        )


def _timed(run: Any, x: np.ndarray) -> tuple[float, float]:
    """Seconds of one evaluation, and of the solver calls in it: what Clarabel itself counts."""
    import clarabel

    spent, real = [], clarabel.DefaultSolver

    class Timed:
        def __init__(self, *given: Any) -> None:
            begun = time.perf_counter()
            self.inner = real(*given)
            self.seconds = time.perf_counter() - begun

        def solve(self) -> Any:
            begun = time.perf_counter()
            found = self.inner.solve()
            spent.append(self.seconds + time.perf_counter() - begun)
            return found

    clarabel.DefaultSolver = Timed
    try:
        begun = time.perf_counter()
        for step in range(5):
            run.evaluator(x + 0.01 * step, 10.0, run.leader, 1e-8)
        whole = time.perf_counter() - begun
    finally:
        clarabel.DefaultSolver = real
    return whole / 5, sum(spent) / 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer-python", help="an interpreter that can import blvpy")
    parser.add_argument("--as-peer", action="store_true", help="solve by BLVPY and print JSON")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--examples", type=int, nargs="?", const=100, help="small problems, and so many random ones")
    parser.add_argument("--prices", type=int, nargs="+", default=[], help="customers of a quadratic follower")
    given = parser.parse_args()
    if given.as_peer:
        print(json.dumps({name: (by_blvpy(make), by_blvpy(make))[1] for name, make in PROBLEMS.items()}))
        sys.exit(0)
    if given.examples is not None or given.prices:
        import cvxpy_examples

        if given.examples is not None:
            examples(given.examples)
        for n in given.prices:
            _told(f"four prices, {n}", cvxpy_examples.evaluated(cvxpy_examples.four_prices(n), LARGE_LIMIT))
        return
    side_by_side(given.peer_python)
    growth(given.sizes)


if __name__ == "__main__":
    main()
