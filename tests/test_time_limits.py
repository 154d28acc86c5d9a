"""One rule for every time limit: it counts from the call on, and nothing new is begun when it is over.

The clock is the tests' own: it stands still until something happens, and then the time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Status, solve, solve_many
from blocc._lib import compiled
from blocc.cvxpy import BilevelProblem as ConicProblem
from blocc.power import bid_generators, read_case
from blocc.roads import assign, estimate_demand, expand_network, second_best_tolls
from blocc.svm.fitting import FitOptions, fit_margins
from blocc.transport import design_network, grid_network, read_network
from power_reference import written
from road_designs import small_roads

LIMIT = 5.0
Tell = Callable[..., Any]


class Clock:
    """Stands still, or is past every limit."""

    def __init__(self) -> None:
        self.is_over = False

    def __call__(self) -> float:
        return 1e6 if self.is_over else 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(compiled, "now", found)
    return found


def problem() -> BilevelProblem:
    """A new one, which nobody has compiled."""
    return BilevelProblem(
        upper=lambda x, y: jnp.sum((x - 1.0) ** 2) + jnp.sum((y - 2.0) ** 4),
        lower=lambda x, y: jnp.sum((y - x) ** 2) + 0.1 * jnp.sum(y**4),
        inequality=lambda x, y: y - 2.0 * x - 1.0,
        x_set=Box(0.0, 3.0, shape=(3,)),
        y_set=Reals(3),
    )


def conic(tell: Tell) -> Any:
    p, y = cp.Parameter(name="p", bounds=[0.0, 3.0]), cp.Variable(name="y")
    follower = cp.Problem(cp.Minimize(cp.square(y - p)), [y <= 1.5])
    leader = ConicProblem(cp.Minimize(cp.square(y - 1.0) + cp.square(p)), follower, p)
    return leader.solve(2.0, time_limit=LIMIT, progress=tell)


def fitted(tell: Tell) -> Any:
    random = np.random.default_rng(0)
    X, noise = random.normal(size=(40, 2)), random.normal(size=40)
    labels = np.where(X[:, 0] + noise > 0.0, 1.0, -1.0)
    samples = X[:30], labels[:30], X[30:], labels[30:]
    return fit_margins(samples, FitOptions(c_weight=1.0, time_limit=LIMIT), np.full(30, 2.0), tell).result


ROADS: dict[str, Any] = {"time_limit": LIMIT, "starts": 1}
FRONTS: dict[str, Callable[[Tell, Any], Any]] = {
    "solve": lambda tell, path: solve(problem(), time_limit=LIMIT, progress=tell),
    "solve-many": lambda tell, path: solve_many(problem(), starts=3, time_limit=LIMIT, progress=tell).results[0],
    "svm": lambda tell, path: fitted(tell),
    "design": lambda tell, path: design_network(read_network("three"), starts=2, time_limit=LIMIT, report=tell),
    "assign": lambda tell, path: assign(small_roads(), relative_gap=1e-300, time_limit=LIMIT, report=tell),
    "expand": lambda tell, path: expand_network(small_roads(), candidates=[2], cost=0.3, report=tell, **ROADS),
    "toll": lambda tell, path: second_best_tolls(small_roads(), candidates=[1], report=tell, **ROADS),
    "estimate": lambda tell, path: estimate_demand(small_roads(), {1: 5.0, 2: 6.0}, report=tell, **ROADS),
    "power": lambda tell, path: bid_generators(
        read_case(written(path)), [2], offer_cap=70.0, time_limit=LIMIT, report=tell
    ),
    "cvxpy": lambda tell, path: conic(tell),
}


@pytest.mark.parametrize("name", FRONTS)
def test_nothing_is_begun_after_the_limit(name: str, clock: Clock, tmp_path: Any) -> None:
    told: list[Any] = []

    def tell(*row: Any) -> None:
        told.append(row)
        clock.is_over = True

    found = FRONTS[name](tell, tmp_path)
    assert found.status is Status.TIME_LIMIT
    assert len(told) <= 2  # a row for the answer of what was under way


#: Programs that descend.
SEARCH = {"evaluate_both", "_chunk", "_round", "penalty_of_capacities"}


@pytest.mark.parametrize("kind", ["solve", "pgd", "solve-many", "design"])
def test_compilation_counts_and_none_is_begun_after_the_limit(
    kind: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[str] = []
    compile_one = compiled._compiled

    def slow(traced: Any, *given: Any) -> Any:
        if clock.is_over:
            late.append(traced.fun_name)
        found = compile_one(traced, *given)
        clock.is_over = True  # while the first one goes on
        return found

    monkeypatch.setattr(compiled, "_compiled", slow)
    fronts: dict[str, Callable[[], Any]] = {
        "solve": lambda: solve(problem(), time_limit=LIMIT),
        "pgd": lambda: solve(problem(), gamma=5.0, outer="pgd", time_limit=LIMIT),
        "solve-many": lambda: solve_many(problem(), starts=3, time_limit=LIMIT).results[0],
        "design": lambda: design_network(grid_network(2, 3, seed=5), starts=2, time_limit=LIMIT),
    }
    found = fronts[kind]()
    assert found.status is Status.TIME_LIMIT
    assert not SEARCH.intersection(late)  # what the answer's certificate needs may be compiled
