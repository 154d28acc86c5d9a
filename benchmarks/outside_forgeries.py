"""Forged results, as a hostile expert would write them, and honest ones: what does `verify` say?

    python benchmarks/outside_forgeries.py --count 60 --seed 7

A forgery is consistent: y, the multipliers and all values belong to the forged x, the certificate is perfect, the
status is "converged". None may be accepted. Honest results that end "converged" and whose claim the set's own judge
calls right or local must not be rejected. Exit code 0: neither happened.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import outside_blocks
import outside_cancelling
import outside_curved
import outside_hostile
import outside_responses
import outside_saddles
from blocc import Certificate, Result, Status, lower_level, solve, verify
from outside import draw
from outside_case import Array, Case, build, forget
from outside_cores import Data, hidden, unit
from outside_families import FAMILIES
from outside_truth import judge

Generator = np.random.Generator
PERFECT = Certificate(
    stationarity=0.0,
    feasibility=0.0,
    complementarity=0.0,
    penalty_gap=0.0,
    distance=0.0,
    stationarity_x=0.0,
    radius=0.0,
    leader_violation=0.0,
    exact=True,
)
HONEST = (
    "cancel_square",
    "cancel_linear",
    "cancel_leader",
    "saddle_plane",
    "clipped_many",
    "leader_scales",
    "projections",
    "root_at_bound",
    "rosen_leader",
    "compositions",
)


def template(case: Case) -> Result:
    """Return a result of the case's problem, of any status: the forger needs its history and settings."""
    return solve(case.problem, case.user_start, max_iterations=1, progress=False, time_limit=20.0)


def forged(case: Case, x: Array, y: Array | None = None, **changes: Any) -> Result:
    """Return a perfect looking result at natural (x, y), by default with the response and its multipliers at x."""
    units, old = case.units, template(case)
    user_x = (np.array(units.x_unit) * x + np.array(units.x_offset)).reshape(case.model.x_set.shape)
    response = np.atleast_1d(np.asarray(case.follower(case.shaped(x)) if y is None else y, dtype=float))
    user_y = (np.array(units.y_unit) * response + np.array(units.y_offset)).reshape(case.model.y_set.shape)
    multipliers = old.multipliers
    rows = jax.tree.leaves((multipliers.inequality, multipliers.equality))
    if rows:
        multipliers = lower_level(case.problem, user_x).multipliers
    f = units.f_unit * float(case.evaluate(case.model.upper, x, response)[0]) + units.f_shift
    g = units.g_unit * float(case.evaluate(case.model.lower, x, response)[0]) + units.g_shift
    claims = {
        "x": user_x,
        "y": user_y,
        "y_penalty": user_y,
        "multipliers": multipliers,
        "gamma": 1e5 if rows else np.inf,
    }
    claims |= {"upper_value": f, "upper_value_penalty": f, "lower_value": g, "status": Status.CONVERGED}
    claims |= {"message": "x is a stationary point of f(x, y(x)), and y is the follower's exact answer."}
    claims |= {"certificate": PERFECT}
    return dataclasses.replace(old, **claims | changes)


FIELDS = {
    "upper value": "upper_value",
    "upper value at yF": "upper_value_penalty",
    "lower value": "lower_value",
    "lower level: stationarity": "stationarity",
    "lower level: feasibility": "feasibility",
    "lower level: complementarity": "complementarity",
    "penalty gap": "penalty_gap",
    "distance": "distance",
    "||yF - y||": "distance",
    "stationarity of x": "stationarity_x",
    "leader's constraint": "leader_violation",
}  # names of checks, and the number that a forger would copy from what `verify` says


def adapted(result: Result, verification: Any) -> Result:
    """Return the forgery with the numbers that `verify` found: what a forger writes at the second attempt."""
    for check in verification.failed:
        name = FIELDS.get(check.name)
        if name is None or not isinstance(check.recomputed, float):
            continue
        if hasattr(result, name):
            result = dataclasses.replace(result, **{name: check.recomputed})
        else:
            result = dataclasses.replace(
                result, certificate=dataclasses.replace(result.certificate, **{name: check.recomputed})
            )
    return result


def examined(forger: str, case: Case, result: Result) -> Any:
    """Return what `verify` says in the end: numbers are edited on purpose by one forger, adapted by all others."""
    verification = verify(case.problem, result)
    if verification.ok or forger == "edited_value":
        return verification
    return verify(case.problem, adapted(result, verification))


def kink_off(generator: Generator) -> tuple[Case, Result]:
    """Optimum at n kinks, n = 40 to 150, one coordinate 0.3 off."""
    n = int((40, 80, 150)[generator.integers(3)])
    d: Data = {"k": generator.uniform(0.3, 3, n), "p": generator.uniform(0.2, 0.8, n), "s": 0.0}
    d["cap"] = generator.uniform(-2, 2, n)
    case = build(outside_blocks._clipped(n), d, lambda x: np.minimum(x, d["cap"]))
    x = d["cap"].copy()
    x[generator.integers(n)] += 0.3 * generator.choice([-1, 1])
    return case, forged(case, x)


def slightly_off(generator: Generator) -> tuple[Case, Result]:
    """One x of 150 off by 0.005: at a kink, or in a smooth bowl."""
    n = 150
    if generator.random() < 0.5:
        case = hidden(generator, "quad", "track", n, ())
        x = np.array(case.solution)
    else:
        d: Data = {"k": generator.uniform(0.3, 3, n), "p": generator.uniform(0.2, 0.8, n), "s": 0.0}
        d["cap"] = generator.uniform(-2, 2, n)
        case = build(outside_blocks._clipped(n), d, lambda x: np.minimum(x, d["cap"]))
        x = d["cap"].copy()
    x[generator.integers(n)] += 0.005 * generator.choice([-1, 1])
    return case, forged(case, x)


def saddle(generator: Generator) -> tuple[Case, Result]:
    """A saddle of 40 to 210 variables, along a random vector or across all axes, plain or behind vanishing terms."""
    n = int((40, 60, 120, 210)[generator.integers(4)])
    if generator.random() < 0.4:
        q = generator.choice([-1.0, 1.0], n) / np.sqrt(n)
        d: Data = {"k": np.ones(n), "q": q, "c": 1.6, "t": generator.uniform(-1, 1, n)}
        case = build(outside_saddles._orthogonal(n), d, lambda x: x)
        return case, forged(case, d["t"])
    terms = ((), ("square",), ("linear",))[generator.integers(3)]
    case = hidden(generator, "saddle", "track", n, terms)
    return case, forged(case, np.array(case.data["t"]))


def saddle_small(generator: Generator) -> tuple[Case, Result]:
    """A saddle of a few variables behind vanishing terms, at bounds, or through the response."""
    name = ("saddle_plane", "saddle_bounds", "saddle_response", "saddle_cancelling")[generator.integers(4)]
    case = FAMILIES[name](generator)
    x = np.zeros(2) if name == "saddle_plane" else np.array(case.data["t"])
    return case, forged(case, x)


def false_bound(generator: Generator) -> tuple[Case, Result]:
    """A true local minimum with a bound that says it is global, where a better one exists."""
    case = hidden(generator, "wells", "track", int(generator.integers(1, 3)), ())
    z = np.sort(np.roots([4, 0, -4, 0.3]).real)
    x = np.array(case.data["t"]) + z[2]
    f = case.value(x)
    return case, forged(case, x, bound=f, gap=0.0)


def scaled_multipliers(generator: Generator) -> tuple[Case, Result]:
    """The right x and y, with multipliers times 2, 0 or -1."""
    case = hidden(generator, "quad", ("active", "equality")[generator.integers(2)], int(generator.integers(1, 6)), ())
    honest = forged(case, np.array(case.solution))
    factor = (2.0, 0.0, -1.0, 1.01)[generator.integers(4)]
    scaled = jax.tree.map(lambda rows: factor * np.asarray(rows), honest.multipliers)
    return case, dataclasses.replace(honest, multipliers=scaled)


def flat_y(generator: Generator) -> tuple[Case, Result]:
    """Another of the follower's best responses, which suits the leader less."""
    case = outside_responses.flat_faces(generator)
    d = case.data
    x = np.clip(d["t"], -3, 3)
    y = case.follower(x)
    other = np.concatenate([y[:1], d["p"] if generator.random() < 0.5 else -y[1:]])
    return case, forged(case, x, other)


def wrong_y(generator: Generator) -> tuple[Case, Result]:
    """A y beside the response, at the right x."""
    case = hidden(generator, "quad", "track", int(generator.integers(1, 9)), ())
    x = np.array(case.solution)
    y = np.atleast_1d(case.follower(x))
    step = 10 ** generator.uniform(-3.5, 0) * unit(generator, y.size)
    return case, forged(case, x, y + step)


def edited_value(generator: Generator) -> tuple[Case, Result]:
    """The right x and y, with one number of the result changed."""
    case = hidden(generator, "quad", ("track", "active")[generator.integers(2)], int(generator.integers(1, 6)), ())
    honest = forged(case, np.array(case.solution))
    name = ("upper_value", "lower_value", "upper_value_penalty", "gamma", "stationarity", "distance", "penalty_gap")[
        generator.integers(7)
    ]
    step = 10 ** generator.uniform(-2, 1)
    if hasattr(honest, name):
        value = -1.0 if name == "gamma" else getattr(honest, name) + step
        return case, dataclasses.replace(honest, **{name: value})
    return case, dataclasses.replace(honest, certificate=dataclasses.replace(PERFECT, **{name: step}))


def infeasible(generator: Generator) -> tuple[Case, Result]:
    """A leader's row of terms that cancel, broken by 0.2 to 1.5."""
    while True:
        case = outside_cancelling.cancel_leader(generator)
        x = np.array(case.data["t"])
        over = float(np.max(case.data["limit"] - case.data["normal"] @ x))
        if over > 0.2:
            return case, forged(case, x)


def not_stationary(generator: Generator) -> tuple[Case, Result]:
    """Some x behind vanishing terms of up to 1e10, 0.1 to 2 beside the answer."""
    kind = ("track", "curved", "equality", "chain", "active")[generator.integers(5)]
    core = ("quad", "valley")[generator.integers(2)]
    terms = (("square",), ("linear",), ("product",))[generator.integers(3)]
    n = int((1, 2, 5, 12, 60, 150)[generator.integers(6)])
    case = hidden(generator, core, kind, n, terms)
    step = generator.uniform(0.1, 2) * unit(generator, n)
    return case, forged(case, np.clip(case.solution + step, -4, 4))


def cheap_coordinate(generator: Generator) -> tuple[Case, Result]:
    """All expensive kinks right, a cheap coordinate 0.3 to 1 off."""
    case = outside_blocks.masked_coordinates(generator)
    x = np.array(case.solution)
    half = x.size // 2
    x[half + generator.integers(x.size - half)] += generator.uniform(0.3, 1) * generator.choice([-1, 1])
    return case, forged(case, np.clip(x, -4, 4))


def along_a_kink(generator: Generator) -> tuple[Case, Result]:
    """On a curved kink of f, or of a linear follower's response, 0.2 to 3 beside the minimum along it."""
    family = (outside_curved.curved_kinks, outside_curved.curved_vertices)[generator.integers(2)]
    case = family(generator)
    u = case.data["t"] - np.sign(case.data["t"]) * generator.uniform(0.2, 3)
    return case, forged(case, np.concatenate([[u], outside_curved._curve(np, u, case.data)]))


def saddle_in_units(generator: Generator) -> tuple[Case, Result]:
    """A saddle at zero, or far from it, in units of 1 to 1e10."""
    case = outside_curved.saddle_units(generator)
    return case, forged(case, np.array([case.data.get("t", 0.0), 0.0]))


def narrow_slope(generator: Generator) -> tuple[Case, Result]:
    """The top between two wells of 1e-6 to 1e8, or a point on their slopes."""
    case = (outside_hostile.narrow_wells, outside_hostile.wide_wells)[generator.integers(2)](generator)
    along = (0.0, 0.3, 0.9)[generator.integers(3)] * case.data["w"] * case.data["q"]
    return case, forged(case, np.array(case.data["t"] + along))


def along_a_tie(generator: Generator) -> tuple[Case, Result]:
    """On all surfaces on which f jumps, by up to 1e5, and 0.05 to 1 beside the minimum along them."""
    while True:
        case = outside_hostile.tie_surfaces(generator)
        rows, d = case.data["A"], case.data
        if np.all(rows @ d["p"] > d["b"]):  # p itself is beyond them
            break
    way = generator.standard_normal(d["p"].size)
    way -= rows.T @ (rows @ way)
    x = d["p"] - rows.T @ (rows @ d["p"] - d["b"]) + generator.uniform(0.05, 1) * way / np.linalg.norm(way)
    return case, forged(case, x, np.ones(len(rows)))


def rooted_kink(generator: Generator) -> tuple[Case, Result]:
    """Kinks written as roots of squares, with a coordinate 0.01 to 1 beside its own."""
    case = outside_hostile.rooted(generator)
    x = np.array(case.solution)
    x[generator.integers(x.size)] += generator.uniform(0.01, 1) * generator.choice([-1, 1])
    return case, forged(case, x)


FORGERS: tuple[Callable[[Generator], tuple[Case, Result]], ...] = (
    kink_off,
    slightly_off,
    saddle,
    saddle_small,
    false_bound,
    scaled_multipliers,
    flat_y,
    wrong_y,
    edited_value,
    infeasible,
    not_stationary,
    cheap_coordinate,
    along_a_kink,
    saddle_in_units,
    narrow_slope,
    along_a_tie,
    rooted_kink,
)


def control(generator: Generator) -> tuple[Case, Result]:
    """The truth in the forger's handwriting: a right x with its response, which must not be rejected."""
    kind = int(generator.integers(4))
    if kind == 0:
        n = int((5, 40, 150)[generator.integers(3)])
        d: Data = {"k": generator.uniform(0.3, 3, n), "p": generator.uniform(0.2, 0.8, n), "s": 0.0}
        d["cap"] = generator.uniform(-2, 2, n)
        case = build(outside_blocks._clipped(n), d, lambda x: np.minimum(x, d["cap"]))
        return case, forged(case, d["cap"])
    core, n = ("quad", "saddle", "valley")[kind - 1], int((2, 8, 40, 150)[generator.integers(4)])
    terms = ((), ("square",), ("linear",))[generator.integers(3)]
    case = hidden(generator, core, ("track", "active", "equality")[generator.integers(3)], n, terms, high=6.0)
    return case, forged(case, np.array(case.solution))


def words(verification: Any) -> str:
    """Return which checks failed."""
    named = [f"{check.name} ({check.note or check.recomputed})" for check in verification.failed]
    return "; ".join(named) or "a check could not be made"


def main() -> int:
    """Forge, solve, verify, and print what was accepted and what was rejected wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="forgeries in all")
    parser.add_argument("--honest", type=int, default=40, help="honest results in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--index", type=int, default=None, help="only this forgery of each forger")
    parser.add_argument("--forger", action="append", choices=[forger.__name__ for forger in FORGERS])
    parser.add_argument("--verbose", action="store_true", help="print why each forgery is rejected")
    arguments = parser.parse_args()
    forgers = [forger for forger in FORGERS if arguments.forger is None or forger.__name__ in arguments.forger]
    accepted, made, crashed = Counter[str](), Counter[str](), 0
    for job in range(arguments.count if arguments.index is None else len(forgers)):
        forger = forgers[job % len(forgers)]
        if job and not job % len(forgers):
            forget()
        index = job // len(forgers) if arguments.index is None else arguments.index
        generator = np.random.default_rng([arguments.seed, FORGERS.index(forger), index])
        started = time.perf_counter()
        try:
            case, result = forger(generator)
            verification = examined(forger.__name__, case, result)
            ok = verification.ok
        except Exception as error:
            crashed += 1
            print(
                f"CRASH    {forger.__name__} --seed {arguments.seed} --index {index}: {type(error).__name__}: {error}"
            )
            continue
        made[forger.__name__] += 1
        accepted[forger.__name__] += ok
        if not ok and arguments.verbose:
            print(f"rejected {forger.__name__} --index {index}: {case.model.name}: {words(verification)}")
        if ok:
            seconds = time.perf_counter() - started
            called = f"{forger.__name__} --seed {arguments.seed} --index {index}"
            print(f"ACCEPTED {called}: {case.model.name} ({seconds:.1f} s)")
        sys.stdout.flush()
    rejected, honest = 0, 0
    for job in range(arguments.honest):
        family, index = HONEST[job % len(HONEST)], job // len(HONEST)
        if not index % 2 and family == HONEST[0]:
            forget()
        case = draw(family, arguments.seed, index)
        result = solve(case.problem, case.user_start, progress=False, time_limit=30.0)
        if not result.success or judge(case, result).kind not in ("right", "local"):
            continue
        honest += 1
        verification = verify(case.problem, result)
        if not verification.ok:
            rejected += 1
            print(
                f"REJECTED --family {family} --seed {arguments.seed} --index {index}: {words(verification)}", flush=True
            )
    for index in range(arguments.honest // 4):
        case, result = control(np.random.default_rng([arguments.seed, 99, index]))
        verification = examined("control", case, result)
        honest += 1
        rejected += not verification.ok
        if not verification.ok:
            print(f"REJECTED control {index}: {case.model.name}: {words(verification)}", flush=True)
    for name, count in made.items():
        print(f"{name:20s} {accepted[name]:4d} of {count} accepted")
    print(f"{accepted.total()} of {made.total()} forgeries accepted, {crashed} crashes")
    print(f"{rejected} of {honest} honest results rejected")
    return 1 if accepted.total() + rejected + crashed else 0


if __name__ == "__main__":
    sys.exit(main())
