"""The ill-posed families of the stress set: each problem must end with the status that names what is wrong."""

from __future__ import annotations

import numpy as np

from blocc import Status
from stress_designs import FREE, PLAIN, SIZES, Generator, follower, leader, pick
from stress_templates import Case, Data, broken, quadratic


def _ill(family: str, d: Data, generator: Generator, *statuses: Status) -> Case:
    nx, ny, m, p = d["C"].shape[1], d["C"].shape[0], len(d["A"]), len(d["E"])
    problem = quadratic(nx, ny, m, p).with_data(d)
    return Case(family, problem, generator.standard_normal(nx), statuses=frozenset(statuses))


def never_feasible(generator: Generator) -> Case:
    """Two rows that contradict each other at every x."""
    made = leader(follower(generator, *pick(generator, PLAIN[1:])), generator)
    d = dict(made.data)
    for name in ("A", "B", "b"):
        d[name] = d[name].copy()
        d[name][-1] = -d[name][0]
    d["b"][-1] -= generator.uniform(0.1, 3.0)
    return _ill("never feasible", d, generator, Status.INFEASIBLE)


def lower_unbounded(generator: Generator) -> Case:
    """A direction without curvature in which the lower objective falls and no row stops it."""
    nx, ny, m, _ = pick(generator, PLAIN + FREE)
    made = leader(follower(generator, nx, ny, m, 0), generator)
    d = dict(made.data)
    way = generator.standard_normal(ny)
    way /= np.linalg.norm(way)
    keep = np.eye(ny) - np.outer(way, way)
    d["H"], d["C"] = keep @ d["H"] @ keep, keep @ d["C"]
    d["A"] = d["A"] - np.outer(np.maximum(d["A"] @ way, 0.0), way)  # no row grows that way
    d |= {"B": np.zeros((m, nx)), "b": np.abs(d["b"]) + 1.0}  # y = 0 satisfies them all
    d["c"] = keep @ d["c"] - generator.uniform(0.2, 2.0) * way
    return _ill("lower unbounded", d, generator, Status.UNBOUNDED)


def upper_unbounded(generator: Generator) -> Case:
    """The leader's objective is linear in x and ignores y."""
    made = follower(generator, *pick(generator, PLAIN + FREE))
    d = made.data | {"q": generator.standard_normal(len(made.x)), "W": np.zeros(len(made.x))}
    # Rows that do not move with x: the follower has an answer however far x goes.
    d["b"] = d["b"] - d["B"] @ made.x
    d["B"] = np.zeros_like(d["B"])
    return _ill("upper unbounded", d, generator, Status.UNBOUNDED)


def not_convex(generator: Generator) -> Case:
    """An indefinite lower level within bounds, or one that must stay outside of a ball."""
    if generator.integers(4) == 0:
        nx, ny = pick(generator, SIZES[:2])
        data = {"s": generator.uniform(0.5, 3.0), "a": generator.uniform(-1, 1, nx)}
        problem = broken("bent", nx, ny).with_data(data)
        return Case("not convex", problem, generator.uniform(-1, 1, nx), statuses=frozenset({Status.NOT_CONVEX}))
    nx, ny, m = pick(generator, [(1, 1, 2), (2, 2, 4), (4, 3, 6)])
    made = leader(follower(generator, nx, ny, m, 0), generator)
    d = dict(made.data)
    basis, _ = np.linalg.qr(generator.standard_normal((ny, ny)))
    bends = generator.uniform(0.5, 3.0, ny)
    bends[0] = -bends[0]
    d["H"] = (basis * bends) @ basis.T
    d |= {"A": np.concatenate([np.eye(ny), -np.eye(ny)]), "B": np.zeros((m, nx)), "b": generator.uniform(0.5, 3.0, m)}
    return _ill("not convex", d, generator, Status.NOT_CONVEX)


def not_finite(generator: Generator) -> Case:
    """A function, or a derivative, that is NaN at every x."""
    kind = str(generator.choice(["upper", "lower", "inequality", "slope"]))
    nx, ny = pick(generator, SIZES[:2])
    problem = broken(kind, nx, ny).with_data({"s": generator.uniform(0.5, 3.0), "a": generator.uniform(-1, 1, nx)})
    return Case("not finite", problem, generator.uniform(-1, 1, nx), statuses=frozenset({Status.NOT_FINITE}))
