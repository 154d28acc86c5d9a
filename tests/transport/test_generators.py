"""Generated networks: sizes asked for, connected, the same for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocc.errors import OptionError
from blocc.transport.network.files import read_network
from blocc.transport.network.generators import city_network, grid_network


def test_ten_by_ten_has_400_links() -> None:
    network = grid_network(10, 10)
    assert (network.n_nodes, network.n_links, network.n_markets) == (100, 400, 9900)
    assert (network.reverse >= 0).all()
    assert network.time == pytest.approx(network.time[network.reverse])
    assert network.cost == pytest.approx(1.095 * network.time, abs=1e-5)
    ratio = network.alternative_time / network.free_flow_times
    assert ratio.min() > 0.99
    assert ratio.max() < 1.61


@pytest.mark.parametrize(
    ("options", "links"), [({"diagonals": 0}, 360), ({"diagonals": 81}, 522), ({"links": 410}, 410), ({}, 400)]
)
def test_links_as_asked_for(options: dict[str, int], links: int) -> None:
    assert grid_network(10, 10, **options).n_links == links


def test_grid_is_scaled_like_seville() -> None:
    grid, seville = grid_network(10, 10), read_network("seville")
    assert grid.demand.mean() == pytest.approx(seville.demand.mean(), rel=0.01)
    assert grid.time.mean() == pytest.approx(seville.time.mean(), rel=0.15)

    def worth_serving(network: Any) -> float:
        """Share of the demand that pays more than its own shortest path costs to build."""
        margin = network.revenue - 1.095 * network.free_flow_times
        return float(network.demand[margin > 0].sum() / network.demand.sum())

    assert worth_serving(grid) == pytest.approx(worth_serving(seville), abs=0.1)


def test_demand_falls_with_distance() -> None:
    network = grid_network(6, 6, demand=4.0)
    assert network.demand.mean() == pytest.approx(4.0, rel=1e-4)
    assert np.corrcoef(network.demand, network.free_flow_times)[0, 1] < -0.5


def test_seeds_decide() -> None:
    first, again, other = grid_network(3, 4, seed=1), grid_network(3, 4, seed=1), grid_network(3, 4, seed=2, name="g")
    assert first.market_rows() == again.market_rows()
    assert first.link_rows() != other.link_rows()
    assert (first.name, other.name) == ("grid 3 x 4", "g")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows must be a whole number of at least 1"),
        ({"rows": 1, "columns": 1}, "at least 2 nodes"),
        ({"rows": 2.5}, "rows must be a whole number"),
        ({"diagonals": 5}, "diagonals must be a whole number from 0 to 4"),
        ({"links": 25}, "links must be an even number from 24 to 32"),
        ({"links": 24, "diagonals": 0}, "either diagonals or links"),
        ({"demand": -1.0}, "demand must be"),
    ],
)
def test_impossible_grids(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        grid_network(**{"rows": 3, "columns": 3, **options})


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 5), columns=st.integers(2, 5), seed=st.integers(0, 2**32))
def test_all_grids_can_be_built(rows: int, columns: int, seed: int) -> None:
    network = grid_network(rows, columns, seed=seed)
    assert network.n_markets == network.n_nodes * (network.n_nodes - 1)


# --- cities ----------------------------------------------------------------------------------------------------------
def test_a_city_has_zones_that_are_not_passed_and_one_way_streets() -> None:
    city = city_network(12, 40, 130, markets=100, trip_time=3.0, demand=5.0)
    assert (city.n_nodes, city.n_links, city.n_markets) == (52, 130, 100)
    np.testing.assert_array_equal(city.through, np.arange(52) >= 12)
    assert (city.reverse < 0).sum() > 10
    assert set(city.origin) | set(city.destination) <= set(range(12))
    assert np.isfinite(city.free_flow_times).all()
    assert np.average(city.free_flow_times, weights=city.demand) == pytest.approx(3.0, rel=1e-4)
    assert city.demand.mean() == pytest.approx(5.0, rel=1e-4)
    assert city.market_rows() == city_network(12, 40, 130, markets=100, trip_time=3.0, demand=5.0).market_rows()


@pytest.mark.parametrize(("zones", "junctions", "links", "words"), [(1, 20, 60, "zones"), (5, 3, 60, "junctions")])
def test_impossible_cities(zones: int, junctions: int, links: int, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        city_network(zones, junctions, links)


@pytest.mark.parametrize("links", [20, 400])
def test_a_city_cannot_have_any_number_of_links(links: int) -> None:
    with pytest.raises(OptionError, match="links less connectors must be a whole number from"):
        city_network(5, 20, links)
