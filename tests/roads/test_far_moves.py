"""No answer is called one where a single link, widened by a third or not at all, would be better."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from blocc.roads import RoadDesign, RoadNetwork, assign, expand_network
from blocc.roads import search as searching
from blocc.roads.generators import city_roads

COST = 0.02  #: of the square of an expansion


@pytest.fixture(scope="module")
def town() -> RoadNetwork:
    return city_roads(8, 70, 260, seed=3)


def designed(town: RoadNetwork) -> RoadDesign:
    return expand_network(town, cost=COST, exponent=2.0, starts=1)


def value(town: RoadNetwork, expansion: np.ndarray) -> float:
    return assign(town, capacity=town.capacity + expansion).total_travel_time + COST * float((expansion**2).sum())


def test_no_single_move_is_better(town: RoadNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    design = designed(town)
    assert design.success
    assert design.objective == pytest.approx(value(town, design.expansion), rel=1e-9)
    for link in np.flatnonzero(np.isfinite(design.marginal_value)):
        moved = design.expansion.copy()
        moved[link] = 0.0 if moved[link] > 0.0 else 0.3 * town.capacity[link]
        assert value(town, moved) >= design.objective * (1.0 - 1e-5)
    monkeypatch.setattr(searching, "try_far_moves", lambda *_: None)
    near = designed(town)
    assert design.objective < near.objective * (1.0 - 1e-6)  # descents alone end higher here
    assert design.bound == pytest.approx(near.bound, rel=1e-9)
