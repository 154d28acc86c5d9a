"""From a network to a certified design: known answers, independent checks, limits, and ways to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from blocc.errors import OptionError
from blocc.presets import PUBLISHED
from blocc.result import Status
from blocc.transport.design import design_network as design_module
from blocc.transport.design.certificate import MOST_MEASURED
from blocc.transport.design.design_network import design_network
from blocc.transport.design.design_result import Design
from blocc.transport.design.model import DesignModel
from blocc.transport.network.files import read_network
from blocc.transport.network.generators import city_network
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.graph import graph_of
from clocks import counted
from transport_compiled import call, cold, many_answers
from transport_reference import solve_lower_level, three_nodes

BEST_OF_THREE = 2.0 * float(expit(2.0))

Designer = Callable[..., Design]


def designer(network: TransportNetwork) -> Designer:
    """Designs one network, compiled once."""
    model = DesignModel(network)

    def run(**options: Any) -> Design:
        return design_network(network, **{"starts": 1, "model": model, **options})

    return run


@pytest.fixture(scope="module")
def three() -> Designer:
    return designer(three_nodes())


@pytest.fixture(scope="module")
def three_design(three: Designer) -> Design:
    return three(starts=3)


@pytest.fixture(scope="module")
def nine_model() -> DesignModel:
    return DesignModel(read_network("nine"))


@pytest.fixture(scope="module")
def nine(nine_model: DesignModel) -> Designer:
    return lambda **options: design_network(nine_model.network, **{"starts": 1, "model": nine_model, **options})


@pytest.fixture(scope="module")
def nine_design(nine: Designer) -> Design:
    return nine()


@pytest.fixture(scope="module")
def seville() -> Designer:
    return designer(read_network("seville"))


def lower_level_is_solved(design: Design) -> bool:
    found = design.certificate
    largest = max(found.stationarity, found.feasibility, found.complementarity)
    return largest <= 1e-6 * (1.0 + design.follower.flow.max(initial=1.0))


def cheapest(network: TransportNetwork, costs: np.ndarray, able: np.ndarray) -> np.ndarray:
    """Cheapest cost of each market, by Floyd and Warshall."""
    table = np.where(np.eye(network.n_nodes, dtype=bool), 0.0, np.inf)
    table[network.tail[able], network.head[able]] = costs[able]
    for middle in range(network.n_nodes):
        table = np.minimum(table, table[:, [middle]] + table[[middle], :])
    return table[network.origin, network.destination]


# --- three nodes: everything is known ------------------------------------------------------------------------------
def test_every_start_finds_the_best_of_three_nodes(three_design: Design) -> None:
    assert len(three_design.starts) == 3
    assert min(start.utility for start in three_design.starts) >= 1.760
    assert three_design.utility == pytest.approx(BEST_OF_THREE, abs=1e-4)
    assert three_design.utility == pytest.approx(max(start.utility for start in three_design.starts), abs=1e-5)


def test_three_nodes_build_the_two_short_links(three_design: Design) -> None:
    np.testing.assert_allclose(three_design.capacity[[0, 2]], expit(2.0), atol=1e-4)
    np.testing.assert_array_equal(three_design.capacity[[1, 3, 4, 5]], 0.0)


def test_three_nodes_are_certified(three_design: Design) -> None:
    assert three_design.success
    assert lower_level_is_solved(three_design)
    assert three_design.certificate.stationarity_x <= 1e-3 * (1 + three_design.utility)
    assert abs(three_design.certificate.penalty_gap) <= 1e-3 * (1 + three_design.utility)


def brute_force(network: TransportNetwork) -> tuple[float, np.ndarray]:
    """The best design among very many, by the exact lower level: every set of open links on a coarse grid, then finer.

    Capacity that travellers leave idle can be taken away without changing their answer, so each design counts with the
    capacity it uses; that alone makes a coarse grid good.
    """
    graph = graph_of(network)
    start = cold(graph)

    def judge(capacities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        flow, share, error = (
            np.concatenate(part)
            for part in zip(*(call(many_answers, graph, c, start) for c in capacities.reshape(-1, 512, 6)), strict=True)
        )
        earned = np.sum(graph.demand * graph.revenue * share, axis=(1, 2))
        return np.where(error <= 1e-8, earned - flow @ network.cost, -np.inf), np.where(capacities > 0, flow, 0.0)

    coarse = np.array(list(product((0.0, 0.3, 0.8, 1.8), repeat=6)))
    utility, used = judge(coarse)
    random = np.random.default_rng(0)
    for radius in (0.3, 0.1, 0.03):
        chosen = np.argsort(-utility)[:64]
        moved = np.repeat(used[chosen], 8, axis=0)
        moved = np.where(moved > 1e-6, np.maximum(moved * (1 + radius * random.uniform(-1, 1, moved.shape)), 0.0), 0.0)
        more, further = judge(moved)
        utility, used = np.concatenate([utility[chosen], more]), np.concatenate([used[chosen], further])
    return float(utility.max()), used[np.argmax(utility)]


def test_no_other_design_of_three_nodes_is_better(three_design: Design) -> None:
    utility, capacity = brute_force(three_design.network)
    assert utility <= three_design.utility + 1e-4
    assert utility >= three_design.utility - 2e-3
    np.testing.assert_allclose(capacity, three_design.capacity, atol=2e-3)


# --- nine nodes: everything is computed again ----------------------------------------------------------------------
def test_nine_nodes(nine_design: Design) -> None:
    assert nine_design.status is Status.CONVERGED
    assert nine_design.utility >= 17.2
    assert lower_level_is_solved(nine_design)


def test_utility_is_that_of_the_reference(nine_design: Design) -> None:
    network = nine_design.network
    # Capacities that just fit the flows leave prices near zero. Clarabel then calls its own answer inaccurate: shares
    # are good to a few 1e-6, and the revenue of 72 markets to a few 1e-4.
    reference = solve_lower_level(network, nine_design.capacity)
    utility = reference.share @ (network.demand * network.revenue) - network.cost @ nine_design.capacity
    assert nine_design.utility == pytest.approx(utility, abs=5e-4)
    follower = nine_design.follower
    assert follower.utility == pytest.approx(follower.revenue - follower.construction_cost)
    assert follower.construction_cost == pytest.approx(network.cost @ nine_design.capacity)


def test_shares_are_the_logit_of_the_cheapest_paths(nine_design: Design) -> None:
    network, follower = nine_design.network, nine_design.follower
    costs = cheapest(network, network.time + follower.price, nine_design.built)
    np.testing.assert_allclose(follower.path_cost, costs, atol=1e-9)
    np.testing.assert_allclose(follower.share, expit(network.alternative_time - costs), atol=1e-6)


def test_price_of_a_closed_link_is_what_the_reference_saves(nine_design: Design) -> None:
    """Per unit of the capacity that was added, by Clarabel's values of both lower levels; few links are measured."""
    network, capacity, unit = nine_design.network, nine_design.capacity, nine_design.price_unit
    price = np.where(nine_design.built, np.nan, nine_design.follower.price)
    measured = np.flatnonzero(np.isfinite(price))
    assert 0 < len(measured) <= MOST_MEASURED
    before = solve_lower_level(network, capacity).value
    for link in measured[np.argsort(-price[measured])][[0, -1]]:
        ahead = solve_lower_level(network, capacity + unit * (np.arange(network.n_links) == link)).value
        assert price[link] == pytest.approx((before - ahead) / unit, rel=1e-3, abs=1e-3)


def test_no_small_change_earns_more(nine_design: Design, nine_model: DesignModel) -> None:
    """Each built link a little larger or smaller, by the exact utility."""
    best = nine_design.utility
    for link, change in product(np.flatnonzero(nine_design.built), (-0.1, -0.01, 0.01, 0.1)):
        capacity = nine_design.capacity.copy()
        capacity[link] *= 1.0 + change
        assert float(nine_model.capacities(capacity, nine_design.gamma).utility) <= best + 1e-3


# --- a city --------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_seville(seville: Designer, record_property: Callable[[str, object], None]) -> None:
    design = seville()
    record_property("seconds", design.seconds)
    assert design.success
    assert design.utility >= 225.0


@pytest.mark.slow
def test_five_starts_reach_the_figures_of_the_readme(nine: Designer, seville: Designer) -> None:
    assert nine(starts=5).utility == pytest.approx(17.285, abs=1e-3)
    assert seville(starts=5).utility == pytest.approx(226.43, abs=1e-2)


def test_time_limit_keeps_the_best_so_far(seville: Designer) -> None:
    with counted(step=0.01):
        design = seville(time_limit=0.2)
    assert design.status is Status.TIME_LIMIT
    assert not design.success
    assert np.isfinite(design.utility)
    assert design.utility >= 0


@pytest.mark.slow
def test_a_run_that_is_stopped_early_answers_with_what_it_had_shown() -> None:
    shown: list[float] = []

    def late(state: Any) -> bool:
        shown.append(-state.row.upper_value)
        return bool(state.row.gamma >= 3.0)

    design = design_network(city_network(10, 40, 150, seed=1), starts=1, engine="paths", callback=late)
    assert design.status is Status.STOPPED
    assert max(shown) > 0.0
    assert design.utility > 0.9 * max(shown)
    assert design.lower_level_error < 1e-6


def test_sigterm_is_heeded_like_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGTERM)
    design = design_network(three_nodes(), starts=5, callback=lambda state: signal.raise_signal(signal.SIGTERM))
    assert design.status is Status.INTERRUPTED
    assert len(design.starts) == 1
    assert signal.getsignal(signal.SIGTERM) is before


# --- the run itself ------------------------------------------------------------------------------------------------
def test_building_nothing_is_always_possible() -> None:
    network = three_nodes()
    design = design_network(replace(network, cost=1e4 * network.cost), starts=1)
    np.testing.assert_array_equal(design.capacity, 0.0)
    assert design.utility == 0.0
    assert design.success
    np.testing.assert_array_equal(design.follower.share, 0.0)


@pytest.mark.slow
def test_same_seed_same_design(nine: Designer, nine_design: Design) -> None:
    again = nine()
    np.testing.assert_array_equal(again.capacity, nine_design.capacity)
    assert again.utility == nine_design.utility
    np.testing.assert_array_equal(again.history.penalty_value, nine_design.history.penalty_value)


def test_starts_are_recorded(nine: Designer, nine_design: Design) -> None:
    design = nine(starts=2)
    first, second = design.starts
    assert first.utility == nine_design.starts[0].utility  # the same seed begins with the same start
    assert first.utility != second.utility
    assert design.utility == pytest.approx(max(first.utility, second.utility), abs=1e-5)  # warm starts differ a little
    for start in design.starts:
        assert start.status is Status.CONVERGED
        assert start.evaluations > 0
        assert 0 < start.links_built <= 30
        assert start.seconds > 0


def test_what_if_follows_gamma(nine_design: Design) -> None:
    rows = nine_design.what_if
    gammas = [row.gamma for row in rows]
    assert gammas == sorted(set(gammas))
    assert gammas[-1] == nine_design.gamma
    assert rows[-1].distance < 1e-2 * rows[0].distance
    assert np.isfinite([tuple(row) for row in rows]).all()


def test_callback_stops_with_the_best_so_far(nine: Designer) -> None:
    seen = []
    design = nine(callback=lambda state: seen.append(state) or state.iteration >= 150)
    assert design.status is Status.STOPPED
    assert design.starts[0].status is Status.STOPPED
    assert len(seen) == 150
    assert np.isfinite(design.utility)
    assert design.utility >= 0


def test_report_sees_every_iteration(three: Designer) -> None:
    seen = []
    three(report=lambda iteration, row: seen.append((iteration, row.gamma)))
    assert [iteration for iteration, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[0][1] < seen[-1][1]


def test_fixed_gamma_is_kept(three: Designer) -> None:
    design = three(gamma=300.0)
    assert design.gamma == design.settings["gamma"] == 300.0
    assert design.what_if[-1].gamma == 300.0
    assert design.success


def test_print_explains(three_design: Design) -> None:
    words = repr(three_design)
    for expected in ("three nodes: converged", "1.7615", "links built  2 of 6", "3 starts", "certificate"):
        assert expected in words


# --- limits --------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_budget(nine: Designer, nine_design: Design) -> None:
    less, more = nine(budget=10.0), nine(budget=20.0)
    for design, budget in ((less, 10.0), (more, 20.0)):
        assert design.network.cost @ design.capacity <= budget * (1 + 1e-9)
        assert lower_level_is_solved(design)
    assert 0 < less.utility <= more.utility + 1e-9
    assert more.utility <= nine_design.utility + 1e-9


def test_budget_on_three_nodes(three: Designer) -> None:
    """Each unit of money earns two on the short links, whichever of the two it goes to."""
    design = three(budget=1.0)
    assert design.success
    assert design.utility == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("budget", [1e9, float("inf")])
def test_unlimited_budget_is_no_budget(three: Designer, three_design: Design, budget: float) -> None:
    design = three(budget=budget)
    assert design.success
    assert design.utility == pytest.approx(three_design.utility, abs=1e-5)
    np.testing.assert_allclose(design.capacity, three_design.capacity, atol=1e-4)


def test_no_budget_builds_nothing(three: Designer) -> None:
    design = three(budget=0.0)
    np.testing.assert_array_equal(design.capacity, 0.0)
    assert design.utility == 0.0


def test_max_capacity(three: Designer) -> None:
    design = three(max_capacity=0.3)
    assert design.success
    np.testing.assert_allclose(design.capacity, [0.3, 0, 0.3, 0, 0, 0], atol=1e-9)
    assert (design.capacity <= 0.3).all()


@pytest.mark.slow
def test_max_capacity_of_zero_closes_a_link(nine: Designer, nine_design: Design) -> None:
    limit = np.full(30, np.inf)
    shut = np.argsort(nine_design.capacity)[-3:]
    limit[shut] = 0.0
    design = nine(max_capacity=limit)
    np.testing.assert_array_equal(design.capacity[shut], 0.0)
    assert lower_level_is_solved(design)
    assert 0 < design.utility <= nine_design.utility + 1e-9


@pytest.mark.slow
def test_symmetric(nine: Designer, nine_design: Design) -> None:
    design = nine(symmetric=True)
    np.testing.assert_array_equal(design.capacity, design.capacity[design.network.reverse])
    assert 0 < design.utility <= nine_design.utility + 1e-9
    assert lower_level_is_solved(design)


@pytest.mark.slow
def test_all_limits_at_once(nine: Designer, nine_design: Design) -> None:
    limit = np.full(30, 1.5)
    limit[3] = 0.0
    design = nine(budget=20.0, symmetric=True, max_capacity=limit)
    assert design.network.cost @ design.capacity <= 20.0 * (1 + 1e-9)
    assert (design.capacity <= limit).all()
    np.testing.assert_array_equal(design.capacity, design.capacity[design.network.reverse])
    assert 0 < design.utility < nine_design.utility
    assert design.settings["max_capacity"][3] == 0.0


@pytest.mark.slow  # tests/test_concurrency.py shows that threads do not disturb each other
def test_threads_share_a_model(three: Designer) -> None:
    """Two designs at once, with one model and different budgets, are those of one after the other."""

    def designed(budget: float) -> Design:
        return three(starts=1, budget=budget)

    budgets = (0.4, 1.2)
    alone = [designed(budget) for budget in budgets]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(designed, budgets))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.capacity, other.capacity)
        np.testing.assert_array_equal(one.history.penalty_value, other.history.penalty_value)
        assert one.utility == other.utility


# --- other starts and methods --------------------------------------------------------------------------------------
def test_x0_is_a_single_start(three: Designer) -> None:
    design = three(starts=4, x0=np.full(6, 0.6))
    assert len(design.starts) == 1
    assert design.settings["starts"] == 1
    assert design.utility >= 1.2


@pytest.mark.slow
def test_published_method(three: Designer) -> None:
    design = three(preset="paper", max_iterations=5, starts=1)
    assert design.settings["method"] == "pgd"
    assert design.gamma == 4.0
    assert len(design.history.gamma) >= 5
    assert lower_level_is_solved(design)
    assert not design.success  # five steps of 1.6e-4 lead nowhere, and it says so


@pytest.fixture
def stands_still(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Algorithm 1 ends where it starts, with the status in "status"; what it was asked for is kept."""
    asked: dict[str, Any] = {"status": Status.ITERATION_LIMIT}

    def solve(problem: Any, start: np.ndarray, **options: Any) -> SimpleNamespace:
        asked.update(options)
        history = SimpleNamespace(rows=lambda: [])
        counts, seconds = {"evaluations": 1}, {"compile": 0.0}
        return SimpleNamespace(x=start, status=asked["status"], seconds=seconds, counts=counts, history=history)

    monkeypatch.setattr(design_module, "solve", solve)
    return asked


def test_published_method_with_another_gamma(three: Designer, stands_still: dict[str, Any]) -> None:
    design = three(preset="paper", gamma=3, starts=1)
    assert (design.gamma, stands_still["gamma"], stands_still["step"]) == (3.0, 3.0, 1.6e-4)
    assert stands_still["outer"] == "pgd"


@pytest.mark.parametrize(
    ("preset", "numbers"),
    [
        ("paper", (4.0, 1.6e-4, 20_000, 10)),
        ("three", (4.0, 3.2e-6, 1_200_000, 1)),
        ("nine", (4.0, 1.6e-4, 200_000, 10)),
        ("seville", (3.0, 1.6e-4, 1_100_000, 1)),
    ],
)
def test_each_published_experiment_has_its_numbers(
    three: Designer, stands_still: dict[str, Any], preset: str, numbers: tuple[float, ...]
) -> None:
    design = three(preset=preset, starts=None)
    asked = (design.gamma, stands_still["step"], stands_still["max_iterations"], len(design.starts))
    assert asked == numbers
    assert (PUBLISHED[preset].gamma, PUBLISHED[preset].step) == numbers[:2] or preset == "paper"


@pytest.mark.parametrize("status", [Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED])
def test_published_method_stopped_early(three: Designer, stands_still: dict[str, Any], status: Status) -> None:
    stands_still["status"] = status
    assert three(preset="paper").status is status


def test_published_method_out_of_time_before_it_starts(three: Designer) -> None:
    assert three(preset="paper", time_limit=1e-6).status is Status.TIME_LIMIT


@pytest.mark.parametrize("gamma", [2.0, "auto"])
def test_random_capacities_are_not_certified(three: Designer, stands_still: dict[str, Any], gamma: Any) -> None:
    """F_gamma falls by 0.15 when one capacity changes by 0.1 there, whatever gamma: that is not stationary."""
    design = three(method="pgd", gamma=gamma)
    assert design.utility < 0
    assert not design.success


# --- bad options ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"gamma": -1}, "gamma"),
        ({"gamma": "big"}, "gamma"),
        ({"gamma": float("nan")}, "gamma"),
        ({"gamma": None}, "gamma"),
        ({"starts": 0}, "starts"),
        ({"starts": 1.5}, "starts"),
        ({"seed": -1}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"method": "magic"}, "method"),
        ({"preset": "x"}, "'default', 'paper', 'three', 'nine', 'seville'"),
        ({"x0": [1.0, 2.0]}, "x0"),
        ({"x0": [1.0, 2.0, 3.0, -1.0, 0.0, 0.0]}, "x0"),
        ({"x0": np.full(6, np.nan)}, "x0"),
        ({"x0": "here"}, "x0"),
        ({"budget": -1}, "budget"),
        ({"budget": "lots"}, "budget"),
        ({"max_capacity": -1}, "max_capacity"),
        ({"max_capacity": [1.0, 2.0]}, "max_capacity"),
        ({"tolerance": 0}, "tolerance"),
        ({"tolerance": "fine"}, "tolerance"),
        ({"time_limit": -1.0}, "time_limit"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"max_iterations": 5}, "max_iterations counts the steps of method='pgd'"),
        ({"symmetric": True, "method": "pgd"}, "method 'pgd'"),
        ({"speed": 1}, "unknown option 'speed'"),
        ({"budget": 1.0, "preset": "paper"}, "method 'pgd'"),
    ],
    ids=str,
)
def test_bad_options_are_named(options: dict[str, Any], word: str) -> None:
    with pytest.raises(OptionError, match=word):
        design_network(three_nodes(), **options)


def test_network_must_be_one() -> None:
    with pytest.raises(OptionError, match="network must be a TransportNetwork, got str"):
        design_network("three")  # type: ignore[arg-type]


def test_model_must_be_of_the_network() -> None:
    with pytest.raises(OptionError, match="model"):
        design_network(three_nodes(), model=DesignModel(three_nodes()))
