"""The families of the stress set: each draws one random problem with a known right end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stress_designs import (
    FREE,
    PLAIN,
    SIZES,
    WITH_EQUALITIES,
    Generator,
    case,
    fit,
    follower,
    leader,
    lipschitz,
    pick,
    random_hessian,
    replace_rows,
    rescale,
)
from stress_ill_posed import lower_unbounded, never_feasible, not_convex, not_finite, upper_unbounded
from stress_templates import Case, Data, ball, empty, logit, quadratic, toll


def strongly_convex(generator: Generator) -> Case:
    """Quadratic lower level, affine coupled constraints, strict complementarity."""
    return case("strongly convex", leader(follower(generator, *pick(generator, PLAIN)), generator), generator)


def projection(generator: Generator) -> Case:
    """Projection of Mx on a polytope that moves with x."""
    made = follower(generator, *pick(generator, PLAIN), projection=True)
    return case("projection", leader(made, generator), generator)


def equalities(generator: Generator) -> Case:
    """Coupled equalities beside the inequalities."""
    return case("equalities", leader(follower(generator, *pick(generator, WITH_EQUALITIES)), generator), generator)


def no_constraint(generator: Generator) -> Case:
    """No constraint at all below."""
    return case("no constraint", leader(follower(generator, *pick(generator, FREE)), generator), generator)


def scalars(generator: Generator) -> Case:
    """x and y are numbers, not vectors."""
    made = case("scalars", leader(follower(generator, 1, 1, 2, 0), generator), generator)
    problem = quadratic(1, 1, 2, 0, scalar=True).with_data(made.problem.data)
    return replace(made, problem=problem, start=made.start.reshape(()))


def curved(generator: Generator) -> Case:
    """A ball that moves with x, active at the answer."""
    nx, ny = pick(generator, SIZES)
    x, y = generator.uniform(-2.0, 2.0, nx), generator.standard_normal(ny)
    matrix = generator.standard_normal((ny, nx)) / np.sqrt(nx)
    r, u = generator.uniform(0.5, 2.0), generator.standard_normal(ny)
    u /= np.linalg.norm(u)
    excess = generator.uniform(0.3, 2.0)
    steep = float(np.linalg.norm(matrix, 2))
    turn = 3.0 * steep**2 / r + 2.0 * steep**2 / excess  # how fast the slope of y(x) changes, switches included
    offset = generator.standard_normal(ny)
    offset *= 0.5 / max(float(np.linalg.norm(offset)), 1e-12)
    slope = matrix - r / (r + excess) * (matrix - np.outer(u, u @ matrix))
    weight = 1.2 * (steep**2 + 0.5 * turn) + 0.2
    data = {"f0": 1.0, "W": weight, "r": r, "xs": x, "q": -slope.T @ offset, "t": y - offset}
    data |= {"c": y + excess * u, "D": matrix, "e": y - r * u - matrix @ x}
    start = np.clip(x + generator.standard_normal(nx), -10.0, 10.0)
    return Case("curved", ball(nx, ny).with_data(data), start, 1.0 + 0.125, 1.0, x, y)


def pricing(generator: Generator) -> Case:
    """Prices for goods with linear demand and capacities; where a capacity binds the best price is a kink."""
    n = int(generator.choice([1, 6]))
    top, slope = generator.uniform(1.0, 5.0, n), generator.uniform(0.5, 2.0, n)
    capacity = top / (2.0 * slope) * generator.uniform(0.4, 1.8, n)
    y = np.minimum(top / (2.0 * slope), capacity)
    x = 1.0 - slope * y / top
    start = generator.uniform(0.05, 0.95, n)
    problem = toll(n).with_data({"f0": 1.0, "top": top, "slope": slope, "capacity": capacity})
    return Case("pricing", problem, start, 1.0 - float(np.sum(top * x * y)), 1.0, x, y)


def linear(generator: Generator) -> Case:
    """Linear lower level with one optimal vertex, some of its rows repeated."""
    nx, ny, m = pick(generator, [(1, 1, 2), (2, 2, 4), (4, 3, 6), (5, 8, 8)])
    d = empty(nx, ny, m, 0)
    d["A"][:ny] = random_hessian(generator, ny) + 0.3 * generator.standard_normal((ny, ny)) / np.sqrt(ny)
    d["B"][:ny] = 0.5 * generator.standard_normal((ny, nx))
    d["b"][:ny] = generator.standard_normal(ny)
    prices = generator.uniform(0.3, 2.0, ny)
    for extra in range(ny, m):
        row, factor = int(generator.integers(ny)), generator.uniform(0.5, 2.0)
        for name in ("A", "B", "b"):
            d[name][extra] = factor * d[name][row]
    d["c"] = -d["A"][:ny].T @ prices
    inverse = np.linalg.inv(d["A"][:ny])
    shift, slope = inverse @ d["b"][:ny], -inverse @ d["B"][:ny]
    return smooth_leader("linear vertex", d, shift, slope, generator)


def smooth_leader(family: str, d: Data, shift: np.ndarray, slope: np.ndarray, generator: Generator) -> Case:
    """A convex leader over an affine answer ``shift + slope x``: the optimum is the solution of a linear system."""
    ny, nx = slope.shape
    weight, target, goal = generator.uniform(0.5, 2.0, nx), generator.standard_normal(ny), generator.uniform(-2, 2, nx)
    x = np.linalg.solve(np.diag(weight) + slope.T @ slope, weight * goal + slope.T @ (target - shift))
    y = shift + slope @ x
    d |= {"f0": np.array(1.0), "xs": goal, "W": weight, "t": target, "V": np.ones(ny)}
    value = 1.0 + 0.5 * float(np.sum(weight * (x - goal) ** 2) + np.sum((y - target) ** 2))
    problem = quadratic(nx, ny, len(d["A"]), 0).with_data(d)
    return Case(family, problem, x + generator.standard_normal(nx), value, 1.0, x, y)


def entropy(generator: Generator) -> Case:
    """Logit choice with a total that depends on x."""
    nx, ny = pick(generator, [(1, 2), (6, 8)])
    x, u = generator.uniform(-0.8, 0.8, nx), generator.standard_normal(ny)
    matrix, rho = generator.standard_normal((ny, nx)), generator.uniform(-0.5, 0.5, nx) / nx
    shares = np.exp(u + matrix @ x)
    shares /= shares.sum()
    total = 1.0 + rho @ x
    y = total * shares
    slope = total * (np.diag(shares) - np.outer(shares, shares)) @ matrix + np.outer(shares, rho)
    steep, wide = float(np.linalg.norm(matrix, 2)), float(np.linalg.norm(rho))
    offset = 0.3 * generator.standard_normal(ny) / np.sqrt(ny)
    turn = 1.5 * steep**2 + steep * wide
    weight = 1.2 * ((0.75 * steep + wide) ** 2 + turn * float(np.linalg.norm(offset))) + 0.2
    data = {"f0": 1.0, "W": weight, "xs": x, "q": -slope.T @ offset, "t": y - offset, "u": u, "M": matrix, "rho": rho}
    start = generator.uniform(-1.0, 1.0, nx)
    value = 1.0 + 0.5 * float(offset @ offset)
    return Case("entropy", logit(nx, ny).with_data(data), start, value, 1.0, x, y)


def dependent_rows(generator: Generator) -> Case:
    """More rows active at the answer than y has entries: LICQ fails there and the multipliers are not unique."""
    nx, ny, m, _ = pick(generator, [(1, 1, 2, 0), (2, 2, 4, 0), (4, 3, 6, 0)])
    base = follower(generator, nx, ny, m, 0)
    everything = replace(base, active=np.arange(m), prices=generator.uniform(0.2, 1.0, m))
    made = fit(replace_rows(everything, np.zeros(m), generator))
    weight = 1.2 * lipschitz(made.data) ** 2 + 0.2
    d = made.data | {"f0": np.array(1.0), "xs": made.x, "t": made.y, "W": np.full(nx, weight), "V": np.ones(ny)}
    return case("dependent rows", replace(made, data=d), generator)


def repeated_rows(generator: Generator) -> Case:
    """Rows repeated with other factors, and sums of rows."""
    nx, ny, m, _ = pick(generator, PLAIN)
    half = (m + 1) // 2
    made = leader(follower(generator, nx, ny, half, 0), generator)
    mix = np.eye(half)[generator.integers(half, size=m - half)] * generator.uniform(0.1, 5.0, (m - half, 1))
    if m - half > 1:
        mix[-1] = generator.uniform(0.1, 1.0, half)
    d = made.data | {name: np.concatenate([made.data[name], mix @ made.data[name]]) for name in ("A", "B", "b")}
    return case("repeated rows", replace(made, data=d), generator)


def hidden_equality(generator: Generator) -> Case:
    """An equality written as two inequalities: nothing is strictly feasible."""
    nx, ny, p = pick(generator, [(2, 2, 2), (4, 3, 3), (5, 8, 4)])
    made = leader(follower(generator, nx, ny, 0, p), generator)
    d, rows = dict(made.data), {"A": "E", "B": "F", "b": "e"}
    d |= {name: np.concatenate([d[source], -d[source]]) for name, source in rows.items()}
    d |= {name: d[name][:0] for name in ("E", "F", "e")}
    return case("hidden equality", replace(made, data=d), generator)


def many_minimisers(generator: Generator) -> Case:
    """A lower level that is flat in some directions: the follower picks what suits the leader."""
    nx, ny, m = pick(generator, [(2, 2, 4), (4, 3, 6), (8, 4, 0)])
    rank = int(generator.integers(1, ny))
    basis, _ = np.linalg.qr(generator.standard_normal((ny, ny)))
    rows = basis[:rank]
    d = empty(nx, ny, m, 0)
    d["A"], d["b"] = generator.standard_normal((m, ny)), np.full(m, 1e3)
    shift, move = generator.standard_normal(rank), generator.standard_normal((rank, nx)) / np.sqrt(nx)
    d |= {"H": rows.T @ rows, "c": -rows.T @ shift, "C": -rows.T @ move}
    made = smooth_leader("many minimisers", d, rows.T @ shift, rows.T @ move, generator)
    # The target's flat part is reached for nothing: only what lies in the row space costs the leader.
    flat_part = made.problem.data["t"] - rows.T @ (rows @ made.problem.data["t"])
    value = made.value - 0.5 * float(flat_part @ flat_part)
    return replace(made, y=made.y + flat_part, value=value)


def switching(generator: Generator) -> Case:
    """A row that becomes active exactly at the answer, with a kink of the leader's value or without."""
    nx, ny, m, _ = pick(generator, PLAIN)
    base = follower(generator, nx, ny, m, 0)
    active = base.active[: ny - 1]
    row = int(np.setdiff1d(np.arange(m), active)[0])
    slack = generator.uniform(0.3, 2.0, m)
    slack[active] = slack[row] = 0.0
    made = replace(base, active=active, prices=generator.uniform(0.3, 2.0, len(active)))
    made = fit(replace_rows(made, slack, generator))
    return case("switching", leader(made, generator, kink=row), generator)


def badly_scaled(generator: Generator) -> Case:
    """Every variable, row and objective in units of its own."""
    made = leader(follower(generator, *pick(generator, PLAIN + WITH_EQUALITIES[:1])), generator)
    return replace(rescale(case("badly scaled", made, generator), generator), family="badly scaled")


def walled(generator: Generator) -> Case:
    """The follower has no answer beyond a plane in x; the start lies beyond it, the answer on it or before it."""
    nx, ny, m, _ = pick(generator, PLAIN[1:])
    base = follower(generator, nx, ny, m - 2, 0)
    normal, wall = generator.standard_normal(ny), generator.standard_normal(nx)
    normal, wall = normal / np.linalg.norm(normal), wall / np.linalg.norm(wall)
    at_wall = bool(generator.integers(2))
    room = 0.0 if at_wall else 2.0 * generator.uniform(0.3, 1.0)
    d = dict(base.data)
    d["A"] = np.concatenate([d["A"], [normal, -normal]])
    d["B"] = np.concatenate([d["B"], [np.zeros(nx), wall]])
    d["b"] = np.concatenate([d["b"], [normal @ base.y + room / 2, -normal @ base.y + wall @ base.x + room / 2]])
    made = replace(base, data=d)
    if at_wall:
        weight = 1.2 * lipschitz(d) ** 2 + 0.2
        push = -generator.uniform(0.2, 2.0) * wall
        d |= {"f0": np.array(1.0), "xs": made.x, "t": made.y, "q": push}
        d |= {"W": np.full(nx, weight), "V": np.ones(ny)}
        made = replace(made, data=d)
    else:
        made = leader(made, generator)
    start = made.x + generator.standard_normal(nx)
    start += (max(0.0, room - wall @ (start - made.x)) + generator.uniform(0.5, 3.0)) * wall
    return case("walled", made, generator, start=start)


FAMILIES: dict[str, Callable[[Generator], Case]] = {
    "strongly convex": strongly_convex,
    "projection": projection,
    "equalities": equalities,
    "no constraint": no_constraint,
    "scalars": scalars,
    "curved": curved,
    "pricing": pricing,
    "linear vertex": linear,
    "entropy": entropy,
    "dependent rows": dependent_rows,
    "repeated rows": repeated_rows,
    "hidden equality": hidden_equality,
    "many minimisers": many_minimisers,
    "switching": switching,
    "badly scaled": badly_scaled,
    "walled": walled,
    "never feasible": never_feasible,
    "lower unbounded": lower_unbounded,
    "upper unbounded": upper_unbounded,
    "not convex": not_convex,
    "not finite": not_finite,
}
