"""Bids, expansions and tariffs against brute force, closed forms and single-level programs."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from power_reference import THREE, clear, needs_pglib, profit_at, written

pytest.importorskip("matpowercaseframes", reason="matpowercaseframes is not installed")

from blocc.errors import BloccError, InputError, OptionError
from blocc.power import PowerDesign, bid_generators, expand_lines, read_case, set_tariff, solve_opf
from blocc.power.bidding import producer_revenue
from blocc.power.market import Additions, Market, Offers
from blocc.power.second_market import SecondMarket, Terms
from blocc.result import Status


@pytest.fixture
def three(tmp_path: Path) -> object:
    """Three buses in a ring."""
    return read_case(written(tmp_path))


# --- bids -----------------------------------------------------------------------------------------------------------
@needs_pglib
@pytest.mark.parametrize(
    ("name", "generators", "cap"),
    [
        pytest.param("case5", [3], 100.0, marks=pytest.mark.slow),
        pytest.param("case5", [5], 60.0, marks=pytest.mark.slow),
        ("case14", [1], 46.5),
        pytest.param("case14", [2], 46.5, marks=pytest.mark.slow),
    ],
)
def test_one_offer_agrees_with_brute_force(name: str, generators: list[int], cap: float) -> None:
    case = read_case(name)
    bids = bid_generators(case, generators, offer_cap=cap, starts=1)
    own = case.places("generators", generators)
    grid = np.linspace(0.0, cap, 401)
    profits = [profit_at(case, own, np.array([offer]), 10.0 * cap) for offer in grid]
    best = max(profits)
    assert bids.success
    assert bids.objective >= best - 1e-4 * (1.0 + abs(best))
    # The offer's own profit is what it says, by the other program.
    offers = np.array([one.value for one in bids.decisions])
    np.testing.assert_allclose(profit_at(case, own, offers, 10.0 * cap), bids.objective, rtol=1e-5, atol=1e-3)
    assert bids.verify().ok


@pytest.mark.slow
@needs_pglib
@pytest.mark.parametrize("generators", [pytest.param([3, 5], marks=pytest.mark.slow), [1, 4]])
def test_two_offers_agree_with_brute_force(generators: list[int]) -> None:
    case, cap = read_case("case5"), 100.0
    bids = bid_generators(case, generators, offer_cap=cap)
    own = case.places("generators", generators)
    levels = np.concatenate([np.linspace(0.0, cap, 26), [cap - 1e-3]])
    best = max(profit_at(case, own, np.array([a, b]), 10.0 * cap) for a in levels for b in levels)
    assert bids.success
    assert bids.objective >= best - 1e-4 * (1.0 + abs(best))
    assert bids.objective >= bids.objective_before - 1e-6
    offers = np.array([one.value for one in bids.decisions])
    np.testing.assert_allclose(profit_at(case, own, offers, 10.0 * cap), bids.objective, rtol=1e-5, atol=1e-3)
    assert bids.verify().ok


@needs_pglib
@pytest.mark.slow
@pytest.mark.parametrize(("name", "generators"), [("case118", [30, 40, 45]), ("case300", [11, 28, 29])])
def test_large_cases_beat_random_offers(name: str, generators: list[int]) -> None:
    case = read_case(name)
    bids = bid_generators(case, generators)
    own, cap = case.places("generators", generators), bids.settings["offer_cap"]
    market, generator = SecondMarket(case), np.random.default_rng(7)
    best = -np.inf
    for share in generator.random((300, len(own))):
        offers = dict(zip(own.tolist(), (share * cap).tolist(), strict=True))
        found = market.clear(Terms(offers=offers, price_cap=bids.settings["price_cap"]))
        best = max(best, -np.inf if found is None else float(found.profit(own).sum()))
    assert bids.success
    assert bids.objective >= best
    assert bids.verify().ok


def test_a_monopolist_behind_a_line_has_a_closed_form(three: object) -> None:
    # Only generator 2 can serve what the line of 60 MW does not let through: it offers the cap.
    bids = bid_generators(three, [2], offer_cap=70.0, starts=1)  # type: ignore[arg-type]
    np.testing.assert_allclose(bids.decision["generator 2 at bus 3"], 70.0, rtol=1e-6)
    np.testing.assert_allclose(bids.objective, (70.0 - 40.0) * bids.after.output[1] - 5.0, rtol=1e-6)
    assert bids.prices[3] == pytest.approx(70.0, rel=1e-6)
    assert bids.profits[2] == pytest.approx(bids.objective)
    assert set(bids.flows) == {1, 2, 3}


@pytest.mark.parametrize("cost", ["2 0 0 3 0.0 10.0 0.0", "2 0 0 3 0.05 10.0 7.0", "1 0 0 3 0 0 60 600 200 3400"])
def test_revenue_by_strong_duality_is_price_times_quantity(tmp_path: Path, cost: str) -> None:
    text = THREE.replace("60 60 60 0 0 1", "60 60 60 0.9 5 1").replace("2 0 0 3 0.0 10.0 0.0;", f"{cost};")
    if cost.startswith("1"):
        text = text.replace("2 0 0 3 0.0 40.0 5.0;", "2 0 0 3 0.0 40.0 5.0 0 0 0;")
    case = read_case(written(tmp_path, text), branch_model="matpower")
    own, price = np.array([1]), cp.Parameter(1, value=[33.0])
    market = Market(case, offers=Offers(own, price), price_cap=300.0)
    revenue = producer_revenue(market, own)
    dispatch = market.solve()
    for variable in revenue.variables():
        if hasattr(variable, "constraint"):
            variable.value = variable.constraint.dual_value
    np.testing.assert_allclose(revenue.value, dispatch.price[2] * dispatch.output[1], rtol=1e-6)


def test_a_search_that_was_stopped_is_continued_without_clearing_a_market_twice(three: object, tmp_path: Path) -> None:
    case: Any = three
    whole = bid_generators(case, [2], offer_cap=70.0)
    file, seen = tmp_path / "run.npz", []

    def stop(step: Any) -> None:
        seen.append(step)
        if len(seen) == 8:
            os.kill(os.getpid(), signal.SIGINT)

    part = bid_generators(case, [2], offer_cap=70.0, checkpoint=file, checkpoint_seconds=0.0, report=stop)
    assert part.status is Status.INTERRUPTED
    assert part.objective >= part.objective_before - 1e-9
    cleared: list[Any] = []
    real = SecondMarket.clear
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecondMarket, "clear", lambda self, terms: cleared.append(terms) or real(self, terms))
        again = bid_generators(case, [2], offer_cap=70.0, resume=file)
        fresh, cleared[:] = len(cleared), []
        bid_generators(case, [2], offer_cap=70.0)
    assert fresh < len(cleared)
    assert again.status is whole.status
    np.testing.assert_allclose(again.objective, whole.objective, rtol=1e-9)
    assert again.evaluations == whole.evaluations
    with pytest.raises(BloccError, match="offer_cap"):
        bid_generators(case, [2], offer_cap=69.0, resume=file)
    with pytest.raises(BloccError, match="another problem"):
        bid_generators(case.scaled(1.01), [2], offer_cap=70.0, resume=file)


def test_a_charge_at_which_a_generator_is_just_full_has_the_prices_of_both_solvers() -> None:
    found = set_tariff(read_case("case5"), starts=1, max_iterations=8)
    assert found.success, found.message
    assert found.verify().ok, found.verify()
    np.testing.assert_allclose(found.after.demand.sum(), 600.0, rtol=1e-9)  # where the cheapest generator ends


def test_offers_that_make_no_sense_are_refused(three: object) -> None:
    for arguments, words in (
        ({"generators": [1, 2]}, "owns every generator"),
        ({"generators": [2], "offer_cap": 20.0}, "offer_cap must not be below the producer's own cost"),
        ({"generators": [2], "offer_cap": 90.0, "price_cap": 80.0}, "price_cap must be above offer_cap"),
        ({"generators": [2], "start": 3}, "start is no option of a question about electricity; those are starts,"),
        ({"generators": [2], "starts": 0}, "starts must be a whole number"),
        ({"generators": [2], "tolerance": 1.0}, "tolerance must be"),
        ({"generators": [3]}, "has no 3 in service"),
    ):
        with pytest.raises(OptionError, match=words):
            bid_generators(three, **arguments)  # type: ignore[arg-type]


def test_a_time_limit_keeps_the_best_offers(three: object) -> None:
    bids = bid_generators(three, [2], offer_cap=70.0, time_limit=1e-3)  # type: ignore[arg-type]
    assert bids.status is Status.TIME_LIMIT
    assert not bids.success
    assert bids.objective >= bids.objective_before - 1e-6 * (1.0 + abs(bids.objective_before))
    # Offers at zero, where a search begins that has cleared nothing, would lose money.
    np.testing.assert_allclose([one.value for one in bids.decisions], [one.before for one in bids.decisions])


def test_an_answer_that_one_solver_cannot_confirm_is_kept_but_not_certified(
    three: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(market: Market) -> object:
        if market.offers is None:
            return solve(market)
        raise InputError("the cone solver ends with something else")

    solve = Market.solve
    monkeypatch.setattr(Market, "solve", fails)
    bids = bid_generators(three, [2], offer_cap=70.0, starts=1)  # type: ignore[arg-type]
    assert bids.status is Status.STALLED
    assert "market: two solvers" in bids.message
    np.testing.assert_allclose(bids.decisions[0].value, 70.0, rtol=1e-2)


def test_ctrl_c_keeps_the_best_offers(three: object) -> None:
    def interrupt(step: object) -> None:
        if not told:
            os.kill(os.getpid(), signal.SIGINT)
        told.append(step)

    told: list[object] = []
    bids = bid_generators(three, [2], offer_cap=70.0, report=interrupt)  # type: ignore[arg-type]
    assert bids.status is Status.INTERRUPTED
    assert "best decision so far" in bids.message
    assert np.isfinite(bids.objective)
    assert len(told) <= 3


# --- expansion ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("lines", "budget"), [([3], None), ([1, 3], None), ([1, 2, 3], 60.0)])
def test_an_expansion_for_cost_is_one_linear_program(three: object, lines: list[int], budget: float | None) -> None:
    case = three
    found = expand_lines(case, lines, cost=4.0, goal="cost", budget=budget, starts=1)  # type: ignore[arg-type]
    added = cp.Variable(len(lines), nonneg=True)
    market = Market(case, additions=Additions(np.array(lines) - 1, added), price_cap=800.0)  # type: ignore[arg-type]
    rules = [*market.problem.constraints, added <= case.capacity[np.array(lines) - 1]]  # type: ignore[attr-defined]
    rules += [] if budget is None else [4.0 * cp.sum(added) <= budget]
    joint = cp.Problem(cp.Minimize(market.cost + 4.0 * cp.sum(added)), rules)
    joint.solve(solver=cp.CLARABEL)
    assert found.success
    np.testing.assert_allclose(found.objective, joint.value, rtol=1e-4)
    assert found.verify().ok


@pytest.mark.slow
@needs_pglib
def test_an_expansion_for_bills_agrees_with_brute_force() -> None:
    case = read_case("case5")
    found = expand_lines(case, cost=5.0)
    assert [one.number for one in found.decisions] == [6]
    values = []
    for added in np.linspace(0.0, 240.0, 481):
        capacity = case.capacity.copy()
        capacity[5] += added
        cleared = clear(case, case.cost_linear, 800.0, capacity)
        values.append(float(cleared.price @ case.demand) + 5.0 * added)
    assert found.success
    assert found.objective <= min(values) + 1e-4 * min(values)
    assert found.objective <= found.objective_before
    assert found.verify().ok


def test_expansions_that_make_no_sense_are_refused(tmp_path: Path, three: object) -> None:
    for arguments, words in (
        ({"lines": [1], "cost": -1.0}, "cost must be a nonnegative number"),
        ({"lines": [1], "cost": [1.0, 2.0]}, "or one for each of 1 lines"),
        ({"lines": [1], "cost": 1.0, "goal": "joy"}, "goal must be"),
        ({"lines": [9], "cost": 1.0}, "has no 9 in service"),
    ):
        with pytest.raises(OptionError, match=words):
            expand_lines(three, **arguments)  # type: ignore[arg-type]
    free = read_case(written(tmp_path, THREE.replace("80 80 80", "0 0 0", 1)))
    with pytest.raises(OptionError, match="line 1 has no limit"):
        expand_lines(free, [1], cost=1.0)
    wide = read_case(written(tmp_path, THREE.replace("60 60 60", "600 600 600").replace("80 80 80", "800 800 800")))
    with pytest.raises(OptionError, match="is congested; name those"):
        expand_lines(wide, cost=1.0)


# --- tariffs --------------------------------------------------------------------------------------------------------
@needs_pglib
def test_the_tariff_of_most_revenue_has_a_closed_form() -> None:
    # Without congestion and at a constant price p demand is D (1 - e - e t / p) / (1) up to t: revenue peaks at half
    # of what is left between p and the price at which nobody buys, p (1 + 1 / e).
    case = read_case("case14")
    found = set_tariff(case, elasticity=-0.3, starts=1)
    price, demand = 7.920951, 259.0
    choke = price / 0.3
    assert found.success
    np.testing.assert_allclose(found.decision["zone all"], choke / 2.0, rtol=1e-4)
    np.testing.assert_allclose(found.objective, choke / 2.0 * demand / 2.0, rtol=1e-4)
    assert found.verify().ok


@pytest.mark.slow
@needs_pglib
def test_a_tariff_that_must_earn_takes_the_lower_of_two_charges() -> None:
    case = read_case("case14")
    found = set_tariff(case, goal="welfare", required_revenue=1000.0, starts=1)
    choke, demand = 7.920951 / 0.3, 259.0
    charge = choke / 2.0 - np.sqrt((choke / 2.0) ** 2 - 1000.0 * choke / demand)  # t D (1 - t / choke) = 1000
    assert found.success
    np.testing.assert_allclose(found.decision["zone all"], charge, rtol=1e-3)
    assert found.figures["revenue of the charges"] >= 1000.0 * (1.0 - 1e-5)
    assert found.objective <= found.figures["welfare without charges"]
    with pytest.raises(OptionError, match="required_revenue must be attainable"):
        set_tariff(case, goal="welfare", required_revenue=1e6, starts=1)


def test_charges_by_zone_agree_with_a_grid(three: object) -> None:
    zones = {"middle": [2], "end": [3]}
    found = set_tariff(three, zones=zones, elasticity=-0.5)  # type: ignore[arg-type]
    assert found.success
    assert set(found.decision) == {"zone middle", "zone end"}
    from blocc.power.tariff import _Tariff

    question = _tariff_of(found, _Tariff)
    best = min(question.value(np.array([a, b])) for a in np.linspace(0, 60, 9) for b in np.linspace(0, 60, 9))
    assert found.objective >= -best - 1e-3 * abs(best)
    assert found.verify().ok


def _tariff_of(found: PowerDesign, kind: type) -> object:
    from blocc.power.power_options import PowerOptions

    settings = found.settings
    limits = {"required": None, "max_charge": None, "reference_price": settings["reference_price"]}
    return kind(found.case, settings["elasticity"], "revenue", limits, settings["zones"], PowerOptions())


def test_tariffs_that_make_no_sense_are_refused(three: object) -> None:
    for arguments, words in (
        ({"elasticity": 0.3}, "elasticity must be negative"),
        ({"goal": "welfare"}, "required_revenue must be given"),
        ({"required_revenue": 5.0}, "required_revenue must be given"),
        ({"zones": {"a": [1]}}, "no bus of 'a' has any demand"),
        ({"zones": {"a": [2], "b": [2, 3]}}, "is in another zone too"),
        ({"zones": []}, "zones must be a dict"),
    ):
        with pytest.raises(OptionError, match=words):
            set_tariff(three, **arguments)  # type: ignore[arg-type]


# --- claims ---------------------------------------------------------------------------------------------------------
def test_verify_finds_a_false_claim(three: object) -> None:
    bids = bid_generators(three, [2], offer_cap=70.0, starts=1)  # type: ignore[arg-type]
    assert bids.verify().ok
    wrong = replace(bids, objective=bids.objective * 1.01)
    assert [check.name for check in wrong.verify().failed] == ["objective", "objective of the dispatch", "status"]
    worse = replace(bids, decisions=(bids.decisions[0]._replace(value=50.0),))
    assert not worse.verify().ok
    assert "generator 2 at bus 3" in repr(bids)


def test_a_market_with_too_much_power_is_refused(tmp_path: Path) -> None:
    text = THREE.replace("1 0 0 0 0 1 100 1 200 0;", "1 0 0 0 0 1 100 1 200 149;")
    case = read_case(written(tmp_path, text))
    with pytest.raises(InputError, match="cannot serve the demand"):
        bid_generators(case, [2], offer_cap=70.0)
    assert solve_opf(read_case(written(tmp_path))).cost > 0.0


@pytest.mark.slow
@needs_pglib
def test_bids_of_three_generators_are_the_best_of_a_grid_and_no_local_answer() -> None:
    # Descents alone end 3 % below: another order of merit is better, and far away.
    generator, case = np.random.default_rng(3), read_case("case5")
    case = replace(
        case,
        cost_linear=case.cost_linear * generator.uniform(0.6, 1.5, 5),
        capacity=case.capacity * generator.uniform(0.7, 1.3, 6),
        output_max=case.output_max * generator.uniform(0.8, 1.3, 5),
        demand=case.demand * generator.uniform(0.85, 1.1, 5),
    )
    bids = bid_generators(case, [1, 2, 4], starts=1)
    own, cap = np.array([0, 1, 3]), bids.settings["offer_cap"]
    beside = [cost + side for cost in case.cost_linear[[2, 4]] for side in (-1e-3, 1e-3)]
    levels = np.clip([*beside, cap, 0.3 * cap, 0.6 * cap], 0.0, cap)
    grid = [profit_at(case, own, np.array(one), bids.settings["price_cap"]) for one in product(levels, repeat=3)]
    assert bids.success, bids
    assert bids.objective >= max(grid) - 1e-3 * abs(max(grid))
