"""No answer is called one where a single link, widened by a third or not at all, would be better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba")

from blocc.roads import RoadDesign, RoadNetwork, assign, expand_network
from blocc.roads import search as searching
from blocc.roads.generators import city_roads

CANDIDATES, DEAR = 60, 12.0


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    """Costs that rise at once: paths come into use suddenly."""
    found = city_roads(24, 60, 220, seed=4)
    return replace(found, power=np.full(found.n_links, 10.0), demand=1.3 * found.demand)


def designed(city: RoadNetwork) -> RoadDesign:
    able = np.flatnonzero(city.b > 0.0)
    chosen = [city.link_ids[link] for link in able[:: len(able) // CANDIDATES][:CANDIDATES]]
    return expand_network(city, candidates=chosen, cost=DEAR, max_expansion=2.0 * float(city.capacity.max()), starts=1)


def value(city: RoadNetwork, expansion: np.ndarray) -> float:
    return assign(city, capacity=city.capacity + expansion).total_travel_time + DEAR * float(expansion.sum())


def test_no_single_move_is_better(city: RoadNetwork) -> None:
    design = designed(city)
    assert design.success
    assert design.objective == pytest.approx(value(city, design.expansion), rel=1e-9)
    for link in np.flatnonzero(np.isfinite(design.marginal_value)):
        moved = design.expansion.copy()
        moved[link] = 0.0 if moved[link] > 0.0 else 0.3 * city.capacity[link]
        assert value(city, moved) >= design.objective * (1.0 - 1e-5)


def test_they_find_what_descents_do_not(city: RoadNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    far = designed(city)
    monkeypatch.setattr(searching, "try_far_moves", lambda *_: None)
    near = designed(city)
    assert far.objective <= near.objective * (1.0 + 1e-9)
    assert far.bound == pytest.approx(near.bound, rel=1e-9)
