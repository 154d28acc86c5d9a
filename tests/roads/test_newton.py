"""Second derivatives of expansions, and the descents that use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from blocc.result import Status
from blocc.roads import expand_network, read_road_network, verify_road_design
from blocc.roads.curvature import exact_curvature, goes_by_newton, penalty_curvature
from blocc.roads.descents import Budget
from blocc.roads.equilibrium import assign_paths, cost_answer
from blocc.roads.expansion import Expansion
from blocc.roads.generators import city_roads
from blocc.roads.leader import Leader
from blocc.roads.link_response import link_response
from blocc.roads.network import RoadNetwork
from blocc.roads.newton_descent import Bent, newton_descend

LINKS = [16, 17, 19, 20, 25, 26, 29, 39, 48, 74]


def sioux() -> RoadNetwork:
    return read_road_network("sioux-falls").scaled(demand=0.0011, capacity=0.001, time=0.01)


def question(exponent: float = 2.0) -> Expansion:
    network = sioux()
    at = np.array([network.link_ids.index(link) for link in LINKS])
    n = len(at)
    return Expansion(network, at, np.zeros(n), np.full(n, 25.0), np.full(n, 0.03), np.full(n, exponent))


def test_volumes_answer_as_conjugate_gradients_say() -> None:
    asked = question()
    x = np.linspace(1.0, 5.0, 10)
    costs = asked.follower_costs(x)
    found = Leader(asked).answer(x, 1e-14)
    values = asked.marginal(x, found.volume)
    response = link_response(found, costs)
    known = cost_answer(found, costs, values)[0]
    assert response.to_changes(values) == pytest.approx(known, abs=1e-6 * np.abs(known).max())
    change = np.zeros(asked.network.n_links)
    change[asked.candidates[0]] = 1.0
    one_by_one = response.to_changes(change)[response.rising]
    assert np.abs(one_by_one).max() > 0.0
    assert response.to_links(asked.candidates)[:, 0] == pytest.approx(one_by_one, abs=1e-6 * np.abs(one_by_one).max())


@pytest.mark.parametrize("gamma", [0.0, 10.0, np.inf])
@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_second_derivatives_are_differences_of_slopes(gamma: float, exponent: float) -> None:
    asked = question(exponent)
    leader, x, width = Leader(asked), np.linspace(1.0, 5.0, 10), 1e-4
    network = asked.network

    def slope(at: np.ndarray) -> np.ndarray:
        return leader.exact(at, 1e-14).slope if np.isinf(gamma) else leader.penalty_at(at, gamma)[1]

    differences = [(slope(x + width * e) - slope(x - width * e)) / (2.0 * width) for e in np.eye(10)]
    follower = leader.answer(x, 1e-14)
    if np.isinf(gamma):
        first, found = exact_curvature(asked, x, follower)
        assert first == pytest.approx(slope(x), abs=1e-6)
    else:
        costs = asked.penalised_costs(x, gamma)
        penalised = assign_paths(network.streets, network.pairs, costs, gap=1e-14)
        found = penalty_curvature(asked, x, gamma, penalised, follower if gamma else None)
    assert found == pytest.approx(found.T)
    assert found == pytest.approx(np.array(differences), abs=1e-5 * np.abs(found).max())


@pytest.mark.parametrize("budget", [None, 1.0])
def test_newton_steps_keep_to_limits_and_budget(budget: float | None) -> None:
    """A convex quadratic whose least value is outside of them."""
    asked, target = question(1.0), np.linspace(-3.0, 30.0, 10)
    limit = None if budget is None else Budget(asked.own, budget)

    def function(x: np.ndarray) -> Bent:
        return Bent(0.5 * float((x - target) @ (x - target)), x - target, np.eye(10))

    found = newton_descend(function, np.zeros(10), asked, limit, 1e-10, 1.0)
    if limit is None:
        assert found.x == pytest.approx(np.clip(target, 0.0, 25.0), abs=1e-4)
    else:
        assert limit.over(found.x) <= 1e-9
        middle = np.clip(target - (target - found.x)[-1], 0.0, 25.0)  # equal prices: a common shift
        assert found.x == pytest.approx(middle, abs=1e-2)


@pytest.fixture(scope="module")
def town() -> tuple[RoadNetwork, dict[str, object]]:
    """Many links, few trips: seconds by Newton steps."""
    network = city_roads(8, 70, 260, seed=3)
    return network, {"cost": 0.02, "exponent": 2.0, "starts": 1}


def test_many_links_converge_to_a_proven_gap(town: tuple[RoadNetwork, dict[str, object]]) -> None:
    network, options = town
    found = expand_network(network, **options)  # type: ignore[arg-type]
    assert found.status is Status.CONVERGED
    assert found.bound is not None
    assert found.bound <= found.objective < found.before.total_travel_time
    assert found.after.relative_gap <= 1e-10
    assert verify_road_design(network, found).ok


def test_newton_steps_are_resumed(town: tuple[RoadNetwork, dict[str, object]], tmp_path: Path) -> None:
    network, options = town
    whole = expand_network(network, **options)  # type: ignore[arg-type]
    seen: list[float] = []

    def interrupt(step: object) -> None:
        seen.append(0.0)
        if len(seen) == 8:
            raise KeyboardInterrupt

    file = tmp_path / "run.npz"
    broken = expand_network(network, **options, checkpoint=file, report=interrupt)  # type: ignore[arg-type]
    assert broken.status is Status.INTERRUPTED
    resumed = expand_network(network, **options, resume=file)  # type: ignore[arg-type]
    assert resumed.status is Status.CONVERGED
    assert resumed.objective == pytest.approx(whole.objective, rel=1e-6)
    assert [step.value for step in resumed.history[:7]] == [step.value for step in broken.history[:7]]


def test_small_questions_go_by_quasi_newton(town: tuple[RoadNetwork, dict[str, object]]) -> None:
    assert not goes_by_newton(question())
    network = town[0]
    growing = np.flatnonzero(network.b > 0.0)
    ones = np.ones(len(growing))
    assert goes_by_newton(Expansion(network, growing, 0.0 * ones, ones, ones, ones))
    assert not goes_by_newton(Expansion(network, growing, 0.0 * ones, ones, ones, 1.5 * ones))
