"""Designs of cities that are stopped: an exact answer that can be cut short, and a certified design in any case."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from blocc.cli import commands as cli
from blocc.cli import design as cli_design
from blocc.result import Status
from blocc.transport import Design, DesignModel, TransportNetwork, design_network, verify_design, write_network
from blocc.transport.design import verify_design as verifying
from blocc.transport.design.documents import read_design_json
from blocc.transport.network.generators import city_network
from selections import few

pytest.importorskip("numba")

from blocc.networks.shortest_paths import unknown_orders
from blocc.transport.travellers.path_assignment import PathTravellers
from blocc.transport.travellers.path_loading import Market, load_paths
from blocc.transport.travellers.price_newton import known_prices
from clocks import counted


@pytest.fixture(scope="module")
def city() -> DesignModel:
    """Eight zones whose centroids are not passed, and one-way streets."""
    return DesignModel(city_network(8, 16, 60, seed=3), "paths")


def loaded(network: TransportNetwork, prices: np.ndarray, temperature: float, orders: Any = None) -> Any:
    travellers = PathTravellers(network)
    market = Market(travellers.at_nodes(network.demand), travellers.at_nodes(network.alternative_time))
    return load_paths(travellers.streets, network.time + prices, market, temperature, orders)


# --- orders that are known -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("change", [1e-3, 0.1, 3.0])
def test_a_load_does_not_depend_on_where_its_order_comes_from(city: DesignModel, change: float) -> None:
    """To the last bit, after small and large changes of prices, and where links are closed."""
    network, random = city.network, np.random.default_rng(1)
    orders = unknown_orders(PathTravellers(network).streets)
    prices = random.uniform(0.0, 0.5, network.n_links)
    for closed in (False, False, True):
        prices = prices + change * random.uniform(0.0, 1.0, network.n_links)
        prices[::7] = np.inf if closed else prices[::7]
        known, fresh = loaded(network, prices, 0.03, orders), loaded(network, prices, 0.03)
        assert known.value == fresh.value
        np.testing.assert_array_equal(known.flow, fresh.flow)
        np.testing.assert_array_equal(known.share, fresh.share)


# --- exact answers ---------------------------------------------------------------------------------------------------
def test_flows_on_cheapest_paths_are_answered_by_their_prices(city: DesignModel) -> None:
    network = city.network
    prices = np.random.default_rng(0).uniform(0.0, 0.5, network.n_links)
    flow = loaded(network, prices, city.lowest_temperature).flow
    travellers = PathTravellers(network)
    found, _ = travellers.answer(flow, network.alternative_time, known_prices(prices, travellers.time_unit, 1e-9))
    assert int(found.iterations) == 0
    assert float(found.error) < 1e-9
    residuals, size = city.lower_residuals(flow, found)
    assert max(residuals.stationarity, residuals.feasibility, residuals.complementarity) <= 1e-6 * (1.0 + size)


def test_an_answer_that_is_cut_short_says_how_far_it_is(city: DesignModel) -> None:
    network, asked = city.network, 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    capacity = network.random_starts(1)[0]
    cut, _ = PathTravellers(network).answer(capacity, network.alternative_time, stop=stop)
    assert asked < 10
    assert float(cut.error) > 1e-6
    assert float(PathTravellers(network).answer(capacity, network.alternative_time)[0].error) < 1e-9


# --- designs ---------------------------------------------------------------------------------------------------------
def stopped(city: DesignModel, iteration: int, **options: Any) -> Design:
    return design_network(
        city.network, starts=1, model=city, callback=lambda state: state.iteration >= iteration, **options
    )


@pytest.mark.parametrize("iteration", [60, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("budget", few([None, 15.0], 15.0))
def test_a_stopped_design_is_certified_and_not_empty(city: DesignModel, iteration: int, budget: float | None) -> None:
    design = stopped(city, iteration, budget=budget)
    assert design.status is Status.STOPPED
    assert design.built.any()
    assert design.utility > 0.0
    assert design.lower_level_error < 1e-6
    assert design.follower.construction_cost <= (np.inf if budget is None else budget * (1.0 + 1e-9))
    # At capacities without any slack another engine is less exact, and gamma magnifies what it leaves over in the gap.
    verification = verify_design(city.network, design)
    assert {check.name for check in verification.failed} <= {"penalty gap"}, str(verification)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"budget": 15.0},
        {"budget": 15.0, "max_capacity": 3.0},
        {"symmetric": True},
        {"symmetric": True, "min_capacity": 0.01, "max_capacity": 3.0, "budget": 20.0},
    ],
)
def test_a_design_stopped_before_its_first_evaluation_is_not_empty(city: DesignModel, limits: dict[str, Any]) -> None:
    design = design_network(city.network, starts=1, model=city, time_limit=1e-6, **limits)
    assert design.status is Status.TIME_LIMIT
    assert sum(start.evaluations for start in design.starts) == 0
    assert design.built.sum() > 0
    assert design.utility > 0.0 or "min_capacity" in limits  # which may cost more than anything earns
    assert design.lower_level_error < 1e-6
    assert design.follower.construction_cost <= limits.get("budget", np.inf) * (1.0 + 1e-9)
    assert design.capacity.max() <= limits.get("max_capacity", np.inf)
    assert design.capacity.min() >= limits.get("min_capacity", 0.0)
    both = city.network.reverse >= 0
    if limits.get("symmetric"):
        np.testing.assert_array_equal(design.capacity[both], design.capacity[city.network.reverse[both]])
    assert design.capacity[design.built].min() >= 1e-6 * design.capacity.max()
    assert "the best design so far" in design.message


def test_stated_prices_prove_a_design_and_forged_ones_do_not(
    city: DesignModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an engine on paths verifies, the stated prices are the proof; others lead to the travellers' own."""
    design = stopped(city, 60, budget=15.0)
    monkeypatch.setattr(verifying, "DesignModel", lambda network, engine="paths": DesignModel(network, "paths"))
    verification = verify_design(city.network, design)
    assert verification.ok, str(verification)
    assert "from the stated prices" in {check.note for check in verification.checks}
    forged = replace(design, follower=design.follower._replace(price=1.5 * design.follower.price + 0.1))
    assert "prices of built links" in {check.name for check in verify_design(city.network, forged).failed}


def test_a_stopped_design_leaves_out_links_for_next_to_nobody(city: DesignModel) -> None:
    """Capacities so small that they count as closed must not be built: nobody would know their prices."""
    network = city.network
    first = np.where(network.origin == network.origin[0], 1e-11, 1.0)
    design = design_network(
        replace(network, demand=first * network.demand),
        starts=1,
        engine="paths",
        callback=lambda state: state.iteration >= 60,
    )
    assert design.built.any()
    assert design.lower_level_error < 1e-6


def test_a_limit_is_kept_while_an_answer_is_computed(city: DesignModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that would take for ever ends with the run."""

    def slow(self: PathTravellers, *arguments: Any) -> Any:
        stop = arguments[4]
        while not stop():
            pass
        return answer(self, *arguments)

    answer = PathTravellers.answer
    design_network(city.network, model=city, starts=1, callback=lambda state: True)  # compiled
    monkeypatch.setattr(PathTravellers, "answer", slow)
    with counted(step=0.01) as clock:
        design = design_network(city.network, model=city, starts=1, time_limit=0.5)
    assert design.status is Status.TIME_LIMIT
    assert clock.passed < 1.5


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_signals_to_the_command(
    city: DesignModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    calls = 0

    class Pressing:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> Callable[..., None]:
            return self.tell

        def __exit__(self, *_: object) -> None: ...

        def tell(self, *_: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 80:
                os.kill(os.getpid(), number)

    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}[number]
    before = signal.signal(number, usual)  # tests that run in the background have SIGINT ignored
    monkeypatch.setattr(cli_design, "DesignProgress", Pressing)
    write_network(city.network, tmp_path / "city.json")
    words = ["design", tmp_path / "city.json", "--engine", "paths", "--starts", 3, "--out", tmp_path / "made"]
    try:
        result = CliRunner().invoke(cli.build_app(), [str(word) for word in words])
    finally:
        signal.signal(number, before)
    assert result.exit_code == 128 + number, result.output
    assert calls < 200
    document = read_design_json(tmp_path / "made" / "design.json")
    assert document["summary"]["status"] == "interrupted"
    assert document["summary"]["links_built"] > 0
    assert (tmp_path / "made" / "report.html").exists()
