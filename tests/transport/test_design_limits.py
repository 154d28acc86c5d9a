"""Designs within limits: against brute force on three nodes, and budget against budget on many networks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from blocc._lib.precision import double_precision
from blocc.errors import OptionError
from blocc.outer.monitor import Monitor
from blocc.result import Status
from blocc.transport import (
    CapacitySet,
    Design,
    DesignModel,
    TransportNetwork,
    design_network,
    grid_network,
    read_network,
)
from blocc.transport.design.certificate import remaining_gain
from blocc.transport.design.search import Search
from blocc.transport.travellers.graph import graph_of
from selections import few
from transport_compiled import call, cold, many_answers
from transport_reference import three_nodes


@pytest.fixture(scope="module")
def model() -> DesignModel:
    return DesignModel(three_nodes())


# --- three nodes, by brute force -------------------------------------------------------------------------------------
def best_by_brute_force(network: TransportNetwork, limits: CapacitySet) -> float:
    """The largest exact utility among very many members: some of a grid, and random changes of the best of it."""
    graph, random = graph_of(network), np.random.default_rng(0)

    def judge(capacities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inside = np.array([limits.cover(row) for row in capacities])
        parts = [call(many_answers, graph, block, cold(graph)) for block in inside.reshape(-1, 512, network.n_links)]
        flow, share, error = (np.concatenate(part) for part in zip(*parts, strict=True))
        used = np.array([limits.cover(np.minimum(row, own)) for row, own in zip(flow, inside, strict=True)])
        earned = np.sum(graph.demand * graph.revenue * share, axis=(1, 2))
        return np.where(error <= 1e-8, earned - (used - limits.existing) @ network.cost, -np.inf), used

    utility, used = judge(random.permutation(list(product((0.0, 0.3, 0.8, 1.8), repeat=6)))[:1024])
    for radius in (0.3, 0.1, 0.03):
        chosen = np.argsort(-utility)[:64]
        moved = np.repeat(used[chosen], 8, axis=0)
        more, further = judge(np.maximum(moved * (1.0 + radius * random.uniform(-1.0, 1.0, moved.shape)), 0.0))
        utility, used = np.concatenate([utility[chosen], more]), np.concatenate([used[chosen], further])
    return float(utility.max())


def on_links(**values: float) -> np.ndarray:
    """Figures of links by their ends, as in ``on_links(l23=0.5)``; 0 elsewhere."""
    network = three_nodes()
    names = [f"l{i + 1}{j + 1}" for i, j in zip(network.tail, network.head, strict=True)]
    return np.array([values.get(name, 0.0) for name in names])


CASES: dict[str, dict[str, Any]] = {
    "budget": {"budget": 1.2},
    "existing": {"existing_capacity": on_links(l23=0.5, l32=0.4)},
    "existing and budget": {"existing_capacity": on_links(l12=0.3, l23=0.5), "budget": 0.7},
    "forced": {"min_capacity": on_links(l23=0.4)},
    "forbidden": {"max_capacity": np.where(on_links(l12=1.0) > 0, 0.0, np.inf)},
    "symmetric": {"symmetric": True, "max_capacity": 0.6, "existing_capacity": on_links(l32=0.2)},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", few(CASES, "budget"))
def test_no_other_design_is_better(model: DesignModel, case: str) -> None:
    options = CASES[case]
    network = model.network
    design = design_network(network, starts=2, model=model, **options)
    names = {"max_capacity": "limit", "min_capacity": "minimum", "existing_capacity": "existing"}
    limits = CapacitySet(network, **{names.get(name, name): value for name, value in options.items()})
    assert limits.contains(design.capacity)
    assert design.success
    best = best_by_brute_force(network, limits)
    assert design.utility >= best - 1e-3
    assert design.utility <= best + 5e-3


def test_existing_capacity_costs_nothing(model: DesignModel) -> None:
    """With no money to build anything, all revenue of what is there is utility."""
    existing = on_links(l12=2.0, l21=2.0)
    design = design_network(model.network, starts=1, model=model, existing_capacity=existing, budget=0.0)
    np.testing.assert_array_equal(design.capacity, existing)
    assert design.follower.construction_cost == 0.0
    assert design.utility == pytest.approx(4.0 * float(expit(2.0)), abs=1e-6)


def test_columns_of_the_network_are_limits_too() -> None:
    rows = [dict(row) for row in three_nodes().link_rows()]
    rows[3] |= {"min_capacity": 0.2}
    rows[0] |= {"max_capacity": 0.5}
    network = TransportNetwork.from_tables(three_nodes().node_rows(), rows, three_nodes().market_rows())
    limits = CapacitySet(network, limit=0.8)
    np.testing.assert_array_equal(limits.limit, [0.5, 0.8, 0.8, 0.8, 0.8, 0.8])
    np.testing.assert_array_equal(limits.least, [0.0, 0.0, 0.0, 0.2, 0.0, 0.0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_capacity": 1.0, "max_capacity": 0.5}, "max_capacity of link 1 -> 2 is 0.5, less than the 1 it must"),
        ({"existing_capacity": 1.0, "max_capacity": 0.0}, "max_capacity of link"),
        ({"min_capacity": 1.0, "budget": 2.0}, "budget must be at least 28"),
        ({"min_capacity": np.inf}, "min_capacity must be a number .* finite"),
        ({"existing_capacity": -1.0}, "existing_capacity must be .* >= 0"),
    ],
    ids=str,
)
def test_limits_that_contradict_each_other(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        design_network(three_nodes(), **options)


# --- budget against budget -------------------------------------------------------------------------------------------
def check_budgets(network: TransportNetwork, parts: tuple[float, ...], starts: int) -> None:
    """Utility grows with the budget, and is never below that of the unlimited design scaled down to it."""
    model = DesignModel(network)
    free = design_network(network, starts=starts, model=model)
    full, before = free.follower.construction_cost, 0.0
    allowed = 1e-3 * (1.0 + free.utility)
    for part in parts:
        design = design_network(network, starts=starts, budget=part * full, model=model)
        assert design.follower.construction_cost <= part * full * (1.0 + 1e-9)
        scaled = float(model.capacities(min(1.0, part) * free.capacity, design.gamma).utility)
        assert design.utility >= scaled - allowed
        assert design.utility >= before - allowed
        before = design.utility


@pytest.mark.slow
def test_more_money_earns_more_on_three_nodes() -> None:
    check_budgets(three_nodes(), (0.3, 0.9, 1.1), starts=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["nine", "seville"])
def test_more_money_earns_more(name: str) -> None:
    check_budgets(read_network(name), (0.25, 0.7, 0.95, 1.1), starts=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_more_money_earns_more_on_random_networks(seed: int) -> None:
    rows, columns = ((2, 3), (3, 3), (3, 4))[seed % 3]
    demand, cost = (2.65, 60.0)[seed % 2], (0.6, 1.095, 1.6)[seed % 3]
    check_budgets(grid_network(rows, columns, seed=seed, demand=demand, cost_per_time=cost), (0.3, 0.75, 1.1), starts=1)


@pytest.mark.slow
def test_a_budget_that_stopped_short_before() -> None:
    """Nine nodes: this budget once ended with 96.2 spent and a utility of 15.61."""
    design = design_network(read_network("nine"), starts=1, budget=134.6)
    assert design.follower.construction_cost == pytest.approx(134.6, rel=1e-3)
    assert design.utility > 17.1
    assert design.success


def test_unspent_money_that_would_earn_more_is_a_gain(model: DesignModel) -> None:
    """Half of the budget lies idle, and each unit of it would earn two: that is not the end."""
    limits = CapacitySet(model.network, budget=1.0)
    search = Search(model, limits, 1e4, Monitor(lambda x: x))
    search.state.best = on_links(l12=0.25, l21=0.25)
    with double_precision():
        assert remaining_gain(search, False, 0.0).gain > 0.3


# --- stopping --------------------------------------------------------------------------------------------------------
def stopped_by(model: DesignModel, act: Callable[[], None], **options: Any) -> Design:
    return design_network(model.network, model=model, callback=lambda state: state.iteration == 30 and act(), **options)


@pytest.mark.parametrize("signals", [1, 2])
def test_an_answer_after_signals(model: DesignModel, signals: int) -> None:
    def act() -> None:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGINT)

    design = stopped_by(model, act, starts=3)
    assert design.status is Status.INTERRUPTED
    assert design.starts[-1].status is Status.INTERRUPTED
    assert np.isnan(design.certificate.stationarity_x)  # not measured after a stop
    assert design.certificate.feasibility < 1e-6
    assert np.isfinite(design.utility)


def test_a_start_that_ran_to_its_end_keeps_its_status(model: DesignModel) -> None:
    calls = 0

    def callback(state: Any) -> bool:
        nonlocal calls
        calls += 1
        return calls > 200  # within the second start or later: one takes about a hundred

    design = design_network(model.network, starts=9, model=model, callback=callback)
    assert design.status is Status.STOPPED
    assert [start.status for start in design.starts[:-1]] == [Status.CONVERGED] * (len(design.starts) - 1)
    assert len(design.starts) > 1
    assert design.starts[-1].status is Status.STOPPED
