"""Trips estimated from counts: against planted trips, a derivative-free search and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from blocc._lib.arrays import Float, NDArray
from blocc.errors import OptionError
from blocc.kit.records import Step
from blocc.result import Status
from blocc.roads import (
    DemandEstimate,
    RoadNetwork,
    assign,
    estimate_demand,
    read_road_network,
    verify_demand_estimate,
    write_demand_estimate,
)
from blocc.roads.demand_estimate import geh
from blocc.roads.estimation import Estimation
from blocc.roads.leader import Leader


def town() -> RoadNetwork:
    """Nine nodes in a square, four pairs whose paths share links."""
    random = np.random.default_rng(3)
    ends = [(n, n + step) for n in range(9) for step in (1, 3) if (n % 3 < 2 or step == 3) and n + step < 9]
    links = [
        {
            "from": i,
            "to": j,
            "capacity": random.uniform(2.0, 4.0),
            "free_flow_time": random.uniform(0.8, 1.2),
            "b": 0.5,
            "power": 4.0,
        }
        for way in ends
        for i, j in (way, way[::-1])
    ]
    trips = [{"origin": o, "destination": d, "demand": 2.0} for o, d in ((0, 8), (2, 6), (0, 5), (3, 8))]
    return RoadNetwork.from_tables([{"id": i} for i in range(9)], links, trips)


def planted(network: RoadNetwork, every: int) -> dict[Any, float]:
    """Counts of some links at an equilibrium of other trips."""
    truth = replace(network, demand=network.demand * [1.3, 0.8, 1.1, 0.6])
    flow = assign(truth, relative_gap=1e-12).flow
    return {network.link_ids[a]: float(flow[a]) for a in range(0, network.n_links, every)}


def distance(network: RoadNetwork, counts: dict[Any, float], demand: Float[NDArray, "pairs"]) -> float:
    """The objective, written out."""
    flow = assign(replace(network, demand=demand), relative_gap=1e-12).flow
    largest = max(counts.values())
    to_counts = sum((flow[key - 1] - c) ** 2 / max(c, 0.01 * largest) for key, c in counts.items())
    return float(0.1 * ((demand - network.demand) ** 2 / network.demand).sum() + to_counts)


def test_derivatives_agree_with_differences() -> None:
    network = town()
    counts = planted(network, 2)
    counted = np.array(list(counts)) - 1
    volumes = np.array(list(counts.values()))
    question = Estimation(
        network, np.arange(4), np.full(4, 1e-4), np.full(4, 9.0), np.full(4, 0.1), counted, volumes, 1.0 / (1 + volumes)
    )
    leader, x, step = Leader(question), np.array([1.1, 0.9, 1.2, 0.8]), 1e-5
    assert question.gammas[-1] == np.inf
    for gamma in question.gammas:
        slope = leader.penalty(x, gamma)[1]
        for i in range(4):
            ahead = step * np.eye(4)[i]
            difference = (leader.penalty(x + ahead, gamma)[0] - leader.penalty(x - ahead, gamma)[0]) / (2.0 * step)
            assert slope[i] == pytest.approx(difference, rel=1e-4, abs=1e-5)
    values = [leader.penalty(x, gamma)[0] for gamma in question.gammas]
    assert values == sorted(values)  # the penalty function comes from below


def test_a_small_town_agrees_with_a_search_without_derivatives() -> None:
    network = town()
    counts = planted(network, 3)
    found = estimate_demand(network, counts, prior_weight=0.1)
    assert found.success
    assert found.objective == pytest.approx(distance(network, counts, found.demand), rel=1e-8)
    best = minimize(
        lambda x: distance(network, counts, network.demand * np.maximum(x, 1e-4)),
        np.ones(4),
        method="Nelder-Mead",
        options={"maxiter": 250, "xatol": 1e-5, "fatol": 1e-9},
    )
    assert found.objective <= best.fun * (1.0 + 1e-4)
    assert found.objective >= best.fun * (1.0 - 1e-3)
    rows = found.count_rows()
    assert [row["link_id"] for row in rows] == list(counts)
    np.testing.assert_allclose(found.residual, found.fitted - list(counts.values()))
    assert found.demand_rows()[0]["prior"] == 2.0
    assert "pairs without prior trips stay without" in repr(found)


def test_exact_counts_of_all_links_tell_all_pairs() -> None:
    network = town()
    counts = planted(network, 1)
    found = estimate_demand(network, counts, prior_weight=1e-7)
    np.testing.assert_allclose(found.demand, network.demand * [1.3, 0.8, 1.1, 0.6], rtol=1e-4)
    assert found.geh.max() < 1e-3


def test_planted_trips_of_sioux_falls_are_found_within_the_noise() -> None:
    truth = read_road_network("sioux-falls")
    random = np.random.default_rng(0)
    flow = assign(truth).flow
    prior = replace(truth, demand=truth.demand * np.exp(0.3 * random.normal(size=truth.n_pairs)))
    counted = random.choice(truth.n_links, 60, replace=False)
    count = flow[counted] * (1.0 + 0.02 * random.normal(size=60))
    found = estimate_demand(
        prior,
        {truth.link_ids[a]: c for a, c in zip(counted, count, strict=True)},
        prior_weight=1.0 / (0.3**2 * prior.demand),
        count_weight=1.0 / (0.02**2 * count),
    )
    assert found.success
    assert found.relative_gap <= 1e-10
    assert found.after.certificate.conservation < 1e-12

    def off(given: Float[NDArray, "n"], right: Float[NDArray, "n"]) -> float:
        return float(np.sqrt(np.mean((given / right - 1.0) ** 2)))

    assert off(found.fitted, count) < 0.02 < off(found.before.flow[counted], count) / 3.0
    rest = np.setdiff1d(np.arange(truth.n_links), counted)  # volumes that nobody counted come nearer too
    assert off(found.after.flow[rest], flow[rest]) < 0.7 * off(found.before.flow[rest], flow[rest])
    # 60 counts cannot tell 528 pairs apart, but they bring them nearer to the truth.
    assert np.linalg.norm(found.demand - truth.demand) < 0.9 * np.linalg.norm(prior.demand - truth.demand)
    # Both distances are about one for each figure that was observed, as they should be with right weights.
    assert found.objective < 60.0 + truth.n_pairs
    assert (found.geh < 5.0).mean() > (geh(found.before.flow[counted], count) < 5.0).mean()
    again = assign(found.network, relative_gap=1e-12)
    np.testing.assert_allclose(again.flow, found.after.flow, rtol=1e-6)


def test_limits_of_time_and_of_trips() -> None:
    network = town()
    stopped = estimate_demand(network, planted(network, 3), time_limit=1e-9)
    assert stopped.status is Status.TIME_LIMIT
    np.testing.assert_allclose(stopped.demand, network.demand)
    busy = estimate_demand(network, {1: 1e6}, max_factor=2.0, prior_weight=1e-6)
    assert (busy.demand <= 4.0 * (1 + 1e-12)).all()
    assert any("have the most that is allowed" in note for note in busy.assumptions)
    link = network.link_ids[int(np.flatnonzero(network.tail == 8)[0])]  # out of a corner where trips only end
    assert any(f"Link {link!r} was counted" in note for note in estimate_demand(network, {link: 0.5}).assumptions)


def test_an_interrupted_estimate_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    network = town()
    counts, whole = planted(network, 3), []
    once = estimate_demand(network, counts, prior_weight=0.1, report=whole.append)
    file = tmp_path / "run.blocc"

    def stop(step: Step) -> None:
        if step.value == whole[30].value:
            raise KeyboardInterrupt

    part = estimate_demand(network, counts, prior_weight=0.1, report=stop, checkpoint=file, checkpoint_seconds=0.0)
    assert part.status is Status.INTERRUPTED
    again = estimate_demand(network, counts, prior_weight=0.1, resume=file)
    assert again.success
    np.testing.assert_array_equal(again.demand, once.demand)


def test_counts_on_links_without_time() -> None:
    """No gamma keeps their penalised costs positive: the exact value alone is descended."""
    links = [
        {"from": "zone", "to": "a", "capacity": 1, "free_flow_time": 0, "b": 0, "power": 1},
        {"from": "a", "to": "b", "capacity": 1, "free_flow_time": 1, "b": 1, "power": 1},
        {"from": "a", "to": "b", "capacity": 1, "free_flow_time": 2, "b": 0, "power": 1, "link_id": "other"},
    ]
    trips = [{"origin": "zone", "destination": "b", "demand": 2.0}]
    network = RoadNetwork.from_tables([{"id": n} for n in ("zone", "a", "b")], links, trips)
    found = estimate_demand(network, {1: 3.0}, prior_weight=1.0, starts=2)
    # (d - 2)^2 / 2 + (d - 3)^2 / 3 is least at d = 2.4.
    assert found.demand[0] == pytest.approx(2.4, rel=1e-6)
    assert found.after.flow[1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"counts": {}}, "at least one"),
        ({"counts": [1.0]}, "mapping"),
        ({"counts": {99: 1.0}}, "no link 99"),
        ({"counts": {1: -1.0}}, "volume from 0"),
        ({"counts": {1: float("nan")}}, "volume from 0"),
        ({"counts": {1: 1e300}}, "volume from 0"),
        ({"counts": {1: 1.0, "1": 1.0}}, "twice"),
        ({"prior_weight": 0.0}, "prior_weight"),
        ({"prior_weight": [1.0, 2.0]}, "prior_weight"),
        ({"count_weight": -1.0}, "count_weight"),
        ({"max_factor": 1.0}, "max_factor"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"time_limit": -1.0}, "time_limit"),
        ({"network": None}, "RoadNetwork"),
        ({"start": 2}, "unknown option 'start'"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        estimate_demand(**({"network": town(), "counts": {1: 1.0}} | wrong))


# --- verified, and written -----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def estimate() -> DemandEstimate:
    return estimate_demand(town(), planted(town(), 2), prior_weight=0.1, starts=1)


def test_an_estimate_is_verified(estimate: DemandEstimate, tmp_path: Path) -> None:
    found = verify_demand_estimate(town(), estimate)
    assert found.ok, str(found)
    assert "no bound is known for estimates" in str(found)
    paths = write_demand_estimate(estimate, tmp_path)
    assert {path.name for path in paths} >= {"report.html", "estimate.png", "links.csv", "counts.csv", "columns.csv"}
    again = DemandEstimate.load(tmp_path)
    np.testing.assert_array_equal(again.demand, estimate.demand)
    np.testing.assert_array_equal(again.prior.demand, estimate.prior.demand)
    assert (again.objective, again.status, again.assumptions) == (
        estimate.objective,
        estimate.status,
        estimate.assumptions,
    )
    assert verify_demand_estimate(town(), again).ok
    page = (tmp_path / "report.html").read_text()
    for words in ("Counted and modelled volumes", "Counts and residuals", "Trips by origin", "There is no bound"):
        assert words in page


FORGED: dict[str, Callable[[DemandEstimate], DemandEstimate]] = {
    "objective": lambda one: replace(one, objective=0.999 * one.objective - 1e-6),
    "distance from the counts": lambda one: replace(one, count_distance=0.0),
    "distance from the prior": lambda one: replace(one, count=one.count + 0.0, prior_distance=0.0),
    "prior trips": lambda one: replace(one, prior=replace(one.prior, demand=1.01 * one.prior.demand)),
    "limits": lambda one: replace(one, settings={**one.settings, "max_factor": 1.01}),
    "estimate: relative gap": lambda one: replace(one, after=one.before),
    "gain left": lambda one: replace(one, stationarity=1.0),
    "network": lambda one: replace(one, network=replace(one.network, nodes=tuple("abcdefghi"))),
}


@pytest.mark.parametrize("claim", FORGED)
def test_forged_estimates_are_told(estimate: DemandEstimate, claim: str) -> None:
    found = verify_demand_estimate(town(), FORGED[claim](estimate))
    assert claim in {check.name for check in found.checks if not check.ok}
    assert not found.ok


def test_an_estimate_half_way_is_no_answer(estimate: DemandEstimate) -> None:
    network = town()
    demand = 0.5 * (network.demand + estimate.demand)
    half = replace(network, demand=demand)
    made = replace(estimate, network=half, after=assign(half))
    counts = dict(zip((network.link_ids[a] for a in estimate.counted.tolist()), estimate.count.tolist(), strict=True))
    value = distance(network, counts, demand)
    prior = float(0.1 * ((demand - network.demand) ** 2 / network.demand).sum())
    found = verify_demand_estimate(
        network, replace(made, objective=value, prior_distance=prior, count_distance=value - prior)
    )
    assert [check.name for check in found.checks if not check.ok] == ["gain left", "status"]
